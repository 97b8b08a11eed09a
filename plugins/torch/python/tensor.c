/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/python/tensor.c - numbers of a tensor on the CPU, read from its memory.
 *
 * Threads: any that holds the GIL.
 * No operation of torch runs: nothing is allocated, dispatched, traced or waited for.  Tensors on
 * other devices and of other classes are not read.
 */
#include "python/tensor.h"
#include "python/pyobject.h"

#include <errno.h>
#include <math.h>

#define LOOK_MAX (INT64_C(1) << 22)  /* elements: a few milliseconds with the GIL held */
#define CHECK_MAX (INT64_C(1) << 25) /* elements: the same, by a faster way */
#define DIMS_MAX 12
#define VECTOR_BYTES 16
#define VECTORS 4

enum kind { F32, F64, F16, BF16, I64, I32, I16, I8, U8, BOOL, N_KINDS };

struct view { /* a tensor's memory; dimensions in the order of their strides, the largest first */
    enum kind kind;
    const char *p;
    int64_t n;
    int dims;
    int64_t size[DIMS_MAX], stride[DIMS_MAX];
};

struct run { /* numbers at equal distances; step: in numbers */
    enum kind kind;
    const char *p;
    int64_t n, step;
};

static PyObject *kinds[N_KINDS]; /* lock: the GIL; torch.float32 ..., owned */
static const char *const names[N_KINDS] = {"float32", "float64", "float16", "bfloat16", "int64",
                                           "int32",   "int16",   "int8",    "uint8",    "bool"};
static const uint8_t widths[N_KINDS] = {4, 8, 2, 2, 8, 4, 2, 1, 1, 1};
static struct {
    PyObject *numel, *is_contiguous, *data_ptr, *strides, *offset; /* functions, owned */
    bool is_of_storage;                  /* data_ptr gives where the storage begins */
    PyObject *is_cpu, *dtype, *shape;    /* attribute names, owned */
    PyObject *modes, *disable, *tracing; /* torch's functions, owned */
} known;                                 /* lock: the GIL */

void tensor_find(void)
{
    struct cpython *py = &python.api;
    PyObject *modules = py->PyImport_GetModuleDict();
    PyObject *torch = py->PyDict_GetItemString(modules, "torch");
    PyObject *c = py->PyDict_GetItemString(modules, "torch._C");
    for (int i = 0; i < N_KINDS; i++)
        kinds[i] = object_get(torch, names[i]);
    known.numel = object_get(python.tensor_class, "numel");
    known.is_contiguous = object_get(python.tensor_class, "is_contiguous");
    known.data_ptr =
        object_get(c, "_data_address"); /* of torch 2: leaves copies undone that are put off */
    known.is_of_storage = known.data_ptr != NULL;
    if (!known.data_ptr)
        known.data_ptr = object_get(python.tensor_class, "data_ptr");
    known.offset = object_get(python.tensor_class, "storage_offset");
    known.strides = object_get(python.tensor_class, "stride");
    known.is_cpu = py->PyUnicode_InternFromString("is_cpu");
    known.dtype = py->PyUnicode_InternFromString("dtype");
    known.shape = py->PyUnicode_InternFromString("shape");
    known.modes = object_get(c, "_is_torch_function_mode_enabled");
    known.disable = object_get(c, "DisableTorchFunction");
    known.tracing = object_get(c, "_get_tracing_state");
    py->PyErr_Clear();
}

void tensor_forget(void)
{
    PyObject **held[] = {&known.numel,   &known.is_contiguous, &known.data_ptr, &known.strides,
                         &known.is_cpu,  &known.dtype,         &known.shape,    &known.modes,
                         &known.disable, &known.tracing,       &known.offset};
    object_drop_all(held, PROBING_LENGTH(held));
    for (int i = 0; i < N_KINDS; i++) {
        python.api.Py_DecRef(kinds[i]);
        kinds[i] = NULL;
    }
}

bool tensor_is(PyObject *object)
{
    const PyObject *type = object_type(object);
    return type == python.tensor_class || type == python.parameter_class;
}

