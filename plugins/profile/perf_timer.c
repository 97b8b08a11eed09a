/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/profile/perf_timer.c - perf_event_open(2)'s task clock as a source of signals.
 *
 * The profiler's thread only, but for perf_timer_again().  The signal must be an old one (below
 * 32): when the kernel cannot queue a real-time signal of a descriptor it sends SIGIO, which would
 * end the program.  An old one is never queued twice and needs no memory.
 */
#include "perf_timer.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "plugin_files.h"
#include "probing_sdk.h"
#include "sample_period.h"

bool perf_timer_needed(uint32_t rate_hz)
{
    return rate_hz * period_tick_ns() > PROBING_NS_PER_S;
}

/* Half of the table stays for the program. */
static bool is_spare(int fd)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_NOFILE, &limit) == 0 && (rlim_t)fd < limit.rlim_cur / 2;
}

int perf_timer_open(struct perf_timer *f, int32_t tid, int number, uint64_t period_ns)
{
    struct perf_event_attr about = {.type = PERF_TYPE_SOFTWARE,
                                    .size = sizeof(about),
                                    .config = PERF_COUNT_SW_TASK_CLOCK,
                                    .sample_period = period_ns,
                                    .wakeup_events = 1,
                                    .disabled = 1,
                                    .exclude_kernel = 1,
                                    .exclude_hv = 1};
    struct f_owner_ex owner = {F_OWNER_TID, tid};
    if (files_begin)
        files_begin();
    int fd = (int)syscall(SYS_perf_event_open, &about, tid, -1, -1, PERF_FLAG_FD_CLOEXEC);
    if (files_end)
        files_end(fd);
    if (fd == -1)
        return -errno;
    if (!is_spare(fd) || fcntl(fd, F_SETFL, O_ASYNC | O_NONBLOCK) == -1 ||
        fcntl(fd, F_SETSIG, number) == -1 || fcntl(fd, F_SETOWN_EX, &owner) == -1 ||
        ioctl(fd, PERF_EVENT_IOC_ID, &f->id) == -1) {
        (void)close(fd);
        return -EMFILE;
    }
    f->fd = fd;
    return 0;
}

void perf_timer_set(const struct perf_timer *f, uint64_t period_ns)
{
    if (f->fd != -1)
        (void)ioctl(f->fd, PERF_EVENT_IOC_PERIOD, &period_ns);
}

void perf_timer_close(struct perf_timer *f)
{
    uint64_t id;
    if (f->fd != -1 && ioctl(f->fd, PERF_EVENT_IOC_ID, &id) == 0 && id == f->id)
        (void)close(f->fd);
    f->fd = -1;
}

void perf_timer_again(const struct perf_timer *f)
{
    (void)ioctl(f->fd, PERF_EVENT_IOC_REFRESH, 1);
}
