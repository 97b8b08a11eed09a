/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/value/interval.c - spans of time: months, days, and an exact rest.
 *
 * They are read and written as PostgreSQL 15 does (src/backend/utils/adt/datetime.c), with nine
 * digits behind the second's point.
 * Any thread.
 */
#include "core/sql/value/timestamp_parts.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define NS INT64_C(1000000000)
#define DAY_NS (INT64_C(86400) * NS)
#define MONTH_NS (30 * DAY_NS) /* where months must be compared with days */
#define EPOCH_YEAR_S 31557600  /* 365.25 days: what extract(epoch) counts a year as */

/* ---- packed: bytes whose order is that of the intervals ---- */

static void put_big_endian(unsigned __int128 v, char *out, int n)
{
    for (int i = n - 1; i >= 0; i--, v >>= 8)
        out[i] = (char)(v & 0xff);
}

static unsigned __int128 get_big_endian(const char *p, int n)
{
    unsigned __int128 v = 0;
    for (int i = 0; i < n; i++)
        v = v << 8 | (unsigned char)p[i];
    return v;
}

void sql_interval_pack(struct interval v, char out[INTERVAL_BYTES])
{
    __int128 key = (__int128)v.months * MONTH_NS + (__int128)v.days * DAY_NS + v.ns;
    put_big_endian((unsigned __int128)key ^ (unsigned __int128)1 << 127, out, INTERVAL_KEY_BYTES);
    put_big_endian((uint32_t)v.months ^ UINT32_C(0x80000000), out + INTERVAL_KEY_BYTES, 4);
    put_big_endian((uint32_t)v.days ^ UINT32_C(0x80000000), out + INTERVAL_KEY_BYTES + 4, 4);
}

struct interval sql_interval_unpack(const char *packed)
{
    unsigned __int128 raw = get_big_endian(packed, INTERVAL_KEY_BYTES);
    __int128 key = (__int128)(raw ^ (unsigned __int128)1 << 127);
    uint32_t months = (uint32_t)get_big_endian(packed + INTERVAL_KEY_BYTES, 4);
    uint32_t days = (uint32_t)get_big_endian(packed + INTERVAL_KEY_BYTES + 4, 4);
    struct interval v = {.months = (int32_t)(months ^ UINT32_C(0x80000000)),
                         .days = (int32_t)(days ^ UINT32_C(0x80000000))};
    v.ns = (int64_t)(key - (__int128)v.months * MONTH_NS - (__int128)v.days * DAY_NS);
    return v;
}

struct interval sql_interval_of(int64_t ns)
{
    return (struct interval){.days = (int32_t)(ns / DAY_NS), .ns = ns % DAY_NS};
}

int sql_interval_ns(struct interval v, int64_t *ret)
{
    __int128 ns = (__int128)v.days * DAY_NS + v.ns;
    *ret = (int64_t)ns;
    return *ret == ns ? 0 : -ERANGE;
}

bool sql_interval_is_ns(struct interval v, int64_t *ret)
{
    if (v.months != 0 || sql_interval_ns(v, ret) < 0)
        return false;
    struct interval same = sql_interval_of(*ret);
    return same.days == v.days && same.ns == v.ns;
}

/* -x is not of every x: false, and nothing is changed. */
bool sql_interval_negate(struct interval *v)
{
    if (v->ns == INT64_MIN || v->months == INT32_MIN || v->days == INT32_MIN)
        return false;
    *v = (struct interval){.ns = -v->ns, .months = -v->months, .days = -v->days};
    return true;
}

/* ---- as text ---- */

static int put_count(char *out, int at, int64_t n, const char *unit, bool *negative_before)
{
    if (n == 0)
        return at;
    at += snprintf(out + at, INTERVAL_TEXT_BYTES - (size_t)at, "%s%s%lld %s%s", at ? " " : "",
                   *negative_before && n > 0 ? "+" : "", (long long)n, unit, n == 1 ? "" : "s");
    *negative_before = n < 0;
    return at;
}

