/* SPDX-License-Identifier: Apache-2.0
 *
 * core/script/script_events.c - the table probing.events: what probing.on() takes, with the columns
 * that its functions get.
 *
 * Threads: workers.  An event is a row of a stored table, or of a view of one, so plugins declare
 * events as they declare tables and views, and each is asked for again whenever somebody looks.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/script/internal.h"
#include "core/sql/sql.h"

#define NAMES_MAX_BYTES 65536
#define PAYLOAD_MAX_BYTES 8192

/* Names that may be events: "schema.name", NUL, doc, NUL. */
static int add_name(void *arg, const struct sql_rows *rows)
{
    struct buf *names = arg;

    for (uint32_t i = 0; i < sql_rows_count(rows); i++) {
        for (uint32_t column = 0; column < 2; column++) {
            struct sql_value v;
            sql_rows_value(rows, i, column, &v);
            if (v.type == SQL_TEXT)
                (void)buf_add(names, v.text.data, v.text.size);
            (void)buf_addc(names, '\0');
        }
    }
    return names->failed;
}

static int no_columns(void *arg, const struct sql_column *columns, uint32_t n)
{
    (void)arg, (void)columns, (void)n;
    return 0;
}

static int no_rows(void *arg, const struct sql_rows *rows)
{
    (void)arg, (void)rows;
    return 0;
}

static int list_names(struct scripts *all, struct buf *names)
{
    static const char sql[] =
        "select case when t.table_schema = '' then '' else t.table_schema || '.' end || "
        "t.table_name, d.description from information_schema.tables t left join "
        "probing.table_docs d on d.table_schema = t.table_schema and d.table_name = t.table_name "
        "where t.table_type in ('BASE TABLE', 'VIEW') and t.table_schema <> 'information_schema' "
        "order by 1";
    struct sql_sink sink = {.arg = names, .columns = no_columns, .rows = add_name};
    struct sql_options o = {.timeout_ns = NS_PER_S};
    struct sql_report report = {0};

    return sql_run(all->sql, sql, sizeof(sql) - 1, &o, &sink, &report);
}

/* "ts timestamp, duration bigint ns" */
static int add_payload(void *arg, const struct sql_column *columns, uint32_t n)
{
    struct buf *payload = arg;

    for (uint32_t i = 0; i < n; i++) {
        const char *unit = sql_unit_name(columns[i].unit);
        (void)buf_addf(payload, "%s%s %s%s%s", i > 0 ? ", " : "", columns[i].name,
                       sql_type_name(columns[i].type), unit[0] ? " " : "", unit);
    }
    return payload->failed;
}

/* One row of the table, where the rows of `name` can be followed. */
static int scan_name(struct scripts *all, const char *name, const char *doc, struct buf *payload,
                     struct probing_rows *out)
{
    char sql[300];
    const struct table *table;
    struct sql_sink sink = {.arg = payload, .columns = add_payload, .rows = no_rows};
    struct sql_options o = {.timeout_ns = NS_PER_S, .from_row = UINT64_MAX};
    struct sql_report report = {0};
    int n = snprintf(sql, sizeof(sql), "select * from %s", name);

    if (n >= (int)sizeof(sql) || sql_followable(all->sql, sql, (size_t)n, &table) <= 0)
        return 0;
    buf_reset(payload);
    if (sql_run(all->sql, sql, (size_t)n, &o, &sink, &report) < 0)
        return 0; /* its plugin has just stopped */
    const union probing_cell row[] = {{.s = name}, {.s = buf_text(payload)}, {.s = doc}};
    return out->row(out, row, sizeof(row) / sizeof(row[0]));
}

static int scan_events(void *self, struct probing_rows *out)
{
    struct buf names, payload;
    int rc;

    buf_init(&names, NAMES_MAX_BYTES);
    buf_init(&payload, PAYLOAD_MAX_BYTES);
    rc = list_names(self, &names);
    for (size_t at = 0; rc == 0 && at < names.size;) {
        const char *name = names.data + at, *doc = name + strlen(name) + 1;
        rc = scan_name(self, name, doc, &payload, out);
        at += strlen(name) + strlen(doc) + 2;
    }
    buf_done(&payload);
    buf_done(&names);
    return rc;
}

static const struct probing_column columns[] = {
    {.name = "name", .type = PROBING_STR, .doc = "as probing.on() takes it"},
    {.name = "payload", .type = PROBING_STR, .doc = "what its function gets: names, types, units"},
    {.name = "doc", .type = PROBING_STR, .doc = "what a row is"}};
static const struct probing_table_desc desc = {
    .size = sizeof(desc),
    .column_size = sizeof(columns[0]),
    .name = "probing.events",
    .doc = "tables and views whose rows a script can be called with as they come",
    .columns = columns,
    .n_columns = sizeof(columns) / sizeof(columns[0]),
    .scan = scan_events};

int script_events_add(struct scripts *all)
{
    return host_table_add(all->host, &desc, all);
}
