/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/usage/alloc_stats.h - what the program's allocator says of itself, and giving back
 * what it holds and nobody uses.
 *
 * jemalloc, tcmalloc and mimalloc count as they go.  glibc counts when it is asked: it walks the
 * free lists of an arena with that arena's lock held, some 0.1 us a free piece, and threads of the
 * program that want memory of it wait.  So it is asked only where somebody has asked us, and only
 * where the heap is small enough or he insists.
 *
 * [worker].
 */
#ifndef MEMORY_USAGE_ALLOC_STATS_H
#define MEMORY_USAGE_ALLOC_STATS_H

#include <stdint.h>

#define ALLOC_UNKNOWN UINT64_MAX

struct alloc_stats {
    const char *name; /* "glibc", "jemalloc", "tcmalloc", "mimalloc"; "unknown" */
    uint64_t used;    /* bytes that the program has allocated and not freed */
    uint64_t held;    /* bytes that the allocator has of the kernel for it */
    uint64_t took_ns; /* how long it took to ask */
    char why[160];    /* where `used` is not known: why, and what to do; else "" */
};

/* walk_max: bytes that glibc's allocator may hold at the most for it to be walked. */
void alloc_stats(uint64_t walk_max, struct alloc_stats *ret);
/* Give back to the kernel.  0, or -ENOSYS: the allocator has no such function. */
int alloc_trim(void);

#endif
