/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/inject/tracee.c - one thread of the target under ptrace(2): stop it, use it, put it back.
 * Whoever stops a thread ends the stop by tracee_release(), which undoes what the stop itself did
 * to an interrupted system call.  No thread runs while it is seized: its signals would stop it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/inject/internal.h"
#include "cli/inject/retry.h"
#include "cli/inject/starved.h"
#include "sdk/lib/hash.h"
#include "sdk/lib/proc/task.h"

#define THREADS_MAX 4096
#define SCORED_MAX 32             /* threads looked at before one is chosen: 25 us each */
#define WARM_BYTES 65536          /* of the stack, copied at the first stop */
#define SLICE_NS (20 * NS_PER_MS) /* for one thread of several, before the next is tried */
#define STOP_NS (2 * NS_PER_S)    /* for a thread to stop; one in D state may take longer */

#define SPINS 30 /* of 0.5 us: about what a switch to another thread and back costs */

#ifndef PTRACE_O_SUSPEND_SECCOMP
#define PTRACE_O_SUSPEND_SECCOMP (1 << 21) /* linux/ptrace.h, Linux 4.3 */
#endif

static void wait_ns(uint64_t ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (int32_t)(ns % NS_PER_S)};
    if (ns > 0)
        (void)nanosleep(&t, NULL);
}

/* Ctrl-C and its like are blocked; between two stops we look whether one waits. */
bool signal_pending(void)
{
    sigset_t set;
    return sigpending(&set) == 0 &&
           (sigismember(&set, SIGINT) == 1 || sigismember(&set, SIGTERM) == 1 ||
            sigismember(&set, SIGHUP) == 1);
}

static int report_gone(struct target *t)
{
    t->seized = t->stopped = false;
    return err_set(-ESRCH, "process %d or its thread %d ended while it was being inspected", t->pid,
                   t->tid);
}

/* 0: *ret_status is a stop.  -ETIMEDOUT, -ESRCH.  A stop of another CPU's thread comes within the
 * spins; for one that needs our CPU we sleep until SIGCHLD, which is blocked so waits for us.
 * looks: whether it runs; or NULL. */
static int wait_stop(struct target *t, uint64_t timeout_ns, struct starved *looks, int *ret_status)
{
    uint64_t end = clock_monotonic() + timeout_ns;
    sigset_t child;
    (void)sigemptyset(&child);
    (void)sigaddset(&child, SIGCHLD);
    for (unsigned spins = 0;; spins++) {
        pid_t got = waitpid(t->tid, ret_status, __WALL | WNOHANG);
        if (got == t->tid)
            return WIFSTOPPED(*ret_status) ? 0 : report_gone(t);
        if (got == -1 && errno != EINTR)
            return report_gone(t);
        uint64_t now = clock_monotonic();
        if (now > end)
            return -ETIMEDOUT;
        if (spins > SPINS && looks != NULL)
            starved_look(looks, now);
        if (spins > SPINS)
            (void)sigtimedwait(&child, NULL, &(struct timespec){.tv_nsec = 500 * NS_PER_US});
    }
}

static int get_registers(struct target *t, arch_registers *ret)
{
    struct iovec v = {ret, sizeof(*ret)};
    return ptrace(PTRACE_GETREGSET, t->tid, NT_PRSTATUS, &v) == -1 ? report_gone(t) : 0;
}

static int set_registers(struct target *t, const arch_registers *r)
{
    struct iovec v = {(void *)(uintptr_t)r, sizeof(*r)};
    return ptrace(PTRACE_SETREGSET, t->tid, NT_PRSTATUS, &v) == -1 ? report_gone(t) : 0;
}

/* ---- stopping ---- */

/* The kernel says EPERM also of a thread that ends, and of one that somebody else traces. */
static int why_not_seized(const struct target *t, pid_t tid, int code)
{
    struct proc_status s;
    if (code == ESRCH || proc_status_of(t->pid, tid, &s) < 0 || s.state == 'Z' || s.state == 'X')
        return -ESRCH;
    if (s.tracer != 0 && s.tracer != PROC_UNKNOWN)
        return -EBUSY;
    return -EPERM;
}

