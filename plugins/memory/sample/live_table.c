/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/sample/live_table.c - entries of live samples, and buckets to find them by.
 *
 * Any thread, handlers too; see live_table.h for who does what.  A thread that is stopped for good
 * in the middle costs an entry, never another thread's way.
 */
#include "live_table.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "lib/hash.h"
#include "lib/sparse_map.h"

#define WORDS 15
#define LEVELS 4
#define ENTRY_BITS \
    20 /* of a word; above: bits of the hash, so that most others are not looked at */

struct bucket {
    _Atomic uint32_t beyond; /* how many of this bucket's lie in the next levels */
    _Atomic uint32_t words[WORDS];
};
_Static_assert(sizeof(struct bucket) == 64, "a bucket is a line of cache");

static const uint32_t level_bits[LEVELS] = {9, 12, 15, 17};

struct live_table {
    struct bucket *levels[LEVELS];
    struct live_entry *entries;
    uint8_t *memory;
    size_t bytes, entries_at;
    uint32_t max;
    _Atomic uint32_t used;  /* entries that were ever handed out, from 1 */
    _Atomic uint64_t spare; /* list of released ones: count of changes << 32 | first */
    _Atomic uint64_t count;
    _Atomic uint32_t ended, told; /* lists */
    _Atomic uint32_t round;
};

/* ---- lists ---- */

static uint32_t first_of(uint64_t head)
{
    return (uint32_t)head;
}

void live_release(struct live_table *t, uint32_t entry)
{
    struct live_entry *e = live_at(t, entry);
    uint64_t head = atomic_load_explicit(&t->spare, memory_order_relaxed), with;
    atomic_store_explicit(&e->state, LIVE_NONE, memory_order_relaxed);
    (void)atomic_fetch_sub_explicit(&t->count, 1, memory_order_relaxed);
    do {
        atomic_store_explicit(&e->next, first_of(head), memory_order_relaxed);
        with = ((head >> 32) + 1) << 32 | entry;
    } while (!atomic_compare_exchange_weak_explicit(&t->spare, &head, with, memory_order_release,
                                                    memory_order_relaxed));
}

/* The count of changes keeps a head that came back from being taken for the old one. */
static uint32_t take_spare(struct live_table *t)
{
    uint64_t head = atomic_load_explicit(&t->spare, memory_order_acquire), without;
    do {
        if (first_of(head) == 0)
            return 0;
        uint32_t next =
            atomic_load_explicit(&live_at(t, first_of(head))->next, memory_order_relaxed);
        without = ((head >> 32) + 1) << 32 | next;
    } while (!atomic_compare_exchange_weak_explicit(&t->spare, &head, without, memory_order_acquire,
                                                    memory_order_acquire));
    return first_of(head);
}

uint32_t live_new(struct live_table *t)
{
    uint32_t entry = take_spare(t);
    uint32_t used = atomic_load_explicit(&t->used, memory_order_relaxed);
    while (entry == 0) {
        if (used >= t->max)
            return 0;
        if (atomic_compare_exchange_weak_explicit(&t->used, &used, used + 1, memory_order_relaxed,
                                                  memory_order_relaxed))
            entry = used + 1;
    }
    (void)atomic_fetch_add_explicit(&t->count, 1, memory_order_relaxed);
    atomic_store_explicit(&live_at(t, entry)->round,
                          atomic_load_explicit(&t->round, memory_order_relaxed),
                          memory_order_relaxed);
    atomic_thread_fence(memory_order_release); /* who reads what comes now sees that it changes */
    return entry;
}

void live_end(struct live_table *t, uint32_t entry, uint64_t now, int32_t tid)
{
    struct live_entry *e = live_at(t, entry);
    uint32_t first = atomic_load_explicit(&t->ended, memory_order_relaxed);
    atomic_store_explicit(&e->ended, now, memory_order_relaxed);
    atomic_store_explicit(&e->ended_by, tid, memory_order_relaxed);
    atomic_store_explicit(&e->state, LIVE_ENDED, memory_order_release);
    do
        atomic_store_explicit(&e->next, first, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&t->ended, &first, entry, memory_order_release,
                                                  memory_order_relaxed));
}

uint32_t live_ended(struct live_table *t)
{
    return atomic_exchange_explicit(&t->ended, 0, memory_order_acquire);
}

