/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/exec/join.h - a join at work: what plan_join_keys.c, join_build.c, join.c and
 * join_asof.c share.
 *
 * The right side is kept in `rows`; the left side streams by.  Private to join*.c; the query's
 * thread only.
 */
#ifndef CORE_SQL_EXEC_JOIN_H
#define CORE_SQL_EXEC_JOIN_H

#include "core/sql/exec/ops.h"

#define JOIN_NONE UINT32_MAX

struct join {
    enum join_type type;
    uint32_t n_left, n_right;
    /* Conditions: equal pairs, over one side each; the asof comparison `left <= right`; the rest,
     * over the join's columns. */
    struct expr **left_keys, **right_keys;
    uint32_t n_keys;
    struct expr *asof_left, *asof_right;
    const char *asof_compare; /* NULL: none yet */
    struct expr **rest;
    uint32_t n_rest;
    /* using (...) of a full join: columns that are either side's. */
    struct join_merge *merges;
    uint32_t n_merges;
    /* The right side: its wanted columns, and for each key the chain of its rows. */
    struct rowset rows;
    uint32_t *slots; /* right column -> column of `rows`, JOIN_NONE: not wanted */
    enum sql_type *types;
    struct keys keys;
    uint32_t *first, *last; /* by key */
    uint32_t *next;         /* by row */
    uint32_t keys_room, rows_room;
    struct program *left_program, *right_program, *on;
    struct vec **left_words, **right_words;
    struct vec *gathered; /* of the right side, as many as `rows` has columns */
    bool ready, have_left;
    /* The place in the left batch. */
    uint32_t *numbers; /* key of each left row */
    uint32_t left_at, pair_at;
    uint16_t *left_rows;
    uint32_t *right_rows;
    uint16_t *sel;
    uint8_t *left_matched;  /* by row of the left batch; NULL: nobody asks */
    uint8_t *right_matched; /* by right row; NULL: nobody asks */
    uint32_t lonely_at;     /* right rows looked at for having had no match */
    struct asof *asof;
};

static inline bool join_keeps_left(const struct join *j)
{
    return j->type == JOIN_LEFT || j->type == JOIN_FULL || j->type == JOIN_ASOF_LEFT;
}

static inline bool join_keeps_right(const struct join *j)
{
    return j->type == JOIN_RIGHT || j->type == JOIN_FULL;
}

static inline bool join_is_asof(const struct join *j)
{
    return j->type == JOIN_ASOF || j->type == JOIN_ASOF_LEFT;
}

/* join_build.c: read the right side to its end; join.c: the operator's next. */
int sql_join_build(struct op *op);
/* Rows whose keys are not NULL: NULL equals nothing.  at: their places among the selected. */
uint32_t sql_join_live_rows(const struct batch *in, struct vec **v, uint32_t n_keys, uint16_t *sel,
                            uint32_t *at);
int sql_join_next(struct op *op);

/* asof: keep the values of the rows just added (n of them, key numbers of theirs). */
int sql_asof_keep(struct op *op, struct vec *values, const uint32_t *numbers, const uint16_t *sel,
                  uint32_t n);
/* Put them in order, once the right side is whole. */
int sql_asof_sort(struct op *op);
/* The right row that the left row meets, JOIN_NONE: none. */
uint32_t sql_asof_find(const struct join *j, uint32_t key, const struct vec *left, uint32_t row);

#endif
