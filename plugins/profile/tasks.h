/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/profile/tasks.h - which threads the process has.
 *
 * The profiler's thread only.
 */
#ifndef PROFILE_TASKS_H
#define PROFILE_TASKS_H

#include <stdbool.h>
#include <stdint.h>

struct tasks {           /* as of the last scan */
    uint64_t scanned_ns; /* 0: none, make one */
    uint64_t links, newest;
};

/* May there be other threads than at the last scan?  Then this is the next one.  Reading the folder
 * costs some 7 us a thread; how many there are, and whether anybody began anywhere, costs 5.  When
 * as many as before are there but somebody began somewhere, it is answered with yes each 0.5 s. */
bool tasks_differ(struct tasks *t, uint64_t now);

/* Each thread; its inode tells it from an earlier one with the same id.  true: these were all. */
bool tasks_each(void (*fn)(void *arg, int32_t tid, uint64_t inode), void *arg);

/* Is it one of probing's own, by its name? */
bool tasks_is_ours(int32_t tid);

#endif
