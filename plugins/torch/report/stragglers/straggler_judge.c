/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/report/stragglers/straggler_judge.c - see straggler_judge.h.
 *
 * Pure; one thread.
 */
#include "straggler_judge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "straggler_frontier.h"

#define CLIP 3.0f         /* thresholds: one long stall is no episode */
#define MOST 0.75         /* of an episode's steps: "most", */
#define MOST_ENDED 0.9    /* and of one that is over: chance has more to choose from */
#define MEDIAN_ERROR 1.25 /* of a middle value: so many times that of a mean */
#define EVENT_SIGMA 6.0   /* of the noise that the middle one of the ranks has */
#define EVENT_RANKS 8u    /* one in so many at most is late now and then */
#define SINGLE_EVENTS 2u  /* must each be long, */
#define FEW_EVENTS 6u     /* and so few stand out by much */
#define FEW_OF_FEW 10u    /* of fewer than 8 ranks, any of which has the longest by chance */
#define EVEN_EVENTS 4u    /* show whether their distances are even */
#define BACKWARDS_LATE 2  /* times what is told otherwise: they are few */

struct work {
    struct frontier f;
    struct judge_report *ret;
    float *ranks, *series, *usual; /* [n_ranks] scratch; [n_steps or n_ranks] scratch; [n_ranks] */
    uint32_t *from, *to;           /* [n_ranks] the episode, `to` behind its last; equal: none */
    double *cost, *worst;          /* [n_ranks] of events */
    bool *named;                   /* [n_ranks] */
    double late_sec;               /* from there on it is told */
};

/* How sure one must be grows with how many ranks might be it by chance. */
static double needed_sigmas(uint32_t n_ranks)
{
    double by_chance = sqrt(2 * log((double)n_ranks)) + 2;
    return fmax(by_chance, JUDGE_LATE_SIGMA);
}

static bool is_compared(const struct work *w, uint32_t rank, uint32_t step)
{
    return !isnan(frontier_late(&w->f, rank, step));
}

/* ---- what is found ---- */

static void add_finding(struct work *w, const struct judge_finding *found)
{
    struct judge_report *ret = w->ret;
    uint32_t at = ret->n_found;
    while (at > 0 && ret->found[at - 1].lost_sec < found->lost_sec)
        at--;
    bool full = ret->n_found == JUDGE_NAMED_MAX;
    ret->n_more += full;
    if (at == JUDGE_NAMED_MAX)
        return;
    uint32_t moved = ret->n_found - at - full;
    memmove(&ret->found[at + 1], &ret->found[at], moved * sizeof(*found));
    ret->found[at] = *found;
    ret->n_found += !full;
}

/* The steps that `is_late` chooses: how late in the middle one, in which part most, what it cost
 * the job: the frontier that this rank alone pushed. */
static void sum_up(struct work *w, struct judge_finding *f, uint32_t from, uint32_t to,
                   double least_sec)
{
    double by_part[N_PARTS] = {0};
    uint32_t n = 0;
    for (uint32_t s = from; s < to; s++) {
        double late = frontier_late(&w->f, f->rank, s);
        if (isnan(late) || late < least_sec)
            continue;
        by_part[w->f.part[(size_t)f->rank * w->f.j->n_steps + s]] += late;
        f->all_sec += late;
        f->lost_sec += w->f.leader[s] == f->rank ? late : 0;
        if (n == 0)
            f->first = s;
        f->last = s;
        w->series[n++] = (float)late;
    }
    f->n_late = n;
    f->late_sec = n > 0 ? middle_of(w->series, n) : 0;
    for (int p = 0; p < N_PARTS; p++)
        if (by_part[p] > by_part[f->part])
            f->part = (enum judge_part)p;
    f->signs = judge_signs(w->f.j->signs, w->f.j->n_ranks, f->rank);
}

/* Is it enough to name a rank for?  share: of the time of all steps. */
static bool is_much(const struct work *w, double all_sec, double share)
{
    return all_sec >= JUDGE_LOST_SEC && all_sec >= share * w->f.total_sec;
}

/* ---- late in most steps of an episode ---- */

static uint32_t series_of(const struct work *w, uint32_t rank, uint32_t from, uint32_t to,
                          float *ret)
{
    uint32_t n = 0;
    for (uint32_t s = from; s < to; s++)
        if (is_compared(w, rank, s))
            ret[n++] = frontier_late(&w->f, rank, s);
    return n;
}

