/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/hang/hang_waits_test.c - who waits for whom by groups, pairs and tags: circles, rows, and
 * who is accused of nothing.
 */
#include "cli/hang/looks_test.h"

/* An operation with its arguments, as the last look reads them. */
#define CALL(func, locals)                                               \
    THREAD("waiting",                                                    \
           "{\"type\":\"python\",\"func\":\"" func "\",\"file\":\"" C10D \
           "\",\"line\":3,\"locals\":{\"tensor\":{\"type\":\"Tensor\"}," locals "}}," TRAIN)
#define GROUP(name, ranks)                                                             \
    "\"group\":{\"type\":\"torch._C._distributed_c10d.ProcessGroup\",\"name\":\"" name \
    "\",\"ranks\":\"" ranks "\"}"
#define WORLD "\"group\":null"
#define SEND(dst, tag) CALL("send", WORLD ",\"dst\":" #dst ",\"tag\":" #tag)
#define RECV(src, tag) CALL("recv", WORLD ",\"src\":" #src ",\"tag\":" #tag)

static void look_at_each(struct hang_rank *ranks, const char *const *texts, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        ranks[i] = (struct hang_rank){.rank = (int64_t)i};
        CHECK_INT(look(&ranks[i], texts[i], NULL), 0);
    }
}

TEST(groups_of_two_in_a_ring_are_a_circle)
{
    struct hang_rank ranks[4];
    const char *const texts[] = {CALL("all_reduce", GROUP("1", "0-1")),
                                 CALL("all_reduce", GROUP("2", "1-2")),
                                 CALL("all_reduce", GROUP("3", "0,2")), CALL("barrier", WORLD)};
    look_at_each(ranks, texts, 4);
    check_verdict(
        ranks, 4, HANG_YES, "",
        "ranks 0-2 (3) wait in all_reduce: train, job.py:14\n"
        "rank 3 waits in barrier: train, job.py:14\n"
        "They wait for each other in a circle: rank 0 waits in all_reduce of group 1 (ranks 0-1) "
        "for rank 1, which waits in all_reduce of group 2 (ranks 1-2) for rank 2, which waits in "
        "all_reduce of group 3 (ranks 0,2) for rank 0.\n");
}

TEST(all_that_receive_are_a_circle_and_no_network)
{
    struct hang_rank ranks[2];
    const char *const texts[] = {RECV(1, 0), RECV(0, 0)};
    look_at_each(ranks, texts, 2);
    check_verdict_of(/* all= */ true, ranks, 2, HANG_YES, "",
                     "ranks 0-1 (2) wait in recv: train, job.py:14\n"
                     "They wait for each other in a circle: rank 0 waits in recv(src=1, tag=0) for "
                     "rank 1, which waits in recv(src=0, tag=0) for rank 0.\n");
}

TEST(tags_tell_whether_a_send_is_received)
{
    struct hang_rank ranks[2];
    const char *const differ[] = {SEND(1, 7), RECV(0, 8)}, *const fit[] = {SEND(1, 7), RECV(0, 7)};
    look_at_each(ranks, differ, 2);
    check_verdict(ranks, 2, HANG_YES, "",
                  "rank 0 waits in send(dst=1, tag=7): train, job.py:14\n"
                  "rank 1 waits in recv(src=0, tag=8): train, job.py:14\n"
                  "They wait for each other in a circle: rank 0 waits in send(dst=1, tag=7) for "
                  "rank 1 (the tags differ), which waits in recv(src=0, tag=8) for rank 0 (the "
                  "tags differ).\n");
    look_at_each(ranks, fit, 2);
    check_verdict_of(/* all= */ true, ranks, 2, HANG_YES, "",
                     "rank 0 waits in send(dst=1, tag=7): train, job.py:14\n"
                     "rank 1 waits in recv(src=0, tag=7): train, job.py:14\n"
                     "ranks 0-1 wait, as far as calls tell, for nobody: what is missing is the "
                     "network, or a device.\n");
}

/* Ranks 0 and 1 sleep, and nobody needs them: they have not come to what they have no part in. */
TEST(who_has_no_part_in_a_group_is_not_awaited)
{
    struct hang_rank ranks[6];
    const char *const texts[] = {LOADING, LOADING, CALL("all_reduce", GROUP("1", "2-4/2")),
                                 LOADING, LOADING, RECV(2, 0)};
    look_at_each(ranks, texts, 6);
    check_verdict(ranks, 6, HANG_YES, "4",
                  "rank 2 waits in all_reduce of group 1 (ranks 2-4/2): train, job.py:14\n"
                  "rank 5 waits in recv(src=2, tag=0): train, job.py:14\n"
                  "ranks 0-1,3-4 (4) are in no collective: load, job.py:9, in sleep, x.py:7 (idle "
                  "in futex)\n"
                  "ranks 2,5 wait for rank 4.\n"
                  "rank 5 waits in recv(src=2, tag=0) for rank 2, which waits in all_reduce of "
                  "group 1 (ranks 2-4/2) for rank 4.\n");
}

