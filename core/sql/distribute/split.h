/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/distribute/split.h - a select whose groups are aggregated by members, while it is taken
 * apart.
 *
 * split.c (the select), split_aggregate.c (one call of an aggregate), split_limit.c (its limit).
 * Private to them; one thread.
 */
#ifndef CORE_SQL_DISTRIBUTE_SPLIT_H
#define CORE_SQL_DISTRIBUTE_SPLIT_H

#include "core/sql/distribute/parts.h"

#define SPLIT_KEYS_MAX 60
#define SPLIT_STATES_MAX 400
#define SPLIT_ORDERS_MAX 64

struct split_state {
    const char *text;  /* what a member computes */
    const char *name;  /* of its column */
    const char *merge; /* the same of several, over their columns */
    struct answer_check check;
};

struct split {
    struct scope_of scope;
    struct tree_copy copy; /* of the last select's expressions; failed: it cannot be split */
    struct node *keys[SPLIT_KEYS_MAX]; /* that members group by, as they see them */
    const char *key_names[SPLIT_KEYS_MAX];
    uint32_t n_keys;
    struct split_state states[SPLIT_STATES_MAX];
    uint32_t n_states;
    /* Groups of members are parts of those asked for: of distinct values, of totals, or mixed with
     * tags. */
    bool finer;
    bool ordered;  /* something goes by which row came first */
    uint32_t tags; /* the last select needs these; bits by enum sql_tag */
    bool *uses;    /* columns of members */
    int rc;
    struct node *way_orders[SPLIT_ORDERS_MAX]; /* what groups are ordered by on the way, */
    uint32_t n_way_orders;
    const char *way_limit; /* and how many of them go on; NULL: all */
};

/* The tags that n names are needed by the last select. */
void split_use_tags(struct split *p, const struct node *n);

/* The name of a key that members group by, added if it is new; NULL: it cannot be. */
const char *split_key(struct split *p, const struct node *n);
/* The call, over the answers; NULL: it cannot be split. */
struct node *split_aggregate(struct split *p, const struct node *n);
/* " order by ... limit n" for members, behind their groups; NULL: they must send all.  The order of
 * the last select may grow.  Sets what the same is on the way, over merged groups. */
const char *split_limit(struct split *p, struct order **order, uint32_t *n_order);

#endif
