/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/report/stragglers/straggler_judge_test.c - who is late: small jobs written down by
 * hand.
 *
 * Jobs with noise and waits are played in straggler_played_test.c, bad links are in
 * straggler_judge_links_test.c.
 */
#include "straggler_judge.h"

#include <math.h>
#include <stdlib.h>

#include "tests/fail_alloc.h"
#include "tests/test.h"

#define RANKS 4u
#define STEPS 200u

/* Each step: 5 ms of data, 30 of forward, 60 of backward and waiting, 5 of the optimizer. */
struct job {
    struct judge_step steps[RANKS][STEPS];
    int64_t numbers[STEPS];
    double signs[RANKS][N_SIGNS];
    struct judge_job j;
};

static void usual_job(struct job *job)
{
    for (uint32_t r = 0; r < RANKS; r++) {
        for (uint32_t s = 0; s < STEPS; s++)
            job->steps[r][s] = (struct judge_step){.whole = 0.1f,
                                                   .parts = {[PART_DATA] = 0.005f,
                                                             [PART_FORWARD] = 0.03f,
                                                             [PART_BACKWARD] = 0.06f,
                                                             [PART_OPTIMIZER] = 0.005f}};
        for (int i = 0; i < N_SIGNS; i++)
            job->signs[r][i] = (double)NAN;
    }
    for (uint32_t s = 0; s < STEPS; s++)
        job->numbers[s] = 100 + s;
    job->j = (struct judge_job){.n_ranks = RANKS,
                                .n_steps = STEPS,
                                .steps = &job->steps[0][0],
                                .numbers = job->numbers,
                                .signs = &job->signs[0][0]};
}

/* A rank is late by that in a part: the others wait for it in their backward. */
static void make_late(struct job *job, uint32_t rank, uint32_t step, enum judge_part part,
                      float sec)
{
    for (uint32_t r = 0; r < RANKS; r++) {
        job->steps[r][step].whole += sec;
        job->steps[r][step].parts[r == rank ? part : PART_BACKWARD] += sec;
    }
}

static struct judge_report judged(const struct job *job)
{
    struct judge_report ret;
    judge_ranks(&job->j, &ret);
    return ret;
}

TEST(a_job_whose_ranks_are_alike_is_silent)
{
    static struct job job;
    usual_job(&job);
    struct judge_report r = judged(&job);
    CHECK_INT(r.outcome, JUDGE_SILENT);
    CHECK_INT(r.n_steps, STEPS);
    CHECK_INT(r.n_passed, STEPS);
    CHECK_INT(lround(1e3 * r.step_sec), 100);
}

TEST(the_cause_is_named_and_not_who_waits)
{
    static struct job job;
    usual_job(&job);
    for (uint32_t s = 0; s < STEPS; s++)
        make_late(&job, 2, s, PART_DATA, 0.02f);
    struct judge_report r = judged(&job);
    CHECK_INT(r.outcome, JUDGE_NAMED);
    CHECK_INT(r.n_found, 1);
    CHECK_INT(r.found[0].rank, 2);
    CHECK_INT(r.found[0].kind, LATE_ALWAYS);
    CHECK_INT(r.found[0].part, PART_DATA);
    CHECK_INT(r.found[0].n_late, STEPS);
    CHECK_INT(lround(1e3 * r.found[0].late_sec), 20);
    CHECK_INT(lround(r.found[0].lost_sec), 4);
    CHECK(r.found[0].from_start && r.found[0].to_end);
}

TEST(of_two_ranks_the_one_that_falls_behind_first)
{
    static struct job job;
    usual_job(&job);
    for (uint32_t s = 0; s < STEPS; s++)
        make_late(&job, 1, s, PART_FORWARD, 0.02f);
    job.j.n_ranks = 2;
    struct judge_report r = judged(&job);
    CHECK_INT(r.n_found, 1);
    CHECK_INT(r.found[0].rank, 1);
    CHECK_INT(r.found[0].part, PART_FORWARD);
}

