/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/format/flatbuffer.h - write flatbuffers: what describes the messages of an Arrow stream.
 *
 * A table is an i32 back to its list of field places, then fields; what a field refers to lies
 * behind it, by a u32 from the field's own place.  Here every field takes 8 bytes, so that all are
 * aligned.  A buffer that is full says so by its `failed`, and takes no more.  One thread a buffer.
 */
#ifndef CORE_SQL_FORMAT_FLATBUFFER_H
#define CORE_SQL_FORMAT_FLATBUFFER_H

#include <stdint.h>

#include "sdk/lib/buf.h"

void flat_add_i32(struct buf *b, int32_t v);
void flat_add_i64(struct buf *b, int64_t v);
void flat_set_i64(struct buf *b, size_t at, int64_t v);
void flat_pad(struct buf *b, size_t to);
/* Bytes that are no UTF-8 become U+FFFD, as in JSON: readers refuse a stream that has them. */
void flat_add_utf8(struct buf *b, const char *text, size_t size);

/* A table of n fields (16 at most), those of `absent` (bits) not there.  Gives where it is. */
size_t flat_table(struct buf *b, uint32_t n, uint32_t absent);
/* Give the place of field i of the table at `at`. */
static inline size_t flat_field(size_t at, uint32_t i)
{
    return at + 8 + 8 * i;
}

/* The field at `at` refers to what is at `to`; */
void flat_refer(struct buf *b, size_t at, size_t to);
/* to a text; */
void flat_text(struct buf *b, size_t at, const char *text);
/* to a list of n tables that are yet to come: gives where their references are, 4 bytes each; */
size_t flat_tables(struct buf *b, size_t at, uint32_t n);
/* to a list of n pairs of i64: gives where the first is. */
size_t flat_pairs(struct buf *b, size_t at, uint32_t n);

#endif
