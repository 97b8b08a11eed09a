/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/commands/interpreter_hooks.c - what the interpreter does by itself: exceptions,
 * collections, imports; recorded where a setting asks for it.
 *
 * [control] sets; the runner's thread has watch.py put hooks in and take them out; the hooks run in
 * the user's threads with the GIL.  Nothing is in the interpreter while all three are off.
 */
#include "commands/interpreter_hooks.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "exec/bindings.h"
#include "internal.h"
#include "package_api/package_bridge.h"

#define GIL_NS (10 * PROBING_NS_PER_S) /* to take hooks out */
#define IMPORTS 64                     /* inside each other, in one thread */

enum { EXCEPTIONS_OFF, EXCEPTIONS_UNHANDLED, EXCEPTIONS_RAISED };

static _Atomic int exceptions, collections, imports; /* as they shall be */
static _Atomic bool any;                             /* hooks are in, or on their way */
static _Atomic bool started;                         /* there is an interpreter to put them in */
static struct probing_table *exception_rows, *collection_rows, *import_rows;

const struct probing_config watch_settings[] = {
    {.name = "exceptions",
     .value = "off",
     .type = PROBING_STR,
     .flags = PROBING_LIVE,
     .doc = "exceptions to record in python.exceptions: off, unhandled or raised (CPython 3.12 and "
            "later)"},
    {.name = "gc",
     .value = "off",
     .type = PROBING_I64,
     .flags = PROBING_LIVE,
     .max = 1,
     .doc = "record each run of the garbage collector in python.gc"},
    {.name = "imports",
     .value = "off",
     .type = PROBING_I64,
     .flags = PROBING_LIVE,
     .max = 1,
     .doc = "record each imported module in python.imports"},
    {.name = NULL},
};

static uint64_t id_of(PyObject *text)
{
    size_t n;
    const char *utf8 = natives_utf8(text, &n);
    return n ? probing_intern(natives_host, utf8, n < 4000 ? n : 4000) : PROBING_NULL_ID;
}

/* ---- the collector: gc.callbacks calls gc_callback("start" or "stop", info) ---- */

static int64_t number_in(PyObject *info, const char *name)
{
    PyObject *value = natives_py.PyDict_GetItemString(info, name);
    return value ? natives_py.PyLong_AsLongLong(value) : PROBING_NULL_I64;
}

static PyObject *gc_callback(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    static __thread uint64_t began;
    const struct cpython *py = &natives_py;
    (void)self;
    if (n != 2 || !offer_enter())
        return natives_none();
    uint64_t now = natives_host->now();
    if (py->PyUnicode_CompareWithASCIIString(args[0], "start") == 0) {
        began = now;
    } else if (began) {
        const union probing_cell cells[] = {
            {.i = number_in(args[1], "generation")},
            {.i = number_in(args[1], "collected")},
            {.i = number_in(args[1], "uncollectable")},
            {.i = (int64_t)(now - began)},
        };
        (void)natives_host->append(collection_rows, now, cells, 4, NULL, 0);
        began = 0;
    }
    py->PyErr_Clear();
    offer_leave();
    return natives_none();
}

/* ---- imports: find_and_load(name, import), in place of importlib's ---- */

struct import {
    uint64_t name_id, began, inner_ns;
};
static __thread struct import loading[IMPORTS];
static __thread uint32_t n_loading;

static void import_row(const struct import *one, uint64_t now, bool failed)
{
    uint64_t whole = now - one->began;
    uint64_t from = n_loading > 0 ? loading[n_loading - 1].name_id : PROBING_NULL_ID;
    const union probing_cell cells[] = {{.u = one->name_id},
                                        {.u = from},
                                        {.i = (int64_t)whole},
                                        {.i = (int64_t)(whole - one->inner_ns)},
                                        {.i = failed}};
    if (n_loading > 0)
        loading[n_loading - 1].inner_ns += whole;
    (void)natives_host->append(import_rows, now, cells, 5, NULL, 0);
}

/* self: importlib's own.  In C, so that tracebacks have no line of ours. */
static PyObject *find_and_load(PyObject *self, PyObject *const *args, Py_ssize_t n,
                               PyObject *kwnames)
{
    bool measured = n > 0 && n_loading < IMPORTS && offer_enter();
    if (measured) {
        loading[n_loading++] =
            (struct import){.name_id = id_of(args[0]), .began = natives_host->now()};
        offer_leave();
    }
    PyObject *result = cpython_vectorcall(&natives_py, self, args, (size_t)n, kwnames);
    if (measured) {
        struct import one = loading[--n_loading];
        if (offer_enter()) {
            import_row(&one, natives_host->now(), !result);
            offer_leave();
        }
    }
    return result;
}

