/* SPDX-License-Identifier: Apache-2.0
 *
 * core/guest/sigchain.c - running the program's handler after ours, or the default action.
 *
 * The thread that the signal came to; it keeps nothing.
 */
#include "core/guest/sigchain.h"

#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "sdk/lib/own_thread.h"

#define MASK_BYTES 8 /* of the kernel's sigset_t; libc's is longer, a frame's is not */

bool handler_is_default(const struct sigaction *a)
{
    return !(a->sa_flags & SA_SIGINFO) && a->sa_handler == SIG_DFL;
}

void handler_fill(struct sigaction *ret, const struct sigaction *before, handler_fn *fn)
{
    int flags = handler_is_default(before) ? SA_ONSTACK | SA_RESTART
                                           : before->sa_flags & (SA_ONSTACK | SA_RESTART);
    *ret = (struct sigaction){.sa_sigaction = fn, .sa_flags = SA_SIGINFO | SA_NODEFER | flags};
    (void)sigfillset(&ret->sa_mask);
    own_thread_spare_faults(&ret->sa_mask);
}

void handler_run(const struct sigaction *before, int signo, siginfo_t *info, void *context)
{
    const ucontext_t *interrupted = context;
    const struct sigaction by_default = {.sa_handler = SIG_DFL};
    uint64_t mask, more, ours;
    memcpy(&mask, &interrupted->uc_sigmask, MASK_BYTES);
    memcpy(&more, &before->sa_mask, MASK_BYTES);
    mask |= more;
    if (!(before->sa_flags & SA_NODEFER))
        mask |= UINT64_C(1) << (signo - 1);
    if (before->sa_flags & SA_RESETHAND)
        (void)sigaction(signo, &by_default, NULL);
    (void)syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, &ours, MASK_BYTES);
    if (before->sa_flags & SA_SIGINFO)
        before->sa_sigaction(signo, info, context);
    else
        before->sa_handler(signo);
    /* A signal that the handler has raised waits until we return. */
    ours |= UINT64_C(1) << (signo - 1);
    (void)syscall(SYS_rt_sigprocmask, SIG_SETMASK, &ours, NULL, MASK_BYTES);
}

void handler_die(int signo, siginfo_t *info)
{
    const struct sigaction by_default = {.sa_handler = SIG_DFL};
    int32_t pid = (int32_t)syscall(SYS_getpid), tid = (int32_t)syscall(SYS_gettid);
    uint64_t mask = UINT64_C(1) << (signo - 1);
    (void)syscall(SYS_rt_sigprocmask, SIG_BLOCK, &mask, NULL, MASK_BYTES);
    (void)sigaction(signo, &by_default, NULL);
    /* Refused by a sandbox, perhaps: an instruction that faults will fault again. */
    if (syscall(SYS_rt_tgsigqueueinfo, pid, tid, signo, info) == -1 && info->si_code <= 0)
        (void)syscall(SYS_tgkill, pid, tid, signo);
}
