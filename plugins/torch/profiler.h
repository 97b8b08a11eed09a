/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/profiler.h - torch's own profiler.
 *
 * Threads: any that holds the GIL.
 */
#ifndef PLUGINS_TORCH_PROFILER_H
#define PLUGINS_TORCH_PROFILER_H

#include "torch.h"

struct profiler_reason { /* why something did not work, for people */
    char text[240];
};

bool profiler_runs(void); /* on this thread */
bool profiler_start(struct profiler_reason *ret);
/* torch's results, new reference; NULL: it did not work. */
PyObject *profiler_stop(struct profiler_reason *ret);

#endif
