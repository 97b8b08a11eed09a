/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/link/frame.h - the frames that relays and whoever asks them say to each other, and a pair of
 * descriptors that carries them.
 *
 * After FRAME_MAGIC, which each side says once and before which a login shell may print what it
 * likes, there are frames, numbers least byte first:
 *
 *       0        4      5         6    8        12       16
 *      +--------+------+---------+----+--------+--------+---------
 *      | size   | kind | channel | 0  | host   | stream | payload
 *      +--------+------+---------+----+--------+--------+---------
 *
 * size: of the payload.  host: whom it is for on its way down, whose it is on its way up; who asks
 * has numbered them, and each relay has those of a range below it.  stream: chosen by who asks.
 *
 *     kind     way    payload
 *     HELLO    both   u32 version, build, host's name (down: the token); each ends with NUL
 *     TREE     down   u32 first, u32 degree, rsh, program, names of hosts: start relays there
 *     REACHED  up     the HELLO of that host
 *     LOST     up     u32 0, why it is not reached, or not any more
 *     OPEN     down   a member's place, as link_member_place() writes it: to its socket
 *     RUN      down   words of `probing ...`, each ends with NUL
 *     MERGE    down   a question about members (merge_protocol.h): one answer of all of theirs
 *     DATA     both   bytes; channel 1: what a RUN says on its standard error
 *     CREDIT   both   u32: so many bytes more may be sent
 *     CLOSE    both   up: i32 status or -errno, u32 enum probing_client_end, why; down: -
 *     PING     down   u64 anything            PONG   up     the same, u64 CLOCK_REALTIME in ns
 *
 * Flow: each stream may have STREAM_WINDOW bytes under way in each direction, and CREDIT gives more
 * as they are taken.  So who does not read costs nobody else a thing, and no buffer grows.
 *
 * One thread.  What comes is checked: a frame that cannot be is -EBADMSG, and ends the wire.
 */
#ifndef CLI_LINK_FRAME_H
#define CLI_LINK_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sdk/lib/buf.h"

#define FRAME_VERSION 2
#define FRAME_MAGIC "\n\001probing-relay\001\n"
#define FRAME_MAGIC_BYTES (sizeof(FRAME_MAGIC) - 1)
#define FRAME_NOISE (256u << 10) /* bytes before it: a long greeting */
#define FRAME_HEAD 16
#define FRAME_MAX (2u << 20) /* of a payload: the names of 10,000 hosts */
#define FRAME_QUESTION_MAX (256u << 10)
#define FRAME_DATA_MAX (32u << 10) /* of DATA: others' frames come between */
#define STREAM_WINDOW (256u << 10) /* bytes under way in one direction of a stream */
#define WIRE_ROOM (512u << 10)     /* not sent yet: from here on nothing is put that can wait */
#define WIRE_OUT_MAX (24u << 20)   /* and from here on the other side takes nothing: it is lost */

enum frame_kind {
    FRAME_HELLO = 1,
    FRAME_TREE,
    FRAME_REACHED,
    FRAME_LOST,
    FRAME_OPEN,
    FRAME_RUN,
    FRAME_DATA,
    FRAME_CREDIT,
    FRAME_CLOSE,
    FRAME_PING,
    FRAME_PONG,
    FRAME_MERGE,
    FRAME_KINDS
};

struct frame {
    enum frame_kind kind;
    uint32_t channel, host, stream;
    const char *data; /* borrowed until the next read */
    uint32_t size;
};

/* One frame at data[0..size).  Gives its bytes, 0: it is not whole yet, -EBADMSG: it is none. */
int64_t frame_read(const char *data, size_t size, struct frame *ret);

static inline uint32_t load_le32(const char *p)
{
    const unsigned char *u = (const unsigned char *)p;
    return u[0] | (uint32_t)u[1] << 8 | (uint32_t)u[2] << 16 | (uint32_t)u[3] << 24;
}
static inline void store_le32(char *p, uint32_t n)
{
    for (int i = 0; i < 4; i++)
        p[i] = (char)(unsigned char)(n >> (8 * i));
}
static inline uint64_t load_le64(const char *p)
{
    return load_le32(p) | (uint64_t)load_le32(p + 4) << 32;
}
static inline void store_le64(char *p, uint64_t n)
{
    store_le32(p, (uint32_t)n);
    store_le32(p + 4, (uint32_t)(n >> 32));
}

/* Texts in a payload, each with its NUL: the next one, NULL: there is none, or it has no end. */
const char *frame_text(const struct frame *f, uint32_t *at);

struct frame_hello {
    uint32_t version;
    const char *build, *text; /* text: the host's name, or a token */
};
void frame_hello_write(const char *build, const char *text, struct buf *ret);
int frame_hello_read(const struct frame *f, struct frame_hello *ret); /* -EBADMSG */

/* ---- a wire ---- */

struct wire {
    int in, out; /* not blocking; may be one; -1: none */
    struct buf input, output;
    size_t used, sent;
    bool synced; /* the magic has come */
};

void wire_begin(struct wire *w, int in, int out);
void wire_end(struct wire *w); /* closes both; of zeros with in and out -1, too */
/* Take what is there, a bounded piece.  0, -EPIPE: the other side has ended it, or -errno. */
int wire_read(struct wire *w);
/* The next whole frame.  1, 0: none yet, -EBADMSG. */
int wire_next(struct wire *w, struct frame *ret);
/* Put a frame behind the others; -ENOBUFS: the other side takes nothing. */
int wire_put(struct wire *w, const struct frame *f);
int wire_flush(struct wire *w); /* what goes now; 0 or -errno */
bool wire_has_room(const struct wire *w);
static inline bool wire_wants_out(const struct wire *w)
{
    return w->output.size > w->sent;
}

#endif
