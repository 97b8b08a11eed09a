/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/value/timestamp.c - timestamps and dates as text and parts; always UTC, no locale.
 *
 * Any thread.  Intervals are in interval.c.
 */
#include "core/sql/value/timestamp_parts.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "core/base/clock.h"
#include "core/base/err.h"

#define DAY_S INT64_C(86400)
#define NS INT64_C(1000000000)

struct civil {
    int64_t year;
    uint32_t month, day;
};

/* Days since 1970-01-01 to a date of the proleptic Gregorian calendar, and back.  Years are
 * counted from March, so that the leap day is the last of its year. */
static int64_t days_from_civil(struct civil c)
{
    int64_t y = c.month <= 2 ? c.year - 1 : c.year;
    int64_t era = (y >= 0 ? y : y - 399) / 400;
    int64_t of_era = y - era * 400;
    int64_t of_year =
        (153 * (int64_t)(c.month > 2 ? c.month - 3 : c.month + 9) + 2) / 5 + c.day - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static struct civil civil_from_days(int64_t days)
{
    days += 719468;
    int64_t era = (days >= 0 ? days : days - 146096) / 146097;
    int64_t of_era = days - era * 146097;
    int64_t year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    int64_t of_year = of_era - (365 * year + year / 4 - year / 100);
    int64_t m = (5 * of_year + 2) / 153;
    struct civil c = {.year = year + era * 400,
                      .day = (uint32_t)(of_year - (153 * m + 2) / 5 + 1),
                      .month = (uint32_t)(m < 10 ? m + 3 : m - 9)};
    c.year += c.month <= 2;
    return c;
}

int64_t sql_day_number(int64_t year, uint32_t month, uint32_t day)
{
    return days_from_civil((struct civil){year, month, day});
}

int64_t sql_year_of_day(int64_t day)
{
    return civil_from_days(day).year;
}

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

enum time_part sql_time_part(const char *name, size_t size)
{
    static const char *const names[] = {
        "microsecond", "millisecond", "second",  "minute", "hour",    "day",
        "week",        "month",       "quarter", "year",   "dow",     "doy",
        "isodow",      "isoyear",     "epoch",   "decade", "century", "millennium"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        size_t n = strlen(names[i]);
        if ((size == n || (size == n + 1 && (name[n] == 's' || name[n] == 'S'))) &&
            strncasecmp(name, names[i], n) == 0)
            return (enum time_part)i;
    }
    return PART_NONE;
}

enum time_part sql_short_part(const char *name, size_t size)
{
    static const struct {
        const char *name;
        enum time_part part;
    } names[] = {{"us", PART_MICROSECOND},
                 {"usec", PART_MICROSECOND},
                 {"usecs", PART_MICROSECOND},
                 {"ms", PART_MILLISECOND},
                 {"msec", PART_MILLISECOND},
                 {"msecs", PART_MILLISECOND},
                 {"s", PART_SECOND},
                 {"sec", PART_SECOND},
                 {"secs", PART_SECOND},
                 {"m", PART_MINUTE},
                 {"min", PART_MINUTE},
                 {"mins", PART_MINUTE},
                 {"h", PART_HOUR},
                 {"hr", PART_HOUR},
                 {"hrs", PART_HOUR},
                 {"d", PART_DAY},
                 {"w", PART_WEEK},
                 {"mon", PART_MONTH},
                 {"mons", PART_MONTH},
                 {"qtr", PART_QUARTER},
                 {"y", PART_YEAR},
                 {"yr", PART_YEAR},
                 {"yrs", PART_YEAR},
                 {"dec", PART_DECADE},
                 {"cent", PART_CENTURY},
                 {"c", PART_CENTURY},
                 {"centuries", PART_CENTURY},
                 {"mil", PART_MILLENNIUM},
                 {"millennia", PART_MILLENNIUM}};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strlen(names[i].name) == size && strncasecmp(name, names[i].name, size) == 0)
            return names[i].part;
    return sql_time_part(name, size);
}

