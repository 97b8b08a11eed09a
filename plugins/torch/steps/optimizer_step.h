/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/steps/optimizer_step.h - the hooks of step() of optimizers and GradScalers.
 *
 * Threads: any that holds the GIL.
 */
#ifndef TORCH_STEPS_OPTIMIZER_STEP_H
#define TORCH_STEPS_OPTIMIZER_STEP_H

#include "python/hook.h"

/* Hooks of Optimizer._optimizer_step_code(), Optimizer.add_param_group() and GradScaler.step() */
PyObject *step_code(PyObject *hook, PyObject *const *args, size_t nargsf, PyObject *kwnames);
PyObject *step_group(PyObject *hook, PyObject *const *args, size_t nargsf, PyObject *kwnames);
PyObject *step_scaler(PyObject *hook, PyObject *const *args, size_t nargsf, PyObject *kwnames);
/* Hook step() of an optimizer that is there, and of its class. */
void step_wrap(PyObject *optimizer);
/* Likewise of the classes derived from this one. */
void step_wrap_classes(PyObject *class);

#endif
