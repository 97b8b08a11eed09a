/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/bind/bind_call.c - calls: which function it is, its arguments made the types that it
 * takes.
 *
 * The query's thread only.  Aggregates and windows are bound by their own files.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/text.h"
#include "core/base/version.h"
#include "core/sql/bind/bind.h"
#include "core/sql/value/timestamp_parts.h"

#define NAMES_MAX 512 /* names looked through for the nearest */

static bool is_plain(const struct expr *e)
{
    return e->type == SQL_INT || e->type == SQL_DOUBLE;
}

static int no_function(struct query *q, const struct node *n, struct expr **args, bool known)
{
    char types[256] = "";
    size_t at = 0;
    for (uint32_t i = 0; args && i < n->n_args && at < sizeof(types) - 16; i++)
        at += (size_t)snprintf(
            types + at, sizeof(types) - at, "%s%s", i ? ", " : "",
            args[i]->literal && args[i]->type != SQL_NULL ? "'...'" : sql_type_name(args[i]->type));
    bool sign = n->text[0] < 'a' || n->text[0] > 'z';
    bool moment = args && n->n_args == 2 &&
                  (args[0]->type == SQL_TIMESTAMP || args[1]->type == SQL_TIMESTAMP);
    if (known && sign && moment && (is_plain(args[0]) || is_plain(args[1])))
        return sql_error(q->text, q->size, n->pos, -EINVAL,
                         "no operator %s for %s and %s; to_timestamp(x) makes a timestamp of "
                         "seconds",
                         n->text, sql_type_name(args[0]->type), sql_type_name(args[1]->type));
    if (known && sign && n->n_args == 2)
        return sql_error(q->text, q->size, n->pos, -EINVAL,
                         "no operator %s for %s and %s; cast one of them: x::%s", n->text,
                         sql_type_name(args[0]->type), sql_type_name(args[1]->type),
                         sql_type_name(n->text[0] == '|'           ? SQL_TEXT
                                       : args[0]->type == SQL_BOOL ? args[1]->type
                                                                   : args[0]->type));
    if (known && strcmp(n->text, "not") == 0)
        return sql_error(q->text, q->size, n->pos, -EINVAL, "not needs a boolean, this is %s",
                         sql_a_type(args[0]->type));
    if (known && (strcmp(n->text, "like") == 0 || strcmp(n->text, "ilike") == 0))
        return sql_error(q->text, q->size, n->pos, -EINVAL,
                         "%s compares texts; cast what is none: x::text", n->text);
    const char *instead = sql_instead_of(n->text);
    if (known)
        return sql_error(q->text, q->size, n->pos, -EINVAL, "no function %s(%s): %s",
                         strcmp(n->text, "neg") == 0 ? "-" : n->text, types,
                         instead ? instead : "it takes other arguments");
    if (sign)
        return sql_error(q->text, q->size, n->pos, -EINVAL, "no operator %s in this version",
                         n->text);
    if (instead)
        return sql_error(q->text, q->size, n->pos, -EINVAL, "unknown function '%s'; %s", n->text,
                         instead);
    const char *names[NAMES_MAX];
    uint32_t count = sql_func_names(names, NAMES_MAX / 2);
    count += sql_agg_names(names + count, NAMES_MAX / 2 - 8);
    names[count++] = "coalesce";
    names[count++] = "nullif";
    names[count++] = "now";
    const char *near = text_nearest(n->text, names, count);
    if (near && strcmp(near, n->text) == 0)
        return sql_error(q->text, q->size, n->pos, -EINVAL, "%s() takes %s", n->text,
                         near[0] == 'c'   ? "at least one argument"
                         : near[1] == 'u' ? "two arguments"
                                          : "no arguments");
    if (near)
        return sql_error(q->text, q->size, n->pos, -EINVAL,
                         "unknown function '%s'; did you mean '%s'?", n->text, near);
    return sql_error(q->text, q->size, n->pos, -EINVAL, "unknown function '%s'", n->text);
}

