/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/regexp_steps.h - a regular expression as a program: what regexp_compile.c makes and
 * regexp.c runs.
 *
 * Private to the two.
 */
#ifndef CORE_SQL_REGEXP_STEPS_H
#define CORE_SQL_REGEXP_STEPS_H

#include "core/sql/regexp.h"

#define NO_BYTE 0x110000u /* a byte that is no UTF-8 stands for itself beyond Unicode */

enum step_op {
    OP_LETTER,
    OP_ANY,
    OP_CLASS,
    OP_SPLIT, /* to a, less dear to b */
    OP_JUMP,
    OP_SAVE,
    OP_BEGIN,
    OP_END,
    OP_WORD_EDGE,
    OP_NO_WORD_EDGE,
    OP_MATCH
};

struct re_step {
    enum step_op op;
    uint32_t a, b; /* LETTER: the letter; CLASS: first range and how many; SPLIT, JUMP: where to */
    bool negated;
};

struct re_range {
    uint32_t low, high;
};

struct threads {
    uint32_t *dense, *sparse; /* program places, in order */
    uint32_t n;
    uint32_t *slots; /* n_slots each, by place */
};

struct regexp {
    struct re_step *steps;
    uint32_t n, room;
    struct re_range *ranges;
    uint32_t n_ranges, ranges_room;
    uint32_t n_groups, flags;
    struct threads lists[2];
    int first;       /* every match begins with this byte; -1: not known */
    uint32_t *stack; /* of add(): places still to go */
    uint32_t *old;   /* of add(): what a slot was before, three words each */
};

static inline uint32_t next_letter(const char **p, const char *end)
{
    const unsigned char *s = (const unsigned char *)*p;
    size_t left = (size_t)(end - *p);
    uint32_t c = s[0], n = c < 0x80 ? 1 : c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
    if (c < 0x80) {
        (*p)++;
        return c;
    }
    uint32_t letter = c & (0xffu >> (n + 1));
    bool good = c >= 0xc2 && c < 0xf5 && n <= left;
    for (uint32_t i = 1; i < n && good; i++) {
        good = (s[i] & 0xc0) == 0x80;
        letter = letter << 6 | (s[i] & 0x3f);
    }
    *p += good ? n : 1;
    return good ? letter : NO_BYTE + c;
}

static inline uint32_t folded(uint32_t c)
{
    return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c;
}

static inline bool is_word_letter(uint32_t c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (c >= 0x80 && c < NO_BYTE);
}

#endif
