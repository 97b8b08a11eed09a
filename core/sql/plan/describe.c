/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/plan/describe.c - statements about tables and settings: describe, summarize, show, set.
 *
 * The query's thread only.  They become plans as selects do.
 */
#include "core/sql/plan/information_schema.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "core/base/err.h"
#include "core/base/text.h"

#define SETTINGS_MAX 512 /* names that are looked at for the nearest */

/* Statements that are selects over information_schema, planned as such. */
static int plan_text(struct query *q, const char *text, struct op **ret)
{
    struct statement st;
    q->text = text;
    q->size = strlen(text);
    int rc = sql_parse(&q->mem, q->text, q->size, &st);
    return rc < 0 ? rc : sql_plan_select(q, st.select, NULL, ret);
}

/* What the statement names, planned but never run: its columns. */
static int look_at(struct query *q, const struct statement *st, struct op **ret)
{
    struct from f = {
        .kind = FROM_TABLE, .pos = st->pos, .names = {st->names[0], st->names[1], st->names[2]}};
    struct node star = {.kind = NODE_STAR, .pos = st->pos, .start = st->pos, .depth = 1};
    struct item all = {.node = &star};
    struct select s = {.pos = st->pos, .items = &all, .n_items = 1, .from = &f};
    bool dry = q->dry;
    q->dry = true;
    int rc = sql_plan_select(q, st->select ? st->select : &s, NULL, ret);
    q->dry = dry;
    return rc;
}

static int plan_describe(struct query *q, const struct statement *st, struct op **ret)
{
    static const char *const names[4] = {"column_name", "data_type", "unit", "doc"};
    struct op *op;
    int rc = look_at(q, st, &op);
    if (rc < 0)
        return rc;
    struct rowset *rows = sql_get(q, 1, sizeof(*rows));
    struct col *cols = sql_get(q, 4, sizeof(*cols));
    enum sql_type *types = sql_get(q, 4, sizeof(*types));
    struct vec v[4], *pointers[4];
    if (!rows || !cols || !types)
        return -ENOMEM;
    for (uint32_t c = 0; c < 4; c++) {
        types[c] = SQL_TEXT;
        cols[c] = (struct col){.name = names[c], .type = SQL_TEXT, .doc = ""};
        pointers[c] = &v[c];
        if (sql_vec_room(q, &v[c], SQL_TEXT) < 0)
            return -ENOMEM;
        v[c].stable = true;
    }
    (void)sql_rowset_init(rows, q, &q->mem, types, 4);
    for (uint32_t c = 0; c < op->n_cols && rc == 0; c++) {
        const char *texts[4] = {op->cols[c].name, sql_type_name(op->cols[c].type),
                                sql_unit_name(op->cols[c].unit),
                                op->cols[c].doc ? op->cols[c].doc : ""};
        for (uint32_t i = 0; i < 4; i++)
            v[i].t[0] = (struct text){texts[i], (uint32_t)strlen(texts[i])};
        rc = sql_rowset_add(rows, pointers, NULL, 1);
    }
    return rc < 0 ? rc : sql_scan_rowset(q, rows, cols, ret);
}

/* A name as the tokenizer reads it back. */
static void add_quoted(struct buf *b, const char *name, char quote)
{
    (void)buf_addc(b, quote);
    for (; *name; name++) {
        (void)buf_addc(b, *name);
        if (*name == quote)
            (void)buf_addc(b, quote);
    }
    (void)buf_addc(b, quote);
}

/* The row of one column: DuckDB's summarize.  What is computed has no unit: all columns of the
 * table stand below each other. */
static void add_summary(struct buf *b, const struct statement *st, const struct col *col)
{
    bool number = col->type == SQL_INT || col->type == SQL_DOUBLE;
    (void)buf_adds(b, "select ");
    add_quoted(b, col->name, '\'');
    (void)buf_addf(
        b,
        " as column_name, '%s' as column_type, min(x)::text || '' as min, max(x)::text || '' as "
        "max, count(distinct x) as \"unique\"",
        sql_type_name(col->type));
    (void)buf_adds(
        b, number
               ? ", avg(x) + 0.0 as avg, stddev(x) + 0.0 as std, percentile_cont(0.25) within "
                 "group (order by x) + 0.0 as q25, median(x) + 0.0 as q50, percentile_cont(0.75) "
                 "within group (order by x) + 0.0 as q75"
               : ", null::double as avg, null::double as std, null::double as q25, "
                 "null::double as q50, null::double as q75");
    (void)buf_adds(b, ", count(*) as count, round(100.0 * (count(*) - count(x)) / "
                      "nullif(count(*), 0), 2) as null_percentage from (select ");
    add_quoted(b, col->name, '"');
    (void)buf_adds(b, " as x from ");
    for (int i = 2; i >= 0; i--) {
        if (!st->names[i])
            continue;
        add_quoted(b, st->names[i], '"');
        if (i)
            (void)buf_addc(b, '.');
    }
    (void)buf_adds(b, ") s");
}

