/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/exec/runner_guest.c - code that is not ours runs as in a thread of the program's.
 *
 * Threads and processes that it starts inherit the signals that are blocked and the thread's name:
 * with ours, nobody could end such a process, and such a thread would be taken for one of ours.
 * It does not find threads of a job that was left behind: those have no name of ours.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec/runner_internal.h"

#define STATUS_BYTES 4096 /* of /proc/.../status; the line we want is within the first 2 KB */
#define SIGNALS 64

/* A small file below /proc/self/task: its text, or "". */
static void read_task(int tid, const char *name, char *ret, size_t size)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/self/task/%d/%s", tid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd != -1 ? read(fd, ret, size - 1) : 0;
    if (fd != -1)
        (void)close(fd);
    ret[n > 0 ? n : 0] = '\0';
}

static unsigned count_threads(void)
{
    struct stat s;
    return stat("/proc/self/task", &s) == 0 ? (unsigned)s.st_nlink : 0;
}

void runner_guest_begin(struct worker *w)
{
    char status[STATUS_BYTES];
    sigset_t blocked;
    read_task(getpid(), "status", status, sizeof(status));
    const char *line = strstr(status, "\nSigBlk:");
    w->threads = count_threads();
    read_task(getpid(), "comm", w->program, sizeof(w->program));
    w->program[strcspn(w->program, "\n")] = '\0';
    if (!line)
        return;
    uint64_t bits = strtoull(line + strlen("\nSigBlk:"), NULL, 16);
    (void)sigemptyset(&blocked);
    for (int i = 1; i <= SIGNALS; i++)
        if (bits >> (i - 1) & 1)
            (void)sigaddset(&blocked, i); /* refuses those of libc's own */
    (void)pthread_sigmask(SIG_SETMASK, &blocked, &w->own_signals);
    w->guest = true;
}

void runner_guest_end(struct worker *w)
{
    if (w->guest)
        (void)pthread_sigmask(SIG_SETMASK, &w->own_signals, NULL);
    w->guest = false;
}

/* Locked. */
static bool is_worker(const struct runner *r, int tid)
{
    for (const struct worker *w = r->workers; w; w = w->next)
        if (w->tid == tid)
            return true;
    return false;
}

static void give_name(int tid, const char *name)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/self/task/%d/comm", tid);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd == -1)
        return; /* it has ended */
    (void)!write(fd, name, strlen(name));
    (void)close(fd);
}

void runner_name_strays(struct runner *r)
{
    char name[32], comm[32];
    DIR *tasks = opendir("/proc/self/task");
    read_task(getpid(), "comm", name, sizeof(name));
    for (struct dirent *d = tasks ? readdir(tasks) : NULL; d; d = readdir(tasks)) {
        int tid = (int)strtoul(d->d_name, NULL, 10);
        read_task(tid, "comm", comm, sizeof(comm));
        if (strcmp(comm, RUNNER_NAME "\n") != 0)
            continue;
        runner_lock(r); /* a new one of ours says who it is before it has this name */
        if (!is_worker(r, tid))
            give_name(tid, name);
        runner_unlock(r);
    }
    if (tasks)
        (void)closedir(tasks);
}

void runner_guest_ended(struct worker *w)
{
    if (w->threads && count_threads() > w->threads)
        runner_name_strays(w->r);
    w->threads = 0;
}
