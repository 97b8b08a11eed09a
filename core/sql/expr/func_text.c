/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/expr/func_text.c - functions of texts.
 *
 * The query's thread only.  Lengths and places are in characters of UTF-8; upper and lower case
 * are Unicode's, whatever the locale of the host.
 */
#include "core/sql/expr/kernel.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/text.h"
#include "core/sql/value/unicode.h"

#define CHECK_STEPS 1000000 /* of like: a few ms */
#define ESCAPES_NOTHING 2   /* the text came to the \ that ends its pattern */

bool sql_is_start(char c)
{
    return ((unsigned char)c & 0xc0) != 0x80;
}

int64_t sql_characters(struct text t)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < t.size; i++)
        n += sql_is_start(t.data[i]);
    return n;
}

/* Byte at which character number `n` (from 0) begins; the size when there are fewer. */
static uint32_t byte_of(struct text t, int64_t n)
{
    uint32_t at = 0;
    while (at < t.size && n > 0) {
        at++;
        while (at < t.size && !sql_is_start(t.data[at]))
            at++;
        n--;
    }
    return at;
}

struct text sql_part(struct text t, int64_t first, int64_t end)
{
    uint32_t from = first > 0 ? byte_of(t, first) : 0;
    uint32_t to = end > 0 ? byte_of(t, end) : 0;
    return (struct text){t.data + from, to > from ? to - from : 0};
}

KERNEL(length)
{
    ROWS(st->dst->i[i] = sql_characters(st->a[0]->t[i]););
    return 0;
}

KERNEL(octet_length)
{
    ROWS(st->dst->i[i] = st->a[0]->t[i].size;);
    return 0;
}

KERNEL(change_case)
{
    bool to_lower = st->expr->func->name[0] == 'l';
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        struct text t = st->a[0]->t[i];
        const char *end = t.data + t.size;
        /* A letter of two bytes may become one of three. */
        char *out = t.size < UINT32_MAX / 2 ? sql_scratch(r, (size_t)t.size * 2) : NULL;
        uint32_t made = 0;
        if (!out)
            return err_set(-ENOMEM, "the text is too long for the memory of the query");
        for (const char *p = t.data; p < end;) {
            uint32_t c = unicode_next(&p, end);
            made += unicode_put(to_lower ? unicode_lower(c) : unicode_upper(c), out + made);
        }
        st->dst->t[i] = (struct text){out, made};
    }
    return 0;
}

/* substr(text, from[, count]): from 1; what lies before the text counts but gives nothing */
KERNEL(substr)
{
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        int64_t from = st->a[1]->i[i], end = INT64_MAX;
        if (__builtin_sub_overflow(from, 1, &from))
            from = INT64_MIN;
        if (st->n_args > 2) {
            if (st->a[2]->i[i] < 0)
                return sql_run_error(r, st, -EINVAL, "the length of a substring is negative");
            if (__builtin_add_overflow(from, st->a[2]->i[i], &end))
                end = INT64_MAX;
        }
        st->dst->t[i] = sql_part(st->a[0]->t[i], from, end);
    }
    return 0;
}

/* left(text, n), right(text, n); negative n: all but so many */
KERNEL(left_right)
{
    bool left = st->expr->func->name[0] == 'l';
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        struct text t = st->a[0]->t[i];
        int64_t count = st->a[1]->i[i], all = sql_characters(t);
        count = count > all ? all : count < -all ? 0 : count < 0 ? all + count : count;
        st->dst->t[i] = left ? sql_part(t, 0, count) : sql_part(t, all - count, all);
    }
    return 0;
}

static const char *find_text(struct text t, uint32_t from, struct text what)
{
    return memmem(t.data + from, t.size - from, what.data, what.size);
}

/* Bytes of the first or last letter of a text that has one. */
static uint32_t letter_size(struct text t, bool last)
{
    uint32_t n = 1;
    if (last)
        while (n < t.size && !sql_is_start(t.data[t.size - n]))
            n++;
    else
        while (n < t.size && !sql_is_start(t.data[n]))
            n++;
    return n;
}

KERNEL(trim)
{
    char which = st->expr->func->name[0]; /* l, r, or both */
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k, size;
        struct text t = st->a[0]->t[i];
        struct text set = st->n_args > 1 ? st->a[1]->t[i] : (struct text){" ", 1};
        while (which != 'r' && t.size && (size = letter_size(t, false)) &&
               find_text(set, 0, (struct text){t.data, size})) {
            t.data += size;
            t.size -= size;
        }
        while (which != 'l' && t.size && (size = letter_size(t, true)) &&
               find_text(set, 0, (struct text){t.data + t.size - size, size}))
            t.size -= size;
        st->dst->t[i] = t;
    }
    return 0;
}

