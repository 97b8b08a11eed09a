/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/expr/func_collect.c - what aggregates collect: several keys of an order as one, elements
 * of arrays; and the functions of arrays: array_to_string, array_length, cardinality.
 *
 * An array is a text as PostgreSQL writes it, {a,"b c",NULL}: bind_json.c says where it may stand.
 * The query's thread only.
 */
#include "core/sql/expr/kernel.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#include "core/base/err.h"

#define MADE_BYTES ((size_t)64 << 20) /* of one text */

struct bytes {
    char *to; /* NULL: they are only counted */
    size_t n;
};

static void put_bytes(struct bytes *b, const char *data, size_t size)
{
    if (b->to)
        memcpy(b->to + b->n, data, size);
    b->n += size;
}

static void put_byte(struct bytes *b, uint8_t c)
{
    char byte = (char)c;
    put_bytes(b, &byte, 1);
}

/* ---- keys: bytes whose order is that of (a, b, ...) ---- */

static void put_word(struct bytes *b, uint64_t word, uint8_t flip)
{
    for (int shift = 56; shift >= 0; shift -= 8)
        put_byte(b, (uint8_t)(word >> shift) ^ flip);
}

/* In the order of doubles: -0 is 0, and NaN the largest. */
static uint64_t double_word(double d)
{
    uint64_t word;
    d = d != d ? (double)NAN : d + 0.0;
    memcpy(&word, &d, sizeof(word));
    return d != d ? UINT64_MAX : word >> 63 ? ~word : word | UINT64_C(1) << 63;
}

/* A byte for the NULLs, then the value; a text ends with two zeros, a zero in it has 255 behind. */
static void put_key(struct bytes *b, const struct vec *v, uint32_t i, bool descending,
                    bool nulls_first)
{
    uint8_t flip = descending ? 0xff : 0;
    bool null = sql_is_null(v, i);
    put_byte(b, null == nulls_first ? 0 : 1);
    if (null)
        return;
    if (!sql_is_textual(v->type)) {
        put_word(
            b, v->type == SQL_DOUBLE ? double_word(v->d[i]) : (uint64_t)v->i[i] ^ UINT64_C(1) << 63,
            flip);
        return;
    }
    for (uint32_t k = 0; k < v->t[i].size; k++) {
        put_byte(b, (uint8_t)v->t[i].data[k] ^ flip);
        if (v->t[i].data[k] == '\0')
            put_byte(b, 0xff ^ flip);
    }
    put_byte(b, flip);
    put_byte(b, flip);
}

static void put_keys(struct bytes *b, const struct step *st, uint32_t i)
{
    for (uint32_t a = 0; a + 1 < st->n_args; a += 2) {
        int64_t order = st->args[a]->i[i];
        put_key(b, st->args[a + 1], i, order & 1, order & 2);
    }
}

typedef void (*writer)(struct bytes *b, const struct step *st, uint32_t i);

static int write_rows(struct run *r, struct step *st, const uint16_t *sel, uint32_t n, writer w)
{
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        struct bytes b = {NULL, 0};
        w(&b, st, i);
        b.to = b.n < MADE_BYTES ? sql_scratch(r, b.n + 1) : NULL;
        if (!b.to)
            return err_set(-ENOMEM, "the text is too long for the memory of the query");
        b.n = 0;
        w(&b, st, i);
        st->dst->t[i] = (struct text){b.to, (uint32_t)b.n};
    }
    return 0;
}

/* (order, value)...: of order, bit 0 says descending, bit 1 NULLs first */
KERNEL(order_key)
{
    return write_rows(r, st, sel, n, put_keys);
}

/* ---- arrays ---- */

static bool needs_quotes(struct text t)
{
    bool needs = t.size == 0 || (t.size == 4 && strncasecmp(t.data, "null", 4) == 0);
    for (uint32_t k = 0; k < t.size && !needs; k++)
        needs = t.data[k] != '\0' && strchr("\"\\{}, \t\n\v\f\r", t.data[k]) != NULL;
    return needs;
}

