/* SPDX-License-Identifier: Apache-2.0
 *
 * core/guest/thread.c - starting our threads without the host noticing, and waiting with a limit.
 *
 * Any thread.  It keeps no list of threads: their owners join them.
 */
#include "core/guest/thread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/guest/headroom.h"
#include "sdk/lib/own_thread.h"

#define THREAD_STACK ((size_t)512 << 10) /* bytes: the default of thread.h */

struct begin {
    void *(*run)(void *);
    void *arg;
    char name[16]; /* PR_SET_NAME takes no more */
};

static void *begin_thread(void *arg)
{
    struct begin begin = *(struct begin *)arg;
    free(arg);
    (void)prctl(PR_SET_NAME, begin.name, 0, 0, 0);
    return begin.run(begin.arg);
}

int thread_start(pthread_t *ret, const char *name, size_t stack_bytes, void *(*run)(void *),
                 void *arg)
{
    size_t stack = stack_bytes ? stack_bytes : THREAD_STACK;
    if (!room_claim(ROOM_MAPPINGS, 2) || !room_claim(ROOM_DATA, stack))
        return err_set(-EAGAIN,
                       "thread '%s' is not started: what is left of mappings (vm.max_map_count) "
                       "and private memory (ulimit -d) is kept for the program",
                       name);
    struct begin *begin = malloc(sizeof(*begin));
    if (!begin)
        return err_set(-ENOMEM, "no memory to start thread '%s'", name);
    *begin = (struct begin){.run = run, .arg = arg};
    memcpy(begin->name, name, strnlen(name, sizeof(begin->name) - 1));

    int rc = own_thread_start(ret, stack, begin_thread, begin);
    if (rc < 0) {
        free(begin);
        return err_set(rc, "thread '%s' cannot be started: %s", name, strerror(-rc));
    }
    return 0;
}

int event_init(struct event *e)
{
    pthread_condattr_t attr;
    *e = (struct event){.raised = false};
    int rc = pthread_mutex_init(&e->mutex, NULL);
    if (rc)
        return err_set(-rc, "no mutex: %s", strerror(rc));
    rc = pthread_condattr_init(&attr);
    if (rc == 0) {
        (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        rc = pthread_cond_init(&e->cond, &attr);
        (void)pthread_condattr_destroy(&attr);
    }
    if (rc) {
        (void)pthread_mutex_destroy(&e->mutex);
        return err_set(-rc, "no condition: %s", strerror(rc));
    }
    return 0;
}

void event_done(struct event *e)
{
    (void)pthread_cond_destroy(&e->cond);
    (void)pthread_mutex_destroy(&e->mutex);
}

void event_raise(struct event *e)
{
    (void)pthread_mutex_lock(&e->mutex);
    e->raised = true;
    e->raises++;
    (void)pthread_cond_broadcast(&e->cond);
    (void)pthread_mutex_unlock(&e->mutex);
}

void event_wake(struct event *e)
{
    (void)pthread_mutex_lock(&e->mutex);
    e->woken = true;
    (void)pthread_cond_broadcast(&e->cond);
    (void)pthread_mutex_unlock(&e->mutex);
}

bool event_wait(struct event *e, uint64_t timeout_ns)
{
    uint64_t now = clock_monotonic();
    uint64_t until = timeout_ns > UINT64_MAX / 4 ? now + UINT64_MAX / 4 : now + timeout_ns;
    struct timespec at = {.tv_sec = (time_t)(until / NS_PER_S),
                          .tv_nsec = (int32_t)(until % NS_PER_S)};
    int rc = 0;

    (void)pthread_mutex_lock(&e->mutex);
    uint64_t seen = e->raises;
    while (!e->raised && !e->woken && e->raises == seen && rc == 0)
        rc = pthread_cond_timedwait(&e->cond, &e->mutex, &at);
    /* By count, not by flag: another who waited may have lowered the flag already. */
    bool raised = e->raised || e->raises != seen;
    e->raised = e->woken = false;
    (void)pthread_mutex_unlock(&e->mutex);
    return raised;
}

/* ---- processor time ---- */

/* initial-exec, as all of our thread-local storage. */
static __thread uint64_t used_for_us __attribute__((tls_model("initial-exec")));

uint64_t thread_cpu(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec + used_for_us;
}

void thread_cpu_add(uint64_t ns)
{
    used_for_us += ns;
}
