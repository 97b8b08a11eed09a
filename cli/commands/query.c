/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/query.c - `query`, of the living and the dead.  Several statements, and those that
 * somebody types, are cli/shell/sql_shell.c's.
 *
 * One thread.
 */
#include "cli/commands/query.h"

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
    const char *sql; /* NULL: not given */
    bool has_format;
    const char *file, *output; /* --file, --output; NULL: not given */
};

/* Is it a format of export's, which are files? */
static bool is_for_files(const char *format)
{
    return strcmp(format, "perfetto") == 0 || strcmp(format, "chrome") == 0 ||
           strcmp(format, "parquet") == 0;
}

int query_parse_format(struct answer_ask *ask, const char *value)
{
    enum sql_format known;

    ask->format = value;
    return is_for_files(value) ? 0 : sql_format_parse(value, &known);
}

static int parse_format(struct query_args *o, const char *value)
{
    o->has_format = true;
    return query_parse_format(o->ask, value);
}

/* `-f` was the letter of --format, and a file is seldom called "csv". */
static int parse_file(struct query_args *o, const char *value)
{
    enum sql_format known;

    if (is_for_files(value) || sql_format_parse(value, &known) == 0)
        return parse_format(o, value);
    o->file = value;
    if (strcmp(value, "-") == 0 || access(value, F_OK) == 0)
        return 0;
    return err_set(-errno,
                   "cannot read %s: %s (nor is it a format: table, expanded, json, jsonl, csv, "
                   "arrow)",
                   value, strerror(errno));
}

static int parse_option(void *arg, const char *option, const char *value)
{
    struct query_args *o = arg;

    if (option == NULL) {
        if (o->sql != NULL)
            return err_set(-EINVAL, "query takes one SQL statement (put it in quotes)");
        o->sql = value;
        return 0;
    }
    if (strcmp(option, "--file") == 0)
        return parse_file(o, value);
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
    return parse_format(o, value); /* --format */
}

static int write_stdout(void *arg, const char *data, size_t size)
{
    (void)arg;
    return fwrite(data, 1, size, stdout) == size && fflush(stdout) == 0 ? 0 : -EPIPE;
}

/* ---- arrow ---- */

static int write_arrow(void *arg, const char *data, size_t size)
{
    int rc = arrow_reader_feed(arg, data, size);
    return rc < 0 ? rc : write_stdout(NULL, data, size);
}

static int ask_arrow(const struct target *t, const struct answer_ask *ask)
{
    const struct answer_sink to = {.rows = answer_pass_rows, .batch_bytes = ANSWER_ALONE_BYTES};
    struct arrow_reader *reader;
    char cut[ANSWER_CUT_BYTES];
    if (isatty(STDOUT_FILENO) == 1)
        return err_set(-EINVAL,
                       "arrow is binary and not written to a terminal: --format arrow ... > FILE");
    int rc = arrow_reader_new(&to, &reader);
    if (rc < 0)
        return rc;
    rc = answer_bytes(t, ask, write_arrow, reader);
    int end = rc >= 0 ? arrow_reader_end(reader) : 0;
    rc = end < 0 ? end : rc;
    if (rc < 0)
        (void)fwrite(cut, 1, arrow_reader_cut(reader, cut), stdout);
    arrow_reader_free(reader);
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
    const char *sql = w->sql;
    const char *file = sql == NULL ? w->file : strcmp(sql, "-") == 0 ? "-" : NULL;

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

/* 0, or -EINVAL when the format cannot go to standard output. */
static int check_format(const char *format)
{
    if (!is_for_files(format))
        return 0;
    return cli_misuse(err_set(
        -EINVAL, "%s is written to a file; export --format %s -o FILE \"SQL\"", format, format));
}

int query_print(const struct target *t, const struct answer_ask *ask)
{
    int rc = check_format(ask->format);

    if (rc < 0)
        return rc;
    (void)terminal_format(ask->format);
    if (t->kind != TARGET_BARE || target_is_files(t)) /* else a question comes first */
        pager_begin();
    return strcmp(ask->format, ARROW) == 0 ? ask_arrow(t, ask)
                                           : answer_bytes(t, ask, write_stdout, NULL);
}

int command_query(struct target *t, int argc, char **argv)
{
    struct answer_ask ask = {.format = "table", .width = cli_width()};
    struct query_args w = {.ask = &ask};
    int rc = cli_parse(argc, argv, parse_option, &w);

    if (rc == 0 && w.output == NULL)
        rc = check_format(ask.format);
    if (rc < 0)
        return rc;
    if (w.sql != NULL && w.file != NULL)
        return cli_misuse(err_set(-EINVAL, "query takes one SQL statement or --file FILE, not both "
                                           "(put it in quotes)"));
    ask.statement = w.sql;
    if (run_session(t, &w, &rc))
        return rc;
    if (w.sql == NULL)
        return cli_misuse(err_set(-EINVAL,
                                  "query needs an SQL statement: query \"show tables\", or --file "
                                  "FILE, or a terminal to type at"));
    return query_print(t, &ask);
}