int tracee_seize(struct target *t, pid_t tid)
{
    t->tid = tid;
    t->stopped = t->group_stopped = false;
    /* With the thread's seccomp filter suspended, our calls in it are neither refused nor fatal. */
    if (ptrace(PTRACE_SEIZE, tid, NULL, PTRACE_O_SUSPEND_SECCOMP) == -1 &&
        ptrace(PTRACE_SEIZE, tid, NULL, NULL) == -1)
        return why_not_seized(t, tid, errno);
    t->seized = true;
    return 0;
}

static int does_not_stop(const struct target *t, uint64_t waited_ns, struct starved *looks)
{
    char starved[STARVED_WORDS_BYTES];
    starved_words(looks, waited_ns, starved, sizeof(starved));
    return err_set(-ETIMEDOUT, "thread %d of process %d did not stop within %llu ms%s", t->tid,
                   t->pid, (unsigned long long)(waited_ns / NS_PER_MS), starved);
}

int tracee_stop(struct target *t, uint64_t timeout_ns)
{
    struct starved looks;
    int status, rc;
    arch_before_stop(t->pid, t->tid, &t->registers);
    wait_look(t);
    if (ptrace(PTRACE_INTERRUPT, t->tid, NULL, NULL) == -1)
        return report_gone(t);
    starved_begin(&looks, t->pid, t->tid, /* from_birth= */ false);
    for (;;) {
        rc = wait_stop(t, timeout_ns, &looks, &status);
        if (rc < 0)
            return rc == -ETIMEDOUT ? does_not_stop(t, timeout_ns, &looks) : rc;
        if (status >> 16 == PTRACE_EVENT_STOP)
            break;
        (void)ptrace(PTRACE_CONT, t->tid, NULL, (void *)(intptr_t)WSTOPSIG(status));
    }
    t->group_stopped = WSTOPSIG(status) != SIGTRAP;
    t->stopped = true;
    t->stopped_at = clock_monotonic();
    t->result->stops += !t->own_thread;
    rc = get_registers(t, &t->registers);
    if (rc == 0)
        arch_after_stop(t->pid, t->tid, &t->registers);
    if (rc == 0 && t->no_restart && arch_call_anew(&t->registers))
        rc = set_registers(t, &t->registers);
    if (rc == 0 && call_may_be_made_again(&t->registers)) { /* now: we may be dead before the end */
        wait_shorten(t);
        arch_registers r = t->registers;
        arch_rewind(&r);
        rc = set_registers(t, &r);
    }
    return rc;
}

/* ---- going on ---- */

/* A signal that waits for the thread is a reason for EINTR that is not ours. */
static bool signal_waits(const struct target *t)
{
    struct proc_status s;
    if (proc_status_of(t->pid, t->tid, &s) < 0 || s.pending == PROC_UNKNOWN ||
        s.shared == PROC_UNKNOWN || s.blocked == PROC_UNKNOWN)
        return true;
    return ((s.pending | s.shared) & ~(t->saved ? t->mask : s.blocked)) != 0;
}

/* The registers with which the thread goes on as if it had not been stopped. */
static arch_registers registers_to_go_on(const struct target *t)
{
    arch_registers r = t->registers;
    if (call_may_be_made_again(&r) && !signal_waits(t))
        arch_rewind(&r);
    return r;
}

static void count_stop(struct target *t)
{
    t->stopped = false;
    if (!t->own_thread)
        t->result->stopped_ns += clock_monotonic() - t->stopped_at;
}

static void restore_vectors(struct target *t)
{
    for (int i = 0; i < ARCH_SETS; i++) {
        struct iovec v = {t->sets[i], t->set_sizes[i]};
        if (t->set_sizes[i])
            (void)ptrace(PTRACE_SETREGSET, t->tid, (void *)(intptr_t)arch_sets[i], &v);
    }
    t->vectors_changed = false;
}

/* The general registers last: should we be killed before, the code in which the thread stands puts
 * all of this back too. */
