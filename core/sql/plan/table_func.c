/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/plan/table_func.c - functions in from that give rows: generate_series, range, json_each.
 *
 * The query's thread only.  Their arguments are constants.
 */
#include "core/sql/expr/kernel.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/sql/plan/plan.h"

static int bad(struct query *q, const struct node *n, const char *what)
{
    return sql_error(q->text, q->size, n->pos, -EINVAL, "%s: %s", n->text, what);
}

/* Constant number i of the arguments. */
static int constant(struct query *q, const struct node *call, uint32_t i, struct expr **ret)
{
    struct scope none = {.clause = "the arguments of a function in from"};
    int rc = sql_bind(q, &none, call->args[i], ret);
    if (rc == 0 && (*ret)->kind != EXPR_CONST)
        rc = sql_error(q->text, q->size, call->args[i]->pos, -EINVAL,
                       "%s: its arguments are constants, or columns on its left", call->text);
    return rc;
}

static struct op *make_op(struct query *q, op_next next, const char *name, const char *const *names,
                          const enum sql_type *types, uint32_t n)
{
    struct op *op = sql_op(q, next, name, n);
    for (uint32_t c = 0; op && c < n; c++)
        op->cols[c] = (struct col){.name = names[c], .type = types[c], .doc = ""};
    return op && sql_op_vectors(op) == 0 ? op : NULL;
}

/* ---- generate_series(first, last[, step]), range([first,] end[, step]) ---- */

struct series {
    __int128 next, last, step;
    int64_t months; /* by the calendar, and `step` behind them */
};

/* Each from the one before it, as PostgreSQL: from a 31st on they stay at the shortest month's. */
static int next_by_calendar(struct series *s)
{
    int64_t moved;
    int rc = sql_add_months((int64_t)s->next, s->months, &moved);
    s->next = (__int128)moved + s->step;
    return rc < 0 || s->next != (int64_t)s->next ? -ERANGE : 0;
}

static int next_series(struct op *op)
{
    struct series *s = op->state;
    uint32_t n = 0;
    bool up = s->months ? s->months > 0 : s->step > 0;
    for (; n < SQL_ROWS && (up ? s->next <= s->last : s->next >= s->last); n++) {
        op->out.v[0].i[n] = (int64_t)s->next;
        if (!s->months)
            s->next += s->step;
        else if (next_by_calendar(s) < 0)
            s->next = up ? s->last + 1 : s->last - 1;
    }
    op->out.n = op->out.n_sel = n;
    return n > 0;
}

static int plan_series(struct query *q, const struct node *call, struct op **ret)
{
    bool range = call->text[0] == 'r'; /* DuckDB's: the end is not among them */
    uint32_t n = call->n_args;
    struct expr *args[3] = {NULL, NULL, NULL};
    int rc = n == 2 || n == 3 || (n == 1 && range)
                 ? 0
                 : bad(q, call, range ? "it takes 1 to 3 arguments" : "it takes 2 or 3 arguments");
    for (uint32_t i = 0; i < n && rc == 0; i++)
        rc = constant(q, call, i, &args[i]);
    if (rc < 0)
        return rc;
    if (n == 1) {
        args[1] = args[0];
        args[0] = sql_const(q, (struct sql_value){.type = SQL_INT}, call->pos);
        n = 2;
    }
    if (!args[0])
        return -ENOMEM;
    enum sql_type type = sql_widens(args[0]->type, SQL_TIMESTAMP) ||
                                 sql_widens(args[1]->type, SQL_TIMESTAMP) ||
                                 args[0]->type == SQL_TIMESTAMP || args[1]->type == SQL_TIMESTAMP
                             ? SQL_TIMESTAMP
                             : SQL_INT;
    for (uint32_t i = 0; i < n && rc == 0; i++)
        rc = sql_coerce(q, &args[i], i == 2 && type == SQL_TIMESTAMP ? SQL_CALENDAR : type,
                        call->text);
    if (rc == 0 && type == SQL_TIMESTAMP && !args[2])
        rc = bad(q, call, "times need a step, like interval '1 min'");
    struct series *s = rc < 0 ? NULL : sql_get(q, 1, sizeof(*s));
    struct op *op = s ? make_op(q, next_series, call->text, &call->text, &type, 1) : NULL;
    if (!op)
        return rc < 0 ? rc : -ENOMEM;
    *s = (struct series){.next = 1, .last = 0, .step = 1}; /* NULL anywhere: no row */
    bool known = true;
    for (uint32_t i = 0; i < n; i++)
        known = known && args[i]->value.type != SQL_NULL;
    if (known) {
        s->next = args[0]->value.integer;
        s->last = args[1]->value.integer;
        struct interval step = {.ns = 1};
        if (args[2])
            step = type == SQL_TIMESTAMP ? sql_interval_unpack(args[2]->value.text.data)
                                         : (struct interval){.ns = args[2]->value.integer};
        s->step = step.ns;
        s->months = step.months;
        if ((step.ns == 0 && step.months == 0) || (step.months > 0 && step.ns < 0) ||
            (step.months < 0 && step.ns > 0))
            return bad(q, call,
                       step.ns ? "the months of a step and the rest of it must have the same sign"
                               : "the step cannot be 0");
        s->last -= !range ? 0 : step.months > 0 || step.ns > 0 ? 1 : -1;
    }
    op->state = s;
    *ret = op;
    return 0;
}

