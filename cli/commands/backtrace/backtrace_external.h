/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/backtrace/backtrace_external.h - stacks of a process that is only read, never
 * entered.
 *
 * One thread.
 */
#ifndef CLI_COMMANDS_BACKTRACE_BACKTRACE_EXTERNAL_H
#define CLI_COMMANDS_BACKTRACE_BACKTRACE_EXTERNAL_H

struct target;

int external_backtrace(struct target *t, int argc, char **argv);
/* Load now what it would load: then children that ask for several have it. */
void external_backtrace_prepare(void);

#endif
