/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/cupti/cupti_session.c - the thread that is inside CUPTI, and those who want
 * something of it.
 *
 * Threads: as cupti_session.h says.  A wish is left with the session, and its thread waits for a
 * limited time until it was heard.  A call may hang when the driver does, and nobody can end that
 * thread: when the plugin stops it is left, with the session, which it frees when the call has
 * returned.  From then on it tells nothing: the sink's owner and the host have gone (`told` says
 * so).
 *
 * At exit() CUDA takes itself down while our threads still run.  So a handler of atexit() that was
 * registered after CUDA's own, and runs before them, ends the trace and keeps everybody out.
 *
 * Locks: `told` while the sink is called, `mutex` for wishes, `seen_mutex` for copies; none is held
 * while another is taken, or CUPTI is called.
 */
#include "cupti/cupti_session.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cupti/buffer_pool.h"
#include "cupti/cupti_inside.h"
#include "cupti/intercept.h"
#include "cupti/tracing.h"
#include "lib/own_thread.h"
#include "probing_sdk.h"

#define STACK_BYTES ((size_t)512 << 10) /* names of kernels take 120 KB at the most (demangle.h) */
#define NICE 5                          /* the program's threads come first */
#define WISH_WAIT_NS (2 * PROBING_NS_PER_S) /* for a thread that may hang */
#define ASIDE_WAIT_NS PROBING_NS_PER_S      /* likewise, on a thread of the program */
#define SLOW_NS (5 * PROBING_NS_PER_S)      /* so long in CUPTI is worth a word */

struct session {
    const struct probing_host *host;
    struct session_sink sink;
    struct tracing tracing; /* the thread's own */

    pthread_mutex_t mutex;
    pthread_cond_t wished, heard; /* CLOCK_MONOTONIC */
    struct tracing_wish wish;     /* lock: mutex, as all below */
    uint64_t wishes, heard_wishes;
    bool stop;        /* the thread is to end */
    pid_t tid;        /* of the thread */
    bool ended, left; /* it has; it frees the session when it does */
    bool running;     /* [control]; there is one to be joined */
    pthread_t thread;

    pthread_mutex_t told;
    bool deaf; /* lock: told; nobody is there who could be told */

    _Atomic bool inside; /* the thread is in CUPTI */
    _Atomic bool forked; /* this is a child: no lock is touched any more */
    pthread_mutex_t seen_mutex;
    struct session_about seen; /* lock: seen_mutex; after the last turn */
};

/* Functions of atexit() and calls of others come without an argument. */
static struct {
    _Atomic(struct session *) now; /* that traces, or has */
    _Atomic uint32_t guests;       /* who use it, beside its owner */
    _Atomic bool closed; /* the program ends, or this is a child: CUPTI is not called any more */
    _Atomic bool registered;
} shared;

/* ---- the sink, while there is one ---- */

static void tell_begun(void *arg, uint64_t since_ns)
{
    struct session *s = arg;
    (void)pthread_mutex_lock(&s->told);
    if (!s->deaf)
        s->sink.begun(s->sink.arg, since_ns);
    (void)pthread_mutex_unlock(&s->told);
}

static void tell_records(void *arg, const struct record *all, uint32_t n)
{
    struct session *s = arg;
    (void)pthread_mutex_lock(&s->told);
    if (!s->deaf)
        s->sink.records(s->sink.arg, all, n);
    (void)pthread_mutex_unlock(&s->told);
}

static void tell_looked(void *arg, uint64_t lost)
{
    struct session *s = arg;
    (void)pthread_mutex_lock(&s->told);
    if (!s->deaf)
        s->sink.looked(s->sink.arg, lost);
    (void)pthread_mutex_unlock(&s->told);
}

static void tell_ended(void *arg)
{
    struct session *s = arg;
    (void)pthread_mutex_lock(&s->told);
    if (!s->deaf)
        s->sink.ended(s->sink.arg);
    (void)pthread_mutex_unlock(&s->told);
}

static const char *ask_other(void *arg)
{
    struct session *s = arg;
    (void)pthread_mutex_lock(&s->told);
    const char *who = s->deaf ? NULL : s->sink.other(s->sink.arg);
    (void)pthread_mutex_unlock(&s->told);
    return who;
}

