/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/format/arrow.c - answers as an Arrow IPC stream, from the engine's own vectors.
 *
 * The query's thread only.  Rows are gathered by column until they are a record batch, which goes
 * out at once: what is kept is one batch, however long the answer.  No dictionaries, no
 * compression; little-endian machines only, as the rest of us.
 *
 *     0xffffffff, i32 size of the description, the description (a flatbuffer), the body
 *     ... the schema, then batches of rows ...
 *     0xffffffff, 0: the end; a stream without it is not whole
 */
#include "core/sql/format/format.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/sql/format/flatbuffer.h"
#include "core/sql/value/query.h"

#define BATCH_ROWS 16384
#define BATCH_BYTES ((size_t)1 << 20) /* or as soon as there is so much: the memory is the host's */
#define SLICE_ROWS 256                /* rows between looks at that: texts may be long */
#define META_MAX ((size_t)16 << 20)
#define DAY_NS (86400 * (int64_t)NS_PER_S)

/* Numbers of the format's own definition (Schema.fbs, Message.fbs). */
enum { VERSION_5 = 4, HEADER_SCHEMA = 1, HEADER_BATCH = 3 };
enum { KIND_NULL = 1, KIND_INT, KIND_FLOAT, KIND_BINARY, KIND_TEXT, KIND_BOOL };
enum { KIND_DATE = 8, KIND_TIME = 10, KIND_DURATION = 18 };
enum { FLOAT_DOUBLE = 2, UNIT_DAY = 0, UNIT_NS = 3 };

struct arrow_column {
    enum sql_type type;
    /* valid: bits, none while nothing is NULL; data: values, or all bytes; offsets: i32 ends. */
    struct buf valid, data, offsets;
    int64_t nulls;
};

struct arrow_stream {
    struct arrow_column *columns;
    uint32_t n, rows; /* rows of the batch that is gathered */
    struct buf meta;
};

static bool has_offsets(enum sql_type t)
{
    return sql_is_textual(t);
}

/* Buffers of a column in a batch. */
static uint32_t n_parts(enum sql_type t)
{
    return t == SQL_NULL ? 0 : has_offsets(t) ? 3 : 2;
}

struct key_value {
    const char *key, *value;
};

/* The field at `at` refers to metadata. */
static void add_metadata(struct buf *b, size_t at, const struct key_value *pairs, uint32_t n)
{
    size_t list = flat_tables(b, at, n);
    for (uint32_t i = 0; i < n; i++) {
        size_t t = flat_table(b, 2, 0);
        flat_refer(b, list + 4 * i, t);
        flat_text(b, flat_field(t, 0), pairs[i].key);
        flat_text(b, flat_field(t, 1), pairs[i].value);
    }
}

/* ---- messages ---- */

/* Gives the message's table: its field 2 is the header, 3 the body's size, 4 metadata. */
static size_t begin_message(struct buf *b, int kind, bool metadata)
{
    buf_reset(b);
    flat_add_i32(b, 0); /* where the root is */
    size_t m = flat_table(b, 5, metadata ? 0 : 1 << 4);
    flat_refer(b, 0, m);
    flat_set_i64(b, flat_field(m, 0), VERSION_5);
    flat_set_i64(b, flat_field(m, 1), kind);
    return m;
}

#define TOGETHER_BYTES ((size_t)32 << 10)

/* Each write may wake the thread that sends, so short ones are made one; the schema goes with the
 * first rows, or the end. */
static int send_bytes(struct sql_writer *w, const void *data, size_t size)
{
    if (w->out.size + size <= TOGETHER_BYTES)
        return buf_add(&w->out, data, size) < 0 ? sql_writer_send(w) : 0;
    int rc = sql_writer_send(w);
    return rc < 0 || size == 0 ? rc : w->write(w->arg, data, size);
}

static int send_message(struct sql_writer *w)
{
    struct buf *b = &w->arrow->meta;
    flat_pad(b, 8);
    if (b->failed)
        return err_set(b->failed, "the answer's columns are too many for memory");
    const int32_t head[2] = {-1, (int32_t)b->size};
    int rc = send_bytes(w, head, sizeof(head));
    return rc < 0 ? rc : send_bytes(w, b->data, b->size);
}

/* ---- the schema ---- */

