/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/bind/bind_subquery.c - selects within expressions: scalar, in, exists, also correlated
 * ones.
 *
 * A subquery that does not look at the query around it is run once, while binding, and becomes a
 * constant or a set.  One that does is planned once to learn which columns of the outer rows it
 * needs; then, while the outer query runs, it is planned and run once for each combination of their
 * values, with constants in their places, and the answer is remembered.
 * The query's thread only.
 */
#include "core/sql/plan/plan.h"

#include <errno.h>
#include <string.h>

#include "core/base/err.h"
#include "core/sql/value/timestamp_parts.h"

enum subquery_kind { SUBQUERY_SCALAR, SUBQUERY_EXISTS, SUBQUERY_IN };

struct subquery { /* of an EXPR_SUBQUERY: args are the outer columns, then for IN the probes */
    enum subquery_kind kind;
    const struct node *node;
    struct outer outer;
    struct cte *ctes;
    struct place place;
    struct expr *const *probes;
    uint32_t n_probes;
    enum sql_type type;
    struct keys keys; /* combinations of arguments seen */
    struct sql_value *answers;
    uint32_t room;
    bool ready;
};

/* ---- columns of the query around ---- */

static struct expr *given_argument(struct query *q, const struct outer *o, uint32_t i, uint32_t pos)
{
    struct sql_value v = {.type = SQL_NULL};
    struct expr *e = sql_const(q, o->values ? o->values[i] : v, pos);
    if (!e)
        return NULL;
    e->type = o->args[i]->type;
    e->unit = o->args[i]->unit;
    e->mark = o->args[i]->mark;
    e->literal = false;
    e->unknown = o->values == NULL;
    e->outer = 1;
    return e;
}

/* Its number among the arguments; o->n: it is none of them. */
static uint32_t number_of(const struct outer *o, int column, const struct node *call)
{
    uint32_t i = 0;
    while (i < o->n && (o->calls[i] ? o->calls[i] != call
                                    : call != NULL || o->args[i]->column != (uint32_t)column))
        i++;
    return i;
}

static int add_argument(struct query *q, struct outer *o, struct expr *e, const struct node *call)
{
    if (o->n == SQL_CALL_ARGS / 2)
        return sql_refuse(q, e->pos, "the subquery uses too many columns of the outer query");
    o->calls[o->n] = call;
    o->args[o->n++] = e;
    return 0;
}

int sql_bind_outer(struct query *q, const struct node *n, struct expr **ret)
{
    struct outer *o = q->outer;
    if (!o)
        return 0;
    int column = sql_find_column(q, o->op, n);
    if (column == COLUMN_AMBIGUOUS)
        return -EINVAL;
    if (column < 0) {
        q->outer = o->up;
        int rc = sql_bind_outer(q, n, ret);
        q->outer = o;
        o->unknown = o->unknown || (rc == 1 && (*ret)->unknown);
        if (rc == 1)
            (*ret)->outer++;
        return rc;
    }
    uint32_t i = number_of(o, column, NULL);
    if (i == o->n) {
        sql_want(o->op, (uint32_t)column);
        struct expr *e = sql_column_expr(q, o->op, (uint32_t)column, n->pos);
        int rc = e ? add_argument(q, o, e, NULL) : -ENOMEM;
        if (rc < 0)
            return rc;
    }
    *ret = given_argument(q, o, i, n->pos);
    return *ret ? 1 : -ENOMEM;
}

int sql_known_outer_agg(struct query *q, const struct node *n, struct expr **ret)
{
    const struct outer *o = q->outer;
    uint32_t i = o ? number_of(o, -1, n) : 0;
    if (!o || i == o->n)
        return 0;
    *ret = given_argument(q, o, i, n->pos);
    return *ret ? 1 : -ENOMEM;
}

int sql_bind_outer_agg(struct query *q, const struct node *n, const struct agg_kind *kind,
                       struct expr **ret)
{
    struct outer *o = q->outer;
    struct expr *e;
    q->outer = o->up;
    int rc = sql_agg_bind(q, o->scope, n, kind, &e);
    q->outer = o;
    rc = rc < 0 ? rc : add_argument(q, o, e, n);
    rc = rc < 0 ? rc : sql_known_outer_agg(q, n, ret);
    return rc < 0 ? rc : 0;
}

