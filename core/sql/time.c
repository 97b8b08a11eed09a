/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/time.c - timestamps and intervals as text and parts; always UTC, no locale.
 *
 * Any thread.  A month is taken as 30 days in intervals, since an interval is a number of ns.
 */
#include "core/sql/times.h"

#include <errno.h>
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

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

enum time_part sql_time_part(const char *name, size_t size)
{
    static const char *const names[] = {"microsecond", "millisecond", "second", "minute",  "hour",
                                        "day",         "week",        "month",  "quarter", "year",
                                        "dow",         "doy",         "isodow", "isoyear", "epoch"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        size_t n = strlen(names[i]);
        if ((size == n || (size == n + 1 && (name[n] == 's' || name[n] == 'S'))) &&
            strncasecmp(name, names[i], n) == 0)
            return (enum time_part)i;
    }
    return PART_NONE;
}

static int64_t part_ns(enum time_part part)
{
    static const int64_t sizes[] = {1000,
                                    1000000,
                                    NS,
                                    60 * NS,
                                    3600 * NS,
                                    DAY_S * NS,
                                    7 * DAY_S * NS,
                                    30 * DAY_S * NS,
                                    91 * DAY_S * NS,
                                    365 * DAY_S * NS};
    return part <= PART_YEAR ? sizes[part] : 0;
}

int64_t sql_time_trunc(enum time_part part, int64_t ns)
{
    if (part <= PART_DAY)
        return floor_div(ns, part_ns(part)) * part_ns(part);
    int64_t days = floor_div(ns, DAY_S * NS);
    if (part == PART_WEEK) /* weeks begin on Monday; 1970-01-01 was a Thursday */
        return (floor_div(days + 3, 7) * 7 - 3) * DAY_S * NS;
    struct civil c = civil_from_days(days);
    c.day = 1;
    if (part == PART_QUARTER)
        c.month = (c.month - 1) / 3 * 3 + 1;
    if (part == PART_YEAR)
        c.month = 1;
    return days_from_civil(c) * DAY_S * NS;
}

