/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/client/client.c - the websocket client of the probing command, and of whoever links it.
 *
 * One thread a client.  A small websocket (RFC 6455) of its own: text messages, ping and close; no
 * extensions, no TLS (ssh or a proxy does that).  Does not reconnect: a process that has gone is
 * another process when it comes back.
 */
#include "sdk/client/client.h"

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
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/json.h"

#define CONNECT_NS (10 * NS_PER_S)
#define GRACE_NS (2 * NS_PER_S)   /* after a cancel: for the process to say its last word */
#define SEND_NS (30 * NS_PER_S)   /* a process that takes nothing for so long is stuck */
#define MESSAGE_BYTES (64u << 20) /* longest message taken from the process */
#define READ_BYTES (64u << 10)
#define STARTED_MAX 64 /* requests at once: what the process allows */

enum { OP_MORE = 0, OP_TEXT = 1, OP_BINARY = 2, OP_CLOSE = 8, OP_PING = 9, OP_PONG = 10 };

struct probing_client {
    char note[256]; /* of the last client_run() */
    int fd;
    char where[160];      /* for sentences: the path, or host:port */
    char directory[4096]; /* of the socket: what can still be asked when the process is dead */
    struct buf in;        /* received bytes */
    size_t in_used;
    struct buf message; /* of fragments, until the last */
    int64_t last_id;
    int64_t started[STARTED_MAX]; /* ids whose end has not come; 0: free */
    bool over;                    /* the connection is of no more use */
    uint32_t mask;                /* changes with every frame */
};

/* ---- bytes ---- */

static int gone(struct probing_client *c)
{
    c->over = true;
    if (c->directory[0])
        return err_set(-ECONNRESET,
                       "the process has gone; its data can still be asked: probing -t %s "
                       "query \"...\"",
                       c->directory);
    return err_set(-ECONNRESET, "the process behind %s has gone, or has closed the connection",
                   c->where);
}

/* Wait for the socket until `deadline_ns` (0: none).  1: ready, 0: too late, -EINTR: a signal. */
static int wait_for(struct probing_client *c, int events, uint64_t deadline_ns)
{
    struct pollfd p = {.fd = c->fd, .events = (short)events};
    int wait_ms = -1;
    if (deadline_ns) {
        uint64_t now = clock_monotonic();
        uint64_t left = deadline_ns > now ? (deadline_ns - now + NS_PER_MS - 1) / NS_PER_MS : 0;
        wait_ms = left > 3600000 ? 3600000 : (int)left;
    }
    int rc = poll(&p, 1, wait_ms);
    if (rc == -1)
        return errno == EINTR ? -EINTR : err_set(-errno, "poll: %s", strerror(errno));
    return rc;
}

static int send_all(struct probing_client *c, const char *data, size_t size)
{
    uint64_t deadline_ns = clock_monotonic() + SEND_NS;
    while (size > 0) {
        ssize_t n = send(c->fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0) {
            data += n;
            size -= (size_t)n;
        } else if (errno == EAGAIN || errno == EINTR) {
            int rc = wait_for(c, POLLOUT, deadline_ns);
            if (rc == 0)
                return err_set(-ETIMEDOUT, "%s takes nothing; the process may be stopped",
                               c->where);
            if (rc < 0 && rc != -EINTR)
                return rc;
        } else {
            return gone(c);
        }
    }
    return 0;
}

/* 1: something came, 0: too late, -EINTR, or -errno */
static int receive(struct probing_client *c, uint64_t deadline_ns)
{
    int rc = wait_for(c, POLLIN, deadline_ns);
    if (rc <= 0)
        return rc;
    if (c->in_used > 0) {
        memmove(c->in.data, c->in.data + c->in_used, c->in.size - c->in_used);
        c->in.size -= c->in_used;
        c->in_used = 0;
    }
    char *room = buf_room(&c->in, READ_BYTES);
    if (!room)
        return err_set(c->in.failed, "no memory for an answer");
    ssize_t n = recv(c->fd, room, READ_BYTES, MSG_DONTWAIT);
    if (n == -1 && (errno == EAGAIN || errno == EINTR))
        return -EINTR;
    if (n <= 0)
        return gone(c);
    c->in.size += (size_t)n;
    return 1;
}

