/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/query.c - `query`, `tables` and `describe`, of the living and the dead.
 *
 * One thread.
 */
#include "cli/target/query_client.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/terminal/terminal.h"
#include "core/base/err.h"
#include "core/base/text.h"
#include "core/sql/sql.h"
#include "sdk/lib/buf.h"

#define ARROW "arrow"

struct query_args {
    struct answer_ask *ask;
    const char *words[2]; /* what is left: the SQL, the table */
    int n_arguments;
    bool all; /* tables: also those of probing itself */
};

/* What a person wants of `tables`: first what has rows, and nothing of probing itself. */
static const char SOME_TABLES[] =
    "select case when t.table_schema = '' then '' else t.table_schema || '.' end || t.table_name "
    "as \"table\", p.rows + p.buffered as rows, t.doc from information_schema.tables t left join "
    "probing.tables p on p.schema = t.table_schema and p.name = t.table_name where t.table_schema "
    "not in ('probing', 'information_schema') "
    "order by case when p.rows + p.buffered > 0 then 0 else 1 end, 1";

static bool shows_some(const char *command, const struct query_args *o)
{
    return strcmp(command, "tables") == 0 && !o->all && cli_width() > 0 &&
           (strcmp(o->ask->format, "table") == 0 || strcmp(o->ask->format, "expanded") == 0);
}

static bool is_trace(const char *format)
{
    return strcmp(format, "perfetto") == 0 || strcmp(format, "chrome") == 0 ||
           strcmp(format, "parquet") == 0;
}

static int take(void *arg, const char *option, const char *value)
{
    struct query_args *o = arg;

    if (option == NULL) {
        if (o->n_arguments == 2)
            return err_set(-EINVAL, "unexpected argument '%s' (put the statement in quotes)",
                           value);
        o->words[o->n_arguments++] = value;
        return 0;
    }
    if (strcmp(option, "--limit") == 0)
        return parse_u64(value, &o->ask->limit);
    if (strcmp(option, "--timeout") == 0)
        return cli_take_time(option, value, &o->ask->timeout_ns);
    if (strcmp(option, "--max-bytes") == 0)
        return parse_bytes(value, &o->ask->max_bytes);
    if (strcmp(option, "--from-row") == 0)
        return parse_u64(value, &o->ask->from_row);
    if (strcmp(option, "--to-row") == 0)
        return parse_u64(value, &o->ask->to_row);
    if (strcmp(option, "--strict") == 0) {
        o->ask->strict = true;
        return 0;
    }
    if (strcmp(option, "--all") == 0) {
        o->all = true;
        return 0;
    }
    enum sql_format known;
    o->ask->format = value; /* --format */
    int rc = sql_format_parse(value, &known);
    return rc < 0 && is_trace(value)
               ? err_set(rc, "%s is written to a file; export --format %s -o FILE \"SQL\"", value,
                         value)
               : rc;
}

/* The statement behind `query SQL`, `tables` and `describe TABLE`. */
static int statement_of(const char *command, const struct query_args *o, struct buf *ret)
{
    if (strcmp(command, "tables") == 0) {
        if (o->n_arguments != 0)
            return err_set(-EINVAL,
                           "tables takes no argument '%s'; query \"show tables from SCHEMA\" lists "
                           "those of one, "
                           "describe TABLE its columns",
                           o->words[0]);
        return buf_adds(ret, shows_some(command, o) ? SOME_TABLES : "show tables");
    }
    bool query = strcmp(command, "query") == 0;
    if (o->n_arguments == 0)
        return err_set(-EINVAL, "%s needs %s", command,
                       query ? "an SQL statement: query \"show tables\""
                             : "the name of a table; `tables` lists them");
    if (o->n_arguments != 1)
        return err_set(-EINVAL, "%s takes one %s (put it in quotes)", command,
                       query ? "SQL statement" : "table name");
    if (strcmp(command, "describe") == 0)
        return buf_addf(ret, "describe %s", o->words[0]);
    return buf_adds(ret, o->words[0]);
}

static int write_stdout(void *arg, const char *data, size_t size)
{
    (void)arg;
    return fwrite(data, 1, size, stdout) == size && fflush(stdout) == 0 ? 0 : -EPIPE;
}

/* ---- arrow ---- */

static int take_arrow(void *arg, const char *data, size_t size)
{
    int rc = export_arrow_feed(arg, data, size);
    return rc < 0 ? rc : write_stdout(NULL, data, size);
}

static int ask_arrow(const struct target *t, const struct answer_ask *ask)
{
    struct export_arrow a;
    char cut[EXPORT_CUT_BYTES];
    if (isatty(STDOUT_FILENO) == 1)
        return err_set(-EINVAL,
                       "arrow is binary and not written to a terminal: --format arrow ... > FILE");
    export_arrow_init(&a);
    int rc = answer_bytes(t, ask, take_arrow, &a);
    if (rc == 0)
        rc = export_arrow_end(&a);
    if (rc < 0)
        (void)fwrite(cut, 1, export_arrow_cut(&a, cut), stdout);
    export_arrow_done(&a);
    return rc;
}

int command_query(struct target *t, int argc, char **argv)
{
    struct answer_ask ask = {.format = "table", .width = cli_width()};
    struct query_args w = {.ask = &ask};
    struct buf statement;
    int rc = cli_parse(argc, argv, take, &w);

    if (rc < 0)
        return rc;
    buf_init(&statement, 1u << 20);
    rc = cli_misuse(statement_of(argv[0], &w, &statement));
    ask.statement = buf_text(&statement);
    (void)terminal_format(ask.format);
    if (rc == 0)
        rc = strcmp(ask.format, ARROW) == 0 ? ask_arrow(t, &ask)
                                            : answer_bytes(t, &ask, write_stdout, NULL);
    if (rc == 0 && shows_some(argv[0], &w))
        puts("(tables --all shows probing.* and information_schema.*, too)");
    buf_done(&statement);
    return rc < 0 ? rc : EXIT_DONE;
}
