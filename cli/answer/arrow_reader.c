/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/answer/arrow_reader.c - see arrow_reader.h; core/sql/format/arrow.c draws the form.
 *
 * One thread a reader.
 */
#include "cli/answer/arrow_reader.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/answer/flatbuffer_read.h"
#include "core/base/err.h"
#include "sdk/lib/arena.h"
#include "sdk/lib/number.h"
#include "sdk/lib/utf8.h"

#define HEAD_BYTES 8
#define META_MAX ((size_t)16 << 20) /* bytes of a description: as many as a core sends */
#define EMPTY_BYTES 512
#define DAYS_MAX (INT64_MAX / ANSWER_DAY_NS)

/* Numbers of the format's own definition (Schema.fbs, Message.fbs). */
enum { HEADER_SCHEMA = 1, HEADER_BATCH = 3 };
enum { KIND_NULL = 1, KIND_INT, KIND_FLOAT, KIND_BINARY, KIND_TEXT, KIND_BOOL };
enum { KIND_DATE = 8, KIND_TIME = 10, KIND_DURATION = 18 };
enum { FLOAT_DOUBLE = 2, UNIT_DAY = 0, UNIT_NS = 3 };

struct arrow_reader {
    struct answer_sink sink;
    struct arena mem;
    struct sql_column *columns; /* NULL: they have not come */
    struct column_data *data;
    uint32_t n;
    struct answer_rows at;   /* the batch that is handed on */
    struct sql_value *cells; /* of one row, */
    struct buf texts;        /* and its texts */
    struct buf meta, body;
    size_t batch_bytes; /* at most */
    size_t body_size;   /* of the batch that comes, */
    uint32_t body_rows; /* and its rows */
    bool begun, in_body, over;
    uint64_t rows, lost;
    bool truncated;
    char empty[EMPTY_BYTES];
};

static int refuse_answer(const char *what)
{
    return err_set(-EBADMSG, "the answer is not what a core sends: %s", what);
}

int answer_pass_rows(void *arg, const struct answer_rows *rows)
{
    (void)arg, (void)rows;
    return 0;
}

int arrow_reader_new(const struct answer_sink *sink, struct arrow_reader **ret)
{
    struct arrow_reader *r = calloc(1, sizeof(*r));

    if (r == NULL)
        return err_set(-ENOMEM, "no memory for an answer");
    r->sink = *sink;
    arena_init(&r->mem, 2 * META_MAX);
    buf_init(&r->meta, META_MAX + HEAD_BYTES);
    r->batch_bytes = sink->batch_bytes > 0 ? sink->batch_bytes : ANSWER_BATCH_BYTES;
    buf_init(&r->body, r->batch_bytes);
    buf_init(&r->texts, r->batch_bytes + ANSWER_COLUMNS_MAX);
    *ret = r;
    return 0;
}

void arrow_reader_free(struct arrow_reader *r)
{
    if (r == NULL)
        return;
    buf_done(&r->meta);
    buf_done(&r->body);
    buf_done(&r->texts);
    arena_done(&r->mem);
    free(r);
}

/* ---- the description ---- */

/* The list that field i of a table refers to: where its first item is.  false: it is not whole. */
static bool find_list(const struct buf *b, size_t table, size_t i, size_t item, size_t *ret,
                      uint64_t *ret_n)
{
    size_t at = flat_field_at(b, table, i);

    *ret_n = 0;
    *ret = 0;
    if (at == 0)
        return true; /* an empty one may be left out */
    at = flat_table_at(b, at);
    if (!flat_number(b, at, 4, ret_n) || *ret_n > (b->size - at - 4) / item)
        return false;
    *ret = at + 4;
    return true;
}

/* The text that field i of a table refers to, copied; NULL: it is not there, or not to be had. */
static const char *copy_text(struct arrow_reader *r, size_t table, size_t i, size_t max)
{
    const struct buf *b = &r->meta;
    size_t at;
    uint64_t n;

    if (!find_list(b, table, i, 1, &at, &n) || at == 0 || n > max ||
        memchr(b->data + at, '\0', (size_t)n) != NULL)
        return NULL;
    return arena_text(&r->mem, b->data + at, (size_t)n);
}

