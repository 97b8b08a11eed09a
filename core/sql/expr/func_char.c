/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/expr/func_char.c - to_char(timestamp, pattern), to_timestamp(text, pattern), to_date():
 * PostgreSQL's patterns, in UTC and English.
 *
 * The query's thread only.  What PostgreSQL has and this has not is refused, not copied; so are
 * intervals.  Numbers are in func_char_number.c.
 */
#include "core/sql/expr/kernel.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/sql/value/timestamp_parts.h"

#define DAY_NS (INT64_C(86400) * 1000000000)
#define JULIAN_EPOCH 2440588 /* the day of 1970-01-01 */
#define ROOM 12              /* bytes that a pattern of one letter may become: J, the Julian day */

enum letters { NUMBER, WEEKS, JULIAN, MONTH, WEEKDAY, NOON, ERA, ZONE, OFFSET, FRACTION, REFUSED };

struct pattern {
    const char *word; /* what begins with another stands before it */
    enum letters kind;
    uint8_t width; /* of a number, of a name with blanks (0: its first 3 letters), of a fraction */
    enum time_part part;
};

/* Numbers are written in upper or lower case alike. */
static const struct pattern patterns[] = {
    {"HH24", NUMBER, 2, PART_HOUR},   {"HH12", NUMBER, 2, PART_NONE},
    {"HH", NUMBER, 2, PART_NONE},     {"MI", NUMBER, 2, PART_MINUTE},
    {"SSSSS", NUMBER, 1, PART_EPOCH}, {"SSSS", NUMBER, 1, PART_EPOCH},
    {"SS", NUMBER, 2, PART_SECOND},   {"MS", FRACTION, 3, PART_NONE},
    {"US", FRACTION, 6, PART_NONE},   {"FF1", FRACTION, 1, PART_NONE},
    {"FF2", FRACTION, 2, PART_NONE},  {"FF3", FRACTION, 3, PART_NONE},
    {"FF4", FRACTION, 4, PART_NONE},  {"FF5", FRACTION, 5, PART_NONE},
    {"FF6", FRACTION, 6, PART_NONE},  {"FF9", FRACTION, 9, PART_NONE},
    {"YYYY", NUMBER, 4, PART_YEAR},   {"YYY", NUMBER, 3, PART_YEAR},
    {"YY", NUMBER, 2, PART_YEAR},     {"Y,YYY", REFUSED, 0, PART_NONE},
    {"Y", NUMBER, 1, PART_YEAR},      {"IYYY", NUMBER, 4, PART_ISOYEAR},
    {"IYY", NUMBER, 3, PART_ISOYEAR}, {"IY", NUMBER, 2, PART_ISOYEAR},
    {"IW", NUMBER, 2, PART_WEEK},     {"IDDD", REFUSED, 0, PART_NONE},
    {"ID", NUMBER, 1, PART_ISODOW},   {"I", NUMBER, 1, PART_ISOYEAR},
    {"MONTH", MONTH, 9, PART_MONTH},  {"MON", MONTH, 0, PART_MONTH},
    {"MM", NUMBER, 2, PART_MONTH},    {"DAY", WEEKDAY, 9, PART_DOW},
    {"DY", WEEKDAY, 0, PART_DOW},     {"DDD", NUMBER, 3, PART_DOY},
    {"DD", NUMBER, 2, PART_DAY},      {"D", NUMBER, 1, PART_DOW},
    {"Q", NUMBER, 1, PART_QUARTER},   {"A.M.", NOON, 4, PART_HOUR},
    {"P.M.", NOON, 4, PART_HOUR},     {"AM", NOON, 2, PART_HOUR},
    {"PM", NOON, 2, PART_HOUR},       {"TZH", REFUSED, 0, PART_NONE},
    {"TZM", REFUSED, 0, PART_NONE},   {"TZ", ZONE, 3, PART_NONE},
    {"OF", OFFSET, 3, PART_NONE},     {"TH", REFUSED, 0, PART_NONE},
    {"TM", REFUSED, 0, PART_NONE},    {"FX", REFUSED, 0, PART_NONE},
    {"SP", REFUSED, 0, PART_NONE},    {"WW", WEEKS, 2, PART_DOY},
    {"W", WEEKS, 1, PART_DAY},        {"CC", NUMBER, 2, PART_CENTURY},
    {"J", JULIAN, 1, PART_NONE},      {"RM", REFUSED, 0, PART_NONE},
    {"BC", ERA, 2, PART_NONE},        {"B.C.", ERA, 4, PART_NONE},
    {"AD", ERA, 2, PART_NONE},        {"A.D.", ERA, 4, PART_NONE}};

