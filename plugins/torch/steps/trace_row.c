/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/steps/trace_row.c - the table python.torch_trace: what its rows have in common, and
 * those that are no module's.
 *
 * Threads: any that holds the GIL.
 */
#include "steps/trace_row.h"

#include <math.h>

#include "python/pyobject.h"
#include "steps/call_thread.h"
#include "steps/recent_calls.h"

static const struct probing_column columns[N_TRACE] = {
    COORDINATE_COLUMNS,
    PROBING_I64_COLUMN(
        "seq", PROBING_COUNT,
        "number of the call in this step, from 0, in the order in which calls began"),
    PROBING_STR_COLUMN("module",
                       "name as in named_modules(); for a root its class or an optimizer"),
    PROBING_STR_COLUMN(
        "stage", "what has ended: 'post forward', 'recomputed forward' (inside a backward, as a "
                 "checkpoint's), 'post backward', 'post step', 'skipped step' (a GradScaler's, "
                 "after an overflow) or 'post data' (a DataLoader's next())"),
    PROBING_F64_COLUMN("duration", PROBING_SECONDS,
                       "time inside the call; on a GPU until its work is queued; for a recomputed "
                       "forward until the checkpoint had what it needs"),
    PROBING_F64_COLUMN("time_offset", PROBING_SECONDS,
                       "time from the begin of the step to the end of this call"),
    PROBING_STR_COLUMN("device", "device of the module's first own parameter; NULL: it has none"),
    PROBING_F64_COLUMN("allocated", PROBING_MB,
                       "device memory in use; NULL: not measured, as without a GPU"),
    PROBING_F64_COLUMN("allocated_delta", PROBING_MB,
                       "change of `allocated` by this call; NULL: not measured"),
    PROBING_F64_COLUMN("max_allocated", PROBING_MB, "peak of it; NULL: not measured"),
    PROBING_F64_COLUMN("max_allocated_delta", PROBING_MB,
                       "change of the peak by this call; NULL: not measured"),
    PROBING_F64_COLUMN("cached", PROBING_MB,
                       "device memory held by torch's allocator; NULL: not measured"),
    PROBING_F64_COLUMN("max_cached", PROBING_MB, "peak of it; NULL: not measured"),
};

const struct probing_table_desc trace_table =
    PROBING_TABLE("python.torch_trace", columns, "every call of every torch module and optimizer");

void trace_reset(void)
{
    static const char *const stages[N_STAGES] = {
        [STAGE_FORWARD] = "post forward",   [STAGE_RECOMPUTED] = "recomputed forward",
        [STAGE_BACKWARD] = "post backward", [STAGE_STEP] = "post step",
        [STAGE_SKIPPED] = "skipped step",   [STAGE_DATA] = "post data"};
    for (int i = 0; i < N_TRACE; i++)
        steps.row[i] = probing_null(columns[i].type);
    for (int i = 0; i < N_STAGES; i++)
        steps.stages[i] = object_intern(stages[i]);
    trace_row_changed();
}

void trace_row_changed(void)
{
    memcpy(steps.forward_row, steps.row, sizeof(steps.row));
    steps.forward_row[COL_STAGE].u = steps.stages[STAGE_FORWARD];
}

void trace_add(enum stage stage, uint64_t name, uint64_t begin_ns, uint64_t end_ns)
{
    union probing_cell row[N_TRACE];
    memcpy(row, steps.row, sizeof(row));
    row[COL_LOCAL_STEP].i = (int64_t)steps.step;
    row[COL_SEQ].i = steps.seq++;
    row[COL_MODULE].u = name;
    row[COL_STAGE].u = steps.stages[stage];
    if (begin_ns)
        row[COL_DURATION].f = probing_seconds(end_ns - begin_ns);
    if (steps.begin_ns)
        row[COL_TIME_OFFSET].f = probing_seconds(end_ns - steps.begin_ns);
    if (recent_is_wanted() && begin_ns)
        recent_add_call(&(struct recent_call){.tid = call_thread()->tid,
                                              .begin_ns = begin_ns,
                                              .end_ns = end_ns,
                                              .step = steps.step,
                                              .name = name});
    struct memory memory; /* once a step costs nothing */
    if (stage != STAGE_DATA && memory_ask(/* device= */ -1, &memory))
        trace_put_memory(row, /* before= */ NULL, &memory);
    (void)torch_state.host->append(steps.trace, end_ns, row, N_TRACE, NULL, 0);
}

void trace_put_memory(union probing_cell *row, const struct memory *before,
                      const struct memory *now)
{
    row[COL_ALLOCATED].f = now->allocated;
    row[COL_MAX_ALLOCATED].f = now->max_allocated;
    row[COL_CACHED].f = now->cached;
    row[COL_MAX_CACHED].f = now->max_cached;
    double more = before ? now->allocated - before->allocated : (double)NAN;
    double peak = before ? now->max_allocated - before->max_allocated : (double)NAN;
    if (more == more)
        row[COL_ALLOCATED_DELTA].f = more;
    if (peak == peak)
        row[COL_MAX_ALLOCATED_DELTA].f = peak;
}
