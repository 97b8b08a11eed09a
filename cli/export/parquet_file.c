/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/export/parquet_file.c - see parquet_file.h.
 *
 * One thread.  Source: github.com/apache/parquet-format (Encodings.md, parquet.thrift) and Thrift's
 * compact protocol.
 *
 *     "PAR1"
 *     for each group of rows, and each column of it: a page's head (Thrift), and compressed by
 *                      snappy, which all readers know:
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

/* A column of a group in the file. */
struct chunk {
    uint64_t at;
    size_t size, plain; /* plain: its size before it was compressed */
};

struct group {
    struct group *next;
    uint32_t n_rows;
    struct chunk chunks[]; /* one a column */
};

struct parquet_file {
    const struct sql_column *columns;
    uint32_t n_columns, n_groups;
    uint64_t n_rows, size; /* of the file so far */
    struct group *first, **last;
};

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

static void begin_field(struct thrift *t, int id, int type)
{
    int *last = &t->last[t->depth];

    (void)buf_addc(t->out, (char)((id - *last) << 4 | type)); /* never 15 apart in these structs */
    *last = id;
}

static void add_number(struct thrift *t, int id, int type, int64_t v)
{
    begin_field(t, id, type);
    add_varint(t->out, (uint64_t)v << 1 ^ (uint64_t)(v >> 63));
}

static void add_name(struct thrift *t, int id, const char *s)
{
    begin_field(t, id, T_BYTES);
    add_varint(t->out, strlen(s));
    (void)buf_adds(t->out, s);
}

static void begin_list(struct thrift *t, int id, int type, uint32_t n)
{
    begin_field(t, id, T_LIST);
    if (n < 15) {
        (void)buf_addc(t->out, (char)(n << 4 | (unsigned)type));
        return;
    }
    (void)buf_addc(t->out, (char)(0xf0 | type));
    add_varint(t->out, n);
}

/* Field 0 is an item of a list. */
static void begin_struct(struct thrift *t, int id)
{
    if (id > 0)
        begin_field(t, id, T_STRUCT);
    t->last[++t->depth] = 0;
}

static void end_struct(struct thrift *t)
{
    (void)buf_addc(t->out, 0);
    t->depth--;
}

/* ---- a column's values ---- */

static int stored_type(enum sql_type t)
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

    switch (stored_type(type)) {
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

static void add_page(struct buf *page, const struct parquet_rows *rows, uint32_t column,
                     enum sql_type type)
{
    struct bits bits = {.n = 0};
    struct sql_value v;

    add_presence(page, rows, column);
    for (uint32_t i = 0; i < rows->n_rows && !page->failed; i++) {
        rows->value(rows->arg, i, column, &v);
        if (v.type != SQL_NULL)
            add_value(page, &bits, type, &v);
    }
    if (bits.n > 0)
        (void)buf_addc(page, (char)bits.byte);
}

/* ---- a group of rows ---- */

/* Adds a column's page; chunk->at is its place in `ret`. */
static int add_column(const struct parquet_rows *rows, uint32_t column, enum sql_type type,
                      struct buf *ret, struct chunk *chunk)
{
    struct thrift t = {.out = ret};
    struct buf page, packed;

    buf_init(&page, ret->max < INT32_MAX ? ret->max : INT32_MAX);
    buf_init(&packed, page.max);
    add_page(&page, rows, column, type);
    if (page.failed == 0)
        (void)snappy_add(&packed, page.data, page.size);
    const size_t plain = page.size;
    int failed = page.failed ? page.failed : packed.failed;
    buf_done(&page); /* before a third copy of it is made */
    chunk->at = ret->size;
    add_number(&t, 1, T_I32, 0); /* DATA_PAGE */
    add_number(&t, 2, T_I32, (int64_t)plain);
    add_number(&t, 3, T_I32, (int64_t)packed.size);
    begin_struct(&t, 5);
    add_number(&t, 1, T_I32, rows->n_rows);
    add_number(&t, 2, T_I32, ENCODING_PLAIN);
    add_number(&t, 3, T_I32, ENCODING_RLE);
    add_number(&t, 4, T_I32, ENCODING_RLE);
    end_struct(&t);
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
        add_number(t, 6, T_I32, CONVERTED_UTF8);
        begin_struct(t, 10);
        begin_struct(t, LOGICAL_STRING);
        end_struct(t);
        end_struct(t);
    } else if (type == SQL_DATE) {
        add_number(t, 6, T_I32, CONVERTED_DATE);
        begin_struct(t, 10);
        begin_struct(t, LOGICAL_DATE);
        end_struct(t);
        end_struct(t);
    } else if (type == SQL_TIMESTAMP) {
        begin_struct(t, 10);
        begin_struct(t, LOGICAL_TIMESTAMP);
        begin_field(t, 1, T_TRUE); /* in UTC */
        begin_struct(t, 2);
        begin_struct(t, UNIT_NANOS);
        end_struct(t);
        end_struct(t);
        end_struct(t);
        end_struct(t);
    }
}

