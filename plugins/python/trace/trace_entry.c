/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/trace/trace_entry.c - CPython 3.8 to 3.11: what stands in the way of each call
 * of a function that is watched.
 *
 * In the user's threads, with the GIL.  3.8 to 3.10: in the function object's own entry for calls;
 * 3.11, which goes round that: called by code that trace.py puts in the function's place.
 */
#include <string.h>

#include "exec/bindings.h"
#include "internal.h"
#include "trace/trace.h"

#define COPY_DEPTH 150 /* 3.11: there each such call takes C stack that it would not take else */
#define RECURSION_3_11 \
    32 /* tstate->recursion_remaining; recursion_limit follows it (cpython 3.11) */

static PyObject *named_arguments(PyObject *const *args, PyObject *kwnames)
{
    const struct cpython *py = &natives_py;
    PyObject *named = py->PyDict_New();
    Py_ssize_t n = kwnames ? py->PyTuple_Size(kwnames) : 0;
    for (Py_ssize_t i = 0; named && i < n; i++)
        (void)py->PyDict_SetItem(named, py->PyTuple_GetItem(kwnames, i), args[i]);
    return named;
}

static bool describe_call(struct trace_slot *s, struct trace_call *c, PyObject *function,
                          PyObject *const *args, size_t nargs, PyObject *kwnames)
{
    const struct cpython *py = &natives_py;
    PyObject *code = py->PyObject_GetAttrString(function, "__code__");
    PyObject *positional = py->PyTuple_New((Py_ssize_t)nargs);
    PyObject *named = named_arguments(args + nargs, kwnames);
    for (size_t i = 0; positional && i < nargs; i++) {
        py->Py_IncRef(args[i]);
        (void)py->PyTuple_SetItem(positional, (Py_ssize_t)i, args[i]);
    }
    bool good = true;
    if (code && positional && named)
        good = trace_describe(s, c, code, positional, named);
    PyObject *made[] = {code, positional, named};
    for (int i = 0; i < 3; i++)
        if (made[i])
            py->Py_DecRef(made[i]);
    return good;
}

typedef PyObject *(*vectorcall)(PyObject *, PyObject *const *, size_t, PyObject *);

/* Around a call of `function` by `go`; slot < 0: nobody asks any more. */
static PyObject *call_measured(int slot, vectorcall go, PyObject *function, PyObject *const *args,
                               size_t nargsf, PyObject *kwnames)
{
    uint32_t i = (uint32_t)slot;
    struct trace_call *c = slot >= 0 && trace_is_live(i) ? trace_enter(i) : NULL;
    if (!c)
        return go(function, args, nargsf, kwnames);
    uint64_t life = c->life;
    if (trace_slots[i].args && !describe_call(&trace_slots[i], c, function, args,
                                              nargsf & ~CPYTHON_ARGUMENTS_OFFSET, kwnames)) {
        trace_drop(c);
        return NULL;
    }
    c->began = natives_host->now();
    PyObject *result = go(function, args, nargsf, kwnames);
    if (trace_slots[i].life != life) /* taken out meanwhile */
        return result;
    PyObject *type = NULL, *value = NULL, *trace = NULL;
    if (!result)
        natives_py.PyErr_Fetch(&type, &value, &trace);
    bool good = trace_leave(i, result ? RETURNED : RAISED, result);
    if (!result) {
        natives_py.PyErr_Clear();
        natives_py.PyErr_Restore(type, value, trace);
    } else if (!good) {
        natives_py.Py_DecRef(result);
        result = NULL;
    }
    return result;
}

static void *entry_read(PyObject *function)
{
    const char *type;
    Py_ssize_t at;
    void *entry;
    memcpy(&type, (const char *)function + sizeof(void *), sizeof(type));
    memcpy(&at, type + 56, sizeof(at)); /* tp_vectorcall_offset: see cpython_vectorcall() */
    memcpy(&entry, (const char *)function + at, sizeof(entry));
    return entry;
}

static void entry_write(PyObject *function, void *entry)
{
    const char *type;
    Py_ssize_t at;
    memcpy(&type, (const char *)function + sizeof(void *), sizeof(type));
    memcpy(&at, type + 56, sizeof(at));
    memcpy((char *)function + at, &entry, sizeof(entry));
}

