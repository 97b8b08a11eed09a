/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/export/parquet_file.h - rows as a Parquet file, without anybody's help: groups of rows, plain
 * values, compressed by snappy.
 *
 * One thread.  What is kept is where the groups stand, so a file may be as long as it likes; its
 * bytes are added to `out`, which the caller may empty after each call.
 */
#ifndef CLI_EXPORT_PARQUET_FILE_H
#define CLI_EXPORT_PARQUET_FILE_H

#include <stdint.h>

#include "core/sql/sql.h"
#include "sdk/lib/buf.h"

/* The rows of a group. */
struct parquet_rows {
    uint32_t n_rows;
    /* Gives a value of its column's type, or NULL; texts live until the next call. */
    void (*value)(void *arg, uint32_t row, uint32_t column, struct sql_value *ret);
    void *arg;
};

/* columns: live as long as the file; an interval is written as a number of ns.  Each gives 0,
 * -ENOMEM, or -EFBIG: it does not fit into `out`.  The caller frees *ret, also after a failure. */
struct parquet_file;
int parquet_begin(const struct sql_column *columns, uint32_t n_columns, struct buf *out,
                  struct parquet_file **ret);
int parquet_add_rows(struct parquet_file *f, const struct parquet_rows *rows, struct buf *out);
int parquet_end(const struct parquet_file *f, struct buf *out);
void parquet_free(struct parquet_file *f); /* NULL is fine */

#endif