static const struct pattern *find_pattern(struct text t, uint32_t at)
{
    for (size_t i = 0; i < sizeof(patterns) / sizeof(*patterns); i++) {
        size_t n = strlen(patterns[i].word);
        if (t.size - at >= n && strncasecmp(t.data + at, patterns[i].word, n) == 0)
            return &patterns[i];
    }
    return NULL;
}

static int64_t number_of(const struct pattern *p, int64_t ns)
{
    static const int64_t tens[] = {1, 10, 100, 1000, 10000};
    int64_t hour = (int64_t)sql_time_get(PART_HOUR, ns);
    if (p->part == PART_NONE)
        return hour % 12 ? hour % 12 : 12;
    if (p->part == PART_EPOCH) /* seconds of the day */
        return hour * 3600 + (int64_t)sql_time_get(PART_MINUTE, ns) * 60 +
               (int64_t)sql_time_get(PART_SECOND, ns);
    int64_t n = (int64_t)sql_time_get(p->part, ns);
    return p->part == PART_DOW                               ? n + 1
           : p->part == PART_YEAR || p->part == PART_ISOYEAR ? n % tens[p->width]
                                                             : n;
}

static const char *const months[] = {"January",   "February", "March",    "April",
                                     "May",       "June",     "July",     "August",
                                     "September", "October",  "November", "December"};
static const char *const days[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                   "Thursday", "Friday", "Saturday"};

static int put_name(const struct pattern *p, const char *like, int64_t ns, bool plain, char *out)
{
    int64_t number = (int64_t)sql_time_get(p->part, ns);
    const char *name = p->kind == MONTH ? months[number - 1] : days[number];
    int n = p->width ? (int)strlen(name) : 3, width = p->width && !plain ? p->width : n;
    bool first = like[0] < 'a', rest = first && like[1] < 'a'; /* are they capitals? */
    for (int i = 0; i < width; i++)
        out[i] = i >= n                    ? ' '
                 : (i == 0 ? first : rest) ? (char)(name[i] & ~32)
                                           : (char)(name[i] | 32);
    return width;
}

/* AM, or a.m. with points */
static int put_two(char first, char second, bool points, bool small, char *out)
{
    char letters[2] = {first, second}, *to = out;
    for (int i = 0; i < 2; i++) {
        *to++ = (char)(small ? letters[i] | 32 : letters[i]);
        if (points)
            *to++ = '.';
    }
    return (int)(to - out);
}

/* 1st, 2nd, 3rd, 4th ... 11th: behind the digits before `to`. */
static void put_ordinal(bool small, char *to, size_t digits)
{
    static const char *const ends[] = {"TH", "ST", "ND", "RD"};
    char last = to[-1], before = digits > 1 ? to[-2] : '0';
    const char *end = ends[before != '1' && last >= '1' && last <= '3' ? last - '0' : 0];
    to[0] = (char)(small ? end[0] | 32 : end[0]);
    to[1] = (char)(small ? end[1] | 32 : end[1]);
}

/* The pattern at `like` for a time; gives how many bytes it became. */
static int put(const struct pattern *p, const char *like, int64_t ns, bool plain, char *out)
{
    static const int64_t powers[] = {1000000000, 100000000, 10000000, 1000000, 100000,
                                     10000,      1000,      100,      10,      1};
    int64_t second = INT64_C(1000000000), of_second = (ns % second + second) % second;
    int width = plain ? 1 : p->width;
    bool small = like[0] >= 'a', noon;
    switch (p->kind) {
    case MONTH:
    case WEEKDAY:
        return put_name(p, like, ns, plain, out);
    case NUMBER:
        return snprintf(out, ROOM, "%0*lld", width, (long long)number_of(p, ns));
    case WEEKS: /* that begin with the first day, whatever it is called */
        return snprintf(out, ROOM, "%0*d", width, ((int)sql_time_get(p->part, ns) - 1) / 7 + 1);
    case JULIAN:
        return snprintf(out, ROOM, "%lld",
                        (long long)(sql_time_trunc(PART_DAY, ns) / DAY_NS) + JULIAN_EPOCH);
    case FRACTION:
        return snprintf(out, ROOM, "%0*lld", p->width, (long long)(of_second / powers[p->width]));
    case NOON:
    case ERA: /* no time is before Christ here */
        noon = p->kind == NOON && sql_time_get(PART_HOUR, ns) >= 12;
        return put_two(noon ? 'P' : 'A', p->kind == NOON ? 'M' : 'D', p->width == 4, small, out);
    case ZONE:
        memcpy(out, small ? "utc" : "UTC", 3);
        return 3;
    case OFFSET:
        memcpy(out, "+00", 3);
        return 3;
    case REFUSED:
        break;
    }
    return 0;
}

