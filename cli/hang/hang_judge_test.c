/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/hang/hang_judge_test.c - who waits, who does not come, who only moves; and answers that
 * are none.
 */
#include "cli/hang/looks_test.h"

/* The main thread, and one of the program's beside it. */
#define MAIN_AND(main, name, tid, frames)                                                      \
    "{\"threads\":[{\"tid\":1,\"state\":\"idle\",\"syscall\":\"epoll_wait\",\"frames\":[" main \
    "]},{\"tid\":5,\"name\":\"gloo\",\"state\":\"idle\",\"frames\":[" NATIVE(                  \
        "gloo::transport::tcp::Loop::run()") "]},{\"tid\":" #tid ",\"name\":\"" name           \
                                             "\",\"state\":\"waiting\",\"syscall\":\"futex\"," \
                                             "\"frames\":[" frames "]}]}"
#define LOOP                                                                \
    PYTHON("EpollSelector.select", "/usr/lib/python3.11/selectors.py", 468) \
    "," PYTHON("run_forever", "/usr/lib/python3.11/asyncio/base_events.py", 607) "," TRAIN
#define JOIN PYTHON("Thread.join", "/usr/lib/python3.11/threading.py", 1112) "," TRAIN
#define SLEEPS PYTHON("load", "/home/u/job.py", 9) "," TRAIN
#define REDUCES NATIVE("c10d::Work::wait()") "," PYTHON("all_reduce", C10D, 3) "," TRAIN

TEST(one_does_not_come)
{
    struct hang_rank ranks[4] = {{.rank = 0, .pid = 10},
                                 {.rank = 1, .pid = 11},
                                 {.rank = 2, .pid = 12, .host = "n1"},
                                 {.rank = 3, .pid = 13}};
    for (int i = 0; i < 12; i++)
        CHECK_INT(look(&ranks[i % 4], i % 4 == 2 ? LOADING : ALL_REDUCE, NULL), 0);
    check_verdict(ranks, 4, HANG_YES, "2",
                  "ranks 0-1,3 (3) wait in all_reduce: train, job.py:14\n"
                  "rank 2 (process 12 on n1) is in no collective: load, job.py:9, in sleep, x.py:7 "
                  "(idle in futex)\n"
                  "The others wait for rank 2.\n");
}

/* Ray Train, a server: the main thread runs an event loop, or waits for the one that trains. */
TEST(a_thread_speaks_for_a_main_one_that_only_waits_for_it)
{
    struct hang_rank ranks[4] = {
        {.rank = 0}, {.rank = 1}, {.rank = 2, .pid = 12}, {.rank = 3, .pid = 13}};
    for (int i = 0; i < 2; i++) {
        CHECK_INT(look(&ranks[0], MAIN_AND(LOOP, "trainer", 7, REDUCES), NULL), 0);
        CHECK_INT(look(&ranks[1], MAIN_AND(JOIN, "trainer", 8, REDUCES), NULL), 0);
        CHECK_INT(look(&ranks[2], MAIN_AND(LOOP, "Thread-3 (f)", 9, SLEEPS), NULL), 0);
        /* Its own code is the program's: a helper's collective (a checkpoint's) is not its. */
        CHECK_INT(look(&ranks[3], MAIN_AND(SLEEPS, "saver", 9, REDUCES), NULL), 0);
    }
    CHECK_INT(ranks[0].tid, 7);
    CHECK_INT(ranks[3].tid, 0);
    check_verdict(ranks, 4, HANG_YES, "23",
                  "ranks 0-1 (2) wait in all_reduce: train, job.py:14 (thread trainer)\n"
                  "rank 2 (process 12) is in no collective: load, job.py:9 (not its main thread) "
                  "(waiting in futex)\n"
                  "rank 3 (process 13) is in no collective: load, job.py:9 (idle in epoll_wait)\n"
                  "The others wait for ranks 2-3.\n");
    CHECK_INT(look(&ranks[0], MAIN_AND(LOOP, "other", 6, REDUCES), NULL), 0);
    CHECK_INT(ranks[0].state, HANG_MOVES); /* another thread's is another */
    CHECK_INT(look(&ranks[1], MAIN_AND(LOOP, "trainer", 8, SLEEPS), NULL), 0);
    CHECK_INT(ranks[1].state, HANG_MOVES);
}

