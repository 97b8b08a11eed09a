/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/export/parquet.c - Parquet by what is installed: pyarrow, DuckDB's Python module, or its
 * command.
 *
 * One thread.  pyarrow reads our Arrow stream.  DuckDB alone reads none: it gets plain CSV and is
 * told each column's type; its times are without a zone, in UTC.
 */
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "cli/export/export.h"
#include "core/base/err.h"

/* ---- CSV for DuckDB ---- */

struct plain {
    const struct export_column *columns;
    uint32_t n;
    struct buf select, types; /* of the statement that reads it */
};

static void add_name(struct buf *out, const char *name, char quote)
{
    (void)buf_addc(out, quote);
    for (; *name != '\0'; name++) {
        if (*name == quote)
            (void)buf_addc(out, quote);
        (void)buf_addc(out, *name);
    }
    (void)buf_addc(out, quote);
}

static int begin(void *self, const struct export_column *columns, uint32_t n, struct buf *out)
{
    static const char *const types[] = {
        [AS_BOOL] = "boolean", [AS_INT] = "bigint",   [AS_DOUBLE] = "double",
        [AS_TEXT] = "varchar", [AS_BLOB] = "varchar", [AS_TIME] = "bigint"};
    static const char *const made[] = {[AS_BLOB] = "from_hex", [AS_TIME] = "make_timestamp_ns"};
    struct plain *p = self;
    (void)out;
    p->columns = columns;
    p->n = n;
    for (uint32_t i = 0; i < n; i++) {
        bool blob = columns[i].type == AS_BLOB, time = columns[i].type == AS_TIME;
        (void)buf_addf(&p->select, "%s%s(c%u) as ", i ? ", " : "",
                       blob || time ? made[columns[i].type] : "", i);
        add_name(&p->select, columns[i].name, '"');
        (void)buf_addf(&p->types, "%s'c%u': '%s'", i ? ", " : "", i, types[columns[i].type]);
    }
    return p->select.failed || p->types.failed ? err_set(-ENOMEM, "no memory for columns") : 0;
}

static void add_cell(struct buf *out, enum export_type type, const struct json *c)
{
    int64_t ns;
    if (c->type == JSON_NULL)
        return;
    if (type == AS_TIME && c->type == JSON_STRING && export_time(c->text, &ns))
        (void)buf_addf(out, "%lld", (long long)ns);
    else if (type == AS_BLOB && c->type == JSON_STRING && c->size >= 2)
        add_name(out, c->text + 2, '"'); /* behind \x */
    else if (c->type == JSON_STRING)
        add_name(out, c->text, '"');
    else
        (void)buf_adds(out, c->type == JSON_NUMBER ? c->text : c->boolean ? "true" : "false");
}

static int row(void *self, const struct json *const *cells, struct buf *out)
{
    const struct plain *p = self;
    for (uint32_t i = 0; i < p->n; i++) {
        if (i > 0)
            (void)buf_addc(out, ',');
        add_cell(out, p->columns[i].type, cells[i]);
    }
    return buf_addc(out, '\n') ? err_set(-ENOMEM, "no memory for a row") : 0;
}

static int end(void *self, struct buf *out)
{
    (void)self;
    (void)out;
    return 0;
}

static int plain_new(struct export_writer *ret)
{
    struct plain *p = calloc(1, sizeof(*p));
    if (p == NULL)
        return err_set(-ENOMEM, "no memory for columns");
    buf_init(&p->select, 1u << 20);
    buf_init(&p->types, 1u << 20);
    *ret = (struct export_writer){.begin = begin, .row = row, .end = end, .self = p};
    return 0;
}

void export_parquet_free(struct export_writer *w)
{
    struct plain *p = w->self;
    if (p == NULL)
        return;
    buf_done(&p->select);
    buf_done(&p->types);
    free(p);
    w->self = NULL;
}

/* ---- who is there ---- */

