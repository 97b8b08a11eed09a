/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/cluster/job_report.h - `probing cluster NAME`: a report of a plugin about a whole job
 * (PROBING_REPORT_JOB of probing/report.h), as `probing -t job:NAME REPORT`.
 *
 * One thread.  No report is named here: plugins bring them.
 */
#ifndef CLI_CLUSTER_JOB_REPORT_H
#define CLI_CLUSTER_JOB_REPORT_H

#include <stdbool.h>
#include <stddef.h>

struct cli_command;

/* The report that the words of `cluster` ask for, NULL: none.  is_ours: is a word one of its own?
 * Then no plugin's file is opened. */
const struct cli_command *job_report_of(int argc, char **argv, bool (*is_ours)(const char *word));
/* --job, --hosts and how those are asked are ours, the other words are the report's.  targets: as
 * -t takes them, in place of a job; NULL. */
int job_report_run(const struct cli_command *c, const char *targets, int argc, char **argv);

/* Name the command whose help `cluster ... --help` asks for: that report, else "cluster". */
const char *cluster_help_word(int argc, char **argv);
/* For errors: " or, of plugins, a, b"; gives ret. */
const char *job_reports(char *ret, size_t size);
/* For help and completion. */
void job_report_words(void (*fn)(void *arg, const char *word, const char *doc), void *arg);

#endif
