/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/ship/otlp.c - OpenTelemetry over HTTP, as protocol buffers: figures and rows as metrics, rows
 * that took time as spans.
 *
 * One thread.  Source: opentelemetry.io/docs/specs/otlp, opentelemetry-proto 1.x.  A table whose
 * rows have a time and a duration (names as `export --format perfetto` knows them) becomes spans:
 * the time is the end.  Of any other table each numeric column is a gauge.  A span has an id made
 * of its source, table and row, so one that is sent again is the same span.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/answer/column_roles.h"
#include "cli/ship/http_post.h"
#include "cli/ship/series.h"
#include "core/base/err.h"
#include "core/base/version.h"
#include "sdk/lib/hash.h"
#include "sdk/lib/protobuf.h"

#define ITEM_BYTES ((size_t)4 << 20)
#define CUMULATIVE 2
#define KIND_INTERNAL 1

struct otlp {
    struct http http;
    char base[1024];
    struct buf items; /* Metrics or Spans of a request, each with its head */
    bool spans;
    bool figures; /* of what is refused nothing comes again, so it is counted */
    uint32_t n;
};

/* ---- common ---- */

/* KeyValue {1: key, 2: AnyValue {1: text, 3: int, 4: double}} */
static void add_attribute(struct buf *to, uint32_t field, const char *key,
                          const struct sql_value *v)
{
    char room[LABEL_VALUE_BYTES];
    struct buf pair, value;
    struct labels clean = {.n = 0};

    buf_init(&pair, ITEM_BYTES);
    buf_init(&value, ITEM_BYTES);
    protobuf_text(&pair, 1, key);
    if (v->type == SQL_INT)
        protobuf_number(&value, 3, (uint64_t)v->integer);
    else if (v->type == SQL_DOUBLE)
        protobuf_double(&value, 4, v->number);
    else if (v->type == SQL_BOOL)
        protobuf_number(&value, 2, v->boolean);
    else if (v->type == SQL_TEXT) {
        labels_add(&clean, "x", v->text.data, v->text.size);
        protobuf_text(&value, 1, clean.n > 0 ? clean.list[0].value : "");
    } else {
        size_t n = sql_cell_text(v, /* exact= */ true, room);
        protobuf_bytes(&value, 1, room, n);
    }
    protobuf_message(&pair, 2, &value);
    protobuf_message(to, field, &pair);
    buf_done(&pair);
    buf_done(&value);
}

static void add_text_attribute(struct buf *to, uint32_t field, const char *key, const char *text)
{
    struct sql_value v = {.type = SQL_TEXT};

    v.text.data = text;
    v.text.size = (uint32_t)strlen(text);
    if (text[0] != '\0')
        add_attribute(to, field, key, &v);
}

static void add_int_attribute(struct buf *to, uint32_t field, const char *key, int64_t value)
{
    const struct sql_value v = {.type = SQL_INT, .integer = value};

    add_attribute(to, field, key, &v);
}

/* Resource {1: attributes}: by the names that OpenTelemetry has for them. */
static void add_resource(struct buf *to, const struct ship_source *s)
{
    struct buf resource;
    char process[24];

    ship_process_text(s, process);
    buf_init(&resource, ITEM_BYTES);
    add_text_attribute(&resource, 1, "service.name",
                       s->tags.job[0] != '\0' ? s->tags.job : "probing");
    add_text_attribute(&resource, 1, "service.instance.id", process);
    add_text_attribute(&resource, 1, "host.name", s->tags.host);
    add_text_attribute(&resource, 1, "probing.role", s->tags.role);
    if (s->pid > 0)
        add_int_attribute(&resource, 1, "process.pid", s->pid);
    if (s->tags.rank != MEMBER_UNKNOWN)
        add_int_attribute(&resource, 1, "probing.rank", s->tags.rank);
    protobuf_message(to, 1, &resource);
    buf_done(&resource);
}

/* ---- requests ---- */

/* A varint at *at; false: there is none. */
static bool take_varint(const struct buf *b, size_t *at, uint64_t *ret)
{
    *ret = 0;
    for (int shift = 0; shift < 64 && *at < b->size; shift += 7) {
        uint8_t byte = (uint8_t)b->data[(*at)++];
        *ret |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return true;
    }
    return false;
}

