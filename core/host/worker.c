/* SPDX-License-Identifier: Apache-2.0
 *
 * core/host/worker.c - the threads that run commands and ticks, and the time limits of commands.
 *
 * Threads: "probing/work", two of them; up to eight while all are busy, because a command may wait
 * for somebody (the GIL of a process that hangs) and `query` must be answered all the same.
 * It does not interrupt anything: a limit sets `cancelled`, and the command looks at it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/thread.h"
#include "core/host/inner.h"

#define WORKER_STACK ((size_t)1 << 20) /* bytes: SQL recurses into nested expressions */
#define EXTRA_IDLE_NS (10 * NS_PER_S)  /* an extra worker with nothing to do goes home */
#define LEAVE_NS (NS_PER_S / 2) /* for what was cancelled to end before plugins are stopped */

static struct timespec in_future(uint64_t ns)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    ns += (uint64_t)t.tv_nsec;
    t.tv_sec += (time_t)(ns / NS_PER_S);
    t.tv_nsec = (long)(ns % NS_PER_S);
    return t;
}

int workers_init(struct host *h)
{
    struct workers *w = &h->workers;
    pthread_condattr_t attr;

    (void)pthread_mutex_init(&w->mutex, NULL);
    if (pthread_condattr_init(&attr))
        return err_set(-ENOMEM, "no memory for the workers");
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    int r = pthread_cond_init(&w->wake, &attr);
    (void)pthread_condattr_destroy(&attr);
    for (int i = 0; i < HOST_WORKERS_MAX; i++)
        w->slots[i] = (struct worker){.host = h, .extra = i >= HOST_WORKERS};
    return r ? err_set(-r, "no condition for the workers") : 0;
}

static void unlink_job(struct job **list, struct job *j)
{
    if (j->previous)
        j->previous->next = j->next;
    else
        *list = j->next;
    if (j->next)
        j->next->previous = j->previous;
    j->next = j->previous = NULL;
}

static void link_running(struct workers *w, struct job *j)
{
    j->previous = NULL;
    j->next = w->running;
    if (w->running)
        w->running->previous = j;
    w->running = j;
}

void workers_enter(struct host *h, struct job *j)
{
    (void)pthread_mutex_lock(&h->workers.mutex);
    link_running(&h->workers, j);
    (void)pthread_mutex_unlock(&h->workers.mutex);
}

void workers_ending(struct host *h, struct job *j)
{
    struct workers *w = &h->workers;
    (void)pthread_mutex_lock(&w->mutex);
    unlink_job(&w->running, j);
    w->n_ending++;
    (void)pthread_mutex_unlock(&w->mutex);
}

void workers_ended(struct host *h)
{
    struct workers *w = &h->workers;
    (void)pthread_mutex_lock(&w->mutex);
    w->n_ending--;
    (void)pthread_cond_broadcast(&w->wake); /* host_quiet() may wait for this */
    (void)pthread_mutex_unlock(&w->mutex);
}

void workers_leave(struct host *h, struct job *j)
{
    workers_ending(h, j);
    workers_ended(h);
}

/* Take the first job that waits.  Commands go into the running list, so that they can be told to
 * end; ticks do not, because nobody owns them once they have run. */
static struct job *take(struct workers *w)
{
    struct job *j = w->first;
    unlink_job(&w->first, j);
    if (!w->first)
        w->last = NULL;
    w->n_queued--;
    if (j->counted)
        w->n_waiting--;
    if (j->reply)
        link_running(w, j);
    return j;
}

static void *work(void *arg)
{
    struct worker *self = arg;
    struct host *h = self->host;
    struct workers *w = &h->workers;

    (void)pthread_mutex_lock(&w->mutex);
    uint32_t turn = self->turn;
    self->tid = (pid_t)syscall(SYS_gettid);
    for (;;) {
        int timed_out = 0;
        struct timespec limit = in_future(EXTRA_IDLE_NS);
        while (!w->first && !w->stop && !(self->extra && timed_out))
            timed_out = self->extra ? pthread_cond_timedwait(&w->wake, &w->mutex, &limit)
                                    : pthread_cond_wait(&w->wake, &w->mutex);
        w->n_idle--;
        if (!w->first)
            break;
        struct job *j = take(w);
        struct plugin *plugin = j->plugin;
        self->job = j;
        (void)pthread_mutex_unlock(&w->mutex);
        err_clear();
        j->run(h, j);
        (void)pthread_mutex_lock(&w->mutex);
        if (self->turn != turn) { /* somebody else has this place; the host may go from here on */
            (void)pthread_mutex_unlock(&w->mutex);
            plugin_came_back(plugin);
            return NULL;
        }
        self->job = NULL;
        w->n_idle++;
    }
    self->state = WORKER_ENDED;
    (void)pthread_mutex_unlock(&w->mutex);
    return NULL;
}

