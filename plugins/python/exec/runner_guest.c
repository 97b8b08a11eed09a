/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/exec/runner_guest.c - code that is not ours runs as in a thread of the program's.
 *
 * Threads and processes that it starts inherit the signals that are blocked and the thread's name:
 * with ours, nobody could end such a process, and such a thread would be taken for one of ours.
 * It does not find threads of a job that was left behind: those have no name of ours.
 */
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec/runner_internal.h"
#include "lib/proc/task.h"

#define SIGNALS 64

static unsigned count_threads(void)
{
    struct stat s;
    return stat("/proc/self/task", &s) == 0 ? (unsigned)s.st_nlink : 0;
}

void runner_guest_begin(struct worker *w)
{
    struct proc_status status;
    sigset_t blocked;
    w->threads = count_threads();
    (void)proc_comm_of(0, getpid(), w->program, sizeof(w->program));
    if (proc_status_of(0, getpid(), &status) < 0 || status.blocked == PROC_UNKNOWN)
        return;
    (void)sigemptyset(&blocked);
    for (int i = 1; i <= SIGNALS; i++)
        if (status.blocked >> (i - 1) & 1)
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

void runner_name_strays(struct runner *r)
{
    struct proc_numbers all;
    struct proc_number one;
    char name[PROC_COMM_BYTES], comm[PROC_COMM_BYTES];
    (void)proc_comm_of(0, getpid(), name, sizeof(name));
    (void)proc_threads_open(&all, 0);
    while (proc_numbers_next(&all, &one)) {
        int tid = (int)one.value;
        if (proc_comm_of(0, tid, comm, sizeof(comm)) < 0 || strcmp(comm, RUNNER_NAME) != 0)
            continue;
        runner_lock(r); /* a new one of ours says who it is before it has this name */
        if (!is_worker(r, tid))
            (void)proc_comm_set(tid, name);
        runner_unlock(r);
    }
    proc_numbers_close(&all);
}

void runner_guest_ended(struct worker *w)
{
    if (w->threads && count_threads() > w->threads)
        runner_name_strays(w->r);
    w->threads = 0;
}
