/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/exec/agg_merge.c - what two threads have aggregated, made one: as if one had seen all
 * rows.
 *
 * The query's thread only, when its helpers have ended.
 */
#include "core/sql/exec/agg.h"

#include <errno.h>
#include <string.h>

bool sql_agg_merges(const struct agg_spec *spec, const char **ret_why)
{
    switch (spec->kind->op) {
    case AGG_STDDEV:
    case AGG_STDDEV_POP:
    case AGG_VAR:
    case AGG_VAR_POP:
    case AGG_STRING:
    case AGG_CORR:
    case AGG_COVAR:
    case AGG_COVAR_POP:
    case AGG_SLOPE:
    case AGG_R2:
    case AGG_INTERCEPT:
        *ret_why = "%s() goes by the order of the rows";
        return false;
    case AGG_PERCENTILE_DISC:
        if (agg_is_by_values(spec)) {
            *ret_why = "%s() keeps one list of values";
            return false;
        }
        break;
    case AGG_COUNT:
    case AGG_SUM:
    case AGG_AVG:
    case AGG_MIN:
    case AGG_MAX:
    case AGG_PERCENTILE:
    case AGG_HISTOGRAM:
    case AGG_FIRST:
    case AGG_LAST:
    case AGG_ARG_MIN:
    case AGG_ARG_MAX:
    case AGG_AND:
    case AGG_OR:
    case AGG_XOR:
        break;
    case AGG_MODE:
    case AGG_SKETCH:
        *ret_why = "%s() keeps one list of values";
        return false;
    }
    *ret_why = "%s(distinct) keeps one set of values";
    return !spec->distinct;
}

static int append_list(struct query *q, struct state *to, const struct state *from)
{
    uint64_t n = (uint64_t)to->list->n + from->list->n;
    double *numbers =
        n < UINT32_MAX ? sql_grow(q, to->list->numbers, to->list->n, n, sizeof(*numbers)) : NULL;
    if (!numbers)
        return sql_no_room();
    memcpy(numbers + to->list->n, from->list->numbers, from->list->n * sizeof(*numbers));
    to->list->numbers = numbers;
    to->list->n = to->list->room = (uint32_t)n;
    return sql_worked(q, n);
}

/* Does the other's value count, both having one? */
static bool is_better(const struct agg *a, const struct state *to, const struct state *from)
{
    enum agg_op op = a->spec->kind->op;
    bool later = op == AGG_LAST, largest = op == AGG_ARG_MAX || later;
    int c =
        a->spec->arg2 ? sql_agg_compare(&from->pair->key, &to->pair->key, a->spec->nulls_low) : 0;
    if (c)
        return largest != a->spec->descending ? c > 0 : c < 0;
    return later ? from->row > to->row : from->row < to->row;
}

static bool is_beyond(const struct agg *a, const struct state *to, const struct state *from)
{
    enum sql_type type = a->spec->type;
    struct sql_value x = {.type = type}, y = {.type = type};
    if (sql_is_textual(type)) {
        x.text.data = from->t.data, x.text.size = from->t.size;
        y.text.data = to->t.data, y.text.size = to->t.size;
    } else if (type == SQL_DOUBLE) {
        x.number = from->d, y.number = to->d;
    } else {
        x.type = y.type = SQL_INT; /* whatever else it is: its word is its order */
        x.integer = from->i, y.integer = to->i;
    }
    int c = sql_agg_compare(&x, &y, /* nulls_low= */ false);
    return a->spec->kind->op == AGG_MIN ? c < 0 : c > 0;
}

/* Both states have had values. */
static int merge_values(struct query *q, const struct agg *a, struct state *to,
                        const struct state *from)
{
    enum agg_op op = a->spec->kind->op;
    bool take = op == AGG_MIN || op == AGG_MAX ? is_beyond(a, to, from) : is_better(a, to, from);
    if (op == AGG_PERCENTILE || op == AGG_PERCENTILE_DISC || op == AGG_HISTOGRAM)
        return append_list(q, to, from);
    if (op == AGG_AND || op == AGG_OR || op == AGG_XOR)
        to->i = op == AGG_AND ? to->i & from->i : op == AGG_OR ? to->i | from->i : to->i ^ from->i;
    else if (take)
        *to = *from;
    return 0;
}

int sql_agg_merge(struct query *q, struct agg *a, uint32_t group, const struct state *from)
{
    struct state *to = &a->states[group];
    enum agg_op op = a->spec->kind->op;
    bool sum = op == AGG_SUM || op == AGG_AVG;
    int64_t n = to->n + from->n;
    int rc = 0;
    if (sum && a->spec->of == SQL_DOUBLE) {
        sql_agg_add_exactly(to, from->sum);
        to->rest += from->rest;
    } else if (sum) {
        to->whole += from->whole;
    } else if (op != AGG_COUNT && from->n) {
        if (to->n)
            rc = merge_values(q, a, to, from);
        else
            *to = *from;
    }
    to->n = n;
    return rc;
}
