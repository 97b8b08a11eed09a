/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/trace.c - `trace`: calls of Python functions.  Plugin python reads the words
 * (plugins/python/trace/trace.c) and prints a line a call.
 *
 * One thread.
 */
#include "cli/commands/commands.h"
#include "cli/target/live_run.h"
#include "cli/target/target.h"

int command_trace(struct target *t, int argc, char **argv)
{
    return live_run(t, argc, (const char *const *)argv);
}
