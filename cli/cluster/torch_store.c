/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/cluster/torch_store.c - one value out of a TCPStore, as its own clients ask for it.
 *
 * One thread.
 *
 * A request is one byte that says what is wanted, and arguments; numbers are little endian.  A text
 * is its size (8 bytes) and its bytes; a key has '/' before its name.  Seen with torch 1.13 and
 * 2.13, there with both of its servers (libuv, and USE_LIBUV=0):
 *
 *                          2.13              1.13
 *     first of all         00 ce f7 85 3c    nothing
 *     are there keys?      05 n(8) text...   04 n(8) text...    answer: 00 yes, 01 no
 *     value of a key       03 text           02 text            answer: text
 *     how many keys?       07                06                 answer: number (8)
 *
 * The server of 1.13 has one thread and waits in it for the rest of a request that has begun: one
 * that it takes for a longer one would stop the job.  So a store is first asked, on a connection of
 * its own, what is whole in the old protocol: how many keys there are.  Nothing follows, which is
 * said at once (shutdown()): an old one answers eight bytes, a new one, for which that is no
 * greeting, closes, and none of them can be left waiting.
 */
#include "cli/cluster/torch_store.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/terminal/interrupt.h"
#include "core/base/clock.h"
#include "core/base/err.h"

#define TURN_NS (100 * NS_PER_MS) /* between looks at Ctrl-C */
#define OLD_COUNT 6
#define KEY_BYTES 1024

struct store {
    const char *host;
    uint16_t port;
    uint64_t deadline_ns;
    int fd;
    bool old; /* before the greeting came in */
};

static int store_fail(const struct store *s, int code, const char *what)
{
    return err_set(code, "torch's store at %s:%u %s", s->host, s->port, what);
}

static int store_wait(const struct store *s, short events)
{
    struct pollfd p = {.fd = s->fd, .events = events};

    for (;;) {
        uint64_t now = clock_monotonic();
        if (cli_interrupted)
            return err_set(-ECANCELED, "interrupted");
        if (now >= s->deadline_ns)
            return store_fail(s, -ETIMEDOUT, "does not answer in time");
        uint64_t left = s->deadline_ns - now;
        int n = poll(&p, 1, (int)((left < TURN_NS ? left : TURN_NS) / NS_PER_MS) + 1);
        if (n == -1 && errno != EINTR)
            return err_set(-errno, "poll: %s", strerror(errno));
        if (n > 0)
            return 0;
    }
}

static int store_send(const struct store *s, const struct buf *b)
{
    int rc;

    for (size_t at = 0; at < b->size;) {
        ssize_t n = send(s->fd, b->data + at, b->size - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0)
            at += (size_t)n;
        else if (errno != EAGAIN && errno != EINTR)
            return store_fail(s, -errno, "has closed the connection");
        else if ((rc = store_wait(s, POLLOUT)) < 0)
            return rc;
    }
    return 0;
}

/* Exactly so many bytes.  *ret_n: how many have come, where it fails. */
static int store_receive(const struct store *s, char *ret, size_t size, size_t *ret_n)
{
    for (*ret_n = 0; *ret_n < size;) {
        ssize_t n = recv(s->fd, ret + *ret_n, size - *ret_n, MSG_DONTWAIT);
        if (n > 0) {
            *ret_n += (size_t)n;
        } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            return store_fail(s, -ECONNRESET, "has closed the connection");
        } else {
            int rc = store_wait(s, POLLIN);
            if (rc < 0)
                return rc;
        }
    }
    return 0;
}

static int connect_one(struct store *s, const struct addrinfo *a)
{
    int error = 0;
    socklen_t n = sizeof(error);

    s->fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s->fd == -1)
        return err_set(-errno, "no socket: %s", strerror(errno));
    if (connect(s->fd, a->ai_addr, a->ai_addrlen) == 0)
        return 0;
    if (errno != EINPROGRESS)
        return err_set(-errno, "cannot connect to torch's store at %s:%u: %s", s->host, s->port,
                       strerror(errno));
    int rc = store_wait(s, POLLOUT);
    if (rc == 0 && getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &error, &n) == 0 && error != 0)
        rc = err_set(-error, "cannot connect to torch's store at %s:%u: %s", s->host, s->port,
                     strerror(error));
    return rc;
}

static void store_close(struct store *s)
{
    if (s->fd != -1)
        (void)close(s->fd);
    s->fd = -1;
}

