/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/ship/http_post.c - see http_post.h.
 *
 * One thread.  RFC 9112.
 */
#include "cli/ship/http_post.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/cli.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "sdk/lib/number.h"

#define TIMEOUT_NS (30 * NS_PER_S) /* of a request, from connecting to the end of the answer */
#define LOOK_NS (200 * NS_PER_MS)  /* between looks at Ctrl-C */
#define HEAD_BYTES ((size_t)16 << 10)
#define RETRY_AFTER_MAX 3600 /* seconds that a server may have us wait */

/* ---- where ---- */

static int bad_place(const char *rest, const char *why)
{
    return err_set(-EINVAL, "the address '...://%.200s' %s", rest, why);
}

static int take_host(const char *rest, const char *at, size_t n, const char *port, struct http *ret)
{
    const char *end = at + n, *colon = NULL;
    bool number = at < end && *at == '[';
    const char *close = number ? memchr(at, ']', n) : NULL;

    if (number && close == NULL)
        return bad_place(rest, "has a '[' without ']'");
    for (const char *c = close != NULL ? close : at; c < end; c++)
        colon = *c == ':' ? c : colon;
    const char *first = number ? at + 1 : at;
    size_t host = (size_t)((number ? close : colon != NULL ? colon : end) - first);
    size_t digits = colon != NULL ? (size_t)(end - colon - 1) : 0;
    uint64_t value = 0;
    if (host == 0 || host >= sizeof(ret->host))
        return bad_place(rest, "names no host");
    for (size_t i = 0; i < host; i++)
        if ((unsigned char)first[i] <= ' ' || first[i] == 127)
            return bad_place(rest, "has a host with a blank in it");
    (void)snprintf(ret->host, sizeof(ret->host), "%.*s", (int)host, first);
    (void)snprintf(ret->port, sizeof(ret->port), "%s", port);
    if (colon == NULL)
        return 0;
    if (number_u64(colon + 1, digits, &value) < 0 || value == 0 || value > 65535)
        return bad_place(rest, "has a port that is none");
    (void)snprintf(ret->port, sizeof(ret->port), "%u", (unsigned)value);
    return 0;
}

int http_place(const char *rest, const char *port, struct http *ret)
{
    size_t n = strcspn(rest, "/?"), tail = strcspn(rest + n, "?");
    const char *at = memchr(rest, '@', n), *secret = at != NULL ? memchr(rest, ':', n) : NULL;

    *ret = (struct http){.fd = -1};
    if (secret != NULL && secret < at)
        return err_set(-EINVAL,
                       "a password in the address can be read by everybody (ps): name the user "
                       "there, and give the password by --secret FILE or PROBING_SHIP_SECRET");
    for (const char *c = rest; *c != '\0'; c++)
        if ((unsigned char)*c <= ' ' || *c == 127 || *c == '#')
            return bad_place(rest, "has a blank or '#' in it: write it as %20 or %23");
    if (tail >= sizeof(ret->path) || strlen(rest + n + tail) >= sizeof(ret->query))
        return bad_place(rest, "is too long");
    if (at != NULL && (size_t)(at - rest) >= sizeof(ret->user))
        return bad_place(rest, "has too long a user");
    if (at != NULL)
        (void)snprintf(ret->user, sizeof(ret->user), "%.*s", (int)(at - rest), rest);
    (void)snprintf(ret->path, sizeof(ret->path), "%.*s", (int)tail, rest + n);
    (void)snprintf(ret->query, sizeof(ret->query), "%s",
                   rest[n + tail] == '?' ? rest + n + tail + 1 : "");
    const char *host = at != NULL ? at + 1 : rest;
    return take_host(rest, host, (size_t)(rest + n - host), port, ret);
}

static void add_base64(struct buf *b, const unsigned char *data, size_t n)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    for (size_t i = 0; i < n; i += 3) {
        uint32_t three = (uint32_t)data[i] << 16 | (i + 1 < n ? (uint32_t)data[i + 1] << 8 : 0) |
                         (i + 2 < n ? data[i + 2] : 0u);
        (void)buf_addc(b, letters[three >> 18]);
        (void)buf_addc(b, letters[three >> 12 & 63]);
        (void)buf_addc(b, i + 1 < n ? letters[three >> 6 & 63] : '=');
        (void)buf_addc(b, i + 2 < n ? letters[three & 63] : '=');
    }
}

