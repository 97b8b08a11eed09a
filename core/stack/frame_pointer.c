/* SPDX-License-Identifier: Apache-2.0
 *
 * core/stack/frame_pointer.c - the frame pointer of a thread of which only ip and sp are known.
 * Owner's thread only.
 *
 * proc(5) tells those two of a thread that waits, and where code keeps frame pointers (Ubuntu since
 * 24.04 builds all so) the CFI says "rbp + 16", which then leads nowhere.  But such a function has
 * set rbp from rsp itself, and in the straight code behind that has moved rsp by constants only: so
 * rbp is sp plus their sum.  Believed only if a return address stands above the place it points to.
 * Opcodes and lengths: Intel SDM volume 2, appendix A, and AMD APM volume 3, appendix A.
 */
#include <errno.h>
#include <string.h>

#include "core/stack/process.h"

#if defined(__x86_64__)

#define SEEN_BYTES 4096u          /* of a function, from its start: where it sets rbp */
#define FRAME_MAX_BYTES (1 << 20) /* a frame larger than this is no frame */
#define RSP 4

/* One instruction: how long, and by how much the stack grows. */
struct instruction {
    uint32_t length;
    int64_t grows;
};

enum { GOES_ON, LEAVES, UNKNOWN }; /* LEAVES: control goes elsewhere, or may */

/* What stands behind the opcode. */
struct shape {
    bool modrm;
    uint32_t immediate; /* bytes */
};

/* A few opcodes in ranges, first and last. */
static bool within(uint8_t byte, const uint8_t (*ranges)[2], size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (byte >= ranges[i][0] && byte <= ranges[i][1])
            return true;
    return false;
}
#define WITHIN(byte, ranges) within(byte, ranges, sizeof(ranges) / sizeof((ranges)[0]))

/* Bytes of ModRM, SIB and displacement. */
static uint32_t modrm_length(const uint8_t *at)
{
    uint8_t mod = at[0] >> 6, rm = at[0] & 7;
    uint32_t length = 1;
    if (mod == 3)
        return 1;
    if (rm == RSP)
        length += 1 + (mod == 0 && (at[1] & 7) == 5 ? 4 : 0);
    else if (mod == 0 && rm == 5)
        length += 4;
    return length + (mod == 1 ? 1 : mod == 2 ? 4 : 0);
}

/* Opcodes behind 0f: those that compilers put into the head of a function. */
static int shape_of_two(uint8_t opcode, struct shape *ret)
{
    static const uint8_t plain[][2] = {{0x0d, 0x0d}, {0x10, 0x1f}, {0x28, 0x2f}, {0x40, 0x6f},
                                       {0x74, 0x76}, {0x7e, 0x7f}, {0x90, 0x9f}, {0xa3, 0xa3},
                                       {0xaf, 0xaf}, {0xb6, 0xb7}, {0xbc, 0xbf}, {0xd0, 0xfe}};
    static const uint8_t with_byte[][2] = {{0x70, 0x73}, {0xa4, 0xa4}, {0xba, 0xba}, {0xc6, 0xc6}};
    static const uint8_t leaving[][2] = {{0x05, 0x05}, {0x0b, 0x0b}, {0x80, 0x8f}};
    if (WITHIN(opcode, leaving))
        return LEAVES;
    *ret = (struct shape){.modrm = true, .immediate = WITHIN(opcode, with_byte)};
    return WITHIN(opcode, plain) || ret->immediate ? GOES_ON : UNKNOWN;
}

static int shape_of_one(uint8_t opcode, uint8_t modrm, uint8_t rex, bool word, struct shape *ret)
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
    if (WITHIN(opcode, leaving) || (opcode == 0xff && sub >= 2 && sub <= 5))
        return LEAVES;
    if (opcode < 0x40 && (opcode & 7) < 6) /* add or adc sbb and sub xor cmp */
        *ret = (struct shape){(opcode & 7) < 4, (opcode & 7) == 4   ? 1
                                                : (opcode & 7) == 5 ? full
                                                                    : 0};
    else if (WITHIN(opcode, alone))
        *ret = (struct shape){false, 0};
    else if (WITHIN(opcode, with_modrm))
        *ret = (struct shape){true, 0};
    else if (WITHIN(opcode, with_byte))
        *ret = (struct shape){true, 1};
    else if (WITHIN(opcode, with_long))
        *ret = (struct shape){true, full};
    else if (opcode == 0xf6 || opcode == 0xf7) /* test has an immediate, not and neg have none */
        *ret = (struct shape){true, sub >= 2 ? 0 : opcode == 0xf6 ? 1 : full};
    else if (opcode == 0x6a || opcode == 0xa8 || (opcode >= 0xb0 && opcode <= 0xb7))
        *ret = (struct shape){false, 1};
    else if (opcode == 0x68 || opcode == 0xa9)
        *ret = (struct shape){false, full};
    else if (opcode >= 0xb8 && opcode <= 0xbf)
        *ret = (struct shape){false, rex & 8 ? 8 : full};
    else
        return UNKNOWN;
    return GOES_ON;
}