static int refuse(struct run *r, const struct step *st, const struct pattern *p)
{
    return sql_error(
        r->q->text, r->q->size, st->expr->pos, -EINVAL,
        "to_char() does not know the pattern %s; put literal text \"in double quotes\"", p->word);
}

static int write_time(struct run *r, struct step *st, int64_t ns, struct text t, struct text *ret)
{
    char *out = t.size < (1u << 20) ? sql_scratch(r, (size_t)t.size * ROOM + 1) : NULL, *to = out;
    bool quoted = false, plain = false;
    if (!out)
        return -ENOMEM;
    for (uint32_t at = 0; at < t.size;) {
        const struct pattern *p = quoted ? NULL : find_pattern(t, at);
        if (t.data[at] == '"') {
            quoted = !quoted;
            at++;
        } else if (!quoted && t.size - at > 1 && strncasecmp(t.data + at, "FM", 2) == 0) {
            plain = true; /* of the next pattern */
            at += 2;
        } else if (p && p->kind == REFUSED) {
            return refuse(r, st, p);
        } else if (p) {
            int digits = put(p, t.data + at, ns, plain, to);
            bool number =
                p->kind == NUMBER || p->kind == FRACTION || p->kind == WEEKS || p->kind == JULIAN;
            to += digits;
            plain = false;
            at += (uint32_t)strlen(p->word);
            if (number && t.size - at > 1 && strncasecmp(t.data + at, "TH", 2) == 0) {
                put_ordinal(t.data[at] >= 'a', to, (size_t)digits);
                to += 2;
                at += 2;
            }
        } else {
            at += !quoted && t.data[at] == '\\' && at + 1 < t.size;
            *to++ = t.data[at++];
        }
    }
    *ret = (struct text){out, (uint32_t)(to - out)};
    return 0;
}

/* strftime's specifiers as patterns of to_char(). */
static const struct {
    char specifier;
    const char *pattern;
} specifiers[] = {
    {'Y', "YYYY"},       {'y', "YY"},       {'m', "MM"},  {'d', "DD"},         {'H', "HH24"},
    {'I', "HH12"},       {'M', "MI"},       {'S', "SS"},  {'f', "US"},         {'g', "MS"},
    {'n', "FF9"},        {'p', "AM"},       {'j', "DDD"}, {'a', "Dy"},         {'A', "FMDay"},
    {'b', "Mon"},        {'h', "Mon"},      {'u', "ID"},  {'B', "FMMonth"},    {'V', "IW"},
    {'G', "IYYY"},       {'Z', "TZ"},       {'z', "OF"},  {'F', "YYYY-MM-DD"}, {'e', "FMDD"},
    {'T', "HH24:MI:SS"}, {'D', "MM/DD/YY"}, {'%', "%"},   {'R', "HH24:MI"}};
#define SPECIFIED_BYTES 12 /* the longest of them, and quotes */

/* '%Y at %H' as 'YYYY" at "HH24': one writer knows what each of them gives. */
static int to_pattern(struct run *r, struct step *st, struct text t, struct text *ret)
{
    char *out = t.size < (1u << 20) ? sql_scratch(r, (size_t)t.size * SPECIFIED_BYTES) : NULL;
    uint32_t n = 0;
    if (!out)
        return -ENOMEM;
    for (uint32_t at = 0; at < t.size; at++) {
        const char *pattern = NULL;
        if (t.data[at] != '%') {
            out[n++] = '\\'; /* as it stands */
            out[n++] = t.data[at];
            continue;
        }
        for (size_t i = 0; i < sizeof(specifiers) / sizeof(*specifiers) && at + 1 < t.size; i++)
            if (specifiers[i].specifier == t.data[at + 1])
                pattern = specifiers[i].pattern;
        if (!pattern)
            return sql_error(
                r->q->text, r->q->size, st->expr->pos, -EINVAL,
                "strftime() does not know %%%.*s; it knows %%Y %%y %%m %%d %%e %%H %%I %%M %%S %%f "
                "%%g %%n %%p %%j %%a %%A %%b %%B %%u %%V %%G %%F %%T %%D %%R %%Z %%z %%%%",
                at + 1 < t.size, t.data + at + (at + 1 < t.size));
        memcpy(out + n, pattern, strlen(pattern));
        n += (uint32_t)strlen(pattern);
        at++;
    }
    *ret = (struct text){out, n};
    return 0;
}

