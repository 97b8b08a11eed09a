/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/link/stream.h - one stream's end: bytes between descriptors here and frames, with credit in
 * both directions.  Both sides of a wire have the same: who asks, and the relay.
 *
 * One thread.
 */
#ifndef CLI_LINK_STREAM_H
#define CLI_LINK_STREAM_H

#include <poll.h>

#include "cli/link/frame.h"

struct stream {
    uint32_t host, id;
    int from[2];       /* descriptors that are read, by channel; -1: none, or ended */
    int to[2];         /* and written; from[0] may be the same one */
    struct buf out[2]; /* came, and is not written yet */
    size_t sent[2];
    uint32_t credit;  /* bytes that may be sent as frames */
    uint32_t granted; /* that the other side may still send */
    bool dead;        /* nobody takes what is written here */
    bool ready;       /* poll() has said that something can be read */
    bool awaits;      /* its descriptor is still to come: what comes until then is kept */
};

/* Descriptors become not blocking and are the stream's. */
void stream_begin(struct stream *s, uint32_t host, uint32_t id);
void stream_take(struct stream *s, int channel, int from, int to);
void stream_end(struct stream *s);

/* Fill two polls; gives how many of them are used.  room: frames may be put. */
int stream_polls(const struct stream *s, bool room, struct pollfd *ret);
/* Take what poll() found at those n polls. */
void stream_polled(struct stream *s, const struct pollfd *polls, int n);
/* Read what may be read into frames.  0, or what `wire` gave.  *ret_ended: all of it has ended. */
int stream_send(struct stream *s, struct wire *wire, bool *ret_ended);
/* A frame of DATA or CREDIT has come.  -EBADMSG: it sends more than it may. */
int stream_receive(struct stream *s, const struct frame *f);
/* Write what has come, and give credit for it. */
int stream_write(struct stream *s, struct wire *wire);
bool stream_is_written(const struct stream *s);

#endif
