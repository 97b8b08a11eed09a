/* SPDX-License-Identifier: Apache-2.0
 *
 * core/stack/altstack.c - an alternate signal stack for a thread that has none, given from outside.
 * One caller at a time; the handler runs on the thread.  What a handler finds in its context the
 * kernel makes true when the handler returns, uc_stack too: sigaltstack(2) without the thread's
 * own doing.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/stack/capture_signal.h"
#include "core/stack/stack.h"

#define NAP_NS 200000    /* for a thread to leave the handler */
#define WORK_NS NS_PER_S /* a handler that has begun ends within this */

enum { NOTHING, ASKED, WORKING, HAS_ITS_OWN, RUNS_ON_IT, LENT };

static struct {
    _Atomic uint32_t state; /* enum above; futex word */
    pid_t tid;              /* these are the caller's until ASKED, then the handler's */
    void *memory;
    size_t size;
    bool take_back;
} loan;

/* sigaltstack(2), none, as if from the stack that the handler has interrupted: the kernel refuses
 * to change an alternate stack that it finds us on, and we are on it.  All signals are blocked, and
 * nothing is written there.                                                           [signal] */
static void disable_from(uint64_t interrupted_sp)
{
    const stack_t none = {.ss_flags = SS_DISABLE};
    uint64_t sp = (interrupted_sp - 256) & ~UINT64_C(15);
#if defined(__x86_64__)
    int64_t rc = SYS_sigaltstack;
    __asm__ __volatile__("mov %%rsp, %%rbx\n\t"
                         "mov %[sp], %%rsp\n\t"
                         "syscall\n\t"
                         "mov %%rbx, %%rsp"
                         : "+a"(rc)
                         : [sp] "r"(sp), "D"(&none), "S"(NULL)
                         : "rbx", "rcx", "r11", "memory");
#elif defined(__aarch64__)
    register const stack_t *first __asm__("x0") = &none;
    register void *second __asm__("x1") = NULL;
    register int64_t number __asm__("x8") = SYS_sigaltstack;
    __asm__ __volatile__("mov x9, sp\n\t"
                         "mov sp, %[sp]\n\t"
                         "svc 0\n\t"
                         "mov sp, x9"
                         : "+r"(first)
                         : [sp] "r"(sp), "r"(second), "r"(number)
                         : "x9", "memory");
#endif
}

void altstack_on_signal(ucontext_t *context)
{
    uint32_t asked = ASKED, answer = HAS_ITS_OWN;
    stack_t *s = &context->uc_stack;
    if (atomic_load_explicit(&loan.state, memory_order_acquire) != ASKED ||
        loan.tid != syscall(SYS_gettid) ||
        !atomic_compare_exchange_strong_explicit(&loan.state, &asked, WORKING, memory_order_acq_rel,
                                                 memory_order_relaxed))
        return;
    /* After exec the kernel tells of none by its size only. */
    if (!loan.take_back && ((s->ss_flags & SS_DISABLE) || s->ss_size == 0)) {
        *s = (stack_t){.ss_sp = loan.memory, .ss_size = loan.size};
        answer = LENT;
    } else if (loan.take_back && s->ss_sp == loan.memory && s->ss_size != 0) {
        struct stack_registers r = {.known = 0};
        stack_registers_of(context, &r);
        uint64_t sp = r.value[STACK_REG_SP];
        answer = sp - (uintptr_t)loan.memory < loan.size ? RUNS_ON_IT : LENT;
        if (answer == LENT) {
            disable_from(sp);
            *s = (stack_t){.ss_flags = SS_DISABLE};
        }
    }
    atomic_store_explicit(&loan.state, answer, memory_order_release);
    (void)syscall(SYS_futex, &loan.state, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void wait_while(uint32_t state, uint64_t timeout_ns)
{
    const struct timespec most = {.tv_sec = (time_t)(timeout_ns / NS_PER_S),
                                  .tv_nsec = (int32_t)(timeout_ns % NS_PER_S)};
    (void)syscall(SYS_futex, &loan.state, FUTEX_WAIT_PRIVATE, state, &most, NULL, 0);
}

static int ask_thread(pid_t tid, void *memory, size_t size, bool take_back, uint64_t timeout_ns)
{
    struct proc_syscall waiting;
    uint32_t asked = ASKED;
    if (signal_comes_late(tid) ||
        (signal_waits_in(tid, &waiting) && signal_ends_call(waiting.number, waiting.arguments) &&
         !signal_repeats_call(&waiting)))
        return syscall(SYS_tgkill, getpid(), tid, 0) == -1 ? -ESRCH : -EAGAIN;
    loan.tid = tid;
    loan.memory = memory;
    loan.size = size;
    loan.take_back = take_back;
    atomic_store_explicit(&loan.state, ASKED, memory_order_release);
    int rc = signal_send(tid, SIGNAL_ALTSTACK);
    if (rc < 0) { /* no room for one more in the user's queue (ulimit -i), or the thread is gone */
        atomic_store_explicit(&loan.state, NOTHING, memory_order_release);
        return rc == -ESRCH ? -ESRCH : -EAGAIN;
    }
    wait_while(ASKED, timeout_ns);
    /* Not answered: the question is taken back, so that a late handler changes nothing. */
    if (atomic_compare_exchange_strong_explicit(&loan.state, &asked, NOTHING, memory_order_acq_rel,
                                                memory_order_acquire))
        return -EAGAIN;
    wait_while(WORKING, WORK_NS);
    uint32_t answer = atomic_load_explicit(&loan.state, memory_order_acquire);
    if (answer == RUNS_ON_IT || (answer == WORKING && take_back))
        return -EAGAIN;
    return answer == LENT || answer == WORKING; /* when in doubt the memory counts as given away */
}

/* The handler that gave the stack back still ran on it; one that runs after it does not. */
int altstack_give(pid_t tid, void *memory, size_t size, bool take_back, uint64_t timeout_ns)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    uint64_t end = clock_monotonic() + timeout_ns;
    if (signal_number() == 0 || signal_take() < 0) /* without our handler it ends the process */
        return -EBUSY;
    int rc = ask_thread(tid, memory, size, take_back, timeout_ns);
    if (rc != 1 || !take_back)
        return rc;
    while ((rc = ask_thread(tid, memory, size, /* take_back= */ true, timeout_ns)) == -EAGAIN &&
           clock_monotonic() < end)
        (void)nanosleep(&nap, NULL);
    return rc == 0 ? 1 : -EAGAIN;
}
