/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/trace/device_time.h - what devices did with their time: rows of cuda.device_time.
 *
 * Threads: one at a time.
 * Work of all streams is laid over each other; what began before work that has been counted already
 * counts from there on.
 */
#ifndef CUDA_TRACE_DEVICE_TIME_H
#define CUDA_TRACE_DEVICE_TIME_H

#include <stdbool.h>

#include "trace/tables.h"

#define DEVICES 64u      /* more are not counted */
#define HOST_WAITS 4096u /* the last ones that are known */

struct device_work {
    uint64_t start_ns, end_ns;
    uint64_t launch_ns, launch_end_ns; /* the call that asked for it; 0: not seen */
    uint32_t device, thread;
    int64_t step; /* PROBING_NULL_I64: not known */
    enum { WORK_KERNEL, WORK_COLLECTIVE, WORK_COPY } kind;
};

struct host_wait { /* a call that returned when the device had done something */
    uint64_t begin_ns, end_ns;
    uint32_t thread;
    bool copies;
};

struct device_row {             /* sums since `from_ns`; from_ns 0: nothing has been seen */
    uint64_t from_ns, until_ns; /* until: all that ran has ended */
    uint64_t kernel_until_ns;   /* likewise, of kernels */
    uint64_t other_until_ns;    /* likewise, of all but collectives */
    uint64_t busy, kernel, other, idle, idle_host, idle_sync, idle_copy;
    uint64_t kernels, launch;
    int64_t step;
};

struct device_time {
    struct device_row devices[DEVICES];
    struct host_wait waits[HOST_WAITS];
    uint64_t n_waits; /* in all; the next goes to n_waits % HOST_WAITS */
};

int device_time_new(struct device_time **ret); /* 0 or -ENOMEM */
void device_time_free(struct device_time *d);
void device_time_forget(struct device_time *d);
void device_time_waited(struct device_time *d, const struct host_wait *w);
/* In the order of their starts, as far as they are known. */
void device_time_worked(struct device_time *d, const struct device_work *w);
/* A row for each device that has worked since the last one. */
void device_time_write(struct device_time *d, const struct probing_host *host,
                       struct probing_table *table, uint64_t lost, int64_t window);

#endif
