/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/value/time_zone.c - time zones from the machine's tables (TZif, RFC 8536), read by us:
 * the C library's would change the host's own zone.
 *
 * A file is a version 1 part with 32-bit times, which is passed over, a part with 64-bit times, and
 * a line with the rule of all times behind them, as POSIX has it for TZ.  Nothing in it is believed
 * before it was looked at.  Any thread, a struct each.
 */
#include "core/sql/value/time_zone.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/sql/value/timestamp_parts.h"

#define FOLDER "/usr/share/zoneinfo/"
#define FILE_BYTES (256 << 10)
#define NAME_BYTES 64
#define HEAD_BYTES 44
#define TYPE_BYTES 6
#define DAY_S INT64_C(86400)
#define NS INT64_C(1000000000)

struct change { /* of the rule: when it comes each year, by the clock before it */
    char kind;  /* M: weekday `day` of week `week` of month; J: day 1 to 365; 0: day 0 to 365 */
    int32_t month, week, day, second;
};

struct time_zone {
    const unsigned char *times, *kinds, *types; /* of the file: n big-endian times, their types */
    uint32_t n, n_types;
    bool ruled, saves; /* there is a rule; it has summer time */
    int32_t winter_s, summer_s;
    struct change to_summer, to_winter;
};

static int64_t load_be(const unsigned char *p, int bytes)
{
    uint64_t v = bytes == 4 && (p[0] & 0x80) ? UINT64_MAX : 0;
    for (int i = 0; i < bytes; i++)
        v = v << 8 | p[i];
    return (int64_t)v;
}

/* ---- the rule: CET-1CEST,M3.5.0,M10.5.0/3 ---- */

struct line {
    const char *p, *end;
    bool wrong;
};

static bool take_char(struct line *l, char c)
{
    bool is = l->p < l->end && *l->p == c;
    l->p += is;
    return is;
}

static int32_t read_number(struct line *l)
{
    int32_t v = 0, n = 0;
    for (; l->p < l->end && *l->p >= '0' && *l->p <= '9' && n < 4; l->p++, n++)
        v = v * 10 + (*l->p - '0');
    l->wrong = l->wrong || n == 0;
    return v;
}

static void pass_name(struct line *l)
{
    const char *begin = l->p;
    bool quoted = take_char(l, '<');
    while (l->p < l->end && (quoted ? *l->p != '>' : (*l->p | 32) >= 'a' && (*l->p | 32) <= 'z'))
        l->p++;
    l->wrong = l->wrong || (quoted && !take_char(l, '>')) || l->p == begin;
}

/* [+-]hh[:mm[:ss]], at most a week of hours */
static int32_t read_seconds(struct line *l)
{
    bool minus = take_char(l, '-');
    if (!minus)
        (void)take_char(l, '+');
    int32_t s = read_number(l) * 3600;
    s += take_char(l, ':') ? read_number(l) * 60 : 0;
    s += take_char(l, ':') ? read_number(l) : 0;
    l->wrong = l->wrong || s > 168 * 3600;
    return minus ? -s : s;
}

static struct change read_change(struct line *l)
{
    struct change c = {.kind = '0', .second = 7200};
    l->wrong = l->wrong || !take_char(l, ',');
    if (take_char(l, 'M')) {
        c.kind = 'M';
        c.month = read_number(l);
        l->wrong = l->wrong || !take_char(l, '.');
        c.week = read_number(l);
        l->wrong = l->wrong || !take_char(l, '.');
        c.day = read_number(l);
        l->wrong = l->wrong || c.month < 1 || c.month > 12 || c.week < 1 || c.week > 5 || c.day > 6;
    } else {
        c.kind = take_char(l, 'J') ? 'J' : '0';
        c.day = read_number(l);
        l->wrong = l->wrong || c.day > 365 || (c.kind == 'J' && c.day < 1);
    }
    c.second = take_char(l, '/') ? read_seconds(l) : c.second;
    return c;
}

