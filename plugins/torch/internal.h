/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/internal.h - what all rooms of the torch plugin share: its life in the process, and
 * its host.
 *
 * Threads: everything here needs the GIL, except where a comment says otherwise.
 * A room's own state is a struct in that room's header: python (python/python_api.h), steps
 * (steps/step.h), variables, registry, module_calls and dist.  The plugin knows nothing of torch's
 * own C++: torch is seen through its Python objects only.
 */
#ifndef TORCH_INTERNAL_H
#define TORCH_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "probing_sdk.h"

#define CACHE_LINE 64

/* CPython calls hooks without any context of ours, so this is a variable.  Each call of a module
 * reads it.  lock: the GIL, except for what is _Atomic. */
struct torch {
    /* hooks do their work; cleared by stop() and, without the GIL, after fork */
    _Alignas(CACHE_LINE) _Atomic bool on;
    bool live;     /* between start() and stop(): host and tables may be used */
    uint32_t life; /* counts start() */
    /* Threads in our own part of a hook: Python may run there (a property of what is looked at) and
     * the GIL be given up.  stop() waits for them. */
    int at_work;
    uint64_t (*now)(void); /* the host's; a call in flight may ask after destroy() */
    int (*append)(struct probing_table *t, uint64_t ts, const union probing_cell *cells, uint32_t n,
                  const void *tail, uint32_t tail_n); /* likewise */
    const struct probing_host *host;
};

extern struct torch torch_state; /* torch_state.c */

/* From now on, until the next init(), what stands in the host's place does nothing. */
void torch_leave_host(void);

/* Say why the plugin does not start, or not stop; gives the code.  why: lives for ever. */
static inline int torch_refuse(const char **ret_why, int code, const char *why)
{
    *ret_why = why;
    return code;
}

static inline bool torch_on(void)
{
    return atomic_load_explicit(&torch_state.on, memory_order_relaxed);
}

/* Around what a hook does itself, without the call that it passes on; may nest.  With the GIL. */
static inline void work_begin(void)
{
    torch_state.at_work++;
}

static inline void work_end(void)
{
    if (torch_state.at_work > 0) /* a fork in between begins anew */
        torch_state.at_work--;
}

#endif
