/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/command_table.h - what commands there are, told once: dispatch, options, help, the man page
 * and the shells' completion all come from this table.
 *
 * One thread.
 */
#ifndef CLI_COMMAND_TABLE_H
#define CLI_COMMAND_TABLE_H

#include <stdio.h>

#include "cli/cli.h"

/* In the order of `probing help`; the last has no name. */
extern const struct cli_command cli_commands[];

/* By name or alias; NULL: there is none. */
const struct cli_command *cli_command_named(const char *word);
/* The command a mistyped word may mean, or NULL. */
const char *cli_command_near(const char *word);

/* ---- help.c ---- */

void help_all(FILE *out);
int help_one(const char *word);
/* `completion SHELL`: the script for bash, zsh or fish; `man`: the manual page for man(1). */
int command_completion(struct target *t, int argc, char **argv);
int command_man(struct target *t, int argc, char **argv);

#endif
