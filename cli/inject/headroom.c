/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/inject/headroom.c - has the process room for the core, and enough left for itself?
 * It reads /proc and /sys/fs/cgroup only, before anything is done to the process: a limit that is
 * met afterwards is met by the program too, which then fails for want of what we took.
 */
#include <errno.h>

#include "cli/inject/internal.h"
#include "core/base/headroom.h"
#include "core/base/thread_sched.h"

#define MIB (UINT64_C(1) << 20)

/* What the core takes at most where that is limited (docs/life.md), and half as much again or more
 * for the program.  Address space: glibc reserves 64 MiB for each thread that calls its malloc(),
 * which are up to seven of ours (who loads, who makes threads, a worker, who runs Python, who finds
 * the names of frames, a plugin's own); stacks, code and heap are some 100 with crash reports and
 * profiler, the files a share of what is left. */
#define ADDRESS_SPACE (896 * MIB)
#define DATA (48 * MIB)
#define MEMORY (48 * MIB)
#define FILES 24
#define THREADS 16

static int check_bytes(const struct target *t, uint64_t room, uint64_t need, const char *what,
                       const char *remedy)
{
    if (room >= need)
        return 0;
    return err_set(-ENOMEM,
                   "process %d has too little memory: it may use only %llu MiB more of %s, and the "
                   "core needs %llu MiB so "
                   "that the program keeps enough; %s",
                   t->pid, (unsigned long long)(room / MIB), what, (unsigned long long)(need / MIB),
                   remedy);
}

static int check_numbers(const struct target *t)
{
    uint64_t files = room_files(t->pid), threads = room_threads(t->pid);
    if (files < FILES)
        return err_set(
            -EMFILE,
            "process %d can have only %llu more open files (descriptors), and the core needs "
            "%d; raise its limit with prlimit --nofile",
            t->pid, (unsigned long long)files, FILES);
    if (threads < THREADS)
        return err_set(-EAGAIN,
                       "process %d can create only %llu more threads, and the core needs %d; raise "
                       "its user's limit (prlimit --nproc) or pids.max of its cgroup",
                       t->pid, (unsigned long long)threads, THREADS);
    if (!schedule_any_can_clone(t->pid))
        return err_set(-EAGAIN,
                       "all threads of process %d run under SCHED_DEADLINE, which may not create "
                       "threads (sched(7)); start it with chrt --reset-on-fork",
                       t->pid);
    return 0;
}

int limits_check(const struct target *t)
{
    /* A core that was here has added to its peak. */
    uint64_t memory = t->present_start ? room_memory(t->pid) : room_memory_at_peak(t->pid);
    uint64_t space =
        t->present_start ? room_address_space(t->pid) : room_address_space_at_peak(t->pid);
    int rc = check_bytes(t, space, ADDRESS_SPACE, "address space (ulimit -v)",
                         "raise it with prlimit --as");
    if (rc == 0)
        rc = check_bytes(t, room_locked(t->pid), ADDRESS_SPACE,
                         "locked memory (ulimit -l; it has all of its memory locked, mlockall(2))",
                         "raise it with prlimit --memlock");
    if (rc == 0)
        rc = check_bytes(t, room_data(t->pid), DATA, "private memory (ulimit -d, or overcommit 2)",
                         "raise it with prlimit --data, or vm.overcommit_ratio");
    if (rc == 0)
        rc = check_bytes(t, memory, MEMORY, "its cgroup's memory",
                         "raise the group's memory.max (memory.limit_in_bytes)");
    return rc == 0 ? check_numbers(t) : rc;
}
