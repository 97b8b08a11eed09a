/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/snappy_test.c - what comes out is what went in, by a reader that follows the description;
 * pyarrow, DuckDB and VictoriaMetrics read it in tests/ship.
 */
#include "sdk/lib/snappy.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fail_alloc.h"
#include "tests/test.h"

#define MOST 300000

/* One element at *at; how many bytes it gave, 0: it is none. */
static size_t element(const struct buf *in, size_t *at, uint8_t *out, size_t have)
{
    const uint8_t *p = (const uint8_t *)in->data + *at;
    size_t n = p[0] >> 2, offset = 0;

    if ((p[0] & 3) == 0) {
        size_t extra = n < 60 ? 0 : n - 59;
        n = extra == 0 ? n : extra == 1 ? p[1] : (size_t)(p[1] | p[2] << 8);
        n++;
        if (extra > 2 || *at + 1 + extra + n > in->size || have + n > MOST)
            return 0;
        memcpy(out + have, p + 1 + extra, n);
        *at += 1 + extra + n;
        return n;
    }
    if ((p[0] & 3) == 1) {
        n = (p[0] >> 2 & 7) + 4;
        offset = (size_t)(p[0] >> 5) << 8 | p[1];
        *at += 2;
    } else if ((p[0] & 3) == 2) {
        n = n + 1;
        offset = (size_t)(p[1] | p[2] << 8);
        *at += 3;
    }
    if (offset == 0 || offset > have || *at > in->size || have + n > MOST)
        return 0;
    for (size_t i = 0; i < n; i++)
        out[have + i] = out[have + i - offset];
    return n;
}

static bool is_whole(const struct buf *in, const uint8_t *data, size_t size)
{
    static uint8_t out[MOST];
    size_t at = 0, have = 0, said = 0, n = 1;

    for (unsigned shift = 0; at < in->size; shift += 7) {
        uint8_t byte = (uint8_t)in->data[at++];
        said |= (size_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            break;
    }
    while (at < in->size && n > 0)
        have += n = element(in, &at, out, have);
    return said == size && have == size && at == in->size && memcmp(out, data, size) == 0;
}

static uint32_t number(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (uint32_t)(*state >> 33);
}

/* Runs, words that come again and noise, of any mixture and length. */
static size_t fill(uint8_t *data, uint64_t *state)
{
    size_t size = number(state) % (number(state) % 8 == 0 ? MOST : 3000), at = 0;
    uint32_t noise = number(state) % 100;

    while (at < size) {
        size_t n = 1 + number(state) % 200, from = at > 0 ? number(state) % at : 0;
        for (size_t i = 0; i < n && at < size; i++, at++)
            data[at] = at == 0 || noise > number(state) % 100 ? (uint8_t)number(state)
                                                              : data[from + i % (at - from)];
    }
    return size;
}

TEST(what_comes_out_is_what_went_in)
{
    static uint8_t data[MOST];
    uint64_t state = 22;
    struct buf out;

    for (int turn = 0; turn < 3000; turn++) {
        size_t size = fill(data, &state);
        buf_init(&out, 2 * MOST);
        if (!CHECK_INT(snappy_add(&out, data, size), 0) || !CHECK(is_whole(&out, data, size)))
            printf("# turn %d, %zu bytes\n", turn, size);
        CHECK(out.size <= size + 32 + size / 6);
        buf_done(&out);
    }
}

TEST(lengths_at_which_the_form_changes)
{
    static uint8_t data[MOST];
    static const size_t lengths[] = {
        0,  1,  2,   3,   4,   5,   11,  12,   59,   60,   61,    63,    64,    65,     67,
        68, 69, 128, 132, 255, 256, 257, 2047, 2048, 2052, 65535, 65536, 65537, 131072, 200000};
    struct buf out;

    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
        for (int kind = 0; kind < 3; kind++) {
            size_t n = lengths[i];
            uint64_t state = 7;
            for (size_t at = 0; at < n; at++)
                data[at] = kind == 0   ? 'x'
                           : kind == 1 ? (uint8_t)number(&state)
                                       : (uint8_t)(at % 2049 < 9 ? at % 2049 : number(&state));
            buf_init(&out, 2 * MOST);
            CHECK_INT(snappy_add(&out, data, n), 0);
            CHECK(is_whole(&out, data, n));
            CHECK(kind != 0 || out.size < 32 + n / 20);
            buf_done(&out);
        }
}

TEST(without_memory_it_says_so)
{
    for (unsigned n = 1; fail_alloc_step(n); n++) {
        struct buf out;
        static const char words[] = "a word, a word, a word, and another word that is a word";
        buf_init(&out, 1 << 16);
        int rc = snappy_add(&out, words, sizeof(words));
        CHECK(rc == 0 ? is_whole(&out, (const uint8_t *)words, sizeof(words)) : rc == -12);
        buf_done(&out);
    }
}

int main(void)
{
    RUN(what_comes_out_is_what_went_in);
    RUN(lengths_at_which_the_form_changes);
    RUN(without_memory_it_says_so);
    return test_end();
}
