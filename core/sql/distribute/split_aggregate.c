/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/distribute/split_aggregate.c - one aggregate of a select: what members compute of it,
 * and how that is merged.
 *
 *     count                     counts, added up
 *     sum of whole numbers,
 *     min, max, bool_and ...    the same, of what members say
 *     sum of doubles, avg,
 *     variances, correlations   x_state(), merged by x_merge(): agg_state.c
 *     of distinct values        members group by the value, too
 *     first, last, any_value    of the first member's (or last's) that has rows
 *     arg_min, arg_max          with the value that they go by
 *     approx_quantile ...       sketches: agg_sketch.c
 *
 * The others need all values in one place.  One thread.
 */
#include "core/sql/distribute/split.h"

#include <string.h>

#include "core/base/err.h"

static struct tree_memory *mem_of(const struct split *p)
{
    return &p->scope.g->mem;
}

/* ---- states ---- */

/* A column of a member's answer; merge: over its name, %s. */
static const char *add_state(struct split *p, const struct node *call, const char *merge,
                             struct answer_check check)
{
    struct sql_global *g = p->scope.g;
    const char *text = call ? global_unparsed(g, call) : NULL;
    for (uint32_t i = 0; text && i < p->n_states; i++)
        if (strcmp(p->states[i].text, text) == 0)
            return p->states[i].name;
    if (!text || p->n_states == SPLIT_STATES_MAX)
        return NULL;
    struct split_state *s = &p->states[p->n_states];
    *s = (struct split_state){.text = text, .check = check};
    s->name = global_text(g, "__s%u", p->n_states);
    s->merge = s->name ? global_text(g, "%s(%s)", merge, s->name) : NULL;
    if (!s->merge)
        return NULL;
    p->n_states++;
    return s->name;
}

static struct node *name_node(struct split *p, const char *name)
{
    return name ? tree_name(mem_of(p), name) : NULL;
}

/* The call for members: its arguments spelled out, its filter what hangs on columns. */
static struct node *member_call(struct split *p, const char *name, struct node *a, struct node *b,
                                struct node *filter)
{
    struct node *n = tree_call(mem_of(p), name, a, b);
    if (n)
        n->filter = filter;
    return n;
}

static struct node *with_filter(struct node *n, struct node *filter)
{
    if (n)
        n->filter = filter;
    return n;
}

/* ---- the type of an argument, as members have it ---- */

static enum sql_type type_of(struct split *p, const struct node *n)
{
    struct sql_global *g = p->scope.g;
    struct sql_column *columns;
    uint32_t count;
    const char *expr = global_unparsed(g, n);
    const char *text =
        expr ? global_text(g, "select %s as x from %s limit 0", expr, p->scope.table->source)
             : NULL;
    int rc = text ? global_columns_of(g, text, &columns, &count) : global_no_memory();
    if (rc < 0) {
        p->rc = rc;
        return SQL_NULL;
    }
    return columns[0].type;
}

/* ---- kinds of aggregates ---- */

struct call {
    struct split *p;
    const struct node *n;
    const struct agg_kind *kind;
    struct node *args[2];    /* spelled out */
    struct node *filter;     /* for members; may be NULL */
    struct node *tag_filter; /* for the last select; may be NULL */
};

static struct node *split_count(const struct call *c)
{
    struct split *p = c->p;
    struct node *member = member_call(p, "count", c->args[0], NULL, c->filter);
    if (member)
        member->star = c->n->star;
    struct node *sum =
        name_node(p, add_state(p, member, "sum", (struct answer_check){.what = CHECK_COUNT}));
    sum = sum ? with_filter(tree_call(mem_of(p), "sum", sum, NULL), c->tag_filter) : NULL;
    struct node *zero = tree_int(mem_of(p), 0);
    return sum && zero ? tree_call(mem_of(p), "coalesce", sum, zero) : NULL;
}

/* The same function says of all rows what a member says of its own. */
static struct node *split_same(const struct call *c)
{
    struct split *p = c->p;
    struct node *member = member_call(p, c->n->text, c->args[0], NULL, c->filter);
    struct node *x = name_node(p, add_state(p, member, c->n->text, (struct answer_check){0}));
    return x ? with_filter(tree_call(mem_of(p), c->n->text, x, NULL), c->tag_filter) : NULL;
}

