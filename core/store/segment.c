/* SPDX-License-Identifier: Apache-2.0
 *
 * core/store/segment.c - columns into blocks of packed bits, and back.
 *
 * Any thread, each with its own structs.  The encoder sees trusted cells; the decoder checks every
 * length before it follows it, beside the checksums, which only tell accidents.
 */
#include "core/store/segment.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "core/base/err.h"

#if defined(__x86_64__)
#define WIDE __attribute__((target("avx2"))) /* twice as quick as the plain build, where there is */
#else
#define WIDE
#endif
#define EVERYWHERE inline __attribute__((always_inline))
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3") /* gcc 12 leaves most of these loops scalar at -O2 */
#endif

#define MAGIC UINT32_C(0x32475350)      /* "PSG2" */
#define MAGIC_NAME UINT32_C(0x00ffffff) /* without the version, '2' */
#define HEAD_BYTES 32
#define SUMMED_BYTES 24 /* of the head, before its checksum */
#define ENTRY_BYTES 40
#define END_BYTES 8
#define BLOCK SEGMENT_BLOCK
#define BLOCK_MAX (1 + 8 + 8 + 8 + BLOCK * 8) /* bytes: the largest block */
#define COLUMNS_MAX TABLE_COLUMNS_MAX
#define TAIL_BIT 0x80
#define EXCEPTIONS_SHARE 16 /* more than one row in so many is no decimal column */

enum encoding { ENCODING_NONE, ENCODING_BLOCKS, ENCODING_DIV, ENCODING_MUL, ENCODING_TAIL };
enum { FLAG_BOUNDS = 1, FLAG_BITMAP = 2 };
enum { HOW_DELTA = 0x80, HOW_DOUBLE = 0x40 };

static const double powers_of_ten[] = {1,   1e1, 1e2, 1e3,  1e4,  1e5, 1e6,
                                       1e7, 1e8, 1e9, 1e10, 1e11, 1e12};
static const double parts_of_ten[] = {1,    1e-1, 1e-2, 1e-3,  1e-4,  1e-5, 1e-6,
                                      1e-7, 1e-8, 1e-9, 1e-10, 1e-11, 1e-12};
#define SHIFT_MAX 12 /* the last power above */

/* ---- bytes ---- */

static uint32_t load_u32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

static uint64_t load_u64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

static void store_u32(uint8_t *p, uint32_t v)
{
    memcpy(p, &v, 4);
}

static void store_u64(uint8_t *p, uint64_t v)
{
    memcpy(p, &v, 8);
}

/* Four lanes of multiply and rotate: quicker than memory, and any flipped bit changes it. */
static uint64_t checksum(const uint8_t *p, size_t n)
{
    const uint64_t odd = UINT64_C(0x9e3779b97f4a7c15);
    uint64_t lane[4] = {n, odd, n ^ odd, ~odd};
    for (; n >= 32; n -= 32, p += 32) {
        for (int i = 0; i < 4; i++) {
            uint64_t x = (lane[i] ^ load_u64(p + 8 * i)) * odd;
            lane[i] = x << 29 | x >> 35;
        }
    }
    for (int i = 0; n; i = (i + 1) & 3) {
        uint64_t word = 0;
        size_t k = n < 8 ? n : 8;
        memcpy(&word, p, k);
        uint64_t x = (lane[i] ^ word) * odd;
        lane[i] = x << 29 | x >> 35;
        p += k;
        n -= k;
    }
    uint64_t h = 0;
    for (int i = 0; i < 4; i++) {
        h = (h ^ lane[i]) * odd;
        h ^= h >> 32;
    }
    return h;
}

uint64_t segment_checksum(const void *p, size_t n)
{
    return checksum(p, n);
}

/* ---- blocks out ---- */

static uint32_t width_of(uint64_t x)
{
    uint32_t w = x ? 64 - (uint32_t)__builtin_clzll(x) : 0;
    return w > 56 ? 64 : w; /* a number of up to 56 bits lies within 8 bytes wherever it begins */
}

/* Two streams, of 64 numbers and whole words each: the processor works on both at once. */
static EVERYWHERE uint8_t *pack(uint8_t *p, const uint64_t *v, uint32_t w)
{
    if (w == 64) {
        memcpy(p, v, BLOCK * 8);
        return p + BLOCK * 8;
    }
    uint64_t a = 0, b = 0;
    uint32_t n = 0;
    uint8_t *at = p;
    const uint8_t *half = p + 8 * w;
    for (int i = 0; at < half; i++) {
        uint64_t x = v[i], y = v[i + BLOCK / 2];
        a |= x << n;
        b |= y << n;
        n += w;
        if (n >= 64) {
            store_u64(at, a);
            store_u64(at + 8 * w, b);
            at += 8;
            n -= 64;
            a = n ? x >> (w - n) : 0;
            b = n ? y >> (w - n) : 0;
        }
    }
    return p + 16 * w; /* 128 * w bits are whole words */
}

struct range {
    int64_t min;
    uint64_t span;
};

