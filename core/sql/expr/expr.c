/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/expr/expr.c - typed expressions as a flat list of steps, and the list run over a batch.
 *
 * A step computes one vector.  Conditional parts (case, coalesce, and, or) narrow the selection on
 * a small stack, so that `case when x <> 0 then 1 / x end` never divides by zero.  A predicate on
 * one dictionary column is computed once per distinct id and remembered.
 * The query's thread only.
 */
#include "core/sql/expr/program.h"

#include <errno.h>
#include <string.h>

#include "core/base/err.h"

#define MADE_BYTES (1 << 20)  /* of texts made between looks at the limits */
#define PIECE_BYTES (4 << 20) /* of texts looked at, likewise: about a ms */

int sql_run_error(struct run *r, const struct step *st, int code, const char *what)
{
    return sql_error(r->q->text, r->q->size, st->expr->pos, code, "%s", what);
}

void *sql_scratch(struct run *r, size_t size)
{
    r->made += size;
    if (r->made > MADE_BYTES) { /* sql_next() knows why, whatever the kernel says */
        r->made = 0;
        if (sql_check(r->q) < 0)
            return NULL;
    }
    void *m = arena_alloc(r->scratch, size ? size : 1);
    if (!m)
        (void)err_set(-ENOMEM, "the texts that this query makes do not fit into its memory");
    return m;
}

/* Rows of the frame for which no argument is NULL; the others become NULL in dst. */
static uint32_t without_nulls(struct step *st, const uint16_t *sel, uint32_t n, uint16_t *live)
{
    uint32_t m = 0;
    memset(st->dst->null, 0, SQL_ROWS);
    st->dst->has_null = true;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        uint8_t null = 0;
        for (uint32_t a = 0; a < st->n_args; a++)
            null |= sql_is_null(st->args[a], i);
        st->dst->null[i] = null;
        live[m] = (uint16_t)i;
        m += !null;
    }
    return m;
}

static int grow_cache(struct program *p, struct step *st)
{
    uint64_t need = intern_last(p->run.q->s->interns) + 1;
    need += need / 4;
    uint8_t *more = sql_get(p->run.q, need, 1);
    if (!more)
        return -ENOMEM;
    memcpy(more, st->cache, st->n_cache);
    st->cache = more;
    st->n_cache = need;
    return 0;
}

/* A predicate of one dictionary column: only ids not seen before are computed. */
static int run_by_id(struct program *p, struct step *st, const uint16_t *sel, uint32_t n)
{
    const uint64_t *ids = st->a[0]->ids;
    uint16_t unknown[SQL_ROWS];
    uint32_t m = 0;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        if (ids[i] >= st->n_cache && grow_cache(p, st) < 0)
            return -ENOMEM;
        unknown[m] = (uint16_t)i;
        m += ids[i] < st->n_cache && st->cache[ids[i]] == 0;
    }
    if (m) {
        sql_texts(p->run.q, st->a[0], unknown, m);
        int rc = st->run(&p->run, st, unknown, m);
        if (rc < 0)
            return rc;
        for (uint32_t k = 0; k < m; k++) {
            uint32_t i = unknown[k];
            bool null = st->dst->has_null && st->dst->null[i];
            st->cache[ids[i]] = null ? 3 : st->dst->i[i] ? 2 : 1;
        }
    }
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        uint8_t answer = st->cache[ids[i]];
        st->dst->i[i] = answer == 2;
        if (answer == 3)
            sql_set_null(st->dst, i);
    }
    return 0;
}

/* A kernel over long texts: in pieces, with looks at the limits between them. */
static int run_pieces(struct program *p, struct step *st, const uint16_t *sel, uint32_t n)
{
    const uint16_t *rows = sel ? sel : p->run.q->all;
    uint64_t bytes = 0;
    int rc = 0;
    for (uint32_t k = 0, from = 0; k < n && rc == 0; k++) {
        for (uint32_t a = 0; a < st->n_args; a++) {
            const struct vec *v = st->args[a];
            bool there = sql_is_textual(v->type) && !(v->has_null && v->null[rows[k]]);
            bytes += there ? v->t[rows[k]].size : 0;
        }
        if (bytes <= PIECE_BYTES && k + 1 < n)
            continue;
        bool whole = from == 0 && k + 1 == n;
        rc = st->run(&p->run, st, whole ? sel : rows + from, k + 1 - from);
        if (rc == 0 && bytes > PIECE_BYTES)
            rc = sql_check(p->run.q);
        from = k + 1;
        bytes = 0;
    }
    return rc;
}

static int run_call(struct program *p, struct step *st, const uint16_t *sel, uint32_t n)
{
    bool nulls = false;
    st->dst->has_null = false;
    for (uint32_t a = 0; a < st->n_args && !nulls && st->op == STEP_CALL; a++)
        nulls = st->args[a]->has_null || st->args[a]->type == SQL_NULL;
    if (nulls) {
        n = without_nulls(st, sel, n, p->live);
        sel = p->live;
    }
    if (n == 0)
        return 0;
    if (st->cache && st->a[0]->ids)
        return run_by_id(p, st, sel, n);
    bool textual = false;
    for (uint32_t a = 0; a < st->n_args; a++) {
        sql_texts(p->run.q, st->args[a], sel, n);
        textual = textual || sql_is_textual(st->args[a]->type);
    }
    return textual ? run_pieces(p, st, sel, n) : st->run(&p->run, st, sel, n);
}

