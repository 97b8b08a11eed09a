/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/exec/agg_number.c - sum, avg, min and max of numbers: where long questions spend their
 * time.
 *
 * Whole numbers are summed in 128 bits.  Where the store says how large they are, 64 are enough for
 * many batches, and the state takes what has come together now and then.  Without group by there
 * is one state, kept in registers over a batch.  The query's thread, or its helper's.
 */
#include <math.h>
#include <string.h>

#include "core/sql/exec/agg.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3") /* gcc 12 leaves these loops scalar at -O2 */
#endif

#define PART_MOST (UINT64_C(1) << 62) /* what a part may come to */
#define LANES 4                       /* sums side by side: an addition waits for the one before */

typedef double lanes __attribute__((vector_size(LANES * sizeof(double))));

/* The selected values in a row: in place, or in the room given. */
static const void *in_a_row(const struct vec *v, const uint16_t *sel, uint32_t n, uint64_t *room)
{
    const uint64_t *words = v->data;
    if (!sel)
        return words;
    for (uint32_t k = 0; k < n; k++)
        room[k] = words[sel[k]];
    return room;
}

/* ---- sums ---- */

/* Rounding errors are summed up apart (Knuth, Neumaier): the sum of doubles is right to the last
 * digit and, but for one in many millions, the same in whatever order they come. */
void sql_agg_add_exactly(struct state *s, double x)
{
    double sum = s->sum + x, of_x = sum - s->sum;
    if (isfinite(sum))
        s->rest += (s->sum - (sum - of_x)) + (x - of_x);
    else if (isfinite(s->sum))
        s->rest = isfinite(x) ? SUM_TOO_LARGE : 0;
    s->sum = sum;
}

static void sum_doubles(struct state *s, const double *v, uint32_t n)
{
    lanes sum = {0}, rest = {0};
    uint32_t i = 0;
    bool finite = true;
    for (; i + LANES <= n; i += LANES) {
        lanes x;
        memcpy(&x, v + i, sizeof(x));
        lanes more = sum + x, of_x = more - sum;
        rest += (sum - (more - of_x)) + (x - of_x);
        sum = more;
    }
    for (uint32_t l = 0; l < LANES; l++)
        finite = finite && isfinite(sum[l]);
    for (uint32_t l = 0; l < LANES && finite; l++) {
        sql_agg_add_exactly(s, sum[l]);
        s->rest += rest[l];
    }
    i = finite ? i : 0;
    for (; i < n; i++)
        sql_agg_add_exactly(s, v[i]);
}

/* Can n more values of the vector be added to the parts? */
static bool fits_part(struct agg *a, uint32_t n)
{
    uint64_t most = a->arg->most;
    if (!most || most > PART_MOST / n || !a->counted)
        return false;
    if (a->part_most + most * n > PART_MOST)
        sql_agg_fold_parts(a);
    a->part_most += most * n;
    return true;
}

void sql_agg_fold_parts(struct agg *a)
{
    for (uint32_t i = 0; i < a->room && a->part_most; i++) {
        a->states[i].whole += a->states[i].part;
        a->states[i].part = 0;
    }
    a->part_most = 0;
}

static void sum_alone(struct agg *a, const uint16_t *sel, uint32_t n)
{
    uint64_t room[SQL_ROWS];
    struct state *s = &a->states[0];
    const void *values = in_a_row(a->arg, sel, n, room);
    const int64_t *v = values;
    s->n += a->counted ? 0 : n;
    if (a->arg->type == SQL_DOUBLE) {
        sum_doubles(s, values, n);
    } else if (a->arg->most && a->arg->most <= PART_MOST / n) {
        uint64_t sum = 0;
        for (uint32_t i = 0; i < n; i++)
            sum += (uint64_t)v[i];
        s->whole += (int64_t)sum;
    } else {
        __int128 sum = 0;
        for (uint32_t i = 0; i < n; i++)
            sum += v[i];
        s->whole += sum;
    }
}