/* The stretch of steps in which it is most above half of what is told (Kadane), each step counting
 * for no more than a few times that. */
static void find_stretch(const struct work *w, uint32_t rank, uint32_t *ret_from, uint32_t *ret_to)
{
    float half = (float)w->late_sec / 2, sum = 0, best = 0;
    uint32_t from = 0;
    *ret_from = *ret_to = 0;
    for (uint32_t s = 0; s < w->f.j->n_steps; s++) {
        if (!is_compared(w, rank, s))
            continue;
        float over = frontier_late(&w->f, rank, s) - w->f.middle[s] - half;
        over = fmaxf(-CLIP * half, fminf(CLIP * half, over));
        if (sum <= 0) {
            sum = 0;
            from = s;
        }
        sum += over;
        if (sum > best) {
            best = sum;
            *ret_from = from;
            *ret_to = s + 1;
        }
    }
}

/* The stretch has edges of noise: what is so few steps off an end is at it. */
static uint32_t edge_of(const struct work *w)
{
    return w->f.n_compared / 50 + 2;
}

/* Is the stretch an episode: long enough, and not by chance? */
static bool is_episode(struct work *w, uint32_t rank, uint32_t from, uint32_t to)
{
    const struct judge_job *j = w->f.j;
    uint32_t n = series_of(w, rank, from, to, w->series), over = 0, n_ranks = 0;
    if (n < JUDGE_EPISODE_STEPS || n * JUDGE_EPISODE_SHARE < w->f.n_compared)
        return false;
    float own = middle_of(w->series, n);
    if (own < w->late_sec)
        return false;
    double error = MEDIAN_ERROR * sigma_of(w->series, n, own) / sqrt(n);
    for (uint32_t r = 0; r < j->n_ranks; r++) {
        uint32_t of = series_of(w, r, from, to, w->series);
        if (of > 0)
            w->ranks[n_ranks++] = middle_of(w->series, of);
    }
    float middle = middle_of(w->ranks, n_ranks), sigma = sigma_of(w->ranks, n_ranks, middle);
    for (uint32_t s = from; s < to; s++)
        over += is_compared(w, rank, s) &&
                frontier_late(&w->f, rank, s) - w->f.middle[s] > w->late_sec / 2;
    return own - middle >= w->late_sec &&
           own - middle >= needed_sigmas(j->n_ranks) * fmax(sigma, error) &&
           over >= (to + edge_of(w) >= w->f.j->n_steps ? MOST : MOST_ENDED) * n;
}

static uint32_t first_compared(const struct work *w)
{
    uint32_t s = 0;
    while (s < w->f.j->n_steps && isnan(w->f.middle[s]))
        s++;
    return s;
}

static uint32_t last_compared(const struct work *w)
{
    uint32_t s = w->f.j->n_steps;
    while (s > 0 && isnan(w->f.middle[s - 1]))
        s--;
    return s;
}

static void leave_out(struct judge_report *ret, const struct judge_finding *f)
{
    if (ret->n_stages++ == 0 || f->late_sec > ret->stage_sec) {
        ret->stage = f->rank;
        ret->stage_sec = f->late_sec;
    }
}

static void find_always(struct work *w)
{
    uint32_t begin = first_compared(w), end = last_compared(w);
    for (uint32_t r = 0; r < w->f.j->n_ranks; r++) {
        uint32_t from, to;
        find_stretch(w, r, &from, &to);
        if (to == from || !is_episode(w, r, from, to))
            continue;
        uint32_t edge = edge_of(w);
        struct judge_finding f = {.kind = LATE_ALWAYS,
                                  .rank = r,
                                  .n_of = series_of(w, r, from, to, w->series),
                                  .from_start = from <= begin + edge,
                                  .to_end = to + edge >= end};
        sum_up(w, &f, from, to, w->late_sec / 2);
        if (!is_much(w, f.all_sec, JUDGE_LOST_SHARE))
            continue;
        w->from[r] = from;
        w->to[r] = to;
        w->named[r] = true;
        f.first = from;
        f.last = to - 1;
        if (w->f.j->stages && f.from_start && f.to_end)
            leave_out(w->ret, &f);
        else
            add_finding(w, &f);
    }
}

/* ---- late in a few steps ---- */

