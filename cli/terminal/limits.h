/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/terminal/limits.h - limits of this process that a command runs into: threads, stack, open
 * files.
 *
 * One thread.
 */
#ifndef CLI_TERMINAL_LIMITS_H
#define CLI_TERMINAL_LIMITS_H

/* Why no process or thread could be made: strerror(), or which limit that is. */
const char *cli_fork_why(int e);
/* run(argc, argv), on a stack of our own where `ulimit -s` allows little. */
int cli_with_stack(int (*run)(int argc, char **argv), int argc, char **argv);
/* May so many files be open as asking several takes?  0, or -EMFILE with what to do. */
int cli_check_files(void);

#endif
