/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/exec/join.c - joins at work: the right side is kept (join_build.c), the left side
 * streams by.
 *
 * Equal keys are found by hash; without any every pair is looked at.  Other conditions narrow the
 * pairs.  What had no match on the left comes after its batch, on the right at the end.
 * The query's thread only.
 */
#include "core/sql/exec/join.h"

#include <errno.h>
#include <string.h>

#include "core/base/err.h"

#define NOT_LOOKED (JOIN_NONE - 1) /* the pairs of a left row */

/* ---- the left side ---- */

/* Key numbers of the left rows; rows with NULL keys have none. */
static int probe_rows(struct op *op)
{
    struct join *j = op->state;
    const struct batch *in = &op->child->out;
    if (!j->left_program)
        return 0;
    int rc = sql_run_program(j->left_program, j->left_words);
    if (rc < 0)
        return rc;
    if (join_is_asof(j))
        sql_texts(op->q, j->left_words[j->n_keys], in->sel, in->n_sel);
    if (!j->n_keys) {
        memset(j->numbers, 0, SQL_ROWS * sizeof(*j->numbers));
        return 0;
    }
    /* right_rows is not in use yet: places, then numbers. */
    uint32_t n = sql_join_live_rows(in, j->left_words, j->n_keys, j->sel, j->right_rows);
    memset(j->numbers, 0xff, SQL_ROWS * sizeof(*j->numbers)); /* JOIN_NONE */
    if (n && j->keys.n)
        rc = sql_keys_find(&j->keys, j->left_words, j->sel, n, j->right_rows);
    for (uint32_t k = 0; k < n && j->keys.n && rc == 0; k++)
        j->numbers[j->sel[k]] = j->right_rows[k];
    return rc;
}

static uint32_t first_pair(const struct join *j, uint32_t left_row)
{
    if (join_is_asof(j))
        return sql_asof_find(j, j->numbers[left_row], j->left_words[j->n_keys], left_row);
    if (!j->n_keys)
        return j->rows.n ? 0 : JOIN_NONE;
    uint32_t key = j->numbers[left_row];
    return key == JOIN_NONE ? JOIN_NONE : j->first[key];
}

static uint32_t next_pair(const struct join *j, uint32_t pair)
{
    if (join_is_asof(j))
        return JOIN_NONE;
    if (j->n_keys)
        return j->next[pair];
    return pair + 1 < j->rows.n ? pair + 1 : JOIN_NONE;
}

/* Up to a batch of pairs from where we stand. */
static uint32_t take_pairs(struct join *j, const struct batch *in)
{
    uint32_t n = 0;
    while (j->left_at < in->n_sel && n < SQL_ROWS) {
        uint32_t i = in->sel ? in->sel[j->left_at] : j->left_at;
        if (j->pair_at == NOT_LOOKED)
            j->pair_at = first_pair(j, i);
        while (j->pair_at != JOIN_NONE && n < SQL_ROWS) {
            j->left_rows[n] = (uint16_t)i;
            j->right_rows[n++] = j->pair_at;
            j->pair_at = next_pair(j, j->pair_at);
        }
        if (j->pair_at == JOIN_NONE) {
            j->left_at++;
            j->pair_at = NOT_LOOKED;
        }
    }
    return n;
}

/* ---- what is given on ---- */

static void gather_left(struct op *op, uint32_t n)
{
    struct join *j = op->state;
    for (uint32_t c = 0; c < j->n_left; c++) {
        struct vec *from = &op->child->out.v[c], *to = &op->out.v[c];
        if (!op->want[c])
            continue;
        to->has_null = false;
        to->stable = from->stable || from->ids;
        sql_texts(op->q, from, j->left_rows, n);
        for (uint32_t k = 0; k < n; k++) {
            uint32_t i = j->left_rows[k];
            if (sql_is_null(from, i))
                sql_set_null(to, k);
            else if (sql_is_textual(from->type))
                to->t[k] = from->t[i];
            else
                to->i[k] = from->i[i];
        }
    }
}

static void no_left(struct op *op)
{
    struct join *j = op->state;
    for (uint32_t c = 0; c < j->n_left; c++) {
        if (!op->want[c])
            continue;
        memset(op->out.v[c].null, 1, SQL_ROWS);
        op->out.v[c].has_null = true;
    }
}

