/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/exec/window.c - functions over windows: rows in partitions and in order, and the
 * operator.
 *
 * The rows are kept, put in order once for each window, and given on as they came with a column
 * more for each.  The query's thread only.
 */
#include "core/sql/exec/window_run.h"

#include <errno.h>
#include <string.h>

#define WINDOWS_MAX 64 /* in one select */

/* ---- rows in order ---- */

static int compare_by(const struct window *w, const struct win *f, uint32_t a, uint32_t b)
{
    uint32_t first = f->first_col + f->spec->n_args + f->spec->filter + f->spec->n_partition;
    uint32_t n = f->spec->n_order;
    for (uint32_t c = 0; c < n; c++) {
        int rc = sql_compare_cells(cell(w, a, first + c), a % SQL_ROWS, cell(w, b, first + c),
                                   b % SQL_ROWS, &f->spec->order[c]);
        if (rc)
            return rc;
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

/* ---- a partition ---- */

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

/* These count rows, equal or not: finding who is equal costs a look at every row out of order. */
static bool asks_for_peers(enum win_fn fn)
{
    return fn != WIN_ROW_NUMBER && fn != WIN_NTILE && fn != WIN_LAG && fn != WIN_LEAD;
}

static int compute_part(struct op *op, const struct win *f, struct part *p)
{
    struct window *w = op->state;
    bool peers = asks_for_peers(f->spec->fn);
    int rc = 0;
    if (p->groups)
        find_groups(w, f, p);
    p->any = false;
    p->dense = 0;
    p->peer_end = p->first;
    for (uint32_t at = p->first; at < p->end && rc == 0; at++) {
        if (peers && at == p->peer_end) { /* the next group of peers */
            p->peer = at;
            p->dense++;
            while (++p->peer_end < p->end && is_peer(w, f, at, p->peer_end))
                ;
        }
        if (at % SQL_ROWS == 0)
            rc = sql_check(op->q);
        if (rc == 0)
            rc = sql_window_row(op, f, p, at);
    }
    return rc;
}

static int compute_window(struct op *op, struct win *f)
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

static int consume_rows(struct op *op)
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
        rc = compute_window(op, &w->wins[i]);
    return rc;
}

static int next_window(struct op *op)
{
    struct window *w = op->state;
    int rc = w->ready ? 0 : consume_rows(op);
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
static int replace_window(struct query *q, const void *arg, struct expr **e)
{
    const struct op *op = arg;
    const struct window *w = op->state;
    if ((*e)->kind == EXPR_COLUMN)
        return sql_use_column(q, op, (*e)->column, e);
    for (uint32_t i = 0; (*e)->kind == EXPR_WINDOW && i < w->n_wins; i++)
        if (w->wins[i].spec == (*e)->set)
            return sql_use_column(q, op, op->n_cols - w->n_wins + i, e);
    return sql_expr_change_args(q, e, replace_window, op);
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
        op->cols[child->n_cols + i] = (struct col){.name = "",
                                                   .type = w->wins[i].expr->type,
                                                   .unit = w->wins[i].expr->unit,
                                                   .mark = w->wins[i].expr->mark,
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
        rc = replace_window(q, *op, &items[i].expr);
    return rc;
}
