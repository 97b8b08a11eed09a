/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/plan/recursive.c - with recursive: rows of a select that reads what it gave the last
 * time.
 *
 * The first part of the union runs once.  The second is planned and run for each round, with the
 * rows of the round before in the place of its own name, until a round gives none; what a round
 * takes is thrown away but for its rows.  The query's thread only.
 */
#include "core/sql/plan/plan.h"

#include <errno.h>
#include <string.h>

struct recursive {
    struct cte *cte;
    struct place place;
    enum sql_type *types;
    struct keys *seen; /* union without all; NULL: every row counts */
    struct vec **v;
    uint32_t *numbers;
    uint16_t *sel;
    struct arena mem[2]; /* the rows of this round and of the one before */
    struct rowset rows[2];
    int at;
    struct nested *round; /* that runs */
    uint32_t next_chunk;
    bool begun;
    bool once; /* the second part does not read the first: a union as any other */
    bool over;
};

/* Rows seen are kept for good, whatever memory the round itself lives in. */
static int number_rows(struct query *q, struct recursive *r, const uint16_t *sel, uint32_t n)
{
    struct arena round = q->mem;
    if (r->round)
        q->mem = r->round->box.mem;
    int rc = sql_keys_add(r->seen, r->v, sel, n, r->numbers);
    if (r->round) {
        r->round->box.mem = q->mem;
        q->mem = round;
    }
    return rc;
}

/* Columns of one part as those of the whole. */
static int cast_part(struct query *q, const struct cte *c, const struct col *whole,
                     const enum sql_type *types, struct op **op)
{
    uint32_t n = (*op)->n_cols;
    struct expr **exprs = sql_get(q, n, sizeof(struct expr *));
    struct col *cols = sql_get(q, n, sizeof(*cols));
    if (!exprs || !cols)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++) {
        cols[i] = (*op)->cols[i];
        sql_want(*op, i);
        if (!(exprs[i] = sql_column_expr(q, *op, i, c->select->pos)))
            return -ENOMEM;
        struct expr other = {.mark = whole[i].mark}, *pair[2] = {exprs[i], &other};
        uint8_t mark;
        int rc = sql_unite_marks(q, c->select->pos, pair, &mark);
        exprs[i] = pair[0];
        cols[i].mark = mark;
        if (rc == 0 && types[i] != exprs[i]->type)
            rc = sql_coerce(q, &exprs[i], types[i], "union");
        if (rc < 0)
            return rc;
    }
    return sql_project(*op, exprs, cols, n, op);
}

/* The rows that count of a batch, into this round's. */
static int take_batch(struct op *op, struct op *from)
{
    struct recursive *r = op->state;
    const uint16_t *sel = from->out.sel;
    uint32_t n = from->out.n_sel;
    for (uint32_t c = 0; c < op->n_cols; c++) {
        r->v[c] = &from->out.v[c];
        r->v[c]->stable = false; /* a round's texts go with it */
    }
    if (r->seen) {
        uint32_t known = r->seen->n, m = 0;
        int rc = number_rows(op->q, r, sel, n);
        if (rc < 0)
            return rc;
        for (uint32_t k = 0; k < n; k++) {
            r->sel[m] = sel ? sel[k] : (uint16_t)k;
            if (r->numbers[k] == known) {
                known++;
                m++;
            }
        }
        sel = r->sel;
        n = m;
    }
    return n ? sql_rowset_add(&r->rows[r->at], r->v, sel, n) : 0;
}

static int run_part(struct op *op, struct op *part)
{
    int rc;
    while ((rc = sql_next(part)) > 0)
        if ((rc = take_batch(op, part)) < 0)
            break;
    return rc;
}

/* Subqueries and laterals of the second part are planned while it runs: its name stands for these
 * rows until then. */
static int run_round(struct op *op, struct rowset *before)
{
    struct recursive *r = op->state;
    struct query *q = op->q;
    struct cte *c = r->cte;
    const struct working now = {before, op->cols}, *outside = c->working;
    struct nested nested;
    struct op *part;
    int rc = sql_nested_enter(q, &nested, &r->place);
    if (rc < 0)
        return rc;
    r->round = &nested;
    c->working = &now;
    rc = sql_plan_select(q, c->select->right, c, &part);
    if (rc == 0)
        rc = cast_part(q, c, op->cols, r->types, &part);
    if (rc == 0)
        rc = run_part(op, part);
    c->working = outside;
    r->round = NULL;
    return sql_nested_leave(q, &nested, NULL, rc);
}

static int begin_round(struct op *op)
{
    struct recursive *r = op->state;
    struct rowset *before = &r->rows[r->at];
    r->at = 1 - r->at;
    arena_done(&r->mem[r->at]);
    arena_init_in(&r->mem[r->at], op->q->budget);
    (void)sql_rowset_init(&r->rows[r->at], op->q, &r->mem[r->at], r->types, op->n_cols);
    r->next_chunk = 0;
    int rc = sql_check(op->q);
    if (rc < 0)
        return rc;
    if (r->begun) {
        r->over = r->once;
        return run_round(op, before);
    }
    r->begun = true;
    return run_part(op, op->child);
}

