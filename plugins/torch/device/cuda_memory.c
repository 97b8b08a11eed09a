/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/device/cuda_memory.c - memory of a GPU, as torch's allocator counts it.
 *
 * Threads: any that holds the GIL.
 * The allocator's own counters are read: nothing is asked of the device, and nothing waits for it.
 * CUDA is never initialised by us: until the program has done so there is nothing to say.
 */
#include "device/device.h"
#include "python/pyobject.h"

#include <math.h>

#define MB (1024.0 * 1024.0)

static struct {
    PyObject *cuda;          /* the module torch.cuda, owned */
    PyObject *stats, *which; /* torch._C's functions, owned; NULL: a torch without CUDA */
    PyObject *initialized;   /* attribute name, owned */
} known;                     /* lock: the GIL */

/* Has the program forked after CUDA was in use?  Then nothing of it may be asked for here. */
static bool is_forked(PyObject *c)
{
    struct cpython *py = &python.api;
    PyObject *asks = py->PyObject_GetAttrString(c, "_cuda_isInBadFork");
    PyObject *answer = asks ? cpython_vectorcall(py, asks, NULL, 0, NULL) : NULL;
    py->PyErr_Clear();
    py->Py_DecRef(answer); /* a constant of the interpreter */
    py->Py_DecRef(asks);
    return answer && answer == py->_Py_TrueStruct;
}

void memory_find(void)
{
    struct cpython *py = &python.api;
    PyObject *modules = py->PyImport_GetModuleDict();
    PyObject *c = py->PyDict_GetItemString(modules, "torch._C");
    if (known.stats || !c || is_forked(c))
        return;
    memory_forget();
    known.cuda = py->PyDict_GetItemString(modules, "torch.cuda");
    py->Py_IncRef(known.cuda);
    known.initialized = py->PyUnicode_InternFromString("_initialized");
    known.stats = py->PyObject_GetAttrString(c, "_cuda_memoryStats");
    py->PyErr_Clear();
    known.which = py->PyObject_GetAttrString(c, "_cuda_getDevice");
    py->PyErr_Clear();
}

void memory_forget(void)
{
    PyObject **held[] = {&known.cuda, &known.stats, &known.which, &known.initialized};
    object_drop_all(held, PROBING_LENGTH(held));
}

int memory_device(void)
{
    struct cpython *py = &python.api;
    if (!known.which || !known.cuda || !known.initialized)
        return -1;
    PyObject *ready = py->PyObject_GetAttr(known.cuda, known.initialized);
    py->Py_DecRef(ready); /* a constant of the interpreter */
    PyObject *value =
        ready == py->_Py_TrueStruct ? cpython_vectorcall(py, known.which, NULL, 0, NULL) : NULL;
    int64_t n = value ? py->PyLong_AsLongLong(value) : -1;
    py->PyErr_Clear();
    py->Py_DecRef(value);
    return n >= 0 && n < INT16_MAX ? (int)n : -1;
}

const char *memory_why(void)
{
    struct cpython *py = &python.api;
    PyObject *c = object_module("torch._C");
    memory_find();
    if (c && is_forked(c))
        return "CUDA was in use before this process was forked: it cannot be asked here";
    if (!known.stats)
        return "this torch is built without CUDA";
    PyObject *ready = py->PyObject_GetAttr(known.cuda, known.initialized);
    py->PyErr_Clear();
    py->Py_DecRef(ready); /* a constant of the interpreter */
    return ready == py->_Py_TrueStruct ? NULL : "CUDA has not been used in this process yet";
}

uint32_t memory_devices(void)
{
    PyObject *c = object_module("torch._C");
    int64_t n = c ? object_ask(c, "_cuda_getDeviceCount") : 0;
    return n > 0 && n < INT16_MAX ? (uint32_t)n : 0;
}

int64_t memory_history(void)
{
    struct cpython *py = &python.api;
    PyObject *asks = object_get(object_module("torch._C"), "_cuda_isHistoryEnabled");
    PyObject *answer = asks ? cpython_vectorcall(py, asks, NULL, 0, NULL) : NULL;
    py->PyErr_Clear();
    py->Py_DecRef(asks);
    py->Py_DecRef(answer); /* a constant of the interpreter */
    return !answer ? PROBING_NULL_I64 : answer == py->_Py_TrueStruct;
}

bool memory_numbers(int device, const struct memory_name *names, uint32_t n, int64_t *ret)
{
    struct cpython *py = &python.api;
    PyObject *number = py->PyLong_FromLongLong(device);
    PyObject *stats =
        number && known.stats ? cpython_vectorcall(py, known.stats, &number, 1, NULL) : NULL;
    for (uint32_t i = 0; i < n; i++) {
        PyObject *value = object_item(stats, names[i].what);
        value = names[i].which ? object_item(object_item(value, "all"), names[i].which) : value;
        py->Py_IncRef(value);
        ret[i] = object_number(value);
    }
    py->PyErr_Clear();
    py->Py_DecRef(number);
    py->Py_DecRef(stats);
    return stats != NULL;
}

/* stats[what]["all"][which], NULL_F64 when it is not there. */
static double read_figure(PyObject *stats, const char *what, const char *which)
{
    struct cpython *py = &python.api;
    union probing_cell none = {.u = PROBING_NULL_F64};
    PyObject *at = stats;
    const char *const way[] = {what, "all", which};
    for (size_t i = 0; i < 3 && at; i++)
        at = py->PyType_IsSubtype(object_type(at), py->PyDict_Type)
                 ? py->PyDict_GetItemString(at, way[i])
                 : NULL;
    if (!at || !py->PyType_IsSubtype(object_type(at), py->PyLong_Type))
        return none.f;
    int64_t bytes = py->PyLong_AsLongLong(at);
    py->PyErr_Clear();
    return bytes >= 0 ? (double)bytes / MB : none.f;
}

bool memory_ask(int device, struct memory *ret)
{
    struct cpython *py = &python.api;
    int current = known.stats ? memory_device() : -1;
    if (current < 0)
        return false;
    PyObject *number = py->PyLong_FromLongLong(device < 0 ? current : device);
    PyObject *stats = number ? cpython_vectorcall(py, known.stats, &number, 1, NULL) : NULL;
    py->PyErr_Clear();
    if (stats)
        *ret = (struct memory){.allocated = read_figure(stats, "allocated_bytes", "current"),
                               .max_allocated = read_figure(stats, "allocated_bytes", "peak"),
                               .cached = read_figure(stats, "reserved_bytes", "current"),
                               .max_cached = read_figure(stats, "reserved_bytes", "peak")};
    py->PyErr_Clear();
    py->Py_DecRef(number);
    py->Py_DecRef(stats);
    return stats != NULL;
}
