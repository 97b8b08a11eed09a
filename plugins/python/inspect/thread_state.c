/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/inspect/thread_state.c - what /proc/PID/task says about threads.
 *
 * Any thread; no state.  Numbers of system calls come from the kernel's header, so other machines
 * need no table of their own.
 */
#include "inspect/thread_state.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/proc/task.h"

#define IDS_MAX 16384 /* threads of a process */

static const struct {
    int number;
    bool idle; /* waiting there means: nothing to do */
    const char *name;
} calls[] = {
    {SYS_futex, false, "futex"},
    {SYS_read, true, "read"},
    {SYS_pread64, false, "pread64"},
    {SYS_readv, true, "readv"},
    {SYS_write, false, "write"},
    {SYS_writev, false, "writev"},
    {SYS_ppoll, true, "ppoll"},
    {SYS_pselect6, true, "pselect6"},
    {SYS_epoll_pwait, true, "epoll_pwait"},
    {SYS_nanosleep, true, "nanosleep"},
    {SYS_clock_nanosleep, true, "clock_nanosleep"},
    {SYS_accept, true, "accept"},
    {SYS_accept4, true, "accept4"},
    {SYS_connect, false, "connect"},
    {SYS_recvfrom, true, "recvfrom"},
    {SYS_recvmsg, true, "recvmsg"},
    {SYS_sendto, false, "sendto"},
    {SYS_sendmsg, false, "sendmsg"},
    {SYS_wait4, true, "wait4"},
    {SYS_waitid, true, "waitid"},
    {SYS_rt_sigtimedwait, true, "rt_sigtimedwait"},
    {SYS_rt_sigsuspend, true, "rt_sigsuspend"},
    {SYS_io_getevents, true, "io_getevents"},
    {SYS_fsync, false, "fsync"},
    {SYS_fdatasync, false, "fdatasync"},
    {SYS_flock, false, "flock"},
    {SYS_semtimedop, false, "semtimedop"},
    {SYS_ioctl, false, "ioctl"},
    {SYS_openat, false, "openat"},
#ifdef SYS_poll
    {SYS_poll, true, "poll"},
    {SYS_select, true, "select"},
    {SYS_epoll_wait, true, "epoll_wait"},
    {SYS_pause, true, "pause"},
#endif
};

const char *threads_syscall_name(int64_t number)
{
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        if (calls[i].number == number)
            return calls[i].name;
    return NULL;
}

const char *threads_state_word(char letter, int64_t number)
{
    if (letter == 'R')
        return "running";
    for (size_t i = 0; letter == 'S' && i < sizeof(calls) / sizeof(calls[0]); i++)
        if (calls[i].number == number)
            return calls[i].idle ? "idle" : "waiting";
    return "waiting";
}

static int compare_ids(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return x < y ? -1 : x > y;
}

/* Our own is there by whatever number a foreign /proc knows us. */
static pid_t known_as(pid_t pid)
{
    return pid == getpid() ? 0 : pid;
}

int threads_list(pid_t pid, int32_t *ret, size_t max)
{
    struct proc_numbers all;
    struct proc_number one;
    size_t n = 0;
    int rc = proc_threads_open(&all, known_as(pid));
    if (rc < 0)
        return rc;
    while (n < max && proc_numbers_next(&all, &one))
        ret[n++] = (int32_t)one.value;
    proc_numbers_close(&all);
    qsort(ret, n, sizeof(*ret), compare_ids);
    return (int)n;
}

/* A thread's number in the innermost namespace, 0: not known; *ret_same: that is ours. */
static int32_t innermost_id(pid_t pid, int32_t tid, bool *ret_same)
{
    struct proc_status s;
    if (proc_status_of(known_as(pid), tid, &s) < 0 || s.inner_id == PROC_UNKNOWN)
        return 0;
    *ret_same = s.namespaces == 1;
    return (int32_t)s.inner_id;
}

int threads_ids(pid_t pid, struct threads_id **ret)
{
    bool same = true;
    *ret = NULL;
    if (!innermost_id(pid, (int32_t)pid, &same) || same)
        return 0;
    int32_t *tids = malloc(IDS_MAX * sizeof(*tids));
    struct threads_id *ids = malloc(IDS_MAX * sizeof(*ids));
    int n = tids && ids ? threads_list(pid, tids, IDS_MAX) : -ENOMEM;
    for (int i = 0; i < n; i++)
        ids[i] = (struct threads_id){innermost_id(pid, tids[i], &same), tids[i]};
    free(tids);
    if (n > 0) {
        qsort(ids, (size_t)n, sizeof(*ids), compare_ids); /* `inner` stands first */
        *ret = ids;
    } else {
        free(ids);
    }
    return n;
}

int32_t threads_outer(const struct threads_id *ids, int n, int32_t inner)
{
    const struct threads_id *found =
        n > 0 ? bsearch(&inner, ids, (size_t)n, sizeof(*ids), compare_ids) : NULL;
    return found ? found->outer : 0;
}

int threads_state(pid_t pid, int32_t tid, struct threads_state *ret)
{
    struct proc_stat stat;
    struct proc_syscall call;
    *ret = (struct threads_state){.letter = '?', .syscall = -1};
    if (proc_stat_of(known_as(pid), tid, &stat) < 0)
        return -ESRCH;
    memcpy(ret->name, stat.comm, strnlen(stat.comm, sizeof(ret->name) - 1));
    ret->letter = stat.state;
    if (proc_syscall_of(known_as(pid), tid, &call) == PROC_WAITS) {
        ret->syscall = call.number;
        ret->sp = call.sp;
    }
    return 0;
}