void sql_agg_add_sums(struct agg *a, const uint16_t *sel, const uint32_t *groups, uint32_t n)
{
    struct state *states = a->states;
    const int64_t *v = a->arg->i;
    const double *d = a->arg->d;
    if (a->alone)
        sum_alone(a, sel, n);
    else if (a->arg->type == SQL_DOUBLE && a->counted)
        EACH(sql_agg_add_exactly(s, d[i]););
    else if (a->arg->type == SQL_DOUBLE)
        EACH(s->n++; sql_agg_add_exactly(s, d[i]););
    else if (fits_part(a, n))
        EACH(s->part += v[i];);
    else if (a->counted)
        EACH(s->whole += v[i];);
    else
        EACH(s->n++; s->whole += v[i];);
}

/* ---- extremes ---- */

/* Four numbers in a row go side by side: the loop over single ones waits for each comparison. */
#define EXTREME(name, type, from, better)                               \
    static type name(const type *v, uint32_t n)                         \
    {                                                                   \
        type best[LANES] = {from, from, from, from};                    \
        uint32_t i = 0;                                                 \
        for (; i + LANES <= n; i += LANES)                              \
            for (uint32_t l = 0; l < LANES; l++)                        \
                best[l] = v[i + l] better best[l] ? v[i + l] : best[l]; \
        for (; i < n; i++)                                              \
            best[0] = v[i] better best[0] ? v[i] : best[0];             \
        for (uint32_t l = 1; l < LANES; l++)                            \
            best[0] = best[l] better best[0] ? best[l] : best[0];       \
        return best[0];                                                 \
    }
EXTREME(least_double, double, INFINITY, <)
EXTREME(greatest_double, double, -INFINITY, >)
EXTREME(least_int, int64_t, INT64_MAX, <)
EXTREME(greatest_int, int64_t, INT64_MIN, >)
#undef EXTREME

static uint32_t count_nan(const double *v, uint32_t n)
{
    uint32_t nan = 0;
    for (uint32_t i = 0; i < n; i++)
        nan += v[i] != v[i];
    return nan;
}

/* One value that stands for all n. */
static void extreme_alone(struct agg *a, bool min, const uint16_t *sel, uint32_t n)
{
    uint64_t room[SQL_ROWS];
    struct state *s = &a->states[0];
    const void *values = in_a_row(a->arg, sel, n, room);
    if (a->arg->type == SQL_DOUBLE) { /* NaN is the largest */
        uint32_t nan = count_nan(values, n);
        double d = nan == n || (nan && !min) ? NAN
                   : min                     ? least_double(values, n)
                                             : greatest_double(values, n);
        if (s->n == 0 || (min ? d < s->d || s->d != s->d : d > s->d || d != d))
            s->d = d;
    } else {
        int64_t i = min ? least_int(values, n) : greatest_int(values, n);
        if (s->n == 0 || (min ? i < s->i : i > s->i))
            s->i = i;
    }
    s->n += n;
}

void sql_agg_add_extremes(struct agg *a, const uint16_t *sel, const uint32_t *groups, uint32_t n)
{
    struct state *states = a->states;
    bool min = a->spec->kind->op == AGG_MIN;
    const double *d = a->arg->d;
    const int64_t *v = a->arg->i;
    if (a->alone)
        extreme_alone(a, min, sel, n);
    else if (a->arg->type == SQL_DOUBLE && min)
        EACH(if (s->n == 0 || d[i] < s->d || s->d != s->d) s->d = d[i]; s->n++;);
    else if (a->arg->type == SQL_DOUBLE)
        EACH(if (s->n == 0 || d[i] > s->d || d[i] != d[i]) s->d = d[i]; s->n++;);
    else if (min)
        EACH(if (s->n == 0 || v[i] < s->i) s->i = v[i]; s->n++;);
    else
        EACH(if (s->n == 0 || v[i] > s->i) s->i = v[i]; s->n++;);
}