/* Give how many were refused, of {1: partial_success {1: that number, 2: why}}; 0: none said. */
static uint64_t refused_by(const struct buf *answer)
{
    uint64_t head, size, n;
    size_t at = 0;

    if (!take_varint(answer, &at, &head) || head != (1 << 3 | 2) ||
        !take_varint(answer, &at, &size) || size > answer->size - at ||
        !take_varint(answer, &at, &head) || head != 1 << 3 || !take_varint(answer, &at, &n))
        return 0;
    return n;
}

/* {1: ResourceX {1: Resource, 2: ScopeX {1: Scope {1: name, 2: version}, 2: items}}} */
static int post_items(struct ship_destination *d, const struct ship_source *source,
                      const char *items, size_t size, uint32_t n)
{
    struct otlp *o = d->self;
    struct http_answer a = {.status = 0};
    struct buf scope, scoped, resource, body;
    char path[1100];

    buf_init(&scope, 4096);
    buf_init(&scoped, 4 * ITEM_BYTES);
    buf_init(&resource, 4 * ITEM_BYTES);
    buf_init(&body, 4 * ITEM_BYTES);
    protobuf_text(&scope, 1, "probing");
    protobuf_text(&scope, 2, probing_build);
    protobuf_message(&scoped, 1, &scope);
    (void)buf_add(&scoped, items, size);
    add_resource(&resource, source);
    protobuf_message(&resource, 2, &scoped);
    protobuf_message(&body, 1, &resource);
    (void)snprintf(path, sizeof(path), "%s/v1/%s", o->base, o->spans ? "traces" : "metrics");
    const struct http_post p = {.path = path,
                                .query = o->http.query,
                                .type = "application/x-protobuf",
                                .body = body.data,
                                .size = body.size};
    int rc =
        body.failed ? err_set(-EREMOTEIO, "a request is too long") : http_post(&o->http, &p, &a);
    rc = http_judge(&o->http, rc, &a, &d->wait_ns);
    if (rc == 0) {
        uint64_t refused = refused_by(&a.body);
        refused = refused < n ? refused : n;
        d->refused += refused;
        d->samples += n - refused;
    }
    buf_done(&a.body);
    buf_done(&scope);
    buf_done(&scoped);
    buf_done(&resource);
    buf_done(&body);
    return rc;
}

/* Bytes of the first n items. */
static size_t bytes_of(const struct buf *items, size_t from, uint32_t n)
{
    uint64_t head, size;
    size_t at = from;

    for (uint32_t i = 0; i < n; i++)
        if (take_varint(items, &at, &head) && take_varint(items, &at, &size))
            at += size;
    return at - from;
}

/* Send the items, in halves when they are too long. */
static int send_items(struct ship_destination *d, const struct ship_source *source, size_t from,
                      size_t size, uint32_t n)
{
    struct otlp *o = d->self;
    bool known = n > 1 && size > o->http.most;
    int rc = known ? -EFBIG : post_items(d, source, o->items.data + from, size, n);

    if (rc == -EFBIG && n > 1 && (known || http_shorten(&o->http, size))) {
        size_t half = bytes_of(&o->items, from, n / 2);
        rc = send_items(d, source, from, half, n / 2);
        return rc < 0 ? rc : send_items(d, source, from + half, size - half, n - n / 2);
    }
    if (!o->figures || (rc != -EREMOTEIO && rc != -EFBIG))
        return rc;
    ship_refused(d, n);
    return 0;
}

static int flush_items(struct ship_destination *d, const struct ship_source *source)
{
    struct otlp *o = d->self;
    int rc = o->n == 0         ? 0
             : o->items.failed ? err_set(-EREMOTEIO, "a request is too long")
                               : send_items(d, source, 0, o->items.size, o->n);

    o->n = 0;
    buf_reset(&o->items);
    return rc;
}

