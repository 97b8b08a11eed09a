/* SPDX-License-Identifier: Apache-2.0
 *
 * core/crash/offline_unwind.h - frames out of a report that holds memory instead of frames.
 *
 * Private to this folder; the reader's thread only.
 */
#ifndef CORE_CRASH_OFFLINE_UNWIND_H
#define CORE_CRASH_OFFLINE_UNWIND_H

#include "core/crash/crash.h"
#include "sdk/lib/arena.h"

struct dead;

/* One line `at`, `memory` or `map`, of the thread numbered n_threads (from 1).  *d is made when it
 * is NULL.  0 or -ENOMEM. */
int dead_line(struct dead **d, const char *word, const char *at, uint32_t n_threads);
/* Give frames to the threads that have none. */
void dead_unwind(struct dead *d, struct arena *arena, struct crash_thread *threads, uint32_t n);
void dead_free(struct dead *d);

#endif
