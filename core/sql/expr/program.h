/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/expr/program.h - a compiled expression: what expr_compile.c makes and expr.c runs.
 *
 * Private to them; the query's thread, or its helper's.
 */
#ifndef CORE_SQL_EXPR_PROGRAM_H
#define CORE_SQL_EXPR_PROGRAM_H

#include "core/sql/expr/expr.h"

enum {
    STEP_CALL,       /* run the kernel; rows with NULL arguments are NULL */
    STEP_CALL_NULLS, /* run the kernel, which looks at NULLs itself */
    STEP_PUSH,       /* a new frame with the same rows; dst starts without NULLs */
    STEP_PUSH_TRUE,  /* a new frame: rows where a is true */
    STEP_POP,
    STEP_KEEP_NOT_TRUE, /* narrow this frame to rows where a is false or NULL */
    STEP_KEEP_NOT_FALSE,
    STEP_KEEP_NULL,
    STEP_COPY, /* dst = a */
    STEP_NULL, /* dst = NULL */
    STEP_AND,  /* dst = dst and a */
    STEP_OR
};

struct frame {
    const uint16_t *sel;
    uint32_t n;
    uint16_t *room;
};

struct program {
    struct run run;
    struct batch *input;
    struct step *steps;
    uint32_t n_steps, room_steps;
    struct vec **results;
    uint32_t n_results;
    struct frame *frames;
    uint32_t depth, max_depth;
    uint16_t *live; /* rows without NULL arguments */
    struct arena scratch;
};

#endif