static void restore_thread(struct target *t)
{
    arch_registers r = registers_to_go_on(t);
    if (t->saved)
        arch_go_on(&r);
    if (t->vectors_changed)
        restore_vectors(t);
    if (t->masked)
        (void)ptrace(PTRACE_SETSIGMASK, t->tid, (void *)sizeof(t->mask), &t->mask);
    (void)set_registers(t, &r);
    for (uint32_t i = 0; i < t->n_pending; i++)
        (void)syscall(SYS_tgkill, t->pid, t->tid, t->pending[i]);
    t->n_pending = 0;
    t->saved = t->masked = false;
    t->block = 0;
}

void tracee_release(struct target *t)
{
    if (!t->seized)
        return;
    /* Only a stopped thread can be let go; one that does not stop is let go when we end. */
    if (!t->stopped && tracee_stop(t, STOP_NS) < 0) {
        t->seized = false;
        return;
    }
    if (!t->left_alone)
        restore_thread(t);
    count_stop(t); /* before: the thread may take our CPU at once */
    (void)ptrace(PTRACE_DETACH, t->tid, NULL, NULL);
    t->seized = false;
}

/* ---- using the thread ---- */

/* One that nobody misses if we are dead when it comes: ignored unless the program has a handler. */
static int choose_sign(const struct target *t)
{
    static const int numbers[] = {SIGURG, SIGWINCH, SIGCONT, SIGCHLD};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (!((t->caught | t->mask) >> (numbers[i] - 1) & 1))
            return numbers[i];
    }
    return SIGURG;
}

int tracee_save(struct target *t)
{
    for (int i = 0; i < ARCH_SETS; i++) {
        struct iovec v = {t->sets[i], ARCH_SET_BYTES};
        t->set_sizes[i] = 0;
        if (ptrace(PTRACE_GETREGSET, t->tid, (void *)(intptr_t)arch_sets[i], &v) == 0)
            t->set_sizes[i] = v.iov_len;
        else if (i == 0)
            return err_set(-EIO, "the kernel does not give thread %d's vector registers: %s",
                           t->tid, strerror(errno));
    }
    if (ptrace(PTRACE_GETSIGMASK, t->tid, (void *)sizeof(t->mask), &t->mask) == -1)
        return report_gone(t);
    t->sign = choose_sign(t);
    t->saved = true;
    t->n_pending = 0;
    return 0;
}

/* While the thread is ours only what its code itself raises reaches it, and our sign. */
static int block_signals(struct target *t)
{
    static const int open[] = {SIGTRAP, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGSYS, SIGABRT};
    uint64_t set = ~(UINT64_C(1) << (t->sign - 1));
    if (t->masked)
        return 0;
    for (size_t i = 0; i < sizeof(open) / sizeof(open[0]); i++)
        set &= ~(UINT64_C(1) << (open[i] - 1));
    t->masked = true;
    return ptrace(PTRACE_SETSIGMASK, t->tid, (void *)sizeof(set), &set) == -1 ? report_gone(t) : 0;
}

/* /proc/PID/mem writes to pages without write permission too; POKEDATA where it is refused. */
int tracee_write(struct target *t, uint64_t address, const void *data, size_t size)
{
    if (t->mem != -1 && pwrite(t->mem, data, size, (off_t)address) == (ssize_t)size)
        return 0;
    for (size_t i = 0; i < size; i += sizeof(uint64_t)) {
        uint64_t word = 0;
        size_t part = size - i < sizeof(word) ? size - i : sizeof(word);
        if (part < sizeof(word))
            (void)stack_read(t->view, address + i, &word, sizeof(word));
        memcpy(&word, (const char *)data + i, part);
        if (ptrace(PTRACE_POKEDATA, t->tid, (void *)(uintptr_t)(address + i),
                   (void *)(uintptr_t)word) == -1)
            return err_set(-EFAULT, "cannot write to the memory of process %d: %s", t->pid,
                           strerror(errno));
    }
    return 0;
}

