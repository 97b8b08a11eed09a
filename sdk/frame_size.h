/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/frame_size.h - how much stack a function holds below its frame pointer, read from its code.
 *
 * proc(5) tells ip and sp of a thread that waits, and no more.  Where code keeps frame pointers
 * (Ubuntu builds all so since 24.04) its unwind tables say "rbp + 16", which then leads nowhere.
 * But such a function has set rbp from rsp itself, and in the straight code behind that has moved
 * rsp by constants only: so rbp is sp plus their sum.  A branch may hide more of it: believe the
 * answer only if what lies above the place that it leads to is a return address.
 * Pure functions on copied bytes: any thread, a signal handler too.
 * Opcodes and lengths: Intel SDM volume 2, appendix A; AMD APM volume 3, appendix A.
 */
#ifndef SDK_FRAME_SIZE_H
#define SDK_FRAME_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define FRAME_CODE_BYTES 4096u /* of a function, from its start: more need not be copied */
#define FRAME_CALL_BYTES 7u    /* the longest call without its prefixes */

#define FRAME_MAX_BYTES (1 << 20) /* a larger one is no frame */
#define FRAME_RSP 4

/* One instruction: how long, and by how much the stack grows. */
struct frame_instruction {
    uint32_t length;
    int64_t grows;
};

enum { FRAME_GOES_ON, FRAME_LEAVES, FRAME_UNKNOWN }; /* leaves: control goes elsewhere, or may */

/* The bytes behind the opcode. */
struct frame_shape {
    bool modrm;
    uint32_t immediate; /* bytes */
};

/* A few opcodes in ranges, first and last. */
static inline bool frame_within(uint8_t byte, const uint8_t (*ranges)[2], size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (byte >= ranges[i][0] && byte <= ranges[i][1])
            return true;
    return false;
}
#define FRAME_WITHIN(byte, ranges) frame_within(byte, ranges, sizeof(ranges) / sizeof((ranges)[0]))

/* Bytes of ModRM, SIB and displacement. */
static inline uint32_t frame_modrm_length(const uint8_t *at)
{
    uint8_t mod = at[0] >> 6, rm = at[0] & 7;
    uint32_t length = 1;
    if (mod == 3)
        return 1;
    if (rm == FRAME_RSP)
        length += 1 + (mod == 0 && (at[1] & 7) == 5 ? 4 : 0);
    else if (mod == 0 && rm == 5)
        length += 4;
    return length + (mod == 1 ? 1 : mod == 2 ? 4 : 0);
}

/* Opcodes behind 0f: those that compilers put into the head of a function. */
static inline int frame_shape_of_two(uint8_t opcode, struct frame_shape *ret)
{
    static const uint8_t plain[][2] = {{0x0d, 0x0d}, {0x10, 0x1f}, {0x28, 0x2f}, {0x40, 0x6f},
                                       {0x74, 0x76}, {0x7e, 0x7f}, {0x90, 0x9f}, {0xa3, 0xa3},
                                       {0xaf, 0xaf}, {0xb6, 0xb7}, {0xbc, 0xbf}, {0xd0, 0xfe}};
    static const uint8_t with_byte[][2] = {{0x70, 0x73}, {0xa4, 0xa4}, {0xba, 0xba}, {0xc6, 0xc6}};
    static const uint8_t leaving[][2] = {{0x05, 0x05}, {0x0b, 0x0b}, {0x80, 0x8f}};
    if (FRAME_WITHIN(opcode, leaving))
        return FRAME_LEAVES;
    *ret = (struct frame_shape){.modrm = true, .immediate = FRAME_WITHIN(opcode, with_byte)};
    return FRAME_WITHIN(opcode, plain) || ret->immediate ? FRAME_GOES_ON : FRAME_UNKNOWN;
}

static inline int frame_shape_of_one(uint8_t opcode, uint8_t modrm, uint8_t rex, bool word,
                                     struct frame_shape *ret)
{
    static const uint8_t leaving[][2] = {{0x70, 0x7f}, {0xc2, 0xc3}, {0xc9, 0xc9}, {0xcc, 0xcc},
                                         {0xe0, 0xe3}, {0xe8, 0xe9}, {0xeb, 0xeb}, {0xf4, 0xf4}};
    static const uint8_t alone[][2] = {{0x50, 0x5f}, {0x90, 0x99}};
    static const uint8_t with_modrm[][2] = {
        {0x63, 0x63}, {0x84, 0x8d}, {0x8f, 0x8f}, {0xd0, 0xd3}, {0xfe, 0xff}};
    static const uint8_t with_byte[][2] = {
        {0x6b, 0x6b}, {0x80, 0x80}, {0x83, 0x83}, {0xc0, 0xc1}, {0xc6, 0xc6}};
    static const uint8_t with_long[][2] = {{0x69, 0x69}, {0x81, 0x81}, {0xc7, 0xc7}};
    uint32_t full = word ? 2 : 4, sub = modrm >> 3 & 7;
    if (FRAME_WITHIN(opcode, leaving) || (opcode == 0xff && sub >= 2 && sub <= 5))
        return FRAME_LEAVES;
    if (opcode < 0x40 && (opcode & 7) < 6) /* add or adc sbb and sub xor cmp */
        *ret = (struct frame_shape){(opcode & 7) < 4, (opcode & 7) == 4   ? 1
                                                      : (opcode & 7) == 5 ? full
                                                                          : 0};
    else if (FRAME_WITHIN(opcode, alone))
        *ret = (struct frame_shape){false, 0};
    else if (FRAME_WITHIN(opcode, with_modrm))
        *ret = (struct frame_shape){true, 0};
    else if (FRAME_WITHIN(opcode, with_byte))
        *ret = (struct frame_shape){true, 1};
    else if (FRAME_WITHIN(opcode, with_long))
        *ret = (struct frame_shape){true, full};
    else if (opcode == 0xf6 || opcode == 0xf7) /* test has an immediate, not and neg have none */
        *ret = (struct frame_shape){true, sub >= 2 ? 0 : opcode == 0xf6 ? 1 : full};
    else if (opcode == 0x6a || opcode == 0xa8 || (opcode >= 0xb0 && opcode <= 0xb7))
        *ret = (struct frame_shape){false, 1};
    else if (opcode == 0x68 || opcode == 0xa9)
        *ret = (struct frame_shape){false, full};
    else if (opcode >= 0xb8 && opcode <= 0xbf)
        *ret = (struct frame_shape){false, rex & 8 ? 8 : full};
    else
        return FRAME_UNKNOWN;
    return FRAME_GOES_ON;
}