KERNEL(strftime_text)
{
    uint32_t time = st->a[0]->type == SQL_TEXT; /* DuckDB takes them either way round */
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        struct text pattern;
        int rc = to_pattern(r, st, st->a[!time]->t[i], &pattern);
        if (rc == 0)
            rc = write_time(r, st, st->a[time]->i[i], pattern, &st->dst->t[i]);
        if (rc < 0)
            return rc;
    }
    return 0;
}

KERNEL(to_char)
{
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        struct text pattern = st->a[1]->t[i];
        /* DataFusion's to_char() takes strftime's; in PostgreSQL's a % means nothing. */
        bool specified = pattern.size && memchr(pattern.data, '%', pattern.size);
        int rc = specified ? to_pattern(r, st, pattern, &pattern) : 0;
        if (rc == 0)
            rc = write_time(r, st, st->a[0]->i[i], pattern, &st->dst->t[i]);
        if (rc < 0)
            return rc;
    }
    return 0;
}

KERNEL(to_char_interval)
{
    (void)sel;
    return n ? sql_run_error(r, st, -EINVAL,
                             "to_char() does not format intervals: they are texts by themselves, "
                             "x::text, and extract(epoch from x) is seconds")
             : 0;
}

/* ---- to_timestamp(text, pattern), to_date(text, pattern) ---- */

struct reading {
    struct run *r;
    const struct step *st;
    struct text t, pattern;
    uint32_t at;
    int64_t part[PART_NONE + 1]; /* by what they are parts of; NONE: the hour of a half day */
    bool given[PART_NONE + 1];
    bool later; /* PM */
    int64_t fraction_ns;
    int64_t julian; /* J: a day's number; 0: not given */
};

