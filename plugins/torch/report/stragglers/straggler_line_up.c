/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/report/stragglers/straggler_line_up.c - whose step is whose: ranks count their
 * steps from when plugin torch came to them, so their numbers may be apart.
 *
 * Pure; one thread.
 */
#include <math.h>
#include <stdlib.h>

#include "straggler_frontier.h"

#define LOOKED 256u     /* rows, at most */
#define NEAR 3          /* steps that the clocks may have misled us by */
#define COMMON_MIN 8u   /* steps, to compare durations */
#define MUCH_BETTER 0.7 /* as alike: then durations say more than clocks */
#define SAME_PACE 0.1   /* of the time, that steps made together may differ by in all */
#define KEPT_SHARE 0.9  /* of the rows, that one shift must be right for */

/* Index of the row of that number, or of the first one behind it. */
static uint32_t find_number(const struct judge_row *rows, uint32_t n, int64_t number)
{
    uint32_t from = 0, to = n;
    while (from < to) {
        uint32_t middle = from + (to - from) / 2;
        if (rows[middle].number < number)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

static const struct judge_row *row_of(const struct judge_row *rows, uint32_t n, int64_t number)
{
    uint32_t at = find_number(rows, n, number);
    return at < n && rows[at].number == number ? &rows[at] : NULL;
}

/* Which of `times` rows, counted from the first one, waits longest for the others? */
static uint32_t waits_most(const struct judge_row *rows, uint32_t n, uint32_t times)
{
    uint32_t best = 0;
    double most = -1;
    for (uint32_t i = 0; i < times; i++) {
        double sum = 0;
        for (uint32_t k = i; k < n; k += times)
            sum += (double)rows[k].step.parts[PART_COMM];
        if (sum > most) {
            most = sum;
            best = i;
        }
    }
    return best;
}

uint32_t judge_join_rows(struct judge_row *rows, uint32_t n, uint32_t times)
{
    uint32_t from = (waits_most(rows, n, times) + 1) % times, joined = 0;
    for (; n - from >= times; from += times) {
        struct judge_row row = rows[from + times - 1];
        for (uint32_t i = from; i < from + times - 1; i++) {
            row.step.whole += rows[i].step.whole;
            for (int p = 0; p < N_PARTS; p++)
                row.step.parts[p] += rows[i].step.parts[p];
        }
        row.number = joined;
        row.global = INT64_MIN;
        rows[joined++] = row;
    }
    return joined;
}

/* By the program's own numbers, where both give them; false: they do not. */
static bool by_global(const struct judge_row *a, uint32_t n_a, const struct judge_row *b,
                      uint32_t n_b, int64_t *ret)
{
    const struct judge_row *last = &b[n_b - 1];
    uint32_t same = 0, of = 0;
    if (last->global == INT64_MIN || b[0].global == last->global)
        return false;
    uint32_t at = n_a;
    while (at > 0 && a[at - 1].global != last->global)
        at--;
    if (at == 0)
        return false;
    *ret = a[at - 1].number - last->number;
    for (uint32_t i = n_b > LOOKED ? n_b - LOOKED : 0; i < n_b; i++) {
        const struct judge_row *other = row_of(a, n_a, b[i].number + *ret);
        of += other != NULL;
        same += other != NULL && other->global == b[i].global;
    }
    return of > 0 && same >= KEPT_SHARE * of;
}

static uint32_t nearest_in_time(const struct judge_row *rows, uint32_t n, int64_t end_ns)
{
    uint32_t from = 0, to = n - 1;
    while (from < to) {
        uint32_t middle = from + (to - from) / 2;
        if (rows[middle].end_ns < end_ns)
            from = middle + 1;
        else
            to = middle;
    }
    bool before = from > 0 && end_ns - rows[from - 1].end_ns < rows[from].end_ns - end_ns;
    return before ? from - 1 : from;
}

/* By when steps ended, clocks as they are.  false: at no time both made steps, or not at one
 * pace. */
static bool by_time(const struct judge_row *a, uint32_t n_a, const struct judge_row *b,
                    uint32_t n_b, int64_t *ret)
{
    float shifts[LOOKED];
    uint32_t n = 0, kept = 0;
    int64_t base = a[0].number - b[0].number; /* floats are exact for what differs from it */
    for (uint32_t i = n_b > LOOKED ? n_b - LOOKED : 0; i < n_b; i++) {
        if (b[i].end_ns < a[0].end_ns || b[i].end_ns > a[n_a - 1].end_ns)
            continue;
        uint32_t at = nearest_in_time(a, n_a, b[i].end_ns);
        shifts[n++] = (float)(a[at].number - b[i].number - base);
    }
    if (n < COMMON_MIN)
        return false;
    float middle = middle_of(shifts, n);
    for (uint32_t i = 0; i < n; i++)
        kept += fabsf(shifts[i] - middle) <= 1;
    *ret = base + (int64_t)middle;
    return kept >= KEPT_SHARE * n;
}

/* How much durations differ when b's numbers are shifted so, of a step; ret_pace: in all. */
static double difference_at(const struct judge_row *a, uint32_t n_a, const struct judge_row *b,
                            uint32_t n_b, int64_t shift, double *ret_pace)
{
    double apart = 0, sum_a = 0, sum_b = 0;
    uint32_t n = 0;
    for (uint32_t i = n_b; i > 0 && n < LOOKED; i--) {
        const struct judge_row *other = row_of(a, n_a, b[i - 1].number + shift);
        if (other == NULL)
            continue;
        apart += fabs((double)other->step.whole - (double)b[i - 1].step.whole);
        sum_a += other->step.whole;
        sum_b += b[i - 1].step.whole;
        n++;
    }
    if (n < COMMON_MIN || sum_a <= 0) {
        *ret_pace = INFINITY;
        return INFINITY;
    }
    *ret_pace = fabs(sum_a - sum_b) / sum_a;
    return apart / sum_a;
}

bool judge_line_up(const struct judge_row *a, uint32_t n_a, const struct judge_row *b, uint32_t n_b,
                   int64_t *ret_shift)
{
    int64_t shift = 0;
    double pace, best, now;
    if (n_a == 0 || n_b == 0)
        return false;
    if (by_global(a, n_a, b, n_b, &shift)) {
        *ret_shift = shift;
        return true;
    }
    bool timed = by_time(a, n_a, b, n_b, &shift);
    int64_t base = timed ? shift : 0;
    best = difference_at(a, n_a, b, n_b, base, &pace) * (timed ? MUCH_BETTER : 1);
    shift = base;
    for (int64_t by = -NEAR; by <= NEAR; by++) {
        now = difference_at(a, n_a, b, n_b, base + by, &pace);
        if (by != 0 && now < best) {
            best = now;
            shift = base + by;
        }
    }
    now = difference_at(a, n_a, b, n_b, /* as they are= */ 0, &pace);
    if (timed && now < best * MUCH_BETTER)
        shift = 0;
    (void)difference_at(a, n_a, b, n_b, shift, &pace);
    *ret_shift = shift;
    return pace <= SAME_PACE;
}
