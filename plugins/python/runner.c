/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/runner.c - a queue of jobs and the one thread that takes the GIL for them.
 *
 * Any thread submits and waits; the runner's thread runs.  Lock order: the GIL, then the runner's
 * mutex; nobody takes the GIL with the mutex held.  An ending interpreter may end our thread inside
 * PyGILState_Ensure() by pthread_exit(): the cleanup handler then answers for it.
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

#define STACK_BYTES (8u << 20)      /* as a main thread's: imports of user's packages run here */
#define STOP_NS UINT64_C(200000000) /* an idle thread ends in microseconds; a busy one is refused */

struct runner {
    const struct cpython *py;
    pthread_mutex_t mutex;
    pthread_cond_t cond; /* on CLOCK_MONOTONIC; one for all who wait, they look again */
    struct runner_job *first, **last, *current; /* lock: mutex */
    pthread_t thread, helper;
    bool running, ended, stop, has_helper, helper_ended; /* lock: mutex */
    unsigned long python_id; /* lock: mutex; threading.get_ident() of the thread */
    _Atomic int tid;
    _Atomic bool forked;
};

static void mutex_lock(struct runner *r)
{
    (void)pthread_mutex_lock(&r->mutex);
}

static void mutex_unlock(struct runner *r)
{
    (void)pthread_mutex_unlock(&r->mutex);
}

int runner_new(const struct cpython *py, struct runner **ret)
{
    struct runner *r = calloc(1, sizeof(*r));
    if (!r)
        return -ENOMEM;
    r->py = py;
    r->last = &r->first;
    pthread_condattr_t attr;
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&r->mutex, NULL);
    (void)pthread_cond_init(&r->cond, &attr);
    (void)pthread_condattr_destroy(&attr);
    *ret = r;
    return 0;
}

void runner_free(struct runner *r)
{
    if (!r)
        return;
    (void)pthread_cond_destroy(&r->cond);
    (void)pthread_mutex_destroy(&r->mutex);
    free(r);
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
    r->current = NULL;
    (void)pthread_cond_broadcast(&r->cond);
    hold_less(r, job);
}

/* Our thread ends, by stop or by the interpreter's pthread_exit(). */
static void thread_gone(void *arg)
{
    struct runner *r = arg;
    mutex_lock(r);
    r->ended = true;
    atomic_store_explicit(&r->tid, 0, memory_order_relaxed);
    struct runner_job *job = r->current;
    mutex_unlock(r);
    if (job)
        finish(r, job, -ENODEV);
    for (;;) {
        mutex_lock(r);
        job = r->first;
        if (!job)
            break;
        r->first = job->next;
        mutex_unlock(r);
        finish(r, job, -ENODEV);
    }
    r->last = &r->first;
    (void)pthread_cond_broadcast(&r->cond);
    mutex_unlock(r);
}

static void run_one(struct runner *r, struct runner_job *job)
{
    if (cpython_gone(r->py)) {
        finish(r, job, -ENODEV);
        return;
    }
    int gil = r->py->PyGILState_Ensure(); /* may wait for ever, or not come back at exit */
    mutex_lock(r);
    bool wanted = job->state == RUNNER_WAITS;
    if (wanted)
        job->state = RUNNER_RUNS;
    r->python_id = (unsigned long)pthread_self();
    (void)pthread_cond_broadcast(&r->cond);
    mutex_unlock(r);
    int result = wanted ? job->fn(job->arg) : -ECANCELED;
    mutex_lock(r);
    r->python_id = 0;
    mutex_unlock(r);
    r->py->PyGILState_Release(gil);
    finish(r, job, result);
}

static void *run(void *arg)
{
    struct runner *r = arg;
    (void)prctl(PR_SET_NAME, "probing/python");
    atomic_store_explicit(&r->tid, (int)syscall(SYS_gettid), memory_order_relaxed);
    pthread_cleanup_push(thread_gone, r);
    mutex_lock(r);
    while (!r->stop) {
        struct runner_job *job = r->first;
        if (!job) {
            (void)pthread_cond_wait(&r->cond, &r->mutex);
            continue;
        }
        r->first = job->next;
        if (!r->first)
            r->last = &r->first;
        r->current = job;
        mutex_unlock(r);
        run_one(r, job);
        mutex_lock(r);
    }
    mutex_unlock(r);
    pthread_cleanup_pop(1);
    return NULL;
}

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
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(ret, &attr, fn, arg);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attr);
    return -error;
}

