/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/job/rank_ranges_test.c - ranks in print.
 */
#include "cli/job/rank_ranges.h"

#include "cli/job/rank_ranges.c"
#include "tests/test.h"

static void check(const int64_t *ranks, size_t n, size_t most, const char *expected)
{
    struct buf b;

    buf_init(&b, 1u << 20);
    rank_ranges(ranks, n, most, &b);
    CHECK_STR(buf_text(&b), expected);
    buf_done(&b);
}

TEST(neighbours_are_a_range)
{
    const int64_t ranks[] = {0, 1, 2, 5, 7, 8};

    check(ranks, 6, 12, "0-2,5,7-8");
    check(ranks, 1, 12, "0");
    check(ranks, 0, 12, "");
}

TEST(one_that_is_there_twice_is_named_once)
{
    const int64_t ranks[] = {0, 0, 1, 1, 3, 3, INT64_MAX, INT64_MAX};

    check(ranks, 8, 12, "0-1,3,9223372036854775807");
}

TEST(the_rest_is_counted)
{
    const int64_t ranks[] = {0, 2, 4, 6, 7, 8, INT64_MAX};

    check(ranks, 7, 2, "0,2 and 5 more");
    check(ranks, 7, 3, "0,2,4 and 4 more");
    check(ranks, 7, 4, "0,2,4,6-8 and 1 more");
    check(ranks, 7, 5, "0,2,4,6-8,9223372036854775807");
}

int main(void)
{
    RUN(neighbours_are_a_range);
    RUN(one_that_is_there_twice_is_named_once);
    RUN(the_rest_is_counted);
    return test_end();
}
