/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/window.c - functions over windows, computed: rows in order, frames, values.
 *
 * The rows are kept, put in order once for each window, and given on as they came with a column
 * more for each.  A frame that only grows is added to; of one that slides, what leaves is taken
 * away where that is exact (counts, sums of integers), else it is computed afresh for each row,
 * under the query's limits.  The query's thread only.
 */
#include "core/sql/window.h"

#include <errno.h>
#include <string.h>

#define WINDOWS_MAX 64    /* in one select */
#define CHECK_EVERY 16384 /* rows added to frames between looks at the limits */

struct win { /* one window function at work */
    const struct expr *expr;
    const struct win_spec *spec;
    uint32_t first_col; /* of its arguments among the columns kept */
    struct vec *out;    /* a vector a chunk, by the row's own place */
};

struct window {
    struct program *program;
    struct vec **results;
    enum sql_type *types;
    struct rowset rows;
    uint32_t n_kept; /* columns of the child that are given on */
    uint32_t *kept;
    struct win *wins;
    uint32_t n_wins;
    uint32_t *order;
    uint32_t next_chunk, n_checks;
    bool ready;
};

/* ---- rows in order ---- */

static const struct vec *cell(const struct window *w, uint32_t row, uint32_t column)
{
    return &w->rows.chunks[row / SQL_ROWS][column];
}

static int compare_by(const struct window *w, const struct win *f, uint32_t a, uint32_t b)
{
    uint32_t first = f->first_col + f->spec->n_args + f->spec->filter + f->spec->n_partition;
    uint32_t n = f->spec->n_order;
    for (uint32_t c = 0; c < n; c++) {
        int r = sql_compare_cells(cell(w, a, first + c), a % SQL_ROWS, cell(w, b, first + c),
                                  b % SQL_ROWS, &f->spec->order[c]);
        if (r)
            return r;
    }
    return 0;
}

struct sorting {
    const struct window *w;
    const struct win *f;
};

static int compare_rows(uint32_t a, uint32_t b, void *arg)
{
    const struct sorting *s = arg;
    return compare_by(s->w, s->f, a, b);
}

static void row_prefix(uint32_t row, void *arg, uint64_t ret[2])
{
    const struct sorting *s = arg;
    const struct win_spec *spec = s->f->spec;
    uint32_t c = s->f->first_col + spec->n_args + spec->filter + spec->n_partition;
    ret[0] = sql_cell_prefix(cell(s->w, row, c), row % SQL_ROWS, &spec->order[0]);
    if (spec->n_order > 1 && sql_is_whole_prefix(cell(s->w, row, c), ret[0]))
        ret[1] = sql_cell_prefix(cell(s->w, row, c + 1), row % SQL_ROWS, &spec->order[1]);
}

/* The rows into w->order partition by partition, as they came; where each begins in *ret_starts,
 * and how many there are in *ret_n. */
static int find_partitions(struct op *op, const struct win *f, uint32_t **ret_starts,
                           uint32_t *ret_n)
{
    struct window *w = op->state;
    struct query *q = op->q;
    uint32_t n = w->rows.n, n_keys = f->spec->n_partition;
    uint32_t first = f->first_col + f->spec->n_args + f->spec->filter;
    uint32_t *numbers = sql_get(q, (size_t)w->rows.n_chunks * SQL_ROWS, sizeof(*numbers));
    struct keys *keys = sql_get(q, 1, sizeof(*keys));
    struct vec *v[SQL_CALL_ARGS];
    int rc = numbers && keys ? 0 : -ENOMEM;
    if (rc == 0 && n_keys)
        rc = sql_keys_init(keys, q, &w->types[first], NULL, n_keys);
    for (uint32_t c = 0; c < w->rows.n_chunks && rc == 0 && n_keys; c++) {
        uint32_t some = n - c * SQL_ROWS < SQL_ROWS ? n - c * SQL_ROWS : SQL_ROWS;
        for (uint32_t k = 0; k < n_keys; k++)
            v[k] = &w->rows.chunks[c][first + k];
        rc = sql_keys_add(keys, v, NULL, some, numbers + (size_t)c * SQL_ROWS);
        if (rc == 0)
            rc = sql_check(q);
    }
    uint32_t count = n_keys && rc == 0 ? keys->n : n > 0;
    uint32_t *starts = rc < 0 ? NULL : sql_get(q, (size_t)count + 2, sizeof(*starts));
    if (!starts)
        return rc < 0 ? rc : -ENOMEM;
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        starts[numbers[i] + 2]++;
        rc = sql_worked(q, 1);
    }
    for (uint32_t p = 0; p < count; p++)
        starts[p + 2] += starts[p + 1];
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        w->order[starts[numbers[i] + 1]++] = i;
        rc = sql_worked(q, 1);
    }
    *ret_starts = starts;
    *ret_n = count;
    return rc;
}

