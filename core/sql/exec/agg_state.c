/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/exec/agg_state.c - states as bytes: what one process has aggregated, made one with that
 * of others.
 *
 *     byte 0        what it is: enum layout
 *     8 bytes       how many values it has seen, from 1
 *     16 bytes      WHOLE: the sum; DOUBLE: sum, rest; SPREAD: mean, sum of squared distances
 * from it
 *     40 bytes      PAIRS: mean of y, of x; sums of the products yy, xx, xy of distances from them
 *     the rest      SKETCH: agg_sketch.c
 *
 * Little-endian, as all machines that we run on.  The bytes come from others and are not believed.
 * Merging is associative: sums of whole numbers exactly, those of doubles but for their last digit
 * (see sql_agg_add_exactly()), the others within a few of the last digits.  The query's thread, or
 * its helper's.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "core/base/err.h"
#include "core/sql/exec/agg.h"

enum layout { LAYOUT_WHOLE = 1, LAYOUT_DOUBLE, LAYOUT_SPREAD, LAYOUT_PAIRS, LAYOUT_SKETCH };

#define HEAD_BYTES 9

static enum layout layout_of(const struct agg_spec *spec)
{
    enum agg_op op = spec->kind->op;
    if (op == AGG_SUM || op == AGG_AVG)
        return spec->of == SQL_DOUBLE ? LAYOUT_DOUBLE : LAYOUT_WHOLE;
    if (op == AGG_SKETCH)
        return LAYOUT_SKETCH;
    return op >= AGG_CORR && op <= AGG_INTERCEPT ? LAYOUT_PAIRS : LAYOUT_SPREAD;
}

static size_t bytes_of(enum layout layout)
{
    return layout == LAYOUT_PAIRS ? sizeof(struct moments) : 16;
}

int sql_agg_encode(struct query *q, const struct agg_spec *spec, const struct state *s,
                   struct text *ret)
{
    enum layout layout = layout_of(spec);
    struct text sketch = {"", 0};
    int rc = layout == LAYOUT_SKETCH ? sql_sketch_encode(q, s->sketch, &sketch) : 0;
    size_t size = HEAD_BYTES + (layout == LAYOUT_SKETCH ? sketch.size : bytes_of(layout));
    char *out = rc == 0 ? sql_get(q, size, 1) : NULL;
    if (!out)
        return -ENOMEM;
    out[0] = (char)layout;
    memcpy(out + 1, &s->n, 8);
    switch (layout) {
    case LAYOUT_WHOLE:
        memcpy(out + HEAD_BYTES, &s->whole, 16);
        break;
    case LAYOUT_DOUBLE:
        memcpy(out + HEAD_BYTES, &s->sum, 8);
        memcpy(out + HEAD_BYTES + 8, &s->rest, 8);
        break;
    case LAYOUT_SPREAD:
        memcpy(out + HEAD_BYTES, &s->mean, 8);
        memcpy(out + HEAD_BYTES + 8, &s->m2, 8);
        break;
    case LAYOUT_PAIRS:
        memcpy(out + HEAD_BYTES, s->moments, sizeof(*s->moments));
        break;
    case LAYOUT_SKETCH:
        memcpy(out + HEAD_BYTES, sketch.data, sketch.size);
        break;
    }
    *ret = (struct text){out, (uint32_t)size};
    return 0;
}

static int no_state(struct query *q, const struct agg_spec *spec)
{
    return sql_error(q->text, q->size, spec->pos, -EINVAL,
                     "a value that is no state of %s() of %s: %s_state() makes one",
                     spec->kind->name, sql_type_name(spec->of), spec->kind->name);
}

/* Can a sum be that of so many 64-bit numbers?  Then no sum of sums overflows. */
static bool is_possible(__int128 sum, int64_t n)
{
    __int128 most = (__int128)n << 63;
    return sum <= most && sum >= -most;
}

/* True if it is a state of this layout: *ret has what it says, but for a sketch's own bytes. */
static bool is_state(enum layout layout, struct text t, struct state *ret,
                     struct moments *ret_moments)
{
    struct state s = {.n = 0};
    bool good = true;
    if (t.size < HEAD_BYTES || t.data[0] != (char)layout ||
        (layout != LAYOUT_SKETCH && t.size != HEAD_BYTES + bytes_of(layout)))
        return false;
    const char *data = t.data + HEAD_BYTES;
    memcpy(&s.n, t.data + 1, 8);
    switch (layout) {
    case LAYOUT_WHOLE:
        memcpy(&s.whole, data, 16);
        good = s.n >= 1 && s.n <= AGG_ROWS_MAX && is_possible(s.whole, s.n);
        break;
    case LAYOUT_DOUBLE:
        memcpy(&s.sum, data, 8);
        memcpy(&s.rest, data + 8, 8);
        break;
    case LAYOUT_SPREAD:
        memcpy(&s.mean, data, 8);
        memcpy(&s.m2, data + 8, 8);
        good = !(s.m2 < 0);
        break;
    case LAYOUT_PAIRS:
        memcpy(ret_moments, data, sizeof(*ret_moments));
        s.moments = ret_moments;
        good = !(ret_moments->yy < 0) && !(ret_moments->xx < 0);
        break;
    case LAYOUT_SKETCH:
        break;
    }
    *ret = s;
    return good && s.n >= 1 && s.n <= AGG_ROWS_MAX;
}

