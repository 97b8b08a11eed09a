/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/target/no_core.h - why a living process has no core, and what a command fails for.
 *
 * One thread.
 */
#ifndef CLI_TARGET_NO_CORE_H
#define CLI_TARGET_NO_CORE_H

#include <stdbool.h>
#include <sys/types.h>

/* -ENOENT, and why a living process has no core: nobody brought one, or it was led past it.
 * plugin: what else is needed of it; "": nothing. */
int target_no_core(pid_t pid, const char *plugin);

/* The place that finds a core or plugin lacking notes it here, so that obtain_lack() can get it. */
struct lack {
    bool noted;
    pid_t bare;      /* a process without a core; 0: a plugin alone is lacking */
    char plugin[64]; /* "": none */
};
void lack_note(pid_t bare, const char *plugin);
/* Gives what was noted, and forgets it. */
struct lack lack_take(void);

#endif
