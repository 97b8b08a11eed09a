/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/near_command.c - the command that a word which is none may mean.
 *
 * One thread.
 */
#include <string.h>

#include "cli/command_table.h"
#include "cli/terminal/args.h"
#include "core/base/text.h"

#define COMMANDS_MAX 128

/* Words of py-spy, memray, gdb, psql, nsys and a shell, and ours for the same. */
static const char *const words_of_others[][2] = {{"dump", "backtrace"},
                                                 {"stack", "backtrace"},
                                                 {"stacks", "backtrace"},
                                                 {"ps", "list"},
                                                 {"attach", "inject"},
                                                 {"record", "flamegraph"},
                                                 {"detach", "eject"},
                                                 {"sql", "query"},
                                                 {"live", "top"},
                                                 {"leaks", "memory"},
                                                 {"run", "launch"},
                                                 {"psql", "query"},
                                                 {"hang", "cluster hang"},
                                                 {"diff", "cluster diff"},
                                                 {"nodes", "cluster nodes"},
                                                 {"status", "cluster status"},
                                                 {"stats", "top"},
                                                 {"summary", "memory"},
                                                 {"tree", "flamegraph memory"},
                                                 {"table", "tables"},
                                                 {"where", "backtrace"},
                                                 {"thread", "backtrace"},
                                                 {"threads", "backtrace"},
                                                 {"gdb", "backtrace"},
                                                 {"desc", "describe"},
                                                 {"columns", "describe"},
                                                 {"schema", "tables"},
                                                 {"select", "query \"select ...\""},
                                                 {"set", "config"},
                                                 {"settings", "config"},
                                                 {"load", "plugin load"},
                                                 {"enable", "plugin load"},
                                                 {"unload", "eject"},
                                                 {"kill", "eject"},
                                                 {"exec", "eval"},
                                                 {"python", "eval"},
                                                 {"shell", "repl"},
                                                 {"ipython", "repl"},
                                                 {"pdb", "debug --pause"},
                                                 {"start", "performance"},
                                                 {"stop", "plugin stop"},
                                                 {"prof", "flamegraph"},
                                                 {"nsys", "cuda"},
                                                 {"nvidia-smi", "gpu"},
                                                 {"prometheus", "metrics"},
                                                 {"health", "info"},
                                                 {"ping", "info"},
                                                 {"log", "query \"select * from probing.log\""},
                                                 {"logs", "query \"select * from probing.log\""},
                                                 {"listen", "config server.listen=:9922"},
                                                 {"serve", "config server.listen=:9922"},
                                                 {"server", "config server.listen=:9922"},
                                                 {"web", "ui"},
                                                 {"page", "ui"},
                                                 {"dashboard", "ui"}};

const char *cli_command_near(const char *word)
{
    const char *names[COMMANDS_MAX];
    size_t n = 0;

    for (size_t i = 0; i < sizeof(words_of_others) / sizeof(words_of_others[0]); i++)
        if (strcmp(word, words_of_others[i][0]) == 0)
            return words_of_others[i][1];
    for (const struct cli_command *c;
         n < COMMANDS_MAX && (c = cli_command_at((uint32_t)n)) != NULL;)
        names[n++] = c->name;
    return text_nearest(word, names, n);
}
