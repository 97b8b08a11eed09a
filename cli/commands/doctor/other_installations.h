/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/doctor/other_installations.h - programs and libraries of our names that are not of
 * this installation.
 *
 * One thread.
 */
#ifndef CLI_COMMANDS_DOCTOR_OTHER_INSTALLATIONS_H
#define CLI_COMMANDS_DOCTOR_OTHER_INSTALLATIONS_H

struct lines;

/* A line for each thing that has our names and is not of this installation: another project's
 * `probing` (`no` stands before those, and their number comes back), and other builds of ours. */
struct lines; /* cli/terminal/check_lines.h */
int other_installations_print(struct lines *l, const char *no);

#endif
