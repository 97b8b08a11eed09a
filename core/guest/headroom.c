/* SPDX-License-Identifier: Apache-2.0
 *
 * core/guest/headroom.c - limits of a process against what it uses.
 *
 * What cannot be read is no limit: then the thing itself will say no.
 */
#include "core/guest/headroom.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/guest/headroom_table.h"
#include "sdk/lib/proc/cgroup.h"
#include "sdk/lib/proc/maps.h"
#include "sdk/lib/proc/task.h"

#define NEVER_REACHED (UINT64_C(1) << 60) /* how cgroup v1 writes "no limit" */
#define SHARED_PART 8
#define LOOK_AGAIN_NS (50 * NS_PER_MS)
#define KEPT_PART 4 /* of what there is beyond its peak the program keeps one part of so many */
#define CAP_IPC_LOCK_BIT 14 /* whoever has it is asked for no RLIMIT_MEMLOCK */
#define LOOK_AT_USERS 65536 /* a higher limit on a user's threads is nobody's limit */

static uint64_t limit_left(uint64_t limit, uint64_t used)
{
    return limit == ROOM_NO_LIMIT ? limit : limit > used ? limit - used : 0;
}

static uint64_t smaller_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t number_in(const char *path, const char *key, uint64_t unless)
{
    uint64_t n;
    return proc_number_in(path, key, &n) ? n : unless; /* else "unlimited" */
}

/* prlimit(2) wants a right for a process of another user; the file is for all who may trace it. */
static uint64_t limit_of(pid_t pid, int which)
{
    static const char *const names[] = {
        [RLIMIT_AS] = "Max address space",      [RLIMIT_DATA] = "Max data size",
        [RLIMIT_MEMLOCK] = "Max locked memory", [RLIMIT_NOFILE] = "Max open files",
        [RLIMIT_NPROC] = "Max processes",       [RLIMIT_SIGPENDING] = "Max pending signals",
        [RLIMIT_FSIZE] = "Max file size"};
    struct rlimit limit;
    char path[40];
    if (syscall(SYS_prlimit64, pid, which, NULL, &limit) == 0)
        return limit.rlim_cur == RLIM_INFINITY ? ROOM_NO_LIMIT : limit.rlim_cur;
    (void)snprintf(path, sizeof(path), "/proc/%d/limits", pid);
    return number_in(path, names[which], ROOM_NO_LIMIT);
}

/* The amount used of a limit; 0 where the kernel does not tell it. */
static uint64_t used_or_zero(uint64_t n)
{
    return n == PROC_UNKNOWN ? 0 : n;
}

static void status_of(pid_t pid, struct proc_status *ret)
{
    if (proc_status_of(pid, 0, ret) < 0)
        memset(ret, 0xff, sizeof(*ret)); /* PROC_UNKNOWN in every number */
}

/* A page that nobody has touched is there only where it was locked. */
static bool page_is_there_at_once(void)
{
    size_t size = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char there = 0;
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return true;
    (void)mincore(at, size, &there);
    (void)munmap(at, size);
    return there & 1;
}

static uint64_t room_locked(pid_t pid)
{
    uint64_t limit = limit_of(pid, RLIMIT_MEMLOCK);
    struct proc_status now;
    if (limit == ROOM_NO_LIMIT)
        return limit;
    status_of(pid, &now);
    uint64_t size = used_or_zero(now.size_bytes), locked = used_or_zero(now.locked_bytes);
    if (locked == 0 || (now.effective != PROC_UNKNOWN && now.effective >> CAP_IPC_LOCK_BIT & 1))
        return ROOM_NO_LIMIT;
    bool all = pid == 0 ? page_is_there_at_once() : locked >= size - size / 10;
    return all ? limit_left(limit, locked) : ROOM_NO_LIMIT;
}

/* If the kernel promises no more than it has, every private page counts at once. */
static uint64_t room_promised(void)
{
    if (number_in("/proc/sys/vm/overcommit_memory", "", 0) != 2)
        return ROOM_NO_LIMIT;
    return limit_left(number_in("/proc/meminfo", "CommitLimit:", UINT64_MAX / 1024) * 1024,
                      number_in("/proc/meminfo", "Committed_AS:", 0) * 1024);
}

static uint64_t room_data(pid_t pid)
{
    uint64_t limit = limit_of(pid, RLIMIT_DATA), room = room_promised();
    struct proc_status now;
    if (limit == ROOM_NO_LIMIT)
        return room;
    status_of(pid, &now);
    return smaller_of(limit_left(limit, used_or_zero(now.data_bytes)), room);
}

/* ---- cgroups ---- */

struct group_files {
    const char *controller; /* as /proc/PID/cgroup writes it; "" is version 2 */
    const char *limit, *used;
    const char *given_back; /* in memory.stat: used, but the kernel takes it when it needs it */
};

