/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/plan.c - a select becomes operators: from, where, group by, having, list, order, limit.
 *
 * The query's thread only.  Simple comparisons with constants are pushed down to the scan, which
 * skips what cannot match; the filter above stays, since a scan may give more.
 */
#include "core/sql/sqlint.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "core/base/err.h"
#include "core/base/text.h"

#define PLANS_MAX 1000 /* selects in one query, views and with expanded at each use */
#define ITEMS_MAX 1000 /* columns of a select list */

static int plan_from(struct query *q, const struct from *f, struct cte *ctes, struct op **ret);

static int wrong(struct query *q, uint32_t pos, const char *what)
{
    return sql_error(q->text, q->size, pos, -EINVAL, "%s", what);
}

/* ---- tables ---- */

static const struct view *find_view(struct sql *s, const char *schema, const char *name)
{
    const struct view *v = atomic_load_explicit(&s->views, memory_order_acquire);
    for (; v; v = v->next)
        if (strcasecmp(v->name, name) == 0 && strcasecmp(v->schema, schema ? schema : "") == 0)
            return v;
    return NULL;
}

static const struct table *find_table(struct tables *tables, const char *schema, const char *name,
                                      const struct table *list[TABLES_MAX], uint32_t n)
{
    const struct table *found = NULL;
    (void)tables;
    for (uint32_t i = 0; i < n; i++) {
        if (strcasecmp(list[i]->name, name) != 0)
            continue;
        if (schema && strcasecmp(list[i]->schema, schema) == 0)
            return list[i];
        if (!schema) { /* a bare name will do while it is the only one */
            if (found)
                return NULL;
            found = list[i];
        }
    }
    return found;
}

static int no_table(struct query *q, const struct from *f, const struct table *const *list,
                    uint32_t n)
{
    const char *names[TABLES_MAX + 64];
    uint32_t count = 0;
    char full[256];
    for (uint32_t i = 0; i < n; i++) {
        names[count] = sql_getf(q, "%s.%s", list[i]->schema, list[i]->name);
        count += names[count] != NULL;
    }
    const struct view *v = atomic_load_explicit(&q->s->views, memory_order_acquire);
    for (; v && count < TABLES_MAX + 60; v = v->next) {
        names[count] = sql_getf(q, "%s%s%s", v->schema, v->schema[0] ? "." : "", v->name);
        count += names[count] != NULL;
    }
    (void)snprintf(full, sizeof(full), "%s%s%s", f->names[1] ? f->names[1] : "",
                   f->names[1] ? "." : "", f->names[0]);
    const char *near = text_nearest(full, names, count);
    for (uint32_t i = 0; i < n && !near && !f->names[1]; i++) /* torch_trce: the schema left out */
        if (text_nearest(f->names[0], &list[i]->name, 1))
            near = names[i];
    if (near)
        return sql_error(q->text, q->size, f->pos, -ENOENT, "no table '%s'; did you mean '%s'?",
                         full, near);
    return sql_error(q->text, q->size, f->pos, -ENOENT, "no table '%s'; `show tables` lists them",
                     full);
}

/* Give the columns of an operator a table's name, in place: it is nobody else's. */
static void rename_columns(struct op *op, const char *table, const char *schema)
{
    for (uint32_t c = 0; c < op->n_cols; c++) {
        op->cols[c].table = table;
        op->cols[c].schema = schema;
        op->cols[c].hidden = false;
    }
}

