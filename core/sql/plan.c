/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/plan.c - a select becomes operators: from, where, group by, having, list, order, limit.
 *
 * The query's thread only.  From and where are in plan_join.c and plan_table.c, sets in plan_set.c.
 */
#include "core/sql/sqlint.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "core/base/err.h"
#include "core/base/text.h"

#define PLANS_MAX 2000 /* selects in one query, views, with and subqueries at each use */
#define ITEMS_MAX 1000 /* columns of a select list */

static int wrong(struct query *q, uint32_t pos, const char *what)
{
    return sql_error(q->text, q->size, pos, -EINVAL, "%s", what);
}

/* ---- the select list ---- */

struct list {
    struct out_item *items;
    uint32_t n, room;
};

static int add_item(struct query *q, struct list *l, struct expr *e, const char *name, bool aliased)
{
    if (l->n == ITEMS_MAX)
        return err_set(-E2BIG, "more than %d columns in a select list", ITEMS_MAX);
    if (l->n == l->room) {
        uint32_t room = l->room ? 2 * l->room : 16;
        struct out_item *more = sql_get(q, room, sizeof(*more));
        if (!more)
            return -ENOMEM;
        if (l->n)
            memcpy(more, l->items, l->n * sizeof(*more));
        l->items = more;
        l->room = room;
    }
    l->items[l->n++] = (struct out_item){e, name, aliased};
    return 0;
}

static bool is_excluded(const struct node *star, const char *name)
{
    for (uint32_t i = 0; i < star->n_exclude; i++)
        if (strcasecmp(star->exclude[i]->text, name) == 0)
            return true;
    return false;
}

static int expand_star(struct query *q, struct op *op, const struct node *star, struct list *l)
{
    uint32_t before = l->n;
    for (uint32_t i = 0; i < 2 * op->n_cols; i++) {
        uint32_t c = i % op->n_cols; /* those of using () come first, as in the standard */
        const struct col *col = &op->cols[c];
        if (!star->parts[0] && col->first != (i < op->n_cols))
            continue;
        if (star->parts[0] && i >= op->n_cols)
            break;
        if ((star->parts[0] && (!col->table || strcasecmp(col->table, star->parts[0]) != 0)) ||
            (star->parts[1] && (!col->schema || strcasecmp(col->schema, star->parts[1]) != 0)) ||
            (!star->parts[0] && col->hidden) || is_excluded(star, col->name))
            continue;
        struct expr *e = sql_column_expr(q, op, c, star->pos);
        sql_want(op, c);
        int rc = e ? add_item(q, l, e, col->name, false) : -ENOMEM;
        if (rc < 0)
            return rc;
    }
    if (l->n > before)
        return 0;
    if (star->parts[0])
        return sql_error(q->text, q->size, star->pos, -EINVAL, "no table '%s' in from",
                         star->parts[0]);
    return wrong(q, star->pos, "* needs a from with columns");
}

/* The name of a column without an alias: as it is written, blanks made one. */
static const char *written(struct query *q, const struct node *n)
{
    if (n->kind == NODE_NAME)
        return n->text;
    char text[128];
    size_t at = 0;
    for (uint32_t i = n->start; i < n->end && i < q->size && at + 1 < sizeof(text); i++) {
        char c = q->text[i];
        bool blank = c == ' ' || c == '\n' || c == '\t' || c == '\r';
        if (blank && at && text[at - 1] == ' ')
            continue;
        text[at++] = blank ? ' ' : c;
    }
    while (at && ((unsigned char)text[at - 1] & 0xc0) == 0x80 && at + 1 == sizeof(text))
        at--; /* cut inside a character */
    char *copy = arena_text(&q->mem, text, at);
    return copy;
}

