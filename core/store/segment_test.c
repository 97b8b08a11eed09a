/* SPDX-License-Identifier: Apache-2.0
 *
 * core/store/segment_test.c - every kind of column there and back, and damaged segments.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/store/segment.h"
#include "tests/fail_alloc.h"
#include "tests/test.h"

#define ROOM (SEGMENT_ROWS + SEGMENT_BLOCK)
#define MAKERS 16

static uint64_t seed = UINT64_C(88172645463325252);

static uint64_t next_random(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

/* Kinds of columns; each a type and a way to make row i. */
static uint8_t make(int kind, uint32_t i, union probing_cell *c)
{
    switch (kind) {
    case 0:
        c->i = INT64_C(1732155600000000000) + (int64_t)i * 1000 + (int64_t)(next_random() % 50);
        return PROBING_TIME;
    case 1:
        c->i = 42;
        return PROBING_I64;
    case 2:
        c->i = (int64_t)next_random();
        return PROBING_I64;
    case 3:
        c->i = i % 3 ? (int64_t)i * 512 : PROBING_NULL_I64;
        return PROBING_I64;
    case 4:
        c->i = PROBING_NULL_I64;
        return PROBING_I64;
    case 5:
        c->i = i % 2 ? INT64_MAX : INT64_MIN + 1;
        return PROBING_I64;
    case 6:
        c->f = (double)(next_random() % 1000000) * 1e-9;
        return PROBING_F64;
    case 7:
        c->f = (double)(int64_t)(next_random() % 2000) / 8 - 125;
        return PROBING_F64;
    case 8:
        c->f = (double)next_random() / 3e7;
        return PROBING_F64;
    case 9: /* decimals with a few that are none */
        c->f = i % 100 == 7 ? 1.0 / 3 : i % 100 == 50 ? -0.0 : (double)i / 1000;
        return PROBING_F64;
    case 10:
        if (i % 5 == 0)
            c->u = PROBING_NULL_F64;
        else
            c->f = (double)i / 4;
        return PROBING_F64;
    case 11:
        c->f = i % 4 == 0 ? (double)NAN : i % 4 == 1 ? (double)INFINITY : 1e300 * i;
        return PROBING_F64;
    case 12:
        c->u = next_random() % 100;
        return PROBING_STR;
    case 13:
        c->u = PROBING_NULL_F64;
        return PROBING_F64;
    case 14:
        c->f = i % 2 ? 0.0 : -0.0;
        return PROBING_F64;
    }
    c->i = i == 0 ? PROBING_NULL_I64 : (int64_t)(i * (uint64_t)i) * 3; /* squares: deltas rise */
    return PROBING_TIME;
}

static union probing_cell kept[MAKERS][ROOM], given[MAKERS][ROOM];
static uint32_t tail_offsets[ROOM + 1];
static char tails[ROOM * 8];
static int64_t scratch[SEGMENT_ROWS];

static int encode(uint32_t n, bool with_tail, struct buf *out)
{
    union probing_cell *cells[MAKERS];
    uint8_t types[MAKERS] = {0};
    for (int k = 0; k < MAKERS; k++) {
        for (uint32_t i = 0; i < n; i++)
            types[k] = make(k, i, &kept[k][i]);
        memcpy(given[k], kept[k], n * sizeof(kept[k][0]));
        cells[k] = given[k];
    }
    for (uint32_t i = 0; i < n; i++) {
        tail_offsets[i + 1] = tail_offsets[i] + (uint32_t)(next_random() % 8);
        memset(tails + tail_offsets[i], 'a' + (int)(i % 26), 8);
    }
    struct segment_rows rows = {.n_rows = n,
                                .n_columns = MAKERS,
                                .types = types,
                                .cells = cells,
                                .tail_type = with_tail ? PROBING_STR : 0,
                                .tails = (const uint8_t *)tails,
                                .tail_offsets = tail_offsets,
                                .scratch = scratch};
    return segment_encode(&rows, out);
}

/* Min and max hold for all rows but NULLs. */
static void check_bounds(const struct segment_column *c, int k, uint32_t n)
{
    uint64_t null = c->type == PROBING_F64   ? PROBING_NULL_F64
                    : c->type == PROBING_STR ? PROBING_NULL_ID
                                             : (uint64_t)PROBING_NULL_I64;
    uint32_t outside = 0;
    for (uint32_t i = 0; i < n && c->has_bounds; i++) {
        if (kept[k][i].u == null)
            continue;
        if (c->type == PROBING_F64)
            outside += !(kept[k][i].f >= c->min.f && kept[k][i].f <= c->max.f);
        else
            outside += kept[k][i].i < c->min.i || kept[k][i].i > c->max.i;
    }
    CHECK_INT(outside, 0);
}

