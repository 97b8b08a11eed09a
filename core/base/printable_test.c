/* SPDX-License-Identifier: Apache-2.0
 *
 * core/base/printable_test.c - nothing that steers a terminal comes through, all that is read does.
 */
#include <stdint.h>
#include <stdlib.h>

#include "core/base/printable.h"
#include "tests/test.h"

static void shows(const char *text, size_t n, const char *keep, const char *wanted)
{
    struct buf b;
    buf_init(&b, 1 << 20);
    CHECK_INT(printable_add(&b, text, n, keep), 0);
    CHECK_STR(buf_text(&b), wanted);
    buf_done(&b);
}

#define LINE(text, wanted) shows(text, sizeof(text) - 1, PRINTABLE_LINE, wanted)
#define TEXT(text, wanted) shows(text, sizeof(text) - 1, PRINTABLE_TEXT, wanted)

TEST(what_is_read_stays)
{
    LINE("", "");
    LINE("a\\n plain ~ text", "a\\n plain ~ text");
    LINE("gr\xc3\xb6n \xe6\xb8\xac \xf0\x9f\x98\x80", "gr\xc3\xb6n \xe6\xb8\xac \xf0\x9f\x98\x80");
    TEXT("one\n\ttwo\n", "one\n\ttwo\n");
}

TEST(controls)
{
    TEXT("\033]0;x\a\033[2J", "\\x1b]0;x\\x07\\x1b[2J");
    TEXT("a\rb\b\x7f\0-", "a\\rb\\x08\\x7f\\x00-");
    LINE("a\nb\tc", "a\\nb\\tc");
    TEXT("\x9b[J", "\\x9b[J");                                 /* C1 as a byte */
    TEXT("\xc2\x9b[J", "\\u009b[J");                           /* and as a letter */
    TEXT("\xc0\x9b\xe0\x80\x9b", "\\xc0\\x9b\\xe0\\x80\\x9b"); /* in more bytes than needed */
}

TEST(letters_without_a_picture)
{
    TEXT("a\xe2\x80\xae-", "a\\u202e-");
    TEXT("\xe2\x81\xa6\xd8\x9c\xe2\x80\x8f", "\\u2066\\u061c\\u200f");
    TEXT("\xef\xbb\xbf\xe2\x80\x8b", "\\ufeff\\u200b");
    TEXT("\xf3\xa0\x81\x81", "\\U000e0041");
    TEXT("\xed\xa0\x80", "\\xed\\xa0\\x80"); /* a surrogate */
}

TEST(bytes_that_are_no_letters)
{
    TEXT("\xff\xfe", "\\xff\\xfe");
    TEXT("\xe2\x80", "\\xe2\\x80"); /* cut */
    TEXT("\xf0\x9f\x98", "\\xf0\\x9f\\x98");
    TEXT("\xe2\x80-", "\\xe2\\x80-");
    TEXT("\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"); /* above U+10FFFF */
    bool plain = true;
    CHECK_INT(printable_letter("\xe2\x80", 2, &plain), 0);
    CHECK(!plain);
}

/* Whatever bytes come, what is shown is UTF-8 without a control, and shown again it is the same. */
TEST(any_bytes)
{
    uint32_t state = 7;
    for (int round = 0; round < 20000; round++) {
        char text[12];
        struct buf b, twice;
        for (size_t i = 0; i < sizeof(text); i++) {
            state = state * 1664525u + 1013904223u;
            text[i] = (char)(state >> 24);
        }
        buf_init(&b, 1 << 10);
        buf_init(&twice, 1 << 10);
        CHECK_INT(printable_add(&b, text, sizeof(text), PRINTABLE_LINE), 0);
        for (size_t i = 0; i < b.size; i++)
            CHECK((unsigned char)b.data[i] >= 0x20 && b.data[i] != 0x7f);
        CHECK_INT(printable_add(&twice, b.data, b.size, PRINTABLE_LINE), 0);
        CHECK_STR(buf_text(&twice), buf_text(&b));
        buf_done(&b);
        buf_done(&twice);
    }
}

int main(void)
{
    RUN(what_is_read_stays);
    RUN(controls);
    RUN(letters_without_a_picture);
    RUN(bytes_that_are_no_letters);
    RUN(any_bytes);
    return test_end();
}
