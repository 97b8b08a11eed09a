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
#define MEAN_MAX 0x1p40

static void set_mean(struct density *d, double wanted)
{
    double asked = (double)atomic_load_explicit(&d->asked, memory_order_relaxed);
    double set = (double)atomic_load_explicit(&d->mean, memory_order_relaxed);
    double next = wanted > asked ? wanted : asked;
    if (next < 1.2 * set && next > set / 1.2 && next != asked)
        return;
    next = next < MEAN_MAX ? next : MEAN_MAX;
    atomic_store_explicit(&d->mean, (uint64_t)next, memory_order_relaxed);
    sampling_set_mean((uint64_t)next);
}

void density_begin(struct density *d, const struct sampling_counts *counts, uint64_t now)
{
    d->counted = *counts;
    d->counted_cpu_ns = probing_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    d->counted_ns = now;
    atomic_store_explicit(&d->mean, atomic_load_explicit(&d->asked, memory_order_relaxed),
                          memory_order_relaxed);
}

void density_ask(struct density *d, uint64_t bytes)
{
    atomic_store_explicit(&d->asked, bytes, memory_order_relaxed);
    atomic_store_explicit(&d->mean, bytes, memory_order_relaxed);
    sampling_set_mean(bytes);
}

void density_adapt(struct density *d, uint64_t now)
{
    struct sampling_counts counts;
    uint64_t passed = now - d->counted_ns;
    if (passed < FASTER_NS)
        return;
    uint64_t cpu = probing_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    sampling_counts(&counts);
    double rate = (double)(counts.taken - d->counted.taken) / probing_seconds(passed);
    double share = (double)(counts.spent_ns - d->counted.spent_ns) /
                   (double)(cpu > d->counted_cpu_ns ? cpu - d->counted_cpu_ns : 1);
    double most = atomic_load_explicit(&d->max_overhead, memory_order_relaxed);
    double over = most <= 0                          ? 0
                  : share / most > rate / MOST_PER_S ? share / most
                                                     : rate / MOST_PER_S;
    if (over < 1 && passed < SLOWER_NS)
        return;
    d->counted_ns = now;
    d->counted_cpu_ns = cpu;
    d->counted = counts;
    set_mean(d, (double)atomic_load_explicit(&d->mean, memory_order_relaxed) * over);
}