TEST(since_when_and_until_when)
{
    static struct job job;
    usual_job(&job);
    for (uint32_t s = 80; s < STEPS; s++)
        make_late(&job, 3, s, PART_OTHER, 0.02f);
    struct judge_report r = judged(&job);
    CHECK_INT(r.n_found, 1);
    CHECK_INT(r.found[0].first, 80);
    CHECK(!r.found[0].from_start && r.found[0].to_end);
    usual_job(&job);
    for (uint32_t s = 80; s < 140; s++)
        make_late(&job, 3, s, PART_OTHER, 0.02f);
    r = judged(&job);
    CHECK_INT(r.n_found, 1);
    CHECK_INT(r.found[0].first, 80);
    CHECK_INT(r.found[0].last, 139);
    CHECK(!r.found[0].to_end);
}

/* A step ends with the optimizer, behind the wait: the others wait for it in their next step. */
TEST(a_slow_optimizer_is_of_the_step_before)
{
    static struct job job;
    usual_job(&job);
    for (uint32_t s = 10; s < STEPS; s += 30) {
        job.steps[1][s].parts[PART_OPTIMIZER] += 0.2f;
        job.steps[1][s].whole += 0.2f;
        for (uint32_t r = 0; r < RANKS; r++)
            if (r != 1 && s + 1 < STEPS)
                job.steps[r][s + 1].parts[PART_BACKWARD] += 0.2f;
    }
    struct judge_report r = judged(&job);
    CHECK_INT(r.n_found, 1);
    CHECK_INT(r.found[0].rank, 1);
    CHECK_INT(r.found[0].kind, LATE_SOMETIMES);
    CHECK_INT(r.found[0].part, PART_OPTIMIZER);
    CHECK_INT(r.found[0].n_late, 7);
    CHECK_INT(r.found[0].every, 30);
}

TEST(once_is_told_when_it_is_long)
{
    static struct job job;
    usual_job(&job);
    make_late(&job, 0, 77, PART_FORWARD, 0.3f);
    struct judge_report r = judged(&job);
    CHECK_INT(r.n_found, 1);
    CHECK_INT(r.found[0].rank, 0);
    CHECK_INT(r.found[0].kind, LATE_SOMETIMES);
    CHECK_INT(r.found[0].n_late, 1);
    CHECK_INT(r.found[0].first, 77);
    usual_job(&job);
    make_late(&job, 0, 77, PART_FORWARD, 0.05f); /* half a step, once: that happens */
    CHECK_INT(judged(&job).outcome, JUDGE_SILENT);
}

TEST(what_happens_to_many_ranks_is_nobodys)
{
    static struct job job;
    usual_job(&job);
    for (uint32_t s = 5; s < STEPS; s += 10)
        make_late(&job, s / 10 % RANKS, s, PART_FORWARD, 0.1f);
    CHECK_INT(judged(&job).outcome, JUDGE_SILENT);
    usual_job(&job);
    for (uint32_t s = 0; s < STEPS; s += 20)
        for (uint32_t r = 0; r < RANKS; r++) { /* a folder that all read stands still */
            job.steps[r][s].parts[PART_DATA] += 1;
            job.steps[r][s].whole += 1;
        }
    CHECK_INT(judged(&job).outcome, JUDGE_SILENT);
}

/* loss.item() of a loop on a GPU: what is waited for there is no part of anybody's own. */
TEST(ranks_may_wait_in_other)
{
    static struct job job;
    usual_job(&job);
    for (uint32_t s = 0; s < STEPS; s++)
        for (uint32_t r = 0; r < RANKS; r++) {
            job.steps[r][s].parts[r == 1 ? PART_DATA : PART_OTHER] += 0.03f;
            job.steps[r][s].whole += 0.03f;
        }
    struct judge_report r = judged(&job);
    CHECK(r.other_waits);
    CHECK_INT(r.n_found, 1);
    CHECK_INT(r.found[0].rank, 1);
    CHECK_INT(r.found[0].part, PART_DATA);
}