static int bind_items(struct query *q, const struct select *s, struct scope *scope, struct list *l)
{
    for (uint32_t i = 0; i < s->n_items; i++) {
        const struct item *item = &s->items[i];
        if (item->node->kind == NODE_STAR) {
            int rc = expand_star(q, scope->op, item->node, l);
            if (rc < 0)
                return rc;
            continue;
        }
        struct expr *e;
        const char *name = item->alias ? item->alias : written(q, item->node);
        int rc = sql_bind(q, scope, item->node, &e);
        if (rc == 0)
            rc = name ? add_item(q, l, e, name, item->alias != NULL) : -ENOMEM;
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- group by ---- */

struct grouping {
    struct expr **keys;
    uint32_t n_keys;
    struct op *op; /* the aggregate */
};

static int add_key(struct grouping *g, struct expr *e)
{
    for (uint32_t i = 0; i < g->n_keys; i++)
        if (sql_expr_equal(g->keys[i], e))
            return 0;
    if (g->n_keys == SQL_CALL_ARGS)
        return err_set(-E2BIG, "more than %d columns to group by", SQL_CALL_ARGS);
    g->keys[g->n_keys++] = e;
    return 0;
}

static int ordinal(struct query *q, const struct node *n, uint32_t count, const char *clause,
                   uint32_t *ret)
{
    if (n->integer < 1 || n->integer > count)
        return sql_error(q->text, q->size, n->pos, -EINVAL,
                         "%s %lld: the select list has %u column%s", clause, (long long)n->integer,
                         count, count == 1 ? "" : "s");
    *ret = (uint32_t)n->integer - 1;
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
    if (!g->keys)
        return -ENOMEM;
    for (uint32_t i = 0; i < s->n_group; i++) {
        struct expr *e;
        uint32_t item = 0;
        bool by_number = s->group[i]->kind == NODE_INT;
        int rc = by_number ? ordinal(q, s->group[i], l->n, "group by", &item)
                           : sql_bind(q, &in, s->group[i], &e);
        if (rc < 0)
            return rc;
        if (by_number)
            e = l->items[item].expr;
        if (sql_expr_has_agg(e) || sql_expr_has_window(e))
            return wrong(q, s->group[i]->pos,
                         sql_expr_has_agg(e) ? "an aggregate cannot be grouped by"
                                             : "a window function cannot be grouped by");
        rc = add_key(g, e);
        if (rc < 0)
            return rc;
    }
    /* Without group by, or with group by all: whatever is not aggregated is grouped by. */
    for (uint32_t i = 0;
         i < l->n && (s->group_all || (!s->n_group && !s->group_none && scope->n_aggs)); i++) {
        if (sql_expr_has_agg(l->items[i].expr) || sql_expr_has_window(l->items[i].expr) ||
            !sql_expr_has_column(l->items[i].expr))
            continue;
        int rc = add_key(g, l->items[i].expr);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* The expression over the aggregate's columns instead of its input's. */
static int regroup(struct query *q, const struct grouping *g, struct expr **e)
{
    for (uint32_t k = 0; k < g->n_keys; k++) {
        if (sql_expr_equal(g->keys[k], *e)) {
            struct expr *key = *e;
            *e = sql_column_expr(q, g->op, k, key->pos);
            return *e ? 0 : -ENOMEM;
        }
    }
    if ((*e)->kind == EXPR_AGG) {
        *e = sql_column_expr(q, g->op, g->n_keys + (*e)->column, (*e)->pos);
        return *e ? 0 : -ENOMEM;
    }
    if ((*e)->kind == EXPR_COLUMN)
        return sql_error(q->text, q->size, (*e)->pos, -EINVAL,
                         "column '%s' must be in group by or inside an aggregate",
                         g->op->child->cols[(*e)->column].name);
    if ((*e)->n_args == 0)
        return 0;
    struct expr *copy = sql_new_expr(q, (*e)->kind, (*e)->type, (*e)->pos, (*e)->n_args);
    if (!copy)
        return -ENOMEM;
    struct expr **args = copy->args;
    *copy = **e;
    copy->args = args;
    for (uint32_t i = 0; i < copy->n_args; i++) {
        args[i] = (*e)->args[i];
        int rc = regroup(q, g, &args[i]);
        if (rc < 0)
            return rc;
    }
    *e = copy;
    return 0;
}

/* ---- order by ---- */

struct ordering {
    struct sort_key *keys;
    uint32_t n;
    uint32_t n_shown; /* columns of the list; what is beyond is only sorted or told apart by */
    uint32_t *on;     /* distinct on: columns */
    uint32_t n_on;
};

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

/* The column of the list that an expression of order by (or distinct on) means: by number, name
 * or value; one more, not shown, where there is none. */
static int bind_place(struct query *q, const struct node *n, struct scope *scope, struct list *l,
                      uint32_t n_shown, const char *clause, uint32_t *ret)
{
    struct expr *e;
    int at = -1, rc = 0;
    if (n->kind == NODE_INT)
        return ordinal(q, n, n_shown, clause, ret);
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
            rc = add_item(q, l, e, "", false);
        }
    }
    *ret = at < 0 ? 0 : (uint32_t)at;
    return rc;
}

static int bind_order(struct query *q, const struct select *s, struct scope *scope, struct list *l,
                      struct ordering *o)
{
    *o = (struct ordering){.n_shown = l->n, .n_on = s->n_distinct_on};
    o->keys = sql_get(q, s->n_order, sizeof(*o->keys));
    o->on = sql_get(q, s->n_distinct_on, sizeof(*o->on));
    if (!o->keys || !o->on)
        return -ENOMEM;
    for (uint32_t i = 0; i < o->n_on; i++) {
        int rc = bind_place(q, s->distinct_on[i], scope, l, o->n_shown, "distinct on", &o->on[i]);
        if (rc < 0)
            return rc;
    }
    for (uint32_t i = 0; i < s->n_order; i++) {
        const struct node *n = s->order[i].node;
        uint32_t column;
        int rc = bind_place(q, n, scope, l, o->n_shown, "order by", &column);
        if (rc < 0)
            return rc;
        if (s->distinct && column >= o->n_shown)
            return wrong(q, n->pos, "with distinct, order by may use only what is selected");
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

static int plan_tail(struct query *q, const struct select *s, const struct ordering *o,
                     struct op **op)
{
    uint64_t limit = UINT64_MAX, offset = 0;
    int rc = count_of(q, s->limit, "limit", &limit);
    if (rc == 0)
        rc = count_of(q, s->offset, "offset", &offset);
    bool few = limit < (1u << 20) && offset < (1u << 20) && !o->n_on;
    if (rc == 0 && o->n)
        rc = sql_sort(*op, o->keys, o->n, few ? limit + offset : 0,
                      o->n_on ? (*op)->n_cols : o->n_shown, op);
    if (rc == 0 && o->n_on)
        rc = sql_distinct(*op, o->on, o->n_on, o->n_shown, op);
    if (rc == 0 && (s->limit || s->offset))
        rc = sql_limit(*op, limit, offset, op);
    return rc;
}

/* ---- one select ---- */

static int project_items(struct query *q, struct op *op, const struct list *l, struct op **ret)
{
    struct expr **exprs = sql_get(q, l->n, sizeof(struct expr *));
    struct col *cols = sql_get(q, l->n, sizeof(*cols));
    if (!exprs || !cols)
        return -ENOMEM;
    for (uint32_t i = 0; i < l->n; i++) {
        struct expr *e = exprs[i] = l->items[i].expr;
        const char *doc = e->kind == EXPR_COLUMN ? op->cols[e->column].doc : "";
        cols[i] = (struct col){.name = l->items[i].name, .unit = e->unit, .doc = doc ? doc : ""};
    }
    return sql_project(op, exprs, cols, l->n, ret);
}

static int plan_groups(struct query *q, const struct select *s, struct scope *scope, struct list *l,
                       struct expr *having, struct op **op)
{
    struct grouping g = {.n_keys = 0};
    int rc = bind_group(q, s, scope, l, &g);
    const struct expr *bucket = rc < 0 ? NULL : sql_find_bucket(*op, g.keys, g.n_keys);
    if (bucket && q->o->closed)
        rc = sql_only_closed(q, bucket, op);
    if (rc == 0)
        rc = sql_aggregate(*op, g.keys, g.n_keys, scope->aggs, scope->n_aggs, &g.op);
    if (rc == 0 && bucket)
        q->bucketed = g.op;
    for (uint32_t i = 0; i < l->n && rc == 0; i++)
        rc = regroup(q, &g, &l->items[i].expr);
    *op = rc == 0 ? g.op : *op;
    if (rc == 0 && having) {
        rc = regroup(q, &g, &having);
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
    return rc < 0 ? rc : add_item(q, l, e, "", false);
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
    rc = bind_items(q, s, &scope, &l);
    scope.allow_windows = false;
    if (rc == 0 && s->having) {
        scope.items = l.items;
        scope.n_items = l.n;
        rc = sql_bind(q, &scope, s->having, &having);
        if (rc == 0)
            rc = sql_coerce(q, &having, SQL_BOOL, "having");
        if (rc == 0 && sql_expr_has_window(having))
            rc = wrong(q, s->having->pos, "a window function cannot stand in having");
        scope.items = NULL;
        scope.n_items = 0;
    }
    scope.allow_windows = true;
    if (rc == 0)
        rc = bind_order(q, s, &scope, &l, &o);
    if (rc == 0 && s->qualify)
        rc = bind_qualify(q, s, &scope, &l);
    if (rc == 0 && (scope.n_aggs || s->n_group || s->group_all || s->group_none || having))
        rc = plan_groups(q, s, &scope, &l, having, &op);
    if (rc == 0)
        rc = plan_windows(q, s, &l, &op);
    if (rc == 0)
        rc = project_items(q, op, &l, &op);
    if (rc == 0 && s->distinct)
        rc = sql_distinct(op, NULL, 0, op->n_cols, &op);
    if (rc == 0)
        rc = plan_tail(q, s, &o, &op);
    *ret = op;
    return rc;
}

/* order by over the columns of a union or values: names, ordinals and expressions of them. */
static int plan_order_over(struct query *q, const struct select *s, struct cte *ctes,
                           struct op **op)
{
    struct list l = {.n = 0};
    struct ordering o;
    struct scope scope = {.op = *op, .clause = "order by", .ctes = ctes};
    struct node star = {.kind = NODE_STAR, .pos = s->pos};
    int rc = expand_star(q, *op, &star, &l);
    if (rc == 0)
        rc = bind_order(q, s, &scope, &l, &o);
    if (rc == 0 && l.n > o.n_shown)
        rc = project_items(q, *op, &l, op);
    return rc < 0 ? rc : plan_tail(q, s, &o, op);
}

int sql_plan_select(struct query *q, const struct select *s, struct cte *ctes, struct op **ret)
{
    if (++q->n_plans > PLANS_MAX)
        return sql_error(q->text, q->size, s->pos, -E2BIG,
                         "more than %d selects, those of views and with counted at each use",
                         PLANS_MAX);
    if (q->depth + 2 >= SQL_BIND_DEPTH)
        return wrong(q, s->pos, "selects within selects too deep");
    q->depth += 2; /* a select takes more of the stack than an expression */
    ctes = s->ctes ? s->ctes : ctes;
    int rc = s->set == SET_NONE     ? plan_core(q, s, ctes, ret)
             : s->set == SET_VALUES ? sql_plan_values(q, s, ret)
                                    : sql_plan_set(q, s, ctes, ret);
    if (rc == 0 && s->set != SET_NONE)
        rc = plan_order_over(q, s, ctes, ret);
    q->depth -= 2;
    return rc;
}
