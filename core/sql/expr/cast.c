/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/expr/cast.c - values of one type made into another.
 *
 * What cannot be is an error with its position, or NULL in try_cast.
 * The query's thread only.  Numbers are read and written in the C locale.
 */
#include "core/sql/expr/kernel.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "core/base/err.h"
#include "core/base/text.h"
#include "core/sql/value/timestamp_parts.h"

/* The forgiving twin of a cast has '?' at the end of its name. */
static bool is_forgiving(const struct step *st)
{
    const char *name = st->expr->func->name;
    return name[strlen(name) - 1] == '?';
}

static int refuse_text(struct run *r, struct step *st, uint32_t row, struct text t,
                       const char *type)
{
    if (is_forgiving(st)) {
        sql_set_null(st->dst, row);
        return 0;
    }
    return sql_error(r->q->text, r->q->size, st->expr->pos, -EINVAL, "'%.*s' is not %s",
                     (int)(t.size > 60 ? 60 : t.size), t.data, type);
}

static struct text trim_blanks(struct text t)
{
    while (t.size && (unsigned char)t.data[0] <= ' ') {
        t.data++;
        t.size--;
    }
    while (t.size && (unsigned char)t.data[t.size - 1] <= ' ')
        t.size--;
    return t;
}

static int read_int(struct text t, int64_t *ret)
{
    char copy[32];
    t = trim_blanks(t);
    if (t.size > 1 && t.data[0] == '+') {
        t.data++;
        t.size--;
    }
    if (t.size == 0 || t.size >= sizeof(copy))
        return -EINVAL;
    memcpy(copy, t.data, t.size);
    copy[t.size] = '\0';
    int rc = parse_i64(copy, ret);
    err_clear();
    return rc;
}

/* A word, or as much of its beginning as no other one has. */
static int read_bool(struct text t, int64_t *ret)
{
    static const struct {
        const char *word;
        uint32_t least;
    } words[] = {{"false", 1}, {"true", 1}, {"no", 1}, {"yes", 1},
                 {"off", 2},   {"on", 2},   {"0", 1},  {"1", 1}};
    t = trim_blanks(t);
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
        if (t.size >= words[i].least && t.size <= strlen(words[i].word) &&
            strncasecmp(t.data, words[i].word, t.size) == 0) {
            *ret = i & 1;
            return 0;
        }
    }
    return -EINVAL;
}

/* nan, inf, infinity, with a sign: as PostgreSQL reads and writes them. */
static bool read_unreal(struct text t, double *ret)
{
    static const struct {
        const char *word;
        double value;
    } words[] = {{"nan", NAN}, {"inf", INFINITY}, {"infinity", INFINITY}};
    bool sign = t.size && (t.data[0] == '-' || t.data[0] == '+'), minus = sign && t.data[0] == '-';
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
        if (t.size - sign != strlen(words[i].word) ||
            strncasecmp(t.data + sign, words[i].word, t.size - sign) != 0)
            continue;
        *ret = minus ? -words[i].value : words[i].value;
        return true;
    }
    return false;
}

static int read_double(struct text t, double *ret)
{
    t = trim_blanks(t);
    if (read_unreal(t, ret))
        return 0;
    int rc = t.size ? parse_f64(t.data, t.size, ret) : -EINVAL;
    err_clear();
    return rc;
}

KERNEL(text_to_int)
{
    int rc = 0;
    for (uint32_t k = 0; k < n && rc == 0; k++) {
        uint32_t i = sel ? sel[k] : k;
        if (read_int(st->a[0]->t[i], &st->dst->i[i]) < 0)
            rc = refuse_text(r, st, i, st->a[0]->t[i], "a bigint");
    }
    return rc;
}

KERNEL(text_to_double)
{
    int rc = 0;
    for (uint32_t k = 0; k < n && rc == 0; k++) {
        uint32_t i = sel ? sel[k] : k;
        if (read_double(st->a[0]->t[i], &st->dst->d[i]) < 0)
            rc = refuse_text(r, st, i, st->a[0]->t[i], "a double");
    }
    return rc;
}

KERNEL(text_to_bool)
{
    int rc = 0;
    for (uint32_t k = 0; k < n && rc == 0; k++) {
        uint32_t i = sel ? sel[k] : k;
        if (read_bool(st->a[0]->t[i], &st->dst->i[i]) < 0)
            rc = refuse_text(r, st, i, st->a[0]->t[i], "a boolean");
    }
    return rc;
}

