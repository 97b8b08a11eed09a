/* SPDX-License-Identifier: Apache-2.0
 *
 * core/guest/headroom.h - how much a process may still take before it meets one of its limits.
 *
 * Asked before a process is entered, and by the core before it maps much: it lives in somebody
 * else's limits.  Reads /proc and /sys/fs/cgroup; no err_set(), no allocation.  Any thread.
 */
#ifndef CORE_GUEST_HEADROOM_H
#define CORE_GUEST_HEADROOM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define ROOM_NO_LIMIT UINT64_MAX

/* Each limit, in the order in which they are looked at. */
enum room_limit {
    ROOM_ADDRESS_SPACE, /* bytes that may be mapped: RLIMIT_AS */
    ROOM_LOCKED,        /* the same where all that is mapped is locked: mlockall(MCL_FUTURE) */
    ROOM_DATA,          /* bytes of private memory that may be written: RLIMIT_DATA; overcommit 2 */
    ROOM_MEMORY,        /* bytes in use: its cgroups */
    ROOM_MAPPINGS,      /* vm.max_map_count */
    ROOM_DESCRIPTORS,   /* RLIMIT_NOFILE */
    ROOM_THREADS,       /* RLIMIT_NPROC of its user, pids.max of its cgroups */
    ROOM_FILE_SIZE,     /* bytes of one file: RLIMIT_FSIZE */
    ROOM_SIGNALS,       /* queued ones of its user, and POSIX timers: RLIMIT_SIGPENDING */
    ROOM_LIMITS
};

/* How much a process may still take; pid 0: this one.  ROOM_LOCKED of another process: nobody tells
 * how it locks, so one that has nine tenths of its memory locked is taken for one that locks it
 * all. */
uint64_t room_of(pid_t pid, enum room_limit limit);
/* The same for a program that needs as much again as it ever had: a peak may come back.  A core
 * that was there has added to the peak. */
uint64_t room_at_peak(pid_t pid, enum room_limit limit);

/* How much of it we may take in this process.  The rest stays the program's: what it had at its
 * peak when this was first asked, a quarter of what its limit allowed beyond that, and at least the
 * limit's margin (headroom_table.h).  ROOM_NO_LIMIT: we may take what we like. */
uint64_t room_ours(enum room_limit limit);

/* Take `amount` more of it, without a look at the process each time: one a second at most.
 * false: the rest is the margin, and the program's.  In a child: first look anew.   [any] */
bool room_claim(enum room_limit limit, uint64_t amount);

/* Bytes that this process may still use: the least of address space, private memory, memory of its
 * cgroups and what the machine has left.  Read anew once a second at most. */
uint64_t room_left(void);

/* The bytes that this process should map of a file or a folder where it would like `wanted`: all
 * of them, or where its address space is limited one `part`th of what is left for us, but not less
 * than `least`.  It takes at most an eighth of what is free in /dev/shm: there data loaders hand
 * tensors over, and a container has 64 MB of it. */
uint64_t room_share(const char *path, uint64_t wanted, uint64_t least, uint64_t part);

#endif
