/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/trace/trace_monitor.c - CPython 3.12 and newer: what sys.monitoring calls for
 * functions that are watched.
 *
 * In the user's threads, with the GIL.  trace.py registers these and takes them away.
 */
#include <string.h>

#include "exec/bindings.h"
#include "trace/trace.h"

/* cpython 3.12 to 3.15: PyFrameObject.f_frame, _PyInterpreterFrame.f_funcobj.  Looked at only where
 * trace_finds() has found one there. */
#define FRAME_INNER 24
#define INNER_FUNCTION 16
#define TAGS ((uintptr_t)3) /* of a _PyStackRef (from 3.14 on) */

/* The function whose frame runs; NULL: none. */
static const PyObject *running_function(void)
{
    const char *frame = (const char *)natives_py.PyEval_GetFrame();
    const char *inner;
    uintptr_t function;
    if (!frame)
        return NULL;
    memcpy(&inner, frame + FRAME_INNER, sizeof(inner));
    memcpy(&function, inner + INNER_FUNCTION, sizeof(function));
    function &= ~TAGS;
    return (const PyObject *)function;
}

/* trace_finds(function), called by it: is it found? */
static PyObject *trace_finds(PyObject *self, PyObject *function)
{
    (void)self;
    bool known = cpython_since(&natives_py, 12) && !cpython_since(&natives_py, 16);
    return natives_py.PyLong_FromLongLong(known && running_function() == function);
}

/* Is an event of this code the slot's? */
static bool is_its(const struct trace_slot *s, const PyObject *code)
{
    return s->key == code && (!s->only || s->only == running_function());
}

/* {name: value} of the frame's parameters.  New; NULL: an exception is set. */
static PyObject *frame_parameters(PyObject *code, PyObject *frame)
{
    const struct cpython *py = &natives_py;
    PyObject *names = py->PyObject_GetAttrString(code, "co_varnames");
    PyObject *values = py->PyDict_New();
    int64_t n = 0;
    static const char *const counts[] = {"co_argcount", "co_kwonlyargcount", "co_flags"};
    for (int k = 0; k < 3; k++) {
        PyObject *count = py->PyObject_GetAttrString(code, counts[k]);
        int64_t some = count ? py->PyLong_AsLongLong(count) : 0;
        n += k < 2 ? some : ((some & 4) != 0) + ((some & 8) != 0); /* *args, **kwargs */
        if (count)
            py->Py_DecRef(count);
    }
    for (int64_t i = 0; names && values && i < n && i < 32; i++) {
        PyObject *name = py->PyTuple_GetItem(names, i);
        size_t length;
        PyObject *value = py->PyFrame_GetVarString(frame, natives_utf8(name, &length));
        if (!value) {
            py->PyErr_Clear();
            continue;
        }
        (void)py->PyDict_SetItem(values, name, value);
        py->Py_DecRef(value);
    }
    if (names)
        py->Py_DecRef(names);
    return values;
}

static bool note_start(uint32_t i, PyObject *code)
{
    const struct cpython *py = &natives_py;
    struct trace_slot *s = &trace_slots[i];
    struct trace_call *c = trace_enter(i);
    bool good = true;
    if (c && s->args) {
        PyObject *frame = py->PyEval_GetFrame();
        PyObject *none = py->PyTuple_New(0), *named = frame ? frame_parameters(code, frame) : NULL;
        if (none && named)
            good = trace_describe(s, c, code, none, named);
        if (none)
            py->Py_DecRef(none);
        if (named)
            py->Py_DecRef(named);
    }
    if (c)
        c->began = natives_host->now();
    return good;
}

static PyObject *on_start(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    bool good = true;
    (void)self;
    for (uint32_t i = 0; n > 0 && i < TRACE_SLOTS; i++)
        if (trace_is_live(i) && is_its(&trace_slots[i], args[0]))
            good = note_start(i, args[0]) && good;
    return good ? natives_none() : NULL;
}

static PyObject *note_end(PyObject *const *args, Py_ssize_t n, enum event_phase phase)
{
    bool good = true;
    for (uint32_t i = TRACE_SLOTS; n > 0 && i-- > 0;) {
        if (!trace_slots[i].life || !is_its(&trace_slots[i], args[0]))
            continue;
        if (trace_slots[i].variable_value) { /* its line is not known here */
            good = (phase == RAISED || !trace_is_live(i) || trace_inspect(i, PROBING_NULL_I64)) &&
                   good;
            struct trace_call *c = trace_innermost(i);
            if (c)
                trace_drop(c);
        } else {
            good = trace_leave(i, phase, phase == RAISED ? NULL : n > 2 ? args[2] : NULL) && good;
        }
    }
    return good ? natives_none() : NULL;
}

static PyObject *on_return(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    (void)self;
    return note_end(args, n, RETURNED);
}

static PyObject *on_yield(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    (void)self;
    return note_end(args, n, YIELDED);
}

static PyObject *on_unwind(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    (void)self;
    return note_end(args, n, RAISED);
}

static PyObject *on_line(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    bool good = true;
    (void)self;
    for (uint32_t i = 0; n > 1 && i < TRACE_SLOTS; i++)
        if (trace_slots[i].variable_value && trace_is_live(i) && is_its(&trace_slots[i], args[0]))
            good = trace_inspect(i, natives_py.PyLong_AsLongLong(args[1])) && good;
    return good ? natives_none() : NULL;
}

#define FAST(function) __extension__(PyCFunction)(void (*)(void))(function)
struct cpython_method trace_monitor_natives[] = {
    {"on_start", FAST(on_start), METH_FASTCALL, NULL},
    {"on_return", FAST(on_return), METH_FASTCALL, NULL},
    {"on_yield", FAST(on_yield), METH_FASTCALL, NULL},
    {"on_unwind", FAST(on_unwind), METH_FASTCALL, NULL},
    {"on_line", FAST(on_line), METH_FASTCALL, NULL},
    {"trace_finds", trace_finds, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};
