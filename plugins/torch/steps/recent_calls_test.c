/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/steps/recent_calls_test.c - where a thread was at a moment, told afterwards.
 */
#include "steps/recent_calls.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "steps/step.h"
#include "tests/test.h"

static uint64_t clock_ns;

static uint64_t now(void)
{
    return clock_ns;
}

static void call(int64_t tid, uint64_t begin_ns, uint64_t end_ns, uint64_t step, uint64_t name)
{
    recent_add_call(&(struct recent_call){
        .tid = tid, .begin_ns = begin_ns, .end_ns = end_ns, .step = step, .name = name});
}

static struct probing_torch_place at(int32_t tid, uint64_t ts, int rc)
{
    struct probing_torch_place place = {.size = sizeof(place)};
    CHECK_INT(recent_part.at(tid, ts, &place), rc);
    return place;
}

TEST(nothing_is_known_until_somebody_wants_it)
{
    call(1, 10, 20, 0, 100);
    (void)at(1, 15, -ENOENT);
    clock_ns = 1000;
    recent_part.remember(1);
    CHECK(recent_is_wanted());
    (void)at(1, 500, -ENOENT); /* before somebody did */
}

TEST(the_innermost_call_of_that_thread_counts)
{
    call(2, 1100, 1950, 5, 200); /* another thread's */
    call(1, 1200, 1300, 5, 101);
    call(1, 1350, 1400, 5, 102);
    call(1, 1150, 1500, 5, 103); /* around both */
    CHECK_INT(at(1, 1250, 0).module, 101);
    CHECK_INT(at(1, 1300, 0).module, 101); /* the ends belong to it */
    CHECK_INT(at(1, 1320, 0).module, 103);
    CHECK_INT(at(1, 1350, 0).module, 102);
    CHECK_INT(at(2, 1250, 0).module, 200);
    CHECK_INT(at(3, 1250, 0).module, PROBING_NULL_ID);
    CHECK_INT(at(1, 1600, 0).module, PROBING_NULL_ID);
}

TEST(the_step_is_the_one_that_ended_next)
{
    steps.step = 7;
    CHECK(at(1, 1250, 0).step == 7); /* none has ended: the one that runs */
    recent_add_step(2000, 7);
    recent_add_step(3000, 8);
    steps.step = 9;
    CHECK_INT(at(1, 1250, 0).step, 7);
    CHECK_INT(at(1, 2000, 0).step, 7);
    CHECK_INT(at(1, 2001, 0).step, 8);
    CHECK_INT(at(1, 3001, 0).step, 9);
}

TEST(what_is_long_ago_is_forgotten_and_not_mistaken)
{
    for (uint64_t i = 0; i < 40000; i++)
        call(1, 10000 + i * 10, 10005 + i * 10, 9, 1000 + i % 7);
    for (uint64_t i = 0; i < 3000; i++)
        recent_add_step(10000 + i * 100, 9 + i);
    steps.step = 9 + 3000;
    CHECK_INT(at(1, 1250, -ENOENT).module, PROBING_NULL_ID);
    CHECK(at(1, 1250, -ENOENT).step == PROBING_NULL_I64);
    CHECK_INT(at(1, 10002 + 39999 * 10, 0).module, 1000 + 39999 % 7);
    CHECK_INT(at(1, 10000 + 2998 * 100, 0).step, 9 + 2998);
}

static _Atomic bool over;
static _Atomic uint64_t written;

static void *write_calls(void *arg)
{
    (void)arg;
    for (uint64_t i = 1; !atomic_load_explicit(&over, memory_order_relaxed); i++) {
        call((int64_t)(i % 5), 1000000 + i * 10, 1000005 + i * 10, i, i);
        atomic_store_explicit(&written, i, memory_order_relaxed);
    }
    return NULL;
}

TEST(a_reader_sees_whole_entries)
{
    pthread_t writer;
    if (!CHECK(pthread_create(&writer, NULL, write_calls, NULL) == 0))
        return;
    uint64_t found = 0;
    while (found < 1000) {
        uint64_t n = atomic_load_explicit(&written, memory_order_relaxed);
        n = n > 100 ? n - 100 : 1;
        struct probing_torch_place place = {.size = sizeof(place)};
        if (recent_part.at((int32_t)(n % 5), 1000002 + n * 10, &place) == 0 &&
            place.module != PROBING_NULL_ID) {
            CHECK(place.module == n);
            found++;
        }
    }
    atomic_store_explicit(&over, true, memory_order_relaxed);
    (void)pthread_join(writer, NULL);
}

int main(void)
{
    torch_state.now = now;
    atomic_store_explicit(&torch_state.on, true, memory_order_relaxed);
    RUN(nothing_is_known_until_somebody_wants_it);
    RUN(the_innermost_call_of_that_thread_counts);
    RUN(the_step_is_the_one_that_ended_next);
    RUN(what_is_long_ago_is_forgotten_and_not_mistaken);
    RUN(a_reader_sees_whole_entries);
    recent_part.remember(0);
    CHECK(!recent_is_wanted());
    return test_end();
}