KERNEL(text_to_time)
{
    int rc = 0;
    for (uint32_t k = 0; k < n && rc == 0; k++) {
        uint32_t i = sel ? sel[k] : k;
        struct text t = trim_blanks(st->a[0]->t[i]);
        if (sql_parse_timestamp(t.data, t.size, &st->dst->i[i]) < 0)
            rc = refuse_text(r, st, i, t, "a timestamp like '2024-05-01 10:00:00'");
    }
    return rc;
}

KERNEL(text_to_interval)
{
    int rc = 0;
    for (uint32_t k = 0; k < n && rc == 0; k++) {
        uint32_t i = sel ? sel[k] : k;
        struct text t = trim_blanks(st->a[0]->t[i]);
        struct interval v;
        if (sql_parse_interval(t.data, t.size, &v) < 0 || !sql_interval_is_ns(v, &st->dst->i[i]))
            rc = refuse_text(r, st, i, t, "an interval like '5 min'");
    }
    return rc;
}

KERNEL(text_to_calendar)
{
    int rc = 0;
    for (uint32_t k = 0; k < n && rc == 0; k++) {
        uint32_t i = sel ? sel[k] : k;
        struct text t = trim_blanks(st->a[0]->t[i]);
        struct interval v;
        rc = sql_parse_interval(t.data, t.size, &v) < 0
                 ? refuse_text(r, st, i, t, "an interval like '1 month 5 min'")
                 : sql_put_interval(r, st->dst, i, v);
    }
    return rc;
}

KERNEL(calendar_to_interval)
{
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        struct interval v = sql_interval_unpack(st->a[0]->t[i].data);
        if (v.months || sql_interval_ns(v, &st->dst->i[i]) < 0)
            return sql_run_error(r, st, -ERANGE,
                                 "an interval with months or years has no fixed length");
    }
    return 0;
}

KERNEL(interval_to_calendar)
{
    int rc = 0;
    ROWS(if (rc == 0) rc = sql_put_interval(r, st->dst, i, sql_interval_of(st->a[0]->i[i])););
    return rc;
}

KERNEL(text_to_date)
{
    int rc = 0;
    for (uint32_t k = 0; k < n && rc == 0; k++) {
        uint32_t i = sel ? sel[k] : k;
        struct text t = trim_blanks(st->a[0]->t[i]);
        if (sql_parse_date(t.data, t.size, &st->dst->i[i]) < 0)
            rc = refuse_text(r, st, i, t, "a date like '2024-05-01'");
    }
    return rc;
}

KERNEL(time_to_date)
{
    ROWS(st->dst->i[i] = sql_time_trunc(PART_DAY, st->a[0]->i[i]););
    return 0;
}

KERNEL(int_to_double)
{
    ROWS(st->dst->d[i] = (double)st->a[0]->i[i];);
    return 0;
}

KERNEL(double_to_int)
{
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        double d = rint(st->a[0]->d[i]);
        if (d >= -9223372036854775808.0 && d < 9223372036854775808.0) {
            st->dst->i[i] = (int64_t)d;
            continue;
        }
        if (!is_forgiving(st))
            return sql_run_error(r, st, -ERANGE, "double out of range for a bigint");
        sql_set_null(st->dst, i);
    }
    return 0;
}

KERNEL(int_to_bool)
{
    ROWS(st->dst->i[i] = st->a[0]->i[i] != 0;);
    return 0;
}

KERNEL(same_int)
{
    ROWS(st->dst->i[i] = st->a[0]->i[i];);
    return 0;
}

KERNEL(text_to_bytes)
{
    int rc = 0;
    for (uint32_t k = 0; k < n && rc == 0; k++) {
        uint32_t i = sel ? sel[k] : k;
        struct text t = st->a[0]->t[i];
        rc = sql_bytes_of_text(r, t, &st->dst->t[i]);
        if (rc == -EINVAL)
            rc = refuse_text(r, st, i, t, "bytes, written as '\\x1f20' or with \\ooo in it");
    }
    return rc;
}

KERNEL(bytes_to_text)
{
    int rc = 0;
    ROWS(if (rc == 0) rc = sql_text_of_bytes(r, st->a[0]->t[i], &st->dst->t[i]););
    return rc;
}

/* 1234567890123456.5 is 1.2345678901234565e+15: from 10^15 on PostgreSQL writes an exponent. */
static size_t to_exponent(char *out, size_t n)
{
    char digits[32];
    size_t count = 0, sign = out[0] == '-', whole = strcspn(out + sign, ".");
    for (size_t i = sign; i < n && count < sizeof(digits); i++)
        if (out[i] != '.')
            digits[count++] = out[i];
    while (count > 1 && digits[count - 1] == '0')
        count--;
    return sign + (size_t)snprintf(out + sign, 63, "%c%s%.*se+%zu", digits[0], count > 1 ? "." : "",
                                   (int)count - 1, digits + 1, whole - 1);
}

