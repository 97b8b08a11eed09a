/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/example_test.h - an engine to try statements on: one computed table of 1,000 rows,
 * python.torch_trace, and a view over it.
 *
 * A test's own thread.
 */
#ifndef CORE_SQL_EXAMPLE_TEST_H
#define CORE_SQL_EXAMPLE_TEST_H

#include <stdlib.h>

#include "core/base/err.h"
#include "core/sql/sql.h"
#include "tests/test.h"

#define ROWS 1000

static struct tables *tables;
static struct sql *engine;

static int scan(void *self, struct probing_rows *out)
{
    static const char *const modules[] = {"encoder", "decoder", "head", "mlp", NULL};
    static const char *const stages[] = {"pre forward", "post forward"};
    (void)self;
    for (int i = 0; i < ROWS; i++) {
        union probing_cell c[6] = {{.i = i / 10},
                                   {.s = modules[i % 5]},
                                   {.s = stages[i % 2]},
                                   {.f = 0.25 * (i % 8)},
                                   {.i = (int64_t)i * 1000000000},
                                   {.i = i % 10 == 9 ? PROBING_NULL_I64 : i}};
        if (i % 4 == 3)
            c[3].u = PROBING_NULL_F64;
        int rc = out->row(out, c, 6);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static const struct probing_column columns[] = {
    {.name = "local_step", .type = PROBING_I64},
    {.name = "module", .type = PROBING_STR},
    {.name = "stage", .type = PROBING_STR},
    {.name = "duration", .type = PROBING_F64, .unit = PROBING_SECONDS, .doc = "how long"},
    {.name = "ts", .type = PROBING_TIME},
    {.name = "allocated", .type = PROBING_I64, .unit = PROBING_MB}};

static const struct probing_table_desc desc = {.size = sizeof(desc),
                                               .column_size = sizeof(*columns),
                                               .name = "python.torch_trace",
                                               .doc = "modules",
                                               .columns = columns,
                                               .n_columns = 6,
                                               .scan = scan};

static inline int add_bytes(void *arg, const char *data, size_t size)
{
    return buf_add(arg, data, size);
}

static inline int ask_as(enum sql_format format, const char *text, const struct sql_options *o,
                         struct buf *out, struct sql_report *report)
{
    struct sql_writer *w;
    int rc = sql_writer_new(format, 0, add_bytes, out, &w);
    if (rc < 0)
        return rc;
    struct sql_sink sink = sql_writer_sink(w);
    rc = sql_run(engine, text, strlen(text), o, &sink, report);
    if (rc == 0)
        rc = sql_writer_finish(w, report);
    sql_writer_free(w);
    return rc;
}

/* The answer without its header, lines joined by ';', or the error. */
static inline const char *ask(const char *text)
{
    static char answer[4096];
    struct buf out;
    struct sql_report report;
    buf_init(&out, 1 << 20);
    int rc = ask_as(SQL_FORMAT_CSV, text, NULL, &out, &report);
    size_t n = 0;
    const char *from = rc < 0 ? err_text() : strstr(buf_text(&out), "\r\n");
    for (from = rc < 0 || !from ? from : from + 2; from && *from && n < sizeof(answer) - 1;
         from++) {
        if (*from == '\r')
            continue;
        answer[n++] = *from == '\n' ? ';' : *from;
    }
    answer[n] = '\0';
    if (rc == 0 && n && answer[n - 1] == ';')
        answer[n - 1] = '\0';
    buf_done(&out);
    return answer;
}

struct example {
    const char *text, *answer;
};

static inline void try_all(const struct example *e, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *answer = ask(e[i].text);
        if (strcmp(answer, e[i].answer) != 0)
            printf("# %s\n", e[i].text);
        CHECK_STR(answer, e[i].answer);
    }
}
#define TRY(list) try_all(list, sizeof(list) / sizeof(*(list)))

/* 0, or 1 after a line that says why.  where: gives the rows of another, python.where_am_i. */
static inline int begin_examples(int (*where)(void *self, struct probing_rows *out))
{
    struct probing_table_desc settings = desc, other = desc;
    struct table *t;
    other.name = "python.where_am_i";
    other.scan = where;
    settings.name = "information_schema.df_settings";
    if (tables_new(&tables) || tables_add(tables, "python", &desc, NULL, &t) ||
        tables_add(tables, "information_schema", &settings, NULL, &t) ||
        tables_add(tables, "python", &other, NULL, &t) || sql_new(tables, NULL, &engine) ||
        sql_add_view(engine, "memory_usage",
                     "select ts as timestamp, allocated as memory_mb from python.torch_trace",
                     "as in the seeds")) {
        printf("# %s\n", err_text());
        return 1;
    }
    return 0;
}

static inline int end_examples(void)
{
    sql_free(engine);
    tables_free(tables);
    return test_end();
}

#endif
