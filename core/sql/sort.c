/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/sort.c - order by; with a limit only the rows that can still win are kept.
 *
 * The query's thread only.  Equal rows stay in the order they came.
 */
#include "core/sql/sqlint.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"

#define PRUNE_ROWS 16384 /* rows gathered before a top-k is cut to its k */

struct sort {
    struct sort_key *keys;
    uint32_t n_keys;
    uint64_t keep;
    uint32_t n_cols; /* of the child */
    enum sql_type *types;
    struct vec **in, **out;
    struct arena mem[2]; /* the rows are in one; pruning moves them to the other */
    struct rowset rows;
    int at;
    uint32_t *order;
    uint32_t room, next;
    bool ready;
};

int sql_compare_cells(const struct vec *a, uint32_t i, const struct vec *b, uint32_t j,
                      const struct sort_key *k)
{
    bool a_null = a->null[i], b_null = b->null[j]; /* kept rows: always there */
    if (a_null || b_null)
        return a_null == b_null ? 0 : a_null == k->nulls_first ? -1 : 1;
    int c;
    if (sql_is_textual(a->type)) {
        struct text x = a->t[i], y = b->t[j];
        c = memcmp(x.data, y.data, x.size < y.size ? x.size : y.size);
        c = c ? c : (x.size > y.size) - (x.size < y.size);
    } else if (a->type == SQL_DOUBLE) {
        double x = a->d[i], y = b->d[j];
        c = x != x || y != y ? (x != x) - (y != y) : (x > y) - (x < y);
    } else {
        c = (a->i[i] > b->i[j]) - (a->i[i] < b->i[j]);
    }
    return k->descending ? -c : c;
}

static int compare_rows(const void *x, const void *y, void *arg)
{
    const struct sort *s = arg;
    uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    for (uint32_t k = 0; k < s->n_keys; k++) {
        uint32_t c = s->keys[k].column;
        int r = sql_compare_cells(&s->rows.chunks[a / SQL_ROWS][c], a % SQL_ROWS,
                                  &s->rows.chunks[b / SQL_ROWS][c], b % SQL_ROWS, &s->keys[k]);
        if (r)
            return r;
    }
    return (a > b) - (a < b);
}

static int sort_rows(struct op *op)
{
    struct sort *s = op->state;
    if (s->rows.n > s->room) {
        s->room = s->rows.n + s->rows.n / 2;
        s->order = sql_get(op->q, s->room, sizeof(*s->order));
        if (!s->order)
            return -ENOMEM;
    }
    for (uint32_t i = 0; i < s->rows.n; i++)
        s->order[i] = i;
    if (s->rows.n > 1)
        qsort_r(s->order, s->rows.n, sizeof(*s->order), compare_rows, s);
    return 0;
}

/* Keep the best `keep` rows only. */
static int prune(struct op *op)
{
    struct sort *s = op->state;
    struct rowset old = s->rows;
    int to = 1 - s->at;
    int rc = sort_rows(op);
    if (rc < 0)
        return rc;
    arena_done(&s->mem[to]);
    arena_init(&s->mem[to], op->q->mem.limit_bytes);
    (void)sql_rowset_init(&s->rows, op->q, &s->mem[to], s->types, s->n_cols);
    struct vec *rows = op->out.v;
    struct vec **v = s->out;
    for (uint32_t c = 0; c < s->n_cols; c++)
        v[c] = &rows[c];
    for (uint32_t first = 0; first < s->keep && first < old.n; first += SQL_ROWS) {
        uint64_t left = (s->keep < old.n ? s->keep : old.n) - first;
        uint32_t n = left < SQL_ROWS ? (uint32_t)left : SQL_ROWS;
        sql_rowset_get(&old, s->order + first, n, 0, s->n_cols, rows);
        for (uint32_t c = 0; c < s->n_cols; c++)
            rows[c].stable = false; /* their texts may be in the arena that goes */
        rc = sql_rowset_add(&s->rows, v, NULL, n);
        if (rc < 0)
            return rc;
    }
    s->at = to;
    return 0;
}

static int consume(struct op *op)
{
    struct sort *s = op->state;
    const struct batch *in = &op->child->out;
    int rc;
    (void)sql_rowset_init(&s->rows, op->q, &s->mem[0], s->types, s->n_cols);
    for (uint32_t c = 0; c < s->n_cols; c++)
        s->in[c] = &op->child->out.v[c];
    while ((rc = sql_next(op->child)) > 0) {
        rc = sql_rowset_add(&s->rows, s->in, in->sel, in->n_sel);
        if (rc == 0 && s->keep && s->rows.n > PRUNE_ROWS && s->rows.n > 4 * s->keep)
            rc = prune(op);
        if (rc < 0)
            return rc;
    }
    return rc < 0 ? rc : sort_rows(op);
}

static int next_sort(struct op *op)
{
    struct sort *s = op->state;
    int rc = s->ready ? 0 : consume(op);
    s->ready = true;
    if (rc < 0 || s->next >= s->rows.n)
        return rc;
    uint32_t n = s->rows.n - s->next;
    n = n < SQL_ROWS ? n : SQL_ROWS;
    sql_rowset_get(&s->rows, s->order + s->next, n, 0, op->n_cols, op->out.v);
    s->next += n;
    op->out.n = op->out.n_sel = n;
    return 1;
}

static void sort_done(void *arg)
{
    struct sort *s = arg;
    arena_done(&s->mem[0]);
    arena_done(&s->mem[1]);
}

int sql_sort(struct op *child, const struct sort_key *keys, uint32_t n, uint64_t keep,
             uint32_t n_out, struct op **ret)
{
    struct query *q = child->q;
    struct op *op = sql_op(q, next_sort, "sort", child->n_cols);
    struct sort *s = op ? sql_get(q, 1, sizeof(*s)) : NULL;
    if (!s)
        return -ENOMEM;
    *s = (struct sort){.n_keys = n, .keep = keep, .n_cols = child->n_cols};
    arena_init(&s->mem[0], q->mem.limit_bytes);
    arena_init(&s->mem[1], q->mem.limit_bytes);
    s->keys = sql_get(q, n, sizeof(*s->keys));
    s->types = sql_get(q, child->n_cols, sizeof(*s->types));
    s->in = sql_get(q, child->n_cols, sizeof(*s->in));
    s->out = sql_get(q, child->n_cols, sizeof(*s->out));
    if (!s->keys || !s->types || !s->in || !s->out || sql_defer(q, sort_done, s) < 0)
        return -ENOMEM;
    memcpy(s->keys, keys, n * sizeof(*keys));
    for (uint32_t c = 0; c < child->n_cols; c++) {
        op->cols[c] = child->cols[c];
        op->cols[c].dict = false;
        s->types[c] = child->cols[c].type;
        sql_want(child, c);
    }
    op->child = child;
    op->state = s;
    if (sql_op_vectors(op) < 0)
        return -ENOMEM;
    op->n_cols = n_out; /* columns only sorted by are not given on */
    op->detail = keep ? sql_getf(q, "the first %llu", (unsigned long long)keep) : NULL;
    *ret = op;
    return 0;
}
