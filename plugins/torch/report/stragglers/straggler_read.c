/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/report/stragglers/straggler_read.c - steps of all ranks of a job, lined up.
 *
 * One thread.  Two things are asked for: the newest steps, whole; and of an hour before those only
 * steps that took long.  A rank that comes late makes a step long for all, so a stall once an hour
 * is found without reading an hour of 1,000 ranks.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "lib/array.h"
#include "stragglers.h"

#define STEPS 1000      /* the newest, by default */
#define ROWS_MAX 400000 /* of all ranks: 50 MB as they come */
#define LONG_NS INT64_C(3600000000000)
#define LONG_STEP 1.25 /* of the middle step */
#define MARGIN 1.15    /* steps may have been faster lately than they were on average */
#define TRIES 3
#define TIMES_MAX 1000 /* steps of a rank to one of the others */
#define SAME_TIMES 0.2 /* that their number may be off a whole one */
#define RANKS_MAX 16384u
#define WARM_UP_STEPS 5 /* the first ones: to be entered makes a rank late, as does an import */

#define ROW                                                                                   \
    "select _addr, epoch_ns(ts), local_step, global_step, step_duration_sec, optimizer_sec, " \
    "other_sec, dataloader_sec, forward_sec, backward_sec, comm_sec, evaluation_sec from "    \
    "global.python.torch_step_timing where ts >= to_timestamp(%.3f)"

struct straggler_rank *straggler_rank_named(struct straggler_job *j, const char *name)
{
    static uint32_t last; /* rows of one come together */
    if (last < j->n_ranks && strcmp(j->ranks[last].name, name) == 0)
        return &j->ranks[last];
    for (last = 0; last < j->n_ranks; last++)
        if (strcmp(j->ranks[last].name, name) == 0)
            return &j->ranks[last];
    return NULL;
}

/* Limits that an honest rank keeps: no time before 1970 or after 2096, no step of over 100 days. */
#define TIME_MAX_NS INT64_C(4000000000000000000)
#define NUMBER_MAX INT64_C(1000000000000000)
#define SEC_MAX 1e7
#define WORLD_MAX (1 << 20)

static int64_t clamp_to(int64_t value, int64_t least, int64_t most)
{
    return value < least ? least : value > most ? most : value;
}

/* ---- who there is ---- */

static int take_rank(void *arg, const struct probing_report_cell *c, uint32_t n)
{
    struct straggler_job *j = arg;
    if (n != 8 || cell_text(&c[0])[0] == '\0')
        return 0;
    if (j->n_ranks == RANKS_MAX)
        return report_fail(j->o->api, -E2BIG, "more than %u ranks", RANKS_MAX);
    struct straggler_rank *more =
        array_grow(j->ranks, j->n_ranks, &j->room, sizeof(*more), UINT32_MAX);
    if (more == NULL)
        return report_fail(j->o->api, -ENOMEM, "no memory for %u ranks", j->n_ranks + 1);
    j->ranks = more;
    struct straggler_rank *r = &j->ranks[j->n_ranks++];
    *r = (struct straggler_rank){.rank = c[2].type != 0 ? cell_int(&c[2]) : cell_int(&c[3]),
                                 .world_size =
                                     cell_int(&c[4]) <= WORLD_MAX ? cell_int(&c[4]) : INT64_MIN,
                                 .newest_ns = clamp_to(cell_int(&c[5]), 0, TIME_MAX_NS),
                                 .oldest_ns = clamp_to(cell_int(&c[6]), 0, TIME_MAX_NS),
                                 .step_sec = cell_number(&c[7])};
    (void)snprintf(r->name, sizeof(r->name), "%s", cell_text(&c[0]));
    (void)snprintf(r->host, sizeof(r->host), "%s", cell_text(&c[1]));
    return 0;
}

static int compare_ranks(const void *one, const void *two)
{
    const struct straggler_rank *a = one, *b = two;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return a->newest_ns > b->newest_ns ? -1 : a->newest_ns < b->newest_ns;
}