TEST(a_healthy_job_is_accused_of_nothing)
{
    struct hang_rank ranks[2] = {{.rank = 0, .pid = 10}, {.rank = 1, .pid = HANG_UNKNOWN}};
    CHECK_INT(look(&ranks[0], ALL_REDUCE, NULL), 0);
    CHECK_INT(look(&ranks[1], LOADING, NULL), 0);
    CHECK_INT(look(&ranks[0], LOADING, NULL), 0);
    CHECK_INT(look(&ranks[1], LOADING, NULL), 0);
    CHECK_INT(look(&ranks[0], ALL_REDUCE, NULL), 0);
    CHECK_INT(ranks[0].state, HANG_MOVES);
    check_verdict(ranks, 2, HANG_NO, "",
                  "rank 1 is in no collective: load, job.py:9, in sleep, x.py:7 (idle in futex)\n"
                  "rank 0 (process 10) moves: not in the same operation at each look\n"
                  "Nothing hangs: the ranks get on between the looks.\n");
}

/* Most of the time it is in its collective, as those that hang are: but it is woken in between. */
TEST(a_job_that_only_communicates_is_accused_of_nothing)
{
    struct hang_rank ranks[2] = {{.rank = 0, .woken = 700, .ran_ns = RAN},
                                 {.rank = 1, .woken = 2, .ran_ns = RAN}};
    for (int i = 0; i < 6; i++)
        CHECK_INT(look(&ranks[i % 2], ALL_REDUCE, NULL), 0);
    ranks[1].woken = 800;
    check_verdict(ranks, 2, HANG_NO, "",
                  "ranks 0-1 (2) wait in all_reduce: train, job.py:14; but ran between the looks\n"
                  "Nothing hangs: the ranks get on between the looks.\n");
    ranks[1].woken = 2; /* a signal, a look of somebody else */
    check_verdict(ranks, 2, HANG_NOT_KNOWN, "",
                  "rank 0 waits in all_reduce: train, job.py:14; but ran between the looks\n"
                  "rank 1 waits in all_reduce: train, job.py:14\n"
                  "Some get on and others did not between the looks: a longer look tells more "
                  "(--interval 10s).\n");
}

/* On a machine with too little to run on a look wakes a rank, which gets a processor when the look
 * is over, and is ready to run at the next one still. */
TEST(one_that_was_only_woken_waits_whatever_it_did_at_a_look)
{
    struct hang_rank ranks[2] = {{.rank = 0}, {.rank = 1}};
    for (int i = 0; i < 6; i++)
        CHECK_INT(look(&ranks[i % 2], i % 2 == 0 ? ALL_REDUCE : READY, NULL), 0);
    ranks[0].woken = ranks[1].woken = 9;
    ranks[0].ran_ns = ranks[1].ran_ns = 3 * STEP_NS - 1;
    check_verdict(ranks, 2, HANG_YES, "",
                  "ranks 0-1 (2) wait in all_reduce: train, job.py:14\n"
                  "All that were seen wait in the same call: what is missing is a rank that was "
                  "not seen, the network, or a device.\n");
    ranks[0].ran_ns = ranks[1].ran_ns = 3 * STEP_NS;
    check_verdict(ranks, 2, HANG_NO, "",
                  "ranks 0-1 (2) wait in all_reduce: train, job.py:14; but ran between the looks\n"
                  "Nothing hangs: the ranks get on between the looks.\n");
    ranks[0].ran_ns = ranks[1].ran_ns = HANG_UNKNOWN; /* of a kernel that does not say */
    check_verdict(ranks, 2, HANG_NO, "",
                  "ranks 0-1 (2) wait in all_reduce: train, job.py:14; but ran between the looks\n"
                  "Nothing hangs: the ranks get on between the looks.\n");
}

TEST(one_that_was_ready_and_did_not_run_is_not_running)
{
    struct hang_rank one = {.rank = 0, .pid = HANG_UNKNOWN, .ran_ns = 0};
    for (int i = 0; i < 3; i++)
        CHECK_INT(look(&one, GET_RANK, NULL), 0);
    check_verdict(&one, 1, HANG_NOT_KNOWN, "",
                  "rank 0 is in no collective: spin, job.py:5, in get_rank, distributed_c10d.py:3 "
                  "(running in futex)\n"
                  "Nobody waits in a collective, and nobody ran between the looks.\n");
}

