/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/cupti/buffer_pool_test.c - buffers go round between threads: none is had twice, none
 * is lost, and what was never taken is not taken back.
 */
#include "cupti/buffer_pool.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "tests/test.h"

TEST(nothing_before_it_is_mapped)
{
    struct buffer b;
    CHECK(buffer_take() == NULL);
    CHECK(!buffer_next(&b));
    CHECK(!buffer_complete((uint8_t *)&b, 1));
    CHECK_INT(buffer_pool_map(), 0);
    CHECK_INT(buffer_pool_map(), 0); /* again: the same */
}

TEST(in_the_order_in_which_they_came_back)
{
    struct buffer b;
    uint8_t *first = buffer_take(), *second = buffer_take(), *third = buffer_take();
    CHECK(first && second && third && first != second && second != third && first != third);
    CHECK(buffer_complete(second, 20));
    CHECK(buffer_complete(first, 10));
    CHECK(!buffer_complete(first, 10)); /* it is back already */
    CHECK(buffer_next(&b) && b.bytes == second && b.valid == 20);
    buffer_free(&b);
    CHECK(!buffer_complete(second, 1)); /* it is free */
    CHECK(buffer_next(&b) && b.bytes == first && b.valid == 10);
    buffer_free(&b);
    CHECK(!buffer_next(&b));
    CHECK(buffer_complete(third, SIZE_MAX));
    CHECK(buffer_next(&b) && b.valid == BUFFER_BYTES); /* no more than it has */
    buffer_free(&b);
}

TEST(what_is_not_a_buffer_is_refused)
{
    uint8_t *one = buffer_take();
    CHECK(!buffer_complete(one + 8, 1));
    CHECK(!buffer_complete(one + (size_t)BUFFERS * BUFFER_BYTES, 1));
    CHECK(!buffer_complete(NULL, 1));
    CHECK(buffer_complete(one, 0));
    struct buffer b;
    CHECK(buffer_next(&b) && b.valid == 0);
    buffer_free(&b);
}

TEST(there_is_an_end)
{
    uint32_t taken, full;
    uint8_t *all[BUFFERS];
    for (uint32_t i = 0; i < BUFFERS; i++)
        CHECK((all[i] = buffer_take()) != NULL);
    CHECK(buffer_take() == NULL);
    buffer_counts(&taken, &full);
    CHECK(taken == BUFFERS && full == 0);
    CHECK_INT(buffer_out_ns(1000, 0), 0); /* from where it is asked first */
    CHECK_INT(buffer_out_ns(1500, 0), 500);
    CHECK_INT(buffer_out_ns(1600, BUFFERS), 0); /* those are known */
    CHECK_INT(buffer_out_ns(1900, 0), 300);
    for (uint32_t i = 0; i < BUFFERS; i++)
        CHECK(buffer_complete(all[i], i));
    buffer_counts(&taken, &full);
    CHECK(taken == 0 && full == BUFFERS);
    CHECK_INT(buffer_out_ns(2000, 0), 0);
    struct buffer b;
    for (uint32_t i = 0; i < BUFFERS; i++) {
        CHECK(buffer_next(&b) && b.valid == i);
        buffer_free(&b);
    }
}

#define ROUNDS 20000u
#define WRITERS 4u

static _Atomic uint64_t written, refused;

static void *writer(void *arg)
{
    uint64_t mine = (uintptr_t)arg;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        uint8_t *b = buffer_take();
        if (!b) {
            atomic_fetch_add_explicit(&refused, 1, memory_order_relaxed);
            (void)sched_yield();
            continue;
        }
        uint64_t mark[2] = {mine, i};
        memcpy(b, mark, sizeof(mark));
        atomic_fetch_add_explicit(&written, 1, memory_order_relaxed);
        CHECK(buffer_complete(b, sizeof(mark)));
    }
    return NULL;
}

static void *reader(void *ret_read)
{
    uint64_t read = 0, last[WRITERS + 1] = {0};
    struct buffer b;
    while (read + atomic_load_explicit(&refused, memory_order_relaxed) <
           (uint64_t)WRITERS * ROUNDS) {
        if (!buffer_next(&b)) {
            (void)sched_yield();
            continue;
        }
        uint64_t mark[2];
        memcpy(mark, b.bytes, sizeof(mark));
        CHECK(b.valid == sizeof(mark) && mark[0] >= 1 && mark[0] <= WRITERS);
        CHECK(mark[1] + 1 > last[mark[0]]); /* a thread's own come in its order */
        last[mark[0]] = mark[1] + 1;
        read++;
        buffer_free(&b);
    }
    *(uint64_t *)ret_read = read;
    return NULL;
}

TEST(between_threads)
{
    pthread_t writers[WRITERS], one;
    uint64_t read = 0;
    bool made = pthread_create(&one, NULL, reader, &read) == 0;
    for (uintptr_t i = 0; i < WRITERS; i++)
        made = pthread_create(&writers[i], NULL, writer, (void *)(i + 1)) == 0 && made;
    if (!CHECK(made))
        return;
    for (size_t i = 0; i < WRITERS; i++)
        (void)pthread_join(writers[i], NULL);
    (void)pthread_join(one, NULL);
    CHECK(read == atomic_load_explicit(&written, memory_order_relaxed));
    CHECK(read > 0);
}

int main(void)
{
    RUN(nothing_before_it_is_mapped);
    RUN(in_the_order_in_which_they_came_back);
    RUN(what_is_not_a_buffer_is_refused);
    RUN(there_is_an_end);
    RUN(between_threads);
    return test_end();
}
