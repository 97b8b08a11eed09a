/* SPDX-License-Identifier: Apache-2.0
 *
 * core/base/headroom.h - how much a process may still take before it meets one of its limits.
 *
 * Asked before a process is entered, and by the core before it maps much: it lives in somebody
 * else's limits.  Reads /proc and /sys/fs/cgroup; no err_set(), no allocation.  Any thread.
 */
#ifndef CORE_BASE_HEADROOM_H
#define CORE_BASE_HEADROOM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define ROOM_NO_LIMIT UINT64_MAX

/* Bytes that may still be mapped (RLIMIT_AS), that may still be written to privately
 * (RLIMIT_DATA; overcommit 2), and that the process's cgroups still allow to be used. */
uint64_t room_address_space(pid_t pid);
/* The first and the third for a program that needs as much again as it ever had: a peak may come
 * back. */
uint64_t room_address_space_at_peak(pid_t pid);
uint64_t room_memory_at_peak(pid_t pid);
uint64_t room_data(pid_t pid);
uint64_t room_memory(pid_t pid);
/* Bytes that may still be mapped where all that is mapped is locked (mlockall(MCL_FUTURE)).  Of
 * another process nobody tells: taken for one is who has nine tenths of its memory locked. */
uint64_t room_locked(pid_t pid);

/* Bytes that this process may still use: the least of the first three and of what the machine has
 * left.  Read anew once a second at most. */
uint64_t room_left(void);

/* Bytes of address space that we may map in this process.  The rest stays the program's: what it
 * had at its peak when this was first asked, and a quarter of what its limit allowed beyond that.
 * ROOM_NO_LIMIT: it may map what it likes. */
uint64_t room_ours(void);

/* Descriptors and threads that may still be made. */
uint64_t room_files(pid_t pid);
uint64_t room_threads(pid_t pid);

/* What this process should map of a file or a folder where it would like `wanted` bytes: all of
 * that, or where its address space is limited one `part`th of what is left for us, but not less
 * than `least`.  Of /dev/shm an eighth of what is free at most: there data loaders hand tensors
 * over, and a container has 64 MB of it. */
uint64_t room_share(const char *path, uint64_t wanted, uint64_t least, uint64_t part);

#endif
