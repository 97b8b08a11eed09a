/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/module_calls/nonfinite.h - the watch for numbers that are none.
 *
 * Threads: any that holds the GIL.
 */
#ifndef TORCH_MODULE_CALLS_NONFINITE_H
#define TORCH_MODULE_CALLS_NONFINITE_H

#include "python/python_api.h"

/* A module's forward is done (args[0] is the module): tell the first in a step that gave a NaN or
 * an infinity. */
void variables_watch(uint64_t module, PyObject *const *args, Py_ssize_t n, PyObject *result);
/* A backward is done: tell the module whose gradients are the first to have one. */
void variables_watch_gradients(void);

#endif
