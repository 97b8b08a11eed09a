/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/exec/pipeline.c - the plain operators: filter, project, limit.
 *
 * The query's thread only.  None of them moves a row: they narrow selections and compute vectors.
 */
#include "core/sql/exec/ops.h"

#include <errno.h>
#include <string.h>

#include "core/base/err.h"

/* ---- filter ---- */

/* One condition: `column compare constant` on fixed-width values runs without steps. */
struct condition {
    struct expr *expr;
    struct program *program;
    const struct vec *v;
    bool pushed; /* to the scan: nothing to do where v is inside */
    int compare; /* 0: by program; else '<', 'l' (<=), '>', 'g' (>=), '=', 'n' (<>) */
    int64_t integer;
    double number;
};

struct filter {
    struct condition *conditions;
    uint32_t n, room;
    uint16_t *sel[2];
};

#define NARROW(test)                           \
    do {                                       \
        if (from) {                            \
            for (uint32_t k = 0; k < n; k++) { \
                uint32_t i = from[k];          \
                to[m] = (uint16_t)i;           \
                m += (test);                   \
            }                                  \
        } else {                               \
            for (uint32_t i = 0; i < n; i++) { \
                to[m] = (uint16_t)i;           \
                m += (test);                   \
            }                                  \
        }                                      \
    } while (0)

static uint32_t narrow_ints(const struct condition *c, const uint16_t *from, uint32_t n,
                            uint16_t *to)
{
    const int64_t *v = c->v->i, x = c->integer;
    uint32_t m = 0;
    if (c->compare == '<')
        NARROW(v[i] < x);
    else if (c->compare == 'l')
        NARROW(v[i] <= x);
    else if (c->compare == '>')
        NARROW(v[i] > x);
    else if (c->compare == 'g')
        NARROW(v[i] >= x);
    else if (c->compare == '=')
        NARROW(v[i] == x);
    else
        NARROW(v[i] != x);
    return m;
}

/* NaN is larger than everything: PostgreSQL's order.  x itself is never NaN here. */
static uint32_t narrow_doubles(const struct condition *c, const uint16_t *from, uint32_t n,
                               uint16_t *to)
{
    const double *v = c->v->d, x = c->number;
    uint32_t m = 0;
    if (c->compare == '<')
        NARROW(v[i] < x);
    else if (c->compare == 'l')
        NARROW(v[i] <= x);
    else if (c->compare == '>')
        NARROW(!(v[i] <= x));
    else if (c->compare == 'g')
        NARROW(!(v[i] < x));
    else if (c->compare == '=')
        NARROW(v[i] == x);
    else
        NARROW(v[i] != x);
    return m;
}

static uint32_t without_nulls(const struct vec *v, uint16_t *sel, uint32_t n)
{
    uint32_t m = 0;
    for (uint32_t k = 0; k < n; k++) {
        uint16_t i = sel[k];
        sel[m] = i;
        m += !v->null[i];
    }
    return m;
}

static int apply_condition(const struct condition *c, const uint16_t *from, uint32_t n,
                           uint16_t *to)
{
    if (!c->compare)
        return sql_run_filter(c->program, from, n, to);
    uint32_t m =
        c->v->type == SQL_DOUBLE ? narrow_doubles(c, from, n, to) : narrow_ints(c, from, n, to);
    return (int)(c->v->has_null ? without_nulls(c->v, to, m) : m);
}

static int next_filter(struct op *op)
{
    struct filter *f = op->state;
    int rc = sql_next(op->child);
    if (rc <= 0)
        return rc;
    const struct batch *in = &op->child->out;
    const uint16_t *sel = in->sel;
    uint32_t n = in->n_sel;
    for (uint32_t i = 0; i < f->n && n; i++) {
        uint16_t *to = f->sel[i % 2];
        if (f->conditions[i].pushed && f->conditions[i].v->inside)
            continue;
        int m = apply_condition(&f->conditions[i], sel, n, to);
        if (m < 0)
            return m;
        if ((uint32_t)m < n || sel) {
            sel = to;
            n = (uint32_t)m;
        }
    }
    op->out = (struct batch){.n = in->n, .sel = n == in->n ? NULL : sel, .n_sel = n, .v = in->v};
    return 1;
}

