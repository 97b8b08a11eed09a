/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/client/client.c - the websocket client of the probing command, and of whoever links it:
 * requests, and the events that answer them.
 *
 * One thread a client.  Does not reconnect: a process that has gone is another process when it
 * comes back.
 */
#include <probing/client.h>

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "sdk/client/internal.h"
#include "sdk/lib/arena.h"
#include "sdk/lib/json.h"

/* ---- a client ---- */

struct probing_client *probing_client_new(const struct probing_client_options *options)
{
    const size_t first = offsetof(struct probing_client_options, timeout_ns);
    if (options && (options->size < first || options->size > sizeof(*options)))
        return NULL;
    struct probing_client *c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    if (options)
        memcpy(&c->options, options, options->size);
    c->fd = -1;
    c->note_fd = -1;
    c->stop = c->options.stop;
    c->mask = (uint32_t)client_now_ns();
    buf_init(&c->in, CLIENT_MESSAGE_BYTES + 2 * CLIENT_READ_BYTES);
    buf_init(&c->message, CLIENT_MESSAGE_BYTES);
    return c;
}

void probing_client_free(struct probing_client *c)
{
    if (!c)
        return;
    if (c->fd != -1)
        (void)close(c->fd);
    if (c->note_fd != -1)
        (void)close(c->note_fd);
    buf_done(&c->in);
    buf_done(&c->message);
    buf_done(&c->hello);
    buf_done(&c->out);
    free(c);
}

int client_fail(struct probing_client *c, int code, const char *format, ...)
{
    char fresh[sizeof(c->error)]; /* the arguments may lie in the old one */
    int saved = errno;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(fresh, sizeof(fresh), format, args);
    va_end(args);
    memcpy(c->error, n < 0 ? "" : fresh, n < 0 ? 1 : strlen(fresh) + 1);
    if (c->options.on_error)
        c->options.on_error(c->options.arg, code, c->error);
    errno = saved;
    return code;
}

const char *probing_client_error(const struct probing_client *c)
{
    return c ? c->error : "no memory for a client, or the size of its options is wrong";
}

/* ---- requests ---- */

static int64_t *find_started(struct probing_client *c, int64_t id)
{
    for (int i = 0; i < CLIENT_STARTED_MAX; i++)
        if (c->started[i] == id)
            return &c->started[i];
    return NULL;
}

static int64_t begin_request(struct probing_client *c, struct buf *b)
{
    buf_init(b, 8u << 20);
    if (c->fd == -1)
        return client_fail(c, -ENOTCONN, "this client is not connected");
    if (c->over)
        return client_gone(c);
    if (!find_started(c, 0))
        return client_fail(c, -EAGAIN, "%d requests are under way on this connection",
                           CLIENT_STARTED_MAX);
    (void)buf_addf(b, "{\"id\":%lld", (long long)++c->last_id);
    return c->last_id;
}

static int64_t finish_request(struct probing_client *c, struct buf *b)
{
    (void)buf_addc(b, '}');
    int rc = b->failed ? client_fail(c, b->failed, "the request is too long")
                       : client_send_frame(c, OP_TEXT, b->data, b->size);
    buf_done(b);
    if (rc < 0)
        return rc;
    *find_started(c, 0) = c->last_id;
    return c->last_id;
}

int64_t probing_client_start_run(struct probing_client *c, int argc, const char *const *argv,
                                 uint64_t timeout_ns)
{
    struct buf b;
    int64_t id = begin_request(c, &b);
    if (id < 0)
        return id;
    (void)buf_adds(&b, ",\"run\":[");
    for (int i = 0; i < argc; i++) {
        if (i)
            (void)buf_addc(&b, ',');
        (void)json_add_text(&b, argv[i], strlen(argv[i]));
    }
    (void)buf_adds(&b, "],\"bytes\":true");
    if (timeout_ns)
        (void)buf_addf(&b, ",\"timeout_ms\":%llu",
                       (unsigned long long)((timeout_ns + NS_PER_MS - 1) / NS_PER_MS));
    return finish_request(c, &b);
}

