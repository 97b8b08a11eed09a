/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/link/frame.c - see frame.h.
 *
 * One thread.
 */
#include "cli/link/frame.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define READ_BYTES (64u << 10)

/* The most that a frame of a kind may carry: only the names of hosts are long. */
static uint32_t most_of(enum frame_kind kind)
{
    switch (kind) {
    case FRAME_TREE:
        return FRAME_MAX;
    case FRAME_RUN:
    case FRAME_MERGE:
        return FRAME_QUESTION_MAX;
    case FRAME_DATA:
        return FRAME_DATA_MAX;
    case FRAME_HELLO:
    case FRAME_REACHED:
    case FRAME_LOST:
    case FRAME_OPEN:
    case FRAME_CLOSE:
        return 8192;
    case FRAME_CREDIT:
        return 4;
    case FRAME_PING:
        return 8;
    case FRAME_PONG:
        return 16;
    case FRAME_KINDS:
        break;
    }
    return 0;
}

static uint32_t least_of(enum frame_kind kind)
{
    switch (kind) {
    case FRAME_HELLO:
    case FRAME_REACHED:
    case FRAME_LOST:
    case FRAME_CREDIT:
        return 4;
    case FRAME_TREE:
    case FRAME_PING:
        return 8;
    case FRAME_PONG:
        return 16;
    case FRAME_DATA:
    case FRAME_OPEN:
    case FRAME_RUN:
    case FRAME_MERGE:
        return 1;
    case FRAME_CLOSE:
    case FRAME_KINDS:
        break;
    }
    return 0;
}

int64_t frame_read(const char *data, size_t size, struct frame *ret)
{
    if (size < FRAME_HEAD)
        return 0;
    uint32_t payload = load_le32(data), kind = (unsigned char)data[4];
    uint32_t channel = (unsigned char)data[5];
    if (kind == 0 || kind >= FRAME_KINDS || channel > 1 || data[6] != 0 || data[7] != 0 ||
        payload > most_of((enum frame_kind)kind) || payload < least_of((enum frame_kind)kind))
        return -EBADMSG;
    if (size - FRAME_HEAD < payload)
        return 0;
    *ret = (struct frame){.kind = (enum frame_kind)kind,
                          .channel = channel,
                          .host = load_le32(data + 8),
                          .stream = load_le32(data + 12),
                          .data = data + FRAME_HEAD,
                          .size = payload};
    return (int64_t)FRAME_HEAD + payload;
}

const char *frame_text(const struct frame *f, uint32_t *at)
{
    const char *text = f->data + *at;
    const char *end = *at < f->size ? memchr(text, '\0', f->size - *at) : NULL;

    if (end == NULL)
        return NULL;
    *at = (uint32_t)(end - f->data) + 1;
    return text;
}

void frame_hello_write(const char *build, const char *text, struct buf *ret)
{
    char version[4];

    store_le32(version, FRAME_VERSION);
    (void)buf_add(ret, version, sizeof(version));
    (void)buf_add(ret, build, strlen(build) + 1);
    (void)buf_add(ret, text, strlen(text) + 1);
}

int frame_hello_read(const struct frame *f, struct frame_hello *ret)
{
    uint32_t at = 4;

    if (f->size < 4)
        return -EBADMSG;
    ret->version = load_le32(f->data);
    ret->build = frame_text(f, &at);
    ret->text = ret->build != NULL ? frame_text(f, &at) : NULL;
    return ret->text != NULL ? 0 : -EBADMSG;
}

/* ---- a wire ---- */

void wire_begin(struct wire *w, int in, int out)
{
    *w = (struct wire){.in = in, .out = out};
    (void)fcntl(in, F_SETFL, fcntl(in, F_GETFL) | O_NONBLOCK);
    (void)fcntl(out, F_SETFL, fcntl(out, F_GETFL) | O_NONBLOCK);
    buf_init(&w->input, FRAME_HEAD + FRAME_MAX + 2 * READ_BYTES);
    buf_init(&w->output, WIRE_OUT_MAX + FRAME_HEAD + FRAME_MAX);
    (void)buf_add(&w->output, FRAME_MAGIC, FRAME_MAGIC_BYTES);
}

void wire_end(struct wire *w)
{
    if (w->in != -1)
        (void)close(w->in);
    if (w->out != -1 && w->out != w->in)
        (void)close(w->out);
    buf_done(&w->input);
    buf_done(&w->output);
    *w = (struct wire){.in = -1, .out = -1};
}

int wire_read(struct wire *w)
{
    if (w->used > 0) {
        memmove(w->input.data, w->input.data + w->used, w->input.size - w->used);
        w->input.size -= w->used;
        w->used = 0;
    }
    char *room = buf_room(&w->input, READ_BYTES);
    if (room == NULL)
        return w->input.failed;
    ssize_t n = read(w->in, room, READ_BYTES);
    if (n == -1)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    w->input.size += (size_t)n;
    return n == 0 ? -EPIPE : 0;
}

/* A login shell may greet: what comes before the magic is not ours. */
static int sync_wire(struct wire *w)
{
    const char *data = w->input.data + w->used;
    size_t size = w->input.size - w->used;
    const char *at = size > 0 ? memmem(data, size, FRAME_MAGIC, FRAME_MAGIC_BYTES) : NULL;

    if (at == NULL)
        return size > FRAME_NOISE ? -EBADMSG : 0;
    w->used += (size_t)(at - data) + FRAME_MAGIC_BYTES;
    w->synced = true;
    return 1;
}

int wire_next(struct wire *w, struct frame *ret)
{
    int rc = w->synced ? 1 : sync_wire(w);

    if (rc <= 0)
        return rc;
    if (w->input.size == w->used)
        return 0;
    int64_t n = frame_read(w->input.data + w->used, w->input.size - w->used, ret);
    if (n > 0)
        w->used += (size_t)n;
    return n > 0 ? 1 : (int)n;
}

int wire_put(struct wire *w, const struct frame *f)
{
    char head[FRAME_HEAD] = {0};

    if (w->output.size - w->sent > WIRE_OUT_MAX)
        return -ENOBUFS;
    if (w->sent > WIRE_ROOM) { /* what went is not kept */
        memmove(w->output.data, w->output.data + w->sent, w->output.size - w->sent);
        w->output.size -= w->sent;
        w->sent = 0;
    }
    store_le32(head, f->size);
    head[4] = (char)f->kind;
    head[5] = (char)f->channel;
    store_le32(head + 8, f->host);
    store_le32(head + 12, f->stream);
    (void)buf_add(&w->output, head, sizeof(head));
    return buf_add(&w->output, f->data, f->size);
}

int wire_flush(struct wire *w)
{
    while (w->output.size > w->sent) {
        ssize_t n = write(w->out, w->output.data + w->sent, w->output.size - w->sent);
        if (n == -1)
            return errno == EAGAIN || errno == EINTR ? 0 : -errno;
        w->sent += (size_t)n;
    }
    buf_reset(&w->output);
    w->sent = 0;
    return 0;
}

bool wire_has_room(const struct wire *w)
{
    return w->output.size - w->sent < WIRE_ROOM;
}
