/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/exec/entry.c - see entry.h.
 *
 * What tells us of the end is a capsule in the interpreter's own dict: that is cleared after
 * everybody else's code has run and before anything is freed.  A thread state that is in the list
 * by then is the interpreter's business, as that of any daemon thread: PyEval_RestoreThread() does
 * not come back with it.
 *
 * Whoever makes a thread state without the GIL holds a lock of the interpreter's (HEAD_LOCK) for a
 * moment, and a fork just then gives the child that lock, held for ever: to 3.11 it hangs in
 * os.fork(), as _PyEval_ReInitThreads() takes it before it is made anew (Python/ceval_gil.h).  So a
 * fork waits until nobody is in the middle, and who comes meanwhile waits for it.
 */
#include "exec/entry.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "probing_sdk.h"

#define KEY "probing.entry"
#define WAIT_NS (5 * PROBING_NS_PER_S) /* at exit; it is microseconds of work, starved or not */
#define FORK_WAIT_NS (PROBING_NS_PER_S / 5) /* likewise, of a fork: more is not the host's to pay */
#define LOOK_NS 50000

static struct {
    _Atomic int inside;   /* threads that use what the interpreter frees */
    _Atomic bool ended;   /* it frees it from now on */
    _Atomic bool guarded; /* the capsule is there, or is on its way */
    _Atomic int forks;    /* threads that fork just now */
    _Atomic bool hooked;  /* fork handlers are there, for ever: this library is never unmapped */
} gate;

static const struct timespec look = {0, LOOK_NS};

/* seq_cst, as below: either enter() sees it, or we see the thread. */
static void wait_for_those_inside(uint64_t ns)
{
    uint64_t until = probing_clock_ns(CLOCK_MONOTONIC) + ns;
    while (atomic_load_explicit(&gate.inside, memory_order_seq_cst) > 0 &&
           probing_clock_ns(CLOCK_MONOTONIC) < until)
        (void)nanosleep(&look, NULL);
}

/* The interpreter drops the capsule, at its end. */
static void ends(PyObject *capsule)
{
    (void)capsule;
    if (!atomic_load_explicit(&gate.guarded, memory_order_relaxed))
        return; /* it did not come to lie there */
    atomic_store_explicit(&gate.ended, true, memory_order_seq_cst);
    wait_for_those_inside(WAIT_NS);
}

static void fork_begins(void)
{
    (void)atomic_fetch_add_explicit(&gate.forks, 1, memory_order_seq_cst);
    wait_for_those_inside(FORK_WAIT_NS);
}

static void fork_is_over(void)
{
    (void)atomic_fetch_sub_explicit(&gate.forks, 1, memory_order_seq_cst);
}

static void child_begins(void)
{
    atomic_store_explicit(&gate.forks, 0, memory_order_relaxed);
    atomic_store_explicit(&gate.inside, 0, memory_order_relaxed);
}

/* With the GIL. */
static void guard(const struct cpython *py)
{
    if (atomic_exchange_explicit(&gate.guarded, true, memory_order_relaxed))
        return;
    PyObject *names = py->PyInterpreterState_GetDict(py->PyInterpreterState_Main());
    PyObject *old = names ? py->PyDict_GetItemString(names, KEY) : NULL;
    bool there = old && py->PyCapsule_GetPointer(old, KEY) == &gate;
    PyObject *capsule = names && !there ? py->PyCapsule_New(&gate, KEY, ends) : NULL;
    if (capsule)
        there = py->PyDict_SetItemString(names, KEY, capsule) == 0;
    if (!there) {
        py->PyErr_Clear();
        atomic_store_explicit(&gate.guarded, false, memory_order_relaxed);
    }
    if (capsule)
        py->Py_DecRef(capsule);
}

/* In the main thread. */
static int guard_first(void *arg)
{
    struct cpython py;
    (void)arg;
    if (cpython_load(&py) == 0) /* the plugin that has asked may be gone */
        guard(&py);
    return 0;
}

static void leave(void)
{
    (void)atomic_fetch_sub_explicit(&gate.inside, 1, memory_order_seq_cst);
}

static bool enter(const struct cpython *py)
{
    (void)atomic_fetch_add_explicit(&gate.inside, 1, memory_order_seq_cst);
    while (atomic_load_explicit(&gate.forks, memory_order_seq_cst) > 0) {
        leave();
        (void)nanosleep(&look, NULL);
        (void)atomic_fetch_add_explicit(&gate.inside, 1, memory_order_seq_cst);
    }
    if (!atomic_load_explicit(&gate.ended, memory_order_seq_cst) && !cpython_gone(py))
        return true;
    leave();
    return false;
}

void entry_open(const struct cpython *py)
{
    if (!atomic_exchange_explicit(&gate.hooked, true, memory_order_relaxed) &&
        pthread_atfork(fork_begins, fork_is_over, child_begins) != 0)
        atomic_store_explicit(&gate.hooked, false, memory_order_relaxed);
    atomic_store_explicit(&gate.guarded, false, memory_order_relaxed);
    atomic_store_explicit(&gate.ended, false, memory_order_seq_cst);
    /* An end that begins after this runs what is asked for here before it is one.  Where the queue
     * is full, who comes in first does it. */
    (void)entry_ask_main(py, guard_first, NULL);
}

enum entry entry_take(const struct cpython *py)
{
    if (!enter(py))
        return ENTRY_NONE;
    /* Code that has run here before may have kept the thread's state: pybind11's, for one. */
    void *state = py->PyGILState_GetThisThreadState();
    enum entry taken = state ? ENTRY_KEPT : ENTRY_MADE;
    if (!state)
        state = py->PyThreadState_New(py->PyInterpreterState_Main());
    /* One that was made after the end began is in no list of those who must not come in: from 3.14
     * on, only such a list says so.  It is freed with the interpreter. */
    if (cpython_gone(py))
        state = NULL;
    leave();
    if (!state)
        return ENTRY_NONE;
    py->PyEval_RestoreThread(state);
    guard(py);
    return taken;
}

void entry_leave(const struct cpython *py, enum entry taken)
{
    if (taken == ENTRY_MADE)
        py->PyGILState_Release(/* PyGILState_UNLOCKED */ 1);
    else if (taken == ENTRY_KEPT)
        (void)py->PyEval_SaveThread();
}

int entry_ask_main(const struct cpython *py, int (*fn)(void *arg), void *arg)
{
    if (!enter(py))
        return -1;
    int r = py->Py_AddPendingCall(fn, arg);
    leave();
    return r;
}

void entry_forked(void)
{
    child_begins();
}
