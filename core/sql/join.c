/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/join.c - inner, left and cross joins: the right side is kept, the left side streams.
 *
 * Equal keys are found by hash; without any every pair is looked at.  Other conditions narrow the
 * pairs.  The query's thread only.
 */
#include "core/sql/sqlint.h"

#include <errno.h>
#include <string.h>

#include "core/base/err.h"

#define NONE UINT32_MAX

struct join {
    struct join_spec spec;
    uint32_t n_left, n_right;
    /* The right side: its wanted columns, and for each key the chain of its rows. */
    struct rowset rows;
    uint32_t *slots; /* right column -> column of `rows`, NONE: not wanted */
    enum sql_type *types;
    struct keys keys;
    uint32_t *first, *last; /* by key */
    uint32_t *next;         /* by row */
    uint32_t keys_room, rows_room;
    struct program *left_program, *right_program, *on;
    struct vec **left_words, **right_words;
    struct vec *gathered; /* of the right side, as many as `rows` has columns */
    bool ready, have_left;
    /* Where the left batch stands. */
    uint32_t *numbers; /* key of each left row */
    uint32_t left_at, pair_at;
    bool matched; /* the left row at left_at, so far */
    uint16_t left_rows[SQL_ROWS];
    uint32_t right_rows[SQL_ROWS];
    uint16_t sel[SQL_ROWS];
    uint8_t *row_matched; /* by left row */
    bool tail;            /* giving the left rows without a match */
};

static void want(struct op *op, uint32_t column)
{
    struct join *j = op->state;
    if (column < j->n_left)
        sql_want(op->child, column);
    else
        sql_want(op->right, column - j->n_left);
}

static int grow(struct query *q, uint32_t **array, uint32_t room, uint32_t used)
{
    uint32_t *more = sql_get(q, room, sizeof(*more));
    if (!more)
        return -ENOMEM;
    if (used)
        memcpy(more, *array, used * sizeof(*more));
    *array = more;
    return 0;
}

