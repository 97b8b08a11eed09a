/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/exec/aggregate.c - group by: keys get dense numbers (hash.c), aggregates a state for
 * each.
 *
 * Where helpers (parallel.c) take a share of the rows, each has numbers and states of its own; they
 * are merged at the end, and put in the order in which one thread would have met the groups.
 * The query's thread, or its helper's.
 */
#include "core/sql/exec/agg.h"

#include <errno.h>
#include <string.h>

#include "core/base/err.h"
#include "core/sql/exec/parallel.h"

#define HELP_AFTER 64 /* batches: what takes no ms is not worth a thread */

struct arrival { /* groups from `group` on were first met in the batch that begins with `row` */
    uint64_t row;
    uint32_t group;
};

struct aggregate {
    struct keys keys;
    uint32_t n_keys, n_groups, next_group;
    struct agg *aggs;
    uint32_t n_aggs;
    struct expr **key_exprs, **agg_exprs;
    const struct op *scan; /* NULL: no helper may take a share */
    struct arrival *arrivals;
    uint32_t n_arrivals, arrivals_room;
    struct program *program;
    struct vec **results;
    uint64_t *counts; /* rows by group; NULL: nobody asks */
    uint32_t counts_room;
    uint32_t *groups, *groups2; /* of the rows at hand */
    uint16_t *sel2;
    bool ready;
};

