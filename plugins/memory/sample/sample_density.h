/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/sample/sample_density.h - how far samples are from each other: as asked for, or
 * farther where they would cost too much.
 *
 * Settings on [control]; density_adapt() by the sampler's thread.
 */
#ifndef MEMORY_SAMPLE_SAMPLE_DENSITY_H
#define MEMORY_SAMPLE_SAMPLE_DENSITY_H

#include <stdatomic.h>
#include <stdint.h>

#include "sampling.h"

struct density {
    _Atomic double max_overhead; /* share of the process's CPU time; 0: no limit */
    _Atomic uint64_t asked;      /* bytes between samples */
    double sample_ns;            /* what one sample costs, of the last ones */
    uint64_t counted_ns, counted_cpu_ns;
    struct sampling_counts counted; /* as of then */
    double due_rate, cpu_rate;      /* of the last second or so: bytes that samples stood for, and
                                     * processors that were used */
    uint64_t rated_ns, rated_cpu_ns;
    uint64_t rated_means; /* sampling_counts.means, as of then */
};

/* It begins with what is asked for. */
void density_begin(struct density *d, const struct sampling_counts *counts, uint64_t now);
/* Another distance is asked for: it holds at once. */
void density_ask(struct density *d, uint64_t bytes);
/* Adapt the distance to the cost.  It grows if samples since the last call took more than
 * max_overhead of the process's CPU time (or of a tenth of a processor's, if that is more), or were
 * more than 2,000 a second: then each weighs more, and the cost is bounded.  It is judged over the
 * last second or so: a burst of some milliseconds may cost what that second may, and is seen.  It
 * falls again, also if threads have raised it because samples had not been read yet. */
void density_adapt(struct density *d, uint64_t now);

#endif
