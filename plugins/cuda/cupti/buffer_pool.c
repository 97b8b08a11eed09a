/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/cupti/buffer_pool.c - a fixed number of buffers, each with a state that changes by
 * one atomic step: no lock, as threads of the program and CUPTI's own come by here.
 *
 * Threads: as buffer_pool.h says.
 */
#include "cupti/buffer_pool.h"

#include <errno.h>
#include <stdatomic.h>

#include "lib/sparse_map.h"

enum { FREE, TAKEN, FILLING, FULL }; /* FILLING: `valid` and `turn` are being written */

static struct slot {
    _Atomic uint32_t state;
    size_t valid;  /* of whom took it out of TAKEN; read when FULL, by acquire */
    uint64_t turn; /* likewise: the order in which they came back */
} slots[BUFFERS];

/* CUPTI's callbacks have no argument, and may come after the plugin has been destroyed: these stay
 * for the life of the process.  base is written by one thread before anybody can come. */
static uint8_t *_Atomic base;
static _Atomic uint64_t next_turn;

int buffer_pool_map(void)
{
    if (atomic_load_explicit(&base, memory_order_acquire))
        return 0;
    void *p = sparse_map((size_t)BUFFERS * BUFFER_BYTES);
    if (!p)
        return -ENOMEM;
    atomic_store_explicit(&base, p, memory_order_release);
    return 0;
}

/* The first that is free: it was used before, so that its pages are there already.  CUPTI fills a
 * buffer with zeros on a thread of the program, which would wait for new pages: 0.15 ms each. */
uint8_t *buffer_take(void)
{
    uint8_t *start = atomic_load_explicit(&base, memory_order_acquire);
    for (uint32_t n = 0; start && n < BUFFERS; n++) {
        uint32_t state = FREE;
        if (atomic_compare_exchange_strong_explicit(&slots[n].state, &state, TAKEN,
                                                    memory_order_acquire, memory_order_relaxed))
            return start + (size_t)n * BUFFER_BYTES;
    }
    return NULL;
}

bool buffer_complete(uint8_t *bytes, size_t valid)
{
    uint8_t *start = atomic_load_explicit(&base, memory_order_acquire);
    if (!start || bytes < start)
        return false;
    size_t at = (size_t)(bytes - start);
    uint32_t state = TAKEN;
    if (at % BUFFER_BYTES || at / BUFFER_BYTES >= BUFFERS)
        return false;
    struct slot *s = &slots[at / BUFFER_BYTES];
    if (!atomic_compare_exchange_strong_explicit(&s->state, &state, FILLING, memory_order_acquire,
                                                 memory_order_relaxed))
        return false;
    s->valid = valid < BUFFER_BYTES ? valid : BUFFER_BYTES;
    s->turn = atomic_fetch_add_explicit(&next_turn, 1, memory_order_relaxed);
    atomic_store_explicit(&s->state, FULL, memory_order_release);
    return true;
}

static const struct slot *first_full(void)
{
    const struct slot *first = NULL;
    for (uint32_t i = 0; i < BUFFERS; i++)
        if (atomic_load_explicit(&slots[i].state, memory_order_acquire) == FULL &&
            (!first || slots[i].turn < first->turn))
            first = &slots[i];
    return first;
}

/* While one looks, a thread may bring back a buffer that was passed already, and then one that was
 * not.  Buffers from before the one that is found are there for the next look; a buffer that comes
 * meanwhile has a later turn. */
bool buffer_next(struct buffer *ret)
{
    const struct slot *first = first_full() ? first_full() : NULL;
    if (!first)
        return false;
    ret->bytes =
        atomic_load_explicit(&base, memory_order_relaxed) + (size_t)(first - slots) * BUFFER_BYTES;
    ret->valid = first->valid;
    return true;
}

void buffer_free(const struct buffer *b)
{
    size_t n =
        (size_t)(b->bytes - atomic_load_explicit(&base, memory_order_relaxed)) / BUFFER_BYTES;
    atomic_store_explicit(&slots[n].state, FREE, memory_order_release);
}

void buffer_counts(uint32_t *ret_taken, uint32_t *ret_full)
{
    *ret_taken = *ret_full = 0;
    for (uint32_t i = 0; i < BUFFERS; i++) {
        uint32_t state = atomic_load_explicit(&slots[i].state, memory_order_relaxed);
        *ret_taken += state == TAKEN;
        *ret_full += state == FULL || state == FILLING;
    }
}

uint64_t buffer_out_ns(uint64_t now_ns, uint32_t besides)
{
    static uint64_t turn, since_ns; /* the reader's: when it was so last */
    uint64_t next = atomic_load_explicit(&next_turn, memory_order_relaxed);
    uint32_t taken, full;
    buffer_counts(&taken, &full);
    if (taken <= besides || next != turn || since_ns == 0)
        since_ns = now_ns;
    turn = next;
    return now_ns - since_ns;
}
