/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/catalog/describe.c - statements about tables and settings: describe, summarize, show,
 * set.
 *
 * The query's thread only.  They become plans as selects do.
 */
#include "core/sql/catalog/catalog.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "core/base/err.h"
#include "core/base/text.h"
#include "core/sql/plan/plan.h"

#define NAMES_MAX 512       /* names that are looked at for the nearest */
#define SHOW_MAX (4u << 20) /* bytes: of a statement that another becomes, with patterns in it */

/* Statements that are selects over information_schema, planned as such. */
static int plan_text(struct query *q, const char *text, struct op **ret)
{
    struct statement st;
    q->text = text;
    q->size = strlen(text);
    int rc = sql_parse(&q->mem, q->text, q->size, &st);
    return rc < 0 ? rc : sql_plan_select(q, st.select, NULL, ret);
}

/* Plan what the statement names, only for its columns: it never runs. */
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

/* Rows of columns whose names meet the pattern. */
static int keep_like(struct query *q, const char *like, struct op **op)
{
    struct statement st;
    struct buf b;
    buf_init(&b, SHOW_MAX);
    (void)buf_adds(&b, "select 1 where column_name ilike ");
    add_quoted(&b, like, '\'');
    char *text = b.failed ? NULL : arena_text(&q->mem, b.data, b.size);
    buf_done(&b);
    if (!text)
        return err_set(-ENOMEM, "no memory for the statement");
    q->text = text;
    q->size = strlen(text);
    int rc = sql_parse(&q->mem, q->text, q->size, &st);
    return rc < 0 ? rc : sql_plan_where(q, st.select->where, NULL, op);
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
    if (rc == 0)
        rc = sql_scan_rowset(q, rows, cols, ret);
    return rc == 0 && st->like ? keep_like(q, st->like, ret) : rc;
}

/* The row of one column: DuckDB's summarize.  What is computed has no unit: all columns of the
 * table stand below each other. */
void sql_add_summary(struct buf *b, const char *name, enum sql_type type, const char *x)
{
    bool number = type == SQL_INT || type == SQL_DOUBLE;
    (void)buf_adds(b, "select ");
    add_quoted(b, name, '\'');
    (void)buf_addf(b,
                   " as column_name, '%s' as column_type, min(%s)::text || '' as min, "
                   "max(%s)::text || '' as max, count(distinct %s) as \"unique\"",
                   sql_type_name(type), x, x, x);
    if (number)
        (void)buf_addf(b,
                       ", avg(%s) + 0.0 as avg, stddev(%s) + 0.0 as std, percentile_cont(0.25) "
                       "within group (order by %s) + 0.0 as q25, median(%s) + 0.0 as q50, "
                       "percentile_cont(0.75) within group (order by %s) + 0.0 as q75",
                       x, x, x, x, x);
    else
        (void)buf_adds(b, ", null::double as avg, null::double as std, null::double as q25, "
                          "null::double as q50, null::double as q75");
    (void)buf_addf(b,
                   ", count(*) as count, round(100.0 * (count(*) - count(%s)) / "
                   "nullif(count(*), 0), 2) as null_percentage from ",
                   x);
}

