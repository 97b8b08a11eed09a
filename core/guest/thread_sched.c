/* SPDX-License-Identifier: Apache-2.0
 *
 * core/guest/thread_sched.c - what a thread inherits of its maker's scheduling, and what ours get.
 *
 * Not touched is what is set on all threads of a process and means all: the policy for NUMA nodes
 * (set_mempolicy(2) cannot be asked of another thread), cpusets, which the kernel applies anyway.
 */
#include "core/guest/thread_sched.h"

#include <errno.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sdk/lib/proc/proc_file.h"

#define THREADS_MOST 16384     /* looked at for their CPUs: 0.4 us each */
#define TIMER_SLACK_NS 50000ul /* what the kernel gives a first thread, prctl(2) */
#define IO_PROCESS 1           /* ioprio_set(2), linux/ioprio.h */
#define IO_CLASS_SHIFT 13
#define IO_CLASS_RT 1
#define IDLE_NICE 19 /* the nearest to SCHED_IDLE that still gets its turn */
#ifndef SCHED_DEADLINE
#define SCHED_DEADLINE 6
#endif
#ifndef SCHED_RESET_ON_FORK
#define SCHED_RESET_ON_FORK 0x40000000
#endif

static bool add_cpus_of(pid_t tid, void *arg)
{
    struct schedule *s = arg;
    uint64_t cpus[SCHEDULE_CPUS / 64] = {0};
    int64_t n = syscall(SYS_sched_getaffinity, tid, sizeof(cpus), cpus);
    if (n <= 0)
        return true;
    s->cpus_bytes = (size_t)n > s->cpus_bytes ? (size_t)n : s->cpus_bytes;
    for (size_t i = 0; i < SCHEDULE_CPUS / 64; i++)
        s->cpus[i] |= cpus[i];
    return true;
}

/* Until `each` gives false.  Not opendir(): that allocates, and a child's fork handler comes here
 * too. */
static bool each_thread(pid_t pid, bool (*each)(pid_t tid, void *arg), void *arg)
{
    struct proc_numbers all;
    struct proc_number one;
    bool more = true;
    (void)proc_threads_open(&all, pid == getpid() ? 0 : pid);
    for (int seen = 0; more && seen < THREADS_MOST && proc_numbers_next(&all, &one); seen++)
        more = each((pid_t)one.value, arg);
    proc_numbers_close(&all);
    return more;
}

static int nice_of(pid_t tid)
{
    int policy = sched_getscheduler(tid);
    errno = 0;
    int nice = getpriority(PRIO_PROCESS, (id_t)tid);
    if (policy != -1 && (policy & ~SCHED_RESET_ON_FORK) == SCHED_IDLE)
        return IDLE_NICE;
    return nice == -1 && errno ? 0 : nice > 0 ? nice : 0;
}

void schedule_of(pid_t pid, struct schedule *ret)
{
    *ret = (struct schedule){.nice = nice_of(pid)};
    int64_t io = syscall(SYS_ioprio_get, IO_PROCESS, pid);
    if (io > 0 && io >> IO_CLASS_SHIFT != IO_CLASS_RT)
        ret->io_class = (int)io;
    (void)each_thread(pid, add_cpus_of, ret);
}

void schedule_apply(pid_t tid, const struct schedule *s)
{
    const struct sched_param none = {0};
    int policy = sched_getscheduler(tid);
    if (policy != SCHED_OTHER)
        (void)sched_setscheduler(tid, SCHED_OTHER, &none);
    /* Down needs a right, and a thread that may not leave SCHED_IDLE is low enough. */
    if (getpriority(PRIO_PROCESS, (id_t)tid) != s->nice)
        (void)setpriority(PRIO_PROCESS, (id_t)tid, s->nice);
    if (s->cpus_bytes)
        (void)syscall(SYS_sched_setaffinity, tid, s->cpus_bytes, s->cpus);
    if (syscall(SYS_ioprio_get, IO_PROCESS, tid) != s->io_class)
        (void)syscall(SYS_ioprio_set, IO_PROCESS, tid, s->io_class);
    if (tid == 0)
        (void)prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0);
}

void schedule_normalize(void)
{
    struct schedule s;
    schedule_of(getpid(), &s);
    schedule_apply(0, &s);
}

bool schedule_can_clone(pid_t tid)
{
    return sched_getscheduler(tid) != SCHED_DEADLINE; /* with the flag to reset, it is another */
}

static bool cannot_clone(pid_t tid, void *arg)
{
    (void)arg;
    return !schedule_can_clone(tid);
}

bool schedule_any_can_clone(pid_t pid)
{
    return !each_thread(pid, cannot_clone, NULL);
}
