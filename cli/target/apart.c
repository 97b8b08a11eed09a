/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/target/apart.c - see apart.h.
 *
 * The thread that asks, and one for each look, which owns what it was given.
 */
#include "cli/target/apart.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cli/terminal/interrupt.h"
#include "cli/terminal/limits.h"
#include "cli/terminal/terminal.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "sdk/lib/own_thread.h"
#include "sdk/lib/proc/task.h"

#define LOOK_NS (3 * NS_PER_S)       /* a look at a process that takes longer is given up; each */
#define LOOK_MIN_NS (50 * NS_PER_MS) /* that was given up leaves the next half as long */
#define RUNS_NS (60 * NS_PER_S)  /* and of one that waits for a processor, not for the process */
#define TURN_NS (50 * NS_PER_MS) /* between looks at Ctrl-C meanwhile */
#define STACK_BYTES ((size_t)256 << 10) /* of a look, whatever `ulimit -s` says: some paths */
#define STUCK_MAX 64                    /* remembered; of more each look takes its time */

struct apart {
    pid_t pid;
    int (*look)(void *state);
    void *state;
    void (*release)(void *state);
    int result;
    char why[ERR_TEXT_BYTES];
    bool told; /* apart_pass_over() has; the asking thread's */
    _Atomic pid_t tid;
    _Atomic bool ended;
    _Atomic int refs;
    pthread_mutex_t mutex;
    pthread_cond_t done;
};

/* Looks that have not ended: the asking thread's, as there is no place for it in what asks. */
static struct apart *stuck[STUCK_MAX];
static uint64_t limit_ns = LOOK_NS; /* of this command: many such processes do not stop it */

static void apart_unref(struct apart *a)
{
    if (atomic_fetch_sub_explicit(&a->refs, 1, memory_order_acq_rel) > 1)
        return;
    (void)pthread_cond_destroy(&a->done);
    (void)pthread_mutex_destroy(&a->mutex);
    if (a->state != NULL)
        a->release(a->state);
    free(a);
}

static void *run_look(void *arg)
{
    struct apart *a = arg;

    atomic_store_explicit(&a->tid, (pid_t)syscall(SYS_gettid), memory_order_release);
    a->result = a->look(a->state);
    (void)snprintf(a->why, sizeof(a->why), "%s", err_text());
    (void)pthread_mutex_lock(&a->mutex);
    atomic_store_explicit(&a->ended, true, memory_order_release);
    (void)pthread_cond_signal(&a->done);
    (void)pthread_mutex_unlock(&a->mutex);
    apart_unref(a);
    return NULL;
}

static struct apart *apart_new(pid_t pid)
{
    pthread_condattr_t attr;
    struct apart *a = calloc(1, sizeof(*a));

    if (a == NULL)
        return NULL;
    a->pid = pid;
    atomic_init(&a->refs, 2);
    (void)pthread_mutex_init(&a->mutex, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&a->done, &attr);
    (void)pthread_condattr_destroy(&attr);
    return a;
}

/* Is it our machine that keeps it from ending, where others have the processors? */
static bool wants_to_run(const struct apart *a)
{
    struct proc_stat s;
    pid_t tid = atomic_load_explicit(&a->tid, memory_order_acquire);

    return tid == 0 || (proc_stat_of(0, tid, &s) == 0 && s.state == 'R');
}

/* true: the look has ended. */
static bool wait_for(struct apart *a)
{
    uint64_t began = clock_monotonic(), now = began;
    bool ended;

    (void)pthread_mutex_lock(&a->mutex);
    while (!(ended = atomic_load_explicit(&a->ended, memory_order_acquire)) && !cli_interrupted &&
           (now < began + limit_ns || (now < began + RUNS_NS && wants_to_run(a)))) {
        uint64_t until = now + TURN_NS;
        struct timespec t = {.tv_sec = (time_t)(until / NS_PER_S),
                             .tv_nsec = (int64_t)(until % NS_PER_S)};
        (void)pthread_cond_timedwait(&a->done, &a->mutex, &t);
        now = clock_monotonic();
    }
    (void)pthread_mutex_unlock(&a->mutex);
    if (!ended && !cli_interrupted)
        limit_ns = limit_ns / 2 > LOOK_MIN_NS ? limit_ns / 2 : LOOK_MIN_NS;
    return ended;
}

