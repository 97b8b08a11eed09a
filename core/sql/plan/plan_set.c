/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/plan/plan_set.c - values, union, intersect and except become operators.
 *
 * The query's thread only.  Both sides get the types that hold both.
 */
#include "core/sql/plan/plan.h"

#include <errno.h>

int sql_plan_values(struct query *q, const struct select *s, struct op **ret)
{
    uint32_t n = s->rows[0]->n_args;
    struct expr **cells = sql_get(q, (size_t)n * s->n_rows, sizeof(struct expr *));
    struct rowset *rows = sql_get(q, 1, sizeof(*rows));
    struct col *cols = sql_get(q, n, sizeof(*cols));
    enum sql_type *types = sql_get(q, n, sizeof(*types));
    struct vec *v = sql_get(q, n, sizeof(*v)), **pointers = sql_get(q, n, sizeof(*pointers));
    struct scope scope = {.clause = "values"};
    if (!cells || !rows || !cols || !types || !v || !pointers)
        return -ENOMEM;
    for (uint32_t r = 0; r < s->n_rows; r++) {
        if (s->rows[r]->n_args != n)
            return sql_error(q->text, q->size, s->rows[r]->pos, -EINVAL,
                             "this row has %u values, the first has %u", s->rows[r]->n_args, n);
        for (uint32_t c = 0; c < n; c++) {
            int rc = sql_bind(q, &scope, s->rows[r]->args[c], &cells[(size_t)c * s->n_rows + r]);
            if (rc == 0 && cells[(size_t)c * s->n_rows + r]->kind != EXPR_CONST)
                rc = sql_error(q->text, q->size, s->rows[r]->args[c]->pos, -EINVAL,
                               "this value cannot be computed");
            if (rc < 0)
                return rc;
        }
    }
    for (uint32_t c = 0; c < n; c++) {
        struct expr **column = &cells[(size_t)c * s->n_rows];
        uint8_t mark;
        int rc = sql_unify_marks(q, s->rows[0], column, s->n_rows, &mark);
        rc = rc < 0 ? rc : sql_unify(q, column, s->n_rows, "values", &types[c]);
        if (rc < 0)
            return rc;
        cols[c] = (struct col){
            .name = sql_getf(q, "column%u", c + 1), .type = types[c], .mark = mark, .doc = ""};
        pointers[c] = &v[c];
        if (!cols[c].name || sql_vec_room(q, &v[c], types[c]) < 0)
            return -ENOMEM;
        v[c].stable = true;
    }
    (void)sql_rowset_init(rows, q, &q->mem, types, n);
    for (uint32_t r = 0; r < s->n_rows; r++) {
        for (uint32_t c = 0; c < n; c++) {
            v[c].has_null = false;
            sql_put_value(&v[c], 0, &cells[(size_t)c * s->n_rows + r]->value);
        }
        int rc = sql_rowset_add(rows, pointers, NULL, 1);
        if (rc < 0)
            return rc;
    }
    return sql_scan_rowset(q, rows, cols, ret);
}

/* Cast one side's columns where the common type is another; marks: theirs. */
static int cast_side(struct query *q, struct op **op, struct expr **exprs, const uint8_t *marks)
{
    struct col *cols = sql_get(q, (*op)->n_cols, sizeof(*cols));
    bool same = true;
    if (!cols)
        return -ENOMEM;
    for (uint32_t c = 0; c < (*op)->n_cols; c++) {
        (*op)->cols[c].mark = marks[c];
        (*op)->cols[c].literal = false;
        cols[c] = (*op)->cols[c];
        same = same && exprs[c]->kind == EXPR_COLUMN;
        sql_want(*op, c);
    }
    return same ? 0 : sql_project(*op, exprs, cols, (*op)->n_cols, op);
}

int sql_plan_set(struct query *q, const struct select *s, struct cte *ctes, struct op **ret)
{
    struct op *sides[2];
    int rc = sql_plan_select(q, s->left, ctes, &sides[0]);
    if (rc == 0)
        rc = sql_plan_select(q, s->right, ctes, &sides[1]);
    if (rc < 0)
        return rc;
    static const char *const names[] = {"", "union", "intersect", "except", ""};
    const char *name = names[s->set];
    uint32_t n = sides[0]->n_cols;
    if (sides[1]->n_cols != n)
        return sql_error(q->text, q->size, s->pos, -EINVAL, "%s of %u columns and %u columns", name,
                         n, sides[1]->n_cols);
    struct expr **exprs = sql_get(q, 2 * (size_t)n, sizeof(struct expr *));
    uint8_t *marks = sql_get(q, n, sizeof(*marks));
    if (!exprs || !marks)
        return -ENOMEM;
    for (uint32_t c = 0; c < n && rc == 0; c++) {
        struct expr *pair[2] = {sql_column_expr(q, sides[0], c, s->pos),
                                sql_column_expr(q, sides[1], c, s->pos)};
        enum sql_type type;
        for (int side = 0; side < 2 && pair[0] && pair[1]; side++)
            pair[side]->literal = sides[side]->cols[c].literal;
        rc = pair[0] && pair[1] ? sql_unite_marks(q, s->pos, pair, &marks[c]) : -ENOMEM;
        rc = rc < 0 ? rc : sql_unify(q, pair, 2, name, &type);
        exprs[c] = pair[0];
        exprs[n + c] = pair[1];
    }
    for (int side = 0; side < 2 && rc == 0; side++)
        rc = cast_side(q, &sides[side], exprs + (side ? n : 0), marks);
    if (rc == 0 && s->set != SET_UNION)
        return sql_set(sides[0], sides[1], s->set == SET_EXCEPT, s->all, ret);
    if (rc == 0)
        rc = sql_append(sides[0], sides[1], ret);
    if (rc == 0 && !s->all)
        rc = sql_distinct(*ret, NULL, 0, n, ret);
    return rc;
}
