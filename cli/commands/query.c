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

#include "cli/ui/terminal.h"
#include "core/base/err.h"
#include "core/base/text.h"
#include "core/sql/sql.h"
#include "sdk/lib/buf.h"

#define ARROW "arrow"

struct query_args {
    struct answer_ask *ask;
    const char *words[2]; /* what is left: the SQL, the table */
    int n_arguments;
};

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
        return parse_ns(value, &o->ask->timeout_ns);
    enum sql_format known;
    o->ask->format = value; /* --format */
    return sql_format_parse(value, &known);
}

/* The statement behind `query SQL`, `tables` and `describe TABLE`. */
static int statement_of(const char *command, const struct query_args *o, struct buf *ret)
{
    if (strcmp(command, "tables") == 0) {
        if (o->n_arguments != 0)
            return err_set(-EINVAL, "tables takes no argument '%s'; did you mean describe?",
                           o->words[0]);
        return buf_adds(ret, "show tables");
    }
    if (o->n_arguments != 1)
        return err_set(-EINVAL,
                       o->n_arguments == 0 ? "%s needs %s" : "%s takes one %s (put it in quotes)",
                       command, strcmp(command, "query") == 0 ? "SQL statement" : "table name");
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
    int r = export_arrow_feed(arg, data, size);
    return r < 0 ? r : write_stdout(NULL, data, size);
}

static int ask_arrow(const struct target *t, const struct answer_ask *ask)
{
    struct export_arrow a;
    char cut[EXPORT_CUT_BYTES];
    if (isatty(STDOUT_FILENO) == 1)
        return err_set(-EINVAL,
                       "arrow is binary and not written to a terminal: --format arrow ... > FILE");
    export_arrow_init(&a);
    int r = answer_bytes(t, ask, take_arrow, &a);
    if (r == 0)
        r = export_arrow_end(&a);
    if (r < 0)
        (void)fwrite(cut, 1, export_arrow_cut(&a, cut), stdout);
    export_arrow_done(&a);
    return r;
}

int command_query(struct target *t, int argc, char **argv)
{
    struct answer_ask ask = {.format = "table", .width = cli_width()};
    struct query_args w = {.ask = &ask};
    struct buf statement;
    int r = cli_parse(argc, argv, take, &w);

    if (r < 0)
        return r;
    buf_init(&statement, 1u << 20);
    r = cli_misuse(statement_of(argv[0], &w, &statement));
    ask.statement = buf_text(&statement);
    terminal_format(ask.format);
    if (r == 0)
        r = strcmp(ask.format, ARROW) == 0 ? ask_arrow(t, &ask)
                                           : answer_bytes(t, &ask, write_stdout, NULL);
    buf_done(&statement);
    return r < 0 ? r : EXIT_DONE;
}