/* Is the result a numeric of PostgreSQL's?  So it is of numerics, and of integers with them. */
static bool is_numeric(const char *name, struct expr *const *args, uint32_t n)
{
    static const char *const names[] = {"+",     "-",   "*",    "/",     "%",     "neg", "abs",
                                        "round", "mod", "sqrt", "power", "trunc", "div"};
    bool any = false, known = false;
    if (strncmp(name, "to_numeric", 10) == 0)
        return true;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        known = known || strcmp(names[i], name) == 0;
    for (uint32_t i = 0; i < n && known; i++) {
        known = args[i]->numeric || args[i]->type == SQL_INT;
        any = any || args[i]->numeric;
    }
    return any && known;
}

static int make_call(struct query *q, const struct node *n, struct expr **args, struct expr **ret);

/* round(2.5) is 3: of a numeric to no digits, halves go up; of a double to the even number. */
static int round_numeric(struct query *q, const struct node *n, struct expr *arg, struct expr **ret)
{
    struct node call = *n;
    struct sql_value zero = {.type = SQL_INT};
    struct expr *args[2] = {arg, sql_const(q, zero, n->pos)};
    call.n_args = 2;
    return args[1] ? make_call(q, &call, args, ret) : -ENOMEM;
}

static bool is_arithmetic(const char *name)
{
    return strcmp(name, "neg") == 0 || (name[0] && strchr("+-*/", name[0]) && !name[1]);
}

/* Intervals beside a time count as ns, if they have no months.  Between constants they have three
 * numbers, so that interval '1 hour' * 49 is 49:00:00; of rows, that would make a text of each. */
static int fit_intervals(struct query *q, const struct node *n, struct expr **args)
{
    bool time = false, constant = is_arithmetic(n->text);
    for (uint32_t i = 0; i < n->n_args; i++) {
        time = time || args[i]->type == SQL_TIMESTAMP || args[i]->type == SQL_DATE;
        constant = constant && args[i]->kind == EXPR_CONST;
    }
    int rc = 0;
    for (uint32_t i = 0; i < n->n_args && rc == 0; i++) {
        if (time && args[i]->kind == EXPR_CONST)
            rc = sql_interval_to_ns(q, &args[i]);
        else if (constant && args[i]->type == SQL_INTERVAL)
            rc = sql_cast_to(q, &args[i], SQL_CALENDAR, false);
    }
    return rc;
}

/* A constant of three numbers that a number of ns can stand for is one: rows beside it are, too. */
static int as_short(struct query *q, struct expr **e)
{
    const struct expr *x = *e;
    int64_t ns;
    bool fits = x->kind == EXPR_CONST && x->type == SQL_CALENDAR && x->value.type != SQL_NULL &&
                sql_interval_is_ns(sql_interval_unpack(x->value.text.data), &ns);
    return fits ? sql_interval_to_ns(q, e) : 0;
}

/* The call of a known function with bound arguments, each made the type it takes. */
static int make_call(struct query *q, const struct node *n, struct expr **args, struct expr **ret)
{
    enum sql_type types[SQL_CALL_ARGS];
    bool literals[SQL_CALL_ARGS], known = false, numeric = is_numeric(n->text, args, n->n_args);
    if (n->n_args == 1 && args[0]->numeric && strcmp(n->text, "round") == 0)
        return round_numeric(q, n, args[0], ret);
    int fitted = fit_intervals(q, n, args);
    if (fitted < 0)
        return fitted;
    for (uint32_t i = 0; i < n->n_args; i++) {
        types[i] = args[i]->type;
        literals[i] = args[i]->literal;
    }
    const struct func *f = sql_func_find(n->text, types, literals, n->n_args, &known);
    for (uint32_t i = 0; i < n->n_args && !f && known; i++) {
        int rc = sql_interval_to_ns(q, &args[i]); /* as epoch_ns() takes it */
        if (rc < 0)
            return rc;
        types[i] = args[i]->type;
    }
    f = f || !known ? f : sql_func_find(n->text, types, literals, n->n_args, &known);
    if (!f)
        return no_function(q, n, args, known);
    uint8_t clock = sql_clock_of(n, args, types);
    int refused = sql_array_call(q, n, args);
    if (refused < 0)
        return refused;
    struct expr *e = sql_new_expr(q, EXPR_CALL, SQL_NULL, n->pos, n->n_args);
    if (!e)
        return -ENOMEM;
    e->func = f;
    e->type = sql_letter_type(f->result, n->n_args ? types[0] : SQL_NULL);
    const char *letter = f->args;
    for (uint32_t i = 0; i < n->n_args; i++) {
        e->args[i] = args[i];
        if (*letter == 'v' && literals[i]) { /* '1 month' makes it another function */
            int rc = sql_cast_to(q, &args[i], SQL_INTERVAL, false);
            if (rc < 0 || args[i]->type == SQL_CALENDAR)
                return rc < 0 ? rc : make_call(q, n, args, ret);
            e->args[i] = args[i];
        }
        int rc = *letter == 'x'
                     ? 0
                     : sql_coerce(q, &e->args[i], sql_letter_type(*letter, types[i]), n->text);
        if (rc < 0)
            return rc;
        if (letter[1] != '*')
            letter++;
    }
    *ret = e;
    int rc = sql_fold_call(q, ret);
    rc = rc < 0 ? rc : as_short(q, ret);
    (*ret)->numeric = numeric && (*ret)->type == SQL_DOUBLE;
    (*ret)->mark = sql_gives_json(n->text)    ? MARK_JSON
                   : e->type == SQL_TIMESTAMP ? clock
                                              : MARK_NONE;
    return rc;
}

