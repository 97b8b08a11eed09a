/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/plan/plan_join.c - joins, and where: each condition goes as far down as it may.
 *
 * The query's thread only.  A comparison with a constant reaches the scan, which skips what cannot
 * match; the filter above stays, since a scan may give more.  A condition on one side of a join
 * filters that side; an equality over both is a key of the join.
 */
#include "core/sql/plan/plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/base/err.h"

const char *sql_mirrored(const char *compare)
{
    switch (compare[0]) {
    case '<':
        return compare[1] == '=' ? ">=" : compare[1] == '>' ? "<>" : ">";
    case '>':
        return compare[1] == '=' ? "<=" : "<";
    default:
        return compare;
    }
}

/* ---- conditions, as far down as they may go ---- */

static bool push_bound(struct op *op, const struct expr *e)
{
    bool pushed = false;
    if (e->kind != EXPR_CALL || e->n_args != 2 || !strchr("<>=", e->func->name[0]))
        return false;
    for (int side = 0; side < 2; side++)
        if (e->args[side]->kind == EXPR_COLUMN && e->args[1 - side]->kind == EXPR_CONST &&
            e->args[1 - side]->value.type != SQL_NULL)
            pushed = sql_push_bound(op, e->args[side]->column,
                                    side ? sql_mirrored(e->func->name) : e->func->name,
                                    e->args[1 - side]);
    return pushed;
}

/* 5 < x is x > 5: the filter's fast way wants the column first. */
static void turn_compare(struct query *q, struct expr **e)
{
    struct expr *x = *e;
    if (x->kind != EXPR_CALL || x->n_args != 2 || !strchr("<>=", x->func->name[0]) ||
        x->args[0]->kind != EXPR_CONST || x->args[1]->kind != EXPR_COLUMN ||
        x->args[0]->type != x->args[1]->type)
        return;
    bool known;
    enum sql_type types[2] = {x->args[0]->type, x->args[0]->type};
    const struct func *f =
        sql_func_find(sql_mirrored(x->func->name), types, (bool[]){false, false}, 2, &known);
    struct expr *turned = f ? sql_new_expr(q, EXPR_CALL, SQL_BOOL, x->pos, 2) : NULL;
    if (!turned)
        return;
    turned->func = f;
    turned->args[0] = x->args[1];
    turned->args[1] = x->args[0];
    *e = turned;
}

/* Which rows may be left out before the join: those whose loss no other row notices. */
static bool may_filter(enum join_type type, bool left)
{
    switch (type) {
    case JOIN_INNER:
    case JOIN_CROSS:
        return true;
    case JOIN_LEFT:
    case JOIN_ASOF:
    case JOIN_ASOF_LEFT:
        return left;
    case JOIN_RIGHT:
        return !left;
    case JOIN_FULL:
        break;
    }
    return false;
}

int sql_require(struct query *q, struct op **op, struct expr *e)
{
    enum join_type type;
    uint32_t n_left;
    struct op *join = *op;
    if (!sql_is_join(join, &type, &n_left)) {
        turn_compare(q, &e);
        return sql_filter_add(op, e, push_bound(join, e));
    }
    uint32_t n_all = n_left + join->right->n_cols;
    bool some = sql_expr_has_column(e);
    if (some && may_filter(type, true) && sql_expr_only_from(e, 0, n_left))
        return sql_require(q, &join->child, e);
    if (some && may_filter(type, false) && sql_expr_only_from(e, n_left, n_all)) {
        e = sql_expr_shifted(q, e, n_left);
        return e ? sql_require(q, &join->right, e) : -ENOMEM;
    }
    if (type == JOIN_INNER || type == JOIN_CROSS)
        return sql_join_add(join, e);
    return sql_filter_add(op, e, /* pushed= */ false);
}

static int require_all(struct query *q, struct op **op, struct expr *e)
{
    int rc = 0;
    if (e->kind != EXPR_AND)
        return sql_require(q, op, e);
    for (uint32_t i = 0; i < e->n_args && rc == 0; i++)
        rc = require_all(q, op, e->args[i]);
    return rc;
}

int sql_plan_where(struct query *q, const struct node *where, struct cte *ctes, struct op **op)
{
    struct scope scope = {.op = *op, .clause = "where", .ctes = ctes, .allow_correlated = true};
    struct expr *e;
    int rc = sql_bind(q, &scope, where, &e);
    if (rc == 0)
        rc = sql_coerce(q, &e, SQL_BOOL, "where");
    return rc < 0 ? rc : require_all(q, op, e);
}

/* ---- on, using ---- */