/* They poll; but one is gone, so that they get on is not to be thought of. */
TEST(those_that_poll_wait_for_one_that_is_gone)
{
    struct hang_rank ranks[2] = {{.rank = 0, .woken = 700, .ran_ns = RAN},
                                 {.rank = 1, .pid = HANG_UNKNOWN}};
    CHECK_INT(look(&ranks[0], BARRIER, NULL), 0);
    ranks[1].state = HANG_GONE;
    check_verdict(ranks, 2, HANG_YES, "1",
                  "rank 0 waits in barrier: train, job.py:14; but ran between the looks\n"
                  "rank 1 is gone\n"
                  "The others wait for rank 1.\n");
    CHECK_INT(look(&ranks[1], LOADING, NULL), 0);
    CHECK_INT(look(&ranks[0], BARRIER, NULL), 0);
    (void)snprintf(ranks[0].operation, sizeof(ranks[0].operation), "init_process_group");
    check_verdict(ranks, 2, HANG_YES, "1",
                  "rank 0 waits in init_process_group: train, job.py:14\n"
                  "rank 1 is in no collective: load, job.py:9, in sleep, x.py:7 (idle in futex)\n"
                  "The others wait for rank 1.\n");
}

TEST(another_operation_than_the_others)
{
    struct hang_rank ranks[3] = {{.rank = 0}, {.rank = 1}, {.rank = 2}};
    CHECK_INT(look(&ranks[0], ALL_REDUCE, NULL), 0);
    CHECK_INT(look(&ranks[1], BARRIER, NULL), 0);
    CHECK_INT(look(&ranks[2], ALL_REDUCE, NULL), 0);
    check_verdict(ranks, 3, HANG_YES, "1",
                  "ranks 0,2 (2) wait in all_reduce: train, job.py:14\n"
                  "rank 1 waits in barrier: train, job.py:14\n"
                  "They wait in different operations: the ranks do not run the same program, or "
                  "not in the same order. Different from most: rank 1.\n");
}

/* Neither of two halves is the wrong one. */
TEST(as_many_in_one_operation_as_in_the_other)
{
    struct hang_rank ranks[2] = {{.rank = 0}, {.rank = 1}};
    CHECK_INT(look(&ranks[0], ALL_REDUCE, NULL), 0);
    CHECK_INT(look(&ranks[1], BARRIER, NULL), 0);
    check_verdict(ranks, 2, HANG_YES, "",
                  "rank 0 waits in all_reduce: train, job.py:14\n"
                  "rank 1 waits in barrier: train, job.py:14\n"
                  "They wait in different operations: the ranks do not run the same program, or "
                  "not in the same order.\n");
}

/* all_reduce(x, async_op=True).wait() may be the very call that the others are in. */
TEST(one_waits_for_a_call_that_it_made_before)
{
    struct hang_rank ranks[3] = {{.rank = 0}, {.rank = 1}, {.rank = 2}};
    CHECK_INT(look(&ranks[0], BACKWARD, NULL), 0);
    CHECK_INT(look(&ranks[1], ALL_REDUCE, NULL), 0);
    CHECK_INT(look(&ranks[2], ALL_REDUCE, NULL), 0);
    check_verdict(ranks, 3, HANG_YES, "",
                  "rank 0 waits in c10d::Work::wait: train, job.py:14\n"
                  "ranks 1-2 (2) wait in all_reduce: train, job.py:14\n"
                  "They wait in different operations: some wait for a call that they made before, "
                  "or for a device, and their stacks do not tell which collective that is.\n");
}

/* Uneven inputs under DDP: backward() waits for an all_reduce, whatever its stack says. */
TEST(one_has_left_the_loop_of_ddp)
{
    struct hang_rank ranks[3] = {{.rank = 0}, {.rank = 1}, {.rank = 2}};
    CHECK_INT(look(&ranks[0], DDP, NULL), 0);
    CHECK_INT(look(&ranks[1], DDP, NULL), 0);
    CHECK_INT(look(&ranks[2], BARRIER, NULL), 0);
    check_verdict(ranks, 3, HANG_YES, "2",
                  "ranks 0-1 (2) wait in c10d::Reducer::finalize_backward: train, job.py:14\n"
                  "rank 2 waits in barrier: train, job.py:14\n"
                  "They wait in different operations: the ranks do not run the same program, or "
                  "not in the same order. Different from most: rank 2.\n");
    CHECK_INT(look(&ranks[2], ALL_REDUCE, NULL), 0); /* it may be theirs */
    ranks[2].state = HANG_WAITS;
    check_verdict(ranks, 3, HANG_YES, "",
                  "ranks 0-1 (2) wait in c10d::Reducer::finalize_backward: train, job.py:14\n"
                  "rank 2 waits in all_reduce: train, job.py:14\n"
                  "They wait in different operations: some wait for a call that they made before, "
                  "or for a device, and their stacks do not tell which collective that is.\n");
}

