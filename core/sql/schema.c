/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/schema.c - information_schema: what tables, columns and schemas there are, as tables.
 *
 * The query's thread only.  Views are planned without running them to learn their columns.
 */
#include "core/sql/plan.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "core/base/err.h"

#define COLUMNS_MAX 10

struct maker {
    struct query *q;
    struct rowset *rows;
    uint32_t n;
    struct vec v[COLUMNS_MAX], *pointers[COLUMNS_MAX];
    enum sql_type *types;
};

static int begin(struct maker *m, struct query *q, const char *types)
{
    *m = (struct maker){.q = q, .n = (uint32_t)strlen(types)};
    m->rows = sql_get(q, 1, sizeof(*m->rows));
    m->types = sql_get(q, m->n, sizeof(*m->types));
    if (!m->rows || !m->types)
        return -ENOMEM;
    for (uint32_t c = 0; c < m->n; c++) {
        m->types[c] = sql_letter_type(types[c], SQL_TEXT);
        m->pointers[c] = &m->v[c];
        if (sql_vec_room(q, &m->v[c], m->types[c]) < 0)
            return -ENOMEM;
        m->v[c].stable = true;
    }
    return sql_rowset_init(m->rows, q, &q->mem, m->types, m->n);
}

static int put(struct maker *m, const char *const *texts, const int64_t *numbers)
{
    for (uint32_t c = 0; c < m->n; c++) {
        if (m->types[c] == SQL_TEXT)
            m->v[c].t[0] = (struct text){texts[c], (uint32_t)strlen(texts[c])};
        else
            m->v[c].i[0] = numbers[c];
    }
    return sql_rowset_add(m->rows, m->pointers, NULL, 1);
}

static int finish(struct maker *m, const char *const *names, const char *table, struct op **ret)
{
    struct col *cols = sql_get(m->q, m->n, sizeof(*cols));
    if (!cols)
        return -ENOMEM;
    for (uint32_t c = 0; c < m->n; c++)
        cols[c] = (struct col){.name = names[c],
                               .table = table,
                               .schema = "information_schema",
                               .type = m->types[c],
                               .doc = ""};
    return sql_scan_rowset(m->q, m->rows, cols, ret);
}

static struct table **all_tables(struct query *q, uint32_t *ret_n)
{
    struct table **list = sql_get(q, TABLES_MAX, sizeof(struct table *));
    if (list)
        *ret_n = tables_list(q->s->tables, list, TABLES_MAX);
    return list;
}

static const char *const own_tables[] = {"tables", "columns", "schemata", "df_settings"};

/* A view planned to learn its columns; *ret NULL: it is over a table that is not there (yet), or
 * an older definition of a name listed before. */
static int view_plan(struct query *q, const struct view *v, struct op **ret)
{
    struct from f = {.kind = FROM_TABLE, .names = {v->name, v->schema[0] ? v->schema : NULL}};
    struct node star = {.kind = NODE_STAR, .depth = 1};
    struct item all = {.node = &star};
    struct select s = {.items = &all, .n_items = 1, .from = &f};
    const struct view *newer = atomic_load_explicit(&q->s->views, memory_order_acquire);
    bool dry = q->dry;
    *ret = NULL;
    for (; newer != v; newer = newer->next)
        if (strcasecmp(newer->name, v->name) == 0 && strcasecmp(newer->schema, v->schema) == 0)
            return 0;
    q->dry = true;
    int rc = sql_plan_select(q, &s, NULL, ret);
    q->dry = dry;
    if (rc == -ENOMEM)
        return rc;
    if (rc < 0) {
        err_clear();
        *ret = NULL;
    }
    return 0;
}

static int make_tables(struct query *q, const char *alias, struct op **ret)
{
    static const char *const names[] = {"table_catalog", "table_schema", "table_name", "table_type",
                                        "doc"};
    struct maker m;
    uint32_t n = 0;
    struct table **list = all_tables(q, &n);
    int rc = list ? begin(&m, q, "ttttt") : -ENOMEM;
    for (uint32_t i = 0; i < n && rc == 0; i++)
        rc = put(&m,
                 (const char *const[]){"probing", list[i]->schema, list[i]->name,
                                       list[i]->scan ? "COMPUTED" : "BASE TABLE",
                                       list[i]->doc ? list[i]->doc : ""},
                 NULL);
    struct op *op;
    const struct view *v = atomic_load_explicit(&q->s->views, memory_order_acquire);
    for (; v && rc == 0; v = v->next) {
        rc = view_plan(q, v, &op);
        if (rc == 0 && op)
            rc =
                put(&m, (const char *const[]){"probing", v->schema, v->name, "VIEW", v->doc}, NULL);
    }
    for (size_t i = 0; i < sizeof(own_tables) / sizeof(*own_tables) && rc == 0; i++)
        if (!tables_find(q->s->tables, "information_schema", own_tables[i])) /* listed above */
            rc = put(&m,
                     (const char *const[]){"probing", "information_schema", own_tables[i],
                                           "COMPUTED", "about the tables themselves"},
                     NULL);
    return rc < 0 ? rc : finish(&m, names, alias, ret);
}

