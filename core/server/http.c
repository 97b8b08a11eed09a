/* SPDX-License-Identifier: Apache-2.0
 *
 * core/server/http.c - HTTP/1.1: a request becomes a command, its answer and status a response.
 *
 * Loop only.  The first 64 KiB of an answer are kept back so that the command's end can choose the
 * status; a longer one is streamed in chunks, and one that breaks off is not ended properly, so no
 * client takes it for whole.  Requests of one connection are answered one after another.
 */
#include "core/server/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/gzip.h"
#include "core/base/printable.h"
#include "core/server/internal.h"
#include "core/server/message.h"
#include "core/server/pack.h"
#include "sdk/lib/json.h"

#define COOKIE "probing_token_" /* and the port: cookies do not know ports */
#define SQUEEZE_BYTES 1024      /* what is shorter is sent as it is */
static const char text_type[] = "text/plain; charset=utf-8";
static const char json_type[] = "application/json";

/* ---- answers ---- */

static const struct {
    int code;
    const char *name;
    int status;
} codes[] = {
    {-ENOENT, "ENOENT", 404},
    {-EACCES, "EACCES", 403},
    {-EPERM, "EPERM", 403},
    {-EAGAIN, "EAGAIN", 503},
    {-ETIMEDOUT, "ETIMEDOUT", 504},
    {-ECANCELED, "ECANCELED", 504},
    {-EINVAL, "EINVAL", 400},
    {-ERANGE, "ERANGE", 400},
    {-EEXIST, "EEXIST", 400},
    {-EALREADY, "EALREADY", 400},
    {-EBUSY, "EBUSY", 400},
    {-ENOMEM, "ENOMEM", 400},
    {-ENOSPC, "ENOSPC", 400},
    {-EIO, "EIO", 400},
    {-EMSGSIZE, "EMSGSIZE", 413},
    {-ENOTSUP, "ENOTSUP", 501},
    {-ENODEV, "ENODEV", 400},
    {-ENOSYS, "ENOSYS", 400},
    {-ESHUTDOWN, "ESHUTDOWN", 503},
    {-E2BIG, "E2BIG", 413},
    {-EINPROGRESS, "EINPROGRESS", 503},
};

