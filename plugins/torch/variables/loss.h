/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/variables/loss.h - what is known of a step without a variable of the program's.
 *
 * Threads: any that holds the GIL.
 */
#ifndef TORCH_VARIABLES_LOSS_H
#define TORCH_VARIABLES_LOSS_H

#include "python/hook.h"
#include "steps/step.h"
#include "variables/exprs.h"

/* Names, of whatever function, that need no variable. */
enum known { KNOWN_NOTHING, KNOWN_LOSS, KNOWN_RATE, KNOWN_NORM, N_KNOWN };
enum known loss_known(const struct expression *e); /* loss, lr, grad_norm */
bool loss_is_one(PyObject *value);                 /* a number, or a tensor of one; tensors quiet */
/* Add the row of this thread's step; false: it is not known. */
bool loss_add(enum known which, const char *name);

uint32_t loss_wanted(const char *exprs); /* bits of enum known, variables.h */
/* A top-level call of a module gave `result`. */
void loss_forward(const struct thread *t, PyObject *module, PyObject *result);
/* The engine's run_backward() is called. */
void loss_backward(const struct thread *t, PyObject *args, PyObject *kwargs);
/* This one steps. */
void loss_optimizer(const struct thread *t, PyObject *optimizer);
/* Hook of what gives a batch's loss, as Lightning's Strategy.training_step(). */
PyObject *loss_training_step(PyObject *hook, PyObject *const *args, size_t nargsf,
                             PyObject *kwnames);
void loss_find(void); /* hook what clips gradients */
void loss_forget(void);

#endif