TEST(backwards_by_their_own_time)
{
    static struct job job;
    static float own[RANKS * 20], waits[RANKS * 20];
    usual_job(&job); /* in which all backwards are alike: they wait in there */
    for (uint32_t i = 0; i < RANKS * 20; i++) {
        own[i] = i / 20 == 2 ? 0.05f : 0.03f;
        waits[i] = 0.06f - own[i];
    }
    job.j.backwards = own;
    job.j.waits = waits;
    job.j.n_backwards = 19;
    CHECK_INT(judged(&job).outcome, JUDGE_SILENT); /* they say too little */
    job.j.n_backwards = 20;
    struct judge_report r = judged(&job);
    CHECK_INT(r.n_found, 1);
    CHECK_INT(r.found[0].rank, 2);
    CHECK_INT(r.found[0].part, PART_BACKWARD);
    CHECK_INT(r.found[0].n_of, 20);
    CHECK(r.found[0].sampled);
    CHECK_INT(lround(1e3 * r.last_comm_sec), 10);
}

/* Jitter of 20 ms in backwards of 30: of few of them one rank's are longer than the others' by
 * chance. */
TEST(a_healthy_job_is_not_accused_by_its_backwards)
{
    static struct job job;
    static float own[RANKS * 40], waits[RANKS * 40];
    uint32_t state = 1, n_accused = 0;
    usual_job(&job);
    for (uint32_t i = 0; i < RANKS * 40; i++)
        waits[i] = 0.03f;
    job.j.backwards = own;
    job.j.waits = waits;
    for (uint32_t turn = 0; turn < 1000; turn++) {
        job.j.n_backwards = turn % 2 ? 4 : 20;
        for (uint32_t i = 0; i < RANKS * job.j.n_backwards; i++) {
            state = state * 1664525 + 1013904223;
            own[i] = 0.03f - 0.02f * logf(((float)(state >> 8) + 1) / 16777217);
        }
        n_accused += judged(&job).n_found > 0;
    }
    CHECK_INT(n_accused, 0);
}

TEST(too_little_lost_time_is_no_lateness)
{
    static struct job job;
    usual_job(&job);
    for (uint32_t r = 0; r < RANKS; r++) /* steps of half a millisecond */
        for (uint32_t s = 0; s < STEPS; s++) {
            job.steps[r][s].whole /= 200;
            for (int p = 0; p < N_PARTS; p++)
                job.steps[r][s].parts[p] /= 200;
        }
    for (uint32_t s = 0; s < STEPS; s++)
        make_late(&job, 2, s, PART_DATA, 0.0003f); /* 0.06 s in all */
    CHECK_INT(judged(&job).outcome, JUDGE_SILENT);
    for (uint32_t s = 0; s < STEPS; s++)
        make_late(&job, 2, s, PART_DATA, 0.0003f);
    CHECK_INT(judged(&job).n_found, 1);
}

/* Twice 0.5 s, while another rank has stalled for 0.3 s: by chance, but no evaluation is. */
TEST(an_evaluation_is_named_as_one)
{
    static struct job job;
    usual_job(&job);
    make_late(&job, 3, 40, PART_FORWARD, 0.3f);
    for (uint32_t s = 60; s < STEPS; s += 100)
        make_late(&job, 0, s, PART_OTHER, 0.5f);
    CHECK_INT(judged(&job).outcome, JUDGE_SILENT);
    for (uint32_t s = 60; s < STEPS; s += 100) {
        job.steps[0][s].parts[PART_OTHER] -= 0.5f;
        job.steps[0][s].parts[PART_EVALUATION] += 0.5f;
    }
    struct judge_report r = judged(&job);
    CHECK_INT(r.n_found, 2); /* now that stall is the longest of the others */
    CHECK_INT(r.found[0].rank, 0);
    CHECK_INT(r.found[0].kind, LATE_SOMETIMES);
    CHECK_INT(r.found[0].part, PART_EVALUATION);
    CHECK_INT(r.found[0].n_late, 2);
    CHECK_INT(r.found[0].n_of, STEPS);
    CHECK_INT(r.found[0].first, 60);
}

