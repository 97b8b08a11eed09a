/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/profile/sample_table.h - the tables python.samples and python.unsampled.
 *
 * Made on [control]; rows are added by the profiler's thread.
 */
#ifndef PROFILE_SAMPLE_TABLE_H
#define PROFILE_SAMPLE_TABLE_H

#include <probing/plugin.h>

/* Why the profiler has no timer for a thread. */
#define UNSAMPLED_REASON                                                               \
    "the kernel gives no more timers (ulimit -i, of which 16 stay the program's), or " \
    "there are more than 4096"

/* The host's error where it cannot be.                                              [control] */
int sample_table_new(const struct probing_host *host, struct probing_table **ret);

struct sample_row {
    uint64_t ts, thread_name;
    int64_t stack, tid, cpu_ns, wall_ns;
    int64_t gil, step; /* PROBING_NULL_I64 where there is no Python, no step */
};
void sample_table_add(const struct probing_host *host, struct probing_table *t,
                      const struct sample_row *row);

/* python.unsampled.                                                                 [control] */
int unsampled_table_new(const struct probing_host *host, struct probing_table **ret);
void unsampled_table_add(const struct probing_host *host, struct probing_table *t, uint32_t threads,
                         uint32_t sampled);

#endif
