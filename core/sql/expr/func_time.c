/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/expr/func_time.c - functions of timestamps and intervals.
 *
 * The query's thread only.  All times are UTC; calendars are timestamp.c's.
 */
#include "core/sql/expr/kernel.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#include "core/base/err.h"
#include "core/sql/value/timestamp_parts.h"

static int bad_part(struct run *r, const struct step *st, struct text t)
{
    return sql_error(
        r->q->text, r->q->size, st->expr->pos, -EINVAL,
        "a timestamp has no part '%.*s'; use microsecond, millisecond, second, minute, hour, day, "
        "week, month, quarter, year, decade, century, millennium, dow, doy, isodow, isoyear, epoch",
        (int)(t.size > 40 ? 40 : t.size), t.data);
}

KERNEL(date_trunc)
{
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        struct text t = st->a[0]->t[i];
        enum time_part part = sql_short_part(t.data, t.size);
        if (part >= PART_DOW && (part < PART_DECADE || part == PART_NONE))
            return bad_part(r, st, t);
        st->dst->i[i] = sql_time_trunc(part, st->a[1]->i[i]);
        if (st->dst->i[i] > st->a[1]->i[i])
            return sql_run_error(r, st, -ERANGE, "timestamp out of range");
    }
    return 0;
}

static bool is_named(struct text t, const char *name)
{
    return t.size == strlen(name) && strncasecmp(t.data, name, t.size) == 0;
}

/* julian: the number of days since 4713 BC at midnight, and how much of the day has gone. */
static double julian_day(int64_t ns)
{
    const int64_t day = INT64_C(86400000000000);
    int64_t days = ns / day - (ns % day < 0);
    return (double)days + 2440588 + (double)(ns - days * day) / (double)day;
}

KERNEL(date_part)
{
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        struct text t = st->a[0]->t[i];
        enum time_part part = sql_short_part(t.data, t.size);
        bool zone = is_named(t, "timezone") || is_named(t, "timezone_hour") ||
                    is_named(t, "timezone_minute"); /* all times are UTC */
        bool days = is_named(t, "julian");
        if (part == PART_NONE && !days && !zone)
            return bad_part(r, st, t);
        st->dst->d[i] = days   ? julian_day(st->a[1]->i[i])
                        : zone ? 0
                               : sql_time_get(part, st->a[1]->i[i]);
    }
    return 0;
}

/* hour(ts), minute(ts) ...: the function is named like the part. */
KERNEL(part_int)
{
    const char *name = st->expr->func->name;
    enum time_part part = sql_time_part(name, strlen(name));
    ROWS(st->dst->i[i] = (int64_t)sql_time_get(part, st->a[0]->i[i]););
    return 0;
}

KERNEL(epoch)
{
    ROWS(st->dst->d[i] = sql_seconds(st->a[0]->i[i]););
    return 0;
}

KERNEL(epoch_ns)
{
    ROWS(st->dst->i[i] = st->a[0]->i[i];);
    return 0;
}

KERNEL(epoch_ms)
{
    int64_t unit = st->expr->func->name[6] == 'm' ? 1000000 : 1000;
    ROWS(int64_t ns = st->a[0]->i[i]; st->dst->i[i] = ns / unit - (ns % unit < 0););
    return 0;
}

/* date_diff('hour', from, to): how often a new one began between them. */
KERNEL(date_diff)
{
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        struct text t = st->a[0]->t[i];
        enum time_part part = sql_short_part(t.data, t.size);
        int64_t from = st->a[1]->i[i], to = st->a[2]->i[i];
        if (part >= PART_DOW)
            return bad_part(r, st, t);
        if (part < PART_MONTH) {
            static const int64_t units[] = {1000,
                                            1000000,
                                            1000000000,
                                            INT64_C(60000000000),
                                            INT64_C(3600000000000),
                                            INT64_C(86400000000000),
                                            INT64_C(604800000000000)};
            __int128 apart = (__int128)sql_time_trunc(part, to) - sql_time_trunc(part, from);
            st->dst->i[i] = (int64_t)(apart / units[part]);
            continue;
        }
        int64_t years = (int64_t)(sql_time_get(PART_YEAR, to) - sql_time_get(PART_YEAR, from));
        int64_t rest = (int64_t)(sql_time_get(part, to) - sql_time_get(part, from));
        st->dst->i[i] = part == PART_MONTH     ? 12 * years + rest
                        : part == PART_QUARTER ? 4 * years + rest
                                               : years;
    }
    return 0;
}

/* timestamp(3), interval(0): to so many digits of a second, halves away from zero. */
KERNEL(round_time)
{
    static const int64_t units[] = {1000000000, 100000000, 10000000, 1000000, 100000,
                                    10000,      1000,      100,      10,      1};
    bool over = false;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        int64_t ns = st->a[0]->i[i], digits = st->a[1]->i[i];
        if (digits < 0 || digits > 9)
            return sql_run_error(r, st, -EINVAL, "a time is rounded to 0 to 9 digits of a second");
        int64_t unit = units[digits], rest = ns % unit, up = 2 * (rest < 0 ? -rest : rest) >= unit;
        over |= __builtin_add_overflow(ns - rest, up * (rest < 0 ? -unit : unit), &st->dst->i[i]);
    }
    return over ? sql_run_error(r, st, -ERANGE, "timestamp out of range") : 0;
}

