/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/export/parquet_file.c - see parquet_file.h.
 *
 * One thread.  Source: github.com/apache/parquet-format (Encodings.md, parquet.thrift) and Thrift's
 * compact protocol.
 *
 *     "PAR1"
 *     for each column: a page's head (Thrift), and compressed by snappy, which all readers know:
 *                      u32 size, bits which values are there (runs), values
 *     what is where (Thrift: FileMetaData), its size as u32, "PAR1"
 */
#include "cli/export/parquet_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/version.h"
#include "sdk/lib/snappy.h"

#define DAY_NS INT64_C(86400000000000)
static const char MAGIC[] = "PAR1";

/* parquet.thrift's numbers. */
enum { TYPE_BOOL = 0, TYPE_INT32 = 1, TYPE_INT64 = 2, TYPE_DOUBLE = 5, TYPE_BYTES = 6 };
enum { CODEC_SNAPPY = 1 };
enum { ENCODING_PLAIN = 0, ENCODING_RLE = 3 };
enum { CONVERTED_UTF8 = 0, CONVERTED_DATE = 6 };
enum { LOGICAL_STRING = 1, LOGICAL_DATE = 6, LOGICAL_TIMESTAMP = 8, UNIT_NANOS = 3 };
/* Thrift's compact types. */
enum { T_TRUE = 1, T_FALSE = 2, T_I32 = 5, T_I64 = 6, T_BYTES = 8, T_LIST = 9, T_STRUCT = 12 };

/* ---- Thrift ---- */

#define DEPTH 8

struct thrift {
    struct buf *out;
    int last[DEPTH], depth; /* the number of the field before, of each struct that is open */
};

static void add_varint(struct buf *b, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        (void)buf_addc(b, (char)(0x80 | (v & 0x7f)));
    (void)buf_addc(b, (char)v);
}

static void field(struct thrift *t, int id, int type)
{
    int *last = &t->last[t->depth];

    (void)buf_addc(t->out, (char)((id - *last) << 4 | type)); /* never 15 apart in these structs */
    *last = id;
}

static void number(struct thrift *t, int id, int type, int64_t v)
{
    field(t, id, type);
    add_varint(t->out, (uint64_t)v << 1 ^ (uint64_t)(v >> 63));
}

static void text(struct thrift *t, int id, const char *s)
{
    field(t, id, T_BYTES);
    add_varint(t->out, strlen(s));
    (void)buf_adds(t->out, s);
}

static void list(struct thrift *t, int id, int type, uint32_t n)
{
    field(t, id, T_LIST);
    if (n < 15) {
        (void)buf_addc(t->out, (char)(n << 4 | (unsigned)type));
        return;
    }
    (void)buf_addc(t->out, (char)(0xf0 | type));
    add_varint(t->out, n);
}

/* id 0: an item of a list. */
static void begin(struct thrift *t, int id)
{
    if (id > 0)
        field(t, id, T_STRUCT);
    t->last[++t->depth] = 0;
}

static void end(struct thrift *t)
{
    (void)buf_addc(t->out, 0);
    t->depth--;
}

/* ---- a column's values ---- */

static int type_of(enum sql_type t)
{
    switch (t) {
    case SQL_BOOL:
        return TYPE_BOOL;
    case SQL_DATE:
        return TYPE_INT32;
    case SQL_INT:
    case SQL_INTERVAL:
    case SQL_TIMESTAMP:
        return TYPE_INT64;
    case SQL_DOUBLE:
        return TYPE_DOUBLE;
    case SQL_NULL:
    case SQL_TEXT:
    case SQL_BLOB:
    case SQL_CALENDAR:
        return TYPE_BYTES;
    }
    return TYPE_BYTES;
}

static void add_fixed(struct buf *b, uint64_t v, int size)
{
    for (int i = 0; i < size; i++)
        (void)buf_addc(b, (char)(v >> 8 * i));
}

struct bits {
    uint8_t byte;
    int n;
};

static void add_bit(struct buf *b, struct bits *bits, bool one)
{
    bits->byte |= (uint8_t)(one << bits->n);
    if (++bits->n < 8)
        return;
    (void)buf_addc(b, (char)bits->byte);
    *bits = (struct bits){.n = 0};
}

