/* SPDX-License-Identifier: Apache-2.0
 *
 * core/store/encode.c - columns into a segment: what form fits each, its bounds and its NULLs.
 *
 * Any thread, each with its own structs.  The cells are trusted.
 */
#include <errno.h>
#include <math.h>

#include "core/base/err.h"
#include "core/store/bitpack.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3") /* gcc 12 leaves most of these loops scalar at -O2 */
#endif

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
    double scaled = f * segment_powers[shift];
    if (!(fabs(scaled) < 4503599627370496.0)) /* 2^52: beyond, adding a half is not exact */
        return false;
    int64_t i = (int64_t)(scaled + (scaled < 0 ? -0.5 : 0.5));
    double back = encoding == ENCODING_DIV ? (double)i / segment_powers[shift]
                                           : (double)i * segment_parts[shift];
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
static ALWAYS_INLINE bool decimals_body(const union probing_cell *v, double power, double part,
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
    double power = segment_powers[c->shift];
    double part = c->encoding == ENCODING_MUL ? segment_parts[c->shift] : 0;
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
    p = block_encode(p, ints, n);
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
static void learn_bounds(struct segment_column *c, const union probing_cell *v, uint32_t n,
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
    block_survey((int64_t *)v, n, &survey);
    learn_bounds(c, v, n, &survey);
    c->encoding = ENCODING_NONE;
    if (c->nulls == n || (c->nulls == 0 && c->has_bounds && c->min.u == c->max.u &&
                          (c->type != PROBING_F64 || c->min.f != 0)))
        return p;
    bool ids = c->type == PROBING_STR || c->type == PROBING_BLOB;
    if (c->nulls && !ids) { /* an id of 0 is as good a number as any */
        c->has_bitmap = true;
        p = hide_nulls(c, p, v, n);
        block_survey((int64_t *)v, n, &survey);
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
    return block_encode_surveyed(p, (const int64_t *)v, n, &survey);
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
    uint8_t *end = block_encode(blocks, lengths, rows->n_rows);
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
        c.checksum = segment_checksum(p, c.size);
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
    store_u64(head + SUMMED_BYTES, segment_head_checksum(head, n_columns));
    return 0;
}
