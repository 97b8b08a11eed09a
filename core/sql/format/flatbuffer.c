/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/format/flatbuffer.c - flatbuffers, as many of their words as Arrow needs.
 *
 * The query's thread only.
 */
#include "core/sql/format/flatbuffer.h"

#include <string.h>

#include "sdk/lib/utf8.h"

void flat_add_i64(struct buf *b, int64_t v)
{
    (void)buf_add(b, &v, sizeof(v));
}

void flat_add_i32(struct buf *b, int32_t v)
{
    (void)buf_add(b, &v, sizeof(v));
}

void flat_pad(struct buf *b, size_t to)
{
    while (b->size % to && !b->failed)
        (void)buf_addc(b, 0);
}

static void set_u32(struct buf *b, size_t at, uint32_t v)
{
    if (!b->failed)
        memcpy(b->data + at, &v, sizeof(v));
}

void flat_set_i64(struct buf *b, size_t at, int64_t v)
{
    if (!b->failed)
        memcpy(b->data + at, &v, sizeof(v));
}

size_t flat_table(struct buf *b, uint32_t n, uint32_t absent)
{
    uint16_t words[2 + 16] = {(uint16_t)(4 + 2 * n), (uint16_t)(8 + 8 * n)};
    for (uint32_t i = 0; i < n; i++)
        words[2 + i] = absent >> i & 1 ? 0 : (uint16_t)(8 + 8 * i);
    flat_pad(b, 8);
    size_t list = b->size;
    (void)buf_add(b, words, 4 + 2 * n);
    flat_pad(b, 8);
    size_t at = b->size;
    flat_add_i32(b, (int32_t)(at - list));
    flat_add_i32(b, 0);
    for (uint32_t i = 0; i < n; i++)
        flat_add_i64(b, 0);
    return at;
}

void flat_refer(struct buf *b, size_t at, size_t to)
{
    set_u32(b, at, (uint32_t)(to - at));
}

/* How many bytes from the beginning are UTF-8. */
static size_t utf8_run(const char *text, size_t size)
{
    size_t i = 0, n = 1;
    while (i < size && n) {
        uint64_t eight;
        for (; i + 8 <= size; i += 8) {
            memcpy(&eight, text + i, 8);
            if (eight & UINT64_C(0x8080808080808080))
                break;
        }
        n = i < size ? text_utf8_length(text + i, size - i) : 0;
        i += n;
    }
    return i;
}

void flat_add_utf8(struct buf *b, const char *text, size_t size)
{
    for (size_t run = utf8_run(text, size); run < size; run = utf8_run(text, size)) {
        (void)buf_add(b, text, run);
        (void)buf_adds(b, "\xef\xbf\xbd");
        text += run + 1;
        size -= run + 1;
    }
    (void)buf_add(b, text, size);
}

void flat_text(struct buf *b, size_t at, const char *text)
{
    flat_pad(b, 4);
    size_t begin = b->size;
    flat_refer(b, at, begin);
    flat_add_i32(b, 0);
    flat_add_utf8(b, text, strlen(text));
    set_u32(b, begin, (uint32_t)(b->size - begin - 4));
    (void)buf_addc(b, 0);
    flat_pad(b, 8);
}

size_t flat_tables(struct buf *b, size_t at, uint32_t n)
{
    flat_pad(b, 4);
    flat_refer(b, at, b->size);
    flat_add_i32(b, (int32_t)n);
    size_t list = b->size;
    for (uint32_t i = 0; i < n; i++)
        flat_add_i32(b, 0);
    return list;
}

size_t flat_pairs(struct buf *b, size_t at, uint32_t n)
{
    flat_pad(b, 8);
    flat_add_i32(b, 0); /* so that the pairs are aligned */
    flat_refer(b, at, b->size);
    flat_add_i32(b, (int32_t)n);
    size_t first = b->size;
    for (uint32_t i = 0; i < 2 * n; i++)
        flat_add_i64(b, 0);
    return first;
}