/* The thread stands in a signal it should get.  true: it is the sign that our code is done. */
static bool is_done(struct target *t, int status, uint64_t done_at, arch_registers *ret)
{
    return status >> 16 == 0 && WSTOPSIG(status) == t->sign && get_registers(t, ret) == 0 &&
           arch_ip(ret) == done_at;
}

/* The call hangs: leave the thread in it.  When it returns, our code there puts the thread back. */
static int leave_alone(struct target *t, uint64_t done_at, struct starved *looks,
                       arch_registers *ret, int *ret_status)
{
    char starved[STARVED_WORDS_BYTES];
    (void)ptrace(PTRACE_INTERRUPT, t->tid, NULL, NULL);
    if (wait_stop(t, STOP_NS, NULL, ret_status) == 0 && is_done(t, *ret_status, done_at, ret))
        return 0; /* in the last moment */
    t->left_alone = true;
    starved_words(looks, t->timeout_ns, starved, sizeof(starved));
    bool ran = starved[0] == '\0';
    return err_set(-ETIMEDOUT,
                   "a call in process %d did not return in %llu ms%s; thread %d continues by "
                   "itself when the call returns%s",
                   t->pid, (unsigned long long)(t->timeout_ns / NS_PER_MS),
                   ran ? ", another thread may hold the loader's lock" : "", t->tid,
                   ran ? "; inspect it with gdb or py-spy" : starved);
}

/* Let the thread run our code from *r on until that is done.  First the registers, then the mask:
 * from here on, code that puts back both is what the thread runs if we are killed. */
static int run_code(struct target *t, const arch_registers *r, uint64_t done_at, uint64_t *ret)
{
    uint64_t end = clock_monotonic() + t->timeout_ns;
    arch_registers now_at;
    struct starved looks;
    int status = 0, rc = set_registers(t, r);
    starved_begin(&looks, t->pid, t->tid, /* from_birth= */ false);
    if (rc == 0)
        rc = block_signals(t);
    while (rc == 0) {
        uint64_t now = clock_monotonic();
        if (ptrace(PTRACE_CONT, t->tid, NULL, NULL) == -1)
            return report_gone(t);
        rc = wait_stop(t, end > now ? end - now : 1, &looks, &status);
        if (rc == -ETIMEDOUT)
            rc = leave_alone(t, done_at, &looks, &now_at, &status);
        if (rc < 0)
            return rc;
        int number = WSTOPSIG(status);
        if (status >> 16 == PTRACE_EVENT_STOP)
            continue;
        if (is_done(t, status, done_at, &now_at))
            break;
        if (number == SIGSEGV || number == SIGBUS || number == SIGILL || number == SIGFPE ||
            number == SIGABRT || number == SIGTRAP || number == SIGSYS)
            return err_set(-EFAULT,
                           "the library crashed with signal %d while starting in process "
                           "%d; the thread was put back",
                           number, t->pid);
        if (t->n_pending < PENDING_MAX)
            t->pending[t->n_pending++] = number;
    }
    if (rc == 0)
        *ret = arch_result(&now_at);
    return rc;
}

/* The end of a page behind a module's code belongs to nobody.  It is written once, and always with
 * the same bytes, so it does no harm if another command uses it now or we leave it so. */
static int find_cave(struct target *t)
{
    unsigned char there[sizeof(arch_cave)];
    for (uint32_t i = 0; i < t->n_caves && !t->cave; i++) {
        if (stack_read(t->view, t->caves[i], there, sizeof(there)) == 0 &&
            (memcmp(there, arch_cave, sizeof(there)) == 0 ||
             tracee_write(t, t->caves[i], arch_cave, sizeof(arch_cave)) == 0))
            t->cave = t->caves[i];
    }
    return t->cave ? 0
                   : err_set(-ENOEXEC, "process %d has no place for a few instructions of probing",
                             t->pid);
}

/* Write the block that brings the thread back from the cave to its own stack, if that goes on far
 * enough: not by /proc/PID/mem, which would write to a guard page too. */
