/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/nccl/record/event_pool.h - events under way: slots of one size that are taken by NCCL's
 * threads, given up to the writer when they have ended, and free again when it has read them.
 *
 * No lock, nothing allocated after pool_new().  Memory of slots that were never taken is never
 * touched, so a large pool costs address space only.  All fields of a slot are atomic and read
 * relaxed: `head` says whether they belong together.
 *
 *     FREE --take--> FILLING --publish--> LIVE --end--> ENDING --give up--> DONE --free--> FREE
 *
 * The generation in `head` grows with each life: a handle of an earlier one is known as such.
 */
#ifndef NCCL_EVENT_POOL_H
#define NCCL_EVENT_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum slot_state { SLOT_FREE, SLOT_FILLING, SLOT_LIVE, SLOT_ENDING, SLOT_DONE };

struct slot {
    _Atomic uint32_t head; /* generation << 3 | state */
    _Atomic uint32_t next; /* in a list: number + 1; 0: the last */
};

struct pool {
    _Atomic uint64_t free;  /* turn << 32 | number + 1 of the first; the turn grows with each pop */
    _Atomic uint32_t done;  /* number + 1 of the one that was given up last */
    _Atomic uint32_t fresh; /* those from here on have never been taken */
    uint32_t slots, stride;
    char *memory;
};

#define SLOT_NONE UINT32_MAX
#define SLOT_GENERATIONS ((1u << 29) - 1)

/* slots of `size` bytes, a struct slot at the front of each, in `memory`, zeroed. */
static inline void pool_init(struct pool *p, char *memory, uint32_t slots, uint32_t size)
{
    atomic_store_explicit(&p->free, 0, memory_order_relaxed);
    atomic_store_explicit(&p->done, 0, memory_order_relaxed);
    atomic_store_explicit(&p->fresh, 0, memory_order_relaxed);
    p->slots = slots;
    p->stride = size;
    p->memory = memory;
}

static inline struct slot *pool_slot(const struct pool *p, uint32_t number)
{
    return (struct slot *)(void *)(p->memory + (size_t)number * p->stride);
}

static inline uint32_t slot_generation(uint32_t head)
{
    return head >> 3;
}

static inline enum slot_state slot_state(uint32_t head)
{
    return (enum slot_state)(head & 7);
}

static inline uint32_t slot_head(uint32_t generation, enum slot_state state)
{
    return generation << 3 | (uint32_t)state;
}

static inline uint32_t pool_pop(struct pool *p)
{
    uint64_t first = atomic_load_explicit(&p->free, memory_order_acquire);
    while ((uint32_t)first) {
        uint32_t number = (uint32_t)first - 1;
        uint32_t next = atomic_load_explicit(&pool_slot(p, number)->next, memory_order_relaxed);
        if (atomic_compare_exchange_weak_explicit(&p->free, &first,
                                                  ((first >> 32) + 1) << 32 | next,
                                                  memory_order_acquire, memory_order_acquire))
            return number;
    }
    uint32_t fresh = atomic_load_explicit(&p->fresh, memory_order_relaxed);
    while (fresh < p->slots)
        if (atomic_compare_exchange_weak_explicit(&p->fresh, &fresh, fresh + 1,
                                                  memory_order_acq_rel, memory_order_relaxed))
            return fresh;
    return SLOT_NONE;
}

/* A slot that is FILLING, the caller's until slot_publish(); SLOT_NONE: all are in use. */
static inline uint32_t pool_take(struct pool *p, uint32_t *ret_generation)
{
    uint32_t number = pool_pop(p);
    if (number == SLOT_NONE)
        return number;
    struct slot *s = pool_slot(p, number);
    uint32_t head = atomic_load_explicit(&s->head, memory_order_relaxed);
    *ret_generation = (slot_generation(head) + 1) & SLOT_GENERATIONS;
    /* A reader that still copies the life before must see that it is over: its loads are acquire,
     * so none of them sees what is written after this and then this head as it was. */
    atomic_store_explicit(&s->head, slot_head(*ret_generation, SLOT_FILLING), memory_order_release);
    return number;
}

static inline void slot_publish(struct slot *s, uint32_t generation)
{
    atomic_store_explicit(&s->head, slot_head(generation, SLOT_LIVE), memory_order_release);
}

static inline bool slot_is_live(const struct slot *s, uint32_t generation)
{
    return atomic_load_explicit(&s->head, memory_order_acquire) == slot_head(generation, SLOT_LIVE);
}

/* A caller that gets true ends it: it writes the result, then calls pool_give_up(). */
static inline bool slot_end(struct slot *s, uint32_t generation)
{
    uint32_t head = slot_head(generation, SLOT_LIVE);
    return atomic_compare_exchange_strong_explicit(&s->head, &head,
                                                   slot_head(generation, SLOT_ENDING),
                                                   memory_order_acq_rel, memory_order_relaxed);
}

/* To the writer. */
static inline void pool_give_up(struct pool *p, uint32_t number)
{
    struct slot *s = pool_slot(p, number);
    uint32_t head = atomic_load_explicit(&s->head, memory_order_relaxed);
    uint32_t last = atomic_load_explicit(&p->done, memory_order_relaxed);
    atomic_store_explicit(&s->head, slot_head(slot_generation(head), SLOT_DONE),
                          memory_order_relaxed);
    do
        atomic_store_explicit(&s->next, last, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&p->done, &last, number + 1, memory_order_release,
                                                  memory_order_relaxed));
}

/* All that were given up since: the number + 1 of the last one, the rest behind `next`.  Only one
 * thread takes; others may go on giving. */
static inline uint32_t pool_take_done(struct pool *p)
{
    return atomic_exchange_explicit(&p->done, 0, memory_order_acquire);
}

/* Free again: DONE, or ENDING where nobody is to read it. */
static inline void pool_free(struct pool *p, uint32_t number)
{
    struct slot *s = pool_slot(p, number);
    uint32_t head = atomic_load_explicit(&s->head, memory_order_relaxed);
    uint64_t first = atomic_load_explicit(&p->free, memory_order_relaxed);
    atomic_store_explicit(&s->head, slot_head(slot_generation(head), SLOT_FREE),
                          memory_order_relaxed);
    do
        atomic_store_explicit(&s->next, (uint32_t)first, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&p->free, &first,
                                                  (first >> 32) << 32 | (number + 1),
                                                  memory_order_release, memory_order_relaxed));
}

/* Fields of slots. */
static inline uint64_t field(const _Atomic uint64_t *f)
{
    return atomic_load_explicit(f, memory_order_acquire); /* see pool_take() */
}

static inline void field_set(_Atomic uint64_t *f, uint64_t value)
{
    /* Released, so that who reads it has seen the head before it, too.  Plain on x86. */
    atomic_store_explicit(f, value, memory_order_release);
}

static inline void field_add(_Atomic uint64_t *f, uint64_t value)
{
    (void)atomic_fetch_add_explicit(f, value, memory_order_relaxed);
}

static inline void field_min(_Atomic uint64_t *f, uint64_t value) /* 0: none yet */
{
    uint64_t old = atomic_load_explicit(f, memory_order_relaxed);
    while ((old == 0 || value < old) &&
           !atomic_compare_exchange_weak_explicit(f, &old, value, memory_order_relaxed,
                                                  memory_order_relaxed))
        ;
}

static inline void field_max(_Atomic uint64_t *f, uint64_t value)
{
    uint64_t old = atomic_load_explicit(f, memory_order_relaxed);
    while (value > old && !atomic_compare_exchange_weak_explicit(
                              f, &old, value, memory_order_relaxed, memory_order_relaxed))
        ;
}

#endif