static uint64_t file_number(const char *folder, const char *name)
{
    char path[PROC_CGROUP_BYTES + 64];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    uint64_t n = number_in(path, "", ROOM_NO_LIMIT); /* "max", too */
    return n > NEVER_REACHED ? ROOM_NO_LIMIT : n;
}

static uint64_t room_in_group(const char *folder, const struct group_files *f)
{
    char path[PROC_CGROUP_BYTES + 64];
    uint64_t limit = file_number(folder, f->limit);
    uint64_t used = limit != ROOM_NO_LIMIT ? file_number(folder, f->used) : ROOM_NO_LIMIT;
    if (used == ROOM_NO_LIMIT)
        return ROOM_NO_LIMIT;
    (void)snprintf(path, sizeof(path), "%s/memory.stat", folder);
    uint64_t back = f->given_back ? number_in(path, f->given_back, 0) : 0;
    return limit_left(limit, used > back ? used - back : 0);
}

/* Its group and those around it. */
static uint64_t room_by_groups(pid_t pid, const struct group_files *files, uint32_t n)
{
    struct proc_cgroup_folder at;
    uint64_t room = ROOM_NO_LIMIT;
    for (uint32_t i = 0; i < n; i++) {
        bool more = proc_cgroup_folder(pid, files[i].controller, &at);
        for (; more; more = proc_cgroup_parent(&at))
            room = smaller_of(room, room_in_group(at.path, &files[i]));
    }
    return room;
}

static uint64_t room_memory(pid_t pid)
{
    static const struct group_files files[] = {
        {"", "memory.max", "memory.current", "inactive_file "},
        {"memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "}};
    return room_by_groups(pid, files, sizeof(files) / sizeof(files[0]));
}

/* ---- mappings, descriptors, threads, signals ---- */

static uint64_t room_mappings(pid_t pid)
{
    uint64_t limit = number_in("/proc/sys/vm/max_map_count", "", ROOM_NO_LIMIT);
    return limit == ROOM_NO_LIMIT ? limit : limit_left(limit, used_or_zero(proc_maps_count(pid)));
}

static uint64_t room_descriptors(pid_t pid)
{
    struct proc_numbers all;
    struct proc_number one;
    char path[PROC_PATH_BYTES];
    uint64_t limit = limit_of(pid, RLIMIT_NOFILE), below = 0; /* it may have been lowered */
    proc_path(pid, 0, "fd", path);
    (void)proc_numbers_open(&all, path);
    while (proc_numbers_next(&all, &one))
        below += one.value < limit;
    proc_numbers_close(&all);
    return limit_left(limit, below);
}

/* All of a user's, in every process. */
static uint64_t threads_of(uint64_t uid)
{
    struct proc_numbers all;
    struct proc_number one;
    struct proc_status now;
    uint64_t n = 0;
    (void)proc_numbers_open(&all, "/proc");
    while (proc_numbers_next(&all, &one))
        if (proc_status_of((pid_t)one.value, 0, &now) == 0 && now.uid[0] == uid)
            n += used_or_zero(now.threads);
    proc_numbers_close(&all);
    return n;
}

static uint64_t room_threads(pid_t pid)
{
    static const struct group_files files[] = {{"", "pids.max", "pids.current", NULL},
                                               {"pids", "pids.max", "pids.current", NULL}};
    uint64_t room = room_by_groups(pid, files, sizeof(files) / sizeof(files[0]));
    uint64_t limit = limit_of(pid, RLIMIT_NPROC);
    struct proc_status now;
    if (limit > LOOK_AT_USERS)
        return room;
    status_of(pid, &now);
    if (used_or_zero(now.uid[0]) == 0) /* root has no such limit */
        return room;
    return smaller_of(room, limit_left(limit, threads_of(now.uid[0])));
}

static uint64_t room_signals(pid_t pid)
{
    struct proc_status now;
    uint64_t limit = limit_of(pid, RLIMIT_SIGPENDING);
    status_of(pid, &now);
    return limit_left(limit, used_or_zero(now.queued));
}

static uint64_t room_file_size(pid_t pid)
{
    return limit_of(pid, RLIMIT_FSIZE);
}

/* ---- each of them ---- */

static uint64_t room_address_space(pid_t pid)
{
    uint64_t limit = limit_of(pid, RLIMIT_AS);
    struct proc_status now;
    if (limit == ROOM_NO_LIMIT)
        return limit;
    status_of(pid, &now);
    return limit_left(limit, used_or_zero(now.size_bytes));
}

uint64_t room_of(pid_t pid, enum room_limit limit)
{
    static uint64_t (*const all[ROOM_LIMITS])(pid_t pid) = {[ROOM_ADDRESS_SPACE] =
                                                                room_address_space,
                                                            [ROOM_LOCKED] = room_locked,
                                                            [ROOM_DATA] = room_data,
                                                            [ROOM_MEMORY] = room_memory,
                                                            [ROOM_MAPPINGS] = room_mappings,
                                                            [ROOM_DESCRIPTORS] = room_descriptors,
                                                            [ROOM_THREADS] = room_threads,
                                                            [ROOM_FILE_SIZE] = room_file_size,
                                                            [ROOM_SIGNALS] = room_signals};
    return all[limit](pid);
}

