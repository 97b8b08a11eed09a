/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/runner.c - a queue of jobs and the threads that take the GIL for them.
 *
 * Any thread submits and waits; the runner's threads run.  Lock order: the GIL, then the runner's
 * mutex; nobody takes the GIL with the mutex held.  An ending interpreter may end our thread inside
 * PyGILState_Ensure() by pthread_exit(): the cleanup handler then answers for it.
 * No thread of ours is joined: one may be in a call of C that ends in an hour.  Each holds the
 * runner as long as it lives, and its code stays mapped.
 * It does not decide what runs: eval.c does.
 */
#include "runner.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define STACK_BYTES (8u << 20)       /* as a main thread's: imports of user's packages run here */
#define STOP_NS UINT64_C(200000000)  /* an idle thread ends in microseconds */
#define AGAIN_NS UINT64_C(300000000) /* between two interrupts: code may clean up after the first */
#define INTERRUPTS 5
#define WORKERS 8              /* threads at most */
#define LEFT "left-by-probing" /* a thread's name: whoever looks whether we are here reads them */

struct worker {
    struct runner *r;
    struct worker *next;        /* lock: r->mutex; of r->workers */
    pthread_t thread;           /* lock: r->mutex */
    struct runner_job *current; /* lock: r->mutex */
    unsigned long python_id; /* lock: r->mutex; threading.get_ident() while it may be interrupted */
    bool loose;              /* lock: r->mutex; what it runs needs nothing of the plugin any more */
    int tid;                 /* lock: r->mutex */
};

struct runner {
    const struct cpython *py;
    struct cpython own; /* what a thread that was left behind needs: `py` may be gone then */
    pthread_mutex_t mutex;
    pthread_cond_t cond;      /* on CLOCK_MONOTONIC; one for all who wait, they look again */
    struct runner_job *first; /* lock: mutex */
    struct worker *workers;   /* lock: mutex */
    bool running, stop;       /* lock: mutex */
    bool interrupts;          /* lock: mutex; the thread for it is there: */
    pthread_t interrupter;    /* lock: mutex */
    _Atomic int holders;
    _Atomic bool forked;
};

static __thread struct worker *me; /* this thread's */

static void mutex_lock(struct runner *r)
{
    (void)pthread_mutex_lock(&r->mutex);
}

static void mutex_unlock(struct runner *r)
{
    (void)pthread_mutex_unlock(&r->mutex);
}

static void tell_all(struct runner *r)
{
    (void)pthread_cond_broadcast(&r->cond);
}

int runner_new(const struct cpython *py, struct runner **ret)
{
    struct runner *r = calloc(1, sizeof(*r));
    if (!r)
        return -ENOMEM;
    r->py = py;
    r->own = *py;
    atomic_store_explicit(&r->holders, 1, memory_order_relaxed);
    pthread_condattr_t attr;
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&r->mutex, NULL);
    (void)pthread_cond_init(&r->cond, &attr);
    (void)pthread_condattr_destroy(&attr);
    *ret = r;
    return 0;
}

void runner_hold(struct runner *r)
{
    (void)atomic_fetch_add_explicit(&r->holders, 1, memory_order_relaxed);
}

void runner_drop(struct runner *r)
{
    if (atomic_fetch_sub_explicit(&r->holders, 1, memory_order_acq_rel) > 1)
        return;
    (void)pthread_cond_destroy(&r->cond);
    (void)pthread_mutex_destroy(&r->mutex);
    free(r);
}

void runner_free(struct runner *r)
{
    if (r)
        runner_drop(r);
}

void runner_forked(struct runner *r)
{
    atomic_store_explicit(&r->forked, true, memory_order_relaxed);
}

/* Locked.  One hold less; unlocks when it was the last. */
static void hold_less(struct runner *r, struct runner_job *job)
{
    if (--job->holders > 0) {
        mutex_unlock(r);
        return;
    }
    mutex_unlock(r);
    if (job->drop)
        job->drop(job->arg);
    free(job);
}

static void finish(struct runner *r, struct runner_job *job, int result)
{
    mutex_lock(r);
    if (job->state != RUNNER_DROPPED) {
        job->state = RUNNER_DONE;
        job->result = result;
    }
    tell_all(r);
    hold_less(r, job);
}

/* Nobody will run what still waits. */
static void answer_all(struct runner *r)
{
    for (;;) {
        mutex_lock(r);
        struct runner_job *job = r->first;
        if (!job)
            break;
        r->first = job->next;
        mutex_unlock(r);
        finish(r, job, -ENODEV);
    }
    mutex_unlock(r);
}

