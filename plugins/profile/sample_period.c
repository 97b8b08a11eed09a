/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/profile/sample_period.c - periods drawn by chance, in whole ticks of the kernel.
 *
 * Any thread and signal handler; nothing kept.
 */
#include "sample_period.h"

#include <time.h>

uint64_t period_tick_ns(void)
{
    struct timespec tick;
    if (clock_getres(CLOCK_MONOTONIC_COARSE, &tick) != 0 || tick.tv_sec != 0 || tick.tv_nsec <= 0)
        return 1;
    return (uint64_t)tick.tv_nsec;
}

/* A timer rings at the first tick after its end, half a tick late on average: asked for 4 ms and
 * drawn from 2 to 6, it rang after 6.  So whole ticks are drawn, the fraction by chance, and the
 * timer ends half a tick before the last of them: there is room for both sides' jitter. */
uint64_t period_draw(uint64_t chance, uint64_t period_ns, uint64_t tick_ns)
{
    if (period_ns <= tick_ns)
        return tick_ns / 2 + 1;
    uint64_t spread = period_ns - tick_ns < period_ns / 2 ? period_ns - tick_ns : period_ns / 2;
    uint64_t drawn = period_ns - spread + ((chance >> 32) * (2 * spread + 1) >> 32);
    uint64_t ticks = (drawn + (chance & UINT32_MAX) % tick_ns) / tick_ns;
    return ticks * tick_ns - tick_ns / 2;
}
