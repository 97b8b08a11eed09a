/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/usage/look.h - one look at the memory of the process and at what limits it.
 *
 * [worker], one thread at a time for one struct looker.
 */
#ifndef MEMORY_USAGE_LOOK_H
#define MEMORY_USAGE_LOOK_H

#include <probing/ext/draft/memory.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/proc/task.h"
#include "memory_limit.h"

#define LOOK_UNKNOWN UINT64_MAX

struct looker {
    const struct probing_memory_1 *core; /* NULL: our own part is not known */
    struct cgroup cgroup;
    uint64_t cgroup_found_ns;     /* when; a process may be put into another */
    uint64_t own_heap, own_files; /* probing's own, */
    uint64_t own_ns;              /* and when it was measured */
    uint64_t pss_ns, pss_took_ns; /* when it was asked last, and how long that took */
};

struct memory_look {
    uint64_t now_ns;
    struct proc_status process;
    uint64_t pss;                              /* LOOK_UNKNOWN but now and then */
    uint64_t own;                              /* probing's own, resident; of that */
    uint64_t own_heap;                         /* what is no file with rows */
    uint64_t machine_total, machine_available; /* MemTotal, MemAvailable */
    struct cgroup_now cgroup;
    uint64_t limit, used; /* the limit of which the largest share is used; LOOK_UNKNOWN: none */
    const char *limit_of; /* "cgroup", "memory.limit", "RLIMIT_AS", "machine" */
};

/* setting: memory.limit, 0: none.  whole: with pss and own as they are now, whatever that costs.
 * 0, or -errno: the process cannot be read. */
int look_at_memory(struct looker *k, uint64_t now_ns, uint64_t setting, bool whole,
                   struct memory_look *ret);
/* Resident memory without ours. */
uint64_t look_theirs(const struct memory_look *l);
/* Bytes that the program has allocated and not given back: private and shared memory, resident or
 * swapped out, without ours.  Pages of files do not count: reading the program's libraries makes
 * them resident, as we do for its stacks. */
uint64_t look_kept(const struct memory_look *l);

#endif
