/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/exec/set_ops.c - operators over whole rows: distinct, append (union all), intersect,
 * except.
 *
 * The query's thread only.  Rows are equal when all their columns are, NULL and NaN included.
 */
#include "core/sql/exec/ops.h"

#include <errno.h>
#include <string.h>

/* ---- distinct: the first of equal rows, as it comes ---- */

struct distinct {
    struct keys keys;
    struct vec **v;
    uint32_t *numbers;
    uint16_t *sel;
};

static int next_distinct(struct op *op)
{
    struct distinct *d = op->state;
    int rc = sql_next(op->child);
    if (rc <= 0)
        return rc;
    const struct batch *in = &op->child->out;
    uint32_t known = d->keys.n, m = 0;
    rc = sql_keys_add(&d->keys, d->v, in->sel, in->n_sel, d->numbers);
    if (rc < 0)
        return rc;
    for (uint32_t k = 0; k < in->n_sel; k++) {
        d->sel[m] = in->sel ? in->sel[k] : (uint16_t)k;
        if (d->numbers[k] == known) { /* numbers are given in order of arrival */
            known++;
            m++;
        }
    }
    op->out = (struct batch){.n = in->n, .sel = d->sel, .n_sel = m, .v = in->v};
    return 1;
}

int sql_distinct(struct op *child, const uint32_t *columns, uint32_t n, uint32_t n_out,
                 struct op **ret)
{
    struct query *q = child->q;
    n = columns ? n : child->n_cols;
    struct op *op = sql_op(q, next_distinct, "distinct", child->n_cols);
    struct distinct *d = op ? sql_get(q, 1, sizeof(*d)) : NULL;
    enum sql_type *types = sql_get(q, n, sizeof(*types));
    bool *dict = sql_get(q, n, sizeof(*dict));
    if (!d || !types || !dict)
        return -ENOMEM;
    op->child = child;
    op->state = d;
    op->out.v = child->out.v;
    memcpy(op->cols, child->cols, child->n_cols * sizeof(*op->cols));
    d->v = sql_get(q, n, sizeof(*d->v));
    d->numbers = sql_get(q, SQL_ROWS, sizeof(*d->numbers));
    d->sel = sql_get(q, SQL_ROWS, sizeof(*d->sel));
    if (!d->v || !d->numbers || !d->sel)
        return -ENOMEM;
    for (uint32_t c = 0; c < child->n_cols; c++)
        sql_want(child, c);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t c = columns ? columns[i] : i;
        types[i] = child->cols[c].type;
        dict[i] = child->cols[c].dict;
        d->v[i] = &child->out.v[c];
    }
    op->n_cols = n_out;
    *ret = op;
    return sql_keys_init(&d->keys, q, types, dict, n);
}

/* ---- append: union all ---- */

static int next_append(struct op *op)
{
    struct op **side = op->state;
    for (;;) {
        int rc = sql_next(*side);
        if (rc < 0 || (rc == 0 && *side == op->right))
            return rc;
        if (rc == 0) {
            *side = op->right;
            continue;
        }
        memcpy(op->out.v, (*side)->out.v, op->n_cols * sizeof(struct vec));
        op->out.n = (*side)->out.n;
        op->out.sel = (*side)->out.sel;
        op->out.n_sel = (*side)->out.n_sel;
        return 1;
    }
}

int sql_append(struct op *left, struct op *right, struct op **ret)
{
    struct query *q = left->q;
    struct op *op = sql_op(q, next_append, "union all", left->n_cols);
    struct op **side = op ? sql_get(q, 1, sizeof(*side)) : NULL;
    if (!side)
        return -ENOMEM;
    *side = left;
    op->child = left;
    op->right = right;
    op->state = side;
    for (uint32_t c = 0; c < left->n_cols; c++) {
        op->cols[c] = left->cols[c];
        op->cols[c].dict = left->cols[c].dict && right->cols[c].dict;
        op->out.v[c] = (struct vec){.type = op->cols[c].type};
        sql_want(left, c);
        sql_want(right, c);
    }
    *ret = op;
    return 0;
}

/* ---- intersect, except: the right side is counted, the left side streams ---- */

