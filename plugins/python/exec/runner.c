/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/exec/runner.c - a queue of jobs that want the GIL, and those who wait for them.
 *
 * Any thread submits and waits; runner_thread.c runs them.  It does not decide what runs: eval.c
 * and others do.
 */
#include "exec/runner.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "exec/runner_internal.h"
#include "probing_sdk.h"

void runner_lock(struct runner *r)
{
    (void)pthread_mutex_lock(&r->mutex);
}

void runner_unlock(struct runner *r)
{
    (void)pthread_mutex_unlock(&r->mutex);
}

void runner_wake(struct runner *r)
{
    (void)pthread_cond_broadcast(&r->cond);
}

uint64_t runner_now_ns(void)
{
    return probing_clock_ns(CLOCK_MONOTONIC);
}

void runner_sleep(struct runner *r, uint64_t timeout_ns)
{
    uint64_t until = runner_now_ns() + timeout_ns;
    struct timespec t = {(time_t)(until / PROBING_NS_PER_S), (long)(until % PROBING_NS_PER_S)};
    (void)pthread_cond_timedwait(&r->cond, &r->mutex, &t);
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
    if (runner_me && runner_me->guest) /* a client's code forks: the child is the program's */
        (void)syscall(SYS_prctl, PR_SET_NAME, runner_me->program);
}

/* ---- jobs ---- */

/* Locked.  One hold less; unlocks when it was the last. */
static void hold_less(struct runner *r, struct runner_job *job)
{
    if (--job->holders > 0) {
        runner_unlock(r);
        return;
    }
    runner_unlock(r);
    if (job->drop)
        job->drop(job->arg);
    free(job);
}

void runner_finish(struct runner *r, struct runner_job *job, int result)
{
    runner_lock(r);
    if (job->state != RUNNER_DROPPED) {
        job->state = RUNNER_DONE;
        job->result = result;
    }
    runner_wake(r);
    hold_less(r, job);
}

/* Nobody will run what still waits. */
void runner_answer_all(struct runner *r)
{
    for (;;) {
        runner_lock(r);
        struct runner_job *job = r->first;
        if (!job)
            break;
        r->first = job->next;
        runner_unlock(r);
        runner_finish(r, job, -ENODEV);
    }
    runner_unlock(r);
}

/* Locked.  Jobs of ours run one after the other, but none waits for one that nobody waits for. */
static const struct worker *in_the_way(const struct runner *r, const struct runner_job *job)
{
    for (const struct worker *w = r->workers; w && !job->client; w = w->next)
        if (w->current && !w->current->client && !w->current->abandoned)
            return w;
    return NULL;
}

/* Locked.  The first that may run, still in the queue; NULL: none. */
struct runner_job **runner_next_job(struct runner *r)
{
    struct runner_job **p = &r->first;
    while (*p && in_the_way(r, *p))
        p = &(*p)->next;
    return *p ? p : NULL;
}

int runner_submit(struct runner *r, struct runner_job *job)
{
    if (atomic_load_explicit(&r->forked, memory_order_relaxed) || cpython_gone(r->py))
        return -ENODEV;
    if (runner_me && runner_me->r == r)
        return -EDEADLK;
    runner_lock(r);
    if (!r->running || r->stop || (!r->workers && runner_hire(r) < 0)) {
        runner_unlock(r);
        return -ENODEV;
    }
    job->state = RUNNER_WAITS;
    job->holders = 2;
    job->next = NULL;
    struct runner_job **last = &r->first;
    while (*last)
        last = &(*last)->next;
    *last = job;
    runner_hire_if_needed(r);
    runner_wake(r);
    runner_unlock(r);
    return 0;
}

/* ---- those who wait ---- */

enum runner_state runner_wait(struct runner *r, struct runner_job *job, enum runner_state state,
                              uint64_t timeout_ns)
{
    uint64_t until = runner_now_ns() + timeout_ns;
    runner_lock(r);
    while (job->state <= state && runner_now_ns() < until)
        runner_sleep(r, until - runner_now_ns());
    enum runner_state now = job->state;
    runner_unlock(r);
    return now;
}

bool runner_take_back(struct runner *r, struct runner_job *job)
{
    runner_lock(r);
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
    runner_unlock(r);
    return waits;
}

int runner_is_behind(struct runner *r, const struct runner_job *job)
{
    int n = 0, tid = 0;
    bool gil = false;
    runner_lock(r);
    const struct worker *before = in_the_way(r, job);
    for (const struct worker *w = r->workers; w; w = w->next, n++)
        gil = gil || (w->current && w->current->state == RUNNER_WAITS);
    if (!gil && before)
        tid = before->tid;
    else if (!gil && n >= RUNNER_WORKERS)
        tid = r->workers->tid;
    runner_unlock(r);
    return tid;
}

int runner_tid_of(struct runner *r, const struct runner_job *job)
{
    int tid = 0;
    runner_lock(r);
    for (const struct worker *w = r->workers; w; w = w->next)
        if (w->current == job)
            tid = w->tid;
    runner_unlock(r);
    return tid;
}

bool runner_is_own(struct runner *r, int tid)
{
    bool own = false;
    runner_lock(r);
    for (const struct worker *w = r->workers; w; w = w->next)
        own = own || (w->tid == tid && w->current);
    runner_unlock(r);
    return own;
}

void runner_release(struct runner *r, struct runner_job *job)
{
    runner_lock(r);
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
    while (runner_wait(r, job, RUNNER_RUNS, PROBING_NS_PER_S) < RUNNER_DONE)
        continue; /* fn runs and owns what `arg` points to: it must be waited for */
    result = job->result;
    runner_release(r, job);
    return result;
}
