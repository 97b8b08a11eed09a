/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/command_table.h - what commands there are, told once: dispatch, options, help, the man page
 * and the shells' completion all come from this table.
 *
 * One thread.
 */
#ifndef CLI_COMMAND_TABLE_H
#define CLI_COMMAND_TABLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct target;
struct cli_command;

/* The i-th in the order of `probing help`, those that plugins bring among them; NULL: there are no
 * more. */
const struct cli_command *cli_command_at(uint32_t i);

/* One of ours by name or alias; NULL: there is none. */
const struct cli_command *cli_command_named(const char *word);
/* Likewise one that a plugin brings: their files are looked at only for a word that is not ours. */
const struct cli_command *cli_report_named(const char *word);
/* The command a mistyped word may mean, or NULL (near_command.c). */
const char *cli_command_near(const char *word);

/* ---- help.c ---- */

void help_all(FILE *out);
int help_one(const char *word, bool json);
/* A list that ends with NULL. */
void help_put_names(const char *const *names, const char *between);
/* help_json.c: NULL: all commands. */
int help_json(const struct cli_command *command);
/* `completion SHELL`: the script for bash, zsh or fish; `man`: the manual page for man(1). */
int command_completion(struct target *t, int argc, char **argv);
int command_man(struct target *t, int argc, char **argv);

#endif
