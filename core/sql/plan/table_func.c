/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/plan/table_func.c - functions in from that give rows: generate_series, range, json_each,
 * string_to_table ...
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
#include "core/sql/value/regexp.h"

static int refuse_call(struct query *q, const struct node *n, const char *what)
{
    return sql_error(q->text, q->size, n->pos, -EINVAL, "%s: %s", n->text, what);
}

/* Constant number i of the arguments. */
static int bind_constant(struct query *q, const struct node *call, uint32_t i, struct expr **ret)
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
                 : refuse_call(q, call,
                               range ? "it takes 1 to 3 arguments" : "it takes 2 or 3 arguments");
    for (uint32_t i = 0; i < n && rc == 0; i++)
        rc = bind_constant(q, call, i, &args[i]);
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
        rc = refuse_call(q, call, "times need a step, like interval '1 min'");
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
        if (sql_interval_ns(step, &step.ns) < 0)
            return refuse_call(q, call, "the step is too long");
        s->step = step.ns;
        s->months = step.months;
        if ((step.ns == 0 && step.months == 0) || (step.months > 0 && step.ns < 0) ||
            (step.months < 0 && step.ns > 0))
            return refuse_call(
                q, call,
                step.ns ? "the months of a step and the rest of it must have the same sign"
                        : "the step cannot be 0");
        s->last -= !range ? 0 : step.months > 0 || step.ns > 0 ? 1 : -1;
    }
    op->state = s;
    if (type == SQL_TIMESTAMP && args[0]->mark == args[1]->mark)
        op->cols[0].mark = args[0]->mark;
    *ret = op;
    return 0;
}

/* ---- json_each(text) ...: the members of an object or array ---- */

enum { /* what a function shows of each */
       SHOWS_KEY = 1,
       SHOWS_VALUE = 2,
       SHOWS_JSON = 4, /* the value as JSON, not the text that it says */
       SHOWS_TYPE = 8,
       OF_OBJECTS = 16,
       OF_ARRAYS = 32
};

static const struct json_kind {
    const char *name; /* behind json_ */
    uint32_t shows;
} json_kinds[] = {
    {"each", SHOWS_KEY | SHOWS_VALUE | SHOWS_TYPE | OF_OBJECTS | OF_ARRAYS},
    {"each_text", SHOWS_KEY | SHOWS_VALUE | OF_OBJECTS},
    {"object_keys", SHOWS_KEY | OF_OBJECTS},
    {"array_elements", SHOWS_JSON | OF_ARRAYS},
    {"array_elements_text", SHOWS_VALUE | OF_ARRAYS},
};

static const struct json_kind *find_json_kind(const char *name)
{
    bool json = strncmp(name, "json_", 5) == 0;
    for (size_t i = 0; json && i < sizeof(json_kinds) / sizeof(*json_kinds); i++)
        if (strcmp(name + 5, json_kinds[i].name) == 0)
            return &json_kinds[i];
    return NULL;
}

struct members {
    const struct json *next;
    uint64_t number;
    uint32_t shows;
};

static int put_member(struct query *q, struct vec *v, uint32_t row, const struct members *m)
{
    static const char *const types[] = {"null", "boolean", "number", "string", "array", "object"};
    const struct json *j = m->next;
    if (m->shows & SHOWS_KEY) {
        const char *key = j->key ? j->key : sql_getf(q, "%llu", (unsigned long long)m->number);
        if (!key)
            return -ENOMEM;
        (v++)->t[row] = (struct text){key, (uint32_t)strlen(key)};
    }
    if (m->shows & (SHOWS_VALUE | SHOWS_JSON)) {
        int rc = sql_json_text(q, j, (m->shows & SHOWS_JSON) != 0, &v->t[row]);
        if (rc < 0)
            return rc;
        if (!v->t[row].data)
            sql_set_null(v, row);
        v++;
    }
    if (m->shows & SHOWS_TYPE)
        v->t[row] = (struct text){types[j->type], (uint32_t)strlen(types[j->type])};
    return 0;
}

static int next_member(struct op *op)
{
    struct members *m = op->state;
    uint32_t n = 0;
    int rc = 0;
    for (uint32_t c = 0; c < op->n_cols; c++)
        op->out.v[c].has_null = false;
    for (; n < SQL_ROWS && m->next && rc == 0; n++, m->next = m->next->next, m->number++)
        rc = put_member(op->q, op->out.v, n, m);
    op->out.n = op->out.n_sel = n;
    return rc < 0 ? rc : n > 0;
}

