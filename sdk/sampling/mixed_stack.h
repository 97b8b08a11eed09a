/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/sampling/mixed_stack.h - one stack of native and Python frames.
 *
 * Its owner's thread only.
 */
#ifndef SAMPLING_MIXED_STACK_H
#define SAMPLING_MIXED_STACK_H

#include "sample_pool.h"
#include "stack_table.h"
#include "unwind.h"

#define MERGE_NATIVE 512                              /* native frames at most */
#define MERGE_FRAMES (MERGE_NATIVE + SLOT_PYTHON + 3) /* and marks */

struct merge_native {
    uint64_t ips[MERGE_NATIVE], sps[MERGE_NATIVE]; /* as unwind_stack() gives them */
    uint32_t n;
};

/* Frames of both kinds, innermost first, into ret (MERGE_FRAMES); how many.  They are merged where
 * both sides agree (lib/stack/frame_merge.h); else the Python frames alone are shown: they are
 * certain.  MARK_BROKEN stands where the native stack broke off, or outermost when none of it is
 * shown; and a frame says how many Python frames were left out where they are missing. */
uint32_t merge_stacks(struct stacks *stacks, const struct probing_python_look *look,
                      const struct merge_native *native, enum unwind_end end, uint32_t *ret);

/* The same for a thread that waits for a CPU: its registers are not known, and its Python frames do
 * not change. */
uint32_t merge_ready(struct stacks *stacks, const struct probing_python_look *look, uint32_t *ret);

#endif