/* import_hook(importlib's own): what stands in its place. */
static PyObject *import_hook(PyObject *self, PyObject *original)
{
    static struct cpython_method method = {"_find_and_load", NULL, METH_FASTCALL | METH_KEYWORDS,
                                           NULL};
    PyCFunctionFastKeywords call = find_and_load;
    (void)self;
    memcpy(&method.call, &call, sizeof(call));
    return natives_py.PyCFunction_NewEx(&method, original, NULL);
}

/* ---- exceptions ---- */

/* exception_row(type, func, file, line, thread, handled or None, stack or None, message or None) */
static PyObject *exception_row(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    const struct cpython *py = &natives_py;
    size_t length = 0;
    (void)self;
    if (n != 8 || !offer_enter())
        return natives_none();
    const char *message = args[7] == py->_Py_NoneStruct ? NULL : natives_utf8(args[7], &length);
    bool known = args[5] != py->_Py_NoneStruct;
    const union probing_cell cells[] = {
        {.u = id_of(args[0])}, {.u = id_of(args[1])},
        {.u = id_of(args[2])}, {.i = py->PyLong_AsLongLong(args[3])},
        {.u = id_of(args[4])}, {.i = known ? py->PyObject_IsTrue(args[5]) : PROBING_NULL_I64},
        {.u = id_of(args[6])},
    };
    (void)natives_host->append(exception_rows, natives_host->now(), cells, 7, message,
                               (uint32_t)length);
    py->PyErr_Clear();
    offer_leave();
    return natives_none();
}