static int compare_code(const struct expr *e)
{
    const char *name = e->func->name;
    if (strcmp(name, "<>") == 0)
        return 'n';
    if (!strchr("<>=", name[0]))
        return 0;
    return name[1] == '=' ? (name[0] == '<' ? 'l' : 'g') : name[0];
}

static void try_fast(struct condition *c, struct batch *in, const struct expr *e)
{
    if (e->kind != EXPR_CALL || e->n_args != 2 || e->args[0]->kind != EXPR_COLUMN ||
        e->args[1]->kind != EXPR_CONST || sql_is_textual(e->args[0]->type) ||
        e->args[1]->value.type != e->args[0]->type || e->args[0]->type == SQL_BOOL)
        return;
    const struct sql_value *x = &e->args[1]->value;
    if (x->type == SQL_DOUBLE && x->number != x->number)
        return;
    c->compare = compare_code(e);
    c->v = &in->v[e->args[0]->column];
    c->integer = x->integer;
    c->number = x->number;
}

static void pass_want(struct op *op, uint32_t column)
{
    sql_want(op->child, column);
}

static int add_condition(struct op *op, struct expr *e, struct condition *ret)
{
    ret->expr = e;
    if (!sql_expr_is_free(e))
        op->beside = NULL;
    try_fast(ret, &op->child->out, e);
    return ret->compare ? 0 : sql_compile(op->q, &op->child->out, &e, 1, &ret->program);
}

static int filter_beside(struct query *q, struct op *op, struct op *child, struct op **ret)
{
    const struct filter *f = op->state;
    struct expr **conjuncts = sql_get(q, f->n, sizeof(struct expr *));
    if (!conjuncts)
        return -ENOMEM;
    for (uint32_t i = 0; i < f->n; i++)
        conjuncts[i] = f->conditions[i].expr;
    int rc = sql_filter(child, conjuncts, f->n, ret);
    struct filter *other = rc == 0 ? (*ret)->state : NULL;
    for (uint32_t i = 0; other && i < f->n; i++)
        other->conditions[i].pushed = f->conditions[i].pushed;
    return rc;
}

int sql_filter(struct op *child, struct expr **conjuncts, uint32_t n, struct op **ret)
{
    struct query *q = child->q;
    struct op *op = sql_op(q, next_filter, "filter", child->n_cols);
    struct filter *f = op ? sql_get(q, 1, sizeof(*f)) : NULL;
    if (!f)
        return -ENOMEM;
    op->child = child;
    op->state = f;
    op->on_want = pass_want;
    op->beside = filter_beside;
    memcpy(op->cols, child->cols, child->n_cols * sizeof(*op->cols));
    op->out.v = child->out.v;
    f->n = f->room = n;
    f->conditions = sql_get(q, n, sizeof(*f->conditions));
    f->sel[0] = sql_get(q, SQL_ROWS, sizeof(uint16_t));
    f->sel[1] = sql_get(q, SQL_ROWS, sizeof(uint16_t));
    if (!f->conditions || !f->sel[0] || !f->sel[1])
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++) {
        int rc = add_condition(op, conjuncts[i], &f->conditions[i]);
        if (rc < 0)
            return rc;
    }
    *ret = op;
    return 0;
}

int sql_filter_add(struct op **op, struct expr *condition, bool pushed)
{
    if ((*op)->next != next_filter) {
        int rc = sql_filter(*op, &condition, 1, op);
        struct filter *made = rc == 0 ? (*op)->state : NULL;
        if (made)
            made->conditions[0].pushed = pushed && made->conditions[0].compare;
        return rc;
    }
    struct op *filter = *op;
    struct filter *f = filter->state;
    struct query *q = filter->q;
    if (f->n == f->room) {
        struct condition *more = sql_get(q, 2 * (size_t)f->room, sizeof(*more));
        if (!more)
            return -ENOMEM;
        memcpy(more, f->conditions, f->n * sizeof(*more));
        f->conditions = more;
        f->room *= 2;
    }
    int rc = add_condition(filter, condition, &f->conditions[f->n]);
    f->conditions[f->n].pushed = pushed && f->conditions[f->n].compare;
    f->n += rc == 0;
    return rc;
}

