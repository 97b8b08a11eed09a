/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/inject/sleep_time.h - for how long a thread has not run, by the scheduler's own numbers.
 *
 * /proc/PID/task/TID/sched has when it ran last, by the clock of its processor.  These clocks do
 * not count the time that a hypervisor or interrupts have taken, so they drift apart: 45 s were
 * seen after ten hours.  The caller's thread visits that processor to read its clock.
 *
 * Any thread of the command; each keeps clocks of its own.
 */
#ifndef CLI_INJECT_SLEEP_TIME_H
#define CLI_INJECT_SLEEP_TIME_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct sleep_time {
    uint64_t slept_ns; /* it had not run for so long, ... */
    uint64_t at_ns;    /* ... at this time of clock_monotonic(), ... */
    uint64_t switches; /* ... after it had given up the processor so often */
};

/* false: it is not known (the thread ran meanwhile or was just moved to another processor, we may
 * not go to its processor, or the kernel does not tell).  A clock that was read in the last
 * `kept_ns` is good enough; 0: it is read now. */
bool sleep_time_of(pid_t pid, pid_t tid, uint64_t kept_ns, struct sleep_time *ret);
/* Read the clocks of all processors that we may visit, so that children have them: not each of a
 * thousand has to go there. */
void sleep_time_prepare(void);

#endif
