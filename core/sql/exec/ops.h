/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/exec/ops.h - the operators, by the functions that make them.
 *
 * scan.c, pipeline.c, set_ops.c, sort.c, grouping_sets.c, aggregate.c with agg*.c, window*.c,
 * join*.c.
 * Private to core/sql; one thread a query, but for the helpers of parallel.c.
 */
#ifndef CORE_SQL_EXEC_OPS_H
#define CORE_SQL_EXEC_OPS_H

#include "core/sql/expr/expr.h"
#include "core/sql/value/keys.h"

int sql_scan_table(struct query *q, const struct table *t, const char *alias, struct op **ret);
int sql_scan_none(struct query *q, struct op **ret); /* one row without columns */
/* Begin to read, before the first sql_next(), and say how many rows it will read at most. */
int sql_scan_begin(struct op *op, uint64_t *ret_rows);
/* Number of the first row of the batch it gave last. */
uint64_t sql_scan_row(const struct op *op);
void sql_scan_leave(struct op *op); /* begin no further segment: a helper's */
int sql_scan_rowset(struct query *q, struct rowset *rows, struct col *cols, struct op **ret);
/* Tell the scan below that only rows with column `compare` value count. */
/* true: where the scan's vector says `inside`, the comparison holds for every row. */
bool sql_push_bound(struct op *op, uint32_t column, const char *compare, const struct expr *value);
bool sql_is_scan(const struct op *op, const struct table **ret_table);
/* Give the number of the row after the last of a stored table's scan; 0: it did not run. */
uint64_t sql_scan_end(const struct op *op);

int sql_filter(struct op *child, struct expr **conjuncts, uint32_t n, struct op **ret);
/* One condition more; *op becomes a filter if it is none.  pushed: as sql_push_bound() says. */
int sql_filter_add(struct op **op, struct expr *condition, bool pushed);
int sql_project(struct op *child, struct expr **exprs, struct col *cols, uint32_t n,
                struct op **ret);
int sql_limit(struct op *child, uint64_t limit, uint64_t offset, struct op **ret);
/* And the rows behind that are equal to the last one in the n keys; n_out: columns given on. */
struct sort_key;
int sql_limit_ties(struct op *child, uint64_t limit, uint64_t offset, const struct sort_key *keys,
                   uint32_t n, uint32_t n_out, struct op **ret);
/* The first of rows that are equal in n columns (NULL: in all of them); n_out: columns given on. */
int sql_distinct(struct op *child, const uint32_t *columns, uint32_t n, uint32_t n_out,
                 struct op **ret);
int sql_append(struct op *left, struct op *right, struct op **ret);
/* except: rows of the left side that are not on the right; else intersect: that are. */
int sql_set(struct op *left, struct op *right, bool except, bool all, struct op **ret);
const struct expr *sql_project_expr(const struct op *op, uint32_t column);

/* avg(x); avg_state(x): what it has seen so far, as bytes; avg_merge(state, null::double): the
 * value of many such; avg_merge_state(state, null::double): of many such one.  agg_state.c */
enum agg_form { AGG_VALUE, AGG_STATE, AGG_MERGE, AGG_MERGE_STATE };

struct agg_spec { /* one aggregate call */
    const struct agg_kind *kind;
    bool distinct, star;
    struct expr *arg, *filter;
    struct expr *arg2; /* what arg_min and f(x order by y) go by */
    double fraction;
    bool descending; /* within group (order by x desc), f(x order by y desc) */
    bool nulls_low;  /* NULL comes before all others in rising order: as `nulls first` has it */
    bool keeps_null; /* FIRST, LAST: a row whose argument is NULL is a row */
    uint32_t bins;
    struct text separator;
    const char *open, *close; /* around a list: json_agg(), array_agg() ...; NULL: none */
    bool members;             /* of each text only what its braces hold: json_object_agg() */
    enum sql_type type;
    enum agg_form form;
    enum sql_type of; /* the type of the values: of arg, or of those that the states have seen */
    uint32_t pos;
};

