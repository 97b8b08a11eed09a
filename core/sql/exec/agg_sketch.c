/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/exec/agg_sketch.c - quantiles of any number of values in little memory, within 1 %.
 *
 * DDSketch (Masson, Rim, Lee: DDSketch: a fast and fully-mergeable quantile sketch with
 * relative-error guarantees, PVLDB 12, 2019): values are counted in bins whose borders grow by
 * GAMMA, so the middle of a bin is within 1 % of each value in it.  Nothing is ever collapsed: all
 * doubles together have 73,000 bins of each sign.  Merging adds counts, so it does not matter in
 * which order, nor how often, sketches are merged.  The query's thread, or its helper's.
 *
 * As bytes: 8 each for how many are NaN, -infinity, infinity and 0, the least and the greatest;
 * then for the negative and the positive ones 4 for the first bin, 4 for how many there are, and
 * their counts, seven bits a byte, the lowest first.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "core/sql/exec/agg.h"

#define ERROR 0.01
#define GAMMA ((1 + ERROR) / (1 - ERROR))
#define BIN_MOST 40000 /* either way: of 5e-324 and of 1.8e308 it is less */
#define MARGIN 32      /* bins more than asked for, where room is made */

struct side {
    int32_t first;
    uint32_t n;
    uint64_t *counts;
};

struct sketch {
    uint64_t nan, low, high, zero; /* low: -infinity */
    double least, greatest;        /* of all but NaN */
    struct side sides[2];          /* of the negative, of the positive */
};

struct sketch *sql_sketch_new(struct query *q)
{
    struct sketch *k = sql_get(q, 1, sizeof(*k));
    if (k) {
        k->least = INFINITY;
        k->greatest = -INFINITY;
    }
    return k;
}

/* Room for the bins from first to last. */
static int make_room(struct query *q, struct side *s, int32_t first, int32_t last)
{
    int32_t end = s->first + (int32_t)s->n - 1;
    if (s->n && first >= s->first && last <= end)
        return 0;
    if (s->n) {
        first = first < s->first ? first - MARGIN : s->first;
        last = last > end ? last + MARGIN : end;
    }
    uint64_t *more = sql_get(q, (size_t)(last - first) + 1, sizeof(*more));
    if (!more)
        return -ENOMEM;
    if (s->n)
        memcpy(more + (s->first - first), s->counts, s->n * sizeof(*more));
    *s = (struct side){first, (uint32_t)(last - first) + 1, more};
    return 0;
}

int sql_sketch_add(struct query *q, struct sketch *k, double x)
{
    if (x != x) {
        k->nan++;
        return 0;
    }
    k->least = x < k->least ? x : k->least;
    k->greatest = x > k->greatest ? x : k->greatest;
    if (x == 0 || isinf(x)) {
        k->zero += x == 0;
        k->low += x == -INFINITY;
        k->high += x == INFINITY;
        return 0;
    }
    struct side *s = &k->sides[x > 0];
    int32_t bin = (int32_t)ceil(log(fabs(x)) / log(GAMMA));
    int rc = make_room(q, s, bin, bin);
    if (rc == 0)
        s->counts[bin - s->first]++;
    return rc;
}

int sql_sketch_merge(struct query *q, struct sketch *to, const struct sketch *from)
{
    to->nan += from->nan;
    to->low += from->low;
    to->high += from->high;
    to->zero += from->zero;
    to->least = from->least < to->least ? from->least : to->least;
    to->greatest = from->greatest > to->greatest ? from->greatest : to->greatest;
    for (int i = 0; i < 2; i++) {
        const struct side *more = &from->sides[i];
        struct side *s = &to->sides[i];
        int rc = more->n ? make_room(q, s, more->first, more->first + (int32_t)more->n - 1) : 0;
        if (rc < 0)
            return rc;
        for (uint32_t b = 0; b < more->n; b++)
            s->counts[(int64_t)more->first - s->first + b] += more->counts[b];
    }
    return 0;
}

static uint64_t count_side(const struct side *s)
{
    uint64_t n = 0;
    for (uint32_t b = 0; b < s->n; b++)
        n += s->counts[b];
    return n;
}

int64_t sql_sketch_count(const struct sketch *k)
{
    return (int64_t)(k->nan + k->low + k->high + k->zero + count_side(&k->sides[0]) +
                     count_side(&k->sides[1]));
}

/* The middle of a bin, within what there was. */
static double bin_middle(const struct sketch *k, double sign, int32_t bin)
{
    double x = sign * 2 * exp(bin * log(GAMMA)) / (GAMMA + 1);
    x = x < k->least ? k->least : x;
    return x > k->greatest ? k->greatest : x;
}

