/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/torch/module_calls/model_reader.c - reading models while their own threads are at a place
 * where that is safe.
 *
 * Threads: safe_point_reached() any that holds the GIL; safe_point_read_all() [worker].
 * To hold the GIL is not enough to ask a parameter for its gradient: `p.grad = None`, as in
 * zero_grad(), gives the GIL up while it frees the old one, which p.grad still leads to then (torch
 * 2.13; a reader that comes in between crashes).  So the thread that calls a model reads it for us,
 * at its optimizer's step or, in a loop without one, after its backward or before it calls the
 * model again.  If it does not come, we look whether it sleeps: a thread that waits for the GIL
 * wakes up every few milliseconds, and one that frees memory needs the CPU, so a thread whose clock
 * stands is not in there.
 */
#include "module_calls/model_reader.h"
#include "lib/proc/task.h"
#include "lib/proc/thread_clock.h"
#include "module_calls/module_calls.h"
#include "module_registry/module_names.h"
#include "python/pyobject.h"
#include "python/tensor.h"

#include <poll.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#define GIL_WAIT_NS UINT64_C(2000000000)
#define WAIT_NS UINT64_C(5000000000)
#define STRANGE_NS UINT64_C(500000000) /* for one that nobody has called since the plugin came, */
#define STRANGE_STEPS 3u               /* once there were so many steps */
#define STEP_NS PROBING_NS_PER_S       /* a loop with an optimizer shall come to its step */
#define QUIET_NS UINT64_C(20000000)
#define LOOK_MS 5
#define INTERVALS 4 /* of sys.setswitchinterval(): a thread that waits for the GIL has woken up */

_Atomic(struct safe_point_read *) safe_point_pending;
static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER; /* query at a time */

static bool is_asleep(int64_t tid)
{
    struct proc_stat s;
    return proc_stat_of(0, (pid_t)tid, &s) == 0 && s.state == 'S';
}

/* With the GIL.  false: not now. */
static bool read_one(struct safe_point_read *w, uint32_t i, bool own)
{
    PyObject *root = w->roots[i], *guard;
    const struct module *m = torch_on() ? names_find(root) : NULL;
    bool lives = m && m->serial == w->all[i].serial;
    if (lives && !tensor_quiet(&guard))
        return false;
    w->all[i].done = true;
    if (lives) {
        python.api.Py_IncRef(root);
        w->read(w->arg, root, own);
        tensor_loud(guard);
        python.api.Py_DecRef(root);
    }
    atomic_fetch_sub_explicit(&w->left, 1, memory_order_release);
    return true;
}

/* Gradients are read when an optimizer steps, or after the backward when they are used by hand:
 * later most loops have none. */
static bool is_due(const struct safe_point_read *w, bool sleeps)
{
    uint64_t waited_ns = torch_state.now() - w->begin_ns;
    if (steps.stepper == STEPPER_OPTIMIZER || steps.stepper == STEPPER_BACKWARD)
        return waited_ns >= (sleeps ? STEP_NS : 3 * STEP_NS);
    return sleeps || waited_ns >= STEP_NS / 4;
}

void safe_point_reached(const struct thread *t, bool stepped)
{
    struct safe_point_read *w =
        atomic_exchange_explicit(&safe_point_pending, NULL, memory_order_acq_rel);
    if (!w)
        return;
    bool due = stepped || is_due(w, /* sleeps= */ false);
    for (uint32_t i = 0; i < w->n && due; i++) {
        const struct module *m = w->all[i].done ? NULL : names_find(w->roots[i]);
        if (m && m->serial == w->all[i].serial && m->tid == t->tid)
            (void)read_one(w, i, /* own= */ true);
    }
    atomic_store_explicit(&safe_point_pending, w, memory_order_release);
}

void safe_point_optimized(struct thread *t, uint64_t end_ns)
{
    if (!safe_point_wanted())
        return;
    safe_point_reached(t, /* stepped= */ true);
    t->walks_ns += torch_state.now() - end_ns;
}

/* ---- the worker, with the GIL ---- */