KERNEL(replace)
{
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        struct text t = st->a[0]->t[i], from = st->a[1]->t[i], to = st->a[2]->t[i];
        uint64_t found = 0, size = 0;
        const char *p;
        for (uint32_t at = 0; from.size && (p = find_text(t, at, from)); found++)
            at = (uint32_t)(p - t.data) + from.size;
        size = t.size + found * to.size - found * from.size;
        char *out = size < UINT32_MAX ? sql_scratch(r, size) : NULL;
        if (!out)
            return err_set(
                -ENOMEM,
                "replace() would make a text that is too long for the memory of the query");
        st->dst->t[i] = (struct text){out, (uint32_t)size};
        uint32_t at = 0;
        for (; found; found--) {
            p = find_text(t, at, from);
            memcpy(out, t.data + at, (size_t)(p - t.data) - at);
            out += (size_t)(p - t.data) - at;
            memcpy(out, to.data, to.size);
            out += to.size;
            at = (uint32_t)(p - t.data) + from.size;
        }
        memcpy(out, t.data + at, t.size - at);
    }
    return 0;
}

/* concat: NULLs are left out; || is the same without NULLs among its arguments. */
KERNEL(concat)
{
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        uint64_t size = 0;
        for (uint32_t a = 0; a < st->n_args; a++)
            if (!st->args[a]->has_null || !st->args[a]->null[i])
                size += st->args[a]->t[i].size;
        char *out = size < UINT32_MAX ? sql_scratch(r, size) : NULL;
        if (!out)
            return err_set(-ENOMEM, "the text is too long for the memory of the query");
        st->dst->t[i] = (struct text){out, (uint32_t)size};
        for (uint32_t a = 0; a < st->n_args; a++) {
            if (st->args[a]->has_null && st->args[a]->null[i])
                continue;
            memcpy(out, st->args[a]->t[i].data, st->args[a]->t[i].size);
            out += st->args[a]->t[i].size;
        }
    }
    return 0;
}

static uint32_t count_of(struct text t, struct text what)
{
    uint32_t count = 0, at = 0;
    const char *p;
    for (; what.size && (p = find_text(t, at, what)); count++)
        at = (uint32_t)(p - t.data) + what.size;
    return count;
}

/* The number of the first letter in Unicode; 0: there is none. */
KERNEL(ascii)
{
    ROWS(struct text t = st->a[0]->t[i]; const uint8_t *p = (const uint8_t *)t.data;
         uint32_t c = t.size ? p[0] : 0, more = c < 0xc0   ? 0
                                                : c < 0xe0 ? 1
                                                : c < 0xf0 ? 2
                                                           : 3;
         more = more < t.size ? more : 0; c = more ? c & (0x3fu >> more) : c;
         for (uint32_t b = 1; b <= more; b++) c = c << 6 | (p[b] & 0x3f); st->dst->i[i] = c;);
    return 0;
}

KERNEL(split_part)
{
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        struct text t = st->a[0]->t[i], by = st->a[1]->t[i];
        int64_t which = st->a[2]->i[i];
        const char *p;
        if (which == 0)
            return sql_run_error(
                r, st, -EINVAL,
                "split_part counts parts from 1, or from -1 backwards from the end");
        if (which < 0) /* there is one more than separators */
            which += 2 + (int64_t)count_of(t, by);
        if (which <= 0) {
            st->dst->t[i] = (struct text){t.data, 0};
            continue;
        }
        while (by.size && which > 1 && (p = find_text(t, 0, by))) {
            t.size -= (uint32_t)(p - t.data) + by.size;
            t.data = p + by.size;
            which--;
        }
        if (which > 1)
            t.size = 0;
        else if (by.size && (p = find_text(t, 0, by)))
            t.size = (uint32_t)(p - t.data);
        st->dst->t[i] = t;
    }
    return 0;
}

KERNEL(starts_with)
{
    ROWS(struct text t = st->a[0]->t[i]; struct text p = st->a[1]->t[i];
         st->dst->i[i] = t.size >= p.size && memcmp(t.data, p.data, p.size) == 0;);
    return 0;
}

KERNEL(ends_with)
{
    ROWS(struct text t = st->a[0]->t[i]; struct text p = st->a[1]->t[i];
         st->dst->i[i] =
             t.size >= p.size && memcmp(t.data + t.size - p.size, p.data, p.size) == 0;);
    return 0;
}

KERNEL(strpos)
{
    ROWS(struct text t = st->a[0]->t[i]; const char *p = find_text(t, 0, st->a[1]->t[i]);
         st->dst->i[i] =
             p ? sql_characters((struct text){t.data, (uint32_t)(p - t.data)}) + 1 : 0;);
    return 0;
}

/* One character of a pattern against one of a text. */
struct like {
    const char *p, *end;
};

static bool one_like(struct like *pattern, struct like *t, bool fold)
{
    const char *p = pattern->p;
    if (t->p == t->end)
        return false;
    if (*p == '_') {
        pattern->p++;
        do
            t->p++;
        while (t->p < t->end && !sql_is_start(*t->p));
        return true;
    }
    if (*p == '\\' && p + 1 < pattern->end)
        p++;
    const char *at = t->p;
    bool same = fold ? unicode_lower(unicode_next(&p, pattern->end)) ==
                           unicode_lower(unicode_next(&at, t->end))
                     : *p++ == *at++;
    if (same) {
        pattern->p = p;
        t->p = at;
    }
    return same;
}

