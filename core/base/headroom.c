/* SPDX-License-Identifier: Apache-2.0
 *
 * core/base/headroom.c - limits of a process against what it uses.
 *
 * What cannot be read is no limit: then the thing itself will say no.
 */
#include "core/base/headroom.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/file.h"

#define NEVER_REACHED (UINT64_C(1) << 60) /* how cgroup v1 writes "no limit" */
#define LOOK_AT_USERS 65536               /* a higher limit on a user's threads is nobody's limit */
#define GROUP_BYTES 1024

static uint64_t less(uint64_t limit, uint64_t used)
{
    return limit == ROOM_NO_LIMIT ? limit : limit > used ? limit - used : 0;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The number behind "\nField:" or "\nfield " of a small file. */
static uint64_t number_in(const char *path, const char *field, uint64_t unless)
{
    char text[8192];
    text[0] = '\n';
    if (file_peek(path, text + 1, sizeof(text) - 1) < 0)
        return unless;
    const char *at = strstr(text, field);
    if (!at)
        return unless;
    at += strlen(field);
    at += strspn(at, " \t");
    return *at >= '0' && *at <= '9' ? strtoull(at, NULL, 10) : unless; /* else "unlimited" */
}

/* prlimit(2) wants a right for a process of another user; the file is for all who may trace it. */
static uint64_t limit_of(pid_t pid, int which)
{
    static const char *const names[] = {[RLIMIT_AS] = "\nMax address space",
                                        [RLIMIT_DATA] = "\nMax data size",
                                        [RLIMIT_NOFILE] = "\nMax open files",
                                        [RLIMIT_NPROC] = "\nMax processes"};
    struct rlimit limit;
    char path[40];
    if (syscall(SYS_prlimit64, pid == getpid() ? 0 : pid, which, NULL, &limit) == 0)
        return limit.rlim_cur == RLIM_INFINITY ? ROOM_NO_LIMIT : limit.rlim_cur;
    (void)snprintf(path, sizeof(path), "/proc/%d/limits", pid);
    return number_in(path, names[which], ROOM_NO_LIMIT);
}

static uint64_t status_bytes(pid_t pid, const char *field)
{
    char path[40];
    (void)snprintf(path, sizeof(path), "/proc/%d/status", pid);
    return number_in(path, field, 0) * 1024;
}

uint64_t room_address_space(pid_t pid)
{
    uint64_t limit = limit_of(pid, RLIMIT_AS);
    return limit == ROOM_NO_LIMIT ? limit : less(limit, status_bytes(pid, "\nVmSize:"));
}

/* Where the kernel promises no more than it has, every private page counts at once. */
static uint64_t room_promised(void)
{
    if (number_in("/proc/sys/vm/overcommit_memory", "\n", 0) != 2)
        return ROOM_NO_LIMIT;
    return less(number_in("/proc/meminfo", "\nCommitLimit:", UINT64_MAX / 1024) * 1024,
                number_in("/proc/meminfo", "\nCommitted_AS:", 0) * 1024);
}

uint64_t room_data(pid_t pid)
{
    uint64_t limit = limit_of(pid, RLIMIT_DATA);
    uint64_t room = limit == ROOM_NO_LIMIT ? limit : less(limit, status_bytes(pid, "\nVmData:"));
    return smaller(room, room_promised());
}

/* ---- cgroups ---- */

struct group_files {
    const char *controller; /* as /proc/PID/cgroup writes it; "" is version 2 */
    const char *roots[2];   /* where it is mounted; NULL: nowhere else */
    const char *limit, *used;
    const char *given_back; /* in memory.stat: used, but the kernel takes it when it needs it */
};

static uint64_t file_number(const char *folder, const char *name)
{
    char path[GROUP_BYTES + 64], text[64];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (file_peek(path, text, sizeof(text)) < 0 || text[0] < '0' || text[0] > '9')
        return ROOM_NO_LIMIT; /* "max", too */
    uint64_t n = strtoull(text, NULL, 10);
    return n > NEVER_REACHED ? ROOM_NO_LIMIT : n;
}

static uint64_t room_in_group(const char *folder, const struct group_files *f)
{
    char path[GROUP_BYTES + 64];
    uint64_t limit = file_number(folder, f->limit), used = file_number(folder, f->used);
    if (limit == ROOM_NO_LIMIT || used == ROOM_NO_LIMIT)
        return ROOM_NO_LIMIT;
    (void)snprintf(path, sizeof(path), "%s/memory.stat", folder);
    uint64_t back = f->given_back ? number_in(path, f->given_back, 0) : 0;
    return less(limit, used > back ? used - back : 0);
}

/* Its group and those around it.  In a container the path may be one of outside: what is mounted
 * at the root is its own then. */
static uint64_t room_in_groups(const char *root, const char *path, const struct group_files *f)
{
    char folder[GROUP_BYTES];
    uint64_t room = ROOM_NO_LIMIT;
    int n = snprintf(folder, sizeof(folder), "%s%s", root, path);
    if (n < 0 || (size_t)n >= sizeof(folder))
        return room;
    for (;;) {
        room = smaller(room, room_in_group(folder, f));
        char *slash = strrchr(folder, '/');
        if (strlen(folder) <= strlen(root) || !slash)
            return room;
        *slash = '\0';
    }
}

/* "4:memory:/path" or "0::/path": is `line` of this controller?  Its path, or NULL. */
static char *path_of(char *line, const char *controller)
{
    char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;
    if (!path)
        return NULL;
    *path++ = '\0';
    for (char *save = NULL, *name = strtok_r(names + 1, ",", &save); name;
         name = strtok_r(NULL, ",", &save)) {
        if (strcmp(name, controller) == 0)
            return path;
    }
    return names[1] == '\0' && controller[0] == '\0' ? path : NULL;
}

static uint64_t room_by_groups(pid_t pid, const struct group_files *files, uint32_t n)
{
    char path[40], text[8192];
    uint64_t room = ROOM_NO_LIMIT;
    (void)snprintf(path, sizeof(path), "/proc/%d/cgroup", pid);
    for (uint32_t i = 0; i < n; i++) {
        if (file_peek(path, text, sizeof(text)) < 0)
            return room;
        char *save = NULL;
        for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
            char *group = path_of(line, files[i].controller);
            for (uint32_t k = 0; group && k < 2 && files[i].roots[k]; k++)
                room = smaller(room, room_in_groups(files[i].roots[k], group, &files[i]));
        }
    }
    return room;
}