static void ask_spare(void *arg, struct window_seen *ret)
{
    struct session *s = arg;
    (void)pthread_mutex_lock(&s->told);
    ret->idle = ret->late = 1;
    if (!s->deaf)
        s->sink.spare(s->sink.arg, ret);
    (void)pthread_mutex_unlock(&s->told);
}

/* ---- wishes ---- */

static struct timespec timespec_of(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / PROBING_NS_PER_S),
                             .tv_nsec = (long)(ns % PROBING_NS_PER_S)};
}

/* Wait until what was written to s->wish is heard.  With the mutex.  false: not in that time. */
static bool send_wish(struct session *s, uint64_t wait_ns)
{
    const struct timespec until = timespec_of(probing_clock_ns(CLOCK_MONOTONIC) + wait_ns);
    uint64_t number = ++s->wishes;
    int rc = 0;
    (void)pthread_cond_signal(&s->wished);
    while (s->heard_wishes < number && !s->ended && rc == 0)
        rc = pthread_cond_timedwait(&s->heard, &s->mutex, &until);
    return s->heard_wishes >= number || s->ended;
}

static struct session *take_current(void)
{
    (void)atomic_fetch_add_explicit(&shared.guests, 1, memory_order_seq_cst);
    return atomic_load_explicit(&shared.now, memory_order_seq_cst);
}

static void give_current(void)
{
    (void)atomic_fetch_sub_explicit(&shared.guests, 1, memory_order_release);
}

/* Nobody finds it any more.  A guest waits for a second or two at most. */
static void forget_current(struct session *s)
{
    struct session *same = s;
    if (!atomic_compare_exchange_strong_explicit(&shared.now, &same, NULL, memory_order_seq_cst,
                                                 memory_order_relaxed))
        return;
    while (atomic_load_explicit(&shared.guests, memory_order_seq_cst) > 0)
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void at_exit(void)
{
    if (atomic_load_explicit(&shared.closed, memory_order_acquire))
        return; /* a child */
    struct session *s = take_current();
    if (s) {
        (void)pthread_mutex_lock(&s->mutex);
        s->wish.on = false;
        (void)send_wish(s, WISH_WAIT_NS);
        s->stop = true;
        (void)pthread_cond_signal(&s->wished);
        (void)pthread_mutex_unlock(&s->mutex);
    }
    atomic_store_explicit(&shared.closed, true, memory_order_release);
    give_current();
}

/* On a thread of the program, which is about to make CUPTI's buffers its own. */
static void make_way(void)
{
    if (atomic_load_explicit(&shared.closed, memory_order_acquire))
        return;
    struct session *s = take_current();
    if (s) {
        (void)pthread_mutex_lock(&s->mutex);
        s->wish.aside = true;
        (void)send_wish(s, ASIDE_WAIT_NS);
        (void)pthread_mutex_unlock(&s->mutex);
    }
    give_current();
}

/* ---- the thread ---- */

static void publish_state(struct session *s)
{
    (void)pthread_mutex_lock(&s->seen_mutex);
    s->seen = s->tracing.about;
    (void)pthread_mutex_unlock(&s->seen_mutex);
}

static void expect_exit(void)
{
    bool registered = false;
    if (atomic_compare_exchange_strong_explicit(&shared.registered, &registered, true,
                                                memory_order_acq_rel, memory_order_acquire))
        (void)atexit(at_exit);
}

static void take_turn(struct session *s, const struct tracing_wish *w)
{
    if (atomic_load_explicit(&shared.closed, memory_order_acquire))
        return;
    if (!cupti_enter()) {
        tracing_wait(&s->tracing, w);
        return;
    }
    atomic_store_explicit(&s->inside, true, memory_order_relaxed);
    tracing_turn(&s->tracing, w);
    atomic_store_explicit(&s->inside, false, memory_order_relaxed);
    cupti_leave();
    if (s->tracing.about.state == SESSION_TRACING)
        expect_exit();
}

/* When something is wished, or it is time to look; with the mutex.  Gives the wish's number. */
static uint64_t next_wish(struct session *s, struct tracing_wish *ret)
{
    uint64_t until_ns = tracing_next_ns(&s->tracing);
    const struct timespec until = timespec_of(until_ns);
    int rc = 0;
    while (s->wishes == s->heard_wishes && !s->stop && rc == 0)
        rc = until_ns == UINT64_MAX ? pthread_cond_wait(&s->wished, &s->mutex)
                                    : pthread_cond_timedwait(&s->wished, &s->mutex, &until);
    *ret = s->wish;
    s->wish.anew = s->wish.aside = false;
    return s->wishes;
}

/* true: nobody else frees the session. */
static bool end_session(struct session *s)
{
    (void)pthread_mutex_lock(&s->mutex);
    s->ended = true;
    bool left = s->left;
    (void)pthread_cond_broadcast(&s->heard);
    (void)pthread_mutex_unlock(&s->mutex);
    return left;
}

static void destroy_session(struct session *s)
{
    (void)pthread_mutex_destroy(&s->mutex);
    (void)pthread_mutex_destroy(&s->told);
    (void)pthread_mutex_destroy(&s->seen_mutex);
    (void)pthread_cond_destroy(&s->wished);
    (void)pthread_cond_destroy(&s->heard);
    free(s);
}

static void *session_thread(void *arg)
{
    struct session *s = arg;
    bool stop = false;
    (void)prctl(PR_SET_NAME, "probing/cuda");
    (void)pthread_mutex_lock(&s->mutex);
    s->tid = (pid_t)syscall(SYS_gettid);
    (void)pthread_mutex_unlock(&s->mutex);
    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE);
    while (!stop) {
        struct tracing_wish w;
        (void)pthread_mutex_lock(&s->mutex);
        uint64_t number = next_wish(s, &w);
        stop = s->stop;
        (void)pthread_mutex_unlock(&s->mutex);
        take_turn(s, &w);
        publish_state(s);
        (void)pthread_mutex_lock(&s->mutex);
        s->heard_wishes = number;
        (void)pthread_cond_broadcast(&s->heard);
        (void)pthread_mutex_unlock(&s->mutex);
    }
    if (end_session(s))
        destroy_session(s);
    return NULL;
}