/* ---- answers ---- */

struct collected { /* rows of an answer, each n_cols values */
    struct query *q;
    struct sql_value *values;
    uint32_t n, n_cols; /* n: rows */
    uint64_t room, max;
    struct sandbox *box; /* the rows outlive it; NULL: there is none */
};

static int add_row(struct collected *c, const struct op *op, uint32_t row)
{
    uint64_t at = (uint64_t)c->n * c->n_cols;
    if (at + c->n_cols > c->room) {
        uint64_t room = c->room ? 2 * c->room : 16 * (uint64_t)c->n_cols;
        struct sql_value *more = sql_grow(c->q, c->values, at, room, sizeof(*more));
        if (!more)
            return -ENOMEM;
        c->values = more;
        c->room = room;
    }
    for (uint32_t i = 0; i < c->n_cols; i++) {
        struct sql_value v = sql_vec_value(c->q, &op->out.v[i], row);
        if (sql_is_textual(v.type)) {
            struct text t = sql_copy_text(c->q, (struct text){v.text.data, v.text.size});
            if (!(v.text.data = t.data))
                return -ENOMEM;
        }
        c->values[at + i] = v;
    }
    c->n++;
    return 0;
}

static int add_rows(struct collected *c, const struct op *op)
{
    struct query *q = c->q;
    struct arena inside = q->mem;
    int rc = 0;
    if (c->box)
        q->mem = c->box->mem;
    for (uint32_t k = 0; k < op->out.n_sel && c->n < c->max && rc == 0; k++)
        rc = add_row(c, op, op->out.sel ? op->out.sel[k] : k);
    if (c->box) {
        c->box->mem = q->mem;
        q->mem = inside;
    }
    return rc;
}

static int collect_values(struct collected *c, struct op *op)
{
    int rc = 0;
    while (c->n < c->max && (rc = sql_next(op)) > 0)
        if ((rc = add_rows(c, op)) < 0)
            return rc;
    return rc < 0 ? rc : 0;
}

static int value_of(struct query *q, const struct node *n, const struct collected *c,
                    struct sql_value *ret)
{
    if (n->kind == NODE_EXISTS)
        *ret = (struct sql_value){.type = SQL_BOOL, .boolean = c->n > 0};
    else if (c->n > 1)
        return sql_refuse(q, n->pos,
                          "a subquery used as a value gave more than one row; "
                          "use an aggregate or limit 1");
    else
        *ret = c->n ? c->values[0] : (struct sql_value){.type = SQL_NULL};
    return 0;
}

/* The values of a column as those that they are compared with: 1 as 1.0, a date as its midnight. */
static int widen_column(struct collected *c, uint32_t column, enum sql_type type)
{
    for (uint32_t r = 0; r < c->n; r++) {
        struct sql_value *v = &c->values[(uint64_t)r * c->n_cols + column];
        int64_t whole = v->integer;
        if (!sql_widens(v->type, type))
            continue;
        *v = (struct sql_value){.type = type, .integer = whole};
        if (type == SQL_DOUBLE)
            v->number = (double)whole;
        char *packed = type == SQL_CALENDAR ? sql_get(c->q, INTERVAL_BYTES, 1) : NULL;
        if (type == SQL_CALENDAR && !packed)
            return -ENOMEM;
        if (packed) {
            sql_interval_pack(sql_interval_of(whole), packed);
            v->text.data = packed;
            v->text.size = INTERVAL_BYTES;
        }
    }
    return 0;
}

/* ---- while the outer query runs ---- */

