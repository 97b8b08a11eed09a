/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/profiler/kineto.h - torch's own profiler.
 *
 * Threads: any that holds the GIL.
 */
#ifndef TORCH_PROFILER_KINETO_H
#define TORCH_PROFILER_KINETO_H

#include "python/python_api.h"

struct profiler_reason { /* why something did not work, for people */
    char text[240];
};

bool profiler_runs(void); /* on this thread */
bool profiler_start(struct profiler_reason *ret);
/* torch's results, new reference; NULL: it did not work. */
PyObject *profiler_stop(struct profiler_reason *ret);

#endif
