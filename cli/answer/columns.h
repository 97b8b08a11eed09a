/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/answer/columns.h - the columns of several answers as those of one: by their names, and what
 * to do where one lacks a column or has another type for it.
 *
 * One thread.
 */
#ifndef CLI_ANSWER_COLUMNS_H
#define CLI_ANSWER_COLUMNS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/sql/sql.h"
#include "sdk/lib/arena.h"

#define NO_COLUMN UINT32_MAX

/* A member's columns, kept. */
struct own_columns {
    struct sql_column *list; /* names are copies */
    uint32_t n;
    /* [joined->n]: which of its columns is the i-th of all, NO_COLUMN: none.  By
     * joined_columns_place(). */
    uint32_t *from;
};

struct joined_columns {
    struct sql_column *list;
    uint32_t n;
    uint32_t *types; /* bits of the types that it has among the members */
};

int own_columns_keep(struct arena *a, const struct sql_column *columns, uint32_t n,
                     struct own_columns *ret);
/* Add one member's: columns of one name are one column, the second of two in an answer another
 * one.  Of two types: whole and broken numbers are broken ones, all else is text. */
int joined_columns_add(struct arena *a, struct joined_columns *all, const struct own_columns *own);
int joined_columns_place(struct arena *a, const struct joined_columns *all,
                         struct own_columns *own);
/* A value as that of a column of type `to`; room: for its text, SQL_CELL_BYTES, or more for a blob,
 * which is left out then (NULL). */
void joined_value(struct sql_value *v, enum sql_type to, char room[SQL_CELL_BYTES]);

#endif