static int link_rows(struct op *op, const uint32_t *numbers, uint32_t first_row, uint32_t n)
{
    struct join *j = op->state;
    if (j->keys.n > j->keys_room) {
        uint32_t used = j->keys_room;
        j->keys_room = 2 * j->keys.n;
        if (grow(op->q, &j->first, j->keys_room, used) < 0 ||
            grow(op->q, &j->last, j->keys_room, used) < 0)
            return -ENOMEM;
        for (uint32_t k = used; k < j->keys_room; k++)
            j->first[k] = NONE;
    }
    if (first_row + n > j->rows_room) {
        uint32_t used = j->rows_room;
        j->rows_room = 2 * (first_row + n);
        if (grow(op->q, &j->next, j->rows_room, used) < 0)
            return -ENOMEM;
    }
    for (uint32_t r = 0; r < n; r++) {
        uint32_t row = first_row + r, key = numbers[r];
        j->next[row] = NONE;
        if (j->first[key] == NONE)
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
        if (v[c]->type == SQL_NULL || (v[c]->has_null && v[c]->null[row]))
            return true;
    return false;
}

/* Rows whose keys are not NULL: NULL equals nothing. */
static uint32_t live_rows(const struct batch *in, struct vec **v, uint32_t n_keys, uint16_t *sel)
{
    uint32_t m = 0;
    for (uint32_t k = 0; k < in->n_sel; k++) {
        uint32_t i = in->sel ? in->sel[k] : k;
        sel[m] = (uint16_t)i;
        m += !any_null(v, n_keys, i);
    }
    return m;
}

static int prepare(struct op *op)
{
    struct join *j = op->state;
    struct query *q = op->q;
    uint32_t n = 0;
    for (uint32_t c = 0; c < j->n_right; c++) {
        j->slots[c] = NONE;
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
    for (uint32_t c = 0; c < j->n_left; c++)
        if (op->want[c] && sql_vec_room(q, &op->out.v[c], op->cols[c].type) < 0)
            return -ENOMEM;
    for (uint32_t c = 0; c < j->n_right; c++)
        if (j->slots[c] != NONE)
            op->out.v[j->n_left + c] = j->gathered[j->slots[c]];
    return 0;
}

static int build(struct op *op)
{
    struct join *j = op->state;
    const struct batch *in = &op->right->out;
    struct vec **wanted = sql_get(op->q, j->n_right, sizeof(*wanted));
    uint16_t *sel = sql_get(op->q, SQL_ROWS, sizeof(*sel));
    int rc = wanted && sel ? prepare(op) : -ENOMEM;
    for (uint32_t c = 0; rc == 0 && c < j->n_right; c++)
        if (j->slots[c] != NONE)
            wanted[j->slots[c]] = &op->right->out.v[c];
    while (rc == 0 && (rc = sql_next(op->right)) > 0) {
        const uint16_t *rows = in->sel;
        uint32_t n = in->n_sel, first = j->rows.n;
        rc = 0;
        if (j->spec.n_keys) {
            rc = sql_run_program(j->right_program, j->right_words);
            n = rc < 0 ? 0 : live_rows(in, j->right_words, j->spec.n_keys, sel);
            rows = sel;
            if (rc == 0 && n)
                rc = sql_keys_add(&j->keys, j->right_words, rows, n, j->numbers);
            if (rc == 0 && n)
                rc = link_rows(op, j->numbers, first, n);
        }
        if (rc == 0 && n)
            rc = sql_rowset_add(&j->rows, wanted, rows, n);
    }
    return rc;
}

/* Key numbers of the left rows; rows with NULL keys have none. */
static int probe(struct op *op)
{
    struct join *j = op->state;
    const struct batch *in = &op->child->out;
    if (!j->spec.n_keys)
        return 0;
    uint32_t numbers[SQL_ROWS];
    int rc = sql_run_program(j->left_program, j->left_words);
    if (rc < 0)
        return rc;
    uint32_t n = live_rows(in, j->left_words, j->spec.n_keys, j->sel);
    memset(j->numbers, 0xff, SQL_ROWS * sizeof(*j->numbers)); /* NONE */
    if (n && j->keys.n)
        rc = sql_keys_find(&j->keys, j->left_words, j->sel, n, numbers);
    for (uint32_t k = 0; k < n && j->keys.n && rc == 0; k++)
        j->numbers[j->sel[k]] = numbers[k];
    return rc;
}

static uint32_t first_pair(const struct join *j, uint32_t left_row)
{
    if (!j->spec.n_keys)
        return j->rows.n ? 0 : NONE;
    uint32_t key = j->numbers[left_row];
    return key == NONE ? NONE : j->first[key];
}

static uint32_t next_pair(const struct join *j, uint32_t pair)
{
    if (j->spec.n_keys)
        return j->next[pair];
    return pair + 1 < j->rows.n ? pair + 1 : NONE;
}

/* Up to a batch of pairs from where we stand. */
static uint32_t take_pairs(struct join *j, const struct batch *in)
{
    uint32_t n = 0;
    while (j->left_at < in->n_sel && n < SQL_ROWS) {
        uint32_t i = in->sel ? in->sel[j->left_at] : j->left_at;
        if (j->pair_at == NONE - 1)
            j->pair_at = first_pair(j, i);
        while (j->pair_at != NONE && n < SQL_ROWS) {
            j->left_rows[n] = (uint16_t)i;
            j->right_rows[n++] = j->pair_at;
            j->pair_at = next_pair(j, j->pair_at);
        }
        if (j->pair_at == NONE) {
            j->left_at++;
            j->pair_at = NONE - 1; /* the next row's is not looked up yet */
        }
    }
    return n;
}

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
            if (from->type == SQL_NULL || (from->has_null && from->null[i]))
                sql_set_null(to, k);
            else if (sql_is_textual(from->type))
                to->t[k] = from->t[i];
            else
                to->i[k] = from->i[i];
        }
    }
}

static void gather(struct op *op, uint32_t n)
{
    struct join *j = op->state;
    gather_left(op, n);
    sql_rowset_get(&j->rows, j->right_rows, n, 0, j->rows.n_cols, j->gathered);
    for (uint32_t c = 0; c < j->n_right; c++)
        if (j->slots[c] != NONE)
            op->out.v[j->n_left + c] = j->gathered[j->slots[c]];
    op->out.n = op->out.n_sel = n;
    op->out.sel = NULL;
}

static int give_pairs(struct op *op, uint32_t n)
{
    struct join *j = op->state;
    gather(op, n);
    if (j->on) {
        int m = sql_run_filter(j->on, NULL, n, j->sel);
        if (m < 0)
            return m;
        op->out.sel = j->sel;
        op->out.n_sel = (uint32_t)m;
    }
    for (uint32_t k = 0; k < op->out.n_sel && j->row_matched; k++)
        j->row_matched[j->left_rows[op->out.sel ? op->out.sel[k] : k]] = 1;
    return 1;
}