static void add_value(struct buf *b, struct bits *bits, enum sql_type type,
                      const struct sql_value *v)
{
    uint64_t word;

    switch (type_of(type)) {
    case TYPE_BOOL:
        add_bit(b, bits, v->boolean);
        return;
    case TYPE_INT32: { /* a date: days, also before 1970 */
        int64_t day = v->integer / DAY_NS - (v->integer % DAY_NS < 0);
        add_fixed(b, (uint64_t)day, 4);
        return;
    }
    case TYPE_INT64:
        add_fixed(b, (uint64_t)v->integer, 8);
        return;
    case TYPE_DOUBLE:
        memcpy(&word, &v->number, sizeof(word));
        add_fixed(b, word, 8);
        return;
    default: /* bytes */
        add_fixed(b, v->text.size, 4);
        (void)buf_add(b, v->text.data, v->text.size);
    }
}

/* Which values are there: runs of equal bits, each its length twice and the bit. */
static void add_presence(struct buf *b, const struct parquet_rows *rows, uint32_t column)
{
    struct buf runs;
    struct sql_value v;
    uint32_t n = 0;
    bool last = true;

    buf_init(&runs, b->max);
    for (uint32_t i = 0; i <= rows->n_rows; i++) {
        bool there = last;
        if (i < rows->n_rows) {
            rows->value(rows->arg, i, column, &v);
            there = v.type != SQL_NULL;
        }
        if (n > 0 && (i == rows->n_rows || there != last)) {
            add_varint(&runs, (uint64_t)n << 1);
            (void)buf_addc(&runs, last);
            n = 0;
        }
        last = there;
        n++;
    }
    add_fixed(b, runs.size, 4);
    (void)buf_add(b, runs.data, runs.size);
    b->failed = b->failed ? b->failed : runs.failed;
    buf_done(&runs);
}

static void add_page(struct buf *page, const struct parquet_rows *rows, uint32_t column)
{
    struct bits bits = {.n = 0};
    struct sql_value v;

    add_presence(page, rows, column);
    for (uint32_t i = 0; i < rows->n_rows && !page->failed; i++) {
        rows->value(rows->arg, i, column, &v);
        if (v.type != SQL_NULL)
            add_value(page, &bits, rows->columns[column].type, &v);
    }
    if (bits.n > 0)
        (void)buf_addc(page, (char)bits.byte);
}

/* ---- the file ---- */

struct chunk {
    size_t at, size, plain; /* plain: its size before it was compressed */
};

static int add_column(const struct parquet_rows *rows, uint32_t column, struct buf *ret,
                      struct chunk *chunk)
{
    struct thrift t = {.out = ret};
    struct buf page, packed;

    buf_init(&page, ret->max < INT32_MAX ? ret->max : INT32_MAX);
    buf_init(&packed, page.max);
    add_page(&page, rows, column);
    if (page.failed == 0)
        (void)snappy_add(&packed, page.data, page.size);
    const size_t plain = page.size;
    int failed = page.failed ? page.failed : packed.failed;
    buf_done(&page); /* before a third copy of it is made */
    chunk->at = ret->size;
    number(&t, 1, T_I32, 0); /* DATA_PAGE */
    number(&t, 2, T_I32, (int64_t)plain);
    number(&t, 3, T_I32, (int64_t)packed.size);
    begin(&t, 5);
    number(&t, 1, T_I32, rows->n_rows);
    number(&t, 2, T_I32, ENCODING_PLAIN);
    number(&t, 3, T_I32, ENCODING_RLE);
    number(&t, 4, T_I32, ENCODING_RLE);
    end(&t);
    (void)buf_addc(ret, 0);
    chunk->plain = ret->size - chunk->at + plain;
    (void)buf_add(ret, packed.data, packed.size);
    chunk->size = ret->size - chunk->at;
    buf_done(&packed);
    return failed ? failed : ret->failed;
}