static PyObject *traced_entry(PyObject *function, PyObject *const *args, size_t nargsf,
                              PyObject *kwnames)
{
    vectorcall go;
    int slot = 0;
    while (slot < TRACE_SLOTS && trace_slots[slot].key != function)
        slot++;
    if (slot == TRACE_SLOTS) /* cannot be: it is put back before the slot is freed */
        return NULL;
    memcpy(&go, &trace_slots[slot].entry, sizeof(go));
    return call_measured(slot, go, function, args, nargsf, kwnames);
}

/* trace_entry(slot, function, in): 3.8 to 3.10. */
static PyObject *trace_entry(PyObject *self, PyObject *args)
{
    const struct cpython *py = &natives_py;
    (void)self;
    struct trace_slot *s =
        &trace_slots[py->PyLong_AsLongLong(py->PyTuple_GetItem(args, 0)) & (TRACE_SLOTS - 1)];
    PyObject *function = py->PyTuple_GetItem(args, 1);
    bool in = py->PyObject_IsTrue(py->PyTuple_GetItem(args, 2)) == 1;
    vectorcall ours = traced_entry;
    void *entry;
    memcpy(&entry, &ours, sizeof(entry));
    if (in) {
        s->entry = entry_read(function);
        entry_write(function, entry);
    } else if (entry_read(function) == entry) {
        entry_write(function, s->entry);
    }
    return natives_none();
}

/* 3.11: what the code put in place calls.  self: (slot, life, copy of the function). */
static PyObject *traced_copy(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
    const struct cpython *py = &natives_py;
    int slot = (int)py->PyLong_AsLongLong(py->PyTuple_GetItem(self, 0));
    uint64_t life = (uint64_t)py->PyLong_AsLongLong(py->PyTuple_GetItem(self, 1));
    PyObject *copy = py->PyTuple_GetItem(self, 2);
    struct trace_slot *s = &trace_slots[slot];
    static __thread uint32_t depth;
    char *state = py->PyThreadState_Get();
    int left;
    if (s->life == life && depth >= COPY_DEPTH) { /* the real code again: it needs no C stack */
        atomic_store_explicit(&s->live, false, memory_order_relaxed);
        (void)py->PyObject_SetAttrString(s->function, "__code__", s->code);
    }
    /* Two calls stand between the caller and the function: they are not the user's to pay. */
    memcpy(&left, state + RECURSION_3_11, sizeof(left));
    left += 2;
    memcpy(state + RECURSION_3_11, &left, sizeof(left));
    depth++;
    PyObject *result = call_measured(s->life == life ? slot : -1, py->PyObject_Vectorcall, copy,
                                     args, (size_t)n, kwnames);
    depth--;
    memcpy(&left, state + RECURSION_3_11, sizeof(left));
    left -= 2;
    memcpy(state + RECURSION_3_11, &left, sizeof(left));
    return result;
}

/* trace_wrapper(slot, copy, function, code): what the stub calls. */
static PyObject *trace_wrapper(PyObject *self, PyObject *args)
{
    static struct cpython_method method = {"call", NULL, METH_FASTCALL | METH_KEYWORDS, NULL};
    const struct cpython *py = &natives_py;
    PyCFunctionFastKeywords call = traced_copy;
    (void)self;
    struct trace_slot *s =
        &trace_slots[py->PyLong_AsLongLong(py->PyTuple_GetItem(args, 0)) & (TRACE_SLOTS - 1)];
    memcpy(&method.call, &call, sizeof(call));
    s->function = py->PyTuple_GetItem(args, 2);
    s->code = py->PyTuple_GetItem(args, 3);
    py->Py_IncRef(s->function);
    py->Py_IncRef(s->code);
    PyObject *life = py->PyLong_FromLongLong((long long)s->life);
    PyObject *owner =
        life ? py->PyTuple_Pack(3, py->PyTuple_GetItem(args, 0), life, py->PyTuple_GetItem(args, 1))
             : NULL;
    PyObject *made = owner ? py->PyCFunction_NewEx(&method, owner, NULL) : NULL;
    if (life)
        py->Py_DecRef(life);
    if (owner)
        py->Py_DecRef(owner);
    return made;
}

struct cpython_method trace_entry_natives[] = {
    {"trace_entry", trace_entry, METH_VARARGS, NULL},
    {"trace_wrapper", trace_wrapper, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
