/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/usage/alarm_test.c - when events happen, and when they happen again.
 */
#include "usage/alarm.h"

#include <math.h>
#include <stddef.h>

#include "tests/test.h"

#define SEC UINT64_C(1000000000)
#define MIB (UINT64_C(1) << 20)

static const struct alarm_settings usual = {
    .high_pct = 90, .near_pct = 97, .growth = 100 * MIB, .growth_within_ns = 600 * SEC};

static uint64_t grown;

static uint32_t look(struct alarm *a, uint64_t sec, uint64_t used, uint64_t limit)
{
    const struct alarm_look l = {.now_ns = (sec + 1) * SEC,
                                 .kept = 10 * MIB, /* does not grow */
                                 .limit = limit,
                                 .used = used,
                                 .full_avg10 = (double)NAN};
    return alarm_look(a, &usual, &l, &grown);
}

TEST(high_comes_once_and_again_after_it_was_over)
{
    struct alarm a = {.slot = 0};
    uint64_t t = 0;
    CHECK_INT(look(&a, t++, 89 * MIB, 100 * MIB), 0);
    CHECK_INT(look(&a, t++, 90 * MIB, 100 * MIB), ALARM_HIGH);
    CHECK_INT(look(&a, t++, 91 * MIB, 100 * MIB), 0);
    for (int i = 0; i < 20; i++) /* around the mark */
        CHECK_INT(look(&a, t++, (89 + i % 2) * MIB, 100 * MIB), 0);
    CHECK_INT(look(&a, t++, 84 * MIB, 100 * MIB), 0);
    CHECK_INT(look(&a, t++, 90 * MIB, 100 * MIB) & ALARM_HIGH, ALARM_HIGH);
}

TEST(without_a_limit_nothing_is_near)
{
    struct alarm a = {.slot = 0};
    const struct alarm_look l = {.now_ns = SEC, .limit = UINT64_MAX, .used = UINT64_MAX};
    CHECK_INT(look(&a, 0, 1, UINT64_MAX), 0);
    CHECK_INT(look(&a, 1, UINT64_MAX - 1, UINT64_MAX), 0);
    CHECK(!alarm_is_close(&a, &l));
}

TEST(near_is_told_by_share_and_by_speed)
{
    struct alarm slow = {.slot = 0}, fast = {.slot = 0};
    uint64_t t = 0, used = 900 * MIB;
    for (; used < 970 * MIB; used += MIB / 10) /* 0.1 MB a second: five minutes are left */
        CHECK_INT(look(&slow, t++, used, 1000 * MIB) & ALARM_OOM_NEAR, 0);
    CHECK_INT(look(&slow, t++, 970 * MIB, 1000 * MIB), ALARM_OOM_NEAR);
    CHECK_INT(look(&slow, t++, 990 * MIB, 1000 * MIB), 0);
    CHECK_INT(look(&fast, 0, 500 * MIB, 1000 * MIB), 0);
    CHECK_INT(look(&fast, 1, 600 * MIB, 1000 * MIB), 0);              /* four seconds are left */
    CHECK_INT(look(&fast, 2, 720 * MIB, 1000 * MIB), ALARM_OOM_NEAR); /* two */
}

TEST(stalls_count_where_much_is_used)
{
    struct alarm a = {.slot = 0};
    struct alarm_look l = {
        .now_ns = SEC, .kept = MIB, .limit = 100 * MIB, .used = 84 * MIB, .full_avg10 = 50};
    CHECK_INT(alarm_look(&a, &usual, &l, &grown), 0);
    l.now_ns += 1000 * SEC;
    l.used = 86 * MIB;
    CHECK_INT(alarm_look(&a, &usual, &l, &grown), ALARM_OOM_NEAR);
}

static uint32_t grow_to(struct alarm *a, uint64_t sec, uint64_t rss)
{
    const struct alarm_look l = {.now_ns = (sec + 1) * SEC,
                                 .kept = rss,
                                 .limit = UINT64_MAX,
                                 .used = UINT64_MAX,
                                 .full_avg10 = (double)NAN};
    return alarm_look(a, &usual, &l, &grown);
}

TEST(growth_is_within_the_time_and_comes_again_for_as_much_again)
{
    struct alarm a = {.slot = 0}, slow = {.slot = 0};
    uint64_t rss = 500 * MIB, t = 0;
    uint32_t n = 0;
    for (; t < 300; t++, rss += MIB)
        n += grow_to(&a, t, rss) == ALARM_GROWTH;
    CHECK_INT(n, 2);
    CHECK_INT(grown / MIB, 100);
    for (t = 0, n = 0, rss = 500 * MIB; t < 7200; t++, rss += MIB / 10) /* 60 MB in the time */
        n += grow_to(&slow, t, rss) != 0;
    CHECK_INT(n, 0);
}

TEST(what_goes_up_and_down_does_not_grow)
{
    struct alarm a = {.slot = 0};
    uint32_t n = 0;
    for (uint64_t t = 0; t < 7200; t++)
        n += grow_to(&a, t, (500 + t % 90) * MIB) != 0;
    CHECK_INT(n, 0);
}

TEST(what_is_off_does_not_happen)
{
    static const struct alarm_settings off = {.growth_within_ns = SEC};
    struct alarm a = {.slot = 0};
    struct alarm_look l = {.limit = MIB, .used = MIB, .full_avg10 = 100};
    for (l.now_ns = SEC; l.now_ns < 100 * SEC; l.now_ns += SEC, l.kept += MIB)
        CHECK_INT(alarm_look(&a, &off, &l, &grown), 0);
}

int main(void)
{
    RUN(high_comes_once_and_again_after_it_was_over);
    RUN(without_a_limit_nothing_is_near);
    RUN(near_is_told_by_share_and_by_speed);
    RUN(stalls_count_where_much_is_used);
    RUN(growth_is_within_the_time_and_comes_again_for_as_much_again);
    RUN(what_goes_up_and_down_does_not_grow);
    RUN(what_is_off_does_not_happen);
    return test_end();
}
