/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/plan/plan_order.c - order by, distinct on, limit and offset.
 *
 * The query's thread only.  What is ordered by is a column of the list, perhaps one that is not
 * shown.
 */
#include "core/sql/plan/plan_list.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

int sql_ordinal(struct query *q, const struct node *n, uint32_t count, const char *clause,
                uint32_t *ret)
{
    if (n->integer < 1 || n->integer > count)
        return sql_error(q->text, q->size, n->pos, -EINVAL,
                         "%s %lld: the select list has %u column%s", clause, (long long)n->integer,
                         count, count == 1 ? "" : "s");
    *ret = (uint32_t)n->integer - 1;
    return 0;
}

static int find_output(struct query *q, const struct list *l, uint32_t n, const struct node *name,
                       int *ret)
{
    int found = -1;
    for (uint32_t i = 0; i < n; i++) {
        if (strcasecmp(l->items[i].name, name->text) != 0)
            continue;
        if (found >= 0 && !sql_expr_equal(l->items[found].expr, l->items[i].expr))
            return sql_error(q->text, q->size, name->pos, -EINVAL,
                             "order by '%s': two columns of the list have this name", name->text);
        found = found < 0 ? (int)i : found;
    }
    *ret = found;
    return 0;
}

static bool is_constant(const struct node *n)
{
    return n->kind == NODE_DOUBLE || n->kind == NODE_TEXT || n->kind == NODE_BOOL ||
           n->kind == NODE_NULL;
}

/* The column of the list that an expression of order by (or distinct on) means: by number, name
 * or value; one more, not shown, where there is none. */
static int bind_ordinal(struct query *q, const struct node *n, struct scope *scope, struct list *l,
                        uint32_t n_shown, const char *clause, uint32_t *ret)
{
    struct expr *e;
    int at = -1, rc = 0;
    if (n->kind == NODE_INT) {
        rc = sql_ordinal(q, n, n_shown, clause, ret);
        return rc < 0 || strcmp(clause, "order by") != 0
                   ? rc
                   : sql_array_has_no_order(q, l->items[*ret].expr);
    }
    if (is_constant(n))
        return sql_error(q->text, q->size, n->pos, -EINVAL,
                         "%s a constant that is no column's number: it orders nothing; a column's "
                         "name is written in \"double quotes\", or without any",
                         clause);
    if (n->kind == NODE_NAME && !n->parts[0])
        rc = find_output(q, l, n_shown, n, &at);
    if (rc == 0 && at < 0) {
        scope->items = l->items;
        scope->n_items = n_shown;
        rc = sql_bind(q, scope, n, &e);
        scope->items = NULL;
        scope->n_items = 0;
        for (uint32_t c = 0; rc == 0 && c < l->n && at < 0; c++)
            at = sql_expr_equal(l->items[c].expr, e) ? (int)c : -1;
        if (rc == 0 && at < 0) {
            at = (int)l->n;
            rc = sql_list_add(q, l, e, "", false);
        }
    }
    if (rc == 0 && strcmp(clause, "order by") == 0)
        rc = sql_array_has_no_order(q, l->items[at].expr);
    *ret = at < 0 ? 0 : (uint32_t)at;
    return rc;
}

int sql_order_bind(struct query *q, const struct select *s, struct scope *scope, struct list *l,
                   struct ordering *o)
{
    *o = (struct ordering){.n_shown = l->n, .n_on = s->n_distinct_on};
    o->keys = sql_get(q, s->order_all ? l->n : s->n_order, sizeof(*o->keys));
    o->on = sql_get(q, s->n_distinct_on, sizeof(*o->on));
    if (!o->keys || !o->on)
        return -ENOMEM;
    for (uint32_t i = 0; i < o->n_on; i++) {
        int rc = bind_ordinal(q, s->distinct_on[i], scope, l, o->n_shown, "distinct on", &o->on[i]);
        if (rc < 0)
            return rc;
    }
    for (uint32_t c = 0; c < o->n_shown && s->order_all; c++) {
        int rc = sql_array_has_no_order(q, l->items[c].expr);
        if (rc < 0)
            return rc;
        o->keys[o->n++] = (struct sort_key){c, s->order->descending, s->order->nulls_first};
    }
    for (uint32_t i = 0; i < s->n_order; i++) {
        const struct node *n = s->order[i].node;
        uint32_t column;
        int rc = bind_ordinal(q, n, scope, l, o->n_shown, "order by", &column);
        if (rc < 0)
            return rc;
        if (s->distinct && column >= o->n_shown)
            return sql_refuse(q, n->pos, "with distinct, order by may use selected columns only");
        o->keys[o->n++] =
            (struct sort_key){column, s->order[i].descending, s->order[i].nulls_first};
    }
    return 0;
}

static int count_of(struct query *q, struct node *n, const char *clause, uint64_t *ret)
{
    struct expr *e;
    struct scope scope = {.clause = clause};
    if (!n)
        return 0;
    int rc = sql_bind(q, &scope, n, &e);
    if (rc == 0)
        rc = sql_coerce(q, &e, SQL_INT, clause);
    if (rc < 0)
        return rc;
    if (e->kind != EXPR_CONST || (e->value.type != SQL_NULL && e->value.integer < 0))
        return sql_error(q->text, q->size, n->pos, -EINVAL, "%s is a number from 0", clause);
    if (e->value.type != SQL_NULL)
        *ret = (uint64_t)e->value.integer;
    return 0;
}

int sql_order_plan(struct query *q, const struct select *s, const struct ordering *o,
                   struct op **op)
{
    uint64_t limit = UINT64_MAX, offset = 0;
    int rc = count_of(q, s->limit, "limit", &limit);
    if (rc == 0)
        rc = count_of(q, s->offset, "offset", &offset);
    bool few = limit < (1u << 20) && offset < (1u << 20) && !o->n_on && !s->ties;
    if (rc == 0 && o->n)
        rc = sql_sort(*op, o->keys, o->n, few ? limit + offset : 0,
                      o->n_on || s->ties ? (*op)->n_cols : o->n_shown, op);
    if (rc == 0 && o->n_on)
        rc = sql_distinct(*op, o->on, o->n_on, s->ties ? (*op)->n_cols : o->n_shown, op);
    q->sums_up = q->sums_up || s->limit || s->offset || o->n_on;
    if (rc == 0 && s->ties)
        rc = sql_limit_ties(*op, limit, offset, o->keys, o->n, o->n_shown, op);
    else if (rc == 0 && (s->limit || s->offset))
        rc = sql_limit(*op, limit, offset, op);
    return rc;
}

/* order by over the columns of a union or values: names, ordinals and expressions of them. */
int sql_order_over(struct query *q, const struct select *s, struct cte *ctes, struct op **op)
{
    struct list l = {.n = 0};
    struct ordering o;
    struct scope scope = {.op = *op, .clause = "order by", .ctes = ctes};
    struct node star = {.kind = NODE_STAR, .pos = s->pos};
    int rc = sql_list_star(q, &scope, &star, &l);
    if (rc == 0)
        rc = sql_order_bind(q, s, &scope, &l, &o);
    if (rc == 0 && l.n > o.n_shown)
        rc = sql_list_project(q, *op, &l, op);
    return rc < 0 ? rc : sql_order_plan(q, s, &o, op);
}
