/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/module_registry/registry.c - the modules that live, by their addresses.
 *
 * Threads: any that holds the GIL.
 * It keeps no module alive: a weak reference's callback removes the entry before the address can
 * be used again.
 */
#include "module_registry/registry.h"

#include <errno.h>
#include <stdlib.h>

#define FIRST_SLOTS 1024u

static struct module *none[1]; /* stays empty */
struct registry registry = {.slots = none};
static size_t n_modules;     /* lock: the GIL */
static uint64_t last_serial; /* lock: the GIL */

struct module *names_find(const PyObject *object)
{
    return registry_find(object);
}

/* Into the first place that is free from its own on. */
static void put_in(struct module *m)
{
    size_t i = registry_slot(m->object);
    while (registry.slots[i])
        i = (i + 1) & registry.mask;
    registry.slots[i] = m;
}

static void free_slots(struct module **slots)
{
    if (slots != none)
        free(slots);
}

static int grow_slots(void)
{
    const struct registry old = registry;
    size_t wider = old.mask ? 2 * (old.mask + 1) : FIRST_SLOTS;
    struct module **wide = calloc(wider, sizeof(struct module *));
    if (!wide)
        return -ENOMEM;
    registry.slots = wide;
    registry.mask = wider - 1;
    for (size_t k = 0; k <= old.mask; k++)
        if (old.slots[k])
            put_in(old.slots[k]);
    free_slots(old.slots);
    return 0;
}

/* Take an entry out; those that were pushed behind it move up. */
static void take_out(const struct module *m)
{
    size_t mask = registry.mask, hole = registry_slot(m->object);
    while (registry.slots[hole] != m)
        hole = (hole + 1) & mask;
    n_modules--;
    registry.slots[hole] = NULL;
    for (size_t i = (hole + 1) & mask; registry.slots[i]; i = (i + 1) & mask) {
        struct module *next = registry.slots[i];
        registry.slots[i] = NULL;
        put_in(next);
    }
}

static void free_module(struct module *m)
{
    while (m->others) {
        struct naming *next = m->others->next;
        free(m->others);
        m->others = next;
    }
    free(m->branches);
    free(m);
}

/* The weak reference's callback: `address` is a Python int made when the entry was. */
static PyObject *forget_module(PyObject *address, PyObject *weak)
{
    struct cpython *py = &python.api;
    PyObject *object = (PyObject *)(uintptr_t)py->PyLong_AsUnsignedLongLong(address);
    struct module *m = names_find(object);
    if (m && m->weak == weak) {
        take_out(m);
        free_module(m);
        py->Py_DecRef(weak);
    }
    py->Py_IncRef(py->_Py_NoneStruct);
    return py->_Py_NoneStruct;
}

static PyObject *watch_module(PyObject *object)
{
    static struct cpython_method method = {"probing_module_died", forget_module, METH_O, NULL};
    struct cpython *py = &python.api;
    PyObject *address = py->PyLong_FromVoidPtr(object);
    PyObject *callback = address ? py->PyCFunction_NewEx(&method, address, NULL) : NULL;
    PyObject *weak = callback ? py->PyWeakref_NewRef(object, callback) : NULL;
    py->Py_DecRef(address);
    py->Py_DecRef(callback);
    if (!weak)
        py->PyErr_Clear();
    return weak;
}

struct module *names_entry(PyObject *object)
{
    struct module *m = names_find(object);
    if (m)
        return m;
    PyObject *weak = watch_module(object); /* may collect garbage, and so run anything */
    m = names_find(object);
    if (!weak || m) {
        python.api.Py_DecRef(weak);
        return m;
    }
    m = aligned_alloc(_Alignof(struct module), sizeof(*m));
    if (!m || (n_modules * 2 >= registry.mask && grow_slots() < 0)) {
        free(m);
        python.api.Py_DecRef(weak);
        return NULL;
    }
    *m = (struct module){.object = object, .cuda = -1, .weak = weak, .serial = ++last_serial};
    put_in(m);
    n_modules++;
    return m;
}

uint32_t names_roots(PyObject **ret, uint64_t *ret_serials, uint32_t n)
{
    uint32_t found = 0;
    for (size_t i = 0; i <= registry.mask && found < n; i++) {
        const struct module *m = registry.slots[i];
        if (!m || m->at.root != m->object)
            continue;
        ret[found] = m->object;
        ret_serials[found++] = m->serial;
    }
    return found;
}

void registry_forget_all(void)
{
    const struct registry old = registry;
    registry.slots = none;
    registry.mask = 0;
    n_modules = 0;
    for (size_t i = 0; i <= old.mask; i++) {
        if (!old.slots[i])
            continue;
        python.api.Py_DecRef(old.slots[i]->weak);
        free_module(old.slots[i]);
    }
    free_slots(old.slots);
}
