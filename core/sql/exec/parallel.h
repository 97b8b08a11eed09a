/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/exec/parallel.h - helpers that run an operator beside the query's own thread, on other
 * rows.
 *
 * Private to parallel.c and the operators that can share out their rows.
 */
#ifndef CORE_SQL_EXEC_PARALLEL_H
#define CORE_SQL_EXEC_PARALLEL_H

#include "core/sql/value/query.h"

struct parallel;

/* How many threads the query may have, itself included. */
uint32_t sql_parallel_threads(const struct query *q);
/* Why the rows of `input` cannot be shared out; NULL: they can. */
const char *sql_parallel_why_not(const struct op *input);
/* The stored table's scan at the bottom. */
struct op *sql_parallel_scan(struct op *op);

/* For each helper what is below `op` is made once more, then op itself with make(), and run() runs
 * there.  The scan below must have begun.  *ret NULL: no helper could be had, which is no error. */
int sql_parallel_start(struct op *op, op_beside make, int (*run)(struct op *op),
                       struct parallel **ret);
bool sql_parallel_failed(
    const struct parallel *t); /* a helper has; its thread's own is not asked */
/* Wait for all; rc below 0: they shall stop.  Gives rc, or the failure of a helper.  What they made
 * lives as long as the query. */
int sql_parallel_end(struct parallel *t, int rc);

uint32_t sql_parallel_size(const struct parallel *t);
struct op *sql_parallel_op(struct parallel *t, uint32_t i);

#endif