static bool in_episode(const struct work *w, uint32_t rank, uint32_t step)
{
    return step >= w->from[rank] && step < w->to[rank];
}

/* From how many seconds on it is an event, for the middle one of the ranks. */
static double event_sec(struct work *w)
{
    const struct judge_job *j = w->f.j;
    for (uint32_t r = 0; r < j->n_ranks; r++) {
        uint32_t n = series_of(w, r, 0, j->n_steps, w->series);
        w->usual[r] = n > 0 ? middle_of(w->series, n) : 0;
        w->ranks[r] = n > 0 ? sigma_of(w->series, n, w->usual[r]) : 0;
    }
    return fmax(JUDGE_EVENT_SHARE * w->f.step_sec,
                EVENT_SIGMA * (double)middle_of(w->ranks, j->n_ranks));
}

static void find_costs(struct work *w, double least_sec)
{
    const struct judge_job *j = w->f.j;
    for (uint32_t r = 0; r < j->n_ranks; r++) {
        w->cost[r] = w->worst[r] = 0;
        for (uint32_t s = 0; s < j->n_steps; s++) {
            double late = frontier_late(&w->f, r, s);
            if (isnan(late) || in_episode(w, r, s))
                continue;
            w->worst[r] = fmax(w->worst[r], late);
            w->cost[r] += late >= least_sec ? late : 0;
        }
    }
}

/* Give the most that any rank costs that is not chosen. */
static double rest_of(const struct work *w, const bool *chosen)
{
    double rest = 0;
    for (uint32_t r = 0; r < w->f.j->n_ranks; r++)
        if (!chosen[r])
            rest = fmax(rest, fmax(w->cost[r], w->worst[r]));
    return rest;
}

/* At even distances? */
static int64_t distance_of(struct work *w, const struct judge_finding *f, double least_sec)
{
    int64_t before = 0, gap;
    uint32_t n = 0, even = 0;
    if (f->n_late < EVEN_EVENTS)
        return 0;
    for (int turn = 0; turn < 2; turn++) { /* the middle distance, then who keeps to it */
        float middle = turn == 1 ? middle_of(w->series, n) : 0;
        uint32_t seen = 0;
        for (uint32_t s = f->first; s <= f->last; s++) {
            double late = frontier_late(&w->f, f->rank, s);
            if (isnan(late) || late < least_sec || in_episode(w, f->rank, s))
                continue;
            gap = w->f.j->numbers[s] - before;
            before = w->f.j->numbers[s];
            if (seen++ == 0)
                continue;
            if (turn == 0)
                w->series[n++] = (float)gap;
            else
                even += fabs((double)gap - (double)middle) <= fmax(1, middle / 20);
        }
        if (turn == 1 && middle >= 2 && even * 10 >= n * 9)
            return (int64_t)middle;
    }
    return 0;
}

static uint32_t events_of(const struct work *w, uint32_t rank, double least_sec)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < w->f.j->n_steps; s++)
        n += frontier_late(&w->f, rank, s) >= least_sec && !in_episode(w, rank, s);
    return n;
}

/* One rank, `rest`: what others cost at the most. */
static bool is_sometimes(const struct work *w, uint32_t rank, double rest, double least_sec)
{
    uint32_t n = events_of(w, rank, least_sec);
    uint32_t few = w->f.j->n_ranks < EVENT_RANKS ? FEW_OF_FEW : FEW_EVENTS;
    return is_much(w, w->cost[rank], JUDGE_RARE_SHARE) &&
           w->cost[rank] >= (n <= few ? JUDGE_FEW_GAP : JUDGE_EVENT_GAP) * rest &&
           (n > SINGLE_EVENTS || w->worst[rank] >= JUDGE_SINGLE_SHARE * w->f.step_sec);
}

static void tell_sometimes(struct work *w, uint32_t rank, double least_sec)
{
    const struct judge_job *j = w->f.j;
    struct judge_finding f = {.kind = LATE_SOMETIMES, .rank = rank};
    for (uint32_t s = w->from[rank]; s < w->to[rank]; s++) /* these steps are not told twice */
        w->f.late[(size_t)rank * j->n_steps + s] = NAN;
    sum_up(w, &f, 0, j->n_steps, least_sec);
    for (uint32_t s = 0; s < j->n_steps; s++)
        f.n_of += !isnan(w->f.middle[s]) && !in_episode(w, rank, s) &&
                  !isnan(j->steps[(size_t)rank * j->n_steps + s].whole);
    f.every = distance_of(w, &f, least_sec);
    w->named[rank] = true;
    add_finding(w, &f);
}

