/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/plan/plan_table.c - what stands in from: tables, views, with, selects, functions of
 * rows.
 *
 * The query's thread only.
 */
#include "core/sql/plan/plan.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "core/base/err.h"
#include "core/base/text.h"
#include "core/sql/catalog/catalog.h"

#define NAMES_MAX 64 /* columns of a view that lacks its tables */

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

struct errand {
    struct query *q;
    const char *plugin, *table;
    char why[SQL_EMPTY_BYTES / 2];
};

static int ask_plugin(void *arg)
{
    struct errand *e = arg;
    const struct sql_unknown *u = &e->q->s->unknown;
    return u->why(u->arg, e->plugin, e->table, e->why, sizeof(e->why));
}

/* A plugin that is not here makes a table of that name: 0, or -ENOENT as the query's error. */
static int no_plugin(struct query *q, const struct from *f)
{
    const struct view *v = sql_declared_table(q->s, f->names[1], f->names[0]);
    if (!v)
        return 0;
    char whole[256]; /* of a bare name, too */
    (void)snprintf(whole, sizeof(whole), "%s.%s", v->schema, v->name);
    struct errand e = {.q = q, .table = whole, .plugin = v->plugin};
    if (!q->s->unknown.why || sql_by_caller(q, ask_plugin, &e) < 0)
        (void)snprintf(e.why, sizeof(e.why), "plugin %s makes it", e.plugin);
    return sql_error(q->text, q->size, f->pos, -ENOENT, "there is no table '%s'%s: %s", whole,
                     q->s->unknown.ended ? "" : " yet", e.why);
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
        if (atomic_load_explicit(&v->is_old, memory_order_acquire))
            continue;
        names[count] = sql_getf(q, "%s%s%s", v->schema, v->schema[0] ? "." : "", v->name);
        count += names[count] != NULL;
    }
    (void)snprintf(full, sizeof(full), "%s%s%s", f->names[1] ? f->names[1] : "",
                   f->names[1] ? "." : "", f->names[0]);
    int rc = no_plugin(q, f);
    if (rc < 0)
        return rc;
    const char *near = text_nearest(full, names, count);
    for (uint32_t i = 0; i < n && !near && !f->names[1]; i++) {
        const char *bare = list[i]->name; /* torch_trce: the schema left out */
        if (text_nearest(f->names[0], &bare, 1))
            near = names[i];
    }
    const char *ended =
        q->s->unknown.ended ? ": the process has ended, and only stored tables outlive it" : "";
    if (near)
        return sql_error(q->text, q->size, f->pos, -ENOENT,
                         "unknown table '%s'%s; did you mean '%s'?", full, ended, near);
    bool catalog = strncasecmp(f->names[0], "pg_", 3) == 0;
    return sql_error(q->text, q->size, f->pos, -ENOENT, "unknown table '%s'%s; %s", full, ended,
                     catalog ? "information_schema.tables, .columns and .routines say what there is"
                             : "`show tables` lists them");
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

static int plan_one(struct query *q, const struct from *f, const struct view *v, struct op **ret)
{
    struct statement st;
    const char *text = q->text;
    size_t size = q->size;
    struct outer *outer = q->outer;
    if (q->n_views == SQL_VIEW_DEPTH)
        return sql_error(text, size, f->pos, -ELOOP, "views are nested more than %d levels deep",
                         SQL_VIEW_DEPTH);
    q->n_views++;
    q->outer = NULL;         /* a view sees nothing of who uses it */
    q->text = v->definition; /* positions in it are positions in the view */
    q->size = strlen(v->definition);
    int rc = sql_parse(&q->mem, q->text, q->size, &st);
    if (rc == 0 && (st.kind != STATEMENT_SELECT || st.explain))
        rc = err_set(-EINVAL, "a view must be a select");
    if (rc == 0)
        rc = sql_plan_select(q, st.select, NULL, ret);
    q->text = text;
    q->size = size;
    q->outer = outer;
    q->n_views--;
    if (rc == -EINVAL || rc == -ENOENT) {
        char why[ERR_TEXT_BYTES / 2];
        const char *table = strstr(err_text(), ": no table '");
        (void)snprintf(why, sizeof(why), "%s", err_text());
        if (rc == -ENOENT && table) /* places in the view's own text would say nothing here */
            (void)snprintf(why, sizeof(why), "what it reads is not measured in this process%.*s",
                           (int)strcspn(table, ";"), table);
        rc = sql_error(text, size, f->pos, rc, "the view %s: %s", v->name, why);
    }
    if (rc == 0)
        rename_columns(*ret, f->alias ? f->alias : v->name,
                       f->alias || !v->schema[0] ? NULL : v->schema);
    if (rc == 0 && v->why) {
        q->notes.view = v;
        q->notes.view_op = *ret;
    }
    return rc;
}

