/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/exec/agg.c - the states of aggregate functions, and values added to them.
 *
 * An array of 32-byte states indexed by group, one typed loop a batch; sums and extremes of numbers
 * are in agg_number.c.  The query's thread, or its helper's.
 */
#include "core/sql/exec/agg.h"

#include <errno.h>
#include <string.h>

int sql_agg_room(struct query *q, struct agg *a, uint32_t groups)
{
    if (groups <= a->room)
        return 0;
    uint32_t room = a->room ? a->room : 64;
    while (room < groups)
        room *= 2;
    struct state *more = sql_grow(q, a->states, a->room, room, sizeof(*more));
    if (!more)
        return -ENOMEM;
    a->states = more;
    a->room = room;
    return 0;
}

static int keep_text(struct query *q, struct agg *a, struct state *s, struct text t)
{
    s->t = t;
    s->row = a->row;
    s->null_end = t.data == NULL;
    if (t.data && !a->arg->stable && !a->arg->ids)
        s->t = sql_copy_text(q, t);
    s->n++;
    return s->t.data || s->null_end ? 0 : -ENOMEM;
}

/* min, max, first, last of texts */
static int add_texts(struct query *q, struct agg *a, const uint16_t *sel, const uint32_t *groups,
                     uint32_t n)
{
    sql_texts(q, a->arg, sel, n);
    for (uint32_t k = 0; k < n; k++) {
        struct state *s = &a->states[groups[k]];
        uint32_t i = sel ? sel[k] : k;
        struct text t = a->arg->t[i], old = s->t;
        if (a->spec->keeps_null && sql_is_null(a->arg, i))
            t = (struct text){NULL, 0};
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
    uint64_t row = a->row;
    bool nulls = a->spec->keeps_null && (a->arg->has_null || a->arg->type == SQL_NULL);
    if (a->spec->kind->op == AGG_LAST)
        EACH(s->i = v[i]; s->null_end = nulls && sql_is_null(a->arg, i); s->row = row; s->n++;);
    else
        EACH(if (s->n == 0) {
            s->i = v[i];
            s->null_end = nulls && sql_is_null(a->arg, i);
            s->row = row;
        } s->n++;);
}

/* Welford's way: no catastrophe when values are large and alike. */
static void add_variances(struct agg *a, const uint16_t *sel, const uint32_t *groups, uint32_t n)
{
    struct state *states = a->states;
    const double *v = a->arg->d;
    EACH(s->n++; double delta = v[i] - s->mean; s->mean += delta / (double)s->n;
         s->m2 += delta * (v[i] - s->mean););
}

static struct list *list_with_room(struct query *q, struct state *s, size_t size, bool keyed)
{
    if (!s->list && !(s->list = sql_get(q, 1, sizeof(*s->list))))
        return NULL;
    struct list *l = s->list;
    if (l->n < l->room)
        return l;
    uint32_t room = l->room ? 2 * l->room : 8;
    void *more = sql_grow(q, l->numbers, l->n, room, size);
    if (!more)
        return NULL;
    l->numbers = more;
    if (keyed) {
        struct sql_value *keys = sql_grow(q, l->keys, l->n, room, sizeof(*keys));
        if (!keys)
            return NULL;
        l->keys = keys;
    }
    l->room = room;
    return l;
}

/* A cell as a value that stays. */
static int keep_value(struct query *q, const struct vec *v, uint32_t row, struct sql_value *ret)
{
    *ret = sql_vec_value(q, v, row);
    if (!sql_is_textual(ret->type) || v->stable || v->ids)
        return 0;
    ret->text.data = sql_copy_text(q, (struct text){ret->text.data, ret->text.size}).data;
    return ret->text.data ? 0 : -ENOMEM;
}

int sql_agg_compare(const struct sql_value *a, const struct sql_value *b, bool nulls_low)
{
    if (a->type == SQL_NULL || b->type == SQL_NULL) {
        int c = (a->type == SQL_NULL) - (b->type == SQL_NULL);
        return nulls_low ? -c : c;
    }
    if (sql_is_textual(a->type)) {
        uint32_t x = a->text.size, y = b->text.size;
        int c = memcmp(a->text.data, b->text.data, x < y ? x : y);
        return c ? c : (x > y) - (x < y);
    }
    if (a->type == SQL_DOUBLE) {
        double x = a->number, y = b->number;
        return x != x || y != y ? (x != x) - (y != y) : (x > y) - (x < y);
    }
    if (a->type == SQL_BOOL)
        return a->boolean - b->boolean;
    return (a->integer > b->integer) - (a->integer < b->integer);
}

/* The value where the key is least (ARG_MIN, first by an order) or largest. */
static int add_pairs(struct query *q, struct agg *a, const uint16_t *sel, const uint32_t *groups,
                     uint32_t n)
{
    enum agg_op op = a->spec->kind->op;
    bool largest = op == AGG_ARG_MAX || op == AGG_LAST, later = op == AGG_LAST;
    largest = largest != a->spec->descending;
    for (uint32_t k = 0; k < n; k++) {
        struct state *s = &a->states[groups[k]];
        uint32_t i = sel ? sel[k] : k;
        struct sql_value key = sql_vec_value(q, a->arg2, i);
        int c = s->n == 0 ? 0 : sql_agg_compare(&key, &s->pair->key, a->spec->nulls_low);
        bool take = s->n == 0 || (largest ? c > 0 : c < 0) || (c == 0 && later);
        s->n++;
        if (!take)
            continue;
        if (!s->pair && !(s->pair = sql_get(q, 1, sizeof(*s->pair))))
            return -ENOMEM;
        s->row = a->row;
        if (keep_value(q, a->arg, i, &s->pair->value) < 0 ||
            keep_value(q, a->arg2, i, &s->pair->key) < 0)
            return -ENOMEM;
    }
    return 0;
}

/* As Welford's, for both and their product. */
static int add_moments(struct query *q, struct agg *a, const uint16_t *sel, const uint32_t *groups,
                       uint32_t n)
{
    for (uint32_t k = 0; k < n; k++) {
        struct state *s = &a->states[groups[k]];
        uint32_t i = sel ? sel[k] : k;
        if (!s->moments && !(s->moments = sql_get(q, 1, sizeof(*s->moments))))
            return -ENOMEM;
        struct moments *m = s->moments;
        double count = (double)++s->n, y = a->arg->d[i] - m->mean_y, x = a->arg2->d[i] - m->mean_x;
        m->mean_y += y / count;
        m->mean_x += x / count;
        m->yy += y * (a->arg->d[i] - m->mean_y);
        m->xx += x * (a->arg2->d[i] - m->mean_x);
        m->xy += x * (a->arg->d[i] - m->mean_y);
    }
    return 0;
}

/* mode(), percentile_disc(): every value is kept, as a key to sort by. */
static int add_values(struct query *q, struct agg *a, const uint16_t *sel, const uint32_t *groups,
                      uint32_t n)
{
    for (uint32_t k = 0; k < n; k++) {
        struct state *s = &a->states[groups[k]];
        struct list *l = list_with_room(q, s, 0, true);
        if (!l || keep_value(q, a->arg, sel ? sel[k] : k, &l->keys[l->n]) < 0)
            return -ENOMEM;
        l->n++;
        s->n++;
    }
    return 0;
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
        struct list *l = list_with_room(q, s, texts ? sizeof(struct text) : sizeof(double),
                                        a->spec->arg2 != NULL);
        if (!l)
            return -ENOMEM;
        if (!texts) {
            l->numbers[l->n++] = a->arg->d[i];
        } else {
            struct text t = a->arg->t[i];
            if (!a->arg->stable && !a->arg->ids && !(t = sql_copy_text(q, t)).data)
                return -ENOMEM;
            if (l->keys && keep_value(q, a->arg2, i, &l->keys[l->n]) < 0)
                return -ENOMEM;
            l->texts[l->n++] = t;
        }
        s->n++;
    }
    return 0;
}

