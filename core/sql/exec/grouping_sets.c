/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/exec/grouping_sets.c - rollup, cube, grouping sets: each row comes once for each set,
 * with the keys that the set lacks NULL and the number of the set beside them.
 *
 * The aggregate above then groups by the keys and that number: what is NULL in the data stays apart
 * from what is left out.  The query's thread only.
 */
#include "core/sql/exec/ops.h"

#include <errno.h>
#include <string.h>

struct sets {
    const uint64_t *lack; /* of each set: the keys that it has not, a bit each */
    uint32_t n, at;
    uint32_t n_keys;
    struct program *program;
    struct vec **results; /* the keys */
    struct vec *nulls;    /* of each key's type */
    bool pending;         /* the child's batch is not yet given for all sets */
};

static uint64_t set_number(uint32_t set, uint64_t lack)
{
    return (uint64_t)set << 32 | lack;
}

static void fill_numbers(struct vec *v, uint64_t number, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        v->i[i] = (int64_t)number;
}

static int next_sets(struct op *op)
{
    struct sets *s = op->state;
    const struct batch *in = &op->child->out;
    uint32_t first = op->child->n_cols;
    if (!s->pending) {
        int rc = sql_next(op->child);
        if (rc > 0 && s->n_keys) {
            int code = sql_run_program(s->program, s->results);
            rc = code < 0 ? code : rc;
        }
        if (rc <= 0)
            return rc;
        s->at = 0;
        s->pending = true;
    }
    memcpy(op->out.v, in->v, first * sizeof(struct vec));
    for (uint32_t k = 0; k < s->n_keys; k++)
        op->out.v[first + k] = s->lack[s->at] >> k & 1 ? s->nulls[k] : *s->results[k];
    fill_numbers(&op->out.v[first + s->n_keys], set_number(s->at, s->lack[s->at]), in->n);
    op->out.n = in->n;
    op->out.sel = in->sel;
    op->out.n_sel = in->n_sel;
    s->pending = ++s->at < s->n;
    return 1;
}

uint32_t sql_empty_sets(struct op *op)
{
    struct sets *s = op->next == next_sets ? op->state : NULL;
    uint64_t all = s ? (UINT64_C(1) << s->n_keys) - 1 : 0;
    uint32_t n = 0, first = s ? op->child->n_cols : 0;
    for (uint32_t i = 0; s && i < s->n && n < SQL_ROWS; i++)
        if (s->lack[i] == all)
            op->out.v[first + s->n_keys].i[n++] = (int64_t)set_number(i, all);
    for (uint32_t k = 0; s && k < s->n_keys; k++)
        op->out.v[first + k] = s->nulls[k];
    return n;
}

static int make_null(struct query *q, struct vec *v, const struct col *c)
{
    int rc = sql_vec_room(q, v, c->type);
    uint64_t *ids = rc == 0 && c->dict ? sql_get(q, SQL_ROWS, sizeof(*ids)) : NULL;
    if (rc < 0 || (c->dict && !ids))
        return -ENOMEM;
    memset(v->null, 1, SQL_ROWS);
    v->has_null = v->stable = true;
    v->ids = ids;
    return 0;
}

int sql_grouping_sets(struct op *child, struct expr **keys, uint32_t n_keys, const uint64_t *lack,
                      uint32_t n, struct op **ret)
{
    struct query *q = child->q;
    uint32_t first = child->n_cols;
    struct op *op = sql_op(q, next_sets, "grouping sets", first + n_keys + 1);
    struct sets *s = op ? sql_get(q, 1, sizeof(*s)) : NULL;
    if (!s)
        return -ENOMEM;
    *s = (struct sets){.lack = lack, .n = n, .n_keys = n_keys};
    s->nulls = sql_get(q, n_keys, sizeof(*s->nulls));
    s->results = sql_get(q, n_keys, sizeof(*s->results));
    op->child = child;
    op->state = s;
    op->detail = sql_getf(q, "%u sets of %u key%s", n, n_keys, n_keys == 1 ? "" : "s");
    if (!s->nulls || !s->results || !op->detail)
        return -ENOMEM;
    memcpy(op->cols, child->cols, first * sizeof(*op->cols));
    for (uint32_t k = 0; k < n_keys; k++) {
        struct col *c = &op->cols[first + k];
        *c = (struct col){.name = "",
                          .type = keys[k]->type,
                          .unit = keys[k]->unit,
                          .mark = keys[k]->mark,
                          .doc = ""};
        c->dict = keys[k]->dict && keys[k]->kind == EXPR_COLUMN;
        if (make_null(q, &s->nulls[k], c) < 0)
            return -ENOMEM;
        op->out.v[first + k] = s->nulls[k];
    }
    op->cols[first + n_keys] = (struct col){.name = "", .type = SQL_INT, .doc = ""};
    if (sql_vec_room(q, &op->out.v[first + n_keys], SQL_INT) < 0)
        return -ENOMEM;
    *ret = op;
    return sql_compile(q, &child->out, keys, n_keys, &s->program);
}
