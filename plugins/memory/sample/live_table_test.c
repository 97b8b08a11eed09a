/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/sample/live_table_test.c - what goes in comes out, once, whoever does it.
 */
#include "sample/live_table.h"

#include <pthread.h>
#include <stdlib.h>

#include "tests/test.h"

static uint32_t put(struct live_table *t, uint64_t address, uint64_t id)
{
    uint32_t entry = live_new(t);
    if (entry == 0)
        return 0;
    atomic_store_explicit(&live_at(t, entry)->id, id, memory_order_relaxed);
    atomic_store_explicit(&live_at(t, entry)->ts, id, memory_order_relaxed);
    return live_insert(t, entry, address) ? entry : 0;
}

/* Give back all that have ended; how many. */
static uint32_t release(struct live_table *t)
{
    uint32_t n = 0;
    for (uint32_t next, i = live_ended(t); i; i = next, n++) {
        next = atomic_load_explicit(&live_at(t, i)->next, memory_order_relaxed);
        live_release(t, i);
    }
    return n;
}

TEST(each_is_found_by_its_address)
{
    struct live_table *t;
    struct live_seen seen;
    if (!CHECK_INT(live_table_new(LIVE_MAX, &t), 0))
        return;
    const uint32_t n = 300000; /* more than two levels hold */
    for (uint32_t i = 0; i < n; i++)
        if (!CHECK(put(t, UINT64_C(0x7f0000000000) + 16 * (uint64_t)i, i + 1)))
            return;
    CHECK_INT(live_count(t), n);
    CHECK_INT(live_take(t, UINT64_C(0x7e0000000000)), 0);
    for (uint32_t i = 0; i < n; i += 2) {
        uint32_t taken = live_take(t, UINT64_C(0x7f0000000000) + 16 * (uint64_t)i);
        if (!CHECK(taken) || !CHECK(live_read(t, (uint32_t)taken, &seen)) ||
            !CHECK_INT(seen.id, i + 1))
            return;
        live_end(t, taken, i + 5, 7);
        CHECK(live_read(t, (uint32_t)taken, &seen) && seen.state == LIVE_ENDED &&
              seen.ended == i + 5 && seen.ended_by == 7);
    }
    CHECK_INT(live_take(t, UINT64_C(0x7f0000000000)), 0);
    CHECK_INT(release(t), n / 2);
    for (uint32_t i = 1; i < n; i += 2) {
        uint32_t taken = live_take(t, UINT64_C(0x7f0000000000) + 16 * (uint64_t)i);
        if (!CHECK(taken))
            return;
        live_end(t, taken, 1, 1);
    }
    CHECK_INT(release(t), n / 2);
    CHECK_INT(live_count(t), 0);
    CHECK(live_room(t) <= n + 1);
    live_table_free(t);
}

TEST(a_full_one_refuses_and_goes_on)
{
    struct live_table *t;
    if (!CHECK_INT(live_table_new(1000, &t), 0))
        return;
    for (uint32_t i = 0; i < 1000; i++)
        CHECK(put(t, 4096 * (uint64_t)(i + 1), i));
    CHECK_INT(put(t, 8, 1), 0);
    live_end(t, live_take(t, 4096), 1, 1);
    CHECK_INT(put(t, 8, 1), 0); /* the reader has not been here */
    CHECK_INT(release(t), 1);
    CHECK(put(t, 8, 1));
    live_table_free(t);
}

TEST(a_block_that_could_not_be_resized_goes_on)
{
    struct live_table *t;
    struct live_seen seen;
    if (!CHECK_INT(live_table_new(1000, &t), 0))
        return;
    uint32_t entry = put(t, 64, 1);
    uint32_t taken = live_take(t, 64);
    CHECK(live_read(t, entry, &seen) && seen.state == LIVE_ALIVE); /* meanwhile, too */
    CHECK(live_put_back(t, taken, 64, 2));
    CHECK_INT((uint32_t)live_take(t, 64), entry);
    live_table_free(t);
}

/* All that is alive; what is left in the index is nobody's. */
static uint32_t drop_all(struct live_table *t)
{
    uint64_t address;
    uint32_t n = 0;
    live_next_round(t);
    for (uint32_t i = 1; i < live_room(t); i++)
        n += live_drop(t, i, &address);
    return n;
}

