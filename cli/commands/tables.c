/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/tables.c - `tables`: on a terminal those that a person wants, else all.
 *
 * One thread.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/commands/commands.h"
#include "cli/commands/query.h"
#include "cli/shell/sql_shell.h"
#include "cli/target/target.h"
#include "cli/terminal/args.h"
#include "cli/terminal/pager.h"
#include "cli/terminal/terminal.h"
#include "core/base/err.h"

struct tables_args {
    struct answer_ask ask;
    bool all; /* also those of probing itself */
};

/* First those with rows, and none of probing itself. */
const char query_some_tables[] =
    "select case when t.table_schema = '' then '' else t.table_schema || '.' end || t.table_name "
    "as \"table\", p.rows + p.buffered as rows, t.doc from information_schema.tables t left join "
    "probing.tables p on p.schema = t.table_schema and p.name = t.table_name where t.table_schema "
    "not in ('probing', 'information_schema') "
    "order by case when p.rows + p.buffered > 0 then 0 else 1 end, 1";

static int parse_option(void *arg, const char *option, const char *value)
{
    struct tables_args *o = arg;

    if (option == NULL)
        return err_set(-EINVAL,
                       "tables takes no argument '%s'; query \"show tables from SCHEMA\" lists "
                       "those of one, describe TABLE its columns",
                       value);
    if (strcmp(option, "--all") != 0)
        return query_parse_format(&o->ask, value);
    o->all = true;
    return 0;
}

int command_tables(struct target *t, int argc, char **argv)
{
    struct tables_args o = {.ask = {.format = "table", .width = cli_width()}};
    int rc = cli_parse(argc, argv, parse_option, &o);

    if (rc < 0)
        return rc;
    bool some = !o.all && cli_width() > 0 && terminal_format(o.ask.format);
    o.ask.statement = some ? query_some_tables : "show tables";
    rc = query_print(t, &o.ask);
    if (rc == 0 && some)
        puts("(tables --all shows probing.* and information_schema.*, too)");
    return rc;
}
