/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/usage/alarm.h - when memory.high, memory.growth and memory.oom_near happen.
 *
 * Numbers in, events out: no host, no files, one thread at a time.  Each event has a hysteresis: it
 * comes once, and again when what it told has been over for a while.
 */
#ifndef MEMORY_USAGE_ALARM_H
#define MEMORY_USAGE_ALARM_H

#include <stdbool.h>
#include <stdint.h>

enum alarm_event { ALARM_HIGH = 1u << 0, ALARM_GROWTH = 1u << 1, ALARM_OOM_NEAR = 1u << 2 };

struct alarm_settings {
    uint32_t high_pct; /* of the limit; 0: off */
    uint32_t near_pct; /* of the limit; 0: off */
    uint64_t growth;   /* bytes; 0: off */
    uint64_t growth_within_ns;
};

#define ALARM_LOOKS 64 /* of growth: a ring, each of one 64th of growth_within_ns */

struct alarm {
    bool high, near; /* told, and not over */
    uint64_t last_ns, last_used;
    double speed;                                 /* bytes a second, lately */
    uint64_t least[ALARM_LOOKS], at[ALARM_LOOKS]; /* of what is kept; at 0: none yet */
    uint32_t slot;
};

struct alarm_look {
    uint64_t now_ns;
    uint64_t kept;        /* bytes that the program has not given back */
    uint64_t limit, used; /* the limit that is the nearest; UINT64_MAX: there is none */
    double full_avg10;    /* pressure; NAN */
};

/* Which events this look is; *ret_grown: by how much in the time, with ALARM_GROWTH. */
uint32_t alarm_look(struct alarm *a, const struct alarm_settings *s, const struct alarm_look *l,
                    uint64_t *ret_grown);
/* Is it near enough to a limit that one should look more often? */
bool alarm_is_close(const struct alarm *a, const struct alarm_look *l);

#endif
