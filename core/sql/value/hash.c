/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/value/hash.c - key columns to dense numbers: what group by, distinct and joins stand on.
 *
 * Every key column becomes an 8-byte word: integers as they are, doubles by their bits, texts by
 * the store's dictionary id or, lacking that, by an id of the query's own dictionary.  A last word
 * holds a bit for each NULL.  Small words find their number without hashing: hash_direct.c.
 * The query's thread only.
 */
#include "core/sql/value/hash.h"

#include <errno.h>
#include <string.h>

#include "core/base/err.h"
#include "sdk/lib/hash.h"

#define FAR_WORK 8 /* pieces: what a look at a place that no cache has costs */

/* Texts without an id of the store. */
struct key_text {
    struct text *texts; /* by id */
    uint32_t *slots;    /* id + 1 */
    uint32_t *hashes;
    uint32_t n, mask, room;
};

static uint64_t mix_bits(uint64_t h)
{
    h ^= h >> 32;
    h *= UINT64_C(0xd6e8feb86659fd93);
    h ^= h >> 32;
    return h;
}

uint64_t sql_hash_bytes(const void *p, size_t n)
{
    const char *c = p;
    uint64_t h = hash_spread(n);
    for (; n >= 8; n -= 8, c += 8) {
        uint64_t w;
        memcpy(&w, c, 8);
        h = hash_spread(mix_bits(h ^ w));
    }
    uint64_t tail = 0;
    if (n)
        memcpy(&tail, c, n);
    return mix_bits(h ^ tail);
}

int sql_keys_init(struct keys *k, struct query *q, const enum sql_type *types, const bool *dict,
                  uint32_t n)
{
    *k = (struct keys){.q = q, .n_arguments = n + 1, .room = 64, .mask = 127};
    if (n > SQL_CALL_ARGS)
        return err_set(-E2BIG, "more than %d columns to group, join or compare by", SQL_CALL_ARGS);
    for (uint32_t c = 0; c < n; c++) {
        k->types[c] = types[c];
        k->dict[c] = dict && dict[c];
    }
    k->words = sql_get(q, (size_t)k->room * k->n_arguments, sizeof(*k->words));
    k->slots = sql_get(q, k->mask + 1, sizeof(*k->slots));
    k->texts = sql_get(q, 1, sizeof(*k->texts));
    k->hashes = sql_get(q, SQL_ROWS, sizeof(*k->hashes));
    for (uint32_t c = 0; c <= n; c++)
        if (!(k->columns[c] = sql_get(q, SQL_ROWS, sizeof(**k->columns))))
            return -ENOMEM;
    return k->words && k->slots && k->texts && k->hashes ? 0 : -ENOMEM;
}

/* ---- the query's own dictionary ---- */

static int text_grow(struct query *q, struct key_text *d)
{
    uint32_t room = d->room ? 2 * d->room : 64;
    struct text *texts = sql_grow(q, d->texts, d->n, room, sizeof(*texts));
    uint32_t *hashes = sql_grow(q, d->hashes, d->n, room, sizeof(*hashes));
    uint32_t *slots = sql_get(q, 2 * (size_t)room, sizeof(*slots));
    if (!texts || !hashes || !slots)
        return -ENOMEM;
    uint32_t mask = 2 * room - 1;
    for (uint32_t id = 0; id < d->n; id++) {
        if (sql_worked(q, FAR_WORK) < 0)
            return -ENOMEM; /* sql_next() knows why */
        uint32_t at = hashes[id] & mask;
        while (slots[at])
            at = (at + 1) & mask;
        slots[at] = id + 1;
    }
    *d = (struct key_text){texts, slots, hashes, d->n, mask, room};
    return 0;
}

/* Id of a text; added when `add`.  1: found or added, 0: not there, -ENOMEM. */
static int text_id(struct keys *k, struct text t, bool stable, bool add, uint64_t *ret)
{
    struct key_text *d = k->texts;
    uint32_t hash = (uint32_t)sql_hash_bytes(t.data, t.size);
    if (d->n == d->room && text_grow(k->q, d) < 0)
        return -ENOMEM;
    uint32_t at = hash & d->mask;
    for (; d->slots[at]; at = (at + 1) & d->mask) {
        uint32_t id = d->slots[at] - 1;
        if (d->hashes[id] == hash && d->texts[id].size == t.size &&
            memcmp(d->texts[id].data, t.data, t.size) == 0) {
            *ret = id;
            return 1;
        }
    }
    if (!add)
        return 0;
    if (!stable) {
        t = sql_copy_text(k->q, t);
        if (!t.data)
            return -ENOMEM;
    }
    d->texts[d->n] = t;
    d->hashes[d->n] = hash;
    *ret = d->n++;
    d->slots[at] = d->n;
    return 1;
}

/* ---- columns to words ---- */

