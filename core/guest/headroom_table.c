/* SPDX-License-Identifier: Apache-2.0
 *
 * core/guest/headroom_table.c - the table, and the sentence of whom it refuses.
 *
 * Any thread; constants only.
 */
#include "core/guest/headroom_table.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "sdk/lib/proc/task.h"

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)

/* The program keeps room for a thread with a stack of 8 MiB, an arena of glibc's and what it
 * allocates meanwhile; two mappings and more for each thread that it may yet start. */
static const struct {
    const char *name, *words, *remedy;
    uint64_t unit, margin;
    int code; /* 0: nobody is refused for it; what gets none of it is named */
} limits[ROOM_LIMITS] = {
    [ROOM_ADDRESS_SPACE] = {"address_space", "MiB more of address space (ulimit -v)",
                            "raise it with prlimit --as", MIB, 256 * MIB, -ENOMEM},
    [ROOM_LOCKED] = {"locked_memory",
                     "MiB more of locked memory (ulimit -l; it has all of its memory locked, "
                     "mlockall(2))",
                     "raise it with prlimit --memlock", MIB, 256 * MIB, -ENOMEM},
    [ROOM_DATA] = {"data", "MiB more of private memory (ulimit -d, or overcommit 2)",
                   "raise it with prlimit --data, or vm.overcommit_ratio", MIB, 16 * MIB, -ENOMEM},
    [ROOM_MEMORY] = {"memory", "MiB more of its cgroup's memory",
                     "raise the group's memory.max (memory.limit_in_bytes)", MIB, 32 * MIB,
                     -ENOMEM},
    [ROOM_MAPPINGS] = {"mappings", "more mappings (vm.max_map_count)",
                       "raise it with sysctl vm.max_map_count", 1, 256, -ENOMEM},
    [ROOM_DESCRIPTORS] = {"descriptors", "more open files (descriptors)",
                          "raise its limit with prlimit --nofile", 1, 8, -EMFILE},
    [ROOM_THREADS] = {"threads", "more threads",
                      "raise its user's limit (prlimit --nproc) or pids.max of its cgroup", 1, 6,
                      -EAGAIN},
    [ROOM_FILE_SIZE] = {"file_size", "MiB in a file (ulimit -f)", "raise it with prlimit --fsize",
                        MIB, 0, -EFBIG},
    [ROOM_SIGNALS] = {"signals", NULL, NULL, 1, 16, 0},
};

/* Address space and locked memory: glibc reserves 64 MiB for each thread that calls its malloc(),
 * which are up to seven of ours (who loads, who makes threads, a worker, who runs Python, who finds
 * the names of frames, a plugin's own), and for a moment twice as much; the files are a share of
 * what is left (room_share()). */
const struct room_part room_library = {"the library",
                                       {[ROOM_ADDRESS_SPACE] = 136 * MIB,
                                        [ROOM_LOCKED] = 136 * MIB,
                                        [ROOM_DATA] = 1 * MIB,
                                        [ROOM_MEMORY] = 4 * MIB,
                                        [ROOM_MAPPINGS] = 16,
                                        [ROOM_DESCRIPTORS] = 2,
                                        [ROOM_THREADS] = 1},
                                       {0}};

const struct room_part room_core = {"the core",
                                    {[ROOM_ADDRESS_SPACE] = 496 * MIB,
                                     [ROOM_LOCKED] = 496 * MIB,
                                     [ROOM_DATA] = 19 * MIB,
                                     [ROOM_MEMORY] = 12 * MIB,
                                     [ROOM_MAPPINGS] = 56,
                                     [ROOM_DESCRIPTORS] = 14,
                                     [ROOM_THREADS] = 9,
                                     [ROOM_FILE_SIZE] = 9 * MIB}, /* the fewest rings */
                                    {0}};

/* A stack for signals of 256 KiB for each thread, with its guard. */
const struct room_part room_crash = {"crash reports (crash.handler)",
                                     {[ROOM_ADDRESS_SPACE] = 40 * MIB,
                                      [ROOM_LOCKED] = 40 * MIB,
                                      [ROOM_DATA] = 4 * MIB,
                                      [ROOM_MEMORY] = 4 * MIB,
                                      [ROOM_MAPPINGS] = 16,
                                      [ROOM_THREADS] = 1},
                                     {[ROOM_ADDRESS_SPACE] = 320 * KIB,
                                      [ROOM_LOCKED] = 320 * KIB,
                                      [ROOM_DATA] = 256 * KIB,
                                      [ROOM_MAPPINGS] = 2}};

