/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/query.c - `query`, `tables` and `describe`, of the living and the dead.
 *
 * One thread.
 */
#include "cli/answer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/base/text.h"
#include "core/sql/sql.h"

struct query_words {
    struct answer_ask *ask;
    const char *words[2]; /* what is left: the SQL, the table */
    int n_words;
};

static int take(void *arg, const char *option, const char *value)
{
    struct query_words *o = arg;

    if (option == NULL) {
        if (o->n_words == 2)
            return err_set(-EINVAL, "one argument too many: '%s' (put the statement in quotes)",
                           value);
        o->words[o->n_words++] = value;
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
static int statement_of(const char *command, const struct query_words *o, struct buf *ret)
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

static int write_stdout(void *arg, const char *data, size_t size)
{
    (void)arg;
    return fwrite(data, 1, size, stdout) == size && fflush(stdout) == 0 ? 0 : -EPIPE;
}

int command_query(struct target *t, int argc, char **argv)
{
    struct answer_ask ask = {.format = "table", .width = cli_width()};
    struct query_words w = {.ask = &ask};
    struct buf statement;
    int r = cli_parse(argc, argv, take, &w);

    if (r < 0)
        return r;
    buf_init(&statement, 1u << 20);
    r = statement_of(argv[0], &w, &statement);
    ask.statement = buf_text(&statement);
    if (r == 0)
        r = answer_bytes(t, &ask, write_stdout, NULL);
    buf_done(&statement);
    return r < 0 ? r : EXIT_DONE;
}