static bool has_modes(void)
{
    struct cpython *py = &python.api;
    PyObject *on = known.modes ? cpython_vectorcall(py, known.modes, NULL, 0, NULL) : NULL;
    py->PyErr_Clear();
    py->Py_DecRef(on); /* a constant of the interpreter */
    return on == py->_Py_TrueStruct;
}

/* torch.jit.trace() would make what is asked of a tensor a part of its graph. */
static bool is_traced(void)
{
    struct cpython *py = &python.api;
    PyObject *state = known.tracing ? cpython_vectorcall(py, known.tracing, NULL, 0, NULL) : NULL;
    py->PyErr_Clear();
    py->Py_DecRef(state);
    return state && state != py->_Py_NoneStruct;
}

bool tensor_quiet(PyObject **ret_guard)
{
    struct cpython *py = &python.api;
    *ret_guard = NULL;
    if (is_traced())
        return false;
    if (!has_modes())
        return true;
    PyObject *guard = known.disable ? py->PyObject_CallFunctionObjArgs(known.disable, NULL) : NULL;
    PyObject *entered = guard ? py->PyObject_CallMethod(guard, "__enter__", NULL) : NULL;
    py->PyErr_Clear();
    py->Py_DecRef(entered);
    if (!entered) {
        py->Py_DecRef(guard);
        return false;
    }
    *ret_guard = guard;
    if (!has_modes())
        return true;
    tensor_loud(guard); /* torch 1: it is for classes only */
    *ret_guard = NULL;
    return false;
}

void tensor_loud(PyObject *guard)
{
    struct cpython *py = &python.api;
    if (!guard)
        return;
    PyObject *none = py->_Py_NoneStruct;
    PyObject *left = py->PyObject_CallMethod(guard, "__exit__", "OOO", none, none, none);
    py->PyErr_Clear();
    py->Py_DecRef(left);
    py->Py_DecRef(guard);
}

/* ---- runs of numbers ---- */

static double half_to_double(uint16_t bits)
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
        return half_to_double(narrow);
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

static bool add_up(const struct run *r, struct tensor_figures *f)
{
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < r->n; i++) {
        double v = value_at(r->kind, r->p, i * r->step);
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
    f->mean += sum;
    f->norm += squares;
    return false;
}

/* Is there one whose exponent is all ones, a NaN or an infinity?  The lowest bit of the exponent
 * added to it then carries into the sign's place, and else does not.  Four vectors of 16 bytes at
 * once, which every x86-64 and aarch64 has: 30 GB/s on the machine where wider ones or comparing
 * gave 8 (tests/bench/torch_pairs.py, `probing, nan`).  The last ones are filled up with zeros. */
#define ANY_BAD(bits)                                                                          \
    static bool any_bad##bits(const char *p, int64_t n, uint##bits##_t exponent)               \
    {                                                                                          \
        typedef uint##bits##_t lanes __attribute__((vector_size(VECTOR_BYTES)));               \
        const int64_t at_once = VECTORS * VECTOR_BYTES / (bits / 8);                           \
        const uint##bits##_t lowest = (uint##bits##_t)(exponent & -exponent);                  \
        const lanes mask = (lanes){0} + exponent, one = (lanes){0} + lowest;                   \
        lanes carried = {0}, v[VECTORS];                                                       \
        for (; n >= at_once; n -= at_once, p += sizeof(v)) {                                   \
            memcpy(v, p, sizeof(v));                                                           \
            carried |= ((v[0] & mask) + one) | ((v[1] & mask) + one) | ((v[2] & mask) + one) | \
                       ((v[3] & mask) + one);                                                  \
        }                                                                                      \
        memset(v, 0, sizeof(v));                                                               \
        memcpy(v, p, (size_t)n *(bits / 8));                                                   \
        for (int i = 0; i < VECTORS; i++)                                                      \
            carried |= (v[i] & mask) + one;                                                    \
        for (size_t i = 1; i < VECTOR_BYTES / (bits / 8); i++)                                 \
            carried[0] |= carried[i];                                                          \
        return carried[0] >> (bits - 1);                                                       \
    }
ANY_BAD(16)
ANY_BAD(32)
ANY_BAD(64)
#undef ANY_BAD

