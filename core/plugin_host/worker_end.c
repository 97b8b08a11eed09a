/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/worker_end.c - commands that are to end: over their time, their plugin stopped,
 * or the core about to leave.
 *
 * It does not interrupt anything: `cancelled` is set, and the command looks at it.
 *
 * Threads: any.
 */
#include <errno.h>

#include "core/plugin_host/internal.h"

#define LEAVE_NS (NS_PER_S / 2) /* for what was cancelled to end before plugins are stopped */

void reply_cancel(struct probing_reply *r, int why)
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
            reply_cancel(j->reply, HOST_GONE);
    (void)pthread_mutex_unlock(&w->mutex);
}

static uint64_t expire_jobs(struct job *list, uint64_t now, uint64_t next)
{
    for (struct job *j = list; j; j = j->next) {
        if (!j->reply || j->deadline == 0)
            continue;
        if (j->deadline <= now)
            reply_cancel(j->reply, HOST_TIMED_OUT);
        else if (next == 0 || j->deadline < next)
            next = j->deadline;
    }
    return next;
}

uint64_t workers_expire(struct host *h, uint64_t now)
{
    struct workers *w = &h->workers;

    (void)pthread_mutex_lock(&w->mutex);
    uint64_t next = expire_jobs(w->running, now, expire_jobs(w->first, now, 0));
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
        r = pthread_cond_timedwait(&w->quiet, &w->mutex, &limit);
    return !is_busy(w, but);
}

int host_quiet(struct host *h, uint64_t timeout_ns)
{
    (void)pthread_mutex_lock(&h->workers.mutex);
    bool quiet = wait_quiet(&h->workers, /* but= */ NULL, timeout_ns);
    (void)pthread_mutex_unlock(&h->workers.mutex);
    return quiet ? 0 : err_set(-ETIMEDOUT, "a command is still running");
}

int host_leave(struct host *h, const struct probing_reply *but)
{
    struct workers *w = &h->workers;

    (void)pthread_mutex_lock(&w->mutex);
    bool already = w->leaving;
    w->leaving = true;
    for (struct job *j = already ? NULL : w->running; j; j = j->next)
        if (j->reply != but)
            reply_cancel(j->reply, HOST_LEAVING);
    for (struct job *j = already ? NULL : w->first; j; j = j->next)
        if (j->reply)
            reply_cancel(j->reply,
                         HOST_LEAVING); /* it is still run, so that its done() is called */
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
