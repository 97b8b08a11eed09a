/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/window.c - functions over windows: f(x) over (partition by .. order by .. rows ..).
 *
 * The rows are kept, put in order once for each window, and given on as they came with a column
 * more for each.  A frame that only grows is added to; one that slides is computed afresh for each
 * row, under the query's limits.  The query's thread only.
 */
#include "core/sql/sqlint.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/text.h"

#define WINDOWS_MAX 64    /* in one select */
#define CHECK_EVERY 16384 /* rows added to frames between looks at the limits */

enum win_fn {
    WIN_ROW_NUMBER,
    WIN_RANK,
    WIN_DENSE_RANK,
    WIN_PERCENT_RANK,
    WIN_CUME_DIST,
    WIN_NTILE,
    WIN_LAG,
    WIN_LEAD,
    WIN_FIRST,
    WIN_LAST,
    WIN_NTH,
    WIN_AGG
};

static const struct win_kind {
    const char *name;
    enum win_fn fn;
    uint32_t min_args, max_args;
} kinds[] = {{"row_number", WIN_ROW_NUMBER, 0, 0},
             {"rank", WIN_RANK, 0, 0},
             {"dense_rank", WIN_DENSE_RANK, 0, 0},
             {"percent_rank", WIN_PERCENT_RANK, 0, 0},
             {"cume_dist", WIN_CUME_DIST, 0, 0},
             {"ntile", WIN_NTILE, 1, 1},
             {"lag", WIN_LAG, 1, 3},
             {"lead", WIN_LEAD, 1, 3},
             {"first_value", WIN_FIRST, 1, 1},
             {"last_value", WIN_LAST, 1, 1},
             {"nth_value", WIN_NTH, 2, 2}};
#define N_KINDS (sizeof(kinds) / sizeof(*kinds))

struct win_spec { /* the arguments of its expression: the function's, filter, partition, order */
    enum win_fn fn;
    const struct agg_spec *agg;
    uint32_t n_args, n_partition, n_order;
    bool filter;
    struct sort_key *order; /* column: not used */
    bool rows;
    enum frame_edge edge[2];
    uint64_t offset[2];
};

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

/* ---- binding ---- */

static const struct win_kind *find_kind(const char *name)
{
    for (size_t i = 0; i < N_KINDS; i++)
        if (strcmp(kinds[i].name, name) == 0)
            return &kinds[i];
    return NULL;
}

bool sql_window_only(const char *name)
{
    return find_kind(name) && !sql_agg_find(name);
}

static int no_window(struct query *q, const struct node *n)
{
    const char *names[N_KINDS];
    for (size_t i = 0; i < N_KINDS; i++)
        names[i] = kinds[i].name;
    const char *near = text_nearest(n->text, names, N_KINDS);
    if (near)
        return sql_error(q->text, q->size, n->pos, -EINVAL,
                         "no window function '%s'; did you mean '%s'?", n->text, near);
    return sql_error(q->text, q->size, n->pos, -EINVAL,
                     "'%s' is neither an aggregate nor a window function", n->text);
}

static int bind_frame(struct query *q, const struct window_node *w, struct win_spec *spec)
{
    spec->rows = w->rows;
    spec->edge[0] = w->framed ? w->edge[0] : FRAME_UNBOUNDED_PRECEDING;
    spec->edge[1] = w->framed     ? w->edge[1]
                    : w->n_order  ? FRAME_CURRENT
                                  : FRAME_UNBOUNDED_FOLLOWING;
    for (int i = 0; i < 2; i++) {
        struct scope none = {.clause = "a frame"};
        struct expr *e;
        if (!w->offset[i])
            continue;
        int rc = sql_bind(q, &none, w->offset[i], &e);
        if (rc == 0)
            rc = sql_coerce(q, &e, SQL_INT, "a frame");
        if (rc < 0)
            return rc;
        if (e->kind != EXPR_CONST || e->value.type == SQL_NULL || e->value.integer < 0)
            return sql_error(q->text, q->size, w->offset[i]->pos, -EINVAL,
                             "a frame's offset is a number from 0");
        if (!w->rows)
            return sql_error(q->text, q->size, w->offset[i]->pos, -EINVAL,
                             "range with a number is not in this version; rows with one is");
        spec->offset[i] = (uint64_t)e->value.integer;
    }
    return 0;
}

/* lag(x, n, default): the default is as x; ntile, lag, lead and nth_value count in integers. */
static int arg_types(struct query *q, const struct win_spec *spec, struct expr **args,
                     enum sql_type *ret)
{
    int rc = 0;
    uint32_t count = spec->fn == WIN_NTILE ? 0 : 1; /* which argument counts */
    bool counts = spec->fn == WIN_NTILE || spec->fn == WIN_NTH || spec->fn == WIN_LAG ||
                  spec->fn == WIN_LEAD;
    if (counts && spec->n_args > count)
        rc = sql_coerce(q, &args[count], SQL_INT, "a window function");
    *ret = spec->fn == WIN_PERCENT_RANK || spec->fn == WIN_CUME_DIST ? SQL_DOUBLE : SQL_INT;
    if (rc < 0 || spec->fn < WIN_LAG)
        return rc;
    struct expr *values[2] = {args[0], spec->n_args > 2 ? args[2] : NULL};
    rc = sql_unify(q, values, spec->n_args > 2 ? 2 : 1, "a window function", ret);
    args[0] = values[0];
    if (spec->n_args > 2)
        args[2] = values[1];
    return rc;
}