static size_t add_type(struct buf *b, enum sql_type type, int *ret_kind)
{
    static const int kinds[] = {
        [SQL_NULL] = KIND_NULL,
        [SQL_BOOL] = KIND_BOOL,
        [SQL_INT] = KIND_INT,
        [SQL_DOUBLE] = KIND_FLOAT,
        [SQL_TEXT] = KIND_TEXT,
        [SQL_BLOB] = KIND_BINARY,
        [SQL_TIMESTAMP] = KIND_TIME,
        [SQL_INTERVAL] = KIND_DURATION,
        [SQL_DATE] = KIND_DATE,
        /* Arrow has months, days and ns, too; Parquet has not, and polars takes no such stream. */
        [SQL_CALENDAR] = KIND_TEXT};
    int kind = kinds[type];
    bool two = kind == KIND_INT || kind == KIND_TIME;
    bool one = kind == KIND_FLOAT || kind == KIND_DURATION || kind == KIND_DATE;
    size_t at = flat_table(b, two ? 2 : one, 0);
    *ret_kind = kind;
    if (kind == KIND_INT) {
        flat_set_i64(b, flat_field(at, 0), 64);
        flat_set_i64(b, flat_field(at, 1), 1); /* signed */
    } else if (one || two) {
        flat_set_i64(b, flat_field(at, 0),
                     kind == KIND_FLOAT  ? FLOAT_DOUBLE
                     : kind == KIND_DATE ? UNIT_DAY
                                         : UNIT_NS);
    }
    if (kind == KIND_TIME)
        flat_text(b, flat_field(at, 1), "UTC");
    return at;
}

/* The field at `at` refers to a column: name, type, unit and doc. */
static void add_column(struct buf *b, size_t at, const struct sql_column *c)
{
    const char *unit = sql_unit_name(c->unit);
    struct key_value about[3];
    uint32_t n = 0;
    int kind;
    if (unit[0])
        about[n++] = (struct key_value){"unit", unit};
    if (c->doc && c->doc[0])
        about[n++] = (struct key_value){"doc", c->doc};
    if (c->type == SQL_CALENDAR)
        about[n++] = (struct key_value){"type", "interval"};
    size_t f = flat_table(b, 7, (n ? 0 : 1 << 6) | 1 << 4);
    flat_refer(b, at, f);
    flat_set_i64(b, flat_field(f, 1), 1); /* may be NULL */
    flat_text(b, flat_field(f, 0), c->name);
    size_t type = add_type(b, c->type, &kind);
    flat_set_i64(b, flat_field(f, 2), kind);
    flat_refer(b, flat_field(f, 3), type);
    (void)flat_tables(b, flat_field(f, 5), 0); /* no children: an empty list that has to be there */
    if (n)
        add_metadata(b, flat_field(f, 6), about, n);
}

static struct arrow_stream *new_stream(const struct sql_column *columns, uint32_t n)
{
    struct arrow_stream *a = calloc(1, sizeof(*a));
    if (!a)
        return NULL;
    buf_init(&a->meta, META_MAX);
    a->columns = calloc(n ? n : 1, sizeof(*a->columns));
    a->n = a->columns ? n : 0;
    for (uint32_t i = 0; i < a->n; i++) {
        struct arrow_column *c = &a->columns[i];
        c->type = columns[i].type;
        buf_init(&c->valid, BATCH_ROWS / 8 + SLICE_ROWS);
        buf_init(&c->data, PIECE_BYTES);
        buf_init(&c->offsets, (BATCH_ROWS + SLICE_ROWS) * sizeof(int32_t));
        if (has_offsets(c->type))
            flat_add_i32(&c->offsets, 0);
    }
    return a;
}

int sql_arrow_columns(struct sql_writer *w, const struct sql_column *columns, uint32_t n)
{
    struct arrow_stream *a = w->arrow = new_stream(columns, n);
    if (!a || a->n != n)
        return err_set(-ENOMEM, "no memory for the answer's columns");
    struct buf *b = &a->meta;
    size_t m = begin_message(b, HEADER_SCHEMA, /* metadata= */ false);
    size_t schema = flat_table(b, 2, 0);
    flat_refer(b, flat_field(m, 2), schema);
    size_t list = flat_tables(b, flat_field(schema, 1), n);
    for (uint32_t i = 0; i < n; i++)
        add_column(b, list + 4 * i, &columns[i]);
    return send_message(w);
}

void sql_arrow_free(struct arrow_stream *a)
{
    if (!a)
        return;
    for (uint32_t i = 0; i < a->n; i++) {
        buf_done(&a->columns[i].valid);
        buf_done(&a->columns[i].data);
        buf_done(&a->columns[i].offsets);
    }
    free(a->columns);
    buf_done(&a->meta);
    free(a);
}

/* ---- rows ---- */

/* Rows `first` to first + n - 1 of the engine's batch, of one column. */
struct slice {
    struct query *q;
    const struct vec *v;
    const uint16_t *sel;
    uint32_t first, n;
    uint32_t at; /* where they begin in the batch that is gathered */
};

static uint32_t row_of(const struct slice *s, uint32_t k)
{
    return s->sel ? s->sel[s->first + k] : s->first + k;
}

