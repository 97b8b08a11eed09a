/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/plan/lateral.c - joins whose right side sees the row on its left: planned and run for
 * each.
 *
 * The right side is planned once without values, which tells its columns and those of the left that
 * it uses; then for each row of the left it is planned afresh with constants in their places, as
 * correlated subqueries are.  What a round takes is thrown away but for its rows.
 * The query's thread only.
 */
#include "core/sql/plan/plan.h"

#include <errno.h>
#include <string.h>

#include "core/base/err.h"

struct lateral {
    const struct from *from;
    struct cte *ctes;
    struct outer outer;
    struct place place;
    uint32_t n_left;
    bool outer_join;
    uint32_t next_left; /* of the batch at hand */
    bool left_ends;
    struct arena mem; /* of the rows made */
    struct rowset rows;
    enum sql_type *types;
    struct vec *broad;   /* [n_left] the left row at every place of a right batch */
    struct vec *nothing; /* [right columns] one row of NULLs */
    struct vec **v;
    uint32_t next_chunk;
};

/* The left row at the places of n selected rows. */
static void spread_row(struct op *op, uint32_t row, const uint16_t *sel, uint32_t n)
{
    struct lateral *l = op->state;
    for (uint32_t c = 0; c < l->n_left; c++) {
        if (op->child->want && !op->child->want[c])
            continue;
        struct vec *to = &l->broad[c];
        struct sql_value x = sql_vec_value(op->q, &op->child->out.v[c], row);
        to->has_null = false;
        for (uint32_t k = 0; k < n; k++)
            sql_put_value(to, sel ? sel[k] : k, &x);
    }
}

static int take_rows(struct op *op, uint32_t row, struct vec *right, const uint16_t *sel,
                     uint32_t n)
{
    struct lateral *l = op->state;
    spread_row(op, row, sel, n);
    for (uint32_t c = 0; c < op->n_cols; c++) {
        l->v[c] = c < l->n_left ? &l->broad[c] : &right[c - l->n_left];
        l->v[c]->stable = false; /* they outlive what they were made in */
        if (l->v[c]->type != l->types[c])
            return err_set(-EINVAL, "lateral: column %u is %s here and was planned as %s",
                           c - l->n_left + 1, sql_a_type(l->v[c]->type), sql_a_type(l->types[c]));
    }
    return sql_rowset_add(&l->rows, l->v, sel, n);
}

static int run_right(struct op *op, uint32_t row)
{
    struct lateral *l = op->state;
    uint32_t before = l->rows.n;
    struct op *right;
    int rc = sql_plan_from(op->q, l->from->right, l->ctes, &right);
    if (rc == 0 && right->n_cols != op->n_cols - l->n_left)
        rc = err_set(-EINVAL, "lateral: %u columns and %u", right->n_cols, op->n_cols - l->n_left);
    for (uint32_t c = 0; rc == 0 && c < right->n_cols; c++)
        sql_want(right, c);
    while (rc == 0 && (rc = sql_next(right)) > 0)
        rc = take_rows(op, row, right->out.v, right->out.sel, right->out.n_sel);
    if (rc == 0 && l->outer_join && l->rows.n == before)
        rc = take_rows(op, row, l->nothing, NULL, 1);
    return rc;
}

/* The rows that belong to one of the left. */
static int run_row(struct op *op, uint32_t row)
{
    struct lateral *l = op->state;
    struct query *q = op->q;
    struct nested nested;
    struct sql_value values[SQL_CALL_ARGS];
    for (uint32_t i = 0; i < l->outer.n; i++)
        values[i] = sql_vec_value(q, &op->child->out.v[l->outer.args[i]->column], row);
    int rc = sql_nested_enter(q, &nested, &l->place);
    if (rc < 0)
        return rc;
    l->outer.values = values;
    rc = run_right(op, row);
    l->outer.values = NULL;
    return sql_nested_leave(q, &nested, NULL, rc);
}