TEST(a_new_round_knows_nothing_of_the_one_before)
{
    struct live_table *t;
    struct live_seen seen;
    if (!CHECK_INT(live_table_new(1000, &t), 0))
        return;
    CHECK(put(t, 64, 1) && put(t, 128, 2) && put(t, 192, 3) && put(t, 256, 4));
    uint32_t ended = live_take(t, 64), moving = live_take(t, 128), late = live_take(t, 192);
    live_end(t, ended, 5, 5);
    CHECK_INT(drop_all(t), 1);
    CHECK(!live_give_back(t)); /* two are held */
    CHECK_INT(live_count(t), 2);
    CHECK(!live_read(t, moving, &seen));
    uint32_t entry = put(t, 64, 6), other = put(t, 320, 7);
    CHECK(entry && entry != moving && entry != late && other != moving && other != late);
    live_end(t, late, 8, 8);
    CHECK(!live_put_back(t, moving, 128, 8) && !live_take(t, 128));
    CHECK(live_read(t, entry, &seen) && seen.id == 6 && seen.state == LIVE_ALIVE);
    CHECK(!live_read(t, late, &seen) && !live_read(t, moving, &seen));
    CHECK_INT(release(t), 2);
    CHECK_INT(live_count(t), 2);
    CHECK_INT(drop_all(t), 2);
    CHECK(live_give_back(t));
    CHECK(live_count(t) == 0 && live_room(t) == 1 && !live_take(t, 64));
    live_table_free(t);
}

/* ---- threads ---- */

#define THREADS 4
#define ROUNDS 200000
#define HELD 500

struct worker {
    struct live_table *table;
    pthread_t thread;
    uint32_t number, refused;
    uint64_t put, ended, missed;
};

/* Addresses go from thread to thread through these, as those of an allocator do. */
static _Atomic uint64_t passed[64];
static _Atomic bool done;

static void *work(void *arg)
{
    struct worker *w = arg;
    uint64_t held[HELD] = {0}, chance = w->number + 1, fresh = 0;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        chance = chance * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint64_t *mine = &held[(chance >> 33) % HELD];
        if (*mine) {
            uint32_t taken = live_take(w->table, *mine);
            w->missed += taken == 0;
            if (taken)
                live_end(w->table, taken, i, (int32_t)w->number);
            w->ended += taken != 0;
            /* free at once for any other thread */
            *mine = atomic_exchange_explicit(&passed[chance >> 58], *mine, memory_order_acq_rel);
        }
        if (!*mine)
            *mine = ((uint64_t)w->number << 40 | ++fresh) << 4;
        if (put(w->table, *mine, chance))
            w->put++;
        else {
            w->refused++;
            *mine = 0;
        }
    }
    for (uint32_t i = 0; i < HELD; i++)
        if (held[i]) {
            uint32_t taken = live_take(w->table, held[i]);
            w->missed += taken == 0;
            w->ended += taken != 0;
            if (taken)
                live_end(w->table, taken, i, (int32_t)w->number);
        }
    return NULL;
}

static void *read_all(void *arg)
{
    struct worker *w = arg;
    struct live_seen seen;
    while (!atomic_load_explicit(&done, memory_order_acquire)) {
        w->ended += release(w->table);
        for (uint32_t i = 1; i < live_room(w->table); i++)
            if (live_read(w->table, i, &seen) && seen.ts != seen.id)
                w->missed++; /* of two samples */
    }
    w->ended += release(w->table);
    return NULL;
}

TEST(threads_take_what_others_have_put_in)
{
    struct live_table *t;
    struct worker workers[THREADS] = {{.number = 0}}, reader = {.number = 99};
    uint64_t put_in = 0, ended = 0;
    if (!CHECK_INT(live_table_new(100000, &t), 0))
        return;
    reader.table = t;
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.table = t, .number = i + 1};
        CHECK_INT(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    CHECK_INT(pthread_create(&reader.thread, NULL, read_all, &reader), 0);
    for (uint32_t i = 0; i < THREADS; i++) {
        (void)pthread_join(workers[i].thread, NULL);
        CHECK_INT(workers[i].missed, 0);
        put_in += workers[i].put;
        ended += workers[i].ended;
    }
    atomic_store_explicit(&done, true, memory_order_release);
    (void)pthread_join(reader.thread, NULL);
    CHECK_INT(reader.missed, 0);
    CHECK_INT(put_in, ended);
    CHECK_INT(reader.ended, ended);
    CHECK_INT(live_count(t), 0);
    live_table_free(t);
}

int main(void)
{
    RUN(each_is_found_by_its_address);
    RUN(a_full_one_refuses_and_goes_on);
    RUN(a_block_that_could_not_be_resized_goes_on);
    RUN(a_new_round_knows_nothing_of_the_one_before);
    RUN(threads_take_what_others_have_put_in);
    return test_end();
}
