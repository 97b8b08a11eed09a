/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/format/format_test.c - answers as bytes: every format, tables that fit, streams of
 * answers.
 */
#include <errno.h>

#include "core/base/json.h"
#include "core/sql/example_test.h"
#include "tests/fail_alloc.h"

TEST(writers_write)
{
    const char *text = "select 1 as a, null as b, 'x\"\n' as c, 0.1 as d, "
                       "'2024-05-01'::timestamp as t";
    struct sql_report report;
    struct buf out;
    buf_init(&out, 1 << 20);
    CHECK_INT(ask_as(SQL_FORMAT_JSONL, text, NULL, &out, &report), 0);
    CHECK_STR(buf_text(&out), "{\"a\":1,\"b\":null,\"c\":\"x\\\"\\n\",\"d\":0.1,"
                              "\"t\":\"2024-05-01T00:00:00.000000000Z\"}\n");
    buf_reset(&out);
    CHECK_INT(ask_as(SQL_FORMAT_CSV, text, NULL, &out, &report), 0);
    CHECK_STR(buf_text(&out), "a,b,c,d,t\r\n1,,\"x\"\"\n\",0.1,2024-05-01T00:00:00.000000000Z\r\n");
    buf_reset(&out);
    CHECK_INT(ask_as(SQL_FORMAT_JSON, text, NULL, &out, &report), 0);
    struct arena a;
    struct json *j;
    arena_init(&a, 0);
    CHECK_INT(json_parse(&a, out.data, out.size, &j), 0);
    CHECK_INT(json_int(j, "row_count", -1), 1);
    arena_done(&a);
    buf_reset(&out);
    CHECK_INT(ask_as(SQL_FORMAT_TABLE, "select module, duration from torch_trace limit 2", NULL,
                     &out, &report),
              0);
    CHECK(strncmp(buf_text(&out),
                  " module  | duration [s]\n---------+--------------\n"
                  " encoder |            0\n decoder |         0.25\n(2 rows, ",
                  90) == 0);
    buf_done(&out);
}

static bool has(const struct buf *b, const char *bytes, size_t size)
{
    return memmem(b->data, b->size, bytes, size) != NULL;
}

/* tests/store/test_arrow.py tests what readers make of it. */
TEST(arrow_is_a_stream)
{
    static const char end[] = "\xff\xff\xff\xff\0\0\0";
    const struct sql_options some = {.max_rows = 3};
    struct sql_report report;
    struct buf out;
    buf_init(&out, 1 << 20);
    CHECK_INT(ask_as(SQL_FORMAT_ARROW, "select 'a\xff' || module as s, duration from torch_trace",
                     NULL, &out, &report),
              0);
    CHECK(out.size % 8 == 0 && memcmp(out.data, end, 4) == 0);
    CHECK(memcmp(out.data + out.size - sizeof(end), end, sizeof(end)) == 0);
    CHECK(has(&out,
              "a\xef\xbf\xbd"
              "encoder",
              11) &&
          !has(&out, "a\xff", 2));
    CHECK(has(&out, "how long", 9) && !has(&out, "truncated", 10));
    buf_reset(&out);
    CHECK_INT(ask_as(SQL_FORMAT_ARROW, "select ts from torch_trace", &some, &out, &report), 0);
    CHECK(has(&out, "truncated", 10) && has(&out, "UTC", 4) && !has(&out, "missing", 7));
    buf_done(&out);
}

TEST(memory_may_fail)
{
    static const char *const texts[] = {
        "select *, date '2024-02-29' as d, interval '1 mon' as m, null as n, true as t from "
        "torch_trace limit 300",
        "select module from torch_trace where false"};
    for (size_t i = 0; i < 2 * sizeof(texts) / sizeof(texts[0]); i++) {
        for (unsigned n = 1; fail_alloc_step(n); n++) {
            struct sql_report report;
            struct buf out;
            buf_init(&out, 1 << 20);
            int rc = ask_as(i % 2 ? SQL_FORMAT_ARROW : SQL_FORMAT_JSON, texts[i / 2], NULL, &out,
                            &report);
            CHECK(rc == -ENOMEM || (rc == 0 && !out.failed));
            buf_done(&out);
        }
    }
}

TEST(a_table_fits_the_terminal)
{
    const char *text =
        "select replace('xxxxxxxxxx', 'x', 'abcdefghi') as long, 5 as n, 'short' as s";
    struct sql_report report;
    struct sql_writer *w;
    struct buf out;
    buf_init(&out, 1 << 20);
    if (!CHECK_INT(sql_writer_new(SQL_FORMAT_TABLE, 60, add_bytes, &out, &w), 0))
        return;
    struct sql_sink sink = sql_writer_sink(w);
    CHECK_INT(sql_run(engine, text, strlen(text), NULL, &sink, &report), 0);
    CHECK_INT(sql_writer_finish(w, &report), 0);
    CHECK(strstr(buf_text(&out), "... | 5 | short\n") != NULL);
    CHECK(strstr(buf_text(&out), "\n(1 cell is cut; -x or \\x shows all, and --json)\n") != NULL);
    CHECK(strchr(buf_text(&out), '\n') - buf_text(&out) <= 60);
    sql_writer_free(w);
    buf_done(&out);
}