TEST(a_link_needs_a_sign)
{
    static struct job job;
    usual_job(&job);
    for (uint32_t s = 0; s < STEPS; s++)
        for (uint32_t r = 0; r < RANKS; r++)
            job.steps[r][s].parts[PART_COMM] = 0.04f;
    CHECK_INT(judged(&job).outcome, JUDGE_SILENT);
    for (uint32_t r = 0; r < RANKS; r++)
        job.signs[r][SIGN_NETWORK_BAD] = r == 3 ? 25 : 0;
    struct judge_report r = judged(&job);
    CHECK_INT(r.n_found, 1);
    CHECK_INT(r.found[0].rank, 3);
    CHECK_INT(r.found[0].kind, LATE_LINK);
    CHECK_INT(r.found[0].signs, 1 << SIGN_NETWORK_BAD);
}

TEST(a_stage_with_more_to_do_is_not_accused)
{
    static struct job job;
    usual_job(&job);
    for (uint32_t s = 0; s < STEPS; s++)
        make_late(&job, 1, s, PART_FORWARD, 0.02f);
    CHECK_INT(judged(&job).n_found, 1);
    job.j.stages = true;
    struct judge_report r = judged(&job);
    CHECK_INT(r.outcome, JUDGE_SILENT);
    CHECK_INT(r.n_stages, 1);
    CHECK_INT(r.stage, 1);
    CHECK(r.stage_sec > 0.019 && r.stage_sec < 0.021);
    for (uint32_t s = STEPS / 2; s < STEPS; s++) /* another one becomes late */
        make_late(&job, 3, s, PART_DATA, 0.04f);
    r = judged(&job);
    CHECK_INT(r.n_found, 1);
    CHECK_INT(r.found[0].rank, 3);
    CHECK_INT(r.found[0].part, PART_DATA);
}