static int plan_view(struct query *q, const struct from *f, const struct view *v, struct op **ret)
{
    struct statement st;
    const char *text = q->text;
    size_t size = q->size;
    if (q->n_views == SQL_VIEW_DEPTH)
        return sql_error(text, size, f->pos, -ELOOP, "views over views more than %d deep",
                         SQL_VIEW_DEPTH);
    q->n_views++;
    q->text = v->definition; /* positions in it are positions in the view */
    q->size = strlen(v->definition);
    int rc = sql_parse(&q->mem, q->text, q->size, &st);
    if (rc == 0 && (st.kind != STATEMENT_SELECT || st.explain))
        rc = err_set(-EINVAL, "a view is a select");
    if (rc == 0)
        rc = sql_plan_select(q, st.select, NULL, ret);
    q->text = text;
    q->size = size;
    q->n_views--;
    if (rc == -EINVAL || rc == -ENOENT) {
        char why[ERR_TEXT_BYTES / 2];
        (void)snprintf(why, sizeof(why), "%s", err_text());
        rc = sql_error(text, size, f->pos, rc, "the view %s: %s", v->name, why);
    }
    if (rc == 0)
        rename_columns(*ret, f->alias ? f->alias : v->name,
                       f->alias || !v->schema[0] ? NULL : v->schema);
    return rc;
}

static int plan_table(struct query *q, const struct from *f, struct cte *ctes, struct op **ret)
{
    const char *name = f->names[0], *schema = f->names[1];
    if (!schema) {
        for (struct cte *c = ctes; c; c = c->next) {
            if (strcasecmp(c->name, name) != 0)
                continue;
            int rc = sql_plan_select(q, c->select, c->next, ret);
            if (rc == 0)
                rename_columns(*ret, f->alias ? f->alias : c->name, NULL);
            return rc;
        }
    }
    if (f->names[2] && strcasecmp(f->names[2], "probing") != 0)
        return sql_error(q->text, q->size, f->pos, -ENOENT,
                         "no catalog '%s'; there is one, 'probing'", f->names[2]);
    const struct view *v = find_view(q->s, schema, name);
    if (v)
        return plan_view(q, f, v, ret);
    if (schema && strcasecmp(schema, "information_schema") == 0) {
        *ret = NULL;
        int rc = sql_scan_schema(q, name, f->alias, ret);
        if (rc < 0 || *ret)
            return rc;
    }
    struct table **list = sql_get(q, TABLES_MAX, sizeof(struct table *));
    if (!list)
        return -ENOMEM;
    uint32_t n = tables_list(q->s->tables, list, TABLES_MAX);
    const struct table *t = find_table(q->s->tables, schema, name, (const struct table **)list, n);
    if (!t)
        return no_table(q, f, (const struct table *const *)list, n);
    return sql_scan_table(q, t, f->alias, ret);
}

/* ---- joins ---- */

static bool only_from(const struct expr *e, uint32_t first, uint32_t end)
{
    if (e->kind == EXPR_COLUMN)
        return e->column >= first && e->column < end;
    for (uint32_t i = 0; i < e->n_args; i++)
        if (!only_from(e->args[i], first, end))
            return false;
    return true;
}

/* The same expression with its columns counted from the right side's first. */
static struct expr *shifted(struct query *q, const struct expr *e, uint32_t by)
{
    struct expr *copy = sql_new_expr(q, e->kind, e->type, e->pos, e->n_args);
    if (!copy)
        return NULL;
    struct expr **args = copy->args;
    *copy = *e;
    copy->args = args;
    if (e->kind == EXPR_COLUMN)
        copy->column -= by;
    for (uint32_t i = 0; i < e->n_args; i++)
        if (!(args[i] = shifted(q, e->args[i], by)))
            return NULL;
    return copy;
}

static uint32_t split_and(struct expr *e, struct expr **parts, uint32_t n, uint32_t max)
{
    if (e->kind == EXPR_AND && n + e->n_args <= max) {
        for (uint32_t i = 0; i < e->n_args; i++)
            n = split_and(e->args[i], parts, n, max - (e->n_args - 1 - i));
        return n;
    }
    parts[n++] = e;
    return n;
}

