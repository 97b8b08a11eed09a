/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/catalog/catalog.h - what there is to ask: views, information_schema, and the statements
 * that describe tables.
 *
 * Private to core/sql.  The query's thread only, but for views: see views.c.
 */
#ifndef CORE_SQL_CATALOG_CATALOG_H
#define CORE_SQL_CATALOG_CATALOG_H

#include "core/sql/exec/ops.h"
#include "core/sql/parse/ast.h"

/* ---- views.c ---- */

int sql_add_own_views(struct sql *s);
void sql_free_views(struct sql *s);
/* The definition of a name that is tried after this one; NULL: the first, there is no more. */
const struct view *sql_next_view(const struct sql *s, const char *schema, const char *name,
                                 const struct view *after);
/* Find what a plugin that is not here says of a table of that name, which it makes; NULL: none is
 * known.  schema: NULL: any, if the name is in one only. */
const struct view *sql_declared_table(const struct sql *s, const char *schema, const char *name);

/* ---- describe.c: describe, summarize, show, set ---- */

int sql_plan_other(struct query *q, const struct statement *st, struct op **ret);
/* Add what `summarize` says of the column x of that name, up to " from ". */
void sql_add_summary(struct buf *b, const char *name, enum sql_type type, const char *x);

/* ---- information_schema.c ---- */

/* A table made by the engine itself; NULL in *ret: there is no such table. */
int sql_scan_schema(struct query *q, const char *name, const char *alias, struct op **ret);

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
