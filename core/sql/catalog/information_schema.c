/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/catalog/information_schema.c - information_schema: what tables, columns and schemas
 * there are, as tables.
 *
 * The query's thread only.  Views are planned without running them to learn their columns.
 */
#include "core/sql/catalog/catalog.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "core/base/err.h"
#include "core/sql/plan/plan.h"

#define NAMES_MAX 128 /* of aggregates, of window functions */

/* PostgreSQL's columns in its order, then ours.  What says nothing here is NULL. */
static const char tables_spec[] =
    "table_catalog= table_schema= table_name= table_type= "
    "self_referencing_column_name reference_generation user_defined_type_catalog "
    "user_defined_type_schema user_defined_type_name is_insertable_into= is_typed= "
    "commit_action doc=";
static const char columns_spec[] =
    "table_catalog= table_schema= table_name= column_name= ordinal_position=i "
    "column_default is_nullable= data_type= character_maximum_length:i "
    "character_octet_length:i numeric_precision:i numeric_precision_radix:i "
    "numeric_scale:i datetime_precision:i interval_type interval_precision:i "
    "character_set_catalog character_set_schema character_set_name collation_catalog "
    "collation_schema collation_name domain_catalog domain_schema domain_name "
    "udt_catalog udt_schema udt_name scope_catalog scope_schema scope_name "
    "maximum_cardinality:i dtd_identifier is_self_referencing is_identity "
    "identity_generation identity_start identity_increment identity_maximum "
    "identity_minimum identity_cycle is_generated generation_expression is_updatable= "
    "unit= doc=";
static const char schemata_spec[] =
    "catalog_name= schema_name= schema_owner default_character_set_catalog "
    "default_character_set_schema default_character_set_name sql_path";
static const char views_spec[] =
    "table_catalog= table_schema= table_name= view_definition= check_option "
    "is_updatable= is_insertable_into= is_trigger_updatable is_trigger_deletable "
    "is_trigger_insertable_into";
/* A row for each way to call a function by the types of its arguments. */
static const char routines_spec[] =
    "routine_schema= routine_name= routine_type= data_type= function_type=";
/* DataFusion's. */
static const char settings_spec[] = "name= value=";

/* The next column of a spec; false: there is none. */
static bool next_column(const char **spec, char mark[2], struct text *ret)
{
    *spec += strspn(*spec, " ");
    size_t n = strcspn(*spec, " "), name = strcspn(*spec, " =:");
    *ret = (struct text){*spec, (uint32_t)name};
    mark[0] = name < n ? (*spec)[name] : '\0';
    mark[1] = name + 1 < n ? (*spec)[name + 1] : 't';
    *spec += n;
    return n > 0;
}

int made_begin(struct maker *m, struct query *q, const char *spec)
{
    struct text name;
    char mark[2];
    *m = (struct maker){.q = q, .spec = spec};
    m->rows = sql_get(q, 1, sizeof(*m->rows));
    m->types = sql_get(q, MADE_COLUMNS_MAX, sizeof(*m->types));
    if (!m->rows || !m->types)
        return -ENOMEM;
    while (next_column(&spec, mark, &name)) {
        if (mark[0] != '=')
            continue;
        struct vec *v = &m->v[m->n];
        m->types[m->n] = sql_letter_type(mark[1], SQL_TEXT);
        m->pointers[m->n] = v;
        if (sql_vec_room(q, v, m->types[m->n++]) < 0)
            return -ENOMEM;
        v->stable = true;
    }
    return sql_rowset_init(m->rows, q, &q->mem, m->types, m->n);
}

int made_row(struct maker *m, const char *const *texts, const int64_t *numbers)
{
    for (uint32_t c = 0; c < m->n; c++) {
        bool is_text = m->types[c] == SQL_TEXT, is_null = is_text && !texts[c];
        m->v[c].has_null = true;
        m->v[c].null[0] = is_null;
        if (is_text)
            m->v[c].t[0] = is_null ? (struct text){"", 0}
                                   : (struct text){texts[c], (uint32_t)strlen(texts[c])};
        else
            m->v[c].i[0] = numbers[c];
    }
    return sql_rowset_add(m->rows, m->pointers, NULL, 1);
}

