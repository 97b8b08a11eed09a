/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/plan/plan_list.h - the select list and order by, as the files of a select share them.
 *
 * Private to plan.c, plan_list.c and plan_order.c; the query's thread only.
 */
#ifndef CORE_SQL_PLAN_PLAN_LIST_H
#define CORE_SQL_PLAN_PLAN_LIST_H

#include "core/sql/plan/plan.h"

struct list {
    struct out_item *items;
    uint32_t n, room;
};

int sql_list_add(struct query *q, struct list *l, struct expr *e, const char *name, bool aliased);
/* *, t.*: the columns of the scope's rows. */
int sql_list_star(struct query *q, struct scope *scope, const struct node *star, struct list *l);
int sql_list_bind(struct query *q, const struct select *s, struct scope *scope, struct list *l);
int sql_list_project(struct query *q, struct op *op, const struct list *l, struct op **ret);
/* Column number n, from 1, of `count`. */
int sql_ordinal(struct query *q, const struct node *n, uint32_t count, const char *clause,
                uint32_t *ret);

struct ordering {
    struct sort_key *keys;
    uint32_t n;
    uint32_t n_shown; /* columns of the list; what is beyond is only sorted or told apart by */
    uint32_t *on;     /* distinct on: columns */
    uint32_t n_on;
};

/* order by and distinct on; what they need and the list has not is added to it. */
int sql_order_bind(struct query *q, const struct select *s, struct scope *scope, struct list *l,
                   struct ordering *o);
int sql_order_plan(struct query *q, const struct select *s, const struct ordering *o,
                   struct op **op);
/* order by over the columns of a union or values: names, ordinals and expressions of them. */
int sql_order_over(struct query *q, const struct select *s, struct cte *ctes, struct op **op);

#endif
