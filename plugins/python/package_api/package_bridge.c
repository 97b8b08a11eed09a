/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/package_api/package_bridge.c - hands our functions to the package `probing`, and
 * takes them back.
 *
 * sys._probing is a dict of them while the plugin runs; an imported package is told by its
 * _attach().  That is done by the interpreter's main thread as a pending call, or by the runner's
 * with its first job: a GIL that is stuck is waited for by nobody, and eject needs none.  Until the
 * main thread comes by to take them back they lie there and do nothing.
 *
 * Anything of that may fail for the moment: the stack or the memory is full, a handler of a signal
 * raises in the middle.  Then it is tried again, by who comes in next and at times that grow.
 */
#include "package_api/package_bridge.h"

#include <errno.h>
#include <stdatomic.h>

#include "exec/bindings.h"
#include "exec/entry.h"
#include "internal.h"
#include "package_api/coordinates.h"
#include "package_api/spans.h"
#include "package_api/user_tables.h"

#define LEAVE_NS UINT64_C(200000000) /* a row takes a microsecond */
#define TOPIC "python.offer/1"       /* it has failed */
#define AGAIN_NS PROBING_NS_PER_S
#define AGAIN_MAX 1000 /* of those */

enum handed {                    /* does it lie in the interpreter? */
              HANDED_NOT,        /* nobody has tried */
              HANDED_FAILED,     /* perhaps in part */
              HANDED_ON_ITS_WAY, /* somebody is at it, with the GIL or for a moment without */
              HANDED
};

static _Atomic bool live;
static _Atomic int handed; /* enum handed */
static _Atomic int inside;
static _Atomic uint32_t looks, next_try; /* since it failed: ticks of [worker], and which is next */
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

/* Call _attach(given) of the package, if it is imported.  false: that has failed.  *ret: 0, or -1:
 * with an exception of theirs. */
static bool tell_package(PyObject *given, int *ret)
{
    const struct cpython *py = &natives_py;
    PyObject *module = py->PyDict_GetItemString(py->PyImport_GetModuleDict(), "probing");
    PyObject *attach = module ? py->PyObject_GetAttrString(module, "_attach") : NULL;
    *ret = 0;
    if (!attach) { /* not imported, or a module of theirs has this name */
        py->PyErr_Clear();
        return true;
    }
    PyObject *done = py->PyObject_CallFunctionObjArgs(attach, given, NULL);
    py->Py_DecRef(attach);
    if (done)
        py->Py_DecRef(done);
    else if (natives_theirs())
        *ret = -1;
    return done != NULL;
}

/* true: it is the caller's to do. */
static bool begin_handing(void)
{
    int was = atomic_load_explicit(&handed, memory_order_relaxed);
    while (was < HANDED_ON_ITS_WAY)
        if (atomic_compare_exchange_weak_explicit(&handed, &was, HANDED_ON_ITS_WAY,
                                                  memory_order_relaxed, memory_order_relaxed))
            return true;
    return false;
}

/* Nothing, in a life that has ended meanwhile. */
static void end_handing(struct plugin *p, bool good)
{
    int on_its_way = HANDED_ON_ITS_WAY;
    const uint32_t said = sizeof(said); /* there is nothing but its size to say */
    (void)atomic_compare_exchange_strong_explicit(&handed, &on_its_way,
                                                  good ? HANDED : HANDED_FAILED,
                                                  memory_order_relaxed, memory_order_relaxed);
    if (!good) /* where there is no room for it, who comes in next tries */
        (void)p->host->publish(p->host, TOPIC, &said, sizeof(said));
}

/* With the GIL.  As tell_package(). */
static int hand_over(void *unused)
{
    const struct cpython *py = &natives_py;
    (void)unused;
    if (!offer_enter())
        return 0;
    struct plugin *p = atomic_load_explicit(&owner, memory_order_relaxed);
    int result = 0;
    written_expect(1); /* before `handed`: whoever sees that must not go on before it is done */
    coordinates_read();
    bool mine = begin_handing(), good = false, loaded = mine && natives_load(p) == 0;
    PyObject *given = loaded ? py->PyDict_New() : NULL;
    if (given && natives_add(given, spans_natives) == 0 &&
        natives_add(given, written_natives) == 0 && py->PySys_SetObject("_probing", given) == 0)
        good = tell_package(given, &result);
    else if (loaded)
        py->PyErr_Clear();
    if (given)
        py->Py_DecRef(given);
    if (mine)
        end_handing(p, good);
    written_expect(-1);
    offer_leave();
    return result;
}

/* With the GIL.  As tell_package(). */
static int take_back(void *unused)
{
    const struct cpython *py = &natives_py;
    int result;
    (void)unused;
    if (!offer_ends())
        return 0;
    (void)py->PySys_SetObject("_probing", NULL);
    py->PyErr_Clear();
    spans_forget();
    (void)tell_package(py->_Py_NoneStruct, &result);
    return result;
}

/* [worker] */
static void try_again(void *self, uint64_t now)
{
    struct plugin *p = self;
    (void)now;
    if (atomic_load_explicit(&handed, memory_order_relaxed) != HANDED_FAILED)
        return;
    if (atomic_fetch_add_explicit(&looks, 1, memory_order_relaxed) + 1 <
        atomic_load_explicit(&next_try, memory_order_relaxed))
        return;
    atomic_store_explicit(&looks, 0, memory_order_relaxed);
    (void)entry_ask_main(&p->py, hand_over, NULL);
}

/* [control]  What fails may do so each time, and a module of theirs with our name has been called
 * by then. */
static void has_failed(void *self, const char *topic, const void *payload, uint32_t n)
{
    struct plugin *p = self;
    uint32_t next = atomic_load_explicit(&next_try, memory_order_relaxed);
    (void)topic, (void)payload, (void)n;
    atomic_store_explicit(&next_try, next < AGAIN_MAX ? next * 2 + 1 : next, memory_order_relaxed);
    (void)p->host->every(p->host, AGAIN_NS, try_again);
}

int offer_init(struct plugin *p)
{
    return p->host->subscribe(p->host, TOPIC, has_failed);
}

void offer_now(bool tables_too)
{
    if (atomic_load_explicit(&handed, memory_order_relaxed) < HANDED_ON_ITS_WAY)
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
    atomic_store_explicit(&looks, 0, memory_order_relaxed);
    atomic_store_explicit(&next_try, 0, memory_order_relaxed);
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
    if (atomic_exchange_explicit(&handed, HANDED_NOT, memory_order_relaxed) != HANDED_NOT)
        (void)entry_ask_main(&p->py, take_back, NULL);
    return 0;
}

void offer_forked(void)
{
    atomic_store_explicit(&live, false, memory_order_relaxed);
    /* a core of the child's gives its own */
    atomic_store_explicit(&handed, HANDED_NOT, memory_order_relaxed);
    atomic_store_explicit(&inside, 0, memory_order_relaxed);
}
