/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/value/time_zone.h - how far the clocks of a time zone are from UTC: time_zone.c.
 *
 * Private to core/sql; any thread, a struct each.
 */
#ifndef CORE_SQL_VALUE_TIME_ZONE_H
#define CORE_SQL_VALUE_TIME_ZONE_H

#include <stddef.h>
#include <stdint.h>

#include "sdk/lib/arena.h"

struct time_zone;

/* 'Europe/Berlin' of the machine's own tables, or '+02:00', which is west of Greenwich, as in
 * PostgreSQL.  -ENOENT, -EINVAL say why. */
int time_zone_new(struct arena *mem, const char *name, size_t size, struct time_zone **ret);
/* Read a time zone from the bytes of such a table. */
int time_zone_read(struct arena *mem, const char *bytes, size_t size, struct time_zone **ret);
/* ns of UTC to what the clocks show, and back.  What they show twice is the later of the two, what
 * they leave out is what they would have shown.  -ERANGE, not said: outside what a timestamp is. */
int time_zone_clock(const struct time_zone *z, int64_t ns, int64_t *ret);
int time_zone_utc(const struct time_zone *z, int64_t clock_ns, int64_t *ret);

#endif