static uint64_t read_number(const struct buf *b, size_t table, size_t i, size_t size,
                            uint64_t otherwise)
{
    uint64_t v;
    size_t at = flat_field_at(b, table, i);

    return at != 0 && flat_number(b, at, size, &v) ? v : otherwise;
}

/* The type of a field by its kind and the table that says more of it. */
static int read_type(const struct buf *b, uint64_t kind, size_t more, enum sql_type *ret)
{
    switch (kind) {
    case KIND_NULL:
        *ret = SQL_NULL;
        return 0;
    case KIND_INT:
        *ret = SQL_INT;
        return read_number(b, more, 0, 4, 0) == 64 && read_number(b, more, 1, 1, 0) == 1 ? 0 : -1;
    case KIND_FLOAT:
        *ret = SQL_DOUBLE;
        return read_number(b, more, 0, 2, 0) == FLOAT_DOUBLE ? 0 : -1;
    case KIND_BINARY:
        *ret = SQL_BLOB;
        return 0;
    case KIND_TEXT:
        *ret = SQL_TEXT;
        return 0;
    case KIND_BOOL:
        *ret = SQL_BOOL;
        return 0;
    case KIND_DATE:
        *ret = SQL_DATE;
        return read_number(b, more, 0, 2, 1) == UNIT_DAY ? 0 : -1;
    case KIND_TIME:
        *ret = SQL_TIMESTAMP;
        return read_number(b, more, 0, 2, 0) == UNIT_NS ? 0 : -1;
    case KIND_DURATION:
        *ret = SQL_INTERVAL;
        return read_number(b, more, 0, 2, 1) == UNIT_NS ? 0 : -1;
    default: /* Arrow has more of them than a core sends */
        return -1;
    }
}

/* fn for each key and value of a list of metadata. */
static int each_note(struct arrow_reader *r, size_t table, size_t i,
                     void (*fn)(void *arg, const char *key, const char *value), void *arg)
{
    size_t list;
    uint64_t n;

    if (!find_list(&r->meta, table, i, 4, &list, &n))
        return refuse_answer("metadata that are not whole");
    for (uint64_t k = 0; k < n && k < 16; k++) {
        size_t pair = flat_table_at(&r->meta, list + 4 * k);
        const char *key = copy_text(r, pair, 0, 64), *value = copy_text(r, pair, 1, 4096);
        if (key != NULL && value != NULL)
            fn(arg, key, value);
    }
    return 0;
}

static void take_column_note(void *arg, const char *key, const char *value)
{
    struct sql_column *c = arg;

    if (strcmp(key, "unit") == 0)
        c->unit = sql_unit_named(value);
    else if (strcmp(key, "doc") == 0)
        c->doc = value;
}

static bool is_utf8(const char *text)
{
    for (size_t n = strlen(text), letter; n > 0; text += letter, n -= letter)
        if ((letter = text_utf8_length(text, n)) == 0)
            return false;
    return true;
}

static int take_column(struct arrow_reader *r, size_t field, struct sql_column *ret)
{
    const struct buf *b = &r->meta;
    const char *name = copy_text(r, field, 0, META_MAX);
    size_t children;
    uint64_t n;

    if (name == NULL || name[0] == '\0' || !is_utf8(name))
        return refuse_answer("a column without a name that can be shown");
    *ret = (struct sql_column){.name = name, .unit = PROBING_PLAIN, .doc = ""};
    size_t more = flat_table_at(b, flat_field_at(b, field, 3));
    if (read_type(b, read_number(b, field, 2, 1, 0), more, &ret->type) < 0)
        return err_set(-EBADMSG,
                       "the answer is not what a core sends: column %s has a type that "
                       "no core has",
                       name);
    if (flat_field_at(b, field, 4) != 0 || !find_list(b, field, 5, 4, &children, &n) || n != 0)
        return refuse_answer("a column of columns, or with a dictionary");
    return each_note(r, field, 6, take_column_note, ret);
}

