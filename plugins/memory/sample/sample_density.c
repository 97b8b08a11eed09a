/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/sample/sample_density.c - the distance between samples follows what they cost.
 */
#include "sample_density.h"

#include <time.h>

#include "probing_sdk.h"

#define MOST_PER_S 2000.0
#define FASTER_NS (20 * PROBING_NS_PER_MS)  /* it grows after this, ... */
#define SLOWER_NS (100 * PROBING_NS_PER_MS) /* ... and falls after this */

static void set_mean(struct density *d, double wanted)
{
    double asked = (double)atomic_load_explicit(&d->asked, memory_order_relaxed);
    double set = (double)sampling_mean();
    double next = wanted > asked ? wanted : asked;
    if (next < 1.2 * set && next > set / 1.2 && next != asked)
        return;
    next = next < (double)SAMPLING_MEAN_MAX ? next : (double)SAMPLING_MEAN_MAX;
    sampling_set_mean((uint64_t)next);
}

void density_begin(struct density *d, const struct sampling_counts *counts, uint64_t now)
{
    d->counted = *counts;
    d->counted_cpu_ns = probing_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    d->counted_ns = now;
}

void density_ask(struct density *d, uint64_t bytes)
{
    atomic_store_explicit(&d->asked, bytes, memory_order_relaxed);
    sampling_set_mean(bytes);
}

/* The distance by which the samples since the last time would have been as many as they may: from
 * the one that they were taken by on average, which threads may have raised in between. */
static double wanted_mean(const struct density *d, const struct sampling_counts *counts,
                          uint64_t passed, uint64_t cpu)
{
    uint64_t taken = counts->taken - d->counted.taken;
    if (taken == 0)
        return 0;
    double rate = (double)taken / probing_seconds(passed);
    double share = (double)(counts->spent_ns - d->counted.spent_ns) /
                   (double)(cpu > d->counted_cpu_ns ? cpu - d->counted_cpu_ns : 1);
    double most = atomic_load_explicit(&d->max_overhead, memory_order_relaxed);
    double over = most <= 0                          ? 0
                  : share / most > rate / MOST_PER_S ? share / most
                                                     : rate / MOST_PER_S;
    return over * (double)(counts->means - d->counted.means) / (double)taken;
}

void density_adapt(struct density *d, uint64_t now)
{
    struct sampling_counts counts;
    uint64_t passed = now - d->counted_ns;
    if (passed < FASTER_NS)
        return;
    uint64_t cpu = probing_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    sampling_counts(&counts);
    double wanted = wanted_mean(d, &counts, passed, cpu);
    if (wanted < (double)sampling_mean() && passed < SLOWER_NS)
        return;
    d->counted_ns = now;
    d->counted_cpu_ns = cpu;
    d->counted = counts;
    set_mean(d, wanted);
}