static bool is_null(const struct slice *s, uint32_t row)
{
    return sql_is_null(s->v, row);
}

static void set_bit(struct buf *b, uint32_t at, bool on)
{
    if (at / 8 >= b->size)
        (void)buf_addc(b, 0);
    if (on && !b->failed)
        b->data[at / 8] = (char)((unsigned char)b->data[at / 8] | 1u << (at % 8));
}

/* Row `at` of the batch is NULL or not.  The bits begin with the first that is. */
static void set_valid(struct arrow_column *c, uint32_t at, bool valid)
{
    if (valid && c->nulls == 0)
        return;
    for (uint32_t i = 0; c->nulls == 0 && i < at; i++)
        set_bit(&c->valid, i, true);
    set_bit(&c->valid, at, valid);
    c->nulls += !valid;
}

static void add_numbers(struct arrow_column *c, const struct slice *s)
{
    int64_t *to = (int64_t *)(void *)buf_room(&c->data, s->n * sizeof(int64_t));
    if (!to)
        return;
    for (uint32_t k = 0; k < s->n; k++) {
        uint32_t row = row_of(s, k);
        to[k] = is_null(s, row) ? 0 : s->v->i[row]; /* of doubles the bits */
    }
    c->data.size += s->n * sizeof(int64_t);
}

static void add_dates(struct arrow_column *c, const struct slice *s)
{
    for (uint32_t k = 0; k < s->n; k++) {
        uint32_t row = row_of(s, k);
        int64_t ns = is_null(s, row) ? 0 : s->v->i[row], days = ns / DAY_NS;
        flat_add_i32(&c->data, (int32_t)(days - (ns < days * DAY_NS)));
    }
}

static void add_bools(struct arrow_column *c, const struct slice *s)
{
    for (uint32_t k = 0; k < s->n; k++) {
        uint32_t row = row_of(s, k);
        set_bit(&c->data, s->at + k, !is_null(s, row) && s->v->i[row] != 0);
    }
}

/* The text of a row; data NULL: it is NULL. */
static struct text text_of(const struct slice *s, uint32_t row)
{
    if (is_null(s, row))
        return (struct text){NULL, 0};
    struct text t = s->v->ids ? sql_id_text(s->q, s->v->ids[row]) : s->v->t[row];
    return t.data || s->v->ids ? t : (struct text){"", 0};
}

static void add_calendar(struct buf *b, struct text t)
{
    char text[SQL_CELL_BYTES];
    const struct sql_value v = {.type = SQL_CALENDAR, .text = {t.data, t.size}};
    size_t n = sql_cell_text(&v, /* exact= */ true, text);
    (void)buf_add(b, text, n);
}

static void add_texts(struct arrow_column *c, const struct slice *s)
{
    for (uint32_t k = 0; k < s->n; k++) {
        struct text t = text_of(s, row_of(s, k));
        set_valid(c, s->at + k, t.data != NULL);
        if (c->type == SQL_CALENDAR && t.data)
            add_calendar(&c->data, t);
        else if (c->type == SQL_TEXT && t.data)
            flat_add_utf8(&c->data, t.data, t.size);
        else if (t.data)
            (void)buf_add(&c->data, t.data, t.size);
        flat_add_i32(&c->offsets, (int32_t)c->data.size);
    }
}

static void add_slice(struct arrow_column *c, const struct slice *s)
{
    switch (c->type) {
    case SQL_NULL:
        c->nulls += s->n;
        return;
    case SQL_TEXT:
    case SQL_BLOB:
    case SQL_CALENDAR:
        add_texts(c, s);
        return;
    case SQL_BOOL:
        add_bools(c, s);
        break;
    case SQL_DATE:
        add_dates(c, s);
        break;
    case SQL_INT:
    case SQL_DOUBLE:
    case SQL_TIMESTAMP:
    case SQL_INTERVAL:
        add_numbers(c, s);
        break;
    }
    if (c->nulls || s->v->has_null || s->v->type == SQL_NULL)
        for (uint32_t k = 0; k < s->n; k++)
            set_valid(c, s->at + k, !is_null(s, row_of(s, k)));
}

/* ---- batches ---- */

/* Place the parts in the body, in the order in which send_body() sends them. */
static int64_t place_parts(struct arrow_stream *a, size_t nodes, size_t list)
{
    struct buf *b = &a->meta;
    int64_t at = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        const struct arrow_column *c = &a->columns[i];
        const struct buf *parts[] = {&c->valid, has_offsets(c->type) ? &c->offsets : &c->data,
                                     &c->data};
        flat_set_i64(b, nodes + 16 * i, a->rows);
        flat_set_i64(b, nodes + 16 * i + 8, c->nulls);
        for (uint32_t k = 0; k < n_parts(c->type); k++, list += 16) {
            flat_set_i64(b, list, at);
            flat_set_i64(b, list + 8, (int64_t)parts[k]->size);
            at += (int64_t)((parts[k]->size + 7) & ~(size_t)7);
        }
    }
    return at;
}

