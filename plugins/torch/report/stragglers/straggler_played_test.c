/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/report/stragglers/straggler_played_test.c - jobs of 8 and 1,024 ranks that are
 * played: 50 with a fault, of which 45 at least must have their rank named first, and 50 healthy
 * ones, about which nothing may be said.
 *
 * A rank is played by its clock: it goes through the parts of its step, waits for the others where
 * its kind of loop does, and goes on when the last one has come.  So waits are what they are in a
 * job, the consequence of somebody else's time.
 */
#include <math.h>
#include <stdlib.h>

#include "straggler_judge.h"
#include "tests/test.h"

enum loop {
    LOOP_PYTHON, /* calls all_reduce itself, behind the backward */
    LOOP_DDP,    /* the wait is in the backward */
    LOOP_GPU,    /* the wait is where the loss is read: in other */
    N_LOOPS
};
enum noise { NOISE_NORMAL, NOISE_EXPONENTIAL, NOISE_HEAVY, N_NOISES };
enum fault {
    FAULT_LOADER,
    FAULT_HOST,       /* all that is computed takes longer */
    FAULT_LINK,       /* communication is slow, and packets are lost there */
    FAULT_GC,         /* a stall every some steps, in any part */
    FAULT_CHECKPOINT, /* at even distances */
    FAULT_SLEEP,
    FAULT_OPTIMIZER,
    FAULT_JITTER,   /* now so, now so */
    FAULT_HOURLY,   /* once in all of it */
    FAULT_BEGINS,   /* a slow loader from the middle on */
    FAULT_BACKWARD, /* nothing else: where ranks wait in it, only samples show it */
    N_FAULTS,
    FAULT_NONE
};

struct played {
    uint32_t n_ranks, n_steps;
    enum loop loop;
    enum noise noise;
    enum fault fault;
    uint32_t who, begins, stall;
    double seconds; /* the fault's */
    uint64_t state;
    struct judge_step *steps;
    int64_t *numbers;
    double *signs;
    float *backwards, *waits; /* [n_ranks][n_backwards], of one step in SAMPLED */
    uint32_t n_backwards;
};

#define SAMPLED 12u

static double uniform(struct played *p) /* splitmix64 */
{
    uint64_t z = p->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return ((double)((z ^ z >> 31) >> 11) + 0.5) / 9007199254740992.0;
}

static double normal(struct played *p)
{
    return sqrt(-2 * log(uniform(p))) * cos(6.283185307179586 * uniform(p));
}

/* Give the time of a part that should take `mean`. */
static double noisy(struct played *p, double mean)
{
    switch (p->noise) {
    case NOISE_NORMAL:
        return mean * fmax(0.5, 1 + 0.03 * normal(p));
    case NOISE_EXPONENTIAL:
        return mean * (0.95 - 0.05 * log(uniform(p)));
    case NOISE_HEAVY:
        return mean * (0.97 + 0.03 * exp(normal(p)));
    case N_NOISES:
        break;
    }
    return mean;
}

static bool faulty(const struct played *p, uint32_t rank, uint32_t step)
{
    return rank == p->who && step >= p->begins;
}

/* Give the time that the fault adds to a rank's part. */
static double fault_sec(struct played *p, uint32_t rank, uint32_t step, enum judge_part part,
                        double usual, enum judge_part stalls)
{
    if (!faulty(p, rank, step))
        return 0;
    switch (p->fault) {
    case FAULT_LOADER:
    case FAULT_BEGINS:
        return part == PART_DATA ? p->seconds : 0;
    case FAULT_HOST:
        return part == PART_FORWARD || part == PART_BACKWARD || part == PART_OPTIMIZER
                   ? usual * p->seconds * 10
                   : 0;
    case FAULT_GC:
        return part == stalls && step % p->stall == p->who % p->stall ? p->seconds * 8 : 0;
    case FAULT_CHECKPOINT:
        return part == PART_OTHER && step % p->stall == 0 ? p->seconds * 20 : 0;
    case FAULT_BACKWARD:
        return part == PART_BACKWARD ? p->seconds : 0;
    case FAULT_SLEEP:
        return part == PART_OTHER ? p->seconds : 0;
    case FAULT_OPTIMIZER:
        return part == PART_OPTIMIZER ? p->seconds : 0;
    case FAULT_JITTER:
        return part == PART_FORWARD ? -log(uniform(p)) * p->seconds * 2 : 0;
    case FAULT_HOURLY:
        return part == PART_DATA && step == p->n_steps / 3 ? p->seconds * 40 : 0;
    case FAULT_LINK:
    case N_FAULTS:
    case FAULT_NONE:
        break;
    }
    return 0;
}