/* A condition of `on`: rows of the side that is not kept may go before the join. */
static int add_on(struct query *q, struct op *join, struct expr *e)
{
    enum join_type type;
    uint32_t n_left;
    int rc = 0;
    (void)sql_is_join(join, &type, &n_left);
    if (e->kind == EXPR_AND) {
        for (uint32_t i = 0; i < e->n_args && rc == 0; i++)
            rc = add_on(q, join, e->args[i]);
        return rc;
    }
    uint32_t n_all = n_left + join->right->n_cols;
    bool some = sql_expr_has_column(e);
    bool left = type == JOIN_INNER || type == JOIN_RIGHT || type == JOIN_ASOF;
    bool right =
        type == JOIN_INNER || type == JOIN_LEFT || type == JOIN_ASOF || type == JOIN_ASOF_LEFT;
    if (some && left && sql_expr_only_from(e, 0, n_left))
        return sql_require(q, &join->child, e);
    if (some && right && sql_expr_only_from(e, n_left, n_all)) {
        e = sql_expr_shifted(q, e, n_left);
        return e ? sql_require(q, &join->right, e) : -ENOMEM;
    }
    return sql_join_add(join, e);
}

struct using
{ /* the columns of using (...) or a natural join */
    const char **names;
    struct join_merge *pairs;
    uint32_t n;
};

static int find_pairs(struct query *q, const struct from *f, struct op *left, struct op *right,
                      struct using *u)
{
    u->pairs = sql_get(q, u->n, sizeof(*u->pairs));
    if (!u->pairs)
        return -ENOMEM;
    for (uint32_t i = 0; i < u->n; i++) {
        struct node name = {.kind = NODE_NAME, .pos = f->pos, .text = u->names[i]};
        int l = sql_find_column(q, left, &name), rc = sql_find_column(q, right, &name);
        if (l < 0 || rc < 0)
            return l == -2 || rc == -2 ? -EINVAL : sql_no_column(q, l < 0 ? left : right, &name);
        u->pairs[i] = (struct join_merge){(uint32_t)l, (uint32_t)rc};
        if (f->join == JOIN_FULL && left->cols[l].type != right->cols[rc].type)
            return sql_error(q->text, q->size, f->pos, -EINVAL,
                             "using in a full join: '%s' is %s on the left and %s on the right",
                             u->names[i], sql_a_type(left->cols[l].type),
                             sql_a_type(right->cols[rc].type));
    }
    return 0;
}

static bool is_shown(const struct col *c)
{
    return !c->hidden && !c->aside;
}

static int compare_places(const void *a, const void *b, void *arg)
{
    const struct col *cols = arg;
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    uint32_t x = cols[i].place, y = cols[j].place;
    return x != y ? (x > y) - (x < y) : (i > j) - (i < j);
}

uint32_t *sql_columns_in_order(struct query *q, const struct op *op)
{
    uint32_t *order = sql_get(q, op->n_cols, sizeof(*order));
    for (uint32_t c = 0; order && c < op->n_cols; c++)
        order[c] = c;
    if (order)
        qsort_r(order, op->n_cols, sizeof(*order), compare_places, op->cols);
    return order;
}

/* natural join: the columns that both sides show under one name. */
static int common_names(struct query *q, const struct op *left, const struct op *right,
                        struct using *u)
{
    const uint32_t *order = sql_columns_in_order(q, left);
    u->names = sql_get(q, left->n_cols, sizeof(*u->names));
    if (!order || !u->names)
        return -ENOMEM;
    for (uint32_t i = 0; i < left->n_cols; i++) {
        const struct col *l = &left->cols[order[i]];
        for (uint32_t r = 0; r < right->n_cols && is_shown(l); r++)
            if (is_shown(&right->cols[r]) && strcasecmp(l->name, right->cols[r].name) == 0) {
                u->names[u->n++] = l->name;
                break;
            }
    }
    return 0;
}

/* In * the columns of using () come first, then the others of the left side as they stand in its
 * own *, then those of the right. */
static int place_columns(struct query *q, const struct from *f, struct op *join,
                         const struct op *left, const struct using *u)
{
    const struct op *sides[2] = {left, join->right};
    uint32_t place = 0, first = 0;
    for (uint32_t c = 0; c < join->n_cols; c++)
        join->cols[c].place = 0;
    for (uint32_t i = 0; i < u->n; i++) {
        uint32_t r = left->n_cols + u->pairs[i].right;
        uint32_t c = f->join == JOIN_FULL    ? left->n_cols + join->right->n_cols + i
                     : f->join == JOIN_RIGHT ? r
                                             : u->pairs[i].left;
        join->cols[c].place = ++place;
    }
    for (int s = 0; s < 2; first += sides[s++]->n_cols) {
        const uint32_t *order = sql_columns_in_order(q, sides[s]);
        if (!order)
            return -ENOMEM;
        for (uint32_t i = 0; i < sides[s]->n_cols; i++)
            if (!join->cols[first + order[i]].place)
                join->cols[first + order[i]].place = ++place;
    }
    return 0;
}

