/* SPDX-License-Identifier: Apache-2.0
 *
 * core/store/segment.c - segments opened, checked and read.
 *
 * Any thread, each with its own structs.  No byte is trusted: every length is checked before it is
 * followed, beside the checksums, which only tell accidents.  Writing is in encode.c.
 */
#include "core/store/segment.h"

#include <errno.h>
#include <string.h>

#include "core/base/err.h"
#include "core/store/bitpack.h"
#include "sdk/lib/hash.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3") /* gcc 12 leaves most of these loops scalar at -O2 */
#endif

const double segment_powers[SHIFT_MAX + 1] = {1,   1e1, 1e2, 1e3,  1e4,  1e5, 1e6,
                                              1e7, 1e8, 1e9, 1e10, 1e11, 1e12};
const double segment_parts[SHIFT_MAX + 1] = {1,    1e-1, 1e-2, 1e-3,  1e-4,  1e-5, 1e-6,
                                             1e-7, 1e-8, 1e-9, 1e-10, 1e-11, 1e-12};

/* Four lanes of multiply and rotate: quicker than memory, and any flipped bit changes it. */
uint64_t segment_checksum(const void *data, size_t n)
{
    const uint8_t *p = data;
    const uint64_t odd = HASH_GOLDEN;
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

uint64_t segment_head_checksum(const uint8_t *head, uint32_t n_columns)
{
    return segment_checksum(head, SUMMED_BYTES) ^
           segment_checksum(head + HEAD_BYTES, (size_t)n_columns * ENTRY_BYTES);
}

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
            store_u64(entry + 32, segment_checksum(p + offset, bytes));
    }
    store_u64(p + SUMMED_BYTES, segment_head_checksum(p, n_columns));
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
    if (load_u64(p + SUMMED_BYTES) != segment_head_checksum(p, n_columns))
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
        if (segment_checksum(s->data + c.offset, c.size) != c.checksum)
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

int segment_cursor_init(const struct segment *s, uint32_t column, const uint8_t *payload,
                        struct segment_cursor *ret)
{
    struct segment_cursor c = {.n_rows = s->n_rows};
    int rc = segment_column(s, column, &c.column);
    if (rc)
        return rc;
    c.p = payload ? payload : s->data + c.column.offset;
    c.end = c.p + c.column.size;
    if (segment_checksum(c.p, c.column.size) != c.column.checksum)
        return err_set(-EBADMSG, "column %u of a segment has a wrong checksum", column);
    if (c.column.is_tail)
        return err_set(-EBADMSG, "column %u of a segment is the tail", column);
    if (c.column.has_bitmap) {
        size_t bytes = ((size_t)s->n_rows + 63) / 64 * 8;
        if (bytes > c.column.size)
            return err_set(-EBADMSG, "column %u of a segment is truncated", column);
        c.bitmap = c.p;
        c.p += bytes;
    }
    if (c.column.encoding == ENCODING_DIV || c.column.encoding == ENCODING_MUL) {
        const uint8_t *p = block_skip(c.p, c.end, s->n_rows);
        if (!p || c.end - p < 4 || (size_t)(c.end - p - 4) / 12 < load_u32(p))
            return err_set(-EBADMSG, "column %u of a segment is truncated", column);
        c.n_exceptions = load_u32(p);
        c.exceptions = p + 4;
    }
    *ret = c;
    return 0;
}

static void to_doubles(const struct segment_column *column, union probing_cell *out, uint32_t n)
{
    if (column->encoding == ENCODING_DIV) {
        double power = segment_powers[column->shift];
        for (uint32_t i = 0; i < n; i++)
            out[i].f = (double)out[i].i / power;
    } else {
        double part = segment_parts[column->shift];
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
            c->p = block_decode(c->p, c->end, shift, (int64_t *)out + (size_t)b * BLOCK);
            if (!c->p) {
                c->p = c->end; /* a second call fails the same way */
                return err_set(-EBADMSG, "a column of a segment is truncated");
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
        return err_set(-EBADMSG, "column %u of a segment is not a tail", column);
    if (segment_checksum(p, c.size) != c.checksum)
        return err_set(-EBADMSG, "column %u of a segment has a wrong checksum", column);
    const uint8_t *blocks_end = p + 4 + load_u32(p);
    p += 4;
    for (uint32_t i = 0; i < s->n_rows; i++) {
        if (i % BLOCK == 0) {
            p = block_decode(p, blocks_end, /* shift= */ 0, lengths);
            if (!p)
                return err_set(-EBADMSG, "the tail column of a segment is truncated");
        }
        offsets[i] = (uint32_t)sum;
        int64_t length = lengths[i % BLOCK];
        if (length < 0 || (uint64_t)length > (uint64_t)(end - blocks_end) - sum)
            return err_set(-EBADMSG, "the tail column of a segment is truncated");
        sum += (uint64_t)length;
    }
    offsets[s->n_rows] = (uint32_t)sum;
    *ret_bytes = blocks_end;
    return 0;
}
