/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/nccl/record/recorder_test.c - NCCL's calls become rows: in order, out of order, never
 * ended, with handles that are none, and in the words of older versions.
 */
#include "record/recording_test.h"

#define ALL_PROXIES 20000

/* ---- cases ---- */

TEST(an_operation_ends_with_its_last_channel)
{
    begin();
    void *c = comm_v6(0x1234), *op = coll_v6(c, 7, 2);
    ncclProfiler_v6.stop_event(op);
    void *k[2] = {kernel_v6(c, op, 1000), kernel_v6(c, op, 1500)};
    kernel_ends_v6(k[0], 9000);
    turn_after(0);
    CHECK_INT(table("coll_perf")->rows, 0);
    kernel_ends_v6(k[1], 9500);
    turn_after(0);
    CHECK_INT(table("coll_perf")->rows, 1);
    CHECK_INT(cell("coll_perf", "exec_time_ns").i, 8500);
    CHECK_INT(cell("coll_perf", "msg_size_bytes").i, 4000);
    CHECK_INT(cell("coll_perf", "seq").i, 7);
    CHECK_INT(cell("coll_perf", "n_ranks").i, 8);
    CHECK_INT(cell("coll_perf", "rank").i, 3);
    CHECK(cell("coll_perf", "peer").i == PROBING_NULL_I64);
    CHECK_STR(text_of("coll_perf", "timing_source"), "kernel_gpu");
    CHECK_STR(text_of("coll_perf", "algo"), "COLLNET_DIRECT");
    CHECK_STR(text_of("coll_perf", "comm_hash"), "0x1234");
    CHECK_STR(text_of("coll_perf", "comm_name"), "tp");
    ncclProfiler_v6.finalize(c);
    turn_after(0);
}

TEST(waits_are_of_who_is_waited_for)
{
    begin();
    void *c = comm_v6(1), *op = coll_v6(c, 1, 1);
    void *p = proxy_v6(c, op, getpid(), 1), *s = step_v6(c, p, 0);
    state_v6(s, NCCL_STEP_SEND_GPU_WAIT, 0);
    uint64_t until = clock_now() + 3000000;
    while (clock_now() < until)
        ;
    state_v6(s, NCCL_STEP_SEND_PEER_WAIT, 0);
    state_v6(s, NCCL_STEP_SEND_WAIT, 4096);
    ncclProfiler_v6.stop_event(s);
    ncclProfiler_v6.stop_event(p);
    turn_after(0);
    CHECK_INT(table("proxy_ops")->rows, 1);
    CHECK(cell("proxy_ops", "send_gpu_wait_ns").i >= 3000000);
    CHECK_INT(cell("proxy_ops", "culprit_rank").i, 3);
    CHECK_INT(cell("proxy_ops", "peer").i, 5);
    CHECK_INT(cell("proxy_ops", "trans_bytes").i, 4096);
    CHECK_STR(text_of("proxy_ops", "coll_func"), "AllReduce");
    ncclProfiler_v6.finalize(c);
    turn_after(0);
}

/* With PXN a proxy has a parent in another process, whose handle may look like one of ours. */
TEST(a_parent_of_another_process_is_not_looked_at)
{
    begin();
    void *c = comm_v6(1), *op = coll_v6(c, 1, 1);
    void *p = proxy_v6(c, op, getpid() + 1, 0);
    CHECK(p != NULL);
    ncclProfiler_v6.stop_event(p);
    turn_after(0);
    CHECK_INT(table("proxy_ops")->rows, 1);
    CHECK_STR(text_of("proxy_ops", "coll_func"), "");
    ncclProfiler_v6.finalize(c);
    turn_after(0);
}

