/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/profile/sample_pool.c - boxes for samples: two words of bits say which are free and which
 * full.
 *
 * Handlers on any thread, one reader.  A handler that is interrupted for long holds its own box
 * only.  The memory is not inherited by forked children: no handler of theirs fills a box.
 */
#include "sample_pool.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "probing_sdk.h"

#define PAGE 4096u
#define HALF (SAMPLE_SLOTS / 2)

struct sample_pool {
    _Atomic uint64_t free, full; /* bit for each box */
    _Atomic uint32_t bell;       /* futex word: counts rings */
    uint32_t heard;              /* the reader's */
    size_t stride;
    uint8_t *memory;
};

int sample_pool_new(uint32_t scratch_bytes, struct sample_pool **ret)
{
    struct sample_pool *b = calloc(1, sizeof(*b));
    if (!b)
        return -ENOMEM;
    b->stride = (sizeof(struct box) + scratch_bytes + PAGE - 1) & ~(size_t)(PAGE - 1);
    b->memory = mmap(NULL, SAMPLE_SLOTS * b->stride, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (b->memory == MAP_FAILED) {
        free(b);
        return -ENOMEM;
    }
    (void)madvise(b->memory, SAMPLE_SLOTS * b->stride, MADV_DONTFORK);
    atomic_store_explicit(&b->free, UINT64_MAX, memory_order_release);
    *ret = b;
    return 0;
}

void sample_pool_free(struct sample_pool *b)
{
    if (!b)
        return;
    (void)munmap(b->memory, SAMPLE_SLOTS * b->stride);
    free(b);
}

static struct box *at(struct sample_pool *b, int i)
{
    return (struct box *)(void *)(b->memory + (size_t)i * b->stride);
}

static uint64_t bit_of(const struct sample_pool *b, const struct box *x)
{
    return UINT64_C(1) << (((const uint8_t *)x - b->memory) / (ptrdiff_t)b->stride);
}

struct box *sample_slot_take(struct sample_pool *b)
{
    uint64_t free_ones = atomic_load_explicit(&b->free, memory_order_relaxed);
    while (free_ones) {
        uint64_t lowest = free_ones & -free_ones;
        if (atomic_compare_exchange_weak_explicit(&b->free, &free_ones, free_ones & ~lowest,
                                                  memory_order_acquire, memory_order_relaxed))
            return at(b, __builtin_ctzll(lowest));
    }
    return NULL;
}

void sample_slot_notify(struct sample_pool *b)
{
    (void)atomic_fetch_add_explicit(&b->bell, 1, memory_order_release);
    (void)syscall(SYS_futex, &b->bell, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void sample_slot_submit(struct sample_pool *b, struct box *x)
{
    uint64_t bit = bit_of(b, x);
    uint64_t full = atomic_fetch_or_explicit(&b->full, bit, memory_order_release) | bit;
    if (__builtin_popcountll(full) == HALF)
        sample_slot_notify(b);
}

void sample_slot_release(struct sample_pool *b, struct box *x)
{
    (void)atomic_fetch_or_explicit(&b->free, bit_of(b, x), memory_order_release);
}

struct box *sample_slot_next(struct sample_pool *b)
{
    uint64_t full = atomic_load_explicit(&b->full, memory_order_acquire);
    if (!full)
        return NULL;
    uint64_t lowest = full & -full;
    (void)atomic_fetch_and_explicit(&b->full, ~lowest, memory_order_relaxed);
    return at(b, __builtin_ctzll(lowest));
}

void sample_slot_wait(struct sample_pool *b, uint64_t timeout_ns)
{
    const struct timespec most = {.tv_sec = (time_t)(timeout_ns / PROBING_NS_PER_S),
                                  .tv_nsec = (int32_t)(timeout_ns % PROBING_NS_PER_S)};
    uint32_t bell = atomic_load_explicit(&b->bell, memory_order_acquire);
    if (bell == b->heard)
        (void)syscall(SYS_futex, &b->bell, FUTEX_WAIT_PRIVATE, bell, &most, NULL, 0);
    b->heard = atomic_load_explicit(&b->bell, memory_order_acquire);
}
