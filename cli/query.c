/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/query.c - `query`, `tables` and `describe`: of a living process it asks, of a dead one it
 * reads the files with the same engine.
 *
 * One thread.
 */
#include "cli/cli.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/base/text.h"
#include "core/crash/crash.h"
#include "core/sql/sql.h"
#include "core/store/store.h"

struct query_options {
    enum sql_format format;
    const char *format_name;
    uint64_t limit, timeout_ns;
    const char *words[2]; /* what is left: the SQL, the table */
    int n_words;
};

static int take(void *arg, const char *option, const char *value)
{
    struct query_options *o = arg;

    if (option == NULL) {
        if (o->n_words == 2)
            return err_set(-EINVAL, "one argument too many: '%s' (put the statement in quotes)",
                           value);
        o->words[o->n_words++] = value;
        return 0;
    }
    if (strcmp(option, "--limit") == 0)
        return parse_u64(value, &o->limit);
    if (strcmp(option, "--timeout") == 0)
        return parse_ns(value, &o->timeout_ns);
    o->format_name = value; /* --format */
    return sql_format_parse(value, &o->format);
}

/* The statement behind `query SQL`, `tables` and `describe TABLE`. */
static int statement_of(const char *command, const struct query_options *o, struct buf *ret)
{
    if (strcmp(command, "tables") == 0) {
        if (o->n_words != 0)
            return err_set(-EINVAL, "tables takes no argument '%s'; did you mean describe?",
                           o->words[0]);
        return buf_adds(ret, "show tables");
    }
    if (o->n_words != 1)
        return err_set(-EINVAL,
                       o->n_words == 0 ? "%s needs %s" : "%s takes one %s (put it in quotes)",
                       command, strcmp(command, "query") == 0 ? "SQL statement" : "table name");
    if (strcmp(command, "describe") == 0)
        return buf_addf(ret, "describe %s", o->words[0]);
    return buf_adds(ret, o->words[0]);
}

/* ---- the dead ---- */

static _Atomic int cancel; /* set when Ctrl-C was seen between two batches */

static int write_stdout(void *arg, const char *data, size_t size)
{
    (void)arg;
    if (cli_interrupted)
        atomic_store_explicit(&cancel, 1, memory_order_relaxed);
    return fwrite(data, 1, size, stdout) == size ? 0 : -EPIPE;
}

static int run_on(struct tables *tables, struct store *store, const struct query_options *o,
                  const char *statement)
{
    struct sql *engine = NULL;
    struct sql_writer *writer = NULL;
    struct sql_report report = {0};
    const struct sql_options limits = {
        .timeout_ns = o->timeout_ns,
        .max_rows = o->limit,
        .cancel = &cancel,
        .memory_bytes = UINT64_C(4) << 30}; /* our own process: no host to spare */
    int r = sql_new(tables, store, &engine);

    if (r == 0)
        r = sql_writer_new(o->format, cli_width(), write_stdout, NULL, &writer);
    if (r == 0) {
        struct sql_sink sink = sql_writer_sink(writer);
        r = sql_run(engine, statement, strlen(statement), &limits, &sink, &report);
    }
    if (r == 0)
        r = sql_writer_finish(writer, &report);
    sql_writer_free(writer);
    sql_free(engine);
    return r;
}

static int ask_files(const struct target *t, const struct query_options *o, const char *statement)
{
    struct tables *tables = NULL;
    struct store *store = NULL;
    int r = tables_new(&tables);

    if (r == 0)
        r = store_open(t->directory, tables, &store);
    if (r == 0)
        r = crash_tables_add(tables, t->directory);
    if (r == 0) {
        if (store_damage(store)[0] != '\0')
            fprintf(stderr, "probing: not whole: %s\n", store_damage(store));
        if (t->directories > 1)
            fprintf(stderr,
                    "probing: there are %u directories of process %d; this is the newest, %s "
                    "(`probing list --dead` shows all)\n",
                    t->directories, (int)t->pid, t->directory);
        if (t->stopped)
            fprintf(stderr, "probing: process %d is stopped; this is read from its files\n",
                    (int)t->pid);
        r = run_on(tables, store, o, statement);
    }
    store_free(store);
    tables_free(tables);
    return r < 0 ? r : EXIT_DONE;
}

/* ---- the living ---- */

static int ask_live(const struct target *t, const struct query_options *o, const char *statement)
{
    char width[16], limit[24], timeout[32];
    const char *words[10] = {"query"};
    int n = 1;

    words[n++] = "--format";
    words[n++] = o->format_name;
    if (cli_width() > 0) {
        (void)snprintf(width, sizeof width, "%u", cli_width());
        words[n++] = "--width";
        words[n++] = width;
    }
    if (o->limit > 0) {
        (void)snprintf(limit, sizeof limit, "%llu", (unsigned long long)o->limit);
        words[n++] = "--limit";
        words[n++] = limit;
    }
    if (o->timeout_ns > 0) {
        (void)snprintf(timeout, sizeof timeout, "%lluns", (unsigned long long)o->timeout_ns);
        words[n++] = "--timeout";
        words[n++] = timeout;
    }
    words[n++] = statement;
    return live_run(t, n, words);
}

int command_query(struct target *t, int argc, char **argv)
{
    struct query_options o = {.format = SQL_FORMAT_TABLE, .format_name = "table"};
    struct buf statement;
    int r = cli_parse(argc, argv, take, &o);

    if (r < 0)
        return r;
    buf_init(&statement, 1u << 20);
    r = statement_of(argv[0], &o, &statement);
    if (r == 0)
        r = target_is_files(t) ? ask_files(t, &o, buf_text(&statement))
                               : ask_live(t, &o, buf_text(&statement));
    buf_done(&statement);
    return r;
}
