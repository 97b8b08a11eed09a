/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/ship/remote_write.c - Prometheus remote write 0.1.0, which VictoriaMetrics, Mimir, Thanos and
 * others take, too.
 *
 * One thread.  Source: prometheus.io/docs/specs/prw/remote_write_spec.  What is sent again is the
 * same samples, which these servers take as one.  A server refuses a request for one sample that it
 * cannot take (too old, out of order): then the halves are sent, until it is known which series it
 * is.
 *
 *     WriteRequest {1: TimeSeries {1: Label {1: name, 2: value}, 2: Sample {1: double, 2: ms}}}
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/ship/http_post.h"
#include "cli/ship/series.h"
#include "core/base/err.h"
#include "sdk/lib/array.h"
#include "sdk/lib/hash.h"
#include "sdk/lib/protobuf.h"
#include "sdk/lib/snappy.h"

#define SERIES_BYTES ((size_t)256 << 10)
#define SAMPLES_EACH 64 /* of a series in a request: that much is refused together */
#define REFUSALS_MAX 64 /* requests to find out what is refused of one; the rest is, then */
#define MS_NS 1000000

struct place {
    size_t at, size;
    uint32_t samples;
};

struct remote_write {
    struct http http;
    struct buf series; /* of a request */
    struct place *places;
    uint32_t n, room;
    uint32_t refusals;
};

/* ---- requests ---- */

static int post_series(struct ship_destination *d, uint32_t from, uint32_t to)
{
    struct remote_write *w = d->self;
    struct http_answer a = {.status = 0};
    const struct place *first = &w->places[from], *last = &w->places[to - 1];
    struct buf plain = {.data = w->series.data + first->at,
                        .size = last->at + last->size - first->at};
    struct buf body;

    buf_init(&body, 4 * HTTP_BODY_BYTES);
    (void)snappy_add(&body, plain.data, plain.size);
    const struct http_post p = {
        .path = w->http.path,
        .query = w->http.query,
        .type = "application/x-protobuf",
        .headers = {"Content-Encoding: snappy", "X-Prometheus-Remote-Write-Version: 0.1.0"},
        .body = body.data,
        .size = body.size};
    int rc =
        body.failed ? err_set(-EREMOTEIO, "a request is too long") : http_post(&w->http, &p, &a);
    rc = http_judge(&w->http, rc, &a, &d->wait_ns);
    buf_done(&a.body);
    buf_done(&body);
    return rc;
}

static uint32_t samples_in(const struct remote_write *w, uint32_t from, uint32_t to)
{
    uint32_t n = 0;

    for (uint32_t i = from; i < to; i++)
        n += w->places[i].samples;
    return n;
}

/* Send those series, in halves when they are refused. */
static int send_range(struct ship_destination *d, uint32_t from, uint32_t to)
{
    struct remote_write *w = d->self;
    size_t bytes = w->places[to - 1].at + w->places[to - 1].size - w->places[from].at;
    bool whole = to - from == 1, known = bytes > w->http.most && !whole;
    int rc = known ? -EFBIG : w->refusals >= REFUSALS_MAX ? -EREMOTEIO : post_series(d, from, to);

    if (rc == 0) {
        d->samples += samples_in(w, from, to);
        return 0;
    }
    if (rc != -EREMOTEIO && rc != -EFBIG)
        return rc;
    if (rc == -EREMOTEIO)
        whole = whole || ++w->refusals >= REFUSALS_MAX;
    else if (!known)
        whole = whole || !http_shorten(&w->http, bytes);
    if (whole) {
        ship_refused(d, samples_in(w, from, to));
        return 0;
    }
    uint32_t middle = from + (to - from) / 2;
    rc = send_range(d, from, middle);
    return rc < 0 ? rc : send_range(d, middle, to);
}

static int flush_series(struct ship_destination *d)
{
    struct remote_write *w = d->self;
    int rc = 0;

    w->refusals = 0;
    if (w->n > 0)
        rc = send_range(d, 0, w->n);
    w->n = 0;
    buf_reset(&w->series);
    return rc;
}

/* `one` is a whole TimeSeries, of which `labels` bytes say which it is; it is emptied. */
static int add_series(struct ship_destination *d, struct buf *one, size_t labels, uint32_t samples)
{
    struct remote_write *w = d->self;
    bool taken = false;

    int rc =
        one->failed ? 0 : series_take(d, hash_bytes(HASH_FNV, one->data, labels), samples, &taken);
    if (rc == 0 && !one->failed && !taken) {
        buf_reset(one);
        return 0;
    }
    rc = rc < 0 ? rc : w->n > 0 && w->series.size + one->size > w->http.most ? flush_series(d) : 0;

    if (rc < 0)
        return rc;
    struct place *more = array_grow(w->places, w->n, &w->room, sizeof(*more), UINT32_MAX);
    if (more == NULL)
        return err_set(-ENOMEM, "no memory for series");
    w->places = more;
    size_t at = w->series.size;
    protobuf_message(&w->series, 1, one);
    if (w->series.failed)
        return err_set(-EREMOTEIO, "a series is too long");
    w->places[w->n++] = (struct place){at, w->series.size - at, samples};
    return 0;
}

static void add_label(struct buf *series, struct buf *room, const char *name, const char *value)
{
    protobuf_text(room, 1, name);
    protobuf_text(room, 2, value);
    protobuf_message(series, 1, room);
}

/* In order of names, as the specification wants it: "__name__" is before small letters, and all
 * labels begin with these, or with a capital one. */
