/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/report/report.h - commands that plugins bring (probing/report.h): found beside the plugins,
 * proved, and run in this process.
 *
 * One thread.  No file is opened before one of these functions is called, so that the command's own
 * commands begin as fast as they can.
 *
 *     report_files.c: which files, and mapping them     report_check.c: is what they say right?
 *     report_run.c: what the commands may call
 */
#ifndef CLI_REPORT_REPORT_H
#define CLI_REPORT_REPORT_H

#include <probing/report.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/terminal/args.h"

struct target;

#define REPORT_COMMANDS 16 /* of one plugin */

/* All commands of all plugins, in the order of their files; the last has no name.  What is wrong
 * with a file, and what it brings that has a name already, is said on stderr, once.
 * is_taken: is that a word of ours? */
const struct cli_command *report_commands(bool (*is_taken)(const char *word));

/* For the error of a word that is no command: where NAME.so was looked for. */
void report_places(char *ret, size_t size);

/* Put the commands that a file of any name and place brings into ret, "shifts, rota"; gives how
 * many.  -errno with err_set(): something is wrong with them. */
int report_names(const char *path, char *ret, size_t size);

/* ---- between the files here ---- */

struct report_command {
    const struct probing_report *report; /* whose it is */
    const struct probing_report_command *command;
    char file[4096]; /* it came from */
};
/* By the place of a command in report_commands(). */
const struct report_command *report_of(const struct cli_command *c);

/* Is all of it there, and readable?  leaf: the file's name without its folder.  0, or -EINVAL with
 * err_set(): what is wrong. */
int report_check(const struct probing_report *r, const char *leaf);
/* A command that passed, in the words of ours. */
struct cli_command report_as_ours(const struct probing_report_command *c);
/* The i-th command: they may have grown since. */
const struct probing_report_command *report_command_at(const struct probing_report *r, uint32_t i);

/* The next sentence if this process crashes before report_guard_end(): "FILE has crashed (SIGSEGV)
 * while WHAT". */
void report_guard(const char *file, const char *what);
void report_guard_end(void);

int report_run(struct target *t, int argc, char **argv);

#endif
