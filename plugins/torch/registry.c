/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/registry.c - the modules that live, by their addresses.
 *
 * Threads: any that holds the GIL.
 * It keeps no module alive: a weak reference's callback removes the entry before the address can
 * be used again.
 */
#include "names.h"

#include <errno.h>
#include <stdlib.h>

#define FIRST_SLOTS 1024u

static struct module **slots;     /* lock: the GIL; open addressing, n_slots a power of two */
static size_t n_slots, n_modules; /* lock: the GIL */
static uint64_t last_serial;      /* lock: the GIL */

static size_t slot_of(const PyObject *object)
{
    return (size_t)(((uintptr_t)object >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (n_slots - 1);
}

struct module *names_find(const PyObject *object)
{
    if (!n_slots)
        return NULL;
    for (size_t i = slot_of(object); slots[i]; i = (i + 1) & (n_slots - 1))
        if (slots[i]->object == object)
            return slots[i];
    return NULL;
}

static int grow(void)
{
    size_t old_n = n_slots;
    struct module **old = slots;
    size_t wider = old_n ? old_n * 2 : FIRST_SLOTS;
    struct module **wide = calloc(wider, sizeof(struct module *));
    if (!wide)
        return -ENOMEM;
    slots = wide;
    n_slots = wider;
    for (size_t k = 0; k < old_n; k++) {
        if (!old[k])
            continue;
        size_t i = slot_of(old[k]->object);
        while (slots[i])
            i = (i + 1) & (n_slots - 1);
        slots[i] = old[k];
    }
    free(old);
    return 0;
}

/* Take an entry out; those that were pushed behind it move up. */
static void take_out(const struct module *m)
{
    size_t hole = slot_of(m->object);
    while (slots[hole] != m)
        hole = (hole + 1) & (n_slots - 1);
    n_modules--;
    slots[hole] = NULL;
    for (size_t i = (hole + 1) & (n_slots - 1); slots[i]; i = (i + 1) & (n_slots - 1)) {
        struct module *next = slots[i];
        slots[i] = NULL;
        size_t at = slot_of(next->object);
        while (slots[at])
            at = (at + 1) & (n_slots - 1);
        slots[at] = next;
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
static PyObject *forget(PyObject *address, PyObject *weak)
{
    struct cpython *py = &torch_state.py;
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

static PyObject *watch(PyObject *object)
{
    static struct cpython_method method = {"probing_module_died", forget, METH_O, NULL};
    struct cpython *py = &torch_state.py;
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
    PyObject *weak = watch(object); /* may collect garbage, and so run anything */
    m = names_find(object);
    if (!weak || m) {
        torch_state.py.Py_DecRef(weak);
        return m;
    }
    m = calloc(1, sizeof(*m));
    if (!m || (n_modules * 2 >= n_slots && grow() < 0)) {
        free(m);
        torch_state.py.Py_DecRef(weak);
        return NULL;
    }
    m->object = object;
    m->cuda = -1;
    m->weak = weak;
    m->serial = ++last_serial;
    size_t i = slot_of(object);
    while (slots[i])
        i = (i + 1) & (n_slots - 1);
    slots[i] = m;
    n_modules++;
    return m;
}

uint32_t names_roots(PyObject **ret, uint64_t *ret_serials, uint32_t n)
{
    uint32_t found = 0;
    for (size_t i = 0; i < n_slots && found < n; i++)
        if (slots[i] && slots[i]->at.root == slots[i]->object) {
            ret[found] = slots[i]->object;
            ret_serials[found++] = slots[i]->serial;
        }
    return found;
}

void registry_forget_all(void)
{
    struct module **old = slots;
    size_t n = n_slots;
    slots = NULL;
    n_slots = n_modules = 0;
    for (size_t i = 0; i < n; i++) {
        if (!old[i])
            continue;
        torch_state.py.Py_DecRef(old[i]->weak);
        free_module(old[i]);
    }
    free(old);
}
