/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/answer/answer_rows.h - some rows of an answer, checked: values by row and column.
 *
 * One thread.
 */
#ifndef CLI_ANSWER_ANSWER_ROWS_H
#define CLI_ANSWER_ANSWER_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/sql/sql.h"

#define ANSWER_DAY_NS INT64_C(86400000000000)

/* Some rows of an answer; they live until the call that got them returns. */
struct answer_rows;
uint32_t answer_rows_count(const struct answer_rows *rows);
uint32_t answer_rows_columns(const struct answer_rows *rows);
/* Its text is not NUL-terminated.  An interval that may have months comes as text. */
void answer_rows_value(const struct answer_rows *rows, uint32_t row, uint32_t column,
                       struct sql_value *ret);
/* A copy for later, which is in no list; caller frees.  -ENOMEM. */
int answer_rows_keep(const struct answer_rows *rows, struct answer_rows **ret);
void answer_rows_free(struct answer_rows *rows); /* NULL is fine */
size_t answer_rows_bytes(const struct answer_rows *rows);

/* ---- a value ---- */

/* A text of arrow_reader.h's row(): "" where the value is NULL or of another type. */
const char *answer_text(const struct sql_value *v);
/* A number, whichever it is: 0 where the value is NULL or of another type. */
int64_t answer_int(const struct sql_value *v);
double answer_number(const struct sql_value *v);
bool answer_is_number(const struct sql_value *v);
/* Add any value as text, a blob as "\x6869"; nothing where it is NULL. */
void answer_add_text(struct buf *b, const struct sql_value *v);

/* ---- for arrow_reader.c, which has checked them ---- */

/* One column in a batch: where its parts lie in the body. */
struct column_data {
    enum sql_type type;
    bool nulls; /* else no row is NULL, and there are no bits */
    size_t valid, offsets, data;
};

struct answer_rows {
    const char *body;
    size_t body_size;
    uint32_t n, n_columns;
    struct column_data *columns;
};

#endif