static int write_block(struct target *t)
{
    unsigned char block[ARCH_BLOCK_BYTES];
    arch_registers r = registers_to_go_on(t);
    uint64_t at = arch_block_at(&r);
    arch_restart(&r);
    size_t n = arch_block(block, &r, t->sets, t->set_sizes, t->mask);
    struct iovec here = {block, n}, there = {(void *)(uintptr_t)at, n};
    if (n == 0 || process_vm_writev(t->pid, &here, 1, &there, 1, 0) != (ssize_t)n)
        return err_set(-EAGAIN, "thread %d of process %d has no room left on its stack", t->tid,
                       t->pid);
    t->block = at;
    return 0;
}

int tracee_syscall(struct target *t, uint64_t number, const uint64_t a[6], uint64_t *ret)
{
    arch_registers r = t->registers;
    int rc = t->cave ? 0 : find_cave(t);
    if (rc == 0 && !t->block)
        rc = write_block(t);
    if (rc < 0)
        return rc;
    if (t->vectors_changed) /* the cave's way back leaves them as they are */
        restore_vectors(t);
    arch_set_first(&r, t->cave, t->block, t->sign, number, a);
    return run_code(t, &r, t->cave + ARCH_CAVE_DONE, ret);
}

/* For each stop anew, while the thread is not in it. */
int tracee_make_stub(struct target *t)
{
    static unsigned char stub[STUB_BYTES];
    arch_registers r = registers_to_go_on(t);
    arch_restart(&r);
    size_t n = arch_stub_make(stub, sizeof(stub), &r, t->sets, t->set_sizes, t->mask);
    return n ? tracee_write(t, t->stub, stub, n)
             : err_set(-EIO, "this machine has more vector registers than expected");
}

int tracee_call(struct target *t, uint64_t function, const uint64_t a[4], uint64_t *ret)
{
    arch_registers r = t->registers;
    arch_set_call(&r, t->stub, t->scratch + SCRATCH_BYTES - 64, t->sign, function, a);
    t->vectors_changed = true;
    return run_code(t, &r, t->stub + ARCH_STUB_DONE, ret);
}

/* ---- choosing a thread ---- */

struct candidate {
    int score; /* lower is better */
    pid_t tid;
};

static int by_score(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    return x->score != y->score ? x->score - y->score : x->tid - y->tid;
}

static int list_threads(struct target *t, struct candidate *list, int max)
{
    struct proc_numbers all;
    struct proc_number one;
    int n = 0;
    (void)proc_threads_open(&all, t->pid);
    while (n < max && proc_numbers_next(&all, &one)) {
        pid_t tid = (pid_t)one.value;
        bool look = tid == t->pid || n < SCORED_MAX;
        list[n++] = (struct candidate){look ? wait_score(t, tid) : WAIT_UNSCORED, tid};
    }
    proc_numbers_close(&all);
    qsort(list, (size_t)n, sizeof(*list), by_score);
    return n;
}

/* A first short stop: copy registers and stack, let the thread go, and unwind the copy.  That
 * reads the tables into the page cache, so that the stop that counts is short. */
static int warm_up(struct target *t)
{
    static unsigned char copy[WARM_BYTES];
    int rc = tracee_stop(t, STOP_NS);
    arch_registers r = t->registers;
    uint64_t from = arch_sp(&r) & ~UINT64_C(15);
    size_t n = rc == 0 ? stack_read_some(t->view, from, copy, sizeof(copy)) : 0;
    tracee_release(t);
    if (rc < 0)
        return rc;
    stack_process_refresh(t->view, /* maps_too= */ false);
    stack_overlay(t->view, from, copy, n);
    (void)safe_point_inspect(t, &r);
    return 0;
}

static bool still_the_same_program(struct target *t)
{
    char magic[SELFMAG];
    return stack_read(t->view, t->libc_base, magic, sizeof(magic)) == 0 &&
           memcmp(magic, ELFMAG, SELFMAG) == 0;
}

