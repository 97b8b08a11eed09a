/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/steps/step_timing.h - the table python.torch_step_timing.
 *
 * Threads: any that holds the GIL.
 */
#ifndef TORCH_STEPS_STEP_TIMING_H
#define TORCH_STEPS_STEP_TIMING_H

#include "steps/step.h"

extern const struct probing_table_desc timing_table;
/* A step ends on this thread: its row. */
void timing_add(const struct thread *t, uint64_t end_ns);

#endif