static void add_schema(struct thrift *t, const struct parquet_file *f)
{
    begin_list(t, 2, T_STRUCT, f->n_columns + 1);
    begin_struct(t, 0);
    add_name(t, 4, "schema");
    add_number(t, 5, T_I32, f->n_columns);
    end_struct(t);
    for (uint32_t i = 0; i < f->n_columns; i++) {
        begin_struct(t, 0);
        add_number(t, 1, T_I32, stored_type(f->columns[i].type));
        add_number(t, 3, T_I32, 1); /* OPTIONAL */
        add_name(t, 4, f->columns[i].name);
        add_logical(t, f->columns[i].type);
        end_struct(t);
    }
}

static void add_chunk(struct thrift *t, const struct sql_column *column, uint32_t n_rows,
                      const struct chunk *chunk)
{
    begin_struct(t, 0);
    add_number(t, 2, T_I64, (int64_t)chunk->at);
    begin_struct(t, 3);
    add_number(t, 1, T_I32, stored_type(column->type));
    begin_list(t, 2, T_I32, 2);
    add_varint(t->out, ENCODING_PLAIN << 1);
    add_varint(t->out, ENCODING_RLE << 1);
    begin_list(t, 3, T_BYTES, 1);
    add_varint(t->out, strlen(column->name));
    (void)buf_adds(t->out, column->name);
    add_number(t, 4, T_I32, CODEC_SNAPPY);
    add_number(t, 5, T_I64, n_rows);
    add_number(t, 6, T_I64, (int64_t)chunk->plain);
    add_number(t, 7, T_I64, (int64_t)chunk->size);
    add_number(t, 9, T_I64, (int64_t)chunk->at);
    end_struct(t);
    end_struct(t);
}

static void add_group(struct thrift *t, const struct parquet_file *f, const struct group *g)
{
    size_t plain = 0;

    begin_struct(t, 0);
    begin_list(t, 1, T_STRUCT, f->n_columns);
    for (uint32_t i = 0; i < f->n_columns; i++) {
        add_chunk(t, &f->columns[i], g->n_rows, &g->chunks[i]);
        plain += g->chunks[i].plain; /* as the format has it: of the uncompressed */
    }
    add_number(t, 2, T_I64, (int64_t)plain);
    add_number(t, 3, T_I64, g->n_rows);
    end_struct(t);
}

/* ---- the file ---- */

/* The reason of what did not go into `out`. */
static int fail_parquet(int rc, const struct buf *out)
{
    return rc == 0 ? 0
           : rc == -ENOBUFS
               ? err_set(-EFBIG, "a Parquet file would be longer than %zu bytes", out->max)
               : err_set(-ENOMEM, "no memory for a Parquet file");
}

int parquet_begin(const struct sql_column *columns, uint32_t n_columns, struct buf *out,
                  struct parquet_file **ret)
{
    struct parquet_file *f = calloc(1, sizeof(*f));

    if (f == NULL)
        return fail_parquet(-ENOMEM, out);
    *f = (struct parquet_file){
        .columns = columns, .n_columns = n_columns, .size = sizeof(MAGIC) - 1, .last = &f->first};
    *ret = f;
    return fail_parquet(buf_adds(out, MAGIC), out);
}

void parquet_free(struct parquet_file *f)
{
    while (f != NULL && f->first != NULL) {
        struct group *g = f->first;
        f->first = g->next;
        free(g);
    }
    free(f);
}

int parquet_add_rows(struct parquet_file *f, const struct parquet_rows *rows, struct buf *out)
{
    struct group *g = calloc(1, sizeof(*g) + f->n_columns * sizeof(*g->chunks));
    const size_t begin = out->size;
    int rc = g != NULL ? 0 : -ENOMEM;

    if (g != NULL) {
        g->n_rows = rows->n_rows;
        *f->last = g;
        f->last = &g->next;
    }
    for (uint32_t i = 0; i < f->n_columns && rc == 0; i++) {
        rc = add_column(rows, i, f->columns[i].type, out, &g->chunks[i]);
        g->chunks[i].at += f->size - begin;
    }
    f->size += out->size - begin;
    f->n_rows += rows->n_rows;
    f->n_groups++;
    return fail_parquet(rc, out);
}

int parquet_end(const struct parquet_file *f, struct buf *out)
{
    struct thrift t = {.out = out};
    const size_t begin = out->size;

    add_number(&t, 1, T_I32, 2); /* version */
    add_schema(&t, f);
    add_number(&t, 3, T_I64, (int64_t)f->n_rows);
    begin_list(&t, 4, T_STRUCT, f->n_groups);
    for (const struct group *g = f->first; g != NULL; g = g->next)
        add_group(&t, f, g);
    add_name(&t, 6, "probing");
    (void)buf_addc(out, 0);
    add_fixed(out, out->size - begin, 4);
    return fail_parquet(buf_adds(out, MAGIC), out);
}
