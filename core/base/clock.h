/* SPDX-License-Identifier: Apache-2.0
 *
 * core/base/clock.h - the one clock: CLOCK_MONOTONIC nanoseconds, read cheaply.
 *
 * Until clock_calibrate() has found the cycle counter safe (x86-64: constant and nonstop TSC and
 * the kernel's own clocksource is tsc; aarch64: the generic timer) clock_now() asks the kernel.
 * Calibration is repeated by the drain thread; readers are never blocked by it.
 */
#ifndef CORE_BASE_CLOCK_H
#define CORE_BASE_CLOCK_H

#include <stdint.h>

#define NS_PER_US UINT64_C(1000)
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S UINT64_C(1000000000)

/* CLOCK_MONOTONIC ns, from the cycle counter when safe.                              [signal] */
uint64_t clock_now(void);
/* CLOCK_MONOTONIC ns, from the kernel.                                               [signal] */
uint64_t clock_monotonic(void);

/* Compare counter and kernel clock again, every two seconds or more often.  One thread at a time
 * (the drain thread). */
void clock_calibrate(void);

/* The number that clock_now() lacks to be UTC ns since the epoch: taken once per process, so that
 * a step of the wall clock never reorders rows, nor makes them older than they are.    [any] */
int64_t clock_utc_offset(void);
/* The offset of an earlier life in this process, with whose rows those of this one go on; 0: take
 * it afresh.  Before rows are written. */
void clock_utc_offset_keep(int64_t offset);

/* For unit programs only, which hold the core as a library: the kernel's clocks stand so far from
 * where they are, from now on.  Nothing calls it in libprobing.so, and nothing can from outside. */
void clock_move(int64_t monotonic_ns, int64_t utc_ns);

#endif