/* Only rows whose argument is not NULL and whose filter is true. */
static uint32_t narrow_rows(struct aggregate *g, const struct agg *a, const uint16_t *sel,
                            uint32_t n)
{
    uint32_t m = 0;
    bool by_value = agg_is_by_pairs(a->spec->kind->op);
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        bool keep = !a->arg || a->spec->keeps_null || !a->arg->has_null || !a->arg->null[i];
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

/* Leave in sel2 only the rows whose (group, value) was not there before. */
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

static int feed_agg(struct query *q, struct aggregate *g, struct agg *a, const uint16_t *sel,
                    uint32_t n)
{
    const uint32_t *groups = g->groups;
    if (sql_agg_room(q, a, g->n_groups) < 0)
        return -ENOMEM;
    if (a->filter || a->seen || (a->arg2 && a->arg2->has_null) ||
        (a->arg && !a->spec->keeps_null && (a->arg->has_null || a->arg->type == SQL_NULL))) {
        if (a->counted)
            count_nulls(g, a, sel, n);
        n = narrow_rows(g, a, sel, n);
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

static int room_for_counts(struct query *q, struct aggregate *g)
{
    uint32_t room = g->counts_room;
    if (!g->counts || g->n_groups <= room)
        return 0;
    while (room < g->n_groups)
        room *= 2;
    uint64_t *more = sql_grow(q, g->counts, g->counts_room, room, sizeof(*more));
    if (!more)
        return -ENOMEM;
    g->counts = more;
    g->counts_room = room;
    return 0;
}

/* count(*), sum and avg need how many rows each group has: counted once. */
static int count_rows(struct query *q, struct aggregate *g, uint32_t n)
{
    int rc = room_for_counts(q, g);
    if (rc < 0 || !g->counts)
        return rc;
    uint64_t *counts = g->counts;
    const uint32_t *groups = g->groups;
    if (!g->n_keys)
        counts[0] += n;
    else
        for (uint32_t k = 0; k < n; k++)
            counts[groups[k]]++;
    return 0;
}

/* Remember which groups came with the batch that begins with `row`. */
static int note_arrivals(struct query *q, struct aggregate *g, uint64_t row, uint32_t before)
{
    if (g->n_groups == before)
        return 0;
    if (g->n_arrivals == g->arrivals_room) {
        uint32_t room = g->arrivals_room ? 2 * g->arrivals_room : 64;
        struct arrival *more = sql_grow(q, g->arrivals, g->n_arrivals, room, sizeof(*more));
        if (!more)
            return -ENOMEM;
        g->arrivals = more;
        g->arrivals_room = room;
    }
    g->arrivals[g->n_arrivals++] = (struct arrival){row, before};
    return 0;
}

static int take_batch(struct op *op)
{
    struct aggregate *g = op->state;
    const struct batch *in = &op->child->out;
    uint32_t before = g->n_groups;
    uint64_t row = g->scan ? sql_scan_row(g->scan) : 0;
    int rc = sql_run_program(g->program, g->results);
    if (rc == 0 && g->n_keys) {
        rc = sql_keys_add(&g->keys, g->results, in->sel, in->n_sel, g->groups);
        g->n_groups = g->keys.n;
    }
    if (rc == 0 && g->scan)
        rc = note_arrivals(op->q, g, row, before);
    if (rc == 0)
        rc = count_rows(op->q, g, in->n_sel);
    for (uint32_t i = 0, at = g->n_keys; i < g->n_aggs && rc == 0; i++) {
        struct agg *a = &g->aggs[i];
        a->row = row;
        if (a->spec->arg)
            a->arg = g->results[at++];
        if (a->spec->arg2)
            a->arg2 = g->results[at++];
        if (a->spec->filter)
            a->filter = g->results[at++];
        rc = feed_agg(op->q, g, a, in->sel, in->n_sel);
    }
    return rc;
}

static int make_states(struct op *op)
{
    struct aggregate *g = op->state;
    int rc = 0;
    if (g->n_keys == 0)
        g->n_groups = 1;
    for (uint32_t i = 0; i < g->n_aggs && rc == 0; i++) {
        sql_agg_fold_parts(&g->aggs[i]);
        rc = sql_agg_room(op->q, &g->aggs[i], g->n_groups ? g->n_groups : 1);
    }
    return rc;
}

/* ---- with helpers ---- */

/* Run a helper's part, from its operator's first row to the last it gets. */
static int run_helper(struct op *op)
{
    const struct arena_budget *b = op->q->budget;
    size_t limit = sql_memory_limit(op->q);
    int rc;
    while ((rc = sql_next(op->child)) > 0) {
        rc = take_batch(op);
        if (rc < 0)
            return rc;
        /* Groups known to both take memory twice: then rather one of them goes on alone. */
        if (atomic_load_explicit(&b->used_bytes, memory_order_relaxed) > limit / 4)
            sql_scan_leave(sql_parallel_scan(op));
    }
    return rc < 0 ? rc : make_states(op);
}

/* Add what a helper has: its group i becomes ours number numbers[i]. */
static int merge_groups(struct query *q, struct aggregate *g, const struct aggregate *other,
                        uint32_t *numbers)
{
    int rc = 0;
    if (g->n_keys)
        rc = sql_keys_merge(&g->keys, &other->keys, numbers);
    g->n_groups = g->n_keys ? g->keys.n : 1;
    if (rc == 0)
        rc = room_for_counts(q, g);
    for (uint32_t i = 0; i < other->n_groups && g->counts && rc == 0; i++)
        g->counts[numbers[i]] += other->counts[i];
    for (uint32_t a = 0; a < g->n_aggs && rc == 0; a++) {
        rc = sql_agg_room(q, &g->aggs[a], g->n_groups);
        for (uint32_t i = 0; i < other->n_groups && rc == 0; i++)
            rc = sql_agg_merge(q, &g->aggs[a], numbers[i], &other->aggs[a].states[i]);
    }
    return rc;
}

/* One of those who met groups: `numbers` are ours of its own ones. */
struct met {
    const struct aggregate *g;
    const uint32_t *numbers;
    uint32_t next; /* arrival */
};

/* Our groups in the order in which their first rows stand in the table. */
static void order_groups(struct met *met, uint32_t n_met, uint8_t *placed, uint32_t *order)
{
    uint32_t at = 0;
    for (;;) {
        struct met *first = NULL;
        for (uint32_t i = 0; i < n_met; i++) {
            struct met *m = &met[i];
            if (m->next < m->g->n_arrivals &&
                (!first || m->g->arrivals[m->next].row < first->g->arrivals[first->next].row))
                first = m;
        }
        if (!first)
            return;
        const struct aggregate *g = first->g;
        uint32_t group = g->arrivals[first->next++].group;
        uint32_t end = first->next < g->n_arrivals ? g->arrivals[first->next].group : g->n_groups;
        for (; group < end; group++) {
            uint32_t number = first->numbers[group];
            order[at] = number;
            at += !placed[number];
            placed[number] = 1;
        }
    }
}

static int reorder_groups(struct query *q, struct aggregate *g, const uint32_t *order,
                          uint8_t *marks)
{
    sql_keys_reorder(&g->keys, order, marks);
    if (g->counts)
        sql_reorder(g->counts, sizeof(*g->counts), order, g->n_groups, marks);
    for (uint32_t a = 0; a < g->n_aggs; a++) {
        sql_reorder(g->aggs[a].states, sizeof(struct state), order, g->n_groups, marks);
        int rc = sql_worked(q, g->n_groups);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int merge_all(struct op *op, struct parallel *team)
{
    struct aggregate *g = op->state;
    struct query *q = op->q;
    uint32_t n = sql_parallel_size(team), own = g->n_groups;
    struct met *met = sql_get(q, n + 1, sizeof(*met));
    uint32_t *numbers = sql_get(q, own + 1, sizeof(*numbers));
    if (!met || !numbers)
        return -ENOMEM;
    for (uint32_t i = 0; i < own; i++)
        numbers[i] = i;
    op->detail = sql_getf(q, "%s (%u had rows)", op->detail, n + 1);
    struct aggregate mine = *g; /* as it was: its groups are the first of all */
    met[0] = (struct met){&mine, numbers, 0};
    int rc = 0;
    for (uint32_t h = 0; h < n && rc == 0; h++) {
        const struct aggregate *other = sql_parallel_op(team, h)->state;
        numbers = sql_get(q, other->n_groups + 1, sizeof(*numbers));
        rc = numbers ? merge_groups(q, g, other, numbers) : -ENOMEM;
        met[h + 1] = (struct met){other, numbers, 0};
    }
    if (rc < 0 || !g->n_keys || !g->n_groups)
        return rc;
    uint8_t *placed = sql_get(q, g->n_groups, sizeof(*placed));
    uint32_t *order = sql_get(q, g->n_groups, sizeof(*order));
    if (!placed || !order)
        return -ENOMEM;
    order_groups(met, n + 1, placed, order);
    return reorder_groups(q, g, order, placed);
}

static int aggregate_beside(struct query *q, struct op *op, struct op *child, struct op **ret)
{
    const struct aggregate *g = op->state;
    (void)q;
    int rc = sql_aggregate(child, g->key_exprs, g->n_keys, g->agg_exprs, g->n_aggs, ret);
    if (rc == 0)
        ((struct aggregate *)(*ret)->state)->scan = sql_parallel_scan(*ret);
    return rc;
}

/* Add the groups of the sets without keys where there are no rows. */
static int add_empty_sets(struct op *op)
{
    struct aggregate *g = op->state;
    struct vec *v[SQL_CALL_ARGS];
    uint32_t n = g->n_groups ? 0 : sql_empty_sets(op->child);
    if (n == 0)
        return 0;
    for (uint32_t k = 0; k < g->n_keys; k++)
        v[k] = &op->child->out.v[g->key_exprs[k]->column];
    int rc = sql_keys_add(&g->keys, v, NULL, n, g->groups);
    g->n_groups = g->keys.n;
    return rc < 0 ? rc : room_for_counts(op->q, g);
}

static int consume_rows(struct op *op)
{
    struct aggregate *g = op->state;
    struct parallel *team = NULL;
    uint32_t batches = 0;
    int rc;
    while ((rc = sql_next(op->child)) > 0) {
        rc = take_batch(op);
        if (rc == 0 && g->scan && ++batches == HELP_AFTER)
            rc = sql_parallel_start(op, aggregate_beside, run_helper, &team);
        if (rc < 0 || (team && sql_parallel_failed(team)))
            break;
    }
    if (team)
        rc = sql_parallel_end(team, rc);
    if (rc == 0)
        rc = add_empty_sets(op);
    if (rc == 0)
        rc = make_states(op);
    return rc == 0 && team ? merge_all(op, team) : rc;
}

static int next_aggregate(struct op *op)
{
    struct aggregate *g = op->state;
    int rc = g->ready ? 0 : consume_rows(op);
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

static int prepare_agg(struct query *q, struct agg *a, const struct agg_spec *spec, bool alone)
{
    enum agg_op kind = spec->kind->op;
    a->spec = spec;
    a->alone = alone;
    a->counted = !spec->distinct && !spec->filter && spec->form < AGG_MERGE &&
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

/* NULL: the rows may be shared out between threads; else why not. */
static const char *why_alone(struct query *q, const struct op *child, struct expr **all, uint32_t n,
                             struct expr **aggs, uint32_t n_aggs)
{
    const char *why;
    for (uint32_t i = 0; i < n_aggs; i++) {
        const struct agg_spec *spec = aggs[i]->set;
        if (!sql_agg_merges(spec, &why))
            return sql_getf(q, why, spec->kind->name);
    }
    for (uint32_t i = 0; i < n; i++)
        if (!sql_expr_is_free(all[i]))
            return "a subquery is run for its rows";
    return sql_parallel_why_not(child);
}

/* Say in explain how many threads it may have, where the setting allows more than one. */
static int consider_parallel(struct op *op, struct expr **all, uint32_t n, struct expr **aggs)
{
    struct aggregate *g = op->state;
    uint64_t threads = sql_parallel_threads(op->q);
    if (threads < 2)
        return 0;
    const char *why = why_alone(op->q, op->child, all, n, aggs, g->n_aggs);
    if (!why) {
        g->scan = sql_parallel_scan(op);
        op->detail = sql_getf(op->q, "%s, up to %u threads", op->detail, (uint32_t)threads);
    } else {
        op->detail = sql_getf(op->q, "%s, one thread: %s", op->detail, why);
    }
    return op->detail ? 0 : -ENOMEM;
}

int sql_aggregate(struct op *child, struct expr **keys, uint32_t n_keys, struct expr **aggs,
                  uint32_t n_aggs, struct op **ret)
{
    child->q->sums_up = true;
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
        op->cols[n] = (struct col){
            .name = "", .type = types[n], .unit = keys[n]->unit, .mark = keys[n]->mark, .doc = ""};
    }
    for (uint32_t i = 0; i < n_aggs; i++) {
        const struct agg_spec *spec = aggs[i]->set;
        if (prepare_agg(q, &g->aggs[i], spec, n_keys == 0) < 0)
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
        op->cols[n_keys + i] = (struct col){.name = "",
                                            .type = spec->type,
                                            .unit = aggs[i]->unit,
                                            .mark = aggs[i]->mark,
                                            .doc = ""};
    }
    op->child = child;
    op->state = g;
    g->results = sql_get(q, n, sizeof(*g->results));
    if (!g->results || sql_op_vectors(op) < 0)
        return -ENOMEM;
    op->detail = sql_getf(q, "%u key%s, %u aggregate%s", n_keys, n_keys == 1 ? "" : "s", n_aggs,
                          n_aggs == 1 ? "" : "s");
    int rc = sql_compile(q, &child->out, all, n, &g->program);
    g->key_exprs = keys;
    g->agg_exprs = aggs;
    if (rc == 0)
        rc = op->detail ? consider_parallel(op, all, n, aggs) : -ENOMEM;
    if (rc == 0)
        rc = sql_keys_init(&g->keys, q, types, dict, n_keys);
    *ret = op;
    return rc;
}
