/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/aggregate.c - group by and the aggregate functions.
 *
 * Keys get dense numbers (hash.c); each aggregate has an array of 32-byte states indexed by them
 * and one typed loop a batch.  NULL arguments never reach a state.  The query's thread only.
 */
#include "core/sql/sqlint.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"

#define AGGS_MAX 256 /* aggregates in one select */

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
    AGG_FIRST,
    AGG_LAST,
    AGG_STRING,
    AGG_AND,
    AGG_OR
};

struct agg_kind {
    const char *name;
    enum agg_op op;
    uint32_t min_args, max_args;
    int fraction; /* PERCENTILE: which argument it is; -1: one half */
};

static const struct agg_kind kinds[] = {{"count", AGG_COUNT, 0, 1, 0},
                                        {"sum", AGG_SUM, 1, 1, 0},
                                        {"avg", AGG_AVG, 1, 1, 0},
                                        {"mean", AGG_AVG, 1, 1, 0},
                                        {"min", AGG_MIN, 1, 1, 0},
                                        {"max", AGG_MAX, 1, 1, 0},
                                        {"stddev", AGG_STDDEV, 1, 1, 0},
                                        {"stddev_samp", AGG_STDDEV, 1, 1, 0},
                                        {"stddev_pop", AGG_STDDEV_POP, 1, 1, 0},
                                        {"var", AGG_VAR, 1, 1, 0},
                                        {"variance", AGG_VAR, 1, 1, 0},
                                        {"var_samp", AGG_VAR, 1, 1, 0},
                                        {"var_pop", AGG_VAR_POP, 1, 1, 0},
                                        {"median", AGG_PERCENTILE, 1, 1, -1},
                                        {"percentile_cont", AGG_PERCENTILE, 2, 2, 0},
                                        {"approx_percentile", AGG_PERCENTILE, 2, 2, 1},
                                        {"approx_percentile_cont", AGG_PERCENTILE, 2, 2, 1},
                                        {"quantile", AGG_PERCENTILE, 2, 2, 1},
                                        {"first", AGG_FIRST, 1, 1, 0},
                                        {"first_value", AGG_FIRST, 1, 1, 0},
                                        {"any_value", AGG_FIRST, 1, 1, 0},
                                        {"last", AGG_LAST, 1, 1, 0},
                                        {"last_value", AGG_LAST, 1, 1, 0},
                                        {"string_agg", AGG_STRING, 1, 2, 0},
                                        {"bool_and", AGG_AND, 1, 1, 0},
                                        {"every", AGG_AND, 1, 1, 0},
                                        {"bool_or", AGG_OR, 1, 1, 0}};
#define N_KINDS (sizeof(kinds) / sizeof(*kinds))

struct list { /* all values of a group */
    uint32_t n, room;
    union {
        double *numbers;
        struct text *texts;
    };
};

struct state {
    int64_t n; /* values that came */
    union {
        __int128 whole;
        double sum;
        struct {
            double mean, m2;
        };
        int64_t i;
        double d;
        struct text t;
        struct list *list;
    };
};

struct agg { /* one aggregate at work */
    const struct agg_spec *spec;
    bool counted; /* state n is how many NULLs came: the group's rows are counted once for all */
    struct state *states;
    uint32_t room;
    struct vec *arg, *filter;
    struct keys *seen; /* distinct */
    struct vec group_vec;
};

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

/* ---- binding ---- */

const struct agg_kind *sql_agg_find(const char *name)
{
    for (size_t i = 0; i < N_KINDS; i++)
        if (strcmp(kinds[i].name, name) == 0)
            return &kinds[i];
    return NULL;
}

uint32_t sql_agg_names(const char **ret, uint32_t max)
{
    uint32_t n = 0;
    for (size_t i = 0; i < N_KINDS && n < max; i++)
        ret[n++] = kinds[i].name;
    return n;
}

static bool is_number(enum sql_type t)
{
    return t == SQL_INT || t == SQL_DOUBLE;
}

