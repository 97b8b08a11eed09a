/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/exec/join_build.c - the right side of a join: its rows kept, and found by their keys.
 *
 * The query's thread only.
 */
#include "core/sql/exec/join.h"

#include <errno.h>
#include <string.h>

#define NONE_PIECE ((size_t)1 << 20) /* of numbers */

static int grow_array(struct query *q, uint32_t **array, uint32_t room, uint32_t used)
{
    uint32_t *more = sql_grow(q, *array, used, room, sizeof(*more));
    if (!more)
        return -ENOMEM;
    *array = more;
    return 0;
}

/* With JOIN_NONE, in pieces, with looks at the limits between them. */
static int fill_none(struct query *q, uint32_t *to, size_t n)
{
    for (size_t at = 0, some; at < n; at += some) {
        some = n - at < NONE_PIECE ? n - at : NONE_PIECE;
        if (at && sql_check(q) < 0)
            return -ENOMEM; /* sql_next() knows why */
        memset(to + at, 0xff, some * sizeof(*to));
    }
    return 0;
}

/* Rows first + at[k] (at NULL: first + k) have the keys numbers[k]. */
static int link_rows(struct op *op, const uint32_t *numbers, uint32_t first_row, const uint32_t *at,
                     uint32_t n)
{
    struct join *j = op->state;
    uint32_t end = first_row + (at && n ? at[n - 1] + 1 : n);
    if (j->keys.n > j->keys_room) {
        uint32_t used = j->keys_room;
        j->keys_room = 2 * j->keys.n;
        if (grow_array(op->q, &j->first, j->keys_room, used) < 0 ||
            grow_array(op->q, &j->last, j->keys_room, used) < 0 ||
            fill_none(op->q, j->first + used, j->keys_room - used) < 0)
            return -ENOMEM;
    }
    if (end > j->rows_room) {
        uint32_t used = j->rows_room;
        j->rows_room = 2 * end;
        if (grow_array(op->q, &j->next, j->rows_room, used) < 0)
            return -ENOMEM;
    }
    for (uint32_t r = 0; r < n; r++) {
        uint32_t row = first_row + (at ? at[r] : r), key = numbers[r];
        j->next[row] = JOIN_NONE;
        if (j->first[key] == JOIN_NONE)
            j->first[key] = row;
        else
            j->next[j->last[key]] = row;
        j->last[key] = row;
    }
    return 0;
}

static bool any_null(struct vec **v, uint32_t n, uint32_t row)
{
    for (uint32_t c = 0; c < n; c++)
        if (sql_is_null(v[c], row))
            return true;
    return false;
}

uint32_t sql_join_live_rows(const struct batch *in, struct vec **v, uint32_t n_keys, uint16_t *sel,
                            uint32_t *at)
{
    uint32_t m = 0;
    for (uint32_t k = 0; k < in->n_sel; k++) {
        uint32_t i = in->sel ? in->sel[k] : k;
        sel[m] = (uint16_t)i;
        at[m] = k;
        m += !any_null(v, n_keys, i);
    }
    return m;
}

static int compile_keys(struct op *op)
{
    struct join *j = op->state;
    struct query *q = op->q;
    enum sql_type types[SQL_CALL_ARGS + 1];
    uint32_t n = j->n_keys + (join_is_asof(j) ? 1 : 0);
    for (uint32_t k = 0; k < j->n_keys; k++) {
        types[k] = j->left_keys[k]->type;
        j->left_keys[k]->dict = j->right_keys[k]->dict = false;
    }
    j->left_words = sql_get(q, n, sizeof(*j->left_words));
    j->right_words = sql_get(q, n, sizeof(*j->right_words));
    if (!j->left_words || !j->right_words)
        return -ENOMEM;
    if (join_is_asof(j)) { /* the asof values are the last of the computed */
        j->left_keys[j->n_keys] = j->asof_left;
        j->right_keys[j->n_keys] = j->asof_right;
    }
    int rc = j->n_keys ? sql_keys_init(&j->keys, q, types, NULL, j->n_keys) : 0;
    if (rc == 0 && n)
        rc = sql_compile(q, &op->child->out, j->left_keys, n, &j->left_program);
    if (rc == 0 && n)
        rc = sql_compile(q, &op->right->out, j->right_keys, n, &j->right_program);
    if (rc < 0 || !j->n_rest)
        return rc;
    struct expr *on = sql_new_expr(q, EXPR_AND, SQL_BOOL, j->rest[0]->pos, j->n_rest);
    if (!on)
        return -ENOMEM;
    memcpy(on->args, j->rest, j->n_rest * sizeof(struct expr *));
    return sql_compile(q, &op->out, &on, 1, &j->on);
}

