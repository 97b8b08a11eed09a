/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/value/timestamp_parts.h - timestamps, dates and intervals in parts and as texts:
 * timestamp.c, interval.c.
 *
 * Private to core/sql; any thread.
 */
#ifndef CORE_SQL_VALUE_TIMESTAMP_PARTS_H
#define CORE_SQL_VALUE_TIMESTAMP_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/sql/sql.h"

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
    PART_DECADE,
    PART_CENTURY,
    PART_MILLENNIUM,
    PART_NONE
};
enum time_part sql_time_part(const char *name, size_t size);
/* Also "min", "hrs" ...: in texts, where no column or alias may be meant. */
enum time_part sql_short_part(const char *name, size_t size);
/* Later than ns: it would be before the year 1678, out of range. */
/* Days since 1970-01-01 of a date, and the year of such a day. */
int64_t sql_day_number(int64_t year, uint32_t month, uint32_t day);
int64_t sql_year_of_day(int64_t day);
int64_t sql_time_trunc(enum time_part part, int64_t ns);
double sql_time_get(enum time_part part, int64_t ns);
double sql_seconds(int64_t ns); /* the double that is nearest */
/* Hours, minutes, or seconds and their parts with what is below them: of less than a day of either
 * sign.  part: PART_MICROSECOND to PART_HOUR. */
double sql_clock_get(enum time_part part, int64_t of_day_ns);
size_t sql_format_timestamp(int64_t ns, bool iso, char out[40]);
/* With as many digits as the second needs, none where it is whole: as PostgreSQL casts it. */
size_t sql_format_exactly(int64_t ns, char out[40]);
size_t sql_format_date(int64_t ns, char out[40]);
/* So many calendar months on; a day that the month lacks becomes its last.  -ERANGE */
int sql_add_months(int64_t ns, int64_t months, int64_t *ret);

/* ---- intervals: interval.c ---- */

/* Months, days and time are three numbers, as in PostgreSQL: '36 hours' is not '1 day 12:00:00'.
 * Two are compared with months of 30 days, and days of 24 hours. */
struct interval {
    int64_t ns;
    int32_t months, days;
};

#define INTERVAL_BYTES 24 /* packed: what it is compared by (16), months, days; big-endian */
#define INTERVAL_KEY_BYTES 16
#define INTERVAL_TEXT_BYTES 64

void sql_interval_pack(struct interval v, char out[INTERVAL_BYTES]);
struct interval sql_interval_unpack(const char *packed);
size_t sql_format_interval(struct interval v, char out[INTERVAL_TEXT_BYTES]);
/* "5 min", "1 year 2 mons -3 days 04:05:06", "1-2" (years-months), "P1Y2M3DT4H", "90" (seconds),
 * "3 days ago".  -EINVAL: no interval, or one that is too long. */
int sql_parse_interval(const char *text, size_t size, struct interval *ret);
/* false, and nothing is changed: -x is not of every x. */
bool sql_interval_negate(struct interval *v);
/* A number of ns as PostgreSQL shows the difference of two times: days, and less than one. */
struct interval sql_interval_of(int64_t ns);
/* Can a number of ns stand for it, so that sql_interval_of() gives the same three numbers? */
bool sql_interval_is_ns(struct interval v, int64_t *ret);
/* Give the ns that it moves a time by when its months are 0.  -ERANGE */
int sql_interval_ns(struct interval v, int64_t *ret);
double sql_interval_get(enum time_part part, struct interval v);
/* Months and the rest between two times, as PostgreSQL's age(to, from). */
struct interval sql_age(int64_t to, int64_t from);

/* ---- times as text ---- */

/* As sql_parse_timestamp(), but only the day is looked at: its midnight. */
int sql_parse_date(const char *text, size_t size, int64_t *ret);

#endif
