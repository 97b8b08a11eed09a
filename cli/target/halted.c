/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/target/halted.c - why a process that has not ended does not run, and what lets it go on.
 *
 * One thread.
 */
#include <stdio.h>

#include "cli/cli.h"
#include "cli/terminal/terminal.h"
#include "sdk/lib/proc/cgroup.h"
#include "sdk/lib/proc/task.h"

static void say_tracer(pid_t pid, struct target_halt *ret)
{
    char name[PROC_COMM_BYTES], shown[4 * PROC_COMM_BYTES + 1];
    struct proc_status s;

    (void)snprintf(ret->remedy, sizeof(ret->remedy), "let it go there (gdb: detach)");
    if (proc_status_of(pid, 0, &s) < 0 || s.tracer == PROC_UNKNOWN || s.tracer == 0) {
        (void)snprintf(ret->is, sizeof(ret->is), "held by a debugger");
        return; /* of another pid namespace, or gone just now */
    }
    (void)proc_comm_of((pid_t)s.tracer, 0, name, sizeof(name));
    (void)snprintf(ret->is, sizeof(ret->is), "held by process %d (%s)", (int)s.tracer,
                   terminal_field(shown, sizeof(shown), name));
}

bool target_halted(pid_t pid, struct target_halt *ret)
{
    struct target_halt room;
    char state = target_state(pid);

    ret = ret != NULL ? ret : &room;
    if (state == 't') {
        say_tracer(pid, ret);
    } else if (state == 'T') {
        (void)snprintf(ret->is, sizeof(ret->is), "stopped");
        (void)snprintf(ret->remedy, sizeof(ret->remedy), "continue it with: kill -CONT %d",
                       (int)pid);
    } else if (proc_is_frozen(pid)) {
        (void)snprintf(ret->is, sizeof(ret->is), "frozen with its cgroup");
        (void)snprintf(ret->remedy, sizeof(ret->remedy),
                       "thaw that (docker unpause, systemctl thaw)");
    } else {
        return false;
    }
    return true;
}
