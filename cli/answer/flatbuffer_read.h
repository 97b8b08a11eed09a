/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/answer/flatbuffer_read.h - read a flatbuffer that somebody else has made: what describes the
 * messages of an Arrow stream.
 *
 * One thread.  Nothing in it is believed: every place is proved to lie in the buffer before it is
 * read.  core/sql/format/flatbuffer.h draws the form.
 */
#ifndef CLI_ANSWER_FLATBUFFER_READ_H
#define CLI_ANSWER_FLATBUFFER_READ_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "sdk/lib/buf.h"

/* `size` bytes at `at` of the description, as a number; false: they are not in it. */
static inline bool flat_number(const struct buf *b, size_t at, size_t size, uint64_t *ret)
{
    *ret = 0;
    if (at > b->size || size > b->size - at)
        return false;
    memcpy(ret, b->data + at, size);
    return true;
}

/* Gives the place of field i of the table at `table`; 0: it is not there. */
static inline size_t flat_field_at(const struct buf *b, size_t table, size_t i)
{
    uint64_t back, size, place;
    if (!flat_number(b, table, 4, &back) || back > table ||
        !flat_number(b, table - back, 2, &size) || 6 + 2 * i > size ||
        !flat_number(b, table - back + 4 + 2 * i, 2, &place) || place == 0)
        return 0;
    return table + place;
}

/* The table, the list or the text that the u32 at `at` refers to. */
static inline size_t flat_table_at(const struct buf *b, size_t at)
{
    uint64_t to;
    return flat_number(b, at, 4, &to) ? at + to : b->size;
}

#endif
