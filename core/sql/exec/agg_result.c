/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/exec/agg_result.c - what an aggregate function gives: its state at the end made a value.
 *
 * The query's thread only.
 */
#include "core/sql/exec/agg.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "sdk/lib/json.h"

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

static int find_percentile(struct query *q, struct list *l, const struct agg_spec *spec,
                           double *ret)
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
static int write_histogram(struct query *q, const struct list *l, uint32_t bins, struct text *ret)
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
        int rc = sql_worked(q, 1);
        if (rc < 0)
            return rc;
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
    bool descending, nulls_low;
};

static int compare_keys(uint32_t a, uint32_t b, void *arg)
{
    const struct ordering *o = arg;
    int c = sql_agg_compare(&o->list->keys[a], &o->list->keys[b], o->nulls_low);
    return o->descending ? -c : c;
}

/* string_agg(x order by y): the texts in that order. */
static int put_in_order(struct query *q, struct list *l, const struct agg_spec *spec)
{
    struct ordering o = {l, spec->descending, spec->nulls_low};
    uint32_t *order = sql_get(q, l->n, sizeof(*order));
    struct text *texts = sql_get(q, l->n, sizeof(*texts));
    if (!order || !texts)
        return -ENOMEM;
    for (uint32_t i = 0; i < l->n; i++)
        order[i] = i;
    int rc = sql_sort_index(q, order, l->n, /* prefix= */ NULL, compare_keys, &o);
    for (uint32_t i = 0; i < l->n && rc == 0; i++) {
        texts[i] = l->texts[order[i]];
        rc = sql_worked(q, 1);
    }
    l->texts = texts;
    return rc;
}

/* mode(): of those that come as often as any, the first in order. */
static int most_frequent(struct query *q, struct list *l, bool descending, struct vec *v,
                         uint32_t row)
{
    struct ordering o = {l, descending, /* nulls_low= */ false};
    uint32_t *order = sql_get(q, l->n, sizeof(*order)), best = 0, most = 0;
    for (uint32_t i = 0; order && i < l->n; i++)
        order[i] = i;
    int rc = order ? sql_sort_index(q, order, l->n, /* prefix= */ NULL, compare_keys, &o) : -ENOMEM;
    for (uint32_t i = 0, first = 0; i < l->n && rc == 0; i++) {
        if (sql_agg_compare(&l->keys[order[i]], &l->keys[order[first]], false) != 0)
            first = i;
        if (i - first + 1 > most) {
            most = i - first + 1;
            best = order[first];
        }
        rc = sql_worked(q, 1);
    }
    if (rc == 0)
        sql_put_value(v, row, &l->keys[best]);
    return rc;
}

/* percentile_disc() of what is no double: the first that so many are not beyond. */
static int choose_value(struct query *q, struct list *l, const struct agg_spec *spec, struct vec *v,
                        uint32_t row)
{
    struct ordering o = {l, spec->descending, /* nulls_low= */ false};
    uint32_t *order = sql_get(q, l->n, sizeof(*order));
    double place = ceil(spec->fraction * (double)l->n) - 1;
    for (uint32_t i = 0; order && i < l->n; i++)
        order[i] = i;
    int rc = order ? sql_sort_index(q, order, l->n, /* prefix= */ NULL, compare_keys, &o) : -ENOMEM;
    if (rc == 0)
        sql_put_value(v, row, &l->keys[order[place < 0 ? 0 : (uint32_t)place]]);
    return rc;
}

/* One root is exact where x = y; a product that no double can hold has two. */
static double root_of_product(double x, double y)
{
    double product = x * y;
    return isnormal(product) ? sqrt(product) : sqrt(x) * sqrt(y);
}

static double clamp_double(double x, double least, double most)
{
    return x < least ? least : x > most ? most : x; /* NaN stays */
}

static void finish_moments(const struct state *s, enum agg_op op, struct vec *v, uint32_t row)
{
    const struct moments *m = s->moments;
    double slope = m->xy / m->xx, n = (double)s->n;
    bool flat = m->xx == 0 || (op == AGG_CORR && m->yy == 0); /* nothing to divide by */
    if (op == AGG_COVAR || op == AGG_COVAR_POP)
        v->d[row] = m->xy / (op == AGG_COVAR ? n - 1 : n);
    else if (flat)
        sql_set_null(v, row);
    else if (op == AGG_CORR) /* rounding must not take it beyond what it can be */
        v->d[row] = clamp_double(m->xy / root_of_product(m->xx, m->yy), -1, 1);
    else if (op == AGG_R2) /* all y on one line: 1 */
        v->d[row] = m->yy == 0 ? 1 : clamp_double(m->xy / m->xx * (m->xy / m->yy), 0, 1);
    else
        v->d[row] = op == AGG_SLOPE ? slope : m->mean_y - slope * m->mean_x;
}

