/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/bind/bind.c - names become columns and functions, expressions get their types.
 *
 * The query's thread only.  Constants are computed here; subqueries are bind_subquery.c's.
 */
#include "core/sql/bind/bind.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "core/base/err.h"
#include "core/base/text.h"

#define NAMES_MAX 512 /* names looked through for the nearest */

int sql_refuse(struct query *q, uint32_t pos, const char *what)
{
    return sql_error(q->text, q->size, pos, -EINVAL, "%s", what);
}

/* ---- columns ---- */

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
        if (found >= 0) {
            (void)sql_error(q->text, q->size, n->pos, -EINVAL,
                            "column '%s' is ambiguous: more than one of the tables has it; write "
                            "%s.%s or %s.%s",
                            n->text, op->cols[found].table ? op->cols[found].table : "?", n->text,
                            col->table ? col->table : "?", n->text);
            return COLUMN_AMBIGUOUS;
        }
        found = (int)c;
    }
    return found;
}

/* Other names that the field's queries have for the same, where no column has them itself. */
static const char *const other_names[][2] = {
    {"timestamp", "ts"},     {"time", "ts"},    {"thread_id", "tid"},
    {"tid", "thread_id"},    {"key", "name"},   {"step", "local_step"},
    {"steps", "local_step"}, {"steps", "step"}, {"local_step", "step"},
};

const char *sql_other_name(const char *name, uint32_t *at)
{
    for (; *at < sizeof(other_names) / sizeof(other_names[0]); (*at)++)
        if (strcasecmp(name, other_names[*at][0]) == 0)
            return other_names[(*at)++][1];
    return NULL;
}

static int find_other_name(struct query *q, const struct op *op, const struct node *n)
{
    const char *name;
    uint32_t at = 0;
    int found = -1;
    while (found == -1 && (name = sql_other_name(n->text, &at)) != NULL)
        found = find_named(q, op, n, name);
    return found;
}

int sql_find_column(struct query *q, const struct op *op, const struct node *n)
{
    int found = find_named(q, op, n, n->text);
    return found == -1 ? find_other_name(q, op, n) : found;
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
        return sql_error(q->text, q->size, n->pos, -EINVAL, "unknown table '%s' in from",
                         n->parts[0]);
    const char *instead = n->quoted || n->parts[0] ? NULL : sql_instead_of(n->text);
    if (instead && strncmp(n->text, "json", 4) != 0 && count == 0)
        return sql_error(q->text, q->size, n->pos, -EINVAL, "unknown column '%s'; %s", n->text,
                         instead);
    for (uint32_t c = 0; c < op->n_cols && !n->parts[0]; c++)
        if (same_name(op->cols[c].table, n->text, false))
            return sql_error(q->text, q->size, n->pos, -EINVAL,
                             "'%s' is a table and no value; its columns are %s.*, and "
                             "json_build_object('a', a) makes one value of several",
                             n->text, n->text);
    if (op->n_cols == 0)
        return sql_error(q->text, q->size, n->pos, -EINVAL,
                         "unknown column '%s': the statement has no from with a table; texts "
                         "are written in single quotes",
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
                         "unknown column '%s' in %s; did you mean '%s'?", n->text, where, near);
    return sql_error(q->text, q->size, n->pos, -EINVAL,
                     n->quoted
                         ? "unknown column \"%s\" in %s; a text is written in single quotes: '%s'"
                         : "unknown column '%s' in %s; `describe` lists them",
                     n->text, where, n->text);
}

/* *ret NULL: no item of the list is called so. */
static int bind_item(struct query *q, const struct scope *s, const struct node *n,
                     struct expr **ret)
{
    *ret = NULL;
    for (uint32_t i = 0; i < s->n_items && !n->parts[0]; i++) {
        if (!s->items[i].aliased || !same_name(s->items[i].name, n->text, n->quoted))
            continue;
        *ret = s->items[i].expr;
        if (s->inside_agg && sql_expr_has_agg(*ret))
            return sql_refuse(q, n->pos, "an aggregate cannot be inside another aggregate");
        if ((s->inside_agg || s->inside_window) && sql_expr_has_window(*ret))
            return sql_refuse(q, n->pos, "a window function cannot be inside another function");
        return 0;
    }
    return 0;
}

static int bind_name(struct query *q, struct scope *s, const struct node *n, struct expr **ret)
{
    int column = s->op ? find_named(q, s->op, n, n->text) : -1;
    if (column == -1) { /* `date_trunc(...) as time ... group by time` means its own */
        int rc = bind_item(q, s, n, ret);
        if (rc < 0 || *ret)
            return rc;
        column = s->op ? find_other_name(q, s->op, n) : -1;
    }
    if (column == COLUMN_AMBIGUOUS)
        return -EINVAL;
    if (column >= 0) {
        sql_want(s->op, (uint32_t)column);
        *ret = sql_column_expr(q, s->op, (uint32_t)column, n->pos);
        return *ret ? 0 : -ENOMEM;
    }
    int rc = sql_bind_outer(q, n, ret);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    struct op nothing = {.n_cols = 0};
    return sql_no_column(q, s->op ? s->op : &nothing, n);
}

/* ---- in, case, and, or ---- */

static int negate_expr(struct query *q, const struct node *n, bool negated, struct expr **e)
{
    return negated ? sql_call_named(q, n, "not", *e, NULL, e) : 0;
}

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
    return sql_fold_call(q, ret);
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
    uint8_t mark;
    int rc = sql_unify_marks(q, n, values, n_values, &mark);
    rc = rc < 0 ? rc : sql_unify(q, values, n_values, "case", &e->type);
    if (rc < 0)
        return rc;
    n_values = 0;
    for (uint32_t i = 0; i < n->n_args; i++)
        if (i % 2 == 1 || i + 1 == n->n_args)
            e->args[i] = values[n_values++];
    *ret = e;
    rc = sql_fold_call(q, ret);
    (*ret)->mark = mark;
    return rc;
}