/* One step of all ranks.  at: [n_ranks] the rank's clock; optimizer's: of the step before. */
static void play_step(struct played *p, uint32_t step, double *begin, double *at)
{
    static const double mean[N_PARTS] = {
        [PART_OPTIMIZER] = 0.01, [PART_OTHER] = 0.005,   [PART_DATA] = 0.005,
        [PART_FORWARD] = 0.03,   [PART_BACKWARD] = 0.05, [PART_COMM] = 0.01};
    enum judge_part stalls = (enum judge_part)(uniform(p) * PART_COMM);
    double all = uniform(p) < 0.005 ? 0.2 * uniform(p) : 0; /* something stands still for all */
    double last = 0, comm = noisy(p, mean[PART_COMM]);
    if (p->fault == FAULT_LINK && step >= p->begins)
        comm += 2 * p->seconds;
    for (uint32_t r = 0; r < p->n_ranks; r++) {
        struct judge_step *s = &p->steps[(size_t)r * p->n_steps + step];
        double speed = 1 + 0.01 * sin(r * 2.4);
        *s = (struct judge_step){.whole = 0};
        for (int part = PART_OTHER; part < PART_COMM; part++) {
            double usual = noisy(p, mean[part]) * speed;
            double sec = usual + fault_sec(p, r, step, (enum judge_part)part, usual, stalls);
            sec += part == PART_DATA ? all * (0.9 + 0.2 * uniform(p)) : 0;
            s->parts[part] = (float)sec;
            at[r] += sec;
        }
        last = fmax(last, at[r]);
    }
    for (uint32_t r = 0; r < p->n_ranks; r++) {
        struct judge_step *s = &p->steps[(size_t)r * p->n_steps + step];
        static const enum judge_part waits[N_LOOPS] = {
            [LOOP_PYTHON] = PART_COMM, [LOOP_DDP] = PART_BACKWARD, [LOOP_GPU] = PART_OTHER};
        double wait = last - at[r] + comm + fabs(noisy(p, 0.001));
        if (step % SAMPLED == 0 && p->loop != LOOP_PYTHON) {
            p->backwards[r * p->n_backwards + step / SAMPLED] = s->parts[PART_BACKWARD];
            p->waits[r * p->n_backwards + step / SAMPLED] = (float)wait;
        }
        double usual = noisy(p, mean[PART_OPTIMIZER]);
        double optimizer = usual + fault_sec(p, r, step, PART_OPTIMIZER, usual, stalls);
        s->parts[waits[p->loop]] += (float)wait;
        s->parts[PART_OPTIMIZER] = (float)optimizer;
        at[r] += wait + optimizer;
        s->whole = (float)(at[r] - begin[r]);
        begin[r] = at[r];
    }
}

static void play_signs(struct played *p)
{
    for (uint32_t r = 0; r < p->n_ranks; r++) {
        double *signs = &p->signs[(size_t)r * N_SIGNS];
        for (int i = 0; i < N_SIGNS; i++)
            signs[i] = NAN;
        signs[SIGN_CPU_TAKEN] = 50 + 20 * uniform(p);
        signs[SIGN_NETWORK_BAD] = uniform(p) < 0.2 ? 0.1 : 0;
        if (r == p->who && p->fault == FAULT_HOST)
            signs[SIGN_CPU_TAKEN] = 2000;
        if (r == p->who && p->fault == FAULT_LINK)
            signs[SIGN_NETWORK_BAD] = 40;
    }
}

static void play(struct played *p)
{
    size_t cells = (size_t)p->n_ranks * p->n_steps;
    double *begin = calloc(p->n_ranks, sizeof(*begin)), *at = calloc(p->n_ranks, sizeof(*at));
    p->steps = calloc(cells, sizeof(*p->steps));
    p->numbers = calloc(p->n_steps, sizeof(*p->numbers));
    p->n_backwards = p->loop == LOOP_PYTHON ? 0 : (p->n_steps + SAMPLED - 1) / SAMPLED;
    p->backwards = calloc((size_t)p->n_ranks * p->n_backwards + 1, sizeof(*p->backwards));
    p->waits = calloc((size_t)p->n_ranks * p->n_backwards + 1, sizeof(*p->waits));
    p->signs = calloc((size_t)p->n_ranks * N_SIGNS, sizeof(*p->signs));
    for (uint32_t s = 0; s < p->n_steps; s++) {
        p->numbers[s] = 1000 + s;
        play_step(p, s, begin, at);
    }
    play_signs(p);
    free(begin);
    free(at);
}