static int prepare_join(struct op *op)
{
    struct join *j = op->state;
    struct query *q = op->q;
    uint32_t n = 0;
    for (uint32_t c = 0; c < j->n_right; c++) {
        j->slots[c] = JOIN_NONE;
        if (op->want[j->n_left + c]) {
            j->types[n] = op->right->cols[c].type;
            j->slots[c] = n++;
        }
    }
    (void)sql_rowset_init(&j->rows, q, &q->mem, j->types, n);
    j->gathered = sql_get(q, n, sizeof(*j->gathered));
    if (!j->gathered)
        return -ENOMEM;
    for (uint32_t c = 0; c < n; c++)
        if (sql_vec_room(q, &j->gathered[c], j->types[c]) < 0)
            return -ENOMEM;
    for (uint32_t c = 0; c < op->n_cols; c++)
        if (op->want[c] && (c < j->n_left || c >= j->n_left + j->n_right) &&
            sql_vec_room(q, &op->out.v[c], op->cols[c].type) < 0)
            return -ENOMEM;
    for (uint32_t c = 0; c < j->n_right; c++)
        if (j->slots[c] != JOIN_NONE)
            op->out.v[j->n_left + c] = j->gathered[j->slots[c]];
    return compile_keys(op);
}

/* One batch of the right side: keys, then its rows. */
static int keep_batch(struct op *op, struct vec **wanted, uint32_t *at)
{
    struct join *j = op->state;
    const struct batch *in = &op->right->out;
    const uint16_t *rows = in->sel;
    uint32_t n = in->n_sel, first = j->rows.n;
    uint32_t words = j->n_keys + (join_is_asof(j) ? 1 : 0);
    int rc = 0;
    if (words) {
        rc = sql_run_program(j->right_program, j->right_words);
        uint32_t live = rc < 0 ? 0 : sql_join_live_rows(in, j->right_words, words, j->sel, at);
        if (live && j->n_keys)
            rc = sql_keys_add(&j->keys, j->right_words, j->sel, live, j->numbers);
        if (rc == 0 && live && !join_is_asof(j))
            rc = link_rows(op, j->numbers, first, join_keeps_right(j) ? at : NULL, live);
        if (rc == 0 && live && join_is_asof(j))
            rc = sql_asof_keep(op, j->right_words[j->n_keys], j->n_keys ? j->numbers : NULL, j->sel,
                               live);
        if (!join_keeps_right(j)) { /* rows with NULL keys will never be seen */
            rows = j->sel;
            n = live;
        }
    }
    return rc == 0 && n ? sql_rowset_add(&j->rows, wanted, rows, n) : rc;
}

int sql_join_build(struct op *op)
{
    struct join *j = op->state;
    struct vec **wanted = sql_get(op->q, j->n_right, sizeof(*wanted));
    uint32_t *at = sql_get(op->q, SQL_ROWS, sizeof(*at));
    int rc = wanted && at ? prepare_join(op) : -ENOMEM;
    for (uint32_t c = 0; rc == 0 && c < j->n_right; c++)
        if (j->slots[c] != JOIN_NONE)
            wanted[j->slots[c]] = &op->right->out.v[c];
    while (rc == 0 && (rc = sql_next(op->right)) > 0)
        rc = keep_batch(op, wanted, at);
    if (rc == 0 && join_is_asof(j))
        rc = sql_asof_sort(op);
    if (rc == 0 && join_keeps_right(j)) {
        /* Rows behind the last linked one have NULL keys: the chains never lead to them. */
        j->right_matched = sql_get(op->q, j->rows.n, 1);
        rc = j->right_matched ? 0 : -ENOMEM;
    }
    return rc;
}