/* The look that is under way at that process; others that have ended are forgotten. */
static struct apart *stuck_at(pid_t pid)
{
    struct apart *ret = NULL;

    for (int i = 0; i < STUCK_MAX; i++) {
        if (stuck[i] != NULL && atomic_load_explicit(&stuck[i]->ended, memory_order_acquire)) {
            apart_unref(stuck[i]);
            stuck[i] = NULL;
        }
        if (stuck[i] != NULL && stuck[i]->pid == pid)
            ret = stuck[i];
    }
    return ret;
}

static void remember_stuck(struct apart *a)
{
    for (int i = 0; i < STUCK_MAX; i++)
        if (stuck[i] == NULL) {
            stuck[i] = a;
            return;
        }
    apart_unref(a);
}

static int too_late(pid_t pid)
{
    return err_set(-ETIMEDOUT,
                   "process %d could not be inspected: its memory map, or a file system that it "
                   "uses, did not answer in time",
                   (int)pid);
}

int apart_run(pid_t pid, int (*look)(void *state), void *state, void (*release)(void *state),
              bool *ret_ended)
{
    struct apart *a = NULL;

    *ret_ended = true;
    if (stuck_at(pid) != NULL)
        return too_late(pid);
    if ((a = apart_new(pid)) == NULL)
        return err_set(-ENOMEM, "no memory to inspect process %d", (int)pid);
    a->look = look;
    a->state = state;
    a->release = release;
    int rc = own_thread_start_detached(NULL, STACK_BYTES, run_look, a);
    if (rc < 0) {
        a->state = NULL;
        apart_unref(a);
        apart_unref(a);
        return err_set(-EAGAIN, "cannot create a thread to inspect process %d: %s", (int)pid,
                       cli_fork_why(-rc));
    }
    *ret_ended = wait_for(a);
    if (!*ret_ended) {
        remember_stuck(a);
        return cli_interrupted
                   ? err_set(-ECANCELED, "interrupted while inspecting process %d", (int)pid)
                   : too_late(pid);
    }
    rc = a->result < 0 ? err_set(a->result, "%s", a->why) : a->result;
    a->state = NULL;
    apart_unref(a);
    return rc;
}

bool apart_is_ours(int rc)
{
    return rc == -EMFILE || rc == -ENFILE || rc == -ENOMEM || rc == -EAGAIN;
}

int apart_pass_over(pid_t pid, int rc, const char *so)
{
    struct apart *a = stuck_at(pid);

    if (apart_is_ours(rc) || rc == -ECANCELED)
        return rc;
    if (rc != -ETIMEDOUT || (a != NULL && a->told))
        return 0;
    if (a != NULL)
        a->told = true;
    terminal_say("%s: %s", err_text(), so);
    return 0;
}

/* ---- a file of it ---- */

struct reading {
    char path[PROC_PATH_BYTES];
    struct buf text;
};

static int read_file(void *arg)
{
    struct reading *r = arg;

    return file_read(AT_FDCWD, r->path, &r->text);
}

static void reading_free(void *arg)
{
    struct reading *r = arg;

    buf_done(&r->text);
    free(r);
}

int apart_read(pid_t pid, const char *name, struct buf *ret)
{
    struct reading *r = calloc(1, sizeof(*r));
    bool ended;

    if (r == NULL)
        return err_set(-ENOMEM, "no memory to inspect process %d", (int)pid);
    proc_path(pid, 0, name, r->path);
    buf_init(&r->text, ret->max);
    int rc = apart_run(pid, read_file, r, reading_free, &ended);
    if (rc >= 0)
        rc = buf_add(ret, r->text.data, r->text.size);
    if (ended)
        reading_free(r);
    return rc;
}