/* The length of a part that is a day or less. */
static int64_t part_ns(enum time_part part)
{
    static const int64_t sizes[] = {1000, 1000000, NS, 60 * NS, 3600 * NS, DAY_S * NS};
    return sizes[part];
}

/* A beginning before the first time that 64 bits can say wraps to one that is later. */
static int64_t of_days(int64_t days)
{
    return (int64_t)((uint64_t)days * (uint64_t)(DAY_S * NS));
}

int64_t sql_time_trunc(enum time_part part, int64_t ns)
{
    if (part <= PART_DAY)
        return (int64_t)((uint64_t)floor_div(ns, part_ns(part)) * (uint64_t)part_ns(part));
    int64_t days = floor_div(ns, DAY_S * NS);
    if (part == PART_WEEK) /* weeks begin on Monday; 1970-01-01 was a Thursday */
        return of_days(floor_div(days + 3, 7) * 7 - 3);
    struct civil c = civil_from_days(days);
    c.day = 1;
    if (part == PART_QUARTER)
        c.month = (c.month - 1) / 3 * 3 + 1;
    if (part >= PART_YEAR)
        c.month = 1;
    if (part == PART_DECADE)
        c.year -= c.year % 10;
    if (part == PART_CENTURY) /* the 21st began in 2001 */
        c.year -= (c.year - 1) % 100;
    if (part == PART_MILLENNIUM)
        c.year -= (c.year - 1) % 1000;
    return of_days(days_from_civil(c));
}

double sql_clock_get(enum time_part part, int64_t of_day_ns)
{
    if (part == PART_HOUR)
        return (double)(of_day_ns / part_ns(PART_HOUR));
    if (part == PART_MINUTE)
        return (double)(of_day_ns / part_ns(PART_MINUTE) % 60);
    return (double)(of_day_ns % part_ns(PART_MINUTE)) / (double)part_ns(part);
}

/* More digits than a double has are divided; what they leave tells a half from more than a half. */
double sql_seconds(int64_t ns)
{
    uint64_t left = ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns;
    int shift = left ? __builtin_clzll(left) + 29 : 0;
    unsigned __int128 scaled = (unsigned __int128)left << shift;
    uint64_t whole = (uint64_t)(scaled / NS) | (scaled % NS != 0);
    double seconds = ldexp((double)whole, -shift);
    return ns < 0 ? -seconds : seconds;
}

double sql_time_get(enum time_part part, int64_t ns)
{
    int64_t days = floor_div(ns, DAY_S * NS);
    struct civil c = civil_from_days(days);
    switch (part) {
    case PART_MICROSECOND:
    case PART_MILLISECOND:
    case PART_SECOND:
    case PART_MINUTE:
    case PART_HOUR:
        return sql_clock_get(part, ns - days * DAY_S * NS);
    case PART_DAY:
        return c.day;
    case PART_WEEK: { /* ISO: the week of this week's Thursday */
        int64_t thursday = floor_div(days + 3, 7) * 7;
        struct civil t = civil_from_days(thursday);
        return (double)((thursday - days_from_civil((struct civil){t.year, 1, 1})) / 7 + 1);
    }
    case PART_MONTH:
        return c.month;
    case PART_QUARTER:
        return (double)((c.month - 1) / 3 + 1);
    case PART_YEAR:
        return (double)c.year;
    case PART_DOW:
        return (double)(((days + 4) % 7 + 7) % 7);
    case PART_DOY:
        return (double)(days - days_from_civil((struct civil){c.year, 1, 1}) + 1);
    case PART_ISODOW: /* Monday is 1 */
        return (double)(((days + 3) % 7 + 7) % 7 + 1);
    case PART_ISOYEAR:
        return (double)civil_from_days(floor_div(days + 3, 7) * 7).year;
    case PART_EPOCH:
        return sql_seconds(ns);
    case PART_DECADE:
        return (double)(c.year / 10);
    case PART_CENTURY:
        return (double)((c.year + 99) / 100);
    case PART_MILLENNIUM:
        return (double)((c.year + 999) / 1000);
    case PART_NONE:
        break;
    }
    return 0;
}

