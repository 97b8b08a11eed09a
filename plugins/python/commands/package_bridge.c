/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/commands/package_bridge.c - hands our functions to the package `probing`, and
 * takes them back.
 *
 * sys._probing is a dict of them while the plugin runs; an imported package is told by its
 * _attach().  That is done by the interpreter's main thread as a pending call, or by the runner's
 * with its first job: a GIL that is stuck is waited for by nobody, and eject needs none.  Until the
 * main thread comes by to take them back they lie there and do nothing.
 */
#include "commands/package_bridge.h"

#include <errno.h>
#include <stdatomic.h>

#include "commands/coordinates.h"
#include "commands/spans.h"
#include "commands/user_tables.h"
#include "exec/bindings.h"
#include "exec/entry.h"
#include "internal.h"

#define LEAVE_NS UINT64_C(200000000) /* a row takes a microsecond */

static _Atomic bool live, handed; /* handed: it lies in the interpreter */
static _Atomic int inside;
/* A pending call may come in a later life than it was asked for in: it takes what is there then. */
static struct plugin *_Atomic owner;

bool offer_enter(void)
{
    /* seq_cst: either we see that it ends, or offer_stop() sees us */
    (void)atomic_fetch_add_explicit(&inside, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&live, memory_order_seq_cst))
        return true;
    offer_leave();
    return false;
}

void offer_leave(void)
{
    (void)atomic_fetch_sub_explicit(&inside, 1, memory_order_seq_cst);
}

bool offer_ends(void)
{
    return !atomic_load_explicit(&live, memory_order_relaxed);
}

/* Call _attach(given) of the package, if it is imported.  0, or -1: an exception of theirs. */
static int tell(PyObject *given)
{
    const struct cpython *py = &natives_py;
    PyObject *module = py->PyDict_GetItemString(py->PyImport_GetModuleDict(), "probing");
    PyObject *attach = module ? py->PyObject_GetAttrString(module, "_attach") : NULL;
    if (!attach) { /* not imported, or a module of theirs has this name */
        py->PyErr_Clear();
        return 0;
    }
    PyObject *done = py->PyObject_CallFunctionObjArgs(attach, given, NULL);
    py->Py_DecRef(attach);
    if (done)
        py->Py_DecRef(done);
    return done || !natives_theirs() ? 0 : -1;
}

/* With the GIL.  As tell(). */
static int hand_over(void *unused)
{
    const struct cpython *py = &natives_py;
    (void)unused;
    if (!offer_enter())
        return 0;
    int result = 0;
    PyObject *given = NULL;
    written_expect(1); /* before `handed`: whoever sees that must not go on before it is done */
    coordinates_read();
    if (!atomic_exchange_explicit(&handed, true, memory_order_relaxed) &&
        natives_load(atomic_load_explicit(&owner, memory_order_relaxed)) == 0)
        given = py->PyDict_New();
    if (given && natives_add(given, spans_natives) == 0 &&
        natives_add(given, written_natives) == 0 && py->PySys_SetObject("_probing", given) == 0)
        result = tell(given);
    else
        py->PyErr_Clear();
    if (given)
        py->Py_DecRef(given);
    written_expect(-1);
    offer_leave();
    return result;
}

/* With the GIL.  As tell(). */
static int take_back(void *unused)
{
    const struct cpython *py = &natives_py;
    (void)unused;
    if (!offer_ends())
        return 0;
    (void)py->PySys_SetObject("_probing", NULL);
    py->PyErr_Clear();
    spans_forget();
    return tell(py->_Py_NoneStruct);
}

void offer_now(bool tables_too)
{
    if (!atomic_load_explicit(&handed, memory_order_relaxed))
        (void)hand_over(NULL);
    if (tables_too && offer_enter()) {
        written_wait_all();
        offer_leave();
    }
    natives_py.PyErr_Clear();
}

void offer_start(struct plugin *p)
{
    atomic_store_explicit(&owner, p, memory_order_relaxed);
    atomic_store_explicit(&live, true, memory_order_seq_cst);
    (void)entry_ask_main(&p->py, hand_over, NULL); /* full: the runner's first job does it */
}

int offer_stop(struct plugin *p)
{
    uint64_t until = p->host->now() + LEAVE_NS;
    atomic_store_explicit(&live, false, memory_order_seq_cst);
    written_wake();
    runner_lock(p->runner); /* for its sleep: an event with a limit, nobody need wake us */
    while (atomic_load_explicit(&inside, memory_order_seq_cst) && p->host->now() < until)
        runner_sleep(p->runner, 1000000);
    runner_unlock(p->runner);
    if (atomic_load_explicit(&inside, memory_order_seq_cst)) {
        atomic_store_explicit(&live, true, memory_order_seq_cst);
        return -EBUSY;
    }
    if (atomic_exchange_explicit(&handed, false, memory_order_relaxed))
        (void)entry_ask_main(&p->py, take_back, NULL);
    return 0;
}

void offer_forked(void)
{
    atomic_store_explicit(&live, false, memory_order_relaxed);
    /* a core of the child's gives its own */
    atomic_store_explicit(&handed, false, memory_order_relaxed);
    atomic_store_explicit(&inside, 0, memory_order_relaxed);
}
