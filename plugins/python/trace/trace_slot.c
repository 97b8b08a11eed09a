/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/trace/trace_slot.c - the functions that are watched, each in a slot of its own.
 *
 * trace.py takes and frees slots on the runner's thread, with the GIL, so a slot changes under
 * nobody.
 */
#include "exec/bindings.h"
#include "internal.h"
#include "trace/trace.h"
#include "trace/trace_event.h"

struct trace_slot trace_slots[TRACE_SLOTS];
static uint64_t lives;   /* lock: the GIL */
static _Atomic bool any; /* a slot is taken */

bool trace_is_live(uint32_t i)
{
    return atomic_load_explicit(&trace_slots[i].live, memory_order_relaxed);
}

bool trace_any(void)
{
    return atomic_load_explicit(&any, memory_order_relaxed);
}

static void copy_text(char *ret, size_t size, PyObject *text)
{
    size_t n;
    const char *utf8 = natives_utf8(text, &n);
    (void)snprintf(ret, size, "%s", utf8);
}

/* trace_slot(name, key, describe or None, limit, variable or None, what tells its value,
 *            the local variable to tell it of or None, the only function or None) */
static PyObject *trace_slot(PyObject *self, PyObject *args)
{
    const struct cpython *py = &natives_py;
    uint32_t i = 0;
    (void)self;
    while (i < TRACE_SLOTS && trace_slots[i].key)
        i++;
    if (i == TRACE_SLOTS) {
        py->PyErr_SetString(py->PyExc_RuntimeError, "64 functions are watched already");
        return NULL;
    }
    struct trace_slot *s = &trace_slots[i];
    PyObject *both = py->PyTuple_GetItem(args, 2);
    *s = (struct trace_slot){.life = ++lives};
    copy_text(s->name, sizeof(s->name), py->PyTuple_GetItem(args, 0));
    s->name_id = events_id(s->name);
    s->limit = py->PyLong_AsLongLong(py->PyTuple_GetItem(args, 3));
    if (both != py->_Py_NoneStruct) {
        s->args = natives_keep(both, 0);
        s->result = natives_keep(both, 1);
    }
    if (py->PyTuple_GetItem(args, 4) != py->_Py_NoneStruct) {
        copy_text(s->variable, sizeof(s->variable), py->PyTuple_GetItem(args, 4));
        s->variable_id = events_id(s->variable);
        s->variable_value = natives_keep(args, 5);
        if (py->PyTuple_GetItem(args, 6) != py->_Py_NoneStruct)
            copy_text(s->local, sizeof(s->local), py->PyTuple_GetItem(args, 6));
    }
    s->only = natives_keep(args, 7);
    s->key = natives_keep(args, 1);
    atomic_store_explicit(&s->live, true, memory_order_relaxed);
    atomic_store_explicit(&any, true, memory_order_relaxed);
    return py->PyLong_FromLongLong(i);
}

static PyObject *trace_free(PyObject *self, PyObject *number)
{
    const struct cpython *py = &natives_py;
    struct trace_slot *s = &trace_slots[py->PyLong_AsLongLong(number) & (TRACE_SLOTS - 1)];
    PyObject *held[] = {s->key,  s->args,     s->result, s->variable_value,
                        s->only, s->function, s->code};
    bool left = false;
    (void)self;
    *s = (struct trace_slot){.life = 0};
    for (uint32_t i = 0; i < TRACE_SLOTS; i++)
        left = left || trace_slots[i].key;
    atomic_store_explicit(&any, left, memory_order_relaxed);
    for (size_t i = 0; i < sizeof(held) / sizeof(held[0]); i++)
        if (held[i])
            py->Py_DecRef(held[i]);
    return natives_none();
}

/* (calls, raised, mean ns, is it live) */
static PyObject *trace_count(PyObject *self, PyObject *number)
{
    const struct cpython *py = &natives_py;
    uint32_t i = (uint32_t)py->PyLong_AsLongLong(number) & (TRACE_SLOTS - 1);
    int64_t n = atomic_load_explicit(&trace_slots[i].calls, memory_order_relaxed);
    int64_t ns = atomic_load_explicit(&trace_slots[i].total_ns, memory_order_relaxed);
    const int64_t numbers[] = {n,
                               atomic_load_explicit(&trace_slots[i].raised, memory_order_relaxed),
                               n ? ns / n : 0, trace_is_live(i)};
    PyObject *all = py->PyTuple_New(4);
    (void)self;
    for (int k = 0; all && k < 4; k++)
        (void)py->PyTuple_SetItem(all, k, py->PyLong_FromLongLong(numbers[k]));
    return all;
}

struct cpython_method trace_slot_natives[] = {
    {"trace_slot", trace_slot, METH_VARARGS, NULL},
    {"trace_free", trace_free, METH_O, NULL},
    {"trace_count", trace_count, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};