size_t sql_format_timestamp(int64_t ns, bool iso, char out[40])
{
    int64_t days = floor_div(ns, DAY_S * NS);
    int64_t of_day = ns - days * DAY_S * NS;
    struct civil c = civil_from_days(days);
    int n = snprintf(out, 40, "%04d-%02u-%02u%c%02d:%02d:%02d.%0*d%s", (int)c.year, c.month, c.day,
                     iso ? 'T' : ' ', (int)(of_day / (3600 * NS)), (int)(of_day / (60 * NS) % 60),
                     (int)(of_day / NS % 60), iso ? 9 : 6,
                     (int)(iso ? of_day % NS : of_day % NS / 1000), iso ? "Z" : "");
    return (size_t)n;
}

/* "2024-05-01 10:00:00.5" */
size_t sql_format_exactly(int64_t ns, char out[40])
{
    char iso[40]; /* nine digits, and Z */
    size_t n = sql_format_timestamp(ns, true, iso) - 1;
    while (iso[n - 1] == '0')
        n--;
    n -= iso[n - 1] == '.';
    n = n < 19 ? 19 : n; /* the zeros of a whole second stay */
    memcpy(out, iso, n);
    out[10] = ' ';
    out[n] = '\0';
    return n;
}

size_t sql_format_date(int64_t ns, char out[40])
{
    (void)sql_format_timestamp(ns, false, out);
    out[10] = '\0';
    return 10;
}

static uint32_t days_in_month(int64_t year, uint32_t month)
{
    struct civil next = {month == 12 ? year + 1 : year, month == 12 ? 1 : month + 1, 1};
    return (uint32_t)(days_from_civil(next) - days_from_civil((struct civil){year, month, 1}));
}

int sql_add_months(int64_t ns, int64_t months, int64_t *ret)
{
    int64_t days = floor_div(ns, DAY_S * NS), of_day = ns - days * DAY_S * NS;
    struct civil c = civil_from_days(days);
    int64_t count = c.year * 12 + (int64_t)c.month - 1 + months;
    c.year = floor_div(count, 12);
    c.month = (uint32_t)(count - c.year * 12) + 1;
    if (c.year < 1677 || c.year > 2262)
        return -ERANGE;
    uint32_t last = days_in_month(c.year, c.month);
    c.day = c.day < last ? c.day : last;
    __int128 moment = (__int128)days_from_civil(c) * DAY_S * NS + of_day;
    *ret = (int64_t)moment;
    return moment == *ret ? 0 : -ERANGE;
}

/* Whole months that lie between, and what is left.  A day that is borrowed is one of the earlier
 * time's month: PostgreSQL 15, timestamp_age(). */
struct interval sql_age(int64_t to, int64_t from)
{
    bool negative = to < from;
    int64_t late = negative ? from : to, early = negative ? to : from;
    int64_t late_days = floor_div(late, DAY_S * NS), early_days = floor_div(early, DAY_S * NS);
    struct civil a = civil_from_days(early_days), b = civil_from_days(late_days);
    int64_t of_day = (late - late_days * DAY_S * NS) - (early - early_days * DAY_S * NS);
    int64_t months = (b.year - a.year) * 12 + (int64_t)b.month - (int64_t)a.month;
    int64_t days = (int64_t)b.day - (int64_t)a.day;
    if (of_day < 0) {
        of_day += DAY_S * NS;
        days--;
    }
    if (days < 0) {
        days += days_in_month(a.year, a.month);
        months--;
    }
    struct interval v = {.ns = of_day, .months = (int32_t)months, .days = (int32_t)days};
    if (negative)
        (void)sql_interval_negate(&v);
    return v;
}

/* ---- reading ---- */

struct reader {
    const char *p, *end;
};

static void skip_blanks(struct reader *r)
{
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\t' || *r->p == '\n'))
        r->p++;
}

static bool read_digits(struct reader *r, uint32_t most, int64_t *ret)
{
    int64_t v = 0;
    uint32_t n = 0;
    for (; r->p < r->end && *r->p >= '0' && *r->p <= '9' && n < most; r->p++, n++)
        v = v * 10 + (*r->p - '0');
    *ret = v;
    return n > 0;
}

