/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/times.h - timestamps and intervals in parts and as texts: time.c.
 *
 * Private to core/sql; any thread.
 */
#ifndef CORE_SQL_TIMES_H
#define CORE_SQL_TIMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum time_part {
    PART_MICROSECOND,
    PART_MILLISECOND,
    PART_SECOND,
    PART_MINUTE,
    PART_HOUR,
    PART_DAY,
    PART_WEEK,
    PART_MONTH,
    PART_QUARTER,
    PART_YEAR,
    PART_DOW,
    PART_DOY,
    PART_ISODOW,
    PART_ISOYEAR,
    PART_EPOCH,
    PART_NONE
};
enum time_part sql_time_part(const char *name, size_t size);
int64_t sql_time_trunc(enum time_part part, int64_t ns);
double sql_time_get(enum time_part part, int64_t ns);
size_t sql_format_timestamp(int64_t ns, bool iso, char out[40]);
size_t sql_format_interval(int64_t ns, char out[48]);

/* "interval '5 min'", "1 day 2 hours", "01:30:00", "90" (seconds) as ns. */
int sql_parse_interval(const char *text, size_t size, int64_t *ret);
/* "2024-05-01", "2024-05-01 10:00:00.5", "...T...Z", "+02:00": ns since the epoch. */
int sql_parse_timestamp(const char *text, size_t size, int64_t *ret);

#endif
