/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/profile/sample_pool.h - samples on their way from signal handlers to the profiler's
 * thread.
 *
 * A fixed number of boxes: a handler takes a free one, fills it, and hands it over; the one reader
 * empties it and gives it back.  No lock and no order among them (a sample carries its time).
 * The lowest free one goes first, so that few are ever touched.
 */
#ifndef PROFILE_SAMPLE_POOL_H
#define PROFILE_SAMPLE_POOL_H

#include <probing/ext/draft/python_frames.h>
#include <stdbool.h>
#include <stdint.h>

#include "unwind.h"

#define BOXES 64
#define BOX_STACK (32u << 10) /* bytes of a stack; deeper ones lose their outer native frames */
#define BOX_PYTHON 256        /* Python frames */
#define BOX_NAMES (16u << 10) /* bytes for code objects that are seen for the first time */

struct box {
    uint64_t ts;      /* CLOCK_MONOTONIC ns */
    uint64_t cpu_ns;  /* used by the thread since its sample before */
    uint32_t watched; /* number of the thread's record */
    int32_t tid;
    int64_t step; /* of training; PROBING_NULL_I64: not counted */
    struct registers registers;
    uint64_t stack_from;
    uint32_t stack_bytes;
    struct probing_python_look look;
    struct probing_python_frame frames[BOX_PYTHON];
    uint8_t names[BOX_NAMES] __attribute__((aligned(16)));
    uint8_t stack[BOX_STACK] __attribute__((aligned(16)));
    uint8_t scratch[] __attribute__((aligned(16))); /* as much as the python plugin wants */
};

struct boxes;

int boxes_new(uint32_t scratch_bytes, struct boxes **ret);
/* No handler and no reader is inside any more. */
void boxes_free(struct boxes *b);

struct box *box_take(struct boxes *b);              /* NULL: all are in use.          [signal] */
void box_hand_over(struct boxes *b, struct box *x); /* to the reader                  [signal] */
void box_give_back(struct boxes *b, struct box *x); /* free again                     [signal] */

/* The next full one, or NULL. */
struct box *box_next(struct boxes *b);
/* Until half of the boxes are full, somebody rang, or the time is up. */
void box_wait(struct boxes *b, uint64_t timeout_ns);
void box_ring(struct boxes *b); /* [signal] */

#endif
