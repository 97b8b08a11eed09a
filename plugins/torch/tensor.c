/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/tensor.c - numbers of a tensor on the CPU, read from its memory.
 *
 * Threads: any that holds the GIL.
 * No operation of torch runs: nothing is allocated, dispatched, traced or waited for.  Tensors on
 * other devices, of other classes, or with holes in their memory are not read.
 */
#include "tensor.h"

#include <errno.h>
#include <math.h>

#define ELEMENTS_MAX (INT64_C(1) << 22) /* a few milliseconds with the GIL held */

enum kind { F32, F64, F16, BF16, I64, I32, I16, I8, U8, BOOL, N_KINDS };

static PyObject *kinds[N_KINDS]; /* lock: the GIL; torch.float32 ..., owned */
static const char *const names[N_KINDS] = {"float32", "float64", "float16", "bfloat16", "int64",
                                           "int32",   "int16",   "int8",    "uint8",    "bool"};

void tensor_find(void)
{
    struct cpython *py = &torch_state.py;
    PyObject *torch = py->PyDict_GetItemString(py->PyImport_GetModuleDict(), "torch");
    for (int i = 0; i < N_KINDS && torch; i++)
        kinds[i] = py->PyObject_GetAttrString(torch, names[i]);
    py->PyErr_Clear();
}

void tensor_forget(void)
{
    for (int i = 0; i < N_KINDS; i++) {
        torch_state.py.Py_DecRef(kinds[i]);
        kinds[i] = NULL;
    }
}

bool tensor_is(PyObject *object)
{
    const PyObject *type = object_type(object);
    return type == torch_state.tensor_class || type == torch_state.parameter_class;
}

static double half(uint16_t bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double value = exponent == 0    ? ldexp(fraction, -24)
                   : exponent == 31 ? (fraction ? (double)NAN : (double)INFINITY)
                                    : ldexp(fraction | 1024, exponent - 25);
    return bits & 0x8000 ? -value : value;
}

static double value_at(enum kind kind, const char *p, int64_t i)
{
    uint32_t wide;
    uint16_t narrow;
    union {
        float f32;
        double f64;
        int64_t i64;
        int32_t i32;
        int16_t i16;
    } v;
    switch (kind) {
    case F32:
        memcpy(&v.f32, p + 4 * i, 4);
        return (double)v.f32;
    case F64:
        memcpy(&v.f64, p + 8 * i, 8);
        return v.f64;
    case F16:
        memcpy(&narrow, p + 2 * i, 2);
        return half(narrow);
    case BF16:
        memcpy(&narrow, p + 2 * i, 2);
        wide = (uint32_t)narrow << 16;
        memcpy(&v.f32, &wide, 4);
        return (double)v.f32;
    case I64:
        memcpy(&v.i64, p + 8 * i, 8);
        return (double)v.i64;
    case I32:
        memcpy(&v.i32, p + 4 * i, 4);
        return v.i32;
    case I16:
        memcpy(&v.i16, p + 2 * i, 2);
        return v.i16;
    case I8:
        return (signed char)p[i];
    case U8:
    case BOOL:
        return (unsigned char)p[i];
    case N_KINDS:
        break;
    }
    return (double)NAN;
}

static void add_up(struct tensor_figures *f, enum kind kind, const char *p)
{
    double sum = 0, squares = 0;
    f->min = (double)INFINITY;
    f->max = -(double)INFINITY;
    for (int64_t i = 0; i < f->n; i++) {
        double v = value_at(kind, p, i);
        if (v != v) {
            f->n_nan++;
            continue;
        }
        f->n_infinite += v - v != 0;
        f->min = v < f->min ? v : f->min;
        f->max = v > f->max ? v : f->max;
        sum += v;
        squares += v * v;
    }
    int64_t n = f->n - f->n_nan;
    f->mean = n ? sum / (double)n : (double)NAN;
    f->norm = sqrt(squares);
    f->first = f->n ? value_at(kind, p, 0) : (double)NAN;
}

static int64_t ask(PyObject *tensor, const char *method)
{
    struct cpython *py = &torch_state.py;
    PyObject *value = py->PyObject_CallMethod(tensor, method, NULL);
    int64_t n = -1;
    if (value && value == py->_Py_TrueStruct)
        n = 1;
    else if (value && value != py->_Py_FalseStruct)
        n = py->PyLong_AsLongLong(value);
    py->PyErr_Clear();
    py->Py_DecRef(value);
    return n;
}

static bool is_on_cpu(PyObject *tensor)
{
    struct cpython *py = &torch_state.py;
    PyObject *cpu = py->PyObject_GetAttrString(tensor, "is_cpu");
    py->PyErr_Clear();
    py->Py_DecRef(cpu); /* a constant of the interpreter */
    if (cpu)
        return cpu == py->_Py_TrueStruct;
    PyObject *device = py->PyObject_GetAttrString(tensor, "device"); /* torch before 1.13 */
    PyObject *type = device ? py->PyObject_GetAttrString(device, "type") : NULL;
    bool is = type && py->PyType_IsSubtype(object_type(type), py->PyUnicode_Type) &&
              py->PyUnicode_CompareWithASCIIString(type, "cpu") == 0;
    py->PyErr_Clear();
    py->Py_DecRef(type);
    py->Py_DecRef(device);
    return is;
}

int tensor_look(PyObject *tensor, struct tensor_figures *ret)
{
    struct cpython *py = &torch_state.py;
    struct tensor_figures f = {.n = 0};
    if (!tensor_is(tensor))
        return -EINVAL;
    if (!is_on_cpu(tensor))
        return -EXDEV;
    PyObject *dtype = py->PyObject_GetAttrString(tensor, "dtype");
    py->PyErr_Clear();
    py->Py_DecRef(dtype); /* torch holds its types */
    int kind = 0;
    while (kind < N_KINDS && kinds[kind] != dtype)
        kind++;
    f.n = ask(tensor, "numel");
    if (!dtype || kind == N_KINDS || f.n < 0 || ask(tensor, "is_contiguous") != 1)
        return -ENOTSUP;
    if (f.n > ELEMENTS_MAX)
        return -E2BIG;
    int64_t address = f.n ? ask(tensor, "data_ptr") : 0;
    if (f.n && address <= 0) /* its memory was given back */
        return -ENOTSUP;
    f.type = names[kind];
    add_up(&f, (enum kind)kind, (const char *)(uintptr_t)address);
    *ret = f;
    return 0;
}