static int store_connect(struct store *s)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *list;
    char service[8];

    (void)snprintf(service, sizeof(service), "%u", s->port);
    int rc = getaddrinfo(s->host, service, &hints, &list);
    if (rc != 0)
        return err_set(-ENOENT, "no machine '%s': %s", s->host, gai_strerror(rc));
    rc = -ENOENT;
    for (const struct addrinfo *a = list; a != NULL && rc < 0 && rc != -ECANCELED; a = a->ai_next) {
        store_close(s);
        rc = connect_one(s, a);
    }
    freeaddrinfo(list);
    return rc;
}

/* Which protocol it speaks: see above. */
static int store_find_protocol(struct store *s)
{
    struct buf ask;
    char answer[8];
    size_t n = 0;
    int rc = store_connect(s);

    buf_init(&ask, 64);
    (void)buf_addc(&ask, OLD_COUNT);
    if (rc == 0)
        rc = store_send(s, &ask);
    if (rc == 0 && shutdown(s->fd, SHUT_WR) == -1)
        rc = store_fail(s, -ECONNRESET, "has closed the connection");
    if (rc == 0)
        rc = store_receive(s, answer, sizeof(answer), &n);
    buf_done(&ask);
    store_close(s);
    s->old = rc == 0;
    if (rc == 0 && answer[7] != 0)
        rc = store_fail(s, -EPROTO, "does not speak the protocol of a TCPStore");
    if (rc == -ECONNRESET || rc == -EPIPE)
        rc = n == 0 ? 0 : store_fail(s, -EPROTO, "does not speak the protocol of a TCPStore");
    return rc;
}

static void add_number(struct buf *b, uint64_t n)
{
    char bytes[8];

    for (int i = 0; i < 8; i++)
        bytes[i] = (char)(n >> 8 * i);
    (void)buf_add(b, bytes, sizeof(bytes));
}

static void add_text(struct buf *b, const char *key)
{
    add_number(b, strlen(key) + 1);
    (void)buf_addc(b, '/');
    (void)buf_adds(b, key);
}

/* Greeting and question in one: the store reads them one after the other. */
static int ask_check(struct store *s, const char *key)
{
    struct buf ask;
    char answer = 0;
    size_t n;

    buf_init(&ask, KEY_BYTES + 64);
    if (!s->old)
        (void)buf_add(&ask, "\0\xce\xf7\x85\x3c", 5);
    (void)buf_addc(&ask, s->old ? 4 : 5);
    add_number(&ask, 1);
    add_text(&ask, key);
    int rc =
        ask.failed ? err_set(-EINVAL, "the key '%.80s...' is too long", key) : store_send(s, &ask);
    if (rc == 0)
        rc = store_receive(s, &answer, 1, &n);
    buf_done(&ask);
    if (rc == 0 && answer != 0)
        rc = answer == 1
                 ? err_set(-ENOENT, "torch's store at %s:%u has no key '%s'", s->host, s->port, key)
                 : store_fail(s, -EPROTO, "does not speak the protocol of a TCPStore");
    return rc;
}

/* Asked only for what is there: for what is not, some of them close the connection. */
static int ask_value(struct store *s, const char *key, struct buf *ret)
{
    struct buf ask;
    unsigned char head[8];
    uint64_t size = 0;
    size_t n;

    buf_init(&ask, KEY_BYTES + 64);
    (void)buf_addc(&ask, s->old ? 2 : 3);
    add_text(&ask, key);
    int rc = store_send(s, &ask);
    buf_done(&ask);
    if (rc == 0)
        rc = store_receive(s, (char *)head, sizeof(head), &n);
    if (rc < 0)
        return rc;
    for (int i = 7; i >= 0; i--)
        size = size << 8 | head[i];
    if (size > TORCH_VALUE_BYTES)
        return store_fail(s, -EMSGSIZE, "says that a value has more than 16 MB");
    char *room = buf_room(ret, (size_t)size);
    if (room == NULL)
        return err_set(-ENOMEM, "no room for a value of torch's store");
    rc = store_receive(s, room, (size_t)size, &n);
    if (rc == 0)
        ret->size += (size_t)size;
    return rc;
}

int torch_store_get(const char *host, uint16_t port, const char *key, uint64_t timeout_ns,
                    struct buf *ret)
{
    struct store s = {
        .host = host, .port = port, .deadline_ns = clock_monotonic() + timeout_ns, .fd = -1};
    int rc = store_find_protocol(&s);

    if (rc == 0)
        rc = store_connect(&s);
    if (rc == 0)
        rc = ask_check(&s, key);
    if (rc == 0)
        rc = ask_value(&s, key, ret);
    store_close(&s);
    return rc;
}
