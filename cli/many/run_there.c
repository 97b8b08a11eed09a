/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/run_there.c - see run_there.h.
 *
 * One thread.
 */
#include "cli/many/run_there.h"

#include <string.h>

#include "cli/commands/commands.h"
#include "cli/link/link.h"
#include "cli/report/report.h"
#include "cli/target/target.h"
#include "cli/terminal/args.h"

static bool has_word(int argc, char *const *argv, const char *word)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], word) == 0)
            return true;
    return false;
}

/* Reads rows, which come from there as they are.  A flame graph of several is a command of that
 * name which runs in another way, and what it prints is read here. */
static bool asks_for_rows(const struct cli_command *c)
{
    return c != NULL && (c->run == command_query || c->run == command_export ||
                         strcmp(c->name, "flamegraph") == 0 || c->run == report_run);
}

bool runs_there(const struct target *t, const struct cli_command *c, int argc, char *const *argv)
{
    if (t->there == NULL)
        return false;
    if (t->kind == TARGET_THERE)
        return !asks_for_rows(c);
    if (c == NULL)
        return false;
    if (c->run == command_inject || c->run == command_eject || c->run == command_debug ||
        c->run == command_doctor)
        return true;
    if (c->run == command_plugin)
        return argc > 1 && strcmp(argv[1], "load") == 0;
    return c->run == command_backtrace && has_word(argc, argv, "--external");
}

int run_there(const struct target *t, int argc, char *const *argv)
{
    return link_run_print(t->there, argc, (const char *const *)argv);
}