static int put_column(struct maker *m, const char *schema, const char *table, uint32_t number,
                      const struct col *c)
{
    int64_t numbers[COLUMNS_MAX] = {[4] = number};
    return put(m,
               (const char *const[]){"probing", schema, table, c->name, "", "YES",
                                     sql_type_name(c->type), sql_unit_name(c->unit),
                                     c->doc ? c->doc : ""},
               numbers);
}

static int put_view(struct maker *m, const struct view *v)
{
    struct op *op;
    int rc = view_plan(m->q, v, &op);
    for (uint32_t c = 0; rc == 0 && op && c < op->n_cols; c++)
        rc = put_column(m, v->schema, v->name, c + 1, &op->cols[c]);
    return rc;
}

static int make_columns(struct query *q, const char *alias, struct op **ret)
{
    static const char *const names[] = {
        "table_catalog", "table_schema", "table_name", "column_name", "ordinal_position",
        "is_nullable",   "data_type",    "unit",       "doc"};
    static const enum sql_type types[] = {[PROBING_I64] = SQL_INT,
                                          [PROBING_F64] = SQL_DOUBLE,
                                          [PROBING_STR] = SQL_TEXT,
                                          [PROBING_BLOB] = SQL_BLOB,
                                          [PROBING_TIME] = SQL_TIMESTAMP};
    struct maker m;
    uint32_t n = 0;
    struct table **list = all_tables(q, &n);
    int rc = list ? begin(&m, q, "ttttitttt") : -ENOMEM;
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        for (uint32_t c = 0; c < list[i]->n_columns && rc == 0; c++) {
            const struct table_column *column = &list[i]->columns[c];
            struct col col = {.name = column->name,
                              .unit = column->unit,
                              .doc = column->doc,
                              .type = types[column->type <= PROBING_TIME ? column->type : 0]};
            rc = put_column(&m, list[i]->schema, list[i]->name, c + 1, &col);
        }
    }
    const struct view *v = atomic_load_explicit(&q->s->views, memory_order_acquire);
    for (; v && rc == 0; v = v->next)
        rc = put_view(&m, v);
    return rc < 0 ? rc : finish(&m, names, alias, ret);
}

static int make_schemata(struct query *q, const char *alias, struct op **ret)
{
    static const char *const names[] = {"catalog_name", "schema_name"};
    struct maker m;
    uint32_t n = 0;
    struct table **list = all_tables(q, &n);
    int rc = list ? begin(&m, q, "tt") : -ENOMEM;
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        bool first = true;
        for (uint32_t j = 0; j < i && first; j++)
            first = strcmp(list[j]->schema, list[i]->schema) != 0;
        if (first)
            rc = put(&m, (const char *const[]){"probing", list[i]->schema}, NULL);
    }
    if (rc == 0)
        rc = put(&m, (const char *const[]){"probing", "information_schema"}, NULL);
    return rc < 0 ? rc : finish(&m, names, alias, ret);
}

/* DataFusion's name for settings.  What probing.settings says, where there is such a table; else
 * the limits of this engine. */
static int make_settings(struct query *q, const char *alias, struct op **ret)
{
    static const char *const names[] = {"name", "value"};
    struct maker m;
    const struct table *settings = tables_find(q->s->tables, "probing", "settings");
    if (settings)
        return sql_scan_table(q, settings, alias, ret);
    char *memory = sql_getf(q, "%zu", q->budget->limit_bytes);
    char *timeout = sql_getf(q, "%llu", (unsigned long long)q->timeout_ns);
    char *batch = sql_getf(q, "%d", SQL_ROWS);
    int rc = memory && timeout && batch ? begin(&m, q, "tt") : -ENOMEM;
    if (rc == 0)
        rc = put(&m, (const char *const[]){"query.memory", memory}, NULL);
    if (rc == 0)
        rc = put(&m, (const char *const[]){"query.timeout", timeout}, NULL);
    if (rc == 0)
        rc = put(&m, (const char *const[]){"query.batch_rows", batch}, NULL);
    return rc < 0 ? rc : finish(&m, names, alias, ret);
}

int sql_scan_schema(struct query *q, const char *name, const char *alias, struct op **ret)
{
    static int (*const makers[])(struct query *, const char *, struct op **) = {
        make_tables, make_columns, make_schemata, make_settings};
    if (tables_find(q->s->tables, "information_schema", name))
        return 0; /* somebody has a better one; the dead have only ours */
    for (size_t i = 0; i < sizeof(own_tables) / sizeof(*own_tables); i++)
        if (strcasecmp(name, own_tables[i]) == 0)
            return makers[i](q, alias ? alias : own_tables[i], ret);
    return 0;
}
