/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/profiler/profile_run.h - a bounded run of torch's own profiler: from one step's end
 * to another.
 *
 * Threads: as each comment says.
 */
#ifndef TORCH_PROFILER_PROFILE_RUN_H
#define TORCH_PROFILER_PROFILE_RUN_H

#include "python/hook.h"
#include "steps/step.h"

struct capture_order {
    uint32_t skip, steps; /* to leave out first; to capture */
    uint32_t seconds;     /* in which it has to be done */
};
struct capture_about { /* what a capture was, and what it cost the loop */
    int64_t first_step, steps, asked;
    char note[120]; /* why it ended before the steps asked for were done; "": it did not */
    uint64_t begin_ns, end_ns;  /* host's clock; of what was captured */
    uint64_t start_ns, stop_ns; /* the loop's thread stood in torch's profiler for so long */
};

/* A step has ended on this thread: begin or end what was asked for.  With the GIL. */
void capture_step(struct thread *t);
/* In the place of torch's own functions that prepare, start and stop its profiler: the program's
 * own use goes first. */
PyObject *capture_others(PyObject *hook, PyObject *const *args, size_t nargsf, PyObject *kwnames);
/* start() and stop() of the plugin. */
void capture_begin(void); /* with the GIL */
int capture_quit(void);   /* [control]; -EBUSY: the profiler runs and no step ends */

/* [worker] Wait until the steps have been captured, or as many as there were in the time and the
 * memory for it; gives torch's results, a new reference.  -errno after fail(); -ECANCELED: the
 * client has gone. */
int capture_run(const struct probing_reply *out, const struct capture_order *order,
                PyObject **ret_results, struct capture_about *ret_about);

/* profile_command.c: the command torch_profile, the tables torch.ops and torch.capture. */
extern const struct probing_command trace_command;
extern const struct probing_table_desc ops_table, capture_table;

#endif
