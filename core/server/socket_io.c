/* SPDX-License-Identifier: Apache-2.0
 *
 * core/server/socket_io.c - sockets we read and write ourselves: the greeting, HTTP and plain text.
 *
 * Loop only.  libwebsockets waits for the socket (as a plain file); bytes go through recv() and
 * send() here, because a text client may close its sending half and still wait for answers, and
 * because what is not HTTP must not reach an HTTP parser.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "core/base/clock.h"
#include "core/server/internal.h"

#define READ_BYTES (16u << 10) /* a read */
#define TURN_BYTES (1u << 20)  /* sent to one peer before the others have their turn */

static void give_memory_back(struct buf *b)
{
    size_t max = b->max;
    buf_done(b);
    buf_init(b, max);
}

void server_raw_used(struct connection *p, size_t n)
{
    size_t rest = p->in.size - n;
    if (rest > 0)
        memmove(p->in.data, p->in.data + n, rest);
    p->in.size = rest;
    if (rest == 0)
        give_memory_back(&p->in); /* an idle peer keeps no megabyte */
}

void server_connection_wait(struct connection *p, enum connection_wait wait, uint32_t seconds)
{
    if (p->wait == wait && wait != WAIT_SENDING)
        return; /* a byte now and then does not buy more time */
    /* Both or none: a limit that outlives what it is for cuts an answer. */
    p->wait = wait;
    p->deadline_ns = wait == WAIT_NOTHING ? 0 : clock_now() + seconds * NS_PER_S;
}

/* libwebsockets 4.1.6 (raw-file role) clears its wish to write after the WRITEABLE callback, so one
 * made inside it is lost: then it goes by way of the ready list.  Can go when the oldest version we
 * build with clears POLLOUT before the callback (its ops-raw-file.c). */
static void want_to_write(struct connection *p)
{
    if (p->writing)
        server_connection_ready(p);
    else
        (void)lws_callback_on_writable(p->wsi);
}

static void choose_deadline(struct connection *p)
{
    if (p->out.size > p->out_sent)
        return; /* WAIT_SENDING is set where sending stops */
    if (p->jobs)
        server_connection_wait(p, WAIT_NOTHING, 0);
    else if (p->kind == CONNECTION_GREETING || !p->access || p->in.size > 0)
        server_connection_wait(p, WAIT_REQUEST, SERVER_GREETING_S);
    else
        server_connection_wait(p, WAIT_NEXT,
                               p->kind == CONNECTION_TEXT ? SERVER_TEXT_IDLE_S : SERVER_IDLE_S);
}

/* Is it HTTP?  Judged by the end of the first line, so that a command may be called "get". */
static int find_protocol(struct connection *p)
{
    const char *end = memchr(p->in.data, '\n', p->in.size);
    if (!end)
        return p->in.size > SERVER_HEADER_BYTES || p->eof ? -1 : 0;
    size_t n = (size_t)(end - p->in.data);
    if (n > 0 && p->in.data[n - 1] == '\r')
        n--;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)p->in.data[i] < ' ' && p->in.data[i] != '\t')
            return -1; /* neither: TLS, or noise */
    bool http = n > 9 && memcmp(p->in.data + n - 9, " HTTP/", 6) == 0;
    server_connection_speaks(p, http ? CONNECTION_HTTP : CONNECTION_TEXT);
    return 1;
}

int server_raw_receive(struct connection *p)
{
    int rc = 0;
    if (p->kind == CONNECTION_GREETING && (p->in.size > 0 || p->eof))
        rc = p->in.size > 0 ? find_protocol(p) : -1;
    if (rc >= 0 && !p->closing) {
        if (p->kind == CONNECTION_HTTP)
            rc = server_http_receive(p);
        else if (p->kind == CONNECTION_TEXT)
            rc = server_text_receive(p);
    }
    if (rc < 0 || !p->wsi)
        return -1;
    if (server_connection_waiting(p) || p->out.size > p->out_sent || p->closing || p->eof)
        want_to_write(p);
    bool full = p->in.size >= SERVER_HEADER_BYTES + SERVER_BODY_BYTES;
    (void)lws_rx_flow_control(p->wsi, !full && !p->eof);
    choose_deadline(p);
    return 0;
}

