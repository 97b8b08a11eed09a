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
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/arena.h"
#include "core/base/err.h"
#include "core/base/json.h"
#include "sdk/client/internal.h"

#define CONNECT_NS (10 * NS_PER_S)
#define LOOK_NS (100 * NS_PER_MS) /* between looks at the flag that ends a wait */

uint64_t client_timeout(const struct client_limits *limits)
{
    return limits && limits->timeout_ns ? limits->timeout_ns : CONNECT_NS;
}

bool client_is_stopped(const volatile sig_atomic_t *stop)
{
    return stop && *stop && err_set(-ECANCELED, "stopped while waiting for an answer") < 0;
}

uint64_t client_look(uint64_t deadline_ns)
{
    uint64_t soon = clock_monotonic() + LOOK_NS;
    return soon < deadline_ns ? soon : deadline_ns;
}

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

/* "server: probing/0.1.0 (build 3f2a91c04d5e)" among the lines of the handshake. */
static void take_build(struct probing_client *c, const char *end)
{
    static const char name[] = "\r\nserver: probing/";
    const char *at = strcasestr(c->in.data, name);
    if (at && at < end)
        (void)snprintf(c->build, sizeof(c->build), "%.*s",
                       (int)strcspn(at + sizeof(name) - 1, "\r\n"), at + sizeof(name) - 1);
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
        if (client_is_stopped(c->stop))
            return -ECANCELED;
        const char *end = c->in.size ? strstr(buf_text(&c->in), "\r\n\r\n") : NULL;
        if (end && memcmp(c->in.data, "HTTP/1.1 101 ", 13) == 0) {
            take_build(c, end);
            c->in_used = (size_t)(end + 4 - c->in.data);
            return 0;
        }
        if (end && memcmp(c->in.data, "HTTP/1.", 7) != 0)
            return refused(c, end + 4);
        uint64_t soon = clock_monotonic() + CLIENT_GRACE_NS; /* for the body of a refusal */
        uint64_t until = end && soon < deadline_ns ? soon : deadline_ns;
        rc = client_receive(c, client_look(until));
        if (rc == 0 && clock_monotonic() < until)
            continue;
        if (end && (rc == 0 || rc == -ECONNRESET || c->in.size > 8192))
            return refused(c, strstr(buf_text(&c->in), "\r\n\r\n") + 4);
        if (rc == 0)
            return err_set(-ETIMEDOUT, "%s does not answer; the process may be stopped or busy",
                           c->where);
        if (rc > 0 && c->in.size > CLIENT_HEAD_BYTES)
            return err_set(-EPROTO, "%s does not speak our protocol: its answer has no end",
                           c->where);
        rc = rc > 0 || rc == -EINTR ? 0 : rc;
    }
    return rc;
}

/* 0, or -errno without words */
static int connect_within(int fd, const struct sockaddr *a, socklen_t size,
                          const struct client_limits *l, uint64_t deadline_ns)
{
    struct probing_client c = {.fd = fd};
    int error = 0, rc;
    socklen_t n = sizeof(error);
    if (connect(fd, a, size) == 0)
        return 0;
    if (errno != EINPROGRESS && errno != EINTR)
        return -errno;
    do
        rc = client_is_stopped(l ? l->stop : NULL)
                 ? -ECANCELED
                 : client_wait(&c, POLLOUT, client_look(deadline_ns));
    while (rc == -EINTR || (rc == 0 && clock_monotonic() < deadline_ns));
    if (rc <= 0)
        return rc == 0 ? -ETIMEDOUT : rc;
    (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n);
    return -error;
}

struct way {
    int fd;            /* connected; finish() closes it when it fails */
    const char *where; /* for sentences */
    const char *directory, *host, *token;
};

static int finish(const struct way *w, const struct client_limits *l, uint64_t deadline_ns,
                  struct probing_client **ret)
{
    struct probing_client *c = calloc(1, sizeof(*c));
    if (!c) {
        (void)close(w->fd);
        return err_set(-ENOMEM, "no memory for a connection");
    }
    c->fd = w->fd;
    c->mask = (uint32_t)clock_monotonic();
    c->stop = l ? l->stop : NULL;
    (void)snprintf(c->where, sizeof(c->where), "%s", w->where);
    (void)snprintf(c->directory, sizeof(c->directory), "%s", w->directory);
    if (w->directory[0])
        client_process_of(w->fd, w->directory, strrchr(w->where, '/') + 1, &c->process);
    buf_init(&c->in, CLIENT_MESSAGE_BYTES + 2 * CLIENT_READ_BYTES);
    buf_init(&c->message, CLIENT_MESSAGE_BYTES);
    int rc = shake_hands(c, w->host, w->token, deadline_ns);
    if (rc == 0)
        *ret = c;
    else
        client_close(c);
    return rc;
}

static int connect_door(const struct client_door *d, const char *name,
                        const struct client_limits *limits, struct probing_client **ret)
{
    uint64_t deadline_ns = clock_monotonic() + client_timeout(limits);
    char where[sizeof(((struct probing_client *)0)->where)];
    struct way w = {.where = where, .directory = d->path, .host = "localhost"};

    (void)snprintf(where, sizeof(where), "%s/%s", d->path, name);
    w.fd = client_dial(d, name, SOCK_STREAM, limits);
    return w.fd < 0 ? w.fd : finish(&w, limits, deadline_ns, ret);
}

int client_connect_door(const struct client_door *d, const struct client_limits *limits,
                        struct probing_client **ret)
{
    return connect_door(d, "sock", limits, ret);
}

int client_connect_unix(const char *path, const struct client_limits *limits,
                        struct probing_client **ret)
{
    char directory[4096];
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

    if (!*name || strlen(path) >= sizeof(directory))
        return err_set(-ENAMETOOLONG, "'%.80s' is no path of a socket", path);
    (void)snprintf(directory, sizeof(directory), "%.*s",
                   slash ? (int)(slash - path) + (slash == path) : 1, slash ? path : ".");
    struct client_door d = {.path = directory};
    d.directory = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (d.directory == -1)
        return err_set(-errno, "cannot open %s: %s", directory, strerror(errno));
    int rc = connect_door(&d, name, limits, ret);
    (void)close(d.directory);
    return rc;
}

static int connect_any(const struct addrinfo *list, const struct client_limits *l,
                       uint64_t deadline_ns, int *ret_fd)
{
    int rc = -EADDRNOTAVAIL;
    for (const struct addrinfo *a = list; a; a = a->ai_next) {
        int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd == -1)
            return -errno;
        rc = connect_within(fd, a->ai_addr, a->ai_addrlen, l, deadline_ns);
        if (rc == 0) {
            *ret_fd = fd;
            return 0;
        }
        (void)close(fd);
        if (rc == -ECANCELED)
            break;
    }
    return rc;
}

int client_connect_tcp(const char *host, uint16_t port, const struct client_token *token,
                       const struct client_limits *limits, struct probing_client **ret)
{
    uint64_t deadline_ns = clock_monotonic() + client_timeout(limits);
    struct way w = {.directory = ""};
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
    rc = connect_any(list, limits, deadline_ns, &fd);
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
    w.fd = fd;
    w.where = where;
    w.host = name;
    w.token = token ? token->text : NULL;
    if (token && !w.token && token->find)
        w.token = token->find(token->arg, fd);
    return finish(&w, limits, deadline_ns, ret);
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