/* `item` is a whole point or span; it is emptied. */
static int add_item(struct ship_destination *d, const struct ship_source *source, struct buf *item)
{
    struct otlp *o = d->self;
    int rc = o->n > 0 && o->items.size + item->size > o->http.most ? flush_items(d, source) : 0;

    protobuf_message(&o->items, 2, item);
    o->n++;
    return rc < 0                 ? rc
           : o->items.failed != 0 ? err_set(-EREMOTEIO, "a point or span is too long")
                                  : 0;
}

static void drop_request(struct otlp *o)
{
    o->n = 0;
    buf_reset(&o->items);
}

/* ---- metrics ---- */

/* Metric {1: name, 2: description, 3: unit, 5: Gauge {1: points}, 7: Sum {1: points, 2: kind of
 * time, 3: monotonic}} */
static void add_metric(struct buf *to, const char *name, const char *help, const char *unit,
                       bool counter, struct buf *points)
{
    protobuf_text(to, 1, name);
    if (help[0] != '\0')
        protobuf_text(to, 2, help);
    if (unit[0] != '\0')
        protobuf_text(to, 3,
                      strcmp(unit, "seconds") == 0 ? "s"
                      : strcmp(unit, "bytes") == 0 ? "By"
                                                   : unit);
    if (counter) {
        protobuf_number(points, 2, CUMULATIVE);
        protobuf_number(points, 3, 1);
    }
    protobuf_message(to, counter ? 7 : 5, points);
}

/* May the point go?  Its series is its source, its name and its attributes, which are all that is
 * in it so far; one that may not is emptied. */
static int take_point(struct ship_destination *d, const struct ship_source *source,
                      const char *name, struct buf *point, bool *ret)
{
    uint64_t hash = hash_text(hash_text(HASH_FNV, source->id), name);
    int rc = series_take(d, hash_bytes(hash, point->data, point->size), 1, ret);

    if (!*ret)
        buf_reset(point);
    return rc;
}

static int send_metrics(struct ship_destination *d, const struct ship_metrics *m)
{
    struct otlp *o = d->self;
    struct buf metric, points, point;
    struct labels labels;
    int rc = 0;

    buf_init(&metric, ITEM_BYTES);
    buf_init(&points, ITEM_BYTES);
    buf_init(&point, ITEM_BYTES);
    o->spans = false;
    o->figures = true;
    for (uint32_t i = 0; i < m->n && rc == 0; i++) {
        const struct ship_sample *s = &m->list[i];
        labels.n = 0;
        if (!labels_parse(&labels, s->labels)) {
            d->refused++;
            continue;
        }
        bool goes = false;
        for (uint32_t k = 0; k < labels.n; k++)
            add_text_attribute(&point, 7, labels.list[k].name, labels.list[k].value);
        rc = take_point(d, m->source, s->name, &point, &goes);
        if (!goes)
            continue;
        protobuf_fixed64(&point, 3, (uint64_t)m->at_ns);
        protobuf_double(&point, 4, s->value);
        protobuf_message(&points, 1, &point);
        add_metric(&metric, s->name, s->help, s->unit, strcmp(s->type, "counter") == 0, &points);
        rc = add_item(d, m->source, &metric);
    }
    if (rc == 0)
        rc = flush_items(d, m->source);
    drop_request(o);
    buf_done(&metric);
    buf_done(&points);
    buf_done(&point);
    return rc;
}

/* ---- rows ---- */

struct writing {
    struct ship_destination *d;
    const struct ship_batch *b;
    int time, duration, name; /* columns, -1: none */
    int trace, span, parent;  /* numbers by which rows say what belongs together */
    double duration_ns;       /* of one unit of the duration */
    struct buf item, points, point;
};

/* Gives the column of theirs with that role; -1: none. */
static int find_role(const struct ship_batch *b, enum column_role role)
{
    int i = column_in_role(b->columns + SHIP_TAGS, b->n_columns - SHIP_TAGS, role);

    return i < 0 ? i : i + SHIP_TAGS;
}

/* Gives the column of ids; -1: none. */
static int find_number(const struct ship_batch *b, const char *name)
{
    for (uint32_t i = SHIP_TAGS; i < b->n_columns; i++)
        if (b->columns[i].type == SQL_INT && strcmp(b->columns[i].name, name) == 0)
            return (int)i;
    return -1;
}

