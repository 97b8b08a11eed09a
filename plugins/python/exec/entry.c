/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/exec/entry.c - see entry.h.
 *
 * A capsule that the interpreter drops tells of the end.  The first one hangs on an exit function
 * that does nothing: atexit drops it when all exit functions have run, in whatever order, and
 * before the interpreter frees anything.  (threading._register_atexit() is for what runs before the
 * program's other threads are joined, which may be hours.)  Until then clients' code may run, and
 * a program that hangs in an exit function can be looked at.  The second capsule lies in the
 * interpreter's own dict, which is cleared later: a thread state that is in the list by then is the
 * interpreter's business, as that of any daemon thread.  It serves where the first one was dropped
 * early (atexit._clear()), or where the end begins below a Python frame.
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
#include <unistd.h>

#include "probing_sdk.h"

#define KEY "probing.entry"
#define WAIT_NS (5 * PROBING_NS_PER_S) /* at exit; it is microseconds of work, starved or not */
#define FORK_WAIT_NS (PROBING_NS_PER_S / 5) /* likewise, of a fork: more is not the host's to pay */
#define LOOK_NS 50000
#define END_NS PROBING_NS_PER_S         /* for code to end, once it was interrupted */
#define AGAIN_NS (PROBING_NS_PER_S / 5) /* between two interrupts */
#define KEPT 64                         /* states; the runner has 8 threads, few are left behind */
#define DOMAIN_RAW 0                    /* PYMEM_DOMAIN_RAW: what thread states are allocated by */

static struct {
    _Atomic int inside;   /* threads that use what the interpreter frees */
    _Atomic bool ended;   /* it frees it from now on, or will in a moment */
    _Atomic bool guarded; /* the capsules are there, or are on their way */
    _Atomic int forks;    /* threads that fork just now */
    _Atomic bool hooked;  /* fork handlers are there, for ever: this library is never unmapped */
    pthread_mutex_t mutex;
    struct entry *entered; /* lock: mutex; threads with a thread state */
    bool at_exit;          /* lock: the GIL; the first capsule is there */
    struct cpython py;     /* lock: the GIL; for the end */
} gate = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static struct {
    void *blocks[KEPT];
    _Atomic int n;
    void (*free)(void *context, void *block); /* the interpreter's own */
} kept;

static const struct timespec look = {0, LOOK_NS};

static void lock_entry(void)
{
    (void)pthread_mutex_lock(&gate.mutex);
}

static void unlock_entry(void)
{
    (void)pthread_mutex_unlock(&gate.mutex);
}

/* seq_cst, as below: either enter_python() sees it, or we see the thread. */
static void wait_for_those_inside(uint64_t ns)
{
    uint64_t until = probing_clock_ns(CLOCK_MONOTONIC) + ns;
    while (atomic_load_explicit(&gate.inside, memory_order_seq_cst) > 0 &&
           probing_clock_ns(CLOCK_MONOTONIC) < until)
        (void)nanosleep(&look, NULL);
}

static void close_gate(void)
{
    atomic_store_explicit(&gate.ended, true, memory_order_seq_cst);
    wait_for_those_inside(WAIT_NS);
}

/* ---- states that outlive the interpreter ---- */

static void free_unless_kept(void *context, void *block)
{
    int n = atomic_load_explicit(&kept.n, memory_order_acquire);
    for (int i = 0; i < n; i++)
        if (kept.blocks[i] == block)
            return;
    kept.free(context, block);
}

static void keep_block(void *block)
{
    int n = atomic_load_explicit(&kept.n, memory_order_relaxed);
    if (n == KEPT)
        return;
    kept.blocks[n] = block;
    atomic_store_explicit(&kept.n, n + 1, memory_order_release);
}

/* Locked, with the GIL.  Threads that are still inside wake up in there one day and look at their
 * thread state (drop_gil() of 3.9 to 3.12) and by it at the interpreter (on the heap to 3.10). */
static void keep_states(const struct cpython *py)
{
    struct cpython_allocator raw;
    for (const struct entry *e = gate.entered; e; e = e->next)
        keep_block(e->state);
    if (!cpython_since(py, 11))
        keep_block(py->PyInterpreterState_Main());
    py->PyMem_GetAllocator(DOMAIN_RAW, &raw);
    if (raw.free == free_unless_kept)
        return;
    kept.free = raw.free;
    raw.free = free_unless_kept; /* one word changes: other threads are in there without a lock */
    py->PyMem_SetAllocator(DOMAIN_RAW, &raw);
}

/* The interpreter takes a lock of its own for it, with which it calls nobody. */
static void interrupt_locked(const struct cpython *py, const struct entry *of)
{
    if (of->state && of->python_id)
        (void)py->PyThreadState_SetAsyncExc(of->python_id, py->PyExc_KeyboardInterrupt);
}

/* With the GIL.  Nobody enters any more: have those come out who are inside. */
static void end_entered(const struct cpython *py)
{
    uint64_t now = probing_clock_ns(CLOCK_MONOTONIC), until = now + END_NS, again = now;
    lock_entry();
    while (gate.entered && now < until) {
        for (const struct entry *e = now >= again ? gate.entered : NULL; e; e = e->next)
            interrupt_locked(py, e);
        again = now >= again ? now + AGAIN_NS : again;
        unlock_entry();
        void *saved = py->PyEval_SaveThread();
        lock_entry();
        while (gate.entered && (now = probing_clock_ns(CLOCK_MONOTONIC)) < again && now < until) {
            unlock_entry();
            (void)nanosleep(&look, NULL);
            lock_entry();
        }
        unlock_entry();
        py->PyEval_RestoreThread(saved);
        lock_entry();
    }
    for (struct entry *e = gate.entered; e; e = e->next)
        e->left = true;
    if (gate.entered)
        keep_states(py);
    unlock_entry();
}

/* ---- the capsules ---- */

static int guard_first(void *arg);

/* atexit drops the exit functions.  Below a Python frame that is atexit._run_exitfuncs() or
 * _clear(), and the program goes on: a new one must not come while the old ones are being dropped,
 * so the main thread makes it, or who enters next. */
static void exit_functions_are_dropped(PyObject *capsule)
{
    const struct cpython *py = &gate.py;
    (void)capsule;
    if (!gate.at_exit)
        return; /* it did not come to hang there */
    gate.at_exit = false;
    if (py->PyEval_GetFrame()) {
        atomic_store_explicit(&gate.guarded, false, memory_order_relaxed);
        (void)entry_ask_main(py, guard_first, NULL);
        return;
    }
    close_gate();
    end_entered(py);
}

/* The interpreter drops what is in its dict, at its end. */
static void dict_is_dropped(PyObject *capsule)
{
    (void)capsule;
    if (atomic_load_explicit(&gate.guarded, memory_order_relaxed)) /* else: it did not come in */
        close_gate();
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
    gate.mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    gate.entered = NULL;
    atomic_store_explicit(&gate.forks, 0, memory_order_relaxed);
    atomic_store_explicit(&gate.inside, 0, memory_order_relaxed);
}

static PyObject *do_nothing(PyObject *capsule, PyObject *none)
{
    (void)capsule;
    (void)none;
    gate.py.Py_IncRef(gate.py._Py_NoneStruct);
    return gate.py._Py_NoneStruct;
}

static void let_go(const struct cpython *py, PyObject *reference)
{
    if (reference)
        py->Py_DecRef(reference);
}

/* To 3.8 it may be another one that runs what was asked of the main thread. */
static bool is_main_interpreter(const struct cpython *py)
{
    void *current = py->PyInterpreterState_Get    ? py->PyInterpreterState_Get()
                    : py->_PyInterpreterState_Get ? py->_PyInterpreterState_Get()
                                                  : NULL;
    return current == py->PyInterpreterState_Main();
}

/* With the GIL. */
static bool hang_on_atexit(void)
{
    static struct cpython_method method = {"probing_exits", do_nothing, METH_NOARGS, NULL};
    const struct cpython *py = &gate.py;
    if (gate.at_exit)
        return true;
    if (cpython_load(&gate.py)) /* again: it has exceptions only now, if we came first */
        return false;
    if (!is_main_interpreter(py)) {
        atomic_store_explicit(&gate.guarded, false, memory_order_relaxed);
        return false;
    }
    PyObject *module = py->PyImport_ImportModule("atexit"), *call = NULL, *done = NULL;
    PyObject *capsule = module ? py->PyCapsule_New(&gate, KEY, exit_functions_are_dropped) : NULL;
    if (capsule)
        call = py->PyCFunction_NewEx(&method, capsule, NULL);
    if (call)
        done = py->PyObject_CallMethod(module, "register", "O", call);
    gate.at_exit = done != NULL;
    let_go(py, done);
    let_go(py, call);
    let_go(py, capsule);
    let_go(py, module);
    return gate.at_exit;
}

/* With the GIL. */
static bool lie_in_dict(const struct cpython *py)
{
    PyObject *names = py->PyInterpreterState_GetDict(py->PyInterpreterState_Main());
    PyObject *old = names ? py->PyDict_GetItemString(names, KEY) : NULL;
    bool there = old && py->PyCapsule_GetPointer(old, KEY) == &gate;
    PyObject *capsule = names && !there ? py->PyCapsule_New(&gate, KEY, dict_is_dropped) : NULL;
    if (capsule)
        there = py->PyDict_SetItemString(names, KEY, capsule) == 0;
    if (!there)
        atomic_store_explicit(&gate.guarded, false, memory_order_relaxed);
    let_go(py, capsule);
    return there;
}

/* With the GIL. */
static void guard_entry(const struct cpython *py)
{
    if (atomic_exchange_explicit(&gate.guarded, true, memory_order_relaxed))
        return;
    if (!lie_in_dict(py) || !hang_on_atexit())
        py->PyErr_Clear();
}

/* In the main thread. */
static int guard_first(void *arg)
{
    struct cpython py;
    (void)arg;
    if (cpython_load(&py) == 0) /* the plugin that has asked may be gone */
        guard_entry(&py);
    return 0;
}

static void leave_python(void)
{
    (void)atomic_fetch_sub_explicit(&gate.inside, 1, memory_order_seq_cst);
}

static bool enter_python(const struct cpython *py)
{
    (void)atomic_fetch_add_explicit(&gate.inside, 1, memory_order_seq_cst);
    while (atomic_load_explicit(&gate.forks, memory_order_seq_cst) > 0) {
        leave_python();
        (void)nanosleep(&look, NULL);
        (void)atomic_fetch_add_explicit(&gate.inside, 1, memory_order_seq_cst);
    }
    if (!atomic_load_explicit(&gate.ended, memory_order_seq_cst) && !cpython_gone(py))
        return true;
    leave_python();
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

void entry_gone(struct entry *own)
{
    lock_entry();
    struct entry **p = &gate.entered;
    while (*p && *p != own)
        p = &(*p)->next;
    if (*p)
        *p = own->next;
    own->state = NULL;
    unlock_entry();
}

void entry_return(const struct cpython *py, void *saved)
{
    bool left = false;
    lock_entry();
    for (const struct entry *e = gate.entered; e; e = e->next)
        left = left || (e->state == saved && e->left);
    unlock_entry();
    while (left)
        (void)pause();
    py->PyEval_RestoreThread(saved);
}

bool entry_take(const struct cpython *py, struct entry *own)
{
    if (!enter_python(py))
        return false;
    /* Code that has run here before may have kept the thread's state: pybind11's, for one. */
    void *state = py->PyGILState_GetThisThreadState();
    own->made = !state;
    if (!state)
        state = py->PyThreadState_New(py->PyInterpreterState_Main());
    /* One that was made after the end began is in no list of those who must not come in: from 3.14
     * on, only such a list says so.  It is freed with the interpreter. */
    if (cpython_gone(py))
        state = NULL;
    if (state) {
        lock_entry();
        own->state = state;
        own->python_id = 0;
        own->left = false;
        own->next = gate.entered;
        gate.entered = own;
        unlock_entry();
    }
    leave_python();
    if (!state)
        return false;
    entry_return(py, state);
    if (entry_is_over()) {
        entry_leave(py, own);
        return false;
    }
    guard_entry(py);
    return true;
}

void entry_leave(const struct cpython *py, struct entry *own)
{
    if (own->made)
        py->PyGILState_Release(/* PyGILState_UNLOCKED */ 1);
    else
        (void)py->PyEval_SaveThread();
    entry_gone(own);
}

bool entry_is_over(void)
{
    return atomic_load_explicit(&gate.ended, memory_order_seq_cst);
}

void entry_allow_interrupt(struct entry *own, bool allow)
{
    lock_entry();
    own->python_id = allow ? (unsigned long)pthread_self() : 0;
    unlock_entry();
}

void entry_interrupt(const struct cpython *py, const struct entry *of)
{
    lock_entry();
    interrupt_locked(py, of);
    unlock_entry();
}

int entry_ask_main(const struct cpython *py, int (*fn)(void *arg), void *arg)
{
    if (!enter_python(py))
        return -1;
    int r = py->Py_AddPendingCall(fn, arg);
    leave_python();
    return r;
}

void entry_forked(void)
{
    child_begins();
}