static int send_part(struct sql_writer *w, struct buf *part)
{
    flat_pad(part, 8);
    if (part->failed)
        return err_set(part->failed, "a batch of rows is too large for memory");
    int rc = send_bytes(w, part->data, part->size);
    buf_reset(part);
    return rc;
}

static int send_body(struct sql_writer *w)
{
    struct arrow_stream *a = w->arrow;
    int rc = 0;
    for (uint32_t i = 0; i < a->n && rc == 0; i++) {
        struct arrow_column *c = &a->columns[i];
        rc = send_part(w, &c->valid);
        if (rc == 0)
            rc = send_part(w, &c->offsets);
        if (rc == 0)
            rc = send_part(w, &c->data);
        if (has_offsets(c->type))
            flat_add_i32(&c->offsets, 0);
        c->nulls = 0;
    }
    a->rows = 0;
    return rc;
}

/* Send the rows that were gathered, with n notes beside them. */
static int send_batch(struct sql_writer *w, const struct key_value *notes, uint32_t n)
{
    struct arrow_stream *a = w->arrow;
    struct buf *b = &a->meta;
    uint32_t parts = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        const struct arrow_column *c = &a->columns[i];
        parts += n_parts(c->type);
        if (c->valid.failed || c->offsets.failed || c->data.failed)
            return err_set(-ENOMEM, "a batch of rows is too large for memory");
    }
    size_t m = begin_message(b, HEADER_BATCH, /* metadata= */ n > 0);
    size_t batch = flat_table(b, 3, 0);
    flat_refer(b, flat_field(m, 2), batch);
    flat_set_i64(b, flat_field(batch, 0), a->rows);
    size_t nodes = flat_pairs(b, flat_field(batch, 1), a->n);
    size_t list = flat_pairs(b, flat_field(batch, 2), parts);
    if (n > 0)
        add_metadata(b, flat_field(m, 4), notes, n);
    if (!b->failed)
        flat_set_i64(b, flat_field(m, 3), place_parts(a, nodes, list));
    int rc = send_message(w);
    return rc < 0 ? rc : send_body(w);
}

int sql_arrow_rows(struct sql_writer *w, const struct sql_rows *rows)
{
    struct arrow_stream *a = w->arrow;
    int rc = 0;
    for (uint32_t first = 0; first < rows->n && rc == 0; first += SLICE_ROWS) {
        uint32_t left = rows->n - first;
        size_t bytes = 0;
        struct slice s = {.q = rows->q,
                          .sel = rows->batch->sel,
                          .first = first,
                          .n = left < SLICE_ROWS ? left : SLICE_ROWS,
                          .at = a->rows};
        for (uint32_t i = 0; i < a->n; i++) {
            s.v = &rows->batch->v[i];
            if (s.v->type != a->columns[i].type && s.v->type != SQL_NULL)
                return err_set(-EPROTO, "column %u was to be %s and is %s", i + 1,
                               sql_a_type(a->columns[i].type), sql_a_type(s.v->type));
            add_slice(&a->columns[i], &s);
            bytes += a->columns[i].data.size;
        }
        a->rows += s.n;
        if (a->rows >= BATCH_ROWS || bytes >= BATCH_BYTES)
            rc = send_batch(w, NULL, 0);
        if (rc == 0 && a->rows == 0) /* it went */
            rc = sql_writer_send(w);
    }
    return rc;
}

int sql_arrow_end(struct sql_writer *w, const struct sql_report *report)
{
    static const int32_t end[2] = {-1, 0};
    struct key_value notes[4];
    char lost[24], missing[16];
    uint32_t n = 0;
    (void)snprintf(lost, sizeof(lost), "%llu", (unsigned long long)report->lost);
    if (report->lost)
        notes[n++] = (struct key_value){"lost", lost};
    (void)snprintf(missing, sizeof(missing), "%u", report->missing);
    if (report->missing > 0)
        notes[n++] = (struct key_value){"missing", missing};
    if (report->cut)
        notes[n++] = (struct key_value){"truncated", "true"};
    if (report->empty[0])
        notes[n++] = (struct key_value){"empty", report->empty};
    int rc = n || w->arrow->rows ? send_batch(w, notes, n) : 0;
    if (rc == 0)
        rc = send_bytes(w, end, sizeof(end));
    return rc < 0 ? rc : sql_writer_send(w);
}