/* Plan and run it with these values; what it needs is thrown away but for the answer. */
static int run_with(struct query *q, struct subquery *s, const struct sql_value *values,
                    struct sql_value *ret)
{
    struct nested nested;
    struct collected c = {.q = q, .max = s->kind == SUBQUERY_EXISTS ? 1 : 2};
    struct op *op;
    int rc = sql_nested_enter(q, &nested, &s->place);
    if (rc < 0)
        return rc;
    s->outer.values = values;
    c.max = s->kind == SUBQUERY_IN ? UINT32_MAX : c.max;
    rc = sql_plan_select(q, s->node->select, s->ctes, &op);
    for (uint32_t i = 0; rc == 0 && i < op->n_cols; i++)
        sql_want(op, i);
    if (rc == 0) {
        c.n_cols = op->n_cols;
        rc = collect_values(&c, op);
    }
    for (uint32_t i = 0; i < s->n_probes && rc == 0; i++)
        rc = widen_column(&c, i, s->probes[i]->type);
    if (rc == 0 && s->kind == SUBQUERY_IN)
        *ret = sql_is_among(values + s->outer.n, c.values, c.n, c.n_cols);
    else if (rc == 0)
        rc = value_of(q, s->node, &c, ret);
    s->outer.values = NULL;
    return sql_nested_leave(q, &nested, rc == 0 ? ret : NULL, rc);
}

static int answer_new(struct run *r, struct step *st, struct subquery *s, uint32_t row)
{
    struct sql_value values[SQL_CALL_ARGS];
    uint32_t n = s->keys.n; /* the newest is the last */
    if (n > s->room) {
        uint32_t room = s->room ? 2 * s->room : 64;
        struct sql_value *more = sql_grow(r->q, s->answers, s->room, room, sizeof(*more));
        if (!more)
            return -ENOMEM;
        s->answers = more;
        s->room = room;
    }
    for (uint32_t a = 0; a < st->n_args; a++)
        values[a] = sql_vec_value(r->q, st->args[a], row);
    int rc = sql_check(r->q);
    return rc < 0 ? rc : run_with(r->q, s, values, &s->answers[n - 1]);
}

static void put_value(const struct step *st, uint32_t row, const struct sql_value *v)
{
    bool negated = st->expr->negated;
    if (v->type == SQL_NULL) {
        sql_set_null(st->dst, row);
        return;
    }
    if (st->dst->has_null)
        st->dst->null[row] = 0;
    if (sql_is_textual(v->type))
        st->dst->t[row] = (struct text){v->text.data, v->text.size};
    else if (v->type == SQL_DOUBLE)
        st->dst->d[row] = v->number;
    else
        st->dst->i[row] = v->type == SQL_BOOL ? v->boolean != negated : v->integer;
}

static int run_subquery(struct run *r, struct step *st, const uint16_t *sel, uint32_t n)
{
    struct subquery *s = st->expr->set;
    enum sql_type types[SQL_CALL_ARGS];
    for (uint32_t a = 0; a < st->n_args; a++)
        types[a] = st->expr->args[a]->type;
    int rc = s->ready ? 0 : sql_keys_init(&s->keys, r->q, types, NULL, st->n_args);
    s->ready = true;
    st->dst->stable = true;
    for (uint32_t k = 0; k < n && rc == 0; k++) {
        uint32_t number, known = s->keys.n;
        uint16_t row = sel ? sel[k] : (uint16_t)k;
        rc = sql_keys_add(&s->keys, st->args, &row, 1, &number);
        if (rc == 0 && number == known)
            rc = answer_new(r, st, s, row);
        if (rc == 0)
            put_value(st, row, &s->answers[number]);
    }
    return rc;
}

/* ---- binding ---- */

struct answer { /* of a subquery that stands alone: run once, however often it is planned */
    struct collected c;
    struct op *op;
};

static int keep_answer(struct query *q, const struct node *n, const struct collected *c,
                       struct op *op)
{
    struct answer *a = q->n_running || q->dry ? NULL : sql_get(q, 1, sizeof(*a));
    if (!a)
        return q->n_running || q->dry ? 0 : -ENOMEM;
    *a = (struct answer){*c, op};
    *n->answer = a;
    return 0;
}

