/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/bind/bind_row.c - rows of values: (a, b) < (c, d) and (a, b) in ((1, 2), (3, 4)).
 *
 * The query's thread only.  A comparison of rows becomes comparisons of their values: a < c or
 * (a = c and b < d), which has the NULLs right too.
 */
#include "core/sql/bind/bind.h"

#include <errno.h>
#include <string.h>

static int make_logic(struct query *q, enum expr_kind kind, const struct node *n, struct expr *a,
                      struct expr *b, struct expr **ret)
{
    struct expr *e = sql_new_expr(q, kind, SQL_BOOL, n->pos, 2);
    if (!e)
        return -ENOMEM;
    e->args[0] = a;
    e->args[1] = b;
    *ret = e;
    return sql_fold_call(q, ret);
}

static int bind_values(struct query *q, struct scope *s, const struct node *row, uint32_t n,
                       struct expr ***ret)
{
    if (row->kind != NODE_ROW || row->n_args != n)
        return sql_error(q->text, q->size, row->pos, -EINVAL,
                         "a row of %u values is compared with %s", n,
                         row->kind == NODE_ROW ? "one of another length" : "a single value");
    struct expr **values = sql_get(q, n, sizeof(struct expr *));
    int rc = values ? 0 : -ENOMEM;
    for (uint32_t i = 0; i < n && rc == 0; i++)
        rc = sql_bind(q, s, row->args[i], &values[i]);
    *ret = values;
    return rc;
}

/* All pairs equal, or (distinct) any pair different. */
static int combine_all(struct query *q, const struct node *n, const char *name, bool any,
                       struct expr **a, struct expr **b, uint32_t count, struct expr **ret)
{
    struct expr *e, *all = NULL;
    int rc = 0;
    for (uint32_t i = 0; i < count && rc == 0; i++) {
        rc = sql_call_named(q, n, name, a[i], b[i], &e);
        if (rc == 0 && all)
            rc = make_logic(q, any ? EXPR_OR : EXPR_AND, n, all, e, &e);
        all = e;
    }
    *ret = all;
    return rc;
}

/* From the last pair to the first: less, or equal and the rest is less. */
static int in_order(struct query *q, const struct node *n, struct expr **a, struct expr **b,
                    uint32_t count, struct expr **ret)
{
    const char *strict = n->text[0] == '<' ? "<" : ">";
    struct expr *rest, *less, *equal;
    int rc = sql_call_named(q, n, n->text, a[count - 1], b[count - 1], &rest);
    for (uint32_t i = count - 1; i-- > 0 && rc == 0;) {
        rc = sql_call_named(q, n, strict, a[i], b[i], &less);
        if (rc == 0)
            rc = sql_call_named(q, n, "=", a[i], b[i], &equal);
        if (rc == 0)
            rc = make_logic(q, EXPR_AND, n, equal, rest, &rest);
        if (rc == 0)
            rc = make_logic(q, EXPR_OR, n, less, rest, &rest);
    }
    *ret = rest;
    return rc;
}

int sql_bind_row_compare(struct query *q, struct scope *s, const struct node *n, struct expr **ret)
{
    struct expr **a, **b;
    uint32_t count = n->args[0]->n_args;
    int rc = bind_values(q, s, n->args[0], count, &a);
    if (rc == 0)
        rc = bind_values(q, s, n->args[1], count, &b);
    if (rc < 0)
        return rc;
    if (strcmp(n->text, "=") == 0 || strcmp(n->text, "is not distinct from") == 0)
        return combine_all(q, n, n->text, false, a, b, count, ret);
    if (strcmp(n->text, "<>") == 0 || strcmp(n->text, "is distinct from") == 0)
        return combine_all(q, n, n->text, true, a, b, count, ret);
    if (n->text[0] == '<' || n->text[0] == '>')
        return in_order(q, n, a, b, count, ret);
    return sql_error(q->text, q->size, n->pos, -EINVAL, "no operator %s for rows of values",
                     n->text);
}

int sql_bind_in_rows(struct query *q, const struct node *n, struct expr **probes, uint32_t n_probes,
                     const struct sql_value *values, uint32_t count, struct expr **ret)
{
    struct expr *e = sql_new_expr(q, EXPR_IN, SQL_BOOL, n->pos, n_probes);
    if (!e)
        return -ENOMEM;
    memcpy(e->args, probes, n_probes * sizeof(struct expr *));
    e->negated = n->negated;
    int rc = sql_make_set(q, e, values, count);
    *ret = e;
    return rc < 0 ? rc : sql_fold_call(q, ret);
}

int sql_bind_row_in(struct query *q, struct scope *s, const struct node *n, struct expr **ret)
{
    uint32_t columns = n->args[0]->n_args, rows = n->n_args - 1;
    struct expr **probes, **row, *any = sql_new_expr(q, EXPR_OR, SQL_BOOL, n->pos, rows);
    int rc = any ? bind_values(q, s, n->args[0], columns, &probes) : -ENOMEM;
    for (uint32_t r = 0; r < rows && rc == 0; r++) {
        rc = bind_values(q, s, n->args[r + 1], columns, &row);
        if (rc == 0)
            rc = combine_all(q, n, "=", false, probes, row, columns, &any->args[r]);
    }
    if (rc < 0)
        return rc;
    *ret = any;
    return n->negated ? sql_call_named(q, n, "not", any, NULL, ret) : sql_fold_call(q, ret);
}