/* The argument's type, made to fit, and the result's. */
static int agg_types(struct query *q, struct agg_spec *a, const struct node *n)
{
    enum sql_type t = a->arg ? a->arg->type : SQL_INT;
    int rc = 0;
    if (a->arg && t == SQL_NULL) {
        rc = sql_cast_to(q, &a->arg, SQL_DOUBLE, false);
        t = SQL_DOUBLE;
    }
    a->type = t;
    bool fits = true;
    switch (a->kind->op) {
    case AGG_COUNT:
        a->type = SQL_INT;
        break;
    case AGG_SUM:
        fits = is_number(t) || t == SQL_INTERVAL;
        break;
    case AGG_AVG:
        fits = is_number(t) || t == SQL_INTERVAL || t == SQL_TIMESTAMP;
        a->type = t == SQL_INT ? SQL_DOUBLE : t;
        break;
    case AGG_STDDEV:
    case AGG_STDDEV_POP:
    case AGG_VAR:
    case AGG_VAR_POP:
    case AGG_PERCENTILE:
        fits = is_number(t);
        if (t == SQL_INT)
            rc = sql_cast_to(q, &a->arg, SQL_DOUBLE, false);
        a->type = SQL_DOUBLE;
        break;
    case AGG_STRING:
        if (t != SQL_TEXT)
            rc = sql_cast_to(q, &a->arg, SQL_TEXT, false);
        a->type = SQL_TEXT;
        break;
    case AGG_AND:
    case AGG_OR:
        fits = t == SQL_BOOL;
        break;
    case AGG_MIN:
    case AGG_MAX:
    case AGG_FIRST:
    case AGG_LAST:
        break;
    }
    if (!fits)
        return sql_error(q->text, q->size, n->pos, -EINVAL, "no %s of a %s", n->text,
                         sql_type_name(t));
    return rc;
}

static int bind_args(struct query *q, struct scope *s, const struct node *n, struct agg_spec *a)
{
    struct expr *args[2] = {NULL, NULL};
    int rc = 0;
    for (uint32_t i = 0; i < n->n_args && rc == 0; i++)
        rc = sql_bind(q, s, n->args[i], &args[i]);
    if (rc == 0 && n->filter) {
        rc = sql_bind(q, s, n->filter, &a->filter);
        if (rc == 0)
            rc = sql_coerce(q, &a->filter, SQL_BOOL, "filter");
    }
    if (rc < 0)
        return rc;
    a->arg = args[0];
    if (a->kind->op == AGG_PERCENTILE) {
        a->fraction = 0.5;
        if (a->kind->fraction >= 0) {
            struct expr *f = args[a->kind->fraction];
            a->arg = args[1 - a->kind->fraction];
            rc = sql_coerce(q, &f, SQL_DOUBLE, n->text);
            a->fraction = f->value.number;
            if (rc == 0 && (f->kind != EXPR_CONST || !(a->fraction >= 0 && a->fraction <= 1)))
                return sql_error(q->text, q->size, f->pos, -EINVAL,
                                 "the fraction is a constant between 0 and 1");
        }
    }
    if (a->kind->op == AGG_STRING) {
        a->separator = (struct text){",", 1};
        if (args[1] && (args[1]->kind != EXPR_CONST || args[1]->type != SQL_TEXT))
            return sql_error(q->text, q->size, args[1]->pos, -EINVAL,
                             "the separator is a constant text");
        if (args[1])
            a->separator = (struct text){args[1]->value.text.data, args[1]->value.text.size};
    }
    return rc;
}

static bool same_arg(const struct expr *a, const struct expr *b)
{
    return a == b || (a && b && sql_expr_equal(a, b));
}

static bool same_spec(const struct agg_spec *a, const struct agg_spec *b)
{
    return a->kind == b->kind && a->distinct == b->distinct && a->fraction == b->fraction &&
           a->separator.size == b->separator.size &&
           (a->separator.size == 0 ||
            memcmp(a->separator.data, b->separator.data, a->separator.size) == 0) &&
           same_arg(a->arg, b->arg) && same_arg(a->filter, b->filter);
}

