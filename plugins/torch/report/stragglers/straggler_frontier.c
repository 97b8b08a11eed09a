/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/report/stragglers/straggler_frontier.c - see straggler_frontier.h.
 *
 * Pure; one thread.
 */
#include "straggler_frontier.h"

#include <math.h>
#include <stdlib.h>

#define DIFFER_SHARE 0.05 /* of a step, that a rank is behind before the ranks wait */
#define NEWEST_SEC 15
#define NEWEST_STEPS 5u
#define MAD_SIGMA 1.4826f /* of a normal distribution */

static void swap_floats(float *a, float *b)
{
    float kept = *a;
    *a = *b;
    *b = kept;
}

/* Hoare's quickselect. */
float middle_of(float *values, uint32_t n)
{
    uint32_t from = 0, to = n - 1, wanted = (n - 1) / 2;
    while (from < to) {
        float pivot = values[from + (to - from) / 2];
        uint32_t i = from, k = to;
        while (i <= k) {
            while (values[i] < pivot)
                i++;
            while (values[k] > pivot)
                k--;
            if (i > k)
                break;
            swap_floats(&values[i++], &values[k]);
            if (k == 0)
                break;
            k--;
        }
        if (wanted <= k)
            to = k;
        else if (wanted >= i)
            from = i;
        else
            break;
    }
    return values[wanted];
}

float sigma_of(float *values, uint32_t n, float middle)
{
    for (uint32_t i = 0; i < n; i++)
        values[i] = fabsf(values[i] - middle);
    return MAD_SIGMA * middle_of(values, n);
}

/* ---- parts ---- */

struct scratch { /* [n_ranks] each, values [n_ranks] or [n_steps], least [n_backwards] */
    float *sums, *before, *most, *optimizer, *values, *others, *least;
    uint8_t *worst;
};

static const struct judge_step *step_at(const struct judge_job *j, uint32_t rank, uint32_t step)
{
    return &j->steps[(size_t)rank * j->n_steps + step];
}

static bool has_step(const struct judge_job *j, uint32_t rank, uint32_t step)
{
    return !isnan(step_at(j, rank, step)->whole);
}

/* As each rank's usually is. */
static void find_optimizers(const struct judge_job *j, struct scratch *s)
{
    for (uint32_t r = 0; r < j->n_ranks; r++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < j->n_steps; i++)
            if (has_step(j, r, i))
                s->values[n++] = step_at(j, r, i)->parts[PART_OPTIMIZER];
        s->optimizer[r] = n > 0 ? middle_of(s->values, n) : 0;
    }
}

static float part_of(const struct judge_job *j, const struct scratch *s, uint32_t rank,
                     uint32_t step, enum judge_part part)
{
    if (part != PART_OPTIMIZER)
        return step_at(j, rank, step)->parts[part];
    bool known =
        step > 0 && j->numbers[step - 1] == j->numbers[step] - 1 && has_step(j, rank, step - 1);
    return known ? step_at(j, rank, step - 1)->parts[part] : s->optimizer[rank];
}

/* Find the first of the newest steps: a few at least, but not more than some seconds of them. */
static uint32_t newest_of(const float *seconds, uint32_t n)
{
    uint32_t from = n;
    for (double sum = 0; from > 0 && n - from < JUDGE_STEPS_MIN; sum += (double)seconds[--from])
        if (sum > NEWEST_SEC && n - from >= NEWEST_STEPS)
            break;
    return from;
}

/* Give the wait of the rank that waits least, in the middle one of the backwards in which waiting
 * is hidden. */
static double hidden_wait(const struct judge_job *j, float *least)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < j->n_backwards; i++) {
        least[n] = INFINITY;
        for (uint32_t r = 0; r < j->n_ranks; r++)
            least[n] = fminf(least[n], j->waits[(size_t)r * j->n_backwards + i]);
        n += isfinite(least[n]) != 0;
    }
    return n > 0 ? (double)middle_of(least, n) : 0;
}

