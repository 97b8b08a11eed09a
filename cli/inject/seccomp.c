/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/inject/seccomp.c - would the target's seccomp filter kill it for a call that the core makes?
 *
 * Own thread only.  While we trace a thread its filter can be suspended; the core's own threads
 * live under it.  A call refused with an error is the core's to live with, and is named should it
 * not: only those that kill, or that a handler of the program's would be asked about, are a reason
 * to stay away.  The filters' programs are shown to root alone (ptrace(2)); others compare their
 * number with that of our own, as processes of one container have the same.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>

#include "cli/inject/internal.h"
#include "sdk/lib/proc/task.h"

#define FILTERS_MAX 64
#define PROGRAM_MAX 4096 /* instructions: BPF_MAXINSNS of the kernel */

#if defined(__x86_64__)
#define OUR_AUDIT_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OUR_AUDIT_ARCH AUDIT_ARCH_AARCH64
#endif

static const struct {
    const char *name;
    int number;
    bool needed; /* without it nothing starts */
} ours[] = {
#define NEEDED(call) {#call, SYS_##call, true},
#define CALLED(call) {#call, SYS_##call, false},
#include "cli/inject/seccomp_calls.h"
#undef NEEDED
#undef CALLED
};

static uint32_t operate(uint16_t code, uint32_t a, uint32_t b)
{
    switch (BPF_OP(code)) {
    case BPF_ADD:
        return a + b;
    case BPF_SUB:
        return a - b;
    case BPF_MUL:
        return a * b;
    case BPF_DIV:
        return b ? a / b : 0;
    case BPF_OR:
        return a | b;
    case BPF_AND:
        return a & b;
    case BPF_LSH:
        return b < 32 ? a << b : 0;
    case BPF_RSH:
        return b < 32 ? a >> b : 0;
    case BPF_NEG:
        return 0 - a;
    case BPF_XOR:
        return a ^ b;
    }
    return a;
}

static bool jumps(uint16_t code, uint32_t a, uint32_t b)
{
    switch (BPF_OP(code)) {
    case BPF_JEQ:
        return a == b;
    case BPF_JGT:
        return a > b;
    case BPF_JGE:
        return a >= b;
    case BPF_JSET:
        return (a & b) != 0;
    }
    return false;
}

static uint32_t word_of(const struct seccomp_data *d, uint32_t at)
{
    uint32_t word = 0;
    if (at <= sizeof(*d) - sizeof(word))
        memcpy(&word, (const char *)d + at, sizeof(word));
    return word;
}

/* What a filter's program says to a call.  The kernel has checked it: it only jumps forward. */
static uint32_t verdict(const struct sock_filter *program, uint32_t n, const struct seccomp_data *d)
{
    uint32_t a = 0, x = 0, memory[BPF_MEMWORDS] = {0};
    for (uint32_t i = 0; i < n; i++) {
        const struct sock_filter *s = &program[i];
        uint32_t operand = BPF_SRC(s->code) == BPF_X ? x : s->k;
        uint32_t loaded = BPF_MODE(s->code) == BPF_ABS   ? word_of(d, s->k)
                          : BPF_MODE(s->code) == BPF_MEM ? memory[s->k % BPF_MEMWORDS]
                          : BPF_MODE(s->code) == BPF_LEN ? (uint32_t)sizeof(*d)
                                                         : s->k;
        switch (BPF_CLASS(s->code)) {
        case BPF_LD:
            a = loaded;
            break;
        case BPF_LDX:
            x = loaded;
            break;
        case BPF_ST:
            memory[s->k % BPF_MEMWORDS] = a;
            break;
        case BPF_STX:
            memory[s->k % BPF_MEMWORDS] = x;
            break;
        case BPF_ALU:
            a = operate(s->code, a, operand);
            break;
        case BPF_JMP:
            i += BPF_OP(s->code) == BPF_JA ? s->k : jumps(s->code, a, operand) ? s->jt : s->jf;
            break;
        case BPF_RET:
            return BPF_RVAL(s->code) == BPF_A ? a : s->k;
        case BPF_MISC:
            if (BPF_MISCOP(s->code) == BPF_TAX)
                x = a;
            else
                a = x;
            break;
        }
    }
    return SECCOMP_RET_ALLOW;
}

