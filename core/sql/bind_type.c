/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/bind_type.c - one type where one is needed: casts, what adapts, constants folded.
 *
 * The query's thread only.  'text' and NULL adapt to what they are compared with, whole numbers to
 * doubles; everything else is refused rather than guessed.
 */
#include "core/sql/bind.h"

#include <errno.h>

#include "core/base/err.h"

/* Replace a call whose arguments are all constants by its value; what fails is left to fail when,
 * and if, a row gets there. */
int sql_fold_call(struct query *q, struct expr **e)
{
    struct sql_value v;
    if ((*e)->kind == EXPR_CALL && ((*e)->func->flags & FUNC_PER_BATCH))
        return 0;
    for (uint32_t i = 0; i < (*e)->n_args; i++)
        if ((*e)->args[i]->kind != EXPR_CONST)
            return 0;
    int rc = sql_fold(q, *e, &v);
    if (rc == -ENOMEM)
        return rc;
    if (rc < 0) {
        err_clear();
        return 0;
    }
    struct expr *c = sql_const(q, v, (*e)->pos);
    if (!c)
        return -ENOMEM;
    c->type = (*e)->type;
    c->literal = false;
    *e = c;
    return 0;
}

int sql_cast_to(struct query *q, struct expr **e, enum sql_type type, bool forgiving)
{
    if ((*e)->type == type) {
        (*e)->literal = false;
        return 0;
    }
    if ((*e)->type == SQL_NULL || ((*e)->kind == EXPR_CONST && (*e)->value.type == SQL_NULL)) {
        struct expr *c = sql_const(q, (struct sql_value){.type = SQL_NULL}, (*e)->pos);
        if (!c)
            return -ENOMEM;
        c->type = type;
        c->literal = false;
        *e = c;
        return 0;
    }
    const struct func *f = sql_cast_func((*e)->type, type, forgiving);
    if (!f)
        return sql_error(q->text, q->size, (*e)->pos, -EINVAL, "a %s cannot be made a %s",
                         sql_type_name((*e)->type), sql_type_name(type));
    struct expr *cast = sql_new_expr(q, EXPR_CALL, type, (*e)->pos, 1);
    if (!cast)
        return -ENOMEM;
    cast->func = f;
    cast->args[0] = *e;
    cast->unit = (*e)->unit;
    bool constant = (*e)->kind == EXPR_CONST;
    *e = cast;
    if (!constant)
        return 0;
    struct sql_value v;
    int rc = sql_fold(q, cast, &v); /* a wrong text is wrong whether or not a row comes */
    struct expr *c = rc < 0 ? NULL : sql_const(q, v, cast->pos);
    if (!c)
        return rc < 0 ? rc : -ENOMEM;
    c->type = type;
    c->literal = false;
    *e = c;
    return 0;
}

int sql_coerce(struct query *q, struct expr **e, enum sql_type type, const char *what)
{
    const struct expr *x = *e;
    bool adapts = x->type == type || (x->type == SQL_INT && type == SQL_DOUBLE) || x->literal ||
                  x->type == SQL_NULL;
    if (!adapts)
        return sql_error(q->text, q->size, x->pos, -EINVAL, "%s needs a %s, this is a %s", what,
                         sql_type_name(type), sql_type_name(x->type));
    if (x->type == type)
        return 0;
    return sql_cast_to(q, e, type, false);
}

int sql_unify(struct query *q, struct expr **e, uint32_t n, const char *what, enum sql_type *ret)
{
    enum sql_type type = SQL_NULL;
    for (uint32_t i = 0; i < n; i++) {
        if (e[i]->type == SQL_NULL || (e[i]->literal && type != SQL_NULL))
            continue;
        if (type == SQL_NULL || (type == SQL_INT && e[i]->type == SQL_DOUBLE))
            type = e[i]->type;
    }
    for (uint32_t i = 0; i < n; i++) /* 'text' gives way to what is not a literal */
        if (type == SQL_TEXT && !e[i]->literal && e[i]->type != SQL_NULL)
            type = e[i]->type;
    for (uint32_t i = 0; i < n; i++)
        if (type == SQL_INT && e[i]->type == SQL_DOUBLE)
            type = SQL_DOUBLE;
    type = type == SQL_NULL ? SQL_TEXT : type;
    for (uint32_t i = 0; i < n; i++) {
        int rc = sql_coerce(q, &e[i], type, what);
        if (rc < 0)
            return rc;
    }
    *ret = type;
    return 0;
}