/* ---- websocket ---- */

static int send_frame(struct probing_client *c, int op, const char *data, size_t size)
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
    int rc = b.failed ? err_set(b.failed, "no memory for a message of %zu bytes", size)
                      : send_all(c, b.data, b.size);
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
    if (size > MESSAGE_BYTES || p[1] & 0x80 || p[0] & 0x70) {
        c->over = true;
        return err_set(-EPROTO, "%s does not speak our protocol (a frame of %llu bytes)", c->where,
                       (unsigned long long)size);
    }
    if (have < head + size)
        return 0;
    *ret = (struct frame){p[0] & 15, (p[0] & 0x80) != 0, (const char *)p + head, (size_t)size};
    c->in_used += head + (size_t)size;
    return 1;
}

/* The next whole text message into c->message.  1, 0: too late, -EINTR, -errno. */
static int next_message(struct probing_client *c, uint64_t deadline_ns)
{
    struct frame f = {0};
    buf_reset(&c->message);
    for (;;) {
        int rc = take_frame(c, &f);
        if (rc == 0) {
            rc = receive(c, deadline_ns);
            if (rc == -EINTR && c->message.size > 0)
                continue; /* what is half here is on its way */
            c->over = c->over || (rc <= 0 && c->message.size > 0);
            if (rc <= 0)
                return rc;
            continue;
        }
        if (rc < 0)
            return rc;
        if (f.op == OP_PING) {
            rc = send_frame(c, OP_PONG, f.data, f.size);
            if (rc < 0)
                return rc;
        } else if (f.op == OP_CLOSE) {
            return gone(c);
        } else if (f.op == OP_TEXT || f.op == OP_MORE) {
            if (buf_add(&c->message, f.data, f.size) != 0)
                return err_set(c->message.failed, "an answer is longer than %u bytes",
                               MESSAGE_BYTES);
            if (f.last)
                return 1;
        }
    }
}

