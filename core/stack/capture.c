/* SPDX-License-Identifier: Apache-2.0
 *
 * core/stack/capture.c - the stack of one thread of our own process, without changing what it does.
 * One capturing thread at a time; the handler runs on any thread.  The handler copies registers and
 * stack into memory that stands ready; unwinding is done from the copy, by the caller.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/stack/capture_signal.h"
#include "core/stack/internal.h"
#include "sdk/lib/proc/memory.h"
#include "sdk/lib/proc/task.h"

#define COPY_BYTES (256u << 10) /* of a thread's stack; what lies further up is read in place */
#define NAP_NS 100000           /* between two looks at a thread that cannot be seen yet */
#define STUCK_NS UINT64_C(1000000000) /* a handler that has begun ends within this */
#define NS_PER_SECOND 1000000000

/* HELD carries the request's number above its low bits: a handler that wakes late must not end
 * somebody else's hold. */
enum { IDLE, ASKED, COPYING, HELD, DONE, STATE_BITS = 3 };

/* The request in flight.  Static because the handler has no other way to find it. */
static struct {
    _Atomic uint32_t state; /* enum above; futex word */
    _Atomic uint32_t number;
    _Atomic pid_t tid;
    _Atomic bool hold;                /* stand still after the copy until we say DONE */
    struct stack_registers registers; /* handler's while COPYING, caller's else */
    uint64_t copied_from;
    size_t copied;
    unsigned char *stack; /* COPY_BYTES */
} slot;

static int read_stat(pid_t tid, struct stack_thread *ret)
{
    struct proc_stat s;
    int rc = proc_stat_of(0, tid, &s);
    if (rc < 0)
        return rc == -EPERM || rc == -EACCES ? rc : -ESRCH;
    memset(ret->name, 0, sizeof(ret->name));
    memcpy(ret->name, s.comm, strnlen(s.comm, sizeof(ret->name) - 1));
    ret->state = s.state;
    return 0;
}

/* ---- in the handler ---- */

/* By a system call, because the copy may reach past the stack into memory that goes away. [signal]
 */
static size_t copy_memory(unsigned char *to, uint64_t from, size_t size)
{
    int64_t n = proc_own_memory(from, to, size);
    return n > 0 ? (size_t)n : 0;
}

