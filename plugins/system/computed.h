/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/system/computed.h - the tables whose rows are read when a query asks.
 *
 * Their scan functions run on any workers and keep nothing.
 */
#ifndef SYSTEM_COMPUTED_H
#define SYSTEM_COMPUTED_H

#include "internal.h"

extern const struct probing_table_desc maps_table, fds_table, limits_table, kmsg_table, numa_table,
    cpu_stats_table, connections_table;

/* The host of the plugin, the `self` of a scan function.   [any] */
const struct probing_host *plugin_host(void *self);

struct kmsg_line {
    const char *level, *facility; /* static; facility NULL: one without a name */
    char *message;
    uint64_t sequence, at_ns; /* since the machine started, by CLOCK_MONOTONIC but for a little */
};

/* A record of /dev/kmsg, which it changes; false: it is none. */
bool kmsg_parse(char *record, struct kmsg_line *ret);
/* A descriptor, or -errno. */
int kmsg_open(void);
/* Add what a line of numa_maps says to bytes[node]; nodes from n on are left out. */
void numa_add(const char *line, uint64_t *bytes, uint32_t n);
/* The GPUs that a process has open, blanks between; "": none, or it may not be looked at. */
void gpus_of(int32_t pid, char *ret, size_t size);

#endif