static struct expr *null_of(struct query *q, enum sql_type type)
{
    struct expr *e = sql_const(q, (struct sql_value){.type = SQL_NULL}, /* pos= */ 0);
    if (e) {
        e->type = type;
        e->literal = false;
    }
    return e;
}

int made_finish(struct maker *m, const char *table, struct op **ret)
{
    const char *spec = m->spec;
    struct query *q = m->q;
    struct col *own = sql_get(q, m->n, sizeof(*own)), *cols;
    struct expr **exprs;
    struct text name;
    char mark[2];
    uint32_t n = 0, next = 0;
    for (const char *p = spec; next_column(&p, mark, &name);)
        n++;
    cols = sql_get(q, n, sizeof(*cols));
    exprs = sql_get(q, n, sizeof(struct expr *));
    if (!own || !cols || !exprs)
        return -ENOMEM;
    for (uint32_t c = 0; c < m->n; c++)
        own[c] = (struct col){.name = "", .type = m->types[c], .doc = ""};
    struct op *op;
    int rc = sql_scan_rowset(q, m->rows, own, &op);
    for (uint32_t c = 0; rc == 0 && next_column(&spec, mark, &name); c++) {
        bool made = mark[0] == '=';
        enum sql_type type = made ? m->types[next] : sql_letter_type(mark[1], SQL_TEXT);
        exprs[c] = made ? sql_column_expr(q, op, next, 0) : null_of(q, type);
        cols[c] = (struct col){.name = sql_getf(q, "%.*s", (int)name.size, name.data),
                               .table = table,
                               .schema = "information_schema",
                               .type = type,
                               .doc = ""};
        next += made;
        if (!exprs[c] || !cols[c].name)
            rc = -ENOMEM;
    }
    return rc < 0 ? rc : sql_project(op, exprs, cols, n, ret);
}

typedef int (*make)(struct query *q, const char *alias, struct op **ret);

static int make_tables(struct query *q, const char *alias, struct op **ret);
static int make_columns(struct query *q, const char *alias, struct op **ret);
static int make_routines(struct query *q, const char *alias, struct op **ret);
static int make_schemata(struct query *q, const char *alias, struct op **ret);
static int make_settings(struct query *q, const char *alias, struct op **ret);
static int make_views(struct query *q, const char *alias, struct op **ret);

static const struct {
    const char *name, *spec;
    make make;
} own[] = {
    {"columns", columns_spec, make_columns},    {"df_settings", settings_spec, make_settings},
    {"routines", routines_spec, make_routines}, {"schemata", schemata_spec, make_schemata},
    {"tables", tables_spec, make_tables},       {"views", views_spec, make_views}};
#define N_OWN (sizeof(own) / sizeof(own[0]))

/* One of the engine's, for which nobody else has one. */
static bool is_own(const struct query *q, size_t i)
{
    return !tables_find(q->s->tables, "information_schema", own[i].name);
}

static struct table **all_tables(struct query *q, uint32_t *ret_n)
{
    struct table **list = sql_get(q, TABLES_MAX, sizeof(struct table *));
    if (list)
        *ret_n = tables_list(q->s->tables, list, TABLES_MAX);
    return list;
}

/* A dry run, which only learns columns, sees no views: one of them may be over these tables. */
static const struct view *first_view(struct query *q)
{
    return q->dry ? NULL : atomic_load_explicit(&q->s->views, memory_order_acquire);
}

/* A view planned to learn its columns; *ret NULL: it is over a table that is not there (yet), an
 * older definition of a name listed before, or a table of its name has come since. */
