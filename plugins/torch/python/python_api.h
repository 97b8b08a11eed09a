/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/python/python_api.h - the functions of CPython that the plugin calls, and the
 * classes and functions of torch that it knows.
 *
 * Threads: any that holds the GIL.
 */
#ifndef TORCH_PYTHON_PYTHON_API_H
#define TORCH_PYTHON_PYTHON_API_H

#include "cpython.h"
#include "internal.h"

/* CPython functions that sdk/cpython.h does not list. */
struct python_more {
    PyObject *(*PyVectorcall_Call)(PyObject *, PyObject *, PyObject *);
    PyObject *(*PyObject_GenericGetDict)(PyObject *, void *);
    PyObject *(*PyEval_GetFrame)(void); /* borrowed */
    Py_ssize_t (*PyObject_Hash)(PyObject *);
    void (*PyObject_GC_UnTrack)(void *);
    void (*PyObject_GC_Del)(void *);
    void (*PyObject_ClearWeakRefs)(PyObject *);
    PyObject *(*PyInstanceMethod_New)(PyObject *);       /* NULL: not here */
    PyObject *(*_PyType_Lookup)(PyObject *, PyObject *); /* borrowed; NULL: not here */
    PyObject *(*PyFrame_GetCode)(PyObject *);            /* 3.9; else NULL */
    PyObject *(*PyFrame_GetBack)(PyObject *);            /* likewise */
    PyObject *(*PyFrame_GetVar)(PyObject *, PyObject *); /* 3.12; else NULL */
    int (*PyDict_AddWatcher)(int (*)(int, PyObject *, PyObject *, PyObject *)); /* likewise */
    int (*PyDict_ClearWatcher)(int);
    int (*PyDict_Watch)(int, PyObject *);
    int (*PyDict_Unwatch)(int, PyObject *);
    void (*PyUnstable_GC_VisitObjects)(int (*)(PyObject *, void *), void *); /* likewise */
};

extern struct python { /* lock: the GIL */
    struct cpython api;
    struct python_more more;
    /* Objects of torch, owned. */
    PyObject *module_class, *parameter_class, *tensor_class, *optimizer_class;
    PyObject *forward_code;                                   /* of Module.__call__ */
    PyObject *grad_enabled;                                   /* torch.is_grad_enabled, or NULL */
    PyObject *text_modules, *text_parameters, *text_training; /* interned attribute names */
} python;

/* Find CPython's functions.  -errno: ret_why says why not, and lives for ever. */
int python_load(const char **ret_why);
/* Find torch's classes.  Likewise; -EAGAIN: torch is not imported.  python_drop_torch() undoes it,
 * half of it, too. */
int python_find_torch(const char **ret_why);
void python_drop_torch(void);

/* The type is an object's second word in every CPython with a GIL. */
static inline PyObject *object_type(const PyObject *object)
{
    PyObject *type;
    memcpy(&type, (const char *)object + sizeof(void *), sizeof(type));
    return type;
}

#endif
