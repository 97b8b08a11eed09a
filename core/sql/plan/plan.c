/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/plan/plan.c - a select becomes operators: from, where, group by, having, list, order,
 * limit.
 *
 * The query's thread only.  From and where are in plan_join.c and plan_table.c, sets in plan_set.c,
 * the list in plan_list.c, order by in plan_order.c.
 */
#include "core/sql/plan/plan_list.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "core/base/err.h"
#include "core/base/text.h"

#define PLANS_MAX 2000 /* selects in one query, views, with and subqueries at each use */

/* ---- group by ---- */

struct grouping {
    struct expr **keys;
    uint32_t n_keys;
    uint32_t n_shown; /* columns of the aggregate before the aggregates: keys, number of the set */
    uint32_t *key_of; /* of each expression in group by: which key it is */
    uint64_t *lack;   /* grouping sets: the keys that each has not; NULL: all have all */
    uint32_t n_sets;
    const struct op *input;
    struct expr **op_keys; /* over the operator below the aggregate */
    struct op *op;         /* the aggregate */
};

static int add_key(struct grouping *g, struct expr *e, uint32_t *ret_key)
{
    for (uint32_t i = 0; i < g->n_keys; i++) {
        *ret_key = i;
        if (sql_expr_equal(g->keys[i], e))
            return 0;
    }
    *ret_key = g->n_keys;
    if (g->n_keys == SQL_CALL_ARGS)
        return err_set(-E2BIG, "more than %d columns to group by", SQL_CALL_ARGS);
    g->keys[g->n_keys++] = e;
    return 0;
}

