/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/probing_sdk.h - what every plugin would otherwise write for itself: tables in a line, reasons
 * by printf, ids of texts, NULL cells, numbers out of text.
 *
 * For C99 and C++11; only this file, probing/plugin.h and libc.  Functions are inline and keep
 * nothing, so any thread may call them where it may call the function of the host behind them;
 * [brackets] as in probing/plugin.h.
 */
#ifndef PROBING_SDK_H
#define PROBING_SDK_H

#include <errno.h>
#include <probing/plugin.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PROBING_LENGTH(array) (sizeof(array) / sizeof((array)[0])) /* elements */

/* ---- time ---- */

#define PROBING_NS_PER_US UINT64_C(1000)
#define PROBING_NS_PER_MS UINT64_C(1000000)
#define PROBING_NS_PER_S UINT64_C(1000000000)

static inline double probing_seconds(uint64_t ns)
{
    return (double)ns / 1e9;
}

#ifdef CLOCK_MONOTONIC /* not in a strict -std=c99 */
/* A clock of this machine in ns; rows take host->now() instead.                     [signal] */
static inline uint64_t probing_clock_ns(clockid_t clock)
{
    struct timespec t = {0, 0};
    (void)clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * PROBING_NS_PER_S + (uint64_t)t.tv_nsec;
}
#endif

/* ---- tables ---- */

/* Elements of an array of struct probing_column. */
#define PROBING_COLUMN(name, type, unit, doc) \
    {                                         \
        name, type, unit, doc,                \
        {                                     \
            0, 0                              \
        }                                     \
    }
#define PROBING_I64_COLUMN(name, unit, doc) PROBING_COLUMN(name, PROBING_I64, unit, doc)
#define PROBING_F64_COLUMN(name, unit, doc) PROBING_COLUMN(name, PROBING_F64, unit, doc)
#define PROBING_STR_COLUMN(name, doc) PROBING_COLUMN(name, PROBING_STR, PROBING_PLAIN, doc)

/* Initializer of a struct probing_table_desc; columns: an array, all of whose columns it has. */
#define PROBING_TABLE_OF(name, columns, tail_type, tail_name, scan, doc)                      \
    {                                                                                         \
        sizeof(struct probing_table_desc), sizeof(struct probing_column), name, doc, columns, \
            (uint32_t)PROBING_LENGTH(columns), tail_type, tail_name, 0, 0, scan               \
    }
/* Stored, rows by append(); with a last column of texts of any length; computed, rows by scan(). */
#define PROBING_TABLE(name, columns, doc) PROBING_TABLE_OF(name, columns, 0, NULL, NULL, doc)
#define PROBING_TEXT_TABLE(name, columns, tail_name, doc) \
    PROBING_TABLE_OF(name, columns, PROBING_STR, tail_name, NULL, doc)
#define PROBING_COMPUTED_TABLE(name, columns, scan, doc) \
    PROBING_TABLE_OF(name, columns, 0, NULL, scan, doc)

/* ---- cells ---- */

static inline union probing_cell probing_i64(int64_t value)
{
    union probing_cell cell;
    cell.i = value;
    return cell;
}

static inline union probing_cell probing_f64(double value)
{
    union probing_cell cell;
    cell.f = value;
    return cell;
}

/* An id of intern(), for append(). */
static inline union probing_cell probing_id(uint64_t id)
{
    union probing_cell cell;
    cell.u = id;
    return cell;
}

/* A text, for emit(), which copies it; NULL is NULL. */
static inline union probing_cell probing_str(const char *text)
{
    union probing_cell cell;
    cell.u = 0;
    cell.s = text;
    return cell;
}

/* NULL in a cell of that type, of append() and of emit(). */
static inline union probing_cell probing_null(uint32_t type)
{
    return probing_id(type == PROBING_F64                           ? PROBING_NULL_F64
                      : type == PROBING_STR || type == PROBING_BLOB ? PROBING_NULL_ID
                                                                    : (uint64_t)PROBING_NULL_I64);
}

/* The id of a text, PROBING_NULL_ID where there is no room for another.              [any] */
static inline uint64_t probing_intern(const struct probing_host *h, const char *text, size_t n)
{
    uint64_t id;
    return h->intern(h, text, n, &id) == 0 ? id : PROBING_NULL_ID;
}

/* NULL is NULL; "" is a text.                                                       [any] */
static inline uint64_t probing_intern_text(const struct probing_host *h, const char *text)
{
    return text ? probing_intern(h, text, strlen(text)) : PROBING_NULL_ID;
}

/* ---- answers ---- */

/* fail() by printf; what is longer than 1023 bytes is cut.  Gives `code`.               [any] */
__attribute__((format(printf, 3, 4))) static inline int
probing_failf(const struct probing_host *h, int code, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return h->fail(h, code, text);
}

/* reply() by printf, of any length.  0, -ENOMEM after fail(), or what reply() gives.  [worker] */
__attribute__((format(printf, 3, 4))) static inline int
probing_replyf(const struct probing_host *h, struct probing_reply *out, const char *format, ...)
{
    char room[1024], *text = room;
    va_list args, again;
    int rc;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(room, sizeof(room), format, args);
    if (n >= (int)sizeof(room) && (text = (char *)malloc((size_t)n + 1)) != NULL)
        (void)vsnprintf(text, (size_t)n + 1, format, again);
    va_end(again);
    va_end(args);
    if (n < 0 || text == NULL)
        rc = h->fail(h, -ENOMEM, "no memory for an answer");
    else
        rc = h->reply(out, text, (size_t)n);
    if (text != room)
        free(text);
    return rc;
}

/* Give a scan()'s result: the asker who wanted no more rows has them, which is no error. */
static inline int probing_scanned(int rc)
{
    return rc == -ECANCELED ? 0 : rc;
}

/* ---- numbers out of text ---- */

/* All of `text` as a decimal number, in any locale.  0; -EINVAL: it is something else (a sign,
 * blanks, nothing, no text at all); -ERANGE: it is above `max`. */
static inline int probing_parse_u64(const char *text, uint64_t max, uint64_t *ret)
{
    uint64_t value = 0;
    int above = 0;
    if (!text || !*text)
        return -EINVAL;
    for (; *text >= '0' && *text <= '9'; text++) {
        uint64_t digit = (uint64_t)(*text - '0');
        above |= value > (UINT64_MAX - digit) / 10;
        value = value * 10 + digit;
        above |= value > max;
    }
    if (*text)
        return -EINVAL;
    if (above)
        return -ERANGE;
    *ret = value;
    return 0;
}

#ifdef __cplusplus
}
#endif

#endif
