/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/inject/headroom.c - has the process room for the core, and enough left for itself?
 * It reads /proc and /sys/fs/cgroup only, before anything is done to the process: a limit that is
 * met afterwards is met by the program too, which then fails for want of what we took.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/inject/internal.h"
#include "core/base/text.h"
#include "core/guest/headroom_table.h"
#include "core/guest/thread_sched.h"
#include "sdk/lib/proc/lines.h"

#define STACK_DEFAULT (UINT64_C(2) << 20) /* glibc's on both machines, where ulimit -s is none */
#define STACK_MOST (UINT64_C(1) << 30)

/* The thread that we make to load the library has a stack of the program's default size, which
 * glibc then keeps for the next thread of the program. */
static uint64_t loader_stack(pid_t pid)
{
    char path[40];
    uint64_t bytes;
    (void)snprintf(path, sizeof(path), "/proc/%d/limits", (int)pid);
    if (!proc_number_in(path, "Max stack size", &bytes))
        return STACK_DEFAULT;
    return bytes < STACK_MOST ? bytes : STACK_MOST;
}

/* The value that a setting is given last; NULL: none. */
static const char *value_of(const struct inject_options *o, const char *name)
{
    const char *value = NULL;
    size_t n = strlen(name);
    for (const char *const *s = o->settings; s && *s; s++)
        if (strncmp(*s, name, n) == 0 && (*s)[n] == '=')
            value = *s + n + 1;
    return value;
}

int limits_check(const struct target *t, const struct inject_options *o)
{
    struct room_part part = room_core;
    const char *crash = value_of(o, "crash.handler"), *listen = value_of(o, "server.listen");
    if (t->present_start == 0) {
        room_part_add(&part, &room_library);
        part.takes[ROOM_ADDRESS_SPACE] += loader_stack(t->pid);
        part.takes[ROOM_DATA] += loader_stack(t->pid);
    }
    if (crash && !text_is_off(crash)) {
        part.name = "the core with crash reports";
        room_part_add(&part, &room_crash);
    }
    if (listen && listen[0])
        room_part_add(&part, &room_listen);
    int rc = room_check(t->pid, &part, /* at_peak= */ t->present_start == 0);
    if (rc < 0 || schedule_any_can_clone(t->pid))
        return rc;
    return err_set(-EAGAIN,
                   "all threads of process %d run under SCHED_DEADLINE, which may not create "
                   "threads (sched(7)); start it with chrt --reset-on-fork",
                   t->pid);
}