/* A program's exit status; -1: it is not there, or was killed. */
static int run(const char *const *words, bool quiet)
{
    extern char **environ;
    posix_spawn_file_actions_t files;
    pid_t pid;
    int status = 0, failed = posix_spawn_file_actions_init(&files);
    if (failed == 0 && quiet)
        failed = posix_spawn_file_actions_addopen(&files, 1, "/dev/null", 1 /* write */, 0) ||
                 posix_spawn_file_actions_addopen(&files, 2, "/dev/null", 1, 0);
    if (failed == 0)
        failed = posix_spawnp(&pid, words[0], &files, /* attributes= */ NULL,
                              (char *const *)(uintptr_t)words, environ);
    (void)posix_spawn_file_actions_destroy(&files);
    if (failed != 0)
        return -1;
    while (waitpid(pid, &status, 0) == -1)
        if (errno != EINTR)
            return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int export_parquet_new(struct export_parquet *p, struct export_writer *ret)
{
    static const char *const pyarrow[] = {"python3", "-c", "import pyarrow.ipc, pyarrow.parquet",
                                          NULL};
    static const char *const module[] = {"python3", "-c", "import duckdb", NULL};
    static const char *const command[] = {"duckdb", "-version", NULL};
    p->by = run(pyarrow, /* quiet= */ true) == 0   ? BY_PYARROW
            : run(module, /* quiet= */ true) == 0  ? BY_DUCKDB_MODULE
            : run(command, /* quiet= */ true) == 0 ? BY_DUCKDB
                                                   : BY_NOBODY;
    if (p->by == BY_NOBODY)
        return err_set(-ENOENT, "parquet is written by pyarrow or DuckDB, and python3 has neither: "
                                "`pip install pyarrow` (or duckdb), or use --format arrow");
    return p->by == BY_PYARROW ? 0 : plain_new(ret);
}

/* ---- what they do ---- */

static const char BY_ARROW[] =
    "import sys, pyarrow.ipc, pyarrow.parquet\n"
    "with pyarrow.ipc.open_stream(sys.argv[1]) as rows:\n"
    "    with pyarrow.parquet.ParquetWriter(sys.argv[2], rows.schema) as out:\n"
    "        for batch in rows:\n"
    "            out.write_batch(batch)\n";

static int by_duckdb(const struct export_parquet *p, struct plain *columns, const char *from,
                     const char *to)
{
    struct buf sql;
    buf_init(&sql, 4u << 20);
    (void)buf_addf(&sql, "copy (select %s from read_csv(", buf_text(&columns->select));
    add_name(&sql, from, '\'');
    (void)buf_addf(&sql,
                   ", columns = {%s}, header = false, auto_detect = false, delim = ',', "
                   "quote = '\"', escape = '\"', nullstr = '', allow_quoted_nulls = false, "
                   "parallel = false, max_line_size = 268435456)) to ",
                   buf_text(&columns->types));
    add_name(&sql, to, '\'');
    (void)buf_adds(&sql, " (format parquet)");
    const char *const module[] = {"python3", "-c", "import sys, duckdb; duckdb.sql(sys.argv[1])",
                                  buf_text(&sql), NULL};
    const char *const command[] = {"duckdb", "-c", buf_text(&sql), NULL};
    int status = sql.failed ? -1 : run(p->by == BY_DUCKDB ? command : module, /* quiet= */ false);
    buf_done(&sql);
    return status;
}

int export_parquet_make(const struct export_parquet *p, const struct export_writer *w,
                        const char *from, const char *to)
{
    const char *const words[] = {"python3", "-c", BY_ARROW, from, to, NULL};
    int status =
        p->by == BY_PYARROW ? run(words, /* quiet= */ false) : by_duckdb(p, w->self, from, to);
    return status == 0 ? 0
                       : err_set(-EIO, "%s could not write %s (see above)",
                                 p->by == BY_PYARROW ? "pyarrow" : "DuckDB", to);
}