static bool read_rule(struct time_zone *z, const char *text, size_t size)
{
    struct line l = {text, text + size, false};
    pass_name(&l);
    z->winter_s = -read_seconds(&l);
    if (!l.wrong && l.p < l.end) {
        pass_name(&l);
        z->saves = true;
        z->summer_s = z->winter_s + 3600;
        if (l.p < l.end && *l.p != ',')
            z->summer_s = -read_seconds(&l);
        z->to_summer = read_change(&l);
        z->to_winter = read_change(&l);
    }
    z->ruled = true;
    return !l.wrong && l.p == l.end;
}

static bool is_leap(int64_t year)
{
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

/* Seconds since 1970 at which the clock before the change shows its moment. */
static int64_t change_at(const struct change *c, int64_t year)
{
    int64_t day;
    if (c->kind == 'M') {
        int64_t first = sql_day_number(year, (uint32_t)c->month, 1);
        int64_t next = c->month == 12 ? sql_day_number(year + 1, 1, 1)
                                      : sql_day_number(year, (uint32_t)c->month + 1, 1);
        int64_t weekday = ((first + 4) % 7 + 7) % 7; /* 1970-01-01 was a Thursday */
        day = first + (c->day - weekday + 7) % 7 + 7 * (c->week - 1);
        day -= day >= next ? 7 : 0;
    } else {
        bool passed = c->kind == 'J' && is_leap(year) && c->day >= 60; /* J60 is always 1 March */
        day = sql_day_number(year, 1, 1) + c->day - (c->kind == 'J' && !passed);
    }
    return day * DAY_S + c->second;
}

static int32_t offset_by_rule(const struct time_zone *z, int64_t s)
{
    if (!z->saves)
        return z->winter_s;
    int64_t year = sql_year_of_day((s + z->winter_s) / DAY_S - ((s + z->winter_s) % DAY_S < 0));
    int64_t summer = change_at(&z->to_summer, year) - z->winter_s;
    int64_t winter = change_at(&z->to_winter, year) - z->summer_s;
    bool in = summer < winter ? s >= summer && s < winter : s >= summer || s < winter;
    return in ? z->summer_s : z->winter_s;
}

/* ---- the file ---- */

struct part { /* a version's part of it */
    uint32_t n, n_types, names, leaps, stds, uts;
};

static bool read_head(const unsigned char *p, size_t left, struct part *ret)
{
    if (left < HEAD_BYTES || memcmp(p, "TZif", 4) != 0)
        return false;
    uint32_t counts[6];
    for (int i = 0; i < 6; i++)
        counts[i] = (uint32_t)load_be(p + 20 + 4 * i, 4);
    *ret = (struct part){counts[3], counts[4], counts[5], counts[2], counts[1], counts[0]};
    for (int i = 0; i < 6; i++)
        if (counts[i] > FILE_BYTES)
            return false;
    return ret->n_types > 0 && ret->n_types <= 256;
}

static size_t size_of(const struct part *h, size_t time_bytes)
{
    return h->n * (time_bytes + 1) + (size_t)h->n_types * TYPE_BYTES + h->names +
           h->leaps * (time_bytes + 4) + h->stds + h->uts;
}

static bool read_file(struct time_zone *z, const unsigned char *p, size_t size)
{
    struct part h;
    if (!read_head(p, size, &h) || p[4] < '2' || size_of(&h, 4) > size - HEAD_BYTES)
        return false;
    size_t past = HEAD_BYTES + size_of(&h, 4);
    p += past;
    size -= past;
    if (!read_head(p, size, &h) || size_of(&h, 8) > size - HEAD_BYTES)
        return false;
    z->n = h.n;
    z->n_types = h.n_types;
    z->times = p + HEAD_BYTES;
    z->kinds = z->times + 8 * (size_t)h.n;
    z->types = z->kinds + h.n;
    for (uint32_t i = 0; i < z->n; i++)
        if (z->kinds[i] >= z->n_types ||
            (i && load_be(z->times + 8 * (size_t)i, 8) <= load_be(z->times + 8 * (size_t)i - 8, 8)))
            return false;
    for (uint32_t i = 0; i < z->n_types; i++) {
        int64_t offset = load_be(z->types + TYPE_BYTES * i, 4);
        if (offset < -DAY_S * 2 || offset > DAY_S * 2)
            return false;
    }
    past = HEAD_BYTES + size_of(&h, 8);
    const char *line = (const char *)p + past;
    size_t left = size - past;
    const char *end = left && line[0] == '\n' ? memchr(line + 1, '\n', left - 1) : NULL;
    return end && (end == line + 1 || read_rule(z, line + 1, (size_t)(end - line - 1)));
}

int time_zone_read(struct arena *mem, const char *bytes, size_t size, struct time_zone **ret)
{
    struct time_zone *z = arena_zalloc(mem, 1, sizeof(*z));
    unsigned char *copy = arena_alloc(mem, size + 1);
    if (!z || !copy)
        return err_set(-ENOMEM, "no memory for a time zone");
    memcpy(copy, bytes, size);
    if (!read_file(z, copy, size))
        return err_set(-EINVAL, "it is no table of a time zone");
    *ret = z;
    return 0;
}

static bool is_name(const char *name, size_t size)
{
    bool fine = size > 0 && size < NAME_BYTES && name[0] != '/';
    for (size_t i = 0; i < size && fine; i++) {
        char c = name[i] | 32;
        fine = (c >= 'a' && c <= 'z') || (name[i] >= '0' && name[i] <= '9') || name[i] == '/' ||
               name[i] == '_' || name[i] == '+' || name[i] == '-';
    }
    return fine;
}

int time_zone_new(struct arena *mem, const char *name, size_t size, struct time_zone **ret)
{
    struct time_zone *z = arena_zalloc(mem, 1, sizeof(*z));
    char path[sizeof(FOLDER) + NAME_BYTES];
    struct buf file;
    if (!z)
        return err_set(-ENOMEM, "no memory for a time zone");
    if (size && strchr("+-0123456789", name[0]) && name[0]) {
        struct line l = {name, name + size, false};
        z->winter_s = -read_seconds(&l);
        z->ruled = true;
        *ret = z;
        return l.wrong || l.p < l.end ? err_set(-EINVAL, "'%.*s' is no time zone like '+02:00'",
                                                (int)(size > 40 ? 40 : size), name)
                                      : 0;
    }
    if (!is_name(name, size))
        return err_set(-EINVAL, "'%.*s' is no time zone like 'Europe/Berlin' or 'UTC'",
                       (int)(size > 40 ? 40 : size), name);
    (void)snprintf(path, sizeof(path), FOLDER "%.*s", (int)size, name);
    buf_init(&file, FILE_BYTES);
    int rc = file_read(AT_FDCWD, path, &file);
    rc = rc < 0 ? rc : time_zone_read(mem, buf_text(&file), file.size, ret);
    buf_done(&file);
    if (rc < 0 && rc != -ENOMEM)
        return err_set(-ENOENT,
                       "no time zone '%.*s' here: names like 'Europe/Berlin' are those of " FOLDER
                       "; ts + interval '2 hours' needs none",
                       (int)size, name);
    return rc;
}

static int32_t offset_at(const struct time_zone *z, int64_t s)
{
    uint32_t low = 0, high = z->n; /* the last change at or before s is below high */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (load_be(z->times + 8 * (size_t)middle, 8) <= s)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == z->n && z->ruled)
        return offset_by_rule(z, s);
    uint32_t type = low ? z->kinds[low - 1] : 0;
    return (int32_t)load_be(z->types + TYPE_BYTES * type, 4);
}

static int64_t seconds_of(int64_t ns)
{
    return ns / NS - (ns % NS < 0);
}

int time_zone_clock(const struct time_zone *z, int64_t ns, int64_t *ret)
{
    return __builtin_add_overflow(ns, offset_at(z, seconds_of(ns)) * NS, ret) ? -ERANGE : 0;
}

int time_zone_utc(const struct time_zone *z, int64_t clock_ns, int64_t *ret)
{
    int64_t s = seconds_of(clock_ns);
    int32_t before = offset_at(z, s - 2 * DAY_S), after = offset_at(z, s + 2 * DAY_S);
    bool may_be = offset_at(z, s - before) == before, is_after = offset_at(z, s - after) == after;
    int32_t offset = is_after || (before == after && !may_be) ? after : before;
    return __builtin_sub_overflow(clock_ns, offset * NS, ret) ? -ERANGE : 0;
}
