/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/cupti/cupti_inside.c - a door with one place behind it.
 *
 * Threads: any.  No lock: who finds the place taken does not wait for it here.
 */
#include "cupti/cupti_inside.h"

#include <stdatomic.h>
#include <stddef.h>
#include <time.h>

#include "probing_sdk.h"

static struct {
    _Atomic uint64_t since_ns; /* 0: nobody is inside */
    _Atomic(const char *) function;
} inside; /* of the process: CUPTI is one, too */

bool cupti_enter(void)
{
    uint64_t nobody = 0;
    return atomic_compare_exchange_strong_explicit(&inside.since_ns, &nobody,
                                                   probing_clock_ns(CLOCK_MONOTONIC),
                                                   memory_order_acquire, memory_order_relaxed);
}

void cupti_leave(void)
{
    atomic_store_explicit(&inside.since_ns, 0, memory_order_release);
}

uint64_t cupti_inside_ns(const char **ret_function)
{
    uint64_t since_ns = atomic_load_explicit(&inside.since_ns, memory_order_relaxed);
    const char *function = atomic_load_explicit(&inside.function, memory_order_relaxed);
    uint64_t now_ns = probing_clock_ns(CLOCK_MONOTONIC);
    *ret_function = function ? function : "CUPTI";
    return since_ns && now_ns > since_ns ? now_ns - since_ns : 0;
}

void cupti_inside_forked(void)
{
    atomic_store_explicit(&inside.since_ns, 0, memory_order_relaxed);
}

void cupti_note(const char *function)
{
    atomic_store_explicit(&inside.function, function, memory_order_relaxed);
}