size_t sql_format_interval(struct interval v, char out[INTERVAL_TEXT_BYTES])
{
    bool negative = false; /* was the number before? then a positive one has its sign */
    int at = put_count(out, 0, v.months / 12, "year", &negative);
    at = put_count(out, at, v.months % 12, "mon", &negative);
    at = put_count(out, at, v.days, "day", &negative);
    uint64_t ns = v.ns < 0 ? 0 - (uint64_t)v.ns : (uint64_t)v.ns, s = ns / (uint64_t)NS;
    if (v.ns == 0 && at)
        return (size_t)at;
    at += snprintf(out + at, INTERVAL_TEXT_BYTES - (size_t)at, "%s%s%02u:%02u:%02u", at ? " " : "",
                   v.ns < 0   ? "-"
                   : negative ? "+"
                              : "",
                   (unsigned)(s / 3600), (unsigned)(s / 60 % 60), (unsigned)(s % 60));
    if (ns % (uint64_t)NS) {
        at += snprintf(out + at, INTERVAL_TEXT_BYTES - (size_t)at, ".%09u",
                       (unsigned)(ns % (uint64_t)NS));
        while (out[at - 1] == '0')
            out[--at] = '\0';
    }
    return (size_t)at;
}

/* ---- parts ---- */

double sql_interval_get(enum time_part part, struct interval v)
{
    switch (part) {
    case PART_MICROSECOND:
    case PART_MILLISECOND:
    case PART_SECOND:
    case PART_MINUTE:
        return sql_clock_get(part, v.ns % DAY_NS);
    case PART_HOUR:
        return (double)(v.ns / (3600 * NS));
    case PART_DAY:
        return v.days;
    case PART_WEEK:
        return v.days / 7;
    case PART_MONTH:
        return v.months % 12;
    case PART_QUARTER:
        return v.months % 12 / 3 + 1;
    case PART_YEAR:
        return v.months / 12;
    case PART_EPOCH:
        return (double)(v.months / 12) * EPOCH_YEAR_S + (double)(v.months % 12) * 30 * 86400 +
               (double)v.days * 86400 + sql_seconds(v.ns);
    case PART_DECADE:
        return v.months / 120;
    case PART_CENTURY:
        return v.months / 1200;
    case PART_MILLENNIUM:
        return v.months / 12000;
    case PART_DOW:
    case PART_DOY:
    case PART_ISODOW:
    case PART_ISOYEAR:
    case PART_NONE:
        break;
    }
    return NAN;
}

/* ---- reading ---- */

struct reader {
    const char *p, *end;
    uint64_t seen; /* units that were named, a bit each: none counts twice */
};

/* The months, days or ns that one of a unit counts. */
struct unit {
    int32_t months, days;
    int64_t ns;
};

static const struct {
    const char *name;
    struct unit unit;
} units[] = {{"millennium", {12000, 0, 0}},
             {"millennia", {12000, 0, 0}},
             {"mil", {12000, 0, 0}},
             {"century", {1200, 0, 0}},
             {"centuries", {1200, 0, 0}},
             {"cent", {1200, 0, 0}},
             {"c", {1200, 0, 0}},
             {"decade", {120, 0, 0}},
             {"dec", {120, 0, 0}},
             {"year", {12, 0, 0}},
             {"yr", {12, 0, 0}},
             {"y", {12, 0, 0}},
             {"quarter", {3, 0, 0}},
             {"month", {1, 0, 0}},
             {"mon", {1, 0, 0}},
             {"week", {0, 7, 0}},
             {"w", {0, 7, 0}},
             {"day", {0, 1, 0}},
             {"d", {0, 1, 0}},
             {"hour", {0, 0, 3600 * NS}},
             {"hr", {0, 0, 3600 * NS}},
             {"h", {0, 0, 3600 * NS}},
             {"minute", {0, 0, 60 * NS}},
             {"min", {0, 0, 60 * NS}},
             {"m", {0, 0, 60 * NS}},
             {"second", {0, 0, NS}},
             {"sec", {0, 0, NS}},
             {"s", {0, 0, NS}},
             {"millisecond", {0, 0, 1000000}},
             {"msec", {0, 0, 1000000}},
             {"ms", {0, 0, 1000000}},
             {"microsecond", {0, 0, 1000}},
             {"usec", {0, 0, 1000}},
             {"us", {0, 0, 1000}},
             {"nanosecond", {0, 0, 1}},
             {"nsec", {0, 0, 1}},
             {"ns", {0, 0, 1}}};

