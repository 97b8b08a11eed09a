/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/python/tensor.h - numbers of a tensor on the CPU, read from its memory.
 *
 * Threads: any that holds the GIL.
 */
#ifndef TORCH_PYTHON_TENSOR_H
#define TORCH_PYTHON_TENSOR_H

#include "python/python_api.h"

struct tensor_figures {
    int64_t n, n_nan, n_infinite;
    double min, max, mean, norm, first; /* of those that are numbers; first: whatever it is */
    const char *type;                   /* "float32" */
};

void tensor_find(void);
void tensor_forget(void);
/* Is it a plain tensor or parameter, of which reading runs no code of anybody's? */
bool tensor_is(PyObject *object);
/* Before attributes of tensors are asked for: the program's __torch_function__ modes, which would
 * hear of it, are off until tensor_loud().  false: they cannot be switched off, ask nothing. */
bool tensor_quiet(PyObject **ret_guard);
void tensor_loud(PyObject *guard);
/* 0; -EINVAL: it is no plain tensor; -EXDEV: not on the CPU; -E2BIG; -ENOTSUP: its type or layout
 */
int tensor_inspect(PyObject *tensor, struct tensor_figures *ret);
/* Find the place of the one number of a tensor of CUDA's.  0; -EINVAL: it is no such tensor;
 * -ENOTSUP: its type. */
struct tensor_place {
    uint64_t address;
    int device, kind;
    uint32_t width; /* bytes, at most 8 */
};
int tensor_place(PyObject *tensor, struct tensor_place *ret);
double tensor_number(int kind, const void *bytes);
/* Has it a NaN or an infinity?  A tensor that cannot be read has none. */
bool tensor_is_bad(PyObject *tensor);

#endif
