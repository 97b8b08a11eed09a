/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/bind/bind_json.c - which texts are JSON, and values made JSON where a builder takes
 * them; which are arrays, and where these may stand.
 *
 * Neither has a type of its own here: an expression is marked instead, so that JSON within JSON is
 * not quoted a second time, and that an array is not taken for a text.  The query's thread only.
 */
#include <errno.h>
#include <string.h>

#include "core/sql/bind/bind.h"
#include "core/sql/exec/agg.h"

bool sql_gives_json(const char *function)
{
    static const char *const names[] = {
        "to_json",  "json", "try_json",        "json_build_array", "json_build_object",
        "json_agg", "->",   "json_object_agg", "json_extract",     "json_extract_path"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strcmp(names[i], function) == 0)
            return true;
    return false;
}

int sql_make_json(struct query *q, const struct node *n, struct expr **e)
{
    if ((*e)->mark == MARK_JSON)
        return 0;
    if ((*e)->mark == MARK_ARRAY)
        return sql_error(q->text, q->size, (*e)->pos, -EINVAL,
                         "an array is no JSON here: json_agg(x) makes a list of JSON");
    enum sql_type t = (*e)->type;
    bool plain =
        t == SQL_TEXT || t == SQL_INT || t == SQL_DOUBLE || t == SQL_BOOL || t == SQL_TIMESTAMP;
    int rc = plain ? 0 : sql_cast_to(q, e, SQL_TEXT, false);
    return rc < 0 || t == SQL_NULL ? rc : sql_call_named(q, n, "to_json", *e, NULL, e);
}

/* ---- arrays: of array_agg(), texts as {a,b} ---- */

bool sql_are_arrays(struct expr *const *e, uint32_t count)
{
    bool any = false, all = true;
    for (uint32_t i = 0; i < count; i++) {
        any = any || e[i]->mark == MARK_ARRAY;
        all = all && (e[i]->mark == MARK_ARRAY || e[i]->literal || e[i]->type == SQL_NULL);
    }
    return any && all;
}

int sql_array_has_no_order(struct query *q, const struct expr *e)
{
    if (e->mark != MARK_ARRAY)
        return 0;
    return sql_error(q->text, q->size, e->pos, -EINVAL,
                     "arrays have no order here, and are no texts: x::text of the array is one, "
                     "array_to_string(x, ',') joins its elements");
}

