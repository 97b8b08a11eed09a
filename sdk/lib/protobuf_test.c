/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/protobuf_test.c - the bytes that the encoding's own page shows, and its limits.
 */
#include "sdk/lib/protobuf.h"

#include <errno.h>

#include "tests/test.h"

static bool holds(const struct buf *b, const char *bytes, size_t n)
{
    return CHECK_INT(b->size, n) && CHECK(n == 0 || memcmp(b->data, bytes, n) == 0);
}

TEST(messages_of_the_page)
{
    struct buf b, part;
    buf_init(&b, 1024);
    buf_init(&part, 1024);
    protobuf_number(&b, 1, 150); /* Test1 */
    holds(&b, "\x08\x96\x01", 3);
    buf_reset(&b);
    protobuf_text(&b, 2, "testing"); /* Test2 */
    holds(&b, "\x12\x07testing", 9);
    buf_reset(&b);
    protobuf_number(&part, 1, 150); /* Test3 */
    protobuf_message(&b, 3, &part);
    holds(&b, "\x1a\x03\x08\x96\x01", 5);
    holds(&part, "", 0);
    buf_reset(&b);
    protobuf_number(&b, 1, (uint64_t)(int64_t)-2); /* a negative one has ten bytes */
    holds(&b, "\x08\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11);
    buf_reset(&b);
    protobuf_double(&b, 5, 1.5);
    holds(&b, "\x29\0\0\0\0\0\0\xf8\x3f", 9);
    buf_reset(&b);
    protobuf_number(&b, 536870911, 0); /* the largest number of a field */
    holds(&b, "\xf8\xff\xff\xff\x0f\0", 6);
    buf_done(&b);
    buf_done(&part);
}

TEST(what_does_not_fit_is_told)
{
    struct buf b, part;
    buf_init(&b, 1024);
    buf_init(&part, 4);
    protobuf_text(&part, 1, "too long");
    CHECK_INT(part.failed, -ENOBUFS);
    protobuf_message(&b, 1, &part);
    CHECK_INT(b.failed, -ENOBUFS);
    CHECK_INT(part.failed, 0); /* it may be used again */
    buf_done(&b);
    buf_done(&part);
}

int main(void)
{
    RUN(messages_of_the_page);
    RUN(what_does_not_fit_is_told);
    return test_end();
}
