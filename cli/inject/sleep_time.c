/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/inject/sleep_time.c - see sleep_time.h.
 */
#include "cli/inject/sleep_time.h"

#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "sdk/lib/proc/task.h"

#define CLOCK_NAP_NS (20 * NS_PER_US)

static __thread struct {
    uint64_t clock_ns, at_ns; /* 0: never read */
} clocks[CPU_SETSIZE];

/* A thread that has just been given the processor ran last now. */
static bool read_clock(uint32_t cpu)
{
    cpu_set_t kept, there;
    struct proc_sched own = {0, 0};

    CPU_ZERO(&there);
    CPU_SET(cpu, &there);
    if (sched_getaffinity(0, sizeof(kept), &kept) == -1 ||
        sched_setaffinity(0, sizeof(there), &there) == -1)
        return false;
    (void)nanosleep(&(struct timespec){.tv_nsec = CLOCK_NAP_NS}, NULL);
    uint64_t at = clock_monotonic();
    bool known = proc_sched_of(0, (pid_t)syscall(SYS_gettid), &own) == 0;
    (void)sched_setaffinity(0, sizeof(kept), &kept);
    clocks[cpu].clock_ns = own.ran_ns;
    clocks[cpu].at_ns = known ? at : 0;
    return known;
}

bool sleep_time_of(pid_t pid, pid_t tid, uint64_t kept_ns, struct sleep_time *ret)
{
    struct proc_sched seen, again;
    struct proc_stat stat;

    if (proc_sched_of(pid, tid, &seen) < 0 || proc_stat_of(pid, tid, &stat) < 0 ||
        stat.cpu >= CPU_SETSIZE)
        return false;
    uint32_t cpu = (uint32_t)stat.cpu;
    bool fresh =
        kept_ns > 0 && clocks[cpu].at_ns > 0 && clock_monotonic() - clocks[cpu].at_ns < kept_ns;
    if (!fresh && !read_clock(cpu))
        return false;
    uint64_t at = fresh ? clock_monotonic() : clocks[cpu].at_ns;
    uint64_t now = clocks[cpu].clock_ns + (at - clocks[cpu].at_ns);
    if (proc_sched_of(pid, tid, &again) < 0 || again.ran_ns != seen.ran_ns ||
        again.switches != seen.switches || now < seen.ran_ns)
        return false;
    *ret = (struct sleep_time){now - seen.ran_ns, at, seen.switches};
    return true;
}

void sleep_time_prepare(void)
{
    cpu_set_t allowed;

    if (sched_getaffinity(0, sizeof(allowed), &allowed) == -1)
        return;
    for (uint32_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed))
            (void)read_clock(cpu);
}