static void put_element(struct bytes *b, const struct step *st, uint32_t i)
{
    if (sql_is_null(st->args[0], i)) {
        put_bytes(b, "NULL", 4);
        return;
    }
    struct text t = st->args[0]->t[i];
    bool quotes = needs_quotes(t);
    put_bytes(b, "\"", quotes);
    for (uint32_t k = 0; k < t.size; k++) {
        put_bytes(b, "\\", t.data[k] == '"' || t.data[k] == '\\');
        put_bytes(b, t.data + k, 1);
    }
    put_bytes(b, "\"", quotes);
}

KERNEL(array_element)
{
    return write_rows(r, st, sel, n, put_element);
}

/* The next element at *at, as it is between commas; false: there is none. */
static bool next_element(struct text t, uint32_t *at, struct text *ret)
{
    uint32_t from = *at, k = from;
    bool quoted = false;
    if (t.size < 2 || from + 1 >= t.size || t.data[0] != '{')
        return false;
    for (; k + 1 < t.size && (quoted || t.data[k] != ','); k++) {
        quoted = quoted != (t.data[k] == '"');
        k += t.data[k] == '\\';
    }
    *ret = (struct text){t.data + from, (k < t.size ? k : t.size - 1) - from};
    *at = k + 1;
    return true;
}

static int64_t count_elements(struct text t)
{
    struct text one;
    int64_t n = 0;
    for (uint32_t at = 1; next_element(t, &at, &one);)
        n++;
    return n;
}

static void put_joined(struct bytes *b, const struct step *st, uint32_t i)
{
    struct text one, t = st->args[0]->t[i], separator = st->args[1]->t[i];
    bool any = false;
    for (uint32_t at = 1; next_element(t, &at, &one);) {
        bool null = one.size == 4 && memcmp(one.data, "NULL", 4) == 0;
        if (null && (st->n_args < 3 || sql_is_null(st->args[2], i)))
            continue;
        put_bytes(b, separator.data, any ? separator.size : 0);
        any = true;
        if (null)
            put_bytes(b, st->args[2]->t[i].data, st->args[2]->t[i].size);
        for (uint32_t k = 0; !null && k < one.size; k++) {
            if (one.data[k] == '"')
                continue;
            k += one.data[k] == '\\' && k + 1 < one.size;
            put_bytes(b, one.data + k, 1);
        }
    }
}

/* Without the third argument, or where it is NULL, NULLs are left out. */
KERNEL(array_to_string)
{
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        uint16_t row = (uint16_t)i;
        int rc = 0;
        if (sql_is_null(st->args[0], i) || sql_is_null(st->args[1], i))
            sql_set_null(st->dst, i);
        else
            rc = write_rows(r, st, &row, 1, put_joined);
        if (rc < 0)
            return rc;
    }
    return 0;
}

KERNEL(cardinality)
{
    ROWS(st->dst->i[i] = count_elements(st->a[0]->t[i]););
    return 0;
}

/* They have one dimension; that of an empty one is none. */
KERNEL(array_length)
{
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        st->dst->i[i] = count_elements(st->a[0]->t[i]);
        if (st->dst->i[i] == 0 || st->a[1]->i[i] != 1)
            sql_set_null(st->dst, i);
    }
    return 0;
}

const struct func sql_collect_funcs[] = {
    {"order key", "x*", 'o', FUNC_NULLS, order_key},
    {"array element", "t", 't', FUNC_NULLS, array_element},
    {"array_to_string", "tt", 't', FUNC_NULLS, array_to_string},
    {"array_to_string", "ttt", 't', FUNC_NULLS, array_to_string},
    {"cardinality", "t", 'i', 0, cardinality},
    {"array_length", "ti", 'i', 0, array_length},
    {NULL, NULL, 0, 0, NULL}};
