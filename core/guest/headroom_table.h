/* SPDX-License-Identifier: Apache-2.0
 *
 * core/guest/headroom_table.h - what the core, each option and each plugin takes of each limit, and
 * what the program keeps of it.
 *
 * The one table of it: asked before a process is entered, and by the core before an option is
 * switched on and before a plugin is loaded; shown by probing.limits and docs/life.md, and measured
 * by tests/hostile/test_limits_table.py.  A plugin declares its own row (struct probing_resource).
 * Any thread.
 */
#ifndef CORE_GUEST_HEADROOM_TABLE_H
#define CORE_GUEST_HEADROOM_TABLE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/guest/headroom.h"

/* The most that a part takes while it is used as usual.  A query may take more of private memory: a
 * quarter of what is left (query.max_memory). */
struct room_part {
    const char *name; /* "the core", as it stands in a sentence */
    uint64_t takes[ROOM_LIMITS];
    uint64_t each_thread[ROOM_LIMITS]; /* for each thread of the program */
};

extern const struct room_part room_library;    /* loaded, by a thread that then ends */
extern const struct room_part room_core;       /* without any plugin */
extern const struct room_part room_crash;      /* crash.handler */
extern const struct room_part room_listen;     /* server.listen */
extern const struct room_part room_undeclared; /* a plugin that declares nothing */

/* "data", as plugins declare it and probing.limits shows it. */
const char *room_limit_name(enum room_limit limit);
bool room_limit_of(const char *name, enum room_limit *ret); /* false: there is none of that name */
/* The least that the program keeps. */
uint64_t room_margin(enum room_limit limit);

void room_part_add(struct room_part *to, const struct room_part *part);

/* Has the process room for a part, and its margin?  0, or -ENOMEM, -EMFILE, -EAGAIN, -EFBIG with
 * err_set(): the limit, what is left of it, what is needed and how to raise it.  at_peak: as
 * room_at_peak().                                                                       [any] */
int room_check(pid_t pid, const struct room_part *part, bool at_peak);
/* The same for a core that starts in this process; then room_ours() is known of each limit.  Its
 * main thread. */
int room_begin(void);
/* The same of this process, of what room_ours() leaves.                                 [any] */
int room_check_ours(const struct room_part *part);

#endif