int sql_agg_spec(struct query *q, struct scope *s, const struct node *n,
                 const struct agg_kind *kind, bool over_window, struct agg_spec **ret)
{
    struct agg_spec *a = sql_get(q, 1, sizeof(*a));
    if (!a)
        return -ENOMEM;
    *a = (struct agg_spec){.kind = kind, .distinct = n->distinct, .pos = n->pos};
    if (over_window && n->distinct)
        return sql_error(q->text, q->size, n->pos, -EINVAL,
                         "distinct is not for an aggregate over a window");
    bool star_ok = kind->op == AGG_COUNT && !n->distinct;
    if (n->star ? !star_ok
                : n->n_args < (kind->op == AGG_COUNT ? 1 : kind->min_args) ||
                      n->n_args > kind->max_args)
        return sql_error(q->text, q->size, n->pos, -EINVAL, "%s() takes %s", n->text,
                         kind->op == AGG_COUNT ? "* or one argument"
                         : kind->max_args == 1 ? "one argument"
                                               : "two arguments");
    s->inside_agg = !over_window;
    int rc = bind_args(q, s, n, a);
    s->inside_agg = false;
    *ret = a;
    return rc < 0 ? rc : agg_types(q, a, n);
}

int sql_agg_bind(struct query *q, struct scope *s, const struct node *n,
                 const struct agg_kind *kind, struct expr **ret)
{
    struct agg_spec *a;
    if (s->inside_agg)
        return sql_error(q->text, q->size, n->pos, -EINVAL, "an aggregate inside an aggregate");
    if (!s->allow_aggs)
        return sql_error(q->text, q->size, n->pos, -EINVAL,
                         "the aggregate %s() cannot stand in %s%s", n->text, s->clause,
                         strcmp(s->clause, "where") == 0 ? "; having is for that" : "");
    int rc = sql_agg_spec(q, s, n, kind, false, &a);
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < s->n_aggs; i++) {
        if (same_spec(s->aggs[i]->set, a)) {
            *ret = s->aggs[i];
            return 0;
        }
    }
    if (!s->aggs && !(s->aggs = sql_get(q, AGGS_MAX, sizeof(struct expr *))))
        return -ENOMEM;
    if (s->n_aggs == AGGS_MAX)
        return sql_error(q->text, q->size, n->pos, -E2BIG, "more than %d aggregates", AGGS_MAX);
    struct expr *e = sql_new_expr(q, EXPR_AGG, a->type, n->pos, 0);
    if (!e)
        return -ENOMEM;
    e->column = s->n_aggs;
    e->set = a;
    e->unit =
        a->arg && kind->op != AGG_COUNT && a->kind->op != AGG_VAR && a->kind->op != AGG_VAR_POP
            ? a->arg->unit
            : 0;
    s->aggs[s->n_aggs++] = e;
    *ret = e;
    return 0;
}

/* ---- states ---- */

static int room_for(struct query *q, struct agg *a, uint32_t groups)
{
    if (groups <= a->room)
        return 0;
    uint32_t room = a->room ? a->room : 64;
    while (room < groups)
        room *= 2;
    struct state *more = sql_get(q, room, sizeof(*more));
    if (!more)
        return -ENOMEM;
    if (a->room)
        memcpy(more, a->states, a->room * sizeof(*more));
    a->states = more;
    a->room = room;
    return 0;
}

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

static void add_sums(struct agg *a, const uint16_t *sel, const uint32_t *groups, uint32_t n)
{
    struct state *states = a->states;
    if (a->arg->type == SQL_DOUBLE) {
        const double *v = a->arg->d;
        if (a->counted)
            EACH(s->sum += v[i];);
        else
            EACH(s->n++; s->sum += v[i];);
    } else {
        const int64_t *v = a->arg->i;
        if (a->counted)
            EACH(s->whole += v[i];);
        else
            EACH(s->n++; s->whole += v[i];);
    }
}

