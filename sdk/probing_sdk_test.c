/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/probing_sdk_test.c - tables in a line, NULLs and numbers out of text; what needs a host is
 * tried by plugins in real processes (tests/e2e/test_third_party_plugin.py).
 */
#include "sdk/probing_sdk.h"

#include "tests/test.h"

static int scan(void *self, struct probing_rows *out)
{
    (void)self;
    (void)out;
    return probing_scanned(-ECANCELED);
}

static const struct probing_column columns[] = {
    PROBING_I64_COLUMN("count", PROBING_COUNT, "how many"),
    PROBING_F64_COLUMN("share", PROBING_PERCENT, "of all"),
    PROBING_STR_COLUMN("name", "of each"),
};

TEST(tables_say_their_sizes)
{
    struct probing_table_desc stored = PROBING_TABLE("a", columns, "stored");
    struct probing_table_desc texts = PROBING_TEXT_TABLE("b", columns, "text", "with a tail");
    struct probing_table_desc computed = PROBING_COMPUTED_TABLE("c", columns, scan, "computed");
    CHECK_INT(stored.size, sizeof(stored));
    CHECK_INT(stored.column_size, sizeof(columns[0]));
    CHECK_INT(stored.n_columns, 3);
    CHECK_STR(stored.doc, "stored");
    CHECK(!stored.scan && !stored.tail_type && !stored.tail_name);
    CHECK_INT(texts.tail_type, PROBING_STR);
    CHECK_STR(texts.tail_name, "text");
    CHECK(computed.scan == scan && computed.scan(NULL, NULL) == 0);
    CHECK_INT(columns[1].type, PROBING_F64);
    CHECK_INT(columns[1].unit, PROBING_PERCENT);
    CHECK_STR(columns[2].doc, "of each");
}

TEST(null_has_the_bits_of_its_type)
{
    CHECK(probing_null(PROBING_I64).i == PROBING_NULL_I64);
    CHECK(probing_null(PROBING_TIME).i == PROBING_NULL_I64);
    CHECK(probing_null(PROBING_F64).u == PROBING_NULL_F64);
    CHECK(probing_null(PROBING_STR).u == PROBING_NULL_ID);
    CHECK(probing_null(PROBING_BLOB).u == PROBING_NULL_ID);
    CHECK(probing_i64(-3).i == -3 && probing_f64(0.5).f == 0.5 && probing_id(7).u == 7);
    CHECK_STR(probing_str("text").s, "text");
}

TEST(numbers_are_the_whole_text)
{
    static const char *const bad[] = {"", " 1", "1 ", "+1", "-1", "0x1", "1.0", "99999x"};
    uint64_t n = 42;
    CHECK_INT(probing_parse_u64("0", 10, &n), 0);
    CHECK_INT(n, 0);
    CHECK_INT(probing_parse_u64("0010", 10, &n), 0);
    CHECK_INT(n, 10);
    CHECK_INT(probing_parse_u64("18446744073709551615", UINT64_MAX, &n), 0);
    CHECK(n == UINT64_MAX);
    CHECK_INT(probing_parse_u64("18446744073709551616", UINT64_MAX, &n), -ERANGE);
    CHECK_INT(probing_parse_u64("99999999999999999999999", UINT64_MAX, &n), -ERANGE);
    CHECK_INT(probing_parse_u64("11", 10, &n), -ERANGE);
    CHECK_INT(probing_parse_u64(NULL, 10, &n), -EINVAL);
    for (size_t i = 0; i < PROBING_LENGTH(bad); i++)
        CHECK_INT(probing_parse_u64(bad[i], 10, &n), -EINVAL);
    CHECK(n == UINT64_MAX); /* set on success only */
}

TEST(time_is_in_nanoseconds)
{
    uint64_t now = probing_clock_ns(CLOCK_MONOTONIC);
    CHECK(probing_clock_ns(CLOCK_MONOTONIC) >= now);
    CHECK_INT(probing_clock_ns((clockid_t)-1), 0); /* there is no such clock */
    CHECK(probing_seconds(1500 * PROBING_NS_PER_MS) == 1.5);
}

int main(void)
{
    RUN(tables_say_their_sizes);
    RUN(null_has_the_bits_of_its_type);
    RUN(numbers_are_the_whole_text);
    RUN(time_is_in_nanoseconds);
    return test_end();
}
