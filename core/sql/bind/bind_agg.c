/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/bind/bind_agg.c - aggregate functions by name, their arguments and types.
 *
 * The query's thread only.  Equal calls of one select are one aggregate.
 */
#include "core/sql/exec/agg.h"

#include <errno.h>
#include <string.h>

#include "core/sql/bind/bind.h"

#define AGGS_MAX 256 /* in one select */
#define HISTOGRAM_BINS 10
#define HISTOGRAM_BINS_MAX 1000

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
                                        {"approx_median", AGG_PERCENTILE, 1, 1, -1},
                                        {"percentile_cont", AGG_PERCENTILE, 2, 2, 0},
                                        {"percentile_disc", AGG_PERCENTILE_DISC, 2, 2, 0},
                                        {"histogram", AGG_HISTOGRAM, 1, 2, 0},
                                        {"arg_min", AGG_ARG_MIN, 2, 2, 0},
                                        {"min_by", AGG_ARG_MIN, 2, 2, 0},
                                        {"arg_max", AGG_ARG_MAX, 2, 2, 0},
                                        {"max_by", AGG_ARG_MAX, 2, 2, 0},
                                        {"approx_distinct", AGG_COUNT, 1, 1, 0},
                                        {"approx_count_distinct", AGG_COUNT, 1, 1, 0},
                                        {"approx_percentile", AGG_PERCENTILE, 2, 2, 1},
                                        {"approx_percentile_cont", AGG_PERCENTILE, 2, 2, 1},
                                        {"approx_quantile", AGG_PERCENTILE, 2, 2, 1},
                                        {"quantile_cont", AGG_PERCENTILE, 2, 2, 1},
                                        {"quantile_disc", AGG_PERCENTILE_DISC, 2, 2, 1},
                                        {"quantile", AGG_PERCENTILE_DISC, 2, 2, 1},
                                        {"first", AGG_FIRST, 1, 1, 0},
                                        {"first_value", AGG_FIRST, 1, 1, 0},
                                        {"any_value", AGG_FIRST, 1, 1, 0},
                                        {"last", AGG_LAST, 1, 1, 0},
                                        {"last_value", AGG_LAST, 1, 1, 0},
                                        {"string_agg", AGG_STRING, 1, 2, 0},
                                        {"group_concat", AGG_STRING, 1, 2, 0},
                                        {"listagg", AGG_STRING, 1, 2, 0},
                                        {"json_agg", AGG_STRING, 1, 1, 0},
                                        {"array_agg", AGG_STRING, 1, 1, 0},
                                        {"json_object_agg", AGG_STRING, 2, 2, 0},
                                        {"mode", AGG_MODE, 1, 1, 0},
                                        {"corr", AGG_CORR, 2, 2, 0},
                                        {"covar_samp", AGG_COVAR, 2, 2, 0},
                                        {"covar_pop", AGG_COVAR_POP, 2, 2, 0},
                                        {"regr_slope", AGG_SLOPE, 2, 2, 0},
                                        {"regr_intercept", AGG_INTERCEPT, 2, 2, 0},
                                        {"regr_r2", AGG_R2, 2, 2, 0},
                                        {"bit_and", AGG_AND, 1, 1, 0},
                                        {"bit_or", AGG_OR, 1, 1, 0},
                                        {"bit_xor", AGG_XOR, 1, 1, 0},
                                        {"bool_and", AGG_AND, 1, 1, 0},
                                        {"every", AGG_AND, 1, 1, 0},
                                        {"bool_or", AGG_OR, 1, 1, 0},
                                        {"quantile_sketch", AGG_SKETCH, 2, 2, 1}};
#define N_KINDS (sizeof(kinds) / sizeof(*kinds))

static bool has_state(enum agg_op op)
{
    return op == AGG_SUM || op == AGG_AVG || (op >= AGG_STDDEV && op <= AGG_VAR_POP) ||
           (op >= AGG_CORR && op <= AGG_INTERCEPT) || op == AGG_SKETCH;
}