static int find_models(void *arg)
{
    struct safe_point_read *w = arg;
    uint64_t serials[SAFE_POINT_MODELS];
    if (!torch_on())
        return 0;
    PyObject *interval =
        python.api.PyObject_CallMethod(object_module("sys"), "getswitchinterval", NULL);
    double seconds = interval ? python.api.PyFloat_AsDouble(interval) : 0;
    python.api.PyErr_Clear();
    python.api.Py_DecRef(interval);
    w->quiet_ns = QUIET_NS;
    if (seconds * 1e9 * INTERVALS > (double)QUIET_NS)
        w->quiet_ns = seconds < 1 ? (uint64_t)(seconds * 1e9 * INTERVALS) : UINT64_MAX;
    w->n = names_roots(w->roots, serials, SAFE_POINT_MODELS);
    for (uint32_t i = 0; i < w->n; i++)
        w->all[i] =
            (struct safe_point_model){.serial = serials[i], .tid = names_find(w->roots[i])->tid};
    atomic_store_explicit(&w->left, w->n, memory_order_relaxed);
    return 0;
}

/* Read the models whose threads sleep: they still did when we got the GIL. */
static int read_quiet(void *arg)
{
    struct safe_point_read *w =
        atomic_exchange_explicit(&safe_point_pending, NULL, memory_order_acq_rel);
    if (!w)
        return 0;
    (void)arg;
    for (uint32_t i = 0; i < w->n && module_calls.backwards == 0; i++) {
        const struct safe_point_model *a = &w->all[i];
        const struct module *m = a->quiet && !a->done ? names_find(w->roots[i]) : NULL;
        if (m && m->tid == a->tid && thread_cpu_ns((int32_t)a->tid) == a->cpu_ns)
            (void)read_one(w, i, /* own= */ true);
    }
    atomic_store_explicit(&safe_point_pending, w, memory_order_release);
    return 0;
}

static int read_rest(void *arg)
{
    struct safe_point_read *w = arg;
    for (uint32_t i = 0; i < w->n; i++)
        if (!w->all[i].done)
            (void)read_one(w, i, /* own= */ false);
    return 0;
}

/* ---- without it ---- */

/* Mark the threads that have slept for long enough; true: there is one. */
static bool find_sleepers(struct safe_point_read *w)
{
    uint64_t now_ns = torch_state.now();
    bool any = false;
    for (uint32_t i = 0; i < w->n; i++) {
        struct safe_point_model *a = &w->all[i];
        if (a->done || a->tid == 0)
            continue;
        uint64_t cpu_ns = thread_cpu_ns((int32_t)a->tid);
        if (cpu_ns != a->cpu_ns || (cpu_ns != 0 && !is_asleep(a->tid)) || a->since_ns == 0)
            a->since_ns = now_ns;
        a->cpu_ns = cpu_ns;
        a->quiet = now_ns - a->since_ns >= w->quiet_ns;
        any = any || a->quiet;
    }
    return any;
}

/* Is there one that is waited for? */
static bool is_expected(const struct safe_point_read *w)
{
    uint64_t waited_ns = torch_state.now() - w->begin_ns;
    uint64_t n_steps = __atomic_load_n(&steps.step, __ATOMIC_RELAXED);
    bool early = n_steps < STRANGE_STEPS && waited_ns < 4 * STRANGE_NS;
    for (uint32_t i = 0; i < w->n && waited_ns < WAIT_NS; i++)
        if (!w->all[i].done && (w->all[i].tid != 0 || early || waited_ns < STRANGE_NS))
            return true;
    return false;
}

static int wait_for(struct safe_point_read *w, const struct probing_python_gil_1 *gil)
{
    int rc = 0;
    w->begin_ns = torch_state.now();
    atomic_store_explicit(&safe_point_pending, w, memory_order_release);
    while (rc == 0 && torch_on() && is_expected(w) &&
           atomic_load_explicit(&w->left, memory_order_acquire) != 0) {
        (void)poll(NULL, 0, LOOK_MS);
        if (find_sleepers(w) && is_due(w, /* sleeps= */ true))
            rc = gil->call(read_quiet, NULL, GIL_WAIT_NS);
    }
    struct safe_point_read *expected = w;
    while (!atomic_compare_exchange_strong_explicit(&safe_point_pending, &expected, NULL,
                                                    memory_order_acq_rel, memory_order_relaxed)) {
        (void)poll(NULL, 0, 1); /* a thread reads just now */
        expected = w;
    }
    return rc;
}

int safe_point_read_all(struct safe_point_read *w, const struct probing_python_gil_1 *gil)
{
    (void)pthread_mutex_lock(&one);
    int rc = gil->call(find_models, w, GIL_WAIT_NS);
    if (rc == 0 && w->n > 0)
        rc = wait_for(w, gil);
    (void)pthread_mutex_unlock(&one);
    if (rc == 0 && atomic_load_explicit(&w->left, memory_order_acquire) != 0)
        rc = gil->call(read_rest, w, GIL_WAIT_NS);
    return rc;
}
