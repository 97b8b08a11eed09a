/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/export/parquet_file.h - rows as a Parquet file, without anybody's help: one group of rows,
 * plain values, no compression.
 *
 * One thread.
 */
#ifndef CLI_EXPORT_PARQUET_FILE_H
#define CLI_EXPORT_PARQUET_FILE_H

#include <stdint.h>

#include "core/sql/sql.h"
#include "sdk/lib/buf.h"

struct parquet_rows {
    const struct sql_column *columns; /* an interval is written as a number of ns */
    uint32_t n_columns;
    uint32_t n_rows;
    /* Gives a value of its column's type, or NULL; texts live until the next call. */
    void (*value)(void *arg, uint32_t row, uint32_t column, struct sql_value *ret);
    void *arg;
};

/* Add the whole file to `ret`, which has nothing in it.  -EFBIG: it does not fit. */
int parquet_file(const struct parquet_rows *rows, struct buf *ret);

#endif