/* Our thread ends: nothing to do for it, or by the interpreter's pthread_exit(). */
static void thread_gone(void *arg)
{
    struct worker *w = arg;
    struct runner *r = w->r;
    mutex_lock(r);
    struct worker **p = &r->workers;
    while (*p != w)
        p = &(*p)->next;
    *p = w->next;
    tell_all(r);
    struct runner_job *job = w->current;
    mutex_unlock(r);
    if (job) {
        finish(r, job, -ENODEV);
        answer_all(r);
    }
    free(w);
    runner_drop(r);
}

/* ---- who runs what ---- */

/* Locked.  Jobs of ours run one after the other, but none waits for one that nobody waits for. */
static const struct worker *in_the_way(const struct runner *r, const struct runner_job *job)
{
    for (const struct worker *w = r->workers; w && !job->client; w = w->next)
        if (w->current && !w->current->client && !w->current->abandoned)
            return w;
    return NULL;
}

/* Locked.  The first that may run, still in the queue; NULL: none. */
static struct runner_job **next_job(struct runner *r)
{
    struct runner_job **p = &r->first;
    while (*p && in_the_way(r, *p))
        p = &(*p)->next;
    return *p ? p : NULL;
}

static void *run(void *arg);

/* A thread whose signals are blocked: the host's handlers must not run on it.  But what it does
 * wrong itself (the user's code may call into C) is theirs: a fault that is blocked would end the
 * process without a word to its crash handler. */
static int start_thread(pthread_t *ret, size_t stack, void *(*fn)(void *), void *arg)
{
    sigset_t all, before;
    pthread_attr_t attr;
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
    (void)sigfillset(&all);
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        (void)sigdelset(&all, faults[i]);
    (void)pthread_attr_init(&attr);
    (void)pthread_attr_setstacksize(&attr, stack);
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(ret, &attr, fn, arg);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attr);
    return -error;
}

/* Locked. */
static int hire(struct runner *r)
{
    struct worker *w = calloc(1, sizeof(*w));
    if (!w)
        return -ENOMEM;
    w->r = r;
    runner_hold(r);
    int error = start_thread(&w->thread, STACK_BYTES, run, w);
    if (error) {
        free(w);
        runner_drop(r);
        return error;
    }
    w->next = r->workers;
    r->workers = w;
    return 0;
}

/* Locked.  One more thread, where a job could run and all that are there run clients' code; not
 * where one still waits for the GIL. */
static void hire_if_needed(struct runner *r)
{
    int n = 0;
    for (const struct worker *w = r->workers; w; w = w->next, n++)
        if (!w->current || w->current->state == RUNNER_WAITS)
            return;
    if (n < WORKERS && next_job(r))
        (void)hire(r);
}

static void run_one(struct worker *w, struct runner_job *job)
{
    struct runner *r = w->r;
    if (cpython_gone(&r->own)) {
        mutex_lock(r);
        w->current = NULL;
        mutex_unlock(r);
        finish(r, job, -ENODEV);
        return;
    }
    int gil = r->own.PyGILState_Ensure(); /* may wait for ever, or not come back at exit */
    mutex_lock(r);
    bool wanted = job->state == RUNNER_WAITS;
    if (wanted)
        job->state = RUNNER_RUNS;
    tell_all(r);
    hire_if_needed(r);
    mutex_unlock(r);
    int result = wanted ? job->fn(job->arg) : -ECANCELED;
    mutex_lock(r);
    w->python_id = 0;
    w->loose = false;
    w->current = NULL;
    mutex_unlock(r);
    r->own.PyGILState_Release(gil);
    finish(r, job, result);
}

/* Locked.  Another one waits for work already. */
static bool is_idle_too(const struct worker *own)
{
    for (const struct worker *w = own->r->workers; w; w = w->next)
        if (w != own && !w->current)
            return true;
    return false;
}

static void *run(void *arg)
{
    struct worker *w = arg;
    struct runner *r = w->r;
    (void)prctl(PR_SET_NAME, "probing/python");
    me = w;
    pthread_cleanup_push(thread_gone, w);
    mutex_lock(r);
    w->tid = (int)syscall(SYS_gettid);
    while (!r->stop) {
        struct runner_job **p = next_job(r);
        if (!p && is_idle_too(w))
            break;
        if (!p) {
            (void)pthread_cond_wait(&r->cond, &r->mutex);
            continue;
        }
        w->current = *p;
        *p = (*p)->next;
        mutex_unlock(r);
        run_one(w, w->current);
        mutex_lock(r);
    }
    mutex_unlock(r);
    pthread_cleanup_pop(1);
    return NULL;
}

int runner_start(struct runner *r)
{
    mutex_lock(r);
    r->stop = false; /* one that was left behind may serve again */
    int error = hire(r);
    r->running = error == 0;
    mutex_unlock(r);
    return error;
}

static uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void runner_sleep(struct runner *r, uint64_t timeout_ns)
{
    uint64_t until = now_ns() + timeout_ns;
    struct timespec t = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
    (void)pthread_cond_timedwait(&r->cond, &r->mutex, &t);
}

/* ---- the end ---- */

/* Locked.  Does anything run that needs the plugin? */
static bool is_busy(const struct runner *r)
{
    for (const struct worker *w = r->workers; w; w = w->next)
        if (w->current && w->current->state == RUNNER_RUNS && !w->loose)
            return true;
    return false;
}

/* Locked.  They go on without us: a job that waits for the GIL will not run. */
static void leave_behind(struct runner *r)
{
    for (struct worker *w = r->workers; w; w = w->next) {
        (void)pthread_setname_np(w->thread, LEFT);
        if (w->current && w->current->state == RUNNER_WAITS) {
            w->current->state = RUNNER_DROPPED;
            w->current->result = -ENODEV;
        }
    }
    if (r->interrupts)
        (void)pthread_setname_np(r->interrupter, LEFT);
    tell_all(r);
}

static void start_interrupts(struct runner *r);

int runner_stop(struct runner *r)
{
    if (!r->running || atomic_load_explicit(&r->forked, memory_order_relaxed))
        return 0;
    uint64_t until = now_ns() + STOP_NS;
    mutex_lock(r);
    r->stop = true;
    for (struct worker *w = r->workers; w; w = w->next)
        if (w->current && w->current->client)
            w->current->abandoned = true;
    start_interrupts(r);
    tell_all(r);
    while ((r->workers || r->interrupts) && now_ns() < until)
        runner_sleep(r, until - now_ns());
    bool busy = is_busy(r);
    if (busy)
        r->stop = false; /* it is inside a job and looks at this again after it: go on as before */
    else
        leave_behind(r);
    r->running = busy;
    mutex_unlock(r);
    if (!busy)
        answer_all(r);
    return busy ? -EBUSY : 0;
}

/* ---- those who wait ---- */

int runner_submit(struct runner *r, struct runner_job *job)
{
    if (atomic_load_explicit(&r->forked, memory_order_relaxed) || cpython_gone(r->py))
        return -ENODEV;
    if (me && me->r == r)
        return -EDEADLK;
    mutex_lock(r);
    if (!r->running || r->stop || (!r->workers && hire(r) < 0)) {
        mutex_unlock(r);
        return -ENODEV;
    }
    job->state = RUNNER_WAITS;
    job->holders = 2;
    job->next = NULL;
    struct runner_job **last = &r->first;
    while (*last)
        last = &(*last)->next;
    *last = job;
    hire_if_needed(r);
    tell_all(r);
    mutex_unlock(r);
    return 0;
}

enum runner_state runner_wait(struct runner *r, struct runner_job *job, enum runner_state state,
                              uint64_t timeout_ns)
{
    uint64_t until = now_ns() + timeout_ns;
    mutex_lock(r);
    while (job->state <= state && now_ns() < until)
        runner_sleep(r, until - now_ns());
    enum runner_state now = job->state;
    mutex_unlock(r);
    return now;
}

bool runner_take_back(struct runner *r, struct runner_job *job)
{
    mutex_lock(r);
    bool waits = job->state == RUNNER_WAITS;
    if (waits)
        job->state = RUNNER_DROPPED;
    /* still queued behind another one: nobody need look at it again */
    for (struct runner_job **p = &r->first; waits && *p; p = &(*p)->next)
        if (*p == job) {
            *p = job->next;
            job->holders--;
            break;
        }
    mutex_unlock(r);
    return waits;
}

int runner_is_behind(struct runner *r, const struct runner_job *job)
{
    int n = 0, tid = 0;
    bool gil = false;
    mutex_lock(r);
    const struct worker *before = in_the_way(r, job);
    for (const struct worker *w = r->workers; w; w = w->next, n++)
        gil = gil || (w->current && w->current->state == RUNNER_WAITS);
    if (!gil && before)
        tid = before->tid;
    else if (!gil && n >= WORKERS)
        tid = r->workers->tid;
    mutex_unlock(r);
    return tid;
}

int runner_tid_of(struct runner *r, const struct runner_job *job)
{
    int tid = 0;
    mutex_lock(r);
    for (const struct worker *w = r->workers; w; w = w->next)
        if (w->current == job)
            tid = w->tid;
    mutex_unlock(r);
    return tid;
}

bool runner_is_own(struct runner *r, int tid)
{
    bool own = false;
    mutex_lock(r);
    for (const struct worker *w = r->workers; w; w = w->next)
        own = own || (w->tid == tid && w->current);
    mutex_unlock(r);
    return own;
}

void runner_release(struct runner *r, struct runner_job *job)
{
    mutex_lock(r);
    hold_less(r, job);
}

