/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/inject/pick_thread.c - which thread is best used, by what it waits in, and the rest of a
 * wait. Own thread only.
 *
 * Some waits have a time limit that the kernel counts from the start when they are made again after
 * a stop.  So such threads are taken last; and of epoll_wait, whose limit is a number in a
 * register, that number is made what is left.  When the wait began is known where the kernel tells
 * when the thread ran last (/proc/PID/task/TID/sched): it has slept since.  What cannot be known is
 * never guessed: then the wait begins anew.
 */
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/inject/internal.h"
#include "cli/inject/sleep_time.h"
#include "core/base/file.h"
#include "core/guest/thread_sched.h"
#include "sdk/lib/proc/task.h"

#define DRIFT 1000 /* one in so many: the scheduler's clock is not NTP's, which is 500 ppm away */

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434 /* Linux 5.3 */
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438 /* Linux 5.6 */
#endif

enum { USABLE, CANNOT_CLONE = 800, NEVER = 900, WOULD_NOT_STOP = 1000 };
enum { ENDS = 14, STARTS_ANEW = 70 };

/* number -1: it waits in none. */
static struct proc_syscall call_of(const struct target *t, pid_t tid)
{
    struct proc_syscall c;
    if (proc_syscall_of(t->pid, tid, &c) < 0)
        c.number = -1;
    return c;
}

static bool waits_for_events(const struct proc_syscall *c)
{
#ifdef SYS_epoll_wait
    if (c->number == SYS_epoll_wait)
        return true;
#endif
    return c->number == SYS_epoll_pwait;
}

/* A copy of the descriptor is closed at once; of sockets only, which do not mind. */
static bool socket_has_limit(const struct target *t, int fd, int option)
{
    char path[64], name[64] = "";
    struct timeval limit = {.tv_sec = 0};
    socklen_t size = sizeof(limit);
    (void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", t->pid, fd);
    if (readlink(path, name, sizeof(name) - 1) <= 0 || strncmp(name, "socket:", 7) != 0)
        return false;
    int process = (int)syscall(SYS_pidfd_open, t->pid, 0);
    int copy = process == -1 ? -1 : (int)syscall(SYS_pidfd_getfd, process, fd, 0);
    bool has = copy != -1 && getsockopt(copy, SOL_SOCKET, option, &limit, &size) == 0 &&
               (limit.tv_sec || limit.tv_usec);
    if (copy != -1)
        (void)close(copy);
    if (process != -1)
        (void)close(process);
    return has;
}

/* Has it a time limit that counts from the start after a stop?  poll, select, nanosleep and futex
 * go on with what is left. */
static bool starts_anew(const struct target *t, const struct proc_syscall *c)
{
    if (waits_for_events(c))
        return (int32_t)c->arguments[3] > 0;
    switch (c->number) {
    case 441 /* epoll_pwait2 */:
    case SYS_semtimedop:
        return c->arguments[3] != 0;
    case SYS_rt_sigtimedwait:
        return c->arguments[2] != 0;
    case SYS_io_getevents:
    case SYS_io_pgetevents:
        return c->arguments[4] != 0;
    case 426 /* io_uring_enter */:
        return (c->arguments[3] & 8 /* IORING_ENTER_EXT_ARG */) != 0;
    case SYS_read:
    case SYS_readv:
    case SYS_recvfrom:
    case SYS_recvmsg:
    case SYS_recvmmsg:
    case SYS_accept:
    case SYS_accept4:
        return socket_has_limit(t, (int)c->arguments[0], SO_RCVTIMEO);
    case SYS_write:
    case SYS_writev:
    case SYS_sendto:
    case SYS_sendmsg:
    case SYS_sendmmsg:
        return socket_has_limit(t, (int)c->arguments[0], SO_SNDTIMEO);
    }
    return false;
}

/* ---- the rest of a wait ---- */

void wait_look(struct target *t)
{
    struct sleep_time sleep;
    t->wait.call = -1;
    struct proc_syscall c = call_of(t, t->tid);
    if (!waits_for_events(&c) || !sleep_time_of(t->pid, t->tid, /* kept_ns= */ 0, &sleep))
        return;
    c = call_of(t, t->tid);
    if (!waits_for_events(&c) || (int32_t)c.arguments[3] <= 0 ||
        sleep.slept_ns / NS_PER_MS > (uint64_t)c.arguments[3]) /* it would have ended */
        return;
    t->wait = (struct wait){.call = c.number,
                            .limit_ms = (int32_t)c.arguments[3],
                            .switches = sleep.switches,
                            .waited_ns = sleep.slept_ns,
                            .looked_at = sleep.at_ns};
}

/* In libc only, which does not look at the register again; other code might keep a limit there for
 * its next wait. */
void wait_shorten(struct target *t)
{
    struct proc_sched now;
    uint64_t ip = arch_ip(&t->registers);
    if (t->wait.call == -1 || arch_interrupted(&t->registers) != t->wait.call ||
        (int32_t)arch_fourth(&t->registers) != t->wait.limit_ms || ip < t->libc.start ||
        ip >= t->libc.end || proc_sched_of(t->pid, t->tid, &now) < 0 ||
        now.switches != t->wait.switches + 1) /* to us */
        return;
    uint64_t waited = t->wait.waited_ns + (t->stopped_at - t->wait.looked_at);
    waited -= waited / DRIFT;
    uint64_t ms = waited / NS_PER_MS, limit = (uint64_t)t->wait.limit_ms;
    arch_set_fourth(&t->registers, ms < limit ? limit - ms : 0);
}

/* ---- choosing a thread ---- */

/* Best is a thread that sleeps in a call which allocators and loaders do not make. */
int wait_score(const struct target *t, pid_t tid)
{
    struct proc_stat stat;
    struct proc_sched sched;
    struct proc_syscall c = call_of(t, tid);
    bool main_thread = tid == t->pid;
    if (proc_stat_of(t->pid, tid, &stat) == 0 && stat.state == 'D')
        return WOULD_NOT_STOP;
    if (!schedule_can_clone(tid))
        return CANNOT_CLONE;
    if (starts_anew(t, &c))
        return (waits_for_events(&c) && proc_sched_of(t->pid, tid, &sched) == 0 ? ENDS
                                                                                : STARTS_ANEW) +
               !main_thread;
    if (waits_for_events(&c))
        return main_thread ? 6 : 8; /* a stop ends them: only we can make them go on */
    switch (c.number) {
    case SYS_rt_sigtimedwait:
        return main_thread ? 6 : 8;
#ifdef SYS_poll
    case SYS_poll:
    case SYS_select:
    case SYS_pause:
#endif
    case SYS_read:
    case SYS_nanosleep:
    case SYS_clock_nanosleep:
    case SYS_ppoll:
    case SYS_pselect6:
    case SYS_accept:
    case SYS_accept4:
    case SYS_recvfrom:
    case SYS_recvmsg:
    case SYS_wait4:
        return main_thread ? USABLE : 5;
    case SYS_futex:
        return main_thread ? USABLE : 10;
    case SYS_execve:
    case SYS_exit:
    case SYS_exit_group:
        return NEVER;
    }
    return main_thread ? 40 : 50;
}
