/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/inject/safe_point.c - may the stopped thread be used?  Only where none of its frames is in
 * malloc, the loader, an allocator, or a function of libc that holds what dlopen and pthread_create
 * need. The program counter alone does not tell: malloc waits in futex and madvise too.
 */
#include <stdio.h>

#include "cli/inject/internal.h"

static struct stack_frame
    frames[STACK_FRAMES_MAX]; /* too large for a stack; one injection a time */

/* struct rseq and rseq_cs of linux/rseq.h: a thread in such a section starts it over when it is
 * moved, so it cannot be borrowed there. */
bool in_restartable_sequence(struct target *t)
{
#ifdef PTRACE_GET_RSEQ_CONFIGURATION
    struct __ptrace_rseq_configuration c;
    uint64_t section = 0, words[4];
    if (ptrace(PTRACE_GET_RSEQ_CONFIGURATION, t->tid, (void *)sizeof(c), &c) <= 0 ||
        !c.rseq_abi_pointer || stack_read(t->view, c.rseq_abi_pointer + 8, &section, 8) < 0 ||
        !section || stack_read(t->view, section, words, sizeof(words)) < 0)
        return false;
    return arch_ip(&t->registers) - words[1] < words[2];
#else
    (void)t;
    return false;
#endif
}

static const char *must_avoid(const struct target *t, uint64_t ip)
{
    for (uint32_t i = 0; i < t->n_avoid; i++) {
        if (ip >= t->avoid[i].start && ip < t->avoid[i].end)
            return t->avoid[i].what;
    }
    return NULL;
}

static bool is_in_range(struct stack_range r, uint64_t ip)
{
    return ip >= r.start && ip < r.end;
}

static bool is_unsafe(struct target *t, const char *what, int frame)
{
    (void)snprintf(t->why_unsafe, sizeof(t->why_unsafe), "thread %d was in %s (frame %d)", t->tid,
                   what, frame);
    return false;
}

bool safe_point_inspect(struct target *t, const arch_registers *r)
{
    struct stack_registers registers;
    enum stack_end end;
    bool own_code = false;
    arch_to_stack(r, &registers);
    int n = stack_unwind(t->view, &registers, frames, STACK_FRAMES_MAX, &end);
    if (n <= 0)
        return is_unsafe(t, "its stack could not be read", 0);
    for (int i = 0; i < n; i++) {
        uint64_t ip =
            frames[i].ip - (i > 0); /* a return address may be the next function's first */
        /* A thread that waits to join holds nothing; main() of many programs does nothing else. */
        const char *what = must_avoid(t, ip);
        if (what && !(strcmp(what, "pthread_join") == 0 && arch_waits_in(r) == SYS_futex))
            return is_unsafe(t, what, i);
        own_code = own_code || (!is_in_range(t->libc, ip) && !is_in_range(t->loader, ip));
    }
    /* malloc never calls out: code that is not libc's, above which nothing was found, is no lock's.
     * But libc's own assembler without a table may have been called by anybody. */
    uint64_t last = frames[n - 1].ip - (n > 1);
    if (end == STACK_END_LOST && (is_in_range(t->libc, last) || is_in_range(t->loader, last)))
        return is_unsafe(t, "libc, callers unknown", n - 1);
    if (!own_code) /* a thread that begins or ends */
        return is_unsafe(t, "libc only", n - 1);
    return true;
}

bool safe_point_is_safe(struct target *t)
{
    stack_process_refresh(t->view, /* maps_too= */ false);
    uint64_t word; /* tracee.c writes what brings the thread back below its stack */
    if (in_restartable_sequence(t))
        return is_unsafe(t, "in a restartable sequence", 0);
    if (stack_read(t->view, arch_block_at(&t->registers), &word, sizeof(word)) < 0)
        return is_unsafe(t, "the last bytes of its stack", 0);
    return safe_point_inspect(t, &t->registers);
}

/* ---- the interrupted system call ---- */

/* Calls that the kernel ends with EINTR for a mere stop, and that may be made again: nothing was
 * done yet when they give EINTR.  Not connect and not close. */
static bool may_be_made_again(int64_t number)
{
    static const int64_t numbers[] = {
#ifdef SYS_epoll_wait
        SYS_epoll_wait,
        SYS_poll,
        SYS_select,
#endif
        SYS_epoll_pwait,
        441 /* epoll_pwait2 */,
        SYS_semop,
        SYS_semtimedop,
        SYS_rt_sigtimedwait,
        SYS_io_getevents,
        SYS_io_pgetevents,
        426 /* io_uring_enter */,
        SYS_read,
        SYS_readv,
        SYS_recvfrom,
        SYS_recvmsg,
        SYS_recvmmsg,
        SYS_sendto,
        SYS_sendmsg,
        SYS_accept,
        SYS_accept4,
        SYS_ppoll,
        SYS_pselect6,
        SYS_futex};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (numbers[i] == number)
            return true;
    }
    return false;
}

bool call_may_be_made_again(const arch_registers *r)
{
    int64_t number = arch_interrupted(r);
    return number >= 0 && may_be_made_again(number);
}
