/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/python/hook.h - a C callable that stands where a Python function stood, and looks
 * like it to whoever asks.
 *
 * Threads: any that holds the GIL.
 */
#ifndef TORCH_PYTHON_HOOK_H
#define TORCH_PYTHON_HOOK_H

#include "python/python_api.h"

typedef PyObject *(*hook_call)(PyObject *hook, PyObject *const *args, size_t nargsf,
                               PyObject *kwnames);

/* Put `call` in the place of class.name (a class's own attribute) or of an instance's attribute.
 * 0, -ENOENT: it has none; -ENOTSUP: it is no function. */
int hook_class(PyObject *class, const char *name, hook_call call);
int hook_instance(PyObject *object, const char *name, hook_call call);
/* A class's, the fastest way; torch.compile does not understand it. */
int hook_class_plain(PyObject *class, const char *name, hook_call call);
/* Likewise a method of a class that pybind11 made. */
int hook_method(PyObject *class, const char *name, hook_call call);
/* A method that C made and that takes a tuple and a dict: nothing is put in its place, it is
 * another function's from then on.  One at a time. */
typedef PyObject *(*hook_c_call)(PyObject *self, PyObject *args, PyObject *kwargs);
int hook_c_method(PyObject *class, const char *name, hook_c_call call);
PyObject *hook_c_pass(PyObject *self, PyObject *args, PyObject *kwargs);
const char *hook_name(PyObject *hook); /* of the attribute */
/* The object whose own attribute it is, borrowed; NULL: a class, or it has gone. */
PyObject *hook_owner(const PyObject *hook);
/* Is this object one of ours? */
bool hook_is(PyObject *object);
/* Is it in its place, and the plugin on?  Else it only passes calls on. */
bool hook_works(PyObject *hook);
PyObject *hook_original(PyObject *hook); /* borrowed */
/* Call what stood there before, with the same arguments. */
PyObject *hook_pass(PyObject *hook, PyObject *const *args, size_t nargsf, PyObject *kwnames);
/* Everything back where it was; gives how many places somebody else has changed since (there the
 * hook stays and only passes on). */
int hook_restore_all(void);

static inline Py_ssize_t hook_nargs(size_t nargsf)
{
    return (Py_ssize_t)(nargsf & ~CPYTHON_ARGUMENTS_OFFSET);
}

/* ---- for the one hook that each call of a module runs through ----
 *
 * It is inlined there: where each call does a real operation between, our code is no longer in the
 * processor's first cache, and each line of it that is fetched again is felt. */

struct hook { /* a Python object; hook.c */
    intptr_t refcnt;
    PyObject *type;
    hook_call call;
    PyObject *original;
    PyObject *weak_references; /* CPython's */
    const char *name;
    ptrdiff_t vectorcall; /* where `original` keeps its own; 0: it is called as any object is */
    bool works;           /* it is in its place; else somebody kept it, and it only passes on */
};

/* hook_pass(), of a hook whose original has a way to be called that is its own. */
static inline PyObject *hook_pass_fast(PyObject *hook, PyObject *const *args, size_t nargsf,
                                       PyObject *kwnames)
{
    const struct hook *h = (const struct hook *)hook;
    hook_call call;
    memcpy(&call, (const char *)h->original + h->vectorcall, sizeof(call));
    return call(h->original, args, nargsf, kwnames);
}

#endif
