/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/value/hash_direct.c - keys of small words: a table indexed by value.
 *
 * Small non-negative words (dictionary ids, steps) of at most three columns; the table is as wide
 * as the words seen so far need.  The query's thread, or its helper's.
 */
#include "core/sql/value/hash.h"

#include <errno.h>
#include <string.h>

#define DIRECT_BITS 20  /* 4 MiB at most */
#define DIRECT_AFTER 32 /* keys known before it is worth its memory... */
#define BEYOND (UINT64_C(1) << 62)

/* Make it afresh, wide enough for every key there is, if that is not too much. */
static void make_direct(struct keys *k)
{
    uint32_t columns = k->n_arguments - 1, sum = 0;
    uint64_t all[3] = {0, 0, 0};
    k->direct = NULL;
    for (uint32_t id = 0; id < k->n; id++)
        for (uint32_t c = 0; c < columns; c++)
            all[c] |= k->words[(size_t)id * k->n_arguments + c];
    for (uint32_t c = 0; c < columns; c++) {
        k->direct_bits[c] = all[c] ? 64 - (uint32_t)__builtin_clzll(all[c]) : 1;
        sum += k->direct_bits[c];
    }
    k->no_direct = sum > DIRECT_BITS;
    if (!k->no_direct)
        k->direct = arena_zalloc(&k->q->mem, (size_t)1 << sum, sizeof(*k->direct));
    for (uint32_t id = 0; id < k->n && k->direct; id++) {
        const uint64_t *w = &k->words[(size_t)id * k->n_arguments];
        uint64_t at = 0;
        for (uint32_t c = 0; c < columns; c++)
            at = at << k->direct_bits[c] | w[c];
        if (!w[columns])
            k->direct[at] = id + 1;
    }
}

/* Index into the direct table, or beyond it. */
static void direct_index(const struct keys *k, uint32_t n, uint64_t *out)
{
    uint32_t columns = k->n_arguments - 1;
    const uint64_t *nulls = k->columns[columns];
    for (uint32_t r = 0; r < n; r++)
        out[r] = nulls[r] ? BEYOND : 0;
    for (uint32_t c = 0; c < columns; c++) {
        const uint64_t *w = k->columns[c];
        uint32_t bits = k->direct_bits[c];
        for (uint32_t r = 0; r < n; r++)
            out[r] = w[r] >> bits || out[r] == BEYOND ? BEYOND : out[r] << bits | w[r];
    }
}

int sql_keys_add_direct(struct keys *k, uint32_t n, uint32_t *numbers)
{
    bool outgrown = false;
    direct_index(k, n, k->hashes);
    for (uint32_t r = 0; r < n; r++) {
        uint64_t at = k->hashes[r];
        if (at != BEYOND && k->direct[at]) {
            numbers[r] = k->direct[at] - 1;
            continue;
        }
        uint64_t h = k->columns[k->n_arguments - 1][r];
        for (uint32_t c = 0; c + 1 < k->n_arguments; c++)
            h = keys_hash_word(h, k->columns[c][r]);
        numbers[r] = sql_keys_look_up(k, r, h, true);
        if (numbers[r] == UINT32_MAX)
            return -ENOMEM;
        if (at != BEYOND)
            k->direct[at] = numbers[r] + 1;
        outgrown |= at == BEYOND && !k->columns[k->n_arguments - 1][r];
    }
    if (outgrown)
        make_direct(k);
    return 0;
}

/* Are all of them below 2^bits? */
static bool are_below(const struct vec *v, const uint64_t *words, uint32_t bits,
                      const uint16_t *sel, uint32_t n)
{
    uint64_t all = v->most;
    for (uint32_t r = 0; r < n && !v->most; r++)
        all |= words[sel ? sel[r] : r];
    return !(all >> bits);
}

/* Numbers of one or two columns from the table by value; false: not all of them are known there.
 * What the store says of the largest word is trusted no further than to look within the table. */
static bool look_directly(const struct keys *k, const uint64_t *const words[2], const uint16_t *sel,
                          uint32_t n, uint32_t *restrict numbers)
{
    const uint32_t *direct = k->direct;
    const uint64_t *a = words[0], *b = words[1];
    uint32_t bits = b ? k->direct_bits[1] : 0, all = 0;
    uint64_t mask = (UINT64_C(1) << (k->direct_bits[0] + bits)) - 1;
    if (!b)
        for (uint32_t r = 0; r < n; r++)
            all |= numbers[r] = direct[a[sel ? sel[r] : r] & mask] - 1;
    else if (sel)
        for (uint32_t r = 0; r < n; r++)
            all |= numbers[r] = direct[(a[sel[r]] << bits | b[sel[r]]) & mask] - 1;
    else
        for (uint32_t r = 0; r < n; r++)
            all |= numbers[r] = direct[(a[r] << bits | b[r]) & mask] - 1;
    return !(all >> 31); /* 0 in the table is "not known": -1 */
}

/* One or two columns without NULLs, every row of which is known: no word is copied. */
bool sql_keys_add_known(struct keys *k, struct vec **v, const uint16_t *sel, uint32_t n,
                        uint32_t *numbers)
{
    uint32_t columns = k->n_arguments - 1;
    const uint64_t *words[2] = {NULL, NULL};
    if (columns < 1 || columns > 2)
        return false;
    for (uint32_t c = 0; c < columns; c++) {
        if (v[c]->has_null || v[c]->type == SQL_NULL || (sql_is_textual(v[c]->type) && !k->dict[c]))
            return false;
        words[c] = k->dict[c] ? v[c]->ids : (const uint64_t *)(const void *)v[c]->i;
        if (!are_below(v[c], words[c], k->direct_bits[c], sel, n))
            return false;
    }
    return look_directly(k, words, sel, n, numbers);
}

void sql_keys_consider_direct(struct keys *k)
{
    uint32_t columns = k->n_arguments - 1;
    bool fits = columns >= 1 && columns <= 3 && k->n >= DIRECT_AFTER && !k->no_direct;
    for (uint32_t c = 0; c < columns && fits; c++)
        fits = k->types[c] != SQL_DOUBLE;
    if (fits && sql_memory_limit(k->q) / 8 >= (sizeof(uint32_t) << DIRECT_BITS))
        make_direct(k);
    else
        k->no_direct = k->n >= DIRECT_AFTER;
}

/* One or two columns of whole numbers without NULLs: the table by value holds every key there is,
 * so what is not in it is nowhere. */
bool sql_keys_find_direct(const struct keys *k, struct vec **v, const uint16_t *sel, uint32_t n,
                          uint32_t *numbers)
{
    uint32_t columns = k->n_arguments - 1;
    if (!k->direct || columns > 2)
        return false;
    for (uint32_t c = 0; c < columns; c++)
        if (v[c]->has_null || v[c]->type == SQL_NULL || sql_is_textual(v[c]->type))
            return false;
    const uint64_t *a = (const uint64_t *)(const void *)v[0]->i;
    const uint64_t *b = (const uint64_t *)(const void *)v[columns - 1]->i;
    uint32_t a_bits = k->direct_bits[0], b_bits = columns == 2 ? k->direct_bits[1] : 0;
    for (uint32_t r = 0; r < n; r++) {
        uint32_t i = sel ? sel[r] : r;
        uint64_t at = columns == 2 ? a[i] << b_bits | b[i] : a[i];
        bool beyond = a[i] >> a_bits || (columns == 2 && b[i] >> b_bits);
        numbers[r] = beyond ? UINT32_MAX : k->direct[at] - 1; /* 0 is none */
    }
    return true;
}