int runner_call(struct runner *r, int (*fn)(void *arg), void *arg, uint64_t timeout_ns)
{
    struct runner_job *job = calloc(1, sizeof(*job));
    if (!job)
        return -ENOMEM;
    job->fn = fn;
    job->arg = arg;
    int result = runner_submit(r, job);
    if (result < 0) {
        free(job);
        return result;
    }
    if (runner_wait(r, job, RUNNER_WAITS, timeout_ns) == RUNNER_WAITS && runner_take_back(r, job)) {
        runner_release(r, job);
        return -ETIMEDOUT;
    }
    while (runner_wait(r, job, RUNNER_RUNS, UINT64_C(1000000000)) < RUNNER_DONE)
        continue; /* fn runs and owns what `arg` points to: it must be waited for */
    result = job->result;
    runner_release(r, job);
    return result;
}

/* ---- interrupts ---- */

/* With the GIL.  The interpreter takes a lock of its own for it, with which it calls nobody. */
static void interrupt_all(struct runner *r)
{
    mutex_lock(r);
    for (const struct worker *w = r->workers; w; w = w->next)
        if (w->current && w->current->abandoned && w->python_id)
            (void)r->own.PyThreadState_SetAsyncExc(w->python_id, r->own.PyExc_KeyboardInterrupt);
    mutex_unlock(r);
}

/* Locked. */
static bool any_abandoned(const struct runner *r)
{
    for (const struct worker *w = r->workers; w; w = w->next)
        if (w->current && w->current->abandoned && w->current->state == RUNNER_RUNS)
            return true;
    return false;
}

/* With the GIL.  To 3.12 an interrupt that has not been heard is a flag for all threads: each looks
 * for it at every turn, and 3.11 gives debuggers no events meanwhile.  One that is heard takes it
 * away, so we hear one.  A thread that comes back from its call of C puts it up again. */
static void take_flag_down(struct runner *r)
{
    const struct cpython *py = &r->own;
    PyObject *names = cpython_since(py, 13) ? NULL : py->PyDict_New();
    if (!names)
        return;
    (void)py->PyThreadState_SetAsyncExc((unsigned long)pthread_self(), py->PyExc_KeyboardInterrupt);
    PyObject *done =
        py->PyRun_StringFlags("for _ in (1, 2): pass", Py_file_input, names, names, NULL);
    py->PyErr_Clear();
    if (done)
        py->Py_DecRef(done);
    py->Py_DecRef(names);
}

static void *interrupt(void *arg)
{
    struct runner *r = arg;
    (void)prctl(PR_SET_NAME, "probing/pystop");
    bool more = true;
    for (int i = 0; more && !cpython_gone(&r->own); i++) {
        int gil = r->own.PyGILState_Ensure();
        interrupt_all(r);
        r->own.PyGILState_Release(gil);
        mutex_lock(r);
        for (uint64_t until = now_ns() + AGAIN_NS, now; any_abandoned(r) && r->running;) {
            if ((now = now_ns()) >= until)
                break;
            runner_sleep(r, until - now);
        }
        more = any_abandoned(r) && r->running && i + 1 < INTERRUPTS;
        mutex_unlock(r);
    }
    if (!cpython_gone(&r->own)) {
        int gil = r->own.PyGILState_Ensure();
        take_flag_down(r);
        r->own.PyGILState_Release(gil);
    }
    mutex_lock(r);
    r->interrupts = false;
    tell_all(r);
    mutex_unlock(r);
    runner_drop(r);
    return NULL;
}

/* Locked.  It needs the GIL, which nobody may wait for on a worker: hence a thread of its own. */
static void start_interrupts(struct runner *r)
{
    if (!any_abandoned(r) || r->interrupts)
        return;
    r->own.PyExc_KeyboardInterrupt = r->py->PyExc_KeyboardInterrupt;
    runner_hold(r);
    r->interrupts = start_thread(&r->interrupter, 256u << 10, interrupt, r) == 0;
    if (!r->interrupts)
        runner_drop(r);
}

void runner_interrupt(struct runner *r, struct runner_job *job)
{
    mutex_lock(r);
    job->abandoned = true;
    start_interrupts(r);
    hire_if_needed(r); /* for one of our own that waited for its end */
    mutex_unlock(r);
}

void runner_allow_interrupt(struct runner *r, bool allow)
{
    mutex_lock(r);
    me->python_id = allow ? (unsigned long)pthread_self() : 0;
    me->loose = me->loose || (allow && me->current->client);
    mutex_unlock(r);
}

void runner_lock(struct runner *r)
{
    mutex_lock(r);
}

void runner_unlock(struct runner *r)
{
    mutex_unlock(r);
}

void runner_wake(struct runner *r)
{
    tell_all(r);
}