static int bind_group(struct query *q, const struct select *s, struct scope *scope, struct list *l,
                      struct grouping *g)
{
    struct scope in = {.op = scope->op,
                       .clause = "group by",
                       .items = l->items,
                       .n_items = l->n,
                       .allow_correlated = true,
                       .ctes = scope->ctes};
    g->keys = sql_get(q, SQL_CALL_ARGS, sizeof(struct expr *));
    g->key_of = sql_get(q, s->n_group, sizeof(*g->key_of));
    if (!g->keys || !g->key_of)
        return -ENOMEM;
    for (uint32_t i = 0; i < s->n_group; i++) {
        struct expr *e;
        uint32_t item = 0;
        bool by_number = s->group[i]->kind == NODE_INT;
        int rc = by_number ? sql_ordinal(q, s->group[i], l->n, "group by", &item)
                           : sql_bind(q, &in, s->group[i], &e);
        if (rc < 0)
            return rc;
        if (by_number)
            e = l->items[item].expr;
        if (sql_expr_has_agg(e) || sql_expr_has_window(e))
            return sql_refuse(q, s->group[i]->pos,
                              sql_expr_has_agg(e) ? "an aggregate cannot be grouped by"
                                                  : "a window function cannot be grouped by");
        rc = add_key(g, e, &g->key_of[i]);
        if (rc < 0)
            return rc;
    }
    /* Without group by, or with group by all: whatever is not aggregated is grouped by. */
    for (uint32_t i = 0; i < l->n && (s->group_all || (!s->n_group && !s->n_sets &&
                                                       !s->group_none && scope->n_aggs));
         i++) {
        if (sql_expr_has_agg(l->items[i].expr) || sql_expr_has_window(l->items[i].expr) ||
            !sql_expr_has_column(l->items[i].expr))
            continue;
        uint32_t key;
        int rc = add_key(g, l->items[i].expr, &key);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static void add_set(struct grouping *g, uint64_t lack, bool distinct)
{
    uint32_t i = 0;
    while (i < g->n_sets && (!distinct || g->lack[i] != lack))
        i++;
    g->lack[i] = lack;
    g->n_sets += i == g->n_sets;
}

/* Each row once for each set; the keys become columns of that. */
static int plan_sets(struct query *q, const struct select *s, struct grouping *g, struct op **op)
{
    uint32_t first = (*op)->n_cols;
    g->lack = sql_get(q, s->n_sets, sizeof(*g->lack));
    struct expr **keys = sql_get(q, g->n_keys + 1, sizeof(struct expr *));
    if (!g->lack || !keys)
        return -ENOMEM;
    for (uint32_t i = 0; i < s->n_sets; i++) {
        uint64_t has = 0;
        for (uint32_t k = 0; k < s->n_group; k++)
            has |= (s->sets[i] >> k & 1) << g->key_of[k];
        add_set(g, ~has & ((UINT64_C(1) << g->n_keys) - 1), s->sets_distinct);
    }
    int rc = sql_grouping_sets(*op, g->keys, g->n_keys, g->lack, g->n_sets, op);
    for (uint32_t k = 0; k < g->n_keys + 1 && rc == 0; k++) {
        keys[k] = sql_column_expr(q, *op, first + k, s->pos);
        rc = keys[k] ? 0 : -ENOMEM;
    }
    g->op_keys = keys;
    return rc;
}

/* grouping(a, b) from the number of the set: ((n >> a) & 1) << 1 | (n >> b) & 1 */
static int regroup_grouping(struct query *q, const struct grouping *g, struct expr **e)
{
    const struct expr *call = *e;
    const struct node at = {.kind = NODE_CALL, .pos = call->pos};
    struct expr *sum = sql_const(q, (struct sql_value){.type = SQL_INT}, call->pos);
    int rc = sum ? 0 : -ENOMEM;
    for (uint32_t i = 0; i < call->n_args && rc == 0; i++) {
        uint32_t k = 0;
        while (k < g->n_keys && !sql_expr_equal(g->keys[k], call->args[i]))
            k++;
        if (k == g->n_keys)
            return sql_refuse(q, call->args[i]->pos,
                              "grouping() takes expressions that are grouped by, as written there");
        if (!g->lack)
            continue; /* 0 */
        struct expr *bit = sql_column_expr(q, g->op, g->n_keys, call->pos);
        const struct sql_value one = {.type = SQL_INT, .integer = 1};
        struct expr *by =
            sql_const(q, (struct sql_value){.type = SQL_INT, .integer = k}, call->pos);
        struct expr *ones[2] = {sql_const(q, one, call->pos), sql_const(q, one, call->pos)};
        if (!bit || !by || !ones[0] || !ones[1])
            return -ENOMEM;
        rc = sql_call_named(q, &at, ">>", bit, by, &bit);
        rc = rc < 0 ? rc : sql_call_named(q, &at, "&", bit, ones[0], &bit);
        rc = rc < 0 ? rc : sql_call_named(q, &at, "<<", sum, ones[1], &sum);
        rc = rc < 0 ? rc : sql_call_named(q, &at, "|", sum, bit, &sum);
    }
    *e = sum;
    return rc;
}

/* The expression over the aggregate's columns instead of its input's. */
static int regroup_expr(struct query *q, const void *arg, struct expr **e)
{
    const struct grouping *g = arg;
    for (uint32_t k = 0; k < g->n_keys; k++)
        if (sql_expr_equal(g->keys[k], *e))
            return sql_use_column(q, g->op, k, e);
    if ((*e)->kind == EXPR_AGG)
        return sql_use_column(q, g->op, g->n_shown + (*e)->column, e);
    if ((*e)->kind == EXPR_GROUPING)
        return regroup_grouping(q, g, e);
    if ((*e)->kind == EXPR_COLUMN)
        return sql_error(q->text, q->size, (*e)->pos, -EINVAL,
                         "column '%s' must be in group by or inside an aggregate",
                         g->input->cols[(*e)->column].name);
    return sql_expr_change_args(q, e, regroup_expr, g);
}

/* ---- one select ---- */

static int plan_groups(struct query *q, const struct select *s, struct scope *scope, struct list *l,
                       struct expr *having, struct op **op)
{
    struct grouping g = {.n_keys = 0};
    int rc = bind_group(q, s, scope, l, &g);
    g.input = *op;
    g.op_keys = g.keys;
    g.n_shown = g.n_keys + (s->n_sets > 0);
    const struct expr *bucket = rc < 0 || s->n_sets ? NULL : sql_find_bucket(*op, g.keys, g.n_keys);
    if (bucket && q->o->closed)
        rc = sql_only_closed(q, bucket, op);
    if (rc == 0 && s->n_sets)
        rc = plan_sets(q, s, &g, op);
    if (rc == 0)
        rc = sql_aggregate(*op, g.op_keys, g.n_shown, scope->aggs, scope->n_aggs, &g.op);
    if (rc == 0 && bucket)
        q->notes.bucketed = g.op;
    for (uint32_t i = 0; i < l->n && rc == 0; i++)
        rc = regroup_expr(q, &g, &l->items[i].expr);
    *op = rc == 0 ? g.op : *op;
    if (rc == 0 && having) {
        rc = regroup_expr(q, &g, &having);
        if (rc == 0)
            rc = sql_filter(*op, &having, 1, op);
    }
    return rc;
}

/* qualify: a condition over the window functions, for now the last column of the list. */
static int bind_qualify(struct query *q, const struct select *s, struct scope *scope,
                        struct list *l)
{
    struct expr *e;
    scope->items = l->items;
    scope->n_items = l->n;
    int rc = sql_bind(q, scope, s->qualify, &e);
    scope->items = NULL;
    scope->n_items = 0;
    if (rc == 0)
        rc = sql_coerce(q, &e, SQL_BOOL, "qualify");
    return rc < 0 ? rc : sql_list_add(q, l, e, "", false);
}

static int plan_windows(struct query *q, const struct select *s, struct list *l, struct op **op)
{
    int rc = sql_plan_windows(q, l->items, l->n, op);
    if (rc < 0 || !s->qualify)
        return rc;
    l->n--;
    return sql_filter(*op, &l->items[l->n].expr, 1, op);
}

static int plan_core(struct query *q, const struct select *s, struct cte *ctes, struct op **ret)
{
    struct op *op;
    struct list l = {.n = 0};
    struct ordering o;
    struct expr *having = NULL;
    int rc = s->from ? sql_plan_from(q, s->from, ctes, &op) : sql_scan_none(q, &op);
    if (rc == 0 && s->where)
        rc = sql_plan_where(q, s->where, ctes, &op);
    if (rc < 0)
        return rc;
    struct scope scope = {.op = op,
                          .allow_aggs = true,
                          .allow_correlated = true,
                          .clause = "select",
                          .windows = s->windows,
                          .ctes = ctes};
    scope.allow_windows = true;
    rc = sql_list_bind(q, s, &scope, &l);
    scope.allow_windows = false;
    if (rc == 0 && s->having) {
        scope.items = l.items;
        scope.n_items = l.n;
        scope.clause = "having";
        rc = sql_bind(q, &scope, s->having, &having);
        if (rc == 0)
            rc = sql_coerce(q, &having, SQL_BOOL, "having");
        if (rc == 0 && sql_expr_has_window(having))
            rc = sql_refuse(q, s->having->pos,
                            "window functions are not allowed in having; qualify "
                            "filters by them, or a select around this one");
        scope.items = NULL;
        scope.n_items = 0;
        scope.clause = "select";
    }
    scope.allow_windows = true;
    if (rc == 0)
        rc = sql_order_bind(q, s, &scope, &l, &o);
    if (rc == 0 && s->qualify)
        rc = bind_qualify(q, s, &scope, &l);
    if (rc == 0 && (scope.n_aggs || s->n_group || s->n_sets || s->group_all || s->group_none ||
                    scope.grouping || having))
        rc = plan_groups(q, s, &scope, &l, having, &op);
    if (rc == 0)
        rc = plan_windows(q, s, &l, &op);
    if (rc == 0)
        rc = sql_list_project(q, op, &l, &op);
    if (rc == 0 && s->distinct)
        rc = sql_distinct(op, NULL, 0, op->n_cols, &op);
    if (rc == 0)
        rc = sql_order_plan(q, s, &o, &op);
    *ret = op;
    return rc;
}

int sql_plan_select(struct query *q, const struct select *s, struct cte *ctes, struct op **ret)
{
    if (++q->n_plans > PLANS_MAX)
        return sql_error(q->text, q->size, s->pos, -E2BIG,
                         "more than %d selects, those of views and with counted at each use",
                         PLANS_MAX);
    if (q->depth + 2 >= SQL_BIND_DEPTH)
        return sql_refuse(q, s->pos, "selects are nested too deeply");
    int rc = sql_check(q); /* a statement of few words may ask for thousands of plans */
    if (rc < 0)
        return rc;
    q->depth += 2; /* a select takes more of the stack than an expression */
    ctes = s->ctes ? s->ctes : ctes;
    rc = s->set == SET_NONE     ? plan_core(q, s, ctes, ret)
         : s->set == SET_VALUES ? sql_plan_values(q, s, ret)
                                : sql_plan_set(q, s, ctes, ret);
    if (rc == 0 && s->set != SET_NONE)
        rc = sql_order_over(q, s, ctes, ret);
    q->depth -= 2;
    return rc;
}