/* To microseconds, as PostgreSQL: today's seconds, as a double, have no finer digits. */
KERNEL(to_timestamp)
{
    bool bad = false;
    ROWS(double us = rint(st->a[0]->d[i] * 1e6); bool in = us > -9.2e15 && us < 9.2e15; bad |= !in;
         st->dst->i[i] = in ? (int64_t)us * 1000 : 0;);
    return bad ? sql_run_error(r, st, -ERANGE, "seconds outside the years 1678 to 2262") : 0;
}

KERNEL(to_timestamp_int)
{
    bool bad = false;
    ROWS(bad |= __builtin_mul_overflow(st->a[0]->i[i], INT64_C(1000000000), &st->dst->i[i]););
    return bad ? sql_run_error(r, st, -ERANGE, "seconds outside the years 1678 to 2262") : 0;
}

/* date_bin(width, ts[, origin]) */
KERNEL(date_bin)
{
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        int64_t width = st->a[0]->i[i], ns = st->a[1]->i[i];
        int64_t origin = st->n_args > 2 ? st->a[2]->i[i] : 0, since;
        if (width <= 0)
            return sql_run_error(r, st, -EINVAL, "the width of a time bucket must be positive");
        if (__builtin_sub_overflow(ns, origin, &since))
            return sql_run_error(r, st, -ERANGE, "timestamp out of range");
        int64_t rest = since % width;
        st->dst->i[i] = ns - (rest < 0 ? rest + width : rest);
    }
    return 0;
}

/* now() - 60: a bare number beside a time is seconds. */
static int shift_time(struct run *r, struct step *st, uint32_t row, int64_t ns, double seconds,
                      int sign)
{
    double by = rint(seconds * 1e9) * sign;
    if (!(by > -9.2e18 && by < 9.2e18) || __builtin_add_overflow(ns, (int64_t)by, &st->dst->i[row]))
        return sql_run_error(r, st, -ERANGE, "timestamp out of range");
    return 0;
}

KERNEL(minus_seconds)
{
    int rc = 0;
    ROWS(if (rc == 0) rc = shift_time(r, st, i, st->a[0]->i[i], st->a[1]->d[i], -1););
    return rc;
}

KERNEL(plus_seconds)
{
    int rc = 0;
    ROWS(if (rc == 0) rc = shift_time(r, st, i, st->a[0]->i[i], st->a[1]->d[i], 1););
    return rc;
}

/* interval times or by a number */
KERNEL(scale_interval)
{
    bool divide = st->expr->func->name[0] == '/';
    uint32_t number = st->a[0]->type != SQL_DOUBLE; /* its place: 0.5 * interval */
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        double by = st->a[number]->d[i], have = (double)st->a[!number]->i[i];
        if (divide && by == 0)
            return sql_run_error(r, st, -EDOM, "division by zero (nullif(x, 0) avoids it)");
        double ns = divide ? have / by : have * by;
        if (!(ns > -9.2e18 && ns < 9.2e18))
            return sql_run_error(r, st, -ERANGE, "interval out of range");
        st->dst->i[i] = (int64_t)rint(ns);
    }
    return 0;
}

const struct func sql_time_funcs[] = {{"+", "sd", 's', 0, plus_seconds},
                                      {"-", "sd", 's', 0, minus_seconds},
                                      {"*", "vd", 'v', 0, scale_interval},
                                      {"*", "dv", 'v', 0, scale_interval},
                                      {"/", "vd", 'v', 0, scale_interval},
                                      {"date_trunc", "ts", 's', 0, date_trunc},
                                      {"date_part", "ts", 'd', 0, date_part},
                                      {"hour", "s", 'i', 0, part_int},
                                      {"minute", "s", 'i', 0, part_int},
                                      {"second", "s", 'i', 0, part_int},
                                      {"day", "s", 'i', 0, part_int},
                                      {"week", "s", 'i', 0, part_int},
                                      {"month", "s", 'i', 0, part_int},
                                      {"quarter", "s", 'i', 0, part_int},
                                      {"year", "s", 'i', 0, part_int},
                                      {"dow", "s", 'i', 0, part_int},
                                      {"doy", "s", 'i', 0, part_int},
                                      {"isodow", "s", 'i', 0, part_int},
                                      {"isoyear", "s", 'i', 0, part_int},
                                      {"epoch", "s", 'd', 0, epoch},
                                      {"epoch", "v", 'd', 0, epoch},
                                      {"epoch_ns", "s", 'i', 0, epoch_ns},
                                      {"epoch_ns", "v", 'i', 0, epoch_ns},
                                      {"epoch_ms", "s", 'i', 0, epoch_ms},
                                      {"epoch_us", "s", 'i', 0, epoch_ms},
                                      {"date_diff", "tss", 'i', 0, date_diff},
                                      {"datediff", "tss", 'i', 0, date_diff},
                                      {"round", "si", 's', 0, round_time},
                                      {"round", "vi", 'v', 0, round_time},
                                      {"to_timestamp", "i", 's', 0, to_timestamp_int},
                                      {"to_timestamp", "d", 's', 0, to_timestamp},
                                      {"date_bin", "vs", 's', 0, date_bin},
                                      {"date_bin", "vss", 's', 0, date_bin},
                                      {"time_bucket", "vs", 's', 0, date_bin},
                                      {"time_bucket", "vss", 's', 0, date_bin},
                                      {NULL, NULL, 0, 0, NULL}};
