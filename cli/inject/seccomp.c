/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/inject/seccomp.c - would the target's seccomp filter kill it for a call that the core makes?
 *
 * Own thread only.  While we trace a thread its filter can be suspended; the core's own threads
 * live under it.  A call refused with an error is the core's to live with, and is named should it
 * not: only those that kill, or that a handler of the program's would be asked about, are a reason
 * to stay away.  The filters' programs are shown to root alone (ptrace(2)); others compare their
 * number with that of our own, as processes of one container have the same.  A filter that the
 * program puts on all of its threads later, when the core is there, is not seen.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/perf_event.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "cli/inject/internal.h"
#include "cli/inject/seccomp_program.h"
#include "sdk/lib/hash.h"
#include "sdk/lib/proc/task.h"

#define FILTERS_MAX 64
#define PROGRAM_MAX 4096 /* instructions: BPF_MAXINSNS of the kernel */
#define KINDS_MAX 32
#define LOOKS_MAX 3 /* at threads that may have ended meanwhile */

static const struct {
    const char *name;
    uint32_t number;
    bool needed; /* without it nothing starts */
} ours[] = {
#define NEEDED(call) {#call, SYS_##call, true},
#define CALLED(call) {#call, SYS_##call, false},
#include "cli/inject/seccomp_calls.h"
};

static const struct {
    uint32_t number, index, n;
    const uint32_t *values;
} arguments[] = {
#define ARGUMENT(call, index, ...)                                            \
    {SYS_##call, index, sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t), \
     (const uint32_t[]){__VA_ARGS__}},
#include "cli/inject/seccomp_calls.h"
};

/* The filters of one thread. */
static struct {
    struct sock_filter program[FILTERS_MAX][PROGRAM_MAX];
    uint32_t sizes[FILTERS_MAX];
    int n;
} filters;

static void note_refused(struct target *t, const char *name)
{
    char *text = t->result->filtered;
    size_t n = strlen(text), room = sizeof(t->result->filtered);
    if (n + strlen(name) + 8 < room)
        (void)snprintf(text + n, room - n, "%s%s", n ? ", " : "", name);
}

static struct call_shape shape_of(uint32_t number)
{
    struct call_shape shape = {.number = number};
    for (size_t i = 0; i < sizeof(arguments) / sizeof(arguments[0]); i++) {
        if (arguments[i].number != number)
            continue;
        shape.argument[arguments[i].index].values = arguments[i].values;
        shape.argument[arguments[i].index].n = arguments[i].n;
    }
    return shape;
}

static int check_program(struct target *t, const struct sock_filter *program, uint32_t n)
{
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
        struct call_shape shape = shape_of(ours[i].number);
        uint32_t says = program_says(program, n, &shape);
        if ((says & SAYS_ERROR) && ours[i].needed)
            note_refused(t, ours[i].name);
        if (says & SAYS_END)
            return err_set(-ENOTSUP,
                           "process %d has a seccomp filter that kills it for %s(), which probing "
                           "calls; nothing was done to it: let the filter allow that call",
                           t->pid, ours[i].name);
        if (says & SAYS_ANYTHING)
            return err_set(-ENOTSUP,
                           "process %d has a seccomp filter of which it cannot be told whether it "
                           "kills the process for %s(), which probing calls; nothing was done to "
                           "it: let the filter allow that call whatever its arguments are",
                           t->pid, ours[i].name);
    }
    return 0;
}

static uint64_t filters_of(pid_t pid, pid_t tid)
{
    struct proc_status s;
    return proc_status_of(pid, tid, &s) == 0 && s.filters != PROC_UNKNOWN ? s.filters : 0;
}

static int check_by_number(pid_t pid, pid_t tid, const char *why_not_read)
{
    struct proc_status own;
    bool filtered = proc_status_of(0, 0, &own) == 0 && own.seccomp == 2;
    if (filtered && filters_of(pid, tid) <= filters_of(0, 0))
        return 0;
    return err_set(-ENOTSUP,
                   "process %d has a seccomp filter of its own, which may kill it for what the "
                   "core does, and %s",
                   pid, why_not_read);
}

int filter_check_traced(pid_t pid)
{
    struct proc_status s;
    if (proc_status_of(pid, 0, &s) < 0 || s.seccomp == 0 || s.seccomp == PROC_UNKNOWN)
        return 0;
    return check_by_number(pid, 0,
                           "a debugger is attached, so it cannot be read; nothing was done: "
                           "detach the debugger first");
}