static const struct {
    const char *suffix;
    enum agg_form form;
} forms[] = {{"_merge_state", AGG_MERGE_STATE}, {"_state", AGG_STATE}, {"_merge", AGG_MERGE}};

/* Bytes of the name before what says its form. */
static size_t stem_size(const char *name, enum agg_form *ret)
{
    size_t n = strlen(name);
    *ret = AGG_VALUE;
    for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++) {
        size_t size = strlen(forms[i].suffix);
        if (n <= size || strcmp(name + n - size, forms[i].suffix) != 0)
            continue;
        *ret = forms[i].form;
        return n - size;
    }
    return n;
}

const struct agg_kind *sql_agg_find(const char *name)
{
    enum agg_form form;
    size_t n = stem_size(name, &form);
    for (size_t i = 0; i < N_KINDS; i++)
        if (strlen(kinds[i].name) == n && memcmp(kinds[i].name, name, n) == 0)
            return form == AGG_VALUE || has_state(kinds[i].op) ? &kinds[i] : NULL;
    return NULL;
}

enum agg_form sql_agg_form(const char *name)
{
    enum agg_form form;
    (void)stem_size(name, &form);
    return form;
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

/* The type that bool_and(), bit_and() ... are of. */
static enum sql_type logic_type(const struct agg_kind *kind)
{
    return strncmp(kind->name, "bit_", 4) == 0 ? SQL_INT : SQL_BOOL;
}

/* The argument's type, made to fit, and the result's. */
static int agg_types(struct query *q, struct agg_spec *a, const struct node *n)
{
    enum sql_type t = a->arg ? a->arg->type : SQL_INT;
    int rc = 0;
    if (a->arg && t == SQL_NULL) {
        t = a->kind->op >= AGG_AND && a->kind->op <= AGG_XOR ? logic_type(a->kind) : SQL_DOUBLE;
        rc = sql_cast_to(q, &a->arg, t, false);
    }
    if (a->arg && t == SQL_CALENDAR && (a->kind->op == AGG_SUM || a->kind->op == AGG_AVG)) {
        rc = sql_interval_to_ns(q, &a->arg);
        t = a->arg ? a->arg->type : t;
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
    case AGG_SKETCH:
        fits = is_number(t);
        if (t == SQL_INT)
            rc = sql_cast_to(q, &a->arg, SQL_DOUBLE, false);
        a->type = SQL_DOUBLE;
        break;
    case AGG_HISTOGRAM:
        fits = is_number(t);
        if (t == SQL_INT)
            rc = sql_cast_to(q, &a->arg, SQL_DOUBLE, false);
        a->type = SQL_TEXT;
        break;
    case AGG_CORR:
    case AGG_COVAR:
    case AGG_COVAR_POP:
    case AGG_SLOPE:
    case AGG_R2:
    case AGG_INTERCEPT:
        fits = is_number(t) && (is_number(a->arg2->type) || a->arg2->type == SQL_NULL);
        if (t == SQL_INT)
            rc = sql_cast_to(q, &a->arg, SQL_DOUBLE, false);
        if (rc == 0 && a->arg2->type == SQL_INT)
            rc = sql_cast_to(q, &a->arg2, SQL_DOUBLE, false);
        a->type = SQL_DOUBLE;
        break;
    case AGG_STRING:
        if (t != SQL_TEXT)
            rc = sql_cast_to(q, &a->arg, SQL_TEXT, false);
        a->type = SQL_TEXT;
        break;
    case AGG_AND:
    case AGG_OR:
    case AGG_XOR:
        fits = t == logic_type(a->kind);
        break;
    case AGG_MIN:
    case AGG_MAX:
    case AGG_FIRST:
    case AGG_LAST:
    case AGG_ARG_MIN:
    case AGG_ARG_MAX:
    case AGG_MODE:
    case AGG_PERCENTILE_DISC:
        break;
    }
    if (rc == 0 && a->arg2 && a->arg2->type == SQL_NULL)
        rc = sql_cast_to(q, &a->arg2, SQL_DOUBLE, false);
    if (!fits)
        return sql_error(q->text, q->size, n->pos, -EINVAL, "no %s of %s", n->text, sql_a_type(t));
    a->of = a->arg ? a->arg->type : SQL_INT;
    if (a->form == AGG_STATE)
        a->type = SQL_BLOB;
    return rc;
}

/* avg_merge(state, null::double): the second argument has the type of what was averaged. */
static int merge_types(struct query *q, struct agg_spec *a, const struct node *n)
{
    struct expr *state = a->arg, *of = a->arg2;
    if (state->type == SQL_NULL) { /* no rank has one */
        int rc = sql_cast_to(q, &state, SQL_BLOB, false);
        if (rc < 0)
            return rc;
    }
    if (state->type != SQL_BLOB)
        return sql_error(q->text, q->size, n->pos, -EINVAL, "%s() takes states, which are blobs",
                         n->text);
    bool sketch = a->kind->op == AGG_SKETCH;
    struct agg_spec as = {.kind = a->kind, .arg = of, .arg2 = of};
    int rc = sketch ? 0 : agg_types(q, &as, n);
    a->arg = state;
    a->arg2 = NULL;
    a->of = sketch ? SQL_DOUBLE : as.of;
    a->type = a->form == AGG_MERGE_STATE ? SQL_BLOB : sketch ? SQL_DOUBLE : as.type;
    return rc;
}

/* percentile_cont(f) within group (order by x), approx_percentile(x, f) */
static int bind_fraction(struct query *q, const struct node *n, struct expr **args,
                         struct agg_spec *a)
{
    a->fraction = 0.5;
    if (a->kind->fraction < 0)
        return 0;
    struct expr *f = args[a->kind->fraction];
    a->arg = args[1 - a->kind->fraction];
    int rc = sql_coerce(q, &f, SQL_DOUBLE, n->text);
    a->fraction = f->value.number;
    if (rc == 0 && (f->kind != EXPR_CONST || f->value.type == SQL_NULL ||
                    !(a->fraction >= 0 && a->fraction <= 1)))
        return sql_error(q->text, q->size, f->pos, -EINVAL,
                         "the fraction must be a constant between 0 and 1");
    a->descending = n->within && n->order[0].descending;
    return rc;
}

static int bind_bins(struct query *q, struct expr *bins, struct agg_spec *a)
{
    a->bins = HISTOGRAM_BINS;
    if (!bins)
        return 0;
    if (bins->kind != EXPR_CONST || bins->value.type != SQL_INT || bins->value.integer < 1 ||
        bins->value.integer > HISTOGRAM_BINS_MAX)
        return sql_error(q->text, q->size, bins->pos, -EINVAL,
                         "a histogram must have between 1 and %d bins", HISTOGRAM_BINS_MAX);
    a->bins = (uint32_t)bins->value.integer;
    return 0;
}

/* Several keys as one, whose bytes are in their order. */
static int bind_keys(struct query *q, struct scope *s, const struct node *n, struct expr **ret)
{
    struct expr *key = sql_new_expr(q, EXPR_CALL, SQL_BLOB, n->order[0].node->pos, 2 * n->n_order);
    const enum sql_type type = SQL_INT;
    const bool literal = false;
    bool known;
    int rc = key ? 0 : -ENOMEM;
    for (uint32_t i = 0; i < n->n_order && rc == 0; i++) {
        const struct order *o = &n->order[i];
        struct sql_value order = {.type = SQL_INT, .integer = o->descending | o->nulls_first << 1};
        key->args[2 * i] = sql_const(q, order, o->node->pos);
        rc = key->args[2 * i] ? sql_bind(q, s, o->node, &key->args[2 * i + 1]) : -ENOMEM;
        rc = rc < 0 ? rc : sql_array_has_no_order(q, key->args[2 * i + 1]);
    }
    if (rc == 0)
        key->func = sql_func_find("order key", &type, &literal, 1, &known);
    *ret = key;
    return rc;
}

/* The order of a sum or a count changes nothing, but it must be one. */
static int check_order(struct query *q, struct scope *s, const struct node *n)
{
    int rc = 0;
    for (uint32_t i = 0; i < n->n_order && rc == 0; i++) {
        struct expr *key;
        rc = sql_bind(q, s, n->order[i].node, &key);
    }
    return rc;
}

/* string_agg(x, ',' order by y): y is the second argument. */
static int bind_order(struct query *q, struct scope *s, const struct node *n, struct agg_spec *a)
{
    enum agg_op op = a->kind->op;
    if (op == AGG_ARG_MIN || op == AGG_ARG_MAX)
        return sql_error(q->text, q->size, n->order[0].node->pos, -EINVAL,
                         "%s() is ordered by its second argument and takes no order by", n->text);
    if (op != AGG_STRING && op != AGG_FIRST && op != AGG_LAST && op != AGG_MODE)
        return check_order(q, s, n);
    if (n->n_order > 1) {
        if (n->distinct || op == AGG_MODE)
            return sql_error(q->text, q->size, n->order[0].node->pos, -EINVAL,
                             "%s%s() is ordered by what it %s",
                             n->distinct ? "with distinct, " : "", n->text,
                             op == AGG_MODE ? "counts" : "collects");
        return bind_keys(q, s, n, &a->arg2);
    }
    a->nulls_low = n->order[0].descending != n->order[0].nulls_first;
    a->descending = n->order[0].descending;
    int rc = sql_bind(q, s, n->order[0].node, &a->arg2);
    rc = rc < 0 ? rc : sql_array_has_no_order(q, a->arg2);
    if (rc == 0 && op == AGG_MODE) { /* of those that come as often, the first in order */
        bool same = sql_expr_equal(a->arg, a->arg2);
        a->arg2 = NULL;
        return same ? 0
                    : sql_error(q->text, q->size, n->order[0].node->pos, -EINVAL,
                                "mode() is ordered by what it counts");
    }
    if (rc == 0 && n->distinct && !sql_expr_equal(a->arg, a->arg2))
        return sql_error(q->text, q->size, n->order[0].node->pos, -EINVAL,
                         "with distinct, %s is ordered by what it collects", n->text);
    return rc;
}

/* Lists have NULLs, which `ignore nulls` leaves out; other aggregates do so anyway. */
static int ignore_nulls(struct query *q, const struct node *n, struct agg_spec *a)
{
    if (a->kind->op != AGG_STRING)
        return 0;
    if (n->n_args > 1 && strstr(a->kind->name, "_object_agg"))
        return sql_error(q->text, q->size, n->pos, -EINVAL,
                         "%s() has no list of single values to ignore NULLs in; use "
                         "filter (where ... is not null)",
                         n->text);
    struct expr *some;
    int rc = sql_call_named(q, n, "is null", a->arg, NULL, &some);
    rc = rc < 0 ? rc : sql_call_named(q, n, "not", some, NULL, &some);
    if (rc == 0 && a->filter) {
        struct expr *both = sql_new_expr(q, EXPR_AND, SQL_BOOL, n->pos, 2);
        if (!both)
            return -ENOMEM;
        both->args[0] = a->filter;
        both->args[1] = some;
        some = both;
    }
    a->filter = some;
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
    enum agg_op op = a->kind->op;
    bool any = op == AGG_COUNT || op == AGG_FIRST || op == AGG_LAST;
    for (uint32_t i = 0; i < n->n_args && rc == 0 && !any; i++)
        rc = sql_array_has_no_order(q, args[i]);
    if (rc < 0)
        return rc;
    if (op == AGG_PERCENTILE || op == AGG_PERCENTILE_DISC ||
        (op == AGG_SKETCH && (a->form == AGG_VALUE || a->form == AGG_MERGE)))
        rc = bind_fraction(q, n, args, a);
    if (rc == 0 && op == AGG_HISTOGRAM)
        rc = bind_bins(q, args[1], a);
    if (agg_is_by_pairs(op) || (a->form >= AGG_MERGE && op != AGG_SKETCH))
        a->arg2 = args[1];
    if (op == AGG_MODE && n->within)
        a->descending = n->order[0].descending;
    if (rc == 0 && n->order && !n->within)
        rc = bind_order(q, s, n, a);
    else if (op == AGG_STRING && n->distinct)
        a->arg2 = a->arg; /* sorted, as PostgreSQL finds them: the same answer each time */
    if (rc == 0 && n->nulls == NULLS_IGNORED)
        rc = ignore_nulls(q, n, a);
    if (rc < 0)
        return rc;
    rc = sql_bind_list(q, n, args, a);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    if (a->kind->op == AGG_STRING) {
        a->separator = (struct text){",", 1};
        if (args[1] && (args[1]->kind != EXPR_CONST || args[1]->type != SQL_TEXT))
            return sql_error(q->text, q->size, args[1]->pos, -EINVAL,
                             "the separator must be a constant text");
        if (args[1])
            a->separator = (struct text){args[1]->value.text.data, args[1]->value.text.size};
    }
    return rc;
}

/* max(j) is JSON as j is, max(j::text) is not. */
static bool same_arg(const struct expr *a, const struct expr *b)
{
    return a == b || (a && b && a->mark == b->mark && sql_expr_equal(a, b));
}

static bool same_spec(const struct agg_spec *a, const struct agg_spec *b)
{
    return a->kind == b->kind && a->distinct == b->distinct && a->fraction == b->fraction &&
           a->separator.size == b->separator.size &&
           (a->separator.size == 0 ||
            memcmp(a->separator.data, b->separator.data, a->separator.size) == 0) &&
           same_arg(a->arg, b->arg) && same_arg(a->arg2, b->arg2) && a->bins == b->bins &&
           a->descending == b->descending && a->nulls_low == b->nulls_low &&
           a->keeps_null == b->keeps_null && same_arg(a->filter, b->filter) && a->form == b->form &&
           a->of == b->of;
}

int sql_agg_spec(struct query *q, struct scope *s, const struct node *n,
                 const struct agg_kind *kind, bool over_window, struct agg_spec **ret)
{
    struct agg_spec *a = sql_get(q, 1, sizeof(*a));
    if (!a)
        return -ENOMEM;
    bool counts_distinct = kind->op == AGG_COUNT && strncmp(kind->name, "approx_", 7) == 0;
    bool ends = kind->op == AGG_FIRST || kind->op == AGG_LAST;
    *a = (struct agg_spec){.kind = kind, .distinct = n->distinct || counts_distinct, .pos = n->pos};
    /* first and last take what is there, any_value what it finds: as in DuckDB. */
    a->keeps_null = ends && (n->nulls == NULLS_RESPECTED ||
                             (n->nulls == NULLS_AS_USUAL && strcmp(kind->name, "any_value") != 0));
    if (n->nulls == NULLS_RESPECTED && !ends)
        return sql_error(q->text, q->size, n->pos, -EINVAL,
                         "%s() never counts NULLs; `respect nulls` is for first and last", n->text);
    if (over_window && a->distinct)
        return sql_error(q->text, q->size, n->pos, -EINVAL,
                         "distinct is not allowed in an aggregate over a window");
    a->form = sql_agg_form(n->text);
    if (a->form != AGG_VALUE && (over_window || n->distinct || n->order || n->nulls))
        return sql_error(q->text, q->size, n->pos, -EINVAL,
                         "%s() takes no distinct, order or window: it is a part of an answer",
                         n->text);
    bool star_ok = kind->op == AGG_COUNT && !n->distinct;
    uint32_t least = kind->op == AGG_COUNT ? 1 : kind->min_args, most = kind->max_args;
    if (a->form != AGG_VALUE && kind->op == AGG_SKETCH)
        least = most = a->form == AGG_MERGE ? 2 : 1;
    else if (a->form >= AGG_MERGE)
        least = most = 2;
    if (n->star ? !star_ok : n->n_args < least || n->n_args > most)
        return sql_error(q->text, q->size, n->pos, -EINVAL, "%s() takes %s", n->text,
                         kind->op == AGG_COUNT ? "* or one argument"
                         : most == 1           ? "one argument"
                         : least == 1          ? "one or two arguments"
                                               : "two arguments");
    s->inside_agg = !over_window;
    int rc = bind_args(q, s, n, a);
    s->inside_agg = false;
    if (rc == 0 && over_window && a->arg2)
        return sql_error(q->text, q->size, n->pos, -EINVAL,
                         "%s() by another value is not for windows", n->text);
    *ret = a;
    if (rc < 0)
        return rc;
    return a->form >= AGG_MERGE ? merge_types(q, a, n) : agg_types(q, a, n);
}

bool sql_agg_picks(enum agg_op op)
{
    return op == AGG_MIN || op == AGG_MAX || op == AGG_FIRST || op == AGG_LAST ||
           op == AGG_ARG_MIN || op == AGG_ARG_MAX || op == AGG_MODE;
}

uint8_t sql_agg_mark(const struct agg_spec *a)
{
    return sql_agg_picks(a->kind->op)                ? a->arg->mark
           : sql_gives_json(a->kind->name)           ? MARK_JSON
           : strcmp(a->kind->name, "array_agg") == 0 ? MARK_ARRAY
                                                     : MARK_NONE;
}

/* The nearest query around whose columns are used; 0: the one at hand, or none. */
static uint8_t nearest_query(const struct expr *e)
{
    uint8_t level = e->outer ? e->outer : e->unknown ? UINT8_MAX : 0;
    for (uint32_t i = 0; i < e->n_args; i++)
        level = sql_nearer(nearest_query(e->args[i]), level);
    return level;
}

/* An aggregate is one of the innermost query whose columns it uses, anywhere in it: how many
 * queries further out that is. */
static uint8_t belongs_to(const struct agg_spec *a)
{
    const struct expr *all[] = {a->arg, a->arg2, a->filter};
    uint8_t level = 0;
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        if (all[i] && sql_expr_has_column(all[i]))
            return 0;
        level = all[i] ? sql_nearer(nearest_query(all[i]), level) : level;
    }
    return level;
}