/* The probe and the values get one type: values adapt, or the probe becomes a double. */
static int in_types(struct query *q, struct expr **probe, struct expr **values, uint32_t n)
{
    enum sql_type type = (*probe)->type;
    for (uint32_t i = 0; i < n; i++) {
        bool loose = (*probe)->literal || type == SQL_NULL;
        if (sql_widens(type, values[i]->type) ||
            (loose && !values[i]->literal && values[i]->type != SQL_NULL))
            type = values[i]->type;
    }
    type = type == SQL_NULL ? SQL_TEXT : type;
    int rc = sql_coerce(q, probe, type, "in");
    for (uint32_t i = 0; i < n && rc == 0; i++)
        rc = sql_coerce(q, &values[i], type, "in");
    return rc;
}

static int bind_in(struct query *q, struct scope *s, const struct node *n, struct expr **ret)
{
    if (n->args[0]->kind == NODE_ROW)
        return sql_bind_row_in(q, s, n, ret);
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
        return sql_bind_in_rows(q, n, &probe, 1, values, count, ret);
    struct expr * or = sql_new_expr(q, EXPR_OR, SQL_BOOL, n->pos, count);
    for (uint32_t i = 0; i < count && rc == 0; i++)
        rc = or ? sql_call_named(q, n, "=", probe, list[i], & or->args[i]) : -ENOMEM;
    if (rc < 0)
        return rc;
    *ret = or ;
    return negate_expr(q, n, n->negated, ret);
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
    (*ret)->numeric = n->kind == NODE_DOUBLE;
    return 0;
}

/* As in PostgreSQL, 2.5::int of a numeric is 3; of a double, 2. */
static int bind_cast(struct query *q, const struct node *n, struct expr **ret)
{
    int rc = 0;
    if ((*ret)->numeric && n->cast == SQL_INT) {
        struct expr *zero = sql_const(q, (struct sql_value){.type = SQL_INT}, n->pos);
        rc = zero ? sql_call_named(q, n, "round", *ret, zero, ret) : -ENOMEM;
    }
    rc = rc < 0 ? rc : sql_cast_to(q, ret, n->cast, n->flag);
    if (rc == 0)
        rc = sql_mark(q, ret, n->clock ? MARK_CLOCK : MARK_NONE);
    if (rc == 0)
        (*ret)->numeric = n->exact;
    return rc;
}

/* (a, b) is null: both are; (a, b) is not null: none is. */
static int bind_row_is_null(struct query *q, struct scope *s, const struct node *n,
                            struct expr **ret)
{
    const struct node *row = n->args[0];
    struct expr *all = sql_new_expr(q, EXPR_AND, SQL_BOOL, n->pos, row->n_args);
    int rc = all ? 0 : -ENOMEM;
    for (uint32_t i = 0; i < row->n_args && rc == 0; i++) {
        rc = sql_bind(q, s, row->args[i], &all->args[i]);
        if (rc == 0)
            rc = sql_call_named(q, n, "is null", all->args[i], NULL, &all->args[i]);
        if (rc == 0)
            rc = negate_expr(q, n, n->negated, &all->args[i]);
    }
    *ret = all;
    return rc < 0 ? rc : sql_fold_call(q, ret);
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
        return sql_bind_call(q, s, n, ret);
    case NODE_AND:
    case NODE_OR:
        return bind_logic(q, s, n, ret);
    case NODE_NOT:
        rc = sql_bind(q, s, n->args[0], ret);
        return rc < 0 ? rc : negate_expr(q, n, true, ret);
    case NODE_IS_NULL:
        if (n->args[0]->kind == NODE_ROW)
            return bind_row_is_null(q, s, n, ret);
        rc = sql_bind(q, s, n->args[0], ret);
        if (rc == 0)
            rc = sql_call_named(q, n, "is null", *ret, NULL, ret);
        return rc < 0 ? rc : negate_expr(q, n, n->negated, ret);
    case NODE_CASE:
        return bind_case(q, s, n, ret);
    case NODE_IN:
        return bind_in(q, s, n, ret);
    case NODE_IN_SELECT:
        return sql_bind_in_select(q, s, n, ret);
    case NODE_EXISTS:
    case NODE_SELECT:
        return sql_bind_subquery(q, s, n, ret);
    case NODE_CAST:
        rc = sql_bind(q, s, n->args[0], ret);
        return rc < 0 ? rc : bind_cast(q, n, ret);
    case NODE_STAR:
        return sql_refuse(q, n->pos, "* is allowed only in a select list and in count(*)");
    case NODE_ROW:
        break;
    }
    return sql_refuse(q, n->pos,
                      "a row of values is allowed only in comparisons, in, order by and group by");
}

int sql_bind(struct query *q, struct scope *s, const struct node *n, struct expr **ret)
{
    struct expr *e = NULL;
    if (q->depth >= SQL_BIND_DEPTH)
        return sql_error(q->text, q->size, n->pos, -E2BIG,
                         "expressions, subqueries and views are nested more than %d levels deep",
                         SQL_BIND_DEPTH);
    q->depth++;
    int rc = bind_one(q, s, n, &e);
    q->depth--;
    if (rc == 0)
        *ret = e;
    return rc;
}
