/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/aggregate.c - group by: keys get dense numbers (hash.c), aggregates a state for each.
 *
 * The query's thread only.
 */
#include "core/sql/agg.h"

#include <errno.h>
#include <string.h>

#include "core/base/err.h"

struct aggregate {
    struct keys keys;
    uint32_t n_keys, n_groups, next_group;
    struct agg *aggs;
    uint32_t n_aggs;
    struct program *program;
    struct vec **results;
    uint64_t *counts; /* rows by group; NULL: nobody asks */
    uint32_t counts_room;
    uint32_t *groups, *groups2; /* of the rows at hand */
    uint16_t *sel2;
    bool ready;
};

/* Only rows whose argument is not NULL and whose filter is true. */
static uint32_t narrow(struct aggregate *g, const struct agg *a, const uint16_t *sel, uint32_t n)
{
    uint32_t m = 0;
    bool by_value = a->spec->kind->op == AGG_ARG_MIN || a->spec->kind->op == AGG_ARG_MAX;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        bool keep = !a->arg || !a->arg->has_null || !a->arg->null[i];
        if (a->arg2 && by_value)
            keep = keep && (!a->arg2->has_null || !a->arg2->null[i]);
        if (a->filter)
            keep = keep && (!a->filter->has_null || !a->filter->null[i]) && a->filter->i[i];
        g->sel2[m] = (uint16_t)i;
        g->groups2[m] = g->groups[k];
        m += keep;
    }
    return m;
}

/* Of the rows in sel2 only those whose (group, value) was not there before. */
static int narrow_distinct(struct aggregate *g, struct agg *a, uint32_t n, uint32_t *numbers)
{
    uint32_t known = a->seen->n, m = 0;
    struct vec *v[2] = {&a->group_vec, a->arg};
    for (uint32_t k = 0; k < n; k++)
        a->group_vec.i[g->sel2[k]] = g->groups2[k];
    int rc = sql_keys_add(a->seen, v, g->sel2, n, numbers);
    if (rc < 0)
        return rc;
    for (uint32_t k = 0; k < n; k++) {
        g->sel2[m] = g->sel2[k];
        g->groups2[m] = g->groups2[k];
        if (numbers[k] == known) {
            known++;
            m++;
        }
    }
    return (int)m;
}

static void count_nulls(struct aggregate *g, struct agg *a, const uint16_t *sel, uint32_t n)
{
    bool all = a->arg->type == SQL_NULL;
    for (uint32_t k = 0; k < n; k++)
        a->states[g->groups[k]].n += all || a->arg->null[sel ? sel[k] : k];
}

static int feed(struct query *q, struct aggregate *g, struct agg *a, const uint16_t *sel,
                uint32_t n)
{
    const uint32_t *groups = g->groups;
    if (sql_agg_room(q, a, g->n_groups) < 0)
        return -ENOMEM;
    if (a->filter || a->seen || (a->arg2 && a->arg2->has_null) ||
        (a->arg && (a->arg->has_null || a->arg->type == SQL_NULL))) {
        if (a->counted)
            count_nulls(g, a, sel, n);
        n = narrow(g, a, sel, n);
        sel = g->sel2;
        groups = g->groups2;
    }
    if (a->seen && n) {
        uint32_t numbers[SQL_ROWS];
        int m = narrow_distinct(g, a, n, numbers);
        if (m < 0)
            return m;
        n = (uint32_t)m;
    }
    return n ? sql_agg_add(q, a, sel, groups, n) : 0;
}

/* count(*), sum and avg need how many rows each group has: counted once. */
static int count_rows(struct query *q, struct aggregate *g, uint32_t n)
{
    if (!g->counts)
        return 0;
    if (g->n_groups > g->counts_room) {
        uint32_t room = g->counts_room;
        while (room < g->n_groups)
            room *= 2;
        uint64_t *more = sql_get(q, room, sizeof(*more));
        if (!more)
            return -ENOMEM;
        memcpy(more, g->counts, g->counts_room * sizeof(*more));
        g->counts = more;
        g->counts_room = room;
    }
    if (!g->n_keys)
        g->counts[0] += n;
    for (uint32_t k = 0; k < n && g->n_keys; k++)
        g->counts[g->groups[k]]++;
    return 0;
}

static int consume(struct op *op)
{
    struct aggregate *g = op->state;
    const struct batch *in = &op->child->out;
    int rc;
    while ((rc = sql_next(op->child)) > 0) {
        rc = sql_run_program(g->program, g->results);
        if (rc == 0 && g->n_keys) {
            rc = sql_keys_add(&g->keys, g->results, in->sel, in->n_sel, g->groups);
            g->n_groups = g->keys.n;
        }
        if (rc == 0)
            rc = count_rows(op->q, g, in->n_sel);
        for (uint32_t i = 0, at = g->n_keys; i < g->n_aggs && rc == 0; i++) {
            struct agg *a = &g->aggs[i];
            if (a->spec->arg)
                a->arg = g->results[at++];
            if (a->spec->arg2)
                a->arg2 = g->results[at++];
            if (a->spec->filter)
                a->filter = g->results[at++];
            rc = feed(op->q, g, a, in->sel, in->n_sel);
        }
        if (rc < 0)
            return rc;
    }
    if (rc == 0 && g->n_keys == 0)
        g->n_groups = 1;
    for (uint32_t i = 0; i < g->n_aggs && rc == 0; i++)
        rc = sql_agg_room(op->q, &g->aggs[i], g->n_groups ? g->n_groups : 1);
    return rc;
}