static void add_logical(struct thrift *t, enum sql_type type)
{
    if (type == SQL_TEXT || type == SQL_CALENDAR || type == SQL_NULL) {
        number(t, 6, T_I32, CONVERTED_UTF8);
        begin(t, 10);
        begin(t, LOGICAL_STRING);
        end(t);
        end(t);
    } else if (type == SQL_DATE) {
        number(t, 6, T_I32, CONVERTED_DATE);
        begin(t, 10);
        begin(t, LOGICAL_DATE);
        end(t);
        end(t);
    } else if (type == SQL_TIMESTAMP) {
        begin(t, 10);
        begin(t, LOGICAL_TIMESTAMP);
        field(t, 1, T_TRUE); /* in UTC */
        begin(t, 2);
        begin(t, UNIT_NANOS);
        end(t);
        end(t);
        end(t);
        end(t);
    }
}

static void add_schema(struct thrift *t, const struct parquet_rows *rows)
{
    list(t, 2, T_STRUCT, rows->n_columns + 1);
    begin(t, 0);
    text(t, 4, "schema");
    number(t, 5, T_I32, rows->n_columns);
    end(t);
    for (uint32_t i = 0; i < rows->n_columns; i++) {
        begin(t, 0);
        number(t, 1, T_I32, type_of(rows->columns[i].type));
        number(t, 3, T_I32, 1); /* OPTIONAL */
        text(t, 4, rows->columns[i].name);
        add_logical(t, rows->columns[i].type);
        end(t);
    }
}

static void add_chunk(struct thrift *t, const struct parquet_rows *rows, uint32_t i,
                      const struct chunk *chunk)
{
    begin(t, 0);
    number(t, 2, T_I64, (int64_t)chunk->at);
    begin(t, 3);
    number(t, 1, T_I32, type_of(rows->columns[i].type));
    list(t, 2, T_I32, 2);
    add_varint(t->out, ENCODING_PLAIN << 1);
    add_varint(t->out, ENCODING_RLE << 1);
    list(t, 3, T_BYTES, 1);
    add_varint(t->out, strlen(rows->columns[i].name));
    (void)buf_adds(t->out, rows->columns[i].name);
    number(t, 4, T_I32, CODEC_SNAPPY);
    number(t, 5, T_I64, rows->n_rows);
    number(t, 6, T_I64, (int64_t)chunk->plain);
    number(t, 7, T_I64, (int64_t)chunk->size);
    number(t, 9, T_I64, (int64_t)chunk->at);
    end(t);
    end(t);
}

static void add_footer(const struct parquet_rows *rows, const struct chunk *chunks, struct buf *ret)
{
    struct thrift t = {.out = ret};
    size_t at = ret->size, bytes = 0;

    for (uint32_t i = 0; i < rows->n_columns; i++)
        bytes += chunks[i].plain; /* as the format has it: of the uncompressed */
    number(&t, 1, T_I32, 2);      /* version */
    add_schema(&t, rows);
    number(&t, 3, T_I64, rows->n_rows);
    list(&t, 4, T_STRUCT, 1);
    begin(&t, 0);
    list(&t, 1, T_STRUCT, rows->n_columns);
    for (uint32_t i = 0; i < rows->n_columns; i++)
        add_chunk(&t, rows, i, &chunks[i]);
    number(&t, 2, T_I64, (int64_t)bytes);
    number(&t, 3, T_I64, rows->n_rows);
    end(&t);
    text(&t, 6, "probing");
    (void)buf_addc(ret, 0);
    add_fixed(ret, ret->size - at, 4);
    (void)buf_adds(ret, MAGIC);
}

int parquet_file(const struct parquet_rows *rows, struct buf *ret)
{
    struct chunk *chunks = calloc(rows->n_columns > 0 ? rows->n_columns : 1, sizeof(*chunks));
    int rc = chunks == NULL ? -ENOMEM : buf_adds(ret, MAGIC);

    for (uint32_t i = 0; i < rows->n_columns && rc == 0; i++)
        rc = add_column(rows, i, ret, &chunks[i]);
    if (rc == 0) {
        add_footer(rows, chunks, ret);
        rc = ret->failed;
    }
    free(chunks);
    return rc == 0 ? 0
           : rc == -ENOBUFS
               ? err_set(-EFBIG, "a Parquet file would be longer than %zu bytes", ret->max)
               : err_set(-ENOMEM, "no memory for a Parquet file");
}
