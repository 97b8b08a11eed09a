/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/client/connect.c - the way to a process: a socket, TCP, the handshake, and what refusals say.
 *
 * One thread a client.  No TLS: ssh or a proxy does that.
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/base/arena.h"
#include "core/base/err.h"
#include "core/base/json.h"
#include "sdk/client/inside.h"

#define CONNECT_NS (10 * NS_PER_S)

/* The server's refusal is HTTP: give its own sentence. */
static int refused(struct probing_client *c, const char *end)
{
    struct arena a;
    struct json *o;
    char line[96];
    size_t n = strcspn(c->in.data, "\r\n");
    (void)snprintf(line, sizeof(line), "%.*s", (int)(n < 90 ? n : 90), c->in.data);
    int code = strstr(line, " 401 ") || strstr(line, " 403 ") ? -EACCES : -EPROTO;
    arena_init(&a, 1u << 20);
    size_t size = c->in.size - (size_t)(end - c->in.data);
    const struct json *e = json_parse(&a, end, size, &o) == 0 ? json_get(o, "error") : NULL;
    if (e)
        (void)err_set(code, "%s: %s%s%s", c->where, json_text(e, "message", "refused"),
                      *json_text(e, "hint", "") ? "; " : "", json_text(e, "hint", ""));
    else
        (void)err_set(code, "%s does not speak our protocol: %s", c->where, line);
    arena_done(&a);
    return code;
}

static int shake_hands(struct probing_client *c, const char *host, const char *token,
                       uint64_t deadline_ns)
{
    struct buf b;
    buf_init(&b, 4096);
    (void)buf_addf(&b,
                   "GET /ws HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                   "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: cHJvYmluZ2NsaWVudDAwMQ==\r\n"
                   "Sec-WebSocket-Protocol: probing.1\r\n",
                   host);
    if (token)
        (void)buf_addf(&b, "Authorization: Bearer %s\r\n", token);
    (void)buf_adds(&b, "\r\n");
    int rc = b.failed || (token && strpbrk(token, "\r\n"))
                 ? err_set(-EINVAL, "the token is not usable: too long, or more than one line")
                 : client_send(c, b.data, b.size);
    buf_done(&b);
    while (rc == 0) {
        const char *end = c->in.size ? strstr(buf_text(&c->in), "\r\n\r\n") : NULL;
        if (end && memcmp(c->in.data, "HTTP/1.1 101 ", 13) == 0) {
            c->in_used = (size_t)(end + 4 - c->in.data);
            return 0;
        }
        if (end && memcmp(c->in.data, "HTTP/1.", 7) != 0)
            return refused(c, end + 4);
        uint64_t soon = clock_monotonic() + CLIENT_GRACE_NS; /* for the body of a refusal */
        rc = client_receive(c, end && soon < deadline_ns ? soon : deadline_ns);
        if (end && (rc == 0 || rc == -ECONNRESET || c->in.size > 8192))
            return refused(c, strstr(buf_text(&c->in), "\r\n\r\n") + 4);
        if (rc == 0)
            return err_set(-ETIMEDOUT, "%s does not answer; the process may be stopped or busy",
                           c->where);
        rc = rc > 0 || rc == -EINTR ? 0 : rc;
    }
    return rc;
}

/* 0, or -errno without words */
static int connect_within(int fd, const struct sockaddr *a, socklen_t size, uint64_t deadline_ns)
{
    struct probing_client c = {.fd = fd};
    int error = 0, rc;
    socklen_t n = sizeof(error);
    if (connect(fd, a, size) == 0)
        return 0;
    if (errno != EINPROGRESS && errno != EINTR)
        return -errno;
    do
        rc = client_wait(&c, POLLOUT, deadline_ns);
    while (rc == -EINTR);
    if (rc <= 0)
        return rc == 0 ? -ETIMEDOUT : rc;
    (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n);
    return -error;
}

static int finish(int fd, const char *where, const char *directory, const char *host,
                  const char *token, uint64_t deadline_ns, struct probing_client **ret)
{
    struct probing_client *c = calloc(1, sizeof(*c));
    if (!c) {
        (void)close(fd);
        return err_set(-ENOMEM, "no memory for a connection");
    }
    c->fd = fd;
    c->mask = (uint32_t)clock_monotonic();
    (void)snprintf(c->where, sizeof(c->where), "%s", where);
    (void)snprintf(c->directory, sizeof(c->directory), "%s", directory);
    buf_init(&c->in, CLIENT_MESSAGE_BYTES + 2 * CLIENT_READ_BYTES);
    buf_init(&c->message, CLIENT_MESSAGE_BYTES);
    int rc = shake_hands(c, host, token, deadline_ns);
    if (rc == 0)
        *ret = c;
    else
        client_close(c);
    return rc;
}