bool sql_agg_is_state(enum agg_op op, enum sql_type of, const char *data, uint32_t size)
{
    const struct agg_kind kind = {.op = op};
    const struct agg_spec spec = {.kind = &kind, .of = of};
    enum layout layout = layout_of(&spec);
    struct text t = {data, size};
    struct state s;
    struct moments room;
    if (!is_state(layout, t, &s, &room))
        return false;
    return layout != LAYOUT_SKETCH ||
           sql_sketch_counts((struct text){data + HEAD_BYTES, size - HEAD_BYTES}) == s.n;
}

/* ret_moments: room for what *ret points to. */
static int decode_state(struct query *q, const struct agg_spec *spec, struct text t,
                        struct state *ret, struct moments *ret_moments)
{
    bool bad = false;
    if (!is_state(layout_of(spec), t, ret, ret_moments))
        return no_state(q, spec);
    if (layout_of(spec) != LAYOUT_SKETCH)
        return 0;
    struct text bytes = {t.data + HEAD_BYTES, t.size - HEAD_BYTES};
    ret->sketch = sql_sketch_decode(q, bytes, &bad);
    if (!ret->sketch && !bad)
        return -ENOMEM;
    return bad || sql_sketch_count(ret->sketch) != ret->n ? no_state(q, spec) : 0;
}

/* Chan, Golub, LeVeque: Updating formulae and a pairwise algorithm for computing sample variances,
 * 1979.  Both have seen values. */
static void merge_spread(struct state *to, const struct state *from)
{
    double a = (double)to->n, b = (double)from->n, delta = from->mean - to->mean;
    to->m2 += from->m2 + delta * delta * (a * b / (a + b));
    to->mean += delta * (b / (a + b));
}

static void merge_moments(struct moments *to, double a, const struct moments *from, double b)
{
    double y = from->mean_y - to->mean_y, x = from->mean_x - to->mean_x, weight = a * b / (a + b);
    to->yy += from->yy + y * y * weight;
    to->xx += from->xx + x * x * weight;
    to->xy += from->xy + x * y * weight;
    to->mean_y += y * (b / (a + b));
    to->mean_x += x * (b / (a + b));
}

static int merge_one(struct query *q, struct agg *a, uint32_t group, struct state *from)
{
    enum layout layout = layout_of(a->spec);
    struct state *to = &a->states[group];
    if (layout == LAYOUT_WHOLE || layout == LAYOUT_DOUBLE)
        return sql_agg_merge(q, a, group, from);
    if (layout == LAYOUT_SKETCH && to->n) {
        to->n += from->n;
        return sql_sketch_merge(q, to->sketch, from->sketch);
    }
    if (to->n == 0) {
        const struct moments *moments = layout == LAYOUT_PAIRS ? from->moments : NULL;
        *to = *from;
        if (!moments)
            return 0;
        to->moments = sql_get(q, 1, sizeof(*to->moments));
        if (!to->moments)
            return -ENOMEM;
        *to->moments = *moments;
        return 0;
    }
    if (layout == LAYOUT_PAIRS)
        merge_moments(to->moments, (double)to->n, from->moments, (double)from->n);
    else
        merge_spread(to, from);
    to->n += from->n;
    return 0;
}

int sql_agg_add_states(struct query *q, struct agg *a, const uint16_t *sel, const uint32_t *groups,
                       uint32_t n)
{
    sql_texts(q, a->arg, sel, n);
    for (uint32_t k = 0; k < n; k++) {
        struct state from;
        struct moments room;
        int rc = decode_state(q, a->spec, a->arg->t[sel ? sel[k] : k], &from, &room);
        if (rc == 0 && a->states[groups[k]].n > AGG_ROWS_MAX)
            return no_state(q, a->spec);
        if (rc == 0)
            rc = merge_one(q, a, groups[k], &from);
        if (rc < 0)
            return rc;
    }
    return 0;
}
