/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/steps/call_thread.h - what the calling thread is in the middle of.
 *
 * Threads: any that holds the GIL; each has its own.
 * It is inlined: each call of a module asks.
 */
#ifndef TORCH_STEPS_CALL_THREAD_H
#define TORCH_STEPS_CALL_THREAD_H

#include "steps/step.h"

extern __thread struct thread call_thread_own;

/* Begin anew: the state from before belongs to an older life of the plugin. */
struct thread *call_thread_begin(struct thread *t);

/* Does a forward run below us that began before the hooks were in? */
bool call_thread_inside_forward(void);

static inline struct thread *call_thread(void)
{
    struct thread *t = &call_thread_own;
    return __builtin_expect(t->life == torch_state.life, 1) ? t : call_thread_begin(t);
}

#endif
