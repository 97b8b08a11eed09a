/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/profile/perf_timer.h - a clock of one thread that is finer than the kernel's tick, if
 * allowed.
 *
 * perf_event_open(2)'s task clock, where the kernel permits it to this process.  It is a descriptor
 * in the program's table, one a thread, so it is used only for rates that timers cannot give.
 * The profiler's thread only, unless tagged.
 */
#ifndef PROFILE_PERF_TIMER_H
#define PROFILE_PERF_TIMER_H

#include <stdbool.h>
#include <stdint.h>

struct perf_timer {
    int32_t fd; /* -1: none */
    uint64_t id;
};

/* Does a rate need it?  By the kernel's tick. */
bool perf_timer_needed(uint32_t rate_hz);

/* One signal `number` to thread `tid` after each period of its CPU time; each must be answered with
 * perf_timer_again().  -errno: not permitted, or too many descriptors. */
int perf_timer_open(struct perf_timer *f, int32_t tid, int number, uint64_t period_ns);
void perf_timer_set(const struct perf_timer *f, uint64_t period_ns);
/* Closes it, unless the program did and the number is something else's now. */
void perf_timer_close(struct perf_timer *f);

void perf_timer_again(
    const struct perf_timer *f); /* the next one, please                       [signal] */

#endif
