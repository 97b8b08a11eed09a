/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/export/arrow.c - rows as an Arrow IPC stream, by a writer of our own: the format needs few
 * words.
 *
 * One thread.  A message is 0xffffffff, i32 size of its description, the description (a
 * flatbuffer), the body; the stream ends with 0xffffffff 0.  Of flatbuffers: a table is an i32 back
 * to its list of field places, then fields; what a field refers to lies behind it, by a u32 from
 * the field's own place.  Here every field takes 8 bytes, so that all are aligned.  No
 * dictionaries, no compression.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/export/export.h"
#include "core/base/err.h"

#define BATCH_ROWS 16384
#define BODY_MAX ((size_t)1 << 31) /* bytes: offsets of texts are i32 */
#define META_MAX ((size_t)16 << 20)

/* Numbers of the format's own definition (Schema.fbs, Message.fbs). */
enum { VERSION_5 = 4, HEADER_SCHEMA = 1, HEADER_BATCH = 3 };
enum {
    TYPE_INT = 2,
    TYPE_FLOAT = 3,
    TYPE_BINARY = 4,
    TYPE_TEXT = 5,
    TYPE_BOOL = 6,
    TYPE_TIME = 10
};
enum { FLOAT_DOUBLE = 2, UNIT_NS = 3 };

struct column {
    struct export_column is;
    struct buf valid, data, offsets; /* bits; values, or all bytes; i32 ends, of texts and blobs */
    int64_t nulls;
};

struct arrow {
    struct column *columns;
    uint32_t n, rows;
    struct buf meta, body;
};

static void add_i64(struct buf *b, int64_t v)
{
    (void)buf_add(b, &v, sizeof(v));
}

static void add_i32(struct buf *b, int32_t v)
{
    (void)buf_add(b, &v, sizeof(v));
}

static void pad(struct buf *b, size_t to)
{
    while (b->size % to && !b->failed)
        (void)buf_addc(b, 0);
}

/* ---- flatbuffers ---- */

static void set_u32(struct buf *b, size_t at, uint32_t v)
{
    if (!b->failed)
        memcpy(b->data + at, &v, sizeof(v));
}

static void set_i64(struct buf *b, size_t at, int64_t v)
{
    if (!b->failed)
        memcpy(b->data + at, &v, sizeof(v));
}

/* A table of n fields, those of `absent` (bits) not there.  Gives where it is. */
static size_t table(struct buf *b, uint32_t n, uint32_t absent)
{
    uint16_t words[2 + 16] = {(uint16_t)(4 + 2 * n), (uint16_t)(8 + 8 * n)};
    for (uint32_t i = 0; i < n; i++)
        words[2 + i] = absent >> i & 1 ? 0 : (uint16_t)(8 + 8 * i);
    pad(b, 8);
    size_t list = b->size;
    (void)buf_add(b, words, 4 + 2 * n);
    pad(b, 8);
    size_t at = b->size;
    add_i32(b, (int32_t)(at - list));
    add_i32(b, 0);
    for (uint32_t i = 0; i < n; i++)
        add_i64(b, 0);
    return at;
}

static size_t field(size_t at, uint32_t i)
{
    return at + 8 + 8 * i;
}

/* The reference at `at` is to what comes now. */
static void refer(struct buf *b, size_t at)
{
    set_u32(b, at, (uint32_t)(b->size - at));
}

static void refer_table(struct buf *b, size_t at, size_t to)
{
    set_u32(b, at, (uint32_t)(to - at));
}

static void add_string(struct buf *b, const char *text)
{
    add_i32(b, (int32_t)strlen(text));
    (void)buf_add(b, text, strlen(text) + 1);
    pad(b, 4);
}

/* The message around: gives the place of its header field. */
static size_t begin_message(struct buf *b, int kind, int64_t body)
{
    buf_reset(b);
    add_i32(b, 0); /* where the root is */
    size_t m = table(b, 5, 1 << 4);
    refer_table(b, 0, m);
    set_i64(b, field(m, 0), VERSION_5);
    set_i64(b, field(m, 1), kind);
    set_i64(b, field(m, 3), body);
    return field(m, 2);
}

static int send(struct arrow *a, struct buf *out)
{
    pad(&a->meta, 8);
    if (a->meta.failed || a->body.failed)
        return err_set(a->meta.failed ? a->meta.failed : a->body.failed,
                       "a batch of rows is too large for Arrow (2 GB)");
    add_i32(out, -1);
    add_i32(out, (int32_t)a->meta.size);
    (void)buf_add(out, a->meta.data, a->meta.size);
    int rc = a->body.size ? buf_add(out, a->body.data, a->body.size) : out->failed;
    return rc ? err_set(rc, "no memory for a batch of rows") : 0;
}

