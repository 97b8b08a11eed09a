/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/bind/bind_window.c - f(x) over (...) bound: the function, its window and its frame.
 *
 * The query's thread only.  A window function becomes one expression, whose arguments are all that
 * it is computed from: its own, filter, partition by, order by.
 */
#include "core/sql/exec/window.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "core/base/text.h"
#include "core/sql/bind/bind.h"

static const struct win_kind {
    const char *name;
    enum win_fn fn;
    uint32_t min_args, max_args;
} kinds[] = {{"row_number", WIN_ROW_NUMBER, 0, 0},
             {"rank", WIN_RANK, 0, 0},
             {"dense_rank", WIN_DENSE_RANK, 0, 0},
             {"percent_rank", WIN_PERCENT_RANK, 0, 0},
             {"cume_dist", WIN_CUME_DIST, 0, 0},
             {"ntile", WIN_NTILE, 1, 1},
             {"lag", WIN_LAG, 1, 3},
             {"lead", WIN_LEAD, 1, 3},
             {"first_value", WIN_FIRST, 1, 1},
             {"last_value", WIN_LAST, 1, 1},
             {"nth_value", WIN_NTH, 2, 2}};
#define N_KINDS (sizeof(kinds) / sizeof(*kinds))

static const struct win_kind *find_kind(const char *name)
{
    for (size_t i = 0; i < N_KINDS; i++)
        if (strcmp(kinds[i].name, name) == 0)
            return &kinds[i];
    return NULL;
}

bool sql_window_only(const char *name)
{
    return find_kind(name) && !sql_agg_find(name);
}

uint32_t sql_window_names(const char **ret, uint32_t max)
{
    uint32_t n = 0;
    for (; n < N_KINDS && n < max; n++)
        ret[n] = kinds[n].name;
    return n;
}

static int no_window(struct query *q, const struct node *n)
{
    const char *names[N_KINDS];
    for (size_t i = 0; i < N_KINDS; i++)
        names[i] = kinds[i].name;
    const char *near = text_nearest(n->text, names, N_KINDS);
    if (near)
        return sql_error(q->text, q->size, n->pos, -EINVAL,
                         "unknown window function '%s'; did you mean '%s'?", n->text, near);
    return sql_error(q->text, q->size, n->pos, -EINVAL,
                     "'%s' is neither an aggregate nor a window function", n->text);
}

/* The offset of a frame: a count of rows or groups, or a distance of the one key of a range. */
static int bind_offset(struct query *q, const struct window_node *w, const struct node *n,
                       enum sql_type key, struct sql_value *ret)
{
    struct scope none = {.clause = "a frame"};
    bool range = w->mode == FRAME_RANGE;
    bool time = key == SQL_TIMESTAMP || key == SQL_DATE || key == SQL_INTERVAL;
    struct expr *e;
    if (range && w->n_order != 1)
        return sql_error(q->text, q->size, n->pos, -EINVAL,
                         "range with a distance needs order by of one expression");
    if (range && !time && key != SQL_INT && key != SQL_DOUBLE)
        return sql_error(q->text, q->size, n->pos, -EINVAL,
                         "range with a distance needs order by of a number or a time, not of %s",
                         sql_a_type(key));
    int rc = sql_bind(q, &none, n, &e);
    if (rc == 0 && range && time && (e->type == SQL_INT || e->type == SQL_DOUBLE)) {
        rc = sql_coerce(q, &e, SQL_DOUBLE, "a frame"); /* beside a time a number is seconds */
        if (rc == 0 && e->kind == EXPR_CONST && e->value.type == SQL_DOUBLE)
            e->value = (struct sql_value){
                .type = SQL_INTERVAL,
                .integer = e->value.number < 9e9 ? (int64_t)(e->value.number * 1e9) : INT64_MAX};
    } else if (rc == 0) {
        rc = sql_coerce(q, &e, !range ? SQL_INT : time ? SQL_INTERVAL : key, "a frame");
    }
    if (rc < 0)
        return rc;
    const struct sql_value *v = &e->value;
    if (e->kind != EXPR_CONST || v->type == SQL_NULL ||
        (v->type == SQL_DOUBLE ? !(v->number >= 0) : v->integer < 0))
        return sql_error(q->text, q->size, n->pos, -EINVAL,
                         "the offset of a frame must be a constant that is not negative");
    *ret = *v;
    return 0;
}