static void find_roles(struct writing *w)
{
    w->time = ship_batch_time(w->b);
    w->duration = find_role(w->b, ROLE_DURATION);
    w->name = find_role(w->b, ROLE_NAME);
    w->trace = find_number(w->b, "trace_id");
    w->span = find_number(w->b, "span_id");
    w->parent = find_number(w->b, "parent_id");
    if (w->duration >= 0)
        w->duration_ns = column_unit_ns(&w->b->columns[w->duration]);
}

static bool is_own_attribute(const struct writing *w, uint32_t column)
{
    return column >= SHIP_TAGS && (int)column != w->time && (int)column != w->duration &&
           (int)column != w->name && w->b->columns[column].type != SQL_BLOB;
}

static void add_id(struct buf *to, uint32_t field, uint64_t high, uint64_t low, size_t size)
{
    char bytes[16];

    memcpy(bytes, &high, 8);
    memcpy(bytes + 8, &low, 8);
    protobuf_bytes(to, field, bytes, size);
}

/* The number in such a column as an id that no other source has; 0: it has none. */
static uint64_t id_in(const struct writing *w, uint32_t part, uint32_t row, int column)
{
    struct sql_value v = {.type = SQL_NULL};

    if (column >= 0)
        ship_batch_value(w->b, part, row, (uint32_t)column, &v);
    if (v.type != SQL_INT)
        return 0;
    uint64_t id = hash_spread(hash_text(HASH_FNV, w->b->source->id) ^
                              hash_spread((uint64_t)v.integer ^ (uint64_t)w->b->table->id << 48));
    return id != 0 ? id : 1;
}

static void add_span_ids(struct writing *w, uint32_t part, uint32_t row, uint64_t number)
{
    uint64_t source = hash_spread(hash_text(HASH_FNV, w->b->source->id));
    uint64_t trace = id_in(w, part, row, w->trace), id = id_in(w, part, row, w->span);
    uint64_t parent = id_in(w, part, row, w->parent);
    uint64_t own = hash_spread(source ^ hash_spread(w->b->table->id) ^ hash_spread(number + 1));

    add_id(&w->item, 1, trace != 0 ? trace : source, hash_spread(source), 16);
    add_id(&w->item, 2, id != 0 ? id : own != 0 ? own : 1, 0, 8);
    if (parent != 0)
        add_id(&w->item, 4, parent, 0, 8);
}

/* Span {1: trace, 2: id, 4: parent, 5: name, 6: kind, 7: begin, 8: end, 9: attributes}.  `number`
 * is the row's, the same whenever it is sent.  What has not ended is none. */
static int write_span(struct writing *w, uint32_t part, uint32_t row, uint64_t number)
{
    const struct ship_batch *b = w->b;
    struct sql_value time, duration, name = {.type = SQL_NULL}, v;
    struct labels clean = {.n = 0};

    ship_batch_value(b, part, row, (uint32_t)w->time, &time);
    ship_batch_value(b, part, row, (uint32_t)w->duration, &duration);
    if (duration.type == SQL_NULL)
        return 0;
    double ns = series_number(&duration) * w->duration_ns;
    if (time.type != SQL_TIMESTAMP || !(ns >= 0 && ns < 9e18)) {
        w->d->refused++;
        return 0;
    }
    if (w->name >= 0)
        ship_batch_value(b, part, row, (uint32_t)w->name, &name);
    if (name.type == SQL_TEXT)
        labels_add(&clean, "x", name.text.data, name.text.size);
    add_span_ids(w, part, row, number);
    protobuf_text(&w->item, 5, clean.n > 0 ? clean.list[0].value : b->table->name);
    protobuf_number(&w->item, 6, KIND_INTERNAL);
    protobuf_fixed64(&w->item, 7, (uint64_t)time.integer - (uint64_t)ns);
    protobuf_fixed64(&w->item, 8, (uint64_t)time.integer);
    add_text_attribute(&w->item, 9, "probing.table", b->table->name);
    for (uint32_t i = 0; i < b->n_columns; i++) {
        if (!is_own_attribute(w, i))
            continue;
        ship_batch_value(b, part, row, i, &v);
        if (v.type != SQL_NULL)
            add_attribute(&w->item, 9, b->columns[i].name, &v);
    }
    return add_item(w->d, b->source, &w->item);
}

