/* SPDX-License-Identifier: Apache-2.0
 *
 * core/store/segment.h - up to 16,384 rows of one table, column by column, small and self-checking.
 *
 * The value of a key (table, first row) in LMDB; it repeats both, so that it can be found in a
 * damaged file without LMDB.  Little-endian:
 *
 *     +0   u32 magic "PSG3"      +4  u32 rows             +8  u16 columns   +10 u16 table id
 *     +12  u32 size of it all    +16 u64 number of the first row
 *     +24  u64 checksum of the 24 bytes before and of the entries
 *     +32  columns times 40 bytes:
 *            +0 u8 type (PROBING_I64 ...; +128: the tail)   +1 u8 encoding   +2 u8 shift
 *            +3 u8 flags (1: min and max are known; 2: a null bitmap comes first)
 *            +4 u32 NULLs  +8 u32 offset of the payload  +12 u32 its size
 *            +16 8 bytes min  +24 8 bytes max  (as cells; NULLs do not count)
 *            +32 u64 checksum of the payload
 *     ...  payloads
 *     end  8 zero bytes, so that a decoder may load 8 bytes at any place
 *
 * A payload is the null bitmap if there is one (a bit a row, rounded up to 8 bytes), then what the
 * encoding says.  All encodings but NONE hold blocks of 128 integers, the last block filled up with
 * its last value.  In the place of a NULL stands the value before it, so that it costs no width.
 *
 *     NONE     nothing: every cell is NULL, or (min known) every cell is min
 *     BLOCKS   integers, shifted left by `shift` afterwards
 *     DIV      doubles: integer / 10^shift          MUL   doubles: integer * 10^-shift
 *     TAIL     u32 bytes of the lengths' blocks, those blocks, then all tails' bytes.  A tail has a
 *              NUL at its end, which its length counts; of one that is NULL the length is 0
 *
 * A block:   u8 how = width in bits (0 to 56, or 64) + 0x80 if deltas are packed
 *            i64 base, then for deltas i64 first
 *            16 * width bytes: 128 unsigned numbers, low bits first
 *     value[i] = base + number[i];   with deltas: value[0] = first, value[i] = value[i-1] + base +
 *     number[i].  With +0x40 (width up to 56): deltas of deltas, and an i64 first delta follows.
 *
 * DIV and MUL may be followed by exceptions: u32 count, then count times (u32 row, 8 bytes).
 *
 * Any thread, each with its own structs.  It does not know LMDB, and trusts no byte it reads.
 */
#ifndef CORE_STORE_SEGMENT_H
#define CORE_STORE_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/catalog/catalog.h"
#include "sdk/lib/buf.h"

#define SEGMENT_ROWS 16384      /* rows: beyond, files get no smaller (facts: 8.41 to 8.35 B/row) */
#define SEGMENT_BLOCK 128       /* rows */
#define SEGMENT_TAILS (1 << 20) /* bytes: where a segment with tails is closed early */
/* Largest segment: every column raw, tails one row over the limit. */
#define SEGMENT_MAX ((size_t)64 << 20)

/* Rows on their way in.  Arrays have room for SEGMENT_ROWS rounded up to whole blocks. */
struct segment_rows {
    uint32_t n_rows, n_columns; /* n_columns: without the tail */
    uint32_t table_id;
    uint64_t first_row;
    const uint8_t *types;
    union probing_cell *const *cells;
    uint8_t tail_type; /* 0: no tail */
    const uint8_t *tails;
    const uint32_t *tail_offsets; /* n_rows + 1 */
    int64_t *scratch;             /* SEGMENT_ROWS of them, for the encoder */
};

/* Add the segment to `out`.  The cells may be changed (what stands in for a NULL).  -ENOMEM,
 * -ENOBUFS. */
int segment_encode(const struct segment_rows *rows, struct buf *out);

/* The checksum of segments, for other records of the store, too. */
uint64_t segment_checksum(const void *p, size_t n);

/* Make the checksums fit what is there: for tests and fuzzers that change segments. */
void segment_sign(void *data, size_t size);

/* A column's entry, read. */
struct segment_column {
    uint8_t type, encoding, shift;
    bool is_tail, has_bounds, has_bitmap;
    uint32_t nulls, offset, size;
    union probing_cell min, max;
    uint64_t checksum;
};

struct segment {
    const uint8_t *data;
    uint32_t size, n_rows, n_columns; /* n_columns: the tail's included */
    uint32_t table_id;
    uint64_t first_row;
};

/* Look at a segment; `data` must stay.  -EBADMSG with the reason when it is incomplete,
 * -EPROTO when another version of probing wrote it. */
int segment_open(const void *data, size_t size, struct segment *ret);
/* And are all its columns whole, as their checksums say? */
int segment_check(const struct segment *s);
int segment_column(const struct segment *s, uint32_t column, struct segment_column *ret);

/* Reads one column from its first row to its last. */
struct segment_cursor {
    struct segment_column column;
    uint32_t n_rows, at;       /* rows handed out */
    const uint8_t *bitmap;     /* NULL: none */
    const uint8_t *p, *end;    /* next block; end of the blocks */
    const uint8_t *exceptions; /* of DIV and MUL */
    uint32_t n_exceptions, next_exception;
};

/* `payload`: column.size bytes and 8 more that may be read, or NULL for where they lie in the
 * segment.  Checks the checksum. */
int segment_cursor_init(const struct segment *s, uint32_t column, const uint8_t *payload,
                        struct segment_cursor *ret);
/* The next n rows (a multiple of SEGMENT_BLOCK, or all that are left) into `out`, which has room
 * for whole blocks.  1 in *ret_nulls when one of them is NULL.  -EBADMSG. */
int segment_cursor_next(struct segment_cursor *c, uint32_t n, union probing_cell *out,
                        uint32_t *ret_nulls);

/* The whole tail column: offsets (n_rows + 1 of them, room for whole blocks) and where the bytes
 * are. */
int segment_tails(const struct segment *s, uint32_t column, uint32_t *offsets,
                  const uint8_t **ret_bytes);

#endif
