/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/exec/runner_thread.c - the threads that take the GIL and run jobs.
 *
 * An ending interpreter may end our thread inside entry_take() by pthread_exit(): the
 * cleanup handler then answers for it.  No thread of ours is joined: one may be in a call of C that
 * ends in an hour.  Each holds the runner as long as it lives, and its code stays mapped.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "exec/entry.h"
#include "exec/runner_internal.h"
#include "lib/own_thread.h"

#define STACK_BYTES (8u << 20)      /* as a main thread's: imports of user's packages run here */
#define STOP_NS UINT64_C(200000000) /* an idle thread ends in microseconds */
#define LEFT "left-by-probing" /* a thread's name: whoever looks whether we are here reads them */

__thread struct worker *runner_me;

/* Our thread ends: nothing to do for it, or by the interpreter's pthread_exit(). */
static void thread_gone(void *arg)
{
    struct worker *w = arg;
    struct runner *r = w->r;
    entry_gone(&w->entry);
    runner_lock(r);
    struct worker **p = &r->workers;
    while (*p != w)
        p = &(*p)->next;
    *p = w->next;
    runner_wake(r);
    struct runner_job *job = w->current;
    runner_unlock(r);
    if (job) {
        runner_finish(r, job, -ENODEV);
        runner_answer_all(r);
    }
    free(w);
    runner_drop(r);
}

static void run_one(struct worker *w, struct runner_job *job)
{
    struct runner *r = w->r;
    if (!entry_take(&r->own, &w->entry)) { /* may wait for ever, or not come back at exit */
        runner_lock(r);
        w->current = NULL;
        runner_unlock(r);
        runner_finish(r, job, -ENODEV);
        return;
    }
    runner_lock(r);
    bool wanted = job->state == RUNNER_WAITS;
    if (wanted)
        job->state = RUNNER_RUNS;
    runner_wake(r);
    runner_hire_if_needed(r);
    runner_unlock(r);
    int result = wanted ? job->fn(job->arg) : -ECANCELED;
    if (entry_is_over())
        result = -ENODEV; /* its code was interrupted for that */
    entry_allow_interrupt(&w->entry, false);
    runner_lock(r);
    w->loose = false;
    w->current = NULL;
    runner_unlock(r);
    entry_leave(&r->own, &w->entry);
    runner_guest_ended(w);
    runner_finish(r, job, result);
}

/* Locked.  Another one waits for work already. */
static bool is_idle_too(const struct worker *own)
{
    for (const struct worker *w = own->r->workers; w; w = w->next)
        if (w != own && !w->current && !w->leaves)
            return true;
    return false;
}

/* Locked.  The thread that has run a client's code ends, if there is another for what comes: what
 * the code imported may keep this thread's Python state for as long as the thread lives, while
 * PyGILState_Release() frees it (pybind11 2.x, detail/internals.h: the first import's).  The next
 * job would find a pointer to what is gone. */
static bool may_retire(const struct worker *own)
{
    return is_idle_too(own) || (!own->r->stop && runner_hire(own->r) == 0);
}

static void *runner_thread(void *arg)
{
    struct worker *w = arg;
    struct runner *r = w->r;
    runner_me = w;
    pthread_cleanup_push(thread_gone, w);
    runner_lock(r);
    w->tid = (int)syscall(SYS_gettid);
    (void)prctl(PR_SET_NAME, RUNNER_NAME);
    while (!r->stop) {
        struct runner_job **p = runner_next_job(r);
        w->leaves = !p && is_idle_too(w);
        if (w->leaves)
            break;
        if (!p) {
            (void)pthread_cond_wait(&r->cond, &r->mutex);
            continue;
        }
        w->current = *p;
        *p = (*p)->next;
        bool client = w->current->client;
        runner_unlock(r);
        run_one(w, w->current);
        runner_lock(r);
        w->leaves = client && may_retire(w);
        if (w->leaves)
            break;
    }
    runner_unlock(r);
    pthread_cleanup_pop(1);
    return NULL;
}

/* Locked. */
int runner_hire(struct runner *r)
{
    struct worker *w = calloc(1, sizeof(*w));
    if (!w)
        return -ENOMEM;
    w->r = r;
    runner_hold(r);
    int error = own_thread_start_detached(&w->thread, STACK_BYTES, runner_thread, w);
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
void runner_hire_if_needed(struct runner *r)
{
    int n = 0;
    for (const struct worker *w = r->workers; w; w = w->next, n++)
        if ((!w->current && !w->leaves) || (w->current && w->current->state == RUNNER_WAITS))
            return;
    if (n < RUNNER_WORKERS && runner_next_job(r))
        (void)runner_hire(r);
}

int runner_start(struct runner *r)
{
    runner_lock(r);
    r->stop = false; /* one that was left behind may serve again */
    int error = runner_hire(r);
    r->running = error == 0;
    runner_unlock(r);
    return error;
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
    runner_wake(r);
}

int runner_stop(struct runner *r)
{
    if (!r->running || atomic_load_explicit(&r->forked, memory_order_relaxed))
        return 0;
    uint64_t until = runner_now_ns() + STOP_NS;
    runner_lock(r);
    r->stop = true;
    for (struct worker *w = r->workers; w; w = w->next)
        if (w->current && w->current->client)
            w->current->abandoned = true;
    runner_start_interrupts(r);
    runner_wake(r);
    while ((r->workers || r->interrupts) && runner_now_ns() < until)
        runner_sleep(r, until - runner_now_ns());
    bool busy = is_busy(r);
    if (busy)
        r->stop = false; /* it is inside a job and looks at this again after it: go on as before */
    else
        leave_behind(r);
    r->running = busy;
    runner_unlock(r);
    if (!busy) {
        runner_name_strays(r);
        runner_answer_all(r);
    }
    return busy ? -EBUSY : 0;
}