/* l = r over the two sides becomes a key of the hash join; the rest stays a condition. */
static int take_keys(struct query *q, struct op *join, struct expr *on, struct join_spec *spec,
                     uint32_t n_left, struct expr **ret_rest)
{
    struct expr *parts[32];
    uint32_t n = split_and(on, parts, 0, 32), n_rest = 0;
    struct expr *rest = sql_new_expr(q, EXPR_AND, SQL_BOOL, on->pos, n);
    if (!rest)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++) {
        struct expr *e = parts[i];
        bool equal = e->kind == EXPR_CALL && strcmp(e->func->name, "=") == 0 &&
                     e->args[0]->kind != EXPR_CONST && e->args[1]->kind != EXPR_CONST;
        int l = !equal                             ? -1
                : only_from(e->args[0], 0, n_left) ? 0
                : only_from(e->args[1], 0, n_left) ? 1
                                                   : -1;
        if (l < 0 || !only_from(e->args[1 - l], n_left, join->n_cols) ||
            spec->n_keys == SQL_CALL_ARGS) {
            rest->args[n_rest++] = e;
            continue;
        }
        spec->left_keys[spec->n_keys] = e->args[l];
        spec->right_keys[spec->n_keys] = shifted(q, e->args[1 - l], n_left);
        if (!spec->right_keys[spec->n_keys++])
            return -ENOMEM;
    }
    rest->n_args = n_rest;
    *ret_rest = n_rest == 0 ? NULL : n_rest == 1 ? rest->args[0] : rest;
    return 0;
}

static int using_condition(struct query *q, const struct from *f, struct op *join, uint32_t n_left,
                           struct expr **ret)
{
    struct expr *and = sql_new_expr(q, EXPR_AND, SQL_BOOL, f->pos, f->n_columns);
    if (!and)
        return -ENOMEM;
    for (uint32_t i = 0; i < f->n_columns; i++) {
        struct node name = {.kind = NODE_NAME, .pos = f->pos, .text = f->columns[i]};
        struct op left = *join, right = *join;
        left.n_cols = n_left;
        right.cols += n_left;
        right.n_cols -= n_left;
        int l = sql_find_column(q, &left, &name), r = sql_find_column(q, &right, &name);
        if (l < 0 || r < 0)
            return l == -2 || r == -2 ? -EINVAL : sql_no_column(q, l < 0 ? &left : &right, &name);
        struct expr *a = sql_column_expr(q, join, (uint32_t)l, f->pos);
        struct expr *b = sql_column_expr(q, join, n_left + (uint32_t)r, f->pos);
        if (!a || !b)
            return -ENOMEM;
        sql_want(join, a->column);
        sql_want(join, b->column);
        join->cols[b->column].hidden = true;
        enum sql_type type;
        struct expr *pair[2] = {a, b};
        int rc = sql_unify(q, pair, 2, "using", &type);
        bool known;
        const struct func *eq =
            sql_func_find("=", (enum sql_type[]){type, type}, (bool[]){false, false}, 2, &known);
        struct expr *e = sql_new_expr(q, EXPR_CALL, SQL_BOOL, f->pos, 2);
        if (rc < 0 || !e || !eq)
            return rc < 0 ? rc : -ENOMEM;
        e->func = eq;
        e->args[0] = pair[0];
        e->args[1] = pair[1];
        and->args[i] = e;
    }
    *ret = and;
    return 0;
}

