/* SPDX-License-Identifier: Apache-2.0
 *
 * core/guest/thread_sched.h - how threads of ours are scheduled, whatever thread was borrowed for
 * them.
 *
 * A new thread inherits from its maker: real-time class, nice value, CPU affinity, I/O class, timer
 * slack.  Ours shall be ordinary threads of the process and never stand before the program's.
 * System calls only, no err_set(), no allocation.  Any thread; [child] too.
 */
#ifndef CORE_GUEST_THREAD_SCHED_H
#define CORE_GUEST_THREAD_SCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SCHEDULE_CPUS 8192 /* the most that Linux is built for */

struct schedule {
    int nice;          /* the process's, never below 0; 19 for a process of SCHED_IDLE */
    int io_class;      /* for ioprio_set(2): the process's, 0 where that is real-time */
    size_t cpus_bytes; /* of `cpus`; 0: not known */
    uint64_t cpus[SCHEDULE_CPUS / 64]; /* where any of its threads may run */
};

/* Give the schedule that suits a process: the nice value of its first thread, the CPUs of all.  Its
 * numbers of threads are those that /proc of the caller has. */
void schedule_of(pid_t pid, struct schedule *ret);

/* Make a thread (0: the caller) SCHED_OTHER and as `s` says.  Where the kernel refuses one part (a
 * thread of SCHED_IDLE may not leave it without a right to), the others are done. */
void schedule_apply(pid_t tid, const struct schedule *s);

/* Both for the calling thread, which was made by a thread of the program. */
void schedule_normalize(void);

/* Can this thread make threads?  One of SCHED_DEADLINE cannot (sched(7)). */
bool schedule_can_clone(pid_t tid);
bool schedule_any_can_clone(pid_t pid); /* any of a process */

#endif