static void add_summary_of(struct buf *b, const struct statement *st, const struct col *col)
{
    sql_add_summary(b, col->name, col->type, "x");
    (void)buf_adds(b, "(select ");
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
        add_summary_of(&b, st, &op->cols[c]);
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

/* The object of `show create`: a view, a table, or one that the engine makes itself. */
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
    q->notes.view_used = NULL;
    int rc = look_at(q, st, &op);
    if (rc < 0)
        return rc;
    *ret = (struct creation){.view = q->notes.view_used,
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

/* The first column's texts, NAMES_MAX at most. */
static int take_names(struct query *q, struct op *op, const char **names, uint32_t *ret_n)
{
    int rc;
    sql_want(op, 0);
    while ((rc = sql_next(op)) > 0) {
        for (uint32_t k = 0; k < op->out.n_sel && *ret_n < NAMES_MAX; k++) {
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

/* `text` gives names: is one of them the one at `pos`?  Else what is said, and the nearest. */
static int check_name(struct query *q, const char *text, const char *name, uint32_t pos,
                      const char *what)
{
    const char *statement = q->text;
    size_t size = q->size;
    struct sandbox box;
    struct op *op;
    uint32_t n = 0, i = 0;
    sql_sandbox_enter(q, &box);
    const char **names = sql_get(q, NAMES_MAX, sizeof(*names));
    int rc = names ? plan_text(q, text, &op) : -ENOMEM;
    q->text = statement;
    q->size = size;
    if (rc == 0)
        rc = take_names(q, op, names, &n);
    while (i < n && strcmp(names[i], name) != 0)
        i++;
    const char *near = rc == 0 && i == n ? text_nearest(name, names, n) : NULL;
    if (rc == 0 && i == n)
        rc = sql_error(q->text, q->size, pos, -ENOENT,
                       near ? "unknown %s '%s'; did you mean '%s'?"
                            : "unknown %s '%s'; `show %s` lists them",
                       what, name,
                       near                          ? near
                       : strcmp(what, "schema") == 0 ? "schemas"
                                                     : "all");
    return sql_sandbox_leave(q, &box, NULL, rc);
}

static int plan_buf(struct query *q, struct buf *b, struct op **ret)
{
    char *text = b->failed ? NULL : arena_text(&q->mem, b->data, b->size);
    buf_done(b);
    return text ? plan_text(q, text, ret) : err_set(-ENOMEM, "no memory for the statement");
}

/* show NAME: DataFusion's df_settings. */
static int plan_setting(struct query *q, const char *name, struct op **ret)
{
    struct buf b;
    buf_init(&b, SHOW_MAX);
    (void)buf_adds(&b, "select name, value from information_schema.df_settings where name = ");
    add_quoted(&b, name, '\'');
    return plan_buf(q, &b, ret);
}

static int plan_show(struct query *q, const struct statement *st, struct op **ret)
{
    /* An answer without rows would say that there is such a setting, and nothing about it. */
    int rc = check_name(q, "select name from information_schema.df_settings", st->name, st->pos,
                        "setting");
    return rc < 0 ? rc : plan_setting(q, st->name, ret);
}

/* show tables | views | functions | schemas | databases | all [from SCHEMA] [like 'p%']: a pattern
 * is for the name, or for "schema.name". */
static int plan_show_list(struct query *q, const struct statement *st, struct op **ret)
{
    static const struct {
        const char *list, *name, *whole, *text;
    } lists[] = {
        {"tables", "table_name", "table_schema || '.' || table_name",
         "select table_schema, table_name, table_type, doc from information_schema.tables where "
         "true"},
        {"views", "table_name", "table_schema || '.' || table_name",
         "select table_schema, table_name, doc from information_schema.tables where table_type = "
         "'VIEW'"},
        {"functions", "routine_name", "''",
         "select distinct routine_name as function_name from information_schema.routines where "
         "true"},
        {"schemas", "schema_name", "''",
         "select schema_name from information_schema.schemata where true"},
        {"databases", "catalog_name", "''",
         "select distinct catalog_name as database_name from information_schema.schemata where "
         "true"},
        {"all", "name", "''", "select name, value from information_schema.df_settings where true"}};
    size_t i = 0;
    struct buf b;
    while (strcmp(lists[i].list, st->name) != 0)
        i++;
    int rc = st->names[0] ? check_name(q, "select schema_name from information_schema.schemata",
                                       st->names[0], st->pos, "schema")
                          : 0;
    if (rc < 0)
        return rc;
    buf_init(&b, SHOW_MAX);
    (void)buf_adds(&b, lists[i].text);
    if (st->names[0]) {
        (void)buf_adds(&b, " and table_schema = ");
        add_quoted(&b, st->names[0], '\'');
    }
    if (st->like) {
        (void)buf_addf(&b, " and (%s ilike ", lists[i].name);
        add_quoted(&b, st->like, '\'');
        (void)buf_addf(&b, " or %s ilike ", lists[i].whole);
        add_quoted(&b, st->like, '\'');
        (void)buf_adds(&b, ")");
    }
    (void)buf_adds(&b, " order by all");
    return plan_buf(q, &b, ret);
}

static int plan_set(struct query *q, const struct statement *st, struct op **ret)
{
    if (!q->o->set)
        return sql_error(q->text, q->size, st->pos, -EPERM,
                         "a query cannot change settings; use `config %s=%s`", st->name, st->value);
    int rc = q->dry ? 0 : q->o->set(q->o->set_arg, st->name, st->value);
    return rc < 0 ? rc : plan_setting(q, st->name, ret); /* which may have been a short name */
}

int sql_plan_other(struct query *q, const struct statement *st, struct op **ret)
{
    switch (st->kind) {
    case STATEMENT_SHOW_LIST:
        return plan_show_list(q, st, ret);
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
