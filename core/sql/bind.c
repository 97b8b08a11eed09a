/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/bind.c - names become columns and functions, expressions get their types.
 *
 * The query's thread only.  Constants are computed here.  Subqueries cannot see the query around
 * them, so each is run once, here, and becomes a constant or a set.
 */
#include "core/sql/sqlint.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "core/base/err.h"
#include "core/base/text.h"

#define NAMES_MAX 512 /* names looked through for the nearest */

static int wrong(struct query *q, uint32_t pos, const char *what)
{
    return sql_error(q->text, q->size, pos, -EINVAL, "%s", what);
}

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

bool sql_expr_equal(const struct expr *a, const struct expr *b)
{
    if (a->kind != b->kind || a->type != b->type || a->n_args != b->n_args || a->func != b->func)
        return false;
    if ((a->kind == EXPR_COLUMN || a->kind == EXPR_AGG) && a->column != b->column)
        return false;
    if ((a->kind == EXPR_IN && a != b) || (a->kind == EXPR_WINDOW && a->set != b->set))
        return false;
    if (a->kind == EXPR_CONST) {
        if (a->value.type != b->value.type)
            return false;
        if (sql_is_textual(a->value.type))
            return a->value.text.size == b->value.text.size &&
                   memcmp(a->value.text.data, b->value.text.data, a->value.text.size) == 0;
        if (a->value.type == SQL_BOOL)
            return a->value.boolean == b->value.boolean;
        return a->value.type == SQL_NULL || a->value.integer == b->value.integer;
    }
    for (uint32_t i = 0; i < a->n_args; i++)
        if (!sql_expr_equal(a->args[i], b->args[i]))
            return false;
    return true;
}

