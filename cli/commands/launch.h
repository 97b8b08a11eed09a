/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/launch.h - a program started with the core in it.
 *
 * One thread.
 */
#ifndef CLI_COMMANDS_LAUNCH_H
#define CLI_COMMANDS_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>

/* A program as execvp() will find it ("": not at all); can the core be brought into it?;
 * and our environment so that what we exec has the core in it, with these lines of settings. */
void launch_find(const char *name, char *ret, size_t size);
int launch_check(const char *path);
int launch_environment(const char *settings, bool children);

#endif
