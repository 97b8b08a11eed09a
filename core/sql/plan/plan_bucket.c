/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/plan/plan_bucket.c - continuous aggregation: those buckets of a statement that are over.
 *
 * A bucket is closed when it has ended and the time for late rows (SQL_SET_LATE) has gone by.  The
 * bucket that holds "now less that time" is the first that is not: rows before it and from where
 * the last answer ended make exactly the buckets to give, whatever the function that makes them.
 * The query's thread only.
 */
#include "core/sql/plan/plan.h"

#include <errno.h>
#include <string.h>

/* The scan of a stored table below filters, and no more than that; NULL: something else. */
static const struct op *plain_scan(const struct op *op)
{
    const struct table *t;
    while (strcmp(op->name, "filter") == 0)
        op = op->child;
    return sql_is_scan(op, &t) ? op : NULL;
}

static bool is_ts(const struct op *scan, const struct expr *e)
{
    return e->kind == EXPR_COLUMN && e->type == SQL_TIMESTAMP &&
           strcmp(scan->cols[e->column].name, "ts") == 0;
}

const struct expr *sql_find_bucket(const struct op *input, struct expr *const *keys, uint32_t n)
{
    static const char *const names[] = {"time_bucket", "date_bin", "date_trunc"};
    const struct op *scan = plain_scan(input);
    for (uint32_t k = 0; k < n && scan; k++) {
        const struct expr *e = keys[k];
        if (e->kind != EXPR_CALL || e->n_args < 2 || e->args[0]->kind != EXPR_CONST ||
            !is_ts(scan, e->args[1]) || (e->n_args > 2 && e->args[2]->kind != EXPR_CONST))
            continue;
        for (int i = 0; i < 3; i++)
            if (strcmp(e->func->name, names[i]) == 0)
                return e;
    }
    return NULL;
}

/* Give the beginning of the bucket that holds a moment. */
static int bucket_of(struct query *q, const struct expr *bucket, int64_t moment, int64_t *ret)
{
    struct sql_value v = {.type = SQL_TIMESTAMP, .integer = moment};
    struct expr *e = sql_expr_copy(q, bucket);
    if (!e || !(e->args[1] = sql_const(q, v, bucket->pos)))
        return -ENOMEM;
    int rc = sql_fold(q, e, &v);
    if (rc == 0 && v.type != SQL_TIMESTAMP)
        rc = sql_error(q->text, q->size, bucket->pos, -EINVAL, "this bucket of time is NULL");
    *ret = v.integer;
    return rc;
}

static int require_ts(struct query *q, struct expr *ts, const char *compare, int64_t limit,
                      struct op **op)
{
    struct sql_value v = {.type = SQL_TIMESTAMP, .integer = limit};
    struct node n = {.kind = NODE_CALL, .text = compare};
    struct expr *e, *value = sql_const(q, v, 0);
    sql_want(*op, ts->column); /* once for each comparison: the scan counts them */
    int rc = value ? sql_call_named(q, &n, compare, ts, value, &e) : -ENOMEM;
    return rc < 0 ? rc : sql_require(q, op, e);
}

int sql_only_closed(struct query *q, const struct expr *bucket, struct op **op)
{
    int64_t before, late = (int64_t)sql_setting(q->s, SQL_SET_LATE);
    int rc = bucket_of(q, bucket, q->now_utc - late, &q->notes.bucket_end);
    if (rc == 0)
        rc = bucket_of(q, bucket, q->notes.bucket_end - 1, &before);
    if (rc < 0)
        return rc;
    q->notes.bucket_ns = q->notes.bucket_end - before;
    if (q->o->late) {
        rc = require_ts(q, bucket->args[1], ">=", q->o->late_ts, op);
        return rc < 0 ? rc : require_ts(q, bucket->args[1], "<", q->o->from_ts, op);
    }
    rc = require_ts(q, bucket->args[1], ">=", q->o->from_ts, op);
    return rc < 0 ? rc : require_ts(q, bucket->args[1], "<", q->notes.bucket_end, op);
}
