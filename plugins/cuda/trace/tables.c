/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/trace/tables.c - the tables' columns.
 *
 * Threads: as tables.h says.
 */
#include "trace/tables.h"

#define NS(name, doc) PROBING_I64_COLUMN(name, PROBING_NS, doc)
#define NUMBER(name, doc) PROBING_I64_COLUMN(name, PROBING_PLAIN, doc)
#define COUNT(name, doc) PROBING_I64_COLUMN(name, PROBING_COUNT, doc)
#define SIZE(name, doc) PROBING_I64_COLUMN(name, PROBING_BYTES, doc)
#define TEXT(name, doc) PROBING_STR_COLUMN(name, doc)

#define PLACE_COLUMNS                                                                              \
    NUMBER("thread_id", "the thread that asked for it; NULL: its call was not seen"),              \
        COUNT("step", "training step in which it was asked for (local_step of "                    \
                      "python.torch_trace); NULL: plugin torch counts none, or not known"),        \
        TEXT("module", "innermost torch module or optimizer whose call asked for it; NULL: none, " \
                       "a step that is not sampled, or not known"),                                \
        NUMBER("correlation_id", "CUPTI's number of the call of CUDA that asked for it")
#define DEVICE_COLUMN NUMBER("device", "number of the device in this process, from 0")
#define CONTEXT_COLUMN NUMBER("context", "CUPTI's number of the CUDA context")
#define STREAM_COLUMN NUMBER("stream", "CUPTI's number of the stream")
#define WINDOW_COLUMN                                                                  \
    NUMBER("window_id",                                                                \
           "of the times in which CUDA was traced, the one that these are of (row of " \
           "cuda.windows when it has ended); nothing is known of between them")
#define SPAN_COLUMNS                                                                        \
    NS("start_ns", "when it began on the device, CLOCK_MONOTONIC (ts is the same moment)"), \
        NS("end_ns", "when it ended there, CLOCK_MONOTONIC"), NS("duration_ns", "between these")

static const struct probing_column kernels[N_KERNELS] = {
    TEXT("name",
         "of the kernel's function with its parameters, as in C++; what is longer than 1,023 "
         "bytes is cut, with a number that others have not"),
    SPAN_COLUMNS,
    DEVICE_COLUMN,
    CONTEXT_COLUMN,
    STREAM_COLUMN,
    TEXT("grid", "blocks in the grid, XxYxZ"),
    TEXT("block", "threads in a block, XxYxZ"),
    COUNT("registers", "registers that each thread has"),
    SIZE("shared_bytes", "shared memory of a block, static and dynamic"),
    NS("queued_ns", "between the begin of the call that launched it and its own; NULL: not seen"),
    NS("launch_ns", "time that the call that launched it took on the host"),
    NUMBER("graph_id", "CUDA graph that it is a node of; NULL: none"),
    NUMBER("graph_node_id", "of the node there"),
    PLACE_COLUMNS};

static const struct probing_column stats[N_STATS] = {
    COUNT("step", "training step in which these were launched; NULL: not known"),
    TEXT("name", "as in cuda.kernels"),
    TEXT("module", "as in cuda.kernels"),
    DEVICE_COLUMN,
    COUNT("count", "kernels"),
    NS("total_ns", "sum of their durations"),
    NS("min_ns", "of the shortest"),
    NS("max_ns", "of the longest"),
    NS("launch_ns", "sum of the time that the calls took that launched them; NULL: none was seen"),
    NS("queued_ns", "sum of the times between launch and begin; NULL: no launch was seen"),
    COUNT("kernel_rows", "how many of them have a row of their own in cuda.kernels"),
    WINDOW_COLUMN};

static const struct probing_column busy[N_BUSY] = {
    COUNT("step", "training step in which the last of this work was asked for; NULL: not known"),
    DEVICE_COLUMN,
    NS("wall_ns", "time that the row is about, which ends at ts"),
    NS("busy_ns", "of it, in which at least one kernel or copy ran"),
    NS("kernel_ns", "in which at least one kernel ran"),
    NS("collective_ns", "in which kernels of NCCL ran and nothing else did"),
    NS("copy_ns", "in which copies or sets ran and no kernel did"),
    NS("idle_ns", "in which nothing ran"),
    NS("idle_host_ns", "of idle: what ended it was not launched yet, as the host was late"),
    NS("idle_sync_ns", "of idle: likewise, but when it began the host was in a call that waits for "
                       "the device or for memory: as long as it had waited there"),
    NS("idle_copy_ns", "of idle: likewise, in a copy that returns when it is done"),
    NS("idle_other_ns", "of idle: what ended it was launched before, or its launch was not seen"),
    COUNT("kernels", "kernels that began in that time"),
    NS("launch_ns", "time that the calls took that launched them"),
    COUNT("lost",
          "records of all devices that CUPTI has dropped in that time: then it is a lower bound"),
    WINDOW_COLUMN};