int64_t probing_client_start_watch(struct probing_client *c, const struct probing_client_watch *w)
{
    struct buf b;
    if (w->size != sizeof(*w) || !w->sql)
        return client_fail(c, -EINVAL, "a watch has its size and its SQL");
    const char *format = w->format ? w->format : "jsonl";
    int64_t id = begin_request(c, &b);
    if (id < 0)
        return id;
    (void)buf_adds(&b, ",\"watch\":");
    (void)json_add_text(&b, w->sql, strlen(w->sql));
    (void)buf_adds(&b, ",\"format\":");
    (void)json_add_text(&b, format, strlen(format));
    uint64_t interval_ns = w->interval_ns ? w->interval_ns : NS_PER_S;
    (void)buf_addf(&b, ",\"interval_ms\":%llu,\"last\":%llu,\"width\":%u",
                   (unsigned long long)((interval_ns + NS_PER_MS - 1) / NS_PER_MS),
                   (unsigned long long)w->last, w->width);
    return finish_request(c, &b);
}

int64_t probing_client_start_follow(struct probing_client *c, const char *topic)
{
    struct buf b;
    int64_t id = begin_request(c, &b);
    if (id < 0)
        return id;
    (void)buf_adds(&b, ",\"follow\":");
    (void)json_add_text(&b, topic, strlen(topic));
    return finish_request(c, &b);
}

int probing_client_cancel(struct probing_client *c, int64_t id)
{
    char text[64];
    if (c->over || c->fd == -1)
        return c->over ? client_gone(c) : 0;
    if (id <= 0 || !find_started(c, id))
        return 0; /* it has ended already */
    int n = snprintf(text, sizeof(text), "{\"id\":%lld,\"cancel\":true}", (long long)id);
    return client_send_frame(c, OP_TEXT, text, (size_t)n);
}

/* ---- answers ---- */

static int not_ours(struct probing_client *c)
{
    c->over = true;
    return client_fail(c, -EPROTO, "%s sent what is not a message of ours", c->where);
}

/* The same as client_read_event(), of a message of bytes. */
static int read_bytes(struct probing_client *c, struct probing_client_event *ret)
{
    int64_t id;
    if (c->message.size < sizeof(id))
        return not_ours(c);
    memcpy(&id, c->message.data, sizeof(id));
    *ret = (struct probing_client_event){.kind = PROBING_CLIENT_DATA,
                                         .id = id,
                                         .text = c->message.data + sizeof(id),
                                         .size = c->message.size - sizeof(id)};
    return id > 0 && find_started(c, id) ? 1 : 0;
}

/* A message as an event.  1: fill *ret, 0: nothing for the caller, -errno.  `text` keeps an event's
 * JSON, written again. */
int client_read_event(struct probing_client *c, struct arena *a, struct probing_client_event *ret)
{
    struct json *o;
    struct json_error bad;
    if (c->binary)
        return read_bytes(c, ret);
    if (json_read(a, c->message.data, c->message.size, &o, &bad) != 0 || o->type != JSON_OBJECT)
        return not_ours(c);
    *ret = (struct probing_client_event){.id = json_int(o, "id", 0), .text = ""};
    int64_t *slot = ret->id > 0 ? find_started(c, ret->id) : NULL;
    if (!slot) /* "nothing with that id is running": a cancel that crossed the end */
        return 0;
    const struct json *data = json_get(o, "data");
    if (json_get(o, "done")) {
        ret->kind = PROBING_CLIENT_DONE;
        ret->status = (int)json_int(o, "done", -EPROTO);
        ret->text = json_text(o, ret->status < 0 ? "error" : "note", "");
        ret->size = strlen(ret->text);
        *slot = 0;
    } else if (json_get(o, "dropped")) {
        ret->kind = PROBING_CLIENT_DROPPED;
        ret->dropped = (uint64_t)json_int(o, "dropped", 0);
    } else if (json_get(o, "late_rows")) {
        ret->kind = PROBING_CLIENT_LATE;
        ret->late = (uint64_t)json_int(o, "late_rows", 0);
    } else if (json_get(o, "event")) {
        /* The value as it was written: from behind "data": to the last brace (docs/protocol.md
         * fixes the order of the members). */
        static const char key[] = ",\"data\":";
        const char *at = memmem(c->message.data, c->message.size, key, sizeof(key) - 1);
        size_t n = at ? c->message.size - (size_t)(at - c->message.data) - sizeof(key) : 0;
        ret->kind = PROBING_CLIENT_EVENT;
        ret->topic = json_text(o, "event", "");
        ret->text = at ? arena_text(a, at + sizeof(key) - 1, n) : "null";
        ret->size = n;
        if (!ret->text)
            return client_fail(c, -ENOMEM, "no memory for an event");
    } else if (data && data->type == JSON_STRING) {
        ret->kind = PROBING_CLIENT_DATA;
        ret->text = data->text;
        ret->size = data->size;
        ret->whole = json_get(o, "snapshot") != NULL;
    } else {
        return 0;
    }
    return 1;
}

