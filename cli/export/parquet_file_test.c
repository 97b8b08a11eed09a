/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/export/parquet_file_test.c - Parquet by its bytes; tests/ship reads whole files, and DuckDB
 * does.
 */
#include "cli/export/parquet_file.h"

#include <errno.h>
#include <string.h>

/* One unit, because a unit test is linked with libcore.a alone; pages as they are before snappy,
 * which has a test of its own. */
#define snappy_add(out, data, size) buf_add(out, data, size)
#include "cli/export/parquet_file.c"
#include "tests/fail_alloc.h"
#include "tests/test.h"

static const struct sql_column columns[] = {
    {"b", SQL_BOOL, 0, ""},   {"i", SQL_INT, 0, ""},      {"d", SQL_DOUBLE, 0, ""},
    {"t", SQL_TEXT, 0, ""},   {"x", SQL_BLOB, 0, ""},     {"ts", SQL_TIMESTAMP, 0, ""},
    {"day", SQL_DATE, 0, ""}, {"n", SQL_INTERVAL, 0, ""}, {"c", SQL_CALENDAR, 0, ""}};

static void value(void *arg, uint32_t row, uint32_t column, struct sql_value *ret)
{
    enum sql_type t = columns[column].type;

    (void)arg;
    *ret = (struct sql_value){.type = row == 1 ? SQL_NULL : t};
    if (t == SQL_TEXT || t == SQL_BLOB) {
        ret->text.data = "ab";
        ret->text.size = 2;
    } else if (t == SQL_DOUBLE)
        ret->number = 0.5;
    else if (t == SQL_BOOL)
        ret->boolean = true;
    else
        ret->integer = t == SQL_DATE ? -DAY_NS : 7;
}

static int make(uint32_t n_columns, uint32_t n_rows, size_t max, struct buf *ret)
{
    const struct parquet_rows rows = {n_rows, value, NULL};
    struct parquet_file *f = NULL;
    buf_init(ret, max);
    int rc = parquet_begin(columns, n_columns, ret, &f);
    if (rc == 0)
        rc = parquet_add_rows(f, &rows, ret);
    if (rc == 0)
        rc = parquet_end(f, ret);
    parquet_free(f);
    return rc;
}

static bool has(const struct buf *b, const void *bytes, size_t size)
{
    return memmem(b->data, b->size, bytes, size) != NULL;
}

TEST(values_lie_plain_behind_the_bits_that_say_which_are_there)
{
    /* three rows, the second NULL: runs 1 x there, 1 x not, 1 x there; then two values */
    static const uint8_t bools[] = {6, 0, 0, 0, 2, 1, 2, 0, 2, 1, 3};
    static const uint8_t whole[] = {2, 1, 2, 0, 2, 1, 7, 0, 0, 0, 0, 0, 0, 0, 7};
    static const uint8_t texts[] = {2, 1, 2, 0, 2, 1, 2, 0, 0, 0, 'a', 'b', 2, 0, 0, 0, 'a', 'b'};
    static const uint8_t days[] = {2, 1, 2, 0, 2, 1, 255, 255, 255, 255, 255, 255, 255, 255};
    struct buf out;

    CHECK_INT(make(7, 3, 1 << 20, &out), 0);
    CHECK(memcmp(out.data, "PAR1", 4) == 0 && memcmp(out.data + out.size - 4, "PAR1", 4) == 0);
    CHECK(has(&out, bools, sizeof(bools)));
    CHECK(has(&out, whole, sizeof(whole)));
    CHECK(has(&out, texts, sizeof(texts)));
    CHECK(has(&out, days, sizeof(days)));
    buf_done(&out);
}

TEST(nothing_and_much)
{
    struct buf out;
    CHECK_INT(make(9, 0, 1 << 20, &out), 0);
    CHECK(out.size > 8);
    buf_done(&out);
    CHECK_INT(make(7, 100000, 1 << 16, &out), -EFBIG);
    buf_done(&out);
}

/* Bytes that the caller has taken out count for the places of the groups that follow. */
TEST(groups_are_the_same_whether_the_buffer_is_emptied_between_them)
{
    const struct parquet_rows rows = {3, value, NULL};
    struct parquet_file *whole = NULL, *parts = NULL;
    struct buf all, part, together;

    buf_init(&all, 1 << 20);
    buf_init(&part, 1 << 20);
    buf_init(&together, 1 << 20);
    CHECK_INT(parquet_begin(columns, 9, &all, &whole), 0);
    CHECK_INT(parquet_begin(columns, 9, &part, &parts), 0);
    for (int i = 0; i < 20; i++) {
        CHECK_INT(parquet_add_rows(whole, &rows, &all), 0);
        CHECK_INT(parquet_add_rows(parts, &rows, &part), 0);
        (void)buf_add(&together, part.data, part.size);
        buf_reset(&part);
    }
    CHECK_INT(parquet_end(whole, &all), 0);
    CHECK_INT(parquet_end(parts, &part), 0);
    (void)buf_add(&together, part.data, part.size);
    CHECK(all.size == together.size && memcmp(all.data, together.data, all.size) == 0);
    parquet_free(whole);
    parquet_free(parts);
    buf_done(&all);
    buf_done(&part);
    buf_done(&together);
}

TEST(without_memory)
{
    for (unsigned n = 1; fail_alloc_step(n); n++) {
        struct buf out;
        int rc = make(7, 50, 1 << 20, &out);
        CHECK(rc == 0 || rc == -ENOMEM);
        buf_done(&out);
    }
}

int main(void)
{
    RUN(values_lie_plain_behind_the_bits_that_say_which_are_there);
    RUN(nothing_and_much);
    RUN(groups_are_the_same_whether_the_buffer_is_emptied_between_them);
    RUN(without_memory);
    return test_end();
}
