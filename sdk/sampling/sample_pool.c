/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/sampling/sample_pool.c - slots for samples: words of bits say which are free and
 * which full.
 *
 * Handlers on any thread, one reader.  A handler that is interrupted for long holds its own slot
 * only.  The memory is not inherited by forked children: no handler of theirs fills a slot.
 */
#include "sample_pool.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "lib/proc/memory.h"
#include "lib/sparse_map.h"
#include "probing_sdk.h"

#define PAGE 4096u
#define WORDS (SAMPLE_SLOTS_MAX / 64)
#define MANY 32 /* full ones: the reader should come */

struct sample_pool {
    _Atomic uint64_t free[WORDS], full[WORDS]; /* bit for each slot */
    uint32_t words;
    _Atomic uint32_t n_full;
    _Atomic uint32_t bell; /* futex word: counts rings */
    uint32_t heard;        /* the reader's */
    size_t stride;
    uint8_t *memory;
    uint64_t main_end; /* of the main thread's stack; 0: not known */
};

static size_t stride_with(uint32_t scratch_bytes)
{
    return (sizeof(struct sample_slot) + scratch_bytes + PAGE - 1) & ~(size_t)(PAGE - 1);
}

uint64_t sample_pool_bytes(uint32_t slots, uint32_t scratch_bytes)
{
    return (uint64_t)slots * stride_with(scratch_bytes);
}

int sample_pool_new(uint32_t slots, uint32_t scratch_bytes, struct sample_pool **ret)
{
    struct sample_pool *b = calloc(1, sizeof(*b));
    if (!b)
        return -ENOMEM;
    b->words = slots / 64;
    b->stride = stride_with(scratch_bytes);
    const uint64_t *main_end = dlsym(RTLD_DEFAULT, "__libc_stack_end");
    b->main_end = main_end ? *main_end : 0;
    b->memory = sparse_map(slots * b->stride);
    if (!b->memory) {
        free(b);
        return -ENOMEM;
    }
    (void)madvise(b->memory, slots * b->stride, MADV_DONTFORK);
    for (uint32_t w = 0; w < b->words; w++)
        atomic_store_explicit(&b->free[w], UINT64_MAX, memory_order_release);
    *ret = b;
    return 0;
}

void sample_pool_free(struct sample_pool *b)
{
    if (!b)
        return;
    (void)munmap(b->memory, (size_t)b->words * 64 * b->stride);
    free(b);
}

static struct sample_slot *slot_at(struct sample_pool *b, uint32_t i)
{
    return (struct sample_slot *)(void *)(b->memory + (size_t)i * b->stride);
}

static uint32_t number_of(const struct sample_pool *b, const struct sample_slot *x)
{
    return (uint32_t)(((const uint8_t *)x - b->memory) / (ptrdiff_t)b->stride);
}

static uint64_t bit_of(uint32_t i)
{
    return UINT64_C(1) << i % 64;
}

struct sample_slot *sample_slot_take(struct sample_pool *b)
{
    for (uint32_t w = 0; w < b->words; w++) {
        uint64_t free_ones = atomic_load_explicit(&b->free[w], memory_order_relaxed);
        while (free_ones) {
            uint64_t lowest = free_ones & -free_ones;
            if (atomic_compare_exchange_weak_explicit(&b->free[w], &free_ones, free_ones & ~lowest,
                                                      memory_order_acquire, memory_order_relaxed))
                return slot_at(b, w * 64 + (uint32_t)__builtin_ctzll(lowest));
        }
    }
    return NULL;
}

uint32_t sample_slots_used(const struct sample_pool *b, const struct sample_slot *x)
{
    return x ? number_of(b, x) + 1 : b->words * 64;
}

void sample_slot_notify(struct sample_pool *b)
{
    (void)atomic_fetch_add_explicit(&b->bell, 1, memory_order_release);
    (void)syscall(SYS_futex, &b->bell, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* How much of the stack from `sp` on is of use: its end is where pthread keeps what it knows of the
 * thread, or where the program's arguments begin.                                    [signal] */
static uint32_t stack_room(const struct sample_pool *b, uint64_t sp)
{
    uint64_t ends[] = {(uint64_t)pthread_self(), b->main_end};
    uint64_t room = SLOT_STACK;
    for (int i = 0; i < 2; i++)
        if (sp < ends[i] && ends[i] - sp < room)
            room = ends[i] - sp;
    return (uint32_t)room;
}

/* By the kernel, because the copy may reach past the stack into memory that is not there. [signal]
 */
static uint32_t copy_stack(uint64_t from, uint8_t *to, uint32_t size)
{
    int64_t n = proc_own_memory(from, to, size);
    return n > 0 ? (uint32_t)n : 0;
}

void sample_slot_fill(struct sample_pool *b, struct sample_slot *x,
                      const struct probing_python_frames_1 *python, void *last)
{
    x->stack_from = x->registers.value[CFI_SP];
    sample_slot_look(x);
    x->look.last = last;
    x->look.more_from = x->stack_from;
    x->look.more_bytes = stack_room(b, x->stack_from);
    x->look.more = x->stack;
    if (python)
        (void)python->here(&x->look);
    x->stack_bytes = x->look.more_read ? x->look.more_read
                                       : copy_stack(x->stack_from, x->stack, x->look.more_bytes);
}

void sample_slot_submit(struct sample_pool *b, struct sample_slot *x)
{
    uint32_t i = number_of(b, x);
    (void)atomic_fetch_or_explicit(&b->full[i / 64], bit_of(i), memory_order_release);
    if (atomic_fetch_add_explicit(&b->n_full, 1, memory_order_relaxed) + 1 == MANY)
        sample_slot_notify(b);
}

void sample_slot_release(struct sample_pool *b, struct sample_slot *x)
{
    uint32_t i = number_of(b, x);
    if (i >= SAMPLE_SLOTS)
        (void)madvise(x, b->stride, MADV_DONTNEED);
    (void)atomic_fetch_or_explicit(&b->free[i / 64], bit_of(i), memory_order_release);
}

struct sample_slot *sample_slot_next(struct sample_pool *b)
{
    for (uint32_t w = 0; w < b->words; w++) {
        uint64_t full = atomic_load_explicit(&b->full[w], memory_order_acquire);
        if (!full)
            continue;
        uint64_t lowest = full & -full;
        (void)atomic_fetch_and_explicit(&b->full[w], ~lowest, memory_order_relaxed);
        (void)atomic_fetch_sub_explicit(&b->n_full, 1, memory_order_relaxed);
        return slot_at(b, w * 64 + (uint32_t)__builtin_ctzll(lowest));
    }
    return NULL;
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
