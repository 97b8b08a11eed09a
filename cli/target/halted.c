/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/target/halted.c - why a process that has not ended does not run, and what lets it go on.
 *
 * One thread.
 */
#include <poll.h>
#include <stdio.h>

#include "cli/target/target.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/terminal.h"
#include "core/base/clock.h"
#include "sdk/lib/proc/cgroup.h"
#include "sdk/lib/proc/task.h"

#define HELD_NS (NS_PER_S / 5)      /* who does not move for so long is held by who traces it, */
#define HELD_MOST_NS (3 * NS_PER_S) /* or for so long, whatever that one is at work on */
#define LOOK_MS 5

/* A tracer that has stopped a thread for a moment, as strace does, is at work or has had no
 * processor yet.  gdb at its prompt sleeps. */
static bool is_at_work(uint64_t tracer)
{
    char state = tracer == 0 || tracer > INT32_MAX ? '?' : target_state((pid_t)tracer);

    return state == 'R' || state == 'D';
}

/* Its first thread stands for who traces it: does it stay so? */
static bool stays_held(pid_t pid)
{
    struct proc_status s;
    uint64_t began = clock_monotonic(), since = began, switches = 0;

    for (bool first = true; proc_status_of(pid, 0, &s) == 0 && s.state == 't'; first = false) {
        uint64_t now = clock_monotonic(), moved = s.voluntary + s.involuntary;
        if (!first && moved != switches)
            return false; /* it went on, and stands again */
        switches = moved;
        if (is_at_work(s.tracer))
            since = now;
        if (now - since >= HELD_NS || now - began >= HELD_MOST_NS || cli_interrupted)
            return true;
        (void)poll(NULL, 0, LOOK_MS);
    }
    return false;
}

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
    if (state == 't' && stays_held(pid)) {
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
