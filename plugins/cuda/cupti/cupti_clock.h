/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/cupti/cupti_clock.h - CUPTI's clock as CLOCK_MONOTONIC.
 *
 * Threads: one at a time.
 * CUPTI's is CLOCK_REALTIME, or whatever another profiler of the process has made it (torch's may
 * have).  Both are read beside each other while records come; a record is of a moment between two
 * such readings, or shortly before the last.
 */
#ifndef CUDA_CUPTI_CUPTI_CLOCK_H
#define CUDA_CUPTI_CUPTI_CLOCK_H

#include <stdint.h>

#include "cupti/subscriber.h"

struct clock_pair {
    uint64_t cupti, ours; /* the same moment; ours 0: not known */
    uint64_t error_ns;    /* at most so far apart */
};

struct cupti_clock {
    struct clock_pair old, now; /* now: by which times are told; old: before the clocks drifted */
    uint64_t error_ns;          /* at the last reading */
};

void clock_begin(struct cupti_clock *c, const struct subscriber *s);
void clock_compare(struct cupti_clock *c, const struct subscriber *s);
/* A moment of CUPTI's; 0: 0, or it is not known. */
uint64_t clock_ours(const struct cupti_clock *c, uint64_t cupti);
int64_t clock_error(const struct cupti_clock *c); /* ns; -1: not known */

#endif
