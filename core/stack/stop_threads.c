/* SPDX-License-Identifier: Apache-2.0
 *
 * core/stack/stop_threads.c - many threads of our own process stand still at once, to be looked at.
 * One thread gathers; the handler runs on the gathered.  System calls and atomics only, on either
 * side: it is for a process that has crashed, where any lock may be held for ever.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/stack/capture_signal.h"
#include "core/stack/stack.h"

#define NAP_NS NS_PER_MS /* between looks at who takes no signal yet */

struct stopped_thread {
    pid_t tid;                         /* written before the round begins */
    bool settled;                      /* asked, or it cannot be; this and the next: gatherer's */
    int64_t call;                      /* it waited in before it was asked, -1: none */
    const ucontext_t *_Atomic context; /* release: it stands */
};

/* Static because the handler has no other way to find it. */
static struct {
    struct stopped_thread *threads; /* STACK_GATHER_MAX */
    uint32_t n, asked;              /* the gatherer's */
    _Atomic uint32_t round;         /* 0: nobody need stand; futex word */
    _Atomic uint32_t rounds;        /* so far */
    _Atomic uint32_t standing;      /* futex word */
} gathering;

static void wait_for(_Atomic uint32_t *word, uint32_t while_it_is,
                     uint64_t timeout_ns) /* [signal] */
{
    const struct timespec t = {.tv_sec = (time_t)(timeout_ns / NS_PER_S),
                               .tv_nsec = (int32_t)(timeout_ns % NS_PER_S)};
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, while_it_is, &t, NULL, 0);
}

static void wake_waiter(_Atomic uint32_t *word) /* [signal] */
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* A signal that arrives after its round is nobody's any more. */
void gather_on_signal(const ucontext_t *context)
{
    uint32_t round = atomic_load_explicit(&gathering.round, memory_order_acquire);
    pid_t tid = (pid_t)syscall(SYS_gettid);
    uint64_t end = clock_monotonic() + STACK_GATHER_NS, now;
    struct stopped_thread *mine = NULL;
    for (uint32_t i = 0; round != 0 && i < gathering.n && !mine; i++)
        mine = gathering.threads[i].tid == tid ? &gathering.threads[i] : NULL;
    if (!mine)
        return;
    atomic_store_explicit(&mine->context, context, memory_order_release);
    (void)atomic_fetch_add_explicit(&gathering.standing, 1, memory_order_acq_rel);
    wake_waiter(&gathering.standing);
    while (atomic_load_explicit(&gathering.round, memory_order_acquire) == round &&
           (now = clock_monotonic()) < end)
        wait_for(&gathering.round, round, end - now);
    atomic_store_explicit(&mine->context, NULL, memory_order_release);
}

int stack_gather_prepare(void)
{
    if (!gathering.threads) {
        void *memory = mmap(NULL, STACK_GATHER_MAX * sizeof(struct stopped_thread),
                            PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            return err_set(-ENOMEM, "no memory for a list of threads");
        gathering.threads = memory; /* for ever: a late handler may look */
    }
    return signal_take();
}

/* A thread that blocks the signal and waits in a system call is seen all the same.  One that runs
 * may be in a handler of ours for a moment, and is asked later: gives how many those are. */
static uint32_t ask_threads(void)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < gathering.n; i++) {
        struct stopped_thread *t = &gathering.threads[i];
        struct proc_syscall waiting;
        if (t->settled)
            continue;
        t->call = signal_waits_in(t->tid, &waiting) ? waiting.number : -1;
        bool blocked = signal_is_blocked(t->tid);
        bool asked = !blocked && signal_send(t->tid, SIGNAL_GATHER) == 0;
        t->settled =
            !blocked || t->call >= 0 || syscall(SYS_tgkill, getpid(), t->tid, /* signal= */ 0) != 0;
        gathering.asked += asked;
        left += !t->settled;
    }
    return left;
}

void stack_gather_begin(const pid_t *tids, uint32_t n)
{
    gathering.n = gathering.asked = 0;
    if (!gathering.threads || signal_number() == 0)
        return;
    n = n < STACK_GATHER_MAX ? n : STACK_GATHER_MAX;
    for (uint32_t i = 0; i < n; i++) {
        gathering.threads[i].tid = tids[i];
        gathering.threads[i].settled = false;
        gathering.threads[i].call = -1;
        atomic_store_explicit(&gathering.threads[i].context, NULL, memory_order_relaxed);
    }
    gathering.n = n;
    atomic_store_explicit(&gathering.standing, 0, memory_order_relaxed);
    uint32_t round = atomic_fetch_add_explicit(&gathering.rounds, 1, memory_order_relaxed) + 1;
    atomic_store_explicit(&gathering.round, round ? round : 1, memory_order_release);
    (void)ask_threads();
}

void stack_gather_wait(uint64_t timeout_ns)
{
    uint64_t end = clock_monotonic() + timeout_ns, now;
    for (;;) {
        uint32_t left = ask_threads();
        uint32_t standing = atomic_load_explicit(&gathering.standing, memory_order_acquire);
        if (standing >= gathering.asked + left || (now = clock_monotonic()) >= end)
            return;
        wait_for(&gathering.standing, standing,
                 left > 0 && end - now > NAP_NS ? NAP_NS : end - now);
    }
}

bool stack_gather_registers(pid_t tid, struct stack_registers *ret, int64_t *ret_call)
{
    struct proc_syscall waiting;
    const ucontext_t *context = NULL;
    *ret_call = -1;
    for (uint32_t i = 0; i < gathering.n; i++)
        if (gathering.threads[i].tid == tid) {
            context = atomic_load_explicit(&gathering.threads[i].context, memory_order_acquire);
            *ret_call = gathering.threads[i].call;
        }
    if (context) {
        stack_registers_of(context, ret);
        return true;
    }
    if (!signal_waits_in(tid, &waiting))
        return false;
    *ret_call = waiting.number;
    *ret = (struct stack_registers){.known = UINT64_C(1) << STACK_REG_IP | UINT64_C(1)
                                                                               << STACK_REG_SP};
    ret->value[STACK_REG_IP] = waiting.ip;
    ret->value[STACK_REG_SP] = waiting.sp;
    return true;
}

void stack_gather_end(void)
{
    atomic_store_explicit(&gathering.round, 0, memory_order_release);
    wake_waiter(&gathering.round);
}