/* ---- project ---- */

struct project {
    struct program *program;
    struct expr **exprs;
    struct vec **results;
};

static int next_project(struct op *op)
{
    struct project *p = op->state;
    int rc = sql_next(op->child);
    if (rc <= 0)
        return rc;
    rc = sql_run_program(p->program, p->results);
    if (rc < 0)
        return rc;
    for (uint32_t c = 0; c < op->n_cols; c++)
        op->out.v[c] = *p->results[c];
    op->out.n = op->child->out.n;
    op->out.sel = op->child->out.sel;
    op->out.n_sel = op->child->out.n_sel;
    return 1;
}

static int project_beside(struct query *q, struct op *op, struct op *child, struct op **ret)
{
    const struct project *p = op->state;
    (void)q;
    return sql_project(child, p->exprs, op->cols, op->n_cols, ret);
}

int sql_project(struct op *child, struct expr **exprs, struct col *cols, uint32_t n,
                struct op **ret)
{
    struct query *q = child->q;
    struct op *op = sql_op(q, next_project, "project", n);
    struct project *p = op ? sql_get(q, 1, sizeof(*p)) : NULL;
    if (!p)
        return -ENOMEM;
    op->child = child;
    op->state = p;
    op->beside = project_beside;
    p->exprs = sql_get(q, n, sizeof(struct expr *));
    p->results = sql_get(q, n, sizeof(*p->results));
    if (!p->exprs || !p->results)
        return -ENOMEM;
    memcpy(p->exprs, exprs, n * sizeof(struct expr *));
    for (uint32_t c = 0; c < n; c++) {
        if (!sql_expr_is_free(exprs[c]))
            op->beside = NULL;
        op->cols[c] = cols[c];
        op->cols[c].type = exprs[c]->type;
        op->cols[c].dict = exprs[c]->kind == EXPR_COLUMN && child->cols[exprs[c]->column].dict;
        op->out.v[c] = (struct vec){.type = exprs[c]->type};
    }
    *ret = op;
    return sql_compile(q, &child->out, exprs, n, &p->program);
}

const struct expr *sql_project_expr(const struct op *op, uint32_t column)
{
    return op->next == next_project ? ((const struct project *)op->state)->exprs[column] : NULL;
}

/* ---- limit ---- */

struct limit {
    uint64_t left, skip;
    uint16_t *sel;
};

static int next_limit(struct op *op)
{
    struct limit *l = op->state;
    if (l->left == 0)
        return 0;
    int rc = sql_next(op->child);
    if (rc <= 0)
        return rc;
    const struct batch *in = &op->child->out;
    uint32_t skip = l->skip < in->n_sel ? (uint32_t)l->skip : in->n_sel;
    uint32_t n = in->n_sel - skip;
    n = l->left < n ? (uint32_t)l->left : n;
    l->skip -= skip;
    l->left -= n;
    memcpy(l->sel, (in->sel ? in->sel : op->q->all) + skip, n * sizeof(*l->sel));
    op->out = (struct batch){.n = in->n, .sel = l->sel, .n_sel = n, .v = in->v};
    return 1;
}

int sql_limit(struct op *child, uint64_t limit, uint64_t offset, struct op **ret)
{
    struct query *q = child->q;
    struct op *op = sql_op(q, next_limit, "limit", child->n_cols);
    struct limit *l = op ? sql_get(q, 1, sizeof(*l)) : NULL;
    if (!l || !(l->sel = sql_get(q, SQL_ROWS, sizeof(uint16_t))))
        return -ENOMEM;
    l->left = limit;
    l->skip = offset;
    op->child = child;
    op->state = l;
    op->on_want = pass_want;
    op->out.v = child->out.v;
    memcpy(op->cols, child->cols, child->n_cols * sizeof(*op->cols));
    op->detail = limit == UINT64_MAX ? sql_getf(q, "offset %llu", (unsigned long long)offset)
                                     : sql_getf(q, "%llu", (unsigned long long)limit);
    *ret = op;
    return op->detail ? 0 : -ENOMEM;
}

/* ---- limit with ties ---- */