static int plan_json(struct query *q, const struct node *call, const struct json_kind *kind,
                     struct op **ret)
{
    static const enum sql_type types[] = {SQL_TEXT, SQL_TEXT, SQL_TEXT};
    const char *names[3];
    uint32_t n = 0;
    struct expr *text;
    struct json *json = NULL;
    int rc = call->n_args == 1 ? bind_constant(q, call, 0, &text)
                               : refuse_call(q, call, "it takes one text");
    if (rc == 0)
        rc = sql_coerce(q, &text, SQL_TEXT, call->text);
    if (rc == 0 && text->value.type != SQL_NULL)
        rc = json_parse(&q->mem, text->value.text.data, text->value.text.size, &json);
    if (rc == -EINVAL) {
        char why[ERR_TEXT_BYTES / 2];
        (void)snprintf(why, sizeof(why), "%s", err_text());
        return refuse_call(q, call, why);
    }
    if (json && !(kind->shows & (json->type == JSON_ARRAY ? OF_ARRAYS : OF_OBJECTS)))
        return refuse_call(q, call,
                           json->type == JSON_ARRAY ? "this JSON is an array, and it takes objects"
                                                    : "this JSON is no array");
    if (json && json->type != JSON_ARRAY && json->type != JSON_OBJECT &&
        strcmp(kind->name, "each") != 0)
        return refuse_call(q, call, "this JSON is no object");
    if (kind->shows & SHOWS_KEY)
        names[n++] = kind->shows & (SHOWS_VALUE | SHOWS_JSON) ? "key" : call->text;
    if (kind->shows & (SHOWS_VALUE | SHOWS_JSON))
        names[n++] = "value";
    if (kind->shows & SHOWS_TYPE)
        names[n++] = "type";
    struct members *m = rc < 0 ? NULL : sql_get(q, 1, sizeof(*m));
    struct op *op = m ? make_op(q, next_member, call->text, names, types, n) : NULL;
    if (!op)
        return rc < 0 ? rc : -ENOMEM;
    m->next = json && (json->type == JSON_OBJECT || json->type == JSON_ARRAY) ? json->first : NULL;
    m->shows = kind->shows;
    op->state = m;
    for (uint32_t c = 0; c < n; c++)
        op->out.v[c].stable = true;
    op->cols[0].mark = kind->shows & SHOWS_JSON ? MARK_JSON : MARK_NONE; /* it is alone */
    *ret = op;
    return 0;
}

/* ---- string_to_table(text, ','), regexp_split_to_table(text, regexp) ---- */

struct pieces {
    struct text *list; /* data NULL: a NULL */
    uint32_t n, room, next;
};

static int add_piece(struct query *q, struct pieces *p, const char *data, size_t size)
{
    if (p->n == p->room) {
        uint32_t room = p->room ? 2 * p->room : 64;
        struct text *more = sql_grow(q, p->list, p->n, room, sizeof(*more));
        if (!more)
            return -ENOMEM;
        p->list = more;
        p->room = room;
    }
    p->list[p->n++] = (struct text){data, (uint32_t)size};
    return sql_worked(q, 1 + size / 64);
}

/* separator data NULL: each letter is one. */
static int split_text(struct query *q, struct text t, struct text separator, struct pieces *p)
{
    int rc = 0;
    uint32_t from = 0;
    while (from < t.size && rc == 0) {
        const char *at = separator.size
                             ? memmem(t.data + from, t.size - from, separator.data, separator.size)
                             : NULL;
        uint32_t end = at ? (uint32_t)(at - t.data) : t.size;
        if (!separator.data)
            for (end = from + 1; end < t.size && !sql_is_start(t.data[end]);)
                end++;
        rc = add_piece(q, p, t.data + from, end - from);
        from = end + (at ? separator.size : 0);
        if (at && from == t.size && rc == 0)
            rc = add_piece(q, p, t.data + from, 0);
    }
    return rc;
}

static int check_query(void *arg)
{
    return sql_check(arg);
}