static void narrow_frame(struct frame *to, const struct frame *from, int op, const struct vec *a)
{
    uint32_t m = 0;
    for (uint32_t k = 0; k < from->n; k++) {
        uint32_t i = from->sel ? from->sel[k] : k;
        bool null = sql_is_null(a, i);
        bool keep = null;
        if (op == STEP_PUSH_TRUE)
            keep = !null && a->i[i];
        else if (op == STEP_KEEP_NOT_TRUE)
            keep = null || !a->i[i];
        else if (op == STEP_KEEP_NOT_FALSE)
            keep = null || a->i[i];
        to->room[m] = (uint16_t)i; /* m <= k: in place is fine */
        m += keep;
    }
    to->sel = to->room;
    to->n = m;
}

static void copy_rows(struct query *q, struct vec *dst, struct vec *a, const struct frame *f)
{
    bool textual = sql_is_textual(dst->type);
    if (textual)
        sql_texts(q, a, f->sel, f->n);
    for (uint32_t k = 0; k < f->n; k++) {
        uint32_t i = f->sel ? f->sel[k] : k;
        bool null = sql_is_null(a, i);
        if (null)
            sql_set_null(dst, i);
        else if (dst->has_null)
            dst->null[i] = 0;
        if (!null && textual)
            dst->t[i] = a->t[i];
        else if (!null)
            dst->i[i] = a->i[i];
    }
}

/* Three-valued and / or: `absorbing` (false for and, true for or) wins over NULL. */
static void combine_bools(struct vec *dst, const struct vec *a, const struct frame *f,
                          bool absorbing)
{
    for (uint32_t k = 0; k < f->n; k++) {
        uint32_t i = f->sel ? f->sel[k] : k;
        bool x_null = sql_is_null(dst, i), y_null = sql_is_null(a, i);
        if ((!x_null && (dst->i[i] != 0) == absorbing) ||
            (!y_null && (a->i[i] != 0) == absorbing)) {
            dst->i[i] = absorbing;
            if (dst->has_null)
                dst->null[i] = 0;
        } else if (x_null || y_null) {
            sql_set_null(dst, i);
        } else {
            dst->i[i] = !absorbing;
        }
    }
}

static int run_step(struct program *p, struct step *st, uint32_t *depth)
{
    struct frame *f = &p->frames[*depth];
    switch (st->op) {
    case STEP_CALL:
    case STEP_CALL_NULLS:
        return run_call(p, st, f->sel, f->n);
    case STEP_PUSH:
        if (st->dst) {
            st->dst->has_null = false;
            st->dst->stable = false;
        }
        f[1].sel = f->sel;
        f[1].n = f->n;
        (*depth)++;
        return 0;
    case STEP_PUSH_TRUE:
        narrow_frame(&f[1], f, st->op, st->a[0]);
        (*depth)++;
        return 0;
    case STEP_POP:
        (*depth)--;
        return 0;
    case STEP_COPY:
        copy_rows(p->run.q, st->dst, st->a[0], f);
        return 0;
    case STEP_NULL:
        for (uint32_t k = 0; k < f->n; k++)
            sql_set_null(st->dst, f->sel ? f->sel[k] : k);
        return 0;
    case STEP_AND:
    case STEP_OR:
        combine_bools(st->dst, st->a[0], f, st->op == STEP_OR);
        return 0;
    default: /* STEP_KEEP_ ... */
        narrow_frame(f, f, st->op, st->a[0]);
        return 0;
    }
}

static int run_steps(struct program *p, const uint16_t *sel, uint32_t n)
{
    uint32_t depth = 0;
    p->frames[0].sel = sel;
    p->frames[0].n = n;
    if (p->scratch.used_bytes) {
        arena_done(&p->scratch);
        arena_init_in(&p->scratch, p->run.q->budget);
    }
    for (uint32_t i = 0; i < p->n_steps; i++) {
        int rc = run_step(p, &p->steps[i], &depth);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int sql_run_program_on(struct program *p, const uint16_t *sel, uint32_t n, struct vec **results)
{
    int rc = run_steps(p, sel, n);
    if (rc == 0 && results)
        memcpy(results, p->results, p->n_results * sizeof(*results));
    return rc;
}

int sql_run_program(struct program *p, struct vec **results)
{
    return sql_run_program_on(p, p->input->sel, p->input->n_sel, results);
}

int sql_run_filter(struct program *p, const uint16_t *sel, uint32_t n, uint16_t *ret_sel)
{
    int rc = run_steps(p, sel, n);
    struct frame to = {.room = ret_sel}, from = {.sel = sel, .n = n};
    if (rc < 0)
        return rc;
    narrow_frame(&to, &from, STEP_PUSH_TRUE, p->results[0]);
    return (int)to.n;
}

int sql_fold(struct query *q, struct expr *e, struct sql_value *ret)
{
    struct sandbox box;
    struct batch none = {.n = 1, .n_sel = 1};
    struct program *p;
    struct vec *result;
    struct sql_value v = {.type = SQL_NULL};
    sql_sandbox_enter(q, &box);
    int rc = sql_compile(q, &none, &e, 1, &p);
    if (rc == 0)
        rc = sql_run_program(p, &result);
    if (rc == 0)
        v = sql_vec_value(q, result, 0);
    rc = sql_sandbox_leave(q, &box, &v, rc);
    if (rc == 0)
        *ret = v;
    return rc;
}