TEST(handles_that_are_none_are_counted)
{
    begin();
    void *c = comm_v6(1), *op = coll_v6(c, 1, 1), *k = kernel_v6(c, op, 1);
    ncclProfiler_v6.stop_event(op);
    ncclProfiler_v6.stop_event(op);
    kernel_ends_v6(k, 2);
    CHECK_INT(counted(c, COUNT_UNKNOWN), 1);
    ncclProfiler_v6.stop_event(k);
    ncclProfiler_v6.stop_event(op);
    CHECK_INT(counted(c, COUNT_UNKNOWN), 3);
    for (uintptr_t wild = 1; wild; wild <<= 1) {
        ncclProfiler_v6.stop_event((void *)wild);
        state_v6((void *)wild, NCCL_STEP_RECV_WAIT, 1);
        CHECK(step_v6(c, (void *)wild, 1) == NULL);
    }
    turn_after(0);
    CHECK_INT(table("coll_perf")->rows, 1);
    ncclProfiler_v6.finalize(c);
    turn_after(0);
}

TEST(a_handle_of_an_earlier_life_is_not_the_later_one)
{
    struct inflight f;
    begin();
    void *c = comm_v6(1), *old = coll_v6(c, 1, 1);
    ncclProfiler_v6.stop_event(old);
    kernel_ends_v6(kernel_v6(c, old, 1), 2);
    turn_after(0);
    void *op = coll_v6(c, 2, 1);
    struct pool *p = &atomic_load(&((struct comm *)c)->pools)->op;
    CHECK((uint32_t)((uintptr_t)op >> 32) == (uint32_t)((uintptr_t)old >> 32)); /* one slot */
    ncclProfiler_v6.stop_event(old);
    kernel_ends_v6(kernel_v6(c, old, 1), 2);
    CHECK(inflight_op(p, (uint32_t)((uintptr_t)op >> 32) & 0x3fff, &f));
    CHECK_INT(f.state, INFLIGHT_ENQUEUING);
    CHECK_INT(f.seq, 2);
    void *ended = proxy_v6(c, op, getpid(), 1);
    ncclProfiler_v6.stop_event(ended);
    turn_after(0);
    CHECK(proxy_v6(c, op, getpid(), 1) != NULL); /* in its slot */
    CHECK(step_v6(c, ended, 0) == NULL);
    ncclProfiler_v6.finalize(c);
    turn_after(0);
}

TEST(a_stop_may_come_after_all_that_it_stops)
{
    begin();
    void *c = comm_v6(1), *op = coll_v6(c, 1, 1);
    kernel_ends_v6(kernel_v6(c, op, 1), 2);
    turn_after(0);
    CHECK_INT(table("coll_perf")->rows, 0);
    ncclProfiler_v6.stop_event(op);
    turn_after(0);
    CHECK_INT(table("coll_perf")->rows, 1);
    CHECK_STR(text_of("coll_perf", "timing_source"), "kernel_gpu");
    ncclProfiler_v6.finalize(c);
    turn_after(0);
}

TEST(full_pools_drop_and_count)
{
    static void *all[ALL_PROXIES];
    begin();
    void *c = comm_v6(1), *op = coll_v6(c, 1, 1);
    uint32_t taken = 0;
    for (uint32_t i = 0; i < ALL_PROXIES; i++)
        taken += (all[i] = proxy_v6(c, op, getpid(), 1)) != NULL;
    CHECK_INT(taken, PROXIES_MAX);
    CHECK_INT(counted(c, COUNT_NO_ROOM), ALL_PROXIES - PROXIES_MAX);
    for (uint32_t i = 0; i < ALL_PROXIES; i++)
        if (all[i])
            ncclProfiler_v6.stop_event(all[i]);
    turn_after(0);
    CHECK_INT(table("proxy_ops")->rows, PROXIES_MAX);
    CHECK(proxy_v6(c, op, getpid(), 1) != NULL); /* there is room again */
    ncclProfiler_v6.finalize(c);
    turn_after(0);
    CHECK_STR(text_of("coll_perf", "timing_source"), "aborted");
    CHECK_INT(cell("coll_perf", "pool_events_dropped").i, ALL_PROXIES - PROXIES_MAX);
}