/* A column a line, whole, whatever the width. */
TEST(rows_may_be_expanded)
{
    const char *text =
        "select replace('xxxxxxxxxx', 'x', 'abcdefghijklmnopqrstuvwxyz') || e'\n' as long, "
        "1.5 as of_one, null as no union all select 'b', 2, 'c'";
    struct sql_report report;
    struct buf out, wanted;
    buf_init(&out, 1 << 20);
    buf_init(&wanted, 1 << 20);
    CHECK_INT(ask_as(SQL_FORMAT_EXPANDED, text, NULL, &out, &report), 0);
    (void)buf_adds(&wanted, "-[ RECORD 1 ]-+-\nlong   | ");
    for (int i = 0; i < 10; i++)
        (void)buf_adds(&wanted, "abcdefghijklmnopqrstuvwxyz");
    (void)buf_adds(&wanted, "\\n\nof_one | 1.5\nno     | \n"
                            "-[ RECORD 2 ]-+-\nlong   | b\nof_one | 2\nno     | c\n(2 rows, ");
    CHECK(strncmp(buf_text(&out), buf_text(&wanted), wanted.size) == 0);
    buf_done(&wanted);
    buf_done(&out);
}

/* A column that does not fit is left out whole and named: a number cut at the edge is another. */
TEST(columns_that_do_not_fit_are_named)
{
    const char *text = "select 123456789 as first, 123456789 as second, 'x' as third, 4 as fourth";
    struct sql_report report;
    struct sql_writer *w;
    struct buf out;
    buf_init(&out, 1 << 20);
    if (!CHECK_INT(sql_writer_new(SQL_FORMAT_TABLE, 29, add_bytes, &out, &w), 0))
        return;
    struct sql_sink sink = sql_writer_sink(w);
    CHECK_INT(sql_run(engine, text, strlen(text), NULL, &sink, &report), 0);
    CHECK_INT(sql_writer_finish(w, &report), 0);
    CHECK(
        strncmp(buf_text(&out),
                "     first |    second\n-----------+-----------\n 123456789 | 123456789\n(1 row, ",
                78) == 0);
    CHECK(strstr(buf_text(&out), "\n(2 of 4 columns do not fit\ninto the terminal: third,\n"
                                 "fourth; -x or \\x shows all)\n") != NULL);
    sql_writer_free(w);
    buf_reset(&out);
    if (!CHECK_INT(sql_writer_new(SQL_FORMAT_TABLE, 8, add_bytes, &out, &w), 0))
        return;
    sink = sql_writer_sink(w);
    CHECK_INT(sql_run(engine, text, strlen(text), NULL, &sink, &report), 0);
    CHECK_INT(sql_writer_pause(w), 0); /* as `watch` does */
    CHECK_STR(buf_text(&out),
              "     fir\n--------\n 1234567\n"
              "(3 of 4\ncolumns\ndo not\nfit into\nthe\nterminal:\nsecond,\nthird,\nfourth;\n"
              "-x or \\x\nshows\nall)\n(lines\nare cut\nat the\nterminal's\nedge; a\npipe has\n"
              "all of\nthem)\n");
    sink = sql_writer_sink(w);
    buf_reset(&out);
    CHECK_INT(sql_run(engine, text, strlen(text), NULL, &sink, &report), 0);
    CHECK_INT(sql_writer_pause(w), 0);
    CHECK_STR(buf_text(&out), " 1234567\n"); /* that is said once for a header */
    sql_writer_free(w);
    buf_done(&out);
}

/* A stream of answers by one writer: the header comes again only when a column has become wider. */
TEST(answers_that_follow_each_other)
{
    static const char *const answers[] = {"select 1 as n", "select 2 as n", "select 1 as n limit 0",
                                          "select 345 as n", "select 6 as n"};
    struct buf out;
    struct sql_writer *w;
    buf_init(&out, 1u << 20);
    if (!CHECK_INT(sql_writer_new(SQL_FORMAT_TABLE, 0, add_bytes, &out, &w), 0))
        return;
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        struct sql_sink sink = sql_writer_sink(w);
        struct sql_options o = {0};
        struct sql_report report;
        CHECK_INT(sql_run(engine, answers[i], strlen(answers[i]), &o, &sink, &report), 0);
        CHECK_INT(sql_writer_pause(w), 0);
    }
    CHECK_STR(buf_text(&out), " n\n---\n 1\n 2\n   n\n-----\n 345\n   6\n");
    sql_writer_free(w);
    buf_done(&out);
}

int main(void)
{
    if (begin_examples(scan) != 0)
        return 1;
    RUN(writers_write);
    RUN(arrow_is_a_stream);
    RUN(memory_may_fail);
    RUN(a_table_fits_the_terminal);
    RUN(rows_may_be_expanded);
    RUN(columns_that_do_not_fit_are_named);
    RUN(answers_that_follow_each_other);
    return end_examples();
}
