/* SPDX-License-Identifier: Apache-2.0
 *
 * core/guest/owned_signals.c - the one owner of the signals that we send to threads of the program.
 *
 * Taking and giving back: any thread, under a lock.  The handler runs on any thread of the program.
 *
 * Why ignoring a signal for a moment is enough: sigaction(2) with SIG_IGN drops what is pending in
 * the process and in each of its threads, under the lock that a thread needs to take a signal out
 * (kernel/signal.c, do_sigaction(); POSIX: System Interfaces 2.4.3).  A thread that has taken one
 * before runs our handler, whose code stays.  Only a debugger can hold a thread in between: the
 * kernel looks for the action when the debugger lets the signal through.
 */
#include "core/guest/owned_signals.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/guest/sigchain.h"
#include "sdk/lib/proc/task.h"

#define NUMBERS 65 /* signals of Linux, and 0 */

struct owned {
    _Atomic(signals_fn *) fn;    /* NULL: nobody's, or given back */
    _Atomic uint32_t sent, came; /* by signals_send() */
    struct sigaction before;     /* written before ours is put there.  lock: taking */
    bool used;                   /* ours was put there.  lock: taking */
    pid_t held; /* it stayed because of this thread; 0: it did not.  lock: taking */
};

/* Static because a handler has no other way to find it. */
static struct owned owned[NUMBERS];
static pthread_mutex_t taking = PTHREAD_MUTEX_INITIALIZER;
static const char keys[SIGNALS_KINDS]; /* their addresses tell our signals from others' */

/* ---- the handler ---- */

static int kind_of(const siginfo_t *info) /* [signal] */
{
    const char *key = info->si_value.sival_ptr;
    return info->si_code == SI_QUEUE && key >= keys && key < keys + SIGNALS_KINDS &&
                   info->si_pid == getpid()
               ? (int)(key - keys)
               : SIGNALS_FOREIGN;
}

static void on_signal(int number, siginfo_t *info, void *context) /* [signal] */
{
    int kept = errno, kind = kind_of(info);
    struct owned *o = &owned[number];
    const struct {
        signals_fn *fn;
    } user = {atomic_load_explicit(&o->fn, memory_order_acquire)};
    bool ours = kind != SIGNALS_FOREIGN;
    if (ours)
        (void)atomic_fetch_add_explicit(&o->came, 1, memory_order_relaxed);
    if (user.fn)
        ours = user.fn(kind, info, context) || ours;
    if (!ours && ((o->before.sa_flags & SA_SIGINFO) ||
                  (o->before.sa_handler != SIG_DFL && o->before.sa_handler != SIG_IGN)))
        handler_run(&o->before, number, info, context);
    errno = kept;
}

static bool is_ours(const struct sigaction *a)
{
    return (a->sa_flags & SA_SIGINFO) && a->sa_sigaction == on_signal;
}

bool signals_is_ours(int number)
{
    struct sigaction now;
    return sigaction(number, NULL, &now) == 0 && is_ours(&now);
}

/* ---- taking ---- */

static bool same_action(const struct sigaction *a, const struct sigaction *b)
{
    bool a_none = handler_is_default(a), b_none = handler_is_default(b);
    return a_none || b_none ? a_none == b_none : a->sa_sigaction == b->sa_sigaction;
}