/* ---- connecting ---- */

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
                 : send_all(c, b.data, b.size);
    buf_done(&b);
    while (rc == 0) {
        const char *end = c->in.size ? strstr(buf_text(&c->in), "\r\n\r\n") : NULL;
        if (end && memcmp(c->in.data, "HTTP/1.1 101 ", 13) == 0) {
            c->in_used = (size_t)(end + 4 - c->in.data);
            return 0;
        }
        if (end && memcmp(c->in.data, "HTTP/1.", 7) != 0)
            return refused(c, end + 4);
        uint64_t soon = clock_monotonic() + GRACE_NS; /* for the body of a refusal */
        rc = receive(c, end && soon < deadline_ns ? soon : deadline_ns);
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
        rc = wait_for(&c, POLLOUT, deadline_ns);
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
    buf_init(&c->in, MESSAGE_BYTES + 2 * READ_BYTES);
    buf_init(&c->message, MESSAGE_BYTES);
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

/* ---- requests ---- */

static int64_t *find_started(struct probing_client *c, int64_t id)
{
    for (int i = 0; i < STARTED_MAX; i++)
        if (c->started[i] == id)
            return &c->started[i];
    return NULL;
}

static int64_t begin(struct probing_client *c, struct buf *b)
{
    buf_init(b, 8u << 20);
    if (c->over)
        return gone(c);
    if (!find_started(c, 0))
        return err_set(-EAGAIN, "%d requests are under way on this connection", STARTED_MAX);
    (void)buf_addf(b, "{\"id\":%lld", (long long)++c->last_id);
    return c->last_id;
}

static int64_t finish_request(struct probing_client *c, struct buf *b)
{
    (void)buf_addc(b, '}');
    int rc = b->failed ? err_set(b->failed, "the request is too long")
                       : send_frame(c, OP_TEXT, b->data, b->size);
    buf_done(b);
    if (rc < 0)
        return rc;
    *find_started(c, 0) = c->last_id;
    return c->last_id;
}

int64_t client_start_run(struct probing_client *c, int argc, const char *const *argv,
                         uint64_t timeout_ns)
{
    struct buf b;
    int64_t id = begin(c, &b);
    if (id < 0)
        return id;
    (void)buf_adds(&b, ",\"run\":[");
    for (int i = 0; i < argc; i++) {
        if (i)
            (void)buf_addc(&b, ',');
        (void)json_add_text(&b, argv[i], strlen(argv[i]));
    }
    (void)buf_addc(&b, ']');
    if (timeout_ns)
        (void)buf_addf(&b, ",\"timeout_ms\":%llu",
                       (unsigned long long)((timeout_ns + NS_PER_MS - 1) / NS_PER_MS));
    return finish_request(c, &b);
}

int64_t client_start_watch(struct probing_client *c, const struct client_watch *w)
{
    struct buf b;
    const char *format = w->format ? w->format : "jsonl";
    int64_t id = begin(c, &b);
    if (id < 0)
        return id;
    (void)buf_adds(&b, ",\"watch\":");
    (void)json_add_text(&b, w->sql, strlen(w->sql));
    (void)buf_adds(&b, ",\"format\":");
    (void)json_add_text(&b, format, strlen(format));
    uint64_t interval_ns = w->interval_ns ? w->interval_ns : NS_PER_S;
    (void)buf_addf(&b, ",\"interval_ms\":%llu,\"last\":%llu",
                   (unsigned long long)((interval_ns + NS_PER_MS - 1) / NS_PER_MS),
                   (unsigned long long)w->last);
    return finish_request(c, &b);
}

int64_t client_start_follow(struct probing_client *c, const char *topic)
{
    struct buf b;
    int64_t id = begin(c, &b);
    if (id < 0)
        return id;
    (void)buf_adds(&b, ",\"follow\":");
    (void)json_add_text(&b, topic, strlen(topic));
    return finish_request(c, &b);
}

int client_cancel(struct probing_client *c, int64_t id)
{
    char text[64];
    if (c->over)
        return gone(c);
    if (id <= 0 || !find_started(c, id))
        return 0; /* it has ended already */
    int n = snprintf(text, sizeof(text), "{\"id\":%lld,\"cancel\":true}", (long long)id);
    return send_frame(c, OP_TEXT, text, (size_t)n);
}

/* ---- answers ---- */

/* A message as an event.  1: fill *ret, 0: nothing for the caller, -errno.  `text` keeps an event's
 * JSON, written again. */
static int read_event(struct probing_client *c, struct arena *a, struct client_event *ret)
{
    struct json *o;
    if (json_parse(a, c->message.data, c->message.size, &o) != 0 || o->type != JSON_OBJECT) {
        c->over = true;
        return err_set(-EPROTO, "%s sent what is no message of ours", c->where);
    }
    *ret = (struct client_event){.id = json_int(o, "id", 0), .text = ""};
    int64_t *slot = ret->id > 0 ? find_started(c, ret->id) : NULL;
    if (!slot) /* "nothing with that id is running": a cancel that crossed the end */
        return 0;
    const struct json *data = json_get(o, "data");
    if (json_get(o, "done")) {
        ret->kind = CLIENT_DONE;
        ret->status = (int)json_int(o, "done", -EPROTO);
        ret->text = json_text(o, ret->status < 0 ? "error" : "note", "");
        ret->size = strlen(ret->text);
        *slot = 0;
    } else if (json_get(o, "dropped")) {
        ret->kind = CLIENT_DROPPED;
        ret->dropped = (uint64_t)json_int(o, "dropped", 0);
    } else if (json_get(o, "event")) {
        /* The value as it was written: from behind "data": to the last brace (docs/protocol.md
         * fixes the order of the members). */
        static const char key[] = ",\"data\":";
        const char *at = memmem(c->message.data, c->message.size, key, sizeof(key) - 1);
        size_t n = at ? c->message.size - (size_t)(at - c->message.data) - sizeof(key) : 0;
        ret->kind = CLIENT_EVENT;
        ret->topic = json_text(o, "event", "");
        ret->text = at ? arena_text(a, at + sizeof(key) - 1, n) : "null";
        ret->size = n;
        if (!ret->text)
            return err_set(-ENOMEM, "no memory for an event");
    } else if (data && data->type == JSON_STRING) {
        ret->kind = CLIENT_DATA;
        ret->text = data->text;
        ret->size = data->size;
        ret->whole = json_get(o, "whole") != NULL;
    } else {
        return 0;
    }
    return 1;
}

static bool anything_started(const struct probing_client *c)
{
    for (int i = 0; i < STARTED_MAX; i++)
        if (c->started[i])
            return true;
    return false;
}

int client_stream(struct probing_client *c,
                  int (*on_event)(void *arg, const struct client_event *e), void *arg,
                  uint64_t timeout_ns, const volatile sig_atomic_t *stop)
{
    uint64_t deadline_ns = timeout_ns ? clock_monotonic() + timeout_ns : 0;
    while (anything_started(c)) {
        if (stop && *stop)
            return err_set(-ECANCELED, "stopped");
        if (c->over)
            return gone(c);
        int rc = next_message(c, deadline_ns);
        if (rc == 0)
            return err_set(-ETIMEDOUT, "%s said nothing in time", c->where);
        if (rc == -EINTR)
            continue;
        if (rc < 0)
            return rc;
        struct arena a;
        struct client_event e;
        arena_init(&a, 8 * (size_t)MESSAGE_BYTES);
        rc = read_event(c, &a, &e);
        if (rc > 0)
            rc = on_event(arg, &e);
        arena_done(&a);
        if (rc != 0)
            return rc;
    }
    return 0;
}

struct one_run {
    struct probing_client *c;
    int64_t id;
    int (*write)(void *arg, const char *data, size_t size);
    void *arg;
    int refused; /* what write() gave, when negative: then we only wait for the end */
    int status;
    char why[ERR_TEXT_BYTES];
};

static int on_run(void *arg, const struct client_event *e)
{
    struct one_run *r = arg;
    if (e->id != r->id)
        return 0;
    if (e->kind == CLIENT_DATA && !r->refused) {
        int rc = r->write ? r->write(r->arg, e->text, e->size) : 0;
        if (rc < 0) {
            r->refused = rc;
            return client_cancel(r->c, r->id);
        }
    }
    if (e->kind != CLIENT_DONE)
        return 0;
    r->status = e->status;
    (void)snprintf(r->why, sizeof(r->why), "%s", e->text);
    return 1;
}

int client_run(struct probing_client *c, int argc, const char *const *argv, uint64_t timeout_ns,
               int (*write)(void *arg, const char *data, size_t size), void *arg, int *ret_status)
{
    struct one_run r = {.c = c, .write = write, .arg = arg};
    r.id = client_start_run(c, argc, argv, timeout_ns);
    if (r.id < 0)
        return (int)r.id;
    int rc = client_stream(c, on_run, &r, timeout_ns ? timeout_ns + GRACE_NS : 0, NULL);
    if (rc < 0)
        return rc;
    if (r.refused)
        return r.refused;
    if (r.status < 0)
        (void)err_set(r.status, "%s", r.why[0] ? r.why : strerror(-r.status));
    (void)snprintf(c->note, sizeof(c->note), "%.250s", r.status < 0 ? "" : r.why);
    *ret_status = r.status;
    return 0;
}

const char *client_note(const struct probing_client *c)
{
    return c->note;
}
