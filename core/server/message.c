/* SPDX-License-Identifier: Apache-2.0
 *
 * core/server/message.c - readers of client messages, HTTP requests and text lines.
 *
 * Owner's thread only.  Every size from outside is bounded before it is used; nothing is kept
 * between calls.
 */
#include "core/server/message.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/json.h"
#include "core/sql/sql.h"

#define TIMEOUT_MS_MAX INT64_C(86400000) /* ms: a day */
#define INTERVAL_MS_MIN 10               /* ms: 100 ticks a second is more than anybody reads */
#define LAST_MAX INT64_C(1000000)        /* rows shown from before a watch began */
#define WIDTH_MAX INT64_C(10000)         /* columns of a table */
#define HTTP_BODY_MAX (1u << 20)         /* bytes: SERVER_BODY_BYTES */

/* ---- websocket messages ---- */

static int read_args(const struct json *array, struct message *ret)
{
    if (!array || array->type != JSON_ARRAY || array->size == 0)
        return err_set(-EINVAL,
                       "\"run\" needs a list of arguments: {\"id\":1,\"run\":[\"tables\"]}");
    if (array->size >= MESSAGE_ARGS)
        return err_set(-EINVAL, "\"run\" has %zu arguments; at most %d are allowed", array->size,
                       MESSAGE_ARGS - 1);
    ret->argc = 0;
    for (const struct json *w = array->first; w; w = w->next) {
        if (w->type == JSON_STRING && strlen(w->text) != w->size)
            return err_set(-EINVAL, "argument %d of \"run\" contains a zero byte", ret->argc);
        if (w->type != JSON_STRING && w->type != JSON_NUMBER)
            return err_set(-EINVAL, "argument %d of \"run\" is not text", ret->argc);
        ret->argv[ret->argc++] = w->text;
    }
    ret->argv[ret->argc] = NULL;
    return 0;
}

static int read_number(const struct json *o, const char *key, int64_t otherwise, int64_t low,
                       int64_t high, int64_t *ret)
{
    const struct json *n = json_get(o, key);
    if (n && (n->type != JSON_NUMBER || !n->is_integer))
        return err_set(-EINVAL, "\"%s\" needs a whole number", key);
    *ret = n ? n->integer : otherwise;
    if (*ret < low || *ret > high)
        return err_set(-EINVAL, "\"%s\" is %lld; it must be %lld to %lld", key, (long long)*ret,
                       (long long)low, (long long)high);
    return 0;
}

static int read_text(const struct json *o, const char *key, struct message *ret)
{
    const struct json *t = json_get(o, key);
    if (!t || t->type != JSON_STRING || t->size == 0)
        return err_set(-EINVAL, "\"%s\" needs text", key);
    if (strlen(t->text) != t->size)
        return err_set(-EINVAL, "\"%s\" contains a zero byte", key);
    ret->text = t->text;
    ret->text_size = t->size;
    return 0;
}

/* Is it the name of a table and not a statement?  name, schema.name, "any name".name */
static bool is_table_name(const char *text)
{
    bool quoted = false;
    const char *p = text;
    for (; *p; p++) {
        char c = (char)(*p | 0x20);
        if (*p == '"')
            quoted = !quoted;
        else if (!quoted && !(c >= 'a' && c <= 'z') && !(*p >= '0' && *p <= '9') && *p != '_' &&
                 *p != '.')
            return false;
    }
    return p > text && !quoted;
}

static int name_to_select(struct arena *a, struct message *ret)
{
    static const char select[] = "select * from ";
    size_t n = sizeof(select) - 1 + ret->text_size;
    char *text = arena_alloc(a, n + 1);
    if (!text)
        return err_set(-ENOMEM, "no memory for a message");
    memcpy(text, select, sizeof(select) - 1);
    memcpy(text + sizeof(select) - 1, ret->text, ret->text_size + 1);
    ret->text = text;
    ret->text_size = n;
    return 0;
}