/* Start the worker of the first free slot below `limit`.  Called with the lock held: the new
 * thread waits for it, we do not wait for the thread. */
static int start_one(struct workers *w, int limit)
{
    for (int i = 0; i < limit; i++) {
        struct worker *s = &w->slots[i];
        if (s->state == WORKER_RUNS)
            continue;
        if (s->state == WORKER_ENDED)
            (void)pthread_join(s->thread, NULL); /* it has left the lock for the last time */
        s->state = WORKER_NONE;
        int r = thread_start(&s->thread, "probing/work", WORKER_STACK, work, s);
        if (r == 0) {
            s->state = WORKER_RUNS;
            w->n_idle++; /* counted from here, or two jobs at once would both count on it */
        }
        return r;
    }
    return -EAGAIN;
}

bool workers_leave_to(struct host *h, const struct job *j)
{
    struct workers *w = &h->workers;
    bool found = false;

    (void)pthread_mutex_lock(&w->mutex);
    for (int i = 0; i < HOST_WORKERS_MAX && !found; i++) {
        struct worker *s = &w->slots[i];
        found = s->state == WORKER_RUNS && s->job == j;
        if (!found)
            continue;
        (void)pthread_detach(s->thread);
        thread_left(s->tid);
        s->turn++;
        s->job = NULL;
        s->state = WORKER_NONE;
        if (!w->stop)
            (void)start_one(w, HOST_WORKERS_MAX);
    }
    (void)pthread_mutex_unlock(&w->mutex);
    return found;
}

int workers_start(struct host *h)
{
    struct workers *w = &h->workers;
    int r = 0;

    (void)pthread_mutex_lock(&w->mutex);
    for (int i = 0; i < HOST_WORKERS && r == 0; i++)
        r = start_one(w, HOST_WORKERS);
    (void)pthread_mutex_unlock(&w->mutex);
    return r;
}

int workers_add(struct host *h, struct job *j)
{
    struct workers *w = &h->workers;
    int r = 0;

    (void)pthread_mutex_lock(&w->mutex);
    if (w->stop || (w->leaving && j->reply)) {
        r = err_set(-ESHUTDOWN, "the core is leaving this process");
    } else if (j->counted && w->n_waiting >= HOST_WAITING_MAX) {
        r = err_set(-EAGAIN, "%d commands wait already: try again when some have been answered",
                    HOST_WAITING_MAX);
    } else {
        j->next = NULL;
        j->previous = w->last;
        if (w->last)
            w->last->next = j;
        else
            w->first = j;
        w->last = j;
        w->n_queued++;
        w->n_waiting += j->counted ? 1 : 0;
        if (w->n_queued > w->n_idle)
            (void)start_one(w, HOST_WORKERS_MAX); /* cannot: then the job waits for its turn */
        (void)pthread_cond_broadcast(&w->wake);
    }
    (void)pthread_mutex_unlock(&w->mutex);
    return r;
}

bool workers_remove(struct host *h, struct job *j)
{
    struct workers *w = &h->workers;
    bool found = false;

    (void)pthread_mutex_lock(&w->mutex);
    for (struct job *at = w->first; at && !found; at = at->next)
        found = at == j;
    if (found) {
        if (w->last == j)
            w->last = j->previous;
        unlink_job(&w->first, j);
        w->n_queued--;
        w->n_waiting -= j->counted ? 1 : 0;
    }
    (void)pthread_mutex_unlock(&w->mutex);
    return found;
}

static void cancel(struct probing_reply *r, int why)
{
    int none = 0; /* the first reason stays */
    (void)atomic_compare_exchange_strong_explicit(&r->cancelled, &none, why, memory_order_release,
                                                  memory_order_relaxed);
}

