/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/calls/module_call_fast.h - what each call of a module runs through, inlined into
 * module_call.c: where each call does a real operation between, our code is no longer in the
 * processor's first cache, and each line of it that is fetched again is felt.
 *
 * Threads: any that holds the GIL.
 */
#ifndef TORCH_CALLS_MODULE_CALL_FAST_H
#define TORCH_CALLS_MODULE_CALL_FAST_H

#include "internal.h"
#include "lib/hash.h"

#define REGISTRY_HASH_SHIFT 20

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

/* The modules that live, by their addresses: registry.c. */
extern struct registry {
    struct module **slots; /* open addressing */
    size_t mask;           /* a power of two less one; no slots: 0, and `slots` is one empty slot */
} registry;                /* lock: the GIL */

static inline size_t registry_slot(const PyObject *object)
{
    return (size_t)(hash_spread((uintptr_t)object >> 4) >> REGISTRY_HASH_SHIFT) & registry.mask;
}

/* names_find() */
static inline struct module *registry_find(const PyObject *object)
{
    struct module *m;
    for (size_t i = registry_slot(object); (m = registry.slots[i]); i = (i + 1) & registry.mask)
        if (m->object == object)
            break;
    return m;
}

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