uint64_t room_memory(pid_t pid)
{
    static const struct group_files files[] = {{"",
                                                {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"},
                                                "memory.max",
                                                "memory.current",
                                                "\ninactive_file "},
                                               {"memory",
                                                {"/sys/fs/cgroup/memory"},
                                                "memory.limit_in_bytes",
                                                "memory.usage_in_bytes",
                                                "\ntotal_inactive_file "}};
    return room_by_groups(pid, files, sizeof(files) / sizeof(files[0]));
}

static uint64_t read_room_left(void)
{
    pid_t pid = getpid();
    uint64_t machine = number_in("/proc/meminfo", "\nMemAvailable:", UINT64_MAX / 1024) * 1024;
    return smaller(smaller(room_address_space(pid), room_data(pid)),
                   smaller(room_memory(pid), machine));
}

uint64_t room_left(void)
{
    static _Atomic uint64_t until_ns, left;
    uint64_t now_ns = clock_monotonic();
    if (now_ns >= atomic_load_explicit(&until_ns, memory_order_acquire)) {
        atomic_store_explicit(&left, read_room_left(), memory_order_relaxed);
        atomic_store_explicit(&until_ns, now_ns + NS_PER_S, memory_order_release);
    }
    return atomic_load_explicit(&left, memory_order_relaxed);
}

/* ---- descriptors and threads ---- */

struct kernel_dirent { /* getdents64(2) */
    uint64_t ino;
    int64_t offset;
    uint16_t size;
    uint8_t type;
    char name[];
};

/* Calls `each` with every number that names an entry of a directory of /proc. */
static void each_number(const char *path, void (*each)(void *arg, uint64_t number), void *arg)
{
    uint64_t block[512];
    int64_t size;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    while (fd != -1 && (size = syscall(SYS_getdents64, fd, block, sizeof(block))) > 0) {
        for (int64_t at = 0; at < size;) {
            const struct kernel_dirent *e =
                (const struct kernel_dirent *)(const void *)((const char *)block + at);
            if (e->name[0] >= '0' && e->name[0] <= '9')
                each(arg, strtoull(e->name, NULL, 10));
            at += e->size;
        }
    }
    if (fd != -1)
        (void)close(fd);
}

struct open_files {
    uint64_t limit, below; /* those under the limit: it may have been lowered */
};

static void count_file(void *arg, uint64_t number)
{
    struct open_files *f = arg;
    f->below += number < f->limit;
}

uint64_t room_files(pid_t pid)
{
    char path[40];
    struct open_files f = {.limit = limit_of(pid, RLIMIT_NOFILE)};
    (void)snprintf(path, sizeof(path), "/proc/%d/fd", pid);
    each_number(path, count_file, &f);
    return less(f.limit, f.below);
}

struct user {
    uint64_t uid, threads;
};

static void count_threads(void *arg, uint64_t pid)
{
    struct user *u = arg;
    char path[40];
    (void)snprintf(path, sizeof(path), "/proc/%" PRIu64 "/status", pid);
    if (number_in(path, "\nUid:", UINT64_MAX) == u->uid)
        u->threads += number_in(path, "\nThreads:", 0);
}

uint64_t room_threads(pid_t pid)
{
    static const struct group_files files[] = {
        {"", {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}, "pids.max", "pids.current", NULL},
        {"pids", {"/sys/fs/cgroup/pids"}, "pids.max", "pids.current", NULL}};
    uint64_t room = room_by_groups(pid, files, sizeof(files) / sizeof(files[0]));
    uint64_t limit = limit_of(pid, RLIMIT_NPROC);
    char path[40];
    (void)snprintf(path, sizeof(path), "/proc/%d/status", pid);
    struct user u = {.uid = number_in(path, "\nUid:", 0)};
    if (u.uid == 0 || limit > LOOK_AT_USERS) /* root has no such limit */
        return room;
    each_number("/proc", count_threads, &u);
    return smaller(room, less(limit, u.threads));
}

uint64_t room_share(uint64_t wanted, uint64_t least, uint64_t part)
{
    uint64_t room = room_address_space(getpid());
    if (room == ROOM_NO_LIMIT)
        return wanted;
    uint64_t share = room / part;
    share = share > least ? share : least;
    return share < wanted ? share : wanted;
}
