/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/obtain.h - what a command failed for (a core, a plugin) is obtained, and the command
 * run again.
 *
 * One thread.
 */
#ifndef CLI_COMMANDS_OBTAIN_H
#define CLI_COMMANDS_OBTAIN_H

#include <stdbool.h>

struct target;

/* rc: a command has failed with it.  0: what it lacked is there now, by a person's leave or because
 * --yes was given (agreed), the target is resolved anew, and the command may run again.  Else it
 * has failed. */
int obtain_lack(struct target *t, int rc, bool agreed);
/* Load a plugin wherever the target is, without a word; also where it is loaded already. */
int obtain_plugin(const struct target *t, const char *plugin);

#endif
