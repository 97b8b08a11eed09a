/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/exec/window_value.c - what a window function gives for one row, from the rows of its
 * frame.
 *
 * A frame that only grows is added to; of one that slides, what leaves is taken away where that is
 * exact (counts, sums of integers), else it is computed afresh for each row, under the query's
 * limits.  The query's thread only.
 */
#include "core/sql/exec/window_run.h"

#include <errno.h>

#define CHECK_EVERY 16384 /* rows added to frames between looks at the limits */

static void put_null(const struct win *f, uint32_t row)
{
    sql_set_null(out_of(f, row), row % SQL_ROWS);
}

/* Copy a cell; both are kept as long as the query. */
static void put_cell(const struct win *f, uint32_t row, const struct vec *from, uint32_t i)
{
    struct vec *to = out_of(f, row);
    if (sql_is_null(from, i))
        sql_set_null(to, row % SQL_ROWS);
    else if (sql_is_textual(to->type))
        to->t[row % SQL_ROWS] = from->t[i];
    else
        to->i[row % SQL_ROWS] = from->i[i];
}

static int aggregate_rows(struct op *op, const struct win *f, struct agg *agg, uint32_t from,
                          uint32_t to)
{
    struct window *w = op->state;
    for (uint32_t at = from; at < to; at++) {
        uint32_t r = w->order[at], c = f->first_col;
        struct vec *chunk = w->rows.chunks[r / SQL_ROWS];
        struct vec *arg = f->spec->n_args ? &chunk[c] : NULL;
        struct vec *filter = f->spec->filter ? &chunk[c + f->spec->n_args] : NULL;
        int rc = sql_agg_one_add(op->q, agg, arg, filter, (uint16_t)(r % SQL_ROWS));
        if (rc == 0 && ++w->n_checks % CHECK_EVERY == 0)
            rc = sql_check(op->q);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int aggregate_frame(struct op *op, const struct win *f, struct part *p, uint32_t at)
{
    struct window *w = op->state;
    struct frame frame;
    uint32_t row = w->order[at];
    sql_frame_of(w, f, p, at, &frame);
    uint32_t from = frame.from[0], to = frame.to[0];
    bool whole = f->spec->exclude == EXCLUDE_NOTHING;
    if (whole && p->any && from == p->from && to == p->to && at > p->first) {
        uint32_t before = w->order[at - 1];
        put_cell(f, row, out_of(f, before), before % SQL_ROWS);
        return 0;
    }
    int rc = 0;
    if (!whole || !p->any || from < p->from || to < p->to || from >= p->to ||
        (from != p->from && !sql_agg_one_can_remove(p->agg))) {
        sql_agg_one_reset(p->agg);
        p->from = p->to = from;
    }
    for (; p->from < from && rc == 0; p->from++) {
        uint32_t r = w->order[p->from], c = f->first_col;
        struct vec *chunk = w->rows.chunks[r / SQL_ROWS];
        sql_agg_one_remove(p->agg, f->spec->n_args ? &chunk[c] : NULL,
                           f->spec->filter ? &chunk[c + f->spec->n_args] : NULL,
                           (uint16_t)(r % SQL_ROWS));
        rc = ++w->n_checks % CHECK_EVERY == 0 ? sql_check(op->q) : 0;
    }
    if (rc == 0)
        rc = aggregate_rows(op, f, p->agg, p->to, to);
    for (uint32_t i = 1; i < frame.n && rc == 0; i++)
        rc = aggregate_rows(op, f, p->agg, frame.from[i], frame.to[i]);
    p->any = whole;
    p->from = from;
    p->to = to;
    return rc < 0 ? rc : sql_agg_one_get(op->q, p->agg, out_of(f, row), row % SQL_ROWS);
}

/* The integer argument number i of a row; false: NULL. */
static bool count_arg(const struct window *w, const struct win *f, uint32_t row, uint32_t i,
                      int64_t *ret)
{
    const struct vec *v = cell(w, row, f->first_col + i);
    *ret = v->i[row % SQL_ROWS];
    return !v->null[row % SQL_ROWS];
}

/* Find the nth row with a value, backwards where n < 0; UINT32_MAX: there are not so many. */
static int nth_valued(struct op *op, const struct win *f, const struct part *p, int64_t at,
                      int64_t n, uint32_t *ret)
{
    const struct window *w = op->state;
    int step = n < 0 ? -1 : 1;
    uint64_t left = n < 0 ? 0 - (uint64_t)n : (uint64_t)n, steps = 0;
    *ret = UINT32_MAX;
    for (int64_t i = at + step; left && i >= p->first && i < p->end; i += step, steps++) {
        uint32_t r = w->order[i];
        const struct vec *v = cell(w, r, f->first_col);
        left -= v->type != SQL_NULL && !v->null[r % SQL_ROWS];
        *ret = left ? UINT32_MAX : r;
    }
    return sql_worked(op->q, steps);
}

/* The same in a frame, counted from 0; `last`: the last one. */
static int valued_in_frame(struct op *op, const struct win *f, const struct frame *frame,
                           uint64_t place, bool last, uint32_t *ret)
{
    const struct window *w = op->state;
    uint64_t steps = 0;
    *ret = UINT32_MAX;
    for (uint32_t i = 0; i < frame->n; i++) {
        for (uint32_t at = frame->from[i]; at < frame->to[i]; at++, steps++) {
            uint32_t r = w->order[at];
            const struct vec *v = cell(w, r, f->first_col);
            if (v->type == SQL_NULL || v->null[r % SQL_ROWS])
                continue;
            if (last || place == 0)
                *ret = r;
            if (!last && place-- == 0)
                return sql_worked(op->q, steps);
        }
    }
    return sql_worked(op->q, steps);
}

/* lag(x, n[, default]), lead */
static int shifted_row(struct op *op, const struct win *f, const struct part *p, uint32_t at,
                       int64_t n)
{
    const struct window *w = op->state;
    uint32_t row = w->order[at], found = UINT32_MAX;
    int64_t place;
    bool back = f->spec->fn == WIN_LAG;
    bool over = back ? __builtin_sub_overflow((int64_t)at, n, &place)
                     : __builtin_add_overflow((int64_t)at, n, &place);
    if (!over && f->spec->skips_null && n != 0) {
        int rc = nth_valued(op, f, p, at, back ? -n : n, &found);
        if (rc < 0)
            return rc;
    } else if (!over && place >= p->first && place < p->end) {
        found = w->order[place];
    }
    if (found != UINT32_MAX)
        put_cell(f, row, cell(w, found, f->first_col), found % SQL_ROWS);
    else if (f->spec->n_args > 2)
        put_cell(f, row, cell(w, row, f->first_col + 2), row % SQL_ROWS);
    else
        put_null(f, row);
    return 0;
}

static int value_at(struct op *op, const struct win *f, const struct part *p, uint32_t at)
{
    const struct window *w = op->state;
    uint32_t row = w->order[at];
    int64_t n = 1;
    bool given = f->spec->n_args < 2 || count_arg(w, f, row, 1, &n);
    if (f->spec->fn == WIN_LAG || f->spec->fn == WIN_LEAD) {
        if (given)
            return shifted_row(op, f, p, at, n);
        put_null(f, row);
        return 0;
    }
    if (f->spec->fn == WIN_NTH && given && n < 1)
        return sql_error(op->q->text, op->q->size, f->expr->pos, -EINVAL,
                         "nth_value counts from 1");
    struct frame frame;
    uint64_t size = 0;
    sql_frame_of(w, f, p, at, &frame);
    for (uint32_t i = 0; i < frame.n; i++)
        size += frame.to[i] - frame.from[i];
    uint64_t place = f->spec->fn == WIN_LAST ? size - 1 : (uint64_t)n - 1;
    if (given && f->spec->skips_null) {
        uint32_t found;
        int rc = valued_in_frame(op, f, &frame, place, f->spec->fn == WIN_LAST, &found);
        if (found == UINT32_MAX)
            put_null(f, row);
        else
            put_cell(f, row, cell(w, found, f->first_col), found % SQL_ROWS);
        return rc;
    }
    if (!given || place >= size) {
        put_null(f, row);
        return 0;
    }
    uint32_t i = 0;
    for (; place >= frame.to[i] - frame.from[i]; i++)
        place -= frame.to[i] - frame.from[i];
    uint32_t r = w->order[frame.from[i] + place];
    put_cell(f, row, cell(w, r, f->first_col), r % SQL_ROWS);
    return 0;
}

static int tile_at(struct op *op, const struct win *f, const struct part *p, uint32_t at)
{
    const struct window *w = op->state;
    uint32_t row = w->order[at];
    int64_t tiles, i = at - p->first, n = p->end - p->first;
    if (!count_arg(w, f, w->order[p->first], 0, &tiles)) {
        put_null(f, row);
        return 0;
    }
    if (tiles < 1)
        return sql_error(op->q->text, op->q->size, f->expr->pos, -EINVAL,
                         "ntile makes at least one tile");
    int64_t small = n / tiles, large = n % tiles; /* the first `large` tiles have one row more */
    int64_t in_large = large * (small + 1);
    int64_t tile = i < in_large ? i / (small + 1) : large + (i - in_large) / small;
    out_of(f, row)->i[row % SQL_ROWS] = tile + 1;
    return 0;
}

int sql_window_row(struct op *op, const struct win *f, struct part *p, uint32_t at)
{
    struct window *w = op->state;
    uint32_t row = w->order[at], i = row % SQL_ROWS;
    struct vec *out = out_of(f, row);
    double n = (double)(p->end - p->first);
    switch (f->spec->fn) {
    case WIN_ROW_NUMBER:
        out->i[i] = at - p->first + 1;
        return 0;
    case WIN_RANK:
        out->i[i] = p->peer - p->first + 1;
        return 0;
    case WIN_DENSE_RANK:
        out->i[i] = p->dense;
        return 0;
    case WIN_PERCENT_RANK:
        out->d[i] = n > 1 ? (double)(p->peer - p->first) / (n - 1) : 0;
        return 0;
    case WIN_CUME_DIST:
        out->d[i] = (double)(p->peer_end - p->first) / n;
        return 0;
    case WIN_NTILE:
        return tile_at(op, f, p, at);
    case WIN_LAG:
    case WIN_LEAD:
    case WIN_FIRST:
    case WIN_LAST:
    case WIN_NTH:
        return value_at(op, f, p, at);
    case WIN_AGG:
        return aggregate_frame(op, f, p, at);
    }
    return 0;
}