/* As of those that ended: nobody takes one of these lists out but the reader, who takes all.  What
 * stands in front may be another one by then, or the same again, and both are right. */
void live_tell(struct live_table *t, uint32_t entry)
{
    uint32_t first = atomic_load_explicit(&t->told, memory_order_relaxed);
    do
        atomic_store_explicit(&live_at(t, entry)->next_bare, first, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&t->told, &first, entry, memory_order_release,
                                                  memory_order_relaxed));
}

uint32_t live_told(struct live_table *t)
{
    return atomic_exchange_explicit(&t->told, 0, memory_order_acquire);
}

/* ---- the index ---- */

static struct bucket *bucket_at(const struct live_table *t, uint32_t level, uint64_t hash)
{
    return &t->levels[level][hash >> (64 - level_bits[level])];
}

static uint32_t word_of(uint64_t hash, uint32_t entry)
{
    return ((uint32_t)(hash >> 16) << ENTRY_BITS) | entry;
}

static void leave_levels(const struct live_table *t, uint32_t before, uint64_t hash)
{
    for (uint32_t level = 0; level < before; level++)
        (void)atomic_fetch_sub_explicit(&bucket_at(t, level, hash)->beyond, 1,
                                        memory_order_relaxed);
}

static bool index_add(struct live_table *t, uint32_t entry, uint64_t hash)
{
    uint32_t word = word_of(hash, entry);
    for (uint32_t level = 0; level < LEVELS; level++) {
        struct bucket *b = bucket_at(t, level, hash);
        for (uint32_t i = 0; i < WORDS; i++) {
            uint32_t none = 0;
            if (atomic_load_explicit(&b->words[i], memory_order_relaxed) == 0 &&
                atomic_compare_exchange_strong_explicit(&b->words[i], &none, word,
                                                        memory_order_release, memory_order_relaxed))
                return true;
        }
        (void)atomic_fetch_add_explicit(&b->beyond, 1, memory_order_relaxed);
    }
    leave_levels(t, LEVELS, hash);
    return false;
}

uint32_t live_take(struct live_table *t, uint64_t address)
{
    uint64_t hash = hash_spread(address);
    uint32_t sought = word_of(hash, 0);
    for (uint32_t level = 0; level < LEVELS; level++) {
        struct bucket *b = bucket_at(t, level, hash);
        for (uint32_t i = 0; i < WORDS; i++) {
            uint32_t word = atomic_load_explicit(&b->words[i], memory_order_acquire);
            uint32_t entry = word & LIVE_MAX;
            if (word == 0 || word - entry != sought ||
                atomic_load_explicit(&live_at(t, entry)->address, memory_order_relaxed) != address)
                continue;
            if (!atomic_compare_exchange_strong_explicit(
                    &b->words[i], &word, 0, memory_order_acquire, memory_order_relaxed))
                return 0; /* freed twice, and the other was faster */
            leave_levels(t, level, hash);
            return entry;
        }
        if (atomic_load_explicit(&b->beyond, memory_order_relaxed) == 0)
            return 0;
    }
    return 0;
}

static bool insert_slot(struct live_table *t, uint32_t entry, uint64_t address)
{
    struct live_entry *e = live_at(t, entry);
    atomic_store_explicit(&e->address, address, memory_order_relaxed);
    atomic_store_explicit(&e->state, LIVE_ALIVE, memory_order_release);
    return index_add(t, entry, hash_spread(address));
}

bool live_insert(struct live_table *t, uint32_t entry, uint64_t address)
{
    if (insert_slot(t, entry, address))
        return true;
    live_release(t, entry);
    return false;
}

static bool is_of_now(const struct live_table *t, const struct live_entry *e)
{
    return atomic_load_explicit(&e->round, memory_order_relaxed) ==
           atomic_load_explicit(&t->round, memory_order_relaxed);
}

bool live_put_back(struct live_table *t, uint32_t entry, uint64_t address, uint64_t now)
{
    if (is_of_now(t, live_at(t, entry)) && insert_slot(t, entry, address))
        return true;
    live_end(t, entry, now, 0);
    return false;
}

/* ---- reading ---- */

struct live_entry *live_at(struct live_table *t, uint32_t entry)
{
    return &t->entries[entry];
}

uint32_t live_room(const struct live_table *t)
{
    return atomic_load_explicit(&t->used, memory_order_relaxed) + 1;
}