/* The program had this at its peak and gave it back.  The kernel keeps no peak of private memory:
 * it was mapped, and it was in use. */
static uint64_t given_back(pid_t pid, enum room_limit limit)
{
    struct proc_status now;
    status_of(pid, &now);
    uint64_t mapped = limit_left(used_or_zero(now.peak_size_bytes), used_or_zero(now.size_bytes));
    uint64_t used = limit_left(used_or_zero(now.peak_rss_bytes), used_or_zero(now.rss_bytes));
    return limit == ROOM_ADDRESS_SPACE ? mapped
           : limit == ROOM_MEMORY      ? used
           : limit == ROOM_DATA        ? smaller_of(mapped, used)
                                       : 0;
}

uint64_t room_at_peak(pid_t pid, enum room_limit limit)
{
    uint64_t room = room_of(pid, limit);
    return room == ROOM_NO_LIMIT ? room : limit_left(room, given_back(pid, limit));
}

/* ---- in this process ---- */

uint64_t room_ours(enum room_limit limit)
{
    static _Atomic uint64_t kept[ROOM_LIMITS]; /* 0: not known yet */
    uint64_t room = room_of(0, limit), margin = room_margin(limit);
    if (room == ROOM_NO_LIMIT || limit == ROOM_FILE_SIZE)
        return room;
    uint64_t keep = atomic_load_explicit(&kept[limit], memory_order_relaxed);
    if (keep == 0) {
        uint64_t back = given_back(0, limit), part = limit_left(room, back) / KEPT_PART;
        if (limit == ROOM_DESCRIPTORS) /* there are a million, and the program may lower that */
            part = 0;
        keep = back + (part > margin ? part : margin) + 1;
        atomic_store_explicit(&kept[limit], keep, memory_order_relaxed);
    }
    return limit_left(room, keep);
}

/* The room beyond the margin since the last look. */
static struct seen_room {
    _Atomic uint64_t looked_ns; /* 0: never */
    _Atomic int64_t left;
} seen_rooms[ROOM_LIMITS];

static void look_anew(enum room_limit limit, uint64_t now_ns)
{
    struct seen_room *s = &seen_rooms[limit];
    uint64_t room = limit_left(room_of(0, limit), room_margin(limit));
    atomic_store_explicit(&s->left, room < INT64_MAX ? (int64_t)room : INT64_MAX,
                          memory_order_relaxed);
    atomic_store_explicit(&s->looked_ns, now_ns, memory_order_release);
}

static bool take_seen(enum room_limit limit, uint64_t amount)
{
    _Atomic int64_t *left = &seen_rooms[limit].left;
    int64_t want = (int64_t)amount;
    if (atomic_fetch_sub_explicit(left, want, memory_order_relaxed) >= want)
        return true;
    (void)atomic_fetch_add_explicit(left, want, memory_order_relaxed);
    return false;
}

/* Two threads that look at once do no harm.  What was claimed and given back within a second is
 * seen by the second look. */
bool room_claim(enum room_limit limit, uint64_t amount)
{
    uint64_t now_ns = clock_monotonic();
    uint64_t looked_ns = atomic_load_explicit(&seen_rooms[limit].looked_ns, memory_order_acquire);
    if (looked_ns == 0 || now_ns - looked_ns >= NS_PER_S)
        look_anew(limit, now_ns);
    else if (take_seen(limit, amount))
        return true;
    else if (now_ns - looked_ns >= LOOK_AGAIN_NS)
        look_anew(limit, now_ns);
    return take_seen(limit, amount);
}

static uint64_t read_room_left(void)
{
    const pid_t pid = 0;
    uint64_t machine = number_in("/proc/meminfo", "MemAvailable:", UINT64_MAX / 1024) * 1024;
    return smaller_of(smaller_of(room_address_space(pid), room_data(pid)),
                      smaller_of(room_memory(pid), machine));
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

/* Give our part of the memory that the process shares with its children. */
static uint64_t room_shared(const char *path)
{
    struct stat st, shared;
    struct statfs fs;
    if (stat(path, &st) == -1 || stat("/dev/shm", &shared) == -1 || st.st_dev != shared.st_dev ||
        statfs(path, &fs) == -1)
        return ROOM_NO_LIMIT;
    return (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize / SHARED_PART;
}

uint64_t room_share(const char *path, uint64_t wanted, uint64_t least, uint64_t part)
{
    uint64_t room = smaller_of(room_ours(ROOM_ADDRESS_SPACE), room_locked(0));
    uint64_t share = smaller_of(room == ROOM_NO_LIMIT ? wanted : room / part, room_shared(path));
    return smaller_of(share > least ? share : least, wanted);
}
