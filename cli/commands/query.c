/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/query.c - `query`, `tables` and `describe`, of the living and the dead.  Several
 * statements, and those that somebody types, are cli/shell/sql_shell.c's.
 *
 * One thread.
 */
#include "cli/target/query_client.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/commands/commands.h"
#include "cli/commands/export/export_file.h"
#include "cli/shell/sql_shell.h"
#include "cli/target/target.h"
#include "cli/terminal/args.h"
#include "cli/terminal/pager.h"
#include "cli/terminal/prompt.h"
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
    bool has_format;
    bool all;                  /* tables: also those of probing itself */
    const char *file, *output; /* --file, --output; NULL: not given */
};

/* The part of `tables` that a person wants: first those with rows, and none of probing itself. */
const char query_some_tables[] =
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

/* Is it a format of export's, which are files? */
static bool is_for_files(const char *format)
{
    return strcmp(format, "perfetto") == 0 || strcmp(format, "chrome") == 0 ||
           strcmp(format, "parquet") == 0;
}

static int take_format(struct query_args *o, const char *value)
{
    enum sql_format known;

    o->ask->format = value;
    o->has_format = true;
    return is_for_files(value) ? 0 : sql_format_parse(value, &known);
}

/* `-f` was the letter of --format, and a file is seldom called "csv". */
static int take_file(struct query_args *o, const char *value)
{
    enum sql_format known;

    if (is_for_files(value) || sql_format_parse(value, &known) == 0)
        return take_format(o, value);
    o->file = value;
    if (strcmp(value, "-") == 0 || access(value, F_OK) == 0)
        return 0;
    return err_set(-errno,
                   "cannot read %s: %s (nor is it a format: table, expanded, json, jsonl, csv, "
                   "arrow)",
                   value, strerror(errno));
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
    if (strcmp(option, "--file") == 0)
        return take_file(o, value);
    if (strcmp(option, "--output") == 0) {
        o->output = value;
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
    return take_format(o, value); /* --format */
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
        return buf_adds(ret, shows_some(command, o) ? query_some_tables : "show tables");
    }
    bool query = strcmp(command, "query") == 0;
    if (o->n_arguments == 0)
        return err_set(-EINVAL, "%s needs %s", command,
                       query ? "an SQL statement: query \"show tables\", or --file FILE, or a "
                               "terminal to type at"
                             : "the name of a table; `tables` lists them");
    if (o->n_arguments != 1 || o->file != NULL)
        return err_set(-EINVAL, "%s takes one %s (put it in quotes)", command,
                       !query            ? "table name"
                       : o->file != NULL ? "SQL statement or --file FILE, not both"
                                         : "SQL statement");
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
    int rc = answer_bytes(t, ask, take_arrow, &a), end = rc >= 0 ? export_arrow_end(&a) : 0;
    rc = end < 0 ? end : rc;
    if (rc < 0)
        (void)fwrite(cut, 1, export_arrow_cut(&a, cut), stdout);
    export_arrow_done(&a);
    return rc;
}

/* ---- several statements ---- */

/* Is there something to read?  /dev/null of a service has no statements, and to wait for them would
 * be an error of ours. */
static bool has_input(void)
{
    struct stat st;

    return fstat(STDIN_FILENO, &st) == 0 && (S_ISREG(st.st_mode) || S_ISFIFO(st.st_mode));
}

/* Does a `;` or a command of psql's stand before the end? */
static bool is_script(const char *text)
{
    struct sql_scan scan = {.in = SCAN_PLAIN};
    size_t size = strlen(text), at = sql_scan_next(&scan, text, size);

    if (at == size || text[at] == '\\')
        return at < size;
    scan.begun = false;
    size_t next = sql_scan_next(&scan, text + at + 1, size - at - 1);
    return scan.begun || at + 1 + next < size;
}

static int into_file(const struct target *t, const struct query_args *w)
{
    bool known = w->has_format || export_format_at(w->output) != NULL;
    int rc = export_answer(t, w->ask, w->has_format ? w->ask->format : NULL, w->output);

    return known ? rc : cli_misuse(rc);
}

/* `query` in all its ways but with one statement for standard output.  false: it is that. */
static bool run_session(const struct target *t, const struct query_args *w, int *ret)
{
    const char *sql = w->n_arguments > 0 ? w->words[0] : NULL;
    const char *file = sql == NULL ? w->file : strcmp(sql, "-") == 0 ? "-" : NULL;

    if (w->n_arguments > 1 || (w->file != NULL && sql != NULL))
        return false; /* which says so */
    if (sql == NULL && file == NULL && has_input())
        file = "-";
    if (file != NULL || (sql != NULL && is_script(sql)))
        *ret = sql_shell_script(t, w->ask, sql, file, w->output);
    else if (sql == NULL && w->output == NULL && prompt_is_person())
        *ret = sql_shell_talk(t, w->ask);
    else if (sql != NULL && w->output != NULL)
        *ret = into_file(t, w);
    else
        return false;
    return true;
}

int command_query(struct target *t, int argc, char **argv)
{
    struct answer_ask ask = {.format = "table", .width = cli_width()};
    struct query_args w = {.ask = &ask};
    struct buf statement;
    int rc = cli_parse(argc, argv, take, &w);

    if (rc < 0)
        return rc;
    if (is_for_files(ask.format) && w.output == NULL)
        return cli_misuse(err_set(-EINVAL,
                                  "%s is written to a file; export --format %s -o FILE \"SQL\"",
                                  ask.format, ask.format));
    ask.statement = w.n_arguments > 0 ? w.words[0] : NULL;
    if (strcmp(argv[0], "query") == 0 && run_session(t, &w, &rc))
        return rc;
    buf_init(&statement, 1u << 20);
    rc = cli_misuse(statement_of(argv[0], &w, &statement));
    ask.statement = buf_text(&statement);
    (void)terminal_format(ask.format);
    if (rc == 0) {
        if (t->kind != TARGET_BARE || target_is_files(t)) /* else a question comes first */
            pager_begin();
        rc = strcmp(ask.format, ARROW) == 0 ? ask_arrow(t, &ask)
                                            : answer_bytes(t, &ask, write_stdout, NULL);
    }
    if (rc == 0 && shows_some(argv[0], &w))
        puts("(tables --all shows probing.* and information_schema.*, too)");
    buf_done(&statement);
    return rc;
}