static void check_round_trip(uint32_t n, bool with_tail)
{
    static union probing_cell cells[ROOM];
    static uint32_t offsets[ROOM + 1];
    struct buf out;
    struct segment s;
    buf_init(&out, SEGMENT_MAX);
    CHECK_INT(encode(n, with_tail, &out), 0);
    if (!CHECK_INT(segment_open(out.data, out.size, &s), 0))
        return;
    CHECK_INT(s.n_rows, n);
    CHECK_INT(s.n_columns, MAKERS + with_tail);
    for (uint32_t k = 0; k < MAKERS; k++) {
        struct segment_cursor cursor;
        uint32_t nulls = 0, some = 0, bad = 0;
        CHECK_INT(segment_cursor_init(&s, k, NULL, &cursor), 0);
        for (uint32_t at = 0; at < n; at += 2048) {
            CHECK_INT(segment_cursor_next(&cursor, 2048, cells, &some), 0);
            nulls |= some;
            for (uint32_t i = 0; i < 2048 && at + i < n; i++)
                bad += cells[i].u != kept[k][at + i].u;
        }
        if (!CHECK_INT(bad, 0))
            printf("# kind %u, %u rows\n", k, n);
        CHECK_INT(nulls, cursor.column.nulls > 0);
        check_bounds(&cursor.column, (int)k, n);
    }
    const uint8_t *bytes;
    if (with_tail && CHECK_INT(segment_tails(&s, MAKERS, offsets, &bytes), 0)) {
        CHECK_INT(memcmp(offsets, tail_offsets, (n + 1) * sizeof(offsets[0])), 0);
        CHECK_INT(memcmp(bytes, tails, offsets[n]), 0);
    }
    buf_done(&out);
}

TEST(every_kind_of_column_comes_back)
{
    static const uint32_t sizes[] = {1, 2, 127, 128, 129, 1000, 2048, 5000, SEGMENT_ROWS};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        check_round_trip(sizes[i], false);
        check_round_trip(sizes[i], true);
    }
}

TEST(constant_columns_cost_their_entry)
{
    union probing_cell *cells[1] = {given[0]};
    uint8_t types[1] = {PROBING_I64};
    struct buf out;
    buf_init(&out, SEGMENT_MAX);
    for (uint32_t i = 0; i < SEGMENT_ROWS; i++)
        given[0][i].i = -7;
    struct segment_rows rows = {
        .n_rows = SEGMENT_ROWS, .n_columns = 1, .types = types, .cells = cells, .scratch = scratch};
    CHECK_INT(segment_encode(&rows, &out), 0);
    CHECK(out.size < 100);
    buf_done(&out);
}

/* Read everything in it, whatever it is. */
static bool read_all(const void *data, size_t size)
{
    static union probing_cell cells[ROOM];
    static uint32_t offsets[ROOM + 1];
    struct segment s;
    const uint8_t *bytes;
    bool whole = true;
    if (segment_open(data, size, &s) != 0)
        return false;
    for (uint32_t k = 0; k < s.n_columns; k++) {
        struct segment_column c;
        struct segment_cursor cursor;
        uint32_t nulls;
        int rc = segment_column(&s, k, &c);
        if (rc == 0 && c.is_tail)
            rc = segment_tails(&s, k, offsets, &bytes);
        else if (rc == 0)
            rc = segment_cursor_init(&s, k, NULL, &cursor);
        while (rc == 0 && !c.is_tail && cursor.at < cursor.n_rows)
            rc = segment_cursor_next(&cursor, 2048, cells, &nulls);
        whole = whole && rc == 0;
    }
    return whole;
}

TEST(a_flipped_bit_is_an_error)
{
    struct buf out;
    buf_init(&out, SEGMENT_MAX);
    CHECK_INT(encode(300, true, &out), 0);
    CHECK(read_all(out.data, out.size));
    uint64_t unseen = 0;
    for (size_t i = 0; i + 8 < out.size; i++) {
        out.data[i] ^= (char)(1 << i % 8);
        unseen += read_all(out.data, out.size);
        out.data[i] ^= (char)(1 << i % 8);
    }
    CHECK_INT(unseen, 0);
    buf_done(&out);
}

TEST(a_cut_segment_is_an_error)
{
    struct buf out;
    buf_init(&out, SEGMENT_MAX);
    CHECK_INT(encode(300, true, &out), 0);
    for (size_t size = 0; size < out.size; size += size < 2000 ? 1 : 97) {
        char *exact = malloc(size ? size : 1); /* so that a sanitizer sees one byte too far */
        if (!exact)
            break;
        memcpy(exact, out.data, size);
        CHECK(!read_all(exact, size));
        free(exact);
    }
    buf_done(&out);
}

/* The checksums are against accidents; whoever makes damage on purpose makes them fit. */
TEST(damage_made_to_fit_never_crashes)
{
    struct buf out;
    buf_init(&out, SEGMENT_MAX);
    CHECK_INT(encode(300, true, &out), 0);
    char *copy = malloc(out.size);
    for (int round = 0; copy && round < 20000; round++) {
        memcpy(copy, out.data, out.size);
        /* Half of the damage goes to the heads, where offsets and sizes are. */
        uint64_t heads = 32 + 40 * (MAKERS + 1);
        for (uint64_t k = 0; k <= next_random() % 4; k++)
            copy[16 + next_random() % ((round & 1 ? out.size : heads) - 16)] = (char)next_random();
        segment_sign(copy, out.size);
        (void)read_all(copy, out.size);
    }
    free(copy);
    buf_done(&out);
}

TEST(missing_memory_is_an_error)
{
    for (unsigned n = 1; fail_alloc_step(n); n++) {
        struct buf out;
        buf_init(&out, SEGMENT_MAX);
        int rc = encode(1000, true, &out);
        CHECK(rc == 0 || rc == -ENOMEM);
        buf_done(&out);
    }
}

int main(void)
{
    RUN(every_kind_of_column_comes_back);
    RUN(constant_columns_cost_their_entry);
    RUN(a_flipped_bit_is_an_error);
    RUN(a_cut_segment_is_an_error);
    RUN(damage_made_to_fit_never_crashes);
    RUN(missing_memory_is_an_error);
    return test_end();
}
