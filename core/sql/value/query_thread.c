/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/value/query_thread.c - a query on a thread of its own, nicer than everything else in the
 * process.
 *
 * The caller waits and meanwhile does what may hold a lock of the host's (the GIL, in tables that
 * plugins compute): done with low priority it could keep the host's own threads waiting.  Reading
 * what is stored takes no such lock.
 */
#include "core/sql/value/query.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/thread.h"

#define STACK_BYTES ((size_t)1 << 20) /* as the workers': SQL recurses into nested expressions */

struct query_thread {
    const struct query_thread_query *query;
    int nice;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    /* All below: lock: mutex. */
    bool done;
    int (*errand)(void *arg); /* of the query to the caller; NULL: none */
    void *arg;
    int code; /* of the errand, then of the query */
    char why[ERR_TEXT_BYTES];
};

static void keep_reason(struct query_thread *a, int code)
{
    a->code = code;
    (void)snprintf(a->why, sizeof(a->why), "%s", code < 0 ? err_why(code) : "");
}

static void *run(void *arg)
{
    struct query_thread *a = arg;
    const struct query_thread_query *q = a->query;
    id_t self = (id_t)syscall(SYS_gettid);
    /* -1 is a niceness, too; one that cannot be set is no reason not to answer. */
    (void)setpriority(PRIO_PROCESS, self, getpriority(PRIO_PROCESS, self) + a->nice);
    int rc = q->run(q, a);
    (void)pthread_mutex_lock(&a->mutex);
    keep_reason(a, rc);
    a->done = true;
    (void)pthread_cond_broadcast(&a->cond);
    (void)pthread_mutex_unlock(&a->mutex);
    return NULL;
}

static void attend(struct query_thread *a)
{
    (void)pthread_mutex_lock(&a->mutex);
    while (!a->done) {
        int (*errand)(void *) = a->errand;
        if (!errand) {
            (void)pthread_cond_wait(&a->cond, &a->mutex);
            continue;
        }
        (void)pthread_mutex_unlock(&a->mutex);
        int rc = errand(a->arg);
        (void)pthread_mutex_lock(&a->mutex);
        keep_reason(a, rc);
        a->errand = NULL;
        (void)pthread_cond_broadcast(&a->cond);
    }
    (void)pthread_mutex_unlock(&a->mutex);
}

bool sql_run_on_thread(const struct query_thread_query *q, int nice, int *ret_code)
{
    struct query_thread a = {.query = q, .nice = nice};
    pthread_t thread;
    if (pthread_mutex_init(&a.mutex, NULL) != 0)
        return false;
    bool made = pthread_cond_init(&a.cond, NULL) == 0;
    bool started = made && thread_start(&thread, "probing/query", STACK_BYTES, run, &a) == 0;
    if (started) {
        attend(&a);
        (void)pthread_join(thread, NULL);
    }
    if (made)
        (void)pthread_cond_destroy(&a.cond);
    (void)pthread_mutex_destroy(&a.mutex);
    if (started)
        *ret_code = a.code < 0 ? err_set(a.code, "%s", a.why) : a.code;
    return started;
}

int sql_by_caller(struct query *q, int (*fn)(void *arg), void *arg)
{
    struct query_thread *a = q->aside;
    if (!a)
        return fn(arg);
    (void)pthread_mutex_lock(&a->mutex);
    a->errand = fn;
    a->arg = arg;
    (void)pthread_cond_broadcast(&a->cond);
    while (a->errand)
        (void)pthread_cond_wait(&a->cond, &a->mutex);
    int rc = a->code;
    if (rc < 0)
        (void)err_set(rc, "%s", a->why);
    (void)pthread_mutex_unlock(&a->mutex);
    return rc;
}
