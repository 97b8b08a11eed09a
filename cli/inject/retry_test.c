/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/inject/retry_test.c - which failures pass, for whom, how often and how long.
 */
#include <errno.h>

/* One unit, because a unit test is linked with libcore.a alone. */
#include "cli/inject/retry.c"
#include "tests/test.h"

static bool now_stopped;

static bool stopped(void)
{
    return now_stopped;
}

/* How often a step that always gives `code` is made again, 1000 at most. */
static int times(enum retry_level level, int code, uint64_t end_ns)
{
    struct retry r = retry_begin(level, end_ns);
    int n = 0;
    while (n < 1000 && retry_again(&r, code, stopped))
        n++;
    return n;
}

TEST(final_ones)
{
    for (int level = RETRY_TRACER; level <= RETRY_COMMAND; level++) {
        CHECK_INT(times((enum retry_level)level, 0, UINT64_MAX), 0);
        CHECK_INT(times((enum retry_level)level, -EINTR, UINT64_MAX), 0);
        CHECK_INT(times((enum retry_level)level, -ENOMEM, UINT64_MAX), 0);
        CHECK_INT(times((enum retry_level)level, -EEXIST, UINT64_MAX), 0);
    }
    CHECK_INT(times(RETRY_ENTRY, -EAGAIN, UINT64_MAX), 0); /* only who has said --wait waits */
    CHECK_INT(times(RETRY_ENTRY, -EBUSY, UINT64_MAX), 0);
    CHECK_INT(times(RETRY_THREAD, -ESTALE, UINT64_MAX), 0); /* no thread is the one of before */
    CHECK_INT(times(RETRY_COMMAND, -EPERM, UINT64_MAX), 0);
    CHECK_INT(times(RETRY_COMMAND, -ESRCH, UINT64_MAX), 0);
}

TEST(so_often)
{
    CHECK_INT(times(RETRY_ENTRY, -ESTALE, 0), 3);
    CHECK_INT(times(RETRY_THREAD, -EAGAIN, UINT64_MAX), 1000);
    CHECK_INT(times(RETRY_THREAD, -EAGAIN, 0), 0);
}

TEST(so_long)
{
    uint64_t begin = clock_monotonic();
    int n = times(RETRY_ENTRY, -EALREADY, 0); /* its own time, not the caller's */
    CHECK(n > 0 && n <= 400 && clock_monotonic() - begin >= 2 * NS_PER_S);
    n = times(RETRY_COMMAND, -EBUSY, clock_monotonic() + 100 * NS_PER_MS);
    CHECK(n > 0 && n <= 5);
    CHECK_INT(times(RETRY_COMMAND, -EBUSY, 0), 0);
}

TEST(not_when_stopped_or_entered)
{
    struct retry r = retry_begin(RETRY_COMMAND, UINT64_MAX);
    r.entered = true;
    CHECK(!retry_again(&r, -EAGAIN, stopped)); /* the core is in it: that is another matter */
    CHECK(retry_again(&r, -ESTALE, stopped));  /* and has gone with its program */
    now_stopped = true;
    CHECK(!retry_again(&r, -ESTALE, stopped));
    CHECK(retry_again(&r, -ESTALE, NULL));
    now_stopped = false;
}

TEST(each_rule_is_one)
{
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        CHECK(retry_rule(rules[i].level, rules[i].code) == &rules[i]);
        CHECK(rules[i].code < 0 && rules[i].what[0] != '\0');
        CHECK(rules[i].pause_ns < NS_PER_S);
    }
}

int main(void)
{
    RUN(final_ones);
    RUN(so_often);
    RUN(so_long);
    RUN(not_when_stopped_or_entered);
    RUN(each_rule_is_one);
    return test_end();
}