const struct room_part room_listen = {
    "listening (server.listen)", {[ROOM_MEMORY] = 1 * MIB, [ROOM_DESCRIPTORS] = 8}, {0}};

const struct room_part room_undeclared = {"a plugin that declares none",
                                          {[ROOM_ADDRESS_SPACE] = 136 * MIB,
                                           [ROOM_LOCKED] = 136 * MIB,
                                           [ROOM_DATA] = 16 * MIB,
                                           [ROOM_MEMORY] = 8 * MIB,
                                           [ROOM_MAPPINGS] = 32,
                                           [ROOM_DESCRIPTORS] = 4,
                                           [ROOM_THREADS] = 2},
                                          {0}};

const char *room_limit_name(enum room_limit limit)
{
    return limits[limit].name;
}

bool room_limit_of(const char *name, enum room_limit *ret)
{
    for (int i = 0; i < ROOM_LIMITS; i++)
        if (strcmp(limits[i].name, name) == 0) {
            *ret = i;
            return true;
        }
    return false;
}

uint64_t room_margin(enum room_limit limit)
{
    return limits[limit].margin;
}

void room_part_add(struct room_part *to, const struct room_part *part)
{
    for (int i = 0; i < ROOM_LIMITS; i++) {
        to->takes[i] += part->takes[i];
        to->each_thread[i] += part->each_thread[i];
    }
}

static int refuse_part(pid_t pid, const struct room_part *part, enum room_limit limit,
                       uint64_t left, uint64_t needed)
{
    uint64_t unit = limits[limit].unit;
    return err_set(limits[limit].code,
                   "process %d may take only %llu %s, and %s needs %llu so that the program keeps "
                   "enough; %s",
                   (int)pid, (unsigned long long)(left / unit), limits[limit].words, part->name,
                   (unsigned long long)((needed + unit - 1) / unit), limits[limit].remedy);
}

static uint64_t part_needs(const struct room_part *part, enum room_limit limit, uint64_t threads)
{
    return part->takes[limit] + part->each_thread[limit] * threads;
}

static uint64_t threads_of(pid_t pid)
{
    struct proc_status now;
    return proc_status_of(pid, 0, &now) == 0 && now.threads != PROC_UNKNOWN ? now.threads : 1;
}

int room_check(pid_t pid, const struct room_part *part, bool at_peak)
{
    uint64_t threads = threads_of(pid);
    int rc = 0;
    for (int i = 0; i < ROOM_LIMITS && rc == 0; i++) {
        uint64_t takes = limits[i].code ? part_needs(part, i, threads) : 0;
        uint64_t room = takes == 0 ? ROOM_NO_LIMIT
                        : at_peak  ? room_at_peak(pid, i)
                                   : room_of(pid, i);
        if (room < takes + limits[i].margin)
            rc = refuse_part(pid ? pid : getpid(), part, i, room, takes + limits[i].margin);
    }
    return rc;
}

int room_begin(void)
{
    static bool begun; /* a core that was here before has added to the peak */
    int rc = room_check(0, &room_core, /* at_peak= */ !begun);
    for (int i = 0; i < ROOM_LIMITS && rc == 0 && !begun; i++)
        (void)room_ours(i);
    begun = begun || rc == 0;
    return rc;
}

int room_check_ours(const struct room_part *part)
{
    uint64_t threads = threads_of(0);
    int rc = 0;
    for (int i = 0; i < ROOM_LIMITS && rc == 0; i++) {
        uint64_t takes = limits[i].code ? part_needs(part, i, threads) : 0;
        uint64_t ours = takes == 0 ? takes : room_ours(i);
        if (ours >= takes)
            continue;
        uint64_t room = room_of(0, i);
        rc = refuse_part(getpid(), part, i, room, takes + (room > ours ? room - ours : 0));
    }
    return rc;
}
