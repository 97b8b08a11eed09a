/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/snappy.c - see snappy.h.
 *
 * Block by block, so that an offset fits two bytes.  Where four bytes stood before is looked up by
 * their hash, one place each; where nothing is found for long the steps become wider, so that bytes
 * without any pattern cost little.
 */
#include "sdk/lib/snappy.h"

#include <stdint.h>
#include <string.h>

#define BLOCK 65536
#define HASH_BITS 12 /* 8 KB on the stack: threads of the core have little */
#define FEWEST 4     /* bytes of a copy */
#define MOST 64
#define WIDER 5 /* steps become one byte wider each 32 that found nothing */

static uint32_t load_word(const uint8_t *at)
{
    uint32_t word;

    memcpy(&word, at, sizeof(word));
    return word;
}

static uint32_t place_of(uint32_t word)
{
    return word * UINT32_C(0x1e35a7bd) >> (32 - HASH_BITS);
}

static void add_literal(struct buf *out, const uint8_t *data, size_t size)
{
    if (size == 0)
        return;
    size_t n = size - 1;
    if (n < 60) {
        (void)buf_addc(out, (char)(n << 2));
    } else {
        (void)buf_addc(out, (char)((n < 256 ? 60 : 61) << 2));
        (void)buf_addc(out, (char)(n & 0xff));
        if (n >= 256)
            (void)buf_addc(out, (char)(n >> 8));
    }
    (void)buf_add(out, data, size);
}

static void add_copy(struct buf *out, size_t offset, size_t size)
{
    while (size > 0) {
        /* The rest is never shorter than a copy may be. */
        size_t n = size <= MOST ? size : size < MOST + FEWEST ? MOST - FEWEST : MOST;
        if (n >= 4 && n <= 11 && offset < 2048) {
            const char copy[] = {(char)(1 | (n - 4) << 2 | offset >> 8 << 5), (char)offset};
            (void)buf_add(out, copy, sizeof(copy));
        } else {
            const char copy[] = {(char)(2 | (n - 1) << 2), (char)offset, (char)(offset >> 8)};
            (void)buf_add(out, copy, sizeof(copy));
        }
        size -= n;
    }
}

static void add_block(struct buf *out, const uint8_t *data, size_t size)
{
    uint16_t seen[1 << HASH_BITS] = {0};
    size_t done = 0, at = 1, misses = 0;

    while (at + FEWEST <= size) {
        uint32_t word = load_word(data + at);
        uint16_t *place = &seen[place_of(word)];
        size_t before = *place;
        *place = (uint16_t)at;
        if (before >= at || load_word(data + before) != word) {
            at += 1 + (misses++ >> WIDER);
            continue;
        }
        size_t n = FEWEST;
        while (at + n < size && data[before + n] == data[at + n])
            n++;
        add_literal(out, data + done, at - done);
        add_copy(out, at - before, n);
        at += n;
        done = at;
        misses = 0;
    }
    add_literal(out, data + done, size - done);
}

int snappy_add(struct buf *out, const void *data, size_t size)
{
    const uint8_t *bytes = data;
    size_t left = size;

    for (; left >= 0x80; left >>= 7)
        (void)buf_addc(out, (char)(0x80 | (left & 0x7f)));
    (void)buf_addc(out, (char)left);
    for (size_t at = 0; at < size && out->failed == 0; at += BLOCK)
        add_block(out, bytes + at, size - at < BLOCK ? size - at : BLOCK);
    return out->failed;
}