static int take_schema(struct arrow_reader *r, size_t schema)
{
    size_t list;
    uint64_t n;
    int rc = 0;

    if (r->columns != NULL)
        return refuse_answer("two sets of columns");
    if (!find_list(&r->meta, schema, 1, 4, &list, &n) || n > ANSWER_COLUMNS_MAX)
        return refuse_answer("columns that are not whole, or too many");
    r->columns = arena_zalloc(&r->mem, (size_t)n + 1, sizeof(*r->columns));
    r->data = arena_zalloc(&r->mem, (size_t)n + 1, sizeof(*r->data));
    r->cells = arena_zalloc(&r->mem, (size_t)n + 1, sizeof(*r->cells));
    if (r->columns == NULL || r->data == NULL || r->cells == NULL)
        return err_set(-ENOMEM, "no memory for the columns of an answer");
    r->n = (uint32_t)n;
    for (uint32_t i = 0; i < r->n && rc == 0; i++)
        rc = take_column(r, flat_table_at(&r->meta, list + 4 * i), &r->columns[i]);
    return rc < 0 || r->sink.columns == NULL ? rc : r->sink.columns(r->sink.arg, r->columns, r->n);
}

/* ---- batches ---- */

static bool has_offsets(enum sql_type t)
{
    return t == SQL_TEXT || t == SQL_BLOB;
}

static uint32_t n_parts(enum sql_type t)
{
    return t == SQL_NULL ? 0 : has_offsets(t) ? 3 : 2;
}

/* Bytes that `rows` values of a type take, but for texts. */
static size_t value_bytes(enum sql_type t, uint32_t rows)
{
    return t == SQL_BOOL ? (rows + 7) / 8 : (size_t)rows * (t == SQL_DATE ? 4 : 8);
}

static bool offsets_rise(const char *offsets, uint32_t rows, size_t size)
{
    int32_t at = 0, last = 0;

    for (uint32_t i = 0; i <= rows; i++) {
        memcpy(&at, offsets + 4 * (size_t)i, 4);
        if (at < last)
            return false;
        last = at;
    }
    return (size_t)last <= size;
}

struct part {
    size_t at, size;
};

/* Part k of a batch, when it lies in the body. */
static bool find_part(const struct arrow_reader *r, size_t list, uint32_t k, struct part *ret)
{
    uint64_t at, size;

    if (!flat_number(&r->meta, list + 16 * (size_t)k, 8, &at) ||
        !flat_number(&r->meta, list + 16 * (size_t)k + 8, 8, &size) || at > r->body_size ||
        size > r->body_size - at)
        return false;
    *ret = (struct part){(size_t)at, (size_t)size};
    return true;
}

/* Finds the values of column i in the body; its parts begin with the k-th. */
static int place_column(struct arrow_reader *r, uint32_t i, size_t list, uint32_t k, bool nulls)
{
    enum sql_type t = r->columns[i].type;
    struct part valid, second, third;
    uint32_t rows = r->body_rows;
    struct column_data *d = &r->data[i];

    *d = (struct column_data){.type = t, .nulls = nulls};
    if (t == SQL_NULL || rows == 0)
        return 0; /* no value is ever looked at */
    if (!find_part(r, list, k, &valid) || !find_part(r, list, k + 1, &second) ||
        (has_offsets(t) && !find_part(r, list, k + 2, &third)))
        return refuse_answer("values that lie beyond its end");
    if (nulls && valid.size < (rows + 7) / 8)
        return refuse_answer("too few bits that say which values are NULL");
    d->valid = valid.at;
    if (!has_offsets(t)) {
        d->data = second.at;
        return second.size < value_bytes(t, rows) ? refuse_answer("too few values") : 0;
    }
    d->offsets = second.at;
    d->data = third.at;
    if (second.size < 4 * ((size_t)rows + 1) ||
        !offsets_rise(r->body.data + d->offsets, rows, third.size))
        return refuse_answer("texts that lie beyond its end");
    return 0;
}

/* Days that no time in ns has. */
static bool dates_fit(const struct arrow_reader *r, uint32_t column)
{
    int32_t day;

    if (r->columns[column].type != SQL_DATE)
        return true;
    for (uint32_t i = 0; i < r->body_rows; i++) {
        memcpy(&day, r->body.data + r->data[column].data + 4 * (size_t)i, 4);
        if (day > DAYS_MAX || day < -DAYS_MAX)
            return false;
    }
    return true;
}