/* LIKE without recursion: when it fails behind a %, the % takes one character more.  1, 0,
 * ESCAPES_NOTHING or, since long patterns over long texts take time, what sql_check() says. */
static int match_like(struct query *q, struct text text, struct text pattern, bool fold)
{
    uint32_t steps = 0;
    struct like t = {text.data, text.data + text.size};
    struct like p = {pattern.data, pattern.data + pattern.size};
    const char *retry_p = NULL, *retry_t = NULL;
    for (;;) {
        int rc = ++steps % CHECK_STEPS == 0 ? sql_check(q) : 0;
        if (rc < 0)
            return rc;
        if (p.p < p.end && *p.p == '%') {
            retry_p = ++p.p;
            retry_t = t.p;
            continue;
        }
        if (p.p == p.end && t.p == t.end)
            return true;
        if (p.p + 1 == p.end && *p.p == '\\' && t.p < t.end)
            return ESCAPES_NOTHING;
        if (p.p < p.end && one_like(&p, &t, fold))
            continue;
        if (!retry_p || retry_t == t.end)
            return false;
        p.p = retry_p;
        t.p = ++retry_t;
    }
}

KERNEL(like_text)
{
    bool fold = st->expr->func->name[0] == 'i';
    int rc = 0;
    for (uint32_t k = 0; k < n && rc >= 0; k++) {
        uint32_t i = sel ? sel[k] : k;
        rc = match_like(r->q, st->a[0]->t[i], st->a[1]->t[i], fold);
        if (rc == ESCAPES_NOTHING)
            return sql_run_error(r, st, -EINVAL,
                                 "the pattern of like ends with its escape character, which stands "
                                 "before another one; \\\\ is a \\ itself");
        st->dst->i[i] = rc > 0;
    }
    return rc < 0 ? rc : 0;
}

KERNEL(reverse)
{
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        struct text t = st->a[0]->t[i];
        char *out = sql_scratch(r, t.size);
        if (!out)
            return -ENOMEM;
        for (uint32_t at = 0; at < t.size;) {
            uint32_t end = at + 1;
            while (end < t.size && !sql_is_start(t.data[end]))
                end++;
            memcpy(out + t.size - end, t.data + at, end - at);
            at = end;
        }
        st->dst->t[i] = (struct text){out, t.size};
    }
    return 0;
}

KERNEL(contains)
{
    ROWS(st->dst->i[i] = find_text(st->a[0]->t[i], 0, st->a[1]->t[i]) != NULL;);
    return 0;
}

const struct func sql_text_funcs[] = {{"length", "t", 'i', 0, length},
                                      {"char_length", "t", 'i', 0, length},
                                      {"len", "t", 'i', 0, length},
                                      {"character_length", "t", 'i', 0, length},
                                      {"octet_length", "t", 'i', 0, octet_length},
                                      {"octet_length", "o", 'i', 0, octet_length},
                                      {"length", "o", 'i', 0, octet_length},
                                      {"lower", "t", 't', 0, change_case},
                                      {"upper", "t", 't', 0, change_case},
                                      {"substr", "ti", 't', 0, substr},
                                      {"substr", "tii", 't', 0, substr},
                                      {"substring", "ti", 't', 0, substr},
                                      {"substring", "tii", 't', 0, substr},
                                      {"left", "ti", 't', 0, left_right},
                                      {"right", "ti", 't', 0, left_right},
                                      {"trim", "t", 't', 0, trim},
                                      {"trim", "tt", 't', 0, trim},
                                      {"btrim", "t", 't', 0, trim},
                                      {"btrim", "tt", 't', 0, trim},
                                      {"ltrim", "t", 't', 0, trim},
                                      {"ltrim", "tt", 't', 0, trim},
                                      {"rtrim", "t", 't', 0, trim},
                                      {"rtrim", "tt", 't', 0, trim},
                                      {"replace", "ttt", 't', 0, replace},
                                      {"concat", "t*", 't', FUNC_NULLS, concat},
                                      {"||", "tt", 't', 0, concat},
                                      {"split_part", "tti", 't', 0, split_part},
                                      {"starts_with", "tt", 'b', 0, starts_with},
                                      {"ends_with", "tt", 'b', 0, ends_with},
                                      {"strpos", "tt", 'i', 0, strpos},
                                      {"instr", "tt", 'i', 0, strpos},
                                      {"ascii", "t", 'i', 0, ascii},
                                      {"like", "tt", 'b', 0, like_text},
                                      {"ilike", "tt", 'b', 0, like_text},
                                      {"reverse", "t", 't', 0, reverse},
                                      {"contains", "tt", 'b', 0, contains},
                                      {NULL, NULL, 0, 0, NULL}};