void workers_cancel(struct host *h, const struct plugin *p)
{
    struct workers *w = &h->workers;

    (void)pthread_mutex_lock(&w->mutex);
    for (struct job *j = w->running; j; j = j->next)
        if (j->plugin == p || !p)
            cancel(j->reply, HOST_GONE);
    (void)pthread_mutex_unlock(&w->mutex);
}

static uint64_t expire(struct job *list, uint64_t now, uint64_t next)
{
    for (struct job *j = list; j; j = j->next) {
        if (!j->reply || j->deadline == 0)
            continue;
        if (j->deadline <= now)
            cancel(j->reply, HOST_TIMED_OUT);
        else if (next == 0 || j->deadline < next)
            next = j->deadline;
    }
    return next;
}

uint64_t workers_expire(struct host *h, uint64_t now)
{
    struct workers *w = &h->workers;

    (void)pthread_mutex_lock(&w->mutex);
    uint64_t next = expire(w->running, now, expire(w->first, now, 0));
    (void)pthread_mutex_unlock(&w->mutex);
    return next;
}

/* lock held.  Does a command wait, run or end, `but` excepted? */
static bool is_busy(const struct workers *w, const struct probing_reply *but)
{
    for (const struct job *j = w->running; j; j = j->next)
        if (!but || j->reply != but)
            return true;
    return w->n_waiting > 0 || w->n_ending > 0;
}

/* lock held */
static bool wait_quiet(struct workers *w, const struct probing_reply *but, uint64_t timeout_ns)
{
    struct timespec limit = in_future(timeout_ns);
    int r = 0;
    while (is_busy(w, but) && r == 0)
        r = pthread_cond_timedwait(&w->wake, &w->mutex, &limit);
    return !is_busy(w, but);
}

int host_quiet(struct host *h, uint64_t timeout_ns)
{
    (void)pthread_mutex_lock(&h->workers.mutex);
    bool quiet = wait_quiet(&h->workers, /* but= */ NULL, timeout_ns);
    (void)pthread_mutex_unlock(&h->workers.mutex);
    return quiet ? 0 : err_set(-ETIMEDOUT, "a command still runs");
}

int host_leave(struct host *h, const struct probing_reply *but)
{
    struct workers *w = &h->workers;

    (void)pthread_mutex_lock(&w->mutex);
    bool already = w->leaving;
    w->leaving = true;
    for (struct job *j = already ? NULL : w->running; j; j = j->next)
        if (j->reply != but)
            cancel(j->reply, HOST_LEAVING);
    for (struct job *j = already ? NULL : w->first; j; j = j->next)
        if (j->reply)
            cancel(j->reply, HOST_LEAVING); /* it is still run, so that its done() is called */
    if (!already)
        (void)wait_quiet(w, but, LEAVE_NS); /* what goes on is the business of its plugin's stop */
    (void)pthread_mutex_unlock(&w->mutex);
    return already ? err_set(-EALREADY, "the core is leaving this process already") : 0;
}

void host_stay(struct host *h)
{
    (void)pthread_mutex_lock(&h->workers.mutex);
    h->workers.leaving = false;
    (void)pthread_mutex_unlock(&h->workers.mutex);
}

bool workers_leaving(struct host *h)
{
    (void)pthread_mutex_lock(&h->workers.mutex);
    bool leaving = h->workers.leaving;
    (void)pthread_mutex_unlock(&h->workers.mutex);
    return leaving;
}

void workers_stop(struct host *h)
{
    struct workers *w = &h->workers;

    workers_cancel(h, NULL);
    (void)pthread_mutex_lock(&w->mutex);
    w->stop = true;
    for (struct job *j = w->first; j; j = j->next)
        if (j->reply)
            cancel(j->reply, HOST_GONE); /* it is still run, so that its done() is called */
    (void)pthread_cond_broadcast(&w->wake);
    for (int i = 0; i < HOST_WORKERS_MAX; i++) {
        if (w->slots[i].state == WORKER_NONE)
            continue;
        pthread_t thread = w->slots[i].thread;
        (void)pthread_mutex_unlock(&w->mutex);
        (void)pthread_join(thread, NULL);
        (void)pthread_mutex_lock(&w->mutex);
        w->slots[i].state = WORKER_NONE;
    }
    (void)pthread_mutex_unlock(&w->mutex);
}

void workers_done(struct host *h)
{
    (void)pthread_cond_destroy(&h->workers.wake);
    (void)pthread_mutex_destroy(&h->workers.mutex);
}