static int no_such(const struct reading *g, const char *what)
{
    uint32_t left = g->t.size - g->at, word = 0;
    while (word < left && word < 20 && g->t.data[g->at + word] > ' ')
        word++;
    return sql_error(g->r->q->text, g->r->q->size, g->st->expr->pos, -EINVAL,
                     "'%.*s' is no '%.*s': found '%.*s' for %s",
                     (int)(g->t.size > 60 ? 60 : g->t.size), g->t.data,
                     (int)(g->pattern.size > 60 ? 60 : g->pattern.size), g->pattern.data, (int)word,
                     g->t.data + g->at, what);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_separator(char c)
{
    return (unsigned char)c < 0x80 && !is_digit(c) && ((c | 32) < 'a' || (c | 32) > 'z');
}

static void skip_blanks(struct reading *g)
{
    while (g->at < g->t.size && (g->t.data[g->at] == ' ' || g->t.data[g->at] == '\t'))
        g->at++;
}

/* A year of less than four digits is the one next to 2020. */
static int64_t near_year(int64_t year)
{
    return year < 70    ? year + 2000
           : year < 100 ? year + 1900
           : year < 520 ? year + 2000
                        : year + 1000;
}

/* At most so many digits; *ret_n: how many there were. */
static int read_digits(struct reading *g, const struct pattern *p, uint32_t most, int64_t *ret,
                       uint32_t *ret_n)
{
    uint32_t n = 0;
    *ret = 0;
    for (; n < most && g->at + n < g->t.size && is_digit(g->t.data[g->at + n]); n++)
        *ret = *ret * 10 + (g->t.data[g->at + n] - '0');
    if (n == 0)
        return no_such(g, p->word);
    g->at += n;
    *ret_n = n;
    return 0;
}

static int read_name(struct reading *g, const struct pattern *p)
{
    for (int i = 0; i < (p->kind == MONTH ? 12 : 7); i++) {
        const char *name = p->kind == MONTH ? months[i] : days[i];
        size_t n = p->width ? strlen(name) : 3;
        if (g->t.size - g->at < n || strncasecmp(g->t.data + g->at, name, n) != 0)
            continue;
        g->at += (uint32_t)n;
        g->part[p->part] = i + (p->kind == MONTH);
        g->given[p->part] = true;
        return 0;
    }
    return no_such(g, p->word);
}

static int read_noon(struct reading *g, const struct pattern *p)
{
    for (int i = 0; i < 2; i++) {
        char word[4];
        int n = put_two(i ? 'P' : 'A', 'M', p->width == 4, false, word);
        if (g->t.size - g->at < (uint32_t)n || strncasecmp(g->t.data + g->at, word, (size_t)n) != 0)
            continue;
        g->at += (uint32_t)n;
        g->later = i;
        g->given[PART_NONE] = true;
        return 0;
    }
    return no_such(g, p->word);
}

/* The pattern p, behind which stands another one of digits (then each has its width). */
static int read_field(struct reading *g, const struct pattern *p, bool digits_follow)
{
    static const int64_t powers[] = {1000000000, 100000000, 10000000, 1000000, 100000,
                                     10000,      1000,      100,      10,      1};
    uint32_t n, width = p->part == PART_EPOCH ? 5 : p->width;
    int64_t value;
    int rc;
    switch (p->kind) {
    case MONTH:
    case WEEKDAY:
        return read_name(g, p);
    case NOON:
        return read_noon(g, p);
    case FRACTION:
        rc = read_digits(g, p, p->width, &value, &n);
        g->fraction_ns = rc < 0 ? 0 : value * powers[n];
        return rc;
    case NUMBER:
        if (p->part == PART_DOW || p->part == PART_CENTURY)
            break;
        rc = read_digits(g, p, digits_follow ? width : 9, &value, &n);
        if (rc < 0)
            return rc;
        bool year = p->part == PART_YEAR || p->part == PART_ISOYEAR;
        g->part[p->part] = year && p->width < 4 && n < 4 ? near_year(value) : value;
        g->given[p->part] = true;
        return 0;
    case WEEKS: { /* of the year from its first day on; of the month likewise */
        enum time_part of = p->word[1] ? PART_DOY : PART_DAY;
        rc = read_digits(g, p, digits_follow ? width : 9, &value, &n);
        g->part[of] = rc < 0 ? 0 : value * 7 - 6;
        g->given[of] = true;
        return rc;
    }
    case JULIAN:
        rc = read_digits(g, p, 9, &value, &n);
        g->julian = rc < 0 ? 0 : value;
        return rc;
    case ERA:
    case ZONE:
    case OFFSET:
    case REFUSED:
        break;
    }
    return sql_error(g->r->q->text, g->r->q->size, g->st->expr->pos, -EINVAL,
                     "%s() does not read the pattern %s; it reads YYYY MM DD DDD Mon Month IYYY "
                     "IW ID WW W J HH24 HH12 MI SS SSSS MS US FF3 AM, and \"text\"",
                     g->st->expr->func->name, p->word);
}

/* Pass over the pattern's own text: a letter for any, a separator for another or none. */
static void pass_over(struct reading *g, char c, bool quoted)
{
    bool letter = quoted || !is_separator(c);
    if (!letter)
        skip_blanks(g);
    if (g->at < g->t.size && (letter || is_separator(g->t.data[g->at])))
        g->at++;
}

static int read_fields(struct reading *g)
{
    struct text t = g->pattern;
    bool quoted = false;
    int rc = 0;
    for (uint32_t at = 0; at < t.size && rc == 0;) {
        const struct pattern *p = quoted ? NULL : find_pattern(t, at);
        if (t.data[at] == '"') {
            quoted = !quoted;
            at++;
        } else if (!quoted && t.size - at > 1 && strncasecmp(t.data + at, "FM", 2) == 0) {
            at += 2;
        } else if (p) {
            at += (uint32_t)strlen(p->word);
            bool ordinal = t.size - at > 1 && strncasecmp(t.data + at, "TH", 2) == 0;
            const struct pattern *next = at < t.size && !ordinal ? find_pattern(t, at) : NULL;
            skip_blanks(g);
            if (g->at == g->t.size)
                return 0; /* what is not there is the first of its kind */
            rc = read_field(g, p, next && (next->kind == NUMBER || next->kind == FRACTION));
            for (int i = 0; ordinal && i < 2; i++, at++)
                pass_over(g, t.data[at], false);
        } else {
            pass_over(g, t.data[at++], quoted);
        }
    }
    return rc;
}

/* IYYY-IW-ID: the week of 4 January is the first, and begins on a Monday. */
static bool join_week(const struct reading *g, int64_t *ret)
{
    char text[64];
    int64_t week = g->given[PART_WEEK] ? g->part[PART_WEEK] : 1;
    int64_t day = g->given[PART_ISODOW] ? g->part[PART_ISODOW] : 1;
    int size = snprintf(text, sizeof(text), "%04d-01-04", (int)g->part[PART_ISOYEAR]);
    if (week < 1 || week > 53 || day < 1 || day > 7 || g->part[PART_ISOYEAR] > 9999 ||
        sql_parse_timestamp(text, (size_t)size, ret) < 0)
        return false;
    *ret = sql_time_trunc(PART_WEEK, *ret) + (7 * (week - 1) + day - 1) * DAY_NS;
    return true;
}

/* Give the day, at midnight, from whatever says it. */
static bool join_day(const struct reading *g, int64_t *ret)
{
    const int64_t *part = g->part;
    bool doy = g->given[PART_DOY];
    char text[64];
    if (g->julian) {
        bool near = llabs(g->julian - 2440588) < 106000; /* days: what 64 bits of ns can say */
        *ret = near ? (g->julian - 2440588) * DAY_NS : 0;
        return near;
    }
    if (g->given[PART_ISOYEAR] && (g->given[PART_WEEK] || g->given[PART_ISODOW]))
        return join_week(g, ret);
    int64_t year = part[g->given[PART_ISOYEAR] ? PART_ISOYEAR : PART_YEAR];
    int size = snprintf(text, sizeof(text), "%04d-%02d-%02d", (int)year,
                        g->given[PART_MONTH] && !doy ? (int)part[PART_MONTH] : 1,
                        g->given[PART_DAY] && !doy ? (int)part[PART_DAY] : 1);
    if (year > 9999 || (doy && part[PART_DOY] < 1) ||
        sql_parse_timestamp(text, (size_t)size, ret) < 0)
        return false;
    *ret += doy ? (part[PART_DOY] - 1) * DAY_NS : 0;
    return true;
}

static int join_parts(const struct reading *g, int64_t *ret)
{
    const int64_t *part = g->part;
    bool half = g->given[PART_NONE] && !g->given[PART_HOUR];
    int64_t hour = half ? part[PART_NONE] % 12 + (g->later ? 12 : 0) : part[PART_HOUR];
    int64_t second = part[PART_SECOND], minute = part[PART_MINUTE];
    bool fits = part[PART_MONTH] < 13 && part[PART_DAY] < 32 && hour < 24 && minute < 60 &&
                second < 60 && part[PART_EPOCH] < 86400 && part[PART_DOY] < 367 &&
                (!half || (part[PART_NONE] >= 1 && part[PART_NONE] < 13));
    bool year = g->given[PART_YEAR] || g->given[PART_ISOYEAR] || g->julian;
    if (!fits || !year || !join_day(g, ret))
        return sql_error(g->r->q->text, g->r->q->size, g->st->expr->pos, -ERANGE,
                         year ? "there is no time '%.*s'" : "no year was read of '%.*s'",
                         (int)(g->t.size > 60 ? 60 : g->t.size), g->t.data);
    int64_t of_day = part[PART_EPOCH] + hour * 3600 + minute * 60 + second;
    *ret += of_day * INT64_C(1000000000) + g->fraction_ns;
    return 0;
}

KERNEL(read_time)
{
    bool date = strcmp(st->expr->func->name, "to_date") == 0;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        struct reading g = {.r = r, .st = st, .t = st->a[0]->t[i], .pattern = st->a[1]->t[i]};
        int rc = read_fields(&g);
        rc = rc < 0 ? rc : join_parts(&g, &st->dst->i[i]);
        if (rc < 0)
            return rc;
        if (date)
            st->dst->i[i] = sql_time_trunc(PART_DAY, st->dst->i[i]);
    }
    return 0;
}

const struct func sql_char_funcs[] = {{"strftime", "st", 't', 0, strftime_text},
                                      {"strftime", "ts", 't', 0, strftime_text},
                                      {"to_char", "st", 't', 0, to_char},
                                      {"to_char", "vt", 't', 0, to_char_interval},
                                      {"to_timestamp", "tt", 's', 0, read_time},
                                      {"to_date", "tt", 'D', 0, read_time},
                                      {NULL, NULL, 0, 0, NULL}};