static void take_end_note(void *arg, const char *key, const char *value)
{
    struct arrow_reader *r = arg;

    if (strcmp(key, "lost") == 0)
        (void)number_u64(value, strlen(value), &r->lost);
    else if (strcmp(key, "truncated") == 0)
        r->truncated = strcmp(value, "true") == 0;
    else if (strcmp(key, "empty") == 0)
        (void)snprintf(r->empty, sizeof(r->empty), "%s", value);
}

static bool is_text(const struct sql_value *v)
{
    return v->type == SQL_TEXT || v->type == SQL_BLOB;
}

/* The texts of a batch lie one behind the other: those of a row are copied, each with a NUL. */
static int read_cells(struct arrow_reader *r, uint32_t row)
{
    size_t size = 1;

    for (uint32_t i = 0; i < r->n; i++) {
        answer_rows_value(&r->at, row, i, &r->cells[i]);
        size += is_text(&r->cells[i]) ? (size_t)r->cells[i].text.size + 1 : 0;
    }
    buf_reset(&r->texts);
    char *to = buf_room(&r->texts, size);
    if (to == NULL)
        return err_set(r->texts.failed, "no memory for a row of an answer");
    for (uint32_t i = 0; i < r->n; i++) {
        struct sql_value *v = &r->cells[i];
        if (!is_text(v))
            continue;
        memcpy(to, v->text.data, v->text.size);
        to[v->text.size] = '\0';
        v->text.data = to;
        to += v->text.size + 1;
    }
    return 0;
}

static int give_each_row(struct arrow_reader *r)
{
    int rc = 0;

    for (uint32_t row = 0; row < r->at.n && rc == 0; row++) {
        rc = read_cells(r, row);
        if (rc == 0)
            rc = r->sink.row(r->sink.arg, r->cells, r->n);
    }
    return rc;
}

/* The whole body is there: its rows. */
static int take_body(struct arrow_reader *r)
{
    const struct buf *b = &r->meta;
    size_t batch = flat_table_at(b, flat_field_at(b, flat_table_at(b, HEAD_BYTES), 2)), nodes, list;
    uint64_t n_nodes, n_list, nulls, rows;
    uint32_t k = 0;
    int rc = 0;

    if (!find_list(b, batch, 1, 16, &nodes, &n_nodes) ||
        !find_list(b, batch, 2, 16, &list, &n_list) || n_nodes != r->n)
        return refuse_answer("a batch of other columns");
    for (uint32_t i = 0; i < r->n; i++)
        k += n_parts(r->columns[i].type);
    if (n_list != k)
        return refuse_answer("a batch of other columns");
    k = 0;
    for (uint32_t i = 0; i < r->n && rc == 0; i++) {
        (void)flat_number(b, nodes + 16 * (size_t)i, 8, &rows);
        (void)flat_number(b, nodes + 16 * (size_t)i + 8, 8, &nulls);
        rc = rows != r->body_rows ? refuse_answer("columns that are not equally long")
                                  : place_column(r, i, list, k, nulls != 0);
        if (rc == 0 && !dates_fit(r, i))
            rc = refuse_answer("a date that no time has");
        k += n_parts(r->columns[i].type);
    }
    if (rc < 0 || r->body_rows == 0)
        return rc;
    r->at = (struct answer_rows){.body = r->body.data,
                                 .body_size = r->body.size,
                                 .n = r->body_rows,
                                 .n_columns = r->n,
                                 .columns = r->data};
    r->rows += r->body_rows;
    return r->sink.rows != NULL  ? r->sink.rows(r->sink.arg, &r->at)
           : r->sink.row != NULL ? give_each_row(r)
                                 : err_set(-EBADMSG, "it sent rows where none were asked for");
}

/* A description is whole: what follows it? */
static int take_message(struct arrow_reader *r)
{
    const struct buf *b = &r->meta;
    size_t message = flat_table_at(b, HEAD_BYTES);
    uint64_t kind = read_number(b, message, 1, 1, 0), body = read_number(b, message, 3, 8, 0);
    size_t header = flat_table_at(b, flat_field_at(b, message, 2));

    if (kind == HEADER_SCHEMA)
        return body != 0 ? refuse_answer("columns with rows in them") : take_schema(r, header);
    if (kind != HEADER_BATCH || r->columns == NULL)
        return refuse_answer("neither columns nor rows");
    uint64_t rows = read_number(b, header, 0, 8, 0);
    if (flat_field_at(b, header, 3) != 0)
        return refuse_answer("compressed rows");
    if (rows > ANSWER_BATCH_ROWS || body > r->batch_bytes)
        return err_set(-EBADMSG,
                       "the answer is not what a core sends: %llu rows of %llu bytes at once",
                       (unsigned long long)rows, (unsigned long long)body);
    r->body_rows = (uint32_t)rows;
    r->body_size = (size_t)body;
    r->in_body = true;
    return each_note(r, message, 4, take_end_note, r);
}

