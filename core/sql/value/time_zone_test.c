/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/value/time_zone_test.c - a table of a time zone, and tables that nobody would write.
 *
 * A test's own thread.  PROBING_FUZZ_RUNS=n asks for more.
 */
#include "core/sql/value/time_zone.h"

#include <stdlib.h>

#include "core/sql/value/timestamp_parts.h"
#include "tests/test.h"

#define RUNS 20000
#define BYTES_MAX 400

/* One hour east until 2000, two from then on, and a rule of summer time behind that. */
static size_t make_table(char out[BYTES_MAX])
{
    static const char heads[2][44] = {"TZif2", "TZif2"};
    static const char line[] = "\nCET-1CEST,M3.5.0,M10.5.0/3\n";
    size_t n = sizeof(heads[0]);
    memset(out, 0, BYTES_MAX);
    memcpy(out, heads[0], n);
    out[39] = 1; /* the first part has a type, which nobody reads, and its name of no letters */
    n += 6;
    memcpy(out + n, heads[1], sizeof(heads[1]));
    out[n + 35] = 1; /* times */
    out[n + 39] = 2; /* types */
    out[n + 43] = 4; /* letters of names */
    n += sizeof(heads[1]);
    const unsigned char when[8] = {0, 0, 0, 0, 0x38, 0x6d, 0x43, 0x80}; /* 2000-01-01 */
    memcpy(out + n, when, 8);
    out[n + 8] = 1;
    n += 9;
    out[n + 2] = 0x0e, out[n + 3] = 0x10; /* 3600 */
    n += 6;
    out[n + 2] = 0x1c, out[n + 3] = 0x20; /* 7200 */
    n += 6;
    memcpy(out + n, "CET", 4);
    n += 4;
    memcpy(out + n, line, sizeof(line) - 1);
    return n + sizeof(line) - 1;
}

static int64_t ns_of(const char *text)
{
    int64_t ns = 0;
    CHECK_INT(sql_parse_timestamp(text, strlen(text), &ns), 0);
    return ns;
}

static int64_t hours(const struct time_zone *z, const char *utc)
{
    int64_t ns = ns_of(utc), shown = 0, back = 0;
    CHECK_INT(time_zone_clock(z, ns, &shown), 0);
    CHECK_INT(time_zone_utc(z, shown, &back), 0);
    CHECK(back == ns);
    return (shown - ns) / INT64_C(3600000000000);
}

TEST(a_table_says_what_clocks_show)
{
    struct arena mem;
    struct time_zone *z;
    char bytes[BYTES_MAX];
    size_t size = make_table(bytes);
    arena_init(&mem, 0);
    if (!CHECK_INT(time_zone_read(&mem, bytes, size, &z), 0))
        return;
    CHECK_INT(hours(z, "1999-12-31 23:59:59"), 1);
    CHECK_INT(hours(z, "2000-02-01 00:00:00"), 1); /* the rule's, behind all times */
    CHECK_INT(hours(z, "2024-07-01 00:00:00"), 2);
    CHECK_INT(hours(z, "2024-03-31 00:59:59"), 1);
    CHECK_INT(hours(z, "2024-03-31 01:00:00"), 2);
    CHECK_INT(hours(z, "2200-12-31 23:59:59"), 1);
    arena_done(&mem);
}

TEST(no_table_is_believed)
{
    const char *runs = getenv("PROBING_FUZZ_RUNS");
    uint64_t seed = 7, n = runs ? strtoull(runs, NULL, 10) : RUNS, good = 0;
    for (uint64_t i = 0; i < n; i++) {
        char bytes[BYTES_MAX];
        struct arena mem;
        struct time_zone *z;
        size_t size = make_table(bytes);
        arena_init(&mem, 1 << 20);
        for (int changes = 1 + (int)(i % 4); changes; changes--) {
            seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            size_t at = (size_t)(seed >> 33) % size;
            bytes[at] = seed & (1 << 20) ? (char)(seed >> 24) : (char)(bytes[at] ^ (1 << (i % 8)));
            if ((seed >> 40) % 16 == 0)
                size = at + 1;
        }
        if (time_zone_read(&mem, bytes, size, &z) == 0) {
            static const int64_t times[] = {INT64_MIN, -1, 0, INT64_C(1719835200000000000),
                                            INT64_MAX};
            for (size_t k = 0; k < sizeof(times) / sizeof(*times); k++) {
                int64_t to;
                (void)time_zone_clock(z, times[k], &to);
                (void)time_zone_utc(z, times[k], &to);
            }
            good++;
        }
        arena_done(&mem);
    }
    CHECK(good > 0 && good < n);
}

int main(void)
{
    RUN(a_table_says_what_clocks_show);
    RUN(no_table_is_believed);
    return test_end();
}