static int bind_function(struct query *q, struct scope *s, const struct node *n,
                         struct win_spec *spec, struct expr **args, enum sql_type *ret_type)
{
    const struct win_kind *kind = find_kind(n->text);
    const struct agg_kind *agg = kind ? NULL : sql_agg_find(n->text);
    if (agg) {
        struct agg_spec *a;
        int rc = sql_agg_spec(q, s, n, agg, true, &a);
        if (rc < 0)
            return rc;
        spec->fn = WIN_AGG;
        spec->agg = a;
        if (a->arg)
            args[spec->n_args++] = a->arg;
        spec->filter = a->filter != NULL;
        if (a->filter)
            args[spec->n_args] = a->filter;
        *ret_type = a->type;
        return 0;
    }
    if (!kind)
        return no_window(q, n);
    if (n->star || n->distinct || n->filter || n->n_args < kind->min_args ||
        n->n_args > kind->max_args)
        return sql_error(q->text, q->size, n->pos, -EINVAL,
                         "%s() takes %u to %u arguments, no *, distinct or filter", n->text,
                         kind->min_args, kind->max_args);
    spec->fn = kind->fn;
    spec->n_args = n->n_args;
    for (uint32_t i = 0; i < n->n_args; i++) {
        int rc = sql_bind(q, s, n->args[i], &args[i]);
        if (rc < 0)
            return rc;
    }
    return arg_types(q, spec, args, ret_type);
}

static int bind_all(struct query *q, struct scope *s, const struct node *n, struct win_spec *spec,
                    struct expr *e)
{
    const struct window_node *w = n->over;
    int rc = bind_function(q, s, n, spec, e->args, &e->type);
    uint32_t at = spec->n_args + spec->filter;
    for (uint32_t i = 0; i < w->n_partition && rc == 0; i++)
        rc = sql_bind(q, s, w->partition[i], &e->args[at++]);
    for (uint32_t i = 0; i < w->n_order && rc == 0; i++) {
        spec->order[i] = (struct sort_key){.descending = w->order[i].descending,
                                           .nulls_first = w->order[i].nulls_first};
        rc = sql_bind(q, s, w->order[i].node, &e->args[at++]);
    }
    spec->n_partition = w->n_partition;
    spec->n_order = w->n_order;
    e->n_args = at;
    return rc < 0 ? rc : bind_frame(q, w, spec);
}

int sql_window_bind(struct query *q, struct scope *s, const struct node *n, struct expr **ret)
{
    const struct window_node *w = n->over;
    if (!s->allow_windows || s->inside_agg || s->inside_window)
        return sql_error(q->text, q->size, n->pos, -EINVAL,
                         "a window function may stand in the select list and in order by only%s",
                         s->inside_agg      ? ", not in an aggregate"
                         : s->inside_window ? ", not in another one"
                                            : "; filter by it in a select around this one");
    if (w->n_partition + w->n_order > SQL_CALL_ARGS - 8)
        return sql_error(q->text, q->size, n->pos, -E2BIG, "a window by too many columns");
    struct win_spec *spec = sql_get(q, 1, sizeof(*spec));
    struct expr *e = sql_new_expr(q, EXPR_WINDOW, SQL_NULL, n->pos, SQL_CALL_ARGS);
    if (!spec || !e || !(spec->order = sql_get(q, w->n_order, sizeof(*spec->order))))
        return -ENOMEM;
    s->inside_window = true;
    int rc = bind_all(q, s, n, spec, e);
    s->inside_window = false;
    if (spec->n_args && spec->fn >= WIN_LAG)
        e->unit = e->args[0] && e->type == e->args[0]->type ? e->args[0]->unit : 0;
    e->set = spec;
    *ret = e;
    return rc;
}

/* ---- rows in order ---- */

static const struct vec *cell(const struct window *w, uint32_t row, uint32_t column)
{
    return &w->rows.chunks[row / SQL_ROWS][column];
}

static int compare_by(const struct window *w, const struct win *f, uint32_t a, uint32_t b,
                      bool partition)
{
    static const struct sort_key plain;
    uint32_t first = f->first_col + f->spec->n_args + f->spec->filter;
    uint32_t n = partition ? f->spec->n_partition : f->spec->n_order;
    first += partition ? 0 : f->spec->n_partition;
    for (uint32_t c = 0; c < n; c++) {
        int r = sql_compare_cells(cell(w, a, first + c), a % SQL_ROWS, cell(w, b, first + c),
                                  b % SQL_ROWS, partition ? &plain : &f->spec->order[c]);
        if (r)
            return r;
    }
    return 0;
}

