/* SPDX-License-Identifier: Apache-2.0
 *
 * core/crash/handler.c - the handler of a crash: who goes first, waiting for the report, and dying
 * as if we had not been here.
 * Runs on the thread that crashed, on its alternate signal stack where it has one: so it needs
 * little of it.  Taking and giving back are [control].
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/crash/internal.h"
#include "core/guest/mmap_guard.h"
#include "core/guest/sigchain.h"
#include "core/stack/stack.h"

#define OTHERS_NS (CRASH_WAIT_NS + NS_PER_S) /* who crashed second waits for the first */
#define DYING_NS NS_PER_S                    /* and then for the end of the process */
#define LATE_NS (NS_PER_S / 2) /* beyond its limit, for our thread to write its last line */
#define MASK_BYTES 8           /* of the kernel's sigset_t; libc's is longer, a frame's is not */

struct crash_state crash_state;

uint64_t crash_now(void)
{
    return clock_monotonic();
}

void crash_wait(_Atomic uint32_t *word, uint32_t while_it_is, uint64_t most_ns)
{
    const struct timespec t = {.tv_sec = (time_t)(most_ns / NS_PER_S),
                               .tv_nsec = (int32_t)(most_ns % NS_PER_S)};
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, while_it_is, &t, NULL, 0);
}

