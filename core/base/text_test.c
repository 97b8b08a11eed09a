/* SPDX-License-Identifier: Apache-2.0
 *
 * core/base/text_test.c - which texts are numbers, durations, sizes, names and JSON, and which not.
 */
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/base/text.h"
#include "tests/fail_alloc.h"
#include "tests/test.h"

TEST(whole_numbers)
{
    uint64_t u = 7;
    int64_t i = 7;
    CHECK_INT(parse_u64("18446744073709551615", &u), 0);
    CHECK(u == UINT64_MAX);
    CHECK_INT(parse_u64("18446744073709551616", &u), -ERANGE);
    CHECK_INT(parse_i64("-9223372036854775808", &i), 0);
    CHECK(i == INT64_MIN);
    CHECK_INT(parse_i64("9223372036854775808", &i), -ERANGE);
    static const char *const bad[] = {"", " 1", "1 ", "+1", "0x1", "1.0", "-", "--1", "1e3"};
    for (size_t k = 0; k < sizeof(bad) / sizeof(bad[0]); k++) {
        CHECK_INT(parse_u64(bad[k], &u), -EINVAL);
        CHECK_INT(parse_i64(bad[k], &i), -EINVAL);
    }
    CHECK_INT(parse_u64("-1", &u), -EINVAL);
    CHECK(u == UINT64_MAX); /* set on success only */
}

TEST(doubles_whatever_the_locale)
{
    /* If that locale is installed, a comma is the decimal point for everybody else. */
    (void)setlocale(LC_ALL, "de_DE.UTF-8");
    static const double values[] = {
        0,    1,    -1,     0.1,     1e300, 5e-324,  1.0 / 3, 123456789.125,
        1e15, 1e16, 1e-320, 3.14e-7, -0.0,  0.000123};
    char text[32];
    for (size_t k = 0; k < sizeof(values) / sizeof(values[0]); k++) {
        double back = 99;
        size_t n = format_f64(values[k], text);
        CHECK_INT(n, strlen(text));
        CHECK_INT(parse_f64(text, n, &back), 0);
        CHECK_INT(memcmp(&back, &values[k], 8), 0);
    }
    (void)format_f64(0.1, text);
    CHECK_STR(text, "0.1");
    (void)format_f64(NAN, text);
    CHECK_STR(text, "nan");
    (void)format_f64(-INFINITY, text);
    CHECK_STR(text, "-inf");
    double d;
    static const char *const bad[] = {"",   ".",      "1,5",      "0x10", " 1",   "1 ",
                                      "1e", "nan(1)", "infinity", "--1",  "1e999"};
    for (size_t k = 0; k < sizeof(bad) / sizeof(bad[0]); k++)
        CHECK(parse_f64(bad[k], strlen(bad[k]), &d) < 0);
    CHECK_INT(parse_f64("1.5xyz", 3, &d), 0);
    (void)setlocale(LC_ALL, "C");
}

TEST(durations_sizes_and_switches)
{
    uint64_t u;
    bool b;
    CHECK_INT(parse_ns("250ms", &u), 0);
    CHECK_INT(u, 250000000);
    CHECK_INT(parse_ns("5m", &u), 0);
    CHECK(u == UINT64_C(300000000000));
    CHECK_INT(parse_ns("10", &u), 0);
    CHECK(u == UINT64_C(10000000000));
    CHECK_INT(parse_ns("1.5s", &u), 0);
    CHECK_INT(u, 1500000000);
    CHECK_INT(parse_ns("10 s", &u), -EINVAL);
    CHECK_INT(parse_ns("10parsec", &u), -EINVAL);
    CHECK(strstr(err_text(), "parsec") != NULL);
    CHECK_INT(parse_ns("99999999999d", &u), -ERANGE);
    CHECK_INT(parse_ns("s", &u), -EINVAL);
    CHECK_INT(parse_bytes("64K", &u), 0);
    CHECK_INT(u, 65536);
    CHECK_INT(parse_bytes("1GB", &u), 0);
    CHECK_INT(u, 1 << 30);
    CHECK_INT(parse_bytes("-1", &u), -EINVAL);
    CHECK_INT(parse_bool("Yes", &b), 0);
    CHECK(b);
    CHECK_INT(parse_bool("off", &b), 0);
    CHECK(!b);
    CHECK_INT(parse_bool("2", &b), -EINVAL);
}

TEST(amounts_are_told_as_they_are_read)
{
    static const struct {
        int64_t ns;
        const char *text;
    } times[] = {{0, "0"},
                 {1, "1ns"},
                 {1500, "1500ns"},
                 {10000000, "10ms"},
                 {90000000000, "90s"},
                 {3600000000000, "1h"},
                 {-1000, "-1us"},
                 {INT64_MAX, "9223372036854775807ns"}},
      sizes[] = {
          {0, "0"}, {1000, "1000"}, {4096, "4KB"}, {1 << 30, "1GB"}, {INT64_MIN, "-8388608TB"}};
    char text[TEXT_AMOUNT_BYTES];
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        uint64_t again = 0;
        text_ns(times[i].ns, text);
        CHECK_STR(text, times[i].text);
        if (times[i].ns > 0)
            CHECK(parse_ns(text, &again) == 0 && again == (uint64_t)times[i].ns);
    }
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        uint64_t again = 0;
        text_bytes(sizes[i].ns, text);
        CHECK_STR(text, sizes[i].text);
        if (sizes[i].ns > 0)
            CHECK(parse_bytes(text, &again) == 0 && again == (uint64_t)sizes[i].ns);
    }
}