struct sorting {
    const struct window *w;
    const struct win *f;
};

static int compare_rows(const void *x, const void *y, void *arg)
{
    const struct sorting *s = arg;
    uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    int r = compare_by(s->w, s->f, a, b, true);
    r = r ? r : compare_by(s->w, s->f, a, b, false);
    return r ? r : (a > b) - (a < b);
}

/* ---- values ---- */

struct part { /* a partition: places first to end - 1 of the order */
    uint32_t first, end;
    uint32_t peer, peer_end; /* rows equal in order with the one at hand */
    uint32_t dense;
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

static void frame_of(const struct win *f, const struct part *p, uint32_t at, uint32_t *ret_from,
                     uint32_t *ret_to)
{
    uint64_t edge[2];
    for (int i = 0; i < 2; i++) {
        uint64_t offset = f->spec->offset[i];
        switch (f->spec->edge[i]) {
        case FRAME_UNBOUNDED_PRECEDING:
            edge[i] = p->first;
            break;
        case FRAME_PRECEDING:
            edge[i] = offset > at - p->first ? p->first : at - offset + (uint64_t)i;
            if (offset > at - p->first && i == 1)
                edge[i] = p->first; /* all of it lies before the partition */
            break;
        case FRAME_CURRENT:
            edge[i] = f->spec->rows ? at + (uint32_t)i : i ? p->peer_end : p->peer;
            break;
        case FRAME_FOLLOWING:
            edge[i] = offset >= p->end - at ? p->end : at + offset + (uint64_t)i;
            break;
        case FRAME_UNBOUNDED_FOLLOWING:
            edge[i] = p->end;
            break;
        }
    }
    *ret_from = (uint32_t)edge[0];
    *ret_to = edge[1] > edge[0] ? (uint32_t)edge[1] : (uint32_t)edge[0];
}

static int aggregate_frame(struct op *op, const struct win *f, struct part *p, uint32_t at)
{
    struct window *w = op->state;
    uint32_t from, to, row = w->order[at];
    frame_of(f, p, at, &from, &to);
    if (p->any && from == p->from && to == p->to && at > p->first) {
        uint32_t before = w->order[at - 1];
        put_cell(f, row, out_of(f, before), before % SQL_ROWS);
        return 0;
    }
    if (!p->any || from != p->from || to < p->to) {
        sql_agg_one_reset(p->agg);
        p->to = from;
    }
    p->any = true;
    p->from = from;
    for (; p->to < to; p->to++) {
        uint32_t r = w->order[p->to], c = f->first_col;
        struct vec *chunk = w->rows.chunks[r / SQL_ROWS];
        struct vec *arg = f->spec->n_args ? &chunk[c] : NULL;
        struct vec *filter = f->spec->filter ? &chunk[c + f->spec->n_args] : NULL;
        int rc = sql_agg_one_add(op->q, p->agg, arg, filter, (uint16_t)(r % SQL_ROWS));
        if (rc == 0 && ++w->n_checks % CHECK_EVERY == 0)
            rc = sql_check(op->q);
        if (rc < 0)
            return rc;
    }
    return sql_agg_one_get(op->q, p->agg, out_of(f, row), row % SQL_ROWS);
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
    uint32_t row = w->order[at], from, to;
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
    frame_of(f, p, at, &from, &to);
    if (f->spec->fn == WIN_NTH && given && n < 1)
        return sql_error(op->q->text, op->q->size, f->expr->pos, -EINVAL,
                         "nth_value counts from 1");
    uint64_t place = f->spec->fn == WIN_LAST ? (uint64_t)to - 1 : (uint64_t)from + (uint64_t)n - 1;
    if (!given || from == to || place >= to) {
        put_null(f, row);
        return 0;
    }
    uint32_t r = w->order[place];
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

static int compute_part(struct op *op, const struct win *f, struct part *p)
{
    struct window *w = op->state;
    int rc = 0;
    p->any = false;
    p->dense = 0;
    p->peer_end = p->first;
    for (uint32_t at = p->first; at < p->end && rc == 0; at++) {
        if (at == p->peer_end) { /* the next group of peers */
            p->peer = at;
            p->dense++;
            while (++p->peer_end < p->end &&
                   compare_by(w, f, w->order[at], w->order[p->peer_end], false) == 0)
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
    for (uint32_t i = 0; i < n; i++)
        w->order[i] = i;
    if (n > 1)
        qsort_r(w->order, n, sizeof(*w->order), compare_rows, &sorting);
    int rc = sql_check(op->q);
    for (; p.first < n && rc == 0; p.first = p.end) {
        p.end = p.first + 1;
        while (p.end < n && compare_by(w, f, w->order[p.first], w->order[p.end], true) == 0)
            p.end++;
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
        op->cols[child->n_cols + i] =
            (struct col){.name = "", .type = w->wins[i].expr->type, .unit = w->wins[i].expr->unit,
                         .doc = ""};
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
