/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/variables/variables.h - rows of python.variables.
 *
 * Threads: any that holds the GIL.
 */
#ifndef TORCH_VARIABLES_VARIABLES_H
#define TORCH_VARIABLES_VARIABLES_H

#include "variables/exprs.h"

/* func: interned.  type, number: NULL: it has none. */
void variables_add(uint64_t func, const char *name, const char *type, const double *number,
                   const char *text);
void variables_add_number(uint64_t func, const char *name, const char *type, double number);
/* Add to a step before: a tensor's number, which the device has told now. */
void variables_add_later(uint64_t step, uint64_t func, const char *name, double number);
/* Why tensor_inspect() has not read it, for ever; meta: it is a meta tensor. */
const char *variables_why_not(int rc, bool meta);

/* loss.c: names, of whatever function, that need no variable */
enum known { KNOWN_NOTHING, KNOWN_LOSS, KNOWN_RATE, KNOWN_NORM, N_KNOWN };
enum known loss_known(const struct expression *e); /* loss, lr, grad_norm */
bool loss_is_one(PyObject *value);                 /* a number, or a tensor of one; tensors quiet */
/* Add the row of this thread's step; false: it is not known. */
bool loss_add(enum known which, const char *name);

#endif
