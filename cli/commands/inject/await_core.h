/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/inject/await_core.h - a core comes into a process, or leaves it: wait for that.
 */
#ifndef CLI_COMMANDS_INJECT_AWAIT_CORE_H
#define CLI_COMMANDS_INJECT_AWAIT_CORE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct target;

/* Wait until the core that comes into `t` answers at its socket, and make it TARGET_LIVE.  mapped:
 * it has been seen in the process (inject.c). */
int await_core(struct target *t, uint64_t timeout_ns, bool mapped);
/* Wait until nothing of ours runs in the process any more.  EXIT_DONE, or -errno. */
int await_core_end(pid_t pid);
/* The core was in this process.  -ESTALE: it has gone with an exec; 0: it is there, or that cannot
 * be seen. */
int await_check_program(pid_t pid);

#endif
