/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/usage/cgroup.h - what a process's memory cgroup allows, uses, and has killed.
 *
 * Version 1 and 2, from their files.  Any thread; nothing is kept between two calls but by the
 * caller.
 */
#ifndef MEMORY_USAGE_CGROUP_H
#define MEMORY_USAGE_CGROUP_H

#include <stdint.h>
#include <sys/types.h>

#define CGROUP_PATH_BYTES 1024
#define CGROUP_UNKNOWN UINT64_MAX /* not told, or no limit */

/* Folders of /sys/fs/cgroup. */
struct cgroup {
    uint32_t version;             /* 0: none was found */
    char own[CGROUP_PATH_BYTES];  /* the process's */
    char root[CGROUP_PATH_BYTES]; /* where the hierarchy is mounted */
};

struct cgroup_now {
    char limit_at[CGROUP_PATH_BYTES]; /* whose limit is the nearest; "": there is none */
    uint64_t limit, used;          /* of that; used: without what the kernel takes back at need */
    uint64_t oom_kills;            /* of the own group: processes killed for want of memory */
    double some_avg10, full_avg10; /* pressure, percent of the last ten seconds; NAN */
};

/* Which it is.  A process that has none (no cgroups, not mounted here) has version 0. */
void cgroup_find(pid_t pid, struct cgroup *ret);
void cgroup_read(const struct cgroup *g, struct cgroup_now *ret);
#endif