static int view_plan(struct query *q, const struct view *v, struct op **ret)
{
    struct from f = {.kind = FROM_TABLE, .names = {v->name, v->schema[0] ? v->schema : NULL}};
    struct node star = {.kind = NODE_STAR, .depth = 1};
    struct item all = {.node = &star};
    struct select s = {.items = &all, .n_items = 1, .from = &f};
    const struct view *newer = atomic_load_explicit(&q->s->views, memory_order_acquire);
    struct query_notes notes = q->notes; /* what a view reads is not read here */
    bool dry = q->dry;
    *ret = NULL;
    if (!v->definition)
        return 0;
    q->notes.lacks = NULL;
    for (; newer != v; newer = newer->next)
        if (!atomic_load_explicit(&newer->is_old, memory_order_acquire) &&
            strcasecmp(newer->name, v->name) == 0 && strcasecmp(newer->schema, v->schema) == 0)
            return 0;
    q->dry = true;
    q->notes.view_used = NULL;
    int rc = sql_plan_select(q, &s, NULL, ret);
    q->dry = dry;
    if (rc < 0)
        err_clear();
    if (rc < 0 || q->notes.lacks || !q->notes.view_used)
        *ret = NULL;
    notes.view_used = q->notes.view_used;
    q->notes = notes;
    return rc == -ENOMEM ? rc : 0;
}

static int put_table(struct maker *m, const char *schema, const char *name, const char *type,
                     const char *doc)
{
    return made_row(m, (const char *const[]){"probing", schema, name, type, "NO", "NO", doc}, NULL);
}

static int make_tables(struct query *q, const char *alias, struct op **ret)
{
    struct maker m;
    uint32_t n = 0;
    struct table **list = all_tables(q, &n);
    int rc = list ? made_begin(&m, q, tables_spec) : -ENOMEM;
    for (uint32_t i = 0; i < n && rc == 0; i++)
        rc = put_table(&m, list[i]->schema, list[i]->name,
                       list[i]->scan ? "COMPUTED" : "BASE TABLE", list[i]->doc ? list[i]->doc : "");
    struct op *op;
    for (const struct view *v = first_view(q); v && rc == 0; v = v->next) {
        rc = view_plan(q, v, &op);
        if (rc == 0 && op)
            rc = put_table(&m, v->schema, v->name, "VIEW", v->doc);
    }
    for (size_t i = 0; i < N_OWN && rc == 0; i++)
        if (is_own(q, i)) /* else it is listed above */
            rc = put_table(&m, "information_schema", own[i].name, "COMPUTED",
                           "the SQL standard's description of tables, columns and functions");
    return rc < 0 ? rc : made_finish(&m, alias, ret);
}

/* The definition that is used: of a name with several the newest whose tables are all there. */
static int make_views(struct query *q, const char *alias, struct op **ret)
{
    struct maker m;
    struct op *op;
    int rc = made_begin(&m, q, views_spec);
    for (const struct view *v = first_view(q); v && rc == 0; v = v->next) {
        rc = view_plan(q, v, &op);
        if (rc == 0 && op)
            rc = made_row(&m,
                          (const char *const[]){"probing", v->schema, v->name,
                                                q->notes.view_used->definition, "NO", "NO"},
                          NULL);
    }
    return rc < 0 ? rc : made_finish(&m, alias, ret);
}

