/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/report/stragglers/straggler_judge_links_test.c - who is behind a bad cable: small
 * jobs whose ranks come in time, and communicate for long.
 */
#include "straggler_judge.h"

#include <math.h>

#include "tests/fail_alloc.h"
#include "tests/test.h"

#define RANKS 4u
#define STEPS 150u

/* Each step: 60 ms, and of those 40 of communication. */
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
            job->steps[r][s] = (struct judge_step){
                .whole = 0.06f, .parts = {[PART_FORWARD] = 0.02f, [PART_COMM] = 0.04f}};
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

static struct judge_report judged(const struct job *job)
{
    struct judge_report ret;
    judge_ranks(&job->j, &ret);
    return ret;
}

struct linked { /* each rank on a machine of its own */
    struct judge_link links[RANKS * (RANKS - 1) / 2];
    uint32_t nodes[RANKS];
};

static struct judge_link *link_of(struct linked *l, uint32_t one, uint32_t two)
{
    struct judge_link *at = l->links;
    uint32_t a = one < two ? one : two, b = one < two ? two : one;
    while (at->a != a || at->b != b)
        at++;
    return at;
}

/* 0.1 ms, of which load makes 0.5 and more. */
static void link_job(struct job *job, struct linked *l)
{
    uint32_t n = 0;
    usual_job(job);
    for (uint32_t a = 0; a < RANKS; a++) {
        l->nodes[a] = a;
        for (uint32_t b = a + 1; b < RANKS; b++, n++)
            l->links[n] = (struct judge_link){.a = a,
                                              .b = b,
                                              .now_sec = 0.0005 * (1 + n),
                                              .shortest_sec = 0.0001,
                                              .sent = 5000,
                                              .again = n % 3};
    }
    job->j.links = l->links;
    job->j.nodes = l->nodes;
    job->j.n_links = n;
    job->j.n_nodes = RANKS;
}

static void slow_link(struct linked *l, uint32_t a, uint32_t b, double sec)
{
    link_of(l, a, b)->now_sec = sec + 0.002;
    link_of(l, a, b)->shortest_sec = sec;
}

TEST(who_is_behind_a_slow_cable_is_named)
{
    static struct job job;
    struct linked l;
    link_job(&job, &l);
    CHECK_INT(judged(&job).outcome, JUDGE_SILENT);
    for (uint32_t r = 0; r < RANKS; r++)
        if (r != 2)
            slow_link(&l, r, 2, 0.02 + 0.001 * r);
    struct judge_report r = judged(&job);
    CHECK_INT(r.n_found, 1);
    CHECK_INT(r.found[0].kind, LATE_LINK);
    CHECK_INT(r.found[0].rank, 2);
    CHECK_INT(r.found[0].peer, 3); /* the slowest of its links */
    CHECK(r.found[0].slow && r.found[0].sure && !r.found[0].lossy && !r.found[0].between);
    CHECK_INT(lround(1e3 * r.found[0].link.shortest_sec), 23);
    CHECK_INT(lround(1e4 * r.found[0].others.shortest_sec), 1);
    for (uint32_t s = 0; s < STEPS - JUDGE_STEPS_MIN; s++) /* until lately nobody waited so long */
        for (uint32_t i = 0; i < RANKS; i++)
            job.steps[i][s].parts[PART_COMM] = 0.001f;
    r = judged(&job);
    CHECK_INT(r.n_found, 1);
    CHECK_INT(lround(1e3 * r.found[0].late_sec), 40);
    for (uint32_t s = 0; s < STEPS; s++) /* no step has waited so long */
        for (uint32_t i = 0; i < RANKS; i++)
            job.steps[i][s].parts[PART_COMM] = 0.005f;
    CHECK_INT(judged(&job).outcome, JUDGE_SILENT);
}

/* A link that became slow a minute ago: the kernel's shortest round trip is of five minutes. */
TEST(the_newest_round_trips_tell_what_has_just_begun)
{
    static struct job job;
    struct linked l;
    link_job(&job, &l);
    for (uint32_t r = 0; r < RANKS; r++)
        if (r != 1)
            link_of(&l, r, 1)->now_sec = 0.022;
    struct judge_report r = judged(&job);
    CHECK_INT(r.n_found, 1);
    CHECK_INT(r.found[0].rank, 1);
    CHECK(r.found[0].slow && !r.found[0].sure);
    link_of(&l, 0, 1)->now_sec = 0.002; /* swollen by load, and not on all of its links */
    link_of(&l, 0, 3)->now_sec = 0.022;
    CHECK_INT(judged(&job).outcome, JUDGE_SILENT);
    link_job(&job, &l);
    for (uint32_t r2 = 0; r2 < RANKS; r2++) { /* it gets no processor, so it answers late */
        if (r2 != 1)
            link_of(&l, r2, 1)->now_sec = 0.022;
        job.signs[r2][SIGN_RUNQ_WAIT] = r2 == 1 ? 0.9 : 0.05;
        job.signs[r2][SIGN_NICE] = r2 == 1 ? 15 : 0;
    }
    r = judged(&job);
    CHECK_INT(r.n_found, 1);
    CHECK_INT(r.found[0].kind, LATE_STARVED);
}

