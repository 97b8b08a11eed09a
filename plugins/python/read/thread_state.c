/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/read/thread_state.c - what /proc/PID/task says about threads.
 *
 * Any thread; no state.  Numbers of system calls come from the kernel's header, so other machines
 * need no table of their own.
 */
#include "read/thread_state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

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

static int compare(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return x < y ? -1 : x > y;
}

static int32_t parse_tid(const char *text)
{
    int64_t value = 0;
    for (const char *p = text; *p; p++) {
        if (*p < '0' || *p > '9' || value > INT32_MAX / 10)
            return 0;
        value = value * 10 + (*p - '0');
    }
    return value <= INT32_MAX ? (int32_t)value : 0;
}

/* Our own is there by whatever number a foreign /proc knows us. */
static void task_path(pid_t pid, const char *rest, char *ret, size_t size)
{
    if (pid == getpid())
        (void)snprintf(ret, size, "/proc/self/task%s", rest);
    else
        (void)snprintf(ret, size, "/proc/%d/task%s", (int)pid, rest);
}

int threads_list(pid_t pid, int32_t *ret, size_t max)
{
    char path[64];
    task_path(pid, "", path, sizeof(path));
    DIR *folder = opendir(path);
    if (!folder)
        return -errno;
    size_t n = 0;
    for (struct dirent *entry; n < max && (entry = readdir(folder));) {
        int32_t tid = parse_tid(entry->d_name);
        if (tid > 0)
            ret[n++] = tid;
    }
    (void)closedir(folder);
    qsort(ret, n, sizeof(*ret), compare);
    return (int)n;
}

/* A small file of /proc as a string; 0, or -errno. */
static int slurp(pid_t pid, int32_t tid, const char *file, char *ret, size_t size)
{
    char path[80], rest[40];
    (void)snprintf(rest, sizeof(rest), "/%d/%s", tid, file);
    task_path(pid, rest, path, sizeof(path));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd == -1)
        return -errno;
    ssize_t n = read(fd, ret, size - 1);
    int error = n < 0 ? -errno : 0;
    (void)close(fd);
    ret[n > 0 ? n : 0] = '\0';
    return error;
}

/* The last number behind NSpid: of a thread's status; *ret_same: it is the only one. */
static int32_t innermost_id(pid_t pid, int32_t tid, bool *ret_same)
{
    char text[4096];
    char *at = slurp(pid, tid, "status", text, sizeof(text)) == 0 ? strstr(text, "\nNSpid:") : NULL;
    if (!at)
        return 0;
    at[1 + strcspn(at + 1, "\n")] = '\0';
    char *last = strrchr(at, '\t');
    *ret_same = last == strchr(at, '\t');
    return last ? parse_tid(last + 1) : 0;
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
    if (n > 0)
        *ret = ids;
    else
        free(ids);
    return n;
}

/* "202 0x7f.. 0x80 ... SP PC": the number before the last. */
static uint64_t last_but_one(const char *text)
{
    const char *last = strrchr(text, ' ');
    while (last && last > text && last[-1] != ' ')
        last--;
    return last ? strtoull(last, NULL, 16) : 0;
}

int threads_state(pid_t pid, int32_t tid, struct threads_state *ret)
{
    char text[512];
    *ret = (struct threads_state){.letter = '?', .syscall = -1};
    if (slurp(pid, tid, "stat", text, sizeof(text)))
        return -ESRCH;
    /* "12 (name) S ...": the name may hold blanks and parentheses */
    char *open_at = strchr(text, '('), *close_at = strrchr(text, ')');
    if (!open_at || !close_at || close_at < open_at || !close_at[1])
        return -ESRCH;
    size_t n = (size_t)(close_at - open_at - 1);
    n = n < sizeof(ret->name) ? n : sizeof(ret->name) - 1;
    memcpy(ret->name, open_at + 1, n);
    ret->letter = close_at[2];
    if (slurp(pid, tid, "syscall", text, sizeof(text)) == 0 && text[0] >= '0' && text[0] <= '9') {
        int64_t number = 0;
        for (const char *p = text; *p >= '0' && *p <= '9' && number < 100000; p++)
            number = number * 10 + (*p - '0');
        ret->syscall = number;
        ret->sp = last_but_one(text);
    }
    return 0;
}