static bool take_char(struct reader *r, char c)
{
    if (r->p >= r->end || *r->p != c)
        return false;
    r->p++;
    return true;
}

/* ".123" as ns; more than nine digits are cut. */
static int64_t read_fraction(struct reader *r)
{
    int64_t ns = 0, scale = NS / 10;
    if (!take_char(r, '.'))
        return 0;
    for (; r->p < r->end && *r->p >= '0' && *r->p <= '9'; r->p++, scale /= 10)
        ns += (*r->p - '0') * scale;
    return ns;
}

static bool clock_text(struct reader *r, int64_t *ret)
{
    int64_t h, m = 0, s = 0;
    if (!read_digits(r, 6, &h) || !take_char(r, ':') || !read_digits(r, 2, &m) || m > 59)
        return false;
    if (take_char(r, ':') && (!read_digits(r, 2, &s) || s > 60))
        return false;
    *ret = (h * 3600 + m * 60 + s) * NS + read_fraction(r);
    return true;
}

static bool read_zone(struct reader *r, int64_t *ns)
{
    int64_t h = 0, m = 0;
    skip_blanks(r);
    if (take_char(r, 'Z') || take_char(r, 'z') || r->p == r->end)
        return true;
    if (r->end - r->p == 3 && strncasecmp(r->p, "utc", 3) == 0) {
        r->p += 3;
        return true;
    }
    int sign = *r->p == '-' ? -1 : 1;
    if ((!take_char(r, '+') && !take_char(r, '-')) || !read_digits(r, 2, &h))
        return false;
    if (take_char(r, ':') || r->p < r->end)
        if (!read_digits(r, 2, &m))
            return false;
    if (h > 15 || m > 59) /* as PostgreSQL: no place is further from Greenwich */
        return false;
    *ns -= sign * (h * 3600 + m * 60) * NS;
    return true;
}

/* "2024-05-01", or all of it in eight digits. */
static bool date_text(struct reader *r, int64_t *ret_days)
{
    int64_t year, month, day;
    struct reader ahead = *r;
    bool joined = read_digits(&ahead, 8, &year) && ahead.p - r->p == 8;
    if (!read_digits(r, 4, &year) || (!joined && !take_char(r, '-')) ||
        !read_digits(r, 2, &month) || (!joined && !take_char(r, '-')) || !read_digits(r, 2, &day) ||
        month < 1 || month > 12 || day < 1 || day > 31 || year < 1678 || year > 2261)
        return false;
    *ret_days = days_from_civil((struct civil){year, (uint32_t)month, (uint32_t)day});
    return civil_from_days(*ret_days).day == (uint32_t)day;
}

static int parse_moment(const char *text, size_t size, int64_t *ret_day, int64_t *ret)
{
    struct reader r = {text, text + size};
    int64_t days = 0, of_day = 0;
    skip_blanks(&r);
    if (size == 5 && strncasecmp(text, "epoch", 5) == 0)
        r.p = r.end;
    else if (!date_text(&r, &days))
        return -EINVAL;
    if (r.p < r.end && (take_char(&r, 'T') || take_char(&r, 't') || take_char(&r, ' '))) {
        skip_blanks(&r);
        if (r.p < r.end && (!clock_text(&r, &of_day) || of_day > DAY_S * NS))
            return -EINVAL;
    }
    *ret_day = days * DAY_S * NS;
    int64_t ns = *ret_day + of_day;
    if (!read_zone(&r, &ns))
        return -EINVAL;
    skip_blanks(&r);
    if (r.p != r.end)
        return -EINVAL;
    *ret = ns;
    return 0;
}

int sql_parse_timestamp(const char *text, size_t size, int64_t *ret)
{
    int64_t day;
    return parse_moment(text, size, &day, ret);
}

int sql_parse_date(const char *text, size_t size, int64_t *ret)
{
    int64_t ns;
    return parse_moment(text, size, ret, &ns);
}
