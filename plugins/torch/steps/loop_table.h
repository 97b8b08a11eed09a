/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/steps/loop_table.h - what the thread that ends steps is doing, and the memory of
 * the process.
 *
 * Threads: as each comment says.
 */
#ifndef TORCH_STEPS_LOOP_TABLE_H
#define TORCH_STEPS_LOOP_TABLE_H

#include "steps/step.h"

extern const struct probing_table_desc loop_table;
void loop_is(const struct thread *t); /* the one that ends steps; with the GIL */
void loop_ended(const struct thread *t, uint64_t end_ns); /* a step has ended on it */
void loop_inspect(uint64_t now_ns); /* once a second                                   [worker] */
int64_t loop_rss(void);     /* memory of the process, bytes; 0: the kernel does not tell    [any] */
int64_t loop_private(void); /* of it without files and shared memory, and what is swapped   [any] */
/* So much came with a run of torch's profiler for us: it is not the program's growth.      [any] */
void loop_kept(int64_t bytes);

#endif