static int plan_join(struct query *q, const struct from *f, struct cte *ctes, struct op **ret)
{
    struct op *left, *right, *join;
    struct join_spec spec = {.type = f->join};
    int rc = plan_from(q, f->left, ctes, &left);
    if (rc == 0)
        rc = plan_from(q, f->right, ctes, &right);
    if (rc < 0)
        return rc;
    spec.left_keys = sql_get(q, SQL_CALL_ARGS, sizeof(struct expr *));
    spec.right_keys = sql_get(q, SQL_CALL_ARGS, sizeof(struct expr *));
    if (!spec.left_keys || !spec.right_keys)
        return -ENOMEM;
    rc = sql_join(left, right, &spec, &join);
    if (rc < 0)
        return rc;
    struct expr *on = NULL, *rest = NULL;
    struct scope scope = {.op = join, .clause = "on", .ctes = ctes};
    if (f->on) {
        rc = sql_bind(q, &scope, f->on, &on);
        if (rc == 0)
            rc = sql_coerce(q, &on, SQL_BOOL, "on");
    } else if (f->n_columns) {
        rc = using_condition(q, f, join, left->n_cols, &on);
    }
    if (rc == 0 && on)
        rc = take_keys(q, join, on, &spec, left->n_cols, &rest);
    if (rc == 0)
        rc = sql_join_on(join, &spec, rest);
    *ret = join;
    return rc;
}

static int plan_from(struct query *q, const struct from *f, struct cte *ctes, struct op **ret)
{
    int rc;
    switch (f->kind) {
    case FROM_TABLE:
        return plan_table(q, f, ctes, ret);
    case FROM_SELECT:
        rc = sql_plan_select(q, f->select, ctes, ret);
        if (rc == 0)
            rename_columns(*ret, f->alias, NULL);
        return rc;
    case FROM_JOIN:
        break;
    }
    return plan_join(q, f, ctes, ret);
}

/* ---- where ---- */

static const char *mirrored(const char *compare)
{
    switch (compare[0]) {
    case '<':
        return compare[1] == '=' ? ">=" : compare[1] == '>' ? "<>" : ">";
    case '>':
        return compare[1] == '=' ? "<=" : "<";
    default:
        return compare;
    }
}

static void push_down(struct op *op, const struct expr *e)
{
    if (e->kind != EXPR_CALL || e->n_args != 2 || !strchr("<>=", e->func->name[0]))
        return;
    for (int side = 0; side < 2; side++)
        if (e->args[side]->kind == EXPR_COLUMN && e->args[1 - side]->kind == EXPR_CONST &&
            e->args[1 - side]->value.type != SQL_NULL)
            sql_push_bound(op, e->args[side]->column,
                           side ? mirrored(e->func->name) : e->func->name, e->args[1 - side]);
}

/* 5 < x is x > 5: the filter's fast way wants the column first. */
static void turn(struct query *q, struct expr **e)
{
    struct expr *x = *e;
    if (x->kind != EXPR_CALL || x->n_args != 2 || !strchr("<>=", x->func->name[0]) ||
        x->args[0]->kind != EXPR_CONST || x->args[1]->kind != EXPR_COLUMN ||
        x->args[0]->type != x->args[1]->type)
        return;
    bool known;
    enum sql_type types[2] = {x->args[0]->type, x->args[0]->type};
    const struct func *f =
        sql_func_find(mirrored(x->func->name), types, (bool[]){false, false}, 2, &known);
    struct expr *turned = f ? sql_new_expr(q, EXPR_CALL, SQL_BOOL, x->pos, 2) : NULL;
    if (!turned)
        return;
    turned->func = f;
    turned->args[0] = x->args[1];
    turned->args[1] = x->args[0];
    *e = turned;
}

static int plan_filter(struct query *q, struct expr *e, struct op **op)
{
    struct expr *parts[64];
    uint32_t n = split_and(e, parts, 0, 64);
    for (uint32_t i = 0; i < n; i++) {
        turn(q, &parts[i]);
        push_down(*op, parts[i]);
    }
    return sql_filter(*op, parts, n, op);
}

