/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/client/connect.c - the way to a process: TCP, the handshake, and what refusals say.
 * Sockets in the file system are local_connect.c's.
 *
 * One thread a client.  No TLS: ssh or a proxy does that.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sdk/client/internal.h"
#include "sdk/lib/arena.h"
#include "sdk/lib/json.h"

#define CONNECT_NS (10 * NS_PER_S)
#define LOOK_NS (100 * NS_PER_MS) /* between looks at the flag that ends a wait */

uint64_t client_timeout(const struct probing_client *c)
{
    return c->options.timeout_ns ? c->options.timeout_ns : CONNECT_NS;
}

bool client_is_stopped(struct probing_client *c)
{
    return client_stopped(c) &&
           client_fail(c, -ECANCELED, "stopped while waiting for an answer") < 0;
}

uint64_t client_inspect(uint64_t deadline_ns)
{
    uint64_t soon = client_now_ns() + LOOK_NS;
    return soon < deadline_ns ? soon : deadline_ns;
}

/* The server's refusal is HTTP: give its own sentence. */
static int read_refusal(struct probing_client *c, const char *end)
{
    struct arena a;
    struct json *o;
    struct json_error bad;
    char line[96];
    size_t n = strcspn(c->in.data, "\r\n");
    (void)snprintf(line, sizeof(line), "%.*s", (int)(n < 90 ? n : 90), c->in.data);
    int code = strstr(line, " 401 ") || strstr(line, " 403 ") ? -EACCES : -EPROTO;
    arena_init(&a, 1u << 20);
    size_t size = c->in.size - (size_t)(end - c->in.data);
    const struct json *e = json_read(&a, end, size, &o, &bad) == 0 ? json_get(o, "error") : NULL;
    if (e)
        (void)client_fail(c, code, "%s: %s%s%s", c->where, json_text(e, "message", "refused"),
                          *json_text(e, "hint", "") ? "; " : "", json_text(e, "hint", ""));
    else
        (void)client_fail(c, code, "%s does not speak our protocol: %s", c->where, line);
    arena_done(&a);
    return code;
}

/* "server: probing/0.1.0 (build 3f2a91c04d5e)" among the lines of the handshake. */
static void take_build(struct probing_client *c, const char *end)
{
    static const char name[] = "\r\nserver: probing/";
    const char *at = strcasestr(c->in.data, name);
    if (at && at < end)
        (void)snprintf(c->build, sizeof(c->build), "%.*s",
                       (int)strcspn(at + sizeof(name) - 1, "\r\n"), at + sizeof(name) - 1);
}

int client_greeting(struct probing_client *c, const char *host, const char *token, struct buf *ret)
{
    (void)buf_addf(ret,
                   "GET /ws HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                   "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: cHJvYmluZ2NsaWVudDAwMQ==\r\n"
                   "Sec-WebSocket-Protocol: probing.1\r\n",
                   host);
    if (token)
        (void)buf_addf(ret, "Authorization: Bearer %s\r\n", token);
    (void)buf_adds(ret, "\r\n");
    return ret->failed || (token && strpbrk(token, "\r\n"))
               ? client_fail(c, -EINVAL, "the token is not usable: too long, or more than one line")
               : 0;
}

int client_greeted(struct probing_client *c, bool over)
{
    const char *end = c->in.size ? strstr(buf_text(&c->in), "\r\n\r\n") : NULL;
    if (end && memcmp(c->in.data, "HTTP/1.1 101 ", 13) == 0) {
        take_build(c, end);
        c->in_used = (size_t)(end + 4 - c->in.data);
        return 1;
    }
    if (end && (memcmp(c->in.data, "HTTP/1.", 7) != 0 || over || c->in.size > 8192))
        return read_refusal(c, end + 4);
    if (c->in.size > CLIENT_HEAD_BYTES)
        return client_fail(c, -EPROTO, "%s does not speak our protocol: its answer has no end",
                           c->where);
    return 0;
}

static int shake_hands(struct probing_client *c, const char *host, const char *token,
                       uint64_t deadline_ns)
{
    struct buf b;
    buf_init(&b, 4096);
    int rc = client_greeting(c, host, token, &b);
    if (rc == 0)
        rc = client_send(c, b.data, b.size);
    buf_done(&b);
    while (rc == 0) {
        if (client_is_stopped(c))
            return -ECANCELED;
        int seen = client_greeted(c, /* over= */ false);
        if (seen != 0)
            return seen < 0 ? seen : 0;
        bool head = c->in.size && strstr(buf_text(&c->in), "\r\n\r\n");
        uint64_t soon = client_now_ns() + CLIENT_GRACE_NS; /* for the body of a refusal */
        uint64_t until = head && soon < deadline_ns ? soon : deadline_ns;
        rc = client_receive(c, client_inspect(until));
        if (rc == 0 && client_now_ns() < until)
            continue;
        if (head && (rc == 0 || rc == -ECONNRESET))
            return client_greeted(c, /* over= */ true);
        if (rc == 0)
            return client_fail(c, -ETIMEDOUT,
                               "%s does not answer; the process may be stopped or busy", c->where);
        rc = rc > 0 || rc == -EINTR ? 0 : rc;
    }
    return rc;
}

/* 0, or -errno without words */
static int connect_within(struct probing_client *c, const struct sockaddr *a, socklen_t size,
                          uint64_t deadline_ns)
{
    int error = 0, rc;
    socklen_t n = sizeof(error);
    if (connect(c->fd, a, size) == 0)
        return 0;
    if (errno != EINPROGRESS && errno != EINTR)
        return -errno;
    do
        rc = client_is_stopped(c) ? -ECANCELED
                                  : client_wait(c, POLLOUT, client_inspect(deadline_ns));
    while (rc == -EINTR || (rc == 0 && client_now_ns() < deadline_ns));
    if (rc <= 0)
        return rc == 0 ? -ETIMEDOUT : rc;
    (void)getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &n);
    return -error;
}

