/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/client/turn.c - one connection among many: connects, shakes hands, sends and receives as far
 * as it can be done at once.
 *
 * One thread a client.  Who asks many processes polls all their sockets and gives each its turn: a
 * process that takes its time, or that never ends, costs the others nothing.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "sdk/client/internal.h"

#define TURN_READS 8                   /* of CLIENT_READ_BYTES: then it is another's turn */
#define OUT_BYTES ((size_t)16 << 20)   /* of requests, and of pongs that nobody reads */
#define EVENT_BYTES ((size_t)64 << 20) /* of one message, taken apart */
#define HELLO_BYTES 4096
#define EARLY_BYTES 4096 /* of requests that a new socket takes with the handshake */

static void begin_requests(struct probing_client *c)
{
    c->turn = TURN_CONNECTS;
    c->out_sent = 0;
    c->message.max = CLIENT_TURN_BYTES;
    buf_init(&c->hello, HELLO_BYTES + EARLY_BYTES);
    buf_init(&c->out, OUT_BYTES);
}

int client_begin_endpoint(struct probing_client *c, const struct client_endpoint *d)
{
    (void)snprintf(c->where, sizeof(c->where), "%s/sock", d->path);
    (void)snprintf(c->directory, sizeof(c->directory), "%s", d->path);
    int fd = client_dial_once(c, d, "sock", SOCK_STREAM);
    if (fd < 0)
        return fd;
    c->fd = fd;
    client_process_of(c->fd, d->path, "sock", &c->process);
    begin_requests(c);
    c->turn = TURN_GREETS;
    c->early = true;
    return client_greeting(c, "localhost", NULL, &c->hello);
}

int client_begin_tcp(struct probing_client *c, const char *host, const struct sockaddr *address,
                     unsigned address_size)
{
    const int one = 1;
    const in_port_t port = address->sa_family == AF_INET6
                               ? ((const struct sockaddr_in6 *)(const void *)address)->sin6_port
                               : ((const struct sockaddr_in *)(const void *)address)->sin_port;
    (void)snprintf(c->where, sizeof(c->where), strchr(host, ':') ? "[%.120s]:%u" : "%.120s:%u",
                   host, ntohs(port));
    c->fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (c->fd == -1)
        return client_fail(c, -errno, "%s: %s", c->where, strerror(errno));
    (void)setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    begin_requests(c);
    if (connect(c->fd, address, address_size) == 0 || errno == EINPROGRESS || errno == EINTR)
        return 0;
    return client_fail(c, -errno, "%s: %s", c->where, strerror(errno));
}

int client_turn_fd(const struct probing_client *c)
{
    return c->fd;
}

int client_turn_events(const struct probing_client *c)
{
    bool waits =
        c->turn == TURN_CONNECTS || c->hello.size > 0 || (c->turn == TURN_OPEN && c->out.size > 0);
    return (c->turn == TURN_CONNECTS ? 0 : POLLIN) | (waits ? POLLOUT : 0);
}

/* It is connected, or will never be: the token is for whoever is at the other end. */
static int finish_connect(struct probing_client *c)
{
    struct pollfd p = {.fd = c->fd, .events = POLLOUT};
    struct sockaddr_in6 peer;
    socklen_t n = sizeof(int), size = sizeof(peer);
    const char *token = c->options.token;
    char name[CLIENT_PEER_BYTES];
    int error = 0;

    if (poll(&p, 1, 0) <= 0)
        return 0;
    (void)getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &n);
    if (error == 0 && getpeername(c->fd, (struct sockaddr *)&peer, &size) == -1)
        error = errno;
    if (error)
        return client_fail(c, -error, "%s: %s%s", c->where, strerror(error),
                           error == ECONNREFUSED ? "; nobody listens there (probing -t PID config "
                                                   "server.listen=:PORT opens it)"
                                                 : "");
    client_name_peer(c->fd, ntohs(peer.sin6_port), name); /* where both families have the port */
    if (!token && c->options.find_token)
        token = c->options.find_token(c->options.arg, c->fd);
    c->turn = TURN_GREETS;
    return client_greeting(c, name, token, &c->hello);
}

/* 0 or -errno; what does not go now stays. */
static int send_some(struct probing_client *c, struct buf *b)
{
    while (b->size > c->out_sent) {
        ssize_t n =
            send(c->fd, b->data + c->out_sent, b->size - c->out_sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n == -1 && (errno == EAGAIN || errno == EINTR))
            return 0;
        if (n == -1)
            return client_gone(c);
        c->out_sent += (size_t)n;
    }
    c->out_sent = 0;
    buf_reset(b);
    return 0;
}

/* The handshake to its end, even where the answer came before that, then the rest. */
static int send_all(struct probing_client *c)
{
    int rc = c->hello.size > 0 ? send_some(c, &c->hello) : 0;
    return rc == 0 && c->hello.size == 0 && c->turn == TURN_OPEN ? send_some(c, &c->out) : rc;
}

/* A process of this machine, whose socket is proved, gets its first requests with the handshake: it
 * is woken up once for both, and so are we. */
static void ask_early(struct probing_client *c)
{
    if (!c->early || c->out.size > EARLY_BYTES)
        return;
    if (buf_add(&c->hello, c->out.data, c->out.size) == 0)
        buf_reset(&c->out);
    c->early = false;
}

static bool anything_started(const struct probing_client *c)
{
    for (int i = 0; i < CLIENT_STARTED_MAX; i++)
        if (c->started[i])
            return true;
    return false;
}

/* All messages that are whole.  0, 1: nothing started is left, or what on_event() gave. */
static int hand_on(struct probing_client *c,
                   int (*on_event)(void *arg, const struct probing_client_event *e), void *arg)
{
    int rc = 0;
    while (rc == 0 && anything_started(c)) {
        struct probing_client_event e;
        struct arena a;
        rc = client_take_message(c);
        if (rc <= 0)
            return rc;
        arena_init(&a, EVENT_BYTES);
        rc = client_read_event(c, &a, &e);
        if (rc > 0)
            rc = on_event(arg, &e);
        arena_done(&a);
    }
    return rc != 0 ? rc : 1;
}

/* Take in what came, as far as it goes. */
static int take_in(struct probing_client *c,
                   int (*on_event)(void *arg, const struct probing_client_event *e), void *arg,
                   bool over)
{
    if (c->turn == TURN_GREETS) {
        int rc = client_greeted(c, over);
        if (rc <= 0)
            return rc;
        c->turn = TURN_OPEN;
    }
    return hand_on(c, on_event, arg);
}

int client_turn(struct probing_client *c,
                int (*on_event)(void *arg, const struct probing_client_event *e), void *arg)
{
    int rc = c->turn == TURN_CONNECTS ? finish_connect(c) : 0;
    if (rc == 0 && c->turn == TURN_GREETS)
        ask_early(c);
    if (rc == 0 && c->turn != TURN_CONNECTS)
        rc = send_all(c);
    for (int i = 0; rc == 0 && c->turn != TURN_CONNECTS && i < TURN_READS; i++) {
        int got = client_receive(c, /* deadline_ns= */ 1);
        if (got == 0 || got == -EINTR)
            break;
        rc = take_in(c, on_event, arg, got < 0);
        if (got < 0 && rc == 0)
            return got;
    }
    if (rc == 0 && c->turn == TURN_OPEN && c->out.size > 0)
        rc = send_all(c);
    return rc;
}

void client_turns_end(struct probing_client *c)
{
    c->turn = TURN_NONE;
    (void)client_gone(c);
}