/* ---- values ---- */

struct part { /* a partition: places first to end - 1 of the order */
    uint32_t first, end;
    uint32_t peer, peer_end; /* rows equal in order with the one at hand */
    uint32_t dense;
    uint32_t *groups; /* GROUPS: where each group of peers begins, and the end; NULL: not asked */
    uint32_t n_groups;
    /* What the frame of an aggregate holds by now. */
    struct agg *agg;
    uint32_t from, to;
    bool any;
};

static struct vec *out_of(const struct win *f, uint32_t row)
{
    return &f->out[row / SQL_ROWS];
}

static void put_null(const struct win *f, uint32_t row)
{
    sql_set_null(out_of(f, row), row % SQL_ROWS);
}

/* Copy a cell; both are kept as long as the query. */
static void put_cell(const struct win *f, uint32_t row, const struct vec *from, uint32_t i)
{
    struct vec *to = out_of(f, row);
    if (from->type == SQL_NULL || (from->has_null && from->null[i]))
        sql_set_null(to, row % SQL_ROWS);
    else if (sql_is_textual(to->type))
        to->t[row % SQL_ROWS] = from->t[i];
    else
        to->i[row % SQL_ROWS] = from->i[i];
}

/* ---- frames ---- */

/* The frame of the row at a place is up to three runs of places: exclude cuts holes. */
struct frame {
    uint32_t from[3], to[3];
    uint32_t n;
};

static uint32_t clamp(int64_t place, const struct part *p)
{
    return place < (int64_t)p->first ? p->first
           : place > (int64_t)p->end ? p->end
                                     : (uint32_t)place;
}

static uint32_t rows_edge(const struct win *f, const struct part *p, uint32_t at, int i)
{
    int64_t offset =
        f->spec->offset[i].integer < INT32_MAX ? f->spec->offset[i].integer : INT32_MAX;
    if (f->spec->edge[i] == FRAME_CURRENT)
        return at + (uint32_t)i;
    bool before = f->spec->edge[i] == FRAME_PRECEDING;
    return clamp((int64_t)at + (before ? -offset : offset) + i, p);
}

static uint32_t groups_edge(const struct win *f, const struct part *p, int i)
{
    int64_t offset =
        f->spec->offset[i].integer < INT32_MAX ? f->spec->offset[i].integer : INT32_MAX;
    bool before = f->spec->edge[i] == FRAME_PRECEDING;
    int64_t group = (int64_t)p->dense - 1 + (before ? -offset : offset) + i;
    if (group < 0)
        return p->first;
    return group >= (int64_t)p->n_groups ? p->end : p->groups[group];
}

/* Is the key of the row at a place before key + by (in the order of the window)?  `behind`: or
 * equal to it. */
static bool is_before(const struct window *w, const struct win *f, uint32_t place,
                      const struct vec *key, uint32_t row, const struct sql_value *by, bool minus,
                      bool behind)
{
    uint32_t c = f->first_col + f->spec->n_args + f->spec->filter + f->spec->n_partition;
    const struct sort_key *order = &f->spec->order[0];
    uint32_t r = w->order[place], i = r % SQL_ROWS;
    const struct vec *v = cell(w, r, c);
    if (v->null[i])
        return order->nulls_first;
    int compared;
    if (v->type == SQL_DOUBLE) {
        double limit = minus ? key->d[row] - by->number : key->d[row] + by->number, x = v->d[i];
        compared =
            x != x || limit != limit ? (x != x) - (limit != limit) : (x > limit) - (x < limit);
    } else {
        __int128 limit = key->i[row];
        limit += minus ? -(__int128)by->integer : (__int128)by->integer;
        compared = (v->i[i] > limit) - (v->i[i] < limit);
    }
    compared = order->descending ? -compared : compared;
    return compared < 0 || (behind && compared == 0);
}