TEST(what_a_communicator_leaves_is_aborted_and_its_place_is_taken_again)
{
    begin();
    void *c = comm_v6(1), *op = coll_v6(c, 1, 1), *p = proxy_v6(c, op, getpid(), 1);
    ncclProfiler_v6.finalize(c);
    turn_after(0);
    CHECK_INT(table("coll_perf")->rows, 1);
    CHECK_INT(table("proxy_ops")->rows, 1);
    CHECK(cell("coll_perf", "exec_time_ns").i == PROBING_NULL_I64);
    void *again = comm_v6(2);
    CHECK(again == c);
    ncclProfiler_v6.stop_event(op);
    ncclProfiler_v6.stop_event(p);
    CHECK_INT(counted(again, COUNT_UNKNOWN), 2);
    ncclProfiler_v6.finalize(again);
    turn_after(0);
    CHECK_INT(table("coll_perf")->rows, 1);
}

/* ---- NCCL 2.23 to 2.26 say less ---- */

TEST(version_1_has_no_kernels_and_ends_in_time)
{
    begin();
    void *c = NULL, *h = NULL;
    CHECK_INT(ncclProfiler_v1.init(&c, &mask), 0);
    struct nccl_descr_v1 d = {.type = NCCL_COLL,
                              .rank = 2,
                              .coll = {.comm_hash = 0x77,
                                       .seq = 4,
                                       .func = 4,
                                       .count = 10,
                                       .datatype = 7,
                                       .algo = 1,
                                       .proto = 200}};
    CHECK_INT(ncclProfiler_v1.start_event(c, &h, &d), 0);
    CHECK_INT(ncclProfiler_v1.stop_event(h), 0);
    turn_after(0);
    CHECK_INT(table("coll_perf")->rows, 0);
    turn_after(3 * PROBING_NS_PER_S);
    turn_after(3 * PROBING_NS_PER_S);
    CHECK_INT(table("coll_perf")->rows, 1);
    CHECK_STR(text_of("coll_perf", "coll_func"), "AllReduce");
    CHECK_STR(text_of("coll_perf", "dtype"), "ncclFloat32");
    CHECK_STR(text_of("coll_perf", "proto"), "");
    CHECK_STR(text_of("coll_perf", "comm_hash"), "0x77");
    CHECK_STR(text_of("coll_perf", "timing_source"), "enqueue");
    CHECK(cell("coll_perf", "exec_time_ns").i == PROBING_NULL_I64);
    CHECK_INT(cell("coll_perf", "rank").i, 2);
    ncclProfiler_v1.finalize(c);
    turn_after(0);
}

TEST(version_3_ends_when_its_channels_are_quiet)
{
    begin();
    void *c = NULL, *op = NULL, *k = NULL;
    CHECK_INT(ncclProfiler_v3.init(&c, &mask), 0);
    struct nccl_descr_v3 d = {.type = NCCL_COLL,
                              .coll = {.func = "Broadcast", .root = 1, .n_max_channels = 9}};
    struct nccl_descr_v3 kd = {.type = NCCL_KERNEL_CH};
    ncclProfiler_v3.start_event(c, &op, &d);
    ncclProfiler_v3.stop_event(op);
    turn_after(3 * PROBING_NS_PER_S);
    turn_after(0);
    CHECK_INT(table("coll_perf")->rows, 0); /* its kernel will tell */
    kd.parent = op;
    ncclProfiler_v3.start_event(c, &k, &kd);
    turn_after(3 * PROBING_NS_PER_S);
    turn_after(0);
    CHECK_INT(table("coll_perf")->rows, 0); /* it runs */
    ncclProfiler_v3.stop_event(k);
    turn_after(3 * PROBING_NS_PER_S);
    turn_after(0);
    CHECK_INT(table("coll_perf")->rows, 1);
    CHECK_STR(text_of("coll_perf", "timing_source"), "kernel_ch");
    CHECK_INT(cell("coll_perf", "root").i, 1);
    ncclProfiler_v3.finalize(c);
    turn_after(0);
}