uint64_t live_count(const struct live_table *t)
{
    return atomic_load_explicit(&t->count, memory_order_relaxed);
}

bool live_read(struct live_table *t, uint32_t entry, struct live_seen *ret)
{
    struct live_entry *e = live_at(t, entry);
    uint32_t state = atomic_load_explicit(&e->state, memory_order_acquire), before;
    do {
        if (state == LIVE_NONE || !is_of_now(t, e))
            return false;
        *ret = (struct live_seen){
            .id = atomic_load_explicit(&e->id, memory_order_relaxed),
            .size = atomic_load_explicit(&e->size, memory_order_relaxed),
            .mean = atomic_load_explicit(&e->mean, memory_order_relaxed),
            .ts = atomic_load_explicit(&e->ts, memory_order_relaxed),
            .ended = atomic_load_explicit(&e->ended, memory_order_relaxed),
            .step = atomic_load_explicit(&e->step, memory_order_relaxed),
            .tid = atomic_load_explicit(&e->tid, memory_order_relaxed),
            .ended_by = atomic_load_explicit(&e->ended_by, memory_order_relaxed),
            .domain = atomic_load_explicit(&e->domain, memory_order_relaxed),
            .origin = atomic_load_explicit(&e->origin, memory_order_relaxed),
            .state = state,
        };
        atomic_thread_fence(memory_order_acquire);
        before = state;
        state = atomic_load_explicit(&e->state, memory_order_acquire);
    } while (state != before); /* it ended meanwhile, and is read again */
    /* freed and given to another sample while it was read: another number */
    return ret->id == atomic_load_explicit(&e->id, memory_order_relaxed);
}

/* ---- begin and end ---- */

static size_t index_bytes(void)
{
    size_t bytes = 0;
    for (uint32_t level = 0; level < LEVELS; level++)
        bytes += sizeof(struct bucket) << level_bits[level];
    return bytes;
}

uint64_t live_table_bytes(uint32_t max)
{
    return index_bytes() + ((uint64_t)max + 1) * sizeof(struct live_entry);
}

int live_table_new(uint32_t max, struct live_table **ret)
{
    struct live_table *t = calloc(1, sizeof(*t));
    if (!t)
        return -ENOMEM;
    t->max = max < LIVE_MAX ? max : LIVE_MAX;
    t->entries_at = index_bytes();
    t->bytes = (size_t)live_table_bytes(t->max);
    t->memory = sparse_map(t->bytes);
    if (!t->memory) {
        free(t);
        return -ENOMEM;
    }
    uint8_t *at = t->memory;
    for (uint32_t level = 0; level < LEVELS; level++) {
        t->levels[level] = (struct bucket *)(void *)at;
        at += sizeof(struct bucket) << level_bits[level];
    }
    t->entries = (struct live_entry *)(void *)at;
    *ret = t;
    return 0;
}

void live_next_round(struct live_table *t)
{
    (void)atomic_fetch_add_explicit(&t->round, 1, memory_order_seq_cst);
    atomic_store_explicit(&t->told, 0, memory_order_relaxed);
}

bool live_drop(struct live_table *t, uint32_t entry, uint64_t *ret_address)
{
    struct live_entry *e = live_at(t, entry);
    *ret_address = atomic_load_explicit(&e->address, memory_order_relaxed);
    if (atomic_load_explicit(&e->state, memory_order_acquire) != LIVE_ALIVE ||
        live_take(t, *ret_address) != entry)
        return false;
    live_release(t, entry);
    return true;
}

bool live_give_back(struct live_table *t)
{
    for (uint32_t next, i = live_ended(t); i; i = next) {
        next = atomic_load_explicit(&live_at(t, i)->next, memory_order_relaxed);
        live_release(t, i);
    }
    if (atomic_load_explicit(&t->count, memory_order_acquire))
        return false;
    uint64_t changes = atomic_load_explicit(&t->spare, memory_order_relaxed) >> 32;
    atomic_store_explicit(&t->spare, (changes + 1) << 32, memory_order_relaxed);
    atomic_store_explicit(&t->used, 0, memory_order_relaxed);
    (void)madvise(t->memory, t->bytes, MADV_DONTNEED);
    return true;
}

void live_table_free(struct live_table *t)
{
    if (!t)
        return;
    (void)munmap(t->memory, t->bytes);
    free(t);
}