static int plan_where(struct query *q, const struct select *s, struct cte *ctes, struct op **op)
{
    struct scope scope = {.op = *op, .clause = "where", .ctes = ctes};
    struct expr *e;
    int rc = sql_bind(q, &scope, s->where, &e);
    if (rc == 0)
        rc = sql_coerce(q, &e, SQL_BOOL, "where");
    return rc < 0 ? rc : plan_filter(q, e, op);
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
    for (uint32_t c = 0; c < op->n_cols; c++) {
        const struct col *col = &op->cols[c];
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

static bool has_column(const struct expr *e)
{
    if (e->kind == EXPR_COLUMN)
        return true;
    for (uint32_t i = 0; i < e->n_args; i++)
        if (has_column(e->args[i]))
            return true;
    return false;
}

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
    for (uint32_t i = 0; i < l->n && (s->group_all || (!s->n_group && scope->n_aggs)); i++) {
        if (sql_expr_has_agg(l->items[i].expr) || sql_expr_has_window(l->items[i].expr) ||
            !has_column(l->items[i].expr))
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
    uint32_t n_shown; /* columns of the list; what is beyond is only sorted by */
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

static int bind_order(struct query *q, const struct select *s, struct scope *scope, struct list *l,
                      struct ordering *o)
{
    *o = (struct ordering){.n_shown = l->n};
    o->keys = sql_get(q, s->n_order, sizeof(*o->keys));
    if (!o->keys)
        return -ENOMEM;
    for (uint32_t i = 0; i < s->n_order; i++) {
        const struct node *n = s->order[i].node;
        uint32_t column = 0;
        int at = -1, rc = 0;
        if (n->kind == NODE_INT)
            rc = ordinal(q, n, o->n_shown, "order by", &column);
        else if (n->kind == NODE_NAME && !n->parts[0])
            rc = find_output(q, l, o->n_shown, n, &at);
        if (rc == 0 && n->kind != NODE_INT && at < 0) {
            struct expr *e;
            scope->items = l->items;
            scope->n_items = o->n_shown;
            rc = sql_bind(q, scope, n, &e);
            for (uint32_t c = 0; rc == 0 && c < l->n && at < 0; c++)
                at = sql_expr_equal(l->items[c].expr, e) ? (int)c : -1;
            if (rc == 0 && at < 0) {
                at = (int)l->n;
                rc = add_item(q, l, e, "", false);
            }
            scope->items = NULL;
            scope->n_items = 0;
        }
        if (rc < 0)
            return rc;
        column = at >= 0 ? (uint32_t)at : column;
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
    uint64_t keep = limit < (1u << 20) && offset < (1u << 20) ? limit + offset : 0;
    if (rc == 0 && o->n)
        rc = sql_sort(*op, o->keys, o->n, keep, o->n_shown, op);
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
    if (rc == 0)
        rc = sql_aggregate(*op, g.keys, g.n_keys, scope->aggs, scope->n_aggs, &g.op);
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

static int plan_core(struct query *q, const struct select *s, struct cte *ctes, struct op **ret)
{
    struct op *op;
    struct list l = {.n = 0};
    struct ordering o;
    struct expr *having = NULL;
    int rc = s->from ? plan_from(q, s->from, ctes, &op) : sql_scan_none(q, &op);
    if (rc == 0 && s->where)
        rc = plan_where(q, s, ctes, &op);
    if (rc < 0)
        return rc;
    struct scope scope = {.op = op, .allow_aggs = true, .clause = "select", .ctes = ctes};
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
    if (rc == 0 && (scope.n_aggs || s->n_group || s->group_all || having))
        rc = plan_groups(q, s, &scope, &l, having, &op);
    if (rc == 0)
        rc = sql_plan_windows(q, l.items, l.n, &op);
    if (rc == 0)
        rc = project_items(q, op, &l, &op);
    if (rc == 0 && s->distinct)
        rc = sql_distinct(op, &op);
    if (rc == 0)
        rc = plan_tail(q, s, &o, &op);
    *ret = op;
    return rc;
}

/* ---- values, union ---- */

static int plan_values(struct query *q, const struct select *s, struct op **ret)
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
                rc = wrong(q, s->rows[r]->args[c]->pos, "this value cannot be computed");
            if (rc < 0)
                return rc;
        }
    }
    for (uint32_t c = 0; c < n; c++) {
        int rc = sql_unify(q, &cells[(size_t)c * s->n_rows], s->n_rows, "values", &types[c]);
        if (rc < 0)
            return rc;
        cols[c] = (struct col){.name = sql_getf(q, "column%u", c + 1), .type = types[c], .doc = ""};
        pointers[c] = &v[c];
        if (!cols[c].name || sql_vec_room(q, &v[c], types[c]) < 0)
            return -ENOMEM;
        v[c].stable = true;
    }
    (void)sql_rowset_init(rows, q, &q->mem, types, n);
    for (uint32_t r = 0; r < s->n_rows; r++) {
        for (uint32_t c = 0; c < n; c++) {
            const struct sql_value *x = &cells[(size_t)c * s->n_rows + r]->value;
            v[c].has_null = false;
            if (x->type == SQL_NULL)
                sql_set_null(&v[c], 0);
            else if (sql_is_textual(types[c]))
                v[c].t[0] = (struct text){x->text.data, x->text.size};
            else if (types[c] == SQL_DOUBLE)
                v[c].d[0] = x->number;
            else
                v[c].i[0] = x->type == SQL_BOOL ? x->boolean : x->integer;
        }
        int rc = sql_rowset_add(rows, pointers, NULL, 1);
        if (rc < 0)
            return rc;
    }
    return sql_scan_rowset(q, rows, cols, ret);
}

/* Cast one side's columns where the common type is another. */
static int cast_side(struct query *q, struct op **op, struct expr **exprs)
{
    struct col *cols = sql_get(q, (*op)->n_cols, sizeof(*cols));
    bool same = true;
    if (!cols)
        return -ENOMEM;
    for (uint32_t c = 0; c < (*op)->n_cols; c++) {
        cols[c] = (*op)->cols[c];
        same = same && exprs[c]->kind == EXPR_COLUMN;
        sql_want(*op, c);
    }
    return same ? 0 : sql_project(*op, exprs, cols, (*op)->n_cols, op);
}

static int plan_set(struct query *q, const struct select *s, struct cte *ctes, struct op **ret)
{
    struct op *sides[2];
    int rc = sql_plan_select(q, s->left, ctes, &sides[0]);
    if (rc == 0)
        rc = sql_plan_select(q, s->right, ctes, &sides[1]);
    if (rc < 0)
        return rc;
    if (s->set == SET_INTERSECT || s->set == SET_EXCEPT)
        return wrong(q, s->pos, "intersect and except are not in this version; union is");
    uint32_t n = sides[0]->n_cols;
    if (sides[1]->n_cols != n)
        return sql_error(q->text, q->size, s->pos, -EINVAL, "union of %u columns and %u columns", n,
                         sides[1]->n_cols);
    struct expr **exprs = sql_get(q, 2 * (size_t)n, sizeof(struct expr *));
    if (!exprs)
        return -ENOMEM;
    for (uint32_t c = 0; c < n && rc == 0; c++) {
        struct expr *pair[2] = {sql_column_expr(q, sides[0], c, s->pos),
                                sql_column_expr(q, sides[1], c, s->pos)};
        enum sql_type type;
        rc = pair[0] && pair[1] ? sql_unify(q, pair, 2, "union", &type) : -ENOMEM;
        exprs[c] = pair[0];
        exprs[n + c] = pair[1];
    }
    for (int side = 0; side < 2 && rc == 0; side++)
        rc = cast_side(q, &sides[side], exprs + (side ? n : 0));
    if (rc == 0)
        rc = sql_append(sides[0], sides[1], ret);
    if (rc == 0 && s->set == SET_UNION)
        rc = sql_distinct(*ret, ret);
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
             : s->set == SET_VALUES ? plan_values(q, s, ret)
                                    : plan_set(q, s, ctes, ret);
    if (rc == 0 && s->set != SET_NONE)
        rc = plan_order_over(q, s, ctes, ret);
    q->depth -= 2;
    return rc;
}