#define SEEN_CLOCK (UINT64_C(1) << 63)

static uint64_t bit_of(struct unit u)
{
    size_t i = 0;
    while (memcmp(&units[i].unit, &u, sizeof(u)) != 0)
        i++;
    return UINT64_C(1) << i;
}

static bool unit_named(const char *p, size_t n, struct unit *ret)
{
    for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++) {
        size_t size = strlen(units[i].name);
        bool plural = n == size + 1 && size > 1 && (p[n - 1] | 32) == 's';
        if ((n != size && !plural) || strncasecmp(p, units[i].name, size) != 0)
            continue;
        *ret = units[i].unit;
        return true;
    }
    return false;
}

static void skip_blanks(struct reader *r)
{
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\t' || *r->p == '\n'))
        r->p++;
}

static bool take_char(struct reader *r, char c)
{
    if (r->p >= r->end || *r->p != c)
        return false;
    r->p++;
    return true;
}

static bool read_digits(struct reader *r, int64_t *ret)
{
    uint32_t n = 0;
    *ret = 0;
    for (; r->p < r->end && *r->p >= '0' && *r->p <= '9' && n < 18; r->p++, n++)
        *ret = *ret * 10 + (*r->p - '0');
    return n > 0;
}

/* Behind a point: in thousand-millionths; more than nine digits are cut. */
static int64_t read_fraction(struct reader *r)
{
    int64_t part = 0, scale = NS / 10;
    for (; r->p < r->end && *r->p >= '0' && *r->p <= '9'; r->p++, scale /= 10)
        part += (*r->p - '0') * scale;
    return part;
}

/* whole + part / 10^9 of a unit.  A part of a month is as many of 30 days, one of a year or more as
 * many whole months, and the part of a day is time, as in PostgreSQL. */
static bool add_units(struct interval *v, int sign, int64_t whole, int64_t part, struct unit unit)
{
    __int128 months = (__int128)whole * unit.months, ns = (__int128)whole * unit.ns;
    __int128 months_part = (__int128)part * unit.months; /* of 10^9 */
    if (unit.months > 1)
        months_part = (__int128)llrint((double)months_part / 1e9) * NS;
    months += months_part / NS;
    __int128 days_part = months_part % NS * 30 + (__int128)part * unit.days; /* of 10^9 */
    __int128 days = (__int128)whole * unit.days + days_part / NS;
    ns += days_part % NS * 86400 + (__int128)part * unit.ns / NS;
    months = v->months + sign * months;
    days = v->days + sign * days;
    ns = v->ns + sign * ns;
    *v = (struct interval){.ns = (int64_t)ns, .months = (int32_t)months, .days = (int32_t)days};
    return v->ns == ns && v->months == months && v->days == days;
}

/* Behind "hours:": minutes and perhaps seconds. */
static bool read_clock(struct reader *r, int sign, int64_t hours, struct interval *v)
{
    int64_t minutes, seconds = 0, part = 0;
    if (!read_digits(r, &minutes) || minutes > 59)
        return false;
    if (take_char(r, ':')) {
        if (!read_digits(r, &seconds) || seconds > 60)
            return false;
        part = take_char(r, '.') ? read_fraction(r) : 0;
    }
    return add_units(v, sign, hours, 0, (struct unit){0, 0, 3600 * NS}) &&
           add_units(v, sign, minutes * 60 + seconds, part, (struct unit){0, 0, NS});
}

static bool next_is_clock(struct reader r)
{
    int64_t n;
    skip_blanks(&r);
    return (take_char(&r, '-') || take_char(&r, '+') || true) && read_digits(&r, &n) &&
           take_char(&r, ':');
}