static int next_aggregate(struct op *op)
{
    struct aggregate *g = op->state;
    int rc = g->ready ? 0 : consume(op);
    g->ready = true;
    if (rc < 0 || g->next_group >= g->n_groups)
        return rc;
    uint32_t n = g->n_groups - g->next_group;
    n = n < SQL_ROWS ? n : SQL_ROWS;
    for (uint32_t c = 0; c < g->n_keys && rc == 0; c++)
        rc = sql_keys_column(&g->keys, c, g->next_group, n, &op->out.v[c]);
    for (uint32_t i = 0; i < g->n_aggs && rc == 0; i++) {
        struct vec *v = &op->out.v[g->n_keys + i];
        v->has_null = false;
        v->stable = true;
        for (uint32_t r = 0; r < n && rc == 0; r++) {
            struct state s = g->aggs[i].states[g->next_group + r];
            if (g->aggs[i].counted)
                s.n = (int64_t)g->counts[g->next_group + r] - s.n;
            rc = sql_agg_finish(op->q, &g->aggs[i], &s, v, r);
        }
    }
    g->next_group += n;
    op->out.n = op->out.n_sel = n;
    return rc < 0 ? rc : 1;
}

static int prepare_agg(struct query *q, struct agg *a, const struct agg_spec *spec)
{
    enum agg_op kind = spec->kind->op;
    a->spec = spec;
    a->counted = !spec->distinct && !spec->filter &&
                 (kind == AGG_COUNT || kind == AGG_SUM || kind == AGG_AVG);
    if (!spec->distinct || !spec->arg)
        return 0;
    enum sql_type types[2] = {SQL_INT, spec->arg->type};
    bool dict[2] = {false, spec->arg->dict};
    a->seen = sql_get(q, 1, sizeof(*a->seen));
    if (!a->seen || sql_vec_room(q, &a->group_vec, SQL_INT) < 0)
        return -ENOMEM;
    return sql_keys_init(a->seen, q, types, dict, 2);
}

int sql_aggregate(struct op *child, struct expr **keys, uint32_t n_keys, struct expr **aggs,
                  uint32_t n_aggs, struct op **ret)
{
    struct query *q = child->q;
    struct op *op = sql_op(q, next_aggregate, "aggregate", n_keys + n_aggs);
    struct aggregate *g = op ? sql_get(q, 1, sizeof(*g)) : NULL;
    struct expr **all = sql_get(q, n_keys + 3 * (size_t)n_aggs, sizeof(struct expr *));
    enum sql_type types[SQL_CALL_ARGS];
    bool dict[SQL_CALL_ARGS];
    uint32_t n = 0;
    if (!g || !all)
        return -ENOMEM;
    if (n_keys > SQL_CALL_ARGS)
        return err_set(-E2BIG, "more than %d columns to group by", SQL_CALL_ARGS);
    *g = (struct aggregate){.n_keys = n_keys, .n_aggs = n_aggs};
    g->aggs = sql_get(q, n_aggs, sizeof(*g->aggs));
    g->groups = sql_get(q, SQL_ROWS, sizeof(*g->groups));
    g->groups2 = sql_get(q, SQL_ROWS, sizeof(*g->groups2));
    g->sel2 = sql_get(q, SQL_ROWS, sizeof(*g->sel2));
    if (!g->aggs || !g->groups || !g->groups2 || !g->sel2)
        return -ENOMEM;
    g->n_groups = n_keys ? 0 : 1;
    for (; n < n_keys; n++) {
        all[n] = keys[n];
        types[n] = keys[n]->type;
        dict[n] = keys[n]->dict && keys[n]->kind == EXPR_COLUMN;
        op->cols[n] = (struct col){.name = "", .type = types[n], .unit = keys[n]->unit, .doc = ""};
    }
    for (uint32_t i = 0; i < n_aggs; i++) {
        const struct agg_spec *spec = aggs[i]->set;
        if (prepare_agg(q, &g->aggs[i], spec) < 0)
            return -ENOMEM;
        if (g->aggs[i].counted && !g->counts) {
            g->counts_room = 64;
            g->counts = sql_get(q, g->counts_room, sizeof(*g->counts));
            if (!g->counts)
                return -ENOMEM;
        }
        if (spec->arg)
            all[n++] = spec->arg;
        if (spec->arg2)
            all[n++] = spec->arg2;
        if (spec->filter)
            all[n++] = spec->filter;
        op->cols[n_keys + i] =
            (struct col){.name = "", .type = spec->type, .unit = aggs[i]->unit, .doc = ""};
    }
    op->child = child;
    op->state = g;
    g->results = sql_get(q, n, sizeof(*g->results));
    if (!g->results || sql_op_vectors(op) < 0)
        return -ENOMEM;
    op->detail = sql_getf(q, "%u key%s, %u aggregate%s", n_keys, n_keys == 1 ? "" : "s", n_aggs,
                          n_aggs == 1 ? "" : "s");
    int rc = sql_compile(q, &child->out, all, n, &g->program);
    if (rc == 0)
        rc = sql_keys_init(&g->keys, q, types, dict, n_keys);
    *ret = op;
    return rc;
}
