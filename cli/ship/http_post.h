/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/ship/http_post.h - bytes to a server by HTTP or HTTPS, one request at a time, over a
 * connection that is kept while the server keeps it.
 *
 * libcurl speaks; what is here says what of it we want.  One thread.  The server is not believed:
 * what it answers is bounded, and it is waited for so long and no longer.  Redirects are not
 * followed: they would take the token elsewhere.  A proxy that the environment names (https_proxy,
 * no_proxy ...) is used, as by other clients.
 */
#ifndef CLI_SHIP_HTTP_POST_H
#define CLI_SHIP_HTTP_POST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/ship/libcurl.h"
#include "sdk/lib/buf.h"

#define HTTP_BODY_BYTES \
    ((size_t)1 << 20) /* of many small things: more go in a request of their own */
#define HTTP_ANSWER_BYTES ((size_t)64 << 10) /* of a body: what is behind is read by nobody */

struct http_options {
    bool tls;
    const char *secret; /* the user's password (Basic), without a user a token (Bearer); NULL */
    const char *ca;     /* file of certificates to trust, in place of the machine's; NULL */
    const char *certificate, *key; /* files of ours, for servers that ask who we are; NULL */
};

struct http {
    char host[256], path[1024], query[1024]; /* path: "/..." */
    char port[8], user[128];
    struct http_options o;
    const struct libcurl *library;
    CURL *easy; /* NULL: not open */
    char why[CURL_ERROR_BYTES];
    size_t most; /* bytes of a body of many small things: HTTP_BODY_BYTES, or what it takes */
};

/* rest: "user@host:8123/path?query"; port: where none is given, 443 with TLS unless it says so.  A
 * password there is refused: everybody could read it in the list of processes.  o: its texts are
 * borrowed until http_close().  -EINVAL, -ENOPKG. */
int http_open(const char *rest, const char *port, const struct http_options *o, struct http *ret);
void http_close(struct http *h);

struct http_post {
    const char *path, *query; /* query: without '?', "" */
    const char *type;         /* of the body */
    const char *headers[4];   /* more lines, "Name: value"; NULL ends them */
    const void *body;
    size_t size;
};

struct http_answer {
    int status;
    uint64_t retry_after_ns; /* 0: it does not say */
    uint64_t code;           /* X-ClickHouse-Exception-Code; 0: it has none */
    bool is_page;            /* text/html: no server for programs */
    char location[256];
    struct buf body;
};

/* 0: an answer has come, whatever it says; caller buf_done()s its body, in any case.  -ETIMEDOUT,
 * -ECONNREFUSED ..., -EPROTO: it is none of HTTP, or not who it should be, -ECANCELED. */
int http_post(struct http *h, const struct http_post *p, struct http_answer *ret);
/* Tell what such an answer means for a destination (ship.h); wait_ns: see there. */
int http_judge(const struct http *h, int rc, const struct http_answer *a, uint64_t *ret_wait_ns);
/* A body of so many bytes was too long: h->most is less.  false: it is as little as it gets. */
bool http_shorten(struct http *h, size_t bytes);
/* Add text so that it may stand in a query. */
void http_add_escaped(struct buf *b, const char *text);

#endif
