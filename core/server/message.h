/* SPDX-License-Identifier: Apache-2.0
 *
 * core/server/message.h - read what a client sent: websocket messages, HTTP requests, text lines.
 *
 * Pure functions over bytes, no socket and no state, so that they can be fed anything (and are:
 * tests/fuzz/message_fuzz.c).  Owner's thread only.
 */
#ifndef CORE_SERVER_MESSAGE_H
#define CORE_SERVER_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sdk/lib/arena.h"
#include "sdk/lib/buf.h"

#define MESSAGE_ARGS 256 /* words of one command */

enum message_kind { MESSAGE_RUN, MESSAGE_CANCEL, MESSAGE_WATCH, MESSAGE_FOLLOW };

struct message {
    enum message_kind kind;
    int64_t id;
    int argc;
    const char *argv[MESSAGE_ARGS]; /* MESSAGE_RUN */
    uint64_t timeout_ns;
    bool bytes;       /* MESSAGE_RUN: its answer goes in binary messages */
    const char *text; /* WATCH: the statement; FOLLOW: the topic */
    size_t text_size;
    const char *format; /* WATCH */
    uint32_t width;     /* of a line of a watched table; 0: any */
    uint64_t interval_ns, last;
};

/* Read one message; its texts live in `a`.  -EINVAL with the reason; then *ret_id is the id when
 * there was one, else -1. */
int server_message_parse(struct arena *a, const char *data, size_t size, struct message *ret,
                         int64_t *ret_id);
/* The array of words of {"run":[...]}.  -EINVAL with the reason. */
int server_message_args(struct arena *a, const char *data, size_t size, struct message *ret);

struct slice {
    const char *data;
    size_t size;
};

struct http_request {
    struct slice method, path, query; /* path: still escaped, before '?' */
    struct slice authority;           /* of a request for http://HOST/PATH */
    bool old;                         /* HTTP/1.0 */
    bool keep_alive, upgrade, expects;
    bool gzip, wants_html; /* Accept-Encoding, Accept */
    bool wants_text;       /* Accept: plain text, and not OpenMetrics */
    bool wants_arrow;      /* Accept: an Arrow stream */
    size_t content_length;
    struct slice length; /* of Content-Length, as it was written */
    struct slice host, origin, authorization, cookie, fetch_site, ws_key, ws_version, ws_protocol;
};

/* Read request line and headers.  Bytes used; 0: they have not all come; -EINVAL what is wrong,
 * -ENOTSUP a transfer encoding, -EMSGSIZE a body that is too long. */
int server_http_parse(const char *data, size_t size, struct http_request *ret);
/* A parameter of a query string, unescaped, into `ret`.  1: there, 0: not, -EINVAL. */
int server_http_parameter(struct slice query, const char *name, struct buf *ret);
bool server_slice_is(struct slice s, const char *text);      /* same bytes */
bool server_slice_is_case(struct slice s, const char *text); /* ASCII case does not matter */

/* Split a line into words as a shell does: blanks, '...', "..." with backslash, \x.  No
 * expansion.  Number of words, or -EINVAL with the reason. */
int server_args_split(struct arena *a, const char *line, size_t size, const char **ret,
                      uint32_t max);

#endif
