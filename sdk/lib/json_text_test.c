/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/json_text_test.c - any bytes become JSON strings, and come back as they were.
 */
#include "sdk/lib/json_text.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "sdk/lib/json.h"
#include "sdk/lib/utf8.h"
#include "tests/test.h"

static bool becomes(const char *text, size_t n, const char *json)
{
    struct buf b;
    buf_init(&b, 1 << 20);
    bool held = json_add_text(&b, text, n) == 0 && CHECK_STR(buf_text(&b), json);
    buf_done(&b);
    return held;
}

TEST(what_steers_or_ends_a_string_is_escaped)
{
    CHECK(becomes("", 0, "\"\""));
    CHECK(becomes("plain / text", 12, "\"plain / text\""));
    CHECK(becomes("a\"b\\c", 5, "\"a\\\"b\\\\c\""));
    CHECK(becomes("\n\t\r", 3, "\"\\n\\t\\r\""));
    CHECK(becomes("\0\x01\x1b\x1f", 4, "\"\\u0000\\u0001\\u001b\\u001f\""));
    CHECK(becomes("\x7f", 1, "\"\\u007f\""));
    CHECK(becomes("\xc2\x80\xc2\x9b\xc2\xa0", 6, "\"\\u0080\\u009b\xc2\xa0\"")); /* C1 */
}

TEST(letters_stay)
{
    CHECK(becomes("\xe2\x80\xa8\xe2\x80\xa9", 6, "\"\xe2\x80\xa8\xe2\x80\xa9\"")); /* U+2028 */
    CHECK(becomes("\xef\xbb\xbf", 3, "\"\xef\xbb\xbf\""));
    CHECK(becomes("\xf0\x9f\x98\x80", 4, "\"\xf0\x9f\x98\x80\""));
    CHECK(becomes("\xf4\x8f\xbf\xbf", 4, "\"\xf4\x8f\xbf\xbf\"")); /* the last one */
    CHECK(becomes("\xed\x9f\xbf\xee\x80\x80", 6, "\"\xed\x9f\xbf\xee\x80\x80\""));
}

#define BAD "\xef\xbf\xbd"

TEST(what_is_no_utf8_is_replaced)
{
    CHECK(becomes("a\xff"
                  "b",
                  3, "\"a" BAD "b\""));
    CHECK(becomes("\x80", 1, "\"" BAD "\""));
    CHECK(becomes("\xc0\xaf", 2, "\"" BAD BAD "\""));                 /* too long a form */
    CHECK(becomes("\xe0\x80\xaf", 3, "\"" BAD BAD BAD "\""));         /* likewise */
    CHECK(becomes("\xed\xa0\x80", 3, "\"" BAD BAD BAD "\""));         /* half a pair */
    CHECK(becomes("\xed\xbf\xbf", 3, "\"" BAD BAD BAD "\""));         /* the other half */
    CHECK(becomes("\xf4\x90\x80\x80", 4, "\"" BAD BAD BAD BAD "\"")); /* past the last one */
    CHECK(becomes("\xe2\x80", 2, "\"" BAD BAD "\""));                 /* cut */
    CHECK(becomes("\xf0\x9f\x98\"", 4, "\"" BAD BAD BAD "\\\"\""));   /* cut by a quote */
}

TEST(every_letter_comes_back)
{
    struct json_error e;
    struct json *value;
    struct arena a;
    struct buf b;
    char *huge = malloc(3 << 20);
    size_t n = 0;
    if (!CHECK(huge != NULL))
        return;
    for (uint32_t c = 0; c <= 0x10ffff; c += c < 0x3000 ? 1 : 97) {
        if (c >= 0xd800 && c < 0xe000)
            continue;
        n += text_utf8_put(huge + n, c);
    }
    for (; n < 3 << 20; n++)
        huge[n] = (char)('a' + n % 26);
    buf_init(&b, SIZE_MAX / 2);
    arena_init(&a, 0);
    CHECK_INT(json_add_text(&b, huge, n), 0);
    if (CHECK_INT(json_read(&a, b.data, b.size, &value, &e), 0))
        CHECK(value->type == JSON_STRING && value->size == n && !memcmp(value->text, huge, n));
    arena_done(&a);
    buf_done(&b);
    buf_init(&b, 16); /* what does not fit is refused as a whole */
    CHECK_INT(json_add_text(&b, huge, n), -ENOBUFS);
    buf_done(&b);
    free(huge);
}

TEST(numbers_that_json_has_not_are_null)
{
    static const struct {
        double value;
        const char *json;
    } numbers[] = {{NAN, "null"},  {INFINITY, "null"}, {-INFINITY, "null"},
                   {-0.0, "-0.0"}, {1e300, "1e+300"},  {0.1, "0.1"},
                   {3, "3"}};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        struct buf b;
        buf_init(&b, 64);
        CHECK_INT(json_add_f64(&b, numbers[i].value), 0);
        CHECK_STR(buf_text(&b), numbers[i].json);
        buf_done(&b);
    }
}

int main(void)
{
    RUN(what_steers_or_ends_a_string_is_escaped);
    RUN(letters_stay);
    RUN(what_is_no_utf8_is_replaced);
    RUN(every_letter_comes_back);
    RUN(numbers_that_json_has_not_are_null);
    return test_end();
}