/* A select for each column, so that of a stored table one column is unpacked at a time. */
static int plan_summarize(struct query *q, const struct statement *st, struct op **ret)
{
    struct op *op, *one;
    int rc = look_at(q, st, &op);
    for (uint32_t c = 0; rc == 0 && c < op->n_cols; c++) {
        struct buf b;
        buf_init(&b, SQL_TEXT_BYTES);
        add_summary(&b, st, &op->cols[c]);
        char *text = b.failed ? NULL : arena_text(&q->mem, buf_text(&b), b.size);
        buf_done(&b);
        rc = text ? plan_text(q, text, &one) : -ENOMEM;
        if (rc == 0 && c)
            rc = sql_append(*ret, one, ret);
        else if (rc == 0)
            *ret = one;
    }
    return rc;
}

/* Behind the comma, or what follows would be a comment, too. */
static void add_column(struct buf *b, const struct col *col, bool last)
{
    const char *unit = sql_unit_name(col->unit);
    (void)buf_adds(b, "    ");
    add_quoted(b, col->name, '"');
    (void)buf_addf(b, " %s%s", sql_type_name(col->type), last ? "" : ",");
    if (unit[0] || (col->doc && col->doc[0]))
        (void)buf_addf(b, " -- %s%s%s", unit, unit[0] && col->doc && col->doc[0] ? ": " : "",
                       col->doc ? col->doc : "");
    (void)buf_addc(b, '\n');
}

/* What `show create` is about: a view, a table, or one that the engine makes itself. */
struct creation {
    const struct view *view;
    const struct op *op;
    const char *schema, *name, *doc;
};

/* As a statement that DuckDB would make it by: where to put rows that are taken out. */
static void add_create(struct buf *b, const struct creation *c)
{
    if (c->doc[0])
        (void)buf_addf(b, "-- %s\n", c->doc);
    (void)buf_addf(b, "create %s ", c->view ? "view" : "table");
    if (c->schema[0])
        (void)buf_addf(b, "%s.", c->schema);
    (void)buf_addf(b, "%s %s", c->name, c->view ? "as " : "(\n");
    for (uint32_t i = 0; i < c->op->n_cols && !c->view; i++)
        add_column(b, &c->op->cols[i], i + 1 == c->op->n_cols);
    (void)buf_adds(b, c->view ? c->view->definition : ")");
    (void)buf_addc(b, ';');
}

/* The table that is meant: it was found by these names just now.  NULL: the engine's own. */
static const struct table *named_table(struct query *q, const struct statement *st)
{
    struct table **list = sql_get(q, TABLES_MAX, sizeof(struct table *));
    uint32_t n = list ? tables_list(q->s->tables, list, TABLES_MAX) : 0;
    for (uint32_t i = 0; i < n; i++)
        if (strcasecmp(list[i]->name, st->names[0]) == 0 &&
            (!st->names[1] || strcasecmp(list[i]->schema, st->names[1]) == 0))
            return list[i];
    return NULL;
}

static int find_creation(struct query *q, const struct statement *st, struct creation *ret)
{
    struct op *op;
    q->view_used = NULL;
    int rc = look_at(q, st, &op);
    if (rc < 0)
        return rc;
    *ret = (struct creation){.view = q->view_used,
                             .op = op,
                             .schema = st->names[1] ? st->names[1] : "",
                             .name = st->names[0],
                             .doc = ""};
    const struct table *t = ret->view ? NULL : named_table(q, st);
    if (ret->view) {
        ret->schema = ret->view->schema;
        ret->name = ret->view->name;
        ret->doc = ret->view->doc;
    } else if (t) {
        ret->schema = t->schema;
        ret->name = atomic_load_explicit(&t->name, memory_order_relaxed);
        ret->doc = atomic_load_explicit(&t->doc, memory_order_relaxed);
    }
    ret->doc = ret->doc ? ret->doc : "";
    return 0;
}

static int plan_show_create(struct query *q, const struct statement *st, struct op **ret)
{
    struct creation c;
    int rc = find_creation(q, st, &c);
    if (rc < 0)
        return rc;
    struct buf b;
    buf_init(&b, SQL_TEXT_BYTES);
    add_create(&b, &c);
    const char *text = b.failed ? NULL : arena_text(&q->mem, buf_text(&b), b.size);
    buf_done(&b);
    struct maker m;
    rc = text ? made_begin(&m, q, "table_schema= table_name= table_comment= create_statement=")
              : -ENOMEM;
    if (rc == 0)
        rc = made_row(&m, (const char *const[]){c.schema, c.name, c.doc, text}, NULL);
    return rc < 0 ? rc : made_finish(&m, /* table= */ NULL, ret);
}