/* Evaluations of a rank, which chance does not make: they are not held against what others have.
 * room: [n_steps] */
static void find_evaluations(struct work *w, uint32_t rank, float *room)
{
    uint32_t n = w->f.j->n_steps;
    float *late = &w->f.late[(size_t)rank * n];
    const uint8_t *part = &w->f.part[(size_t)rank * n];
    double least_sec = JUDGE_EVENT_SHARE * w->f.step_sec, all_sec = 0;
    for (uint32_t s = 0; s < n; s++) {
        bool is = late[s] >= least_sec && part[s] == PART_EVALUATION && !in_episode(w, rank, s);
        room[s] = is ? late[s] : NAN;
        all_sec += is ? (double)late[s] : 0;
    }
    if (!is_much(w, all_sec, JUDGE_LOST_SHARE))
        return;
    for (uint32_t s = 0; s < n; s++) { /* these alone, and then the others */
        float one = late[s];
        late[s] = room[s];
        room[s] = isnan(room[s]) ? one : NAN;
    }
    tell_sometimes(w, rank, least_sec);
    memcpy(late, room, n * sizeof(*late));
}

static bool find_all_evaluations(struct work *w)
{
    float *room = calloc(w->f.j->n_steps, sizeof(*room));
    for (uint32_t r = 0; r < w->f.j->n_ranks && room != NULL; r++)
        find_evaluations(w, r, room);
    free(room);
    return room != NULL;
}

/* The most costly ranks, as many as stand out together: chosen one after the other, and the last
 * number of them at which the gap to the rest is wide.  order: room for `most`. */
static uint32_t choose_costly(struct work *w, bool *chosen, uint32_t *order, uint32_t most,
                              double least_sec)
{
    const struct judge_job *j = w->f.j;
    uint32_t n_told = 0;
    memset(chosen, 0, j->n_ranks * sizeof(*chosen));
    find_costs(w, least_sec);
    for (uint32_t i = 0; i < most; i++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t r = 0; r < j->n_ranks; r++)
            if (!chosen[r] && w->cost[r] > 0 && (best == UINT32_MAX || w->cost[r] > w->cost[best]))
                best = r;
        if (best == UINT32_MAX)
            break;
        chosen[best] = true;
        order[i] = best;
        double rest = rest_of(w, chosen);
        bool all = true;
        for (uint32_t k = 0; k <= i; k++)
            all = all && is_sometimes(w, order[k], rest, least_sec);
        n_told = all ? i + 1 : n_told;
    }
    memset(chosen, 0, j->n_ranks * sizeof(*chosen));
    for (uint32_t i = 0; i < n_told; i++)
        chosen[order[i]] = true;
    return n_told;
}

/* Few long stalls may cost less than many short ones that all ranks have: so events are looked for
 * by their size, twice as long ones each time, until somebody stands out or there are none. */
static bool find_sometimes(struct work *w)
{
    const struct judge_job *j = w->f.j;
    uint32_t most = j->n_ranks / EVENT_RANKS > 0 ? j->n_ranks / EVENT_RANKS : 1, n_told = 0;
    most = most < JUDGE_NAMED_MAX ? most : JUDGE_NAMED_MAX;
    bool *chosen = calloc(j->n_ranks, sizeof(*chosen));
    uint32_t *order = calloc(most, sizeof(*order));
    double least_sec = event_sec(w), told_sec, longest = INFINITY;
    bool there = chosen != NULL && order != NULL;
    for (; there && n_told == 0 && least_sec > 0 && least_sec <= longest; least_sec *= 2) {
        n_told = choose_costly(w, chosen, order, most, least_sec);
        longest = 0;
        for (uint32_t r = 0; r < j->n_ranks; r++)
            longest = fmax(longest, w->worst[r]);
        told_sec = least_sec; /* of a rank that is named those are told that no other has had */
        for (uint32_t r = 0; r < j->n_ranks; r++)
            told_sec = chosen[r] ? told_sec : fmax(told_sec, w->worst[r]);
        for (uint32_t i = 0; i < n_told; i++)
            tell_sometimes(w, order[i], fmin(told_sec, w->worst[order[i]]));
    }
    free(chosen);
    free(order);
    return there;
}