/* x_state(), and x_merge() with a null of the type, or the fraction of a quantile. */
static struct node *split_state_of(const struct call *c, const char *name, enum agg_op op,
                                   struct node *fraction)
{
    struct split *p = c->p;
    struct sql_global *g = p->scope.g;
    enum sql_type of = type_of(p, c->args[0]);
    bool sum = op == AGG_SUM || op == AGG_AVG;
    of = sum && of != SQL_NULL ? of : SQL_DOUBLE;
    const struct answer_check check = {.what = CHECK_STATE, .op = op, .of = of};
    struct node *null = tree_int(mem_of(p), 0);
    if (null)
        null->kind = NODE_NULL;
    struct node *second = fraction ? fraction : tree_cast(mem_of(p), null, of);
    const char *suffix = global_text(g, "%s_merge_state", name);
    struct node *member =
        member_call(p, global_text(g, "%s_state", name), c->args[0], c->args[1], c->filter);
    const char *state = member && suffix ? add_state(p, member, suffix, check) : NULL;
    struct node *x = name_node(p, state);
    if (!x || !second)
        return NULL;
    if (!fraction) { /* the merge of states has the type, too */
        struct split_state *s = &p->states[0];
        while (s->name != state)
            s++;
        s->merge = global_text(g, "%s(%s, %s)", suffix, state, global_unparsed(g, second));
    }
    return with_filter(tree_call(mem_of(p), global_text(g, "%s_merge", name), x, second),
                       c->tag_filter);
}

static struct node *split_sum(const struct call *c)
{
    enum sql_type of = type_of(c->p, c->args[0]);
    return of == SQL_INT || of == SQL_INTERVAL ? split_same(c)
                                               : split_state_of(c, "sum", AGG_SUM, NULL);
}

/* Members group by the value, too, so that each comes once from each. */
static struct node *split_distinct(const struct call *c)
{
    struct split *p = c->p;
    struct node *value = c->args[0];
    if (c->filter) { /* NULL is never counted */
        struct node *pick = tree_and(mem_of(p), c->filter, value);
        if (!pick || pick->n_args != 2)
            return NULL;
        pick->kind = NODE_CASE;
        value = pick;
    }
    const char *key = split_key(p, value);
    struct node *x = name_node(p, key);
    struct node *call = x ? tree_call(mem_of(p), c->n->text, x, NULL) : NULL;
    if (!call)
        return NULL;
    call->distinct = c->n->distinct;
    p->finer = true;
    return with_filter(call, c->tag_filter);
}

/* first(x), last(x): members that have rows in the order of members. */
static struct node *split_ends(const struct call *c)
{
    struct split *p = c->p;
    struct node *member = member_call(p, c->n->text, c->args[0], NULL, c->filter);
    bool any = strcmp(c->n->text, "any_value") == 0 || c->n->nulls == NULLS_IGNORED;
    struct node *filter = c->tag_filter;
    if (member)
        member->nulls = c->n->nulls;
    if (c->filter && !any) /* a member with no such row says NULL, and is not the first */
        return NULL;
    p->ordered = true;
    const char *merge = global_text(p->scope.g, "%s", c->n->text);
    struct node *x =
        merge ? name_node(p, add_state(p, member, merge, (struct answer_check){0})) : NULL;
    struct node *call = x ? tree_call(mem_of(p), c->n->text, x, NULL) : NULL;
    if (call)
        call->nulls = c->n->nulls;
    return with_filter(call, filter);
}

/* arg_min(x, y): with the least y of rows that have both. */
static struct node *split_arg(const struct call *c)
{
    struct split *p = c->p;
    bool least = c->kind->op == AGG_ARG_MIN;
    struct node *has = tree_call(mem_of(p), "is null", c->args[0], NULL);
    struct node *member = member_call(p, c->n->text, c->args[0], c->args[1], c->filter);
    if (!has || !member)
        return NULL;
    has->kind = NODE_IS_NULL;
    has->negated = true;
    struct node *key = member_call(p, least ? "min" : "max", c->args[1], NULL,
                                   tree_and(mem_of(p), has, c->filter));
    const char *by = add_state(p, key, least ? "min" : "max", (struct answer_check){0});
    uint32_t n = p->n_states;
    const char *value = add_state(p, member, c->n->text, (struct answer_check){0});
    if (!by || !value)
        return NULL;
    if (p->n_states > n)
        p->states[n].merge = global_text(p->scope.g, "%s(%s, %s)", c->n->text, value, by);
    p->ordered = true;
    struct node *x = name_node(p, value), *y = name_node(p, by);
    return x && y ? with_filter(tree_call(mem_of(p), c->n->text, x, y), c->tag_filter) : NULL;
}

/* Quantiles: exactly only where all values are. */
static struct node *split_quantile(struct call *c)
{
    struct split *p = c->p;
    const struct node *n = c->n;
    bool approximate = strncmp(n->text, "approx_", 7) == 0 || c->kind->op == AGG_SKETCH;
    struct node *half = tree_cast(mem_of(p), tree_text(mem_of(p), "0.5"), SQL_DOUBLE);
    if (!approximate && !p->scope.g->o.sketch) {
        p->scope.g->has_quantiles = true;
        return NULL;
    }
    int which = c->kind->fraction;
    if (which >= 0 && n->n_args != 2)
        return NULL;
    struct node *fraction = which < 0 ? half : c->args[which];
    struct node *value = which < 0 ? c->args[0] : c->args[1 - which];
    if (n->within && n->order[0].descending)
        fraction = tree_call(mem_of(p), "-", tree_int(mem_of(p), 1), fraction);
    c->args[0] = value;
    c->args[1] = NULL;
    global_note(p->scope.g, NULL,
                "%s() is within 1 %% of a value at that place: merged from sketches%s", n->text,
                approximate ? "" : ", as its values are more than --max-bytes");
    return split_state_of(c, "quantile_sketch", AGG_SKETCH, fraction);
}

