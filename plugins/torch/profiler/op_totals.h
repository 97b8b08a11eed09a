/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/profiler/op_totals.h - operations of torch, added up by name: how often, how long,
 * how much of it was their own.
 *
 * Threads: one at a time.  It knows neither Python nor torch.
 */
#ifndef TORCH_PROFILER_OP_TOTALS_H
#define TORCH_PROFILER_OP_TOTALS_H

#include <stdbool.h>
#include <stdint.h>

#define OPS_EVENTS_MAX (UINT32_C(1) << 23) /* 32 bytes each while a capture is read */

struct ops;

struct ops_sum {
    const char *name, *kind; /* live with the ops; kind: as torch's profiler calls it */
    uint64_t calls, total_ns, self_ns, longest_ns;
};

struct ops *ops_new(void); /* NULL: no memory */
void ops_free(struct ops *o);
/* One event.  lane: a thread, or a stream of a device; what lies inside of another one on the same
 * lane is not that one's own time.  0, -ENOMEM, -E2BIG: there are OPS_EVENTS_MAX already. */
int ops_add(struct ops *o, const char *name, const char *kind, uint64_t lane, uint64_t begin_ns,
            uint64_t duration_ns);
/* All have come: find own times, and let go of the single events. */
void ops_finish(struct ops *o);
/* Sums in the order of their own time, the largest first. */
uint32_t ops_count(const struct ops *o);
const struct ops_sum *ops_at(const struct ops *o, uint32_t i);

#endif
