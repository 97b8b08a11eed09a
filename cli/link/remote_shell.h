/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/link/remote_shell.h - a remote shell with a relay at its other end.
 *
 * One thread.
 */
#ifndef CLI_LINK_REMOTE_SHELL_H
#define CLI_LINK_REMOTE_SHELL_H

#include <stdbool.h>

struct spawn {
    const char *rsh;     /* its words between blanks */
    const char *program; /* as the shell there reads it: "PATH=... probing" */
    const char *host;
    int pid, in, out, err; /* set: our ends of its standard input and outputs; err not blocking */
};

/* `RSH HOST "PROGRAM relay --stdio"`.  It ends when we do. */
int spawn_relay(struct spawn *s);
/* As waitpid() gave it; -1: it runs on, or there is none.  *pid becomes 0 when it has ended. */
int spawn_status(int *pid);
/* End it, now; 0: none. */
void spawn_end(int pid);

/* In a process of ours that stays beside us: nothing of who started it but one descriptor, whose
 * outputs would not end before it does; signals as they were; as many open files as may be. */
void spawn_leave_behind(int descriptor);

/* Nothing that a shell, an option or a terminal could take otherwise: what a remote shell is given.
 */
bool host_is_name(const char *name);

#endif
