/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/python/hook.h - what a hook is made of, for the one that each call of a module runs
 * through.  It is inlined there: where each call does a real operation between, our code is no
 * longer in the processor's first cache, and each line of it that is fetched again is felt.
 *
 * Threads: any that holds the GIL.
 */
#ifndef TORCH_PYTHON_HOOK_H
#define TORCH_PYTHON_HOOK_H

#include "internal.h"

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