int sql_agg_bind(struct query *q, struct scope *s, const struct node *n,
                 const struct agg_kind *kind, struct expr **ret)
{
    struct agg_spec *a;
    int known = sql_known_outer_agg(q, n, ret);
    uint32_t n_outer = q->outer ? q->outer->n : 0;
    if (known != 0)
        return known < 0 ? known : 0;
    if (s->inside_agg)
        return sql_error(q->text, q->size, n->pos, -EINVAL,
                         "an aggregate cannot be inside another aggregate");
    int rc = sql_agg_spec(q, s, n, kind, false, &a);
    if (rc < 0)
        return rc;
    uint8_t level = belongs_to(a);
    if (level == 1 && q->outer->scope && q->outer->scope->allow_aggs) {
        q->outer->n = n_outer; /* it takes the aggregate, not its columns */
        return sql_bind_outer_agg(q, n, kind, ret);
    }
    if (level)
        return sql_error(q->text, q->size, n->pos, -EINVAL,
                         "%s() uses only columns of the outer query and belongs there: write it in "
                         "that query, or use a column of this select in it",
                         n->text);
    if (!s->allow_aggs)
        return sql_error(q->text, q->size, n->pos, -EINVAL,
                         strcmp(s->clause, "where") == 0
                             ? "the aggregate %s() is not allowed in %s; use having"
                             : "the aggregate %s() is not allowed in %s",
                         n->text, s->clause);
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
    e->numeric = kind->op == AGG_AVG && a->type == SQL_DOUBLE && a->of == SQL_INT;
    e->mark = sql_agg_mark(a);
    e->unit =
        a->arg && kind->op != AGG_COUNT && a->kind->op != AGG_VAR && a->kind->op != AGG_VAR_POP
            ? a->arg->unit
            : 0;
    s->aggs[s->n_aggs++] = e;
    *ret = e;
    return 0;
}
