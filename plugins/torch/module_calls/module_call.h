/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/module_calls/module_call.h - hooks of Module.__call__, of Tensor.backward and of
 * autograd's engine.
 *
 * Threads: any that holds the GIL, except where a comment says otherwise.
 */
#ifndef TORCH_MODULE_CALLS_MODULE_CALL_H
#define TORCH_MODULE_CALLS_MODULE_CALL_H

#include "python/hook.h"
#include "steps/step.h"

PyObject *call_module(PyObject *hook, PyObject *const *args, size_t nargsf, PyObject *kwnames);
PyObject *call_backward(PyObject *engine, PyObject *args, PyObject *kwargs);
PyObject *call_tensor_backward(PyObject *hook, PyObject *const *args, size_t nargsf,
                               PyObject *kwnames);
/* A listener: other settings hold. */
void call_settings(struct settings *set);

#endif