/* The first column's texts, SETTINGS_MAX at most. */
static int take_names(struct query *q, struct op *op, const char **names, uint32_t *ret_n)
{
    int rc;
    sql_want(op, 0);
    while ((rc = sql_next(op)) > 0) {
        for (uint32_t k = 0; k < op->out.n_sel && *ret_n < SETTINGS_MAX; k++) {
            uint32_t row = op->out.sel ? op->out.sel[k] : k;
            struct sql_value v = sql_vec_value(q, &op->out.v[0], row);
            const char *name =
                v.type == SQL_TEXT ? arena_text(&q->mem, v.text.data, v.text.size) : NULL;
            if (name)
                names[(*ret_n)++] = name;
        }
    }
    return rc;
}

static int no_setting(const struct query *q, const struct statement *st, const char *const *names,
                      uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(names[i], st->name) == 0)
            return 0;
    const char *near = text_nearest(st->name, names, n);
    return sql_error(q->text, q->size, st->pos, -ENOENT,
                     near ? "no setting '%s'; did you mean '%s'?"
                          : "no setting '%s'; `show all` "
                            "lists them",
                     st->name, near);
}

/* An answer without rows would say that there is such a setting, and nothing about it. */
static int check_setting(struct query *q, const struct statement *st)
{
    const char *text = q->text;
    size_t size = q->size;
    struct sandbox box;
    struct op *op;
    uint32_t n = 0;
    sql_sandbox_enter(q, &box);
    const char **names = sql_get(q, SETTINGS_MAX, sizeof(*names));
    int rc = names ? plan_text(q, "select name from information_schema.df_settings", &op) : -ENOMEM;
    q->text = text;
    q->size = size;
    if (rc == 0)
        rc = take_names(q, op, names, &n);
    if (rc == 0)
        rc = no_setting(q, st, names, n);
    return sql_sandbox_leave(q, &box, NULL, rc);
}

/* show NAME, show all: DataFusion's df_settings. */
static int plan_setting(struct query *q, const char *name, struct op **ret)
{
    if (!name)
        return plan_text(q, "select name, value from information_schema.df_settings order by 1",
                         ret);
    char *text = sql_getf(q,
                          "select name, value from information_schema.df_settings where name = "
                          "'%s'",
                          strchr(name, '\'') ? "" : name);
    return text ? plan_text(q, text, ret) : -ENOMEM;
}

static int plan_show(struct query *q, const struct statement *st, struct op **ret)
{
    const char *name = st->name;
    if (name && strcmp(name, "databases") == 0)
        return plan_text(q,
                         "select distinct catalog_name as database_name from "
                         "information_schema.schemata",
                         ret);
    if (name && (strcmp(name, "schemas") == 0 || strcmp(name, "schemata") == 0))
        return plan_text(q, "select schema_name from information_schema.schemata order by 1", ret);
    int rc = name ? check_setting(q, st) : 0;
    return rc < 0 ? rc : plan_setting(q, name, ret);
}

static int plan_set(struct query *q, const struct statement *st, struct op **ret)
{
    if (!q->o->set)
        return sql_error(q->text, q->size, st->pos, -EPERM,
                         "a query only reads; `config %s=%s` changes a setting", st->name,
                         st->value);
    int rc = q->dry ? 0 : q->o->set(q->o->set_arg, st->name, st->value);
    return rc < 0 ? rc : plan_setting(q, st->name, ret); /* which may have been a short name */
}

int sql_plan_other(struct query *q, const struct statement *st, struct op **ret)
{
    switch (st->kind) {
    case STATEMENT_SHOW_TABLES:
        return plan_text(q,
                         "select table_schema, table_name, table_type, doc from "
                         "information_schema.tables order by 1, 2",
                         ret);
    case STATEMENT_SHOW_CREATE:
        return plan_show_create(q, st, ret);
    case STATEMENT_DESCRIBE:
        return plan_describe(q, st, ret);
    case STATEMENT_SUMMARIZE:
        return plan_summarize(q, st, ret);
    case STATEMENT_SHOW:
        return plan_show(q, st, ret);
    case STATEMENT_SET:
        return plan_set(q, st, ret);
    case STATEMENT_SELECT:
        break;
    }
    return sql_plan_select(q, st->select, NULL, ret);
}