static const char *status_reason(int status)
{
    static const struct {
        int status;
        const char *text;
    } reasons[] = {
        {200, "OK"},
        {303, "See Other"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {413, "Content Too Large"},
        {422, "Unprocessable Content"},
        {426, "Upgrade Required"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {501, "Not Implemented"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
    };
    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
        if (reasons[i].status == status)
            return reasons[i].text;
    return "Error";
}

/* The address that a connection came to.  any.sa_family is AF_UNSPEC where it is not known. */
union local_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static union local_address local_address(int fd)
{
    union local_address a = {.any = {.sa_family = AF_UNSPEC}};
    socklen_t n = sizeof(a);
    if (getsockname(fd, &a.any, &n) != 0)
        a.any.sa_family = AF_UNSPEC;
    return a;
}

/* The port this connection came to; 0: a unix socket. */
static unsigned local_port(int fd)
{
    union local_address a = local_address(fd);
    return a.any.sa_family == AF_INET    ? ntohs(a.v4.sin_port)
           : a.any.sa_family == AF_INET6 ? ntohs(a.v6.sin6_port)
                                         : 0;
}

static void add_head(struct connection *p, int status, const char *type, bool gzip)
{
    static const char own_page[] = "default-src 'self'; style-src 'self' 'unsafe-inline'";
    (void)buf_addf(&p->out,
                   "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nCache-Control: no-store\r\n"
                   "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
                   "X-Frame-Options: DENY\r\nContent-Security-Policy: %s\r\nConnection: %s\r\n",
                   status, status_reason(status), type, p->policy ? p->policy : own_page,
                   p->keep_alive ? "keep-alive" : "close");
    if (gzip)
        (void)buf_adds(&p->out, "Content-Encoding: gzip\r\n");
    if (p->allowed)
        (void)buf_addf(&p->out, "Allow: %s\r\n", p->allowed);
    if (status == 429)
        (void)buf_adds(&p->out, "Retry-After: 1\r\n");
    if (p->cookie) /* a browser that came with ?token= need not show it in every address */
        (void)buf_addf(&p->out,
                       "Set-Cookie: " COOKIE "%u=%s; HttpOnly; SameSite=Strict; Path=/\r\n",
                       local_port(p->fd), p->server->tokens[p->cookie]);
}

/* Say how an answer that worked is incomplete; one line, whatever was in it. */
static void add_note(struct connection *p, const char *note, size_t n)
{
    if (n == 0)
        return;
    (void)buf_adds(&p->out, "Probing-Note: ");
    (void)printable_add(&p->out, note, n, PRINTABLE_LINE);
    (void)buf_adds(&p->out, "\r\n");
}

/* The answer's bytes as the client wants them: 0, or it stays as it is. */
static int squeeze_whole(const char *body, size_t n, struct buf *ret)
{
    struct squeeze *q = squeeze_new();
    int rc = q ? squeeze_add(q, body, n, /* last= */ true, ret) : -ENOMEM;
    squeeze_free(q);
    return rc;
}

static void add_whole(struct connection *p, int status, const char *type, const struct chunk *noted,
                      const char *body, size_t n)
{
    struct buf small;
    buf_init(&small, 2 * n + SERVER_HEADER_BYTES);
    bool gzip = p->gzip && n >= SQUEEZE_BYTES && squeeze_whole(body, n, &small) == 0;
    add_head(p, status, type, gzip);
    if (noted)
        add_note(p, noted->data, noted->size);
    (void)buf_addf(&p->out, "Content-Length: %zu\r\n\r\n", gzip ? small.size : n);
    if (!p->is_head)
        (void)buf_add(&p->out, gzip ? small.data : body, gzip ? small.size : n);
    buf_done(&small);
}

void server_http_whole(struct connection *p, int status, const char *type, const char *body,
                       size_t n)
{
    add_whole(p, status, type, /* noted= */ NULL, body, n);
}

void server_http_see(struct connection *p, const char *path)
{
    add_head(p, 303, text_type, /* gzip= */ false);
    (void)buf_addf(&p->out, "Location: %s\r\nContent-Length: 0\r\n\r\n", path);
}

/* An error as JSON.  hint: where what to do begins in `why`; 0: nowhere. */
static void add_error(struct connection *p, int status, int code, struct slice why, size_t hint)
{
    const char *name = "ERROR";
    struct buf body;
    buf_init(&body, 16 * ERR_TEXT_BYTES);
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
        if (codes[i].code == code) {
            name = codes[i].name;
            status = status ? status : codes[i].status;
        }
    bool has = hint >= 2 && hint < why.size; /* behind "; " */
    (void)buf_addf(&body, "{\"error\":{\"code\":\"%s\",\"message\":", name);
    (void)json_add_text(&body, why.data, has ? hint - 2 : why.size);
    (void)buf_adds(&body, ",\"hint\":");
    (void)json_add_text(&body, why.data + (has ? hint : 0), has ? why.size - hint : 0);
    (void)buf_adds(&body, "}}\n");
    server_http_whole(p, status ? status : 400, json_type, buf_text(&body), body.size);
    buf_done(&body);
}

/* Refuse a request and end the connection: what follows it cannot be trusted to be a request. */
static int refuse_request(struct connection *p, int status, int code, const char *why)
{
    p->keep_alive = false;
    p->closing = true;
    if (why != err_text())
        (void)err_set(code, "%s", why);
    add_error(p, status, code, (struct slice){why, strlen(why)}, err_hint(why));
    return 0;
}

static void add_chunk(struct connection *p, const char *data, size_t n)
{
    if (n == 0 || p->is_head)
        return;
    if (!p->old_http)
        (void)buf_addf(&p->out, "%zx\r\n", n);
    (void)buf_add(&p->out, data, n);
    if (!p->old_http)
        (void)buf_adds(&p->out, "\r\n");
}

static void add_part(struct connection *p, struct job *j, const char *data, size_t n, bool last)
{
    struct buf small;
    if (!j->squeeze) {
        add_chunk(p, data, n);
        return;
    }
    buf_init(&small, 2 * n + SERVER_HEADER_BYTES);
    if (squeeze_add(j->squeeze, data, n, last, &small) == 0)
        add_chunk(p, small.data, small.size);
    else
        p->out.failed = -ENOMEM; /* closes the connection: half a stream is no answer */
    buf_done(&small);
}

static const char *type_of(const struct connection *p, const struct job *j)
{
    return j->reply.media_type ? j->reply.media_type : p->content_type;
}

static void start_stream(struct connection *p, struct job *j)
{
    p->keep_alive = p->keep_alive && !p->old_http;
    j->squeeze = p->gzip ? squeeze_new() : NULL;
    add_head(p, 200, type_of(p, j), j->squeeze != NULL);
    (void)buf_adds(&p->out, p->old_http ? "\r\n"
                                        : "Transfer-Encoding: chunked\r\n"
                                          "Trailer: Probing-Status, Probing-Note\r\n\r\n");
    add_part(p, j, j->hold.data, j->hold.size, /* last= */ false);
    buf_done(&j->hold);
    buf_init(&j->hold, 0);
    j->streaming = true;
}

static void end_stream(struct connection *p, struct job *j, struct chunk *piece)
{
    struct buf line;
    buf_init(&line, 2 * ERR_TEXT_BYTES);
    if (piece->status < 0) { /* 200 was said already: say it in words, and break off */
        (void)buf_adds(&line, "\nerror: the answer is incomplete: ");
        (void)buf_add(&line, piece->data, piece->size);
        (void)buf_addc(&line, '\n');
        p->keep_alive = false;
    }
    add_part(p, j, buf_text(&line), line.size, /* last= */ true);
    if (piece->status >= 0 && !p->old_http && !p->is_head) {
        (void)buf_addf(&p->out, "0\r\nProbing-Status: %d\r\n", piece->status);
        add_note(p, piece->data, piece->size);
        (void)buf_adds(&p->out, "\r\n");
    }
    buf_done(&line);
}

void server_http_encode(struct connection *p, struct chunk *piece)
{
    struct job *j = piece->job;
    if (!j) {
        (void)refuse_request(p, 503, -EAGAIN, "no memory for this request");
        return;
    }
    if (piece->kind != CHUNK_DONE) {
        if (!j->streaming && j->hold.size + piece->size > SERVER_HOLD_BYTES)
            start_stream(p, j);
        if (j->streaming)
            add_part(p, j, piece->data, piece->size, /* last= */ false);
        else
            (void)buf_add(&j->hold, piece->data, piece->size);
        return;
    }
    if (j->streaming)
        end_stream(p, j, piece);
    else if (piece->status < 0)
        add_error(p, 0, piece->status, (struct slice){piece->data, piece->size}, j->hint);
    else
        add_whole(p, piece->status == 0 ? 200 : 422, type_of(p, j), piece, j->hold.data,
                  j->hold.size);
    if (!p->keep_alive)
        p->closing = true;
    server_job_remove(j);
}

/* ---- who may ask ---- */

/* The address this connection came to, as a Host would write it: a number is safe to allow. */
static void local_name(int fd, char *out, size_t size)
{
    union local_address a = local_address(fd);
    out[0] = 0;
    if (a.any.sa_family == AF_INET) {
        (void)inet_ntop(AF_INET, &a.v4.sin_addr, out, (socklen_t)size);
    } else if (a.any.sa_family == AF_INET6 && size > 3) {
        out[0] = '[';
        if (inet_ntop(AF_INET6, &a.v6.sin6_addr, out + 1, (socklen_t)size - 2))
            memcpy(out + strlen(out), "]", 2);
    }
}

static enum access cookie_access(struct connection *p, struct slice cookie)
{
    char name[32];
    size_t length = (size_t)snprintf(name, sizeof(name), COOKIE "%u=", local_port(p->fd));
    const char *at = cookie.data, *end = cookie.data + cookie.size;
    enum access found = ACCESS_NONE;
    while (at && at < end) {
        const char *stop = memchr(at, ';', (size_t)(end - at));
        stop = stop ? stop : end;
        while (at < stop && *at == ' ')
            at++;
        size_t n = (size_t)(stop - at);
        if (!found && n > length && memcmp(at, name, length) == 0)
            found = server_token_access(p->server, at + length, n - length);
        at = stop + 1;
    }
    return found;
}

/* Give the access of the request's token.  A cookie comes along by itself, also when a page of
 * another port of this machine asks (to browsers that is the same site), so it counts only for
 * our pages; browsers that do not say whose page asks send an Origin with all that writes. */
static enum access token_access(struct connection *p, const struct http_request *r)
{
    struct slice a = r->authorization;
    if (a.size > 7 && strncasecmp(a.data, "Bearer ", 7) == 0)
        return server_token_access(p->server, a.data + 7, a.size - 7);
    struct buf given;
    buf_init(&given, SERVER_TOKEN_BYTES);
    if (server_http_parameter(r->query, "token", &given) == 1)
        p->cookie = server_token_access(p->server, buf_text(&given), given.size);
    buf_done(&given);
    if (p->cookie)
        return p->cookie;
    bool foreign = r->fetch_site.data && !server_slice_is(r->fetch_site, "same-origin") &&
                   !server_slice_is(r->fetch_site, "none");
    return foreign ? ACCESS_NONE : cookie_access(p, r->cookie);
}

/* 0: may ask; else the HTTP status, *ret_why the sentence. */
static int check_request(struct connection *p, const struct http_request *r, const char **ret_why)
{
    p->cookie = ACCESS_NONE;
    if (r->origin.data &&
        !server_origin_allowed(r->origin.data, r->origin.size, r->host.data, r->host.size)) {
        *ret_why = "this request comes from a page of another origin; open the address itself";
        return 403;
    }
    if (p->local)
        return 0;
    char local[INET6_ADDRSTRLEN + 2], name[sizeof(p->server->host_name)];
    local_name(p->fd, local, sizeof(local));
    (void)pthread_mutex_lock(&p->server->mutex);
    memcpy(name, p->server->host_name, sizeof(name));
    (void)pthread_mutex_unlock(&p->server->mutex);
    if (!r->host.data || !server_host_allowed(r->host.data, r->host.size, name, local)) {
        *ret_why = "the Host header names another machine; ask by number or as localhost";
        return 403;
    }
    enum access access = token_access(p, r);
    if (!access) {
        *ret_why = "the token is missing or wrong; send the header 'Authorization: Bearer TOKEN' "
                   "or open the address with ?token=TOKEN (`probing -t PID ui` prints it)";
        return 401;
    }
    if (server_connection_admit(p, access) == 0)
        return 0;
    *ret_why = SERVER_FULL;
    return 503;
}

/* ---- what is asked ---- */

static int upgrade_connection(struct connection *p, const struct http_request *r, size_t used)
{
    struct buf request;
    if (!r->upgrade || !server_slice_is(r->method, "GET") || r->ws_key.size != 24 ||
        !server_slice_is(r->ws_version, "13"))
        return refuse_request(p, 426, -EINVAL, "/ws is a websocket, version 13");
    for (size_t i = 0; i < r->ws_key.size; i++)
        if (!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=",
                    r->ws_key.data[i]))
            return refuse_request(p, 400, -EINVAL, "Sec-WebSocket-Key is not base64");
    bool named = r->ws_protocol.data != NULL;
    if (named && !memmem(r->ws_protocol.data, r->ws_protocol.size, "probing.1", 9))
        return refuse_request(p, 400, -EINVAL, "the subprotocol spoken here is probing.1");
    /* The library gets a request of our own making: it parses nothing that came from outside. */
    buf_init(&request, SERVER_HEADER_BYTES);
    (void)buf_addf(&request,
                   "GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
                   "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                   "Sec-WebSocket-Key: %.24s\r\n%s\r\n",
                   r->ws_key.data, named ? "Sec-WebSocket-Protocol: probing.1\r\n" : "");
    if (server_frames_arrived(&p->frames, p->in.data + used, p->in.size - used, clock_now()) != 0) {
        buf_done(&request);
        return refuse_request(p, 400, -EINVAL,
                              "what follows the request is not a websocket client's frame");
    }
    if (p->in.size > used) /* frames that came before our answer: early, but not wrong */
        (void)buf_add(&request, p->in.data + used, p->in.size - used);
    server_raw_used(p, p->in.size);
    int rc = request.failed ? -1 : server_ws_handover(p, buf_text(&request), request.size);
    buf_done(&request);
    return rc;
}

/* For paths of Prometheus's and Grafana's servers, name the ones that serve here. */
static const char *no_such_path(const struct http_request *r)
{
    const char *path = r->path.data;
    size_t size = r->path.size;
    if (size >= 5 && memcmp(path, "/api/", 5) == 0)
        return "no such path: this is no server of Prometheus or Grafana; it is scraped at GET "
               "/metrics, GET /query?q=select+1 takes SQL, GET / lists all paths";
    if ((size >= 3 && memcmp(path, "/-/", 3) == 0) ||
        (size >= 7 && memcmp(path, "/health", 7) == 0))
        return "no such path; GET /healthz says whether it is well";
    return "no such path; GET / lists them";
}

/* A browser came without a token, or with a wrong one. */
static void ask_for_token(struct connection *p)
{
    p->keep_alive = false;
    p->closing = true;
    server_http_whole(p, 401, "text/html; charset=utf-8", (const char *)pack_page_token_html,
                      pack_page_token_html_size);
}

/* Is it somebody who may ask, and a path and method that there are?  1: it is refused, 0:
 * *ret_route; NULL for the websocket's. */
static int find_route(struct connection *p, const struct http_request *r,
                      const struct route **ret_route)
{
    const char *why = NULL;
    int rc = p->continued ? 0 : server_connection_may_ask(p);
    if (rc < 0) {
        (void)refuse_request(p, rc == -EACCES ? 403 : 429, rc, err_text());
        return 1;
    }
    int status = check_request(p, r, &why);
    if (status != 0) {
        server_log_refusal(p, why);
        if (status == 401 && r->wants_html)
            ask_for_token(p);
        else
            (void)refuse_request(p, status, status == 503 ? -EAGAIN : -EACCES, why);
        return 1;
    }
    *ret_route = server_route_find(r);
    if (!*ret_route && !server_slice_is(r->path, "/ws")) {
        (void)refuse_request(p, 404, -ENOENT, no_such_path(r));
        return 1;
    }
    if (*ret_route && !server_route_takes(*ret_route, r)) {
        p->allowed = server_route_methods(*ret_route);
        (void)refuse_request(p, 405, -EINVAL,
                             "this path does not take that method; GET / lists them");
        p->allowed = NULL;
        return 1;
    }
    return 0;
}

/* The headers are here: answer, start a command, or say -EAGAIN while the body has not all come. */
static int take_request(struct connection *p, const struct http_request *r, size_t used)
{
    const struct route *route = NULL;
    p->keep_alive = r->keep_alive;
    p->old_http = r->old;
    p->is_head = server_slice_is(r->method, "HEAD");
    p->gzip = r->gzip;
    p->content_type = text_type;
    p->policy = NULL;
    if (find_route(p, r, &route) != 0)
        return 0;
    if (!route)
        return upgrade_connection(p, r, used);
    if (p->in.size - used < r->content_length) {
        if (r->expects && !p->continued)
            (void)buf_adds(&p->out, "HTTP/1.1 100 Continue\r\n\r\n");
        p->continued = true;
        return -EAGAIN;
    }
    /* `r` and the body point into p->in, which is shortened when the command has its copy. */
    int rc = server_route_run(p, route, r, (struct slice){p->in.data + used, r->content_length});
    if (rc < 0) {
        const char *why = err_why(rc);
        add_error(p, 0, rc, (struct slice){why, strlen(why)}, err_hint(why));
    }
    if (!p->keep_alive && !p->jobs)
        p->closing = true;
    server_raw_used(p, used + r->content_length);
    p->continued = false;
    server_connection_wait(p, WAIT_NOTHING, 0); /* also of the limit for this request: it is here */
    return 0;
}

/* Empty lines between requests: RFC 9112, 2.2.  The bytes end with `size`, not with a NUL. */
static size_t count_blank_bytes(const struct buf *in)
{
    size_t n = 0;
    while (n < in->size && (in->data[n] == '\r' || in->data[n] == '\n'))
        n++;
    return n;
}

int server_http_receive(struct connection *p)
{
    int code;
    if (p->eof && p->jobs)
        return -1; /* a browser or curl that went away looks like this; see docs/protocol.md */
    if (p->told && !p->closing) {
        const char *why = server_connection_why(p, &code);
        (void)refuse_request(p, code == -EACCES ? 403 : 503, code, why);
    }
    while (!p->jobs && !p->closing && p->in.size > 0 && p->out.size <= SERVER_CHUNK_BYTES) {
        struct http_request r;
        size_t blank = count_blank_bytes(&p->in);
        if (blank > 0 && blank < p->in.size) {
            server_raw_used(p, blank);
            continue;
        }
        err_clear();
        p->is_head = false; /* of the one before */
        int used = server_http_parse(p->in.data, p->in.size, &r);
        if (used < 0)
            return refuse_request(p, 0, used, err_why(used));
        if ((used > 0 ? (size_t)used : p->in.size) > SERVER_HEADER_BYTES)
            return refuse_request(p, 431, -EMSGSIZE, "the headers are longer than 16 KiB");
        int rc = used > 0 ? take_request(p, &r, (size_t)used) : -EAGAIN;
        if (rc == -EAGAIN)
            return p->eof ? -1 : 0;
        if (rc < 0)
            return -1;
    }
    return 0;
}