struct sort_key {
    uint32_t column; /* of the child */
    bool descending, nulls_first;
};
/* In order of size, NaN last; values that are not NULL. */
int sql_compare_values(const struct vec *a, uint32_t i, const struct vec *b, uint32_t j);
int sql_compare_cells(const struct vec *a, uint32_t i, const struct vec *b, uint32_t j,
                      const struct sort_key *k);
/* Sort n row numbers, keeping the order of equal ones.  prefix (may be NULL): two numbers (at
 * first 0) in the order of the rows; only rows with equal ones are compared. */
typedef int (*sql_compare)(uint32_t a, uint32_t b, void *arg);
typedef void (*sql_prefix)(uint32_t row, void *arg, uint64_t ret[2]);
int sql_sort_index(struct query *q, uint32_t *index, uint32_t n, sql_prefix prefix,
                   sql_compare compare, void *arg);
bool sql_is_whole_prefix(const struct vec *v, uint64_t prefix);
uint64_t sql_cell_prefix(const struct vec *v, uint32_t i, const struct sort_key *k);
/* keep: only the first `keep` rows are wanted (0: all).  n_out: columns given on. */
int sql_sort(struct op *child, const struct sort_key *keys, uint32_t n, uint64_t keep,
             uint32_t n_out, struct op **ret);

/* grouping_sets.c: child's columns, then the keys, then the number of the set, a bit of which says
 * of each key whether the set lacks it.  lack: of each set, the same bits. */
int sql_grouping_sets(struct op *child, struct expr **keys, uint32_t n_keys, const uint64_t *lack,
                      uint32_t n, struct op **ret);
/* The sets without keys, which have a group where there are no rows, too: how many such rows are
 * now in its keys and number; 0: none, or it is another operator. */
uint32_t sql_empty_sets(struct op *op);

const struct agg_kind *sql_agg_find(const char *name); /* of any form */
enum agg_form sql_agg_form(const char *name);
uint32_t sql_agg_names(const char **ret, uint32_t max);
/* One group of one aggregate, a row at a time: frames of windows. */
struct agg;
int sql_agg_one_new(struct query *q, const struct agg_spec *spec, struct agg **ret);
void sql_agg_one_reset(struct agg *a);
int sql_agg_one_add(struct query *q, struct agg *a, struct vec *arg, const struct vec *filter,
                    uint16_t row);
bool sql_agg_one_can_remove(const struct agg *a);
void sql_agg_one_remove(struct agg *a, const struct vec *arg, const struct vec *filter,
                        uint16_t row);
int sql_agg_one_get(struct query *q, struct agg *a, struct vec *ret, uint32_t row);

uint32_t sql_window_names(const char **ret, uint32_t max);
bool sql_window_only(const char *name); /* a window function that is no aggregate */
/* Compute the window functions in the items over *op; the items then are over the new *op. */
int sql_plan_windows(struct query *q, struct out_item *items, uint32_t n, struct op **op);
/* Groups by keys; columns: the keys, then the aggregates. */
int sql_aggregate(struct op *child, struct expr **keys, uint32_t n_keys, struct expr **aggs,
                  uint32_t n_aggs, struct op **ret);

struct join_merge { /* using (...) of a full join: a column of the left and one of the right side */
    uint32_t left, right;
};
/* Columns: left, then right, then the merged ones.  Conditions are over these; they are added one
 * by one, and pairs that do not pass them all are no match.  Then sql_join_done(). */
int sql_join(struct op *left, struct op *right, enum join_type type,
             const struct join_merge *merges, uint32_t n_merges, struct op **ret);
int sql_join_add(struct op *join, struct expr *condition);
int sql_join_done(struct op *join, uint32_t pos);
bool sql_is_join(const struct op *op, enum join_type *ret_type, uint32_t *ret_n_left);
/* A column of an operator is read: pipeline.c. */
void sql_want(struct op *op, uint32_t column);

#endif