static void wake_all(void) /* [signal] */
{
    (void)syscall(SYS_futex, &slot.state, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Stand still until the caller says DONE, for STACK_HOLD_NS at most.  All signals are blocked
 * here (sa_mask), so one wait is enough.                                               [signal] */
static void stand_still(void)
{
    const struct timespec most = {.tv_nsec = STACK_HOLD_NS};
    uint32_t held = HELD | atomic_load_explicit(&slot.number, memory_order_relaxed) << STATE_BITS;
    atomic_store_explicit(&slot.state, held, memory_order_release);
    wake_all();
    (void)syscall(SYS_futex, &slot.state, FUTEX_WAIT_PRIVATE, held, &most, NULL, 0);
    (void)atomic_compare_exchange_strong_explicit(&slot.state, &held, DONE, memory_order_acq_rel,
                                                  memory_order_relaxed);
}

void capture_on_signal(const ucontext_t *context)
{
    uint32_t asked = ASKED;
    if (atomic_load_explicit(&slot.tid, memory_order_acquire) != syscall(SYS_gettid) ||
        !atomic_compare_exchange_strong_explicit(&slot.state, &asked, COPYING, memory_order_acq_rel,
                                                 memory_order_relaxed))
        return;
    stack_registers_of(context, &slot.registers);
    slot.copied_from = slot.registers.value[STACK_REG_SP];
    slot.copied = copy_memory(slot.stack, slot.copied_from, COPY_BYTES);
    if (atomic_load_explicit(&slot.hold, memory_order_relaxed)) {
        stand_still();
    } else {
        atomic_store_explicit(&slot.state, DONE, memory_order_release);
        wake_all();
    }
}

static int take_signal(void)
{
    if (!slot.stack && !(slot.stack = malloc(COPY_BYTES)))
        return err_set(-ENOMEM, "no memory for the copy of a stack");
    return signal_take();
}

void stack_capture_off(void)
{
    signal_give_back();
    if (atomic_load_explicit(&slot.state, memory_order_acquire) == IDLE) {
        free(slot.stack);
        slot.stack = NULL;
    }
}

/* ---- the caller's side ---- */

static uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS_PER_SECOND + (uint64_t)t.tv_nsec;
}

/* Until the copy is there (HELD or DONE).  false: time is over. */
static bool wait_done(uint64_t timeout_ns)
{
    uint64_t end = now_ns() + timeout_ns;
    for (;;) {
        uint32_t state = atomic_load_explicit(&slot.state, memory_order_acquire);
        uint64_t now = now_ns();
        if (state == DONE || (state & ((1u << STATE_BITS) - 1)) == HELD)
            return true;
        if (now >= end)
            return false;
        struct timespec left = {.tv_sec = (time_t)((end - now) / NS_PER_SECOND),
                                .tv_nsec = (int32_t)((end - now) % NS_PER_SECOND)};
        (void)syscall(SYS_futex, &slot.state, FUTEX_WAIT_PRIVATE, state, &left, NULL, 0);
    }
}

/* Let a held thread go on.  true: it had stood still until now. */
static bool let_go(void)
{
    uint32_t held = HELD | atomic_load_explicit(&slot.number, memory_order_relaxed) << STATE_BITS;
    bool stood = atomic_compare_exchange_strong_explicit(
        &slot.state, &held, DONE, memory_order_acq_rel, memory_order_relaxed);
    if (stood)
        wake_all();
    return stood;
}

/* The function to run while the thread stands still, and whether it did. */
struct hold {
    void (*fn)(void *arg); /* NULL: nothing, do not hold */
    void *arg;
    bool stood;
};

static int send_signal(pid_t tid, bool hold)
{
    (void)atomic_fetch_add_explicit(&slot.number, 1, memory_order_relaxed);
    atomic_store_explicit(&slot.hold, hold, memory_order_relaxed);
    atomic_store_explicit(&slot.tid, tid, memory_order_release);
    atomic_store_explicit(&slot.state, ASKED, memory_order_release);
    int rc = signal_send(tid, SIGNAL_CAPTURE);
    if (rc == 0)
        return 0;
    atomic_store_explicit(&slot.state, IDLE, memory_order_release);
    return rc == -ESRCH ? rc : err_set(rc, "cannot signal thread %d: %s", tid, strerror(-rc));
}

static int unwind_into(struct stack_process *self, const struct stack_registers *r,
                       struct stack_thread *ret)
{
    int n = stack_unwind(self, r, ret->frames, STACK_FRAMES_MAX, &ret->end);
    ret->n = n > 0 ? (uint32_t)n : 0;
    return n > 0 ? 0 : n;
}

static int look_by_signal(struct stack_process *self, pid_t tid, uint64_t timeout_ns,
                          struct hold *hold, struct stack_thread *ret)
{
    if (atomic_load_explicit(&slot.state, memory_order_acquire) != IDLE) {
        if (!wait_done(0)) /* a thread stands still in the middle of an earlier copy */
            return err_set(-EBUSY, "an earlier look at thread %d has not ended",
                           atomic_load_explicit(&slot.tid, memory_order_relaxed));
        atomic_store_explicit(&slot.state, IDLE, memory_order_relaxed);
    }
    int rc = send_signal(tid, hold->fn != NULL);
    if (rc < 0)
        return rc;
    if (!wait_done(timeout_ns)) {
        uint32_t asked = ASKED;
        if (atomic_compare_exchange_strong_explicit(&slot.state, &asked, IDLE, memory_order_acq_rel,
                                                    memory_order_acquire))
            return err_set(-ETIMEDOUT, "thread %d did not answer in %llu ms", tid,
                           (unsigned long long)(timeout_ns / 1000000));
        if (!wait_done(STUCK_NS))
            return err_set(-ETIMEDOUT, "thread %d stands still in our handler", tid);
    }
    if (hold->fn) {
        hold->fn(hold->arg);
        hold->stood = let_go();
    }
    stack_process_refresh(self, /* maps_too= */ false);
    stack_overlay(self, slot.copied_from, slot.stack, slot.copied);
    rc = unwind_into(self, &slot.registers, ret);
    stack_process_refresh(self, /* maps_too= */ false); /* the copy is not valid any more */
    atomic_store_explicit(&slot.state, IDLE, memory_order_release);
    return rc;
}

/* A thread that waits: its stack lies still.  Look twice to be sure that it did. */
static int look_by_proc(struct stack_process *self, pid_t tid, const struct proc_syscall *first,
                        struct hold *hold, struct stack_thread *ret)
{
    struct stack_registers r = {.known = UINT64_C(1) << STACK_REG_IP | UINT64_C(1) << STACK_REG_SP};
    struct proc_syscall again;
    r.value[STACK_REG_IP] = first->ip;
    r.value[STACK_REG_SP] = first->sp;
    stack_process_refresh(self, /* maps_too= */ false);
    int rc = unwind_into(self, &r, ret);
    if (rc < 0)
        return rc;
    if (hold->fn)
        hold->fn(hold->arg);
    hold->stood = signal_waits_in(tid, &again) && again.ip == first->ip && again.sp == first->sp;
    return hold->stood ? 0 : -EAGAIN;
}

static int look_at_myself(struct stack_process *self, struct hold *hold, struct stack_thread *ret)
{
    struct stack_registers r;
    ucontext_t context;
    if (getcontext(&context) == -1)
        return -errno;
    stack_registers_of(&context, &r);
    stack_process_refresh(self, /* maps_too= */ false);
    ret->syscall = -1;
    if (hold->fn)
        hold->fn(hold->arg);
    hold->stood = true;
    return unwind_into(self, &r, ret);
}

static int look_at_thread(struct stack_process *self, pid_t tid, uint64_t timeout_ns,
                          struct hold *hold, struct stack_thread *ret)
{
    int rc = read_stat(tid, ret);
    ret->tid = tid;
    ret->syscall = -1;
    ret->n = 0;
    ret->end = STACK_END_LOST;
    if (rc < 0)
        return rc == -ESRCH ? err_set(-ESRCH, "there is no thread %d", tid) : rc;
    if (tid == syscall(SYS_gettid))
        return look_at_myself(self, hold, ret);
    rc = take_signal();
    if (rc < 0)
        return rc;
    uint64_t end = now_ns() + timeout_ns;
    do {
        struct proc_syscall waiting = {.number = -1};
        bool waits = signal_waits_in(tid, &waiting);
        ret->syscall = waits ? waiting.number : -1;
        bool late = strchr("DTt", ret->state) || signal_comes_late(tid);
        if (waits && (late || signal_ends_call(waiting.number, waiting.arguments)))
            rc = look_by_proc(self, tid, &waiting, hold, ret);
        else if (late)
            rc = -EAGAIN;
        else
            return look_by_signal(self, tid, timeout_ns, hold, ret);
        if (rc != -EAGAIN)
            return rc;
        /* It moved, or is in a handler (ours, still, after the last look): soon it is not. */
        (void)nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
        (void)read_stat(tid, ret);
    } while (now_ns() < end);
    ret->n = 0;
    return err_set(-ETIMEDOUT, "thread %d takes no signal now and does not stand still", tid);
}

int stack_capture(struct stack_process *self, pid_t tid, uint64_t timeout_ns,
                  struct stack_thread *ret)
{
    struct hold none = {.fn = NULL};
    return look_at_thread(self, tid, timeout_ns, &none, ret);
}

int stack_capture_held(struct stack_process *self, pid_t tid, uint64_t timeout_ns,
                       void (*fn)(void *arg), void *arg, struct stack_thread *ret)
{
    struct hold hold = {.fn = fn, .arg = arg};
    int rc = look_at_thread(self, tid, timeout_ns, &hold, ret);
    return rc < 0 ? rc : hold.stood;
}
