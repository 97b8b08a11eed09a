/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/cluster/hang_judge_test.c - who waits, who does not come, who only moves; and answers that
 * are none.
 */
#include <errno.h>

/* One unit, because a unit test is linked with libcore.a alone. */
#include "cli/cluster/hang_judge.c"
#include "cli/cluster/stack_tree.c"
#include "tests/test.h"

#define THREAD(state, frames)                                                                    \
    "{\"threads\":[{\"tid\":1,\"state\":\"" state "\",\"syscall\":\"futex\",\"frames\":[" frames \
    "]}]}"
#define PYTHON(func, file, line) \
    "{\"type\":\"python\",\"func\":\"" func "\",\"file\":\"" file "\",\"line\":" #line "}"
#define NATIVE(func) \
    "{\"type\":\"native\",\"func\":\"" func "\",\"module\":\"/lib/x.so\",\"offset\":\"0x1\"}"
#define TRAIN PYTHON("train", "/home/u/job.py", 14)
#define C10D "/opt/site-packages/torch/distributed/distributed_c10d.py"
#define ALL_REDUCE \
    THREAD("waiting", NATIVE("c10d::Work::wait()") "," PYTHON("all_reduce", C10D, 3) "," TRAIN)
#define BARRIER THREAD("waiting", PYTHON("barrier", C10D, 9) "," TRAIN)
#define BACKWARD THREAD("waiting", NATIVE("wait") "," NATIVE("c10d::Work::wait()") "," TRAIN)
#define LOADING                                                \
    THREAD("idle", PYTHON("sleep", "/usr/lib/python3.11/x.py", \
                          7) "," PYTHON("load", "/home/u/job.py", 9) "," TRAIN)

static int look(struct hang_rank *r, const char *text, struct stack_tree *tree)
{
    static const struct hang_frames wanted = {.native = true};
    struct json_error e;
    struct arena a;
    struct json *j;

    arena_init(&a, 0);
    int rc = json_read(&a, text, strlen(text), &j, &e);
    rc = rc < 0 ? rc : hang_look(r, j, &wanted, tree);
    arena_done(&a);
    return rc;
}

static void check_verdict(const struct hang_rank *ranks, size_t n, const char *expected)
{
    struct buf b;
    buf_init(&b, 1u << 20);
    hang_verdict(ranks, n, "rank", "ranks", &b);
    CHECK_STR(buf_text(&b), expected);
    buf_done(&b);
}

TEST(one_does_not_come)
{
    struct hang_rank ranks[4] = {{.rank = 0}, {.rank = 1}, {.rank = 2}, {.rank = 3}};
    bool which[4];
    for (int i = 0; i < 12; i++)
        CHECK_INT(look(&ranks[i % 4], i % 4 == 2 ? LOADING : ALL_REDUCE, NULL), 0);
    CHECK_INT(hang_awaited(ranks, 4, which), 1);
    CHECK(which[2] && !which[0] && !which[1] && !which[3]);
    check_verdict(ranks, 4,
                  "ranks 0-1,3 (3) wait in all_reduce\n"
                  "rank 2 is in no collective: load  job.py:9 (idle in futex)\n"
                  "Those that wait are waiting for the others.\n");
}

TEST(a_healthy_job_is_accused_of_nothing)
{
    struct hang_rank ranks[2] = {{.rank = 0}, {.rank = 1}};
    bool which[2];
    CHECK_INT(look(&ranks[0], ALL_REDUCE, NULL), 0);
    CHECK_INT(look(&ranks[1], LOADING, NULL), 0);
    CHECK_INT(look(&ranks[0], LOADING, NULL), 0);
    CHECK_INT(look(&ranks[1], LOADING, NULL), 0);
    CHECK_INT(look(&ranks[0], ALL_REDUCE, NULL), 0);
    CHECK_INT(ranks[0].state, HANG_MOVES);
    CHECK_INT(hang_awaited(ranks, 2, which), 0);
    CHECK(!which[0] && !which[1]);
}

TEST(another_operation_than_the_others)
{
    struct hang_rank ranks[2] = {{.rank = 0}, {.rank = 1}};
    CHECK_INT(look(&ranks[0], ALL_REDUCE, NULL), 0);
    CHECK_INT(look(&ranks[1], BARRIER, NULL), 0);
    check_verdict(ranks, 2,
                  "rank 0 waits in all_reduce\nrank 1 waits in barrier\n"
                  "They wait in different operations: the ranks do not run the same program, or "
                  "not in the same order.\n");
}

TEST(all_wait_in_the_same)
{
    struct hang_rank ranks[2] = {{.rank = 0}, {.rank = 1}};
    CHECK_INT(look(&ranks[0], BACKWARD, NULL), 0);
    CHECK_INT(look(&ranks[1], BACKWARD, NULL), 0);
    CHECK_STR(ranks[0].operation, "c10d::Work::wait()");
    check_verdict(ranks, 2,
                  "ranks 0-1 (2) wait in c10d::Work::wait()\n"
                  "All that answered wait in the same operation: what is missing is a rank that "
                  "was not asked, the network, or a device.\n");
}

TEST(nobody_waits_and_nobody_was_seen)
{
    struct hang_rank one = {.rank = 0};
    check_verdict(&one, 1, "");
    CHECK_INT(look(&one, LOADING, NULL), 0);
    check_verdict(&one, 1,
                  "rank 0 is in no collective: load  job.py:9 (idle in futex)\n"
                  "Nobody waits in a collective.\n");
}

TEST(stacks_become_a_tree)
{
    struct hang_rank ranks[2] = {{.rank = 0}, {.rank = 1}};
    struct stack_tree *tree = stack_tree_new();
    struct buf b;
    CHECK_INT(look(&ranks[0], ALL_REDUCE, tree), 0);
    CHECK_INT(look(&ranks[1], LOADING, tree), 0);
    buf_init(&b, 1u << 20);
    stack_tree_print(tree, "", "rank", "ranks", &b);
    CHECK_STR(buf_text(&b), "2 ranks: 0-1\n  train  job.py:14\n"
                            "    1 rank: 0\n      all_reduce  distributed_c10d.py:3\n"
                            "      c10d::Work::wait()\n      (waiting in futex)\n"
                            "    1 rank: 1\n      load  job.py:9\n      sleep  x.py:7\n"
                            "      (idle in futex)\n");
    buf_done(&b);
    stack_tree_free(tree);
}

TEST(what_is_no_answer_is_refused)
{
    static const char *const bad[] = {"1",
                                      "{}",
                                      "{\"threads\":1}",
                                      "{\"threads\":[1]}",
                                      "{\"threads\":[{}]}",
                                      "{\"threads\":[{\"frames\":{}}]}"};
    struct hang_rank one = {.rank = 0};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CHECK_INT(look(&one, bad[i], NULL), -EBADMSG);
    CHECK_INT(look(&one, "{\"threads\":[]}", NULL), -ENODATA);
    CHECK_INT(one.looks, 0);
    CHECK_INT(look(&one, "{\"threads\":[{\"frames\":[1,{\"func\":7}]}]}", NULL),
              0); /* odd, and harmless */
}

int main(void)
{
    RUN(one_does_not_come);
    RUN(a_healthy_job_is_accused_of_nothing);
    RUN(another_operation_than_the_others);
    RUN(all_wait_in_the_same);
    RUN(nobody_waits_and_nobody_was_seen);
    RUN(stacks_become_a_tree);
    RUN(what_is_no_answer_is_refused);
    return test_end();
}
