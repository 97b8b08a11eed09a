/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/answer/answer_rows.c - see answer_rows.h.
 *
 * One thread.
 */
#include "cli/answer/answer_rows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"

uint32_t answer_rows_count(const struct answer_rows *rows)
{
    return rows->n;
}

uint32_t answer_rows_columns(const struct answer_rows *rows)
{
    return rows->n_columns;
}

int answer_rows_keep(const struct answer_rows *rows, struct answer_rows **ret)
{
    const size_t columns = rows->n_columns * sizeof(*rows->columns);
    struct answer_rows *kept = malloc(sizeof(*kept) + columns + rows->body_size + 1);

    if (kept == NULL)
        return err_set(-ENOMEM, "no memory to keep %u rows", rows->n);
    *kept = *rows;
    kept->columns = (struct column_data *)(kept + 1);
    char *body = (char *)kept->columns + columns;
    memcpy(kept->columns, rows->columns, columns);
    if (rows->body_size > 0)
        memcpy(body, rows->body, rows->body_size);
    kept->body = body;
    *ret = kept;
    return 0;
}

void answer_rows_free(struct answer_rows *rows)
{
    free(rows);
}

size_t answer_rows_bytes(const struct answer_rows *rows)
{
    return sizeof(*rows) + rows->n_columns * sizeof(*rows->columns) + rows->body_size;
}

static void text_value(const struct answer_rows *rows, const struct column_data *d, uint32_t row,
                       struct sql_value *ret)
{
    int32_t ends[2];

    memcpy(ends, rows->body + d->offsets + 4 * (size_t)row, sizeof(ends));
    ret->text.data = rows->body + d->data + ends[0];
    ret->text.size = (uint32_t)(ends[1] - ends[0]);
}

static bool bit_of(const char *bits, uint32_t row)
{
    return (unsigned char)bits[row / 8] >> (row % 8) & 1;
}

void answer_rows_value(const struct answer_rows *rows, uint32_t row, uint32_t column,
                       struct sql_value *ret)
{
    const struct column_data *d = &rows->columns[column];
    const char *data = rows->body + d->data;
    int32_t day;

    *ret = (struct sql_value){.type = SQL_NULL};
    if (d->type == SQL_NULL || (d->nulls && !bit_of(rows->body + d->valid, row)))
        return;
    ret->type = d->type;
    switch (d->type) {
    case SQL_BOOL:
        ret->boolean = bit_of(data, row);
        return;
    case SQL_DOUBLE:
        memcpy(&ret->number, data + 8 * (size_t)row, 8);
        return;
    case SQL_DATE:
        memcpy(&day, data + 4 * (size_t)row, 4);
        ret->integer = day * ANSWER_DAY_NS;
        return;
    case SQL_INT:
    case SQL_TIMESTAMP:
    case SQL_INTERVAL:
        memcpy(&ret->integer, data + 8 * (size_t)row, 8);
        return;
    case SQL_TEXT:
    case SQL_BLOB:
        text_value(rows, d, row, ret);
        return;
    case SQL_NULL:
    case SQL_CALENDAR: /* comes as text */
        return;
    }
}

const char *answer_text(const struct sql_value *v)
{
    return v->type == SQL_TEXT ? v->text.data : "";
}

bool answer_is_number(const struct sql_value *v)
{
    return v->type == SQL_INT || v->type == SQL_DOUBLE;
}

int64_t answer_int(const struct sql_value *v)
{
    return v->type == SQL_INT ? v->integer : v->type == SQL_DOUBLE ? (int64_t)v->number : 0;
}

double answer_number(const struct sql_value *v)
{
    return v->type == SQL_DOUBLE ? v->number : v->type == SQL_INT ? (double)v->integer : 0;
}

void answer_add_text(struct buf *b, const struct sql_value *v)
{
    char text[SQL_CELL_BYTES];

    if (v->type == SQL_TEXT)
        (void)buf_add(b, v->text.data, v->text.size);
    else if (v->type == SQL_BLOB)
        sql_cell_blob(b, v->text.data, v->text.size);
    else
        (void)buf_add(b, text, sql_cell_text(v, /* exact= */ true, text));
}
