/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/plan/bind.h - names become columns and functions: scopes, aggregates as written,
 * binding.
 *
 * bind*.c.  Private to core/sql; the query's thread only.
 */
#ifndef CORE_SQL_PLAN_BIND_H
#define CORE_SQL_PLAN_BIND_H

#include "core/sql/expr/expr.h"
#include "core/sql/parse/ast.h"

#define SQL_VIEW_DEPTH 16  /* views over views */
#define SQL_BIND_DEPTH 500 /* expressions in subqueries in views ...: our threads have 512 KiB */

struct out_item { /* one column of a select list */
    struct expr *expr;
    const char *name;
    bool aliased;
};

struct scope {
    struct op *op;      /* whose columns are seen */
    struct expr **aggs; /* EXPR_AGG, found while binding */
    uint32_t n_aggs;
    bool allow_aggs, inside_agg;
    bool allow_windows, inside_window;
    bool allow_correlated; /* subqueries that look at the columns of op */
    const struct named_window *windows;
    const char *clause;           /* for messages: "where" */
    const struct out_item *items; /* aliases that may be used, NULL: none */
    uint32_t n_items;
    struct cte *ctes;
};

/* What a subquery sees of the query around it. */
struct outer {
    struct op *op; /* the outer rows */
    struct outer *up;
    struct expr **args; /* columns of op that were asked for */
    uint32_t n;
    const struct sql_value *values; /* of args, while it runs; NULL while it is looked at */
    bool unknown;                   /* something further out had no value yet */
};

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
    enum sql_type type;
    uint32_t pos;
};

int sql_bind(struct query *q, struct scope *s, const struct node *n, struct expr **ret);
int sql_bind_call(struct query *q, struct scope *s, const struct node *n, struct expr **ret);
/* A call of a function with bound arguments; n says where. */
int sql_call_named(struct query *q, const struct node *n, const char *name, struct expr *a,
                   struct expr *b, struct expr **ret);
/* Replace a call of constants by its value, if it has one. */
int sql_fold_call(struct query *q, struct expr **e);
/* bind_row.c: (a, b) < (c, d), (a, b) in ((1, 2), ...); the probes in so many rows of values. */
int sql_bind_row_compare(struct query *q, struct scope *s, const struct node *n, struct expr **ret);
int sql_bind_row_in(struct query *q, struct scope *s, const struct node *n, struct expr **ret);
int sql_bind_in_rows(struct query *q, const struct node *n, struct expr **probes, uint32_t n_probes,
                     const struct sql_value *values, uint32_t count, struct expr **ret);
/* bind_subquery.c.  sql_bind_outer: 1: a column of the query around, 0: there is none. */
int sql_bind_outer(struct query *q, const struct node *n, struct expr **ret);
int sql_bind_subquery(struct query *q, struct scope *s, const struct node *n, struct expr **ret);
int sql_bind_in_select(struct query *q, struct scope *s, const struct node *n, struct expr **ret);
/* Make the type wanted of it: NULL, 'text' and whole numbers adapt, others are refused. */
int sql_coerce(struct query *q, struct expr **e, enum sql_type type, const char *what);
int sql_cast_to(struct query *q, struct expr **e, enum sql_type type, bool forgiving);
/* One type for all of them. */
int sql_unify(struct query *q, struct expr **e, uint32_t n, const char *what, enum sql_type *ret);
struct expr *sql_new_expr(struct query *q, enum expr_kind kind, enum sql_type type, uint32_t pos,
                          uint32_t n_args);
void sql_want(struct op *op, uint32_t column);
/* Column of the scope by name; -1: none, -2: after err_set(). */
#define COLUMN_AMBIGUOUS (-2) /* of sql_find_column(), which has said why under -EINVAL */
int sql_find_column(struct query *q, const struct op *op, const struct node *n);
int sql_no_column(struct query *q, const struct op *op, const struct node *n);
struct expr *sql_const(struct query *q, struct sql_value v, uint32_t pos);
bool sql_expr_equal(const struct expr *a, const struct expr *b);
bool sql_expr_has_agg(const struct expr *e);
bool sql_expr_has_window(const struct expr *e);
struct expr *sql_column_expr(struct query *q, const struct op *op, uint32_t column, uint32_t pos);
const char *sql_mirrored(const char *compare); /* < for > */
bool sql_expr_has_column(const struct expr *e);
/* Can several threads compute it at once, each on its own rows? */
bool sql_expr_is_free(const struct expr *e);
bool sql_expr_only_from(const struct expr *e, uint32_t first, uint32_t end);
/* The same expression with its columns counted from `by`. */
struct expr *sql_expr_shifted(struct query *q, const struct expr *e, uint32_t by);
/* What does here what others call so; NULL: nothing known.  func_synonyms.c */
const char *sql_instead_of(const char *function);

#endif