double sql_sketch_quantile(const struct sketch *k, double fraction)
{
    uint64_t n = (uint64_t)sql_sketch_count(k);
    double place = ceil(fraction * (double)n) - 1;
    uint64_t at = place < 0 ? 0 : (uint64_t)place;
    const struct side *s = &k->sides[0];
    if (k->nan < n && (at == 0 || at == n - k->nan - 1))
        return at == 0 ? k->least : k->greatest;
    if (at < k->low)
        return -INFINITY;
    at -= k->low;
    for (uint32_t b = s->n; b-- > 0; at -= s->counts[b])
        if (at < s->counts[b])
            return bin_middle(k, -1, s->first + (int32_t)b);
    if (at < k->zero)
        return 0;
    at -= k->zero;
    s = &k->sides[1];
    for (uint32_t b = 0; b < s->n; at -= s->counts[b], b++)
        if (at < s->counts[b])
            return bin_middle(k, 1, s->first + (int32_t)b);
    return at < k->high ? INFINITY : NAN;
}

/* ---- as bytes ---- */

int sql_sketch_encode(struct query *q, const struct sketch *k, struct text *ret)
{
    size_t room = 48 + 2 * 8 + 10 * ((size_t)k->sides[0].n + k->sides[1].n);
    uint8_t *out = sql_get(q, room, 1), *p = out;
    if (!out)
        return -ENOMEM;
    memcpy(p, &k->nan, 48);
    p += 48;
    for (int i = 0; i < 2; i++) {
        const struct side *s = &k->sides[i];
        memcpy(p, &s->first, 4);
        memcpy(p + 4, &s->n, 4);
        p += 8;
        for (uint32_t b = 0; b < s->n; b++) {
            uint64_t x = s->counts[b];
            for (; x >= 0x80; x >>= 7)
                *p++ = (uint8_t)(x | 0x80);
            *p++ = (uint8_t)x;
        }
    }
    *ret = (struct text){(const char *)out, (uint32_t)(p - out)};
    return 0;
}

/* A count at *at, which moves on; false: there is none, or none that could be. */
static bool take_count(struct text t, uint32_t *at, uint64_t *ret)
{
    uint64_t x = 0;
    for (uint32_t shift = 0; shift < 56; shift += 7) {
        if (*at >= t.size)
            return false;
        uint8_t byte = (uint8_t)t.data[(*at)++];
        x |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *ret = x;
            return x <= (uint64_t)AGG_ROWS_MAX;
        }
    }
    return false;
}

/* The head of a side; false: it cannot be. */
static bool take_head(struct text t, uint32_t *at, struct side *ret)
{
    struct side s = {.first = 0};
    if (t.size - *at < 8)
        return false;
    memcpy(&s.first, t.data + *at, 4);
    memcpy(&s.n, t.data + *at + 4, 4);
    *at += 8;
    *ret = s;
    return s.n <= t.size - *at && s.first >= -BIN_MOST && s.first <= BIN_MOST &&
           s.n <= 2 * BIN_MOST && (int64_t)s.first + s.n <= BIN_MOST;
}

/* Read the counts of a side; where it has no room for them, only add them up. */
static bool take_side(struct text t, uint32_t *at, struct side *s, uint64_t *total)
{
    for (uint32_t b = 0; b < s->n; b++) {
        uint64_t x;
        if (!take_count(t, at, &x))
            return false;
        *total += x;
        if (s->counts)
            s->counts[b] = x;
    }
    return true;
}

int64_t sql_sketch_counts(struct text t)
{
    struct sketch k;
    struct side s;
    uint32_t at = 48;
    uint64_t most = (uint64_t)AGG_ROWS_MAX;
    if (t.size < at)
        return -1;
    memcpy(&k.nan, t.data, 48);
    if (k.nan > most || k.low > most || k.high > most || k.zero > most)
        return -1;
    uint64_t total = k.nan + k.low + k.high + k.zero;
    for (int i = 0; i < 2; i++)
        if (!take_head(t, &at, &s) || !take_side(t, &at, &s, &total))
            return -1;
    return at == t.size && total <= most ? (int64_t)total : -1;
}

struct sketch *sql_sketch_decode(struct query *q, struct text t, bool *ret_bad)
{
    struct sketch *k = sql_sketch_new(q);
    uint32_t at = 48;
    uint64_t total = 0;
    *ret_bad = sql_sketch_counts(t) < 0;
    if (!k || *ret_bad)
        return NULL;
    memcpy(&k->nan, t.data, 48);
    for (int i = 0; i < 2; i++) {
        struct side *s = &k->sides[i];
        (void)take_head(t, &at, s);
        if (s->n && !(s->counts = sql_get(q, s->n, sizeof(*s->counts))))
            return NULL;
        (void)take_side(t, &at, s, &total);
    }
    return k;
}