/* lock held */
static int put_ours(int number, struct sigaction *ret_replaced)
{
    struct sigaction ours = {.sa_sigaction = on_signal,
                             .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
    (void)sigfillset(&ours.sa_mask);
    /* A lost page of the rings is mended: core/guest/mmap_guard.h. */
    (void)sigdelset(&ours.sa_mask, SIGBUS);
    return sigaction(number, &ours, ret_replaced) == -1 ? -EBUSY : 0;
}

/* lock held */
static int put_before(int number, const struct sigaction *before, signals_fn *fn)
{
    struct owned *o = &owned[number];
    struct sigaction replaced;
    o->before = *before; /* these first: it may run at once */
    atomic_store_explicit(&o->fn, fn, memory_order_release);
    int rc = put_ours(number, &replaced);
    o->used = rc == 0;
    if (rc == 0 && !same_action(&replaced, before)) {
        (void)sigaction(number, &replaced, NULL); /* the program was quicker */
        rc = -EBUSY;
    }
    if (rc < 0)
        atomic_store_explicit(&o->fn, NULL, memory_order_release);
    return rc;
}

/* lock held.  What stayed of ours is taken again. */
static int take_signal(int number, signals_fn *fn)
{
    struct owned *o = &owned[number];
    struct sigaction now;
    signals_fn *none = NULL;
    if (sigaction(number, NULL, &now) == -1)
        return -EBUSY;
    if (!is_ours(&now))
        return handler_is_default(&now) ? put_before(number, &now, fn) : -EBUSY;
    if (!atomic_compare_exchange_strong_explicit(&o->fn, &none, fn, memory_order_acq_rel,
                                                 memory_order_acquire) &&
        none != fn)
        return -EBUSY;
    o->held = 0;
    return 0;
}

int signals_take(int number, signals_fn *fn)
{
    (void)pthread_mutex_lock(&taking);
    int rc = take_signal(number, fn);
    (void)pthread_mutex_unlock(&taking);
    return rc;
}

/* Has a runtime put this on most real-time signals, for what may come?  One that asks for less may
 * count on calls that end with EINTR. */
static bool is_of_a_runtime(const struct sigaction *a)
{
    const int flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    struct sigaction other;
    int n = 0;
    if ((a->sa_flags & flags) != flags)
        return false;
    for (int i = SIGRTMIN; i <= SIGRTMAX; i++)
        n += sigaction(i, NULL, &other) == 0 && (other.sa_flags & SA_SIGINFO) &&
             other.sa_sigaction == a->sa_sigaction;
    return n > (SIGRTMAX - SIGRTMIN) / 2;
}

int signals_take_below(int below, signals_fn *fn)
{
    struct sigaction now;
    int found = -EBUSY;
    (void)pthread_mutex_lock(&taking);
    for (int i = below - 1; i > SIGRTMIN && found < 0; i--)
        found = take_signal(i, fn) == 0 ? i : -EBUSY;
    for (int i = below - 1; i > SIGRTMIN && found < 0; i--)
        if (sigaction(i, NULL, &now) == 0 && !is_ours(&now) && is_of_a_runtime(&now))
            found = put_before(i, &now, fn) == 0 ? i : -EBUSY;
    (void)pthread_mutex_unlock(&taking);
    return found;
}

/* ---- sending ---- */

int signals_send(int number, pid_t tid, int kind)
{
    siginfo_t info = {.si_signo = number, .si_code = SI_QUEUE};
    info.si_pid = getpid();
    info.si_uid = getuid();
    info.si_value.sival_ptr = (void *)(uintptr_t)&keys[kind];
    if (syscall(SYS_rt_tgsigqueueinfo, getpid(), tid, number, &info) == -1)
        return -errno;
    (void)atomic_fetch_add_explicit(&owned[number].sent, 1, memory_order_relaxed);
    return 0;
}

/* ---- which are on their way ---- */

unsigned signals_of_thread(int number, pid_t tid)
{
    struct proc_status s;
    if (proc_status_of(0, tid, &s) < 0) /* what is not known is set, too */
        return SIGNALS_BLOCKED | SIGNALS_PENDING;
    return (s.blocked >> (number - 1) & 1 ? SIGNALS_BLOCKED : 0) |
           ((s.pending | s.shared) >> (number - 1) & 1 ? SIGNALS_PENDING : 0);
}

/* The first thread that has one pending, and the first that a debugger may hold with one. */
struct found {
    pid_t pending, traced;
};

/* false: it cannot be seen. */
static bool read_handler(int number, struct found *ret)
{
    struct proc_numbers all;
    struct proc_number one;
    struct proc_status s;
    *ret = (struct found){.pending = 0};
    bool seen = proc_threads_open(&all, 0) == 0;
    while (proc_numbers_next(&all, &one)) {
        pid_t tid = (pid_t)one.value;
        if (proc_status_of(0, tid, &s) < 0)
            continue; /* it has ended, and what was pending with it */
        if (!ret->pending && ((s.pending | s.shared) >> (number - 1) & 1))
            ret->pending = tid;
        if (!ret->traced && s.tracer)
            ret->traced = tid;
    }
    proc_numbers_close(&all);
    return seen;
}

/* ---- giving back ---- */

static bool ignored_by_default(int number)
{
    return number == SIGURG || number == SIGCHLD || number == SIGCONT || number == SIGWINCH;
}

/* lock held.  0: none is on its way; else the thread with which one may be. */
static pid_t settle_signal(int number)
{
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    struct owned *o = &owned[number];
    struct found found;
    if (ignored_by_default(number) && handler_is_default(&o->before))
        return 0;
    /* Only where it is needed: a program that is spawned in that moment would inherit it. */
    if (!read_handler(number, &found) || found.pending) {
        (void)sigaction(number, &ignore, NULL);
        (void)put_ours(number, NULL);
        (void)read_handler(number, &found);
    }
    if (found.pending)
        return found.pending;
    uint32_t sent = atomic_load_explicit(&o->sent, memory_order_relaxed);
    bool all_came = sent != 0 && sent == atomic_load_explicit(&o->came, memory_order_relaxed);
    return all_came ? 0 : found.traced;
}

/* lock held */
static void put_back(int number)
{
    struct owned *o = &owned[number];
    struct sigaction replaced;
    if (sigaction(number, &o->before, &replaced) == 0 && !is_ours(&replaced))
        (void)sigaction(number, &replaced, NULL); /* the program was quicker */
    atomic_store_explicit(&o->sent, 0, memory_order_relaxed);
    atomic_store_explicit(&o->came, 0, memory_order_relaxed);
    o->used = false;
}

int signals_give(int number)
{
    struct owned *o = &owned[number];
    (void)pthread_mutex_lock(&taking);
    atomic_store_explicit(&o->fn, NULL, memory_order_release);
    o->held = 0;
    if (o->used && signals_is_ours(number)) {
        o->held = settle_signal(number);
        if (!o->held)
            put_back(number);
    }
    int rc = o->held != 0;
    (void)pthread_mutex_unlock(&taking);
    return rc;
}

uint32_t signals_kept(struct buf *b)
{
    uint32_t n = 0;
    (void)pthread_mutex_lock(&taking);
    for (int i = 1; i < NUMBERS; i++) {
        if (!owned[i].held)
            continue;
        n++;
        (void)buf_addf(b,
                       "signal %d keeps a handler of ours that does nothing: thread %d, which is "
                       "traced, may still have one to take\n",
                       i, owned[i].held);
    }
    (void)pthread_mutex_unlock(&taking);
    return n;
}

void signals_disable_in_child(void)
{
    for (int i = 1; i < NUMBERS; i++) {
        atomic_store_explicit(&owned[i].fn, NULL, memory_order_relaxed);
        owned[i].held = 0;
        struct sigaction now;
        if (owned[i].used && sigaction(i, NULL, &now) == 0 && is_ours(&now))
            put_back(i);
    }
    taking = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}
