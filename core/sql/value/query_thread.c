/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/value/query_thread.c - a query on a thread of its own, nicer than everything else in the
 * process.
 *
 * The caller waits and meanwhile does what may hold a lock of the host's (the GIL, in tables that
 * plugins compute): done with low priority it could keep the host's own threads waiting.  Reading
 * what is stored takes no such lock.
 *
 * When the caller has its answer, the thread waits for the next query for ten seconds, two of them
 * at most: for one who asks every second none is made and ended each time.
 *
 * One mutex for all of an engine's; conditions are signalled without it, so that who wakes up does
 * not have to wait for it.
 */
#include "core/sql/value/query.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/guest/thread.h"

#define STACK_BYTES ((size_t)1 << 20) /* as the workers': SQL recurses into nested expressions */
#define IDLE_MOST 2                   /* threads that wait for a query */
#define IDLE_NS (10 * NS_PER_S)       /* then they end, as the extra workers do */

struct query_thread {
    struct query_threads *all;
    pthread_t thread;
    int nice;
    pthread_cond_t cond; /* on CLOCK_MONOTONIC */
    /* All below: lock: all->mutex. */
    struct query_thread *next;
    const struct query_thread_query *query; /* NULL: it has ended, `code` is there */
    bool idle;                              /* in all->idle: nobody is its caller */
    bool end;
    int (*errand)(void *arg); /* of the query to the caller; NULL: none */
    void *arg;
    int code;        /* of the errand, then of the query */
    uint64_t cpu_ns; /* of the query */
    struct err_kept why;
};

/* ---- the thread ---- */

static void keep_reason(struct query_thread *a, int code)
{
    a->code = code;
    err_keep(&a->why, code);
}

/* lock held */
static void unlink_idle(struct query_thread *a)
{
    struct query_thread **at = &a->all->idle;
    while (*at != a)
        at = &(*at)->next;
    *at = a->next;
    a->idle = false;
    a->all->n_idle--;
}

static struct timespec idle_limit(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += (time_t)(IDLE_NS / NS_PER_S);
    return t;
}

/* lock held.  false: nobody wants it any more. */
static bool wait_for_query(struct query_thread *a)
{
    struct query_threads *all = a->all;
    struct timespec until = idle_limit();
    while (!a->query && !a->end) {
        if (pthread_cond_timedwait(&a->cond, &all->mutex, &until) != ETIMEDOUT || a->query)
            continue;
        until = idle_limit(); /* its caller may not have come by yet for the answer */
        if (!a->idle)
            continue;
        unlink_idle(a);
        a->next = all->ended; /* who comes next, or sql_threads_end(), joins it */
        all->ended = a;
        a->end = true;
    }
    return a->query != NULL;
}

static void *run_query(void *arg)
{
    struct query_thread *a = arg;
    struct query_threads *all = a->all;
    id_t self = (id_t)syscall(SYS_gettid);
    /* -1 is a niceness, too; one that cannot be set is no reason not to answer. */
    (void)setpriority(PRIO_PROCESS, self, getpriority(PRIO_PROCESS, self) + a->nice);
    (void)pthread_mutex_lock(&all->mutex);
    while (wait_for_query(a)) {
        const struct query_thread_query *q = a->query;
        (void)pthread_mutex_unlock(&all->mutex);
        err_clear();
        uint64_t begin_cpu = thread_cpu();
        int rc = q->run(q, a);
        (void)pthread_mutex_lock(&all->mutex);
        a->cpu_ns = thread_cpu() - begin_cpu;
        keep_reason(a, rc);
        a->query = NULL;
        (void)pthread_mutex_unlock(&all->mutex);
        (void)pthread_cond_broadcast(&a->cond);
        (void)pthread_mutex_lock(&all->mutex);
    }
    (void)pthread_mutex_unlock(&all->mutex);
    return NULL;
}

/* ---- the caller ---- */

static void join_thread(struct query_thread *a)
{
    (void)pthread_join(a->thread, NULL);
    (void)pthread_cond_destroy(&a->cond);
    free(a);
}

static int init_cond(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    int rc = pthread_condattr_init(&attr);
    if (rc != 0)
        return rc;
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    rc = pthread_cond_init(cond, &attr);
    (void)pthread_condattr_destroy(&attr);
    return rc;
}