/* An empty match at the begin, at the end or right behind another one divides nothing. */
static int split_by_regexp(struct query *q, struct text t, struct regexp *re, struct pieces *p)
{
    uint32_t slots[2 * REGEXP_GROUPS], from = 0, end = 0, at = 0;
    int rc = 0;
    while (at <= t.size && (rc = regexp_find(re, t.data, t.size, at, slots, check_query, q)) > 0) {
        if (slots[0] < t.size && slots[1] > end) {
            if ((rc = add_piece(q, p, t.data + from, slots[0] - from)) < 0)
                return rc;
            from = slots[1];
        }
        at = end = slots[1];
        if (slots[0] == slots[1])
            do
                at++;
            while (at < t.size && !sql_is_start(t.data[at]));
    }
    return rc < 0 ? rc : add_piece(q, p, t.data + from, t.size - from);
}

static int next_piece(struct op *op)
{
    struct pieces *p = op->state;
    struct vec *v = &op->out.v[0];
    uint32_t n = 0;
    v->has_null = false;
    for (; n < SQL_ROWS && p->next < p->n; n++, p->next++) {
        v->t[n] = p->list[p->next];
        if (!v->t[n].data)
            sql_set_null(v, n);
    }
    op->out.n = op->out.n_sel = n;
    return n > 0;
}

static int make_regexp(struct query *q, const struct node *call, struct text pattern,
                       struct text flags, struct regexp **ret)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < flags.size; i++) {
        if (flags.data[i] != 'i' && flags.data[i] != 'n')
            return refuse_call(q, call, "its flags are i (case) and n (lines)");
        bits |= flags.data[i] == 'i' ? REGEXP_FOLD : REGEXP_LINES;
    }
    int rc = regexp_new(&q->mem, pattern.data, pattern.size, bits, ret);
    char why[ERR_TEXT_BYTES / 2];
    (void)snprintf(why, sizeof(why), "%s", rc < 0 ? err_text() : "");
    return rc < 0 ? refuse_call(q, call, why) : 0;
}

static int plan_split(struct query *q, const struct node *call, struct op **ret)
{
    static const enum sql_type type = SQL_TEXT;
    bool regexp = call->text[0] == 'r';
    struct expr *e;
    struct text args[3] = {{NULL, 0}, {NULL, 0}, {NULL, 0}};
    struct regexp *re;
    int rc =
        call->n_args == 2 || call->n_args == 3 ? 0 : refuse_call(q, call, "it takes 2 or 3 texts");
    for (uint32_t i = 0; i < call->n_args && rc == 0; i++) {
        rc = bind_constant(q, call, i, &e);
        rc = rc < 0 ? rc : sql_coerce(q, &e, SQL_TEXT, call->text);
        if (rc == 0 && e->value.type != SQL_NULL)
            args[i] = (struct text){e->value.text.data, e->value.text.size};
    }
    struct pieces *p = rc < 0 ? NULL : sql_get(q, 1, sizeof(*p));
    struct op *op = p ? make_op(q, next_piece, call->text, &call->text, &type, 1) : NULL;
    if (!op)
        return rc < 0 ? rc : -ENOMEM;
    if (args[0].data && !regexp) {
        rc = split_text(q, args[0], args[1], p);
    } else if (args[0].data && args[1].data && (call->n_args < 3 || args[2].data)) {
        rc = make_regexp(q, call, args[1], args[2], &re);
        rc = rc < 0 ? rc : split_by_regexp(q, args[0], re, p);
    }
    for (uint32_t i = 0; i < p->n && !regexp && args[2].data; i++) /* what stands for NULL */
        if (sql_compare_text(p->list[i], args[2]) == 0)
            p->list[i] = (struct text){NULL, 0};
    op->state = p;
    op->out.v[0].stable = true;
    *ret = op;
    return rc;
}

/* ---- by name ---- */

static bool gives_series(const char *name)
{
    return strcmp(name, "generate_series") == 0 || strcmp(name, "range") == 0;
}

static bool is_split(const char *name)
{
    return strcmp(name, "string_to_table") == 0 || strcmp(name, "regexp_split_to_table") == 0;
}

int sql_plan_function(struct query *q, const struct node *call, struct op **ret)
{
    const struct json_kind *json = find_json_kind(call->text);
    if (call->star || call->distinct || call->filter || call->over || call->order)
        return refuse_call(q, call, "in from it takes plain arguments");
    if (gives_series(call->text))
        return plan_series(q, call, ret);
    if (json)
        return plan_json(q, call, json, ret);
    if (is_split(call->text))
        return plan_split(q, call, ret);
    return sql_error(q->text, q->size, call->pos, -EINVAL,
                     "unknown table function '%s'; use generate_series, range, json_each, "
                     "json_array_elements, string_to_table, regexp_split_to_table",
                     call->text);
}
