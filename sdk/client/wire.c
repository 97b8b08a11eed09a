/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/client/wire.c - bytes and websocket messages (RFC 6455): text, binary, ping and close; no
 * extensions.
 *
 * One thread a client.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "sdk/client/internal.h"

#define SEND_NS (30 * NS_PER_S) /* a process that takes nothing for so long is stuck */
#define TEND_READS 8            /* of CLIENT_READ_BYTES */

int client_wait(struct probing_client *c, int events, uint64_t deadline_ns)
{
    struct pollfd p = {.fd = c->fd, .events = (short)events};
    int wait_ms = -1;
    if (deadline_ns) {
        uint64_t now = client_now_ns();
        uint64_t left = deadline_ns > now ? (deadline_ns - now + NS_PER_MS - 1) / NS_PER_MS : 0;
        wait_ms = left > 3600000 ? 3600000 : (int)left;
    }
    int rc = poll(&p, 1, wait_ms);
    if (rc == -1)
        return errno == EINTR ? -EINTR : client_fail(c, -errno, "poll: %s", strerror(errno));
    return rc;
}

int client_send(struct probing_client *c, const char *data, size_t size)
{
    uint64_t deadline_ns = client_now_ns() + SEND_NS;
    if (c->turn != TURN_NONE) {
        if (buf_add(&c->out, data, size) == 0)
            return 0;
        return client_fail(c, c->out.failed, "%s takes nothing; the process may be stopped",
                           c->where);
    }
    while (size > 0) {
        ssize_t n = send(c->fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0) {
            data += n;
            size -= (size_t)n;
        } else if (errno == EAGAIN || errno == EINTR) {
            int rc = client_wait(c, POLLOUT, deadline_ns);
            if (rc == 0)
                return client_fail(c, -ETIMEDOUT, "%s takes nothing; the process may be stopped",
                                   c->where);
            if (rc == -EINTR && client_stopped(c)) {
                c->over = true; /* half a message went out: another cannot follow it */
                return client_fail(c, -ECANCELED, "stopped");
            }
            if (rc < 0 && rc != -EINTR)
                return rc;
        } else {
            return client_gone(c);
        }
    }
    return 0;
}

int client_receive(struct probing_client *c, uint64_t deadline_ns)
{
    int rc = client_wait(c, POLLIN, deadline_ns);
    if (rc <= 0)
        return rc;
    if (c->in_used > 0) {
        memmove(c->in.data, c->in.data + c->in_used, c->in.size - c->in_used);
        c->in.size -= c->in_used;
        c->in_used = 0;
    }
    char *room = buf_room(&c->in, CLIENT_READ_BYTES);
    if (!room)
        return client_fail(c, c->in.failed, "no memory for an answer");
    ssize_t n = recv(c->fd, room, CLIENT_READ_BYTES, MSG_DONTWAIT);
    if (n == -1 && (errno == EAGAIN || errno == EINTR))
        return -EINTR;
    if (n <= 0)
        return client_gone(c);
    c->in.size += (size_t)n;
    return 1;
}

/* ---- websocket ---- */

int client_send_frame(struct probing_client *c, int op, const char *data, size_t size)
{
    struct buf b;
    unsigned char mask[4];
    buf_init(&b, size + 16);
    c->mask = c->mask * 1664525 + 1013904223; /* against old proxies, not against listeners */
    memcpy(mask, &c->mask, 4);
    (void)buf_addc(&b, (char)(0x80 | op));
    if (size < 126) {
        (void)buf_addc(&b, (char)(0x80 | size));
    } else {
        int bytes = size < 65536 ? 2 : 8;
        (void)buf_addc(&b, (char)(bytes == 2 ? 0x80 | 126 : 0x80 | 127));
        for (int i = bytes - 1; i >= 0; i--)
            (void)buf_addc(&b, (char)((uint64_t)size >> (8 * i)));
    }
    (void)buf_add(&b, mask, 4);
    char *at = size ? buf_room(&b, size) : NULL;
    for (size_t i = 0; at && i < size; i++)
        at[i] = (char)(data[i] ^ mask[i % 4]);
    b.size += at ? size : 0;
    int rc = b.failed ? client_fail(c, b.failed, "no memory for a message of %zu bytes", size)
                      : client_send(c, b.data, b.size);
    buf_done(&b);
    return rc;
}

struct frame {
    int op;
    bool last;
    const char *data;
    size_t size;
};