static int put_column(struct maker *m, const char *schema, const char *table, uint32_t number,
                      const struct col *c)
{
    int64_t numbers[MADE_COLUMNS_MAX] = {[4] = number};
    return made_row(m,
                    (const char *const[]){"probing", schema, table, c->name, NULL, "YES",
                                          sql_type_name(c->type), "NO", sql_unit_name(c->unit),
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

static int put_own(struct maker *m, size_t i)
{
    const char *spec = own[i].spec;
    struct text name;
    char mark[2];
    int rc = 0;
    for (uint32_t c = 1; rc == 0 && next_column(&spec, mark, &name); c++) {
        struct col col = {.name = sql_getf(m->q, "%.*s", (int)name.size, name.data),
                          .type = sql_letter_type(mark[1], SQL_TEXT)};
        rc = col.name ? put_column(m, "information_schema", own[i].name, c, &col) : -ENOMEM;
    }
    return rc;
}

static int make_columns(struct query *q, const char *alias, struct op **ret)
{
    static const enum sql_type types[] = {[PROBING_I64] = SQL_INT,
                                          [PROBING_F64] = SQL_DOUBLE,
                                          [PROBING_STR] = SQL_TEXT,
                                          [PROBING_BLOB] = SQL_BLOB,
                                          [PROBING_TIME] = SQL_TIMESTAMP};
    struct maker m;
    uint32_t n = 0;
    struct table **list = all_tables(q, &n);
    int rc = list ? made_begin(&m, q, columns_spec) : -ENOMEM;
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
    for (const struct view *v = first_view(q); v && rc == 0; v = v->next)
        rc = put_view(&m, v);
    for (size_t i = 0; i < N_OWN && rc == 0; i++)
        if (is_own(q, i))
            rc = put_own(&m, i);
    return rc < 0 ? rc : made_finish(&m, alias, ret);
}

static int make_schemata(struct query *q, const char *alias, struct op **ret)
{
    struct maker m;
    uint32_t n = 0;
    struct table **list = all_tables(q, &n);
    int rc = list ? made_begin(&m, q, schemata_spec) : -ENOMEM;
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        bool first = true;
        for (uint32_t j = 0; j < i && first; j++)
            first = strcmp(list[j]->schema, list[i]->schema) != 0;
        if (first)
            rc = made_row(&m, (const char *const[]){"probing", list[i]->schema}, NULL);
    }
    if (rc == 0)
        rc = made_row(&m, (const char *const[]){"probing", "information_schema"}, NULL);
    return rc < 0 ? rc : made_finish(&m, alias, ret);
}

/* DataFusion's name for settings.  What probing.settings says, where there is such a table; else
 * the limits of this engine. */
static int make_settings(struct query *q, const char *alias, struct op **ret)
{
    struct maker m;
    const struct table *settings = tables_find(q->s->tables, "probing", "settings");
    if (settings)
        return sql_scan_table(q, settings, alias, ret);
    char *memory = sql_getf(q, "%zu", sql_memory_limit(q));
    char *timeout = sql_getf(q, "%llu", (unsigned long long)q->timeout_ns);
    char *batch = sql_getf(q, "%d", SQL_ROWS);
    int rc = memory && timeout && batch ? made_begin(&m, q, settings_spec) : -ENOMEM;
    if (rc == 0)
        rc = made_row(&m, (const char *const[]){"query.max_memory", memory}, NULL);
    if (rc == 0)
        rc = made_row(&m, (const char *const[]){"query.timeout", timeout}, NULL);
    if (rc == 0)
        rc = made_row(&m, (const char *const[]){"query.batch_rows", batch}, NULL);
    return rc < 0 ? rc : made_finish(&m, alias, ret);
}

static int put_routine(struct maker *m, const char *name, enum sql_type type, const char *kind)
{
    const char *result = type == SQL_NULL ? "any" : sql_type_name(type);
    return made_row(m, (const char *const[]){"information_schema", name, "FUNCTION", result, kind},
                    NULL);
}

static int put_names(struct maker *m, uint32_t (*list)(const char **, uint32_t), const char *kind)
{
    const char *names[NAMES_MAX];
    uint32_t n = list(names, NAMES_MAX);
    int rc = 0;
    for (uint32_t i = 0; i < n && rc == 0; i++) /* their types are those of the arguments */
        rc = put_routine(m, names[i], SQL_NULL, kind);
    return rc;
}

static int make_routines(struct query *q, const char *alias, struct op **ret)
{
    struct maker m;
    const struct func *f;
    int rc = made_begin(&m, q, routines_spec);
    for (uint32_t i = 0; rc == 0 && (f = sql_func_at(i)) != NULL; i++)
        if (sql_func_is_called(f))
            rc = put_routine(&m, f->name, sql_letter_type(f->result, SQL_NULL), "SCALAR");
    rc = rc < 0 ? rc : put_names(&m, sql_agg_names, "AGGREGATE");
    rc = rc < 0 ? rc : put_names(&m, sql_window_names, "WINDOW");
    return rc < 0 ? rc : made_finish(&m, alias, ret);
}

int sql_scan_schema(struct query *q, const char *name, const char *alias, struct op **ret)
{
    q->sums_up = true;
    for (size_t i = 0; i < N_OWN; i++) /* somebody may have a better one; the dead have only ours */
        if (strcasecmp(name, own[i].name) == 0 && is_own(q, i))
            return own[i].make(q, alias ? alias : own[i].name, ret);
    return 0;
}
