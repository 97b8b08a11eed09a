/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/config.c - `config`: settings of a live process; it reads the words itself.
 *
 * One thread.
 */
#include <string.h>

#include "cli/commands/commands.h"
#include "cli/target/live_run.h"
#include "cli/target/target.h"

int command_config(struct target *t, int argc, char **argv)
{
    bool list =
        argc == 1 || strcmp(argv[1], "list") == 0 || (argc == 2 && strcmp(argv[1], "--json") == 0);

    return list ? live_list(t, argc, argv,
                            "select name, value, \"default\", type, unit, doc from "
                            "probing.settings order by 1")
                : live_run(t, argc, (const char *const *)argv);
}