size_t sql_write_double(double v, char out[64])
{
    if (isnan(v))
        return (size_t)snprintf(out, 64, "NaN");
    if (isinf(v))
        return (size_t)snprintf(out, 64, v < 0 ? "-Infinity" : "Infinity");
    size_t n = format_f64(v, out);
    return fabs(v) >= 1e15 && !memchr(out, 'e', n) ? to_exponent(out, n) : n;
}

static size_t write_value(const struct vec *v, uint32_t i, char out[64])
{
    switch (v->type) {
    case SQL_DOUBLE:
        return sql_write_double(v->d[i], out);
    case SQL_TIMESTAMP:
        return sql_format_exactly(v->i[i], out);
    case SQL_DATE:
        return sql_format_date(v->i[i], out);
    case SQL_INTERVAL:
        return sql_format_interval(sql_interval_of(v->i[i]), out);
    case SQL_CALENDAR:
        return sql_format_interval(sql_interval_unpack(v->t[i].data), out);
    case SQL_BOOL:
        return (size_t)snprintf(out, 64, "%s", v->i[i] ? "true" : "false");
    case SQL_NULL:
    case SQL_INT:
    case SQL_TEXT:
    case SQL_BLOB:
        break;
    }
    return (size_t)snprintf(out, 64, "%lld", (long long)v->i[i]);
}

KERNEL(to_text)
{
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        char out[64];
        size_t size = write_value(st->a[0], i, out);
        char *copy = sql_scratch(r, size);
        if (!copy)
            return -ENOMEM;
        memcpy(copy, out, size);
        st->dst->t[i] = (struct text){copy, (uint32_t)size};
    }
    return 0;
}

/* The name says from and to by letter. */
const struct func sql_cast_funcs[] = {{"td", "t", 'd', 0, text_to_double},
                                      {"ti", "t", 'i', 0, text_to_int},
                                      {"tb", "t", 'b', 0, text_to_bool},
                                      {"ts", "t", 's', 0, text_to_time},
                                      {"tv", "t", 'v', 0, text_to_interval},
                                      {"tm", "t", 'm', 0, text_to_calendar},
                                      {"vm", "v", 'm', 0, interval_to_calendar},
                                      {"mv", "m", 'v', 0, calendar_to_interval},
                                      {"tD", "t", 'D', 0, text_to_date},
                                      {"sD", "s", 'D', 0, time_to_date},
                                      {"Ds", "D", 's', 0, same_int},
                                      {"to", "t", 'o', 0, text_to_bytes},
                                      {"ot", "o", 't', 0, bytes_to_text},
                                      {"id", "i", 'd', 0, int_to_double},
                                      {"di", "d", 'i', 0, double_to_int},
                                      {"ib", "i", 'b', 0, int_to_bool},
                                      {"bi", "b", 'i', 0, same_int},
                                      {"it", "i", 't', 0, to_text},
                                      {"dt", "d", 't', 0, to_text},
                                      {"bt", "b", 't', 0, to_text},
                                      {"st", "s", 't', 0, to_text},
                                      {"vt", "v", 't', 0, to_text},
                                      {"mt", "m", 't', 0, to_text},
                                      {"Dt", "D", 't', 0, to_text},
                                      {"si", "s", 'i', 0, same_int}, /* ns since the epoch */
                                      {"vi", "v", 'i', 0, same_int}, /* ns */
                                      {"vd", "v", 'd', 0, int_to_double},
                                      {"to?", "t", 'o', 0, text_to_bytes},
                                      {"td?", "t", 'd', 0, text_to_double},
                                      {"ti?", "t", 'i', 0, text_to_int},
                                      {"tb?", "t", 'b', 0, text_to_bool},
                                      {"ts?", "t", 's', 0, text_to_time},
                                      {"tv?", "t", 'v', 0, text_to_interval},
                                      {"tm?", "t", 'm', 0, text_to_calendar},
                                      {"tD?", "t", 'D', 0, text_to_date},
                                      {"di?", "d", 'i', 0, double_to_int},
                                      {NULL, NULL, 0, 0, NULL}};

const struct func *sql_cast_func(enum sql_type from, enum sql_type to, bool forgive)
{
    const struct func *found = NULL;
    for (const struct func *f = sql_cast_funcs; f->name; f++) {
        bool twin = f->name[2] == '?';
        if (sql_letter_type(f->name[0], SQL_NULL) == from &&
            sql_letter_type(f->name[1], SQL_NULL) == to && (!twin || forgive))
            found = f; /* the forgiving twin comes later */
    }
    return found;
}
