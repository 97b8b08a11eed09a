/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/sampling/stack_table.h - frames and stacks that are stored once and have a number.
 *
 * Its owner's thread only.  A stack's frames go into the table when it is first
 * seen, and again, under a new number or the same one, when that was long ago: so retention, which
 * drops the oldest rows, never takes the names of samples that are still there.
 */
#ifndef SAMPLING_STACK_TABLE_H
#define SAMPLING_STACK_TABLE_H

#include <probing/ext/draft/python_frames.h>
#include <probing/ext/draft/stack.h>
#include <probing/plugin.h>
#include <stdbool.h>

#include "unwind_index.h"

struct stacks;

/* Make the table NAME, "python.stacks": stack_id, depth, frame_type, func, file, lineno, module.
 *                                                                                  [control] */
int stacks_new(const struct probing_host *host, const char *name, const char *doc,
               struct stacks **ret);
void stacks_free(struct stacks *s);
/* From now on a stack has one number as long as its owner lives.  A stack that is seen again long
 * after it was stored is stored again under the same number, so a reader of the table takes each
 * depth of a stack once.  Frames keep their words in memory for stacks_words().  For owners whose
 * rows name a stack long after it was last seen. */
void stacks_keep_numbers(struct stacks *s);

/* Set what to name frames with; the first two may be NULL. */
void stacks_name_with(struct stacks *s, const struct probing_stack_1 *symbols,
                      const struct probing_python_frames_1 *python, struct code *code);
/* Read the list of loaded modules again, which may have changed, and name addresses anew. */
void stacks_read_modules(struct stacks *s);

/* Number of the native frame at an address (of a caller: the return address - 1), and what it is
 * among Python's (PROBING_PYTHON_NATIVE ...). */
uint32_t stacks_native(struct stacks *s, uint64_t address, int *ret_kind);
uint32_t stacks_python(struct stacks *s, const struct probing_python_look *look, uint32_t i);
enum mark {
    MARK_CUT,    /* the outer frames are missing */
    MARK_BROKEN, /* native ones are missing between the frames further out (FLAME_BROKEN) */
    MARK_READY,  /* it could run, and no CPU is free */
    MARKS
};
/* The frame of a mark. */
uint32_t stacks_mark(struct stacks *s, enum mark mark);
/* The frame that stands for n others that were left out; more: they were not counted to their
 * end. */
uint32_t stacks_left_out(struct stacks *s, uint32_t n, bool more);

/* Number of the stack of these frames, innermost first; 0: there was no room to store it. */
int64_t stacks_number(struct stacks *s, const uint32_t *frames, uint32_t n, uint64_t now);

/* ---- with stacks_keep_numbers() ---- */

struct stack_words {
    const char *func, *file, *module; /* "": none; until the next call of stacks_number() */
    uint64_t func_id, file_id;        /* of intern() */
    int32_t line;                     /* 0: not known */
    bool python;
};
/* The words of a frame that some function above gave; false: not known any more. */
bool stacks_words(const struct stacks *s, uint32_t frame, struct stack_words *ret);
/* Keep a stack that is still wanted: store it again if it was stored long ago. */
void stacks_renew(struct stacks *s, int64_t number, uint64_t now);

#endif