int http_authorize(struct http *h, const char *secret)
{
    struct buf line, pair;

    if (secret == NULL && h->user[0] == '\0')
        return 0;
    for (const char *c = secret != NULL ? secret : ""; *c != '\0'; c++)
        if ((unsigned char)*c < ' ' || *c == 127)
            return err_set(-EINVAL, "the secret has a control character in it");
    buf_init(&line, sizeof(h->authorization) - 1);
    buf_init(&pair, sizeof(h->authorization));
    (void)buf_addf(&pair, "%s:%s", h->user, secret != NULL ? secret : "");
    (void)buf_adds(&line, h->user[0] != '\0' ? "Authorization: Basic " : "Authorization: Bearer ");
    if (h->user[0] != '\0')
        add_base64(&line, (const unsigned char *)buf_text(&pair), pair.size);
    else
        (void)buf_adds(&line, secret);
    (void)buf_adds(&line, "\r\n");
    int rc = line.failed || pair.failed ? err_set(-EINVAL, "the secret is too long") : 0;
    if (rc == 0)
        (void)snprintf(h->authorization, sizeof(h->authorization), "%s", buf_text(&line));
    buf_done(&line);
    buf_done(&pair);
    return rc;
}

void http_add_escaped(struct buf *b, const char *text)
{
    for (; *text != '\0'; text++)
        if (strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~", *text))
            (void)buf_addc(b, *text);
        else
            (void)buf_addf(b, "%%%02X", (unsigned char)*text);
}

/* ---- the connection ---- */

void http_close(struct http *h)
{
    if (h->fd != -1)
        (void)close(h->fd);
    h->fd = -1;
}

/* Until the descriptor is ready for `events`, or it is too late. */
static int wait_for(int fd, short events, uint64_t until)
{
    for (;;) {
        uint64_t now = clock_monotonic(), left = until > now ? until - now : 0;
        struct pollfd p = {.fd = fd, .events = events};
        int n = poll(&p, 1, (int)((left < LOOK_NS ? left : LOOK_NS) / NS_PER_MS) + 1);
        if (cli_interrupted)
            return err_set(-ECANCELED, "interrupted");
        if (n > 0)
            return 0;
        if (n == -1 && errno != EINTR)
            return err_set(-errno, "poll: %s", strerror(errno));
        if (left == 0)
            return err_set(-ETIMEDOUT, "no answer within %u s", (unsigned)(TIMEOUT_NS / NS_PER_S));
    }
}

static int connect_to(struct http *h, const struct addrinfo *a, uint64_t until)
{
    int failed = 0, one = 1;
    socklen_t size = sizeof(failed);

    h->fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
    if (h->fd == -1)
        return err_set(-errno, "no socket: %s", strerror(errno));
    (void)setsockopt(h->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (connect(h->fd, a->ai_addr, a->ai_addrlen) == 0)
        return 0;
    if (errno != EINPROGRESS)
        return err_set(-errno, "%s", strerror(errno));
    int rc = wait_for(h->fd, POLLOUT, until);
    if (rc == 0 && getsockopt(h->fd, SOL_SOCKET, SO_ERROR, &failed, &size) == -1)
        failed = errno;
    return rc < 0 ? rc : failed != 0 ? err_set(-failed, "%s", strerror(failed)) : 0;
}

static int connect_any(struct http *h, uint64_t until)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    int failed = getaddrinfo(h->host, h->port, &hints, &list), rc = -EADDRNOTAVAIL;

    if (failed != 0)
        return err_set(-EHOSTUNREACH, "%s", gai_strerror(failed));
    for (const struct addrinfo *a = list; a != NULL && rc < 0 && rc != -ECANCELED; a = a->ai_next) {
        http_close(h);
        rc = connect_to(h, a, until);
    }
    freeaddrinfo(list);
    if (rc < 0)
        http_close(h);
    return rc;
}

static int send_all(struct http *h, const char *data, size_t size, uint64_t until)
{
    while (size > 0) {
        ssize_t n = send(h->fd, data, size, MSG_NOSIGNAL);
        if (n > 0) {
            data += n;
            size -= (size_t)n;
            continue;
        }
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            return err_set(-errno, "the connection was closed: %s", strerror(errno));
        int rc = wait_for(h->fd, POLLOUT, until);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- the answer ---- */

struct reading {
    struct http *h;
    uint64_t until;
    char room[8192];
    size_t at, n;
    bool any; /* a byte has come */
};

/* The next byte; -ECONNRESET: it has ended. */
static int next_byte(struct reading *r)
{
    while (r->at == r->n) {
        ssize_t n = recv(r->h->fd, r->room, sizeof(r->room), 0);
        if (n == 0)
            return err_set(-ECONNRESET, "it closed the connection before its answer was whole");
        if (n == -1 && errno != EAGAIN && errno != EINTR)
            return err_set(-errno, "the connection was closed: %s", strerror(errno));
        if (n == -1) {
            int rc = wait_for(r->h->fd, POLLIN, r->until);
            if (rc < 0)
                return rc;
            continue;
        }
        r->at = 0;
        r->n = (size_t)n;
        r->any = true;
    }
    return (unsigned char)r->room[r->at++];
}

/* A line without its end; what is longer than the room is no answer of HTTP. */
static int next_line(struct reading *r, char *line, size_t size, size_t *left)
{
    size_t n = 0;

    for (;;) {
        int c = next_byte(r);
        if (c < 0)
            return c;
        if ((*left)-- == 0 || n + 1 >= size || c == '\0')
            return err_set(-EPROTO, "what it answers is no HTTP");
        if (c == '\n')
            break;
        line[n++] = (char)c;
    }
    line[n - (n > 0 && line[n - 1] == '\r')] = '\0';
    return 0;
}

struct framing {
    bool chunked, has_size, closes;
    uint64_t size;
};

static int take_header(char *line, struct framing *f, struct http_answer *ret)
{
    char *value = strchr(line, ':');
    uint64_t n;

    if (value == NULL)
        return err_set(-EPROTO, "what it answers is no HTTP");
    *value++ = '\0';
    value += strspn(value, " \t");
    size_t size = strlen(value);
    while (size > 0 && strchr(" \t", value[size - 1]) != NULL)
        value[--size] = '\0';
    if (strcasecmp(line, "content-length") == 0) {
        if (number_u64(value, size, &n) < 0 || (f->has_size && f->size != n))
            return err_set(-EPROTO, "its Content-Length is no number");
        f->has_size = true;
        f->size = n;
    } else if (strcasecmp(line, "transfer-encoding") == 0) {
        if (strcasecmp(value, "chunked") != 0)
            return err_set(-EPROTO, "it answers in a way that was not asked for (%.40s)", value);
        f->chunked = true;
    } else if (strcasecmp(line, "connection") == 0) {
        f->closes = f->closes || strcasecmp(value, "close") == 0;
    } else if (strcasecmp(line, "retry-after") == 0 && number_u64(value, size, &n) == 0) {
        ret->retry_after_ns = (n < RETRY_AFTER_MAX ? n : RETRY_AFTER_MAX) * NS_PER_S;
    } else if (strcasecmp(line, "x-clickhouse-exception-code") == 0) {
        (void)number_u64(value, size, &ret->code);
    } else if (strcasecmp(line, "content-type") == 0) {
        ret->is_page = strncasecmp(value, "text/html", 9) == 0;
    } else if (strcasecmp(line, "location") == 0) {
        (void)snprintf(ret->location, sizeof(ret->location), "%s", value);
    }
    return 0;
}

static int read_head(struct reading *r, struct framing *f, struct http_answer *ret, size_t *left)
{
    char line[4096];
    int rc = next_line(r, line, sizeof(line), left);

    if (rc < 0)
        return rc;
    bool new = strncmp(line, "HTTP/1.1 ", 9) == 0;
    uint64_t status;
    if ((!new &&strncmp(line, "HTTP/1.0 ", 9) != 0) || strlen(line) < 12 ||
        number_u64(line + 9, 3, &status) < 0 || status < 100)
        return err_set(-EPROTO, "what it answers is no HTTP");
    f->closes = !new;
    ret->status = (int)status;
    while ((rc = next_line(r, line, sizeof(line), left)) == 0 && line[0] != '\0')
        if ((rc = take_header(line, f, ret)) < 0)
            return rc;
    return rc;
}

/* n bytes of the body; what is beyond our room ends the connection instead. */
static int read_bytes(struct reading *r, uint64_t n, struct http_answer *ret)
{
    for (; n > 0; n--) {
        int c = next_byte(r);
        if (c < 0)
            return c;
        if (ret->body.size >= HTTP_ANSWER_BYTES || buf_addc(&ret->body, (char)c) != 0)
            return 1;
    }
    return 0;
}

static int read_chunks(struct reading *r, struct http_answer *ret)
{
    size_t left = HTTP_ANSWER_BYTES;
    char line[256];

    for (;;) {
        uint64_t n = 0;
        int rc = next_line(r, line, sizeof(line), &left);
        size_t digits = strspn(line, "0123456789abcdefABCDEF");
        if (rc < 0)
            return rc;
        if (digits == 0 || digits > 8)
            return err_set(-EPROTO, "its chunks have no length");
        for (size_t i = 0; i < digits; i++)
            n = n << 4 | (uint64_t)(line[i] <= '9' ? line[i] - '0' : (line[i] | 32) - 'a' + 10);
        if (n == 0)
            break;
        rc = read_bytes(r, n, ret);
        if (rc != 0)
            return rc;
        if ((rc = next_line(r, line, sizeof(line), &left)) < 0)
            return rc;
    }
    int rc;
    while ((rc = next_line(r, line, sizeof(line), &left)) == 0 && line[0] != '\0')
        ;
    return rc;
}

static int read_to_end(struct reading *r, struct http_answer *ret)
{
    int rc = read_bytes(r, UINT64_MAX, ret);

    return rc == -ECONNRESET ? 1 : rc;
}

static int read_answer(struct reading *r, struct http_answer *ret)
{
    struct framing f = {.closes = false};
    size_t left = HEAD_BYTES; /* of all heads: "100 Continue" may come again, but not for ever */
    int rc;

    do {
        f = (struct framing){.closes = false};
        rc = read_head(r, &f, ret, &left);
    } while (rc == 0 && ret->status < 200);
    if (rc < 0)
        return rc;
    if (ret->status != 204 && ret->status != 304)
        rc = f.chunked    ? read_chunks(r, ret)
             : f.has_size ? read_bytes(r, f.size, ret)
                          : read_to_end(r, ret);
    if (rc != 0 || f.closes)
        http_close(r->h);
    return rc < 0 ? rc : 0;
}

/* ---- one request ---- */

static int post_once(struct http *h, const struct http_post *p, struct http_answer *ret, bool *any)
{
    uint64_t until = clock_monotonic() + TIMEOUT_NS;
    struct reading r = {.h = h, .until = until};
    bool six = strchr(h->host, ':') != NULL;
    struct buf head;
    int rc = h->fd == -1 ? connect_any(h, until) : 0;

    buf_init(&head, HEAD_BYTES);
    (void)buf_addf(&head,
                   "POST %s%s%s HTTP/1.1\r\nHost: %s%s%s:%s\r\nUser-Agent: probing\r\n"
                   "Content-Type: %s\r\nContent-Length: %zu\r\n%s%s\r\n",
                   p->path[0] != '\0' ? p->path : "/", p->query[0] != '\0' ? "?" : "", p->query,
                   six ? "[" : "", h->host, six ? "]" : "", h->port, p->type, p->size,
                   h->authorization, p->headers);
    if (rc == 0 && head.failed)
        rc = err_set(-EINVAL, "the address is too long");
    if (rc == 0)
        rc = send_all(h, head.data, head.size, until);
    if (rc == 0)
        rc = send_all(h, p->body, p->size, until);
    buf_done(&head);
    /* A server may answer before all has come, and close: what it says is the better reason. */
    if (rc == 0 || ((rc == -EPIPE || rc == -ECONNRESET) && h->fd != -1)) {
        int read = read_answer(&r, ret);
        rc = read == 0 || rc == 0 ? read : rc;
    }
    *any = r.any;
    if (rc < 0)
        http_close(h);
    return rc;
}

int http_post(struct http *h, const struct http_post *p, struct http_answer *ret)
{
    bool kept = h->fd != -1, any = false;

    *ret = (struct http_answer){.status = 0};
    buf_init(&ret->body, HTTP_ANSWER_BYTES + 1);
    int rc = post_once(h, p, ret, &any);
    /* A connection that was kept may have been closed meanwhile: that says nothing of the server.
     */
    if (rc < 0 && kept && !any && rc != -ECANCELED && rc != -ETIMEDOUT)
        rc = post_once(h, p, ret, &any);
    return rc;
}

int http_judge(const struct http *h, int rc, const struct http_answer *a, uint64_t *ret_wait_ns)
{
    char why[ERR_TEXT_BYTES], said[160];
    int status = a->status;

    *ret_wait_ns = 0;
    if (rc == -ECANCELED)
        return rc;
    if (rc < 0) {
        (void)snprintf(why, sizeof(why), "%s", err_why(rc));
        return err_set(rc == -EPROTO ? -EPROTO : -EAGAIN, "%s:%s: %s", h->host, h->port, why);
    }
    struct buf body = a->body;
    (void)snprintf(said, sizeof(said), "%.*s", (int)strcspn(buf_text(&body), "\r\n"),
                   buf_text(&body));
    if (status >= 200 && status < 300)
        return !a->is_page
                   ? 0
                   : err_set(-EPROTO, "%s:%s answers with a web page: is the path %s right?",
                             h->host, h->port, h->path);
    if (status >= 300 && status < 400)
        return err_set(-EPROTO,
                       "%s:%s leads elsewhere (%d, to '%s'): name that address, redirects are not "
                       "followed",
                       h->host, h->port, status, a->location);
    if (status == 429 || status == 408 || status == 425 || status >= 500) {
        *ret_wait_ns = a->retry_after_ns;
        return err_set(-EAGAIN, "%s:%s answers %d: %s", h->host, h->port, status, said);
    }
    return err_set(status == 413                                                      ? -EFBIG
                   : status == 401 || status == 403 || status == 404 || status == 405 ? -EPROTO
                                                                                      : -EREMOTEIO,
                   "%s:%s answers %d: %s", h->host, h->port, status, said);
}
