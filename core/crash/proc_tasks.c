/* SPDX-License-Identifier: Apache-2.0
 *
 * core/crash/proc_tasks.c - the threads of this process, also where no descriptor is left.
 * Signal handlers and the thread of the reports.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/crash/internal.h"
#include "sdk/lib/proc/task.h"

#define SPARE_FDS 64 /* when the program has used up its own */
#define OUR_THREADS "probing/"

static int open_tasks(void) /* [signal] */
{
    int fd = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct rlimit limit;
    if (fd != -1 || errno != EMFILE || syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &limit) == -1)
        return fd;
    limit.rlim_cur += SPARE_FDS; /* it crashes for want of descriptors, perhaps */
    limit.rlim_cur = limit.rlim_cur > limit.rlim_max ? limit.rlim_max : limit.rlim_cur;
    (void)syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, &limit, NULL);
    return open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

uint32_t task_list(pid_t *ret, uint32_t max, bool *ret_more)
{
    struct proc_numbers all; /* 2 KiB: it may lie on an alternate signal stack */
    struct proc_number one;
    uint32_t n = 0;
    *ret_more = false;
    proc_numbers_of(&all, open_tasks());
    while (proc_numbers_next(&all, &one)) {
        if (n < max)
            ret[n++] = (pid_t)one.value;
        else
            *ret_more = true;
    }
    proc_numbers_close(&all);
    return n;
}

void task_comm(pid_t tid, char ret[PROC_COMM_BYTES])
{
    (void)proc_comm_of(0, tid, ret, PROC_COMM_BYTES);
}

bool task_is_ours(const char *comm)
{
    return memcmp(comm, OUR_THREADS, sizeof(OUR_THREADS) - 1) == 0;
}