/* ---- backwards whose own time is known ---- */

static float backward_at(const struct work *w, uint32_t rank, uint32_t i)
{
    return w->f.j->backwards[(size_t)rank * w->f.j->n_backwards + i];
}

/* Fill in how much longer its backwards are than the ranks' middle one, where it has one. */
static uint32_t backwards_of(struct work *w, uint32_t rank, float *ret)
{
    const struct judge_job *j = w->f.j;
    uint32_t n = 0;
    for (uint32_t i = 0; i < j->n_backwards; i++) {
        uint32_t of = 0;
        for (uint32_t r = 0; r < j->n_ranks; r++)
            if (!isnan(backward_at(w, r, i)))
                w->ranks[of++] = backward_at(w, r, i);
        if (!isnan(backward_at(w, rank, i)) && 2 * of > j->n_ranks)
            ret[n++] = backward_at(w, rank, i) - middle_of(w->ranks, of);
    }
    return n;
}

/* One rank's backwards, the ranks' middle ones and their sigma: it is late in most of them.
 * own: room for all of them. */
static void find_backward(struct work *w, uint32_t rank, double middle, double sigma, float *own)
{
    const struct judge_job *j = w->f.j;
    struct judge_finding f = {.kind = LATE_ALWAYS,
                              .rank = rank,
                              .part = PART_BACKWARD,
                              .late_sec = (double)w->usual[rank] - middle,
                              .sampled = true,
                              .from_start = true,
                              .to_end = true};
    f.n_of = backwards_of(w, rank, own);
    for (uint32_t i = 0; i < f.n_of; i++)
        f.n_late += own[i] > w->late_sec / 2;
    double error = MEDIAN_ERROR * sigma_of(own, f.n_of, w->usual[rank]) / sqrt(f.n_of);
    f.all_sec = f.lost_sec = f.late_sec * w->f.n_compared;
    if (f.late_sec < BACKWARDS_LATE * w->late_sec ||
        f.late_sec < needed_sigmas(j->n_ranks) * fmax(sigma, error) || 10 * f.n_late < 9 * f.n_of ||
        !is_much(w, f.all_sec, JUDGE_LOST_SHARE))
        return;
    f.first = first_compared(w);
    f.last = last_compared(w) - 1;
    f.signs = judge_signs(j->signs, j->n_ranks, rank);
    w->named[rank] = true;
    add_finding(w, &f);
}

static void find_backwards(struct work *w)
{
    const struct judge_job *j = w->f.j;
    float *own =
        j->n_backwards >= JUDGE_EPISODE_STEPS ? calloc(j->n_backwards, sizeof(*own)) : NULL;
    uint32_t n_ranks = 0;
    for (uint32_t r = 0; r < j->n_ranks && own != NULL; r++) {
        uint32_t n = backwards_of(w, r, own);
        w->usual[r] = n >= JUDGE_EPISODE_STEPS ? middle_of(own, n) : NAN;
    }
    for (uint32_t r = 0; r < j->n_ranks && own != NULL; r++)
        if (!isnan(w->usual[r]))
            w->ranks[n_ranks++] = w->usual[r];
    float middle = n_ranks > 1 ? middle_of(w->ranks, n_ranks) : 0;
    float sigma = n_ranks > 1 ? sigma_of(w->ranks, n_ranks, middle) : 0;
    for (uint32_t r = 0; r < j->n_ranks && n_ranks > 1; r++)
        if (!isnan(w->usual[r]) && !w->named[r])
            find_backward(w, r, middle, sigma, own);
    free(own);
}

/* ---- slow communication ---- */

/* By its links: it is behind them, or one of them is the only bad one, and it is at the first of
 * its ends.  Data go through at least once in a step, so communication takes half a round trip. */
static bool is_linked_badly(const struct work *w, const struct judge_links *l,
                            struct judge_finding *ret)
{
    if (l->n_known == 0 || !links_tell(l, ret->rank, ret))
        return false;
    double more = ret->link.now_sec - ret->others.now_sec;
    return ret->lossy || !(more / 2 > fmax(w->f.last_comm_sec, w->f.newest_comm_sec));
}

