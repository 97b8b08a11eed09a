/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/module_registry/gc_scan.c - one look at all objects of the process: modules, and
 * what else the caller looks for, that are there already.
 *
 * Threads: whoever starts the plugin, with the GIL.
 */
#include "module_registry/module_names.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/hash.h"

#define KINDS 4096u
#define KINDS_SHIFT 52 /* 64 - log2(KINDS) */

static PyObject *all_objects(void)
{
    struct cpython *py = &python.api;
    PyObject *gc = py->PyImport_ImportModule("gc");
    PyObject *list = gc ? py->PyObject_CallMethod(gc, "get_objects", NULL) : NULL;
    py->PyErr_Clear();
    py->Py_DecRef(gc);
    return list;
}

/* Mark the children of one module; its own entry is made too. */
static void mark_children(PyObject *object)
{
    struct cpython *py = &python.api;
    PyObject *children = names_entry(object) ? names_children(object) : NULL;
    PyObject *key, *child;
    Py_ssize_t at = 0;
    while (children && py->PyDict_Next(children, &at, &key, &child)) {
        py->Py_IncRef(child); /* names_entry() may collect garbage */
        struct module *m = child != object && names_is_module(child) ? names_entry(child) : NULL;
        if (m)
            m->is_child = true;
        py->Py_DecRef(child);
    }
    py->Py_DecRef(children);
}

/* A class and our interest in it.  A process has 100,000s of objects of some 1,000 classes, and
 * waits while we look at them all. */
struct kind {
    const PyObject *class;
    bool module;
    void (*found)(PyObject *object); /* NULL: nobody looks for it */
};

static const struct kind *kind_of(struct kind *kinds, PyObject *class,
                                  const struct names_sought *sought)
{
    struct kind *k = &kinds[hash_spread((uintptr_t) class >> 4) >> KINDS_SHIFT];
    if (k->class != class) {
        k->class = class;
        k->module = python.api.PyType_IsSubtype(class, python.module_class);
        k->found = NULL;
        for (; sought->found && !k->found; sought++)
            k->found = sought->is(class) ? sought->found : NULL;
    }
    return k;
}

/* Modules of `list` go to `modules`, the others to who looks for them. */
static int sort_out(PyObject *list, PyObject *modules, const struct names_sought *sought)
{
    struct cpython *py = &python.api;
    struct kind *kinds = calloc(KINDS, sizeof(*kinds));
    Py_ssize_t n = py->PyList_Size(list);
    int rc = kinds ? 0 : -ENOMEM;
    for (Py_ssize_t i = 0; i < n && rc == 0; i++) {
        PyObject *object = py->PyList_GetItem(list, i);
        const struct kind *k = kind_of(kinds, object_type(object), sought);
        if (k->module && py->PyList_Append(modules, object) < 0)
            rc = -ENOMEM;
        else if (k->found)
            k->found(object);
    }
    free(kinds);
    return rc;
}

int names_scan(const struct names_sought *sought)
{
    struct cpython *py = &python.api;
    names_begin();
    PyObject *list = all_objects();
    PyObject *modules = list ? py->PyList_New(0) : NULL;
    int rc = modules ? sort_out(list, modules, sought) : -ENOMEM;
    py->Py_DecRef(list);
    Py_ssize_t n = rc == 0 ? py->PyList_Size(modules) : 0;
    for (Py_ssize_t i = 0; i < n; i++)
        mark_children(py->PyList_GetItem(modules, i));
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *object = py->PyList_GetItem(modules, i);
        struct module *m = names_find(object);
        if (m && !m->is_child)
            names_walk(object);
    }
    py->Py_DecRef(modules);
    py->PyErr_Clear();
    return rc;
}
