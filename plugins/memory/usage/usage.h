/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/usage/usage.h - how much memory the process has, what it is made of, and what the
 * limit is: memory.usage, memory.parts, and the events memory.high, memory.growth, memory.oom_near
 * of memory.events.
 *
 * [control] unless said otherwise.
 */
#ifndef MEMORY_USAGE_USAGE_H
#define MEMORY_USAGE_USAGE_H

#include <probing/plugin.h>
#include <stdbool.h>
#include <stdint.h>

#include "alarm.h"

struct usage;

int usage_new(const struct probing_host *host, struct usage **ret); /* makes tables, commands */
void usage_free(struct usage *u);
/* One of USAGE_SETTINGS; -ENOENT: it is none of them. */
int usage_configure(struct usage *u, const char *name, const char *value);

#define USAGE_STEP_NS (PROBING_NS_PER_S / 4)
/* Look, when it is time to.  Gives the events that happened (enum alarm_event), for each of which
 * there is a row by then.                                  [worker], each second and as below */
uint32_t usage_tick(struct usage *u, uint64_t now);
/* Is the next look due after USAGE_STEP_NS already?  A limit is near, or memory.interval is short.
 * [worker], after usage_tick() */
bool usage_is_hasty(struct usage *u);

/* The settings that plugin.c offers. */
#define USAGE_SETTING(n, v, u, least, most, d)                                                  \
    {                                                                                           \
        .name = n, .value = v, .doc = d, .type = PROBING_I64, .unit = u, .flags = PROBING_LIVE, \
        .min = least, .max = most                                                               \
    }
#define USAGE_SETTINGS                                                                           \
    USAGE_SETTING("interval", "1s", PROBING_NS, INT64_C(250000000), INT64_C(3600000000000),      \
                  "time between two looks at the memory of the process"),                        \
        USAGE_SETTING("limit", "0", PROBING_BYTES, 0, INT64_C(1) << 50,                          \
                      "what the process should not exceed, for the events; 0: only what the "    \
                      "system sets"),                                                            \
        USAGE_SETTING("high_pct", "90", PROBING_PERCENT, 0, 100,                                 \
                      "memory.high happens above this share of the limit; 0: never"),            \
        USAGE_SETTING("oom_near_pct", "97", PROBING_PERCENT, 0, 100,                             \
                      "memory.oom_near happens above this share of the limit, or where it will " \
                      "be reached in three seconds; 0: never"),                                  \
        USAGE_SETTING("growth_bytes", "1GB", PROBING_BYTES, 0, INT64_C(1) << 50,                 \
                      "memory.growth happens when the process has grown by so much within "      \
                      "memory.growth_within; 0: never"),                                         \
        USAGE_SETTING("growth_within", "10m", PROBING_NS, PROBING_NS_PER_S,                      \
                      INT64_C(30) * 86400 * 1000000000, "the time for memory.growth"),           \
        USAGE_SETTING("mallinfo_max_bytes", "16MB", PROBING_BYTES, 0, INT64_C(1) << 31,          \
                      "memory.parts asks glibc's mallinfo() up to a heap of this size: it "      \
                      "walks the free lists, and who allocates waits meanwhile")

#endif