int client_connect_unix(const char *path, uint64_t timeout_ns, struct probing_client **ret)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    uint64_t deadline_ns = clock_monotonic() + (timeout_ns ? timeout_ns : CONNECT_NS);
    size_t n = strlen(path);
    char directory[4096];
    if (n == 0 || n >= sizeof(a.sun_path))
        return err_set(-ENAMETOOLONG, "socket path '%s' is longer than %zu bytes", path,
                       sizeof(a.sun_path) - 1);
    memcpy(a.sun_path, path, n + 1);
    const char *slash = strrchr(path, '/');
    (void)snprintf(directory, sizeof(directory), "%.*s", (int)(slash ? slash - path : 1),
                   slash ? path : ".");
    /* "/proc/self/fd/N" stands for a longer path, which is what a reader wants to know. */
    char link[sizeof(a.sun_path)];
    (void)snprintf(link, sizeof(link), "%.100s", directory);
    ssize_t length = readlink(link, directory, sizeof(directory) - 1);
    if (length > 0)
        directory[length] = '\0';
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd == -1)
        return err_set(-errno, "no socket: %s", strerror(errno));
    /* A stopped process with a full backlog would hold connect() for ever. */
    struct timeval limit = {.tv_sec = 10};
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    int rc = connect_within(fd, (const struct sockaddr *)&a, sizeof(a), deadline_ns);
    if (rc == 0)
        return finish(fd, path, directory, "localhost", NULL, deadline_ns, ret);
    (void)close(fd);
    if (rc == -ECONNREFUSED || rc == -ENOENT)
        return err_set(rc,
                       "nobody listens on '%s'; the process has gone, its data can still be "
                       "asked: probing -t %s query \"...\"",
                       path, directory);
    if (rc == -EAGAIN)
        rc = -ETIMEDOUT;
    return err_set(rc, "'%s': %s%s", path, strerror(-rc),
                   rc == -EACCES ? "; only the user of that process and root may ask it" : "");
}

static int connect_any(const struct addrinfo *list, uint64_t deadline_ns, int *ret_fd)
{
    int rc = -EADDRNOTAVAIL;
    for (const struct addrinfo *a = list; a; a = a->ai_next) {
        int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd == -1)
            return -errno;
        rc = connect_within(fd, a->ai_addr, a->ai_addrlen, deadline_ns);
        if (rc == 0) {
            *ret_fd = fd;
            return 0;
        }
        (void)close(fd);
    }
    return rc;
}

int client_connect_tcp(const char *host, uint16_t port, const char *token, uint64_t timeout_ns,
                       struct probing_client **ret)
{
    uint64_t deadline_ns = clock_monotonic() + (timeout_ns ? timeout_ns : CONNECT_NS);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list;
    struct sockaddr_storage peer;
    socklen_t size = sizeof(peer);
    char service[8], where[160], number[64] = "", name[80];
    int fd = -1, one = 1;
    (void)snprintf(service, sizeof(service), "%u", port);
    (void)snprintf(where, sizeof(where), strchr(host, ':') ? "[%s]:%u" : "%s:%u", host, port);
    int rc = getaddrinfo(host, service, &hints, &list);
    if (rc != 0)
        return err_set(-ENOENT, "no machine '%s': %s", host, gai_strerror(rc));
    rc = connect_any(list, deadline_ns, &fd);
    freeaddrinfo(list);
    if (rc != 0)
        return err_set(rc, "%s: %s%s", where, strerror(-rc),
                       rc == -ECONNREFUSED ? "; nobody listens there (probing -t PID config "
                                             "server.listen=:PORT opens it)"
                                           : "");
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    /* Names are refused by the server (DNS rebinding), so the number we came to is what we say. */
    if (getpeername(fd, (struct sockaddr *)&peer, &size) == 0)
        (void)getnameinfo((struct sockaddr *)&peer, size, number, sizeof(number), NULL, 0,
                          NI_NUMERICHOST);
    (void)snprintf(name, sizeof(name), peer.ss_family == AF_INET6 ? "[%s]:%u" : "%s:%u", number,
                   port);
    return finish(fd, where, "", name, token, deadline_ns, ret);
}

void client_close(struct probing_client *c)
{
    if (!c)
        return;
    (void)close(c->fd);
    buf_done(&c->in);
    buf_done(&c->message);
    free(c);
}
