/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/protobuf.h - protocol buffers, written field by field into a buffer.
 *
 * Source: protobuf.dev/programming-guides/encoding.  Owner's thread only; what does not fit is told
 * by the buffer's `failed`.  A message inside of another is written apart, into a buffer that may
 * be used again, and added when it is whole.
 */
#ifndef SDK_LIB_PROTOBUF_H
#define SDK_LIB_PROTOBUF_H

#include <stddef.h>
#include <stdint.h>

#include "sdk/lib/buf.h"

/* Fields of type int32, int64, uint32, uint64, bool and enum; negative ones by their 64 bits. */
void protobuf_number(struct buf *b, uint32_t field, uint64_t value);
void protobuf_fixed64(struct buf *b, uint32_t field, uint64_t value); /* fixed64, sfixed64 */
void protobuf_double(struct buf *b, uint32_t field, double value);
void protobuf_bytes(struct buf *b, uint32_t field, const void *data, size_t size);
void protobuf_text(struct buf *b, uint32_t field, const char *text);
/* Takes what `message` holds and empties it; its failure becomes b's. */
void protobuf_message(struct buf *b, uint32_t field, struct buf *message);

#endif