struct ties {
    struct limit limit;
    const struct sort_key *keys;
    uint32_t n_keys;
    struct vec *last; /* in row 0 the keys of the last row that the limit took */
    bool began, ended;
};

static bool ties_with_last(const struct ties *t, const struct batch *in, uint32_t i)
{
    if (!t->began) /* of no rows: nothing ties with the last of them */
        return false;
    for (uint32_t k = 0; k < t->n_keys; k++) {
        const struct vec *v = &in->v[t->keys[k].column];
        bool null = sql_is_null(v, i), last_null = sql_is_null(&t->last[k], 0);
        if (null != last_null || (!null && sql_compare_values(v, i, &t->last[k], 0) != 0))
            return false;
    }
    return true;
}

static int keep_last(struct op *op, uint32_t i)
{
    struct ties *t = op->state;
    for (uint32_t k = 0; k < t->n_keys; k++) {
        struct sql_value x = sql_vec_value(op->q, &op->child->out.v[t->keys[k].column], i);
        if (sql_is_textual(x.type)) {
            struct text copy =
                sql_copy_text(op->q, (struct text){x.text.data, (uint32_t)x.text.size});
            if (!copy.data)
                return -ENOMEM;
            x.text.data = copy.data;
        }
        t->last[k].has_null = false;
        if (x.type == SQL_NULL)
            sql_set_null(&t->last[k], 0);
        else
            sql_put_value(&t->last[k], 0, &x);
    }
    t->began = true;
    return 0;
}

static int next_ties(struct op *op)
{
    struct ties *t = op->state;
    int rc = t->ended ? 0 : sql_next(op->child);
    if (rc <= 0)
        return rc;
    const struct batch *in = &op->child->out;
    uint32_t m = 0;
    for (uint32_t k = 0; k < t->n_keys; k++)
        if (sql_is_textual(in->v[t->keys[k].column].type))
            sql_texts(op->q, &in->v[t->keys[k].column], in->sel, in->n_sel);
    for (uint32_t k = 0; k < in->n_sel && !t->ended; k++) {
        uint16_t i = in->sel ? in->sel[k] : (uint16_t)k;
        if (t->limit.left && t->limit.skip) {
            t->limit.skip--;
        } else if (t->limit.left) {
            t->limit.sel[m++] = i;
            if (--t->limit.left == 0)
                rc = keep_last(op, i);
        } else if (ties_with_last(t, in, i)) {
            t->limit.sel[m++] = i;
        } else {
            t->ended = true;
        }
        if (rc < 0)
            return rc;
    }
    op->out = (struct batch){.n = in->n, .sel = t->limit.sel, .n_sel = m, .v = in->v};
    return 1;
}

int sql_limit_ties(struct op *child, uint64_t limit, uint64_t offset, const struct sort_key *keys,
                   uint32_t n, uint32_t n_out, struct op **ret)
{
    struct query *q = child->q;
    struct op *op = sql_op(q, next_ties, "limit with ties", child->n_cols);
    struct ties *t = op ? sql_get(q, 1, sizeof(*t)) : NULL;
    if (!t)
        return -ENOMEM;
    *t = (struct ties){.limit = {.left = limit, .skip = offset}, .keys = keys, .n_keys = n};
    t->limit.sel = sql_get(q, SQL_ROWS, sizeof(uint16_t));
    t->last = sql_get(q, n, sizeof(*t->last));
    if (!t->limit.sel || !t->last)
        return -ENOMEM;
    for (uint32_t k = 0; k < n; k++)
        if (sql_vec_room(q, &t->last[k], child->cols[keys[k].column].type) < 0)
            return -ENOMEM;
    for (uint32_t c = 0; c < child->n_cols; c++)
        sql_want(child, c);
    op->child = child;
    op->state = t;
    op->out.v = child->out.v;
    memcpy(op->cols, child->cols, child->n_cols * sizeof(*op->cols));
    op->n_cols = n_out;
    op->detail = sql_getf(q, "%llu", (unsigned long long)limit);
    *ret = op;
    return op->detail ? 0 : -ENOMEM;
}

void sql_want(struct op *op, uint32_t column)
{
    if (op->want)
        op->want[column] = true;
    if (op->on_want)
        op->on_want(op, column);
}