static bool any_bad(const struct run *r, struct tensor_figures *unused)
{
    (void)unused;
    for (int64_t i = 0; r->step != 1 && i < r->n; i++) {
        double v = value_at(r->kind, r->p, i * r->step);
        if (v - v != 0)
            return true;
    }
    if (r->step != 1)
        return false;
    return r->kind == F32    ? any_bad32(r->p, r->n, 0x7f800000)
           : r->kind == F64  ? any_bad64(r->p, r->n, UINT64_C(0x7ff0000000000000))
           : r->kind == F16  ? any_bad16(r->p, r->n, 0x7c00)
           : r->kind == BF16 ? any_bad16(r->p, r->n, 0x7f80)
                             : false; /* whole numbers */
}

/* Each run of a tensor, until fn gives true; false: it never did. */
static bool each_run(const struct view *v, bool (*fn)(const struct run *, struct tensor_figures *),
                     struct tensor_figures *f)
{
    int64_t at[DIMS_MAX] = {0};
    const int64_t width = widths[v->kind];
    struct run r = {.kind = v->kind, .p = v->p, .n = v->n ? 1 : 0, .step = 1};
    int outer = v->dims;
    if (outer && v->n) { /* the innermost dimensions that lie behind one another */
        r.step = v->stride[--outer];
        r.n = v->size[outer];
        while (outer && v->stride[outer - 1] == r.step * r.n)
            r.n *= v->size[--outer];
    }
    for (;;) {
        if (r.n && fn(&r, f))
            return true;
        int d = outer - 1;
        for (; d >= 0 && ++at[d] == v->size[d]; d--) {
            at[d] = 0;
            r.p -= (v->size[d] - 1) * v->stride[d] * width;
        }
        if (d < 0)
            return false;
        r.p += v->stride[d] * width;
    }
}

/* ---- what torch says of it ---- */

static int64_t call_for_number(PyObject *tensor, PyObject *method)
{
    struct cpython *py = &python.api;
    PyObject *value = method ? cpython_vectorcall(py, method, &tensor, 1, NULL) : NULL;
    int64_t n = !value                         ? -1
                : value == py->_Py_TrueStruct  ? 1
                : value == py->_Py_FalseStruct ? 0
                                               : py->PyLong_AsLongLong(value);
    py->PyErr_Clear();
    py->Py_DecRef(value);
    return n;
}

/* The address of its first number; 0 or below: its memory was given back, or it never had any.
 * width: bytes of a number. */
static int64_t address_of(PyObject *tensor, uint8_t width)
{
    int64_t address = call_for_number(tensor, known.data_ptr);
    int64_t offset = address > 0 && known.is_of_storage ? call_for_number(tensor, known.offset) : 0;
    return offset < 0 ? -1 : address + offset * width;
}

static bool is_on_cpu(PyObject *tensor)
{
    struct cpython *py = &python.api;
    PyObject *cpu = py->PyObject_GetAttr(tensor, known.is_cpu);
    py->PyErr_Clear();
    py->Py_DecRef(cpu); /* a constant of the interpreter */
    if (cpu)
        return cpu == py->_Py_TrueStruct;
    PyObject *device = object_get(tensor, "device"),
             *type = object_get(device, "type"); /* torch before 1.13 */
    bool is = type && py->PyType_IsSubtype(object_type(type), py->PyUnicode_Type) &&
              py->PyUnicode_CompareWithASCIIString(type, "cpu") == 0;
    py->Py_DecRef(type);
    py->Py_DecRef(device);
    return is;
}

/* Sizes and strides, the largest stride first; dimensions of one are none. */
static bool read_layout(PyObject *tensor, struct view *v)
{
    struct cpython *py = &python.api;
    PyObject *shape = py->PyObject_GetAttr(tensor, known.shape);
    PyObject *strides =
        shape && known.strides ? cpython_vectorcall(py, known.strides, &tensor, 1, NULL) : NULL;
    Py_ssize_t n = shape && strides ? py->PyTuple_Size(shape) : -1;
    bool whole = n >= 0 && n <= DIMS_MAX && py->PyTuple_Size(strides) == n;
    for (Py_ssize_t i = 0; i < n && whole; i++) {
        int64_t size = py->PyLong_AsLongLong(py->PyTuple_GetItem(shape, i));
        int64_t stride = py->PyLong_AsLongLong(py->PyTuple_GetItem(strides, i));
        int at = v->dims;
        if (size == 1)
            continue;
        whole = size > 0 && stride >= 0;
        for (; at > 0 && v->stride[at - 1] < stride; at--) {
            v->stride[at] = v->stride[at - 1];
            v->size[at] = v->size[at - 1];
        }
        v->stride[at] = stride;
        v->size[at] = size;
        v->dims++;
    }
    whole = whole && !py->PyErr_Occurred();
    py->PyErr_Clear();
    py->Py_DecRef(strides);
    py->Py_DecRef(shape);
    return whole;
}

