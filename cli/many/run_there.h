/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/run_there.h - which commands run on the machine of a target that a relay reaches,
 * and not here over a connection to its socket.
 *
 * One thread.
 */
#ifndef CLI_MANY_RUN_THERE_H
#define CLI_MANY_RUN_THERE_H

#include <stdbool.h>

struct target;
struct cli_command;

/* Commands run there that look at the process itself, or bring files into it, and, where it has no
 * core, all but those that ask for rows.  c: NULL, a command that the process knows. */
bool runs_there(const struct target *t, const struct cli_command *c, int argc, char *const *argv);
int run_there(const struct target *t, int argc, char *const *argv);

#endif