/* Nobody comes late, and communication is long even for whoever comes last. */
static bool find_slow_communication(struct work *w)
{
    const struct judge_job *j = w->f.j;
    struct judge_links l;
    bool slow = w->f.last_comm_sec >= JUDGE_COMM_SHARE * w->f.step_sec;
    bool newly = w->f.newest_comm_sec >= JUDGE_COMM_SHARE * w->f.newest_sec;
    bool there = !(slow || newly) || links_find(j, &l);
    for (uint32_t r = 0; r < j->n_ranks && (slow || newly) && there; r++) {
        struct judge_finding f = {.rank = r,
                                  .part = PART_COMM,
                                  .late_sec = w->f.last_comm_sec,
                                  .n_late = w->f.n_compared,
                                  .n_of = w->f.n_compared,
                                  .first = first_compared(w),
                                  .last = last_compared(w) - 1,
                                  .from_start = true,
                                  .to_end = true};
        struct judge_finding linked = f;
        bool knows = l.n_known > 0 && links_know(&l, j->nodes[r]);
        bool slows = slow && judge_slows(j->signs, j->n_ranks, r, knows, &f);
        bool starved = slows && f.kind == LATE_STARVED;
        bool by_links = is_linked_badly(w, &l, &linked) && (linked.sure || !starved);
        linked.signs = judge_signs(j->signs, j->n_ranks, r);
        linked.late_sec = w->f.newest_comm_sec;
        if (!w->named[r] && (slows || by_links))
            add_finding(w, by_links ? &linked : &f);
    }
    if (slow || newly)
        links_done(&l);
    return there;
}

/* ---- all of it ---- */

static bool work_begin(struct work *w, const struct judge_job *j)
{
    size_t ranks = j->n_ranks, longer = j->n_steps > ranks ? j->n_steps : ranks;
    w->ranks = calloc(ranks, sizeof(*w->ranks));
    w->usual = calloc(ranks, sizeof(*w->usual));
    w->series = calloc(longer, sizeof(*w->series));
    w->from = calloc(ranks, sizeof(*w->from));
    w->to = calloc(ranks, sizeof(*w->to));
    w->cost = calloc(ranks, sizeof(*w->cost));
    w->worst = calloc(ranks, sizeof(*w->worst));
    w->named = calloc(ranks, sizeof(*w->named));
    return w->ranks && w->usual && w->series && w->from && w->to && w->cost && w->worst &&
           w->named && frontier_make(j, &w->f);
}

static void work_end(struct work *w)
{
    frontier_done(&w->f);
    free(w->ranks);
    free(w->usual);
    free(w->series);
    free(w->from);
    free(w->to);
    free(w->cost);
    free(w->worst);
    free(w->named);
}

static void judge_compared(struct work *w)
{
    struct judge_report *ret = w->ret;
    w->late_sec = JUDGE_LATE_SHARE * w->f.step_sec;
    find_always(w);
    if (!w->f.j->stages)
        find_backwards(w);
    bool there = find_all_evaluations(w) && find_sometimes(w) && find_slow_communication(w);
    ret->outcome = !there ? JUDGE_NO_MEMORY : ret->n_found > 0 ? JUDGE_NAMED : JUDGE_SILENT;
}

void judge_ranks(const struct judge_job *j, struct judge_report *ret)
{
    struct work w = {.ret = ret};
    *ret = (struct judge_report){.outcome = JUDGE_FEW_STEPS};
    if (j->n_ranks < 2)
        ret->outcome = JUDGE_ONE_RANK;
    if (j->n_ranks < 2 || j->n_steps == 0)
        return;
    if (!work_begin(&w, j)) {
        ret->outcome = JUDGE_NO_MEMORY;
    } else {
        ret->n_steps = w.f.n_compared;
        ret->step_sec = w.f.step_sec;
        ret->total_sec = w.f.total_sec;
        ret->last_comm_sec = w.f.last_comm_sec;
        ret->newest_sec = w.f.newest_sec;
        ret->newest_comm_sec = w.f.newest_comm_sec;
        ret->other_waits = w.f.other_waits;
        if (w.f.n_compared > 0)
            ret->n_passed = j->numbers[last_compared(&w) - 1] - j->numbers[first_compared(&w)] + 1;
        if (w.f.n_compared >= JUDGE_STEPS_MIN)
            judge_compared(&w);
    }
    work_end(&w);
}
