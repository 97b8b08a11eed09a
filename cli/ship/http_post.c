/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/ship/http_post.c - see http_post.h.
 *
 * One thread.
 */
#include "cli/ship/http_post.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "cli/terminal/interrupt.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "sdk/lib/number.h"

#define TIMEOUT_S 30                 /* of a request, from the name to the end of the answer */
#define BODY_LEAST ((size_t)4 << 10) /* a server that takes no more takes none */
#define HEAD_BYTES ((size_t)16 << 10)
#define RETRY_AFTER_MAX 3600 /* seconds that a server may have us wait */
#define WANTS_PASSWORD                                                                             \
    "the proxy on the way wants a user and a password: http_proxy=http://USER:PASSWORD@HOST:PORT " \
    "(https_proxy for https)"

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

static int take_place(const char *rest, const char *port, struct http *ret)
{
    size_t n = strcspn(rest, "/?"), tail = strcspn(rest + n, "?");
    const char *at = memchr(rest, '@', n), *secret = at != NULL ? memchr(rest, ':', n) : NULL;

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

void http_add_escaped(struct buf *b, const char *text)
{
    for (; *text != '\0'; text++)
        if (strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~", *text))
            (void)buf_addc(b, *text);
        else
            (void)buf_addf(b, "%%%02X", (unsigned char)*text);
}

/* ---- a connection ---- */

/* Ctrl-C ends it; libcurl asks some times a second. */
static int take_progress(void *arg, double a, double b, double c, double d)
{
    (void)arg, (void)a, (void)b, (void)c, (void)d;
    return cli_interrupted ? 1 : 0;
}

static bool set_tls(struct http *h)
{
    const struct libcurl *l = h->library;
    const struct http_options *o = &h->o;

    return l->easy_setopt(h->easy, CURL_SSLVERSION, (long)CURL_TLS_1_2) == 0 &&
           l->easy_setopt(h->easy, CURL_HEADEROPT, (long)CURL_HEADER_SEPARATE) == 0 &&
           (o->ca == NULL || l->easy_setopt(h->easy, CURL_CAINFO, o->ca) == 0) &&
           (o->certificate == NULL || l->easy_setopt(h->easy, CURL_SSLCERT, o->certificate) == 0) &&
           (o->key == NULL || l->easy_setopt(h->easy, CURL_SSLKEY, o->key) == 0);
}

static bool set_user(struct http *h)
{
    const struct libcurl *l = h->library;

    return h->user[0] == '\0' ||
           (l->easy_setopt(h->easy, CURL_HTTPAUTH, (long)CURL_BASIC) == 0 &&
            l->easy_setopt(h->easy, CURL_USERNAME, h->user) == 0 &&
            l->easy_setopt(h->easy, CURL_PASSWORD, h->o.secret != NULL ? h->o.secret : "") == 0);
}

static bool set_all(struct http *h)
{
    const struct libcurl *l = h->library;

    (void)l->easy_setopt(h->easy, CURL_HTTP09_ALLOWED, 0L); /* older ones know no such option */
    return l->easy_setopt(h->easy, CURL_PROTOCOLS, (long)CURL_HTTP_AND_HTTPS) == 0 &&
           l->easy_setopt(h->easy, CURL_NOSIGNAL, 1L) == 0 &&
           l->easy_setopt(h->easy, CURL_TIMEOUT_MS, TIMEOUT_S * 1000L) == 0 &&
           l->easy_setopt(h->easy, CURL_USERAGENT, "probing") == 0 &&
           l->easy_setopt(h->easy, CURL_ERRORBUFFER, h->why) == 0 &&
           l->easy_setopt(h->easy, CURL_NOPROGRESS, 0L) == 0 &&
           l->easy_setopt(h->easy, CURL_PROGRESSFUNCTION, take_progress) == 0 && set_user(h) &&
           (!h->o.tls || set_tls(h));
}

static int check_secret(const struct http *h)
{
    for (const char *c = h->o.secret != NULL ? h->o.secret : ""; *c != '\0'; c++)
        if ((unsigned char)*c < ' ' || *c == 127)
            return err_set(-EINVAL, "the secret has a control character in it");
    return 0;
}

int http_open(const char *rest, const char *port, const struct http_options *o, struct http *ret)
{
    *ret = (struct http){.o = *o, .most = HTTP_BODY_BYTES};
    int rc = take_place(rest, port, ret);
    if (rc == 0)
        rc = check_secret(ret);
    if (rc == 0)
        rc = libcurl_load(&ret->library);
    if (rc < 0)
        return rc;
    ret->easy = ret->library->easy_init();
    if (ret->easy != NULL && set_all(ret))
        return 0;
    http_close(ret);
    return err_set(-EIO, "libcurl refuses to be set up%s",
                   o->tls ? ": https needs 7.37 or newer" : "");
}

void http_close(struct http *h)
{
    if (h->easy != NULL)
        h->library->easy_cleanup(h->easy);
    h->easy = NULL;
}

/* ---- the answer ---- */

struct reading {
    struct http_answer *to;
    size_t head; /* bytes of all heads: "100 Continue" may come again, but not for ever */
    bool full;   /* the body has more than anybody reads */
};

static void take_field(const char *line, size_t n, struct http_answer *ret)
{
    const char *colon = memchr(line, ':', n);
    size_t name = colon != NULL ? (size_t)(colon - line) : 0;
    const char *value = line + name + 1, *end = line + n;
    uint64_t number;

    if (colon == NULL)
        return;
    while (value < end && (*value == ' ' || *value == '\t'))
        value++;
    while (end > value && strchr(" \t\r\n", end[-1]) != NULL)
        end--;
    size_t size = (size_t)(end - value);
    if (name == 11 && strncasecmp(line, "retry-after", name) == 0) {
        if (number_u64(value, size, &number) == 0)
            ret->retry_after_ns = (number < RETRY_AFTER_MAX ? number : RETRY_AFTER_MAX) * NS_PER_S;
    } else if (name == 27 && strncasecmp(line, "x-clickhouse-exception-code", name) == 0) {
        (void)number_u64(value, size, &ret->code);
    } else if (name == 12 && strncasecmp(line, "content-type", name) == 0) {
        ret->is_page = size >= 9 && strncasecmp(value, "text/html", 9) == 0;
    } else if (name == 8 && strncasecmp(line, "location", name) == 0) {
        (void)snprintf(ret->location, sizeof(ret->location), "%.*s", (int)size, value);
    }
}

static size_t take_head(const char *line, size_t one, size_t n, void *arg)
{
    struct reading *r = arg;

    (void)one; /* 1 */
    r->head += n;
    if (r->head > HEAD_BYTES)
        return 0;
    take_field(line, n, r->to);
    return n;
}

static size_t take_body(const char *data, size_t one, size_t n, void *arg)
{
    struct reading *r = arg;
    size_t left = HTTP_ANSWER_BYTES - r->to->body.size, some = n < left ? n : left;

    (void)one; /* 1 */
    r->full = some < n || buf_add(&r->to->body, data, some) != 0;
    return r->full ? 0 : n;
}

static int not_http(void)
{
    return err_set(-EPROTO, "its answer is no HTTP");
}

/* Translate libcurl's result into our numbers. */
static int judge_transfer(const struct http *h, int result)
{
    const char *why = h->why[0] != '\0' ? h->why : h->library->easy_strerror(result);
    long failed = 0, proxy = 0;

    if (result != CURL_OK &&
        h->library->easy_getinfo(h->easy, CURL_INFO_HTTP_CONNECTCODE, &proxy) == 0 && proxy == 407)
        return err_set(-EPROTO, WANTS_PASSWORD);
    switch (result) {
    case CURL_OK:
        return 0;
    case CURL_ABORTED_BY_CALLBACK:
        return err_set(-ECANCELED, "interrupted");
    case CURL_UNSUPPORTED_PROTOCOL: /* an answer without a head, too */
        return h->o.tls ? err_set(-EPROTO, "%s", why) : not_http();
    case CURL_WRITE_ERROR: /* take_head() has had enough */
    case CURL_WEIRD_SERVER_REPLY:
        return not_http();
    case CURL_GOT_NOTHING:
    case CURL_PARTIAL_FILE:
        return err_set(-ECONNRESET, "it closed the connection before its answer was whole");
    case CURL_OPERATION_TIMEDOUT:
        return err_set(-ETIMEDOUT, "no answer within %d s", TIMEOUT_S);
    case CURL_PEER_FAILED_VERIFICATION:
        return err_set(-EPROTO,
                       "it does not prove who it is: %s (--cacert FILE names whom to trust)", why);
    case CURL_SSL_CACERT_BADFILE:
    case CURL_SSL_CERTPROBLEM:
        return err_set(-EPROTO, "%s (see --cacert, --cert and --key)", why);
    case CURL_COULDNT_CONNECT:
        (void)h->library->easy_getinfo(h->easy, CURL_INFO_OS_ERRNO, &failed);
        return err_set(-ECONNREFUSED, "%s", failed != 0 ? strerror((int)failed) : why);
    case CURL_OUT_OF_MEMORY: /* it says so of a line of over 100 KB, too */
        return err_set(-ENOMEM, "no memory for a request, or its answer has a line without an end");
    default: /* it is down, or not known: libcurl has words for it */
        return err_set(-ECONNABORTED, "%s", why);
    }
}

/* ---- one request ---- */

static bool add_line(const struct libcurl *l, struct curl_slist **list, const char *line)
{
    struct curl_slist *longer = l->slist_append(*list, line);

    *list = longer != NULL ? longer : *list;
    return longer != NULL;
}

/* The lines of the head.  Caller frees the list in any case. */
static bool head_lines(const struct http *h, const struct http_post *p, struct curl_slist **ret)
{
    char line[1024];
    bool ok;

    *ret = NULL;
    (void)snprintf(line, sizeof(line), "Content-Type: %s", p->type);
    ok = add_line(h->library, ret, line) && add_line(h->library, ret, "Expect:");
    for (size_t i = 0; ok && i < sizeof(p->headers) / sizeof(p->headers[0]) && p->headers[i]; i++)
        ok = add_line(h->library, ret, p->headers[i]);
    if (ok && h->o.secret != NULL && h->user[0] == '\0') {
        int n = snprintf(line, sizeof(line), "Authorization: Bearer %s", h->o.secret);
        ok = n < (int)sizeof(line) && add_line(h->library, ret, line);
        explicit_bzero(line, sizeof(line));
    }
    return ok;
}

static int send_request(struct http *h, const struct http_post *p, const char *url,
                        struct curl_slist *lines, struct http_answer *ret)
{
    const struct libcurl *l = h->library;
    struct reading r = {.to = ret};
    long status = 0;

    if (l->easy_setopt(h->easy, CURL_URL, url) != 0 ||
        l->easy_setopt(h->easy, CURL_HTTPHEADER, lines) != 0 ||
        l->easy_setopt(h->easy, CURL_POSTFIELDSIZE_LARGE, (int64_t)p->size) != 0 ||
        l->easy_setopt(h->easy, CURL_POSTFIELDS, p->body) != 0 ||
        l->easy_setopt(h->easy, CURL_HEADERFUNCTION, take_head) != 0 ||
        l->easy_setopt(h->easy, CURL_HEADERDATA, &r) != 0 ||
        l->easy_setopt(h->easy, CURL_WRITEFUNCTION, take_body) != 0 ||
        l->easy_setopt(h->easy, CURL_WRITEDATA, &r) != 0)
        return err_set(-ENOMEM, "no memory for a request");
    h->why[0] = '\0';
    int result = l->easy_perform(h->easy);
    (void)l->easy_getinfo(h->easy, CURL_INFO_RESPONSE_CODE, &status);
    ret->status = (int)status;
    return judge_transfer(h, r.full ? CURL_OK : result);
}

int http_post(struct http *h, const struct http_post *p, struct http_answer *ret)
{
    bool six = strchr(h->host, ':') != NULL;
    struct curl_slist *lines = NULL;
    struct buf url;

    *ret = (struct http_answer){.status = 0};
    buf_init(&ret->body, HTTP_ANSWER_BYTES + 1);
    buf_init(&url, (size_t)2 << 20);
    (void)buf_addf(&url, "%s://%s%s%s:%s%s%s%s", h->o.tls ? "https" : "http", six ? "[" : "",
                   h->host, six ? "]" : "", h->port, p->path[0] != '\0' ? p->path : "/",
                   p->query[0] != '\0' ? "?" : "", p->query);
    int rc = url.failed                  ? err_set(-EINVAL, "the address is too long")
             : !head_lines(h, p, &lines) ? err_set(-EINVAL, "the secret is too long")
                                         : send_request(h, p, buf_text(&url), lines, ret);
    h->library->slist_free_all(lines);
    buf_done(&url);
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
    if (status == 407)
        return err_set(-EPROTO, "%s:%s: " WANTS_PASSWORD, h->host, h->port);
    /* Other statuses say nothing about the batch: 401, 404, 415 ... refuse every batch, and rows
     * are not left out for that.  414: a table's columns stand in the address. */
    bool batch = status == 400 || status == 409 || status == 414 || status == 422;
    return err_set(status == 413 ? -EFBIG
                   : batch       ? -EREMOTEIO
                                 : -EPROTO,
                   "%s:%s answers %d: %s", h->host, h->port, status, said);
}

bool http_shorten(struct http *h, size_t bytes)
{
    size_t half = bytes / 2 > BODY_LEAST ? bytes / 2 : BODY_LEAST;
    bool shorter = half < h->most;

    h->most = shorter ? half : h->most;
    return shorter;
}
