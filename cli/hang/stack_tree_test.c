/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/hang/stack_tree_test.c - what many stacks share is shown once, and who is elsewhere.
 */
#include <errno.h>

/* One unit, because a unit test is linked with libcore.a alone. */
#include "cli/hang/stack_tree.c"
#include "cli/job/rank_ranges.c"
#include "tests/test.h"

static const struct tree_frame waiting[] = {{"<module>", "job.py:18"},
                                            {"train", "job.py:14"},
                                            {"all_reduce", "c10d.py:3252"},
                                            {"wait", ""}};
static const struct tree_frame loading[] = {
    {"<module>", "job.py:18"}, {"train", "job.py:13"}, {"load", "job.py:9"}};

#define N(array) (sizeof(array) / sizeof((array)[0]))

static void check_printed(const struct stack_tree *t, const char *expected)
{
    struct buf b;
    buf_init(&b, 1u << 20);
    stack_tree_print(t, "", "rank", "ranks", &b);
    CHECK_STR(buf_text(&b), expected);
    buf_done(&b);
}

TEST(who_is_elsewhere_is_a_branch)
{
    struct stack_tree *t = stack_tree_new();
    for (int64_t rank = 0; rank < 4; rank++)
        CHECK_INT(rank == 2 ? stack_tree_add(t, rank, loading, N(loading), "idle")
                            : stack_tree_add(t, rank, waiting, N(waiting), "waiting in futex"),
                  0);
    check_printed(t, "4 ranks: 0-3\n"
                     "  <module>  job.py:18\n"
                     "    3 ranks: 0-1,3\n"
                     "      train  job.py:14\n"
                     "      all_reduce  c10d.py:3252\n"
                     "      wait\n"
                     "      (waiting in futex)\n"
                     "    1 rank: 2\n"
                     "      train  job.py:13\n"
                     "      load  job.py:9\n"
                     "      (idle)\n");
    stack_tree_free(t);
}

TEST(one_place_and_two_states)
{
    struct stack_tree *t = stack_tree_new();
    CHECK_INT(stack_tree_add(t, 0, loading, 1, "running"), 0);
    CHECK_INT(stack_tree_add(t, 1, loading, 1, "idle"), 0);
    check_printed(t, "2 ranks: 0-1\n  <module>  job.py:18\n    1 rank: 0\n      (running)\n"
                     "    1 rank: 1\n      (idle)\n");
    stack_tree_free(t);
}

TEST(threads_of_one_rank_count_once)
{
    struct stack_tree *t = stack_tree_new();
    for (int64_t rank = 0; rank < 2; rank++) {
        CHECK_INT(stack_tree_add(t, rank, waiting, 1, "idle"), 0);
        CHECK_INT(stack_tree_add(t, rank, &waiting[1], 1, "idle"), 0);
        CHECK_INT(stack_tree_add(t, rank, &waiting[2], 1, "idle"), 0);
    }
    check_printed(t, "2 ranks: 0-1\n"
                     "    2 ranks: 0-1\n      <module>  job.py:18\n      (idle)\n"
                     "    2 ranks: 0-1\n      train  job.py:14\n      (idle)\n"
                     "    2 ranks: 0-1\n      all_reduce  c10d.py:3252\n      (idle)\n");
    stack_tree_free(t);
}

TEST(a_stack_without_frames)
{
    struct stack_tree *t = stack_tree_new();
    check_printed(t, "");
    CHECK_INT(stack_tree_add(t, 7, NULL, 0, "dead"), 0);
    check_printed(t, "1 rank: 7\n  (dead)\n");
    stack_tree_free(t);
}

TEST(a_thousand_ranks_each_elsewhere)
{
    struct stack_tree *t = stack_tree_new();
    char where[32];
    struct buf b;
    for (int64_t rank = 0; rank < 1000; rank++) {
        (void)snprintf(where, sizeof(where), "a.py:%d", (int)rank);
        const struct tree_frame frames[] = {{"main", "a.py"}, {"f", where}};
        CHECK_INT(stack_tree_add(t, rank, frames, 2, "idle"), 0);
    }
    buf_init(&b, 1u << 20);
    stack_tree_print(t, "  ", "rank", "ranks", &b);
    CHECK(strstr(buf_text(&b), "\n      1 rank: 999\n") != NULL);
    buf_done(&b);
    stack_tree_free(t);
}

TEST(too_much_is_refused)
{
    static struct tree_frame deep[STACK_TREE_FRAMES + 1];
    struct stack_tree *t = stack_tree_new();
    for (size_t i = 0; i < N(deep); i++)
        deep[i] = (struct tree_frame){"f", ""};
    CHECK_INT(stack_tree_add(t, 0, deep, N(deep), "idle"), -E2BIG);
    CHECK_INT(stack_tree_add(t, 0, deep, STACK_TREE_FRAMES, "idle"), 0);
    stack_tree_free(t);
}

int main(void)
{
    RUN(who_is_elsewhere_is_a_branch);
    RUN(one_place_and_two_states);
    RUN(threads_of_one_rank_count_once);
    RUN(a_stack_without_frames);
    RUN(a_thousand_ranks_each_elsewhere);
    RUN(too_much_is_refused);
    return test_end();
}