static int read_watch(struct arena *a, const char *key, const struct json *o, struct message *ret)
{
    int64_t interval_ms, last, width;
    ret->kind = MESSAGE_WATCH;
    int rc = read_text(o, key, ret);
    if (rc == 0 && is_table_name(ret->text))
        rc = name_to_select(a, ret);
    if (rc == 0)
        rc = read_number(o, "interval_ms", 1000, INTERVAL_MS_MIN, TIMEOUT_MS_MAX, &interval_ms);
    if (rc == 0)
        rc = read_number(o, "last", 0, 0, LAST_MAX, &last);
    if (rc == 0)
        rc = read_number(o, "width", 0, 0, WIDTH_MAX, &width);
    if (rc != 0)
        return rc;
    const struct json *format = json_get(o, "format");
    if (format && format->type != JSON_STRING)
        return err_set(-EINVAL, "\"format\" needs text");
    ret->format = json_text(o, "format", "jsonl");
    ret->interval_ns = (uint64_t)interval_ms * NS_PER_MS;
    ret->last = (uint64_t)last;
    ret->width = (uint32_t)width;
    return 0;
}

static bool is_true(const struct json *o, const char *key)
{
    const struct json *value = json_get(o, key);
    return value && value->type == JSON_BOOL && value->boolean;
}

static int read_object(struct arena *a, const struct json *o, struct message *ret, int64_t *ret_id)
{
    if (o->type != JSON_OBJECT)
        return err_set(-EINVAL, "a message is an object: {\"id\":1,\"run\":[\"tables\"]}");
    const struct json *id = json_get(o, "id");
    if (!id || id->type != JSON_NUMBER || !id->is_integer || id->integer < 0)
        return err_set(-EINVAL, "\"id\" needs a whole number, 0 or more");
    *ret_id = ret->id = id->integer;
    if (json_get(o, "run")) {
        int64_t timeout_ms;
        ret->kind = MESSAGE_RUN;
        int rc = read_args(json_get(o, "run"), ret);
        if (rc == 0)
            rc = read_number(o, "timeout_ms", 0, 0, TIMEOUT_MS_MAX, &timeout_ms);
        if (rc == 0)
            ret->timeout_ns = (uint64_t)timeout_ms * NS_PER_MS;
        ret->bytes = is_true(o, "bytes");
        return rc;
    }
    if (json_get(o, "watch") || json_get(o, "subscribe"))
        return read_watch(a, json_get(o, "watch") ? "watch" : "subscribe", o, ret);
    if (json_get(o, "follow")) {
        ret->kind = MESSAGE_FOLLOW;
        return read_text(o, "follow", ret);
    }
    if (is_true(o, "cancel") || is_true(o, "unsubscribe")) {
        ret->kind = MESSAGE_CANCEL;
        return 0;
    }
    return err_set(-EINVAL, "a message has one of \"run\", \"watch\", \"subscribe\", \"follow\", "
                            "\"cancel\":true");
}

int server_message_parse(struct arena *a, const char *data, size_t size, struct message *ret,
                         int64_t *ret_id)
{
    struct json *o;
    *ret_id = -1;
    *ret = (struct message){.kind = MESSAGE_RUN};
    int rc = json_parse(a, data, size, &o);
    return rc == 0 ? read_object(a, o, ret, ret_id) : rc;
}

int server_message_args(struct arena *a, const char *data, size_t size, struct message *ret)
{
    struct json *o;
    int64_t timeout_ms;
    *ret = (struct message){.kind = MESSAGE_RUN};
    int rc = json_parse(a, data, size, &o);
    if (rc == 0 && o->type != JSON_OBJECT)
        rc = err_set(-EINVAL, "the body needs an object: {\"run\":[\"tables\"]}");
    if (rc == 0)
        rc = read_args(json_get(o, "run"), ret);
    if (rc == 0)
        rc = read_number(o, "timeout_ms", 0, 0, TIMEOUT_MS_MAX, &timeout_ms);
    if (rc == 0)
        ret->timeout_ns = (uint64_t)timeout_ms * NS_PER_MS;
    return rc;
}