TEST(one_whose_channels_are_lost_ends_behind_a_later_one)
{
    begin();
    void *c = comm_v6(1), *lost = coll_v6(c, 1, 2);
    ncclProfiler_v6.stop_event(lost);
    turn_after(10 * PROBING_NS_PER_S);
    turn_after(0);
    CHECK_INT(table("coll_perf")->rows, 0); /* it may hang */
    void *later = coll_v6(c, 2, 1);
    ncclProfiler_v6.stop_event(later);
    kernel_ends_v6(kernel_v6(c, later, 1), 2);
    turn_after(0);
    turn_after(10 * PROBING_NS_PER_S);
    turn_after(0);
    CHECK_INT(table("coll_perf")->rows, 2);
    CHECK_INT(cell("coll_perf", "seq").i, 1);
    CHECK_STR(text_of("coll_perf", "timing_source"), "enqueue");
    ncclProfiler_v6.finalize(c);
    turn_after(0);
}

TEST(what_is_under_way_is_told_again_at_growing_times)
{
    begin();
    void *c = comm_v6(1);
    uint64_t begun = clock_now();
    void *op = coll_v6(c, 1, 2);
    for (uint64_t ms = 0; ms <= 3200; ms += 100) {
        (void)writer_turn(writer, begun + ms * PROBING_NS_PER_MS, /* scan= */ true);
        CHECK(ms > 200 || table("inflight_log")->rows == 0);
    }
    CHECK_INT(table("inflight_log")->rows, 3); /* 0.3, 1, 2 s */
    CHECK_STR(text_of("inflight_log", "state"), "enqueuing");
    CHECK(cell("inflight_log", "age_ns").i >= 2000000000);
    ncclProfiler_v6.stop_event(op);
    ncclProfiler_v6.finalize(c);
    turn_after(0);
}

TEST(switched_off_nothing_is_asked_for)
{
    begin();
    void *c = comm_v6(1);
    CHECK(mask != 0);
    CHECK_INT(recorder_switch(recorder, false), 0);
    CHECK_INT(mask, 0);
    CHECK(coll_v6(c, 1, 1) == NULL);
    CHECK_INT(recorder_switch(recorder, true), 0);
    CHECK(mask != 0);
    ncclProfiler_v6.finalize(c);
    turn_after(0);
    CHECK(recorder->mask == NULL);
    /* A word on a stack is written in init() only. */
    int local = -1;
    CHECK_INT(ncclProfiler_v6.init(&c, 1, &local, NULL, 1, 1, 0, NULL), 0);
    CHECK(local > 0 && recorder->mask == NULL && recorder->fixed_mask);
    ncclProfiler_v6.finalize(c);
    turn_after(0);
}

TEST(too_many_communicators_have_no_context)
{
    static void *all[COMMS_MAX + 2];
    begin();
    CHECK_INT(recorder_switch(recorder, false), 0);
    for (uint32_t i = 0; i < COMMS_MAX + 2; i++)
        CHECK_INT(ncclProfiler_v6.init(&all[i], i, &mask, NULL, 1, 2, 0, NULL), 0);
    CHECK(all[COMMS_MAX - 1] != NULL && all[COMMS_MAX] == NULL && all[COMMS_MAX + 1] == NULL);
    CHECK(coll_v6(NULL, 1, 1) == NULL);
    CHECK_INT(atomic_load(&recorder->refused), 2);
    for (uint32_t i = 0; i < COMMS_MAX; i++)
        ncclProfiler_v6.finalize(all[i]);
    turn_after(0);
}

int main(void)
{
    RUN(an_operation_ends_with_its_last_channel);
    RUN(waits_are_of_who_is_waited_for);
    RUN(a_parent_of_another_process_is_not_looked_at);
    RUN(handles_that_are_none_are_counted);
    RUN(a_handle_of_an_earlier_life_is_not_the_later_one);
    RUN(a_stop_may_come_after_all_that_it_stops);
    RUN(full_pools_drop_and_count);
    RUN(what_a_communicator_leaves_is_aborted_and_its_place_is_taken_again);
    RUN(version_1_has_no_kernels_and_ends_in_time);
    RUN(version_3_ends_when_its_channels_are_quiet);
    RUN(one_whose_channels_are_lost_ends_behind_a_later_one);
    RUN(what_is_under_way_is_told_again_at_growing_times);
    RUN(switched_off_nothing_is_asked_for);
    RUN(too_many_communicators_have_no_context);
    return test_end();
}