/* All of them wait for processors: 8 ranks on 2, as was seen. */
TEST(a_rank_without_a_processor_needs_a_cause)
{
    static const double waits[RANKS] = {0.37, 0.36, 0.77, 0.38};
    static struct job job;
    usual_job(&job);
    for (uint32_t r = 0; r < RANKS; r++) {
        job.signs[r][SIGN_RUNQ_WAIT] = waits[r];
        job.signs[r][SIGN_NICE] = 0;
        job.signs[r][SIGN_FEW_CPUS] = 2;
        for (uint32_t s = 0; s < STEPS; s++) {
            job.steps[r][s].parts[PART_BACKWARD] -= 0.03f;
            job.steps[r][s].parts[PART_COMM] = 0.03f;
        }
    }
    CHECK_INT(judge_signs(&job.signs[0][0], RANKS, 2), 1 << SIGN_RUNQ_WAIT);
    CHECK_INT(judged(&job).outcome, JUDGE_SILENT);
    job.signs[2][SIGN_NICE] = 15;
    struct judge_report r = judged(&job);
    CHECK_INT(r.n_found, 1);
    CHECK_INT(r.found[0].rank, 2);
    CHECK_INT(r.found[0].kind, LATE_STARVED);
    CHECK_INT(r.found[0].signs, 1 << SIGN_RUNQ_WAIT | 1 << SIGN_NICE);
    job.signs[2][SIGN_NICE] = 0;
    job.signs[2][SIGN_FEW_CPUS] = 1;
    CHECK_INT(judged(&job).found[0].rank, 2);
    job.signs[2][SIGN_FEW_CPUS] = 2;
    job.signs[2][SIGN_RUNQ_WAIT] = 1.2;
    CHECK_INT(judged(&job).n_found, 1);
    job.signs[2][SIGN_RUNQ_WAIT] = 0.37;
    CHECK_INT(judged(&job).outcome, JUDGE_SILENT);
    static const double crowded[RANKS] = {0.77, 0.65, 0.97, 0.64}; /* of 8 ranks on 2, as seen */
    for (uint32_t i = 0; i < RANKS; i++)
        job.signs[i][SIGN_RUNQ_WAIT] = crowded[i < 4 ? i : 3];
    CHECK_INT(judged(&job).outcome, JUDGE_SILENT);
    job.signs[2][SIGN_NICE] = 15;
    r = judged(&job);
    CHECK_INT(r.n_found, 1);
    CHECK_INT(r.found[0].rank, 2);
    CHECK_INT(r.found[0].signs, 1 << SIGN_RUNQ_WAIT | 1 << SIGN_NICE);
    job.signs[2][SIGN_RUNQ_WAIT] = 0.8; /* no more than another one: by chance */
    CHECK_INT(judged(&job).outcome, JUDGE_SILENT);
    job.signs[2][SIGN_NICE] = 0;
    for (uint32_t i = 0; i < RANKS; i++) /* a machine with room: a little is nothing */
        job.signs[i][SIGN_RUNQ_WAIT] = i == 2 ? 0.2 : 0.01;
    CHECK_INT(judged(&job).outcome, JUDGE_SILENT);
    for (uint32_t i = 0; i < RANKS; i++)
        job.signs[i][SIGN_RUNQ_WAIT] = 0.37;
    job.signs[1][SIGN_CPU_THROTTLED] = 0.03;
    CHECK_INT(judged(&job).outcome, JUDGE_SILENT); /* that of the others is not known */
    for (uint32_t i = 0; i < RANKS; i++)
        job.signs[i][SIGN_CPU_THROTTLED] = i == 1 ? 0.03 : 0;
    CHECK_INT(judged(&job).n_found, 1);
    CHECK_INT(judged(&job).found[0].rank, 1);
}

TEST(signs_that_all_have_are_none)
{
    static struct job job;
    usual_job(&job);
    for (uint32_t r = 0; r < RANKS; r++) {
        job.signs[r][SIGN_CPU_TAKEN] = 3000;
        job.signs[r][SIGN_GC] = r == 1 ? 0.2 : 0;
    }
    CHECK_INT(judge_signs(&job.signs[0][0], RANKS, 1), 1 << SIGN_GC);
    CHECK_INT(judge_signs(&job.signs[0][0], RANKS, 0), 0);
    CHECK_INT(judge_signs(NULL, RANKS, 0), 0);
}

TEST(whoever_gets_no_processor_is_not_stopped)
{
    static struct job job;
    usual_job(&job);
    for (uint32_t r = 0; r < RANKS; r++) {
        job.signs[r][SIGN_STOPPED] = r == 1 ? 0.3 : 0;
        job.signs[r][SIGN_CPU_THROTTLED] = 0;
    }
    CHECK_INT(judge_signs(&job.signs[0][0], RANKS, 1), 1 << SIGN_STOPPED);
    job.signs[1][SIGN_CPU_THROTTLED] = 0.3;
    CHECK_INT(judge_signs(&job.signs[0][0], RANKS, 1), 1 << SIGN_CPU_THROTTLED);
}