/* ---- its life ---- */

int session_new(const struct probing_host *host, const struct session_sink *sink,
                struct session **ret)
{
    pthread_condattr_t monotonic;
    struct session *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    s->host = host;
    s->sink = *sink;
    tracing_init(&s->tracing, &(struct session_sink){.arg = s,
                                                     .begun = tell_begun,
                                                     .records = tell_records,
                                                     .looked = tell_looked,
                                                     .ended = tell_ended,
                                                     .other = ask_other,
                                                     .spare = ask_spare});
    (void)pthread_mutex_init(&s->mutex, NULL);
    (void)pthread_mutex_init(&s->told, NULL);
    (void)pthread_mutex_init(&s->seen_mutex, NULL);
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&s->wished, &monotonic);
    (void)pthread_cond_init(&s->heard, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    publish_state(s);
    *ret = s;
    return 0;
}

void session_free(struct session *s)
{
    if (s && !atomic_load_explicit(&s->forked, memory_order_relaxed))
        destroy_session(s);
}

int session_start(struct session *s, bool on)
{
    /* After a fork the child may have a life of its own: CUDA of before the fork is of no use
     * there, and says so. */
    atomic_store_explicit(&shared.closed, false, memory_order_relaxed);
    s->stop = s->ended = false;
    s->wish.on = on;
    s->wish.anew = true;
    s->wishes++;
    atomic_store_explicit(&shared.now, s, memory_order_seq_cst);
    intercept_listen(make_way);
    int rc = own_thread_start(&s->thread, STACK_BYTES, session_thread, s);
    s->running = rc == 0;
    if (rc == 0)
        return 0;
    intercept_listen(NULL);
    forget_current(s);
    return probing_failf(s->host, rc, "no thread for CUPTI");
}