static int open_view(PyObject *tensor, int64_t most, struct view *v)
{
    struct cpython *py = &python.api;
    if (!tensor_is(tensor))
        return -EINVAL;
    if (!is_on_cpu(tensor))
        return -EXDEV;
    PyObject *dtype = py->PyObject_GetAttr(tensor, known.dtype);
    py->PyErr_Clear();
    py->Py_DecRef(dtype); /* torch holds its types */
    int kind = 0;
    while (kind < N_KINDS && kinds[kind] != dtype)
        kind++;
    *v = (struct view){.kind = (enum kind)kind, .n = call_for_number(tensor, known.numel)};
    if (!dtype || kind == N_KINDS || v->n < 0)
        return -ENOTSUP;
    if (v->n > most)
        return -E2BIG;
    if (v->n == 0)
        return 0;
    int64_t whole = v->n == 1 ? 1 : call_for_number(tensor, known.is_contiguous);
    int64_t address = whole >= 0 ? address_of(tensor, widths[kind]) : -1;
    if (address <= 0)
        return -ENOTSUP;
    v->p = (const char *)(uintptr_t)address;
    if (whole != 1)
        return read_layout(tensor, v) ? 0 : -ENOTSUP;
    v->dims = 1;
    v->size[0] = v->n;
    v->stride[0] = 1;
    return 0;
}

int tensor_inspect(PyObject *tensor, struct tensor_figures *ret)
{
    struct view v;
    int rc = open_view(tensor, LOOK_MAX, &v);
    if (rc < 0)
        return rc;
    struct tensor_figures f = {
        .n = v.n, .type = names[v.kind], .min = (double)INFINITY, .max = -(double)INFINITY};
    (void)each_run(&v, add_up, &f);
    int64_t numbers = f.n - f.n_nan;
    f.mean = numbers ? f.mean / (double)numbers : (double)NAN;
    f.norm = sqrt(f.norm);
    f.first = f.n ? value_at(v.kind, v.p, 0) : (double)NAN;
    *ret = f;
    return 0;
}

int tensor_place(PyObject *tensor, struct tensor_place *ret)
{
    struct cpython *py = &python.api;
    if (!tensor_is(tensor) || call_for_number(tensor, known.numel) != 1)
        return -EINVAL;
    PyObject *cuda = object_get(tensor, "is_cuda"),
             *dtype = py->PyObject_GetAttr(tensor, known.dtype);
    py->PyErr_Clear();
    py->Py_DecRef(cuda);
    py->Py_DecRef(dtype); /* torch holds its types */
    int kind = 0;
    while (kind < N_KINDS && kinds[kind] != dtype)
        kind++;
    if (cuda != py->_Py_TrueStruct)
        return -EINVAL;
    if (!dtype || kind == N_KINDS)
        return -ENOTSUP;
    PyObject *number = py->PyObject_CallMethod(tensor, "get_device", NULL);
    int64_t device = number ? py->PyLong_AsLongLong(number) : -1;
    py->PyErr_Clear();
    py->Py_DecRef(number);
    int64_t address = address_of(tensor, widths[kind]);
    if (device < 0 || address <= 0)
        return -EINVAL;
    *ret = (struct tensor_place){
        .address = (uint64_t)address, .device = (int)device, .kind = kind, .width = widths[kind]};
    return 0;
}

double tensor_number(int kind, const void *bytes)
{
    return value_at((enum kind)kind, bytes, 0);
}

bool tensor_is_bad(PyObject *tensor)
{
    struct view v;
    return open_view(tensor, CHECK_MAX, &v) == 0 && each_run(&v, any_bad, NULL);
}