/* Take a frame out of what was received.  1: there, 0: not whole yet, -errno. */
static int take_frame(struct probing_client *c, struct frame *ret)
{
    size_t have = c->in.size - c->in_used, head = 2;
    if (have < 2)
        return 0;
    const unsigned char *p = (const unsigned char *)c->in.data + c->in_used;
    uint64_t size = p[1] & 0x7f;
    int bytes = size == 126 ? 2 : size == 127 ? 8 : 0;
    head += (size_t)bytes;
    if (have < head)
        return 0;
    if (bytes) {
        size = 0;
        for (int i = 0; i < bytes; i++)
            size = size << 8 | p[2 + i];
    }
    uint64_t most = c->turn != TURN_NONE ? CLIENT_TURN_BYTES : CLIENT_MESSAGE_BYTES;
    if (size > most || p[1] & 0x80 || p[0] & 0x70) {
        c->over = true;
        return client_fail(c, -EPROTO, "%s does not speak our protocol (a frame of %llu bytes)",
                           c->where, (unsigned long long)size);
    }
    if (have < head + size)
        return 0;
    *ret = (struct frame){p[0] & 15, (p[0] & 0x80) != 0, (const char *)p + head, (size_t)size};
    c->in_used += head + (size_t)size;
    return 1;
}

/* A frame that brings nothing of a message.  As fast as they come they would keep us busy for ever,
 * with nothing to give to the caller: no process of ours sends them so. */
static int count_small(struct probing_client *c)
{
    uint64_t now = client_now_ns();
    if (now - c->small_since_ns > NS_PER_S) {
        c->small_since_ns = now;
        c->n_small = 0;
    }
    if (++c->n_small <= CLIENT_SMALL_MAX)
        return 0;
    c->over = true;
    return client_fail(
        c, -EPROTO, "%s does not speak our protocol (a flood of pings or empty frames)", c->where);
}

/* 1: the message is whole, 0: there is more to come, -errno */
static int use_frame(struct probing_client *c, const struct frame *f)
{
    bool first = f->op == OP_TEXT || f->op == OP_BINARY, part = first || f->op == OP_MORE;
    int rc = part && (f->size > 0 || f->last) ? 0 : count_small(c);
    if (rc < 0)
        return rc;
    if (f->op == OP_PING) /* one who does not read its pongs is not waited for */
        return client_wait(c, POLLOUT, /* deadline_ns= */ 1) > 0
                   ? client_send_frame(c, OP_PONG, f->data, f->size)
                   : 0;
    if (f->op == OP_CLOSE)
        return client_gone(c);
    if (first)
        c->binary = f->op == OP_BINARY;
    if (part && buf_add(&c->message, f->data, f->size) != 0)
        return client_fail(c, c->message.failed, "an answer is longer than %zu bytes",
                           c->message.max);
    return part && f->last ? 1 : 0;
}

int client_take_message(struct probing_client *c)
{
    struct frame f;
    int rc;
    if (c->whole)
        buf_reset(&c->message);
    c->whole = false;
    do
        rc = take_frame(c, &f);
    while (rc > 0 && (rc = use_frame(c, &f)) == 0);
    c->whole = rc > 0;
    return rc;
}

void client_tend(struct probing_client *c)
{
    struct frame f;

    for (int i = 0; i < TEND_READS && !c->over && client_receive(c, /* deadline_ns= */ 1) > 0; i++)
        continue;
    size_t first = c->in_used;
    for (size_t at = first; !c->over && take_frame(c, &f) > 0; at = c->in_used) {
        if (f.op != OP_PING)
            continue;
        (void)use_frame(c, &f);
        memmove(c->in.data + at, c->in.data + c->in_used, c->in.size - c->in_used);
        c->in.size -= c->in_used - at;
        c->in_used = at;
    }
    c->in_used = first;
}

/* Wait for more bytes.  1: go on; else what client_next_message() gives. */
static int wait_for_more(struct probing_client *c, uint64_t deadline_ns)
{
    int rc = client_stopped(c) ? -EINTR : client_receive(c, deadline_ns);
    if (rc == -EINTR && c->message.size > 0 && !client_stopped(c))
        return 1; /* what is half here is on its way */
    return rc;
}

int client_next_message(struct probing_client *c, uint64_t deadline_ns)
{
    int rc = 1;
    buf_reset(&c->message);
    while (rc > 0) {
        struct frame f = {0};
        bool late = deadline_ns && client_now_ns() > deadline_ns; /* however much still comes */
        if (late || client_stopped(c))
            rc = late ? 0 : -EINTR;
        else
            rc = take_frame(c, &f);
        if (rc > 0) {
            rc = use_frame(c, &f);
            if (rc != 0) /* it is whole, or wrong */
                return rc;
            rc = 1;
        } else if (rc == 0 && !late) {
            rc = wait_for_more(c, deadline_ns);
        }
    }
    c->over = c->over || c->message.size > 0; /* what is half here cannot be gone on with */
    return rc;
}