static void add_labels(struct buf *series, struct buf *room, const char *name,
                       const struct labels *l)
{
    bool told = false;

    for (uint32_t i = 0; i < l->n; i++) {
        if (!told && strcmp(l->list[i].name, "__name__") > 0) {
            add_label(series, room, "__name__", name);
            told = true;
        }
        add_label(series, room, l->list[i].name, l->list[i].value);
    }
    if (!told)
        add_label(series, room, "__name__", name);
}

static void add_sample(struct buf *series, struct buf *room, double value, int64_t at_ns)
{
    protobuf_double(room, 1, value);
    protobuf_number(room, 2, (uint64_t)(at_ns / MS_NS));
    protobuf_message(series, 2, room);
}

/* ---- figures ---- */

/* A request that was not sent is made anew from what it was made of. */
static void drop_request(struct remote_write *w)
{
    w->n = 0;
    buf_reset(&w->series);
}

static int send_metrics(struct ship_destination *d, const struct ship_metrics *m)
{
    struct buf series, room;
    struct labels labels;
    char name[NAME_BYTES];
    int rc = 0;

    buf_init(&series, SERIES_BYTES);
    buf_init(&room, SERIES_BYTES);
    for (uint32_t i = 0; i < m->n && rc == 0; i++) {
        const struct ship_sample *s = &m->list[i];
        labels_of_source(m->source, &labels);
        if (!labels_parse(&labels, s->labels)) {
            d->refused++;
            continue;
        }
        series_name(name, sizeof(name), s->name, "", "");
        add_labels(&series, &room, name, &labels);
        size_t end = series.size;
        add_sample(&series, &room, s->value, m->at_ns);
        rc = add_series(d, &series, end, 1);
    }
    if (rc == 0)
        rc = flush_series(d);
    drop_request(d->self);
    buf_done(&series);
    buf_done(&room);
    return rc;
}

/* ---- rows ---- */

struct writing {
    struct ship_destination *d;
    const struct ship_batch *b;
    const struct series_row *rows;
    struct buf series, room;
};

/* The samples of one column of some rows of one series. */
static int write_column(struct writing *w, uint32_t column, const char *name,
                        const struct labels *labels, uint32_t from, uint32_t to)
{
    struct sql_value v;
    uint32_t samples = 0;

    add_labels(&w->series, &w->room, name, labels);
    size_t end = w->series.size;
    for (uint32_t i = from; i < to; i++) {
        ship_batch_value(w->b, w->rows[i].part, w->rows[i].row, column, &v);
        if (v.type == SQL_NULL)
            continue;
        add_sample(&w->series, &w->room, series_number(&v), w->rows[i].at_ns);
        samples++;
    }
    if (samples > 0)
        return add_series(w->d, &w->series, end, samples);
    buf_reset(&w->series);
    return 0;
}

static int write_rows(struct writing *w, uint32_t from, uint32_t to)
{
    const struct ship_batch *b = w->b;
    struct labels labels;
    char name[NAME_BYTES], table[NAME_BYTES];
    int rc = 0;

    labels_of_row(b, w->rows[from].part, w->rows[from].row, &labels);
    series_name(table, sizeof(table), "probing", b->table->schema, b->table->name);
    for (uint32_t i = SHIP_TAGS; i < b->n_columns && rc == 0; i++) {
        if (!series_is_number(&b->columns[i]))
            continue;
        series_name(name, sizeof(name), table, b->columns[i].name, "");
        rc = write_column(w, i, name, &labels, from, to);
    }
    return rc;
}

static int send_batch(struct ship_destination *d, const struct ship_batch *b)
{
    struct writing w = {.d = d, .b = b};
    struct series_row *rows = NULL;
    uint64_t left_out = 0;
    uint32_t n = 0;
    int rc = series_rows(b, &rows, &n, &left_out);

    w.rows = rows;
    buf_init(&w.series, SERIES_BYTES);
    buf_init(&w.room, SERIES_BYTES);
    for (uint32_t i = 0, end; i < n && rc == 0; i = end) {
        for (end = i + 1; end < n && end - i < SAMPLES_EACH && rows[end].series == rows[i].series;)
            end++;
        rc = write_rows(&w, i, end);
    }
    if (rc == 0)
        rc = flush_series(d);
    drop_request(d->self);
    if (rc == 0)
        d->refused += left_out;
    buf_done(&w.series);
    buf_done(&w.room);
    free(rows);
    return rc;
}

/* ---- the destination ---- */

static int open_remote_write(struct ship_destination *d, const char *rest)
{
    struct remote_write *w = calloc(1, sizeof(*w));

    if (w == NULL)
        return err_set(-ENOMEM, "no memory for a destination");
    d->self = w;
    buf_init(&w->series, 2 * HTTP_BODY_BYTES);
    int rc = http_open(rest, d->http.tls ? "443" : "9090", &d->http, &w->http);
    if (rc == 0 && (w->http.path[0] == '\0' || strcmp(w->http.path, "/") == 0))
        rc = err_set(-EINVAL,
                     "%s needs the path of remote write: /api/v1/write for Prometheus and "
                     "VictoriaMetrics",
                     d->shown);
    return rc;
}

static void close_remote_write(struct ship_destination *d)
{
    struct remote_write *w = d->self;

    if (w == NULL)
        return;
    http_close(&w->http);
    buf_done(&w->series);
    free(w->places);
    free(w);
}

const struct ship_kind ship_remote_write = {
    .schemes = {"prometheus+http://", "remote-write+http://", "victoriametrics+http://"},
    .example = "prometheus+http://HOST:9090/api/v1/write",
    .doc = "remote write: Prometheus, VictoriaMetrics",
    .promise = "each sample at least once, always with the same time",
    .metrics = true,
    .series = true,
    .open = open_remote_write,
    .send = send_batch,
    .send_metrics = send_metrics,
    .close = close_remote_write};