static int bind_nullif(struct query *q, const struct node *n, struct expr **args, struct expr **ret)
{
    struct expr *equal, *e = sql_new_expr(q, EXPR_CASE, args[0]->type, n->pos, 3);
    struct expr *null = sql_const(q, (struct sql_value){.type = SQL_NULL}, n->pos);
    struct node eq = *n;
    eq.text = "=";
    if (!e || !null)
        return -ENOMEM;
    int rc = make_call(q, &eq, args, &equal);
    if (rc < 0)
        return rc;
    null->type = args[0]->type;
    e->args[0] = equal;
    e->args[1] = null;
    e->args[2] = args[0];
    *ret = e;
    uint8_t mark = args[0]->mark;
    rc = sql_fold_call(q, ret);
    (*ret)->mark = rc < 0 ? MARK_NONE : mark;
    return rc;
}

/* coalesce and concat and || and now: what the table of functions cannot say. 1: it was one. */
static int bind_special(struct query *q, const struct node *n, struct expr **args,
                        struct expr **ret)
{
    int rc = 0;
    if (strcmp(n->text, "now") == 0 && n->n_args == 0) {
        *ret =
            sql_const(q, (struct sql_value){.type = SQL_TIMESTAMP, .integer = q->now_utc}, n->pos);
        return *ret ? 1 : -ENOMEM;
    }
    if (strcmp(n->text, "version") == 0 && n->n_args == 0) {
        *ret = sql_const(q,
                         (struct sql_value){.type = SQL_TEXT,
                                            .text = {"probing " PROBING_VERSION,
                                                     sizeof("probing " PROBING_VERSION) - 1}},
                         n->pos);
        return *ret ? 1 : -ENOMEM;
    }
    if (strcmp(n->text, "current_database") == 0 &&
        n->n_args == 0) { /* as in probing.schema.table */
        struct sql_value name = {.type = SQL_TEXT, .text = {"probing", 7}};
        *ret = sql_const(q, name, n->pos);
        return *ret ? 1 : -ENOMEM;
    }
    rc = sql_bind_json(q, n, args, ret);
    rc = rc != 0 ? rc : sql_bind_zone(q, n, args, ret);
    if (rc != 0)
        return rc;
    bool coalesce = strcmp(n->text, "coalesce") == 0 || strcmp(n->text, "ifnull") == 0 ||
                    strcmp(n->text, "nvl") == 0;
    if (coalesce && n->n_args > 0) {
        struct expr *e = sql_new_expr(q, EXPR_COALESCE, SQL_NULL, n->pos, n->n_args);
        if (!e)
            return -ENOMEM;
        memcpy(e->args, args, n->n_args * sizeof(struct expr *));
        uint8_t mark = MARK_NONE; /* and '[]' beside it */
        rc = sql_unify_marks(q, n, e->args, n->n_args, &mark);
        rc = rc < 0 ? rc : sql_unify(q, e->args, n->n_args, "coalesce", &e->type);
        e->unit = e->args[0]->unit;
        *ret = e;
        rc = rc < 0 ? rc : sql_fold_call(q, ret);
        (*ret)->mark = mark;
        return rc < 0 ? rc : 1;
    }
    if (strcmp(n->text, "nullif") == 0 && n->n_args == 2) {
        rc = bind_nullif(q, n, args, ret);
        return rc < 0 ? rc : 1;
    }
    bool all = strncmp(n->text, "concat", 6) == 0;
    if (all || strcmp(n->text, "||") == 0) {
        bool any = all;
        for (uint32_t i = 0; i < n->n_args; i++)
            any = any || args[i]->type == SQL_TEXT;
        for (uint32_t i = 0; i < n->n_args && any && rc == 0; i++) {
            if (args[i]->type == SQL_BOOL && all) /* as PostgreSQL prints it, not as it casts it */
                rc = sql_call_named(q, n, "bool letter", args[i], NULL, &args[i]);
            else if (args[i]->type != SQL_TEXT)
                rc = sql_cast_to(q, &args[i], SQL_TEXT, false);
        }
    }
    return rc;
}