static int add_using(struct query *q, const struct from *f, struct op *join, uint32_t n_left,
                     const struct using *u)
{
    int rc = 0;
    bool asof = f->join == JOIN_ASOF || f->join == JOIN_ASOF_LEFT;
    for (uint32_t i = 0; i < u->n && rc == 0; i++) {
        uint32_t l = u->pairs[i].left, r = n_left + u->pairs[i].right;
        struct node n = {.kind = NODE_CALL, .pos = f->pos, .text = "="};
        struct expr *e,
            *pair[2] = {sql_column_expr(q, join, l, f->pos), sql_column_expr(q, join, r, f->pos)};
        if (!pair[0] || !pair[1])
            return -ENOMEM;
        sql_want(join, l);
        sql_want(join, r);
        join->cols[f->join == JOIN_RIGHT ? l : r].hidden = true;
        if (f->join == JOIN_FULL)
            join->cols[l].hidden = true;
        rc = sql_call_named(q, &n, asof && i + 1 == u->n ? ">=" : "=", pair[0], pair[1], &e);
        if (rc == 0)
            rc = sql_join_add(join, e);
    }
    return rc;
}

static int bind_on(struct query *q, const struct from *f, struct cte *ctes, struct op *join)
{
    struct scope scope = {.op = join, .clause = "on", .ctes = ctes, .allow_correlated = true};
    struct expr *on;
    int rc = sql_bind(q, &scope, f->on, &on);
    if (rc == 0)
        rc = sql_coerce(q, &on, SQL_BOOL, "on");
    return rc < 0 ? rc : add_on(q, join, on);
}

/* The condition of an inner join whose right side is made for each row of the left. */
static int where_on(struct query *q, const struct from *f, struct cte *ctes, struct op **op)
{
    return f->join == JOIN_INNER ? sql_plan_where(q, f->on, ctes, op) : 0;
}

/* Give the name that columns bear before their point; NULL: it has no name. */
static const char *name_of(const struct from *f)
{
    return f->alias                ? f->alias
           : f->kind == FROM_TABLE ? f->names[0]
           : f->kind == FROM_CALL  ? f->call->text
                                   : NULL;
}

/* a.t and b.t are told apart by their schemas. */
static bool is_same_name(const struct from *a, const struct from *b)
{
    const char *x = name_of(a), *y = name_of(b);
    bool schemas = !a->alias && !b->alias && a->names[1] && b->names[1];
    return x && y && strcasecmp(x, y) == 0 &&
           (!schemas || strcasecmp(a->names[1], b->names[1]) == 0);
}

static bool has_namesake(const struct from *in, const struct from *f)
{
    if (in->kind != FROM_JOIN || in->alias)
        return is_same_name(in, f);
    return has_namesake(in->left, f) || has_namesake(in->right, f);
}

/* The tables of b are called otherwise than those of a. */
static int check_names(struct query *q, const struct from *a, const struct from *b)
{
    if (b->kind == FROM_JOIN && !b->alias) {
        int rc = check_names(q, a, b->left);
        return rc < 0 ? rc : check_names(q, a, b->right);
    }
    if (!has_namesake(a, b))
        return 0;
    return sql_error(q->text, q->size, b->pos, -EINVAL,
                     "two tables are called '%s' here; give one of them another name: %s as b",
                     name_of(b), name_of(b));
}

static int plan_join(struct query *q, const struct from *f, struct cte *ctes, struct op **ret)
{
    struct op *left, *right, *join;
    struct using u = {.names = f->columns, .n = f->n_columns};
    int rc = check_names(q, f->left, f->right);
    rc = rc < 0 ? rc : sql_plan_from(q, f->left, ctes, &left);
    if (rc == 0 && f->right->lateral) {
        rc = sql_plan_lateral(q, f, ctes, left, &right, ret);
        if (rc == 0 && *ret)
            return f->on ? where_on(q, f, ctes, ret) : 0;
    } else if (rc == 0) {
        rc = sql_plan_from(q, f->right, ctes, &right);
    }
    if (rc == 0 && f->natural)
        rc = common_names(q, left, right, &u);
    if (rc == 0 && u.n)
        rc = find_pairs(q, f, left, right, &u);
    if (rc < 0)
        return rc;
    uint32_t n_left = left->n_cols;
    rc = sql_join(left, right, f->join, u.pairs, f->join == JOIN_FULL ? u.n : 0, &join);
    if (rc == 0)
        rc = place_columns(q, f, join, left, &u);
    if (rc == 0 && f->on)
        rc = bind_on(q, f, ctes, join);
    if (rc == 0 && u.n)
        rc = add_using(q, f, join, n_left, &u);
    if (rc == 0)
        rc = sql_join_done(join, f->pos);
    *ret = join;
    return rc;
}

int sql_plan_from(struct query *q, const struct from *f, struct cte *ctes, struct op **ret)
{
    if (f->kind == FROM_JOIN)
        return plan_join(q, f, ctes, ret);
    int rc = sql_plan_table(q, f, ctes, ret);
    return rc < 0 || !f->n_aliases ? rc : sql_rename_first(q, f, *ret);
}