/* ---- bytes ---- */

/* Count the bytes still missing of the head, or of the description behind it. */
static int missing_bytes(struct arrow_reader *r, size_t *ret)
{
    uint64_t mark, size;

    *ret = HEAD_BYTES - r->meta.size;
    if (r->meta.size < HEAD_BYTES)
        return 0;
    (void)flat_number(&r->meta, 0, 4, &mark);
    (void)flat_number(&r->meta, 4, 4, &size);
    if (mark != UINT32_MAX || size > META_MAX)
        return refuse_answer("no Arrow stream, or a description without an end");
    r->over = size == 0;
    if (r->over && r->columns == NULL)
        return refuse_answer("it has no columns");
    *ret = HEAD_BYTES + (size_t)size - r->meta.size;
    return 0;
}

/* Add at most `want` of the bytes to b; how many, or -errno. */
static int64_t gather_bytes(struct buf *b, size_t want, const char *data, size_t size)
{
    size_t n = want < size ? want : size;

    if (buf_add(b, data, n) != 0)
        return err_set(b->failed, "no memory for an answer");
    return (int64_t)n;
}

static int64_t feed_meta(struct arrow_reader *r, const char *data, size_t size)
{
    size_t want;
    int rc = missing_bytes(r, &want);
    int64_t n = rc < 0 ? rc : gather_bytes(&r->meta, want, data, size);

    if (n < 0)
        return n;
    rc = missing_bytes(r, &want);
    if (rc == 0 && want == 0 && !r->over) {
        rc = take_message(r);
        if (!r->in_body)
            buf_reset(&r->meta);
    }
    return rc < 0 ? rc : n;
}

static int finish_body(struct arrow_reader *r)
{
    if (!r->in_body || r->body.size < r->body_size)
        return 0;
    int rc = take_body(r);
    r->in_body = false;
    buf_reset(&r->meta);
    buf_reset(&r->body);
    return rc;
}

int arrow_reader_feed(struct arrow_reader *r, const char *data, size_t size)
{
    int rc = 0;

    r->begun = r->begun || size > 0;
    while (rc == 0 && size > 0) {
        if (r->over)
            return refuse_answer("it goes on behind its end");
        int64_t n = r->in_body ? gather_bytes(&r->body, r->body_size - r->body.size, data, size)
                               : feed_meta(r, data, size);
        if (n < 0)
            return (int)n;
        data += n;
        size -= (size_t)n;
        rc = finish_body(r);
    }
    return rc;
}

int arrow_reader_end(const struct arrow_reader *r)
{
    return r->over ? 0 : err_set(-EBADMSG, "the answer ended prematurely");
}

size_t arrow_reader_cut(const struct arrow_reader *r, char ret[ANSWER_CUT_BYTES])
{
    static const uint32_t head[2] = {UINT32_MAX, 16}; /* and no 16 bytes behind it */

    if (!r->begun || r->over || r->in_body || r->meta.size > 0)
        return 0;
    memcpy(ret, head, sizeof(head));
    return sizeof(head);
}

uint64_t arrow_reader_rows(const struct arrow_reader *r)
{
    return r->rows;
}

uint64_t arrow_reader_lost(const struct arrow_reader *r)
{
    return r->lost;
}

bool arrow_reader_truncated(const struct arrow_reader *r)
{
    return r->truncated;
}

const char *arrow_reader_empty(const struct arrow_reader *r)
{
    return r->empty;
}

bool arrow_reader_has_note(const struct arrow_reader *r)
{
    return r->lost > 0 || r->truncated || r->empty[0] != '\0';
}

size_t arrow_reader_held(const struct arrow_reader *r)
{
    return r->meta.capacity + r->body.capacity + r->texts.capacity + r->mem.used_bytes;
}
