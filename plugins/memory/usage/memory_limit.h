/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/usage/memory_limit.h - what a process's memory cgroup allows, uses, and has
 * killed.
 *
 * Version 1 and 2, from their files.  Any thread; nothing is kept between two calls but by the
 * caller.
 */
#ifndef MEMORY_USAGE_MEMORY_LIMIT_H
#define MEMORY_USAGE_MEMORY_LIMIT_H

#include <stdint.h>
#include <sys/types.h>

#include "lib/proc/cgroup.h"

#define CGROUP_UNKNOWN UINT64_MAX /* not told, or no limit */

struct cgroup {
    uint32_t version; /* 0: none was found */
    struct proc_cgroup_folder own;
};

struct cgroup_now {
    char limit_at[PROC_CGROUP_BYTES]; /* whose limit is the nearest; "": there is none */
    uint64_t limit, used;          /* of that; used: without what the kernel takes back at need */
    uint64_t oom_kills;            /* of the own group: processes killed for want of memory */
    double some_avg10, full_avg10; /* pressure, percent of the last ten seconds; NAN */
};

/* Which it is.  A process that has none (no cgroups, not mounted here) has version 0. */
void cgroup_find(pid_t pid, struct cgroup *ret);
void cgroup_read(const struct cgroup *g, struct cgroup_now *ret);
#endif
