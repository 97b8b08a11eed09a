/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/sample/sample_density.c - the distance between samples follows what they cost.
 */
#include "sample_density.h"

#include <stdbool.h>
#include <time.h>

#include "probing_sdk.h"
#include "unsampled.h"

#define SAMPLES 64.0 /* so many say what one costs: a few may be slow ones by chance */
#define FEW 16u
#define MOST_PER_S 2000.0
#define LEAST_CPU 0.1                       /* of a processor, as if the process took so much */
#define SAMPLE_NS 5000.0                    /* before any was timed */
#define RATED_S 1.0                         /* time that a burst is weighed against */
#define FASTER_NS (20 * PROBING_NS_PER_MS)  /* it grows after this, ... */
#define SLOWER_NS (100 * PROBING_NS_PER_MS) /* ... and falls after this */
#define FEW_NS PROBING_NS_PER_S             /* after this where there were few samples */

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
    d->sample_ns = SAMPLE_NS;
    d->counted_cpu_ns = probing_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    d->counted_ns = now;
    d->due_rate = d->cpu_rate = 0;
    d->rated_ns = now;
    d->rated_cpu_ns = d->counted_cpu_ns;
    d->rated_means = counts->means;
}

void density_ask(struct density *d, uint64_t bytes)
{
    atomic_store_explicit(&d->asked, bytes, memory_order_relaxed);
    unsampled_ask(bytes);
    sampling_set_mean(bytes);
}

/* The cost of one sample, judged by those since the last time: a few of them do not say much. */
static double sample_ns(const struct density *d, const struct sampling_counts *counts)
{
    double taken = (double)(counts->taken - d->counted.taken);
    if (taken == 0)
        return d->sample_ns;
    double each = (double)(counts->spent_ns - d->counted.spent_ns) / taken;
    return d->sample_ns + (each - d->sample_ns) * (taken < SAMPLES ? taken / SAMPLES : 1);
}

/* The distance by which the samples since the last time would have been as many as they may: from
 * the one that they were taken by on average, which threads may have raised in between. */
static double wanted_mean(const struct density *d, const struct sampling_counts *counts,
                          uint64_t passed, uint64_t cpu)
{
    uint64_t taken = counts->taken - d->counted.taken;
    double most = atomic_load_explicit(&d->max_overhead, memory_order_relaxed);
    if (most <= 0 || taken == 0)
        return 0;
    double rate = (double)taken / probing_seconds(passed);
    double used = (double)(cpu - d->counted_cpu_ns), least = LEAST_CPU * (double)passed;
    double share = (double)taken * sample_ns(d, counts) / (used > least ? used : least);
    double over = share / most > rate / MOST_PER_S ? share / most : rate / MOST_PER_S;
    return over * (double)(counts->means - d->counted.means) / (double)taken;
}

/* Averages that follow within RATED_S or so. */
static void update_rates(struct density *d, const struct sampling_counts *counts, uint64_t now,
                         uint64_t cpu)
{
    double passed = probing_seconds(now - d->rated_ns), share = passed / (passed + RATED_S);
    if (passed <= 0)
        return;
    d->due_rate += share * ((double)(counts->means - d->rated_means) / passed - d->due_rate);
    d->cpu_rate += share * (probing_seconds(cpu - d->rated_cpu_ns) / passed - d->cpu_rate);
    d->rated_ns = now;
    d->rated_cpu_ns = cpu;
    d->rated_means = counts->means;
}

/* The distance by which as many as may come at these averages. */
static double rated_mean(const struct density *d, const struct sampling_counts *counts)
{
    double most = atomic_load_explicit(&d->max_overhead, memory_order_relaxed);
    double used = d->cpu_rate > LEAST_CPU ? d->cpu_rate : LEAST_CPU;
    double rate = most * used / (sample_ns(d, counts) / 1e9);
    return d->due_rate / (rate < MOST_PER_S ? rate : MOST_PER_S);
}

/* Few samples may be few by chance: it falls later then, lest it goes up and down and costs more
 * than it may on average. */
static uint64_t patience_ns(const struct density *d, const struct sampling_counts *counts)
{
    bool few = counts->taken - d->counted.taken < FEW;
    bool limit = atomic_load_explicit(&d->max_overhead, memory_order_relaxed) > 0;
    return few && limit ? FEW_NS : SLOWER_NS;
}

void density_adapt(struct density *d, uint64_t now)
{
    struct sampling_counts counts;
    uint64_t passed = now - d->counted_ns;
    if (passed < FASTER_NS)
        return;
    uint64_t cpu = probing_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    sampling_counts(&counts);
    update_rates(d, &counts, now, cpu);
    double wanted = wanted_mean(d, &counts, passed, cpu), rated = rated_mean(d, &counts);
    wanted = wanted < rated ? wanted : rated;
    if (wanted < (double)sampling_mean() && passed < patience_ns(d, &counts))
        return;
    d->sample_ns = sample_ns(d, &counts);
    d->counted_ns = now;
    d->counted_cpu_ns = cpu;
    d->counted = counts;
    set_mean(d, wanted);
}
