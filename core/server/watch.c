/* SPDX-License-Identifier: Apache-2.0
 *
 * core/server/watch.c - what goes on by itself: continuous queries and followed events.
 *
 * A watch is a timer on the loop that hands each tick to a worker, as the command "watch"; a tick
 * that still runs is not run twice.  A followed topic is published on control.  Both put their
 * messages into the peer's queue, which drops the oldest when the client is slow.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/json.h"
#include "core/server/inside.h"
#include "core/server/message.h"

#define TICK_TIMEOUT_NS (30 * NS_PER_S) /* a tick that takes longer is no stream */

static int push_text(struct job *j)
{
    int rc = j->text.failed;
    if (rc == 0 && j->text.size > 0)
        rc = server_peer_push(j->peer, j, PIECE_DATA, 0, j->text.data, j->text.size, true);
    buf_reset(&j->text);
    return rc;
}

static int add_text(void *arg, const char *data, size_t size)
{
    struct job *j = arg;
    if (size > 0 && buf_add(&j->text, data, size) != 0)
        return err_set(-EMSGSIZE, "the answer of one tick is longer than %u bytes; add a limit",
                       SERVER_TICK_BYTES);
    /* Rows may go in several messages; a whole screen may not: half of it could be dropped. */
    bool lines = j->table && j->text.size >= SERVER_PIECE_BYTES &&
                 j->text.data[j->text.size - 1] == '\n';
    return lines ? push_text(j) : 0;
}

static int ignore_columns(void *arg, const struct sql_column *columns, uint32_t n)
{
    (void)arg, (void)columns, (void)n;
    return 0;
}

static int ignore_rows(void *arg, const struct sql_rows *rows)
{
    (void)arg, (void)rows;
    return 0;
}

/* Where the table ends now: the statement itself, asked for no row at all, says it. */
static int find_end(struct job *j, uint64_t *ret_row)
{
    struct sql_sink nothing = { .columns = ignore_columns, .rows = ignore_rows };
    struct sql_options o = { .timeout_ns = TICK_TIMEOUT_NS, .from_row = UINT64_MAX };
    struct sql_report report;
    int rc = sql_run(j->peer->server->sql, j->sql, strlen(j->sql), &o, &nothing, &report);
    if (rc == 0)
        *ret_row = report.next_row;
    return rc;
}

static int find_table(struct job *j)
{
    int rc = sql_followable(j->peer->server->sql, j->sql, strlen(j->sql), &j->table);
    uint64_t rows = 0;
    if (rc == 0)
        j->table = NULL;
    else if (rc > 0)
        rc = find_end(j, &rows);
    if (rc < 0)
        return rc;
    j->cursor = j->table && rows > j->last ? rows - j->last : 0;
    j->prepared = true;
    return 0;
}

/* A followed table is one stream; any other statement's answers, and JSON, are whole each. */
static int end_answer(struct job *j, const struct sql_report *report)
{
    bool stream = j->table && j->format != SQL_FORMAT_JSON;
    int rc = 0;
    if (stream)
        rc = sql_writer_pause(j->writer);
    else if (report->rows > 0 || !j->table)
        rc = sql_writer_finish(j->writer, report);
    if (!stream) {
        sql_writer_free(j->writer);
        j->writer = NULL;
    }
    if (rc == 0 && (report->rows > 0 || !j->table))
        return push_text(j);
    if (!stream)
        buf_reset(&j->text);
    return rc; /* a stream's header waits for its first row */
}

static int run_tick(struct job *j)
{
    struct sql_report report = { 0 };
    int rc = j->prepared ? 0 : find_table(j);
    if (rc == 0 && !j->writer)
        rc = sql_writer_new(j->format, 0, add_text, j, &j->writer);
    if (rc < 0)
        return rc;
    struct sql_sink sink = sql_writer_sink(j->writer);
    struct sql_options o = {
        .timeout_ns = TICK_TIMEOUT_NS,
        .cancel = &j->reply.cancelled,
        .from_row = j->cursor,
    };
    rc = sql_run(j->peer->server->sql, j->sql, strlen(j->sql), &o, &sink, &report);
    if (rc == 0)
        rc = end_answer(j, &report);
    /* The query itself says where it ended, rows that did not match included: counting what the
     * drain has written would be another moment than the one the query saw. */
    if (rc == 0 && j->table && report.next_row > j->cursor)
        j->cursor = report.next_row;
    return rc;
}

/* A tick says nothing through its reply: what it sends may be dropped, so it goes another way. */
static int tick_write(struct probing_reply *r, const void *data, size_t size)
{
    (void)r, (void)data, (void)size;
    return 0;
}

static int watch_command(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    (void)self, (void)argc, (void)argv;
    if (out->write != tick_write)
        return err_set(-EINVAL, "watch is a stream; use: probing -t TARGET watch \"select ...\", "
                       "or the websocket (docs/protocol.md)");
    return run_tick((struct job *)out);
}

int server_watch_command_add(struct host *h)
{
    static const struct probing_command command = {
        .size = sizeof(command),
        .name = "watch",
        .usage = "SELECT",
        .doc = "follow a query: new rows as they arrive (streams by websocket only)",
        .run = watch_command,
    };
    return host_command_add(h, "server", &command, NULL);
}

