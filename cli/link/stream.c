/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/link/stream.c - see stream.h.
 *
 * One thread.
 */
#include "cli/link/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define GRANT_AT (STREAM_WINDOW / 2) /* credit is given in pieces that are worth a frame */

void stream_begin(struct stream *s, uint32_t host, uint32_t id)
{
    *s = (struct stream){.host = host,
                         .id = id,
                         .from = {-1, -1},
                         .to = {-1, -1},
                         .credit = STREAM_WINDOW,
                         .granted = STREAM_WINDOW};
    for (int i = 0; i < 2; i++)
        buf_init(&s->out[i], STREAM_WINDOW);
}

void stream_take(struct stream *s, int channel, int from, int to)
{
    s->awaits = false;
    s->from[channel] = from;
    s->to[channel] = to;
    if (from != -1)
        (void)fcntl(from, F_SETFL, fcntl(from, F_GETFL) | O_NONBLOCK);
    if (to != -1)
        (void)fcntl(to, F_SETFL, fcntl(to, F_GETFL) | O_NONBLOCK);
}

static void close_reading(struct stream *s, int i)
{
    if (s->from[i] != -1 && s->from[i] != s->to[i])
        (void)close(s->from[i]);
    s->from[i] = -1;
}

void stream_end(struct stream *s)
{
    for (int i = 0; i < 2; i++) {
        close_reading(s, i);
        if (s->to[i] != -1)
            (void)close(s->to[i]);
        s->to[i] = -1;
        buf_done(&s->out[i]);
    }
}

int stream_polls(const struct stream *s, bool room, struct pollfd *ret)
{
    int n = 0;

    for (int i = 0; i < 2; i++) {
        short events = 0;
        int fd = s->from[i] != -1 ? s->from[i] : s->to[i];
        if (s->from[i] != -1 && room && s->credit > 0)
            events |= POLLIN;
        if (s->to[i] != -1 && !s->dead && s->out[i].size > s->sent[i])
            events |= POLLOUT;
        if (fd != -1 && events != 0)
            ret[n++] = (struct pollfd){.fd = fd, .events = events};
    }
    return n;
}

static int send_piece(struct stream *s, int i, struct wire *wire, bool *ret_more)
{
    char piece[FRAME_DATA_MAX];
    size_t most = s->credit < sizeof(piece) ? s->credit : sizeof(piece);
    ssize_t n = read(s->from[i], piece, most);

    *ret_more = n > 0;
    if (n == -1 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0) {
        close_reading(s, i);
        return 0;
    }
    s->credit -= (uint32_t)n;
    return wire_put(wire, &(struct frame){.kind = FRAME_DATA,
                                          .channel = (uint32_t)i,
                                          .host = s->host,
                                          .stream = s->id,
                                          .data = piece,
                                          .size = (uint32_t)n});
}

void stream_polled(struct stream *s, const struct pollfd *polls, int n)
{
    for (int i = 0; i < n; i++)
        s->ready = s->ready || polls[i].revents != 0;
}

int stream_send(struct stream *s, struct wire *wire, bool *ret_ended)
{
    int rc = 0;

    for (int i = 0; i < 2 && s->ready; i++)
        for (bool more = true;
             rc == 0 && more && s->from[i] != -1 && s->credit > 0 && wire_has_room(wire);)
            rc = send_piece(s, i, wire, &more);
    s->ready = false;
    *ret_ended = s->from[0] == -1 && s->from[1] == -1;
    return rc;
}

int stream_receive(struct stream *s, const struct frame *f)
{
    if (f->kind == FRAME_CREDIT) {
        uint32_t more = load_le32(f->data);
        if (more > STREAM_WINDOW || s->credit > STREAM_WINDOW - more)
            return -EBADMSG;
        s->credit += more;
        return 0;
    }
    if (f->size > s->granted)
        return -EBADMSG;
    s->granted -= f->size;
    if (s->dead || (s->to[f->channel] == -1 && !s->awaits))
        return 0; /* nobody takes it, and no credit comes back */
    return buf_add(&s->out[f->channel], f->data, f->size);
}

static bool write_piece(struct stream *s, int i)
{
    ssize_t n = write(s->to[i], s->out[i].data + s->sent[i], s->out[i].size - s->sent[i]);

    if (n == -1 && errno != EAGAIN && errno != EINTR)
        s->dead = true;
    if (n <= 0)
        return false;
    s->sent[i] += (size_t)n;
    if (s->sent[i] == s->out[i].size) {
        s->sent[i] = 0;
        buf_reset(&s->out[i]);
    }
    return true;
}

int stream_write(struct stream *s, struct wire *wire)
{
    size_t kept = 0;

    for (int i = 0; i < 2; i++) {
        while (!s->dead && s->to[i] != -1 && s->out[i].size > s->sent[i] && write_piece(s, i))
            ;
        kept += s->out[i].size; /* with what went of it: its room is not free yet */
    }
    size_t owed = STREAM_WINDOW - s->granted - (kept < STREAM_WINDOW ? kept : STREAM_WINDOW);
    if (s->dead || owed < GRANT_AT || STREAM_WINDOW - s->granted < kept)
        return 0;
    char more[4];
    store_le32(more, (uint32_t)owed);
    s->granted += (uint32_t)owed;
    return wire_put(wire, &(struct frame){.kind = FRAME_CREDIT,
                                          .host = s->host,
                                          .stream = s->id,
                                          .data = more,
                                          .size = sizeof(more)});
}

bool stream_is_written(const struct stream *s)
{
    return s->dead || (s->out[0].size == s->sent[0] && s->out[1].size == s->sent[1]);
}
