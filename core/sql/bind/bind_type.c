/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/bind/bind_type.c - one type where one is needed: casts, what adapts, constants folded.
 *
 * The query's thread only.  'text' and NULL adapt to what they are compared with, whole numbers to
 * doubles; everything else is refused rather than guessed.
 */
#include "core/sql/bind/bind.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "core/base/err.h"
#include "core/sql/value/timestamp_parts.h"

/* Replace a call whose arguments are all constants by its value; what fails is left to fail when,
 * and if, a row gets there. */
int sql_fold_call(struct query *q, struct expr **e)
{
    struct sql_value v;
    bool unknown = false;
    uint8_t outer = 0;
    if ((*e)->kind == EXPR_CALL && ((*e)->func->flags & FUNC_PER_BATCH))
        return 0;
    for (uint32_t i = 0; i < (*e)->n_args; i++) {
        if ((*e)->args[i]->kind != EXPR_CONST)
            return 0;
        unknown = unknown || (*e)->args[i]->unknown;
        outer = sql_nearer((*e)->args[i]->outer, outer);
    }
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
    c->unknown = unknown;
    c->outer = outer;
    *e = c;
    return 0;
}

/* May the text say more than a number of ns can?  One that is not written in the statement may. */
static bool has_parts(const struct expr *text)
{
    struct interval v = {.ns = 0};
    int64_t ns;
    return text->kind != EXPR_CONST || !text->literal || text->unknown ||
           (text->value.type == SQL_TEXT &&
            sql_parse_interval(text->value.text.data, text->value.text.size, &v) == 0 &&
            !sql_interval_is_ns(v, &ns));
}

/* 'now', 'today', 'yesterday', 'tomorrow': what PostgreSQL reads as a time when it reads the
 * statement.  The text becomes a timestamp. */
static bool special_time(const struct query *q, struct expr **e, enum sql_type type)
{
    static const char *const words[] = {"yesterday", "today", "tomorrow", "now"};
    const int64_t day = INT64_C(86400000000000);
    const struct sql_value *x = &(*e)->value;
    size_t i = 0;
    if ((*e)->kind != EXPR_CONST || x->type != SQL_TEXT ||
        (type != SQL_TIMESTAMP && type != SQL_DATE))
        return false;
    while (i < 4 && (strlen(words[i]) != x->text.size ||
                     strncasecmp(words[i], x->text.data, x->text.size) != 0))
        i++;
    if (i == 4)
        return false;
    int64_t today = q->now_utc - (q->now_utc % day + day) % day;
    (*e)->value = (struct sql_value){
        .type = SQL_TIMESTAMP, .integer = i == 3 ? q->now_utc : today + ((int64_t)i - 1) * day};
    (*e)->type = SQL_TIMESTAMP;
    return true;
}

/* e in a call of `f`, which gives `type`. */
static struct expr *cast_by(struct query *q, struct expr *e, const struct func *f,
                            enum sql_type type)
{
    struct expr *cast = sql_new_expr(q, EXPR_CALL, type, e->pos, 1);
    if (cast) {
        cast->func = f;
        cast->args[0] = e;
        cast->unit = e->unit;
    }
    return cast;
}

int sql_interval_to_ns(struct query *q, struct expr **e)
{
    const struct expr *x = *e;
    bool constant = x->kind == EXPR_CONST;
    if (x->type != SQL_CALENDAR || (constant && x->value.type == SQL_NULL) ||
        (constant && sql_interval_unpack(x->value.text.data).months))
        return 0;
    *e = cast_by(q, *e, sql_cast_func(SQL_CALENDAR, SQL_INTERVAL, false), SQL_INTERVAL);
    return *e ? sql_fold_call(q, e) : -ENOMEM;
}

int sql_cast_to(struct query *q, struct expr **e, enum sql_type type, bool forgiving)
{
    if (type == SQL_INTERVAL && (*e)->type == SQL_CALENDAR)
        return 0;
    int as_ns = type == SQL_INT || type == SQL_DOUBLE ? sql_interval_to_ns(q, e) : 0;
    if (as_ns < 0)
        return as_ns;
    if (type == SQL_INTERVAL && (*e)->type == SQL_TEXT && has_parts(*e))
        type = SQL_CALENDAR;
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
        c->unknown = (*e)->unknown;
        c->outer = (*e)->outer;
        *e = c;
        return 0;
    }
    if (special_time(q, e, type))
        return sql_cast_to(q, e, type, forgiving);
    bool constant = (*e)->kind == EXPR_CONST;
    const struct func *f = sql_cast_func((*e)->type, type, forgiving);
    if (!f)
        return sql_error(q->text, q->size, (*e)->pos, -EINVAL, "%s cannot be converted to %s",
                         sql_a_type((*e)->type), sql_a_type(type));
    struct expr *cast = cast_by(q, *e, f, type);
    if (!cast)
        return -ENOMEM;
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
    bool adapts = x->type == type || sql_widens(x->type, type) || x->literal ||
                  x->type == SQL_NULL || (x->type == SQL_CALENDAR && type == SQL_INTERVAL);
    if (!adapts)
        return sql_error(q->text, q->size, x->pos, -EINVAL, "%s needs %s, this is %s", what,
                         sql_a_type(type), sql_a_type(x->type));
    if (x->type == type)
        return 0;
    int rc = sql_cast_to(q, e, type, false);
    if (rc == 0 && type == SQL_INTERVAL)
        rc = sql_interval_to_ns(q, e);
    if (rc == 0 && (*e)->type != type)
        return sql_error(q->text, q->size, x->pos, -EINVAL,
                         "%s takes an interval without months or years: these have no fixed length",
                         what);
    return rc;
}

int sql_unify(struct query *q, struct expr **e, uint32_t n, const char *what, enum sql_type *ret)
{
    enum sql_type type = SQL_NULL;
    for (uint32_t i = 0; i < n; i++) {
        if (e[i]->type == SQL_NULL || (e[i]->literal && type != SQL_NULL))
            continue;
        if (type == SQL_NULL || sql_widens(type, e[i]->type))
            type = e[i]->type;
    }
    for (uint32_t i = 0; i < n; i++) /* 'text' gives way to what is not a literal */
        if (type == SQL_TEXT && !e[i]->literal && e[i]->type != SQL_NULL)
            type = e[i]->type;
    for (uint32_t i = 0; i < n; i++)
        if (sql_widens(type, e[i]->type))
            type = e[i]->type;
    type = type == SQL_NULL ? SQL_TEXT : type;
    for (uint32_t i = 0; i < n; i++) {
        int rc = sql_coerce(q, &e[i], type, what);
        if (rc < 0)
            return rc;
    }
    *ret = type;
    return 0;
}