void crash_wake(_Atomic uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void crash_open(struct lines *l)
{
    l->n = 0;
    l->fd = open(crash_state.path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
}

void crash_close(struct lines *l)
{
    if (l->fd != -1)
        (void)close(l->fd);
    l->fd = -1;
}

static struct crash_signal *signal_of(int signo) /* [signal] */
{
    for (int i = 0; i < CRASH_SIGNALS; i++)
        if (crash_state.signals[i].number == signo)
            return &crash_state.signals[i];
    return &crash_state.signals[0]; /* cannot be: we took no other */
}

static int32_t own_tid(void) /* [signal] */
{
    return (int32_t)syscall(SYS_gettid);
}

/* ---- the report ---- */

/* The thread of the reports has crashed itself.  In the middle of a report: whoever waits for it is
 * told, and it stands here until the process ends.                                    [signal] */
static void reporter_crashed(void)
{
    uint32_t taken = CRASH_TAKEN;
    if (!atomic_compare_exchange_strong_explicit(&crash_state.request, &taken, CRASH_FAILED,
                                                 memory_order_acq_rel, memory_order_relaxed))
        return;
    crash_wake(&crash_state.request);
    for (;;)
        crash_wait(&crash_state.request, CRASH_FAILED, NS_PER_S);
}

/* Until it is not `state` any more, or the time is up: what it is then.                [signal] */
static uint32_t wait_while(uint32_t state, uint64_t most_ns)
{
    uint64_t end = crash_now() + most_ns, now;
    uint32_t is;
    while ((is = atomic_load_explicit(&crash_state.request, memory_order_acquire)) == state &&
           (now = crash_now()) < end)
        crash_wait(&crash_state.request, state, end - now);
    return is;
}

/* The thread that crashed first has the report made.                                  [signal] */
static void have_it_made(bool only_abort)
{
    uint32_t asked = CRASH_ASKED;
    const char *why = NULL;
    atomic_store_explicit(&crash_state.only_abort, only_abort, memory_order_relaxed);
    atomic_store_explicit(&crash_state.given_up, false, memory_order_relaxed);
    atomic_store_explicit(&crash_state.written, false, memory_order_relaxed);
    atomic_store_explicit(&crash_state.request, CRASH_ASKED, memory_order_release);
    crash_wake(&crash_state.request);
    if (atomic_load_explicit(&crash_state.reporter, memory_order_acquire) == 0 ||
        (wait_while(CRASH_ASKED, CRASH_TAKE_NS) == CRASH_ASKED &&
         atomic_compare_exchange_strong_explicit(&crash_state.request, &asked, CRASH_IDLE,
                                                 memory_order_acq_rel, memory_order_relaxed)))
        why = "probing's own thread did not answer";
    else if (wait_while(CRASH_TAKEN, CRASH_WAIT_NS + LATE_NS) == CRASH_TAKEN)
        why = "probing's own thread did not come to an end";
    else if (atomic_load_explicit(&crash_state.request, memory_order_acquire) == CRASH_FAILED)
        why = "probing's own thread crashed over it";
    atomic_store_explicit(&crash_state.given_up, why != NULL, memory_order_release);
    if (why && !only_abort && !atomic_load_explicit(&crash_state.written, memory_order_acquire))
        raw_report(why);
    for (int i = 0; i < CRASH_FAULTS; i++)
        atomic_store_explicit(&crash_state.faults[i].tid, 0, memory_order_relaxed);
    atomic_store_explicit(&crash_state.n_faults, 0, memory_order_release);
    (void)atomic_fetch_add_explicit(&crash_state.finished, 1, memory_order_acq_rel);
    crash_wake(&crash_state.finished);
}

/* Someone else's report is being made; this thread is in it.  The process ends with the signal of
 * who was first, so wait for that too.                                                [signal] */
static void wait_for_the_first(void)
{
    uint32_t finished = atomic_load_explicit(&crash_state.finished, memory_order_acquire),
             never = 0;
    uint64_t end = crash_now() + OTHERS_NS, now;
    _Atomic uint32_t word = 0;
    while (atomic_load_explicit(&crash_state.n_faults, memory_order_acquire) != 0 &&
           atomic_load_explicit(&crash_state.finished, memory_order_acquire) == finished &&
           (now = crash_now()) < end)
        crash_wait(&crash_state.finished, finished, end - now);
    crash_wait(&word, never, DYING_NS);
}

/* true: a report was made, or tried; others may stand still since.                   [signal] */
static bool write_report(int signo, const siginfo_t *info, const void *context, bool only_abort)
{
    int32_t tid = own_tid();
    if (!atomic_load_explicit(&crash_state.on, memory_order_acquire) ||
        syscall(SYS_getpid) != atomic_load_explicit(&crash_state.pid, memory_order_relaxed))
        return false; /* after an eject, or a child that never came by our fork handler */
    if (tid == atomic_load_explicit(&crash_state.reporter, memory_order_relaxed))
        reporter_crashed();
    for (int i = 0; i < CRASH_FAULTS; i++)
        if (atomic_load_explicit(&crash_state.faults[i].tid, memory_order_relaxed) == tid)
            return false; /* it crashed over its own crash */
    uint32_t n = atomic_fetch_add_explicit(&crash_state.n_faults, 1, memory_order_acq_rel);
    if (n < CRASH_FAULTS) {
        struct crash_fault *f = &crash_state.faults[n];
        f->signo = signo;
        f->info = *info;
        f->context = context;
        f->call = call_innermost();
        atomic_store_explicit(&f->tid, tid, memory_order_release);
    }
    if (n == 0)
        have_it_made(only_abort);
    else
        wait_for_the_first();
    return true;
}

/* ---- the program's own handler, and death ---- */

/* Did the program's handler leave the default action to follow?                       [signal] */
static bool is_the_end(int signo, const siginfo_t *info)
{
    struct sigaction now;
    uint64_t pending = 0;
    if (sigaction(signo, NULL, &now) == -1 || !handler_is_default(&now))
        return false;
    (void)syscall(SYS_rt_sigpending, &pending, MASK_BYTES);
    return info->si_code > 0 || (pending >> (signo - 1) & 1);
}

/* The default action, after this handler.                                             [signal] */
static void end_process(int signo, siginfo_t *info)
{
    handler_die(signo, info);
    if (syscall(SYS_getpid) ==
        1) /* an init ignores what its own children and it send: it may live on */
        stack_gather_end();
}

static void on_fault(int signo, siginfo_t *info, void *context) /* [signal] */
{
    int kept = errno;
    const struct crash_signal *s = signal_of(signo);
    struct sigaction before = s->before;
    bool made = false;
    if (signo == SIGBUS && mapped_mend(info)) {
        errno = kept;
        return;
    }
    if (handler_is_default(&before)) {
        (void)write_report(signo, info, context, /* only_abort= */ false);
        end_process(signo, info); /* the others stand still to the end */
    } else if (atomic_load_explicit(&s->ends, memory_order_relaxed)) {
        if (write_report(signo, info, context, /* only_abort= */ false))
            stack_gather_end();
        handler_run(&before, signo, info, context);
    } else {
        handler_run(&before, signo, info, context);
        if (is_the_end(signo, info))
            made = write_report(signo, info, context, /* only_abort= */ false);
        else if (signo == SIGABRT && info->si_code == SI_TKILL)
            /* abort() ends the process whatever a handler did; raise() does not */
            made = write_report(signo, info, context, /* only_abort= */ true);
        if (made)
            stack_gather_end();
    }
    errno = kept;
}

/* ---- taking and giving back ---- */

enum handler_place handler_place(const struct crash_signal *s, struct sigaction *ret_now)
{
    if (sigaction(s->number, NULL, ret_now) == -1)
        return HANDLER_OTHER;
    if (s->number == SIGBUS)
        (void)mapped_see_through(ret_now);
    if ((ret_now->sa_flags & SA_SIGINFO) && ret_now->sa_sigaction == on_fault)
        return HANDLER_OURS;
    if (ret_now->sa_flags & SA_SIGINFO)
        return HANDLER_OTHER;
    return ret_now->sa_handler == SIG_DFL   ? HANDLER_DEFAULT
           : ret_now->sa_handler == SIG_IGN ? HANDLER_IGNORED
                                            : HANDLER_OTHER;
}

int handler_take(struct crash_signal *s)
{
    struct sigaction now, replaced, ours;
    for (int i = 0; i < 10; i++) {
        enum handler_place place = handler_place(s, &now);
        if (place == HANDLER_OURS || place == HANDLER_IGNORED)
            return place == HANDLER_OURS ? 0 : -EBUSY;
        s->before = now; /* first: the handler may run at once */
        handler_fill(&ours, &now, on_fault);
        if (s->number == SIGBUS)
            mapped_stand_in(on_fault);
        if (sigaction(s->number, &ours, &replaced) == -1)
            return -errno;
        s->taken = true;
        struct sigaction raw = replaced;
        if (s->number == SIGBUS)
            (void)mapped_see_through(&replaced);
        if (replaced.sa_sigaction == now.sa_sigaction && replaced.sa_flags == now.sa_flags)
            return 0;
        (void)sigaction(s->number, &raw, NULL); /* the program was quicker */
        s->taken = false;
    }
    return -EAGAIN;
}

void handler_give_back(struct crash_signal *s)
{
    struct sigaction now, replaced;
    if (s->taken && handler_place(s, &now) == HANDLER_OURS) {
        (void)sigaction(s->number, &s->before, &replaced);
        if (!(replaced.sa_flags & SA_SIGINFO) || replaced.sa_sigaction != on_fault)
            (void)sigaction(s->number, &replaced, NULL); /* the program was quicker */
        s->taken = false;
    }
}
