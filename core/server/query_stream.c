/* SPDX-License-Identifier: Apache-2.0
 *
 * core/server/query_stream.c - continuous queries: one feed a statement, however many clients
 * follow it.
 *
 * A feed is a timer on the loop that hands each tick to a worker; a tick that still runs is not run
 * twice, and each is followed by a rest of three times the CPU time that it took (and as long as it
 * took), times the feeds of the client that began it, so that no client's streams take more than a
 * quarter of a core from the host.  What a tick brings is encoded once and shared by the queues of
 * all who follow, which drop the oldest when slow.
 *
 * Clients share a feed when statement, format, interval and access are the same and no client needs
 * what others have had already: earlier rows (`last`), or a header that comes once (table, csv).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/guest/thread.h"
#include "core/server/internal.h"
#include "core/server/message.h"
#include "sdk/lib/json.h"

#define TICK_TIMEOUT_NS (30 * NS_PER_S) /* a tick that takes longer is no stream */
#define RESTS 3                         /* times the CPU time of a tick */

struct query_subscription {
    struct probing_reply reply;      /* first: a tick is found by it */
    _Atomic uint32_t refs;           /* of its jobs, and of a tick that waits or runs */
    struct server *server;           /* counted */
    struct connection *owner;        /* counted; who began it, and for whom ticks are counted */
    struct query_subscription *next; /* loop: server->feeds */
    lws_sorted_usec_list_t timer;    /* loop */
    char *sql;
    enum sql_format format;
    uint64_t interval_ns, last;
    uint32_t width; /* of a table's lines */
    bool shareable;
    bool hides;             /* its clients may only read */
    _Atomic bool busy;      /* a tick waits or runs; released by its end */
    _Atomic bool ended;     /* tick_done() was here: it comes once, whoever refuses */
    uint64_t rest_until_ns; /* the loop's; the tick's worker's while busy */
    uint32_t siblings;      /* the same: feeds of its owner, itself included */
    pthread_mutex_t mutex;
    struct job *jobs; /* lock: mutex */
    bool over;        /* lock: mutex; it failed: its jobs were told, nobody may join */
    /* The tick's worker. */
    bool prepared;
    const struct table *table; /* NULL: run afresh each time */
    struct sql_news *news;     /* of such an answer what is new is told; NULL: all of it */
    bool buckets;              /* its aggregates by time are told, each when it is over */
    uint64_t cursor;  /* first row not shown yet, or not looked at for being late; of news: of this
                      * tick's answer */
    int64_t from_ts;  /* first bucket not shown yet */
    int64_t begin_ts; /* first bucket shown at all */
    struct sql_writer *writer; /* of a stream: one for all ticks */
    struct buf text;           /* what the writer has written */
};

static void subscription_unref(struct query_subscription *f)
{
    if (atomic_fetch_sub_explicit(&f->refs, 1, memory_order_acq_rel) != 1)
        return;
    sql_writer_free(f->writer);
    sql_news_free(f->news);
    buf_done(&f->text);
    (void)pthread_mutex_destroy(&f->mutex);
    server_connection_unref(f->owner);
    server_unref(f->server);
    free(f->sql);
    free(f);
}

/* ---- one tick, on a worker ---- */

/* Does it tell only what is new, and nothing when nothing is? */
static bool tells_news(const struct query_subscription *f)
{
    return f->table || f->news;
}

/* The first `size` bytes of what is there go to all; the rest stays. */
static int push_text(struct query_subscription *f, size_t size)
{
    struct buf quoted;
    int rc = f->text.failed;
    buf_init(&quoted, 8 * SERVER_TICK_BYTES);
    if (rc == 0 && size > 0)
        rc = json_add_text(&quoted, f->text.data, size);
    struct shared *shared =
        rc == 0 && quoted.size > 0 ? server_shared_new(f->server, quoted.data, quoted.size) : NULL;
    if (rc == 0 && quoted.size > 0 && !shared)
        rc = err_set(-ENOMEM, "no memory for a tick of %zu bytes", quoted.size);
    if (shared)
        shared->whole = !tells_news(f);
    buf_done(&quoted);
    (void)pthread_mutex_lock(&f->mutex);
    for (struct job *j = f->jobs; j && shared; j = j->subscription_next)
        (void)server_connection_push_shared(j->peer, j, shared); /* -ECANCELED: it is going away */
    (void)pthread_mutex_unlock(&f->mutex);
    server_shared_unref(shared);
    if (size < f->text.size) {
        memmove(f->text.data, f->text.data + size, f->text.size - size);
        f->text.size -= size;
    } else {
        buf_reset(&f->text);
    }
    return rc;
}

