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
#include <stddef.h>
#include <stdio.h>

#include "cli/cli.h"

struct cli_option {
    const char *name;   /* "--listen"; NULL ends the list */
    const char *letter; /* "-l", or NULL */
    const char *value;  /* "ADDR"; NULL: a flag */
    const char *doc;
};

#define COMMAND_OPTIONS 12
#define COMMAND_EXAMPLES 4

struct cli_command {
    const char *name, *alias;
    const char *arguments; /* behind the options: "SQL", "list | load NAME|FILE" */
    const char *doc;       /* one line */
    const char *text;      /* what else a user must know, or NULL; lines are filled when shown */
    bool needs_target;
    bool may_target; /* does something without one, too */
    bool forwarded;  /* options are read by the process, not here */
    bool pages;      /* the answer may be long: to a person it comes through a pager */
    int (*run)(struct target *t, int argc, char **argv);
    struct cli_option options[COMMAND_OPTIONS + 1];
    const char *examples[COMMAND_EXAMPLES + 1]; /* behind "probing "; the list ends with NULL */
};

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
