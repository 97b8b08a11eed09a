/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/inspect/line_table_test.c - line tables as three generations of CPython wrote
 * them.
 *
 * The bytes are made by hand from the formats' descriptions; tests/python compares whole stacks
 * with what the interpreters themselves say.  One thread.
 */
#include "inspect/line_table.h"

#include "tests/test.h"

/* def f(x):          line 10
 *     a = x          line 11
 *     b = a          line 12
 *
 *     return b       line 14 */

TEST(lnotab_of_3_8)
{
    static const uint8_t table[] = {0, 1, 4, 1, 4, 2};
    CHECK(lines_find(8, table, sizeof(table), 10, 0, NULL) == 11);
    CHECK(lines_find(8, table, sizeof(table), 10, 3, NULL) == 11);
    CHECK(lines_find(9, table, sizeof(table), 10, 4, NULL) == 12);
    CHECK(lines_find(9, table, sizeof(table), 10, 8, NULL) == 14);
    CHECK(lines_find(9, table, sizeof(table), 10, 4000, NULL) == 14);
}

TEST(lnotab_goes_back_and_over_a_byte)
{
    /* 300 bytes of code in two steps, then 3 lines back */
    static const uint8_t table[] = {255, 0, 45, 127, 0, 73, 6, 0xfd, 0, 0};
    CHECK(lines_find(8, table, sizeof(table), 1, 299, NULL) == 1);
    CHECK(lines_find(8, table, sizeof(table), 1, 300, NULL) == 201);
    CHECK(lines_find(8, table, sizeof(table), 1, 306, NULL) == 198);
}

TEST(pairs_of_3_10)
{
    static const uint8_t table[] = {4, 1, 4, 1, 2, 0x80, 4, 2};
    CHECK(lines_find(10, table, sizeof(table), 10, 0, NULL) == 11);
    CHECK(lines_find(10, table, sizeof(table), 10, 6, NULL) == 12);
    CHECK(lines_find(10, table, sizeof(table), 10, 8, NULL) == 0); /* no line: the compiler's own */
    CHECK(lines_find(10, table, sizeof(table), 10, 10, NULL) == 14);
}

TEST(locations_of_3_11)
{
    static const uint8_t table[] = {
        0x80 | 15 << 3 | 0,                          /* 1 unit without a line */
        0x80 | 11 << 3 | 1, 4,         9,            /* 2 units, 1 line on, columns */
        0x80 | 0 << 3 | 0,  0x12,                    /* 1 unit, same line, short form */
        0x80 | 13 << 3 | 0, 5,                       /* 1 unit, -2 lines, no columns */
        0x80 | 14 << 3 | 3, 0x40 | 20, 0x3, 0, 1, 2, /* 4 units, 202/2 lines on, long form */
    };
    CHECK(lines_find(11, table, sizeof(table), 10, 0, NULL) == 0);
    CHECK(lines_find(11, table, sizeof(table), 10, 2, NULL) == 11);
    CHECK(lines_find(12, table, sizeof(table), 10, 5, NULL) == 11);
    CHECK(lines_find(12, table, sizeof(table), 10, 6, NULL) == 11);
    CHECK(lines_find(13, table, sizeof(table), 10, 8, NULL) == 9);
    CHECK(lines_find(13, table, sizeof(table), 10, 10, NULL) == 9 + (20 + 3 * 64) / 2);
}

TEST(before_the_first_instruction)
{
    static const uint8_t table[] = {4, 1};
    CHECK(lines_find(8, table, sizeof(table), 10, -1, NULL) == 10);
    CHECK(lines_find(10, table, sizeof(table), 10, -2, NULL) == 10);
    CHECK(lines_find(11, table, sizeof(table), 10, -2, NULL) == 10);
}

/* One pass to the instruction, and a search in the table that was decoded, say the same. */
static void both(unsigned minor, const uint8_t *table, size_t size, int64_t offset)
{
    struct lines_range ranges[72];
    struct lines_columns one = {0, 0}, other = {0, 0};
    size_t n = lines_decode(minor, table, size, 10, ranges, 72);
    int line = lines_find(minor, table, size, 10, offset, &one);
    CHECK(n > 0 && n <= size + 1 && line >= 0);
    CHECK_INT(lines_search(ranges, n, 10, offset, &other), line);
    CHECK(one.first == other.first && one.last == other.last);
}

TEST(a_decoded_table)
{
    static const uint8_t table[] = {4, 1, 4, 1, 2, 0x80, 4, 2};
    struct lines_range few[2];
    CHECK_INT(lines_decode(10, table, sizeof(table), 10, few, 2), 5);
    CHECK(few[0].end == 4 && few[0].line == 11 && few[1].end == 8 && few[1].line == 12);
    for (int64_t offset = -2; offset < 20; offset++) {
        both(9, table, sizeof(table), offset);
        both(10, table, sizeof(table), offset);
        both(11, table, sizeof(table), offset);
    }
}

/* Bytes torn by a thread that ran on: any answer, no fault (this runs under sanitizers). */
TEST(any_bytes_at_all)
{
    uint8_t table[64];
    uint32_t x = 1;
    for (int round = 0; round < 20000; round++) {
        for (size_t i = 0; i < sizeof(table); i++) {
            x = x * 1664525u + 1013904223u;
            table[i] = (uint8_t)(x >> 24);
        }
        for (unsigned minor = 8; minor <= 13; minor++)
            both(minor, table, x >> 8 & 63, (int64_t)(x & 255) - 2);
    }
    CHECK(lines_find(11, NULL, 0, 10, 4, NULL) >= 0);
    CHECK(lines_find(11, table, sizeof(table), INT32_MIN, 4, NULL) == 0);
}

int main(void)
{
    RUN(lnotab_of_3_8);
    RUN(lnotab_goes_back_and_over_a_byte);
    RUN(pairs_of_3_10);
    RUN(locations_of_3_11);
    RUN(before_the_first_instruction);
    RUN(a_decoded_table);
    RUN(any_bytes_at_all);
    return test_end();
}
