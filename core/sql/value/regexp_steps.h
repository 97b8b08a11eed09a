/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/value/regexp_steps.h - a regular expression as a program: what regexp_compile.c makes
 * and regexp.c runs.
 *
 * Private to the two.
 */
#ifndef CORE_SQL_VALUE_REGEXP_STEPS_H
#define CORE_SQL_VALUE_REGEXP_STEPS_H

#include "core/sql/value/regexp.h"
#include "core/sql/value/unicode.h"

enum step_op {
    OP_LETTER,
    OP_ANY,
    OP_CLASS,
    OP_SPLIT, /* to a, less dear to b */
    OP_JUMP,
    OP_SAVE,
    OP_BEGIN,
    OP_END,
    OP_TEXT_BEGIN, /* \A, \Z: of the whole text, whatever the lines */
    OP_TEXT_END,
    OP_WORD_EDGE,
    OP_NO_WORD_EDGE,
    OP_WORD_BEGIN,
    OP_WORD_END,
    OP_MATCH
};

/* Letters beyond ASCII that a class has in addition to its ranges. */
enum { WIDE_LETTER = 1, WIDE_UPPER = 2, WIDE_LOWER = 4, WIDE_SIGN = 8 };

struct re_step {
    enum step_op op;
    uint32_t a, b; /* LETTER: the letter; CLASS: first range and how many; SPLIT, JUMP: where to */
    bool negated;
    uint8_t wide; /* CLASS */
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

static inline bool is_word_letter(uint32_t c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (c >= 0x80 && unicode_is_letter(c));
}

#endif