static int read_ranks(struct straggler_job *j)
{
    const struct probing_report_api *a = j->o->api;
    int rc = a->ask(a,
                    "select _addr, max(_host), max(_rank), max(rank), max(world_size), "
                    "epoch_ns(max(ts)), epoch_ns(min(ts)), avg(step_duration_sec) from "
                    "global.python.torch_step_timing group by _addr",
                    take_rank, j);
    if (rc == -ENOENT || rc == -EINVAL)
        return a->no_plugin(a);
    if (rc < 0)
        return rc;
    if (j->n_ranks == 0)
        return report_fail(a, -ENODATA, "no step has ended since plugin torch was loaded: %s",
                           "there is nothing to compare");
    qsort(j->ranks, j->n_ranks, sizeof(*j->ranks), compare_ranks);
    for (uint32_t i = 1; i < j->n_ranks; i++)
        if (j->ranks[i].rank != INT64_MIN && j->ranks[i].rank == j->ranks[i - 1].rank)
            (void)snprintf(j->ranks[i].why, sizeof(j->ranks[i].why),
                           "another process has this rank and newer steps");
    return 0;
}

/* ---- rows ---- */

static int take_row(void *arg, const struct probing_report_cell *c, uint32_t n)
{
    static const enum judge_part parts[N_PARTS] = {PART_OPTIMIZER, PART_OTHER,    PART_DATA,
                                                   PART_FORWARD,   PART_BACKWARD, PART_COMM,
                                                   PART_EVALUATION};
    struct straggler_job *j = arg;
    struct straggler_rank *r = n == 5 + N_PARTS ? straggler_rank_named(j, cell_text(&c[0])) : NULL;
    if (r == NULL || r->times > 1 || cell_int(&c[1]) != clamp_to(cell_int(&c[1]), 0, TIME_MAX_NS) ||
        cell_int(&c[2]) != clamp_to(cell_int(&c[2]), WARM_UP_STEPS, NUMBER_MAX) ||
        !(cell_number(&c[4]) >= 0 && cell_number(&c[4]) <= SEC_MAX))
        return 0;
    struct judge_row *more = array_grow(r->rows, r->n_rows, &r->room, sizeof(*more), UINT32_MAX);
    if (more == NULL)
        return report_fail(j->o->api, -ENOMEM, "no memory for steps");
    r->rows = more;
    struct judge_row *row = &r->rows[r->n_rows++];
    *row = (struct judge_row){.number = cell_int(&c[2]),
                              .end_ns = cell_int(&c[1]),
                              .global = cell_int(&c[3]),
                              .waits = !isnan(cell_number(&c[10])),
                              .step = {.whole = (float)cell_number(&c[4])}};
    for (int p = 0; p < N_PARTS; p++) {
        double sec = cell_number(&c[5 + p]);
        row->step.parts[parts[p]] = sec > 0 && sec <= SEC_MAX ? (float)sec : 0; /* NULL: none */
    }
    row->step.parts[PART_OTHER] =
        fmaxf(0, row->step.parts[PART_OTHER] - row->step.parts[PART_EVALUATION]);
    return 0;
}

static int compare_rows(const void *one, const void *two)
{
    const struct judge_row *a = one, *b = two;
    return a->number < b->number ? -1 : a->number > b->number;
}

/* In the order of numbers, each once. */
static void sort_rows(struct straggler_rank *r)
{
    uint32_t n = 0;
    if (r->n_rows > 0)
        qsort(r->rows, r->n_rows, sizeof(*r->rows), compare_rows);
    for (uint32_t i = 0; i < r->n_rows; i++)
        if (n == 0 || r->rows[i].number != r->rows[n - 1].number)
            r->rows[n++] = r->rows[i];
    r->n_rows = n;
}

static int compare_i64(const void *one, const void *two)
{
    const int64_t *a = one, *b = two;
    return *a < *b ? -1 : *a > *b;
}

static int compare_f64(const void *one, const void *two)
{
    const double *a = one, *b = two;
    return *a < *b ? -1 : *a > *b;
}