static void add_extremes(struct agg *a, const uint16_t *sel, const uint32_t *groups, uint32_t n)
{
    struct state *states = a->states;
    bool min = a->spec->kind->op == AGG_MIN;
    if (a->arg->type == SQL_DOUBLE) {
        const double *v = a->arg->d; /* NaN is the largest */
        if (min)
            EACH(if (s->n == 0 || v[i] < s->d || s->d != s->d) s->d = v[i]; s->n++;);
        else
            EACH(if (s->n == 0 || v[i] > s->d || v[i] != v[i]) s->d = v[i]; s->n++;);
    } else {
        const int64_t *v = a->arg->i;
        if (min)
            EACH(if (s->n == 0 || v[i] < s->i) s->i = v[i]; s->n++;);
        else
            EACH(if (s->n == 0 || v[i] > s->i) s->i = v[i]; s->n++;);
    }
}

static int keep_text(struct query *q, struct agg *a, struct state *s, struct text t)
{
    s->t = t;
    if (!a->arg->stable && !a->arg->ids)
        s->t = sql_copy_text(q, t);
    s->n++;
    return s->t.data ? 0 : -ENOMEM;
}

/* min, max, first, last of texts */
static int add_texts(struct query *q, struct agg *a, const uint16_t *sel, const uint32_t *groups,
                     uint32_t n)
{
    sql_texts(q, a->arg, sel, n);
    for (uint32_t k = 0; k < n; k++) {
        struct state *s = &a->states[groups[k]];
        struct text t = a->arg->t[sel ? sel[k] : k], old = s->t;
        bool take = s->n == 0 || a->spec->kind->op == AGG_LAST;
        if (!take && a->spec->kind->op != AGG_FIRST) {
            int c = memcmp(t.data, old.data, t.size < old.size ? t.size : old.size);
            c = c ? c : (t.size > old.size) - (t.size < old.size);
            take = a->spec->kind->op == AGG_MIN ? c < 0 : c > 0;
        }
        if (take && keep_text(q, a, s, t) < 0)
            return -ENOMEM;
    }
    return 0;
}

static void add_ends(struct agg *a, const uint16_t *sel, const uint32_t *groups, uint32_t n)
{
    struct state *states = a->states;
    const int64_t *v = a->arg->i; /* doubles are moved as they are */
    bool last = a->spec->kind->op == AGG_LAST;
    EACH(if (last || s->n == 0) s->i = v[i]; s->n++;);
}

/* Welford's way: no catastrophe when values are large and alike. */
static void add_variances(struct agg *a, const uint16_t *sel, const uint32_t *groups, uint32_t n)
{
    struct state *states = a->states;
    const double *v = a->arg->d;
    EACH(s->n++; double delta = v[i] - s->mean; s->mean += delta / (double)s->n;
         s->m2 += delta * (v[i] - s->mean););
}

static struct list *list_with_room(struct query *q, struct state *s, size_t size)
{
    if (!s->list && !(s->list = sql_get(q, 1, sizeof(*s->list))))
        return NULL;
    struct list *l = s->list;
    if (l->n < l->room)
        return l;
    uint32_t room = l->room ? 2 * l->room : 8;
    void *more = sql_get(q, room, size);
    if (!more)
        return NULL;
    if (l->n)
        memcpy(more, l->numbers, l->n * size);
    l->numbers = more;
    l->room = room;
    return l;
}

static int add_lists(struct query *q, struct agg *a, const uint16_t *sel, const uint32_t *groups,
                     uint32_t n)
{
    bool texts = a->spec->kind->op == AGG_STRING;
    if (texts)
        sql_texts(q, a->arg, sel, n);
    for (uint32_t k = 0; k < n; k++) {
        struct state *s = &a->states[groups[k]];
        uint32_t i = sel ? sel[k] : k;
        struct list *l = list_with_room(q, s, texts ? sizeof(struct text) : sizeof(double));
        if (!l)
            return -ENOMEM;
        if (!texts) {
            l->numbers[l->n++] = a->arg->d[i];
        } else {
            struct text t = a->arg->t[i];
            if (!a->arg->stable && !a->arg->ids && !(t = sql_copy_text(q, t)).data)
                return -ENOMEM;
            l->texts[l->n++] = t;
        }
        s->n++;
    }
    return 0;
}

