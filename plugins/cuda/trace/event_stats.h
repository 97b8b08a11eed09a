/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/trace/event_stats.h - copies, waits and allocations summed up by kind, memory,
 * module and device: rows of cuda.event_stats.
 *
 * Threads: one at a time.
 */
#ifndef CUDA_TRACE_EVENT_STATS_H
#define CUDA_TRACE_EVENT_STATS_H

#include <stdbool.h>

#include "cupti/record.h"
#include "trace/tables.h"

struct event_key {
    uint64_t event, kind, memory_kind, module; /* texts; PROBING_NULL_ID: none */
    uint32_t device;
};

struct event_sum {
    struct event_key key;
    uint64_t count, bytes, total_ns, waited, rows, last_ns; /* last_ns: when one ended last */
    bool sizes;                                             /* they have bytes */
};

#define EVENT_SUMS 512u /* at a time, half of it is used: then the sums are written early */

struct event_stats {
    struct event_sum all[EVENT_SUMS]; /* count 0: empty */
    uint32_t n;
};

void event_stats_forget(struct event_stats *e);
/* The sum that it belongs to; NULL: the sums must be written before there is room. */
struct event_sum *event_stats_of(struct event_stats *e, const struct event_key *key);
/* One row for each sum, of that window; then they are gone. */
void event_stats_write(struct event_stats *e, const struct probing_host *host,
                       struct probing_table *table, int64_t window);

#endif