static int join_texts(struct query *q, const struct list *l, const struct agg_spec *spec,
                      struct text *ret)
{
    struct text separator = spec->separator;
    size_t opened = spec->open ? strlen(spec->open) : 0,
           closed = spec->open ? strlen(spec->close) : 0;
    uint32_t brace = spec->members;
    uint64_t size = opened + closed;
    for (uint32_t i = 0; i < l->n; i++) {
        int rc = sql_worked(q, 1);
        if (rc < 0)
            return rc;
        size += l->texts[i].size - 2 * brace + (i ? separator.size : 0);
    }
    char *out = size < UINT32_MAX ? sql_get(q, size + 1, 1) : NULL;
    if (!out)
        return -ENOMEM;
    *ret = (struct text){out, (uint32_t)size};
    if (spec->open) {
        memcpy(out, spec->open, opened);
        memcpy(out + size - closed, spec->close, closed);
        out += opened;
    }
    for (uint32_t i = 0; i < l->n; i++) {
        int rc = sql_worked(q, 1 + l->texts[i].size / 64);
        if (rc < 0)
            return rc;
        memcpy(out, separator.data, i ? separator.size : 0);
        out += i ? separator.size : 0;
        memcpy(out, l->texts[i].data + brace, l->texts[i].size - 2 * brace);
        out += l->texts[i].size - 2 * brace;
    }
    return 0;
}

static double find_deviation(const struct state *s, enum agg_op op)
{
    bool pop = op == AGG_VAR_POP || op == AGG_STDDEV_POP;
    double v = s->m2 / (double)(pop ? s->n : s->n - 1);
    return op == AGG_VAR || op == AGG_VAR_POP ? v : sqrt(v);
}

static int finish_sum(struct query *q, const struct agg *a, const struct state *s, struct vec *v,
                      uint32_t row)
{
    bool avg = a->spec->kind->op == AGG_AVG;
    if (a->spec->of == SQL_DOUBLE) {
        double sum = isfinite(s->sum) ? s->sum + s->rest : s->sum;
        if (isinf(sum) && s->rest == SUM_TOO_LARGE)
            return sql_error(q->text, q->size, a->spec->pos, -ERANGE,
                             "the sum is too large for a double");
        v->d[row] = avg ? sum / (double)s->n : sum;
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
    bool sample = op == AGG_VAR || op == AGG_STDDEV || op == AGG_COVAR;
    bool extreme = op == AGG_MIN || op == AGG_MAX;
    int rc;
    if (op == AGG_COUNT) {
        v->i[row] = s->n;
        return 0;
    }
    if (s->n && (a->spec->form == AGG_STATE || a->spec->form == AGG_MERGE_STATE))
        return sql_agg_encode(q, a->spec, s, &v->t[row]);
    if (s->n == 0 || (sample && s->n < 2)) {
        sql_set_null(v, row);
        return 0;
    }
    switch (op) {
    case AGG_SUM:
    case AGG_AVG:
        return finish_sum(q, a, s, v, row);
    case AGG_STRING:
        if (s->list->keys && put_in_order(q, s->list, a->spec) < 0)
            return -ENOMEM;
        return join_texts(q, s->list, a->spec, &v->t[row]);
    case AGG_PERCENTILE:
    case AGG_PERCENTILE_DISC:
        if (agg_is_by_values(a->spec))
            return choose_value(q, s->list, a->spec, v, row);
        rc = find_percentile(q, s->list, a->spec, &v->d[row]);
        v->d[row] += 0.0; /* -0 is 0, whichever came first */
        return rc;
    case AGG_SKETCH:
        v->d[row] = sql_sketch_quantile(s->sketch, a->spec->fraction) + 0.0;
        return 0;
    case AGG_HISTOGRAM:
        return write_histogram(q, s->list, a->spec->bins, &v->t[row]);
    case AGG_MODE:
        return most_frequent(q, s->list, a->spec->descending, v, row);
    case AGG_CORR:
    case AGG_COVAR:
    case AGG_COVAR_POP:
    case AGG_SLOPE:
    case AGG_R2:
    case AGG_INTERCEPT:
        finish_moments(s, op, v, row);
        return 0;
    case AGG_ARG_MIN:
    case AGG_ARG_MAX:
        sql_put_value(v, row, &s->pair->value);
        return 0;
    case AGG_STDDEV:
    case AGG_STDDEV_POP:
    case AGG_VAR:
    case AGG_VAR_POP:
        v->d[row] = find_deviation(s, op);
        return 0;
    case AGG_COUNT:
    case AGG_MIN:
    case AGG_MAX:
    case AGG_FIRST:
    case AGG_LAST:
    case AGG_AND:
    case AGG_OR:
    case AGG_XOR:
        if (a->spec->arg2)
            sql_put_value(v, row, &s->pair->value);
        else if (a->spec->keeps_null && s->null_end)
            sql_set_null(v, row);
        else if (sql_is_textual(v->type))
            v->t[row] = s->t;
        else if (v->type == SQL_DOUBLE && extreme)
            v->d[row] = s->d + 0.0;
        else
            v->i[row] = s->i;
        return 0;
    }
    return 0;
}
