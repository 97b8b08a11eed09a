/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/hook/count.h - what each function that stands before an allocator does with
 * sample.h.
 *
 * Inline, as it is run at each allocation.  Any thread, handlers too.
 */
#ifndef MEMORY_HOOK_COUNT_H
#define MEMORY_HOOK_COUNT_H

#include "sample/sample.h"

#define FRAME __builtin_frame_address(0)
#define COLD static __attribute__((noinline, cold))

/* Counts n bytes where no sample is due; else nothing is counted yet. */
static inline bool not_due(size_t n)
{
    int64_t left = memory_thread.left;
    if (__builtin_expect(left < 0 || n > (uint64_t)left, 0))
        return false;
    memory_thread.left = left - (int64_t)n;
    return true;
}

COLD void sampled_goes(void *p)
{
    if (p)
        memory_sample_freed(p);
}

/* Before it is freed: a moment later the address may be another thread's. */
static inline void going(void *p)
{
    if (memory_is_sampled(p))
        sampled_goes(p);
}

/* Before p is resized: for resized(). */
static inline uint32_t before_resize(void *p)
{
    return p && memory_is_sampled(p) ? memory_moving(p) : 0;
}

/* Count that p was to be n bytes, and is at q.  NULL for 0 bytes is what free() would do, where the
 * allocator gives it. */
static inline void resized(void *p, uint32_t moving, void *q, size_t n)
{
    if (moving && (q || n == 0))
        memory_moved(moving);
    else if (moving)
        memory_unmoved(p, moving);
}

#endif