static void merge_columns(struct op *op, uint32_t n)
{
    struct join *j = op->state;
    for (uint32_t m = 0; m < j->n_merges; m++) {
        uint32_t c = j->n_left + j->n_right + m;
        struct vec *to = &op->out.v[c];
        if (!op->want[c])
            continue;
        const struct vec *l = &op->out.v[j->merges[m].left];
        const struct vec *r = &op->out.v[j->n_left + j->merges[m].right];
        to->has_null = false;
        to->stable = l->stable && r->stable;
        for (uint32_t k = 0; k < n; k++) {
            const struct vec *from = l->has_null && l->null[k] ? r : l;
            if (from->has_null && from->null[k])
                sql_set_null(to, k);
            else if (sql_is_textual(to->type))
                to->t[k] = from->t[k];
            else
                to->i[k] = from->i[k];
        }
    }
}

static void gather_rows(struct op *op, uint32_t n, bool left)
{
    struct join *j = op->state;
    if (left)
        gather_left(op, n);
    else
        no_left(op);
    sql_rowset_get(&j->rows, j->right_rows, n, 0, j->rows.n_cols, j->gathered);
    for (uint32_t c = 0; c < j->n_right; c++)
        if (j->slots[c] != JOIN_NONE)
            op->out.v[j->n_left + c] = j->gathered[j->slots[c]];
    merge_columns(op, n);
    op->out.n = op->out.n_sel = n;
    op->out.sel = NULL;
}

static int give_pairs(struct op *op, uint32_t n)
{
    struct join *j = op->state;
    gather_rows(op, n, true);
    if (j->on) {
        int m = sql_run_filter(j->on, NULL, n, j->sel);
        if (m < 0)
            return m;
        op->out.sel = j->sel;
        op->out.n_sel = (uint32_t)m;
    }
    for (uint32_t k = 0; k < op->out.n_sel; k++) {
        uint32_t pair = op->out.sel ? op->out.sel[k] : k;
        if (j->left_matched)
            j->left_matched[j->left_rows[pair]] = 1;
        if (j->right_matched)
            j->right_matched[j->right_rows[pair]] = 1;
    }
    return 1;
}

/* Left rows of the batch without a match, once, after all its pairs. */
static uint32_t lonely_left(struct join *j, const struct batch *in)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < in->n_sel; k++) {
        uint32_t i = in->sel ? in->sel[k] : k;
        if (j->left_matched[i])
            continue;
        j->left_rows[n] = (uint16_t)i;
        j->right_rows[n++] = JOIN_NONE;
    }
    return n;
}

static int give_lonely_right(struct op *op)
{
    struct join *j = op->state;
    uint32_t n = 0;
    for (; j->lonely_at < j->rows.n && n < SQL_ROWS; j->lonely_at++)
        if (!j->right_matched[j->lonely_at])
            j->right_rows[n++] = j->lonely_at;
    if (n)
        gather_rows(op, n, false);
    return n > 0;
}

static int next_left(struct op *op)
{
    struct join *j = op->state;
    int rc = sql_next(op->child);
    if (rc <= 0)
        return rc;
    j->have_left = true;
    j->left_at = 0;
    j->pair_at = NOT_LOOKED;
    if (j->left_matched)
        memset(j->left_matched, 0, SQL_ROWS);
    rc = probe_rows(op);
    return rc < 0 ? rc : 1;
}

int sql_join_next(struct op *op)
{
    struct join *j = op->state;
    int rc = j->ready ? 0 : sql_join_build(op);
    j->ready = true;
    while (rc >= 0) {
        if (!j->have_left && (rc = next_left(op)) <= 0)
            return rc < 0 || !j->right_matched ? rc : give_lonely_right(op);
        uint32_t n = take_pairs(j, &op->child->out);
        if (n)
            return give_pairs(op, n);
        j->have_left = false;
        if (!j->left_matched)
            continue;
        n = lonely_left(j, &op->child->out);
        if (n) {
            gather_rows(op, n, true);
            return 1;
        }
    }
    return rc;
}