static int next_recursive(struct op *op)
{
    struct recursive *r = op->state;
    if ((uint64_t)r->next_chunk * SQL_ROWS >= r->rows[r->at].n) {
        if (r->over || (r->begun && !r->once && r->rows[r->at].n == 0))
            return 0;
        int rc = begin_round(op);
        if (rc < 0)
            return rc;
    }
    const struct rowset *rows = &r->rows[r->at];
    if (rows->n == 0)
        return r->once && !r->over ? next_recursive(op) : 0;
    uint32_t left = rows->n - r->next_chunk * SQL_ROWS;
    memcpy(op->out.v, rows->chunks[r->next_chunk++], op->n_cols * sizeof(struct vec));
    for (uint32_t c = 0; c < op->n_cols; c++)
        op->out.v[c].stable = false; /* the round after the next takes its room */
    op->out.n = op->out.n_sel = left < SQL_ROWS ? left : SQL_ROWS;
    return 1;
}

static void recursive_done(void *arg)
{
    struct recursive *r = arg;
    arena_done(&r->mem[0]);
    arena_done(&r->mem[1]);
}

static int make_round(struct query *q, struct cte *c, struct op *first, enum sql_type *types,
                      struct op **ret)
{
    uint32_t n = first->n_cols;
    struct op *op = sql_op(q, next_recursive, "recursive", n);
    struct recursive *r = op ? sql_get(q, 1, sizeof(*r)) : NULL;
    if (!r)
        return -ENOMEM;
    *r = (struct recursive){.cte = c, .place = sql_place(q), .types = types};
    r->v = sql_get(q, n, sizeof(*r->v));
    r->numbers = sql_get(q, SQL_ROWS, sizeof(*r->numbers));
    r->sel = sql_get(q, SQL_ROWS, sizeof(*r->sel));
    arena_init_in(&r->mem[0], q->budget);
    arena_init_in(&r->mem[1], q->budget);
    if (!r->v || !r->numbers || !r->sel || sql_defer(q, recursive_done, r) < 0)
        return -ENOMEM;
    if (!c->select->all && !(r->seen = sql_get(q, 1, sizeof(*r->seen))))
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++) {
        op->cols[i] = first->cols[i];
        op->cols[i].dict = false;
        op->out.v[i] = (struct vec){.type = types[i]};
    }
    op->child = first;
    op->state = r;
    op->detail = c->name;
    *ret = op;
    return r->seen ? sql_keys_init(r->seen, q, types, NULL, n) : 0;
}

/* Plan the second part over no rows of the first's types, to see what it gives.  q->n_running keeps
 * subqueries in it from being answered once for all rounds. */
static int look_at_types(struct query *q, struct cte *c, struct op *first, enum sql_type *types,
                         struct op **ret)
{
    struct rowset none;
    const struct working now = {&none, first->cols}, *outside = c->working;
    const struct query_notes notes = q->notes;
    (void)sql_rowset_init(&none, q, &q->mem, types, first->n_cols);
    c->working = &now;
    q->n_running++;
    int rc = sql_plan_select(q, c->select->right, c, ret);
    q->n_running--;
    c->working = outside;
    sql_notes_looked(q, &notes);
    return rc;
}

/* The types of both parts together. */
static int find_types(struct query *q, struct cte *c, struct op *first, enum sql_type *types,
                      bool *ret_reads)
{
    bool used = c->used;
    struct op *second;
    uint32_t n = first->n_cols;
    c->used = false;
    int rc = look_at_types(q, c, first, types, &second);
    *ret_reads = c->used;
    c->used = used;
    if (rc == 0 && second->n_cols != n)
        rc = sql_error(q->text, q->size, c->select->pos, -EINVAL,
                       "union of %u columns and %u columns", n, second->n_cols);
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        struct expr *pair[2] = {sql_column_expr(q, first, i, c->select->pos),
                                sql_column_expr(q, second, i, c->select->pos)};
        rc = pair[0] && pair[1] ? sql_unite_marks(q, c->select->pos, pair, &first->cols[i].mark)
                                : -ENOMEM;
        rc = rc < 0 ? rc : sql_unify(q, pair, 2, "union", &types[i]);
    }
    return rc;
}

int sql_plan_recursive(struct query *q, struct cte *c, struct op **ret)
{
    struct op *first;
    const struct select *s = c->select;
    if (s->n_order || s->limit || s->offset)
        return sql_error(q->text, q->size, s->pos, -EINVAL,
                         "order by and limit of a recursive select belong where it is read");
    int rc = sql_plan_select(q, s->left, c, &first);
    enum sql_type *types = rc < 0 ? NULL : sql_get(q, first->n_cols, sizeof(*types));
    if (!types)
        return rc < 0 ? rc : -ENOMEM;
    for (uint32_t i = 0; i < first->n_cols; i++) {
        types[i] = first->cols[i].type;
        if (i < c->n_columns)
            first->cols[i].name = c->columns[i];
    }
    bool reads;
    rc = find_types(q, c, first, types, &reads);
    if (rc == 0)
        rc = cast_part(q, c, first->cols, types, &first);
    if (rc == 0)
        rc = make_round(q, c, first, types, ret);
    if (rc == 0)
        ((struct recursive *)(*ret)->state)->once = !reads;
    return rc;
}
