/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/plan/bind_json.c - which texts are JSON, and values made JSON where a builder takes
 * them.
 *
 * JSON has no type of its own here: an expression is marked instead, so that JSON within JSON is
 * not quoted a second time.  The query's thread only.
 */
#include <errno.h>
#include <string.h>

#include "core/sql/plan/bind.h"

bool sql_gives_json(const char *function)
{
    static const char *const names[] = {
        "to_json",           "to_jsonb",           "json",      "try_json",
        "json_build_array",  "json_build_object",  "json_agg",  "->",
        "jsonb_build_array", "jsonb_build_object", "jsonb_agg", "json_extract",
        "json_extract_path", "jsonb_extract_path"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strcmp(names[i], function) == 0)
            return true;
    return false;
}

int sql_make_json(struct query *q, const struct node *n, struct expr **e)
{
    if ((*e)->json)
        return 0;
    enum sql_type t = (*e)->type;
    bool plain =
        t == SQL_TEXT || t == SQL_INT || t == SQL_DOUBLE || t == SQL_BOOL || t == SQL_TIMESTAMP;
    int rc = plain ? 0 : sql_cast_to(q, e, SQL_TEXT, false);
    return rc < 0 || t == SQL_NULL ? rc : sql_call_named(q, n, "to_json", *e, NULL, e);
}

/* A copy: the expression may be an aggregate that stands elsewhere too. */
int sql_unmark_json(struct query *q, struct expr **e)
{
    if (!(*e)->json)
        return 0;
    struct expr *copy = sql_get(q, 1, sizeof(*copy));
    if (!copy)
        return -ENOMEM;
    *copy = **e;
    copy->json = false;
    *e = copy;
    return 0;
}

int sql_unify_json(struct query *q, const struct node *n, struct expr **e, uint32_t count,
                   bool *ret_json)
{
    bool any = false, all = true;
    int rc = 0;
    for (uint32_t i = 0; i < count; i++) {
        any = any || e[i]->json;
        all = all && (e[i]->json || e[i]->literal);
    }
    *ret_json = any && all;
    for (uint32_t i = 0; i < count && any && all && rc == 0; i++) {
        struct sql_value v;
        if (e[i]->json || e[i]->type != SQL_TEXT)
            continue;
        rc = sql_call_named(q, n, "json", e[i], NULL, &e[i]);
        rc = rc < 0 ? rc : sql_fold(q, e[i], &v); /* wrong whether or not a row comes */
    }
    return rc;
}

int sql_unite_json(struct query *q, uint32_t pos, struct expr *pair[2], bool *ret_json)
{
    const struct node call = {.kind = NODE_CALL, .pos = pos};
    int rc = 0;
    *ret_json = pair[0]->json || pair[1]->json;
    for (int i = 0; i < 2 && *ret_json && rc == 0; i++)
        if (!pair[i]->json && pair[i]->type == SQL_TEXT)
            rc = sql_call_named(q, &call, "json", pair[i], NULL, &pair[i]);
    return rc;
}

int sql_bind_json(struct query *q, const struct node *n, struct expr **args, struct expr **ret)
{
    bool one =
        n->n_args == 1 && (strcmp(n->text, "to_json") == 0 || strcmp(n->text, "to_jsonb") == 0);
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
            rc = sql_unmark_json(q, &args[i]);
        rc = rc < 0 ? rc : sql_make_json(q, n, &args[i]);
    }
    if (one)
        *ret = args[0];
    return rc < 0 ? rc : one;
}