/* Give the names of a select's columns; -ENOENT: they depend on tables. */
static int column_names(const struct select *s, const char **ret, uint32_t max)
{
    uint32_t n = 0;
    while (s->set != SET_NONE && s->set != SET_VALUES)
        s = s->left;
    for (uint32_t i = 0; i < s->n_items; i++) {
        const struct item *item = &s->items[i];
        bool all = item->node->kind == NODE_STAR && s->from && s->from->kind == FROM_SELECT;
        if (n == max)
            return -ENOENT;
        if (item->alias || item->node->kind == NODE_NAME) {
            ret[n++] = item->alias ? item->alias : item->node->text;
            continue;
        }
        int more = all ? column_names(s->from->select, ret + n, max - n) : -ENOENT;
        if (more < 0)
            return more;
        n += (uint32_t)more;
    }
    return (int)n;
}

/* "python.steps", of an error that says so; "": it does not. */
static const char *table_of_error(struct query *q)
{
    const char *at = strstr(err_text(), "no table '");
    at = at ? at + strlen("no table '") : "";
    return arena_text(&q->mem, at, strcspn(at, "'"));
}

/* A plugin's view where the plugin has not made its tables: columns of any type, and no row. */
static int plan_without(struct query *q, const struct from *f, const struct view *v,
                        const char *table, struct op **ret)
{
    struct statement st;
    const char *names[NAMES_MAX];
    int n = table ? sql_parse(&q->mem, v->definition, strlen(v->definition), &st) : -ENOMEM;
    if (n == 0)
        n = column_names(st.select, names, NAMES_MAX);
    if (n == 0 || n == -ENOENT)
        return -ENOENT; /* as it was told */
    struct rowset *rows = n > 0 ? sql_get(q, 1, sizeof(*rows)) : NULL;
    struct col *cols = n > 0 ? sql_get(q, (size_t)n, sizeof(*cols)) : NULL;
    enum sql_type *types = n > 0 ? sql_get(q, (size_t)n, sizeof(*types)) : NULL;
    if (!rows || !cols || !types)
        return n < 0 ? n : -ENOMEM;
    for (int i = 0; i < n; i++) {
        types[i] = SQL_NULL;
        cols[i] = (struct col){.name = names[i], .type = SQL_NULL, .doc = ""};
    }
    (void)sql_rowset_init(rows, q, &q->mem, types, (uint32_t)n);
    int rc = sql_scan_rowset(q, rows, cols, ret);
    if (rc < 0)
        return rc;
    rename_columns(*ret, f->alias ? f->alias : v->name,
                   f->alias || !v->schema[0] ? NULL : v->schema);
    err_clear();
    q->notes.view = v;
    q->notes.view_op = *ret;
    q->notes.lacks = table;
    return 0;
}

/* Somebody may know of more views; what stands in a view itself is not looked for. */
static bool look_around(struct query *q)
{
    if (!q->s->unknown.find || q->n_views > 0)
        return false;
    q->s->unknown.find(q->s->unknown.arg);
    return true;
}

/* The first definition of the name whose tables are all there.  *ret_any: there is one at all. */
static int plan_view(struct query *q, const struct from *f, bool *ret_any, struct op **ret)
{
    const struct view *v = NULL, *declared = NULL;
    const char *lacks = NULL;
    int rc = -ENOENT;
    *ret_any = false;
    while ((v = sql_next_view(q->s, f->names[1], f->names[0], v)) != NULL) {
        if (v->plugin && f->names[1] && tables_find(q->s->tables, f->names[1], f->names[0]))
            continue; /* it came later than the view, and is what was meant */
        *ret_any = true;
        rc = plan_one(q, f, v, ret);
        q->notes.view_used = v;
        if (rc != -ENOENT)
            return rc;
        if (declared || !v->plugin)
            continue;
        declared = v;
        lacks = table_of_error(q);
    }
    q->notes.view_used = declared ? declared : q->notes.view_used;
    return declared ? plan_without(q, f, declared, lacks, ret) : rc;
}

