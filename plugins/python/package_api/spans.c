/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/package_api/spans.c - spans and events of `import probing`, as rows of
 * python.trace_event.
 *
 * In the user's threads, with the GIL (or without one, in a build that has none).  Which span is in
 * which is known by the package's context variable, so tasks of asyncio have their own.
 */
#include "package_api/spans.h"

#include <string.h>

#include "exec/bindings.h"
#include "internal.h"
#include "package_api/coordinates.h"
#include "package_api/package_bridge.h"
#include "trace/trace.h"
#include "trace/trace_event.h"

static PyObject *context; /* the package's ContextVar of Spans; lock: the GIL */

/* The record that begin() gives as bytes, and takes back. */
struct record {
    uint64_t span, trace, parent, began;
};

static struct record read_record(PyObject *bytes)
{
    struct record r = {.span = 0};
    char *at;
    Py_ssize_t n;
    if (natives_py.PyBytes_AsStringAndSize(bytes, &at, &n) == 0 && n == (Py_ssize_t)sizeof(r))
        memcpy(&r, at, sizeof(r));
    else
        natives_py.PyErr_Clear();
    return r;
}

uint64_t spans_current(uint64_t *ret_trace)
{
    const struct cpython *py = &natives_py;
    PyObject *span = NULL;
    if (!context || py->PyContextVar_Get(context, NULL, &span) || !span) {
        if (context)
            py->PyErr_Clear();
        return 0;
    }
    PyObject *record = py->PyObject_GetAttrString(span, "record");
    uint64_t id = 0;
    if (record && record != py->_Py_NoneStruct) {
        struct record r = read_record(record);
        id = r.span;
        *ret_trace = r.trace;
    }
    py->PyErr_Clear();
    if (record)
        py->Py_DecRef(record);
    py->Py_DecRef(span);
    return id;
}

static uint64_t name_id(PyObject *name)
{
    size_t n;
    const char *text = natives_utf8(name, &n);
    return probing_intern(natives_host, text, n < 200 ? n : 200);
}

/* Set what is around the event: a span by its record, or a watched call that began later. */
static void set_parent(struct event *e, PyObject *around)
{
    uint64_t call = trace_inside();
    if (around != natives_py._Py_NoneStruct) {
        struct record r = read_record(around);
        e->parent = r.span;
        e->trace = r.trace;
    }
    if (call > e->parent)
        e->parent = call;
}

static void add_event(const struct event *e, PyObject *attributes)
{
    size_t n;
    bool some = attributes != natives_py._Py_NoneStruct;
    const char *text = natives_utf8(some ? attributes : NULL, &n);
    events_add(e, text, n);
}

static PyObject *record_of(const struct event *e)
{
    const struct record r = {e->span, e->trace, e->parent, e->ts};
    return natives_py.PyBytes_FromStringAndSize((const char *)&r, sizeof(r));
}

/* begin(name, record of the span around or None, JSON or None): its record; None: we have left. */
static PyObject *begin_span(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    (void)self;
    if (n != 3 || !offer_enter())
        return natives_none();
    struct event e = {.type = EVENT_SPAN_START,
                      .phase = NO_PHASE,
                      .span = events_next(),
                      .name_id = name_id(args[0]),
                      .duration_ns = PROBING_NULL_I64};
    set_parent(&e, args[1]);
    if (!e.trace)
        e.trace = e.span;
    e.ts = natives_host->now();
    add_event(&e, args[2]);
    offer_leave();
    return record_of(&e);
}

/* end(name, record, did it raise, JSON or None) */
static PyObject *end_span(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    (void)self;
    if (n != 4 || !offer_enter())
        return natives_none();
    struct record r = read_record(args[1]);
    struct event e = {.type = EVENT_SPAN_END,
                      .phase = natives_py.PyObject_IsTrue(args[2]) == 1 ? RAISED : RETURNED,
                      .ts = natives_host->now(),
                      .name_id = name_id(args[0]),
                      .span = r.span,
                      .trace = r.trace,
                      .parent = r.parent};
    e.duration_ns = (int64_t)(e.ts - r.began);
    add_event(&e, args[3]);
    offer_leave();
    return natives_none();
}

/* event(name, record of the span around or None, JSON or None) */
static PyObject *add_lone_event(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    (void)self;
    if (n != 3 || !offer_enter())
        return natives_none();
    struct event e = {.type = EVENT_ALONE,
                      .phase = NO_PHASE,
                      .ts = natives_host->now(),
                      .name_id = name_id(args[0]),
                      .duration_ns = PROBING_NULL_I64};
    set_parent(&e, args[1]);
    add_event(&e, args[2]);
    offer_leave();
    return natives_none();
}

/* context(ContextVar): where the package keeps the span that code is in. */
static PyObject *take_context(PyObject *self, PyObject *variable)
{
    (void)self;
    spans_forget();
    if (natives_py.PyContextVar_Get) {
        natives_py.Py_IncRef(variable);
        context = variable;
    }
    return natives_none();
}

/* role(): ROLE_NAME of the environment has changed. */
static PyObject *read_role(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    coordinates_part.read();
    return natives_none();
}

/* step(number or None), where plugin torch does not hear it. */
static PyObject *set_step(PyObject *self, PyObject *number)
{
    const struct cpython *py = &natives_py;
    int64_t told = PROBING_NULL_I64;
    (void)self;
    if (number != py->_Py_NoneStruct) {
        told = py->PyLong_AsLongLong(number);
        if (py->PyErr_Occurred() || told < 0)
            told = PROBING_NULL_I64;
        py->PyErr_Clear();
    }
    __atomic_store_n(&coordinates_part.cells[PROBING_GLOBAL_STEP].i, told, __ATOMIC_RELAXED);
    return natives_none();
}

void spans_forget(void)
{
    PyObject *old = context;
    context = NULL;
    if (old)
        natives_py.Py_DecRef(old);
}

#define FAST(function) __extension__(PyCFunction)(void (*)(void))(function)
struct cpython_method spans_natives[] = {
    {"begin", FAST(begin_span), METH_FASTCALL, NULL},
    {"end", FAST(end_span), METH_FASTCALL, NULL},
    {"event", FAST(add_lone_event), METH_FASTCALL, NULL},
    {"context", take_context, METH_O, NULL},
    {"role", read_role, METH_NOARGS, NULL},
    {"step", set_step, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};