/* A key that nobody sets is neither a call that was made before nor a device. */
TEST(one_waits_for_the_store)
{
    struct hang_rank ranks[3] = {{.rank = 0}, {.rank = 1}, {.rank = 2}};
    CHECK_INT(look(&ranks[0], ALL_REDUCE, NULL), 0);
    CHECK_INT(look(&ranks[1], STORE, NULL), 0);
    CHECK_INT(look(&ranks[2], ALL_REDUCE, NULL), 0);
    check_verdict(ranks, 3, HANG_YES, "1",
                  "ranks 0,2 (2) wait in all_reduce: train, job.py:14\n"
                  "rank 1 waits in c10d::PrefixStore::get: train, job.py:14\n"
                  "They wait in different operations: the ranks do not run the same program, or "
                  "not in the same order. Different from most: rank 1.\n");
}

/* Stages of a pipeline: that one receives while others reduce is how it is written. */
TEST(one_receives_from_another)
{
    struct hang_rank ranks[3] = {{.rank = 0}, {.rank = 1}, {.rank = 2}};
    CHECK_INT(look(&ranks[0], ALL_REDUCE, NULL), 0);
    CHECK_INT(look(&ranks[1], ALL_REDUCE, NULL), 0);
    CHECK_INT(look(&ranks[2], ALL_REDUCE, NULL), 0);
    (void)snprintf(ranks[2].operation, sizeof(ranks[2].operation), "recv");
    check_verdict(ranks, 3, HANG_YES, "",
                  "ranks 0-1 (2) wait in all_reduce: train, job.py:14\n"
                  "rank 2 waits in recv: train, job.py:14\n"
                  "They wait in different operations: some send to one rank or receive from it, "
                  "and which one its stack does not tell. Look at what those ranks do.\n");
}

TEST(all_wait_in_the_same)
{
    struct hang_rank ranks[3] = {{.rank = 0}, {.rank = 1}, {.rank = 2, .pid = HANG_UNKNOWN}};
    CHECK_INT(look(&ranks[0], BACKWARD, NULL), 0);
    CHECK_INT(look(&ranks[1], BACKWARD, NULL), 0);
    CHECK_STR(ranks[0].operation, "c10d::Work::wait");
    check_verdict(ranks, 2, HANG_YES, "",
                  "ranks 0-1 (2) wait in c10d::Work::wait: train, job.py:14\n"
                  "All that were seen wait in the same call: what is missing is a rank that "
                  "was not seen, the network, or a device.\n");
    check_verdict_of(/* all= */ true, ranks, 2, HANG_YES, "",
                     "ranks 0-1 (2) wait in c10d::Work::wait: train, job.py:14\n"
                     "All wait in the same call: what is missing is the network, or a device.\n");
    check_verdict_of(/* all= */ true, ranks, 3, HANG_YES, "",
                     "ranks 0-1 (2) wait in c10d::Work::wait: train, job.py:14\n"
                     "rank 2 was not seen\n"
                     "All that were seen wait in the same call: what is missing is a rank that "
                     "was not seen, the network, or a device.\n"
                     "Those that were not seen may be what the others wait for, too.\n");
    ranks[2].state = HANG_GONE;
    (void)snprintf(ranks[2].why, sizeof(ranks[2].why), "it has ended");
    check_verdict(ranks, 3, HANG_YES, "2",
                  "ranks 0-1 (2) wait in c10d::Work::wait: train, job.py:14\n"
                  "rank 2 is gone: it has ended\n"
                  "The others wait for rank 2.\n");
}

TEST(asking_for_ones_rank_is_no_collective)
{
    struct hang_rank ranks[2] = {{.rank = 0, .pid = 1}, {.rank = 1, .pid = HANG_UNKNOWN}};
    CHECK_INT(look(&ranks[0], BARRIER, NULL), 0);
    CHECK_INT(look(&ranks[1], GET_RANK, NULL), 0);
    check_verdict(ranks, 2, HANG_YES, "1",
                  "rank 0 waits in barrier: train, job.py:14\n"
                  "rank 1 is in no collective: spin, job.py:5, in get_rank, distributed_c10d.py:3 "
                  "(running in futex)\n"
                  "The others wait for rank 1.\n");
}

