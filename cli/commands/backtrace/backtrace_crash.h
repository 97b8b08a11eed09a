/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/backtrace/backtrace_crash.h - the stacks that a crash has left in a data directory.
 *
 * One thread.
 */
#ifndef CLI_COMMANDS_BACKTRACE_BACKTRACE_CRASH_H
#define CLI_COMMANDS_BACKTRACE_BACKTRACE_CRASH_H

#include <stdbool.h>
#include <stddef.h>

struct datadir;

int crash_print(const char *directory);
/* The signal by which the process of a directory crashed; false: it did not, as far as is known. */
bool crash_of(const struct datadir *d, char *ret, size_t size);

#endif
