/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/profile/proc_tasks.c - which threads the process has, by /proc.
 *
 * The profiler's thread only.
 */
#include "proc_tasks.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SAME_NS UINT64_C(500000000) /* between scans while the number of threads stays */

/* The number that the kernel gave to the newest thread or process of our pid namespace; 0: not
 * known. */
static uint64_t newest_task(void)
{
    char text[80] = "";
    int fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd == -1 ? 0 : read(fd, text, sizeof(text) - 1);
    if (fd != -1)
        (void)close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *last = strrchr(text, ' ');
    uint64_t number = 0;
    for (last = last ? last + 1 : ""; *last >= '0' && *last <= '9'; last++)
        number = number * 10 + (uint64_t)(*last - '0');
    return number;
}

enum tasks_are tasks_are(struct tasks *t, uint64_t now)
{
    struct stat folder;
    bool counted = stat("/proc/self/task", &folder) == 0;
    bool as_many = counted && t->looked_ns && folder.st_nlink == t->links;
    if (as_many && now - t->looked_ns < SAME_NS)
        return TASKS_SAME;
    uint64_t newest = newest_task(), before = t->newest;
    *t = (struct tasks){now, counted ? folder.st_nlink : 0, newest};
    if (!as_many)
        return TASKS_DIFFER;
    return newest && newest == before ? TASKS_SAME : TASKS_AS_MANY;
}

struct entry { /* the kernel's struct linux_dirent64 */
    uint64_t inode;
    int64_t offset;
    uint16_t size;
    uint8_t type;
    char name[];
};

static int32_t number_of(const char *name)
{
    int32_t value = 0;
    for (; *name >= '0' && *name <= '9' && value < INT32_MAX / 10 - 1; name++)
        value = value * 10 + (*name - '0');
    return *name ? 0 : value;
}

bool tasks_each(void (*fn)(void *arg, int32_t tid, uint64_t inode), void *arg)
{
    char bytes[8192] __attribute__((aligned(8)));
    int64_t n;
    int fd = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd == -1)
        return false;
    while ((n = syscall(SYS_getdents64, fd, bytes, sizeof(bytes))) > 0)
        for (int64_t at = 0; at < n;) {
            const struct entry *e = (const struct entry *)(const void *)(bytes + at);
            int32_t tid = number_of(e->name);
            if (tid > 0)
                fn(arg, tid, e->inode);
            at += e->size;
        }
    (void)close(fd);
    return n == 0;
}

bool tasks_is_ours(int32_t tid)
{
    char path[64], comm[20] = "";
    (void)snprintf(path, sizeof(path), "/proc/self/task/%d/comm", tid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd == -1 ? 0 : read(fd, comm, sizeof(comm) - 1);
    if (fd != -1)
        (void)close(fd);
    return n > 8 && memcmp(comm, "probing/", 8) == 0;
}
