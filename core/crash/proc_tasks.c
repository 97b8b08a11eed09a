/* SPDX-License-Identifier: Apache-2.0
 *
 * core/crash/proc_tasks.c - the threads of this process, by system calls alone: opendir()
 * allocates. Signal handlers and the thread of the reports.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/crash/internal.h"

#define BLOCK_BYTES 2048 /* of directory entries: it may lie on an alternate signal stack */
#define SPARE_FDS 64     /* when the program has used up its own */
#define OUR_THREADS "probing/"

struct kernel_dirent { /* getdents64(2) */
    uint64_t ino;
    int64_t offset;
    uint16_t size;
    uint8_t type;
    char name[];
};

static pid_t tid_of_name(const char *digits) /* [signal] */
{
    int64_t n = 0;
    for (; *digits >= '0' && *digits <= '9' && n < INT32_MAX; digits++)
        n = n * 10 + (*digits - '0');
    return *digits ? 0 : (pid_t)n;
}

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
    uint64_t block[BLOCK_BYTES / sizeof(uint64_t)];
    int fd = open_tasks();
    int64_t size = 0;
    uint32_t n = 0;
    *ret_more = false;
    while (fd != -1 && (size = syscall(SYS_getdents64, fd, block, sizeof block)) > 0) {
        for (int64_t at = 0; at < size;) {
            const struct kernel_dirent *e =
                (const struct kernel_dirent *)(const void *)((const char *)block + at);
            pid_t tid = tid_of_name(e->name);
            at += e->size;
            if (tid != 0 && n < max)
                ret[n++] = tid;
            else
                *ret_more = *ret_more || tid != 0;
        }
    }
    if (fd != -1)
        (void)close(fd);
    return n;
}

/* "/proc/self/task/TID/NAME" into `ret`, by hand: a handler does it too.              [signal] */
static void task_path(pid_t tid, const char *name, char ret[64])
{
    static const char first[] = "/proc/self/task/";
    char digits[12];
    size_t n = sizeof first - 1, k = 0, size = strnlen(name, 24);
    memcpy(ret, first, n);
    for (pid_t rest = tid; rest > 0; rest /= 10)
        digits[k++] = (char)('0' + rest % 10);
    while (k > 0)
        ret[n++] = digits[--k];
    ret[n++] = '/';
    memcpy(ret + n, name, size);
    ret[n + size] = '\0';
}

size_t task_read(pid_t tid, const char *name, char *ret, size_t size)
{
    char path[64];
    ssize_t n = 0;
    task_path(tid, name, path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd != -1) {
        n = read(fd, ret, size - 1);
        (void)close(fd);
    }
    ret[n > 0 ? n : 0] = '\0';
    return n > 0 ? (size_t)n : 0;
}

void task_comm(pid_t tid, char ret[16])
{
    size_t n = task_read(tid, "comm", ret, 16);
    if (n > 0 && ret[n - 1] == '\n')
        ret[n - 1] = '\0';
}

bool task_is_ours(const char *comm)
{
    return memcmp(comm, OUR_THREADS, sizeof OUR_THREADS - 1) == 0;
}
