/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/sample/sample.h - which allocations are sampled, and which of those still live.
 *
 * Poisson sampling in bytes: a thread counts down what it allocates, and the allocation that takes
 * the count below zero is a sample.  With a mean of T bytes between samples, an allocation of n
 * bytes is one with probability 1 - exp(-n / T), and stands for its inverse: estimates are
 * unbiased.  (jemalloc's prof, tcmalloc's and heapprofd's way.)
 *
 * memory_allocated() and memory_freed() are called by whatever stands before an allocator
 * (plugins/memory/hook), on any thread, in handlers too, at any moment of its life.  What they do
 * usually is a subtraction, and one byte read: no lock, no call.
 */
#ifndef MEMORY_SAMPLE_SAMPLE_H
#define MEMORY_SAMPLE_SAMPLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/hash.h"

enum memory_domain {
    MEMORY_MALLOC, /* malloc() and its family, operator new */
    MEMORY_MMAP,   /* the program's own mappings */
    MEMORY_PYTHON, /* CPython's object allocators */
    MEMORY_CUDA,   /* torch's caching allocator of a device */
    MEMORY_DOMAINS
};

/* State of each thread, in the static block of thread-local storage: the first touch of a dynamic
 * one would allocate. */
struct memory_thread {
    int64_t left;    /* bytes until the next look; it begins with 0, so a thread's first
                      * allocation draws its first distance */
    uint64_t rest;   /* bytes from there to the next sample */
    uint64_t mean;   /* by which that distance was drawn */
    uint32_t set;    /* what `left` was after the last look */
    uint32_t inside; /* > 0: in our own code, which is not sampled */
    uint32_t round;  /* of the settings, as of then; 0: never */
    uint64_t chance; /* state of the thread's random numbers; 0: none yet */
    uint32_t begun;  /* which beginning of sampling `tid` was asked for in; 0: not yet */
    int32_t tid;     /* the kernel's number of the thread */
};
extern _Thread_local struct memory_thread memory_thread
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* How many live samples have an address of this bucket; full ones (255) stay. */
#define MEMORY_FILTER_BITS 17
extern _Atomic uint8_t memory_filter[1u << MEMORY_FILTER_BITS]
    __attribute__((visibility("hidden")));

static inline uint32_t memory_bucket(const void *p)
{
    return (uint32_t)(hash_spread((uint64_t)(uintptr_t)p >> 4) >> (64 - MEMORY_FILTER_BITS));
}

/* A distance is counted down in pieces of so many bytes, so that a thread hears of other settings
 * even if the next sample were far. */
#define MEMORY_LOOK_BYTES (INT64_C(1) << 20)

/* The uncommon parts of the two below.  errno stays as it is.                       [signal] */
void memory_sample(void *p, size_t n, enum memory_domain domain, const void *frame);
void memory_sample_freed(void *p);

/* `n` bytes have been allocated at p, which is not NULL.  frame: __builtin_frame_address(0) of the
 * wrapper that the program called.                                                  [signal] */
static inline void memory_allocated(void *p, size_t n, enum memory_domain domain, const void *frame)
{
    if (__builtin_expect(__builtin_sub_overflow(memory_thread.left, n, &memory_thread.left) ||
                             memory_thread.left < 0,
                         0))
        memory_sample(p, n, domain, frame);
}

static inline bool memory_is_sampled(const void *p) /* perhaps */
{
    return __builtin_expect(
        atomic_load_explicit(&memory_filter[memory_bucket(p)], memory_order_relaxed) != 0, 0);
}

/* p is about to be freed: call it before, as its address may be another thread's a moment later.
 *                                                                                  [signal] */
static inline void memory_freed(void *p)
{
    if (memory_is_sampled(p))
        memory_sample_freed(p);
}

/* p is about to be resized, which may fail and leave it: the sample is taken out, and put back.
 * A number for memory_unmoved(), 0: it is none.                                     [signal] */
uint32_t memory_moving(void *p);
void memory_unmoved(void *p, uint32_t moving);
/* It was moved, or is another size: what memory_moving() gave is of the past.       [signal] */
void memory_moved(uint32_t moving);

#endif
