/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/expr/func_interval.c - dates, and intervals of three numbers: what + - * and / do.
 *
 * The query's thread only.  Intervals that a number of ns can stand for, as what lies between two
 * times, are such numbers: func.c and func_time.c.
 */
#include "core/sql/expr/kernel.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "core/sql/value/timestamp_parts.h"

#define DAY_NS (INT64_C(86400) * 1000000000)
#define MONTH_DAYS 30 /* of a part of a month: PostgreSQL's DAYS_PER_MONTH */

static int out_of_range(struct run *r, struct step *st)
{
    return sql_run_error(r, st, -ERANGE, "interval out of range");
}

static struct interval interval_at(const struct vec *v, uint32_t i)
{
    if (v->type == SQL_INTERVAL)
        return sql_interval_of(v->i[i]);
    return sql_interval_unpack(v->t[i].data);
}

int sql_put_interval(struct run *r, struct vec *dst, uint32_t i, struct interval v)
{
    char *packed = sql_scratch(r, INTERVAL_BYTES);
    if (!packed)
        return -ENOMEM;
    sql_interval_pack(v, packed);
    dst->t[i] = (struct text){packed, INTERVAL_BYTES};
    return 0;
}

/* ---- arithmetic ---- */

/* Months first, then the rest: PostgreSQL's order. */
static int move_by(struct run *r, struct step *st, int64_t ns, struct interval by, int64_t *ret)
{
    int64_t rest;
    if ((by.months && sql_add_months(ns, by.months, &ns) < 0) || sql_interval_ns(by, &rest) < 0 ||
        __builtin_add_overflow(ns, rest, ret))
        return sql_run_error(r, st, -ERANGE, "timestamp out of range");
    return 0;
}

KERNEL(move_time)
{
    bool minus = st->expr->func->name[0] == '-';
    uint32_t time = st->a[0]->type == SQL_CALENDAR; /* interval + timestamp */
    int rc = 0;
    for (uint32_t k = 0; k < n && rc == 0; k++) {
        uint32_t i = sel ? sel[k] : k;
        struct interval by = interval_at(st->a[!time], i);
        if (minus && !sql_interval_negate(&by))
            return out_of_range(r, st);
        rc = move_by(r, st, st->a[time]->i[i], by, &st->dst->i[i]);
    }
    return rc;
}

KERNEL(add_intervals)
{
    bool minus = st->expr->func->name[0] == '-';
    int rc = 0;
    for (uint32_t k = 0; k < n && rc == 0; k++) {
        uint32_t i = sel ? sel[k] : k;
        struct interval a = interval_at(st->a[0], i), b = interval_at(st->a[1], i);
        if ((minus && !sql_interval_negate(&b)) || __builtin_add_overflow(a.ns, b.ns, &a.ns) ||
            __builtin_add_overflow(a.months, b.months, &a.months) ||
            __builtin_add_overflow(a.days, b.days, &a.days))
            return out_of_range(r, st);
        rc = sql_put_interval(r, st->dst, i, a);
    }
    return rc;
}

KERNEL(negate)
{
    int rc = 0;
    for (uint32_t k = 0; k < n && rc == 0; k++) {
        uint32_t i = sel ? sel[k] : k;
        struct interval v = interval_at(st->a[0], i);
        rc = sql_interval_negate(&v) ? sql_put_interval(r, st->dst, i, v) : out_of_range(r, st);
    }
    return rc;
}

/* A part of a month becomes as much of 30 days, and a part of a day time: interval_mul() of
 * PostgreSQL 15's timestamp.c, in ns. */
static bool scale_by(struct interval v, double by, bool divide, struct interval *ret)
{
    int64_t times = fabs(by) < 9e15 ? (int64_t)by : 0;
    if (!divide && times && (double)times == by) { /* to the last ns */
        __int128 ns = (__int128)v.ns * times, days = (__int128)v.days * times,
                 months = (__int128)v.months * times;
        *ret =
            (struct interval){.ns = (int64_t)ns, .months = (int32_t)months, .days = (int32_t)days};
        return ret->ns == ns && ret->months == months && ret->days == days;
    }
    double months = divide ? v.months / by : v.months * by;
    double days = divide ? v.days / by : v.days * by;
    double ns = divide ? (double)v.ns / by : (double)v.ns * by;
    double of_months = (months - trunc(months)) * MONTH_DAYS;
    if (fabs(of_months - rint(of_months)) < 1e-9) /* 0.3 of a month are 9 days */
        of_months = rint(of_months);
    double of_days = rint((days - trunc(days) + of_months - trunc(of_months)) * (double)DAY_NS);
    days = trunc(days) + trunc(of_months);
    if (fabs(of_days) >= (double)DAY_NS) { /* the two parts together */
        double whole = trunc(of_days / (double)DAY_NS);
        days += whole;
        of_days -= whole * (double)DAY_NS;
    }
    ns = rint(ns + of_days);
    if (!(fabs(months) < INT32_MAX && fabs(days) < INT32_MAX && fabs(ns) < 9.2e18))
        return false;
    *ret = (struct interval){.ns = (int64_t)ns, .months = (int32_t)months, .days = (int32_t)days};
    return true;
}

