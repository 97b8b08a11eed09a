/* SPDX-License-Identifier: Apache-2.0
 *
 * core/server/websocket_frames.c - what a websocket client may send, judged by the heads of its
 * frames.
 *
 * Pure functions over bytes, in pieces of any size.  It keeps no payload and makes no messages:
 * libwebsockets does that with what has passed here.
 *
 *      0          1            2 ...              then 4 bytes of mask, then the payload
 *     +-+---+----+-+----------+------------------+
 *     |F|RSV| op |M| size < 126, or 126: 2 bytes of size, 127: 8      (RFC 6455, 5.2)
 *     +-+---+----+-+----------+------------------+
 */
#include <string.h>

#include "core/server/internal.h"

#define CODE_PROTOCOL 1002
#define CODE_POLICY 1008
#define CODE_TOO_BIG 1009
#define SMALL_BYTES 16 /* a part of a message that is shorter is no part that anybody needs */

static size_t head_size(const struct frames *f)
{
    uint32_t length = f->have > 1 ? f->head[1] & 0x7f : 0;
    return (length == 127 ? 10 : length == 126 ? 4 : 2) + 4;
}

/* As early as it can be said. */
static int judge_begin(const struct frames *f)
{
    bool control = (f->head[0] & 8) != 0;
    if (f->have < 2)
        return 0;
    if (!(f->head[1] & 0x80) || (f->head[0] & 0x70))
        return CODE_PROTOCOL;
    return control && (!(f->head[0] & 0x80) || (f->head[1] & 0x7f) > 125) ? CODE_PROTOCOL : 0;
}

static int judge_head(struct frames *f, uint64_t now_ns)
{
    bool control = (f->head[0] & 8) != 0, last = (f->head[0] & 0x80) != 0;
    uint64_t size = f->head[1] & 0x7f;
    size_t bytes = size == 127 ? 8 : size == 126 ? 2 : 0;
    for (size_t i = 0; i < bytes; i++)
        size = (i ? size << 8 : 0) | f->head[2 + i];
    if (size > SERVER_MESSAGE_BYTES)
        return CODE_TOO_BIG;
    bool small = control || size == 0 || (!last && size < SMALL_BYTES);
    if (small && !server_rate_take(&f->small, now_ns, SERVER_SMALL_RATE))
        return CODE_POLICY;
    f->left = size;
    f->have = 0;
    return 0;
}

int server_frames_arrived(struct frames *f, const void *data, size_t size, uint64_t now_ns)
{
    const unsigned char *at = data, *end = at + size;
    int code = 0;
    while (at < end && code == 0) {
        size_t payload = f->left < (uint64_t)(end - at) ? (size_t)f->left : (size_t)(end - at);
        at += payload;
        f->left -= payload;
        if (at == end || f->left > 0)
            continue;
        f->head[f->have++] = *at++;
        code = judge_begin(f);
        if (code == 0 && f->have == head_size(f))
            code = judge_head(f, now_ns);
    }
    return code;
}