static struct node *split_kind(struct call *c)
{
    const char *name = c->n->text;
    enum agg_op op = c->kind->op;
    switch (op) {
    case AGG_COUNT:
        return split_count(c);
    case AGG_SUM:
        return split_sum(c);
    case AGG_MIN:
    case AGG_MAX:
    case AGG_AND:
    case AGG_OR:
    case AGG_XOR:
        return split_same(c);
    case AGG_AVG:
    case AGG_STDDEV:
    case AGG_STDDEV_POP:
    case AGG_VAR:
    case AGG_VAR_POP:
    case AGG_CORR:
    case AGG_COVAR:
    case AGG_COVAR_POP:
    case AGG_SLOPE:
    case AGG_R2:
    case AGG_INTERCEPT:
        return split_state_of(c, name, op, NULL);
    case AGG_FIRST:
    case AGG_LAST:
        return c->n->order ? NULL : split_ends(c);
    case AGG_ARG_MIN:
    case AGG_ARG_MAX:
        return split_arg(c);
    case AGG_SKETCH:
    case AGG_PERCENTILE:
    case AGG_PERCENTILE_DISC:
        return split_quantile(c);
    case AGG_HISTOGRAM:
    case AGG_STRING:
    case AGG_MODE:
        return NULL;
    }
    return NULL;
}

/* ---- the call ---- */

/* Sort a filter into what members can decide and what the tags do; false: neither. */
static bool sort_filter(struct call *c)
{
    struct node *list[CONJUNCTS_MAX];
    const struct scope_of *s = &c->p->scope;
    uint32_t n = scope_conjuncts(c->n->filter, list, CONJUNCTS_MAX);
    if (n == CONJUNCTS_MAX)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t uses = scope_uses(s, list[i]);
        bool tags = uses == USES_TAG;
        if (uses != 0 && uses != USES_COLUMN && !tags)
            return false;
        struct node **to = tags ? &c->tag_filter : &c->filter;
        *to = tree_and(mem_of(c->p), *to, tags ? list[i] : scope_spelled_out(s, list[i]));
        if (tags)
            split_use_tags(c->p, list[i]);
        if (!*to)
            return false;
        scope_mark(s, list[i], c->p->uses);
    }
    return true;
}

/* min(_rank), count(distinct _host): each member that has rows of the group has its tags there. */
static struct node *over_tags(const struct call *c, bool distinct)
{
    enum agg_op op = c->kind->op;
    bool once = op == AGG_MIN || op == AGG_MAX || op == AGG_AND || op == AGG_OR ||
                (distinct && op == AGG_COUNT);
    if (!once || c->filter || c->n->n_args != 1)
        return NULL;
    struct node *call = tree_call(mem_of(c->p), c->n->text, c->n->args[0], NULL);
    split_use_tags(c->p, c->n->args[0]);
    if (call)
        call->distinct = c->n->distinct;
    return with_filter(call, c->tag_filter);
}

struct node *split_aggregate(struct split *p, const struct node *n)
{
    struct call c = {.p = p, .n = n, .kind = sql_agg_find(n->text)};
    enum agg_op op = c.kind->op;
    bool distinct = n->distinct || (op == AGG_COUNT && strncmp(n->text, "approx_", 7) == 0);
    uint32_t uses = 0;
    if (sql_agg_form(n->text) != AGG_VALUE || n->n_args > 2 || !sort_filter(&c))
        return NULL;
    for (uint32_t i = 0; i < n->n_args; i++)
        uses |= scope_uses(&p->scope, n->args[i]);
    if (uses == USES_TAG)
        return over_tags(&c, distinct);
    if (uses & ~(uint32_t)USES_COLUMN)
        return NULL;
    for (uint32_t i = 0; i < n->n_args; i++) {
        c.args[i] = scope_spelled_out(&p->scope, n->args[i]);
        scope_mark(&p->scope, n->args[i], p->uses);
        if (!c.args[i])
            return NULL;
    }
    bool counts_once = op == AGG_MIN || op == AGG_MAX || op == AGG_AND || op == AGG_OR;
    if (!distinct || counts_once)
        return split_kind(&c);
    bool by_value = op == AGG_COUNT || op == AGG_SUM || op == AGG_AVG ||
                    (op >= AGG_STDDEV && op <= AGG_VAR_POP);
    return by_value ? split_distinct(&c) : NULL;
}