static void judge_played(struct played *p, struct judge_report *ret)
{
    play(p);
    const struct judge_job j = {.n_ranks = p->n_ranks,
                                .n_steps = p->n_steps,
                                .steps = p->steps,
                                .numbers = p->numbers,
                                .signs = p->signs,
                                .backwards = p->backwards,
                                .waits = p->waits,
                                .n_backwards = p->n_backwards};
    judge_ranks(&j, ret);
    free(p->steps);
    free(p->numbers);
    free(p->signs);
    free(p->backwards);
    free(p->waits);
}

static struct played job_of(uint32_t seed, enum fault fault)
{
    struct played p = {.state = seed * UINT64_C(1000003) + 17, .fault = fault};
    p.n_ranks = seed % 10 == 9 ? 1024 : 8;
    p.n_steps = p.n_ranks == 8 ? 300 + (uint32_t)(uniform(&p) * 300) : 150;
    /* Work in the very part in which a rank waits cannot be told from waiting. */
    p.loop = (enum loop)(seed %
                         (fault == FAULT_SLEEP || fault == FAULT_CHECKPOINT ? LOOP_GPU : N_LOOPS));
    p.noise = (enum noise)(seed / N_LOOPS % N_NOISES);
    p.who = fault == FAULT_NONE ? UINT32_MAX : (uint32_t)(uniform(&p) * p.n_ranks);
    p.seconds = 0.015 + 0.02 * uniform(&p); /* a step takes 0.11 s */
    p.stall = 20 + (uint32_t)(uniform(&p) * 20);
    if (fault == FAULT_BEGINS)
        p.begins = p.n_steps / 2;
    if (fault == FAULT_HOURLY && p.n_ranks == 8)
        p.n_steps = 3600;
    return p;
}

static const char *const fault_names[] = {"loader",     "host",   "link",      "gc",
                                          "checkpoint", "sleep",  "optimizer", "jitter",
                                          "hourly",     "begins", "backward"};

TEST(faults_are_named_first)
{
    uint32_t named = 0, alone = 0;
    for (uint32_t seed = 0; seed < 50; seed++) {
        struct played p = job_of(seed, (enum fault)(seed % N_FAULTS));
        struct judge_report ret;
        judge_played(&p, &ret);
        bool first = ret.outcome == JUDGE_NAMED && ret.found[0].rank == p.who;
        named += first;
        alone += first && ret.n_found == 1;
        if (!first)
            printf("# seed %u: %u ranks, loop %d, noise %d, %s of %.0f ms: outcome %d, %u found\n",
                   seed, p.n_ranks, p.loop, p.noise, fault_names[p.fault], 1e3 * p.seconds,
                   ret.outcome, ret.n_found);
    }
    printf("# %u of 50 named first, %u of them alone\n", named, alone);
    CHECK(named >= 45);
    CHECK(alone >= 45);
}

TEST(healthy_jobs_are_silent)
{
    uint32_t silent = 0;
    for (uint32_t seed = 0; seed < 50; seed++) {
        struct played p = job_of(1000 + seed, FAULT_NONE);
        struct judge_report ret;
        judge_played(&p, &ret);
        silent += ret.outcome == JUDGE_SILENT;
        for (uint32_t i = 0; i < ret.n_found; i++)
            printf("# seed %u: loop %d, noise %d: rank %u, kind %d, part %d, %.1f ms, %u of %u\n",
                   1000 + seed, p.loop, p.noise, ret.found[i].rank, ret.found[i].kind,
                   ret.found[i].part, 1e3 * ret.found[i].late_sec, ret.found[i].n_late,
                   ret.found[i].n_of);
    }
    CHECK_INT(silent, 50);
}

int main(void)
{
    RUN(faults_are_named_first);
    RUN(healthy_jobs_are_silent);
    return test_end();
}