int session_switch(struct session *s, bool on)
{
    if (!s->running || atomic_load_explicit(&s->forked, memory_order_relaxed))
        return 0;
    (void)pthread_mutex_lock(&s->mutex);
    bool before = s->wish.on;
    s->wish.on = on;
    s->wish.anew = true;
    bool heard = send_wish(s, WISH_WAIT_NS);
    if (!heard) {
        s->wish.on = before;
        s->wishes++; /* it may be on its way already */
    }
    (void)pthread_mutex_unlock(&s->mutex);
    const char *function;
    uint64_t ns = cupti_inside_ns(&function);
    return heard ? 0
                 : probing_failf(s->host, -EBUSY,
                                 "CUPTI does not answer, as its driver may not: %s has not "
                                 "returned for %" PRIu64 " s; try again when it does",
                                 function, ns / PROBING_NS_PER_S);
}

void session_window(struct session *s, const struct window_rule *rule)
{
    (void)pthread_mutex_lock(&s->mutex);
    s->wish.rule = *rule;
    s->wishes++;
    (void)pthread_cond_signal(&s->wished);
    (void)pthread_mutex_unlock(&s->mutex);
}

/* Threads of probing's are waited for when it leaves the process, and known by their name. */
static void rename_thread(pid_t tid)
{
    static const char name[] = "cuda left behind";
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/self/task/%d/comm", tid);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd == -1)
        return;
    (void)(write(fd, name, sizeof(name) - 1) == -1);
    (void)close(fd);
}

/* It hangs: what it would tell is heard by nobody any more.  false: it has ended meanwhile. */
static bool leave_session(struct session *s)
{
    char text[200];
    const char *function;
    uint64_t ns = cupti_inside_ns(&function);
    pthread_t thread = s->thread;
    (void)snprintf(text, sizeof(text),
                   "%s has not returned for %" PRIu64 " s: its thread is left behind, and ends "
                   "when it does",
                   function, ns / PROBING_NS_PER_S);
    s->host->log(s->host, PROBING_WARN, text);
    (void)pthread_mutex_lock(&s->told);
    s->deaf = true;
    (void)pthread_mutex_unlock(&s->told);
    (void)pthread_mutex_lock(&s->mutex);
    bool left = s->left = !s->ended;
    if (left)
        rename_thread(s->tid);
    (void)pthread_mutex_unlock(&s->mutex);
    if (left) /* and from here on the session is its own */
        (void)pthread_detach(thread);
    return left;
}

bool session_stop(struct session *s)
{
    if (!s->running || atomic_load_explicit(&s->forked, memory_order_relaxed))
        return true;
    intercept_listen(NULL);
    forget_current(s);
    (void)pthread_mutex_lock(&s->mutex);
    s->wish.on = false;
    s->wish.anew = s->stop = true;
    bool heard = send_wish(s, WISH_WAIT_NS);
    (void)pthread_mutex_unlock(&s->mutex);
    intercept_out();
    if (!heard && leave_session(s))
        return false;
    (void)pthread_join(s->thread, NULL);
    s->running = false;
    return true;
}

void session_about(struct session *s, struct session_about *ret)
{
    const char *function;
    uint64_t in_ns =
        atomic_load_explicit(&s->inside, memory_order_relaxed) ? cupti_inside_ns(&function) : 0;
    (void)pthread_mutex_lock(&s->seen_mutex);
    *ret = s->seen;
    (void)pthread_mutex_unlock(&s->seen_mutex);
    if (in_ns >= SLOW_NS)
        (void)snprintf(ret->reason, sizeof(ret->reason),
                       "CUPTI has not answered for %" PRIu64 " s (%s): its driver may hang",
                       in_ns / PROBING_NS_PER_S, function);
    buffer_counts(&ret->taken, &ret->full);
}

bool session_call_name(struct session *s, bool driver, uint32_t id, char *ret, size_t size)
{
    return calls_name(&s->tracing.names, driver, id, ret, size);
}

void session_forked(struct session *s)
{
    atomic_store_explicit(&s->forked, true, memory_order_relaxed);
    atomic_store_explicit(&shared.now, NULL, memory_order_relaxed);
    atomic_store_explicit(&shared.guests, 0, memory_order_relaxed);
    atomic_store_explicit(&shared.closed, true, memory_order_relaxed);
    cupti_inside_forked();
    intercept_forked();
    tracing_forked();
}