int runner_start(struct runner *r)
{
    r->stop = r->ended = false;
    int error = start_thread(&r->thread, STACK_BYTES, run, r);
    r->running = error == 0;
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

int runner_stop(struct runner *r)
{
    if (!r->running || atomic_load_explicit(&r->forked, memory_order_relaxed))
        return 0;
    uint64_t until = now_ns() + STOP_NS;
    mutex_lock(r);
    r->stop = true;
    (void)pthread_cond_broadcast(&r->cond);
    while ((!r->ended || (r->has_helper && !r->helper_ended)) && now_ns() < until)
        runner_sleep(r, until - now_ns());
    bool ended = r->ended && (!r->has_helper || r->helper_ended);
    bool helper = r->has_helper;
    if (!ended)
        r->stop = false; /* it is inside a job and looks at this again after it: go on as before */
    mutex_unlock(r);
    if (!ended)
        return -EBUSY;
    (void)pthread_join(r->thread, NULL);
    if (helper)
        (void)pthread_join(r->helper, NULL);
    r->running = r->has_helper = false;
    return 0;
}

int runner_submit(struct runner *r, struct runner_job *job)
{
    if (atomic_load_explicit(&r->forked, memory_order_relaxed) || cpython_gone(r->py))
        return -ENODEV;
    if (r->running && pthread_equal(pthread_self(), r->thread))
        return -EDEADLK;
    mutex_lock(r);
    if (!r->running || r->ended || r->stop) {
        mutex_unlock(r);
        return -ENODEV;
    }
    job->state = RUNNER_WAITS;
    job->holders = 2;
    job->next = NULL;
    *r->last = job;
    r->last = &job->next;
    (void)pthread_cond_broadcast(&r->cond);
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
            if (!*p)
                r->last = p;
            job->holders--;
            break;
        }
    mutex_unlock(r);
    return waits;
}

bool runner_is_behind(struct runner *r, const struct runner_job *job)
{
    mutex_lock(r);
    bool behind = r->current && r->current != job && r->current->state == RUNNER_RUNS;
    mutex_unlock(r);
    return behind;
}

void runner_release(struct runner *r, struct runner_job *job)
{
    mutex_lock(r);
    hold_less(r, job);
}

static void *interrupt(void *arg)
{
    struct runner *r = arg;
    (void)prctl(PR_SET_NAME, "probing/pystop");
    if (!cpython_gone(r->py)) {
        int gil = r->py->PyGILState_Ensure();
        mutex_lock(r);
        unsigned long id = r->python_id; /* it cannot end its job: we have the GIL */
        mutex_unlock(r);
        if (id)
            (void)r->py->PyThreadState_SetAsyncExc(id, r->py->PyExc_KeyboardInterrupt);
        r->py->PyGILState_Release(gil);
    }
    mutex_lock(r);
    r->helper_ended = true;
    (void)pthread_cond_broadcast(&r->cond);
    mutex_unlock(r);
    return NULL;
}

void runner_interrupt(struct runner *r)
{
    /* Needs the GIL, which nobody may wait for on a worker: hence a thread of its own. */
    mutex_lock(r);
    bool busy = r->has_helper && !r->helper_ended;
    bool join = r->has_helper && r->helper_ended;
    r->has_helper = r->has_helper && !join;
    mutex_unlock(r);
    if (busy)
        return;
    if (join)
        (void)pthread_join(r->helper, NULL);
    mutex_lock(r);
    r->helper_ended = false;
    r->has_helper = start_thread(&r->helper, 256u << 10, interrupt, r) == 0;
    mutex_unlock(r);
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
    (void)pthread_cond_broadcast(&r->cond);
}

int runner_tid(struct runner *r)
{
    return atomic_load_explicit(&r->tid, memory_order_relaxed);
}
