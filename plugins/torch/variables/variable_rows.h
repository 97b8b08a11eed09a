/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/variables/variable_rows.h - rows of python.variables.
 *
 * Threads: any that holds the GIL.
 */
#ifndef TORCH_VARIABLES_VARIABLE_ROWS_H
#define TORCH_VARIABLES_VARIABLE_ROWS_H

#include "python/python_api.h"

extern const struct probing_table_desc variables_table;

extern struct variables { /* lock: the GIL */
    struct probing_table *table;
    uint32_t known; /* bits of enum known, loss.h: what torch.variables has of it */
} variables;

/* func: interned.  type, number: NULL: it has none. */
void variables_add(uint64_t func, const char *name, const char *type, const double *number,
                   const char *text);
void variables_add_number(uint64_t func, const char *name, const char *type, double number);
/* Add to a step before: a tensor's number, which the device has told now. */
void variables_add_later(uint64_t step, uint64_t func, const char *name, double number);
/* Why tensor_inspect() has not read it, for ever; meta: it is a meta tensor. */
const char *variables_why_not(int rc, bool meta);
/* A tensor's number is to be read when its device has it; gives what device_number() does, 0 also
 * where torch.device_times is off. */
uint64_t variables_ticket(PyObject *tensor);

#endif