TEST(one_is_in_the_collective_of_another_group)
{
    struct hang_rank ranks[4];
    const char *const texts[] = {
        CALL("all_reduce", GROUP("1", "0-1")), CALL("all_reduce", GROUP("2", "0-1")),
        CALL("broadcast", GROUP("3", "2-3") ",\"src\":null,\"group_src\":1"),
        CALL("broadcast", GROUP("3", "2-3") ",\"src\":3")};
    look_at_each(ranks, texts, 4);
    CHECK_INT(ranks[2].call.peer, 3);
    check_verdict(ranks, 4, HANG_YES, "",
                  "ranks 0-1 (2) wait in all_reduce: train, job.py:14\n"
                  "ranks 2-3 (2) wait in broadcast(src=3) of group 3 (ranks 2-3): train, "
                  "job.py:14\n"
                  "They wait for each other in a circle: rank 0 waits in all_reduce of group 1 "
                  "(ranks 0-1) for rank 1, which waits in all_reduce of group 2 (ranks 0-1) for "
                  "rank 0.\n"
                  "ranks 2-3 wait, as far as calls tell, for nobody that was seen: what is missing "
                  "is a rank that was not seen, the network, or a device.\n");
}

/* A call in the default group tells no more than its name does, and one whose group is not known
 * less. */
TEST(a_group_that_is_not_known_proves_nothing)
{
    struct hang_rank ranks[3];
    const char *const texts[] = {CALL("all_reduce", WORLD), CALL("all_reduce", WORLD),
                                 CALL("all_reduce", "\"group\":{\"type\":\"X\",\"default\":true}")};
    const char *const unknown[] = {CALL("all_reduce", "\"group\":{\"type\":\"X\"}"),
                                   CALL("recv", WORLD ",\"src\":null"), RECV(0, 0)};
    look_at_each(ranks, texts, 3);
    check_verdict_of(/* all= */ true, ranks, 3, HANG_YES, "",
                     "ranks 0-2 (3) wait in all_reduce: train, job.py:14\n"
                     "All wait in the same call: what is missing is the network, or a device.\n");
    look_at_each(ranks, unknown, 3);
    check_verdict(ranks, 3, HANG_YES, "",
                  "rank 0 waits in all_reduce: train, job.py:14\n"
                  "ranks 1-2 (2) wait in recv: train, job.py:14\n"
                  "ranks 0-2 wait, as far as calls tell, for nobody that was seen: what is missing "
                  "is a rank that was not seen, the network, or a device.\n");
}

/* irecv().wait(): it waits for one of the others, and rank 0 need not be that. */
TEST(a_transfer_that_was_begun_before_accuses_nobody)
{
    static const char begun[] =
        THREAD("waiting", NATIVE("c10d::ProcessGroupGloo::RecvWork::wait()") "," TRAIN);
    struct hang_rank ranks[3];
    const char *const texts[] = {LOADING, begun, begun};
    look_at_each(ranks, texts, 3);
    check_verdict(ranks, 3, HANG_YES, "",
                  "ranks 1-2 (2) wait in c10d::ProcessGroupGloo::RecvWork::wait: train, job.py:14\n"
                  "rank 0 is in no collective: load, job.py:9, in sleep, x.py:7 (idle in futex)\n"
                  "They send to one rank or receive from it, and their stacks do not tell which "
                  "one. Where plugin torch is, `probing -t PID torch` tells it of what began after "
                  "the plugin had come.\n");
    check_verdict(ranks, 2, HANG_YES, "0",
                  "rank 1 waits in c10d::ProcessGroupGloo::RecvWork::wait: train, job.py:14\n"
                  "rank 0 is in no collective: load, job.py:9, in sleep, x.py:7 (idle in futex)\n"
                  "The others wait for rank 0.\n");
}

TEST(a_circle_beside_ranks_that_get_on)
{
    struct hang_rank ranks[3];
    const char *const texts[] = {RECV(1, 0), RECV(0, 0), CALL("all_reduce", GROUP("1", "2-3"))};
    look_at_each(ranks, texts, 3);
    ranks[2].woken = 700;
    ranks[2].ran_ns = RAN;
    check_verdict(ranks, 3, HANG_YES, "",
                  "ranks 0-1 (2) wait in recv: train, job.py:14\n"
                  "rank 2 waits in all_reduce of group 1 (ranks 2-3): train, job.py:14; but ran "
                  "between the looks\n"
                  "Some get on and others did not between the looks: a longer look tells more "
                  "(--interval 10s).\n"
                  "They wait for each other in a circle: rank 0 waits in recv(src=1, tag=0) for "
                  "rank 1, which waits in recv(src=0, tag=0) for rank 0.\n");
    ranks[1].woken = 700;
    ranks[1].ran_ns = RAN;
    check_verdict(ranks, 3, HANG_NOT_KNOWN, "",
                  "rank 0 waits in recv(src=1, tag=0): train, job.py:14\n"
                  "rank 1 waits in recv(src=0, tag=0): train, job.py:14; but ran between the "
                  "looks\n"
                  "rank 2 waits in all_reduce of group 1 (ranks 2-3): train, job.py:14; but ran "
                  "between the looks\n"
                  "Some get on and others did not between the looks: a longer look tells more "
                  "(--interval 10s).\n");
}

int main(void)
{
    RUN(groups_of_two_in_a_ring_are_a_circle);
    RUN(all_that_receive_are_a_circle_and_no_network);
    RUN(tags_tell_whether_a_send_is_received);
    RUN(who_has_no_part_in_a_group_is_not_awaited);
    RUN(one_is_in_the_collective_of_another_group);
    RUN(a_group_that_is_not_known_proves_nothing);
    RUN(a_transfer_that_was_begun_before_accuses_nobody);
    RUN(a_circle_beside_ranks_that_get_on);
    return test_end();
}