static const struct probing_column copies[N_MEMCPY] = {
    TEXT("kind", "HtoD, DtoH, DtoD, HtoH, PtoP ..., as CUPTI has it; memset"),
    SIZE("bytes", "copied or set"),
    SPAN_COLUMNS,
    TEXT("src_kind", "memory it comes from: pageable, pinned, device, array, managed ..."),
    TEXT("dst_kind", "memory it goes to"),
    DEVICE_COLUMN,
    NUMBER("src_device", "of a copy between devices; else NULL"),
    NUMBER("dst_device", "of a copy between devices; else NULL"),
    CONTEXT_COLUMN,
    STREAM_COLUMN,
    NUMBER("async", "1: the call did not wait for it"),
    NUMBER("graph_id", "CUDA graph that it is a node of; NULL: none"),
    PLACE_COLUMNS};

static const struct probing_column memory[N_MEMORY] = {
    TEXT("kind", "alloc, free"),
    TEXT("memory_kind", "device, pinned, managed ..."),
    SIZE("bytes", "of the block"),
    NUMBER("address", "of the block"),
    NS("duration_ns", "time that the call took; NULL: it was not seen"),
    DEVICE_COLUMN,
    CONTEXT_COLUMN,
    STREAM_COLUMN,
    NUMBER("async", "1: in the order of a stream"),
    PLACE_COLUMNS};

static const struct probing_column runtime[N_RUNTIME] = {
    TEXT("name", "of the function: cudaStreamSynchronize, cuLaunchKernel ..."),
    TEXT("api", "runtime or driver"), NS("duration_ns", "time that the call took"),
    NUMBER("result", "what it returned: cudaError_t or CUresult, 0 when it worked"), PLACE_COLUMNS};

static const struct probing_column sync[N_SYNC] = {
    TEXT("kind", "what was waited for: event, stream, context; stream wait event: the stream did"),
    NS("duration_ns", "time that the host waited"),
    CONTEXT_COLUMN,
    STREAM_COLUMN,
    NUMBER("event_id", "CUPTI's number of the event; NULL: none"),
    PLACE_COLUMNS};

static const struct probing_column events[N_EVENTS] = {
    TEXT("event", "memcpy, sync or memory: the table that has a row for each of them"),
    TEXT("kind", "as there: HtoD, memset; stream, event; alloc, free ..."),
    TEXT("memory_kind", "the memory that is copied from, set, allocated or freed; NULL: of a wait"),
    TEXT("module", "that asked for them, as in that table"),
    DEVICE_COLUMN,
    COUNT("count", "how many there were"),
    SIZE("bytes", "sum of their bytes; NULL: of waits"),
    NS("total_ns", "sum of their times; of allocations: of the calls that were seen"),
    COUNT("waited", "of copies: those for which the call waited, not asynchronous"),
    COUNT("event_rows", "how many of them have a row of their own"),
    WINDOW_COLUMN};

static const struct probing_column overhead[N_OVERHEAD] = {
    TEXT("kind", "driver compiler, buffer flush, instrumentation, resource ..."),
    NS("duration_ns", "how long it took"),
    NUMBER("thread_id", "the thread that it took it from; NULL: another object's")};

static const struct probing_column windows[N_WINDOWS] = {
    NUMBER("window_id", "its number since the plugin was loaded, from 1"),
    NS("end_ns", "when tracing ended, CLOCK_MONOTONIC (ts is when it began)"),
    NS("duration_ns", "between these: cuda.window, or until it was switched off or stepped aside"),
    COUNT("kernels", "kernels that were seen in it"),
    COUNT("lost", "records that CUPTI has dropped in it")};

int tables_new(const struct probing_host *h, struct trace_tables *ret)
{
    static const struct probing_table_desc descs[] = {
        PROBING_TABLE("kernels", kernels, "kernels that ran on the device, one by one"),
        PROBING_TABLE(
            "kernel_stats", stats,
            "all kernels by step, name and module, also those without a row of their own; a "
            "step that takes more than a second has several rows, to be added"),
        PROBING_TABLE("device_time", busy,
                      "what each device did with its time, and why it did nothing"),
        PROBING_TABLE("memcpy", copies, "copies and sets of memory by the device"),
        PROBING_TABLE("memory", memory, "device and pinned memory that was allocated and freed"),
        PROBING_TABLE("runtime", runtime,
                      "calls of CUDA's runtime and driver that took long (cuda.min_call_duration)"),
        PROBING_TABLE("sync", sync, "waits for the device"),
        PROBING_TABLE("event_stats", events,
                      "all copies, sets, waits and allocations, about once a second, by kind and "
                      "module, also those without a row of their own"),
        PROBING_TABLE("overhead", overhead, "what tracing itself took, as CUPTI tells"),
        PROBING_TABLE("windows", windows, "times in which CUDA was traced, when they have ended")};
    struct probing_table **tables[] = {&ret->kernels,  &ret->stats,   &ret->busy, &ret->memcpy,
                                       &ret->memory,   &ret->runtime, &ret->sync, &ret->event_stats,
                                       &ret->overhead, &ret->windows};
    int rc = 0;
    for (size_t i = 0; i < PROBING_LENGTH(descs) && rc == 0; i++)
        rc = h->table(h, &descs[i], tables[i]);
    return rc;
}
