/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/plan/plan.h - selects, and what they read from, become operators.
 *
 * plan*.c, recursive.c, lateral.c, table_func.c.  Private to core/sql; the query's thread only.
 */
#ifndef CORE_SQL_PLAN_PLAN_H
#define CORE_SQL_PLAN_PLAN_H

#include "core/sql/bind/bind.h"
#include "core/sql/exec/ops.h"

int sql_plan_select(struct query *q, const struct select *s, struct cte *ctes, struct op **ret);
int sql_plan_values(struct query *q, const struct select *s, struct op **ret);
/* plan_bucket.c: the key that is a bucket of the table's time, if one is; what is closed alone. */
const struct expr *sql_find_bucket(const struct op *input, struct expr *const *keys, uint32_t n);
int sql_only_closed(struct query *q, const struct expr *bucket, struct op **op);
/* recursive.c */
struct working { /* the rows of the round before */
    struct rowset *rows;
    struct col *cols;
};
int sql_plan_recursive(struct query *q, struct cte *c, struct op **ret);
int sql_plan_set(struct query *q, const struct select *s, struct cte *ctes, struct op **ret);
/* plan_join.c, plan_table.c */
int sql_plan_from(struct query *q, const struct from *f, struct cte *ctes, struct op **ret);
int sql_plan_table(struct query *q, const struct from *f, struct cte *ctes, struct op **ret);
/* lateral.c: `f` (a join) whose right side may see the columns of `left`.  *ret NULL: it does not,
 * and is in *ret_right as it stands. */
int sql_plan_lateral(struct query *q, const struct from *f, struct cte *ctes, struct op *left,
                     struct op **ret_right, struct op **ret);
int sql_plan_where(struct query *q, const struct node *where, struct cte *ctes, struct op **op);
/* Only rows for which the condition is true are wanted of *op. */
int sql_require(struct query *q, struct op **op, struct expr *condition);
/* The columns of an operator as * shows them. */
uint32_t *sql_columns_in_order(struct query *q, const struct op *op);
int sql_rename_first(struct query *q, const struct from *f, struct op *op);
/* Functions that give rows: table_func.c */
int sql_plan_function(struct query *q, const struct node *call, struct op **ret);

#endif
