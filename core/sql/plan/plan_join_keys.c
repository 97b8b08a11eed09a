/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/plan/plan_join_keys.c - a join as it is planned: its columns, its conditions taken
 * apart.
 *
 * The query's thread only.
 */
#include "core/sql/exec/join.h"

#include <errno.h>
#include <string.h>

#include "core/base/err.h"
#include "core/sql/bind/bind.h"

static void want_column(struct op *op, uint32_t column)
{
    struct join *j = op->state;
    if (column >= j->n_left + j->n_right) {
        const struct join_merge *m = &j->merges[column - j->n_left - j->n_right];
        sql_want(op, m->left);
        sql_want(op, j->n_left + m->right);
    } else if (column < j->n_left) {
        sql_want(op->child, column);
    } else {
        sql_want(op->right, column - j->n_left);
    }
}

bool sql_is_join(const struct op *op, enum join_type *ret_type, uint32_t *ret_n_left)
{
    if (op->next != sql_join_next)
        return false;
    const struct join *j = op->state;
    *ret_type = j->type;
    *ret_n_left = j->n_left;
    return true;
}

static void describe_columns(struct op *op, const struct op *left, const struct op *right)
{
    const struct join *j = op->state;
    for (uint32_t c = 0; c < op->n_cols; c++) {
        const struct join_merge *m =
            c < j->n_left + j->n_right ? NULL : &j->merges[c - j->n_left - j->n_right];
        op->cols[c] = m               ? left->cols[m->left]
                      : c < j->n_left ? left->cols[c]
                                      : right->cols[c - j->n_left];
        op->cols[c].dict = false;
        if (m) {
            op->cols[c].table = op->cols[c].schema = NULL;
            op->cols[c].hidden = false;
        }
        op->out.v[c] = (struct vec){.type = op->cols[c].type};
    }
}

int sql_join(struct op *left, struct op *right, enum join_type type,
             const struct join_merge *merges, uint32_t n_merges, struct op **ret)
{
    struct query *q = left->q;
    struct op *op = sql_op(q, sql_join_next, "join", left->n_cols + right->n_cols + n_merges);
    struct join *j = op ? sql_get(q, 1, sizeof(*j)) : NULL;
    if (!j)
        return -ENOMEM;
    op->child = left;
    op->right = right;
    op->state = j;
    op->on_want = want_column;
    op->want = sql_get(q, op->n_cols, sizeof(*op->want));
    j->type = type;
    j->n_left = left->n_cols;
    j->n_right = right->n_cols;
    j->n_merges = n_merges;
    j->merges = sql_get(q, n_merges, sizeof(*j->merges));
    j->slots = sql_get(q, j->n_right, sizeof(*j->slots));
    j->types = sql_get(q, j->n_right, sizeof(*j->types));
    j->numbers = sql_get(q, SQL_ROWS, sizeof(*j->numbers));
    j->left_rows = sql_get(q, SQL_ROWS, sizeof(*j->left_rows));
    j->right_rows = sql_get(q, SQL_ROWS, sizeof(*j->right_rows));
    j->sel = sql_get(q, SQL_ROWS, sizeof(*j->sel));
    j->left_keys = sql_get(q, SQL_CALL_ARGS + 1, sizeof(struct expr *));
    j->right_keys = sql_get(q, SQL_CALL_ARGS + 1, sizeof(struct expr *));
    j->rest = sql_get(q, SQL_CALL_ARGS, sizeof(struct expr *));
    j->left_matched = join_keeps_left(j) ? sql_get(q, SQL_ROWS, 1) : NULL;
    if (!op->want || !j->merges || !j->slots || !j->types || !j->numbers || !j->left_rows ||
        !j->right_rows || !j->sel || !j->left_keys || !j->right_keys || !j->rest ||
        (join_keeps_left(j) && !j->left_matched))
        return -ENOMEM;
    if (n_merges)
        memcpy(j->merges, merges, n_merges * sizeof(*merges));
    describe_columns(op, left, right);
    *ret = op;
    return 0;
}

static int describe_join(struct op *op)
{
    static const char *const names[] = {"inner", "left", "right",    "full",
                                        "cross", "asof", "asof left"};
    const struct join *j = op->state;
    op->detail = sql_getf(op->q, "%s%s", names[j->type],
                          join_is_asof(j) ? ", by halves"
                          : j->n_keys     ? ", by hash"
                                          : ", every pair");
    return op->detail ? 0 : -ENOMEM;
}

/* Take `l compare r`, l over the left side, r over the right.  false: it is no key. */
static bool take_pair(struct join *j, const char *compare, struct expr *l, struct expr *r)
{
    bool by_bytes = l->type != SQL_CALENDAR || join_is_asof(j); /* 1 mon equals 30 days */
    if (strcmp(compare, "=") == 0 && by_bytes && j->n_keys < SQL_CALL_ARGS) {
        j->left_keys[j->n_keys] = l;
        j->right_keys[j->n_keys++] = r;
        return true;
    }
    if (!join_is_asof(j) || !strchr("<>", compare[0]) || strcmp(compare, "<>") == 0 ||
        j->asof_compare)
        return false;
    j->asof_left = l;
    j->asof_right = r;
    j->asof_compare = compare;
    return true;
}

int sql_join_add(struct op *op, struct expr *e)
{
    struct join *j = op->state;
    uint32_t n_all = j->n_left + j->n_right;
    bool compares = e->kind == EXPR_CALL && e->n_args == 2 && strchr("<>=", e->func->name[0]);
    for (int side = 0; compares && side < 2; side++) {
        struct expr *l = e->args[side], *r = e->args[1 - side];
        if (!sql_expr_has_column(l) || !sql_expr_has_column(r) ||
            !sql_expr_only_from(l, 0, j->n_left) || !sql_expr_only_from(r, j->n_left, n_all))
            continue;
        r = sql_expr_shifted(op->q, r, j->n_left);
        if (!r)
            return -ENOMEM;
        if (take_pair(j, side ? sql_mirrored(e->func->name) : e->func->name, l, r))
            return describe_join(op);
    }
    if (join_is_asof(j))
        return sql_error(op->q->text, op->q->size, e->pos, -EINVAL,
                         "an asof join takes equalities and one comparison of both sides; filter "
                         "in an outer select");
    if (j->n_rest < SQL_CALL_ARGS) {
        j->rest[j->n_rest++] = e;
        return describe_join(op);
    }
    struct expr *both = sql_new_expr(op->q, EXPR_AND, SQL_BOOL, e->pos, 2);
    if (!both)
        return -ENOMEM;
    both->args[0] = j->rest[j->n_rest - 1];
    both->args[1] = e;
    j->rest[j->n_rest - 1] = both;
    return 0;
}

int sql_join_done(struct op *op, uint32_t pos)
{
    struct join *j = op->state;
    if (join_is_asof(j) && !j->asof_compare)
        return sql_error(op->q->text, op->q->size, pos, -EINVAL,
                         "an asof join needs a comparison of both sides, like a.ts >= b.ts");
    return describe_join(op);
}
