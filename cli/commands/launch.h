/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/launch.h - a program started with the core in it, and why a living process has none.
 *
 * One thread.
 */
#ifndef CLI_COMMANDS_LAUNCH_H
#define CLI_COMMANDS_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* A program as execvp() will find it ("": not at all); can the core be brought into it?;
 * and our environment so that what we exec has the core in it, with these lines of settings. */
void launch_find(const char *name, char *ret, size_t size);
int launch_check(const char *path);
int launch_environment(const char *settings, bool children);
/* -ENOENT, and why a living process has no core: nobody brought one, or it was led past it.
 * plugin: what else is needed of it; "": nothing. */
int launch_no_core(pid_t pid, const char *plugin);

#endif
