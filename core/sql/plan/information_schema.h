/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/plan/information_schema.h - tables that the engine makes of what it knows itself:
 * information_schema.
 *
 * Private to core/sql.  The query's thread only.
 */
#ifndef CORE_SQL_PLAN_INFORMATION_SCHEMA_H
#define CORE_SQL_PLAN_INFORMATION_SCHEMA_H

#include "core/sql/plan/plan.h"

#define MADE_COLUMNS_MAX 10

struct maker { /* of one table: its rows so far */
    struct query *q;
    const char *spec;
    struct rowset *rows;
    uint32_t n;
    struct vec v[MADE_COLUMNS_MAX], *pointers[MADE_COLUMNS_MAX];
    enum sql_type *types;
};

/* spec: the table's columns in order, between blanks.  "name=" is one whose values the rows tell,
 * every value of "name" is NULL; of texts, or of "name=i", "name:s" by letter of the type (expr.h).
 * It has to live as long as the maker. */
int made_begin(struct maker *m, struct query *q, const char *spec);
/* One row: of each column told its text (NULL is NULL), or numbers[c] where it is none. */
int made_row(struct maker *m, const char *const *texts, const int64_t *numbers);
int made_finish(struct maker *m, const char *table, struct op **ret);

#endif