TEST(nearest_names)
{
    static const char *const names[] = {"module", "stage", "duration", "step", NULL};
    CHECK_STR(text_nearest("modul", names, 4), "module");
    CHECK_STR(text_nearest("duraiton", names, 4), "duration"); /* two letters swapped */
    CHECK_STR(text_nearest("STAGE", names, 5), "stage");
    CHECK(text_nearest("zebra", names, 4) == NULL);
    CHECK(text_nearest("", names, 4) == NULL);
    CHECK(text_is_listed("a, bc,d", "bc", 2) && text_is_listed(" a", "a", 1));
    CHECK(!text_is_listed("abc", "ab", 2) && !text_is_listed("", "", 0));
    CHECK(text_is_off("") && text_is_off("OFF") && text_is_off("0") && !text_is_off("on"));
    CHECK(!text_is_off("0.5") && !text_is_off("loss"));
    CHECK(text_is_name("a_1") && !text_is_name("1a") && !text_is_name("") && !text_is_name("A"));
}

static struct json *parse(struct arena *a, const char *text)
{
    struct json *root = NULL;
    return json_parse(a, text, strlen(text), &root) == 0 ? root : NULL;
}

TEST(json_in)
{
    struct arena a;
    arena_init(&a, 0);
    struct json *root =
        parse(&a, " {\"a\":[1,-2.5e3,true,null],\"b\":\"x\\u00e9\\ud83d\\ude00\\n\",\"n\":12} ");
    if (CHECK(root != NULL)) {
        const struct json *list = json_get(root, "a");
        CHECK_INT(list->size, 4);
        CHECK_INT(list->first->integer, 1);
        CHECK(list->first->next->number == -2500 && !list->first->next->is_integer);
        CHECK_STR(json_text(root, "b", ""), "x\xc3\xa9\xf0\x9f\x98\x80\n");
        CHECK_INT(json_int(root, "n", 0), 12);
        CHECK_INT(json_int(root, "b", -1), -1);
        CHECK(json_get(root, "zz") == NULL && json_get(list, "a") == NULL);
    }
    static const char *const bad[] = {"",
                                      "{",
                                      "[1,]",
                                      "{\"a\":}",
                                      "{a:1}",
                                      "01",
                                      "1.",
                                      "\"\x01\"",
                                      "\"\\x\"",
                                      "\"\\u12\"",
                                      "\"\\ud800\"",
                                      "nul",
                                      "[1] 2",
                                      "\"\xc3\"",
                                      "-",
                                      "1e",
                                      "[\"a\"",
                                      "\"\\",
                                      "\"\xed\xa0\x80\"",
                                      "\"\\udc00\"",
                                      "{\"a\":1,}",
                                      "1e999"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CHECK(parse(&a, bad[i]) == NULL);
    CHECK(strstr(err_text(), "byte") != NULL);
    char deep[JSON_DEPTH + 2];
    memset(deep, '[', sizeof(deep));
    deep[sizeof(deep) - 1] = '\0';
    CHECK(parse(&a, deep) == NULL);
    CHECK(strstr(err_text(), "deeply") != NULL);
    arena_done(&a);
}

TEST(json_in_without_memory)
{
    static const char text[] = "{\"a\":[1,2,3],\"b\":\"c\"}";
    for (unsigned n = 1; fail_alloc_step(n); n++) {
        struct arena a;
        struct json *root;
        arena_init(&a, 0);
        int rc = json_parse(&a, text, sizeof(text) - 1, &root);
        CHECK(rc == 0 || rc == -ENOMEM);
        arena_done(&a);
    }
}

TEST(json_out)
{
    struct buf b;
    buf_init(&b, 1000);
    (void)json_add_text(&b, "a\"\\\n\x01\xff\xc3\xa9z", 9);
    CHECK_STR(buf_text(&b), "\"a\\\"\\\\\\n\\u0001\xef\xbf\xbd\xc3\xa9z\"");
    buf_reset(&b);
    (void)json_add_f64(&b, NAN);
    (void)buf_addc(&b, ' ');
    (void)json_add_f64(&b, 0.25);
    (void)buf_addc(&b, ' ');
    (void)json_add_f64(&b, -0.0);
    CHECK_STR(buf_text(&b), "null 0.25 -0.0");
    buf_done(&b);
}

int main(void)
{
    RUN(whole_numbers);
    RUN(doubles_whatever_the_locale);
    RUN(durations_sizes_and_switches);
    RUN(amounts_are_told_as_they_are_read);
    RUN(nearest_names);
    RUN(json_in);
    RUN(json_in_without_memory);
    RUN(json_out);
    return test_end();
}
