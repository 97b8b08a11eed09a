/* SPDX-License-Identifier: Apache-2.0
 *
 * core/stack/capture_signal.c - the signal of core/stack: what its handler does, and which system
 * calls it may come into.
 * Taking and giving back: any thread.  The handler runs on any thread of the host.
 */
#include "core/stack/capture_signal.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/guest/owned_signals.h"
#include "core/stack/stack.h"
#include "sdk/lib/proc/memory.h"

static _Atomic int taken; /* 0: none */

/* Calls that end with EINTR after a signal even under SA_RESTART: signal(7). */
bool signal_ends_call(int64_t number, const uint64_t arguments[6])
{
    static const int64_t numbers[] = {
#ifdef SYS_poll
        SYS_poll, SYS_select, SYS_epoll_wait, SYS_pause,
#endif
#ifdef SYS_epoll_pwait2
        SYS_epoll_pwait2,
#endif
#ifdef SYS_futex_waitv
        SYS_futex_waitv,
#endif
        SYS_ppoll, SYS_pselect6, SYS_epoll_pwait, SYS_nanosleep, SYS_clock_nanosleep,
        SYS_rt_sigtimedwait, SYS_rt_sigsuspend, SYS_io_getevents, SYS_io_pgetevents, SYS_semop,
        SYS_semtimedop, SYS_msgrcv, SYS_msgsnd, SYS_mq_timedreceive, SYS_mq_timedsend, SYS_connect,
        SYS_close, SYS_restart_syscall, SYS_execve, SYS_execveat, SYS_exit, SYS_exit_group,
        /* With SO_RCVTIMEO or SO_SNDTIMEO, which cannot be seen from here. */
        SYS_accept, SYS_accept4, SYS_recvfrom, SYS_recvmsg, SYS_recvmmsg, SYS_sendto, SYS_sendmsg,
        426 /* io_uring_enter */};
    if (number == SYS_futex) { /* without a time limit it is restarted */
        int op = (int)arguments[1] & FUTEX_CMD_MASK;
        return !((op == FUTEX_WAIT || op == FUTEX_WAIT_BITSET) && arguments[3] == 0) &&
               op != FUTEX_LOCK_PI;
    }
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (numbers[i] == number)
            return true;
    }
    return false;
}

bool signal_waits_in(pid_t tid, struct proc_syscall *ret)
{
    return proc_syscall_of(0, tid, ret) > PROC_RUNS && ret->sp != 0 && ret->ip != 0;
}

/* ---- the handler ---- */

void stack_registers_of(const void *ucontext, struct stack_registers *r)
{
    const ucontext_t *context = ucontext;
#if defined(__x86_64__)
    const greg_t *g = context->uc_mcontext.gregs;
    r->value[0] = (uint64_t)g[REG_RAX];
    r->value[1] = (uint64_t)g[REG_RDX];
    r->value[2] = (uint64_t)g[REG_RCX];
    r->value[3] = (uint64_t)g[REG_RBX];
    r->value[4] = (uint64_t)g[REG_RSI];
    r->value[5] = (uint64_t)g[REG_RDI];
    r->value[6] = (uint64_t)g[REG_RBP];
    r->value[7] = (uint64_t)g[REG_RSP];
    for (int i = 0; i < 8; i++)
        r->value[8 + i] = (uint64_t)g[REG_R8 + i];
    r->value[16] = (uint64_t)g[REG_RIP];
    r->known = (UINT64_C(1) << 17) - 1;
#elif defined(__aarch64__)
    for (int i = 0; i < 31; i++)
        r->value[i] = context->uc_mcontext.regs[i];
    r->value[31] = context->uc_mcontext.sp;
    r->value[32] = context->uc_mcontext.pc;
    r->known = (UINT64_C(1) << 33) - 1;
#endif
}

#if defined(__x86_64__)
#define CALL_BYTES 7            /* of code, that say which system call was made before an address */
#define STACK_SLOTS 32          /* words of the stack in which libc keeps the number */
#define PUSH_BYTES ((size_t)24) /* of code before a call, in which its last argument is pushed */

/* How many bytes came.                                                                 [signal] */
static size_t read_memory(uint64_t from, void *ret, size_t size)
{
    int64_t n = proc_own_memory(from, ret, size);
    return n > 0 ? (size_t)n : 0;
}

/* Does the code before a return address push this number and then make a call?       [signal] */
static bool pushes_number(uint64_t ret_address, uint64_t number)
{
    unsigned char code[PUSH_BYTES + 5];
    int32_t wide;
    if (number > 1023 || ret_address < sizeof(code) || /* most words are no number */
        read_memory(ret_address - sizeof(code), code, sizeof(code)) != sizeof(code) ||
        code[PUSH_BYTES] != 0xe8)
        return false;
    for (size_t i = 0; i + 2 <= PUSH_BYTES; i++) {
        if (code[i] == 0x6a && number < 128 && code[i + 1] == number)
            return true; /* push imm8 */
        if (code[i] != 0x68 || i + 5 > PUSH_BYTES)
            continue;
        memcpy(&wide, code + i + 1, sizeof(wide)); /* push imm32 */
        if ((uint64_t)wide == number)
            return true;
    }
    return false;
}

