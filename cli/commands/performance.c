/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/performance.c - `performance`: the name that plugins profile and torch had before.
 *
 * One thread.
 */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/commands/commands.h"
#include "cli/target/query_client.h"
#include "cli/target/target.h"
#include "cli/terminal/args.h"
#include "cli/terminal/exit_codes.h"
#include "core/base/err.h"

struct performance_args {
    bool cc, torch;
};

static int parse_option(void *arg, const char *option, const char *value)
{
    struct performance_args *w = arg;
    if (option == NULL)
        return err_set(-EINVAL, "performance takes --cc or --torch, not '%s'", value);
    w->cc = w->cc || strcmp(option, "--cc") == 0;
    w->torch = w->torch || strcmp(option, "--torch") == 0;
    return 0;
}

static int load_wanted(struct target *t, const char *plugin, const char *then)
{
    char *words[] = {(char *)(uintptr_t) "plugin", (char *)(uintptr_t) "load",
                     (char *)(uintptr_t)plugin, NULL};
    bool runs = t->kind == TARGET_LIVE && answer_plugin_runs(t, plugin);
    int rc = runs ? EXIT_DONE : command_plugin(t, 3, words);
    if (runs)
        printf("plugin %s is loaded already\n", plugin);
    if (rc == EXIT_DONE)
        printf("look at it with: probing -t %s %s\n", t->text, then);
    return rc;
}

int command_performance(struct target *t, int argc, char **argv)
{
    struct performance_args w = {.cc = false};
    int rc = cli_parse(argc, argv, parse_option, &w);

    if (rc == 0 && !w.cc && !w.torch)
        rc = err_set(-EINVAL, "performance needs --cc (C, C++ and Python code) or --torch");
    if (rc == 0 && w.cc)
        rc = load_wanted(t, "profile", "flamegraph --last 1m -o out.html");
    if (rc == 0 && w.torch)
        rc = load_wanted(t, "torch", "torch");
    return rc;
}