/* As seen: ranks on one machine (load 48), each of which looks at its counters when it can. */
TEST(ranks_of_one_machine_are_not_told_apart_by_its_signs)
{
    static const double seen[RANKS] = {0.045, (double)NAN, 0.088, 0.044};
    static const uint32_t all[RANKS] = {0, 1, 2, 3};
    static struct job job;
    usual_job(&job);
    for (uint32_t r = 0; r < RANKS; r++) {
        job.signs[r][SIGN_RETRANS] = seen[r];
        job.signs[r][SIGN_GC] = r == 2 ? 0.2 : 0;
    }
    judge_level_signs(&job.signs[0][0], all, 1);
    CHECK_INT(judge_signs(&job.signs[0][0], RANKS, 2), 1 << SIGN_RETRANS | 1 << SIGN_GC);
    judge_level_signs(&job.signs[0][0], all, RANKS);
    CHECK_INT(judge_signs(&job.signs[0][0], RANKS, 2), 1 << SIGN_GC);
    for (uint32_t r = 0; r < RANKS; r++)
        CHECK(fabs(job.signs[r][SIGN_RETRANS] - 0.045) < 1e-6);
}

TEST(too_little_is_said)
{
    static struct job job;
    usual_job(&job);
    job.j.n_ranks = 1;
    CHECK_INT(judged(&job).outcome, JUDGE_ONE_RANK);
    job.j.n_ranks = 0;
    CHECK_INT(judged(&job).outcome, JUDGE_ONE_RANK);
    usual_job(&job);
    for (uint32_t s = JUDGE_STEPS_MIN - 1; s < STEPS; s++)
        for (uint32_t r = 1; r < RANKS; r++)
            job.steps[r][s].whole = NAN; /* one rank alone made these */
    struct judge_report r = judged(&job);
    CHECK_INT(r.outcome, JUDGE_FEW_STEPS);
    CHECK_INT(r.n_steps, JUDGE_STEPS_MIN - 1);
    job.j.n_steps = 0;
    CHECK_INT(judged(&job).outcome, JUDGE_FEW_STEPS);
}

TEST(without_memory_nobody_is_named)
{
    static struct job job;
    usual_job(&job);
    for (uint32_t s = 0; s < STEPS; s++)
        make_late(&job, 2, s, PART_DATA, 0.02f);
    for (unsigned n = 1; fail_alloc_step(n); n++) {
        struct judge_report r = judged(&job);
        CHECK(r.outcome == JUDGE_NO_MEMORY || (r.outcome == JUDGE_NAMED && r.found[0].rank == 2));
    }
}

/* ---- lining up ---- */

static void make_rows(struct judge_row *rows, uint32_t n, int64_t first, int64_t number,
                      int64_t clock_ns)
{
    int64_t end_ns = clock_ns + first * 100000000;
    for (uint32_t i = 0; i < n; i++) {
        int64_t step = first + i;
        double sec = 0.1 + 0.03 * (double)(step * 7919 % 13) / 13; /* as all ranks have it */
        end_ns += (int64_t)(1e9 * sec);
        rows[i] = (struct judge_row){.number = number + i,
                                     .end_ns = end_ns,
                                     .global = INT64_MIN,
                                     .step = {.whole = (float)sec}};
    }
}

TEST(steps_are_lined_up)
{
    struct judge_row a[STEPS], b[STEPS];
    int64_t shift = -1;
    make_rows(a, STEPS, 0, 0, 0);
    make_rows(b, STEPS, 0, 0, 0);
    CHECK(judge_line_up(a, STEPS, b, STEPS, &shift));
    CHECK_INT(shift, 0);
    for (uint32_t i = 0; i < 100; i++) /* the plugin came 100 steps later */
        b[i] = b[i + 100];
    for (uint32_t i = 0; i < 100; i++)
        b[i].number -= 100;
    CHECK(judge_line_up(a, STEPS, b, 100, &shift));
    CHECK_INT(shift, 100);
    for (uint32_t i = 0; i < 100; i++) /* and its clock is two steps off */
        b[i].end_ns += 230000000;
    CHECK(judge_line_up(a, STEPS, b, 100, &shift));
    CHECK_INT(shift, 100);
    make_rows(b, STEPS, 0, 0,
              INT64_C(3600000000000)); /* an hour off: the numbers are all there is */
    CHECK(judge_line_up(a, STEPS, b, STEPS, &shift));
    CHECK_INT(shift, 0);
}

