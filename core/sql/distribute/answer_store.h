/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/distribute/answer_store.h - tables held in memory, and an engine that knows no others.
 *
 * A table has parts, one a member, so that one's rows can be dropped; each part's rows begin with
 * values of its own (its tags).  A cell takes 1 byte, 9, or 5 and its bytes.  Private to
 * core/sql/distribute; one thread, and nothing is added while a statement runs.
 */
#ifndef CORE_SQL_DISTRIBUTE_ANSWER_STORE_H
#define CORE_SQL_DISTRIBUTE_ANSWER_STORE_H

#include "core/sql/sql.h"
#include "sdk/lib/arena.h"
#include "sdk/lib/buf.h"

struct held_part {
    struct buf rows;
    uint64_t n;
    const struct sql_value *front; /* [n_front] */
};

struct held_table {
    const char *schema, *name; /* schema NULL: it has none */
    const struct sql_column *columns;
    uint32_t n_columns, n_front;
    uint32_t n_aside; /* the last of the front ones: not part of * */
    struct held_part *parts;
    uint32_t n_parts;
    struct held_table *next;
};

struct held {
    struct tables *tables;
    struct sql *engine;
    struct held_table *first;
};

int held_init(struct held *h);
void held_done(struct held *h); /* of zeros, too */
/* A table with n_parts empty parts; all that it points to lives in `mem`, as long as h. */
int held_add(struct held *h, struct arena *mem, const struct held_table *t,
             struct held_table **ret);
/* One row's cells behind the front ones, each NULL or of its column's type. */
int held_row(struct held_table *t, uint32_t part, const struct sql_value *cells);
void held_drop(struct held_part *p); /* its rows */

#endif