/* Which system call was made right before `ip`, by the code there; -1: it cannot be told.  Its
 * registers are still what they were, but for rax, which had the number, rcx and r11:
 *
 *     "mov eax, number; syscall"
 *     glibc 2.41 and later, calls at which a thread may be cancelled: "mov [rsp+8], r11; syscall"
 *     in one place for all (sysdeps/unix/sysv/linux/x86_64/syscall_cancel.S), whose callers push
 *     the number, so that it lies above the address that its call returns to.          [signal] */
static int64_t call_before(uint64_t ip, uint64_t sp)
{
    static const unsigned char cancellable[CALL_BYTES] = {0x4c, 0x89, 0x5c, 0x24, 0x08, 0x0f, 0x05};
    unsigned char code[CALL_BYTES];
    uint64_t stack[STACK_SLOTS];
    int32_t number;
    if (read_memory(ip - sizeof(code), code, sizeof(code)) != sizeof(code))
        return -1;
    memcpy(&number, code + 1, sizeof(number));
    if (code[0] == 0xb8 && code[5] == 0x0f && code[6] == 0x05)
        return number;
    if (memcmp(code, cancellable, sizeof(code)) != 0)
        return -1;
    size_t n = read_memory(sp, stack, sizeof(stack)) / sizeof(stack[0]);
    for (size_t i = 0; i + 1 < n; i++) {
        if (pushes_number(stack[i], stack[i + 1]))
            return (int64_t)stack[i + 1];
    }
    return -1;
}
#endif

/* The thread went into such a call between our look and the signal.  Ours has the highest number
 * and is taken last, so when it is us who stand right after the call, nobody else's signal wanted
 * the EINTR: let it make the call again.                                               [signal] */
static void make_call_again(ucontext_t *context)
{
#if defined(__x86_64__)
    greg_t *g = context->uc_mcontext.gregs;
    const uint64_t none[6] = {0, 0, 0, 1, 0, 0};
    if (g[REG_RAX] != -EINTR)
        return;
    int64_t number = call_before((uint64_t)g[REG_RIP], (uint64_t)g[REG_RSP]);
    if (number < 0 || !signal_ends_call(number, none) || number == SYS_connect ||
        number == SYS_close)
        return;
    g[REG_RAX] = number;
    g[REG_RIP] -= 2;
#else
    (void)context; /* aarch64: the first argument is gone, the caller sees EINTR */
#endif
}

bool signal_repeats_call(const struct proc_syscall *w)
{
#if defined(__x86_64__)
    const uint64_t *a = w->arguments;
    if (call_before(w->ip, w->sp) != w->number)
        return false;
    switch (w->number) {
    case SYS_pause:
        return true;
    case SYS_poll:
        return (int)a[2] == -1;
    case SYS_ppoll:
        return a[2] == 0;
    case SYS_select:
    case SYS_pselect6:
        return a[4] == 0;
    case SYS_epoll_wait:
    case SYS_epoll_pwait:
        return (int)a[3] == -1;
    case SYS_clock_nanosleep:
        return (a[1] & TIMER_ABSTIME) != 0;
    case SYS_futex:
        return ((int)a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET;
    }
#else
    (void)w;
#endif
    return false;
}

/* [signal] */
static bool on_signal(int kind, void *info, void *context)
{
    (void)info;
    if (kind == SIGNALS_FOREIGN)
        return false;
    make_call_again(context);
    switch ((enum signal_kind)kind) {
    case SIGNAL_CAPTURE:
        capture_on_signal(context);
        break;
    case SIGNAL_GATHER:
        gather_on_signal(context);
        break;
    case SIGNAL_ALTSTACK:
        altstack_on_signal(context);
        break;
    case SIGNAL_KINDS:
        break;
    }
    return true;
}

/* ---- taking and giving back ---- */

int signal_number(void)
{
    return atomic_load_explicit(&taken, memory_order_acquire);
}

/* From the top, so that it is taken last: see make_call_again(). */
int signal_take(void)
{
    int number = signal_number();
    if (number != 0 && signals_take(number, on_signal) == 0)
        return 0;
    number = signals_take_below(SIGRTMAX, on_signal);
    if (number < 0)
        return err_set(-EBUSY, "every real-time signal is in use by the program: no native stacks");
    atomic_store_explicit(&taken, number, memory_order_release);
    return 0;
}

void signal_give_back(void)
{
    int number = atomic_exchange_explicit(&taken, 0, memory_order_acq_rel);
    if (number != 0)
        (void)signals_give(number);
}

bool signal_is_blocked(pid_t tid)
{
    return signals_of_thread(signal_number(), tid) & SIGNALS_BLOCKED;
}

bool signal_comes_late(pid_t tid)
{
    return signals_of_thread(signal_number(), tid) != 0;
}

int signal_send(pid_t tid, enum signal_kind kind)
{
    return signals_send(signal_number(), tid, (int)kind);
}
