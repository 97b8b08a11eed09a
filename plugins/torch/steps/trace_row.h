/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/steps/trace_row.h - the table python.torch_trace.
 *
 * Threads: any that holds the GIL.
 */
#ifndef TORCH_STEPS_TRACE_ROW_H
#define TORCH_STEPS_TRACE_ROW_H

#include "device/device.h"
#include "steps/coordinates.h"

enum {
    COL_SEQ = N_COORDINATES,
    COL_MODULE,
    COL_STAGE,
    COL_DURATION,
    COL_TIME_OFFSET,
    COL_DEVICE,
    COL_ALLOCATED,
    COL_ALLOCATED_DELTA,
    COL_MAX_ALLOCATED,
    COL_MAX_ALLOCATED_DELTA,
    COL_CACHED,
    COL_MAX_CACHED,
    N_TRACE,
    N_TRACE_SHORT = COL_ALLOCATED /* of a row without memory: what is left out at the end is NULL */
};

enum stage {
    STAGE_FORWARD,
    STAGE_RECOMPUTED,
    STAGE_BACKWARD,
    STAGE_STEP,
    STAGE_SKIPPED,
    STAGE_DATA,
    N_STAGES
};

extern const struct probing_table_desc trace_table;
/* start(): what all rows have in common is not known. */
void trace_reset(void);
/* steps.row has changed. */
void trace_row_changed(void);
/* A row that is no module's.  begin_ns: 0 when it was not seen. */
void trace_add(enum stage stage, uint64_t name, uint64_t begin_ns, uint64_t end_ns);
/* before: NULL when it is not known. */
void trace_put_memory(union probing_cell *row, const struct memory *before,
                      const struct memory *now);

#endif
