/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/profile/proc_tasks.h - which threads the process has.
 *
 * The profiler's thread only.
 */
#ifndef PROFILE_PROC_TASKS_H
#define PROFILE_PROC_TASKS_H

#include <stdbool.h>
#include <stdint.h>

struct tasks {          /* as of the last look that did not say TASKS_SAME */
    uint64_t looked_ns; /* 0: none */
    uint64_t links, newest;
};

/* May there be other threads than at the last look?  Where as many as before are there but somebody
 * began somewhere in the machine, TASKS_AS_MANY is said each 0.5 s: one may have taken another's
 * place.  Asking costs 1 us, then 5; reading the folder some 7 a thread. */
enum tasks_are { TASKS_SAME, TASKS_AS_MANY, TASKS_DIFFER };
enum tasks_are tasks_are(struct tasks *t, uint64_t now);

/* Each thread; its inode tells it from an earlier one with the same id.  true: these were all. */
bool tasks_each(void (*fn)(void *arg, int32_t tid, uint64_t inode), void *arg);

/* Is it one of probing's own, by its name? */
bool tasks_is_ours(int32_t tid);

#endif
