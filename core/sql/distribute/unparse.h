/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/distribute/unparse.h - a parsed statement written back as SQL.
 *
 * What comes out gives the same tree when it is parsed, so the same answer under the same names of
 * columns; spellings, comments and parentheses are not kept.  Private to core/sql/distribute; one
 * thread.
 */
#ifndef CORE_SQL_DISTRIBUTE_UNPARSE_H
#define CORE_SQL_DISTRIBUTE_UNPARSE_H

#include "core/sql/parse/ast.h"
#include "sdk/lib/buf.h"

struct unparser {
    struct buf *out;  /* -ENOBUFS at its maximum, and nothing is written after it */
    const char *text; /* that was parsed: columns without an alias are called as it is written */
    size_t size;
    const struct cte *ctes; /* that the select around has said already */
    bool bare;              /* names of columns without their table */
};

void unparse_select(struct unparser *u, const struct select *s);
void unparse_node(struct unparser *u, const struct node *n);
void unparse_order(struct unparser *u, const struct order *o, uint32_t n); /* " order by ..." */
void unparse_from(struct unparser *u, const struct from *f);
void unparse_window(struct unparser *u, const struct window_node *w); /* in parentheses */
void unparse_name(struct unparser *u, const char *name);              /* in double quotes */
/* The name of a column that has no alias, blanks made one, at most size - 1 bytes. */
void unparse_written(const struct unparser *u, const struct node *n, char *ret, size_t size);

#endif