/* Steps that half of the ranks made, and two at least; their length, and what the rank that comes
 * last spends in communication: it waits for nobody. */
static void find_compared(struct frontier *f, struct scratch *s)
{
    const struct judge_job *j = f->j;
    uint32_t n_all = 0;
    for (uint32_t i = 0; i < j->n_steps; i++) {
        uint32_t n = 0;
        float least = INFINITY;
        for (uint32_t r = 0; r < j->n_ranks; r++) {
            const struct judge_step *step = step_at(j, r, i);
            if (isnan(step->whole))
                continue;
            s->sums[n++] = step->whole;
            least = fminf(least, step->parts[PART_COMM]);
        }
        bool enough = n >= 2 && 2 * n >= j->n_ranks;
        f->middle[i] = enough ? 0 : NAN;
        if (!enough)
            continue;
        s->values[n_all] = middle_of(s->sums, n);
        f->total_sec += s->values[n_all];
        s->others[n_all++] = least;
    }
    f->n_compared = n_all;
    uint32_t from = newest_of(s->values, n_all), n_new = n_all - from;
    f->newest_sec = n_new > 0 ? middle_of(s->values + from, n_new) : 0;
    f->newest_comm_sec = n_new > 0 ? middle_of(s->others + from, n_new) : 0;
    f->step_sec = n_all > 0 ? middle_of(s->values, n_all) : 0;
    f->last_comm_sec = n_all > 0 ? middle_of(s->others, n_all) : 0;
    double hidden_sec = hidden_wait(j, s->least);
    f->newest_comm_sec += hidden_sec;
    f->last_comm_sec += hidden_sec;
}

/* Parts of a rank before `other`, where that comes last. */
static float before_other(const struct judge_job *j, const struct scratch *s, uint32_t rank,
                          uint32_t step)
{
    const float *parts = step_at(j, rank, step)->parts;
    return part_of(j, s, rank, step, PART_OPTIMIZER) + parts[PART_EVALUATION] + parts[PART_DATA] +
           parts[PART_FORWARD];
}

struct leads {            /* seconds, over the steps in which they are much */
    double without, same; /* who is furthest behind without `other`, and that rank with it */
    double with;          /* who is furthest behind with it */
};

static void add_leads(const struct frontier *f, struct scratch *s, uint32_t step, struct leads *ret)
{
    const struct judge_job *j = f->j;
    uint32_t n = 0, leader = 0;
    float most = -INFINITY;
    for (uint32_t r = 0; r < j->n_ranks; r++) {
        if (!has_step(j, r, step))
            continue;
        s->before[n] = before_other(j, s, r, step);
        s->most[n] = s->before[n] + step_at(j, r, step)->parts[PART_OTHER];
        leader = s->before[n] > s->before[leader] ? n : leader;
        most = fmaxf(most, s->most[n]);
        n++;
    }
    double own = s->before[leader], same = s->most[leader];
    double middle = middle_of(s->most, n), much = DIFFER_SHARE * f->step_sec;
    own -= (double)middle_of(s->before, n);
    ret->without += own >= much ? own : 0;
    ret->same += own >= much ? fmax(0, same - middle) : 0;
    ret->with += most - middle >= much ? most - middle : 0;
}

/* A loop that reads a number from a GPU waits there for the device, and so for all other ranks: a
 * rank that was behind is level with them after it, and none falls behind there. */
static bool waits_in_other(const struct frontier *f, struct scratch *s)
{
    struct leads leads = {0};
    for (uint32_t i = 0; i < f->j->n_steps; i++)
        if (!isnan(f->middle[i]))
            add_leads(f, s, i, &leads);
    return leads.same < leads.without / 2 && leads.with < leads.without;
}

/* ---- the frontier ---- */

/* Behind one more part: who is how far behind the middle one.  The part that cost a rank most is
 * charged for as long as it gets no less late. */