double sql_time_get(enum time_part part, int64_t ns)
{
    int64_t days = floor_div(ns, DAY_S * NS);
    int64_t of_day = ns - days * DAY_S * NS;
    struct civil c = civil_from_days(days);
    switch (part) {
    case PART_MICROSECOND:
        return (double)(of_day % (60 * NS)) / 1e3;
    case PART_MILLISECOND:
        return (double)(of_day % (60 * NS)) / 1e6;
    case PART_SECOND:
        return (double)(of_day % (60 * NS)) / 1e9;
    case PART_MINUTE:
        return (double)(of_day / (60 * NS) % 60);
    case PART_HOUR:
        return (double)(of_day / (3600 * NS));
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
        return (double)ns / 1e9;
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

size_t sql_format_interval(int64_t ns, char out[48])
{
    bool negative = ns < 0;
    uint64_t v = negative ? 0 - (uint64_t)ns : (uint64_t)ns;
    uint64_t seconds = v / (uint64_t)NS;
    char days[24] = "";
    if (seconds >= (uint64_t)DAY_S)
        (void)snprintf(days, sizeof(days), "%u day%s ", (unsigned)(seconds / (uint64_t)DAY_S),
                       seconds / (uint64_t)DAY_S == 1 ? "" : "s");
    seconds %= (uint64_t)DAY_S;
    int n = snprintf(out, 48, "%s%s%02u:%02u:%02u", negative ? "-" : "", days,
                     (unsigned)(seconds / 3600), (unsigned)(seconds / 60 % 60),
                     (unsigned)(seconds % 60));
    if (v % (uint64_t)NS)
        n += snprintf(out + n, 48 - (size_t)n, ".%09u", (unsigned)(v % (uint64_t)NS));
    return (size_t)n;
}

/* ---- reading ---- */

struct reader {
    const char *p, *end;
};

static void blanks(struct reader *r)
{
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\t' || *r->p == '\n'))
        r->p++;
}

static bool digits(struct reader *r, uint32_t most, int64_t *ret)
{
    int64_t v = 0;
    uint32_t n = 0;
    for (; r->p < r->end && *r->p >= '0' && *r->p <= '9' && n < most; r->p++, n++)
        v = v * 10 + (*r->p - '0');
    *ret = v;
    return n > 0;
}

static bool take(struct reader *r, char c)
{
    if (r->p >= r->end || *r->p != c)
        return false;
    r->p++;
    return true;
}

/* ".123" as ns; more than nine digits are cut. */
static int64_t fraction(struct reader *r)
{
    int64_t ns = 0, scale = NS / 10;
    if (!take(r, '.'))
        return 0;
    for (; r->p < r->end && *r->p >= '0' && *r->p <= '9'; r->p++, scale /= 10)
        ns += (*r->p - '0') * scale;
    return ns;
}

static bool clock_text(struct reader *r, int64_t *ret)
{
    int64_t h, m = 0, s = 0;
    if (!digits(r, 6, &h) || !take(r, ':') || !digits(r, 2, &m) || m > 59)
        return false;
    if (take(r, ':') && (!digits(r, 2, &s) || s > 60))
        return false;
    *ret = (h * 3600 + m * 60 + s) * NS + fraction(r);
    return true;
}

static bool zone(struct reader *r, int64_t *ns)
{
    int64_t h = 0, m = 0;
    blanks(r);
    if (take(r, 'Z') || take(r, 'z') || r->p == r->end)
        return true;
    if (r->end - r->p == 3 && strncasecmp(r->p, "utc", 3) == 0) {
        r->p += 3;
        return true;
    }
    int sign = *r->p == '-' ? -1 : 1;
    if ((!take(r, '+') && !take(r, '-')) || !digits(r, 2, &h))
        return false;
    if (take(r, ':') || r->p < r->end)
        if (!digits(r, 2, &m))
            return false;
    *ns -= sign * (h * 3600 + m * 60) * NS;
    return true;
}

int sql_parse_timestamp(const char *text, size_t size, int64_t *ret)
{
    struct reader r = {text, text + size};
    int64_t year, month, day, of_day = 0;
    blanks(&r);
    if (!digits(&r, 4, &year) || !take(&r, '-') || !digits(&r, 2, &month) || !take(&r, '-') ||
        !digits(&r, 2, &day) || month < 1 || month > 12 || day < 1 || day > 31 || year < 1678 ||
        year > 2261)
        return -EINVAL;
    struct civil c = {year, (uint32_t)month, (uint32_t)day};
    int64_t days = days_from_civil(c);
    if (civil_from_days(days).day != (uint32_t)day)
        return -EINVAL;
    if (r.p < r.end && (take(&r, 'T') || take(&r, 't') || take(&r, ' '))) {
        blanks(&r);
        if (r.p < r.end && (!clock_text(&r, &of_day) || of_day > DAY_S * NS))
            return -EINVAL;
    }
    int64_t ns = days * DAY_S * NS + of_day;
    if (!zone(&r, &ns))
        return -EINVAL;
    blanks(&r);
    if (r.p != r.end)
        return -EINVAL;
    *ret = ns;
    return 0;
}

static int64_t unit_ns(const char *p, size_t n)
{
    static const struct {
        const char *name;
        int64_t ns;
    } units[] = {{"ns", 1},
                 {"nanosecond", 1},
                 {"nanoseconds", 1},
                 {"us", 1000},
                 {"ms", 1000000},
                 {"s", NS},
                 {"sec", NS},
                 {"secs", NS},
                 {"m", 60 * NS},
                 {"min", 60 * NS},
                 {"mins", 60 * NS},
                 {"h", 3600 * NS},
                 {"hr", 3600 * NS},
                 {"hrs", 3600 * NS},
                 {"d", DAY_S * NS},
                 {"w", 7 * DAY_S * NS},
                 {"mon", 30 * DAY_S * NS},
                 {"y", 365 * DAY_S * NS}};
    for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++)
        if (strlen(units[i].name) == n && strncasecmp(p, units[i].name, n) == 0)
            return units[i].ns;
    return part_ns(sql_time_part(p, n));
}

/* One "5 min" or "01:30:00" of an interval. */
static int interval_piece(struct reader *r, int64_t *ret)
{
    int64_t whole = 0, part = 0, sum = 0;
    bool negative = take(r, '-');
    if (!negative)
        (void)take(r, '+');
    struct reader begin = *r;
    if (clock_text(r, &part)) {
        *ret = negative ? -part : part;
        return 0;
    }
    *r = begin;
    bool some = digits(r, 18, &whole);
    const char *dot = r->p;
    part = fraction(r);
    if (!some && r->p == dot)
        return -EINVAL;
    blanks(r);
    const char *word = r->p;
    while (r->p < r->end && ((*r->p | 32) >= 'a' && (*r->p | 32) <= 'z'))
        r->p++;
    int64_t unit = r->p == word ? NS : unit_ns(word, (size_t)(r->p - word));
    if (unit == 0 || __builtin_mul_overflow(whole, unit, &sum) ||
        __builtin_add_overflow(sum, (int64_t)((double)part / 1e9 * (double)unit), &sum))
        return -EINVAL;
    *ret = negative ? -sum : sum;
    return 0;
}

int sql_parse_interval(const char *text, size_t size, int64_t *ret)
{
    struct reader r = {text, text + size};
    int64_t sum = 0, piece = 0;
    blanks(&r);
    if (r.p == r.end)
        return -EINVAL;
    for (; r.p < r.end; blanks(&r)) {
        int rc = interval_piece(&r, &piece);
        if (rc < 0 || __builtin_add_overflow(sum, piece, &sum))
            return -EINVAL;
    }
    *ret = sum;
    return 0;
}