/* ---- the schema ---- */

static size_t add_type(struct buf *b, enum export_type type, int *ret_kind)
{
    size_t at = 0;
    switch (type) {
    case AS_BOOL:
        *ret_kind = TYPE_BOOL;
        return table(b, 0, 0);
    case AS_INT:
        *ret_kind = TYPE_INT;
        at = table(b, 2, 0);
        set_i64(b, field(at, 0), 64);
        set_i64(b, field(at, 1), 1); /* signed */
        return at;
    case AS_DOUBLE:
        *ret_kind = TYPE_FLOAT;
        at = table(b, 1, 0);
        set_i64(b, field(at, 0), FLOAT_DOUBLE);
        return at;
    case AS_TEXT:
        *ret_kind = TYPE_TEXT;
        return table(b, 0, 0);
    case AS_BLOB:
        *ret_kind = TYPE_BINARY;
        return table(b, 0, 0);
    case AS_TIME:
        *ret_kind = TYPE_TIME;
        at = table(b, 2, 0);
        set_i64(b, field(at, 0), UNIT_NS);
        refer(b, field(at, 1));
        add_string(b, "UTC");
        return at;
    }
    return at;
}

static void add_field(struct buf *b, const struct export_column *c)
{
    int kind = 0;
    size_t f = table(b, 6, 1 << 4);
    set_i64(b, field(f, 1), 1); /* may be NULL */
    refer(b, field(f, 0));
    add_string(b, c->name);
    refer(b, field(f, 5));
    add_i32(b, 0); /* no children: an empty list that has to be there */
    size_t type = add_type(b, c->type, &kind);
    set_i64(b, field(f, 2), kind);
    refer_table(b, field(f, 3), type);
}

static int begin(void *self, const struct export_column *columns, uint32_t n, struct buf *out)
{
    struct arrow *a = self;
    struct buf *b = &a->meta;
    a->columns = calloc(n, sizeof(*a->columns));
    if (a->columns == NULL)
        return err_set(-ENOMEM, "no memory for the columns");
    a->n = n;
    for (uint32_t i = 0; i < n; i++) {
        struct column *c = &a->columns[i];
        c->is = columns[i];
        buf_init(&c->valid, BATCH_ROWS / 8 + 64);
        buf_init(&c->data, BODY_MAX - 1);
        buf_init(&c->offsets, (BATCH_ROWS + 16) * 4);
        add_i32(&c->offsets, 0);
    }
    size_t header = begin_message(b, HEADER_SCHEMA, 0);
    size_t schema = table(b, 2, 0);
    refer_table(b, header, schema);
    pad(b, 8);
    refer(b, field(schema, 1));
    add_i32(b, (int32_t)n);
    size_t list = b->size;
    for (uint32_t i = 0; i < n; i++)
        add_i32(b, 0);
    for (uint32_t i = 0; i < n; i++) {
        pad(b, 8);
        /* A table's list of places comes before it: 16 bytes with six fields. */
        refer_table(b, list + 4 * i, b->size + 16);
        add_field(b, &columns[i]);
    }
    return send(a, out);
}

/* ---- rows ---- */

static void set_bit(struct buf *b, uint32_t row, bool on)
{
    if (row % 8 == 0)
        (void)buf_addc(b, 0);
    if (on && !b->failed)
        b->data[row / 8] = (char)((unsigned char)b->data[row / 8] | 1u << (row % 8));
}

static int nibble(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : 0;
}

/* JSON has no such numbers: the engine writes them as texts. */
static double unreal(const char *text)
{
    return text[0] == 'N' ? (double)NAN : text[0] == '-' ? -(double)INFINITY : (double)INFINITY;
}

static void add_value(struct column *c, const struct json *v, uint32_t row)
{
    int64_t integer = v->integer;
    double number = v->type == JSON_STRING ? unreal(v->text) : v->number;
    switch (c->is.type) {
    case AS_BOOL:
        set_bit(&c->data, row, v->boolean);
        return;
    case AS_TIME:
        integer = 0;
        (void)(v->type == JSON_STRING && export_time(v->text, &integer));
        add_i64(&c->data, integer);
        return;
    case AS_INT:
        add_i64(&c->data, integer);
        return;
    case AS_DOUBLE:
        (void)buf_add(&c->data, &number, sizeof(number));
        return;
    case AS_TEXT:
        if (v->type == JSON_STRING || v->type == JSON_NUMBER)
            (void)buf_add(&c->data, v->text, v->type == JSON_STRING ? v->size : strlen(v->text));
        break;
    case AS_BLOB:
        for (size_t i = 2; v->type == JSON_STRING && i + 1 < v->size; i += 2)
            (void)buf_addc(&c->data, (char)(nibble(v->text[i]) << 4 | nibble(v->text[i + 1])));
        break;
    }
    add_i32(&c->offsets, (int32_t)c->data.size);
}