int sql_array_call(struct query *q, const struct node *n, struct expr *const *args)
{
    static const char *const takers[] = {"array_to_string", "array_length", "cardinality"};
    static const char *const others[] = {
        "=",           "<>",     "is distinct from", "is null", "is not distinct from",
        "is not null", "concat", "concat_ws"};
    bool allowed = false;
    for (size_t i = 0; i < sizeof(takers) / sizeof(*takers); i++) {
        if (strcmp(n->text, takers[i]) != 0)
            continue;
        if (args[0]->mark == MARK_ARRAY)
            return 0;
        return sql_error(q->text, q->size, args[0]->pos, -EINVAL,
                         "%s() takes an array, as array_agg(x) makes it", n->text);
    }
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
        allowed = allowed || strcmp(n->text, others[i]) == 0;
    if (allowed && (n->text[0] != '=' || n->n_args != 2 || sql_are_arrays(args, 2)))
        return 0;
    for (uint32_t i = 0; i < n->n_args; i++) {
        int rc = sql_array_has_no_order(q, args[i]);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- marks ---- */

/* A copy: the expression may be an aggregate that stands elsewhere too. */
int sql_mark(struct query *q, struct expr **e, uint8_t mark)
{
    if ((*e)->mark == mark)
        return 0;
    struct expr *copy = sql_get(q, 1, sizeof(*copy));
    if (!copy)
        return -ENOMEM;
    *copy = **e;
    copy->mark = mark;
    *e = copy;
    return 0;
}

/* Are they what a clock shows?  So are timestamps beside dates and NULL, as in PostgreSQL. */
static uint8_t common_clock(struct expr *const *e, uint32_t count)
{
    bool clock = false;
    for (uint32_t i = 0; i < count; i++)
        clock = clock || e[i]->mark == MARK_CLOCK;
    for (uint32_t i = 0; i < count; i++)
        clock = clock && (e[i]->mark == MARK_CLOCK || e[i]->type != SQL_TIMESTAMP);
    return clock ? MARK_CLOCK : MARK_NONE;
}

int sql_unify_marks(struct query *q, const struct node *n, struct expr **e, uint32_t count,
                    uint8_t *ret)
{
    bool any = false, all = true, array = sql_are_arrays(e, count);
    int rc = 0;
    for (uint32_t i = 0; i < count; i++) {
        any = any || e[i]->mark == MARK_JSON;
        all = all && (e[i]->mark == MARK_JSON || e[i]->literal);
    }
    *ret = any && all ? MARK_JSON : array ? MARK_ARRAY : common_clock(e, count);
    for (uint32_t i = 0; i < count && any && all && rc == 0; i++) {
        struct sql_value v;
        if (e[i]->mark == MARK_JSON || e[i]->type != SQL_TEXT)
            continue;
        rc = sql_call_named(q, n, "json", e[i], NULL, &e[i]);
        rc = rc < 0 ? rc : sql_fold(q, e[i], &v); /* wrong whether or not a row comes */
    }
    return rc;
}

int sql_unite_marks(struct query *q, uint32_t pos, struct expr *pair[2], uint8_t *ret)
{
    const struct node call = {.kind = NODE_CALL, .pos = pos};
    int rc = 0;
    bool json = pair[0]->mark == MARK_JSON || pair[1]->mark == MARK_JSON;
    *ret = json ? MARK_JSON : sql_are_arrays(pair, 2) ? MARK_ARRAY : common_clock(pair, 2);
    for (int i = 0; i < 2 && json && rc == 0; i++)
        if (pair[i]->mark != MARK_JSON && pair[i]->type == SQL_TEXT)
            rc = sql_call_named(q, &call, "json", pair[i], NULL, &pair[i]);
    return rc;
}

int sql_bind_json(struct query *q, const struct node *n, struct expr **args, struct expr **ret)
{
    bool one = n->n_args == 1 && strcmp(n->text, "to_json") == 0;
    bool object = strstr(n->text, "_build_object") != NULL;
    if (!one && !object && !strstr(n->text, "_build_array"))
        return 0;
    if (object && n->n_args % 2)
        return sql_error(q->text, q->size, n->pos, -EINVAL,
                         "%s() takes keys and values in turn: its last key has no value", n->text);
    int rc = 0;
    for (uint32_t i = 0; i < n->n_args && rc == 0; i++) {
        if (object && i % 2 == 0)
            rc = sql_cast_to(q, &args[i], SQL_TEXT, false);
        if (rc == 0 && object && i % 2 == 0)
            rc = sql_mark(q, &args[i], MARK_NONE);
        rc = rc < 0 ? rc : sql_make_json(q, n, &args[i]);
    }
    if (one)
        *ret = args[0];
    return rc < 0 ? rc : one;
}

/* ---- lists ---- */

/* array_agg(x): {a,"b c",NULL} */
static int bind_array_list(struct query *q, const struct node *n, struct agg_spec *a)
{
    int rc = 0;
    if (a->arg->mark == MARK_ARRAY)
        return sql_error(q->text, q->size, n->pos, -EINVAL, "there are no arrays of arrays");
    if (a->arg->type == SQL_BOOL)
        rc = sql_call_named(q, n, "bool letter", a->arg, NULL, &a->arg);
    else
        rc = sql_cast_to(q, &a->arg, SQL_TEXT, false);
    a->separator = (struct text){",", 1};
    a->open = "{";
    a->close = "}";
    return rc < 0 ? rc : sql_call_named(q, n, "array element", a->arg, NULL, &a->arg);
}

/* json_object_agg(k, v): what the braces of {"k" : v} hold, of all of them. */
static int bind_json_members(struct query *q, const struct node *n, struct expr **args,
                             struct agg_spec *a)
{
    struct node one = *n;
    one.text = "json_build_object";
    int rc = sql_bind_json(q, &one, args, &a->arg);
    rc = rc < 0 ? rc : sql_call_named(q, n, one.text, args[0], args[1], &a->arg);
    a->separator = (struct text){", ", 2};
    a->open = "{ ";
    a->close = " }";
    a->members = true;
    return rc;
}

/* json_agg(x): texts of JSON in brackets; NULL is one of them. */
static int bind_json_list(struct query *q, const struct node *n, struct agg_spec *a)
{
    struct expr *e = sql_new_expr(q, EXPR_COALESCE, SQL_TEXT, n->pos, 2);
    struct sql_value null = {.type = SQL_TEXT, .text = {"null", 4}};
    int rc = sql_make_json(q, n, &a->arg);
    if (rc < 0 || !e || !(e->args[1] = sql_const(q, null, n->pos)))
        return rc < 0 ? rc : -ENOMEM;
    e->args[0] = a->arg;
    a->arg = e;
    a->separator = (struct text){", ", 2};
    a->open = "[";
    a->close = "]";
    return 0;
}

int sql_bind_list(struct query *q, const struct node *n, struct expr **args, struct agg_spec *a)
{
    bool members = strstr(a->kind->name, "_object_agg") != NULL;
    bool array = strcmp(a->kind->name, "array_agg") == 0;
    if (!members && !array && !sql_gives_json(a->kind->name))
        return 0;
    int rc = members ? bind_json_members(q, n, args, a)
             : array ? bind_array_list(q, n, a)
                     : bind_json_list(q, n, a);
    return rc < 0 ? rc : 1;
}