/* Data waiting before a narrow cable makes round trips longer, and not all of them by as much. */
TEST(behind_a_narrow_cable_links_are_slow_as_they_are_used)
{
    static struct job job;
    struct linked l;
    link_job(&job, &l);
    for (uint32_t a = 0; a < RANKS; a++)
        for (uint32_t b = a + 1; b < RANKS; b++)
            link_of(&l, a, b)->now_sec = b == 3 ? 0.006 : 0.0005;
    link_of(&l, 1, 3)->now_sec = 0.03;
    struct judge_report r = judged(&job);
    CHECK_INT(r.n_found, 1);
    CHECK_INT(r.found[0].rank, 3);
    CHECK(r.found[0].slow && !r.found[0].between);
}

TEST(one_slow_link_is_told_once_with_both_its_ends)
{
    static struct job job;
    struct linked l;
    link_job(&job, &l);
    slow_link(&l, 1, 3, 0.02);
    struct judge_report r = judged(&job);
    CHECK_INT(r.n_found, 1);
    CHECK_INT(r.found[0].rank, 1);
    CHECK_INT(r.found[0].peer, 3);
    CHECK(r.found[0].slow && r.found[0].between);
    slow_link(&l, 0, 2, 0.02); /* two: that is how these machines stand */
    CHECK_INT(judged(&job).outcome, JUDGE_SILENT);
    link_job(&job, &l); /* a ring: two of the links carry nothing */
    struct judge_link ring[] = {*link_of(&l, 0, 1), *link_of(&l, 1, 2), *link_of(&l, 2, 3),
                                *link_of(&l, 0, 3)};
    job.j.links = ring;
    job.j.n_links = 4;
    ring[1].shortest_sec = ring[1].now_sec = 0.02;
    r = judged(&job);
    CHECK_INT(r.n_found, 1);
    CHECK_INT(r.found[0].rank, 1);
    CHECK_INT(r.found[0].peer, 2);
    CHECK(r.found[0].between);
    ring[2].shortest_sec = ring[2].now_sec = 0.02;
    r = judged(&job);
    CHECK_INT(r.n_found, 1);
    CHECK_INT(r.found[0].rank, 2);
    CHECK(!r.found[0].between);
}

TEST(whoever_is_far_away_together_is_elsewhere)
{
    static struct job job;
    struct linked l;
    link_job(&job, &l);
    for (uint32_t a = 0; a < 2; a++)
        for (uint32_t b = 2; b < RANKS; b++)
            slow_link(&l, a, b, 0.03);
    CHECK_INT(judged(&job).outcome, JUDGE_SILENT);
    for (uint32_t a = 0; a < RANKS; a++) /* all are far from all */
        for (uint32_t b = a + 1; b < RANKS; b++)
            slow_link(&l, a, b, 0.03);
    CHECK_INT(judged(&job).outcome, JUDGE_SILENT);
    job.j.n_ranks = job.j.n_nodes = 2; /* and of two nobody can say whose cable it is */
    job.j.n_links = 1;
    CHECK_INT(judged(&job).outcome, JUDGE_SILENT);
}

TEST(all_ranks_of_a_machine_are_behind_its_cable)
{
    static struct job job;
    struct linked l;
    link_job(&job, &l);
    l.nodes[3] = 2; /* with rank 2 */
    job.j.n_nodes = 3;
    struct judge_link three[] = {*link_of(&l, 0, 1), *link_of(&l, 0, 2), *link_of(&l, 1, 2)};
    job.j.links = three;
    job.j.n_links = 3;
    CHECK_INT(judged(&job).outcome, JUDGE_SILENT);
    three[1].shortest_sec = three[1].now_sec = three[2].shortest_sec = three[2].now_sec = 0.02;
    struct judge_report r = judged(&job);
    CHECK_INT(r.n_found, 2);
    CHECK_INT(r.found[0].rank + r.found[1].rank, 5);
}

/* Data for the one behind the cable are lost, too: its neighbour sends again as often. */
TEST(a_lossy_cable_is_that_of_both_its_ends)
{
    static struct job job;
    struct linked l;
    link_job(&job, &l);
    for (uint32_t r = 0; r < RANKS; r++) {
        job.signs[r][SIGN_RETRANS] = r == 1 || r == 2 ? 0.02 : 0;
        if (r != 2)
            link_of(&l, r, 2)->again = 100;
    }
    struct judge_report r = judged(&job);
    CHECK_INT(r.n_found, 1);
    CHECK_INT(r.found[0].rank, 2);
    CHECK(r.found[0].lossy && !r.found[0].slow);
    job.j.links = NULL; /* by the machines' counters alone it may be either */
    CHECK_INT(judged(&job).n_found, 2);
}

TEST(without_memory_no_link_is_blamed)
{
    static struct job job;
    struct linked l;
    link_job(&job, &l);
    slow_link(&l, 1, 3, 0.02);
    for (unsigned n = 1; fail_alloc_step(n); n++) {
        struct judge_report r = judged(&job);
        CHECK(r.outcome == JUDGE_NO_MEMORY || r.outcome == JUDGE_SILENT ||
              (r.outcome == JUDGE_NAMED && r.found[0].rank == 1));
    }
}

int main(void)
{
    RUN(who_is_behind_a_slow_cable_is_named);
    RUN(the_newest_round_trips_tell_what_has_just_begun);
    RUN(behind_a_narrow_cable_links_are_slow_as_they_are_used);
    RUN(one_slow_link_is_told_once_with_both_its_ends);
    RUN(whoever_is_far_away_together_is_elsewhere);
    RUN(all_ranks_of_a_machine_are_behind_its_cable);
    RUN(a_lossy_cable_is_that_of_both_its_ends);
    RUN(without_memory_no_link_is_blamed);
    return test_end();
}