int client_give_up(struct probing_client *c, int rc)
{
    if (c->fd != -1)
        (void)close(c->fd);
    c->fd = -1;
    c->over = false;
    c->in_used = 0;
    buf_reset(&c->in);
    return rc;
}

static bool is_connected(struct probing_client *c)
{
    c->end = c->fd == -1 ? PROBING_CLIENT_OPEN : c->end; /* of a failure before: it is forgotten */
    return c->fd != -1 &&
           client_fail(c, -EISCONN, "this client is connected to %s already", c->where) < 0;
}

static int connect_endpoint(struct probing_client *c, const struct client_endpoint *d,
                            const char *name)
{
    uint64_t deadline_ns = client_now_ns() + client_timeout(c);
    if (is_connected(c))
        return -EISCONN;
    (void)snprintf(c->where, sizeof(c->where), "%s/%s", d->path, name);
    (void)snprintf(c->directory, sizeof(c->directory), "%s", d->path);
    int rc = client_dial(c, d, name, SOCK_STREAM);
    if (rc < 0)
        return rc;
    c->fd = rc;
    client_process_of(c->fd, d->path, name, &c->process);
    rc = shake_hands(c, "localhost", NULL, deadline_ns);
    return rc < 0 ? client_give_up(c, rc) : 0;
}

int client_connect_endpoint(struct probing_client *c, const struct client_endpoint *d)
{
    return connect_endpoint(c, d, "sock");
}

int client_connect_stream(struct probing_client *c, int fd, int note, const char *where)
{
    (void)snprintf(c->where, sizeof(c->where), "%s", where);
    c->fd = fd;
    c->note_fd = note;
    int rc = shake_hands(c, "localhost", NULL, client_now_ns() + client_timeout(c));
    return rc < 0 ? client_give_up(c, rc) : 0;
}

int probing_client_connect_unix(struct probing_client *c, const char *path)
{
    char directory[4096];
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

    if (!*name || strlen(path) >= sizeof(directory))
        return client_fail(c, -ENAMETOOLONG, "'%.80s' is not a path of a socket", path);
    (void)snprintf(directory, sizeof(directory), "%.*s",
                   slash ? (int)(slash - path) + (slash == path) : 1, slash ? path : ".");
    struct client_endpoint d = {.path = directory};
    d.directory = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (d.directory == -1)
        return client_fail(c, -errno, "cannot open %s: %s", directory, strerror(errno));
    int rc = connect_endpoint(c, &d, name);
    (void)close(d.directory);
    return rc;
}

static int connect_any(struct probing_client *c, const struct addrinfo *list, uint64_t deadline_ns)
{
    int rc = -EADDRNOTAVAIL;
    for (const struct addrinfo *a = list; a && rc != 0 && rc != -ECANCELED; a = a->ai_next) {
        c->fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        rc = c->fd == -1 ? -errno : connect_within(c, a->ai_addr, a->ai_addrlen, deadline_ns);
        if (rc != 0)
            (void)client_give_up(c, rc);
    }
    return rc;
}

/* Names are refused by the server (DNS rebinding), so the number we came to is what we say. */
void client_name_peer(int fd, uint16_t port, char ret[CLIENT_PEER_BYTES])
{
    struct sockaddr_storage peer = {.ss_family = AF_INET};
    socklen_t peer_size = sizeof(peer);
    char number[64] = "";
    if (getpeername(fd, (struct sockaddr *)&peer, &peer_size) == 0)
        (void)getnameinfo((struct sockaddr *)&peer, peer_size, number, sizeof(number), NULL, 0,
                          NI_NUMERICHOST);
    (void)snprintf(ret, CLIENT_PEER_BYTES, peer.ss_family == AF_INET6 ? "[%s]:%u" : "%s:%u", number,
                   port);
}

int probing_client_connect_tcp(struct probing_client *c, const char *host, uint16_t port)
{
    uint64_t deadline_ns = client_now_ns() + client_timeout(c);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list;
    const char *token = c->options.token;
    char service[8], name[CLIENT_PEER_BYTES];
    int one = 1;
    if (is_connected(c))
        return -EISCONN;
    c->directory[0] = '\0';
    c->process = (struct client_process){.pid = 0};
    (void)snprintf(service, sizeof(service), "%u", port);
    (void)snprintf(c->where, sizeof(c->where), strchr(host, ':') ? "[%s]:%u" : "%s:%u", host, port);
    int rc = getaddrinfo(host, service, &hints, &list);
    if (rc != 0)
        return client_fail(c, -ENOENT, "no machine '%s': %s", host, gai_strerror(rc));
    rc = connect_any(c, list, deadline_ns);
    freeaddrinfo(list);
    if (rc != 0)
        return client_fail(c, rc, "%s: %s%s", c->where, strerror(-rc),
                           rc == -ECONNREFUSED ? "; nobody listens there (probing -t PID config "
                                                 "server.listen=:PORT opens it)"
                                               : "");
    (void)setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    client_name_peer(c->fd, port, name);
    if (!token && c->options.find_token)
        token = c->options.find_token(c->options.arg, c->fd);
    rc = shake_hands(c, name, token, deadline_ns);
    return rc < 0 ? client_give_up(c, rc) : 0;
}