static void add_part(struct arrow *a, struct buf *part, size_t list, uint32_t *i)
{
    pad(&a->body, 8);
    set_i64(&a->meta, list + 16 * *i, (int64_t)a->body.size);
    set_i64(&a->meta, list + 16 * *i + 8, (int64_t)part->size);
    (*i)++;
    if (part->size)
        (void)buf_add(&a->body, part->data, part->size);
    pad(&a->body, 8);
}

/* A list of `n` pairs of i64; gives where the first is. */
static size_t pairs(struct buf *b, size_t reference, uint32_t n)
{
    pad(b, 8);
    add_i32(b, 0); /* so that the pairs are aligned */
    refer(b, reference);
    add_i32(b, (int32_t)n);
    size_t at = b->size;
    for (uint32_t i = 0; i < 2 * n; i++)
        add_i64(b, 0);
    return at;
}

static int flush(struct arrow *a, struct buf *out)
{
    struct buf *b = &a->meta;
    uint32_t parts = 0, k = 0;
    if (a->rows == 0)
        return 0;
    for (uint32_t i = 0; i < a->n; i++)
        parts += a->columns[i].is.type == AS_TEXT || a->columns[i].is.type == AS_BLOB ? 3 : 2;
    buf_reset(&a->body);
    size_t header = begin_message(b, HEADER_BATCH, 0);
    size_t message = header - field(0, 2);
    size_t batch = table(b, 3, 0);
    refer_table(b, header, batch);
    set_i64(b, field(batch, 0), a->rows);
    size_t nodes = pairs(b, field(batch, 1), a->n);
    size_t list = pairs(b, field(batch, 2), parts);
    for (uint32_t i = 0; i < a->n; i++) {
        struct column *c = &a->columns[i];
        set_i64(b, nodes + 16 * i, a->rows);
        set_i64(b, nodes + 16 * i + 8, c->nulls);
        add_part(a, &c->valid, list, &k);
        if (c->is.type == AS_TEXT || c->is.type == AS_BLOB)
            add_part(a, &c->offsets, list, &k);
        add_part(a, &c->data, list, &k);
        if (c->valid.failed || c->data.failed || c->offsets.failed)
            return err_set(-ENOMEM, "a batch of rows is too large for memory");
        buf_reset(&c->valid);
        buf_reset(&c->data);
        buf_reset(&c->offsets);
        add_i32(&c->offsets, 0);
        c->nulls = 0;
    }
    set_i64(b, field(message, 3), (int64_t)a->body.size);
    a->rows = 0;
    return send(a, out);
}

static int row(void *self, const struct json *const *cells, struct buf *out)
{
    struct arrow *a = self;
    size_t bytes = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        struct column *c = &a->columns[i];
        bool null = cells[i]->type == JSON_NULL;
        set_bit(&c->valid, a->rows, !null);
        c->nulls += null;
        add_value(c, cells[i], a->rows);
        bytes += c->data.size;
    }
    a->rows++;
    return a->rows == BATCH_ROWS || bytes > BODY_MAX / 16 ? flush(a, out) : 0;
}

static int end(void *self, struct buf *out)
{
    int rc = flush(self, out);
    add_i32(out, -1);
    add_i32(out, 0);
    return rc ? rc : out->failed;
}

int export_arrow_new(struct export_writer *ret)
{
    struct arrow *a = calloc(1, sizeof(*a));
    if (a == NULL)
        return err_set(-ENOMEM, "no memory for an Arrow file");
    buf_init(&a->meta, META_MAX);
    buf_init(&a->body, BODY_MAX - 1);
    *ret = (struct export_writer){.begin = begin, .row = row, .end = end, .self = a};
    return 0;
}

void export_arrow_free(struct export_writer *w)
{
    struct arrow *a = w->self;
    for (uint32_t i = 0; a != NULL && i < a->n; i++) {
        buf_done(&a->columns[i].valid);
        buf_done(&a->columns[i].data);
        buf_done(&a->columns[i].offsets);
    }
    if (a != NULL) {
        free(a->columns);
        buf_done(&a->meta);
        buf_done(&a->body);
    }
    free(a);
    w->self = NULL;
}