static bool kills(uint32_t action)
{
    action &= SECCOMP_RET_ACTION_FULL;
    return action == SECCOMP_RET_KILL_PROCESS || action == SECCOMP_RET_KILL_THREAD ||
           action == SECCOMP_RET_TRAP;
}

static void note_refused(struct target *t, const char *name)
{
    char *text = t->result->filtered;
    size_t n = strlen(text), room = sizeof(t->result->filtered);
    if (n + strlen(name) + 8 < room)
        (void)snprintf(text + n, room - n, "%s%s", n ? ", " : "", name);
}

static int check_program(struct target *t, const struct sock_filter *program, uint32_t n)
{
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
        struct seccomp_data d = {.nr = ours[i].number, .arch = OUR_AUDIT_ARCH};
        uint32_t action = verdict(program, n, &d);
        if ((action & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_ERRNO && ours[i].needed)
            note_refused(t, ours[i].name);
        if (kills(action))
            return err_set(-EPERM,
                           "process %d has a seccomp filter that kills it for %s(), which probing "
                           "calls; nothing was done to it: let the filter allow that call",
                           t->pid, ours[i].name);
    }
    return 0;
}

static uint64_t filters_of(pid_t pid)
{
    struct proc_status s;
    return proc_status_of(pid, 0, &s) == 0 && s.filters != PROC_UNKNOWN ? s.filters : 0;
}

static int check_by_number(const struct target *t)
{
    struct proc_status own;
    bool filtered = proc_status_of(0, 0, &own) == 0 && own.seccomp == 2;
    if (filtered && filters_of(t->pid) <= filters_of(0))
        return 0;
    return err_set(-EPERM,
                   "process %d has a seccomp filter of its own, which may kill it for what the "
                   "core does, and only root can read the filter; nothing was done: try with sudo",
                   t->pid);
}

/* The thread is stopped.  The number of instructions, 0: no such filter, or -errno. */
static int read_filter(const struct target *t, uintptr_t index, struct sock_filter *program)
{
    int64_t n = ptrace(PTRACE_SECCOMP_GET_FILTER, t->tid, (void *)index, NULL);
    if (n < 0)
        return errno == ENOENT ? 0 : -errno;
    if (n > PROGRAM_MAX)
        return -E2BIG;
    n = ptrace(PTRACE_SECCOMP_GET_FILTER, t->tid, (void *)index, program);
    return n < 0 ? -errno : (int)n;
}

int filter_check(struct target *t)
{
    static struct sock_filter programs[FILTERS_MAX][PROGRAM_MAX];
    struct proc_status s;
    int sizes[FILTERS_MAX], n = 0, rc = 0;

    t->result->filtered[0] = '\0';
    if (proc_status_of(t->pid, 0, &s) < 0 || s.seccomp == 0 || s.seccomp == PROC_UNKNOWN)
        return 0;
    if (s.seccomp == 1)
        return err_set(
            -EPERM, "process %d is in seccomp's strict mode, in which the core cannot run", t->pid);
    if (tracee_find_any(t) < 0) {
        tracee_release(t);
        return 0; /* whoever looks for a thread next says why */
    }
    while (n < FILTERS_MAX && (rc = read_filter(t, (uintptr_t)n, programs[n])) > 0)
        sizes[n++] = rc;
    tracee_release(t);
    if (rc < 0)
        return check_by_number(t);
    for (int i = 0; i < n; i++) {
        rc = check_program(t, programs[i], (uint32_t)sizes[i]);
        if (rc < 0)
            return rc;
    }
    return 0;
}
