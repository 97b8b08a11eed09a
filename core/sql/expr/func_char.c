/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/expr/func_char.c - times as texts: to_char(ts, pattern) and strftime(), in UTC and
 * English.
 *
 * The query's thread only.  The usual patterns of PostgreSQL are known; other letters are refused,
 * not copied, and so are numbers and intervals.
 */
#include "core/sql/expr/kernel.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "core/sql/value/timestamp_parts.h"

#define ROOM 12 /* bytes that a letter of a pattern may become */

enum letters { NUMBER, MONTH, WEEKDAY, NOON, FRACTION, ZONE, OFFSET };

struct pattern {
    const char *word; /* what begins with another stands before it */
    enum letters kind;
    uint8_t width; /* of a number, of a name with blanks (0: its first 3 letters), of a fraction */
    enum time_part part;
};

/* Numbers are written in upper or lower case alike. */
static const struct pattern patterns[] = {
    {"HH24", NUMBER, 2, PART_HOUR},  {"HH12", NUMBER, 2, PART_NONE},
    {"HH", NUMBER, 2, PART_NONE},    {"MI", NUMBER, 2, PART_MINUTE},
    {"SSSS", NUMBER, 1, PART_EPOCH}, {"SS", NUMBER, 2, PART_SECOND},
    {"MS", FRACTION, 3, PART_NONE},  {"US", FRACTION, 6, PART_NONE},
    {"FF1", FRACTION, 1, PART_NONE}, {"FF2", FRACTION, 2, PART_NONE},
    {"FF3", FRACTION, 3, PART_NONE}, {"FF4", FRACTION, 4, PART_NONE},
    {"FF5", FRACTION, 5, PART_NONE}, {"FF6", FRACTION, 6, PART_NONE},
    {"FF9", FRACTION, 9, PART_NONE}, {"YYYY", NUMBER, 4, PART_YEAR},
    {"YY", NUMBER, 2, PART_YEAR},    {"IYYY", NUMBER, 4, PART_ISOYEAR},
    {"IW", NUMBER, 2, PART_WEEK},    {"ID", NUMBER, 1, PART_ISODOW},
    {"MONTH", MONTH, 9, PART_MONTH}, {"MON", MONTH, 0, PART_MONTH},
    {"MM", NUMBER, 2, PART_MONTH},   {"DAY", WEEKDAY, 9, PART_DOW},
    {"DY", WEEKDAY, 0, PART_DOW},    {"DDD", NUMBER, 3, PART_DOY},
    {"DD", NUMBER, 2, PART_DAY},     {"D", NUMBER, 1, PART_DOW},
    {"Q", NUMBER, 1, PART_QUARTER},  {"AM", NOON, 2, PART_HOUR},
    {"PM", NOON, 2, PART_HOUR},      {"TZ", ZONE, 3, PART_NONE},
    {"OF", OFFSET, 3, PART_NONE}};

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
    int64_t hour = (int64_t)sql_time_get(PART_HOUR, ns);
    if (p->part == PART_NONE)
        return hour % 12 ? hour % 12 : 12;
    if (p->part == PART_EPOCH) /* seconds of the day */
        return hour * 3600 + (int64_t)sql_time_get(PART_MINUTE, ns) * 60 +
               (int64_t)sql_time_get(PART_SECOND, ns);
    int64_t n = (int64_t)sql_time_get(p->part, ns);
    return p->part == PART_DOW ? n + 1 : p->width == 2 ? n % 100 : n;
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

/* The pattern at `like` for a time; gives how many bytes it became. */
static int put_pattern(const struct pattern *p, const char *like, int64_t ns, bool plain, char *out)
{
    static const int64_t powers[] = {1000000000, 100000000, 10000000, 1000000, 100000,
                                     10000,      1000,      100,      10,      1};
    int64_t second = INT64_C(1000000000), of_second = (ns % second + second) % second;
    int width = plain ? 1 : p->width;
    bool small = like[0] >= 'a';
    const char *word = small ? "utc" : "UTC";
    switch (p->kind) {
    case MONTH:
    case WEEKDAY:
        return put_name(p, like, ns, plain, out);
    case NUMBER:
        return snprintf(out, ROOM, "%0*lld", width, (long long)number_of(p, ns));
    case FRACTION:
        return snprintf(out, ROOM, "%0*lld", p->width, (long long)(of_second / powers[p->width]));
    case NOON:
        word = sql_time_get(PART_HOUR, ns) >= 12 ? small ? "pm" : "PM" : small ? "am" : "AM";
        break;
    case OFFSET:
        word = "+00";
        break;
    case ZONE:
        break;
    }
    memcpy(out, word, p->width);
    return p->width;
}

static bool is_letter(char c)
{
    return (c | 32) >= 'a' && (c | 32) <= 'z';
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
        } else if (p) {
            to += put_pattern(p, t.data + at, ns, plain, to);
            plain = false;
            at += (uint32_t)strlen(p->word);
        } else if (!quoted && is_letter(t.data[at])) { /* a pattern of PostgreSQL's, or a slip */
            return sql_error(r->q->text, r->q->size, st->expr->pos, -EINVAL,
                             "to_char() does not know the pattern '%.*s'; put literal text \"in "
                             "double quotes\"",
                             (int)(t.size - at > 20 ? 20 : t.size - at), t.data + at);
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

const struct func sql_char_funcs[] = {{"strftime", "st", 't', 0, strftime_text},
                                      {"strftime", "ts", 't', 0, strftime_text},
                                      {"to_char", "st", 't', 0, to_char},
                                      {"to_char", "vt", 't', 0, to_char_interval},
                                      {NULL, NULL, 0, 0, NULL}};