/* One "5 min", "-3 days", "01:30:00", "1-2", or at the end "90".  *closed: no other may follow. */
static bool read_piece(struct reader *r, struct interval *v, bool *closed)
{
    int sign = take_char(r, '-') ? -1 : 1;
    int64_t whole = 0, part = 0, months;
    struct unit unit = {0, 0, NS};
    if (sign > 0)
        (void)take_char(r, '+');
    bool some = read_digits(r, &whole);
    if (some && take_char(r, ':')) {
        *closed = true;
        if (r->seen & SEEN_CLOCK)
            return false;
        return read_clock(r, sign, whole, v);
    }
    if (some && take_char(r, '-')) { /* years-months */
        if (!read_digits(r, &months) || months > 11 || (r->p < r->end && *r->p != ' '))
            return false;
        return add_units(v, sign, whole, 0, (struct unit){12, 0, 0}) &&
               add_units(v, sign, months, 0, (struct unit){1, 0, 0});
    }
    if (take_char(r, '.')) {
        const char *from = r->p;
        part = read_fraction(r);
        some = some || r->p > from;
    }
    if (!some)
        return false;
    skip_blanks(r);
    const char *word = r->p;
    while (r->p < r->end && (*r->p | 32) >= 'a' && (*r->p | 32) <= 'z')
        r->p++;
    if (r->p > word) {
        if (!unit_named(word, (size_t)(r->p - word), &unit) || r->seen & bit_of(unit))
            return false;
        r->seen |= bit_of(unit) | (unit.ns ? SEEN_CLOCK : 0);
    } else if (next_is_clock(*r)) {
        unit = (struct unit){0, 1, 0}; /* "1 12:59:10" */
    } else {
        *closed = true; /* seconds, and the last of all */
    }
    return add_units(v, sign, whole, part, unit);
}

/* Behind P: 1Y2M3DT4H5M6.5S, 4W. */
static bool read_iso(struct reader *r, struct interval *v)
{
    bool time = false, some = false;
    while (r->p < r->end) {
        static const struct {
            char letter;
            bool time;
            struct unit unit;
        } designators[] = {{'Y', false, {12, 0, 0}},       {'M', false, {1, 0, 0}},
                           {'W', false, {0, 7, 0}},        {'D', false, {0, 1, 0}},
                           {'H', true, {0, 0, 3600 * NS}}, {'M', true, {0, 0, 60 * NS}},
                           {'S', true, {0, 0, NS}}};
        int64_t whole = 0, part = 0;
        bool found = false;
        if (!time && take_char(r, 'T')) {
            time = true;
            some = false;
            continue;
        }
        int sign = take_char(r, '-') ? -1 : 1;
        if (!read_digits(r, &whole))
            return false;
        if (take_char(r, '.'))
            part = read_fraction(r);
        for (size_t i = 0; i < sizeof(designators) / sizeof(*designators) && !found; i++)
            if (designators[i].time == time && take_char(r, designators[i].letter))
                found = add_units(v, sign, whole, part, designators[i].unit);
        if (!found)
            return false;
        some = true;
    }
    return some;
}

static bool take_ago(struct reader *r)
{
    if (r->end - r->p != 3 || strncasecmp(r->p, "ago", 3) != 0)
        return false;
    r->p = r->end;
    return true;
}

int sql_parse_interval(const char *text, size_t size, struct interval *ret)
{
    struct reader r = {text, text + size, 0};
    struct interval v = {.ns = 0};
    bool closed = false, ago = false, ok = true;
    while (r.end > r.p && (unsigned char)r.end[-1] <= ' ')
        r.end--;
    skip_blanks(&r);
    if (take_char(&r, '@'))
        skip_blanks(&r);
    if (r.p == r.end)
        return -EINVAL;
    if (take_char(&r, 'P')) {
        ok = read_iso(&r, &v);
    } else {
        for (uint32_t pieces = 0; ok && r.p < r.end; pieces++, skip_blanks(&r)) {
            ago = pieces > 0 && take_ago(&r);
            ok = ago || (!closed && read_piece(&r, &v, &closed));
        }
    }
    if (!ok || (ago && !sql_interval_negate(&v)))
        return -EINVAL;
    *ret = v;
    return 0;
}