/* Give the effect on rsp; false: something else than moving it by a constant. */
static inline bool frame_growth(uint8_t opcode, const uint8_t *modrm, uint32_t immediate,
                                uint8_t rex, int64_t *ret)
{
    uint8_t mod = modrm[0] >> 6, reg = (modrm[0] >> 3 & 7) | (rex & 4) << 1,
            rm = (modrm[0] & 7) | (rex & 1) << 3;
    bool to_rm = mod == 3 && rm == FRAME_RSP;
    *ret = 0;
    if (opcode >= 0x50 && opcode <= 0x5f) {
        *ret = opcode < 0x58 ? 8 : -8;
        return opcode != 0x5c || rex & 1; /* pop %rsp */
    }
    if (opcode == 0x68 || opcode == 0x6a || (opcode == 0xff && (reg & 7) == 6)) {
        *ret = 8;
        return true;
    }
    if ((opcode == 0x81 || opcode == 0x83) && to_rm) {
        int32_t by = 0;
        memcpy(&by, modrm + 1, immediate);
        by = immediate == 1 ? (int8_t)by : by;
        *ret = reg == 5 ? by : reg == 0 ? -(int64_t)by : 0;
        return (reg == 5 || reg == 0 || reg == 7) && rex & 8; /* sub, add, cmp */
    }
    if (opcode == 0x8d || opcode == 0x63 || (opcode < 0x40 && (opcode & 6) == 2) || opcode == 0x8b)
        return reg != FRAME_RSP || (opcode >= 0x38 && opcode < 0x40); /* cmp writes nothing */
    if (opcode == 0x8f || opcode == 0x87 || opcode == 0x94)
        return false; /* pop or exchange: not in a head */
    return !to_rm || (opcode >= 0x38 && opcode < 0x40) || opcode == 0x84 || opcode == 0x85 ||
           opcode == 0xf6 || opcode == 0xf7;
}

/* `code` has 16 readable bytes at least. */
static inline int frame_decode(const uint8_t *code, struct frame_instruction *ret)
{
    const uint8_t *at = code;
    bool word = false;
    uint8_t rex = 0;
    for (; at - code < 4 && (*at == 0x66 || *at == 0xf2 || *at == 0xf3 || *at == 0x64); at++)
        word = word || *at == 0x66;
    if ((*at & 0xf0) == 0x40)
        rex = *at++;
    bool two = *at == 0x0f;
    uint8_t opcode = two ? *++at : *at;
    struct frame_shape shape;
    int is = two ? frame_shape_of_two(opcode, &shape)
                 : frame_shape_of_one(opcode, at[1], rex, word, &shape);
    if (is != FRAME_GOES_ON)
        return is;
    at++;
    ret->grows = 0;
    if (!two && !frame_growth(opcode, at, shape.immediate, rex, &ret->grows))
        return FRAME_UNKNOWN;
    at += (shape.modrm ? frame_modrm_length(at) : 0) + shape.immediate;
    ret->length = (uint32_t)(at - code);
    return FRAME_GOES_ON;
}

/* Bytes between rbp and rsp at the end of `code`, which is a function from its start on: up to
 * the thread's ip, or its first FRAME_CODE_BYTES; -1: it cannot be told. */
static inline int64_t frame_size(const uint8_t *code, size_t size)
{
    uint8_t few[16] = {0}; /* zeroes behind the end */
    int64_t held = 0;
    size_t at = size;
    while (at >= 3 && memcmp(code + at - 3, "\x48\x89\xe5", 3) != 0 && /* mov %rsp, %rbp */
           memcmp(code + at - 3, "\x48\x8b\xec", 3) != 0)
        at--;
    if (at < 3)
        return -1;
    for (int is = FRAME_GOES_ON; at < size && is == FRAME_GOES_ON;) {
        struct frame_instruction one = {0, 0};
        size_t left = size - at;
        memcpy(few, code + at, left < sizeof(few) ? left : sizeof(few));
        if ((is = frame_decode(few, &one)) == FRAME_UNKNOWN)
            return -1;
        held += one.grows;
        at += one.length;
    }
    return held >= 0 && held <= FRAME_MAX_BYTES ? held : -1;
}

/* The bytes before an address that code may return to: do they end with a call? */
static inline bool frame_is_behind_call(const uint8_t before[FRAME_CALL_BYTES])
{
    if (before[FRAME_CALL_BYTES - 5] == 0xe8)
        return true;
    for (uint32_t n = 2; n <= FRAME_CALL_BYTES; n++) { /* ff /2 in all its lengths */
        uint8_t call[FRAME_CALL_BYTES + 1] = {0};
        memcpy(call, before + FRAME_CALL_BYTES - n, n);
        if (call[0] == 0xff && (call[1] >> 3 & 7) == 2 && 1 + frame_modrm_length(call + 1) == n)
            return true;
    }
    return false;
}

#endif