/* The thread is stopped.  0, or -errno: they cannot be read. */
static int read_filters(const struct target *t)
{
    filters.n = 0;
    for (uintptr_t i = 0; i < FILTERS_MAX; i++) {
        void *at = filters.program[i];
        int64_t n = ptrace(PTRACE_SECCOMP_GET_FILTER, t->tid, (void *)i, NULL);
        if (n < 0 && errno == ENOENT)
            return 0;
        if (n > PROGRAM_MAX)
            return -E2BIG;
        if (n < 0 || ptrace(PTRACE_SECCOMP_GET_FILTER, t->tid, (void *)i, at) != n)
            return -errno;
        filters.sizes[i] = (uint32_t)n;
        filters.n++;
    }
    return -E2BIG;
}

static uint64_t hash_of_filters(void)
{
    uint64_t h = HASH_FNV;
    for (int i = 0; i < filters.n; i++)
        h = hash_bytes(h, filters.program[i], filters.sizes[i] * sizeof(filters.program[0][0]));
    return h;
}

/* Check the filters read of a thread; readable below 0: they could not be.  t->filters_known:
 * hashes of good ones. */
static int check_filters(struct target *t, pid_t tid, int readable)
{
    if (readable < 0)
        return check_by_number(t->pid, tid,
                               "only root can read the filter; nothing was done: try with sudo");
    uint64_t hash = hash_of_filters();
    for (uint32_t i = 0; i < t->n_filters_known; i++)
        if (t->filters_known[i] == hash)
            return 0;
    for (int i = 0; i < filters.n; i++) {
        int rc = check_program(t, filters.program[i], filters.sizes[i]);
        if (rc < 0)
            return rc;
    }
    if (t->n_filters_known < FILTERS_KNOWN_MAX)
        t->filters_known[t->n_filters_known++] = hash;
    return 0;
}

int filter_check_stopped(struct target *t)
{
    return t->filtered ? check_filters(t, t->tid, read_filters(t)) : 0;
}

/* A thread is stopped for a moment.  -EAGAIN: it cannot be. */
static int check_thread(struct target *t, pid_t tid)
{
    t->no_restart = true;
    bool stopped = tracee_seize(t, tid) == 0 && tracee_stop(t, NS_PER_S) == 0;
    int readable = stopped ? read_filters(t) : 0;
    tracee_release(t);
    return stopped ? check_filters(t, tid, readable) : -EAGAIN;
}

/* Threads under as many filters have the same, but for what filter_check_stopped() looks at. */
struct kind {
    uint64_t filters;
    pid_t tid; /* which of them is best stopped */
    int score;
};

static void count_thread(const struct target *t, struct kind *kinds, uint32_t *n, pid_t tid,
                         uint64_t number)
{
    uint32_t i = 0;
    int score = wait_score(t, tid);
    while (i < *n && kinds[i].filters != number)
        i++;
    if (i == *n && *n < KINDS_MAX)
        kinds[(*n)++] = (struct kind){number, tid, score};
    else if (i < *n && score < kinds[i].score)
        kinds[i] = (struct kind){number, tid, score};
}

static int look_at_threads(struct target *t, struct kind *kinds, uint32_t *ret_n)
{
    struct proc_numbers all;
    struct proc_number one;
    struct proc_status s;
    bool strict = false;
    *ret_n = 0;
    (void)proc_threads_open(&all, t->pid);
    while (proc_numbers_next(&all, &one)) {
        pid_t tid = (pid_t)one.value;
        bool known = proc_status_of(t->pid, tid, &s) == 0 && s.seccomp != PROC_UNKNOWN;
        strict = strict || (known && s.seccomp == 1);
        if (known && s.seccomp == 2)
            count_thread(t, kinds, ret_n, tid, s.filters);
    }
    proc_numbers_close(&all);
    if (strict)
        return err_set(-ENOTSUP,
                       "process %d, or a thread of it, is in seccomp's strict mode, in which the "
                       "core cannot run",
                       t->pid);
    t->filtered = *ret_n > 0;
    return 0;
}

int filter_check(struct target *t)
{
    struct kind kinds[KINDS_MAX];
    uint32_t n;
    int rc = -EAGAIN;
    t->result->filtered[0] = '\0';
    for (int look = 0; rc == -EAGAIN && look < LOOKS_MAX; look++) {
        rc = look_at_threads(t, kinds, &n);
        for (uint32_t i = 0; rc == 0 && i < n; i++)
            rc = check_thread(t, kinds[i].tid);
    }
    t->no_restart = rc != 0;
    return rc == -EAGAIN ? 0 : rc; /* whoever looks for a thread next says why, or checks it */
}