/* The middle one of the ranks' newest step, and of their mean step. */
static int find_middle(const struct straggler_job *j, int64_t *ret_newest_ns, double *ret_step_sec)
{
    int64_t *newest = calloc(j->n_ranks, sizeof(*newest));
    double *steps = calloc(j->n_ranks, sizeof(*steps));
    bool there = newest != NULL && steps != NULL;
    for (uint32_t i = 0; there && i < j->n_ranks; i++) {
        newest[i] = j->ranks[i].newest_ns;
        steps[i] = j->ranks[i].step_sec > 0 ? fmin(j->ranks[i].step_sec, SEC_MAX) : 0;
    }
    if (there) {
        qsort(newest, j->n_ranks, sizeof(*newest), compare_i64);
        qsort(steps, j->n_ranks, sizeof(*steps), compare_f64);
        *ret_newest_ns = newest[j->n_ranks / 2];
        *ret_step_sec = steps[j->n_ranks / 2];
    }
    free(newest);
    free(steps);
    return there ? 0 : report_fail(j->o->api, -ENOMEM, "no memory for %u ranks", j->n_ranks);
}

static uint64_t middle_rows(const struct straggler_job *j)
{
    uint64_t sum = 0; /* ranks of one job have about as many: the mean will do */
    for (uint32_t i = 0; i < j->n_ranks; i++)
        sum += j->ranks[i].n_rows;
    return sum / j->n_ranks;
}

static bool has_older(const struct straggler_job *j)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < j->n_ranks; i++)
        n += j->ranks[i].oldest_ns < j->begin_ns;
    return 2 * n > j->n_ranks;
}

static int ask_rows(struct straggler_job *j)
{
    char sql[600];
    for (uint32_t i = 0; i < j->n_ranks; i++)
        j->ranks[i].n_rows = 0;
    (void)snprintf(sql, sizeof(sql), ROW, (double)j->begin_ns / 1e9);
    int rc = j->o->api->ask(j->o->api, sql, take_row, j);
    for (uint32_t i = 0; i < j->n_ranks; i++)
        sort_rows(&j->ranks[i]);
    return rc;
}

/* Give the mean step of its rows; 0: it has none. */
static double mean_step(const struct straggler_rank *r)
{
    double sum = 0;
    for (uint32_t k = 0; k < r->n_rows; k++)
        sum += (double)r->rows[k].step.whole;
    return r->n_rows > 0 ? sum / r->n_rows : 0;
}

/* The middle one of the ranks' mean steps; 0: there are none, or no memory. */
static double middle_step(const struct straggler_job *j)
{
    double *steps = calloc(j->n_ranks, sizeof(*steps)), middle;
    uint32_t n = 0;
    for (uint32_t i = 0; steps != NULL && i < j->n_ranks; i++)
        if (j->ranks[i].n_rows > 0)
            steps[n++] = mean_step(&j->ranks[i]);
    if (n > 0)
        qsort(steps, n, sizeof(*steps), compare_f64);
    middle = n > 0 ? steps[n / 2] : 0;
    free(steps);
    return middle;
}

/* A rank that makes several steps while the middle one makes one, as where it alone steps its
 * optimizer more often: they are joined to one, and it is compared as any other rank. */
static void join_steps(struct straggler_rank *r, double step_sec)
{
    double own_sec = mean_step(r), times = own_sec > 0 ? step_sec / own_sec : 1;
    double whole = round(times);
    r->times = 1;
    if (whole < 2 || whole > TIMES_MAX || fabs(times - whole) > SAME_TIMES || r->n_rows < 2 * whole)
        return;
    r->times = (uint32_t)whole;
    r->n_rows = judge_join_rows(r->rows, r->n_rows, r->times);
}

/* Keep a rank's newest `steps` rows. */
static void keep_newest(struct straggler_rank *r, uint64_t steps)
{
    if (r->n_rows <= steps)
        return;
    memmove(r->rows, r->rows + (r->n_rows - steps), steps * sizeof(*r->rows));
    r->n_rows = (uint32_t)steps;
}

