/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/exec/agg.h - an aggregate function as it is bound and as it works.
 *
 * bind_agg.c (names and arguments), agg.c and agg_number.c (values added to states), agg_merge.c
 * (states of two threads), agg_state.c (states as bytes, of several processes), agg_sketch.c,
 * agg_result.c (results), aggregate.c (group by).
 * NULL arguments never reach a state.  Private to them; the query's thread only.
 */
#ifndef CORE_SQL_EXEC_AGG_H
#define CORE_SQL_EXEC_AGG_H

#include "core/sql/exec/ops.h"

enum agg_op {
    AGG_COUNT,
    AGG_SUM,
    AGG_AVG,
    AGG_MIN,
    AGG_MAX,
    AGG_STDDEV,
    AGG_STDDEV_POP,
    AGG_VAR,
    AGG_VAR_POP,
    AGG_PERCENTILE,
    AGG_PERCENTILE_DISC,
    AGG_HISTOGRAM,
    AGG_FIRST,
    AGG_LAST,
    AGG_ARG_MIN, /* of arg at the least arg2 */
    AGG_ARG_MAX,
    AGG_STRING,
    AGG_MODE,
    AGG_CORR, /* of arg and arg2, as those below */
    AGG_COVAR,
    AGG_COVAR_POP,
    AGG_SLOPE,
    AGG_R2,
    AGG_INTERCEPT,
    AGG_AND, /* of booleans, or of the bits of integers */
    AGG_OR,
    AGG_XOR,
    AGG_SKETCH /* a quantile within 1 % */
};

struct agg_kind {
    const char *name;
    enum agg_op op;
    uint32_t min_args, max_args;
    int fraction; /* PERCENTILE: which argument it is; -1: one half */
};

struct list { /* all values of a group */
    uint32_t n, room;
    union {
        double *numbers;
        struct text *texts;
    };
    struct sql_value *keys; /* of texts, when they are ordered */
};

struct pair { /* ARG_MIN, ARG_MAX */
    struct sql_value value, key;
};

struct moments { /* CORR ... INTERCEPT: y is arg, x is arg2 */
    double mean_y, mean_x, yy, xx, xy;
};

/* Both arguments count, and rows where either is NULL do not. */
static inline bool agg_is_by_pairs(enum agg_op op)
{
    return op == AGG_ARG_MIN || op == AGG_ARG_MAX || (op >= AGG_CORR && op <= AGG_INTERCEPT);
}

struct sketch;

#define SUM_TOO_LARGE ((double)INFINITY) /* finite values have an infinite sum */

struct state {
    int64_t n; /* values that came */
    union {
        uint64_t row; /* FIRST ... ARG_MAX: of the batch that the value came with */
        int64_t part; /* SUM, AVG of whole numbers: not in `whole` yet */
    };
    union {
        __int128 whole;
        struct {
            double sum, rest; /* rest: what rounding took from the sum, or SUM_TOO_LARGE */
        };
        struct {
            double mean, m2;
        };
        int64_t i;
        double d;
        struct text t;
        struct {
            uint64_t word;     /* i, d or the text's bytes */
            uint32_t size;     /* of the text */
            uint32_t null_end; /* FIRST, LAST that keep NULLs: 1: it is one */
        };
        struct list *list;
        struct pair *pair;
        struct moments *moments;
        struct sketch *sketch;
    };
};

struct agg { /* one aggregate at work */
    const struct agg_spec *spec;
    bool counted; /* state n is how many NULLs came: the group's rows are counted once for all */
    bool alone;   /* no group by: there is one state */
    uint64_t part_most; /* what any part may have come to */
    struct state *states;
    uint32_t room;
    uint64_t row; /* of the batch at hand */
    struct vec *arg, *arg2, *filter;
    struct keys *seen; /* distinct */
    struct vec group_vec;
};

/* With the state s of each selected row i do `...`. */
#define EACH(...)                                     \
    do {                                              \
        if (sel) {                                    \
            for (uint32_t k = 0; k < n; k++) {        \
                uint32_t i = sel[k];                  \
                struct state *s = &states[groups[k]]; \
                __VA_ARGS__                           \
            }                                         \
        } else {                                      \
            for (uint32_t i = 0; i < n; i++) {        \
                struct state *s = &states[groups[i]]; \
                __VA_ARGS__                           \
            }                                         \
        }                                             \
    } while (0)

/* Values are kept as they are, to be sorted: of percentile_disc(), those that are no doubles. */
static inline bool agg_is_by_values(const struct agg_spec *spec)
{
    return spec->kind->op == AGG_PERCENTILE_DISC && spec->of != SQL_DOUBLE;
}

int sql_agg_room(struct query *q, struct agg *a, uint32_t groups);
/* Values of the n selected rows, none NULL, into the states of their groups. */
int sql_agg_add(struct query *q, struct agg *a, const uint16_t *sel, const uint32_t *groups,
                uint32_t n);
/* agg_number.c: the same for SUM and AVG, and for MIN and MAX of numbers. */
void sql_agg_add_sums(struct agg *a, const uint16_t *sel, const uint32_t *groups, uint32_t n);
void sql_agg_add_extremes(struct agg *a, const uint16_t *sel, const uint32_t *groups, uint32_t n);
void sql_agg_add_exactly(struct state *s, double x);
/* Parts become part of their sums: before anybody looks at these. */
void sql_agg_fold_parts(struct agg *a);
/* nulls_low: NULL is the first; else the last. */
int sql_agg_compare(const struct sql_value *a, const struct sql_value *b, bool nulls_low);
/* Can the rows be shared out between threads?  false: *ret_why says why not, %s being the name. */
bool sql_agg_merges(const struct agg_spec *spec, const char **ret_why);
/* Add what another thread's state has seen to that of a group. */
int sql_agg_merge(struct query *q, struct agg *a, uint32_t group, const struct state *from);
/* agg_state.c: states that are values of the n selected rows are added to those of their groups;
 * -EINVAL: bytes that are no state of this aggregate.  And a state as bytes. */
int sql_agg_add_states(struct query *q, struct agg *a, const uint16_t *sel, const uint32_t *groups,
                       uint32_t n);
int sql_agg_encode(struct query *q, const struct agg_spec *spec, const struct state *s,
                   struct text *ret);
/* Could such bytes be a state of the aggregate over values of a type? */
bool sql_agg_is_state(enum agg_op op, enum sql_type of, const char *data, uint32_t size);
#define AGG_ROWS_MAX \
    (INT64_C(1) << 48) /* that a state may say to have seen: as many as no process */

/* ---- agg_sketch.c ---- */

struct sketch *sql_sketch_new(struct query *q);
int sql_sketch_add(struct query *q, struct sketch *k, double x);
int sql_sketch_merge(struct query *q, struct sketch *to, const struct sketch *from);
/* Give the value that percentile_disc() would choose; within 1 % of that. */
double sql_sketch_quantile(const struct sketch *k, double fraction);
int sql_sketch_encode(struct query *q, const struct sketch *k, struct text *ret);
/* NULL: no memory, or they are no such bytes: then *ret_bad. */
struct sketch *sql_sketch_decode(struct query *q, struct text t, bool *ret_bad);
int64_t sql_sketch_count(const struct sketch *k);
int64_t sql_sketch_counts(struct text t); /* of its bytes; -1: they are none */

/* bind_agg.c.  Does it give one of its values as it is? */
bool sql_agg_picks(enum agg_op op);

int sql_agg_finish(struct query *q, const struct agg *a, struct state *s, struct vec *v,
                   uint32_t row);

#endif