static int add_values(struct query *q, struct agg *a, const uint16_t *sel, const uint32_t *groups,
                      uint32_t n)
{
    struct state *states = a->states;
    switch (a->spec->kind->op) {
    case AGG_COUNT:
        for (uint32_t k = 0; k < n && !a->counted; k++)
            states[groups[k]].n++;
        return 0;
    case AGG_SUM:
    case AGG_AVG:
        add_sums(a, sel, groups, n);
        return 0;
    case AGG_MIN:
    case AGG_MAX:
        if (sql_is_textual(a->arg->type))
            return add_texts(q, a, sel, groups, n);
        add_extremes(a, sel, groups, n);
        return 0;
    case AGG_FIRST:
    case AGG_LAST:
        if (sql_is_textual(a->arg->type))
            return add_texts(q, a, sel, groups, n);
        add_ends(a, sel, groups, n);
        return 0;
    case AGG_STDDEV:
    case AGG_STDDEV_POP:
    case AGG_VAR:
    case AGG_VAR_POP:
        add_variances(a, sel, groups, n);
        return 0;
    case AGG_PERCENTILE:
    case AGG_STRING:
        return add_lists(q, a, sel, groups, n);
    case AGG_AND:
        EACH(s->i = s->n == 0 ? a->arg->i[i] : s->i && a->arg->i[i]; s->n++;);
        return 0;
    case AGG_OR:
        EACH(s->i = s->i || a->arg->i[i]; s->n++;);
        return 0;
    }
    return 0;
}

