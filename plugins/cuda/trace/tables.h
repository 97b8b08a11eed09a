/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/trace/tables.h - the stored tables of what happened on the device and in CUDA's
 * calls, with their columns.
 *
 * tables_new() on [control].
 * Times on the device are CLOCK_MONOTONIC ns, as those of the host are: CUPTI's clock is compared
 * with it while records come.  ts is when a thing began.
 */
#ifndef CUDA_TRACE_TABLES_H
#define CUDA_TRACE_TABLES_H

#include "probing_sdk.h"

/* Columns that several tables have in common, in this order: where work was asked for, and what
 * for. */
enum place_column { PLACE_THREAD, PLACE_STEP, PLACE_MODULE, PLACE_CORRELATION, N_PLACE };

enum kernels_column {
    KERNELS_NAME,
    KERNELS_START,
    KERNELS_END,
    KERNELS_DURATION,
    KERNELS_DEVICE,
    KERNELS_CONTEXT,
    KERNELS_STREAM,
    KERNELS_GRID,
    KERNELS_BLOCK,
    KERNELS_REGISTERS,
    KERNELS_SHARED,
    KERNELS_QUEUED,
    KERNELS_LAUNCH,
    KERNELS_GRAPH,
    KERNELS_GRAPH_NODE,
    KERNELS_PLACE,
    N_KERNELS = KERNELS_PLACE + N_PLACE
};

enum stats_column {
    STATS_STEP,
    STATS_NAME,
    STATS_MODULE,
    STATS_DEVICE,
    STATS_COUNT,
    STATS_TOTAL,
    STATS_MIN,
    STATS_MAX,
    STATS_LAUNCH,
    STATS_QUEUED,
    STATS_ROWS,
    STATS_WINDOW,
    N_STATS
};

enum busy_column {
    BUSY_STEP,
    BUSY_DEVICE,
    BUSY_WALL,
    BUSY_BUSY,
    BUSY_KERNEL,
    BUSY_COLLECTIVE,
    BUSY_COPY,
    BUSY_IDLE,
    BUSY_IDLE_HOST,
    BUSY_IDLE_SYNC,
    BUSY_IDLE_COPY,
    BUSY_IDLE_OTHER,
    BUSY_KERNELS,
    BUSY_LAUNCH,
    BUSY_LOST,
    BUSY_WINDOW,
    N_BUSY
};

enum memcpy_column {
    MEMCPY_KIND,
    MEMCPY_BYTES,
    MEMCPY_START,
    MEMCPY_END,
    MEMCPY_DURATION,
    MEMCPY_SRC_KIND,
    MEMCPY_DST_KIND,
    MEMCPY_DEVICE,
    MEMCPY_SRC_DEVICE,
    MEMCPY_DST_DEVICE,
    MEMCPY_CONTEXT,
    MEMCPY_STREAM,
    MEMCPY_ASYNC,
    MEMCPY_GRAPH,
    MEMCPY_PLACE,
    N_MEMCPY = MEMCPY_PLACE + N_PLACE
};

enum memory_column {
    MEMORY_KIND,
    MEMORY_MEMORY_KIND,
    MEMORY_BYTES,
    MEMORY_ADDRESS,
    MEMORY_DURATION,
    MEMORY_DEVICE,
    MEMORY_CONTEXT,
    MEMORY_STREAM,
    MEMORY_ASYNC,
    MEMORY_PLACE,
    N_MEMORY = MEMORY_PLACE + N_PLACE
};

enum runtime_column {
    RUNTIME_NAME,
    RUNTIME_API,
    RUNTIME_DURATION,
    RUNTIME_RESULT,
    RUNTIME_PLACE,
    N_RUNTIME = RUNTIME_PLACE + N_PLACE
};

enum sync_column {
    SYNC_KIND,
    SYNC_DURATION,
    SYNC_CONTEXT,
    SYNC_STREAM,
    SYNC_EVENT,
    SYNC_PLACE,
    N_SYNC = SYNC_PLACE + N_PLACE
};

enum events_column {
    EVENTS_EVENT,
    EVENTS_KIND,
    EVENTS_MEMORY_KIND,
    EVENTS_MODULE,
    EVENTS_DEVICE,
    EVENTS_COUNT,
    EVENTS_BYTES,
    EVENTS_TOTAL,
    EVENTS_WAITED,
    EVENTS_ROWS,
    EVENTS_WINDOW,
    N_EVENTS
};

enum windows_column {
    WINDOWS_WINDOW,
    WINDOWS_END,
    WINDOWS_DURATION,
    WINDOWS_KERNELS,
    WINDOWS_LOST,
    N_WINDOWS
};

enum overhead_column { OVERHEAD_KIND, OVERHEAD_DURATION, OVERHEAD_THREAD, N_OVERHEAD };

struct trace_tables {
    struct probing_table *kernels, *stats, *busy, *memcpy, *memory, *runtime, *sync, *event_stats,
        *overhead, *windows;
};

/* 0, or what the host's table() gives. */
int tables_new(const struct probing_host *h, struct trace_tables *ret);

#endif
