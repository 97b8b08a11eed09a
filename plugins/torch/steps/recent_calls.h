/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/steps/recent_calls.h - the calls of modules that ended last, and the steps: for
 * who asks later where a thread was ("torch.place/1").
 *
 * Threads: those that write hold the GIL; any may ask.
 * Nothing is remembered until somebody wants it: then a call costs some stores more.
 */
#ifndef TORCH_STEPS_RECENT_CALLS_H
#define TORCH_STEPS_RECENT_CALLS_H

#include <probing/ext/draft/torch_place.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct thread;

extern const struct probing_torch_place_1 recent_part;
extern _Atomic uint32_t recent_wanted; /* by how many */

struct recent_call {
    int64_t tid;
    uint64_t begin_ns, end_ns, step, name; /* name: interned */
};

void recent_add_call(const struct recent_call *c);
void recent_add_step(uint64_t end_ns, uint64_t step); /* it has ended */
/* A step ends. */
void recent_ends(const struct thread *t, uint64_t end_ns);

static inline bool recent_is_wanted(void)
{
    return __builtin_expect(atomic_load_explicit(&recent_wanted, memory_order_relaxed) != 0, 0);
}

#endif
