/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/proc/thread_clock.h - the CPU time of a thread of this process, by its number.
 *
 * [signal]
 */
#ifndef SDK_LIB_PROC_THREAD_CLOCK_H
#define SDK_LIB_PROC_THREAD_CLOCK_H

#include <stdint.h>
#include <time.h>

/* For clock_gettime() and timer_create(): MAKE_THREAD_CPUCLOCK(tid, CPUCLOCK_SCHED) of
 * linux/posix-timers.h.  tid 0 is the calling thread. */
static inline clockid_t thread_cpu_clock(int32_t tid)
{
    return (clockid_t)((~(uint32_t)tid << 3) | 6u);
}

/* ns; 0: there is no such thread, or tid is 0. */
static inline uint64_t thread_cpu_ns(int32_t tid)
{
    struct timespec t;
    return tid > 0 && clock_gettime(thread_cpu_clock(tid), &t) == 0
               ? (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec
               : 0;
}

#endif