/* Only rows whose argument is not NULL and whose filter is true. */
static uint32_t narrow(struct aggregate *g, const struct agg *a, const uint16_t *sel, uint32_t n)
{
    uint32_t m = 0;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        bool keep = !a->arg || !a->arg->has_null || !a->arg->null[i];
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
    if (room_for(q, a, g->n_groups) < 0)
        return -ENOMEM;
    if (a->filter || a->seen || (a->arg && (a->arg->has_null || a->arg->type == SQL_NULL))) {
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
    return n ? add_values(q, a, sel, groups, n) : 0;
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
        rc = room_for(op->q, &g->aggs[i], g->n_groups ? g->n_groups : 1);
    return rc;
}

/* ---- results ---- */

static int by_value(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    if (a != a || b != b)
        return (a != a) - (b != b);
    return (a > b) - (a < b);
}

static double percentile(struct list *l, double fraction)
{
    qsort(l->numbers, l->n, sizeof(*l->numbers), by_value);
    double at = fraction * (double)(l->n - 1);
    uint32_t low = (uint32_t)at;
    if (low + 1 >= l->n)
        return l->numbers[l->n - 1];
    double part = at - low;
    return l->numbers[low] + part * (l->numbers[low + 1] - l->numbers[low]);
}

static int joined(struct query *q, const struct list *l, struct text separator, struct text *ret)
{
    uint64_t size = 0;
    for (uint32_t i = 0; i < l->n; i++)
        size += l->texts[i].size + (i ? separator.size : 0);
    char *out = size < UINT32_MAX ? sql_get(q, size + 1, 1) : NULL;
    if (!out)
        return -ENOMEM;
    *ret = (struct text){out, (uint32_t)size};
    for (uint32_t i = 0; i < l->n; i++) {
        memcpy(out, separator.data, i ? separator.size : 0);
        out += i ? separator.size : 0;
        memcpy(out, l->texts[i].data, l->texts[i].size);
        out += l->texts[i].size;
    }
    return 0;
}

static double deviation(const struct state *s, enum agg_op op)
{
    bool pop = op == AGG_VAR_POP || op == AGG_STDDEV_POP;
    double v = s->m2 / (double)(pop ? s->n : s->n - 1);
    return op == AGG_VAR || op == AGG_VAR_POP ? v : sqrt(v);
}

static int finish_sum(struct query *q, const struct agg *a, const struct state *s, struct vec *v,
                      uint32_t row)
{
    bool avg = a->spec->kind->op == AGG_AVG;
    if (a->spec->arg->type == SQL_DOUBLE) {
        v->d[row] = avg ? s->sum / (double)s->n : s->sum;
    } else if (v->type == SQL_DOUBLE) {
        v->d[row] = (double)s->whole / (double)s->n;
    } else {
        __int128 value = avg ? s->whole / s->n : s->whole;
        if (value > INT64_MAX || value < INT64_MIN)
            return sql_error(q->text, q->size, a->spec->pos, -ERANGE,
                             "the sum is out of range of a bigint; sum(x::double) is not");
        v->i[row] = (int64_t)value;
    }
    return 0;
}

static int finish(struct query *q, const struct agg *a, struct state *s, struct vec *v,
                  uint32_t row)
{
    enum agg_op op = a->spec->kind->op;
    bool sample = op == AGG_VAR || op == AGG_STDDEV;
    if (op == AGG_COUNT) {
        v->i[row] = s->n;
        return 0;
    }
    if (s->n == 0 || (sample && s->n < 2)) {
        sql_set_null(v, row);
        return 0;
    }
    switch (op) {
    case AGG_SUM:
    case AGG_AVG:
        return finish_sum(q, a, s, v, row);
    case AGG_STRING:
        return joined(q, s->list, a->spec->separator, &v->t[row]);
    case AGG_PERCENTILE:
        v->d[row] = percentile(s->list, a->spec->fraction);
        return 0;
    case AGG_STDDEV:
    case AGG_STDDEV_POP:
    case AGG_VAR:
    case AGG_VAR_POP:
        v->d[row] = deviation(s, op);
        return 0;
    case AGG_COUNT:
    case AGG_MIN:
    case AGG_MAX:
    case AGG_FIRST:
    case AGG_LAST:
    case AGG_AND:
    case AGG_OR:
        if (sql_is_textual(v->type))
            v->t[row] = s->t;
        else
            v->i[row] = s->i;
        return 0;
    }
    return 0;
}

/* ---- one group, a row at a time ---- */

int sql_agg_one_new(struct query *q, const struct agg_spec *spec, struct agg **ret)
{
    struct agg *a = sql_get(q, 1, sizeof(*a));
    if (!a)
        return -ENOMEM;
    a->spec = spec;
    *ret = a;
    return room_for(q, a, 1);
}

void sql_agg_one_reset(struct agg *a)
{
    enum agg_op op = a->spec->kind->op;
    struct list *kept = op == AGG_PERCENTILE || op == AGG_STRING ? a->states[0].list : NULL;
    a->states[0] = (struct state){.n = 0};
    if (!kept)
        return;
    kept->n = 0; /* its room serves the next frame */
    a->states[0].list = kept;
}

int sql_agg_one_add(struct query *q, struct agg *a, struct vec *arg, const struct vec *filter,
                    uint16_t row)
{
    uint32_t group = 0;
    if (arg && (arg->type == SQL_NULL || (arg->has_null && arg->null[row])))
        return 0;
    if (filter && ((filter->has_null && filter->null[row]) || !filter->i[row]))
        return 0;
    a->arg = arg;
    return add_values(q, a, &row, &group, 1);
}

/* Taking away must give exactly what never adding would have given: doubles do not. */
bool sql_agg_one_can_remove(const struct agg *a)
{
    enum agg_op op = a->spec->kind->op;
    bool sum = op == AGG_SUM || op == AGG_AVG;
    return op == AGG_COUNT || (sum && a->spec->arg->type != SQL_DOUBLE);
}

void sql_agg_one_remove(struct agg *a, const struct vec *arg, const struct vec *filter,
                        uint16_t row)
{
    struct state *s = &a->states[0];
    if (arg && (arg->type == SQL_NULL || (arg->has_null && arg->null[row])))
        return;
    if (filter && ((filter->has_null && filter->null[row]) || !filter->i[row]))
        return;
    s->n--;
    if (a->spec->kind->op != AGG_COUNT)
        s->whole -= arg->i[row];
}

int sql_agg_one_get(struct query *q, struct agg *a, struct vec *ret, uint32_t row)
{
    return finish(q, a, &a->states[0], ret, row);
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
            rc = finish(op->q, &g->aggs[i], &s, v, r);
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
    struct expr **all = sql_get(q, n_keys + 2 * (size_t)n_aggs, sizeof(struct expr *));
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