/* ---- HTTP ---- */

bool server_slice_is(struct slice s, const char *text)
{
    return s.size == strlen(text) && memcmp(s.data, text, s.size) == 0;
}

bool server_slice_is_case(struct slice s, const char *text)
{
    return s.size == strlen(text) && strncasecmp(s.data, text, s.size) == 0;
}

static struct slice trim_blanks(const char *from, const char *to)
{
    while (from < to && (*from == ' ' || *from == '\t'))
        from++;
    while (to > from && (to[-1] == ' ' || to[-1] == '\t' || to[-1] == '\r'))
        to--;
    return (struct slice){from, (size_t)(to - from)};
}

/* Is `word` one of the comma-separated tokens of a header's value? */
static bool has_token(struct slice value, const char *word)
{
    const char *p = value.data, *end = value.data + value.size;
    while (p < end) {
        const char *comma = memchr(p, ',', (size_t)(end - p));
        if (server_slice_is_case(trim_blanks(p, comma ? comma : end), word))
            return true;
        if (!comma)
            return false;
        p = comma + 1;
    }
    return false;
}

/* Is `word` in a list such as "gzip;q=0.5, br"?  Not when its weight is 0. */
static bool accepts_word(struct slice value, const char *word)
{
    const char *p = value.data, *end = value.data + value.size;
    while (p < end) {
        const char *comma = memchr(p, ',', (size_t)(end - p));
        const char *stop = comma ? comma : end;
        const char *semicolon = memchr(p, ';', (size_t)(stop - p));
        if (server_slice_is_case(trim_blanks(p, semicolon ? semicolon : stop), word)) {
            struct slice weight = semicolon ? trim_blanks(semicolon + 1, stop) : (struct slice){0};
            return !weight.data || weight.size < 3 || strncasecmp(weight.data, "q=", 2) != 0 ||
                   strspn(weight.data + 2, "0.") < weight.size - 2;
        }
        p = stop + 1;
    }
    return false;
}

static int read_length(struct slice value, size_t *ret)
{
    size_t n = 0;
    if (value.size == 0 || value.size > 12)
        return err_set(-EINVAL, "Content-Length is not a number of bytes");
    for (size_t i = 0; i < value.size; i++) {
        if (value.data[i] < '0' || value.data[i] > '9')
            return err_set(-EINVAL, "Content-Length is not a number of bytes");
        n = n * 10 + (size_t)(value.data[i] - '0');
    }
    if (n > HTTP_BODY_MAX)
        return err_set(-EMSGSIZE,
                       "the body is longer than %u bytes; longer commands go by "
                       "websocket",
                       HTTP_BODY_MAX);
    *ret = n;
    return 0;
}

/* Keep a header that may come once only: two Hosts are an attack, not a choice. */
static int keep_once(struct slice *where, struct slice value, const char *name)
{
    if (where->data)
        return err_set(-EINVAL, "header %s is there twice", name);
    *where = value;
    return 0;
}