static void pass_part(struct frontier *f, struct scratch *s, uint32_t step, enum judge_part part)
{
    const struct judge_job *j = f->j;
    uint32_t n = 0;
    for (uint32_t r = 0; r < j->n_ranks; r++)
        if (has_step(j, r, step))
            s->values[n++] = s->sums[r] += part_of(j, s, r, step, part);
    float middle = middle_of(s->values, n);
    for (uint32_t r = 0; r < j->n_ranks; r++) {
        size_t at = (size_t)r * j->n_steps + step;
        float behind = s->sums[r] - middle, more = behind - s->before[r];
        if (!has_step(j, r, step))
            continue;
        s->before[r] = behind;
        if (more > s->most[r]) {
            s->most[r] = more;
            s->worst[r] = (uint8_t)part;
        }
        if (behind > f->late[at]) {
            f->late[at] = behind;
            f->part[at] = s->worst[r];
        }
    }
}

static void pass_step(struct frontier *f, struct scratch *s, uint32_t step)
{
    const struct judge_job *j = f->j;
    uint32_t n = 0;
    for (uint32_t r = 0; r < j->n_ranks; r++) {
        s->sums[r] = s->before[r] = 0;
        s->most[r] = -INFINITY;
        f->late[(size_t)r * j->n_steps + step] = has_step(j, r, step) ? -INFINITY : NAN;
    }
    for (int p = 0; p < PART_COMM; p++)
        if (p != PART_OTHER || !f->other_waits)
            pass_part(f, s, step, (enum judge_part)p);
    float latest = -INFINITY;
    for (uint32_t r = 0; r < j->n_ranks; r++) {
        float late = frontier_late(f, r, step);
        if (isnan(late))
            continue;
        s->values[n++] = late;
        if (late > latest) {
            latest = late;
            f->leader[step] = r;
        }
    }
    f->middle[step] = middle_of(s->values, n);
}

static void scratch_done(struct scratch *s)
{
    free(s->sums);
    free(s->before);
    free(s->most);
    free(s->optimizer);
    free(s->values);
    free(s->others);
    free(s->least);
    free(s->worst);
}

bool frontier_make(const struct judge_job *j, struct frontier *ret)
{
    size_t ranks = j->n_ranks, steps = j->n_steps, longer = ranks > steps ? ranks : steps;
    struct scratch s = {.sums = calloc(ranks, sizeof(float)),
                        .before = calloc(ranks, sizeof(float)),
                        .most = calloc(ranks, sizeof(float)),
                        .optimizer = calloc(ranks, sizeof(float)),
                        .values = calloc(longer, sizeof(float)),
                        .others = calloc(longer, sizeof(float)),
                        .least = calloc(j->n_backwards + 1u, sizeof(float)),
                        .worst = calloc(ranks, 1)};
    *ret = (struct frontier){.j = j,
                             .late = calloc(ranks * steps, sizeof(float)),
                             .part = calloc(ranks * steps, 1),
                             .middle = calloc(steps, sizeof(float)),
                             .leader = calloc(steps, sizeof(uint32_t))};
    bool there = s.sums && s.before && s.most && s.optimizer && s.values && s.others && s.least &&
                 s.worst && ret->late && ret->part && ret->middle && ret->leader;
    if (there) {
        find_compared(ret, &s);
        find_optimizers(j, &s);
        ret->other_waits = waits_in_other(ret, &s);
    }
    for (uint32_t i = 0; there && i < j->n_steps; i++) {
        if (!isnan(ret->middle[i])) {
            pass_step(ret, &s, i);
            continue;
        }
        for (uint32_t r = 0; r < j->n_ranks; r++)
            ret->late[(size_t)r * steps + i] = NAN;
    }
    scratch_done(&s);
    return there;
}

void frontier_done(struct frontier *f)
{
    free(f->late);
    free(f->part);
    free(f->middle);
    free(f->leader);
}