/* Run what stands alone, planned once more so that all its memory goes with it but the answer. */
static int run_alone(struct query *q, const struct node *n, struct cte *ctes, struct outer *outer,
                     struct collected *c)
{
    struct sandbox box;
    struct outer *up = q->outer;
    struct op *op;
    sql_sandbox_enter(q, &box);
    q->outer = outer;
    int rc = sql_plan_select(q, n->select, ctes, &op);
    q->outer = up;
    for (uint32_t i = 0; rc == 0 && i < op->n_cols; i++)
        sql_want(op, i);
    c->box = &box;
    if (rc == 0)
        rc = collect_values(c, op);
    c->box = NULL;
    return sql_sandbox_leave(q, &box, NULL, rc);
}

/* Plan it, and run it when it stands alone.  1: it needs rows of the outer query, in *ret. */
static int plan_subquery(struct query *q, struct scope *s, const struct node *n, uint64_t max,
                         struct collected *c, struct outer *ret, struct op **ret_op)
{
    struct op nothing = {.n_cols = 0}, *op;
    struct outer *outer = q->outer;
    *ret = (struct outer){.op = s->op ? s->op : &nothing, .up = outer, .scope = s};
    const struct answer *known = *n->answer;
    if (known) {
        *c = known->c;
        *ret_op = known->op;
        return 0;
    }
    ret->args = sql_get(q, SQL_CALL_ARGS, sizeof(struct expr *));
    ret->calls = sql_get(q, SQL_CALL_ARGS, sizeof(struct node *));
    if (!ret->args || !ret->calls)
        return -ENOMEM;
    q->outer = ret;
    q->subqueries = true;
    const struct query_notes notes = q->notes;
    int rc = sql_plan_select(q, n->select, s->ctes, &op);
    q->outer = outer;
    sql_notes_looked(q, &notes);
    if (rc < 0)
        return rc;
    *ret_op = op;
    *c = (struct collected){.q = q, .max = max, .n_cols = op->n_cols};
    if (ret->n || ret->unknown)
        return 1;
    rc = q->dry ? 0 : run_alone(q, n, s->ctes, ret, c);
    return rc < 0 ? rc : keep_answer(q, n, c, op);
}

/* A select is told from others by its text, or by its address if it stands in none. */
static struct sql_value identity_of(const struct query *q, const struct select *s)
{
    if (s->end > s->start)
        return (struct sql_value){.type = SQL_TEXT,
                                  .text = {q->text + s->start, s->end - s->start}};
    return (struct sql_value){.type = SQL_INT, .integer = (int64_t)(uintptr_t)s};
}

/* The expression of a subquery to be run for each row. */
static int make_per_row(struct query *q, struct scope *s, const struct node *n,
                        const struct outer *o, enum sql_type type, struct expr **probes,
                        uint32_t n_probes, struct expr **ret)
{
    struct subquery *sub = sql_get(q, 1, sizeof(*sub));
    struct expr *e = sql_new_expr(q, EXPR_SUBQUERY, type, n->pos, o->n + n_probes);
    if (!sub || !e)
        return -ENOMEM;
    if (!s->allow_correlated)
        return sql_error(q->text, q->size, n->pos, -EINVAL,
                         "a subquery in %s cannot use columns of the outer query",
                         s->clause ? s->clause : "this place");
    *sub = (struct subquery){.kind = n->kind == NODE_EXISTS      ? SUBQUERY_EXISTS
                                     : n->kind == NODE_IN_SELECT ? SUBQUERY_IN
                                                                 : SUBQUERY_SCALAR,
                             .node = n,
                             .outer = *o,
                             .ctes = s->ctes,
                             .place = sql_place(q),
                             .probes = e->args + o->n,
                             .n_probes = n_probes,
                             .type = type};
    sub->place.outer = &sub->outer;
    sub->outer.scope = NULL;
    e->run = run_subquery;
    memcpy(e->args, o->args, o->n * sizeof(struct expr *));
    if (n_probes)
        memcpy(e->args + o->n, probes, n_probes * sizeof(struct expr *));
    e->negated = n->negated;
    e->column = sub->kind;
    e->value = identity_of(q, n->select);
    e->set = sub;
    *ret = e;
    return 0;
}