/* One metric a numeric column and row: a point with the texts of the row as attributes. */
static int write_points(struct writing *w, uint32_t part, uint32_t row)
{
    const struct ship_batch *b = w->b;
    struct sql_value time, v;
    char table[NAME_BYTES], name[NAME_BYTES];
    int rc = 0;

    ship_batch_value(b, part, row, (uint32_t)w->time, &time);
    if (time.type != SQL_TIMESTAMP) {
        w->d->refused++;
        return 0;
    }
    series_name(table, sizeof(table), "probing", b->table->schema, b->table->name);
    for (uint32_t i = SHIP_TAGS; i < b->n_columns && rc == 0; i++) {
        ship_batch_value(b, part, row, i, &v);
        if (!series_is_number(&b->columns[i]) || v.type == SQL_NULL)
            continue;
        series_name(name, sizeof(name), table, b->columns[i].name, "");
        bool goes = false;
        for (uint32_t k = SHIP_TAGS; k < b->n_columns; k++) {
            struct sql_value text;
            ship_batch_value(b, part, row, k, &text);
            if (text.type == SQL_TEXT)
                add_attribute(&w->point, 7, b->columns[k].name, &text);
        }
        rc = take_point(w->d, b->source, name, &w->point, &goes);
        if (!goes)
            continue;
        protobuf_fixed64(&w->point, 3, (uint64_t)time.integer);
        if (v.type == SQL_INT)
            protobuf_fixed64(&w->point, 6, (uint64_t)v.integer);
        else
            protobuf_double(&w->point, 4, series_number(&v));
        protobuf_message(&w->points, 1, &w->point);
        add_metric(&w->item, name, "", "", /* counter= */ false, &w->points);
        rc = add_item(w->d, b->source, &w->item);
    }
    return rc;
}

static int send_batch(struct ship_destination *d, const struct ship_batch *b)
{
    struct writing w = {.d = d, .b = b};
    struct otlp *o = d->self;
    uint64_t number = b->from;
    int rc = 0;

    find_roles(&w);
    if (w.time < 0) {
        d->refused += b->rows;
        return 0;
    }
    o->spans = w.duration >= 0;
    o->figures = false;
    buf_init(&w.item, ITEM_BYTES);
    buf_init(&w.points, ITEM_BYTES);
    buf_init(&w.point, ITEM_BYTES);
    for (uint32_t part = 0; part < b->n_parts; part++)
        for (uint32_t row = 0; row < answer_rows_count(b->parts[part]) && rc == 0; row++, number++)
            rc = o->spans ? write_span(&w, part, row, number) : write_points(&w, part, row);
    if (rc == 0)
        rc = flush_items(d, b->source);
    drop_request(o);
    buf_done(&w.item);
    buf_done(&w.points);
    buf_done(&w.point);
    return rc;
}

/* ---- the destination ---- */

static int open_otlp(struct ship_destination *d, const char *rest)
{
    struct otlp *o = calloc(1, sizeof(*o));

    if (o == NULL)
        return err_set(-ENOMEM, "no memory for a destination");
    d->self = o;
    buf_init(&o->items, 2 * ITEM_BYTES);
    int rc = http_open(rest, d->http.tls ? "443" : "4318", &d->http, &o->http);
    size_t n = strlen(o->http.path);
    while (n > 0 && o->http.path[n - 1] == '/')
        n--;
    (void)snprintf(o->base, sizeof(o->base), "%.*s", (int)n, o->http.path);
    return rc;
}

static void close_otlp(struct ship_destination *d)
{
    struct otlp *o = d->self;

    if (o == NULL)
        return;
    http_close(&o->http);
    buf_done(&o->items);
    free(o);
}

const struct ship_kind ship_otlp = {
    .schemes = {"otlp+http://"},
    .example = "otlp+http://HOST:4318",
    .doc = "OpenTelemetry: metrics and spans",
    .promise = "each point and span at least once, always with the same time and id",
    .metrics = true,
    .series = true,
    .open = open_otlp,
    .send = send_batch,
    .send_metrics = send_metrics,
    .close = close_otlp};
