/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/nonfinite.c - the watch for numbers that are none: the first module of a step that
 * gives a NaN or an infinity.
 *
 * Threads: any that holds the GIL.
 */
#include <stdio.h>

#include "tensor.h"
#include "variables.h"

#define TEXT_BYTES 256u
#define OUTPUTS_MAX 16
#define DEPTH_MAX 3 /* of lists, tuples and dicts in one another */

static uint64_t told_step, told_life; /* lock: the GIL; where a NaN was told last */

/* fn for a value, or for each of a list, tuple or dict of them, until it gives true. */
static bool each_tensor(PyObject *value, int depth, bool (*fn)(PyObject *, void *), void *arg)
{
    struct cpython *py = &torch_state.py;
    PyObject *type = object_type(value), *key, *item;
    if (tensor_is(value))
        return fn(value, arg);
    bool list = py->PyType_IsSubtype(type, py->PyList_Type);
    bool tuple = !list && py->PyType_IsSubtype(type, py->PyTuple_Type);
    bool dict = !list && !tuple && py->PyType_IsSubtype(type, py->PyDict_Type), found = false;
    Py_ssize_t n = list ? py->PyList_Size(value) : tuple ? py->PyTuple_Size(value) : 0, at = 0;
    for (Py_ssize_t i = 0; i < n && i < OUTPUTS_MAX && depth < DEPTH_MAX && !found; i++)
        found = each_tensor(list ? py->PyList_GetItem(value, i) : py->PyTuple_GetItem(value, i),
                            depth + 1, fn, arg);
    for (int i = 0; dict && i < OUTPUTS_MAX && depth < DEPTH_MAX && !found &&
                    py->PyDict_Next(value, &at, &key, &item);
         i++)
        found = each_tensor(item, depth + 1, fn, arg);
    return found;
}

static bool is_bad(PyObject *tensor, void *unused)
{
    (void)unused;
    return tensor_is_bad(tensor);
}

static bool count(PyObject *tensor, void *arg)
{
    struct tensor_figures f, *sum = arg;
    if (tensor_look(tensor, &f) == 0) {
        sum->n += f.n;
        sum->n_nan += f.n_nan;
        sum->n_infinite += f.n_infinite;
    }
    return false;
}

static void tell(uint64_t module, PyObject *const *args, Py_ssize_t n, PyObject *result)
{
    struct tensor_figures out = {.n = 0};
    char text[TEXT_BYTES], numbers[TEXT_BYTES / 2];
    bool before = false;
    (void)each_tensor(result, 0, count, &out);
    for (Py_ssize_t i = 1; i < n && i <= OUTPUTS_MAX && !before; i++)
        before = each_tensor(args[i], 0, is_bad, NULL);
    double bad = (double)(out.n_nan + out.n_infinite);
    (void)snprintf(numbers, sizeof(numbers), "%lld NaN and %lld infinite of %lld",
                   (long long)out.n_nan, (long long)out.n_infinite, (long long)out.n);
    (void)snprintf(text, sizeof(text), "%s in its output; %s",
                   bad > 0 ? numbers : "NaN or infinite, more numbers than are counted",
                   before ? "its input has some already" : "its input is finite");
    variables_add(module, "nonfinite", "Tensor", bad > 0 ? &bad : NULL, text);
}

void variables_watch(uint64_t module, PyObject *const *args, Py_ssize_t n, PyObject *result)
{
    PyObject *guard;
    if (told_life == torch_state.life && told_step == torch_state.step + 1)
        return;
    if (!tensor_quiet(&guard))
        return;
    if (each_tensor(result, 0, is_bad, NULL)) {
        told_life = torch_state.life;
        told_step = torch_state.step + 1;
        tell(module, args, n, result);
    }
    tensor_loud(guard);
}