static int text_words(struct keys *k, struct vec *v, const uint16_t *sel, uint32_t n, bool add,
                      uint64_t *out)
{
    sql_texts(k->q, v, sel, n);
    for (uint32_t r = 0; r < n; r++) {
        uint32_t i = sel ? sel[r] : r;
        out[r] = 0;
        if (v->has_null && v->null[i])
            continue;
        int rc = text_id(k, v->t[i], v->stable || v->ids, add, &out[r]);
        if (rc < 0)
            return rc;
        if (rc == 0)
            out[r] = UINT64_MAX; /* no key has it */
    }
    return 0;
}

static void double_words(const struct vec *v, const uint16_t *sel, uint32_t n, uint64_t *out)
{
    for (uint32_t r = 0; r < n; r++) {
        double d = v->d[sel ? sel[r] : r] + 0.0; /* -0 and 0 are one group */
        memcpy(&out[r], &d, sizeof(d));
        if (d != d)
            out[r] = UINT64_C(0x7ff8000000000000); /* so are all NaN */
    }
}

static int column_words(struct keys *k, uint32_t c, struct vec *v, const uint16_t *sel, uint32_t n,
                        bool add)
{
    uint64_t *out = k->columns[c], *nulls = k->columns[k->n_arguments - 1];
    if (v->type == SQL_NULL) {
        memset(out, 0, n * sizeof(*out));
        for (uint32_t r = 0; r < n; r++)
            nulls[r] |= UINT64_C(1) << c;
        return 0;
    }
    if (sql_is_textual(v->type) && !k->dict[c]) {
        int rc = text_words(k, v, sel, n, add, out);
        if (rc < 0)
            return rc;
    } else if (v->type == SQL_DOUBLE) {
        double_words(v, sel, n, out);
    } else {
        const uint64_t *in = k->dict[c] ? v->ids : (const uint64_t *)(const void *)v->i;
        if (!sel)
            memcpy(out, in, n * sizeof(*out));
        else
            for (uint32_t r = 0; r < n; r++)
                out[r] = in[sel[r]];
    }
    if (!v->has_null)
        return 0;
    for (uint32_t r = 0; r < n; r++) {
        if (v->null[sel ? sel[r] : r]) {
            out[r] = 0;
            nulls[r] |= UINT64_C(1) << c;
        }
    }
    return 0;
}

static void hash_rows(struct keys *k, uint32_t n)
{
    uint64_t *h = k->hashes;
    for (uint32_t r = 0; r < n; r++)
        h[r] = k->columns[k->n_arguments - 1][r];
    for (uint32_t c = 0; c + 1 < k->n_arguments; c++) {
        const uint64_t *w = k->columns[c];
        for (uint32_t r = 0; r < n; r++)
            h[r] = keys_hash_word(h[r], w[r]);
    }
}

/* ---- the table ---- */

static int grow_keys(struct keys *k)
{
    if (k->room > UINT32_MAX / 4)
        return err_set(-ENOMEM, "more than a thousand million groups");
    uint32_t room = 2 * k->room;
    size_t used = (size_t)k->n * k->n_arguments;
    uint64_t *words = sql_grow(k->q, k->words, used, (size_t)room * k->n_arguments, sizeof(*words));
    uint32_t *slots = sql_get(k->q, 2 * (size_t)room, sizeof(*slots));
    if (!words || !slots)
        return -ENOMEM;
    uint32_t mask = 2 * room - 1;
    for (uint32_t id = 0; id < k->n; id++) {
        const uint64_t *w = &words[(size_t)id * k->n_arguments];
        if (sql_worked(k->q, FAR_WORK) < 0)
            return -ENOMEM; /* sql_next() knows why */
        uint64_t h = w[k->n_arguments - 1];
        for (uint32_t c = 0; c + 1 < k->n_arguments; c++)
            h = keys_hash_word(h, w[c]);
        uint32_t at = (uint32_t)mix_bits(h) & mask;
        while (slots[at])
            at = (at + 1) & mask;
        slots[at] = id + 1;
    }
    k->words = words;
    k->slots = slots;
    k->room = room;
    k->mask = mask;
    return 0;
}

static bool same_key(const struct keys *k, uint32_t id, uint32_t r)
{
    const uint64_t *w = &k->words[(size_t)id * k->n_arguments];
    for (uint32_t c = 0; c < k->n_arguments; c++)
        if (w[c] != k->columns[c][r])
            return false;
    return true;
}

/* Number of row r of the words; UINT32_MAX: not there (or no memory, when adding). */
uint32_t sql_keys_look_up(struct keys *k, uint32_t r, uint64_t hash, bool add)
{
    uint32_t at = (uint32_t)mix_bits(hash) & k->mask;
    for (; k->slots[at]; at = (at + 1) & k->mask)
        if (same_key(k, k->slots[at] - 1, r))
            return k->slots[at] - 1;
    if (!add)
        return UINT32_MAX;
    if (k->n == k->room) {
        if (grow_keys(k) < 0)
            return UINT32_MAX;
        at = (uint32_t)mix_bits(hash) & k->mask;
        while (k->slots[at])
            at = (at + 1) & k->mask;
    }
    uint64_t *w = &k->words[(size_t)k->n * k->n_arguments];
    for (uint32_t c = 0; c < k->n_arguments; c++)
        w[c] = k->columns[c][r];
    k->slots[at] = ++k->n;
    return k->n - 1;
}