static struct query_thread *start_thread(struct query_threads *all,
                                         const struct query_thread_query *q, int nice)
{
    struct query_thread *a = calloc(1, sizeof(*a));
    if (!a || init_cond(&a->cond) != 0) {
        free(a);
        return NULL;
    }
    a->all = all;
    a->query = q;
    a->nice = nice;
    if (thread_start(&a->thread, "probing/query", STACK_BYTES, run_query, a) == 0)
        return a;
    (void)pthread_cond_destroy(&a->cond);
    free(a);
    return NULL;
}

/* One that waits and is as nice as is wanted: it has the query at once.  NULL: there is none. */
static struct query_thread *take_idle(struct query_threads *all, const struct query_thread_query *q,
                                      int nice)
{
    (void)pthread_mutex_lock(&all->mutex);
    struct query_thread *a = all->idle, *ended = all->ended;
    all->ended = NULL;
    while (a && a->nice != nice)
        a = a->next;
    if (a) {
        unlink_idle(a);
        a->query = q;
    }
    (void)pthread_mutex_unlock(&all->mutex);
    if (a)
        (void)pthread_cond_broadcast(&a->cond);
    while (ended) {
        struct query_thread *next = ended->next;
        join_thread(ended);
        ended = next;
    }
    return a;
}

/* Until the query has ended.  Gives its code. */
static int attend_query(struct query_thread *a)
{
    pthread_mutex_t *mutex = &a->all->mutex;
    (void)pthread_mutex_lock(mutex);
    while (a->query) {
        int (*errand)(void *) = a->errand;
        if (!errand) {
            (void)pthread_cond_wait(&a->cond, mutex);
            continue;
        }
        (void)pthread_mutex_unlock(mutex);
        int rc = errand(a->arg);
        (void)pthread_mutex_lock(mutex);
        keep_reason(a, rc);
        a->errand = NULL;
        (void)pthread_mutex_unlock(mutex);
        (void)pthread_cond_broadcast(&a->cond);
        (void)pthread_mutex_lock(mutex);
    }
    int code = a->code < 0 ? err_restore(&a->why) : a->code;
    thread_cpu_add(a->cpu_ns);
    (void)pthread_mutex_unlock(mutex);
    return code;
}

/* The last that waited is the first to go on: it is still in the caches. */
static void leave_thread(struct query_thread *a)
{
    struct query_threads *all = a->all;
    (void)pthread_mutex_lock(&all->mutex);
    bool stays = all->n_idle < IDLE_MOST;
    if (stays) {
        a->next = all->idle;
        all->idle = a;
        all->n_idle++;
    }
    a->idle = stays;
    a->end = !stays;
    (void)pthread_mutex_unlock(&all->mutex);
    if (stays)
        return;
    (void)pthread_cond_broadcast(&a->cond);
    join_thread(a);
}

bool sql_run_on_thread(const struct query_thread_query *q, int nice, int *ret_code)
{
    struct query_threads *all = &q->s->threads;
    struct query_thread *a = take_idle(all, q, nice);
    if (!a)
        a = start_thread(all, q, nice);
    if (!a)
        return false;
    *ret_code = attend_query(a);
    leave_thread(a);
    return true;
}

int sql_by_caller(struct query *q, int (*fn)(void *arg), void *arg)
{
    struct query_thread *a = q->aside;
    if (!a)
        return fn(arg);
    pthread_mutex_t *mutex = &a->all->mutex;
    (void)pthread_mutex_lock(mutex);
    a->errand = fn;
    a->arg = arg;
    (void)pthread_mutex_unlock(mutex);
    (void)pthread_cond_broadcast(&a->cond);
    (void)pthread_mutex_lock(mutex);
    while (a->errand)
        (void)pthread_cond_wait(&a->cond, mutex);
    int rc = a->code;
    if (rc < 0)
        (void)err_restore(&a->why);
    (void)pthread_mutex_unlock(mutex);
    return rc;
}

/* ---- an engine's ---- */

int sql_threads_init(struct query_threads *all)
{
    int rc = pthread_mutex_init(&all->mutex, NULL);
    return rc ? err_set(-rc, "no mutex for the query engine") : 0;
}

void sql_threads_end(struct query_threads *all)
{
    (void)pthread_mutex_lock(&all->mutex);
    while (all->idle) {
        struct query_thread *a = all->idle;
        unlink_idle(a);
        a->end = true;
        a->next = all->ended;
        all->ended = a;
        (void)pthread_cond_broadcast(&a->cond);
    }
    struct query_thread *a = all->ended;
    (void)pthread_mutex_unlock(&all->mutex);
    while (a) {
        struct query_thread *next = a->next;
        join_thread(a);
        a = next;
    }
    (void)pthread_mutex_destroy(&all->mutex);
}
