/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/trace/launches.h - which call of CUDA asked for a piece of work: calls by CUPTI's
 * correlation number, the last 65,536 of them.
 *
 * Threads: one at a time.
 */
#ifndef CUDA_TRACE_LAUNCHES_H
#define CUDA_TRACE_LAUNCHES_H

#include <stdbool.h>
#include <stdint.h>

struct launch {
    uint32_t correlation; /* 0: empty */
    uint32_t thread;
    uint64_t begin_ns, end_ns; /* of the call, CLOCK_MONOTONIC */
};

#define LAUNCHES 65536u /* a power of two; 1.5 MB */

struct launches {
    struct launch *all; /* by the low bits of the number: numbers are given one after another */
};

int launches_init(struct launches *l); /* 0 or -ENOMEM */
void launches_done(struct launches *l);
void launches_forget(struct launches *l);
void launches_put(struct launches *l, const struct launch *launch);
const struct launch *launches_find(const struct launches *l, uint32_t correlation); /* or NULL */

#endif
