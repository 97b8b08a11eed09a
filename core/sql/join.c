/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/join.c - joins: the right side is kept, the left side streams.
 *
 * Equal keys are found by hash; without any every pair is looked at.  Other conditions narrow the
 * pairs.  What had no match on the left comes after its batch, on the right at the end.
 * The query's thread only.
 */
#include "core/sql/join.h"

#include <errno.h>
#include <string.h>

#include "core/base/err.h"

#define NONE JOIN_NONE
#define NOT_LOOKED (JOIN_NONE - 1) /* the pairs of a left row */

static void want(struct op *op, uint32_t column)
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

static bool keeps_left(const struct join *j)
{
    return j->type == JOIN_LEFT || j->type == JOIN_FULL || j->type == JOIN_ASOF_LEFT;
}

static bool keeps_right(const struct join *j)
{
    return j->type == JOIN_RIGHT || j->type == JOIN_FULL;
}

static bool is_asof(const struct join *j)
{
    return j->type == JOIN_ASOF || j->type == JOIN_ASOF_LEFT;
}

/* ---- the right side ---- */

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

/* Rows first + at[k] (at NULL: first + k) have the keys numbers[k]. */
static int link_rows(struct op *op, const uint32_t *numbers, uint32_t first_row, const uint32_t *at,
                     uint32_t n)
{
    struct join *j = op->state;
    uint32_t end = first_row + (at && n ? at[n - 1] + 1 : n);
    if (j->keys.n > j->keys_room) {
        uint32_t used = j->keys_room;
        j->keys_room = 2 * j->keys.n;
        if (grow(op->q, &j->first, j->keys_room, used) < 0 ||
            grow(op->q, &j->last, j->keys_room, used) < 0)
            return -ENOMEM;
        for (uint32_t k = used; k < j->keys_room; k++)
            j->first[k] = NONE;
    }
    if (end > j->rows_room) {
        uint32_t used = j->rows_room;
        j->rows_room = 2 * end;
        if (grow(op->q, &j->next, j->rows_room, used) < 0)
            return -ENOMEM;
    }
    for (uint32_t r = 0; r < n; r++) {
        uint32_t row = first_row + (at ? at[r] : r), key = numbers[r];
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

/* Rows whose keys are not NULL: NULL equals nothing.  at: their places among the selected. */
static uint32_t live_rows(const struct batch *in, struct vec **v, uint32_t n_keys, uint16_t *sel,
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

static int compile(struct op *op)
{
    struct join *j = op->state;
    struct query *q = op->q;
    enum sql_type types[SQL_CALL_ARGS + 1];
    uint32_t n = j->n_keys + (is_asof(j) ? 1 : 0);
    for (uint32_t k = 0; k < j->n_keys; k++) {
        types[k] = j->left_keys[k]->type;
        j->left_keys[k]->dict = j->right_keys[k]->dict = false;
    }
    j->left_words = sql_get(q, n, sizeof(*j->left_words));
    j->right_words = sql_get(q, n, sizeof(*j->right_words));
    if (!j->left_words || !j->right_words)
        return -ENOMEM;
    if (is_asof(j)) { /* the asof values are the last of the computed */
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
    for (uint32_t c = 0; c < op->n_cols; c++)
        if (op->want[c] && (c < j->n_left || c >= j->n_left + j->n_right) &&
            sql_vec_room(q, &op->out.v[c], op->cols[c].type) < 0)
            return -ENOMEM;
    for (uint32_t c = 0; c < j->n_right; c++)
        if (j->slots[c] != NONE)
            op->out.v[j->n_left + c] = j->gathered[j->slots[c]];
    return compile(op);
}

/* One batch of the right side: keys, then its rows. */
static int keep_batch(struct op *op, struct vec **wanted, uint32_t *at)
{
    struct join *j = op->state;
    const struct batch *in = &op->right->out;
    const uint16_t *rows = in->sel;
    uint32_t n = in->n_sel, first = j->rows.n;
    uint32_t words = j->n_keys + (is_asof(j) ? 1 : 0);
    int rc = 0;
    if (words) {
        rc = sql_run_program(j->right_program, j->right_words);
        uint32_t live = rc < 0 ? 0 : live_rows(in, j->right_words, words, j->sel, at);
        if (live && j->n_keys)
            rc = sql_keys_add(&j->keys, j->right_words, j->sel, live, j->numbers);
        if (rc == 0 && live && !is_asof(j))
            rc = link_rows(op, j->numbers, first, keeps_right(j) ? at : NULL, live);
        if (rc == 0 && live && is_asof(j))
            rc = sql_asof_keep(op, j->right_words[j->n_keys], j->n_keys ? j->numbers : NULL, j->sel,
                               live);
        if (!keeps_right(j)) { /* rows with NULL keys will never be seen */
            rows = j->sel;
            n = live;
        }
    }
    return rc == 0 && n ? sql_rowset_add(&j->rows, wanted, rows, n) : rc;
}

static int build(struct op *op)
{
    struct join *j = op->state;
    struct vec **wanted = sql_get(op->q, j->n_right, sizeof(*wanted));
    uint32_t *at = sql_get(op->q, SQL_ROWS, sizeof(*at));
    int rc = wanted && at ? prepare(op) : -ENOMEM;
    for (uint32_t c = 0; rc == 0 && c < j->n_right; c++)
        if (j->slots[c] != NONE)
            wanted[j->slots[c]] = &op->right->out.v[c];
    while (rc == 0 && (rc = sql_next(op->right)) > 0)
        rc = keep_batch(op, wanted, at);
    if (rc == 0 && is_asof(j))
        rc = sql_asof_sort(op);
    if (rc == 0 && keeps_right(j)) {
        /* Rows behind the last linked one have NULL keys: the chains never lead to them. */
        j->right_matched = sql_get(op->q, j->rows.n, 1);
        rc = j->right_matched ? 0 : -ENOMEM;
    }
    return rc;
}

/* ---- the left side ---- */

/* Key numbers of the left rows; rows with NULL keys have none. */
static int probe(struct op *op)
{
    struct join *j = op->state;
    const struct batch *in = &op->child->out;
    if (!j->left_program)
        return 0;
    int rc = sql_run_program(j->left_program, j->left_words);
    if (rc < 0)
        return rc;
    if (is_asof(j))
        sql_texts(op->q, j->left_words[j->n_keys], in->sel, in->n_sel);
    if (!j->n_keys) {
        memset(j->numbers, 0, SQL_ROWS * sizeof(*j->numbers));
        return 0;
    }
    /* right_rows is not in use yet: places, then numbers. */
    uint32_t n = live_rows(in, j->left_words, j->n_keys, j->sel, j->right_rows);
    memset(j->numbers, 0xff, SQL_ROWS * sizeof(*j->numbers)); /* NONE */
    if (n && j->keys.n)
        rc = sql_keys_find(&j->keys, j->left_words, j->sel, n, j->right_rows);
    for (uint32_t k = 0; k < n && j->keys.n && rc == 0; k++)
        j->numbers[j->sel[k]] = j->right_rows[k];
    return rc;
}

static uint32_t first_pair(const struct join *j, uint32_t left_row)
{
    if (is_asof(j))
        return sql_asof_find(j, j->numbers[left_row], j->left_words[j->n_keys], left_row);
    if (!j->n_keys)
        return j->rows.n ? 0 : NONE;
    uint32_t key = j->numbers[left_row];
    return key == NONE ? NONE : j->first[key];
}

static uint32_t next_pair(const struct join *j, uint32_t pair)
{
    if (is_asof(j))
        return NONE;
    if (j->n_keys)
        return j->next[pair];
    return pair + 1 < j->rows.n ? pair + 1 : NONE;
}

/* Up to a batch of pairs from where we stand. */
static uint32_t take_pairs(struct join *j, const struct batch *in)
{
    uint32_t n = 0;
    while (j->left_at < in->n_sel && n < SQL_ROWS) {
        uint32_t i = in->sel ? in->sel[j->left_at] : j->left_at;
        if (j->pair_at == NOT_LOOKED)
            j->pair_at = first_pair(j, i);
        while (j->pair_at != NONE && n < SQL_ROWS) {
            j->left_rows[n] = (uint16_t)i;
            j->right_rows[n++] = j->pair_at;
            j->pair_at = next_pair(j, j->pair_at);
        }
        if (j->pair_at == NONE) {
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
            if (from->type == SQL_NULL || (from->has_null && from->null[i]))
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

static void merge(struct op *op, uint32_t n)
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

static void gather(struct op *op, uint32_t n, bool left)
{
    struct join *j = op->state;
    if (left)
        gather_left(op, n);
    else
        no_left(op);
    sql_rowset_get(&j->rows, j->right_rows, n, 0, j->rows.n_cols, j->gathered);
    for (uint32_t c = 0; c < j->n_right; c++)
        if (j->slots[c] != NONE)
            op->out.v[j->n_left + c] = j->gathered[j->slots[c]];
    merge(op, n);
    op->out.n = op->out.n_sel = n;
    op->out.sel = NULL;
}

static int give_pairs(struct op *op, uint32_t n)
{
    struct join *j = op->state;
    gather(op, n, true);
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
        j->right_rows[n++] = NONE;
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
        gather(op, n, false);
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
            return rc < 0 || !j->right_matched ? rc : give_lonely_right(op);
        uint32_t n = take_pairs(j, &op->child->out);
        if (n)
            return give_pairs(op, n);
        j->have_left = false;
        if (!j->left_matched)
            continue;
        n = lonely_left(j, &op->child->out);
        if (n) {
            gather(op, n, true);
            return 1;
        }
    }
    return rc;
}

/* ---- making one ---- */

bool sql_is_join(const struct op *op, enum join_type *ret_type, uint32_t *ret_n_left)
{
    if (op->next != next_join)
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
            op->cols[c].first = true;
        }
        op->out.v[c] = (struct vec){.type = op->cols[c].type};
    }
}

int sql_join(struct op *left, struct op *right, enum join_type type,
             const struct join_merge *merges, uint32_t n_merges, struct op **ret)
{
    struct query *q = left->q;
    struct op *op = sql_op(q, next_join, "join", left->n_cols + right->n_cols + n_merges);
    struct join *j = op ? sql_get(q, 1, sizeof(*j)) : NULL;
    if (!j)
        return -ENOMEM;
    op->child = left;
    op->right = right;
    op->state = j;
    op->on_want = want;
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
    j->left_matched = keeps_left(j) ? sql_get(q, SQL_ROWS, 1) : NULL;
    if (!op->want || !j->merges || !j->slots || !j->types || !j->numbers || !j->left_rows ||
        !j->right_rows || !j->sel || !j->left_keys || !j->right_keys || !j->rest ||
        (keeps_left(j) && !j->left_matched))
        return -ENOMEM;
    if (n_merges)
        memcpy(j->merges, merges, n_merges * sizeof(*merges));
    describe_columns(op, left, right);
    *ret = op;
    return 0;
}

static int describe(struct op *op)
{
    static const char *const names[] = {"inner", "left", "right",    "full",
                                        "cross", "asof", "asof left"};
    const struct join *j = op->state;
    op->detail = sql_getf(op->q, "%s%s", names[j->type],
                          is_asof(j)  ? ", by halves"
                          : j->n_keys ? ", by hash"
                                      : ", every pair");
    return op->detail ? 0 : -ENOMEM;
}

/* Take `l compare r`, l over the left side, r over the right.  false: it is no key. */
static bool take_pair(struct join *j, const char *compare, struct expr *l, struct expr *r)
{
    if (strcmp(compare, "=") == 0 && j->n_keys < SQL_CALL_ARGS) {
        j->left_keys[j->n_keys] = l;
        j->right_keys[j->n_keys++] = r;
        return true;
    }
    if (!is_asof(j) || !strchr("<>", compare[0]) || strcmp(compare, "<>") == 0 || j->asof_compare)
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
            return describe(op);
    }
    if (is_asof(j))
        return sql_error(op->q->text, op->q->size, e->pos, -EINVAL,
                         "an asof join takes equalities and one comparison of both sides; filter "
                         "in a select around it");
    if (j->n_rest < SQL_CALL_ARGS) {
        j->rest[j->n_rest++] = e;
        return describe(op);
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
    if (is_asof(j) && !j->asof_compare)
        return sql_error(op->q->text, op->q->size, pos, -EINVAL,
                         "an asof join needs a comparison of both sides, like a.ts >= b.ts");
    return describe(op);
}
