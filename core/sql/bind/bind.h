/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/bind/bind.h - names become columns and functions: scopes, aggregates as written,
 * binding.
 *
 * bind*.c.  Private to core/sql; the query's thread only.
 */
#ifndef CORE_SQL_BIND_BIND_H
#define CORE_SQL_BIND_BIND_H

#include "core/sql/exec/ops.h"
#include "core/sql/parse/ast.h"

#define SQL_VIEW_DEPTH 16  /* views over views */
#define SQL_BIND_DEPTH 500 /* expressions in subqueries in views ...: our threads have 512 KiB */

struct scope {
    struct op *op;      /* whose columns are seen */
    struct expr **aggs; /* EXPR_AGG, found while binding */
    uint32_t n_aggs;
    bool grouping; /* EXPR_GROUPING was found */
    bool allow_aggs, inside_agg;
    bool allow_windows, inside_window;
    bool allow_correlated; /* subqueries that look at the columns of op */
    const struct named_window *windows;
    const char *clause;           /* for messages: "where" */
    const struct out_item *items; /* aliases that may be used, NULL: none */
    uint32_t n_items;
    struct cte *ctes;
};

/* The query around a subquery, as far as it sees it. */
struct outer {
    struct op *op; /* the outer rows */
    struct outer *up;
    struct expr **args; /* columns of op that were asked for, and aggregates of its query */
    uint32_t n;
    const struct node **calls;      /* of each argument: the aggregate as written; NULL: a column */
    struct scope *scope;            /* what an aggregate is bound in; NULL: none may be */
    const struct sql_value *values; /* of args, while it runs; NULL while it is looked at */
    bool unknown;                   /* something further out had no value yet */
};

/* Refuse what stands at pos.  Gives -EINVAL. */
int sql_refuse(struct query *q, uint32_t pos, const char *what);
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
/* An aggregate of the query around, written in the subquery.  known: 1: it is, in *ret; 0: it has
 * not been met. */
int sql_known_outer_agg(struct query *q, const struct node *n, struct expr **ret);
int sql_bind_outer_agg(struct query *q, const struct node *n, const struct agg_kind *kind,
                       struct expr **ret);
int sql_bind_subquery(struct query *q, struct scope *s, const struct node *n, struct expr **ret);
int sql_bind_in_select(struct query *q, struct scope *s, const struct node *n, struct expr **ret);
/* Make the type wanted of it: NULL, 'text' and whole numbers adapt, others are refused. */
int sql_coerce(struct query *q, struct expr **e, enum sql_type type, const char *what);
int sql_cast_to(struct query *q, struct expr **e, enum sql_type type, bool forgiving);
/* An interval of three numbers as one of ns, with days of 24 hours, for what takes no other; one
 * that has months is left as it is if it is a constant, else an error when it comes. */
int sql_interval_to_ns(struct query *q, struct expr **e);
/* One type for all of them. */
int sql_unify(struct query *q, struct expr **e, uint32_t n, const char *what, enum sql_type *ret);
/* Column of the scope by name; -1: none, -2: after err_set(). */
#define COLUMN_AMBIGUOUS (-2) /* of sql_find_column(), which has said why under -EINVAL */
int sql_find_column(struct query *q, const struct op *op, const struct node *n);
/* Give another name that a column asked for by this one may have, one after the other, *at from 0;
 * NULL: no more. */
const char *sql_other_name(const char *name, uint32_t *at);
int sql_no_column(struct query *q, const struct op *op, const struct node *n);
const char *sql_mirrored(const char *compare); /* < for > */
/* bind_agg.c, bind_window.c */
int sql_agg_bind(struct query *q, struct scope *s, const struct node *n,
                 const struct agg_kind *kind, struct expr **ret);
/* The call alone, not a column of an aggregation.  over_window: its arguments may hold
 * aggregates. */
int sql_agg_spec(struct query *q, struct scope *s, const struct node *n,
                 const struct agg_kind *kind, bool over_window, struct agg_spec **ret);
uint8_t sql_agg_mark(const struct agg_spec *a); /* of what it gives: one of its values, a list */
int sql_window_bind(struct query *q, struct scope *s, const struct node *n, struct expr **ret);
/* bind_json.c: refuse arrays where none may be.  0, or the error. */
bool sql_are_arrays(struct expr *const *e, uint32_t count); /* or NULLs and literals beside one */
int sql_array_has_no_order(struct query *q, const struct expr *e);
int sql_array_call(struct query *q, const struct node *n, struct expr *const *args);
/* Is a text that a function gives JSON?  JSON made of any value; text of JSON. */
bool sql_gives_json(const char *function);
int sql_make_json(struct query *q, const struct node *n, struct expr **e);
int sql_mark(struct query *q, struct expr **e, uint8_t mark); /* a copy, if it is another one */
/* One mark for all of them: JSON when one is, and the others are literals, which are proved. */
int sql_unify_marks(struct query *q, const struct node *n, struct expr **e, uint32_t count,
                    uint8_t *ret);
/* The same column of both sides of a union: where one is JSON, texts of the other are proved. */
int sql_unite_marks(struct query *q, uint32_t pos, struct expr *pair[2], uint8_t *ret);
/* Arguments of to_json() and json_build_*() made JSON.  1: that was all, and *ret is it. */
int sql_bind_json(struct query *q, const struct node *n, struct expr **args, struct expr **ret);
/* array_agg(), json_agg(), json_object_agg(): what the list is put together of.  1: it was that. */
int sql_bind_list(struct query *q, const struct node *n, struct expr **args, struct agg_spec *a);
/* bind_zone.c: x at time zone 'Europe/Berlin', timezone(zone, x).  1: it was that. */
int sql_bind_zone(struct query *q, const struct node *n, struct expr **args, struct expr **ret);
/* Does a function of times give the clock's time where it was given it? */
uint8_t sql_clock_of(const struct node *n, struct expr *const *args, const enum sql_type *types);
/* Say what does here what others call so; NULL: nothing known.  func_synonyms.c */
const char *sql_instead_of(const char *function);

#endif
