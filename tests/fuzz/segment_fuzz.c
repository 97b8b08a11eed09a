/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/fuzz/segment_fuzz.c - feed anything to the reader of segments, and to that of LMDB's pages.
 *
 * One thread, no store.  The inputs come from driver.c.  Checksums are made to fit first, so that
 * the decoder is reached.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/store/internal.h"
#include "core/store/segment.h"
#include "tests/fuzz/fuzz.h"

static union probing_cell cells[SEGMENT_ROWS + SEGMENT_BLOCK];
static uint32_t offsets[SEGMENT_ROWS + SEGMENT_BLOCK + 1];

static void read_column(const struct segment *s, uint32_t i)
{
    struct segment_column c;
    struct segment_cursor cursor;
    const uint8_t *bytes;
    uint32_t nulls;
    if (segment_column(s, i, &c) != 0)
        return;
    fuzz_must(c.offset <= s->size && c.size <= s->size - c.offset);
    if (c.is_tail) {
        if (segment_tails(s, i, offsets, &bytes) == 0)
            fuzz_must(bytes + offsets[s->n_rows] <= s->data + s->size);
        return;
    }
    if (segment_cursor_init(s, i, /* payload= */ NULL, &cursor) != 0)
        return;
    for (uint32_t at = 0; at < s->n_rows; at += 2048) {
        uint32_t n = s->n_rows - at < 2048 ? s->n_rows - at : 2048;
        if (segment_cursor_next(&cursor, n, cells, &nulls) != 0)
            return;
    }
}

static void read_segment(const uint8_t *data, size_t size)
{
    struct segment s;
    if (segment_open(data, size, &s) != 0)
        return;
    fuzz_must(s.size <= size && s.n_rows > 0 && s.n_rows <= SEGMENT_ROWS);
    (void)segment_check(&s);
    for (uint32_t i = 0; i < s.n_columns; i++)
        read_column(&s, i);
}

static void on_value(void *arg, const MDB_val *key, const MDB_val *value, bool in_tree)
{
    const MDB_val *whole = arg;
    const uint8_t *from = whole->mv_data, *end = from + whole->mv_size;
    const uint8_t *p = value->mv_data;
    (void)in_tree;
    fuzz_must(p >= from && p <= end && value->mv_size <= (size_t)(end - p));
    fuzz_must(!key || (const uint8_t *)key->mv_data + key->mv_size <= end);
    read_segment(p, value->mv_size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1); /* of the very size: a byte too far is seen by asan */
    struct buf damage;
    fuzz_must(copy != NULL);
    if (size)
        memcpy(copy, data, size);
    MDB_val whole = {.mv_size = size, .mv_data = copy};
    buf_init(&damage, 1 << 16);
    fuzz_must(pages_read(copy, size, on_value, &whole, &damage) >= 0);
    buf_done(&damage);
    segment_sign(copy, size);
    read_segment(copy, size);
    free(copy);
    return 0;
}