/* At least a batch of rows, while there are any. */
static int fill_batch(struct op *op)
{
    struct lateral *l = op->state;
    const struct batch *in = &op->child->out;
    arena_done(&l->mem);
    arena_init_in(&l->mem, op->q->budget);
    (void)sql_rowset_init(&l->rows, op->q, &l->mem, l->types, op->n_cols);
    l->next_chunk = 0;
    while (l->rows.n < SQL_ROWS && !l->left_ends) {
        int rc = sql_check(op->q);
        if (rc == 0 && l->next_left == in->n_sel) {
            rc = sql_next(op->child);
            l->left_ends = rc == 0;
            l->next_left = 0;
        }
        uint32_t k = l->next_left++;
        if (rc >= 0 && !l->left_ends)
            rc = run_row(op, in->sel ? in->sel[k] : k);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int next_lateral(struct op *op)
{
    struct lateral *l = op->state;
    if ((uint64_t)l->next_chunk * SQL_ROWS >= l->rows.n) {
        int rc = fill_batch(op);
        if (rc < 0 || l->rows.n == 0)
            return rc;
    }
    uint32_t left = l->rows.n - l->next_chunk * SQL_ROWS;
    memcpy(op->out.v, l->rows.chunks[l->next_chunk++], op->n_cols * sizeof(struct vec));
    for (uint32_t c = 0; c < op->n_cols; c++)
        op->out.v[c].stable = false; /* the next batch takes its room */
    op->out.n = op->out.n_sel = left < SQL_ROWS ? left : SQL_ROWS;
    return 1;
}

static void lateral_done(void *arg)
{
    struct lateral *l = arg;
    arena_done(&l->mem);
}

static void want_left(struct op *op, uint32_t column)
{
    const struct lateral *l = op->state;
    if (column < l->n_left)
        sql_want(op->child, column);
}

static int make_lateral(struct query *q, struct op *left, const struct op *right, struct lateral *l,
                        struct op **ret)
{
    uint32_t n = left->n_cols + right->n_cols;
    struct op *op = sql_op(q, next_lateral, "lateral join", n);
    l->types = sql_get(q, n, sizeof(*l->types));
    l->broad = sql_get(q, left->n_cols, sizeof(*l->broad));
    l->nothing = sql_get(q, right->n_cols, sizeof(*l->nothing));
    l->v = sql_get(q, n, sizeof(*l->v));
    arena_init_in(&l->mem, q->budget);
    if (!op || !l->types || !l->broad || !l->nothing || !l->v || sql_defer(q, lateral_done, l) < 0)
        return -ENOMEM;
    for (uint32_t c = 0; c < n; c++) {
        bool is_left = c < left->n_cols;
        struct vec *v = is_left ? &l->broad[c] : &l->nothing[c - left->n_cols];
        op->cols[c] = is_left ? left->cols[c] : right->cols[c - left->n_cols];
        op->cols[c].dict = false;
        l->types[c] = op->cols[c].type;
        op->out.v[c] = (struct vec){.type = l->types[c]};
        if (sql_vec_room(q, v, l->types[c]) < 0)
            return -ENOMEM;
        if (!is_left)
            sql_set_null(v, 0);
    }
    op->child = left;
    op->state = l;
    op->on_want = want_left;
    op->want = sql_get(q, n, sizeof(*op->want));
    op->detail = l->from->right->alias;
    *ret = op;
    return op->want ? 0 : -ENOMEM;
}

/* The condition of a left join must let every row pass. */
static int check_join(struct query *q, const struct from *f)
{
    bool on_true = f->on && f->on->kind == NODE_BOOL && f->on->flag;
    if (f->natural || f->n_columns || (f->join == JOIN_LEFT && !on_true) ||
        (f->join != JOIN_INNER && f->join != JOIN_CROSS && f->join != JOIN_LEFT))
        return sql_error(q->text, q->size, f->right->pos, -EINVAL,
                         "what is lateral is joined by , cross join, join ... on or left join ... "
                         "on true; its own where says the rest");
    return 0;
}

int sql_plan_lateral(struct query *q, const struct from *f, struct cte *ctes, struct op *left,
                     struct op **ret_right, struct op **ret)
{
    struct lateral *l = sql_get(q, 1, sizeof(*l));
    if (!l)
        return -ENOMEM;
    *ret = NULL;
    *l = (struct lateral){.from = f,
                          .ctes = ctes,
                          .outer = {.op = left, .up = q->outer},
                          .place = sql_place(q),
                          .n_left = left->n_cols,
                          .outer_join = f->join == JOIN_LEFT};
    l->outer.args = sql_get(q, SQL_CALL_ARGS, sizeof(struct expr *));
    l->outer.calls = sql_get(q, SQL_CALL_ARGS, sizeof(struct node *));
    if (!l->outer.args || !l->outer.calls)
        return -ENOMEM;
    const struct query_notes notes = q->notes;
    q->outer = l->place.outer = &l->outer;
    int rc = sql_plan_from(q, f->right, ctes, ret_right);
    q->outer = l->outer.up;
    if (rc < 0 || !l->outer.n)
        return rc;
    sql_notes_looked(q, &notes);
    q->subqueries = true;
    rc = check_join(q, f);
    return rc < 0 ? rc : make_lateral(q, left, *ret_right, l, ret);
}