/* News are one stream of lines; other answers, and JSON, are whole each: half of one could be
 * dropped. */
static bool is_stream(const struct query_subscription *f)
{
    return tells_news(f) && f->format != SQL_FORMAT_JSON;
}

/* The end of the last whole row of a stream's text, which begins with a row; NULL: there is none.
 * Where a piece is dropped the next one must begin with a row, too. */
static const char *last_row_end(const struct query_subscription *f)
{
    const char *end = NULL;
    bool quoted = false;
    if (f->format != SQL_FORMAT_CSV) /* no other has a line's end within a value */
        return memrchr(f->text.data, '\n', f->text.size);
    for (const char *at = f->text.data; at < f->text.data + f->text.size; at++) {
        quoted ^= *at == '"'; /* one in a value is two */
        if (*at == '\n' && !quoted)
            end = at;
    }
    return end;
}

/* The engine gives a batch of rows at a time, of any size: of a stream they go in as many messages
 * as they need. */
static int add_text(void *arg, const char *data, size_t size)
{
    struct query_subscription *f = arg;
    int rc = 0;
    while (size > 0 && rc == 0) {
        size_t n = is_stream(f) && size > SERVER_CHUNK_BYTES ? SERVER_CHUNK_BYTES : size;
        if (buf_add(&f->text, data, n) != 0)
            return err_set(-EMSGSIZE, "the answer of one tick is longer than %u bytes; add a limit",
                           SERVER_TICK_BYTES);
        data += n;
        size -= n;
        const char *end =
            is_stream(f) && f->text.size >= SERVER_CHUNK_BYTES ? last_row_end(f) : NULL;
        if (end)
            rc = push_text(f, (size_t)(end + 1 - f->text.data));
    }
    return rc;
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

/* Find the first row, `last` rows or buckets back: the statement itself, asked for no rows at all,
 * says where its table or the last closed bucket ends now. */
static int find_begin(struct query_subscription *f)
{
    struct sql_sink nothing = {.columns = ignore_columns, .rows = ignore_rows};
    struct sql_options o = {
        .timeout_ns = TICK_TIMEOUT_NS,
        .from_row = f->buckets ? 0 : UINT64_MAX,
        .hide_secrets = f->hides,
        .closed = f->buckets,
        .from_ts = f->buckets ? INT64_MAX : 0,
    };
    struct sql_report report;
    int64_t back;
    int rc = sql_run(f->server->sql, f->sql, strlen(f->sql), &o, &nothing, &report);
    if (rc < 0)
        return rc;
    uint64_t rows = f->buckets ? 0 : f->last;
    f->cursor = report.next_row > rows ? report.next_row - rows : 0;
    bool all = __builtin_mul_overflow(f->last, report.bucket_ns, &back) || back > report.next_ts;
    f->from_ts = f->begin_ts = all ? 0 : report.next_ts - back;
    return 0;
}

/* Begin with the last `last` of the rows that were there before somebody watched. */
static int find_news(struct query_subscription *f)
{
    struct sql_sink nothing = {.columns = ignore_columns, .rows = ignore_rows};
    struct sql_options o = {.timeout_ns = TICK_TIMEOUT_NS,
                            .max_rows = SQL_NEWS_ROWS + 1, /* which the first tick refuses */
                            .cancel = &f->reply.cancelled,
                            .hide_secrets = f->hides};
    struct sql_report report;
    int rc = sql_news_new(&f->news);
    f->cursor = UINT64_MAX;
    if (rc < 0 || f->last == 0)
        return rc;
    rc = sql_run(f->server->sql, f->sql, strlen(f->sql), &o, &nothing, &report);
    if (rc == 0)
        f->cursor = report.rows > f->last ? report.rows - f->last : 0;
    return rc;
}

static int find_table(struct query_subscription *f)
{
    struct sql *sql = f->server->sql;
    int rc = sql_followable(sql, f->sql, strlen(f->sql), &f->table);
    if (rc == 0) {
        rc = sql_bucketed(sql, f->sql, strlen(f->sql), &f->table);
        f->buckets = rc > 0;
    }
    if (rc > 0) {
        rc = find_begin(f);
    } else if (rc == 0) {
        f->table = NULL;
        rc = sql_grows(sql, f->sql, strlen(f->sql));
        if (rc > 0)
            rc = find_news(f);
    }
    f->prepared = rc == 0;
    return rc;
}

static int end_answer(struct query_subscription *f, const struct sql_report *report)
{
    bool stream = is_stream(f);
    int rc = 0;
    if (stream)
        rc = sql_writer_pause(f->writer);
    else if (report->rows > 0 || !tells_news(f))
        rc = sql_writer_finish(f->writer, report);
    if (!stream) {
        sql_writer_free(f->writer);
        f->writer = NULL;
    }
    if (rc == 0 && (report->rows > 0 || !tells_news(f)))
        return push_text(f, f->text.size);
    if (!stream)
        buf_reset(&f->text);
    return rc; /* a stream's header waits for its first row */
}

/* Rows that came since the last tick for buckets told before that: they are in no answer, so all
 * who follow are told how many. */
static int tell_late(struct query_subscription *f, uint64_t to_row)
{
    struct sql_sink nothing = {.columns = ignore_columns, .rows = ignore_rows};
    struct sql_options o = {
        .timeout_ns = TICK_TIMEOUT_NS,
        .cancel = &f->reply.cancelled,
        .from_row = f->cursor,
        .hide_secrets = f->hides,
        .to_row = to_row,
        .closed = true,
        .late = true,
        .late_ts = f->begin_ts,
        .from_ts = f->from_ts,
    };
    struct sql_report report;
    char text[40];
    int rc = sql_run(f->server->sql, f->sql, strlen(f->sql), &o, &nothing, &report);
    if (rc < 0 || report.late == 0)
        return rc;
    int n = snprintf(text, sizeof(text), "\"late_rows\":%llu", (unsigned long long)report.late);
    (void)pthread_mutex_lock(&f->mutex);
    for (struct job *j = f->jobs; j; j = j->subscription_next)
        (void)server_connection_push(j->peer, j, CHUNK_EVENT, 0, text, (size_t)n, true);
    (void)pthread_mutex_unlock(&f->mutex);
    return 0;
}

static int run_tick(struct probing_reply *reply)
{
    struct query_subscription *f = (struct query_subscription *)reply;
    struct sql_report report = {0};
    int rc = f->prepared ? 0 : find_table(f);
    if (rc == 0 && !f->writer)
        rc = sql_writer_new(f->format, f->width, add_text, f, &f->writer);
    if (rc < 0)
        return rc;
    struct sql_sink sink = sql_writer_sink(f->writer);
    if (f->news)
        sink = sql_news_sink(f->news, &sink, f->cursor);
    struct sql_options o = {
        .timeout_ns = TICK_TIMEOUT_NS,
        .max_rows = tells_news(f) ? UINT64_MAX : 0, /* all are told, tick by tick */
        .cancel = &f->reply.cancelled,
        .from_row = f->buckets || f->news ? 0 : f->cursor,
        .closed = f->buckets,
        .from_ts = f->from_ts,
        .hide_secrets = f->hides,
    };
    /* Processor time: on a busy machine a tick takes long and costs the host no more. */
    uint64_t began = thread_cpu(), began_wall = clock_now();
    rc = sql_run(f->server->sql, f->sql, strlen(f->sql), &o, &sink, &report);
    if (rc == 0 && f->news) {
        report.rows = sql_news_told(f->news);
        f->cursor = 0;
    }
    if (rc == 0)
        rc = end_answer(f, &report);
    if (rc == 0 && f->buckets && f->begin_ts < f->from_ts && f->cursor < report.next_row)
        rc = tell_late(f, report.next_row);
    uint64_t now = clock_now();
    uint64_t rest = RESTS * f->siblings * (thread_cpu() - began);
    /* On a machine that is short of time fewer ticks bring the same rows for less. */
    f->rest_until_ns = now + (rest > now - began_wall ? rest : now - began_wall);
    /* The query itself says where it ended, rows that did not match included: counting what the
     * drain has written would be another moment than the one the query saw. */
    if (rc == 0 && f->table && report.next_row > f->cursor)
        f->cursor = report.next_row;
    if (rc == 0 && f->buckets && report.next_ts > f->from_ts) /* the clock may be set back */
        f->from_ts = report.next_ts;
    return rc;
}

static void tick_done(struct probing_reply *r, int status, const char *error)
{
    struct query_subscription *f = (struct query_subscription *)r;
    const char *why = error ? error : "";
    if (atomic_exchange_explicit(&f->ended, true, memory_order_acq_rel))
        return;
    /* Should the core stay after all, the stream goes on; else the server ends it in its own words.
     */
    int leaving = HOST_LEAVING;
    if (atomic_compare_exchange_strong_explicit(&f->reply.cancelled, &leaving, 0,
                                                memory_order_acq_rel, memory_order_relaxed))
        status = 0;
    if (status < 0) {
        (void)pthread_mutex_lock(&f->mutex);
        f->over = true;
        for (struct job *j = f->jobs; j; j = j->subscription_next)
            (void)server_connection_push(j->peer, j, CHUNK_DONE, status, why, strlen(why), false);
        (void)pthread_mutex_unlock(&f->mutex);
    } else {
        atomic_store_explicit(&f->busy, false, memory_order_release);
    }
    subscription_unref(f);
}

/* ---- on the loop ---- */

/* Count the subscriptions that a client began, or (NULL) all that came by TCP. */
static uint32_t count_subscriptions(const struct server *s, const struct connection *owner)
{
    uint32_t n = 0;
    for (const struct query_subscription *f = s->feeds; f; f = f->next)
        n += owner ? f->owner == owner : !f->owner->local;
    return n;
}

static void on_timer(lws_sorted_usec_list_t *timer)
{
    static const char *const words[] = {"watch"};
    struct query_subscription *f = lws_container_of(timer, struct query_subscription, timer);
    lws_sul_schedule(f->server->context, 0, timer, on_timer,
                     (lws_usec_t)(f->interval_ns / NS_PER_US));
    if (atomic_load_explicit(&f->busy, memory_order_acquire) || clock_now() < f->rest_until_ns)
        return;
    struct host_request request = {
        .argc = 1,
        .argv = words,
        .work = run_tick,
        .client = &f->owner->streams,
        .stream = true,
        .reply = &f->reply,
        .done = tick_done,
    };
    f->siblings = count_subscriptions(f->server, f->owner);
    atomic_store_explicit(&f->busy, true, memory_order_relaxed);
    atomic_store_explicit(&f->ended, false, memory_order_relaxed);
    (void)atomic_fetch_add_explicit(&f->refs, 1, memory_order_relaxed); /* for tick_done() */
    int rc = host_submit(f->server->host, &request);
    if (rc < 0)
        /* All workers are busy, or the core is leaving and may yet stay: the next time. */
        tick_done(&f->reply, rc == -EAGAIN || rc == -ESHUTDOWN ? 0 : rc, err_why(rc));
}

static int subscription_new(struct connection *owner, const struct message *m,
                            enum sql_format format, struct query_subscription **ret)
{
    struct server *s = owner->server;
    if (count_subscriptions(s, owner) >= SERVER_SUBSCRIPTIONS_CONNECTION)
        return err_set(-EAGAIN,
                       "%d different statements are watched by this connection already; end one",
                       SERVER_SUBSCRIPTIONS_CONNECTION);
    if (server_get(s->n_subscriptions) >= SERVER_SUBSCRIPTIONS ||
        (!owner->local && count_subscriptions(s, NULL) >= SERVER_SUBSCRIPTIONS_TCP))
        return err_set(-EAGAIN, "%d different statements are watched already; end one",
                       owner->local ? SERVER_SUBSCRIPTIONS : SERVER_SUBSCRIPTIONS_TCP);
    struct query_subscription *f = calloc(1, sizeof(*f));
    if (f)
        f->sql = strdup(m->text);
    if (!f || !f->sql || pthread_mutex_init(&f->mutex, NULL) != 0) {
        free(f ? f->sql : NULL);
        free(f);
        return err_set(-ENOMEM, "no memory for a stream");
    }
    atomic_store_explicit(&f->refs, 1, memory_order_relaxed);
    server_ref(s);
    server_connection_ref(owner);
    f->server = s;
    f->owner = owner;
    f->format = format;
    f->interval_ns = m->interval_ns;
    f->last = m->last;
    f->width = m->width;
    f->hides = owner->access != ACCESS_FULL;
    f->shareable = m->last == 0 && (format == SQL_FORMAT_JSONL || format == SQL_FORMAT_JSON);
    buf_init(&f->text, SERVER_TICK_BYTES);
    f->next = s->feeds;
    s->feeds = f;
    server_add(s->n_subscriptions, 1);
    lws_sul_schedule(s->context, 0, &f->timer, on_timer, 1);
    *ret = f;
    return 0;
}

/* Let a job follow the feed.  false: it is of no more use. */
static bool subscription_join(struct query_subscription *f, struct job *j)
{
    (void)pthread_mutex_lock(&f->mutex);
    bool joined = !f->over;
    if (joined) {
        j->subscription_next = f->jobs;
        f->jobs = j;
    }
    (void)pthread_mutex_unlock(&f->mutex);
    if (joined)
        j->feed = f;
    return joined;
}

static bool is_same(const struct query_subscription *f, const struct message *m,
                    enum sql_format format, bool hides)
{
    return f->shareable && f->hides == hides && m->last == 0 && f->format == format &&
           f->interval_ns == m->interval_ns && strcmp(f->sql, m->text) == 0;
}

void server_watch_start(struct connection *p, const struct message *m)
{
    enum sql_format format;
    bool hides = p->access != ACCESS_FULL;
    int rc = sql_format_parse(m->format, &format);
    if (rc == 0 && format == SQL_FORMAT_ARROW)
        rc = err_set(-EINVAL,
                     "a watch takes table, expanded, json, jsonl or csv, not arrow; a query does");
    struct job *j = rc < 0 ? NULL : server_job_new(p, JOB_WATCH, m->id);
    if (rc == 0 && !j)
        rc = -ENOMEM;
    struct query_subscription *f = p->server->feeds;
    while (j && f && !(is_same(f, m, format, hides) && subscription_join(f, j)))
        f = f->next;
    if (f && j) {
        (void)atomic_fetch_add_explicit(&f->refs, 1, memory_order_relaxed);
        return;
    }
    if (rc == 0)
        rc = subscription_new(p, m, format, &f);
    if (rc == 0) {
        (void)subscription_join(f, j); /* its first count is this job's */
        return;
    }
    if (j)
        server_job_remove(j);
    (void)server_job_refuse(p, m->id, rc);
}

static void subscription_stop(struct query_subscription *f)
{
    struct query_subscription **at = &f->server->feeds;
    int none = 0; /* a reason that is there stays: the host tells time limits by it */
    while (*at && *at != f)
        at = &(*at)->next;
    if (!*at)
        return;
    *at = f->next;
    server_add(f->server->n_subscriptions, -1u);
    (void)atomic_compare_exchange_strong_explicit(&f->reply.cancelled, &none, HOST_GONE,
                                                  memory_order_release, memory_order_relaxed);
    if (f->server->context)
        lws_sul_schedule(f->server->context, 0, &f->timer, on_timer, LWS_SET_TIMER_USEC_CANCEL);
}

void server_watch_stop(struct job *j)
{
    struct query_subscription *f = j->feed;
    if (!f)
        return;
    j->feed = NULL;
    (void)pthread_mutex_lock(&f->mutex);
    struct job **at = &f->jobs;
    while (*at && *at != j)
        at = &(*at)->subscription_next;
    if (*at)
        *at = j->subscription_next;
    bool empty = f->jobs == NULL;
    (void)pthread_mutex_unlock(&f->mutex);
    if (empty)
        subscription_stop(f);
    subscription_unref(f);
}