static int throw_away(struct connection *p)
{
    char scrap[READ_BYTES];
    ssize_t got = recv(p->fd, scrap, sizeof(scrap), 0);
    return got > 0 || (got == -1 && (errno == EAGAIN || errno == EINTR)) ? 0 : -1;
}

int server_raw_readable(struct connection *p)
{
    if (p->lingering)
        return throw_away(p);
    size_t room = SERVER_HEADER_BYTES + SERVER_BODY_BYTES - p->in.size;
    room = room < READ_BYTES ? room : READ_BYTES;
    if (room == 0)
        return server_raw_receive(p);
    char *at = buf_room(&p->in, room);
    if (!at)
        return -1;
    ssize_t got = recv(p->fd, at, room, 0);
    if (got == -1)
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    p->in.size += (size_t)got;
    server_add(p->bytes_in, (uint64_t)got);
    if (got == 0)
        p->eof = true;
    return server_raw_receive(p);
}

/* 1: all of p->out is sent, 0: the socket is full, -1: it is broken */
static int send_out(struct connection *p)
{
    while (p->out_sent < p->out.size) {
        ssize_t n = send(p->fd, p->out.data + p->out_sent, p->out.size - p->out_sent, MSG_NOSIGNAL);
        if (n == -1 && errno == EINTR)
            continue;
        if (n == -1 && errno == EAGAIN) {
            if (p->wait != WAIT_SENDING)
                server_connection_wait(p, WAIT_SENDING, p->server->stuck_s);
            want_to_write(p);
            return 0;
        }
        if (n == -1)
            return -1;
        p->out_sent += (size_t)n;
        server_add(p->bytes_out, (uint64_t)n);
        if (p->wait == WAIT_SENDING)
            server_connection_wait(p, WAIT_SENDING, p->server->stuck_s);
    }
    p->out_sent = 0;
    buf_reset(&p->out);
    if (p->out.capacity > 2 * SERVER_CHUNK_BYTES)
        give_memory_back(&p->out);
    return 1;
}

/* All is said.  Closing now, with bytes of the client's unread, would make the kernel throw away
 * what it has not read of ours, a refusal's reason for example: so first let it hang up. */
static int linger_closing(struct connection *p)
{
    /* By the local socket what is sent stays to be read; it is TCP's reset that takes it. */
    if (p->eof || (p->told && p->local) ||
        atomic_load_explicit(&p->server->stop, memory_order_acquire))
        return -1;
    if (p->lingering)
        return 0;
    p->lingering = true;
    (void)shutdown(p->fd, SHUT_WR);
    p->in.size = 0;
    give_memory_back(&p->in);
    (void)lws_rx_flow_control(p->wsi, 1);
    server_connection_wait(p, WAIT_NOTHING, 0); /* or what is left of another wait would count */
    server_connection_wait(p, WAIT_REQUEST, SERVER_LINGER_S);
    return 0;
}

static int write_all(struct connection *p)
{
    size_t turn = 0;
    for (;;) {
        turn += p->out.size;
        int rc = send_out(p);
        if (rc <= 0)
            return rc;
        uint64_t dropped;
        struct chunk *piece = turn < TURN_BYTES ? server_connection_take(p, &dropped) : NULL;
        if (!piece)
            break;
        if (p->kind == CONNECTION_HTTP)
            server_http_encode(p, piece);
        else
            server_text_encode(p, piece);
        server_chunk_free(piece);
        if (p->out.failed)
            return -1;
    }
    if (server_connection_waiting(p)) {
        want_to_write(p);
        return 0;
    }
    if (p->closing)
        return linger_closing(p);
    if (p->in.size > 0 && !p->jobs)
        return server_raw_receive(p);
    if (p->eof && !p->jobs)
        return -1;
    choose_deadline(p);
    return 0;
}

int server_raw_writeable(struct connection *p)
{
    p->writing = true;
    int rc = write_all(p);
    p->writing = false;
    return rc;
}
