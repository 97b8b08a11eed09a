/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/expr/func_build_text.c - functions that make texts: longer, joined, letter for letter,
 * digests.
 *
 * The query's thread only.  Characters are those of UTF-8, cases are Unicode's.
 */
#include "core/sql/expr/kernel.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "core/sql/value/unicode.h"

#define MADE_BYTES (64 << 20) /* of one text made by lpad() and repeat() */

/* lpad(text, n[, fill]), rpad: to n characters, cut where it has more. */
KERNEL(pad)
{
    bool left = st->expr->func->name[0] == 'l';
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        struct text t = st->a[0]->t[i],
                    fill = st->n_args > 2 ? st->a[2]->t[i] : (struct text){" ", 1};
        int64_t want = st->a[1]->i[i], have = sql_characters(t), filling = sql_characters(fill);
        int64_t some = want > have && filling ? want - have : 0;
        if (want > MADE_BYTES / 4)
            return sql_run_error(r, st, -E2BIG,
                                 "the text would have more than 16 million characters");
        t = want < have ? sql_part(t, 0, want > 0 ? want : 0) : t;
        uint64_t whole = filling ? (uint64_t)(some / filling) : 0;
        struct text rest = sql_part(fill, 0, filling ? some % filling : 0);
        uint64_t size = t.size + whole * fill.size + rest.size;
        char *out = sql_scratch(r, size), *to = out;
        if (!out)
            return -ENOMEM;
        memcpy(left ? out + size - t.size : out, t.data, t.size);
        to += left ? 0 : t.size;
        for (; whole; whole--, to += fill.size)
            memcpy(to, fill.data, fill.size);
        memcpy(to, rest.data, rest.size);
        st->dst->t[i] = (struct text){out, (uint32_t)size};
    }
    return 0;
}

KERNEL(repeat)
{
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        struct text t = st->a[0]->t[i];
        int64_t times = st->a[1]->i[i] > 0 ? st->a[1]->i[i] : 0;
        if (t.size && times > MADE_BYTES / t.size)
            return sql_run_error(r, st, -E2BIG, "repeat() would make a text of more than 64 MiB");
        uint64_t size = (uint64_t)t.size * (t.size ? (uint64_t)times : 0);
        char *out = sql_scratch(r, size);
        if (!out)
            return -ENOMEM;
        for (uint64_t at = 0; at < size; at += t.size)
            memcpy(out + at, t.data, t.size);
        st->dst->t[i] = (struct text){out, (uint32_t)size};
    }
    return 0;
}

/* concat_ws(between, a, b ...): NULLs are left out. */
KERNEL(concat_between)
{
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        const struct vec *first = st->args[0];
        uint64_t size = 0;
        uint32_t count = 0;
        bool null = sql_is_null(first, i);
        for (uint32_t a = 1; a < st->n_args && !null; a++)
            if (!st->args[a]->has_null || !st->args[a]->null[i]) {
                size += st->args[a]->t[i].size + (count ? first->t[i].size : 0);
                count++;
            }
        char *out = size < UINT32_MAX ? sql_scratch(r, size) : NULL;
        if (!out)
            return err_set(-ENOMEM, "the text is too long for the memory of the query");
        st->dst->t[i] = (struct text){out, (uint32_t)size};
        if (null)
            sql_set_null(st->dst, i);
        count = 0;
        for (uint32_t a = 1; a < st->n_args && !null; a++) {
            if (st->args[a]->has_null && st->args[a]->null[i])
                continue;
            if (count++) {
                memcpy(out, first->t[i].data, first->t[i].size);
                out += first->t[i].size;
            }
            memcpy(out, st->args[a]->t[i].data, st->args[a]->t[i].size);
            out += st->args[a]->t[i].size;
        }
    }
    return 0;
}

KERNEL(to_hex)
{
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        char *out = sql_scratch(r, 17);
        if (!out)
            return -ENOMEM;
        int size = snprintf(out, 17, "%llx", (unsigned long long)st->a[0]->i[i]);
        st->dst->t[i] = (struct text){out, (uint32_t)size};
    }
    return 0;
}

/* 120.5 KiB, cut as DuckDB's format_bytes() does. */
static int iec_bytes(int64_t bytes, char *out, size_t room)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
    uint64_t size = bytes < 0 ? 0 - (uint64_t)bytes : (uint64_t)bytes, unit = 1024;
    const char *sign = bytes < 0 ? "-" : "";
    uint32_t u = 0;
    if (size < 1024)
        return snprintf(out, room, "%s%u byte%s", sign, (uint32_t)size, size == 1 ? "" : "s");
    for (; size / unit >= 1024 && u < 4; u++)
        unit *= 1024;
    return snprintf(out, room, "%s%u.%u %s", sign, (uint32_t)(size / unit),
                    (uint32_t)(size % unit / (unit / 1024) * 10 / 1024), units[u]);
}

/* 118 MB (of 1,048,576 bytes), rounded, a unit from ten of it on: PostgreSQL's pg_size_pretty(). */
static int rounded_bytes(int64_t bytes, char *out, size_t room)
{
    static const char *const units[] = {"bytes", "kB", "MB", "GB", "TB", "PB"};
    uint64_t size = bytes < 0 ? 0 - (uint64_t)bytes : (uint64_t)bytes;
    const char *sign = bytes < 0 ? "-" : "";
    uint32_t u = 1;
    if (size < 10 * 1024)
        return snprintf(out, room, "%s%u bytes", sign, (uint32_t)size);
    for (size >>= 9; size >= 20 * 1024 - 1 && u < 5; u++) /* twice the unit's number */
        size >>= 10;
    return snprintf(out, room, "%s%llu %s", sign, (unsigned long long)((size + 1) / 2), units[u]);
}

KERNEL(bytes_to_text)
{
    bool iec = st->expr->func->name[0] == 'f';
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        char *out = sql_scratch(r, 32);
        if (!out)
            return -ENOMEM;
        int size =
            iec ? iec_bytes(st->a[0]->i[i], out, 32) : rounded_bytes(st->a[0]->i[i], out, 32);
        st->dst->t[i] = (struct text){out, (uint32_t)size};
    }
    return 0;
}

/* The letter with a number of Unicode. */
KERNEL(chr)
{
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        int64_t c = st->a[0]->i[i];
        char *out = sql_scratch(r, UNICODE_BYTES);
        if (!out)
            return -ENOMEM;
        if (c <= 0 || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
            return sql_run_error(r, st, -ERANGE, "there is no character with this number");
        uint32_t size = unicode_put((uint32_t)c, out);
        st->dst->t[i] = (struct text){out, size};
    }
    return 0;
}

const struct func sql_make_funcs[] = {{"chr", "i", 't', 0, chr},
                                      {"format_bytes", "i", 't', 0, bytes_to_text},
                                      {"pg_size_pretty", "i", 't', 0, bytes_to_text},
                                      {"lpad", "ti", 't', 0, pad},
                                      {"lpad", "tit", 't', 0, pad},
                                      {"rpad", "ti", 't', 0, pad},
                                      {"rpad", "tit", 't', 0, pad},
                                      {"repeat", "ti", 't', 0, repeat},
                                      {"concat_ws", "tt*", 't', FUNC_NULLS, concat_between},
                                      {"to_hex", "i", 't', 0, to_hex},
                                      {NULL, NULL, 0, 0, NULL}};