static struct expr *typed_null(struct query *q, enum sql_type type, uint32_t pos)
{
    struct expr *e = sql_const(q, (struct sql_value){.type = SQL_NULL}, pos);
    if (e) {
        e->type = type;
        e->literal = false;
        e->unknown = true;
    }
    return e;
}

int sql_bind_subquery(struct query *q, struct scope *s, const struct node *n, struct expr **ret)
{
    struct collected c;
    struct outer outer;
    struct op *op;
    struct sql_value v;
    bool exists = n->kind == NODE_EXISTS;
    int rc = plan_subquery(q, s, n, exists ? 1 : 2, &c, &outer, &op);
    if (rc < 0)
        return rc;
    if (!exists && op->n_cols != 1)
        return sql_error(q->text, q->size, n->pos, -EINVAL,
                         "a subquery used as a value must give one column, this one gives %u",
                         op->n_cols);
    enum sql_type type = exists ? SQL_BOOL : op->cols[0].type;
    if (outer.n) {
        rc = make_per_row(q, s, n, &outer, type, NULL, 0, ret);
    } else if (outer.unknown) {
        *ret = typed_null(q, type, n->pos);
    } else {
        rc = value_of(q, n, &c, &v);
        *ret = rc < 0 ? NULL : sql_const(q, v, n->pos);
        if (*ret) {
            (*ret)->type = type;
            (*ret)->literal = false;
        }
    }
    if (rc < 0 || !*ret)
        return rc < 0 ? rc : -ENOMEM;
    (*ret)->mark = exists ? MARK_NONE : op->cols[0].mark;
    return 0;
}

/* The probes get the types of the columns, where these do not become theirs. */
static int in_types(struct query *q, const struct op *op, struct expr **probes, struct collected *c)
{
    int rc = 0;
    for (uint32_t i = 0; i < c->n_cols && rc == 0; i++) {
        enum sql_type type = op->cols[i].type;
        if (sql_widens(type, probes[i]->type))
            rc = widen_column(c, i, probes[i]->type);
        else if (type != SQL_NULL)
            rc = sql_coerce(q, &probes[i], type, "in");
        else if (probes[i]->type == SQL_NULL)
            rc = sql_cast_to(q, &probes[i], SQL_TEXT, false);
    }
    return rc;
}

int sql_bind_in_select(struct query *q, struct scope *s, const struct node *n, struct expr **ret)
{
    struct collected c;
    struct outer outer;
    struct op *op;
    const struct node *left = n->args[0];
    uint32_t n_probes = left->kind == NODE_ROW ? left->n_args : 1;
    struct expr **probes = sql_get(q, n_probes, sizeof(struct expr *));
    int rc = probes && n_probes <= SQL_CALL_ARGS / 2 ? 0 : -ENOMEM;
    for (uint32_t i = 0; i < n_probes && rc == 0; i++)
        rc = sql_bind(q, s, left->kind == NODE_ROW ? left->args[i] : left, &probes[i]);
    if (rc == 0)
        rc = plan_subquery(q, s, n, UINT32_MAX, &c, &outer, &op);
    if (rc < 0)
        return rc;
    if (op->n_cols != n_probes)
        return sql_error(q->text, q->size, n->pos, -EINVAL,
                         "the subquery of in gives %u columns where %u are compared", op->n_cols,
                         n_probes);
    rc = in_types(q, op, probes, &c);
    if (rc < 0)
        return rc;
    if (outer.n)
        return make_per_row(q, s, n, &outer, SQL_BOOL, probes, n_probes, ret);
    if (outer.unknown) {
        *ret = typed_null(q, SQL_BOOL, n->pos);
        return *ret ? 0 : -ENOMEM;
    }
    if (c.n == 0) { /* nothing is in nothing, NULL neither */
        *ret = sql_const(q, (struct sql_value){.type = SQL_BOOL, .boolean = n->negated}, n->pos);
        return *ret ? 0 : -ENOMEM;
    }
    return sql_bind_in_rows(q, n, probes, n_probes, c.values, c.n, ret);
}