/* The first columns get the names of t(a, b). */
static int rename_first(struct query *q, uint32_t pos, const char **names, uint32_t n,
                        struct op *op)
{
    if (n > op->n_cols)
        return sql_error(q->text, q->size, pos, -EINVAL, "%u names for %u columns", n, op->n_cols);
    for (uint32_t c = 0; c < n; c++)
        op->cols[c].name = names[c];
    return 0;
}

int sql_rename_first(struct query *q, const struct from *f, struct op *op)
{
    return rename_first(q, f->pos, f->aliases, f->n_aliases, op);
}

static int plan_cte(struct query *q, const struct from *f, struct cte *c, struct op **ret)
{
    int rc;
    c->used = true;
    if (c->working) { /* what it gave in the round before */
        rc = sql_scan_rowset(q, c->working->rows, c->working->cols, ret);
    } else if (c->open) {
        return sql_error(q->text, q->size, f->pos, -EINVAL,
                         "'%s' can read itself behind its union only", c->name);
    } else {
        struct cte before = *c;
        c->open = c->recursive;
        rc = c->recursive && c->select->set == SET_UNION
                 ? sql_plan_recursive(q, c, ret)
                 : sql_plan_select(q, c->select, c->recursive ? c : c->next, ret);
        c->open = before.open;
    }
    if (rc == 0)
        rename_columns(*ret, f->alias ? f->alias : c->name, NULL);
    return rc < 0 ? rc : rename_first(q, f->pos, c->columns, c->n_columns, *ret);
}

static int plan_named(struct query *q, const struct from *f, struct cte *ctes, struct op **ret)
{
    const char *name = f->names[0], *schema = f->names[1];
    if (!schema) {
        for (struct cte *c = ctes; c; c = c->next) {
            if (strcasecmp(c->name, name) != 0)
                continue;
            return plan_cte(q, f, c, ret);
        }
    }
    /* `probe` is the catalog's name in the Rust probing. */
    if (f->names[2] && strcasecmp(f->names[2], "global") == 0)
        return sql_error(q->text, q->size, f->pos, -ENOENT,
                         "global.%s.%s is the table of several processes: `query` and `export` "
                         "make it, of -t 12,13, -t all, -t job:NAME or -t PID",
                         schema, name);
    if (f->names[2] && strcasecmp(f->names[2], "probing") != 0 &&
        strcasecmp(f->names[2], "probe") != 0)
        return sql_error(q->text, q->size, f->pos, -ENOENT,
                         "unknown catalog '%s'; there is one, 'probing'", f->names[2]);
    bool any;
    int rc = plan_view(q, f, &any, ret);
    if (any && rc == -ENOENT && look_around(q))
        rc = plan_view(q, f, &any, ret);
    if (any)
        return rc;
    if (schema && strcasecmp(schema, "information_schema") == 0) {
        *ret = NULL;
        rc = sql_scan_schema(q, name, f->alias, ret);
        if (rc < 0 || *ret)
            return rc;
    }
    if (q->s->held) {
        rc = q->s->held(q, q->s->held_arg, schema, name, f->alias, ret);
        if (rc != 0)
            return rc < 0 ? rc : 0;
    }
    struct table **list = sql_get(q, TABLES_MAX, sizeof(struct table *));
    if (!list)
        return -ENOMEM;
    uint32_t n = tables_list(q->s->tables, list, TABLES_MAX);
    const struct table *t = find_table(q->s->tables, schema, name, (const struct table **)list, n);
    if (!t && look_around(q)) {
        rc = plan_view(q, f, &any, ret);
        if (any)
            return rc;
    }
    if (!t)
        return no_table(q, f, (const struct table *const *)list, n);
    return sql_scan_table(q, t, f->alias, ret);
}

int sql_plan_table(struct query *q, const struct from *f, struct cte *ctes, struct op **ret)
{
    int rc;
    switch (f->kind) {
    case FROM_TABLE:
        return plan_named(q, f, ctes, ret);
    case FROM_SELECT:
        rc = sql_plan_select(q, f->select, ctes, ret);
        if (rc == 0)
            rename_columns(*ret, f->alias, NULL);
        return rc;
    case FROM_CALL:
        rc = sql_plan_function(q, f->call, ret);
        if (rc == 0)
            rename_columns(*ret, f->alias ? f->alias : f->call->text, NULL);
        /* generate_series(1, 9) n: a single column is named like its table */
        if (rc == 0 && f->alias && (*ret)->n_cols == 1)
            (*ret)->cols[0].name = f->alias;
        return rc;
    case FROM_JOIN:
        break;
    }
    return sql_plan_from(q, f, ctes, ret);
}