/* ---- json_each(text): the members of an object or array ---- */

struct members {
    const struct json *next;
    uint64_t number;
};

static int put_member(struct query *q, struct vec *v, uint32_t row, const struct json *j,
                      uint64_t number)
{
    static const char *const types[] = {"null", "boolean", "number", "string", "array", "object"};
    const char *key = j->key ? j->key : sql_getf(q, "%llu", (unsigned long long)number);
    struct text value;
    int rc = key ? sql_json_text(q, j, &value) : -ENOMEM;
    if (rc < 0)
        return rc;
    v[0].t[row] = (struct text){key, (uint32_t)strlen(key)};
    v[1].t[row] = value;
    if (!value.data)
        sql_set_null(&v[1], row);
    v[2].t[row] = (struct text){types[j->type], (uint32_t)strlen(types[j->type])};
    return 0;
}

static int next_member(struct op *op)
{
    struct members *m = op->state;
    uint32_t n = 0;
    int rc = 0;
    op->out.v[1].has_null = false;
    for (; n < SQL_ROWS && m->next && rc == 0; n++, m->next = m->next->next)
        rc = put_member(op->q, op->out.v, n, m->next, m->number++);
    op->out.n = op->out.n_sel = n;
    return rc < 0 ? rc : n > 0;
}

static int plan_json_each(struct query *q, const struct node *call, struct op **ret)
{
    static const char *const names[] = {"key", "value", "type"};
    static const enum sql_type types[] = {SQL_TEXT, SQL_TEXT, SQL_TEXT};
    struct expr *text;
    struct json *json = NULL;
    int rc = call->n_args == 1 ? constant(q, call, 0, &text) : bad(q, call, "it takes one text");
    if (rc == 0)
        rc = sql_coerce(q, &text, SQL_TEXT, call->text);
    if (rc == 0 && text->value.type != SQL_NULL)
        rc = json_parse(&q->mem, text->value.text.data, text->value.text.size, &json);
    if (rc == -EINVAL) {
        char why[ERR_TEXT_BYTES / 2];
        (void)snprintf(why, sizeof(why), "%s", err_text());
        return bad(q, call, why);
    }
    struct members *m = rc < 0 ? NULL : sql_get(q, 1, sizeof(*m));
    struct op *op = m ? make_op(q, next_member, "json_each", names, types, 3) : NULL;
    if (!op)
        return rc < 0 ? rc : -ENOMEM;
    m->next = json && (json->type == JSON_OBJECT || json->type == JSON_ARRAY) ? json->first : NULL;
    op->state = m;
    for (int c = 0; c < 3; c++)
        op->out.v[c].stable = true;
    *ret = op;
    return 0;
}

bool sql_gives_rows(const char *name)
{
    return strcmp(name, "generate_series") == 0 || strcmp(name, "range") == 0 ||
           strcmp(name, "json_each") == 0;
}

int sql_plan_function(struct query *q, const struct node *call, struct op **ret)
{
    if (call->star || call->distinct || call->filter || call->over || call->order)
        return bad(q, call, "in from it takes plain arguments");
    if (sql_gives_rows(call->text) && call->text[0] != 'j')
        return plan_series(q, call, ret);
    if (strcmp(call->text, "json_each") == 0)
        return plan_json_each(q, call, ret);
    return sql_error(q->text, q->size, call->pos, -EINVAL,
                     "unknown table function '%s'; use generate_series, range or json_each",
                     call->text);
}