/* Seized and stopped at a safe place, or -errno and let go; -EAGAIN: no such place before `end`. */
static int stop_safely(struct target *t, pid_t tid, uint64_t end)
{
    uint64_t random = hash_spread(clock_monotonic()) | 1;
    for (;;) {
        int rc = tracee_seize(t, tid);
        if (rc == 0)
            rc = tracee_stop(t, STOP_NS);
        if (rc == 0 && !still_the_same_program(t))
            rc = err_set(-ESTALE, "process %d keeps starting other programs (exec)", t->pid);
        bool safe = rc == 0 && safe_point_is_safe(t);
        if (safe)
            rc = filter_check_stopped(t);
        if (safe && rc == 0)
            return 0;
        tracee_release(t);
        if (rc < 0)
            return rc;
        if (signal_pending())
            return err_set(-EINTR, "interrupted; nothing was done to process %d", t->pid);
        if (clock_monotonic() > end)
            return -EAGAIN;
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        wait_ns(200 * NS_PER_US + random % (800 * NS_PER_US));
    }
}

static uint64_t slice_end(const struct target *t, uint64_t slice_ns)
{
    uint64_t end = clock_monotonic() + slice_ns;
    return end < t->deadline_ns ? end : t->deadline_ns;
}

static int try_thread(struct target *t, pid_t tid, uint64_t slice_ns)
{
    int rc = tracee_seize(t, tid);
    if (rc == 0)
        rc = warm_up(t);
    return rc < 0 ? rc : stop_safely(t, tid, slice_end(t, slice_ns));
}

/* The thread may have moved on, or ended, since it was let go. */
int tracee_find_again(struct target *t)
{
    int rc = stop_safely(t, t->tid, slice_end(t, SLICE_NS));
    return retry_rule(RETRY_THREAD, rc) ? tracee_find(t) : rc;
}

int tracee_find_any(struct target *t)
{
    static struct candidate list[THREADS_MAX];
    uint64_t end = clock_monotonic() + STOP_NS;
    do {
        int n = list_threads(t, list, THREADS_MAX);
        for (int i = 0; i < n; i++) {
            if (tracee_seize(t, list[i].tid) < 0)
                continue;
            if (tracee_stop(t, STOP_NS) == 0 && !in_restartable_sequence(t))
                return still_the_same_program(t) ? 0 : -ESTALE;
            tracee_release(t);
        }
    } while (clock_monotonic() < end);
    return -EAGAIN;
}

int tracee_find(struct target *t)
{
    static struct candidate list[THREADS_MAX];
    int rc;
    do {
        int n = list_threads(t, list, THREADS_MAX), refused = 0;
        if (n == 0)
            return err_set(-ESRCH, "process %d has ended", t->pid);
        for (int i = 0; i < n && clock_monotonic() < t->deadline_ns; i++) {
            rc = try_thread(t, list[i].tid, n == 1 ? NS_PER_S : SLICE_NS);
            const struct retry_rule *rule = retry_rule(RETRY_THREAD, rc);
            if (!rule)
                return rc;
            if (rc == -EBUSY) /* two commands at once: the other one is done in a moment */
                (void)snprintf(t->why_unsafe, sizeof(t->why_unsafe), "%s (%d)", rule->what,
                               list[i].tid);
            if (rc == -ETIMEDOUT)
                (void)snprintf(t->why_unsafe, sizeof(t->why_unsafe), "%s", err_text());
            wait_ns(rule->pause_ns);
            if (signal_pending())
                return err_set(-EINTR, "interrupted; nothing was done to process %d", t->pid);
            refused += rc == -EPERM;
            if (refused == n || (rc == -EPERM && list[i].tid == t->pid))
                return inject_no_permission(t->pid, rc);
        }
        if (t->result->target_stopped)
            break; /* nobody moves: another look sees the same */
    } while (clock_monotonic() < t->deadline_ns);
    return err_set(-EAGAIN,
                   "found no thread of process %d at a safe point within %llu ms: %s; try again%s",
                   t->pid, (unsigned long long)(t->timeout_ns / NS_PER_MS),
                   t->why_unsafe[0] ? t->why_unsafe : "none stopped",
                   t->result->target_stopped ? " after kill -CONT" : " or allow more time");
}
