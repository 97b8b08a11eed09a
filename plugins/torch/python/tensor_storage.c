/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/python/tensor_storage.c - where a tensor's bytes are, and how many: of its storage,
 * which views share.
 *
 * Threads: any that holds the GIL.
 * No operation of torch runs.  Devices other than the CPU and CUDA's are not asked for addresses:
 * some would have to wait for their work.
 */
#include "python/tensor_storage.h"
#include "python/pyobject.h"
#include "python/tensor.h"

#include <stdio.h>

static struct {
    PyObject *address, *storage, *offset, *width, *numel, *is_view; /* functions, owned */
    bool is_of_storage; /* `address` is the storage's, not the tensor's in it */
    PyObject *is_cpu, *is_cuda, *is_leaf, *device, *dtype, *shape, *grad_fn; /* names, owned */
} known;                                                                     /* lock: the GIL */

static PyObject *tensor_method(const char *name)
{
    return object_get(python.tensor_class, name);
}

void storage_find(void)
{
    struct cpython *py = &python.api;
    known.address = object_get(object_module("torch._C"), "_data_address"); /* torch 2 */
    known.is_of_storage = known.address != NULL;
    if (!known.address)
        known.address = tensor_method("data_ptr");
    known.storage = tensor_method("untyped_storage");
    if (!known.storage) /* torch 1 */
        known.storage = tensor_method("_storage");
    known.offset = tensor_method("storage_offset");
    known.width = tensor_method("element_size");
    known.numel = tensor_method("numel");
    known.is_view = tensor_method("_is_view");
    known.is_cpu = py->PyUnicode_InternFromString("is_cpu");
    known.is_cuda = py->PyUnicode_InternFromString("is_cuda");
    known.is_leaf = py->PyUnicode_InternFromString("is_leaf");
    known.device = py->PyUnicode_InternFromString("device");
    known.dtype = py->PyUnicode_InternFromString("dtype");
    known.shape = py->PyUnicode_InternFromString("shape");
    known.grad_fn = py->PyUnicode_InternFromString("grad_fn");
    py->PyErr_Clear();
}

void storage_forget(void)
{
    PyObject **held[] = {&known.address, &known.storage, &known.offset, &known.width,
                         &known.numel,   &known.is_view, &known.is_cpu, &known.is_cuda,
                         &known.is_leaf, &known.device,  &known.dtype,  &known.shape,
                         &known.grad_fn};
    object_drop_all(held, PROBING_LENGTH(held));
}

/* The whole number that a function of torch's gives of a tensor; below 0: none. */
static int64_t call_for_number(PyObject *function, PyObject *tensor)
{
    struct cpython *py = &python.api;
    PyObject *value = function ? cpython_vectorcall(py, function, &tensor, 1, NULL) : NULL;
    int64_t n = value ? py->PyLong_AsLongLong(value) : -1;
    py->PyErr_Clear();
    py->Py_DecRef(value);
    return n;
}

/* New reference, NULL: it has none. */
static PyObject *get_attribute(PyObject *tensor, PyObject *name)
{
    PyObject *value = name ? python.api.PyObject_GetAttr(tensor, name) : NULL;
    python.api.PyErr_Clear();
    return value;
}

/* A bool; false where it is not told. */
static bool is_true(PyObject *tensor, PyObject *name)
{
    PyObject *value = get_attribute(tensor, name);
    python.api.Py_DecRef(value); /* a constant of the interpreter */
    return value == python.api._Py_TrueStruct;
}

void storage_place(PyObject *tensor, struct storage_view *ret)
{
    *ret = (struct storage_view){.numel = call_for_number(known.numel, tensor),
                                 .in_graph = !is_true(tensor, known.is_leaf),
                                 .is_parameter = object_type(tensor) == python.parameter_class};
    if (!is_true(tensor, known.is_cpu) && !is_true(tensor, known.is_cuda))
        return;
    int64_t address = call_for_number(known.address, tensor);
    int64_t offset = known.is_of_storage ? 0 : call_for_number(known.offset, tensor);
    int64_t width = known.is_of_storage ? 1 : call_for_number(known.width, tensor);
    if (address < 0 || offset < 0 || width <= 0 || offset > INT64_MAX / 64 / width)
        return;
    ret->is_readable = true;
    if (address > offset * width)
        ret->base = (uint64_t)(address - offset * width);
}

int64_t storage_bytes(PyObject *tensor)
{
    struct cpython *py = &python.api;
    PyObject *storage =
        known.storage ? cpython_vectorcall(py, known.storage, &tensor, 1, NULL) : NULL;
    py->PyErr_Clear();
    int64_t n = storage ? object_ask(storage, "nbytes") : PROBING_NULL_I64;
    py->Py_DecRef(storage);
    return n;
}

/* "[2, 3]" */
static void put_shape(PyObject *tensor, char *room, size_t size)
{
    struct cpython *py = &python.api;
    PyObject *shape = get_attribute(tensor, known.shape);
    Py_ssize_t n = shape && object_is(shape, py->PyTuple_Type) ? py->PyTuple_Size(shape) : -1;
    size_t at = (size_t)snprintf(room, size, n < 0 ? "" : "[");
    for (Py_ssize_t i = 0; i < n && at + 24 < size; i++)
        at += (size_t)snprintf(room + at, size - at, "%s%lld", i ? ", " : "",
                               py->PyLong_AsLongLong(py->PyTuple_GetItem(shape, i)));
    if (n >= 0)
        (void)snprintf(room + at, size - at, "%s]", at + 24 < size ? "" : ", ...");
    py->PyErr_Clear();
    py->Py_DecRef(shape);
}

/* "MulBackward0".  A view's node may have to be made anew, so views are not asked. */
static void put_op(PyObject *tensor, char *room, size_t size)
{
    struct cpython *py = &python.api;
    PyObject *view = known.is_view ? cpython_vectorcall(py, known.is_view, &tensor, 1, NULL) : NULL;
    py->PyErr_Clear();
    py->Py_DecRef(view); /* a constant of the interpreter */
    PyObject *node = view == py->_Py_FalseStruct ? get_attribute(tensor, known.grad_fn) : NULL;
    if (node && node != py->_Py_NoneStruct)
        (void)snprintf(room, size, "%s", object_class_text(node));
    py->Py_DecRef(node);
}

void storage_words(PyObject *tensor, const struct storage_view *place, struct tensor_words *ret)
{
    ret->op[0] = '\0';
    object_text(get_attribute(tensor, known.device), ret->device, sizeof(ret->device));
    object_text(get_attribute(tensor, known.dtype), ret->dtype, sizeof(ret->dtype));
    if (strncmp(ret->dtype, "torch.", 6) == 0)
        memmove(ret->dtype, ret->dtype + 6, strlen(ret->dtype + 6) + 1);
    put_shape(tensor, ret->shape, sizeof(ret->shape));
    if (place->in_graph)
        put_op(tensor, ret->op, sizeof(ret->op));
}
