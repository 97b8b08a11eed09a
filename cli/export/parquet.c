/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/export/parquet.c - an answer as a Parquet file: its rows are kept until they are a group.
 *
 * One thread.
 */
#include <errno.h>
#include <stdlib.h>

#include "cli/export/export.h"
#include "cli/export/parquet_file.h"
#include "core/base/err.h"
#include "sdk/lib/array.h"

/* A group is written when it is so large: readers want 100,000 rows and more in one, and what is
 * kept, and a column of it twice, is our memory. */
#define GROUP_BYTES ((size_t)16 << 20)
#define GROUP_ROWS (1u << 20)

struct parquet {
    struct buf *out;
    struct parquet_file *file;
    struct answer_rows **parts; /* of the group that is gathered */
    uint32_t n_parts, room, n_rows;
    size_t bytes;
    uint32_t part,
        first; /* where the last value was: its part, and the row that this begins with */
};

static int take_columns(void *arg, const struct sql_column *columns, uint32_t n)
{
    struct parquet *p = arg;

    return parquet_begin(columns, n, p->out, &p->file);
}

/* Rows are asked for one after the other, column by column. */
static void give_value(void *arg, uint32_t row, uint32_t column, struct sql_value *ret)
{
    struct parquet *p = arg;

    if (row < p->first)
        p->part = p->first = 0;
    for (uint32_t n; row - p->first >= (n = answer_rows_count(p->parts[p->part])); p->part++)
        p->first += n;
    answer_rows_value(p->parts[p->part], row - p->first, column, ret);
}

static void drop_parts(struct parquet *p)
{
    for (uint32_t i = 0; i < p->n_parts; i++)
        answer_rows_free(p->parts[i]);
    p->n_parts = p->n_rows = p->part = p->first = 0;
    p->bytes = 0;
}

static int write_group(struct parquet *p)
{
    const struct parquet_rows rows = {.n_rows = p->n_rows, .value = give_value, .arg = p};
    int rc = p->n_rows > 0 ? parquet_add_rows(p->file, &rows, p->out) : 0;

    drop_parts(p);
    return rc;
}

static int take_rows(void *arg, const struct answer_rows *rows)
{
    struct parquet *p = arg;
    struct answer_rows **more =
        array_grow(p->parts, p->n_parts, &p->room, sizeof(struct answer_rows *), UINT32_MAX);

    if (more == NULL)
        return err_set(-ENOMEM, "no memory for a group of rows");
    p->parts = more;
    int rc = answer_rows_keep(rows, &p->parts[p->n_parts]);
    if (rc < 0)
        return rc;
    p->n_parts++;
    p->n_rows += answer_rows_count(rows);
    p->bytes += answer_rows_bytes(rows);
    return p->bytes >= GROUP_BYTES || p->n_rows >= GROUP_ROWS ? write_group(p) : 0;
}

static int end_parquet(void *self)
{
    struct parquet *p = self;
    int rc = write_group(p);

    return rc < 0 ? rc : parquet_end(p->file, p->out);
}

static void free_parquet(void *self)
{
    struct parquet *p = self;

    drop_parts(p);
    free(p->parts);
    parquet_free(p->file);
    free(p);
}

int export_parquet_new(struct buf *out, struct export_writer *ret)
{
    struct parquet *p = calloc(1, sizeof(*p));

    if (p == NULL)
        return err_set(-ENOMEM, "no memory for a Parquet file");
    p->out = out;
    *ret = (struct export_writer){.to = {.arg = p, .columns = take_columns, .rows = take_rows},
                                  .end = end_parquet,
                                  .free = free_parquet};
    return 0;
}
