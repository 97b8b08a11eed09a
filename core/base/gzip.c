/* SPDX-License-Identifier: Apache-2.0
 *
 * core/base/gzip.c - gzip over zlib, for HTTP answers and files.
 *
 * Owner's thread only.
 */
#include "core/base/gzip.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <zlib.h>

#define WINDOW_BITS 12 /* 4 KiB looked back: JSON rows repeat within that */
#define MEMORY_LEVEL 5
#define GZIP 16 /* added to the window's bits: zlib.h */
#define ROOM_BYTES (16u << 10)

struct squeeze {
    z_stream z;
};

struct squeeze *squeeze_new(void)
{
    struct squeeze *q = calloc(1, sizeof(*q));
    if (q && deflateInit2(&q->z, Z_BEST_SPEED, Z_DEFLATED, WINDOW_BITS + GZIP, MEMORY_LEVEL,
                          Z_DEFAULT_STRATEGY) != Z_OK) {
        free(q);
        q = NULL;
    }
    return q;
}

void squeeze_free(struct squeeze *q)
{
    if (!q)
        return;
    (void)deflateEnd(&q->z);
    free(q);
}

int squeeze_add(struct squeeze *q, const char *data, size_t size, bool last, struct buf *out)
{
    q->z.next_in = (z_const Bytef *)(uintptr_t)data;
    q->z.avail_in = (uInt)size;
    do {
        char *room = buf_room(out, ROOM_BYTES);
        if (!room)
            return out->failed;
        q->z.next_out = (Bytef *)room;
        q->z.avail_out = ROOM_BYTES;
        if (deflate(&q->z, last ? Z_FINISH : Z_SYNC_FLUSH) == Z_STREAM_ERROR)
            return -EINVAL;
        out->size += ROOM_BYTES - q->z.avail_out;
    } while (q->z.avail_out == 0);
    return 0;
}