static bool anything_started(const struct probing_client *c)
{
    for (int i = 0; i < CLIENT_STARTED_MAX; i++)
        if (c->started[i])
            return true;
    return false;
}

/* 0: go on; else what probing_client_stream() gives. */
static int next_event(struct probing_client *c,
                      int (*on_event)(void *arg, const struct probing_client_event *e), void *arg,
                      uint64_t deadline_ns)
{
    struct arena a;
    struct probing_client_event e;
    if (client_stopped(c))
        return client_fail(c, -ECANCELED, "stopped");
    if (c->over)
        return client_gone(c);
    int rc = client_next_message(c, deadline_ns);
    if (rc == 0)
        return client_fail(c, -ETIMEDOUT, "%s said nothing in time", c->where);
    if (rc < 0)
        return rc == -EINTR ? 0 : rc;
    arena_init(&a, 8 * (size_t)CLIENT_MESSAGE_BYTES);
    rc = client_read_event(c, &a, &e);
    if (rc > 0)
        rc = on_event(arg, &e);
    arena_done(&a);
    return rc;
}

int probing_client_stream(struct probing_client *c,
                          int (*on_event)(void *arg, const struct probing_client_event *e),
                          void *arg, uint64_t timeout_ns, const volatile sig_atomic_t *stop)
{
    uint64_t deadline_ns = timeout_ns ? client_now_ns() + timeout_ns : 0;
    const volatile sig_atomic_t *before = c->stop;
    int rc = 0;
    c->stop = stop; /* also for what is sent meanwhile, and for half a message */
    while (rc == 0 && anything_started(c))
        rc = next_event(c, on_event, arg, deadline_ns);
    c->stop = before;
    return rc;
}

struct one_run {
    struct probing_client *c;
    int64_t id;
    int (*write)(void *arg, const char *data, size_t size);
    void *arg;
    int refused; /* what write() gave, when negative: then we only wait for the end */
    int status;
    char why[1000];
};

static int on_run(void *arg, const struct probing_client_event *e)
{
    struct one_run *r = arg;
    if (e->id != r->id)
        return 0;
    if (e->kind == PROBING_CLIENT_DATA && !r->refused) {
        int rc = r->write ? r->write(r->arg, e->text, e->size) : 0;
        if (rc < 0) {
            r->refused = rc;
            return probing_client_cancel(r->c, r->id);
        }
    }
    if (e->kind != PROBING_CLIENT_DONE)
        return 0;
    r->status = e->status;
    (void)snprintf(r->why, sizeof(r->why), "%s", e->text);
    return 1;
}

int probing_client_run(struct probing_client *c, int argc, const char *const *argv,
                       uint64_t timeout_ns, int (*write)(void *arg, const char *data, size_t size),
                       void *arg, int *ret_status)
{
    struct one_run r = {.c = c, .write = write, .arg = arg};
    r.id = probing_client_start_run(c, argc, argv, timeout_ns);
    if (r.id < 0)
        return (int)r.id;
    int rc = probing_client_stream(c, on_run, &r, timeout_ns ? timeout_ns + CLIENT_GRACE_NS : 0,
                                   c->stop);
    if (rc < 0)
        return rc;
    if (r.refused)
        return r.refused;
    if (r.status < 0)
        (void)client_fail(c, r.status, "%s", r.why[0] ? r.why : strerror(-r.status));
    (void)snprintf(c->note, sizeof(c->note), "%.250s", r.status < 0 ? "" : r.why);
    *ret_status = r.status;
    return 0;
}

const char *probing_client_build(const struct probing_client *c)
{
    return c->build;
}

const char *probing_client_note(const struct probing_client *c)
{
    return c->note;
}
