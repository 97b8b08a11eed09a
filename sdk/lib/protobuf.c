/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/protobuf.c - varints, tags, and what they stand before.
 *
 * Owner's thread only.
 */
#include "sdk/lib/protobuf.h"

#include <string.h>

enum { WIRE_NUMBER = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2 };

static void add_varint(struct buf *b, uint64_t value)
{
    char bytes[10];
    size_t n = 0;
    for (; value >= 0x80; value >>= 7)
        bytes[n++] = (char)(0x80 | (value & 0x7f));
    bytes[n++] = (char)value;
    (void)buf_add(b, bytes, n);
}

void protobuf_number(struct buf *b, uint32_t field, uint64_t value)
{
    add_varint(b, (uint64_t)field << 3 | WIRE_NUMBER);
    add_varint(b, value);
}

void protobuf_fixed64(struct buf *b, uint32_t field, uint64_t value)
{
    char bytes[8]; /* little-endian, whatever we run on */
    for (int i = 0; i < 8; i++)
        bytes[i] = (char)(value >> 8 * i);
    add_varint(b, (uint64_t)field << 3 | WIRE_FIXED64);
    (void)buf_add(b, bytes, sizeof(bytes));
}

void protobuf_double(struct buf *b, uint32_t field, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    protobuf_fixed64(b, field, bits);
}

void protobuf_bytes(struct buf *b, uint32_t field, const void *data, size_t size)
{
    add_varint(b, (uint64_t)field << 3 | WIRE_BYTES);
    add_varint(b, size);
    (void)buf_add(b, data, size);
}

void protobuf_text(struct buf *b, uint32_t field, const char *text)
{
    protobuf_bytes(b, field, text, strlen(text));
}

void protobuf_message(struct buf *b, uint32_t field, struct buf *message)
{
    protobuf_bytes(b, field, message->data, message->size);
    if (message->failed && !b->failed)
        b->failed = message->failed;
    buf_reset(message);
}
