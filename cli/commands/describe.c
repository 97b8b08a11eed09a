/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/describe.c - `describe`: the columns of a table.
 *
 * One thread.
 */
#include <errno.h>

#include "cli/commands/commands.h"
#include "cli/commands/query.h"
#include "cli/target/target.h"
#include "cli/terminal/args.h"
#include "cli/terminal/pager.h"
#include "core/base/err.h"
#include "sdk/lib/buf.h"

struct describe_args {
    struct answer_ask ask;
    struct buf statement;
};

static int parse_option(void *arg, const char *option, const char *value)
{
    struct describe_args *o = arg;

    if (option != NULL)
        return query_parse_format(&o->ask, value);
    if (o->statement.size > 0)
        return err_set(-EINVAL, "describe takes one table name (put it in quotes)");
    return buf_addf(&o->statement, "describe %s", value);
}

int command_describe(struct target *t, int argc, char **argv)
{
    struct describe_args o = {.ask = {.format = "table", .width = cli_width()}};

    buf_init(&o.statement, 1u << 20);
    int rc = cli_parse(argc, argv, parse_option, &o);
    if (rc == 0 && o.statement.size == 0)
        rc =
            cli_misuse(err_set(-EINVAL, "describe needs the name of a table; `tables` lists them"));
    o.ask.statement = buf_text(&o.statement);
    if (rc == 0)
        rc = query_print(t, &o.ask);
    buf_done(&o.statement);
    return rc;
}