static int to_words(struct keys *k, struct vec **v, const uint16_t *sel, uint32_t n, bool add)
{
    memset(k->columns[k->n_arguments - 1], 0, n * sizeof(uint64_t));
    for (uint32_t c = 0; c + 1 < k->n_arguments; c++) {
        int rc = column_words(k, c, v[c], sel, n, add);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int sql_keys_add(struct keys *k, struct vec **v, const uint16_t *sel, uint32_t n, uint32_t *numbers)
{
    if (k->direct && sql_keys_add_known(k, v, sel, n, numbers))
        return 0;
    int rc = to_words(k, v, sel, n, true);
    if (rc < 0)
        return rc;
    if (k->direct)
        return sql_keys_add_direct(k, n, numbers);
    hash_rows(k, n);
    for (uint32_t r = 0; r < n; r++) {
        numbers[r] = sql_keys_look_up(k, r, k->hashes[r], true);
        if (numbers[r] == UINT32_MAX)
            return -ENOMEM;
    }
    if (!k->no_direct)
        sql_keys_consider_direct(k);
    return 0;
}

int sql_keys_find(struct keys *k, struct vec **v, const uint16_t *sel, uint32_t n,
                  uint32_t *numbers)
{
    if (sql_keys_find_direct(k, v, sel, n, numbers))
        return 0;
    int rc = to_words(k, v, sel, n, false);
    if (rc < 0)
        return rc;
    hash_rows(k, n);
    for (uint32_t r = 0; r < n; r++)
        numbers[r] = sql_keys_look_up(k, r, k->hashes[r], false);
    return 0;
}

/* Words of other's keys from `first` on, as this one's. */
static int borrowed_words(struct keys *k, const struct keys *other, uint32_t first, uint32_t n)
{
    uint32_t columns = k->n_arguments - 1;
    for (uint32_t r = 0; r < n; r++) {
        const uint64_t *w = &other->words[(size_t)(first + r) * k->n_arguments];
        for (uint32_t c = 0; c < k->n_arguments; c++) {
            bool text = c < columns && sql_is_textual(k->types[c]) && !k->dict[c];
            k->columns[c][r] = w[c];
            if (text && !(w[columns] >> c & 1) &&
                text_id(k, other->texts->texts[w[c]], /* stable= */ true, /* add= */ true,
                        &k->columns[c][r]) < 0)
                return -ENOMEM;
        }
    }
    return sql_worked(k->q, n);
}

int sql_keys_merge(struct keys *k, const struct keys *other, uint32_t *numbers)
{
    for (uint32_t first = 0; first < other->n; first += SQL_ROWS) {
        uint32_t n = other->n - first < SQL_ROWS ? other->n - first : SQL_ROWS;
        int rc = borrowed_words(k, other, first, n);
        if (rc < 0)
            return rc;
        hash_rows(k, n);
        for (uint32_t r = 0; r < n; r++) {
            numbers[first + r] = sql_keys_look_up(k, r, k->hashes[r], true);
            if (numbers[first + r] == UINT32_MAX)
                return -ENOMEM;
        }
    }
    return 0;
}

/* Along the cycles of the order, in place: memory may be short. */
void sql_reorder(void *items, size_t size, const uint32_t *order, uint32_t n, uint8_t *marks)
{
    char *base = items, first[SQL_CALL_ARGS * 8 + 8];
    memset(marks, 0, n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = i;
        memcpy(first, base + i * size, size);
        for (; !marks[at] && order[at] != i; at = order[at]) {
            memcpy(base + at * size, base + order[at] * size, size);
            marks[at] = 1;
        }
        if (!marks[at])
            memcpy(base + at * size, first, size);
        marks[at] = 1;
    }
}

void sql_keys_reorder(struct keys *k, const uint32_t *order, uint8_t *marks)
{
    sql_reorder(k->words, k->n_arguments * sizeof(*k->words), order, k->n, marks);
}

int sql_keys_column(struct keys *k, uint32_t c, uint32_t first, uint32_t n, struct vec *ret)
{
    ret->has_null = false;
    ret->stable = true;
    for (uint32_t r = 0; r < n; r++) {
        const uint64_t *w = &k->words[(size_t)(first + r) * k->n_arguments];
        if (w[k->n_arguments - 1] >> c & 1) {
            sql_set_null(ret, r);
        } else if (!sql_is_textual(k->types[c])) {
            memcpy(&ret->i[r], &w[c], sizeof(w[c]));
        } else if (!k->dict[c]) {
            ret->t[r] = k->texts->texts[w[c]];
        } else {
            struct text t = sql_id_text(k->q, w[c]);
            ret->t[r] = t.data ? t : (struct text){"", 0};
        }
    }
    return 0;
}