TEST(several_steps_of_a_rank_are_one_of_the_others)
{
    struct judge_row rows[STEPS];
    make_rows(rows, STEPS, 0, 7, 0);
    for (uint32_t i = 0; i < STEPS; i++) /* 2, 12, 22 ... wait for the others */
        rows[i].step = (struct judge_step){
            .whole = i % 10 == 2 ? 0.1f : 0.01f,
            .parts = {[PART_OPTIMIZER] = 0.01f, [PART_COMM] = i % 10 == 2 ? 0.09f : 0}};
    uint32_t n = judge_join_rows(rows, STEPS, 10);
    CHECK_INT(n, STEPS / 10 - 1);
    for (uint32_t i = 0; i < n; i++) {
        CHECK_INT(rows[i].number, i);
        CHECK_INT(lround(1e3 * (double)rows[i].step.whole), 190);
        CHECK_INT(lround(1e3 * (double)rows[i].step.parts[PART_OPTIMIZER]), 100);
        CHECK_INT(lround(1e3 * (double)rows[i].step.parts[PART_COMM]), 90);
    }
}

TEST(the_programs_own_numbers_count_most)
{
    struct judge_row a[STEPS], b[STEPS];
    int64_t shift = -1;
    make_rows(a, STEPS, 0, 0, 0);
    make_rows(b, STEPS, 0, 7, INT64_C(3600000000000));
    for (uint32_t i = 0; i < STEPS; i++)
        a[i].global = b[i].global = 5000 + i;
    CHECK(judge_line_up(a, STEPS, b, STEPS, &shift));
    CHECK_INT(shift, -7);
}

TEST(steps_of_another_pace_do_not_line_up)
{
    struct judge_row a[STEPS], b[STEPS];
    int64_t shift;
    make_rows(a, STEPS, 0, 0, 0);
    make_rows(b, STEPS, 0, 0, 0);
    for (uint32_t i = 0; i < STEPS; i++) {
        b[i].step.whole *= 2;
        b[i].end_ns *= 2;
    }
    CHECK(!judge_line_up(a, STEPS, b, STEPS, &shift));
    CHECK(!judge_line_up(a, STEPS, b, 0, &shift));
    CHECK(!judge_line_up(a, 0, b, STEPS, &shift));
}

int main(void)
{
    RUN(a_job_whose_ranks_are_alike_is_silent);
    RUN(the_cause_is_named_and_not_who_waits);
    RUN(of_two_ranks_the_one_that_falls_behind_first);
    RUN(since_when_and_until_when);
    RUN(a_slow_optimizer_is_of_the_step_before);
    RUN(once_is_told_when_it_is_long);
    RUN(what_happens_to_many_ranks_is_nobodys);
    RUN(ranks_may_wait_in_other);
    RUN(backwards_by_their_own_time);
    RUN(a_healthy_job_is_not_accused_by_its_backwards);
    RUN(too_little_lost_time_is_no_lateness);
    RUN(an_evaluation_is_named_as_one);
    RUN(a_link_needs_a_sign);
    RUN(a_stage_with_more_to_do_is_not_accused);
    RUN(a_rank_without_a_processor_needs_a_cause);
    RUN(signs_that_all_have_are_none);
    RUN(whoever_gets_no_processor_is_not_stopped);
    RUN(ranks_of_one_machine_are_not_told_apart_by_its_signs);
    RUN(too_little_is_said);
    RUN(without_memory_nobody_is_named);
    RUN(steps_are_lined_up);
    RUN(several_steps_of_a_rank_are_one_of_the_others);
    RUN(the_programs_own_numbers_count_most);
    RUN(steps_of_another_pace_do_not_line_up);
    return test_end();
}