struct set {
    struct keys keys;
    struct vec **left, **right;
    uint64_t *counts; /* by key: rows of the right side not yet used up */
    uint32_t room;
    uint8_t *given; /* by key: the row was given on */
    uint32_t *numbers;
    uint16_t *sel;
    bool except, all, ready;
};

static int room_for(struct query *q, struct set *s)
{
    if (s->keys.n <= s->room)
        return 0;
    uint32_t room = s->room ? s->room : 256;
    while (room < s->keys.n)
        room *= 2;
    uint64_t *counts = sql_get(q, room, sizeof(*counts));
    uint8_t *given = sql_get(q, room, 1);
    if (!counts || !given)
        return -ENOMEM;
    if (s->room) {
        memcpy(counts, s->counts, s->room * sizeof(*counts));
        memcpy(given, s->given, s->room);
    }
    s->counts = counts;
    s->given = given;
    s->room = room;
    return 0;
}

static int count_right(struct op *op)
{
    struct set *s = op->state;
    const struct batch *in = &op->right->out;
    int rc;
    while ((rc = sql_next(op->right)) > 0) {
        rc = sql_keys_add(&s->keys, s->right, in->sel, in->n_sel, s->numbers);
        if (rc == 0)
            rc = room_for(op->q, s);
        if (rc < 0)
            return rc;
        for (uint32_t k = 0; k < in->n_sel; k++)
            s->counts[s->numbers[k]]++;
    }
    return rc;
}

/* Is this row of the left side part of the answer? */
static bool takes_row(struct set *s, uint32_t key)
{
    bool there = s->counts[key] > 0;
    if (s->all) {
        s->counts[key] -= there;
        return there != s->except;
    }
    bool take = !s->given[key] && there != s->except;
    s->given[key] = 1;
    return take;
}

static int next_set(struct op *op)
{
    struct set *s = op->state;
    int rc = s->ready ? 0 : count_right(op);
    s->ready = true;
    if (rc == 0)
        rc = sql_next(op->child);
    if (rc <= 0)
        return rc;
    const struct batch *in = &op->child->out;
    uint32_t m = 0;
    rc = sql_keys_add(&s->keys, s->left, in->sel, in->n_sel, s->numbers);
    if (rc == 0)
        rc = room_for(op->q, s);
    if (rc < 0)
        return rc;
    for (uint32_t k = 0; k < in->n_sel; k++) {
        s->sel[m] = in->sel ? in->sel[k] : (uint16_t)k;
        m += takes_row(s, s->numbers[k]);
    }
    op->out = (struct batch){.n = in->n, .sel = s->sel, .n_sel = m, .v = in->v};
    return 1;
}

int sql_set(struct op *left, struct op *right, bool except, bool all, struct op **ret)
{
    struct query *q = left->q;
    q->sums_up = true;
    struct op *op = sql_op(q, next_set, except ? "except" : "intersect", left->n_cols);
    struct set *s = op ? sql_get(q, 1, sizeof(*s)) : NULL;
    enum sql_type *types = sql_get(q, left->n_cols, sizeof(*types));
    bool *dict = sql_get(q, left->n_cols, sizeof(*dict));
    if (!s || !types || !dict)
        return -ENOMEM;
    op->child = left;
    op->right = right;
    op->state = s;
    op->out.v = left->out.v;
    op->detail = all ? "all" : NULL;
    s->except = except;
    s->all = all;
    s->left = sql_get(q, left->n_cols, sizeof(*s->left));
    s->right = sql_get(q, left->n_cols, sizeof(*s->right));
    s->numbers = sql_get(q, SQL_ROWS, sizeof(*s->numbers));
    s->sel = sql_get(q, SQL_ROWS, sizeof(*s->sel));
    if (!s->left || !s->right || !s->numbers || !s->sel)
        return -ENOMEM;
    for (uint32_t c = 0; c < left->n_cols; c++) {
        op->cols[c] = left->cols[c];
        types[c] = left->cols[c].type;
        dict[c] = left->cols[c].dict && right->cols[c].dict;
        s->left[c] = &left->out.v[c];
        s->right[c] = &right->out.v[c];
        sql_want(left, c);
        sql_want(right, c);
    }
    *ret = op;
    return sql_keys_init(&s->keys, q, types, dict, left->n_cols);
}