/* range between x preceding and y following: by halves in the ordered partition. */
static uint32_t range_edge(const struct window *w, const struct win *f, const struct part *p,
                           uint32_t at, int i)
{
    uint32_t c = f->first_col + f->spec->n_args + f->spec->filter + f->spec->n_partition;
    uint32_t r = w->order[at], low = p->first, high = p->end;
    const struct vec *key = cell(w, r, c);
    bool before = f->spec->edge[i] == FRAME_PRECEDING;
    if (key->null[r % SQL_ROWS]) /* NULL is near NULL only */
        return i ? p->peer_end : p->peer;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (is_before(w, f, middle, key, r % SQL_ROWS, &f->spec->offset[i],
                      before != f->spec->order[0].descending, i == 1))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static uint32_t edge_of(const struct window *w, const struct win *f, const struct part *p,
                        uint32_t at, int i)
{
    switch (f->spec->edge[i]) {
    case FRAME_UNBOUNDED_PRECEDING:
        return p->first;
    case FRAME_UNBOUNDED_FOLLOWING:
        return p->end;
    case FRAME_CURRENT:
        if (f->spec->mode != FRAME_ROWS)
            return i ? p->peer_end : p->peer;
        break;
    case FRAME_PRECEDING:
    case FRAME_FOLLOWING:
        break;
    }
    return f->spec->mode == FRAME_ROWS     ? rows_edge(f, p, at, i)
           : f->spec->mode == FRAME_GROUPS ? groups_edge(f, p, i)
                                           : range_edge(w, f, p, at, i);
}

static void add_run(struct frame *frame, uint32_t from, uint32_t to)
{
    if (from >= to && frame->n)
        return;
    frame->from[frame->n] = from;
    frame->to[frame->n++] = to > from ? to : from;
}

static void frame_of(const struct window *w, const struct win *f, const struct part *p, uint32_t at,
                     struct frame *ret)
{
    uint32_t from = edge_of(w, f, p, at, 0), to = edge_of(w, f, p, at, 1);
    uint32_t hole = at, hole_end = at + 1;
    ret->n = 0;
    to = to > from ? to : from;
    if (f->spec->exclude == EXCLUDE_NOTHING) {
        add_run(ret, from, to);
        return;
    }
    if (f->spec->exclude != EXCLUDE_CURRENT) {
        hole = p->peer;
        hole_end = p->peer_end;
    }
    add_run(ret, from, to < hole ? to : hole);
    if (f->spec->exclude == EXCLUDE_TIES && at >= from && at < to)
        add_run(ret, at, at + 1);
    add_run(ret, from > hole_end ? from : hole_end, to);
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
    frame_of(w, f, p, at, &frame);
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

static int value_at(struct op *op, const struct win *f, const struct part *p, uint32_t at)
{
    const struct window *w = op->state;
    uint32_t row = w->order[at];
    int64_t n = 1;
    bool given = f->spec->n_args < 2 || count_arg(w, f, row, 1, &n);
    if (f->spec->fn == WIN_LAG || f->spec->fn == WIN_LEAD) {
        int64_t place;
        bool over = f->spec->fn == WIN_LAG ? __builtin_sub_overflow((int64_t)at, n, &place)
                                           : __builtin_add_overflow((int64_t)at, n, &place);
        if (!given) {
            put_null(f, row);
        } else if (!over && place >= p->first && place < p->end) {
            uint32_t r = w->order[place];
            put_cell(f, row, cell(w, r, f->first_col), r % SQL_ROWS);
        } else if (f->spec->n_args > 2) {
            put_cell(f, row, cell(w, row, f->first_col + 2), row % SQL_ROWS);
        } else {
            put_null(f, row);
        }
        return 0;
    }
    if (f->spec->fn == WIN_NTH && given && n < 1)
        return sql_error(op->q->text, op->q->size, f->expr->pos, -EINVAL,
                         "nth_value counts from 1");
    struct frame frame;
    uint64_t size = 0;
    frame_of(w, f, p, at, &frame);
    for (uint32_t i = 0; i < frame.n; i++)
        size += frame.to[i] - frame.from[i];
    uint64_t place = f->spec->fn == WIN_LAST ? size - 1 : (uint64_t)n - 1;
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

static int compute_row(struct op *op, const struct win *f, struct part *p, uint32_t at)
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

static bool is_peer(const struct window *w, const struct win *f, uint32_t a, uint32_t b)
{
    return compare_by(w, f, w->order[a], w->order[b]) == 0;
}

static void find_groups(const struct window *w, const struct win *f, struct part *p)
{
    p->n_groups = 0;
    for (uint32_t at = p->first; at < p->end; at++)
        if (at == p->first || !is_peer(w, f, at - 1, at))
            p->groups[p->n_groups++] = at;
    p->groups[p->n_groups] = p->end;
}

static int compute_part(struct op *op, const struct win *f, struct part *p)
{
    struct window *w = op->state;
    int rc = 0;
    if (p->groups)
        find_groups(w, f, p);
    p->any = false;
    p->dense = 0;
    p->peer_end = p->first;
    for (uint32_t at = p->first; at < p->end && rc == 0; at++) {
        if (at == p->peer_end) { /* the next group of peers */
            p->peer = at;
            p->dense++;
            while (++p->peer_end < p->end && is_peer(w, f, at, p->peer_end))
                ;
        }
        if (at % SQL_ROWS == 0)
            rc = sql_check(op->q);
        if (rc == 0)
            rc = compute_row(op, f, p, at);
    }
    return rc;
}

static int compute(struct op *op, struct win *f)
{
    struct window *w = op->state;
    struct sorting sorting = {w, f};
    struct part p = {.first = 0};
    uint32_t n = w->rows.n;
    f->out = sql_get(op->q, w->rows.n_chunks, sizeof(*f->out));
    if (!f->out)
        return -ENOMEM;
    for (uint32_t c = 0; c < w->rows.n_chunks; c++) {
        if (sql_vec_room(op->q, &f->out[c], f->expr->type) < 0)
            return -ENOMEM;
        f->out[c].stable = true;
    }
    if (f->spec->agg && sql_agg_one_new(op->q, f->spec->agg, &p.agg) < 0)
        return -ENOMEM;
    if (f->spec->mode == FRAME_GROUPS &&
        !(p.groups = sql_get(op->q, (size_t)n + 1, sizeof(*p.groups))))
        return -ENOMEM;
    uint32_t *starts, count;
    int rc = find_partitions(op, f, &starts, &count);
    for (uint32_t i = 0; i < count && rc == 0; i++) {
        p.first = starts[i];
        p.end = starts[i + 1];
        if (f->spec->n_order)
            rc = sql_sort_index(op->q, w->order + p.first, p.end - p.first, row_prefix,
                                compare_rows, &sorting);
        if (rc == 0)
            rc = compute_part(op, f, &p);
    }
    return rc;
}

/* ---- the operator ---- */

static int consume(struct op *op)
{
    struct window *w = op->state;
    const struct batch *in = &op->child->out;
    int rc;
    while ((rc = sql_next(op->child)) > 0) {
        rc = sql_run_program(w->program, w->results);
        if (rc == 0)
            rc = sql_rowset_add(&w->rows, w->results, in->sel, in->n_sel);
        if (rc < 0)
            return rc;
    }
    if (rc < 0)
        return rc;
    w->order = sql_get(op->q, w->rows.n, sizeof(*w->order));
    if (!w->order)
        return -ENOMEM;
    for (uint32_t i = 0; i < w->n_wins && rc == 0; i++)
        rc = compute(op, &w->wins[i]);
    return rc;
}

static int next_window(struct op *op)
{
    struct window *w = op->state;
    int rc = w->ready ? 0 : consume(op);
    w->ready = true;
    uint32_t chunk = w->next_chunk;
    if (rc < 0 || (uint64_t)chunk * SQL_ROWS >= w->rows.n)
        return rc;
    for (uint32_t k = 0; k < w->n_kept; k++)
        op->out.v[w->kept[k]] = w->rows.chunks[chunk][k];
    for (uint32_t i = 0; i < w->n_wins; i++)
        op->out.v[op->n_cols - w->n_wins + i] = w->wins[i].out[chunk];
    uint32_t left = w->rows.n - chunk * SQL_ROWS;
    op->out.n = op->out.n_sel = left < SQL_ROWS ? left : SQL_ROWS;
    w->next_chunk++;
    return 1;
}

/* ---- planning ---- */

static int find_windows(struct query *q, struct expr *e, struct win *wins, uint32_t *n, bool *used)
{
    if (e->kind == EXPR_COLUMN)
        used[e->column] = true;
    if (e->kind == EXPR_WINDOW) {
        for (uint32_t i = 0; i < *n; i++)
            if (wins[i].spec == e->set)
                return 0;
        if (*n == WINDOWS_MAX)
            return sql_error(q->text, q->size, e->pos, -E2BIG, "more than %d window functions",
                             WINDOWS_MAX);
        wins[(*n)++] = (struct win){.expr = e, .spec = e->set};
        return 0;
    }
    int rc = 0;
    for (uint32_t i = 0; i < e->n_args && rc == 0; i++)
        rc = find_windows(q, e->args[i], wins, n, used);
    return rc;
}

/* The expression over the window operator's columns: windows are columns, ids are texts. */
static int replace(struct query *q, const struct op *op, struct expr **e)
{
    const struct window *w = op->state;
    if ((*e)->kind == EXPR_COLUMN) {
        *e = sql_column_expr(q, op, (*e)->column, (*e)->pos);
        return *e ? 0 : -ENOMEM;
    }
    for (uint32_t i = 0; (*e)->kind == EXPR_WINDOW && i < w->n_wins; i++) {
        if (w->wins[i].spec == (*e)->set) {
            *e = sql_column_expr(q, op, op->n_cols - w->n_wins + i, (*e)->pos);
            return *e ? 0 : -ENOMEM;
        }
    }
    if ((*e)->n_args == 0)
        return 0;
    struct expr *copy = sql_new_expr(q, (*e)->kind, (*e)->type, (*e)->pos, (*e)->n_args);
    if (!copy)
        return -ENOMEM;
    struct expr **args = copy->args;
    *copy = **e;
    copy->args = args;
    int rc = 0;
    for (uint32_t i = 0; i < copy->n_args && rc == 0; i++) {
        args[i] = (*e)->args[i];
        rc = replace(q, op, &args[i]);
    }
    *e = copy;
    return rc;
}

static int describe_columns(struct query *q, struct op *op, struct op *child, const bool *used)
{
    struct window *w = op->state;
    for (uint32_t c = 0; c < child->n_cols; c++) {
        op->cols[c] = child->cols[c];
        op->cols[c].dict = false;
        op->out.v[c] = (struct vec){.type = op->cols[c].type};
        if (used[c])
            w->kept[w->n_kept++] = c;
    }
    for (uint32_t i = 0; i < w->n_wins; i++)
        op->cols[child->n_cols + i] = (struct col){
            .name = "", .type = w->wins[i].expr->type, .unit = w->wins[i].expr->unit, .doc = ""};
    op->detail = sql_getf(q, "%u function%s", w->n_wins, w->n_wins == 1 ? "" : "s");
    return op->detail ? 0 : -ENOMEM;
}

static int make_op(struct query *q, struct op *child, struct win *wins, uint32_t n,
                   const bool *used, struct op **ret)
{
    struct op *op = sql_op(q, next_window, "window", child->n_cols + n);
    struct window *w = op ? sql_get(q, 1, sizeof(*w)) : NULL;
    uint32_t room = child->n_cols, at = 0;
    for (uint32_t i = 0; i < n; i++)
        room += wins[i].expr->n_args;
    if (!w || !(w->kept = sql_get(q, child->n_cols, sizeof(*w->kept))))
        return -ENOMEM;
    struct expr **exprs = sql_get(q, room, sizeof(struct expr *));
    w->types = sql_get(q, room, sizeof(*w->types));
    w->results = sql_get(q, room, sizeof(*w->results));
    if (!exprs || !w->types || !w->results)
        return -ENOMEM;
    op->child = child;
    op->state = w;
    w->wins = wins;
    w->n_wins = n;
    if (describe_columns(q, op, child, used) < 0)
        return -ENOMEM;
    for (; at < w->n_kept; at++)
        if (!(exprs[at] = sql_column_expr(q, child, w->kept[at], 0)))
            return -ENOMEM;
    for (uint32_t i = 0; i < n; i++) {
        wins[i].first_col = at;
        for (uint32_t a = 0; a < wins[i].expr->n_args; a++)
            exprs[at++] = wins[i].expr->args[a];
    }
    for (uint32_t i = 0; i < at; i++)
        w->types[i] = exprs[i]->type;
    (void)sql_rowset_init(&w->rows, q, &q->mem, w->types, at);
    *ret = op;
    return sql_compile(q, &child->out, exprs, at, &w->program);
}

int sql_plan_windows(struct query *q, struct out_item *items, uint32_t n_items, struct op **op)
{
    struct win *wins = sql_get(q, WINDOWS_MAX, sizeof(*wins));
    bool *used = sql_get(q, (*op)->n_cols, sizeof(*used));
    uint32_t n = 0;
    int rc = wins && used ? 0 : -ENOMEM;
    for (uint32_t i = 0; i < n_items && rc == 0; i++)
        rc = find_windows(q, items[i].expr, wins, &n, used);
    if (rc < 0 || n == 0)
        return rc;
    rc = make_op(q, *op, wins, n, used, op);
    for (uint32_t i = 0; i < n_items && rc == 0; i++)
        rc = replace(q, *op, &items[i].expr);
    return rc;
}