/* Not within its caller, which calls itself through sql_bind() and has a short stack. */
__attribute__((noinline)) static bool is_function(const char *name)
{
    const char *names[NAMES_MAX];
    uint32_t n = sql_func_names(names, NAMES_MAX);
    while (n > 0 && strcmp(names[n - 1], name) != 0)
        n--;
    return n > 0;
}

/* grouping(a, b): which of what is grouped by the row's grouping set lacks. */
static int bind_grouping(struct query *q, struct scope *s, const struct node *n, struct expr **ret)
{
    if (!s->allow_aggs || s->inside_agg)
        return sql_error(q->text, q->size, n->pos, -EINVAL, "grouping() is not allowed in %s",
                         s->inside_agg ? "an aggregate" : s->clause);
    if (n->n_args > SQL_SET_KEYS_MAX || n->n_args < 1 || n->star || n->distinct || n->filter)
        return sql_refuse(q, n->pos, "grouping() takes expressions that are grouped by, up to 31");
    struct expr *e = sql_new_expr(q, EXPR_GROUPING, SQL_INT, n->pos, n->n_args);
    int rc = e ? 0 : -ENOMEM;
    for (uint32_t i = 0; i < n->n_args && rc == 0; i++)
        rc = sql_bind(q, s, n->args[i], &e->args[i]);
    s->grouping = true;
    *ret = e;
    return rc;
}

int sql_bind_call(struct query *q, struct scope *s, const struct node *n, struct expr **ret)
{
    const struct agg_kind *kind = sql_agg_find(n->text);
    if (n->over)
        return sql_window_bind(q, s, n, ret);
    if (sql_window_only(n->text))
        return sql_error(q->text, q->size, n->pos, -EINVAL,
                         "%s() is a window function: %s(...) over (order by ...)", n->text,
                         n->text);
    if (kind)
        return sql_agg_bind(q, s, n, kind, ret);
    if (strcmp(n->text, "grouping") == 0)
        return bind_grouping(q, s, n, ret);
    if (n->n_args == 2 && n->args[0]->kind == NODE_ROW)
        return sql_bind_row_compare(q, s, n, ret);
    bool plain = !n->star && !n->distinct && !n->filter && !n->within && !n->order && !n->nulls;
    if (!plain && !is_function(n->text))
        return no_function(q, n, NULL, false);
    if (!plain)
        return sql_error(q->text, q->size, n->pos, -EINVAL,
                         "'%s' is not an aggregate: it takes no *, distinct, filter or order by",
                         n->text);
    if (n->n_args > SQL_CALL_ARGS)
        return sql_refuse(q, n->pos, "more than 64 arguments");
    struct expr **args = sql_get(q, n->n_args, sizeof(struct expr *)); /* the stack is short */
    if (!args)
        return -ENOMEM;
    for (uint32_t i = 0; i < n->n_args; i++) {
        int rc = sql_bind(q, s, n->args[i], &args[i]);
        if (rc < 0)
            return rc;
    }
    int rc = bind_special(q, n, args, ret);
    return rc < 0 ? rc : rc > 0 ? 0 : make_call(q, n, args, ret);
}

int sql_call_named(struct query *q, const struct node *n, const char *name, struct expr *a,
                   struct expr *b, struct expr **ret)
{
    struct node call = *n;
    struct expr *args[2] = {a, b};
    call.text = name;
    call.n_args = b ? 2 : 1;
    return make_call(q, &call, args, ret);
}