static int read_header(struct slice name, struct slice value, struct http_request *r)
{
    const struct {
        const char *name;
        struct slice *where;
    } kept[] = {
        {"Host", &r->host},
        {"Origin", &r->origin},
        {"Authorization", &r->authorization},
        {"Cookie", &r->cookie},
        {"Sec-Fetch-Site", &r->fetch_site},
        {"Sec-WebSocket-Key", &r->ws_key},
        {"Sec-WebSocket-Version", &r->ws_version},
        {"Sec-WebSocket-Protocol", &r->ws_protocol},
    };
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
        if (server_slice_is_case(name, kept[i].name))
            return keep_once(kept[i].where, value, kept[i].name);
    if (server_slice_is_case(name, "Content-Length")) {
        int rc = keep_once(&r->length, value, "Content-Length"); /* also when the first was 0 */
        return rc == 0 ? read_length(value, &r->content_length) : rc;
    }
    if (server_slice_is_case(name, "Transfer-Encoding"))
        return err_set(-ENOTSUP, "a body needs Content-Length here, not Transfer-Encoding");
    if (server_slice_is_case(name, "Accept-Encoding"))
        r->gzip = accepts_word(value, "gzip");
    if (server_slice_is_case(name, "Accept")) {
        r->wants_html = accepts_word(value, "text/html");
        r->wants_text = accepts_word(value, "text/plain") &&
                        !accepts_word(value, "application/openmetrics-text");
        r->wants_arrow = accepts_word(value, SQL_ARROW_TYPE);
    }
    if (server_slice_is_case(name, "Upgrade"))
        r->upgrade = has_token(value, "websocket");
    if (server_slice_is_case(name, "Expect"))
        r->expects = server_slice_is_case(value, "100-continue");
    if (server_slice_is_case(name, "Connection")) {
        if (has_token(value, "close"))
            r->keep_alive = false;
        else if (has_token(value, "keep-alive"))
            r->keep_alive = true;
    }
    return 0;
}

/* A path, or an address with a host that stands for the Host header (RFC 9112, 3.2.2). */
static int read_target(struct slice target, struct http_request *r)
{
    static const char scheme[] = "http://";
    static const char root[] = "/";
    const char *at = target.data, *end = target.data + target.size;
    if (target.size >= sizeof(scheme) && strncasecmp(at, scheme, sizeof(scheme) - 1) == 0) {
        at += sizeof(scheme) - 1;
        size_t n = strcspn(at, "/? ");
        r->authority = (struct slice){at, n};
        at += n;
    }
    const char *mark = memchr(at, '?', (size_t)(end - at));
    r->path = (struct slice){at, (size_t)((mark ? mark : end) - at)};
    if (mark)
        r->query = (struct slice){mark + 1, (size_t)(end - mark - 1)};
    if (r->authority.size > 0 && r->path.size == 0)
        r->path = (struct slice){root, 1};
    return *r->path.data == '/' ? 0 : err_set(-EINVAL, "the path does not begin with '/'");
}

static int read_request_line(const char *line, const char *end, struct http_request *r)
{
    struct slice whole = trim_blanks(line, end);
    const char *stop = whole.data + whole.size;
    const char *blank = memchr(whole.data, ' ', whole.size);
    if (!blank || whole.size < 14)
        return err_set(-EINVAL, "the request line is not METHOD PATH HTTP/1.1");
    r->method = (struct slice){whole.data, (size_t)(blank - whole.data)};
    const char *path = blank + 1, *version = stop - 8;
    if (version - 1 <= path || version[-1] != ' ')
        return err_set(-EINVAL, "the request line is not METHOD PATH HTTP/1.1");
    if (memcmp(version, "HTTP/1.0", 8) == 0)
        r->old = true;
    else if (memcmp(version, "HTTP/1.1", 8) != 0)
        return err_set(-EINVAL, "only HTTP/1.0 and HTTP/1.1 are spoken here");
    r->keep_alive = !r->old;
    size_t n = (size_t)(version - 1 - path);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)path[i] <= ' ' || path[i] == 0x7f)
            return err_set(-EINVAL, "the path contains a blank or a control byte");
    return read_target((struct slice){path, n}, r);
}

/* RFC 9110's token: a name with a blank or a tab in it is another name to another parser. */
static bool is_token(const char *text, size_t n)
{
    static const char others[] = "!#$%&'*+-.^_`|~";
    for (size_t i = 0; i < n; i++) {
        char c = text[i], lower = (char)(c | 0x20);
        if (!(c >= '0' && c <= '9') && !(lower >= 'a' && lower <= 'z') &&
            (c == 0 || !strchr(others, c)))
            return false;
    }
    return n > 0;
}

