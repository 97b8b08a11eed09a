/* SPDX-License-Identifier: Apache-2.0
 *
 * core/store/bitpack.c - 128 integers into packed bits, and back: the form drawn in segment.h.
 *
 * Any thread.  The encoder sees trusted numbers; the decoder checks every length before it follows
 * it.  With AVX2 where there is, by the same code compiled twice.
 */
#include "core/store/bitpack.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3") /* gcc 12 leaves most of these loops scalar at -O2 */
#endif

/* ---- out ---- */

static uint32_t width_of(uint64_t x)
{
    uint32_t w = x ? 64 - (uint32_t)__builtin_clzll(x) : 0;
    return w > 56 ? 64 : w; /* a number of up to 56 bits lies within 8 bytes wherever it begins */
}

/* Two streams, of 64 numbers and whole words each: the processor works on both at once. */
static ALWAYS_INLINE uint8_t *pack_streams(uint8_t *p, const uint64_t *v, uint32_t w)
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

static ALWAYS_INLINE int64_t lesser_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static ALWAYS_INLINE int64_t greater_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Four quarters side by side: each comparison waits for the one before it. */
static ALWAYS_INLINE struct range range_of(const int64_t *v)
{
    const int64_t *w = v + BLOCK / 4, *x = v + BLOCK / 2, *y = v + 3 * BLOCK / 4;
    int64_t low[4] = {v[0], w[0], x[0], y[0]}, high[4] = {v[0], w[0], x[0], y[0]};
    for (int i = 1; i < BLOCK / 4; i++) {
        low[0] = lesser_of(v[i], low[0]);
        high[0] = greater_of(v[i], high[0]);
        low[1] = lesser_of(w[i], low[1]);
        high[1] = greater_of(w[i], high[1]);
        low[2] = lesser_of(x[i], low[2]);
        high[2] = greater_of(x[i], high[2]);
        low[3] = lesser_of(y[i], low[3]);
        high[3] = greater_of(y[i], high[3]);
    }
    int64_t min = lesser_of(lesser_of(low[0], low[1]), lesser_of(low[2], low[3]));
    int64_t max = greater_of(greater_of(high[0], high[1]), greater_of(high[2], high[3]));
    return (struct range){min, (uint64_t)max - (uint64_t)min};
}

/* v[i] - v[i-1], wrapping; the first is the second's, so that it never widens the block. */
static ALWAYS_INLINE void take_differences(const int64_t *v, int64_t *d)
{
    for (int i = 1; i < BLOCK; i++)
        d[i] = (int64_t)((uint64_t)v[i] - (uint64_t)v[i - 1]);
    d[0] = d[1];
}

static ALWAYS_INLINE uint8_t *pack_from(uint8_t *p, const int64_t *v, int64_t base, uint32_t w)
{
    uint64_t out[BLOCK];
    for (int i = 0; i < BLOCK; i++)
        out[i] = (uint64_t)v[i] - (uint64_t)base;
    return pack_streams(p, out, w);
}