/* The newest steps, whole. */
static int read_newest(struct straggler_job *j)
{
    int64_t newest_ns = 0;
    double step_sec = 0;
    uint64_t most = ROWS_MAX / j->n_ranks;
    uint64_t steps = j->o->last_steps > 0 ? j->o->last_steps : STEPS;
    int rc = find_middle(j, &newest_ns, &step_sec);
    if (j->o->last_ns > 0 && step_sec > 0)
        steps = (uint64_t)((double)j->o->last_ns / 1e9 / step_sec) + 1;
    j->cut = steps > most && (j->o->last_ns > 0 || j->o->last_steps > 0);
    steps = steps > most ? most : steps;
    double span_sec = (double)steps * step_sec * MARGIN;
    for (int i = 0; rc == 0 && i < TRIES; i++) {
        int64_t last_ns = j->cut ? 0 : (int64_t)j->o->last_ns;
        j->begin_ns = newest_ns - (last_ns > 0 ? last_ns : (int64_t)(span_sec * 1e9) + 1);
        rc = ask_rows(j);
        if (last_ns > 0 || middle_rows(j) >= steps || !has_older(j))
            break;
        span_sec *= 2.0 * (double)steps / (double)(middle_rows(j) + 1) > 8 ? 8 : 2;
    }
    step_sec = middle_step(j);
    for (uint32_t i = 0; rc == 0 && i < j->n_ranks; i++) {
        join_steps(&j->ranks[i], step_sec);
        if (j->o->last_ns == 0 || j->cut)
            keep_newest(&j->ranks[i], steps);
    }
    return rc;
}

/* Long steps of the hour before, of which the new ones say what is long. */
static void read_long(struct straggler_job *j)
{
    char sql[700];
    int64_t first_ns = INT64_MAX;
    double step_sec = middle_step(j);
    for (uint32_t i = 0; i < j->n_ranks; i++)
        if (j->ranks[i].n_rows > 0 && j->ranks[i].rows[0].end_ns < first_ns)
            first_ns = j->ranks[i].rows[0].end_ns;
    if (!(step_sec > 0) || j->o->last_steps > 0 || j->o->last_ns > 0 || !has_older(j))
        return;
    j->long_begin_ns = first_ns - LONG_NS;
    (void)snprintf(
        sql, sizeof(sql), ROW " and ts < to_timestamp(%.6f) and step_duration_sec > %.6f",
        (double)j->long_begin_ns / 1e9, (double)first_ns / 1e9 - 1e-5, LONG_STEP * step_sec);
    if (j->o->api->ask(j->o->api, sql, take_row, j) < 0)
        j->long_begin_ns = 0; /* the newest will do, and that is what is said */
    for (uint32_t i = 0; i < j->n_ranks; i++)
        sort_rows(&j->ranks[i]);
}

/* ---- lined up ---- */

/* Steps to line others up with; joined ones have no numbers that anybody knows. */
static uint32_t fit_rows(const struct straggler_rank *r)
{
    return r->why[0] != '\0' || r->times > 1 ? 0 : r->n_rows;
}

/* Find the rank to line the others up with: the one that has most steps. */
static uint32_t find_reference(const struct straggler_job *j)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < j->n_ranks; i++)
        if (fit_rows(&j->ranks[i]) > fit_rows(&j->ranks[best]))
            best = i;
    return best;
}

static uint32_t line_up_with(struct straggler_job *j, uint32_t reference)
{
    const struct straggler_rank *with = &j->ranks[reference];
    uint32_t n = 0;
    for (uint32_t i = 0; i < j->n_ranks; i++) {
        struct straggler_rank *r = &j->ranks[i];
        r->judged = i == reference;
        r->shift = 0;
        if (r->why[0] != '\0')
            continue;
        if (r->n_rows > 0 && i != reference)
            r->judged = judge_line_up(with->rows, with->n_rows, r->rows, r->n_rows, &r->shift);
        n += r->judged;
    }
    return n;
}

/* With the one that most ranks step with, of some that are tried. */
static uint32_t line_up(struct straggler_job *j)
{
    uint32_t best = find_reference(j), most = line_up_with(j, best);
    for (uint32_t i = 0; i < j->n_ranks && 2 * most <= j->n_ranks && i < 8; i++) {
        uint32_t other = (uint32_t)((uint64_t)i * j->n_ranks / 8);
        uint32_t n = fit_rows(&j->ranks[other]) > 0 ? line_up_with(j, other) : 0;
        if (n > most) {
            most = n;
            best = other;
        }
    }
    (void)line_up_with(j, best);
    for (uint32_t i = 0; i < j->n_ranks; i++) {
        struct straggler_rank *r = &j->ranks[i];
        if (r->judged || r->why[0] != '\0')
            continue;
        double before_sec = (double)(j->ranks[best].newest_ns - r->newest_ns) / 1e9;
        if (r->n_rows == 0 && before_sec >= 1)
            (void)snprintf(r->why, sizeof(r->why),
                           "no step of it has ended in this time, and its last one ended %.0f s "
                           "before the others'",
                           before_sec);
        else if (r->n_rows > 0 && r->n_rows < JUDGE_STEPS_MIN)
            (void)snprintf(r->why, sizeof(r->why), "it has made %u steps in this time only",
                           r->n_rows);
        else if (r->n_rows == 0)
            (void)snprintf(r->why, sizeof(r->why), "no step of it has ended in this time");
        else
            (void)snprintf(r->why, sizeof(r->why),
                           "its steps are not the others' steps: it makes %.1f while they make "
                           "one, or their lengths differ; probing.step(n) in the program can "
                           "number them",
                           mean_step(&j->ranks[best]) / mean_step(r));
    }
    return best;
}

