/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/sampling/sample_pool.h - samples on their way from where they are taken, signal
 * handlers and allocators among it, to the thread that names their frames.
 *
 * A fixed number of slots: a handler takes a free one, fills it, and hands it over; the one reader
 * empties it and gives it back.  No lock and no order among them (a sample carries its time).
 * The lowest free one goes first, so that few are ever touched.
 */
#ifndef SAMPLING_SAMPLE_POOL_H
#define SAMPLING_SAMPLE_POOL_H

#include <probing/ext/draft/python_frames.h>
#include <stdbool.h>
#include <stdint.h>

#include "unwind.h"

#define SAMPLE_SLOTS 64        /* for samples that come by a clock */
#define SAMPLE_SLOTS_MAX 512   /* for those that come in heaps */
#define SLOT_STACK (32u << 10) /* bytes of a stack; deeper ones lose their outer native frames */
#define SLOT_PYTHON 4096 /* Python frames; of deeper stacks the innermost and outermost ones */
#define SLOT_NAMES (16u << 10) /* bytes for code objects that are seen for the first time */

struct sample_slot {
    uint64_t ts; /* CLOCK_MONOTONIC ns */
    int32_t tid;
    int64_t step;     /* of training; PROBING_NULL_I64: not counted */
    uint64_t user[6]; /* what the taker says beside the stack: CPU time, bytes, ... */
    struct registers registers;
    uint64_t stack_from;
    uint32_t stack_bytes;
    struct probing_python_look look;
    struct probing_python_frame frames[SLOT_PYTHON];
    uint8_t names[SLOT_NAMES] __attribute__((aligned(16)));
    uint8_t stack[SLOT_STACK] __attribute__((aligned(16)));
    uint8_t scratch[] __attribute__((aligned(16))); /* as much as the python plugin wants */
};

struct sample_pool;

/* slots: a multiple of 64, at most SAMPLE_SLOTS_MAX.  The memory of those beyond the first
 * SAMPLE_SLOTS goes back to the system each time. */
int sample_pool_new(uint32_t slots, uint32_t scratch_bytes, struct sample_pool **ret);
/* Address space that it takes. */
uint64_t sample_pool_bytes(uint32_t slots, uint32_t scratch_bytes);
/* No handler and no reader is inside any more. */
void sample_pool_free(struct sample_pool *b);

/* NULL: all are in use.                                                            [signal] */
struct sample_slot *sample_slot_take(struct sample_pool *b);
/* How many are in use, judged by the slot `x` that was taken last, as the lowest free one goes
 * first.  x: NULL if none was free: all are.   [signal] */
uint32_t sample_slots_used(const struct sample_pool *b, const struct sample_slot *x);
/* Give an empty look, with the slot's room for frames, names and scratch.   [signal] */
static inline void sample_slot_look(struct sample_slot *x)
{
    x->look = (struct probing_python_look){.size = sizeof(x->look),
                                           .max_frames = SLOT_PYTHON,
                                           .max_bytes = SLOT_NAMES,
                                           .gil = -1,
                                           .frames = x->frames,
                                           .bytes = x->names,
                                           .scratch = x->scratch};
}
/* Hand a slot to the reader.   [signal] */
void sample_slot_submit(struct sample_pool *b, struct sample_slot *x);
/* Give a slot back.   [signal] */
void sample_slot_release(struct sample_pool *b, struct sample_slot *x);

/* Put the calling thread's stack into a slot, from its `registers` on, which the caller has filled:
 * Python frames (python: NULL for none; last: as in struct probing_python_look), and a copy of the
 * stack's memory.  It takes some microseconds and little stack.                     [signal] */
void sample_slot_fill(struct sample_pool *b, struct sample_slot *x,
                      const struct probing_python_frames_1 *python, void *last);

/* The next full slot, or NULL. */
struct sample_slot *sample_slot_next(struct sample_pool *b);
/* Wait until 32 slots are full, sample_slot_notify() was called, or the time is up. */
void sample_slot_wait(struct sample_pool *b, uint64_t timeout_ns);
void sample_slot_notify(struct sample_pool *b); /* [signal] */

#endif
