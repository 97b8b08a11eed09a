/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/format/given_rows.c - rows that no query made, as a sink takes them: those that other
 * processes answered with, on their way into one answer.
 *
 * The caller's thread only.
 */
#include <errno.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/sql/value/vector.h"

#define GIVEN_ROWS 512 /* in a batch: half a MiB with a hundred columns */

_Static_assert(GIVEN_ROWS <= SQL_ROWS, "a batch of ours is one of the engine's");

/* Vectors for GIVEN_ROWS rows; NULL: no memory. */
static struct vec *new_vectors(const struct sql_given *from)
{
    const size_t cell = sizeof(struct text), column = GIVEN_ROWS * (cell + 1);
    struct vec *v = calloc(1, from->n_columns * (sizeof(*v) + column) + 1);
    char *room = v != NULL ? (char *)(v + from->n_columns) : NULL;

    for (uint32_t c = 0; v != NULL && c < from->n_columns; c++, room += GIVEN_ROWS * cell) {
        v[c].type = from->columns[c].type;
        v[c].data = room;
    }
    for (uint32_t c = 0; v != NULL && c < from->n_columns; c++, room += GIVEN_ROWS)
        v[c].null = (uint8_t *)room;
    return v;
}

static void fill_vec(struct vec *v, const struct sql_given *from, uint32_t column, uint32_t first,
                     uint32_t n)
{
    struct sql_value x;

    v->has_null = false;
    for (uint32_t row = 0; row < n; row++) {
        from->value(from->arg, first + row, column, &x);
        v->null[row] = x.type == SQL_NULL || x.type != v->type;
        v->has_null = v->has_null || v->null[row];
        if (!v->null[row])
            sql_put_value(v, row, &x);
    }
}

int sql_give_rows(const struct sql_sink *to, const struct sql_given *from, uint32_t n_rows)
{
    struct vec *v = new_vectors(from);
    int rc = 0;

    if (v == NULL)
        return err_set(-ENOMEM, "no memory for %u columns of an answer", from->n_columns);
    for (uint32_t first = 0; first < n_rows && rc == 0; first += GIVEN_ROWS) {
        const uint32_t left = n_rows - first, n = left < GIVEN_ROWS ? left : GIVEN_ROWS;
        const struct batch batch = {.n = n, .n_sel = n, .v = v};
        const struct sql_rows rows = {.batch = &batch, .n = n};
        for (uint32_t c = 0; c < from->n_columns; c++)
            fill_vec(&v[c], from, c, first, n);
        rc = to->rows(to->arg, &rows);
    }
    free(v);
    return rc;
}