static int fill_rows(struct straggler_job *j, uint32_t reference)
{
    const struct straggler_rank *with = &j->ranks[reference];
    uint32_t n = 0;
    for (uint32_t i = 0; i < j->n_ranks; i++)
        n += j->ranks[i].judged;
    size_t cells = (size_t)n * with->n_rows;
    j->index = calloc(n, sizeof(*j->index));
    j->numbers = calloc(with->n_rows + 1u, sizeof(*j->numbers));
    j->ends_ns = calloc(with->n_rows + 1u, sizeof(*j->ends_ns));
    j->steps = calloc(cells + 1, sizeof(*j->steps));
    j->signs = calloc((size_t)n * N_SIGNS, sizeof(*j->signs));
    if (!j->index || !j->numbers || !j->ends_ns || !j->steps || !j->signs)
        return report_fail(j->o->api, -ENOMEM, "no memory for %zu steps", cells);
    uint32_t waits = 0;
    j->n_numbers = with->n_rows;
    for (uint32_t s = 0; s < with->n_rows; s++) {
        j->numbers[s] = with->rows[s].number;
        j->ends_ns[s] = with->rows[s].end_ns;
        waits += with->rows[s].waits;
    }
    j->blind = 2 * waits < with->n_rows;
    for (size_t i = 0; i < cells; i++)
        j->steps[i].whole = NAN;
    for (size_t i = 0; i < (size_t)n * N_SIGNS; i++)
        j->signs[i] = (double)NAN;
    for (uint32_t i = 0; i < j->n_ranks; i++) {
        struct straggler_rank *r = &j->ranks[i];
        uint32_t at = 0;
        if (!r->judged)
            continue;
        struct judge_step *steps = j->steps + (size_t)j->n_judged * j->n_numbers;
        j->index[j->n_judged++] = i;
        for (uint32_t k = 0; k < r->n_rows; k++) {
            while (at < j->n_numbers && j->numbers[at] < r->rows[k].number + r->shift)
                at++;
            if (at < j->n_numbers && j->numbers[at] == r->rows[k].number + r->shift)
                steps[at] = r->rows[k].step;
        }
        free(r->rows);
        r->rows = NULL;
        r->room = 0;
    }
    return 0;
}

int straggler_read(struct straggler_job *j)
{
    int rc = read_ranks(j);
    if (rc == 0)
        rc = read_newest(j);
    if (rc < 0)
        return rc;
    read_long(j);
    return fill_rows(j, line_up(j));
}

struct straggler_means straggler_means_of(const struct straggler_job *j, uint32_t judged)
{
    struct straggler_means m = {.n = 0};
    for (uint32_t s = 0; s < j->n_numbers; s++) {
        const struct judge_step *step = &j->steps[(size_t)judged * j->n_numbers + s];
        if (isnan(step->whole))
            continue;
        m.whole += step->whole;
        for (int p = 0; p < N_PARTS; p++)
            m.parts[p] += step->parts[p];
        m.n++;
    }
    m.whole /= m.n > 0 ? m.n : 1;
    for (int p = 0; p < N_PARTS; p++)
        m.parts[p] /= m.n > 0 ? m.n : 1;
    return m;
}

void straggler_done(struct straggler_job *j)
{
    for (uint32_t i = 0; i < j->n_ranks; i++)
        free(j->ranks[i].rows);
    free(j->ranks);
    free(j->index);
    free(j->numbers);
    free(j->ends_ns);
    free(j->steps);
    free(j->backwards);
    free(j->waits);
    free(j->signs);
    free(j->links);
    free(j->nodes);
}
