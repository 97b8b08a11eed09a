/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/agg.c - the states of aggregate functions: values added, results made.
 *
 * An array of 32-byte states indexed by group, one typed loop a batch.  The query's thread only.
 */
#include "core/sql/agg.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "core/base/json.h"

int sql_agg_room(struct query *q, struct agg *a, uint32_t groups)
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

static struct list *list_with_room(struct query *q, struct state *s, size_t size, bool keyed)
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
    if (keyed) {
        struct sql_value *keys = sql_get(q, room, sizeof(*keys));
        if (!keys)
            return NULL;
        if (l->n)
            memcpy(keys, l->keys, l->n * sizeof(*keys));
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

static int compare_values(const struct sql_value *a, const struct sql_value *b)
{
    if (a->type == SQL_NULL || b->type == SQL_NULL) /* as in order by: NULL comes last */
        return (a->type == SQL_NULL) - (b->type == SQL_NULL);
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
        int c = s->n == 0 ? 0 : compare_values(&key, &s->pair->key);
        bool take = s->n == 0 || (largest ? c > 0 : c < 0) || (c == 0 && later);
        s->n++;
        if (!take)
            continue;
        if (!s->pair && !(s->pair = sql_get(q, 1, sizeof(*s->pair))))
            return -ENOMEM;
        if (keep_value(q, a->arg, i, &s->pair->value) < 0 ||
            keep_value(q, a->arg2, i, &s->pair->key) < 0)
            return -ENOMEM;
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

int sql_agg_add(struct query *q, struct agg *a, const uint16_t *sel, const uint32_t *groups,
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
    case AGG_PERCENTILE:
    case AGG_PERCENTILE_DISC:
    case AGG_HISTOGRAM:
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

/* ---- results ---- */

static bool is_less(double a, double b)
{
    return a < b || (b != b && a == a);
}

/* The number that would stand at `at` if they were in order; the smaller ones are before it. */
static int select_at(struct query *q, double *v, uint32_t n, uint32_t at, double *ret)
{
    uint32_t low = 0, high = n; /* it lies in here */
    while (high - low > 1) {
        double a = v[low], b = v[low + (high - low) / 2], c = v[high - 1];
        double pivot = is_less(a, b)   ? (is_less(b, c)   ? b
                                          : is_less(a, c) ? c
                                                          : a)
                       : is_less(a, c) ? a
                       : is_less(b, c) ? c
                                       : b;
        uint32_t less = low, i = low, more = high;
        while (i < more) {
            double x = v[i];
            int rc = sql_worked(q, 1);
            if (rc < 0)
                return rc;
            if (is_less(x, pivot)) {
                v[i++] = v[less];
                v[less++] = x;
            } else if (is_less(pivot, x)) {
                v[i] = v[--more];
                v[more] = x;
            } else {
                i++;
            }
        }
        if (at >= less && at < more)
            break;
        low = at < less ? low : more;
        high = at < less ? less : high;
    }
    *ret = v[at];
    return 0;
}

static int percentile(struct query *q, struct list *l, const struct agg_spec *spec, double *ret)
{
    double fraction = spec->descending ? 1 - spec->fraction : spec->fraction, next;
    double at = fraction * (double)(l->n - 1);
    uint32_t low = (uint32_t)at;
    if (spec->kind->op == AGG_PERCENTILE_DISC) { /* the first that so many are not beyond */
        double place = ceil(spec->fraction * (double)l->n) - 1;
        low = place < 0 ? 0 : (uint32_t)place;
        return select_at(q, l->numbers, l->n, spec->descending ? l->n - 1 - low : low, ret);
    }
    int rc = select_at(q, l->numbers, l->n, low, ret);
    if (rc < 0 || low + 1 >= l->n || at == low)
        return rc;
    rc = select_at(q, l->numbers, l->n, low + 1, &next);
    *ret += (at - low) * (next - *ret);
    return rc;
}

/* {"from":0,"to":10,"counts":[3,4]}: bins of one width; what is no number is not counted. */
static int histogram(struct query *q, const struct list *l, uint32_t bins, struct text *ret)
{
    uint64_t *counts = sql_get(q, bins, sizeof(*counts));
    double low = INFINITY, high = -INFINITY;
    struct buf b;
    if (!counts)
        return -ENOMEM;
    for (uint32_t i = 0; i < l->n; i++) {
        double x = l->numbers[i];
        int rc = sql_worked(q, 1);
        if (rc < 0)
            return rc;
        low = isfinite(x) && x < low ? x : low;
        high = isfinite(x) && x > high ? x : high;
    }
    for (uint32_t i = 0; i < l->n; i++) {
        double x = l->numbers[i], at = high > low ? (x - low) / (high - low) * bins : 0;
        if (isfinite(x))
            counts[at < bins ? (uint32_t)at : bins - 1]++;
    }
    buf_init(&b, 1 << 20);
    (void)buf_adds(&b, "{\"from\":");
    (void)json_add_f64(&b, low);
    (void)buf_adds(&b, ",\"to\":");
    (void)json_add_f64(&b, high);
    for (uint32_t i = 0; i < bins; i++)
        (void)buf_addf(&b, "%s%llu", i ? "," : ",\"counts\":[", (unsigned long long)counts[i]);
    (void)buf_adds(&b, "]}");
    *ret = b.failed ? (struct text){NULL, 0}
                    : sql_copy_text(q, (struct text){buf_text(&b), (uint32_t)b.size});
    buf_done(&b);
    return ret->data ? 0 : -ENOMEM;
}

struct ordering {
    const struct list *list;
    bool descending;
};

static int compare_keys(uint32_t a, uint32_t b, void *arg)
{
    const struct ordering *o = arg;
    int c = compare_values(&o->list->keys[a], &o->list->keys[b]);
    return o->descending ? -c : c;
}

/* string_agg(x order by y): the texts in that order. */
static int put_in_order(struct query *q, struct list *l, bool descending)
{
    struct ordering o = {l, descending};
    uint32_t *order = sql_get(q, l->n, sizeof(*order));
    struct text *texts = sql_get(q, l->n, sizeof(*texts));
    if (!order || !texts)
        return -ENOMEM;
    for (uint32_t i = 0; i < l->n; i++)
        order[i] = i;
    int rc = sql_sort_index(q, order, l->n, /* prefix= */ NULL, compare_keys, &o);
    for (uint32_t i = 0; i < l->n && rc == 0; i++)
        texts[i] = l->texts[order[i]];
    l->texts = texts;
    return rc;
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
        int rc = sql_worked(q, 1 + l->texts[i].size / 64);
        if (rc < 0)
            return rc;
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

int sql_agg_finish(struct query *q, const struct agg *a, struct state *s, struct vec *v,
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
        if (s->list->keys && put_in_order(q, s->list, a->spec->descending) < 0)
            return -ENOMEM;
        return joined(q, s->list, a->spec->separator, &v->t[row]);
    case AGG_PERCENTILE:
    case AGG_PERCENTILE_DISC:
        return percentile(q, s->list, a->spec, &v->d[row]);
    case AGG_HISTOGRAM:
        return histogram(q, s->list, a->spec->bins, &v->t[row]);
    case AGG_ARG_MIN:
    case AGG_ARG_MAX:
        sql_put_value(v, row, &s->pair->value);
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
        if (a->spec->arg2)
            sql_put_value(v, row, &s->pair->value);
        else if (sql_is_textual(v->type))
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
    return sql_agg_room(q, a, 1);
}

void sql_agg_one_reset(struct agg *a)
{
    enum agg_op op = a->spec->kind->op;
    struct list *kept =
        op == AGG_PERCENTILE || op == AGG_PERCENTILE_DISC || op == AGG_HISTOGRAM || op == AGG_STRING
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
    if (arg && (arg->type == SQL_NULL || (arg->has_null && arg->null[row])))
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
    return sql_agg_finish(q, a, &a->states[0], ret, row);
}