/* The smallest of the three forms. */
static ALWAYS_INLINE uint8_t *encode_block(uint8_t *p, const int64_t *v, struct range plain)
{
    int64_t d[BLOCK], dd[BLOCK];
    uint32_t w = width_of(plain.span), w1 = 64, w2 = 64;
    struct range one = {0}, two = {0};
    if (w > 4) { /* below, the longer heads of deltas cannot pay */
        take_differences(v, d);
        one = range_of(d);
        w1 = width_of(one.span);
        if (w1 > 4 && w1 < 64) {
            take_differences(d, dd);
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

static ALWAYS_INLINE void survey_body(const int64_t *v, uint32_t blocks, struct survey *ret)
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

static ALWAYS_INLINE uint8_t *blocks_body(uint8_t *p, const int64_t *v, uint32_t blocks,
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

void block_survey(int64_t *v, uint32_t n, struct survey *ret)
{
    uint32_t blocks = blocks_of(n);
    for (uint32_t i = n; i < blocks * BLOCK; i++)
        v[i] = v[n - 1];
    if (is_wide())
        survey_wide(v, blocks, ret);
    else
        survey_plain(v, blocks, ret);
}

uint8_t *block_encode_surveyed(uint8_t *p, const int64_t *v, uint32_t n, const struct survey *s)
{
    return is_wide() ? blocks_wide(p, v, blocks_of(n), s->blocks)
                     : blocks_plain(p, v, blocks_of(n), s->blocks);
}

uint8_t *block_encode(uint8_t *p, int64_t *v, uint32_t n)
{
    struct survey s;
    block_survey(v, n, &s);
    return block_encode_surveyed(p, v, n, &s);
}

/* ---- in ---- */

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

/* Four numbers at once.  By hand: gcc 12 leaves the same loop over single numbers as it is. */
typedef uint64_t lanes __attribute__((vector_size(32)));

/* With a width known to the compiler: `n` numbers of each 8 bytes loaded, by constant shifts.
 * The 8 bytes that number i of a row of eight is in, and by how much it is shifted there. */
static ALWAYS_INLINE uint64_t bytes_of(const uint8_t *p, const uint32_t w, const uint32_t n,
                                       const uint32_t i)
{
    return load_u64(p + (i / n * n * w >> 3));
}

static ALWAYS_INLINE uint64_t place_of(const uint32_t w, const uint32_t n, const uint32_t i)
{
    return (i / n * n * w & 7) + i % n * w;
}

static ALWAYS_INLINE void unpack_width(const uint8_t *p, const uint32_t w, const uint32_t n,
                                       int64_t base, uint32_t shift, int64_t *out)
{
    const uint64_t ones = (UINT64_C(1) << w) - 1, from = (uint64_t)base;
    const lanes mask = {ones, ones, ones, ones}, add = {from, from, from, from};
    const lanes low = {place_of(w, n, 0), place_of(w, n, 1), place_of(w, n, 2), place_of(w, n, 3)};
    const lanes high = {place_of(w, n, 4), place_of(w, n, 5), place_of(w, n, 6), place_of(w, n, 7)};
    for (uint32_t k = 0; k < BLOCK; k += 8, p += w) { /* 8 numbers are w bytes */
        lanes a = {bytes_of(p, w, n, 0), bytes_of(p, w, n, 1), bytes_of(p, w, n, 2),
                   bytes_of(p, w, n, 3)};
        lanes b = {bytes_of(p, w, n, 4), bytes_of(p, w, n, 5), bytes_of(p, w, n, 6),
                   bytes_of(p, w, n, 7)};
        a = ((a >> low & mask) + add) << shift;
        b = ((b >> high & mask) + add) << shift;
        memcpy(out + k, &a, sizeof(a));
        memcpy(out + k + 4, &b, sizeof(b));
    }
}

static ALWAYS_INLINE void unpack_any(const uint8_t *p, uint32_t w, int64_t base, uint32_t shift,
                                     int64_t *out)
{
    const uint64_t ones = w == 64 ? ~UINT64_C(0) : (UINT64_C(1) << w) - 1, from = (uint64_t)base;
    const lanes mask = {ones, ones, ones, ones}, add = {from, from, from, from};
    lanes at = {0, w, 2 * w, 3 * w}; /* bits from p */
    for (uint32_t k = 0; k < BLOCK; k += 4, at += 4 * (uint64_t)w) {
        lanes bits = {load_u64(p + (at[0] >> 3)), load_u64(p + (at[1] >> 3)),
                      load_u64(p + (at[2] >> 3)), load_u64(p + (at[3] >> 3))};
        bits = ((bits >> (at & 7) & mask) + add) << shift;
        memcpy(out + k, &bits, sizeof(bits));
    }
}

static ALWAYS_INLINE void unpack_body(const uint8_t *p, uint32_t w, int64_t base, uint32_t shift,
                                      int64_t *out)
{
#define WIDTH(n)                                                             \
    case n:                                                                  \
        unpack_width(p, n, n <= 14 ? 4 : n <= 28 ? 2 : 1, base, shift, out); \
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

const uint8_t *block_decode(const uint8_t *p, const uint8_t *end, uint32_t shift, int64_t *out)
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

const uint8_t *block_skip(const uint8_t *p, const uint8_t *end, uint32_t n_rows)
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