#define FAST(function) __extension__(PyCFunction)(void (*)(void))(function)
struct cpython_method watch_natives[] = {
    {"gc_callback", FAST(gc_callback), METH_FASTCALL, NULL},
    {"import_hook", import_hook, METH_O, NULL},
    {"exception_row", FAST(exception_row), METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

/* ---- in and out ---- */

/* With the GIL, on the runner's thread: have watch.py make it as the settings say. */
static int apply_job(void *arg)
{
    struct plugin *p = arg;
    const int64_t wanted[] = {atomic_load_explicit(&exceptions, memory_order_relaxed),
                              atomic_load_explicit(&collections, memory_order_relaxed),
                              atomic_load_explicit(&imports, memory_order_relaxed)};
    PyObject *function = session_function(p, "watch", "apply"), *numbers[3], *told = NULL;
    const struct cpython *py = &natives_py;
    if (!function)
        return -EIO;
    for (int i = 0; i < 3; i++)
        numbers[i] = py->PyLong_FromLongLong(wanted[i]);
    if (numbers[0] && numbers[1] && numbers[2])
        told = py->PyObject_CallFunctionObjArgs(function, numbers[0], numbers[1], numbers[2], NULL);
    size_t n;
    if (!told)
        p->host->log(p->host, PROBING_ERROR, "hooks for exceptions, gc or imports failed");
    else if (told != py->_Py_NoneStruct)
        p->host->log(p->host, PROBING_WARN, natives_utf8(told, &n));
    int result = told ? 0 : -EIO;
    py->PyErr_Clear();
    for (int i = 0; i < 3; i++)
        if (numbers[i])
            py->Py_DecRef(numbers[i]);
    if (told)
        py->Py_DecRef(told);
    py->Py_DecRef(function);
    return result;
}

/* Nobody waits: the GIL may be long in coming. */
static int apply_soon(struct plugin *p)
{
    struct runner_job *job = calloc(1, sizeof(*job));
    if (!job)
        return -ENOMEM;
    job->fn = apply_job;
    job->arg = p;
    atomic_store_explicit(&any, true, memory_order_relaxed);
    int r = runner_submit(p->runner, job);
    if (r < 0)
        free(job);
    else
        runner_release(p->runner, job);
    return r;
}

int watch_configure(struct plugin *p, const char *name, const char *value)
{
    static const char *const modes[] = {"off", "unhandled", "raised"};
    if (strcmp(name, "exceptions") == 0) {
        int mode = 0;
        while (mode < 3 && strcmp(value, modes[mode]) != 0)
            mode++;
        if (mode == 3)
            return p->host->fail(p->host, -EINVAL, "python.exceptions is off, unhandled or raised");
        if (mode == EXCEPTIONS_RAISED && p->runner && !cpython_since(&p->py, 12))
            return p->host->fail(p->host, -ENOTSUP,
                                 "raised exceptions can be recorded from CPython 3.12 on: before, "
                                 "only a tracing function sees them, and that slows everything; "
                                 "python.exceptions=unhandled works");
        atomic_store_explicit(&exceptions, mode, memory_order_relaxed);
    } else {
        _Atomic int *setting = strcmp(name, "gc") == 0 ? &collections : &imports;
        atomic_store_explicit(setting, value[0] == '1', memory_order_relaxed);
    }
    bool now = atomic_load_explicit(&started, memory_order_relaxed);
    return now ? apply_soon(p) : 0;
}

void watch_start(struct plugin *p)
{
    atomic_store_explicit(&started, true, memory_order_relaxed);
    bool asked = atomic_load_explicit(&exceptions, memory_order_relaxed) ||
                 atomic_load_explicit(&collections, memory_order_relaxed) ||
                 atomic_load_explicit(&imports, memory_order_relaxed);
    if (asked)
        (void)apply_soon(p); /* -ENODEV: it is called again when the interpreter has begun */
}

void watch_forked(void)
{
    atomic_store_explicit(&started, false, memory_order_relaxed);
}

int watch_stop(struct plugin *p)
{
    if (!atomic_load_explicit(&any, memory_order_relaxed)) {
        atomic_store_explicit(&started, false, memory_order_relaxed);
        return 0;
    }
    int before[] = {atomic_exchange_explicit(&exceptions, 0, memory_order_relaxed),
                    atomic_exchange_explicit(&collections, 0, memory_order_relaxed),
                    atomic_exchange_explicit(&imports, 0, memory_order_relaxed)};
    int r = runner_call(p->runner, apply_job, p, GIL_NS);
    if (r == 0 || r == -ENODEV) {
        atomic_store_explicit(&any, false, memory_order_relaxed);
        atomic_store_explicit(&started, false, memory_order_relaxed);
        return 0;
    }
    atomic_store_explicit(&exceptions, before[0], memory_order_relaxed);
    atomic_store_explicit(&collections, before[1], memory_order_relaxed);
    atomic_store_explicit(&imports, before[2], memory_order_relaxed);
    return r;
}

/* ---- tables ---- */

static const struct probing_column exception_columns[] = {
    PROBING_STR_COLUMN("type", "class with its module"),
    PROBING_STR_COLUMN("func", "function in which it was raised"),
    PROBING_STR_COLUMN("file", "source file of that function"),
    PROBING_I64_COLUMN("lineno", PROBING_PLAIN, "line of the raise statement"),
    PROBING_STR_COLUMN("thread_name", "name of the thread; NULL: threading does not know it"),
    PROBING_I64_COLUMN("handled", PROBING_PLAIN,
                       "0: the exception was not caught; NULL: not known yet"),
    PROBING_STR_COLUMN("stack", "stack of an unhandled exception, innermost frame first"),
};
static const struct probing_column collection_columns[] = {
    PROBING_I64_COLUMN("generation", PROBING_PLAIN, "oldest generation that was collected"),
    PROBING_I64_COLUMN("collected", PROBING_COUNT, "number of objects that were freed"),
    PROBING_I64_COLUMN("uncollectable", PROBING_COUNT, "number of objects that could not be freed"),
    PROBING_I64_COLUMN("duration_ns", PROBING_NS,
                       "duration of the run, in which no Python code runs"),
};
static const struct probing_column import_columns[] = {
    PROBING_STR_COLUMN("name", "the module that was loaded"),
    PROBING_STR_COLUMN("parent", "the module that imported it, if any"),
    PROBING_I64_COLUMN("duration_ns", PROBING_NS,
                       "time to find and run the module, including all that it imports"),
    PROBING_I64_COLUMN("self_ns", PROBING_NS,
                       "time to find and run the module, without what it imports"),
    PROBING_I64_COLUMN("failed", PROBING_PLAIN, "1: it raised"),
};

int watch_init(struct plugin *p)
{
    /* A child that was forked while its parent's plugin started was not told (watch_forked()). */
    atomic_store_explicit(&started, false, memory_order_relaxed);
    static const struct probing_table_desc e =
        PROBING_TEXT_TABLE("python.exceptions", exception_columns, "message",
                           "exceptions, while setting python.exceptions is on");
    static const struct probing_table_desc c =
        PROBING_TABLE("python.gc", collection_columns,
                      "runs of the garbage collector, while setting python.gc is on");
    static const struct probing_table_desc i = PROBING_TABLE(
        "python.imports", import_columns, "imported modules, while setting python.imports is on");
    int r = p->host->table(p->host, &e, &exception_rows);
    if (r == 0)
        r = p->host->table(p->host, &c, &collection_rows);
    return r < 0 ? r : p->host->table(p->host, &i, &import_rows);
}