static int add_sketches(struct query *q, struct agg *a, const uint16_t *sel, const uint32_t *groups,
                        uint32_t n)
{
    for (uint32_t k = 0; k < n; k++) {
        struct state *s = &a->states[groups[k]];
        if (!s->sketch && !(s->sketch = sql_sketch_new(q)))
            return -ENOMEM;
        int rc = sql_sketch_add(q, s->sketch, a->arg->d[sel ? sel[k] : k]);
        if (rc < 0)
            return rc;
        s->n++;
    }
    return 0;
}

int sql_agg_add(struct query *q, struct agg *a, const uint16_t *sel, const uint32_t *groups,
                uint32_t n)
{
    struct state *states = a->states;
    if (a->spec->form >= AGG_MERGE)
        return sql_agg_add_states(q, a, sel, groups, n);
    switch (a->spec->kind->op) {
    case AGG_COUNT:
        for (uint32_t k = 0; k < n && !a->counted; k++)
            states[groups[k]].n++;
        return 0;
    case AGG_SUM:
    case AGG_AVG:
        sql_agg_add_sums(a, sel, groups, n);
        return 0;
    case AGG_MIN:
    case AGG_MAX:
        if (sql_is_textual(a->arg->type))
            return add_texts(q, a, sel, groups, n);
        sql_agg_add_extremes(a, sel, groups, n);
        return 0;
    case AGG_FIRST:
    case AGG_LAST:
        if (a->spec->arg2)
            return add_pairs(q, a, sel, groups, n);
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
    case AGG_ARG_MIN:
    case AGG_ARG_MAX:
        return add_pairs(q, a, sel, groups, n);
    case AGG_MODE:
        return add_values(q, a, sel, groups, n);
    case AGG_SKETCH:
        return add_sketches(q, a, sel, groups, n);
    case AGG_CORR:
    case AGG_COVAR:
    case AGG_COVAR_POP:
    case AGG_SLOPE:
    case AGG_R2:
    case AGG_INTERCEPT:
        return add_moments(q, a, sel, groups, n);
    case AGG_PERCENTILE:
    case AGG_PERCENTILE_DISC:
    case AGG_HISTOGRAM:
    case AGG_STRING:
        if (agg_is_by_values(a->spec))
            return add_values(q, a, sel, groups, n);
        return add_lists(q, a, sel, groups, n);
    case AGG_AND:
        EACH(s->i = s->n == 0 ? a->arg->i[i] : s->i & a->arg->i[i]; s->n++;);
        return 0;
    case AGG_OR:
        EACH(s->i |= a->arg->i[i]; s->n++;);
        return 0;
    case AGG_XOR:
        EACH(s->i ^= a->arg->i[i]; s->n++;);
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
    return sql_agg_room(q, a, 1);
}

void sql_agg_one_reset(struct agg *a)
{
    enum agg_op op = a->spec->kind->op;
    struct list *kept = op == AGG_PERCENTILE || op == AGG_PERCENTILE_DISC || op == AGG_HISTOGRAM ||
                                op == AGG_STRING || op == AGG_MODE
                            ? a->states[0].list
                            : NULL;
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
    if (arg && !a->spec->keeps_null && sql_is_null(arg, row))
        return 0;
    if (filter && ((filter->has_null && filter->null[row]) || !filter->i[row]))
        return 0;
    a->arg = arg;
    return sql_agg_add(q, a, &row, &group, 1);
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
    if (arg && sql_is_null(arg, row))
        return;
    if (filter && ((filter->has_null && filter->null[row]) || !filter->i[row]))
        return;
    s->n--;
    if (a->spec->kind->op != AGG_COUNT)
        s->whole -= arg->i[row];
}

int sql_agg_one_get(struct query *q, struct agg *a, struct vec *ret, uint32_t row)
{
    return sql_agg_finish(q, a, &a->states[0], ret, row);
}
