/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/tensor.h - numbers of a tensor on the CPU, read from its memory.
 *
 * Threads: any that holds the GIL.
 */
#ifndef PLUGINS_TORCH_TENSOR_H
#define PLUGINS_TORCH_TENSOR_H

#include "torch.h"

struct tensor_figures {
    int64_t n, n_nan, n_infinite;
    double min, max, mean, norm, first; /* of those that are numbers; first: whatever it is */
    const char *type;                   /* "float32" */
};

void tensor_find(void);
void tensor_forget(void);
/* Is it a plain tensor or parameter, of which reading runs no code of anybody's? */
bool tensor_is(PyObject *object);
/* 0; -EINVAL: it is no plain tensor; -EXDEV: not on the CPU; -E2BIG; -ENOTSUP: its type or layout
 */
int tensor_look(PyObject *tensor, struct tensor_figures *ret);

#endif
