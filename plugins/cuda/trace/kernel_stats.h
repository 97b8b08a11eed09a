/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/trace/kernel_stats.h - kernels summed up by step, name, module and device: rows of
 * cuda.kernel_stats.
 *
 * Threads: one at a time.
 */
#ifndef CUDA_TRACE_KERNEL_STATS_H
#define CUDA_TRACE_KERNEL_STATS_H

#include "trace/tables.h"

struct kernel_key {
    int64_t step; /* PROBING_NULL_I64: not known, or of several */
    uint64_t name, module;
    uint32_t device;
};

struct kernel_sum {
    struct kernel_key key;
    uint64_t count, total_ns, min_ns, max_ns, last_ns; /* last_ns: when the last of them ended */
    uint64_t launched, launch_ns, queued_ns;           /* of those whose launch was seen */
    uint64_t rows;
};

struct kernel_stats {
    struct kernel_sum *all; /* STATS_SUMS of them; count 0: empty */
    uint32_t n;
};

#define STATS_SUMS 8192u /* at a time, half of it is used: then the sums are written early */

int kernel_stats_init(struct kernel_stats *k); /* 0 or -ENOMEM */
void kernel_stats_done(struct kernel_stats *k);
void kernel_stats_forget(struct kernel_stats *k);
/* The sum that it belongs to; NULL: the sums must be written before there is room. */
struct kernel_sum *kernel_stats_of(struct kernel_stats *k, const struct kernel_key *key);
/* One row for each sum, of that window; then they are gone.  A step that goes on has several rows,
 * to be added. */
void kernel_stats_write(struct kernel_stats *k, const struct probing_host *host,
                        struct probing_table *table, int64_t window);

#endif