static int bind_frame(struct query *q, const struct window_node *w, const struct expr *e,
                      struct win_spec *spec)
{
    enum sql_type key = w->n_order ? e->args[e->n_args - w->n_order]->type : SQL_NULL;
    if (w->framed && w->mode == FRAME_GROUPS && !w->n_order)
        return sql_error(q->text, q->size, w->pos, -EINVAL,
                         "groups counts groups of equal rows, so it needs an order by");
    spec->mode = w->mode;
    spec->exclude = w->exclude;
    spec->edge[0] = w->framed ? w->edge[0] : FRAME_UNBOUNDED_PRECEDING;
    spec->edge[1] = w->framed ? w->edge[1] : w->n_order ? FRAME_CURRENT : FRAME_UNBOUNDED_FOLLOWING;
    for (int i = 0; i < 2; i++) {
        int rc = w->offset[i] ? bind_offset(q, w, w->offset[i], key, &spec->offset[i]) : 0;
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* over w, over (w ...): the window of that name, with an order and a frame of its own added. */
static int resolve_window(struct query *q, const struct scope *s, const struct window_node *over,
                          struct window_node *ret, uint32_t depth)
{
    const struct named_window *named = s->windows;
    *ret = *over;
    if (!over->base)
        return 0;
    while (named && strcasecmp(named->name, over->base) != 0)
        named = named->next;
    if (!named || depth > SQL_VIEW_DEPTH)
        return sql_error(q->text, q->size, over->pos, -EINVAL,
                         named ? "the window '%s' is defined by itself"
                               : "unknown window '%s'; define it after having: window %s as (...)",
                         over->base, over->base);
    int rc = resolve_window(q, s, named->window, ret, depth + 1);
    if (rc < 0)
        return rc;
    if (over->n_partition || (over->n_order && ret->n_order))
        return sql_error(q->text, q->size, over->pos, -EINVAL,
                         "the window '%s' has its own partition or order", over->base);
    if (over->n_order) {
        ret->order = over->order;
        ret->n_order = over->n_order;
    }
    if (over->framed) {
        ret->framed = true;
        ret->mode = over->mode;
        ret->exclude = over->exclude;
        memcpy(ret->edge, over->edge, sizeof(ret->edge));
        memcpy(ret->offset, over->offset, sizeof(ret->offset));
    }
    return 0;
}

/* lag(x, n, default): the default is as x; ntile, lag, lead and nth_value count in integers. */
static int arg_types(struct query *q, const struct node *n, const struct win_spec *spec,
                     struct expr *e)
{
    struct expr **args = e->args;
    int rc = 0;
    uint32_t count = spec->fn == WIN_NTILE ? 0 : 1; /* which argument counts */
    bool counts =
        spec->fn == WIN_NTILE || spec->fn == WIN_NTH || spec->fn == WIN_LAG || spec->fn == WIN_LEAD;
    if (counts && spec->n_args > count)
        rc = sql_coerce(q, &args[count], SQL_INT, "a window function");
    e->type = spec->fn == WIN_PERCENT_RANK || spec->fn == WIN_CUME_DIST ? SQL_DOUBLE : SQL_INT;
    if (rc < 0 || spec->fn < WIN_LAG)
        return rc;
    struct expr *values[2] = {args[0], spec->n_args > 2 ? args[2] : NULL};
    rc = sql_unify_marks(q, n, values, spec->n_args > 2 ? 2 : 1, &e->mark);
    rc =
        rc < 0 ? rc : sql_unify(q, values, spec->n_args > 2 ? 2 : 1, "a window function", &e->type);
    args[0] = values[0];
    if (spec->n_args > 2)
        args[2] = values[1];
    return rc;
}

static int bind_function(struct query *q, struct scope *s, const struct node *n,
                         struct win_spec *spec, struct expr *e)
{
    const struct win_kind *kind = find_kind(n->text);
    const struct agg_kind *agg = kind ? NULL : sql_agg_find(n->text);
    if (agg) {
        struct agg_spec *a;
        int rc = sql_agg_spec(q, s, n, agg, true, &a);
        if (rc < 0)
            return rc;
        spec->fn = WIN_AGG;
        spec->agg = a;
        if (a->arg)
            e->args[spec->n_args++] = a->arg;
        spec->filter = a->filter != NULL;
        if (a->filter)
            e->args[spec->n_args] = a->filter;
        e->type = a->type;
        e->mark = sql_agg_mark(a);
        return 0;
    }
    if (!kind)
        return no_window(q, n);
    if (n->star || n->distinct || n->filter || n->n_args < kind->min_args ||
        n->n_args > kind->max_args)
        return sql_error(q->text, q->size, n->pos, -EINVAL,
                         "%s() takes %u to %u arguments, no *, distinct or filter", n->text,
                         kind->min_args, kind->max_args);
    if (n->order)
        return sql_error(q->text, q->size, n->order[0].node->pos, -EINVAL,
                         "the order of %s() stands in its window: over (order by ...)", n->text);
    if (n->nulls == NULLS_IGNORED && kind->fn < WIN_LAG)
        return sql_error(q->text, q->size, n->pos, -EINVAL,
                         "`ignore nulls` is for lag, lead, first_value, last_value and nth_value");
    spec->skips_null = n->nulls == NULLS_IGNORED;
    spec->fn = kind->fn;
    spec->n_args = n->n_args;
    for (uint32_t i = 0; i < n->n_args; i++) {
        int rc = sql_bind(q, s, n->args[i], &e->args[i]);
        if (rc < 0)
            return rc;
    }
    return arg_types(q, n, spec, e);
}

static int bind_all(struct query *q, struct scope *s, const struct node *n,
                    const struct window_node *w, struct win_spec *spec, struct expr *e)
{
    int rc = bind_function(q, s, n, spec, e);
    uint32_t at = spec->n_args + spec->filter;
    for (uint32_t i = 0; i < w->n_partition && rc == 0; i++)
        rc = sql_bind(q, s, w->partition[i], &e->args[at++]);
    for (uint32_t i = 0; i < w->n_order && rc == 0; i++) {
        spec->order[i] = (struct sort_key){.descending = w->order[i].descending,
                                           .nulls_first = w->order[i].nulls_first};
        rc = sql_bind(q, s, w->order[i].node, &e->args[at]);
        rc = rc < 0 ? rc : sql_array_has_no_order(q, e->args[at]);
        at++;
    }
    spec->n_partition = w->n_partition;
    spec->n_order = w->n_order;
    e->n_args = at;
    return rc < 0 ? rc : bind_frame(q, w, e, spec);
}

int sql_window_bind(struct query *q, struct scope *s, const struct node *n, struct expr **ret)
{
    struct window_node over;
    const struct window_node *w = &over;
    if (!s->allow_windows || s->inside_agg || s->inside_window)
        return sql_error(q->text, q->size, n->pos, -EINVAL,
                         "window functions are not allowed in %s; %s",
                         s->inside_agg      ? "an aggregate"
                         : s->inside_window ? "one another"
                         : s->clause        ? s->clause
                                            : "this place",
                         s->inside_agg || s->inside_window
                             ? "compute the inner one in a select in from"
                             : "qualify filters by them, or a select around this one");
    int rc = resolve_window(q, s, n->over, &over, 0);
    if (rc < 0)
        return rc;
    if (w->n_partition + w->n_order > SQL_CALL_ARGS - 8)
        return sql_error(q->text, q->size, n->pos, -E2BIG, "a window by too many columns");
    struct win_spec *spec = sql_get(q, 1, sizeof(*spec));
    struct expr *e = sql_new_expr(q, EXPR_WINDOW, SQL_NULL, n->pos, SQL_CALL_ARGS);
    if (!spec || !e || !(spec->order = sql_get(q, w->n_order, sizeof(*spec->order))))
        return -ENOMEM;
    s->inside_window = true;
    rc = bind_all(q, s, n, w, spec, e);
    s->inside_window = false;
    if (spec->n_args && spec->fn >= WIN_LAG)
        e->unit = e->args[0] && e->type == e->args[0]->type ? e->args[0]->unit : 0;
    e->set = spec;
    *ret = e;
    return rc;
}