KERNEL(scale)
{
    bool divide = st->expr->func->name[0] == '/';
    uint32_t number = st->a[0]->type != SQL_DOUBLE; /* its place: 0.5 * interval */
    int rc = 0;
    for (uint32_t k = 0; k < n && rc == 0; k++) {
        uint32_t i = sel ? sel[k] : k;
        struct interval v = interval_at(st->a[!number], i);
        double by = st->a[number]->d[i];
        if (divide && by == 0)
            return sql_run_error(r, st, -EDOM, "division by zero (nullif(x, 0) avoids it)");
        if (!scale_by(v, by, divide, &v))
            return out_of_range(r, st);
        rc = sql_put_interval(r, st->dst, i, v);
    }
    return rc;
}

KERNEL(age)
{
    int rc = 0;
    for (uint32_t k = 0; k < n && rc == 0; k++) {
        uint32_t i = sel ? sel[k] : k;
        rc = sql_put_interval(r, st->dst, i, sql_age(st->a[0]->i[i], st->a[1]->i[i]));
    }
    return rc;
}

/* ---- parts ---- */

KERNEL(interval_part)
{
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        struct text t = st->a[0]->t[i];
        double value = sql_interval_get(sql_short_part(t.data, t.size), interval_at(st->a[1], i));
        if (value != value)
            return sql_error(r->q->text, r->q->size, st->expr->pos, -EINVAL,
                             "an interval has no part '%.*s'; use microsecond, millisecond, "
                             "second, minute, hour, day, week, month, quarter, year, epoch",
                             (int)(t.size > 40 ? 40 : t.size), t.data);
        st->dst->d[i] = value;
    }
    return 0;
}

KERNEL(interval_epoch)
{
    ROWS(st->dst->d[i] = sql_interval_get(PART_EPOCH, interval_at(st->a[0], i)););
    return 0;
}

/* date_trunc('hour', interval): towards zero. */
KERNEL(trunc_interval)
{
    static const int64_t sizes[] = {1000, 1000000, 1000000000, INT64_C(60000000000),
                                    INT64_C(3600000000000)};
    int rc = 0;
    for (uint32_t k = 0; k < n && rc == 0; k++) {
        uint32_t i = sel ? sel[k] : k;
        struct text t = st->a[0]->t[i];
        enum time_part part = sql_short_part(t.data, t.size);
        struct interval v = interval_at(st->a[1], i);
        int32_t months = part == PART_MONTH ? 1 : part == PART_QUARTER ? 3 : 12;
        if (part > PART_YEAR || part == PART_WEEK)
            return sql_run_error(r, st, -EINVAL,
                                 "an interval is cut to microseconds, milliseconds, seconds, "
                                 "minutes, hours, days, months, quarters or years");
        if (part < PART_DAY)
            v.ns -= v.ns % sizes[part];
        else if (part == PART_DAY)
            v.ns = 0;
        else
            v = (struct interval){.months = v.months - v.months % months};
        rc = sql_put_interval(r, st->dst, i, v);
    }
    return rc;
}

/* ---- dates ---- */

KERNEL(move_date)
{
    uint32_t date = st->a[0]->type != SQL_DATE; /* 7 + date */
    bool minus = st->expr->func->name[0] == '-', over = false;
    ROWS(int64_t days = st->a[!date]->i[i]; int64_t by; over |= minus && days == INT64_MIN;
         over |= __builtin_mul_overflow(minus && days != INT64_MIN ? -days : days, DAY_NS, &by) ||
                 __builtin_add_overflow(st->a[date]->i[i], by, &st->dst->i[i]););
    return over ? sql_run_error(r, st, -ERANGE, "date out of range") : 0;
}

KERNEL(days_between)
{
    ROWS(st->dst->i[i] =
             (int64_t)(((__int128)st->a[0]->i[i] - (__int128)st->a[1]->i[i]) / DAY_NS););
    return 0;
}

KERNEL(no_part_of_day)
{
    (void)sel;
    (void)n;
    return sql_run_error(
        r, st, -EINVAL,
        "a date moves by whole days, or by an interval: date + interval '36 hours'");
}

KERNEL(bin_months)
{
    (void)sel;
    (void)n;
    return sql_run_error(r, st, -EINVAL,
                         "a time bucket cannot be months or years, which have no fixed length; "
                         "date_trunc('month', ts) follows the calendar");
}

const struct func sql_interval_funcs[] = {
    {"+", "sm", 's', 0, move_time},
    {"+", "ms", 's', 0, move_time},
    {"-", "sm", 's', 0, move_time},
    {"+", "mm", 'm', 0, add_intervals},
    {"-", "mm", 'm', 0, add_intervals},
    {"*", "md", 'm', 0, scale},
    {"*", "dm", 'm', 0, scale},
    {"/", "md", 'm', 0, scale},
    {"neg", "m", 'm', 0, negate},
    {"age", "ss", 'm', 0, age},
    {"date_part", "tm", 'd', 0, interval_part},
    {"date_part", "tv", 'd', 0, interval_part},
    {"date_trunc", "tm", 'm', 0, trunc_interval},
    {"epoch", "m", 'd', 0, interval_epoch},
    {"+", "Di", 'D', 0, move_date},
    {"+", "iD", 'D', 0, move_date},
    {"-", "Di", 'D', 0, move_date},
    {"+", "Dd", 'D', 0, no_part_of_day},
    {"+", "dD", 'D', 0, no_part_of_day},
    {"-", "Dd", 'D', 0, no_part_of_day},
    {"-", "DD", 'i', 0, days_between},
    {"date_bin", "ms", 's', 0, bin_months},
    {"date_bin", "mss", 's', 0, bin_months},
    {"time_bucket", "ms", 's', 0, bin_months},
    {"time_bucket", "mss", 's', 0, bin_months},
    {NULL, NULL, 0, 0, NULL},
};