bool sql_expr_has_agg(const struct expr *e)
{
    if (e->kind == EXPR_AGG)
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

/* ---- columns ---- */

void sql_want(struct op *op, uint32_t column)
{
    if (op->want)
        op->want[column] = true;
    if (op->on_want)
        op->on_want(op, column);
}

struct expr *sql_column_expr(struct query *q, const struct op *op, uint32_t column, uint32_t pos)
{
    struct expr *e = sql_new_expr(q, EXPR_COLUMN, op->cols[column].type, pos, 0);
    if (e) {
        e->column = column;
        e->dict = op->cols[column].dict;
        e->unit = op->cols[column].unit;
    }
    return e;
}

static bool same_name(const char *a, const char *b, bool exact)
{
    return a && (exact ? strcmp(a, b) == 0 : strcasecmp(a, b) == 0);
}

static int find_named(struct query *q, const struct op *op, const struct node *n, const char *name)
{
    int found = -1;
    for (uint32_t c = 0; c < op->n_cols; c++) {
        const struct col *col = &op->cols[c];
        if (!same_name(col->name, name, n->quoted) || (col->hidden && !n->parts[0]))
            continue;
        if (n->parts[0] && !same_name(col->table, n->parts[0], false))
            continue;
        if (n->parts[1] && !same_name(col->schema, n->parts[1], false))
            continue;
        if (found >= 0)
            return sql_error(q->text, q->size, n->pos, -2,
                             "column '%s' is in more than one of the tables; say which: %s.%s or "
                             "%s.%s",
                             n->text, op->cols[found].table ? op->cols[found].table : "?", n->text,
                             col->table ? col->table : "?", n->text);
        found = (int)c;
    }
    return found;
}

int sql_find_column(struct query *q, const struct op *op, const struct node *n)
{
    int found = find_named(q, op, n, n->text);
    if (found == -1 && strcasecmp(n->text, "timestamp") == 0)
        found = find_named(q, op, n, "ts");
    if (found == -1 && strcasecmp(n->text, "step") == 0)
        found = find_named(q, op, n, "local_step");
    return found;
}

int sql_no_column(struct query *q, const struct op *op, const struct node *n)
{
    const char *names[NAMES_MAX];
    uint32_t count = 0;
    char where[256] = "the tables of this query";
    bool one = op->n_cols > 0 && op->cols[0].table;
    for (uint32_t c = 0; c < op->n_cols && count < NAMES_MAX; c++) {
        if (n->parts[0] && !same_name(op->cols[c].table, n->parts[0], false))
            continue;
        names[count++] = op->cols[c].name;
        one = one && same_name(op->cols[c].table, op->cols[0].table ? op->cols[0].table : "", true);
    }
    if (n->parts[0] && count == 0)
        return sql_error(q->text, q->size, n->pos, -EINVAL, "no table '%s' in from", n->parts[0]);
    if (op->n_cols == 0)
        return sql_error(q->text, q->size, n->pos, -EINVAL,
                         "no column '%s': there is no from with a table; texts are written with "
                         "single quotes",
                         n->text);
    if (n->parts[0])
        (void)snprintf(where, sizeof(where), "%s", n->parts[0]);
    else if (one && op->cols[0].schema)
        (void)snprintf(where, sizeof(where), "%s.%s", op->cols[0].schema, op->cols[0].table);
    else if (one)
        (void)snprintf(where, sizeof(where), "%s", op->cols[0].table);
    const char *near = text_nearest(n->text, names, count);
    if (near)
        return sql_error(q->text, q->size, n->pos, -EINVAL,
                         "no column '%s' in %s; did you mean '%s'?", n->text, where, near);
    return sql_error(q->text, q->size, n->pos, -EINVAL,
                     "no column '%s' in %s; `describe` lists them", n->text, where);
}

static int bind_name(struct query *q, struct scope *s, const struct node *n, struct expr **ret)
{
    int column = s->op ? sql_find_column(q, s->op, n) : -1;
    if (column == -2)
        return -EINVAL;
    if (column >= 0) {
        sql_want(s->op, (uint32_t)column);
        *ret = sql_column_expr(q, s->op, (uint32_t)column, n->pos);
        return *ret ? 0 : -ENOMEM;
    }
    for (uint32_t i = 0; i < s->n_items && !n->parts[0]; i++) {
        if (s->items[i].aliased && same_name(s->items[i].name, n->text, n->quoted)) {
            *ret = s->items[i].expr;
            return 0;
        }
    }
    struct op nothing = {.n_cols = 0};
    return sql_no_column(q, s->op ? s->op : &nothing, n);
}

/* ---- types ---- */

/* Replace a call whose arguments are all constants by its value; what fails is left to fail when,
 * and if, a row gets there. */
static int fold(struct query *q, struct expr **e)
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
    if ((*e)->kind == EXPR_CONST && (*e)->value.type == SQL_NULL) {
        struct expr *c = sql_const(q, (*e)->value, (*e)->pos);
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

/* ---- calls ---- */

static int no_function(struct query *q, const struct node *n, struct expr **args, bool known)
{
    char types[256] = "";
    size_t at = 0;
    for (uint32_t i = 0; i < n->n_args && at < sizeof(types) - 16; i++)
        at += (size_t)snprintf(
            types + at, sizeof(types) - at, "%s%s", i ? ", " : "",
            args[i]->literal && args[i]->type != SQL_NULL ? "'...'" : sql_type_name(args[i]->type));
    bool sign = n->text[0] < 'a' || n->text[0] > 'z';
    if (known && sign && n->n_args == 2)
        return sql_error(q->text, q->size, n->pos, -EINVAL,
                         "no operator %s for %s and %s; cast one of them: x::%s", n->text,
                         sql_type_name(args[0]->type), sql_type_name(args[1]->type),
                         sql_type_name(args[0]->type));
    if (known)
        return sql_error(q->text, q->size, n->pos, -EINVAL,
                         "no function %s(%s): it takes other "
                         "arguments",
                         strcmp(n->text, "neg") == 0 ? "-" : n->text, types);
    if (sign)
        return sql_error(q->text, q->size, n->pos, -EINVAL, "no operator %s in this version",
                         n->text);
    const char *names[NAMES_MAX];
    uint32_t count = sql_func_names(names, NAMES_MAX / 2);
    count += sql_agg_names(names + count, NAMES_MAX / 2 - 8);
    names[count++] = "coalesce";
    names[count++] = "nullif";
    names[count++] = "now";
    const char *near = text_nearest(n->text, names, count);
    if (near)
        return sql_error(q->text, q->size, n->pos, -EINVAL, "no function '%s'; did you mean '%s'?",
                         n->text, near);
    return sql_error(q->text, q->size, n->pos, -EINVAL, "no function '%s'", n->text);
}

/* The call of a known function with bound arguments, each made the type it takes. */
static int make_call(struct query *q, const struct node *n, struct expr **args, struct expr **ret)
{
    enum sql_type types[SQL_CALL_ARGS];
    bool literals[SQL_CALL_ARGS], known = false;
    for (uint32_t i = 0; i < n->n_args; i++) {
        types[i] = args[i]->type;
        literals[i] = args[i]->literal;
    }
    const struct func *f = sql_func_find(n->text, types, literals, n->n_args, &known);
    if (!f)
        return no_function(q, n, args, known);
    struct expr *e = sql_new_expr(q, EXPR_CALL, SQL_NULL, n->pos, n->n_args);
    if (!e)
        return -ENOMEM;
    e->func = f;
    e->type = sql_letter_type(f->result, n->n_args ? types[0] : SQL_NULL);
    const char *letter = f->args;
    for (uint32_t i = 0; i < n->n_args; i++) {
        e->args[i] = args[i];
        int rc = *letter == 'x'
                     ? 0
                     : sql_coerce(q, &e->args[i], sql_letter_type(*letter, types[i]), n->text);
        if (rc < 0)
            return rc;
        if (letter[1] != '*')
            letter++;
    }
    *ret = e;
    return fold(q, ret);
}

static int bind_nullif(struct query *q, const struct node *n, struct expr **args, struct expr **ret)
{
    struct expr *equal, *e = sql_new_expr(q, EXPR_CASE, args[0]->type, n->pos, 3);
    struct expr *null = sql_const(q, (struct sql_value){.type = SQL_NULL}, n->pos);
    struct node eq = *n;
    eq.text = "=";
    if (!e || !null)
        return -ENOMEM;
    int rc = make_call(q, &eq, args, &equal);
    if (rc < 0)
        return rc;
    null->type = args[0]->type;
    e->args[0] = equal;
    e->args[1] = null;
    e->args[2] = args[0];
    *ret = e;
    return fold(q, ret);
}

/* coalesce and concat and || and now: what the table of functions cannot say. 1: it was one. */
static int bind_special(struct query *q, const struct node *n, struct expr **args,
                        struct expr **ret)
{
    int rc = 0;
    if (strcmp(n->text, "now") == 0 && n->n_args == 0) {
        *ret =
            sql_const(q, (struct sql_value){.type = SQL_TIMESTAMP, .integer = q->now_utc}, n->pos);
        return *ret ? 1 : -ENOMEM;
    }
    bool coalesce = strcmp(n->text, "coalesce") == 0 || strcmp(n->text, "ifnull") == 0;
    if (coalesce && n->n_args > 0) {
        struct expr *e = sql_new_expr(q, EXPR_COALESCE, SQL_NULL, n->pos, n->n_args);
        if (!e)
            return -ENOMEM;
        memcpy(e->args, args, n->n_args * sizeof(struct expr *));
        rc = sql_unify(q, e->args, n->n_args, "coalesce", &e->type);
        e->unit = e->args[0]->unit;
        *ret = e;
        rc = rc < 0 ? rc : fold(q, ret);
        return rc < 0 ? rc : 1;
    }
    if (strcmp(n->text, "nullif") == 0 && n->n_args == 2) {
        rc = bind_nullif(q, n, args, ret);
        return rc < 0 ? rc : 1;
    }
    if (strcmp(n->text, "concat") == 0 || strcmp(n->text, "||") == 0) {
        bool any = strcmp(n->text, "concat") == 0;
        for (uint32_t i = 0; i < n->n_args; i++)
            any = any || args[i]->type == SQL_TEXT;
        for (uint32_t i = 0; i < n->n_args && any && rc == 0; i++)
            if (args[i]->type != SQL_TEXT)
                rc = sql_cast_to(q, &args[i], SQL_TEXT, false);
    }
    return rc;
}

static int bind_call(struct query *q, struct scope *s, const struct node *n, struct expr **ret)
{
    const struct agg_kind *kind = sql_agg_find(n->text);
    if (n->over)
        return sql_window_bind(q, s, n, ret);
    if (sql_window_only(n->text))
        return sql_error(q->text, q->size, n->pos, -EINVAL,
                         "%s() is a window function: %s(...) over (order by ...)", n->text,
                         n->text);
    if (kind)
        return sql_agg_bind(q, s, n, kind, ret);
    if (n->star || n->distinct || n->filter)
        return sql_error(q->text, q->size, n->pos, -EINVAL,
                         "'%s' is no aggregate: *, distinct and filter are not for it", n->text);
    if (n->n_args > SQL_CALL_ARGS)
        return wrong(q, n->pos, "more than 64 arguments");
    struct expr **args = sql_get(q, n->n_args, sizeof(struct expr *)); /* the stack is short */
    if (!args)
        return -ENOMEM;
    for (uint32_t i = 0; i < n->n_args; i++) {
        int rc = sql_bind(q, s, n->args[i], &args[i]);
        if (rc < 0)
            return rc;
    }
    int rc = bind_special(q, n, args, ret);
    return rc < 0 ? rc : rc > 0 ? 0 : make_call(q, n, args, ret);
}

static int call_named(struct query *q, const struct node *n, const char *name, struct expr *a,
                      struct expr *b, struct expr **ret)
{
    struct node call = *n;
    struct expr *args[2] = {a, b};
    call.text = name;
    call.n_args = b ? 2 : 1;
    return make_call(q, &call, args, ret);
}

static int negate(struct query *q, const struct node *n, bool negated, struct expr **e)
{
    return negated ? call_named(q, n, "not", *e, NULL, e) : 0;
}

/* ---- in, case, and, or ---- */

static int bind_logic(struct query *q, struct scope *s, const struct node *n, struct expr **ret)
{
    bool and = n->kind == NODE_AND;
    struct expr *e = sql_new_expr(q, and? EXPR_AND : EXPR_OR, SQL_BOOL, n->pos, n->n_args);
    if (!e)
        return -ENOMEM;
    for (uint32_t i = 0; i < n->n_args; i++) {
        int rc = sql_bind(q, s, n->args[i], &e->args[i]);
        if (rc == 0)
            rc = sql_coerce(q, &e->args[i], SQL_BOOL, and? "and" : "or");
        if (rc < 0)
            return rc;
    }
    *ret = e;
    return fold(q, ret);
}

static int bind_case(struct query *q, struct scope *s, const struct node *n, struct expr **ret)
{
    struct expr *e = sql_new_expr(q, EXPR_CASE, SQL_NULL, n->pos, n->n_args);
    struct expr **values = sql_get(q, n->n_args, sizeof(struct expr *));
    uint32_t n_values = 0;
    if (!e || !values)
        return -ENOMEM;
    for (uint32_t i = 0; i < n->n_args; i++) {
        int rc = sql_bind(q, s, n->args[i], &e->args[i]);
        bool when = i % 2 == 0 && i + 1 < n->n_args;
        if (rc == 0 && when)
            rc = sql_coerce(q, &e->args[i], SQL_BOOL, "when");
        if (rc < 0)
            return rc;
        if (!when)
            values[n_values++] = e->args[i];
    }
    int rc = sql_unify(q, values, n_values, "case", &e->type);
    if (rc < 0)
        return rc;
    n_values = 0;
    for (uint32_t i = 0; i < n->n_args; i++)
        if (i % 2 == 1 || i + 1 == n->n_args)
            e->args[i] = values[n_values++];
    *ret = e;
    return fold(q, ret);
}

/* The probe and the values get one type: values adapt, or the probe becomes a double. */
static int in_types(struct query *q, struct expr **probe, struct expr **values, uint32_t n)
{
    enum sql_type type = (*probe)->type;
    for (uint32_t i = 0; i < n; i++) {
        bool loose = (*probe)->literal || type == SQL_NULL;
        if ((type == SQL_INT && values[i]->type == SQL_DOUBLE) ||
            (loose && !values[i]->literal && values[i]->type != SQL_NULL))
            type = values[i]->type;
    }
    type = type == SQL_NULL ? SQL_TEXT : type;
    int rc = sql_coerce(q, probe, type, "in");
    for (uint32_t i = 0; i < n && rc == 0; i++)
        rc = sql_coerce(q, &values[i], type, "in");
    return rc;
}

static int in_expr(struct query *q, const struct node *n, struct expr *probe,
                   const struct sql_value *values, uint32_t count, struct expr **ret)
{
    struct expr *e = sql_new_expr(q, EXPR_IN, SQL_BOOL, n->pos, 1);
    if (!e)
        return -ENOMEM;
    e->args[0] = probe;
    e->negated = n->negated;
    int rc = sql_make_set(q, e, values, count);
    *ret = e;
    return rc < 0 ? rc : fold(q, ret);
}

static int bind_in(struct query *q, struct scope *s, const struct node *n, struct expr **ret)
{
    uint32_t count = n->n_args - 1;
    struct expr *probe, **list = sql_get(q, count, sizeof(struct expr *));
    struct sql_value *values = sql_get(q, count, sizeof(*values));
    bool constant = true;
    if (!list || !values)
        return -ENOMEM;
    int rc = sql_bind(q, s, n->args[0], &probe);
    for (uint32_t i = 0; i < count && rc == 0; i++)
        rc = sql_bind(q, s, n->args[i + 1], &list[i]);
    if (rc == 0)
        rc = in_types(q, &probe, list, count);
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < count; i++) {
        constant = constant && list[i]->kind == EXPR_CONST;
        values[i] = list[i]->value;
    }
    if (constant)
        return in_expr(q, n, probe, values, count, ret);
    struct expr * or = sql_new_expr(q, EXPR_OR, SQL_BOOL, n->pos, count);
    for (uint32_t i = 0; i < count && rc == 0; i++)
        rc = or ? call_named(q, n, "=", probe, list[i], & or->args[i]) : -ENOMEM;
    if (rc < 0)
        return rc;
    *ret = or ;
    return negate(q, n, n->negated, ret);
}

/* ---- subqueries ---- */

struct collected {
    struct query *q;
    struct sql_value *values;
    uint32_t n, room, max;
};

static int collect(struct collected *c, struct op *op)
{
    int rc;
    while (c->n < c->max && (rc = sql_next(op)) != 0) {
        if (rc < 0)
            return rc;
        for (uint32_t k = 0; k < op->out.n_sel && c->n < c->max; k++) {
            struct sql_value v =
                sql_vec_value(c->q, &op->out.v[0], op->out.sel ? op->out.sel[k] : k);
            if (sql_is_textual(v.type)) {
                struct text t = sql_copy_text(c->q, (struct text){v.text.data, v.text.size});
                if (!(v.text.data = t.data))
                    return -ENOMEM;
            }
            if (c->n == c->room) {
                uint32_t room = c->room ? 2 * c->room : 16;
                struct sql_value *more = sql_get(c->q, room, sizeof(*more));
                if (!more)
                    return -ENOMEM;
                if (c->n)
                    memcpy(more, c->values, c->n * sizeof(*more));
                c->values = more;
                c->room = room;
            }
            c->values[c->n++] = v;
        }
    }
    return 0;
}

/* Plan and run a subquery of one column (any number for exists). */
static int run_subquery(struct query *q, struct scope *s, const struct node *n, uint32_t max,
                        struct collected *ret, enum sql_type *ret_type)
{
    struct op *op;
    int rc = sql_plan_select(q, n->select, s->ctes, &op);
    q->subqueries = true;
    if (rc < 0)
        return rc;
    if (op->n_cols != 1 && n->kind != NODE_EXISTS)
        return sql_error(q->text, q->size, n->pos, -EINVAL,
                         "a subquery used as a value gives one column, this gives %u", op->n_cols);
    *ret = (struct collected){.q = q, .max = max};
    *ret_type = op->cols[0].type;
    return q->dry ? 0 : collect(ret, op);
}

static int bind_subquery(struct query *q, struct scope *s, const struct node *n, struct expr **ret)
{
    struct collected c;
    enum sql_type type;
    int rc = run_subquery(q, s, n, n->kind == NODE_EXISTS ? 1 : 2, &c, &type);
    if (rc < 0)
        return rc;
    if (n->kind == NODE_EXISTS) {
        *ret = sql_const(q, (struct sql_value){.type = SQL_BOOL, .boolean = c.n > 0}, n->pos);
        return *ret ? 0 : -ENOMEM;
    }
    if (c.n > 1)
        return wrong(q, n->pos,
                     "a subquery used as a value gave more than one row; "
                     "use an aggregate or limit 1");
    *ret = sql_const(q, c.n ? c.values[0] : (struct sql_value){.type = SQL_NULL}, n->pos);
    if (!*ret)
        return -ENOMEM;
    (*ret)->type = type;
    (*ret)->literal = false;
    return 0;
}

static int bind_in_select(struct query *q, struct scope *s, const struct node *n, struct expr **ret)
{
    struct collected c;
    enum sql_type type;
    struct expr *probe;
    int rc = sql_bind(q, s, n->args[0], &probe);
    if (rc == 0)
        rc = run_subquery(q, s, n, UINT32_MAX, &c, &type);
    if (rc < 0)
        return rc;
    if (probe->type == SQL_INT && type == SQL_DOUBLE)
        rc = sql_cast_to(q, &probe, SQL_DOUBLE, false);
    bool widen = probe->type == SQL_DOUBLE && type == SQL_INT;
    for (uint32_t i = 0; i < c.n && widen; i++) {
        if (c.values[i].type == SQL_INT) {
            c.values[i].type = SQL_DOUBLE;
            c.values[i].number = (double)c.values[i].integer;
        }
    }
    if (rc == 0 && !widen)
        rc = sql_coerce(q, &probe, type, "in");
    if (rc < 0)
        return rc;
    if (c.n == 0) { /* nothing is in nothing, NULL neither */
        *ret = sql_const(q, (struct sql_value){.type = SQL_BOOL, .boolean = n->negated}, n->pos);
        return *ret ? 0 : -ENOMEM;
    }
    return in_expr(q, n, probe, c.values, c.n, ret);
}

/* ---- the switch ---- */

static int bind_literal(struct query *q, const struct node *n, struct expr **ret)
{
    struct sql_value v = {.type = SQL_NULL};
    if (n->kind == NODE_BOOL)
        v = (struct sql_value){.type = SQL_BOOL, .boolean = n->flag};
    else if (n->kind == NODE_INT)
        v = (struct sql_value){.type = SQL_INT, .integer = n->integer};
    else if (n->kind == NODE_DOUBLE)
        v = (struct sql_value){.type = SQL_DOUBLE, .number = n->number};
    else if (n->kind == NODE_TEXT)
        v = (struct sql_value){.type = SQL_TEXT, .text = {n->text, n->size}};
    *ret = sql_const(q, v, n->pos);
    if (!*ret)
        return -ENOMEM;
    (*ret)->literal = n->kind == NODE_TEXT || n->kind == NODE_NULL;
    return 0;
}

static int bind_one(struct query *q, struct scope *s, const struct node *n, struct expr **ret)
{
    int rc;
    switch (n->kind) {
    case NODE_NULL:
    case NODE_BOOL:
    case NODE_INT:
    case NODE_DOUBLE:
    case NODE_TEXT:
        return bind_literal(q, n, ret);
    case NODE_NAME:
        return bind_name(q, s, n, ret);
    case NODE_CALL:
        return bind_call(q, s, n, ret);
    case NODE_AND:
    case NODE_OR:
        return bind_logic(q, s, n, ret);
    case NODE_NOT:
        rc = sql_bind(q, s, n->args[0], ret);
        return rc < 0 ? rc : negate(q, n, true, ret);
    case NODE_IS_NULL:
        rc = sql_bind(q, s, n->args[0], ret);
        if (rc == 0)
            rc = call_named(q, n, "is null", *ret, NULL, ret);
        return rc < 0 ? rc : negate(q, n, n->negated, ret);
    case NODE_CASE:
        return bind_case(q, s, n, ret);
    case NODE_IN:
        return bind_in(q, s, n, ret);
    case NODE_IN_SELECT:
        return bind_in_select(q, s, n, ret);
    case NODE_EXISTS:
    case NODE_SELECT:
        return bind_subquery(q, s, n, ret);
    case NODE_CAST:
        rc = sql_bind(q, s, n->args[0], ret);
        return rc < 0 ? rc : sql_cast_to(q, ret, n->cast, n->flag);
    case NODE_STAR:
        return wrong(q, n->pos, "* stands for columns only in a select list and in count(*)");
    case NODE_ROW:
        break;
    }
    return wrong(q, n->pos, "rows of values are not in this version");
}

int sql_bind(struct query *q, struct scope *s, const struct node *n, struct expr **ret)
{
    struct expr *e = NULL;
    if (q->depth >= SQL_BIND_DEPTH)
        return sql_error(q->text, q->size, n->pos, -E2BIG,
                         "expressions, subqueries and views more than %d deep in all",
                         SQL_BIND_DEPTH);
    q->depth++;
    int rc = bind_one(q, s, n, &e);
    q->depth--;
    if (rc == 0)
        *ret = e;
    return rc;
}
