/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/expr/expr_tree.c - trees of expressions: made, compared, looked through, shifted.
 *
 * The query's thread only.
 */
#include "core/sql/expr/expr.h"

#include <errno.h>
#include <string.h>

struct expr *sql_new_expr(struct query *q, enum expr_kind kind, enum sql_type type, uint32_t pos,
                          uint32_t n_args)
{
    struct expr *e = sql_get(q, 1, sizeof(*e));
    if (!e)
        return NULL;
    *e = (struct expr){.kind = kind, .type = type, .pos = pos, .n_args = n_args};
    e->args = sql_get(q, n_args, sizeof(struct expr *));
    return e->args ? e : NULL;
}

struct expr *sql_const(struct query *q, struct sql_value v, uint32_t pos)
{
    struct expr *e = sql_new_expr(q, EXPR_CONST, v.type, pos, 0);
    if (e) {
        e->value = v;
        e->literal = v.type == SQL_NULL;
    }
    return e;
}

struct expr *sql_column_expr(struct query *q, const struct op *op, uint32_t column, uint32_t pos)
{
    struct expr *e = sql_new_expr(q, EXPR_COLUMN, op->cols[column].type, pos, 0);
    if (e) {
        e->column = column;
        e->dict = op->cols[column].dict;
        e->unit = op->cols[column].unit;
        e->mark = op->cols[column].mark;
    }
    return e;
}

int sql_use_column(struct query *q, const struct op *op, uint32_t column, struct expr **e)
{
    struct expr *found = sql_column_expr(q, op, column, (*e)->pos);
    if (!found)
        return -ENOMEM;
    found->mark = (*e)->mark;
    *e = found;
    return 0;
}

static bool same_const(const struct sql_value *a, const struct sql_value *b)
{
    if (a->type != b->type)
        return false;
    if (sql_is_textual(a->type))
        return a->text.size == b->text.size &&
               memcmp(a->text.data, b->text.data, a->text.size) == 0;
    if (a->type == SQL_BOOL)
        return a->boolean == b->boolean;
    return a->type == SQL_NULL || a->integer == b->integer;
}

bool sql_expr_equal(const struct expr *a, const struct expr *b)
{
    if (a->kind != b->kind || a->type != b->type || a->n_args != b->n_args || a->func != b->func)
        return false;
    bool numbered = a->kind == EXPR_COLUMN || a->kind == EXPR_AGG || a->kind == EXPR_SUBQUERY;
    if (numbered && a->column != b->column)
        return false;
    if (a->kind == EXPR_WINDOW && a->set != b->set)
        return false;
    if ((a->kind == EXPR_IN || a->kind == EXPR_SUBQUERY) && a->negated != b->negated)
        return false;
    if (a->kind == EXPR_IN && !sql_same_set(a, b))
        return false;
    if (a->kind == EXPR_CONST)
        return same_const(&a->value, &b->value);
    if (a->kind == EXPR_SUBQUERY && !same_const(&a->value, &b->value))
        return false;
    for (uint32_t i = 0; i < a->n_args; i++)
        if (!sql_expr_equal(a->args[i], b->args[i]))
            return false;
    return true;
}

bool sql_expr_has_agg(const struct expr *e)
{
    if (e->kind == EXPR_AGG || e->kind == EXPR_GROUPING)
        return true;
    for (uint32_t i = 0; i < e->n_args; i++)
        if (sql_expr_has_agg(e->args[i]))
            return true;
    return false;
}

bool sql_expr_has_window(const struct expr *e)
{
    if (e->kind == EXPR_WINDOW)
        return true;
    for (uint32_t i = 0; i < e->n_args; i++)
        if (sql_expr_has_window(e->args[i]))
            return true;
    return false;
}

bool sql_expr_has_column(const struct expr *e)
{
    if (e->kind == EXPR_COLUMN)
        return true;
    for (uint32_t i = 0; i < e->n_args; i++)
        if (sql_expr_has_column(e->args[i]))
            return true;
    return false;
}

bool sql_expr_is_free(const struct expr *e)
{
    if (e->kind == EXPR_SUBQUERY || (e->kind == EXPR_IN && e->n_args > 1))
        return false; /* they remember what they were asked */
    for (uint32_t i = 0; i < e->n_args; i++)
        if (!sql_expr_is_free(e->args[i]))
            return false;
    return true;
}

bool sql_expr_only_from(const struct expr *e, uint32_t first, uint32_t end)
{
    if (e->kind == EXPR_COLUMN)
        return e->column >= first && e->column < end;
    for (uint32_t i = 0; i < e->n_args; i++)
        if (!sql_expr_only_from(e->args[i], first, end))
            return false;
    return true;
}

struct expr *sql_expr_copy(struct query *q, const struct expr *e)
{
    struct expr *copy = sql_new_expr(q, e->kind, e->type, e->pos, e->n_args);
    if (!copy)
        return NULL;
    struct expr **args = copy->args;
    *copy = *e;
    copy->args = args;
    for (uint32_t i = 0; i < e->n_args; i++)
        args[i] = e->args[i];
    return copy;
}

int sql_expr_change_args(struct query *q, struct expr **e,
                         int (*change)(struct query *q, const void *arg, struct expr **e),
                         const void *arg)
{
    struct expr *copy = (*e)->n_args ? sql_expr_copy(q, *e) : *e;
    if (!copy)
        return -ENOMEM;
    int rc = 0;
    for (uint32_t i = 0; i < copy->n_args && rc == 0; i++)
        rc = change(q, arg, &copy->args[i]);
    *e = copy;
    return rc;
}

struct expr *sql_expr_shifted(struct query *q, const struct expr *e, uint32_t by)
{
    struct expr *copy = sql_expr_copy(q, e);
    if (!copy)
        return NULL;
    if (e->kind == EXPR_COLUMN)
        copy->column -= by;
    for (uint32_t i = 0; i < e->n_args; i++)
        if (!(copy->args[i] = sql_expr_shifted(q, e->args[i], by)))
            return NULL;
    return copy;
}