TEST(nobody_waits_and_nobody_was_seen)
{
    struct hang_rank one = {.rank = 0, .pid = HANG_UNKNOWN};
    check_verdict(&one, 1, HANG_NOT_KNOWN, "",
                  "rank 0 was not seen\nNothing is known of any of them.\n");
    CHECK_INT(look(&one, LOADING, NULL), 0);
    check_verdict(&one, 1, HANG_NOT_KNOWN, "",
                  "rank 0 is in no collective: load, job.py:9, in sleep, x.py:7 (idle in futex)\n"
                  "Nobody waits in a collective, and nobody ran between the looks.\n");
    one.woken = 50;
    check_verdict(&one, 1, HANG_NO, "",
                  "rank 0 is in no collective: load, job.py:9, in sleep, x.py:7 (idle in futex)\n"
                  "Nobody waits in a collective.\n");
    one.state = HANG_STOPPED;
    check_verdict(&one, 1, HANG_NOT_KNOWN, "",
                  "rank 0 is stopped: load, job.py:9, in sleep, x.py:7\n"
                  "Nobody waits in a collective, and not all ranks may run.\n");
}

static void plant(struct stack_tree *tree, int64_t rank, struct buf *stacks, bool python)
{
    struct json_error e;
    struct arena a;
    struct json *j;

    arena_init(&a, 0);
    CHECK_INT(json_read(&a, stacks->data, stacks->size, &j, &e), 0);
    CHECK_INT(hang_plant(tree, rank, j, python), 0);
    arena_done(&a);
}

TEST(stacks_become_a_tree)
{
    struct hang_rank one = {.rank = 0};
    struct buf b, stacks;

    buf_init(&b, 1u << 20);
    buf_init(&stacks, HANG_STACK_BYTES);
    for (int python = 0; python < 2; python++) {
        struct stack_tree *tree = stack_tree_new();
        buf_reset(&b);
        CHECK_INT(look(&one, ALL_REDUCE, &stacks), 0);
        plant(tree, 0, &stacks, python != 0);
        CHECK_INT(look(&one, LOADING, &stacks), 0);
        plant(tree, 1, &stacks, python != 0);
        stack_tree_print(tree, "", "rank", "ranks", &b);
        CHECK(strstr(buf_text(&b),
                     "2 ranks: 0-1\n  train  job.py:14\n"
                     "    1 rank: 0\n      all_reduce  distributed_c10d.py:3\n") != NULL);
        CHECK_INT(strstr(buf_text(&b), "      c10d::Work::wait()\n") == NULL, python);
        CHECK(strstr(buf_text(&b), "    1 rank: 1\n      load  job.py:9\n      sleep  x.py:7\n"
                                   "      (idle in futex)\n") != NULL);
        stack_tree_free(tree);
    }
    buf_done(&b);
    buf_done(&stacks);
}

TEST(words_of_a_rank_stay_in_their_line)
{
    struct hang_rank one = {.rank = 0, .pid = HANG_UNKNOWN};
    CHECK_INT(look(&one,
                   "{\"threads\":[{\"state\":\"a\\nrank 7 is gone\",\"frames\":[{\"type\":"
                   "\"python\",\"func\":\"f\\n\\u001b[2J\",\"file\":\"x\\n\"}]}]}",
                   NULL),
              0);
    check_verdict(&one, 1, HANG_NOT_KNOWN, "",
                  "rank 0 is in no collective: f\\n\\x1b[2J, x\\n:0 (a\\nrank 7 is gone)\n"
                  "Nobody waits in a collective, and nobody ran between the looks.\n");
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
    RUN(a_thread_speaks_for_a_main_one_that_only_waits_for_it);
    RUN(a_healthy_job_is_accused_of_nothing);
    RUN(a_job_that_only_communicates_is_accused_of_nothing);
    RUN(one_that_was_only_woken_waits_whatever_it_did_at_a_look);
    RUN(one_that_was_ready_and_did_not_run_is_not_running);
    RUN(those_that_poll_wait_for_one_that_is_gone);
    RUN(another_operation_than_the_others);
    RUN(as_many_in_one_operation_as_in_the_other);
    RUN(one_waits_for_a_call_that_it_made_before);
    RUN(one_has_left_the_loop_of_ddp);
    RUN(one_waits_for_the_store);
    RUN(one_receives_from_another);
    RUN(all_wait_in_the_same);
    RUN(asking_for_ones_rank_is_no_collective);
    RUN(nobody_waits_and_nobody_was_seen);
    RUN(stacks_become_a_tree);
    RUN(words_of_a_rank_stay_in_their_line);
    RUN(what_is_no_answer_is_refused);
    return test_end();
}