/* Left rows of the batch without a match, once, after all its pairs. */
static uint32_t take_lonely(struct join *j, const struct batch *in)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < in->n_sel; k++) {
        uint32_t i = in->sel ? in->sel[k] : k;
        if (j->row_matched[i])
            continue;
        j->left_rows[n] = (uint16_t)i;
        j->right_rows[n++] = NONE;
    }
    return n;
}

static int next_left(struct op *op)
{
    struct join *j = op->state;
    int rc = sql_next(op->child);
    if (rc <= 0)
        return rc;
    j->have_left = true;
    j->left_at = 0;
    j->pair_at = NONE - 1;
    if (j->row_matched)
        memset(j->row_matched, 0, SQL_ROWS);
    rc = probe(op);
    return rc < 0 ? rc : 1;
}

static int next_join(struct op *op)
{
    struct join *j = op->state;
    int rc = j->ready ? 0 : build(op);
    j->ready = true;
    while (rc >= 0) {
        if (!j->have_left && (rc = next_left(op)) <= 0)
            return rc;
        uint32_t n = take_pairs(j, &op->child->out);
        if (n)
            return give_pairs(op, n);
        j->have_left = false;
        if (!j->row_matched)
            continue;
        n = take_lonely(j, &op->child->out);
        if (n) {
            gather(op, n);
            return 1;
        }
    }
    return rc;
}

int sql_join(struct op *left, struct op *right, const struct join_spec *spec, struct op **ret)
{
    struct query *q = left->q;
    struct op *op = sql_op(q, next_join, "join", left->n_cols + right->n_cols);
    struct join *j = op ? sql_get(q, 1, sizeof(*j)) : NULL;
    if (!j)
        return -ENOMEM;
    op->child = left;
    op->right = right;
    op->state = j;
    op->on_want = want;
    op->want = sql_get(q, op->n_cols, sizeof(*op->want));
    j->spec = *spec;
    j->n_left = left->n_cols;
    j->n_right = right->n_cols;
    j->slots = sql_get(q, j->n_right, sizeof(*j->slots));
    j->types = sql_get(q, j->n_right, sizeof(*j->types));
    j->numbers = sql_get(q, SQL_ROWS, sizeof(*j->numbers));
    if (!op->want || !j->slots || !j->types || !j->numbers)
        return -ENOMEM;
    if (spec->type == JOIN_LEFT && !(j->row_matched = sql_get(q, SQL_ROWS, 1)))
        return -ENOMEM;
    for (uint32_t c = 0; c < op->n_cols; c++) {
        op->cols[c] = c < j->n_left ? left->cols[c] : right->cols[c - j->n_left];
        op->cols[c].dict = false;
        op->out.v[c] = (struct vec){.type = op->cols[c].type};
    }
    *ret = op;
    return 0;
}

int sql_join_on(struct op *op, const struct join_spec *spec, struct expr *on)
{
    struct join *j = op->state;
    struct query *q = op->q;
    enum sql_type types[SQL_CALL_ARGS];
    j->spec = *spec;
    op->detail = sql_getf(q, "%s%s", spec->type == JOIN_LEFT ? "left" : "inner",
                          spec->n_keys ? ", by hash" : ", every pair");
    j->left_words = sql_get(q, spec->n_keys, sizeof(*j->left_words));
    j->right_words = sql_get(q, spec->n_keys, sizeof(*j->right_words));
    if (!op->detail || !j->left_words || !j->right_words)
        return -ENOMEM;
    for (uint32_t k = 0; k < spec->n_keys; k++) {
        types[k] = spec->left_keys[k]->type;
        spec->left_keys[k]->dict = spec->right_keys[k]->dict = false;
    }
    int rc = 0;
    if (spec->n_keys) {
        rc = sql_keys_init(&j->keys, q, types, NULL, spec->n_keys);
        if (rc == 0)
            rc = sql_compile(q, &op->child->out, spec->left_keys, spec->n_keys, &j->left_program);
        if (rc == 0)
            rc = sql_compile(q, &op->right->out, spec->right_keys, spec->n_keys, &j->right_program);
    }
    if (rc == 0 && on)
        rc = sql_compile(q, &op->out, &on, 1, &j->on);
    return rc;
}
