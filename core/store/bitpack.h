/* SPDX-License-Identifier: Apache-2.0
 *
 * core/store/bitpack.h - what the files that write and read segments share: the layout's numbers,
 * and blocks of 128 integers.  What it all means is drawn in segment.h.
 *
 * Any thread, each with its own memory.
 */
#ifndef CORE_STORE_BITPACK_H
#define CORE_STORE_BITPACK_H

#include <string.h>

#include "core/store/segment.h"

#if defined(__x86_64__)
#define WIDE __attribute__((target("avx2"))) /* twice as quick as the plain build, where there is */
#else
#define WIDE
#endif
#define ALWAYS_INLINE inline __attribute__((always_inline))
#define MAGIC UINT32_C(0x33475350)      /* "PSG3" */
#define MAGIC_NAME UINT32_C(0x00ffffff) /* without the version, '3' */
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

#define SHIFT_MAX 12 /* the last of the powers below */

extern const double segment_powers[SHIFT_MAX + 1]; /* of ten: 1, 10 ... */
extern const double segment_parts[SHIFT_MAX + 1];  /* 1, 0.1 ... */

static inline uint32_t load_u32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

static inline uint64_t load_u64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

static inline void store_u32(uint8_t *p, uint32_t v)
{
    memcpy(p, &v, 4);
}

static inline void store_u64(uint8_t *p, uint64_t v)
{
    memcpy(p, &v, 8);
}

static inline bool is_null(uint8_t type, union probing_cell c)
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

/* The checksum covers the head and its entries. */
uint64_t segment_head_checksum(const uint8_t *head, uint32_t n_columns);

/* ---- blocks ---- */

static inline bool is_wide(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2");
#else
    return false;
#endif
}

static inline uint32_t blocks_of(uint32_t n_rows)
{
    return (n_rows + BLOCK - 1) / BLOCK;
}

struct range {
    int64_t min;
    uint64_t span;
};

/* The facts of a column that an encoder collects in one pass. */
struct survey {
    int64_t min, max;
    uint64_t any; /* bits that are set somewhere */
    struct range blocks[SEGMENT_ROWS / BLOCK];
};

/* n values as integers; the last block is filled up with the last value: v has room. */
void block_survey(int64_t *v, uint32_t n, struct survey *ret);
/* Write the blocks of n values: as they were surveyed, or survey them first.  Gives the end; p has
 * room for BLOCK_MAX bytes a block. */
uint8_t *block_encode_surveyed(uint8_t *p, const int64_t *v, uint32_t n, const struct survey *s);
uint8_t *block_encode(uint8_t *p, int64_t *v, uint32_t n);

/* Decode the block at p; NULL when it does not fit before `end` (8 bytes past end can be read). */
const uint8_t *block_decode(const uint8_t *p, const uint8_t *end, uint32_t shift, int64_t *out);
/* The end of the blocks of the whole column, without decoding; NULL when they do not fit. */
const uint8_t *block_skip(const uint8_t *p, const uint8_t *end, uint32_t n_rows);

#endif