static void tick_done(struct probing_reply *r, int status, const char *error)
{
    struct job *j = (struct job *)r;
    const char *why = error ? error : "";
    if (atomic_exchange_explicit(&j->ended, true, memory_order_acq_rel))
        return;
    /* Should the core stay after all, the stream goes on; else the server ends it in its own words.
     */
    int leaving = HOST_LEAVING;
    if (atomic_compare_exchange_strong_explicit(&j->reply.cancelled, &leaving, 0,
                                                memory_order_acq_rel, memory_order_relaxed))
        status = 0;
    if (status < 0)
        (void)server_peer_push(j->peer, j, PIECE_DONE, status, why, strlen(why), false);
    else
        atomic_store_explicit(&j->busy, false, memory_order_release);
    server_job_unref(j);
}

static void on_timer(lws_sorted_usec_list_t *timer)
{
    static const char *const words[] = { "watch" };
    struct job *j = lws_container_of(timer, struct job, timer);
    struct server *s = j->peer->server;
    lws_sul_schedule(s->context, 0, timer, on_timer, (lws_usec_t)(j->interval_ns / NS_PER_US));
    if (atomic_load_explicit(&j->busy, memory_order_acquire))
        return;
    struct host_request request = {
        .argc = 1,
        .argv = words,
        .reply = &j->reply,
        .done = tick_done,
    };
    atomic_store_explicit(&j->busy, true, memory_order_relaxed);
    atomic_store_explicit(&j->ended, false, memory_order_relaxed);
    server_job_ref(j); /* given back by tick_done() */
    int rc = host_submit(s->host, &request);
    if (rc < 0)
        /* All workers are busy, or the core is leaving and may yet stay: the next time. */
        tick_done(&j->reply, rc == -EAGAIN || rc == -ESHUTDOWN ? 0 : rc, err_why(rc));
}

void server_watch_start(struct peer *p, const struct message *m)
{
    enum sql_format format;
    int rc = sql_format_parse(m->format, &format);
    struct job *j = rc < 0 ? NULL : server_job_new(p, JOB_WATCH, m->id);
    if (j)
        j->sql = strdup(m->text);
    if (!j || !j->sql) {
        if (j)
            server_job_remove(j);
        (void)server_job_refuse(p, m->id, rc < 0 ? rc : -ENOMEM);
        return;
    }
    j->reply.write = tick_write;
    j->format = format;
    j->interval_ns = m->interval_ns;
    j->last = m->last;
    lws_sul_schedule(p->server->context, 0, &j->timer, on_timer, 1);
}

void server_watch_stop(struct job *j)
{
    if (j->peer->server->context)
        lws_sul_schedule(j->peer->server->context, 0, &j->timer, on_timer,
                         LWS_SET_TIMER_USEC_CANCEL);
}

/* ---- events ---- */

static void on_event(void *arg, const char *topic, const void *payload, uint32_t size)
{
    struct job *j = arg;
    const char *text = (const char *)payload + sizeof(uint32_t);
    size_t n = size > sizeof(uint32_t) ? size - sizeof(uint32_t) : 0;
    struct arena a;
    struct buf b;
    struct json *value;
    while (n > 0 && text[n - 1] == 0)
        n--;
    arena_init(&a, SERVER_TICK_BYTES);
    buf_init(&b, SERVER_TICK_BYTES);
    (void)buf_adds(&b, "\"event\":");
    (void)json_add_text(&b, topic, strlen(topic));
    (void)buf_adds(&b, ",\"data\":");
    if (json_parse(&a, text, n, &value) == 0)
        (void)buf_add(&b, text, n);
    else /* not what it should be: shown as it is rather than not at all */
        (void)json_add_text(&b, text, n);
    if (!b.failed)
        (void)server_peer_push(j->peer, j, PIECE_EVENT, 0, b.data, b.size, true);
    buf_done(&b);
    arena_done(&a);
}

void server_follow_start(struct peer *p, const struct message *m)
{
    if (strncmp(m->text, "script.", 7) != 0) {
        (void)server_job_refuse(p, m->id,
                                err_set(-EINVAL, "'%s' cannot be followed; topics that carry text "
                                        "are named script.NAME", m->text));
        return;
    }
    struct job *j = server_job_new(p, JOB_FOLLOW, m->id);
    if (!j) {
        (void)server_job_refuse(p, m->id, -ENOMEM);
        return;
    }
    server_job_ref(j); /* of the subscription */
    int id = host_subscribe(p->server->host, m->text, on_event, j);
    if (id <= 0) {
        server_job_unref(j);
        server_job_remove(j);
        (void)server_job_refuse(p, m->id, id < 0 ? id : -EINVAL);
        return;
    }
    j->subscription = id;
}

void server_follow_stop(struct job *j)
{
    if (j->subscription <= 0)
        return;
    host_unsubscribe(j->peer->server->host, j->subscription);
    j->subscription = 0;
    server_job_unref(j);
}