static EVERYWHERE int64_t lesser(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static EVERYWHERE int64_t greater(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Four quarters side by side: each comparison waits for the one before it. */
static EVERYWHERE struct range range_of(const int64_t *v)
{
    const int64_t *w = v + BLOCK / 4, *x = v + BLOCK / 2, *y = v + 3 * BLOCK / 4;
    int64_t low[4] = {v[0], w[0], x[0], y[0]}, high[4] = {v[0], w[0], x[0], y[0]};
    for (int i = 1; i < BLOCK / 4; i++) {
        low[0] = lesser(v[i], low[0]);
        high[0] = greater(v[i], high[0]);
        low[1] = lesser(w[i], low[1]);
        high[1] = greater(w[i], high[1]);
        low[2] = lesser(x[i], low[2]);
        high[2] = greater(x[i], high[2]);
        low[3] = lesser(y[i], low[3]);
        high[3] = greater(y[i], high[3]);
    }
    int64_t min = lesser(lesser(low[0], low[1]), lesser(low[2], low[3]));
    int64_t max = greater(greater(high[0], high[1]), greater(high[2], high[3]));
    return (struct range){min, (uint64_t)max - (uint64_t)min};
}

/* v[i] - v[i-1], wrapping; the first is the second's, so that it never widens the block. */
static EVERYWHERE void differences(const int64_t *v, int64_t *d)
{
    for (int i = 1; i < BLOCK; i++)
        d[i] = (int64_t)((uint64_t)v[i] - (uint64_t)v[i - 1]);
    d[0] = d[1];
}

static EVERYWHERE uint8_t *pack_from(uint8_t *p, const int64_t *v, int64_t base, uint32_t w)
{
    uint64_t out[BLOCK];
    for (int i = 0; i < BLOCK; i++)
        out[i] = (uint64_t)v[i] - (uint64_t)base;
    return pack(p, out, w);
}

/* The smallest of the three forms. */
static EVERYWHERE uint8_t *encode_block(uint8_t *p, const int64_t *v, struct range plain)
{
    int64_t d[BLOCK], dd[BLOCK];
    uint32_t w = width_of(plain.span), w1 = 64, w2 = 64;
    struct range one = {0}, two = {0};
    if (w > 4) { /* below, the longer heads of deltas cannot pay */
        differences(v, d);
        one = range_of(d);
        w1 = width_of(one.span);
        if (w1 > 4 && w1 < 64) {
            differences(d, dd);
            dd[0] = dd[1] = dd[2];
            two = range_of(dd);
            w2 = width_of(two.span);
        }
    }
    if (16 * w2 + 8 < 16 * w1 && 16 * w2 + 16 < 16 * w && w2 < 64) {
        *p++ = (uint8_t)(w2 | HOW_DELTA | HOW_DOUBLE);
        store_u64(p, (uint64_t)two.min);
        store_u64(p + 8, (uint64_t)v[0]);
        store_u64(p + 16, (uint64_t)d[1]);
        return pack_from(p + 24, dd, two.min, w2);
    }
    if (16 * w1 + 8 < 16 * w) {
        *p++ = (uint8_t)(w1 | HOW_DELTA);
        store_u64(p, (uint64_t)one.min);
        store_u64(p + 8, (uint64_t)v[0]);
        return pack_from(p + 16, d, one.min, w1);
    }
    *p++ = (uint8_t)w;
    store_u64(p, (uint64_t)plain.min);
    return pack_from(p + 8, v, plain.min, w);
}

static uint32_t blocks_of(uint32_t n_rows)
{
    return (n_rows + BLOCK - 1) / BLOCK;
}

/* What an encoder wants to know of a column in one pass. */
struct survey {
    int64_t min, max;
    uint64_t any; /* bits that are set somewhere */
    struct range blocks[SEGMENT_ROWS / BLOCK];
};

static EVERYWHERE void survey_body(const int64_t *v, uint32_t blocks, struct survey *ret)
{
    int64_t low = v[0], high = v[0];
    uint64_t any = 0;
    for (uint32_t b = 0; b < blocks; b++, v += BLOCK) {
        struct range r = range_of(v);
        int64_t last = (int64_t)((uint64_t)r.min + r.span);
        low = r.min < low ? r.min : low;
        high = last > high ? last : high;
        for (int i = 0; i < BLOCK; i++)
            any |= (uint64_t)v[i];
        ret->blocks[b] = r;
    }
    ret->min = low;
    ret->max = high;
    ret->any = any;
}

static EVERYWHERE uint8_t *blocks_body(uint8_t *p, const int64_t *v, uint32_t blocks,
                                       const struct range *ranges)
{
    for (uint32_t b = 0; b < blocks; b++)
        p = encode_block(p, v + (size_t)b * BLOCK, ranges[b]);
    return p;
}

static void survey_plain(const int64_t *v, uint32_t blocks, struct survey *ret)
{
    survey_body(v, blocks, ret);
}

static uint8_t *blocks_plain(uint8_t *p, const int64_t *v, uint32_t blocks,
                             const struct range *ranges)
{
    return blocks_body(p, v, blocks, ranges);
}

WIDE static void survey_wide(const int64_t *v, uint32_t blocks, struct survey *ret)
{
    survey_body(v, blocks, ret);
}

WIDE static uint8_t *blocks_wide(uint8_t *p, const int64_t *v, uint32_t blocks,
                                 const struct range *ranges)
{
    return blocks_body(p, v, blocks, ranges);
}

static bool is_wide(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2");
#else
    return false;
#endif
}

/* The last block is filled up with the last value: v has room. */
static void survey_of(int64_t *v, uint32_t n, struct survey *ret)
{
    uint32_t blocks = blocks_of(n);
    for (uint32_t i = n; i < blocks * BLOCK; i++)
        v[i] = v[n - 1];
    if (is_wide())
        survey_wide(v, blocks, ret);
    else
        survey_plain(v, blocks, ret);
}

/* The values as they were surveyed. */
static uint8_t *encode_surveyed(uint8_t *p, const int64_t *v, uint32_t n, const struct survey *s)
{
    return is_wide() ? blocks_wide(p, v, blocks_of(n), s->blocks)
                     : blocks_plain(p, v, blocks_of(n), s->blocks);
}

static uint8_t *encode_blocks(uint8_t *p, int64_t *v, uint32_t n)
{
    struct survey s;
    survey_of(v, n, &s);
    return encode_surveyed(p, v, n, &s);
}

/* ---- columns out ---- */

static bool is_null(uint8_t type, union probing_cell c)
{
    switch (type) {
    case PROBING_F64:
        return c.u == PROBING_NULL_F64;
    case PROBING_STR:
    case PROBING_BLOB:
        return c.u == PROBING_NULL_ID;
    }
    return c.i == PROBING_NULL_I64;
}

static void put_entry(uint8_t *entry, const struct segment_column *c)
{
    entry[0] = (uint8_t)(c->type | (c->is_tail ? TAIL_BIT : 0));
    entry[1] = c->encoding;
    entry[2] = c->shift;
    entry[3] = (uint8_t)((c->has_bounds ? FLAG_BOUNDS : 0) | (c->has_bitmap ? FLAG_BITMAP : 0));
    store_u32(entry + 4, c->nulls);
    store_u32(entry + 8, c->offset);
    store_u32(entry + 12, c->size);
    store_u64(entry + 16, c->min.u);
    store_u64(entry + 24, c->max.u);
    store_u64(entry + 32, c->checksum);
}

static uint32_t count_nulls(uint8_t type, const union probing_cell *v, uint32_t n)
{
    uint64_t null = type == PROBING_F64                           ? PROBING_NULL_F64
                    : type == PROBING_STR || type == PROBING_BLOB ? PROBING_NULL_ID
                                                                  : (uint64_t)PROBING_NULL_I64;
    uint32_t nulls = 0;
    for (uint32_t i = 0; i < n; i++)
        nulls += v[i].u == null;
    return nulls;
}

/* Min and max of what is not NULL.  Doubles with a NaN among them have none. */
static void find_bounds(struct segment_column *c, const union probing_cell *v, uint32_t n)
{
    bool any = false;
    for (uint32_t i = 0; i < n; i++) {
        if (c->nulls && is_null(c->type, v[i]))
            continue;
        if (c->type == PROBING_F64 && isnan(v[i].f))
            return;
        if (!any) {
            c->min = c->max = v[i];
            any = true;
        } else if (c->type == PROBING_F64) {
            c->min = v[i].f < c->min.f ? v[i] : c->min;
            c->max = v[i].f > c->max.f ? v[i] : c->max;
        } else { /* ids are below 2^63, so the signed order is theirs too */
            c->min.i = v[i].i < c->min.i ? v[i].i : c->min.i;
            c->max.i = v[i].i > c->max.i ? v[i].i : c->max.i;
        }
    }
    c->has_bounds = any;
}

/* Put the null bitmap out and the value before in each NULL's place (the first value where there is
 * none before). */
static uint8_t *hide_nulls(const struct segment_column *c, uint8_t *p, union probing_cell *v,
                           uint32_t n)
{
    size_t bytes = ((size_t)n + 63) / 64 * 8;
    uint32_t first = 0;
    memset(p, 0, bytes);
    while (is_null(c->type, v[first]))
        first++;
    union probing_cell stand_in = v[first];
    for (uint32_t i = 0; i < n; i++) {
        if (is_null(c->type, v[i])) {
            p[i / 8] |= (uint8_t)(1u << i % 8);
            v[i] = stand_in;
        } else {
            stand_in = v[i];
        }
    }
    return p + bytes;
}

/* The integer that gives this double back exactly, if there is one. */
static bool as_decimal(double f, uint8_t encoding, uint8_t shift, int64_t *ret)
{
    double scaled = f * powers_of_ten[shift];
    if (!(fabs(scaled) < 4503599627370496.0)) /* 2^52: beyond, adding a half is not exact */
        return false;
    int64_t i = (int64_t)(scaled + (scaled < 0 ? -0.5 : 0.5));
    double back = encoding == ENCODING_DIV ? (double)i / powers_of_ten[shift]
                                           : (double)i * parts_of_ten[shift];
    *ret = i;
    /* By bits: -0.0 is not 0. */
    return memcmp(&back, &f, 8) == 0;
}

/* Which decimal form fits a sample, ENCODING_BLOCKS if none does. */
static uint8_t guess_decimal(const union probing_cell *v, uint32_t n, uint8_t *ret_shift)
{
    static const struct {
        uint8_t encoding, shift;
    } tries[] = {{ENCODING_DIV, 0}, {ENCODING_DIV, 3}, {ENCODING_MUL, 9}, {ENCODING_DIV, 9},
                 {ENCODING_DIV, 6}, {ENCODING_MUL, 6}, {ENCODING_MUL, 3}, {ENCODING_DIV, 12}};
    uint32_t samples = n < 64 ? n : 64;
    for (size_t t = 0; t < sizeof(tries) / sizeof(tries[0]); t++) {
        uint32_t good = 0;
        int64_t i;
        for (uint32_t k = 0; k < samples; k++)
            good +=
                as_decimal(v[(uint64_t)k * n / samples].f, tries[t].encoding, tries[t].shift, &i);
        if (good >= samples - samples / EXCEPTIONS_SHARE) {
            *ret_shift = tries[t].shift;
            return tries[t].encoding;
        }
    }
    return ENCODING_BLOCKS;
}

/* One block of doubles as decimals, as_decimal() without branches: adding ROUND rounds to a whole
 * number, which then stands in the low bits.  false: not all of them are. */
static EVERYWHERE bool decimals_body(const union probing_cell *v, double power, double part,
                                     int64_t *ints)
{
    const double ROUND = 6755399441055744.0; /* 2^52 + 2^51 */
    const int64_t ROUND_BITS = INT64_C(0x4338000000000000);
    uint64_t wrong = 0;
    for (int i = 0; i < BLOCK; i++) {
        double scaled = v[i].f * power, rounded = scaled + ROUND;
        double whole = rounded - ROUND;
        union probing_cell back = {.f = part != 0 ? whole * part : whole / power};
        union probing_cell bits = {.f = rounded};
        ints[i] = bits.i - ROUND_BITS;
        wrong |= (back.u ^ v[i].u) | (uint64_t) !(fabs(scaled) < 2251799813685248.0); /* 2^51 */
    }
    return wrong == 0;
}

static bool decimals_plain(const union probing_cell *v, double power, double part, int64_t *ints)
{
    return decimals_body(v, power, part, ints);
}

WIDE static bool decimals_wide(const union probing_cell *v, double power, double part,
                               int64_t *ints)
{
    return decimals_body(v, power, part, ints);
}

/* A column of doubles as decimals, its last block filled up.  NULL: it is none, nothing was
 * changed. */
static uint8_t *encode_decimal(const struct segment_column *c, uint8_t *p,
                               const union probing_cell *v, uint32_t n, int64_t *ints)
{
    uint32_t wrong[SEGMENT_ROWS / EXCEPTIONS_SHARE + 1];
    uint32_t n_wrong = 0;
    int64_t last = 0;
    double power = powers_of_ten[c->shift];
    double part = c->encoding == ENCODING_MUL ? parts_of_ten[c->shift] : 0;
    for (uint32_t at = 0; at < n; at += BLOCK) {
        bool all = is_wide() ? decimals_wide(v + at, power, part, ints + at)
                             : decimals_plain(v + at, power, part, ints + at);
        for (uint32_t i = at; i < at + BLOCK && i < n && !all; i++) {
            if (as_decimal(v[i].f, c->encoding, c->shift, &ints[i])) {
                last = ints[i];
                continue;
            }
            if (n_wrong >= n / EXCEPTIONS_SHARE)
                return NULL;
            wrong[n_wrong++] = i;
            ints[i] = last;
        }
        last = ints[at + BLOCK < n ? at + BLOCK - 1 : n - 1];
    }
    p = encode_blocks(p, ints, n);
    store_u32(p, n_wrong);
    p += 4;
    for (uint32_t k = 0; k < n_wrong; k++, p += 12) {
        store_u32(p, wrong[k]);
        store_u64(p + 4, v[wrong[k]].u);
    }
    return p;
}

/* Shift all values right, and what is known of them too: the bits that go are zeros. */
static void shift_down(union probing_cell *v, uint32_t n, uint8_t shift, struct survey *s)
{
    for (uint32_t i = 0; i < blocks_of(n) * BLOCK; i++)
        v[i].i >>= shift;
    for (uint32_t b = 0; b < blocks_of(n); b++) {
        s->blocks[b].min >>= shift;
        s->blocks[b].span >>= shift;
    }
}

/* Min, max and NULLs of a column, from the survey of its bits where that says it: NULL is the least
 * number of its type (an id is never negative), and doubles that are not negative are ordered as
 * their bits, NaNs behind infinity. */
static void learn(struct segment_column *c, const union probing_cell *v, uint32_t n,
                  const struct survey *s)
{
    static const union probing_cell infinite = {.f = INFINITY};
    c->min.i = s->min;
    c->max.i = s->max;
    c->has_bounds = true;
    bool plain =
        c->type == PROBING_F64 ? s->min >= 0 && s->max <= infinite.i : !is_null(c->type, c->min);
    if (plain)
        return;
    c->has_bounds = false;
    c->nulls = count_nulls(c->type, v, n);
    find_bounds(c, v, n);
}

static uint8_t *encode_column(struct segment_column *c, uint8_t *p, union probing_cell *v,
                              uint32_t n, int64_t *scratch)
{
    struct survey survey;
    survey_of((int64_t *)v, n, &survey);
    learn(c, v, n, &survey);
    c->encoding = ENCODING_NONE;
    if (c->nulls == n || (c->nulls == 0 && c->has_bounds && c->min.u == c->max.u &&
                          (c->type != PROBING_F64 || c->min.f != 0)))
        return p;
    bool ids = c->type == PROBING_STR || c->type == PROBING_BLOB;
    if (c->nulls && !ids) { /* an id of 0 is as good a number as any */
        c->has_bitmap = true;
        p = hide_nulls(c, p, v, n);
        survey_of((int64_t *)v, n, &survey);
    }
    c->encoding = ENCODING_BLOCKS;
    if (c->type == PROBING_F64) {
        c->encoding = guess_decimal(v, n, &c->shift);
        uint8_t *end = c->encoding == ENCODING_BLOCKS ? NULL : encode_decimal(c, p, v, n, scratch);
        if (end)
            return end;
        c->encoding = ENCODING_BLOCKS; /* the bits, as integers */
    }
    c->shift = survey.any ? (uint8_t)__builtin_ctzll(survey.any) : 0;
    if (c->shift)
        shift_down(v, n, c->shift, &survey);
    return encode_surveyed(p, (const int64_t *)v, n, &survey);
}

static uint8_t *encode_tails(struct segment_column *c, uint8_t *p, const struct segment_rows *rows)
{
    int64_t *lengths = rows->scratch;
    for (uint32_t i = 0; i < rows->n_rows; i++) {
        lengths[i] = (int64_t)rows->tail_offsets[i + 1] - (int64_t)rows->tail_offsets[i];
        c->nulls += lengths[i] == 0;
    }
    c->encoding = ENCODING_TAIL;
    uint8_t *blocks = p + 4;
    uint8_t *end = encode_blocks(blocks, lengths, rows->n_rows);
    store_u32(p, (uint32_t)(end - blocks));
    uint32_t from = rows->tail_offsets[0], bytes = rows->tail_offsets[rows->n_rows] - from;
    if (bytes)
        memcpy(end, rows->tails + from, bytes);
    return end + bytes;
}

static size_t column_room(const struct segment_rows *rows, bool tail)
{
    size_t room = (size_t)blocks_of(rows->n_rows) * BLOCK_MAX + rows->n_rows / 8 + 16;
    if (tail)
        return room + rows->tail_offsets[rows->n_rows] - rows->tail_offsets[0];
    return room + (size_t)rows->n_rows / EXCEPTIONS_SHARE * 12;
}

static uint64_t head_checksum(const uint8_t *head, uint32_t n_columns)
{
    return checksum(head, SUMMED_BYTES) ^
           checksum(head + HEAD_BYTES, (size_t)n_columns * ENTRY_BYTES);
}

int segment_encode(const struct segment_rows *rows, struct buf *out)
{
    uint32_t n_columns = rows->n_columns + (rows->tail_type ? 1 : 0);
    uint32_t head_bytes = HEAD_BYTES + n_columns * ENTRY_BYTES;
    size_t start = out->size;
    if (rows->n_rows == 0 || rows->n_rows > SEGMENT_ROWS || n_columns > COLUMNS_MAX)
        return err_set(-EINVAL, "a segment of %u rows, %u columns", rows->n_rows, n_columns);
    if (!buf_room(out, head_bytes))
        return out->failed;
    out->size += head_bytes;
    for (uint32_t i = 0; i < n_columns; i++) {
        bool tail = i == rows->n_columns;
        struct segment_column c = {.type = tail ? rows->tail_type : rows->types[i],
                                   .is_tail = tail,
                                   .offset = (uint32_t)(out->size - start)};
        char *room = buf_room(out, column_room(rows, tail));
        if (!room)
            return out->failed;
        uint8_t *p = (uint8_t *)room;
        uint8_t *end = tail ? encode_tails(&c, p, rows)
                            : encode_column(&c, p, rows->cells[i], rows->n_rows, rows->scratch);
        c.size = (uint32_t)(end - p);
        c.checksum = checksum(p, c.size);
        out->size += c.size;
        put_entry((uint8_t *)out->data + start + HEAD_BYTES + (size_t)i * ENTRY_BYTES, &c);
    }
    if (buf_add(out, (const char[END_BYTES]){0}, END_BYTES))
        return out->failed;
    uint8_t *head = (uint8_t *)out->data + start;
    store_u32(head, MAGIC);
    store_u32(head + 4, rows->n_rows);
    store_u32(head + 8, n_columns | rows->table_id << 16);
    store_u32(head + 12, (uint32_t)(out->size - start));
    store_u64(head + 16, rows->first_row);
    store_u64(head + SUMMED_BYTES, head_checksum(head, n_columns));
    return 0;
}

/* ---- in ---- */

void segment_sign(void *data, size_t size)
{
    uint8_t *p = data;
    if (size < HEAD_BYTES)
        return;
    uint32_t n_columns = load_u32(p + 8) & 0xffff;
    if (n_columns > COLUMNS_MAX || HEAD_BYTES + n_columns * ENTRY_BYTES > size)
        return;
    for (uint32_t i = 0; i < n_columns; i++) {
        uint8_t *entry = p + HEAD_BYTES + (size_t)i * ENTRY_BYTES;
        uint64_t offset = load_u32(entry + 8), bytes = load_u32(entry + 12);
        if (offset + bytes <= size)
            store_u64(entry + 32, checksum(p + offset, bytes));
    }
    store_u64(p + SUMMED_BYTES, head_checksum(p, n_columns));
}

int segment_open(const void *data, size_t size, struct segment *ret)
{
    const uint8_t *p = data;
    if (size < HEAD_BYTES + END_BYTES || (load_u32(p) & MAGIC_NAME) != (MAGIC & MAGIC_NAME))
        return err_set(-EBADMSG, "not a segment");
    if (load_u32(p) != MAGIC)
        return err_set(-EPROTO, "a segment of another version of probing");
    uint32_t n_rows = load_u32(p + 4), whole = load_u32(p + 12);
    uint32_t n_columns = load_u32(p + 8) & 0xffff, table_id = load_u32(p + 8) >> 16;
    if (n_rows == 0 || n_rows > SEGMENT_ROWS || n_columns > COLUMNS_MAX || whole > size ||
        whole < HEAD_BYTES + n_columns * ENTRY_BYTES + END_BYTES)
        return err_set(-EBADMSG, "a segment with a bad head");
    if (load_u64(p + SUMMED_BYTES) != head_checksum(p, n_columns))
        return err_set(-EBADMSG, "a segment with a wrong checksum");
    *ret = (struct segment){.data = p,
                            .size = whole,
                            .n_rows = n_rows,
                            .n_columns = n_columns,
                            .table_id = table_id,
                            .first_row = load_u64(p + 16)};
    return 0;
}

int segment_check(const struct segment *s)
{
    struct segment_column c = {0};
    for (uint32_t i = 0; i < s->n_columns; i++) {
        int rc = segment_column(s, i, &c);
        if (rc)
            return rc;
        if (checksum(s->data + c.offset, c.size) != c.checksum)
            return err_set(-EBADMSG, "column %u of a segment has a wrong checksum", i);
    }
    return 0;
}

int segment_column(const struct segment *s, uint32_t column, struct segment_column *ret)
{
    if (column >= s->n_columns)
        return err_set(-EBADMSG, "a segment has no column %u", column);
    const uint8_t *entry = s->data + HEAD_BYTES + (size_t)column * ENTRY_BYTES;
    struct segment_column c = {.type = entry[0] & (TAIL_BIT - 1),
                               .encoding = entry[1],
                               .shift = entry[2],
                               .is_tail = (entry[0] & TAIL_BIT) != 0,
                               .has_bounds = (entry[3] & FLAG_BOUNDS) != 0,
                               .has_bitmap = (entry[3] & FLAG_BITMAP) != 0,
                               .nulls = load_u32(entry + 4),
                               .offset = load_u32(entry + 8),
                               .size = load_u32(entry + 12),
                               .min.u = load_u64(entry + 16),
                               .max.u = load_u64(entry + 24),
                               .checksum = load_u64(entry + 32)};
    if (c.offset < HEAD_BYTES + s->n_columns * ENTRY_BYTES || c.offset > s->size - END_BYTES ||
        c.size > s->size - END_BYTES - c.offset || c.nulls > s->n_rows)
        return err_set(-EBADMSG, "column %u of a segment lies outside of it", column);
    bool decimal = c.encoding == ENCODING_DIV || c.encoding == ENCODING_MUL;
    if (c.encoding > ENCODING_TAIL || c.is_tail != (c.encoding == ENCODING_TAIL) ||
        c.shift > (decimal ? SHIFT_MAX : 63) || c.type < PROBING_I64 || c.type > PROBING_TIME)
        return err_set(-EBADMSG, "column %u of a segment has an unknown encoding", column);
    *ret = c;
    return 0;
}

/* Bytes of a block's head by its first byte; 0: no such block. */
static uint32_t block_head(uint8_t how, uint32_t *ret_width)
{
    bool twice = (how & HOW_DELTA) && (how & HOW_DOUBLE);
    uint32_t w = how & (twice ? 0x3f : 0x7f);
    *ret_width = w;
    if (w > 56 && w != 64)
        return 0;
    return twice ? 25 : how & HOW_DELTA ? 17 : 9;
}

/* With a width known to the compiler: `n` numbers of each 8 bytes loaded, by constant shifts. */
static EVERYWHERE void unpack_width(const uint8_t *p, const uint32_t w, const uint32_t n,
                                    int64_t base, uint32_t shift, int64_t *out)
{
    const uint64_t mask = (UINT64_C(1) << w) - 1;
    for (uint32_t k = 0; k < BLOCK; k += 8, p += w) {
        for (uint32_t g = 0; g < 8; g += n) { /* 8 numbers are w bytes */
            uint64_t bits = load_u64(p + (g * w >> 3)) >> (g * w & 7);
            for (uint32_t i = 0; i < n; i++)
                out[k + g + i] = (int64_t)(((bits >> (i * w) & mask) + (uint64_t)base) << shift);
        }
    }
}

static EVERYWHERE void unpack_any(const uint8_t *p, uint32_t w, int64_t base, uint32_t shift,
                                  int64_t *out)
{
    uint64_t mask = w == 64 ? ~UINT64_C(0) : (UINT64_C(1) << w) - 1;
    uint32_t bit = 0;
    for (int i = 0; i < BLOCK; i++, bit += w)
        out[i] =
            (int64_t)(((load_u64(p + (bit >> 3)) >> (bit & 7) & mask) + (uint64_t)base) << shift);
}

static EVERYWHERE void unpack_body(const uint8_t *p, uint32_t w, int64_t base, uint32_t shift,
                                   int64_t *out)
{
#define WIDTH(n)                                                                          \
    case n:                                                                               \
        unpack_width(p, n, n <= 7 ? 8 : n <= 14 ? 4 : n <= 28 ? 2 : 1, base, shift, out); \
        return
    switch (w) {
    case 0:
        for (int i = 0; i < BLOCK; i++)
            out[i] = (int64_t)((uint64_t)base << shift);
        return;
    case 8: /* whole bytes: the compiler widens them side by side */
        for (int i = 0; i < BLOCK; i++)
            out[i] = (int64_t)((p[i] + (uint64_t)base) << shift);
        return;
        WIDTH(1);
        WIDTH(2);
        WIDTH(3);
        WIDTH(4);
        WIDTH(5);
        WIDTH(6);
        WIDTH(7);
        WIDTH(9);
        WIDTH(10);
        WIDTH(11);
        WIDTH(12);
        WIDTH(13);
        WIDTH(14);
        WIDTH(15);
        WIDTH(16);
        WIDTH(17);
        WIDTH(18);
        WIDTH(19);
        WIDTH(20);
        WIDTH(21);
        WIDTH(22);
        WIDTH(23);
        WIDTH(24);
    default:
        unpack_any(p, w, base, shift, out);
    }
#undef WIDTH
}

WIDE static void unpack_wide(const uint8_t *p, uint32_t w, int64_t base, uint32_t shift,
                             int64_t *out)
{
    unpack_body(p, w, base, shift, out);
}

static void unpack_plain(const uint8_t *p, uint32_t w, int64_t base, uint32_t shift, int64_t *out)
{
    unpack_body(p, w, base, shift, out);
}

/* Decode the block at p; NULL when it does not fit before `end` (8 bytes past end can be read). */
static const uint8_t *decode_block(const uint8_t *p, const uint8_t *end, uint32_t shift,
                                   int64_t *out)
{
    uint32_t w;
    uint32_t head = p < end ? block_head(*p, &w) : 0;
    if (!head || (size_t)(end - p) < head + 16 * (size_t)w)
        return NULL;
    uint8_t how = *p;
    bool plain = !(how & HOW_DELTA);
    (is_wide() ? unpack_wide : unpack_plain)(p + head, w, (int64_t)load_u64(p + 1),
                                             plain ? shift : 0, out);
    if (how & HOW_DELTA) {
        uint64_t x = load_u64(p + 9);
        out[0] = (int64_t)x;
        if (how & HOW_DOUBLE) {
            uint64_t d = load_u64(p + 17); /* of the second value */
            for (int i = 1; i < BLOCK; i++) {
                d += i > 1 ? (uint64_t)out[i] : 0;
                out[i] = (int64_t)(x += d);
            }
        } else {
            for (int i = 1; i < BLOCK; i++)
                out[i] = (int64_t)(x += (uint64_t)out[i]);
        }
    }
    for (int i = 0; i < BLOCK && shift && !plain; i++)
        out[i] = (int64_t)((uint64_t)out[i] << shift);
    return p + head + 16 * w;
}

/* Where the blocks of the whole column end, without decoding; NULL when they do not fit. */
static const uint8_t *skip_blocks(const uint8_t *p, const uint8_t *end, uint32_t n_rows)
{
    for (uint32_t b = 0; b < blocks_of(n_rows); b++) {
        uint32_t w;
        uint32_t head = p < end ? block_head(*p, &w) : 0;
        if (!head || (size_t)(end - p) < head + 16 * (size_t)w)
            return NULL;
        p += head + 16 * w;
    }
    return p;
}

int segment_cursor_init(const struct segment *s, uint32_t column, const uint8_t *payload,
                        struct segment_cursor *ret)
{
    struct segment_cursor c = {.n_rows = s->n_rows};
    int rc = segment_column(s, column, &c.column);
    if (rc)
        return rc;
    c.p = payload ? payload : s->data + c.column.offset;
    c.end = c.p + c.column.size;
    if (checksum(c.p, c.column.size) != c.column.checksum)
        return err_set(-EBADMSG, "column %u of a segment has a wrong checksum", column);
    if (c.column.is_tail)
        return err_set(-EBADMSG, "column %u of a segment is the tail", column);
    if (c.column.has_bitmap) {
        size_t bytes = ((size_t)s->n_rows + 63) / 64 * 8;
        if (bytes > c.column.size)
            return err_set(-EBADMSG, "column %u of a segment is cut short", column);
        c.bitmap = c.p;
        c.p += bytes;
    }
    if (c.column.encoding == ENCODING_DIV || c.column.encoding == ENCODING_MUL) {
        const uint8_t *p = skip_blocks(c.p, c.end, s->n_rows);
        if (!p || c.end - p < 4 || (size_t)(c.end - p - 4) / 12 < load_u32(p))
            return err_set(-EBADMSG, "column %u of a segment is cut short", column);
        c.n_exceptions = load_u32(p);
        c.exceptions = p + 4;
    }
    *ret = c;
    return 0;
}

static void to_doubles(const struct segment_column *column, union probing_cell *out, uint32_t n)
{
    if (column->encoding == ENCODING_DIV) {
        double power = powers_of_ten[column->shift];
        for (uint32_t i = 0; i < n; i++)
            out[i].f = (double)out[i].i / power;
    } else {
        double part = parts_of_ten[column->shift];
        for (uint32_t i = 0; i < n; i++)
            out[i].f = (double)out[i].i * part;
    }
}

static union probing_cell null_of(uint8_t type)
{
    union probing_cell null = {.i = PROBING_NULL_I64};
    if (type == PROBING_F64)
        null.u = PROBING_NULL_F64;
    else if (type == PROBING_STR || type == PROBING_BLOB)
        null.u = PROBING_NULL_ID;
    return null;
}

/* Everything that is not the same for all rows: exceptions and NULLs. */
static uint32_t put_back(struct segment_cursor *c, uint32_t n, union probing_cell *out)
{
    uint32_t nulls = 0;
    while (c->next_exception < c->n_exceptions) {
        const uint8_t *e = c->exceptions + (size_t)c->next_exception * 12;
        uint32_t row = load_u32(e);
        if (row >= c->at + n)
            break;
        if (row >= c->at)
            out[row - c->at].u = load_u64(e + 4);
        c->next_exception++;
    }
    if (c->bitmap) {
        union probing_cell null = null_of(c->column.type);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t row = c->at + i;
            if (c->bitmap[row / 8] >> (row % 8) & 1) {
                out[i] = null;
                nulls = 1;
            }
        }
    } else if (c->column.nulls) {
        for (uint32_t i = 0; i < n && !nulls; i++)
            nulls = is_null(c->column.type, out[i]);
    }
    return nulls;
}

int segment_cursor_next(struct segment_cursor *c, uint32_t n, union probing_cell *out,
                        uint32_t *ret_nulls)
{
    uint32_t left = c->n_rows - c->at;
    n = n < left ? n : left;
    if (n % BLOCK && n != left)
        return err_set(-EINVAL, "%u rows are not whole blocks", n);
    if (c->column.encoding == ENCODING_NONE) {
        union probing_cell all = c->column.has_bounds ? c->column.min : null_of(c->column.type);
        for (uint32_t i = 0; i < n; i++)
            out[i] = all;
    } else {
        uint32_t shift = c->column.encoding == ENCODING_BLOCKS ? c->column.shift : 0;
        for (uint32_t b = 0; b < blocks_of(n); b++) {
            c->p = decode_block(c->p, c->end, shift, (int64_t *)out + (size_t)b * BLOCK);
            if (!c->p) {
                c->p = c->end; /* a second call fails the same way */
                return err_set(-EBADMSG, "a column of a segment is cut short");
            }
        }
        if (c->column.encoding != ENCODING_BLOCKS)
            to_doubles(&c->column, out, n);
    }
    *ret_nulls = put_back(c, n, out);
    c->at += n;
    return 0;
}

int segment_tails(const struct segment *s, uint32_t column, uint32_t *offsets,
                  const uint8_t **ret_bytes)
{
    struct segment_column c = {0};
    int64_t lengths[BLOCK];
    uint64_t sum = 0;
    int rc = segment_column(s, column, &c);
    if (rc)
        return rc;
    const uint8_t *p = s->data + c.offset, *end = p + c.size;
    if (!c.is_tail || c.size < 4 || load_u32(p) > c.size - 4)
        return err_set(-EBADMSG, "column %u of a segment is no tail", column);
    if (checksum(p, c.size) != c.checksum)
        return err_set(-EBADMSG, "column %u of a segment has a wrong checksum", column);
    const uint8_t *blocks_end = p + 4 + load_u32(p);
    p += 4;
    for (uint32_t i = 0; i < s->n_rows; i++) {
        if (i % BLOCK == 0) {
            p = decode_block(p, blocks_end, /* shift= */ 0, lengths);
            if (!p)
                return err_set(-EBADMSG, "the tail column of a segment is cut short");
        }
        offsets[i] = (uint32_t)sum;
        int64_t length = lengths[i % BLOCK];
        if (length < 0 || (uint64_t)length > (uint64_t)(end - blocks_end) - sum)
            return err_set(-EBADMSG, "the tail column of a segment is cut short");
        sum += (uint64_t)length;
    }
    offsets[s->n_rows] = (uint32_t)sum;
    *ret_bytes = blocks_end;
    return 0;
}