static int read_header_line(const char *line, const char *end, struct http_request *r)
{
    const char *colon = memchr(line, ':', (size_t)(end - line));
    if (!colon || !is_token(line, (size_t)(colon - line)))
        return err_set(-EINVAL, "a header is not NAME: VALUE");
    for (const char *p = line; p < end; p++)
        if ((unsigned char)*p < ' ' && *p != '\t' && !(*p == '\r' && p + 1 == end))
            return err_set(-EINVAL, "a header contains a control byte");
    struct slice name = {line, (size_t)(colon - line)};
    return read_header(name, trim_blanks(colon + 1, end), r);
}

int server_http_parse(const char *data, size_t size, struct http_request *ret)
{
    const char *p = data, *stop = data + size;
    bool first = true;
    *ret = (struct http_request){.keep_alive = true};
    for (;;) {
        const char *end = memchr(p, '\n', (size_t)(stop - p));
        if (!end)
            return 0;
        if (!first && (end == p || (end == p + 1 && *p == '\r'))) {
            if (ret->authority.size > 0)
                ret->host = ret->authority;
            return (int)(end + 1 - data);
        }
        int rc = first ? read_request_line(p, end, ret) : read_header_line(p, end, ret);
        if (rc != 0)
            return rc;
        first = false;
        p = end + 1;
    }
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static int unescape_parameter(const char *p, const char *end, struct buf *ret)
{
    for (; p < end; p++) {
        char c = *p == '+' ? ' ' : *p;
        if (c == '%') {
            int high = end - p > 2 ? hex_digit(p[1]) : -1;
            int low = high >= 0 ? hex_digit(p[2]) : -1;
            if (low < 0 || (high == 0 && low == 0))
                return err_set(-EINVAL, "a parameter has a '%%' that is not %%XX");
            c = (char)(high * 16 + low);
            p += 2;
        }
        (void)buf_addc(ret, c);
    }
    return ret->failed ? err_set(ret->failed, "a parameter is too long") : 1;
}

int server_http_parameter(struct slice query, const char *name, struct buf *ret)
{
    size_t n = strlen(name);
    const char *p = query.data, *end = query.data + query.size;
    while (p && p < end) {
        const char *stop = memchr(p, '&', (size_t)(end - p));
        stop = stop ? stop : end;
        if ((size_t)(stop - p) > n && memcmp(p, name, n) == 0 && p[n] == '=')
            return unescape_parameter(p + n + 1, stop, ret);
        p = stop + 1;
    }
    return 0;
}

/* ---- text ---- */

/* One word from *at, without its quotes.  Gives its length written to `out`, or -EINVAL. */
static int64_t read_word(const char **at, const char *end, char *out)
{
    const char *p = *at;
    int64_t n = 0;
    char quote = 0;
    for (; p < end && (quote || (*p != ' ' && *p != '\t')); p++) {
        if (quote && *p == quote) {
            quote = 0;
        } else if (!quote && (*p == '\'' || *p == '"')) {
            quote = *p;
        } else if (*p == '\\' && p + 1 < end &&
                   (!quote || (quote == '"' && (p[1] == '"' || p[1] == '\\')))) {
            out[n++] = *++p;
        } else {
            out[n++] = *p;
        }
    }
    if (quote)
        return err_set(-EINVAL, "the quote %c is not closed", quote);
    *at = p;
    return n;
}

int server_args_split(struct arena *a, const char *line, size_t size, const char **ret,
                      uint32_t max)
{
    const char *p = line, *end = line + size;
    uint32_t words = 0;
    if (memchr(line, 0, size))
        return err_set(-EINVAL, "the line contains a zero byte");
    char *out = arena_alloc(a, 2 * size + 2); /* each word and its NUL: never longer than this */
    if (!out)
        return err_set(-ENOMEM, "no memory for a line of %zu bytes", size);
    for (;;) {
        while (p < end && (*p == ' ' || *p == '\t'))
            p++;
        if (p == end)
            return (int)words;
        if (words == max)
            return err_set(-EINVAL, "more than %u arguments in one line", max);
        int64_t n = read_word(&p, end, out);
        if (n < 0)
            return (int)n;
        out[n] = 0;
        ret[words++] = out;
        out += n + 1;
    }
}
