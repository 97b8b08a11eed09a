/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/snappy.h - bytes made shorter, as snappy has them: pages of Parquet, and remote write.
 *
 * Any thread; no state.  Source: github.com/google/snappy, format_description.txt.
 *
 *     how many bytes there were (varint), then elements, each with its kind in the low two bits:
 *     0  literal: length - 1 in the upper six (60, 61: in one or two bytes behind), then the bytes
 *     1  copy of 4 to 11 bytes from up to 2,047 bytes before: 3 bits of length - 4, 11 of offset
 *     2  copy of 1 to 64 bytes from up to 65,535 before: 6 bits of length - 1, then the offset, u16
 */
#ifndef SDK_LIB_SNAPPY_H
#define SDK_LIB_SNAPPY_H

#include "sdk/lib/buf.h"

/* Add them to `out`; at worst it is a sixth and 32 bytes longer.  0, or out->failed. */
int snappy_add(struct buf *out, const void *data, size_t size);

#endif