/* What it does to rsp; false: something else than moving it by a constant. */
static bool growth(uint8_t opcode, const uint8_t *modrm, uint32_t immediate, uint8_t rex,
                   int64_t *ret)
{
    uint8_t mod = modrm[0] >> 6, reg = (modrm[0] >> 3 & 7) | (rex & 4) << 1,
            rm = (modrm[0] & 7) | (rex & 1) << 3;
    bool to_rm = mod == 3 && rm == RSP;
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
        return reg != RSP || (opcode >= 0x38 && opcode < 0x40); /* cmp writes nothing */
    if (opcode == 0x8f || opcode == 0x87 || opcode == 0x94)
        return false; /* pop or exchange: not in a head */
    return !to_rm || (opcode >= 0x38 && opcode < 0x40) || opcode == 0x84 || opcode == 0x85 ||
           opcode == 0xf6 || opcode == 0xf7;
}

/* `code` has 16 readable bytes at least. */
static int decode(const uint8_t *code, struct instruction *ret)
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
    struct shape shape;
    int is = two ? shape_of_two(opcode, &shape) : shape_of_one(opcode, at[1], rex, word, &shape);
    if (is != GOES_ON)
        return is;
    at++;
    ret->grows = 0;
    if (!two && !growth(opcode, at, shape.immediate, rex, &ret->grows))
        return UNKNOWN;
    at += (shape.modrm ? modrm_length(at) : 0) + shape.immediate;
    ret->length = (uint32_t)(at - code);
    return GOES_ON;
}

/* Bytes between rbp and rsp once the code at `code` has run to its first branch or to `end`. */
static int frame_size(const uint8_t *code, const uint8_t *end, int64_t *ret)
{
    struct instruction one;
    int is = GOES_ON;
    for (*ret = 0; code < end && (is = decode(code, &one)) == GOES_ON; code += one.length)
        *ret += one.grows;
    return is == UNKNOWN || *ret < 0 || *ret > FRAME_MAX_BYTES ? -ENOENT : 0;
}

/* Is it an address that a call has left: behind a call? */
static bool is_return_address(struct stack_process *p, uint64_t address)
{
    uint8_t before[7]; /* ff /2 with SIB and disp32 is the longest; prefixes do not matter */
    if (!stack_is_code(p, address) ||
        stack_read_cached(p, address - sizeof before, before, sizeof before) < 0)
        return false;
    if (before[2] == 0xe8)
        return true;
    for (uint32_t n = 2; n <= sizeof before; n++) {
        const uint8_t *at = before + sizeof before - n;
        uint8_t padded[7] = {0};
        memcpy(padded, at, n);
        if (at[0] == 0xff && (at[1] >> 3 & 7) == 2 && 1 + modrm_length(padded + 1) == n)
            return true;
    }
    return false;
}

int frame_pointer_find(struct stack_process *p, uint64_t start, uint64_t ip, uint64_t sp,
                       uint64_t *ret)
{
    uint8_t code[SEEN_BYTES + 16];
    uint64_t size = ip - start, above;
    if (ip <= start)
        return -ENOENT;
    size = size < SEEN_BYTES ? size : SEEN_BYTES;
    memset(code + size, 0, 16);
    if (stack_read_cached(p, start, code, size) < 0)
        return -ENOENT;
    for (uint64_t i = size; i >= 3; i--) {
        int64_t frame;
        bool sets = memcmp(code + i - 3, "\x48\x89\xe5", 3) == 0 ||
                    memcmp(code + i - 3, "\x48\x8b\xec", 3) == 0;
        if (sets && frame_size(code + i, code + size, &frame) == 0 &&
            stack_read_cached(p, sp + (uint64_t)frame + 8, &above, sizeof above) == 0 &&
            is_return_address(p, above)) {
            *ret = sp + (uint64_t)frame;
            return 0;
        }
    }
    return -ENOENT;
}

#else /* CFI of other machines goes by sp */

int frame_pointer_find(struct stack_process *p, uint64_t start, uint64_t ip, uint64_t sp,
                       uint64_t *ret)
{
    (void)p;
    (void)start;
    (void)ip;
    (void)sp;
    (void)ret;
    return -ENOENT;
}

#endif
