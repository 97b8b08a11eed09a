/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/expr/expr_compile.c - expressions become flat steps over vectors.
 *
 * The query's thread only.  What only some rows need (case, and, or, coalesce) stands between a
 * push and a pop of the rows that count.
 */
#include "core/sql/expr/program.h"

#include <errno.h>
#include <string.h>

static struct step *add_step(struct program *p, int op, struct vec *dst, struct vec *a)
{
    struct query *q = p->run.q;
    if (p->n_steps == p->room_steps) {
        uint32_t room = p->room_steps ? 2 * p->room_steps : 16;
        struct step *more = sql_get(q, room, sizeof(*more));
        if (!more)
            return NULL;
        if (p->n_steps)
            memcpy(more, p->steps, p->n_steps * sizeof(*more));
        p->steps = more;
        p->room_steps = room;
    }
    struct step *s = &p->steps[p->n_steps++];
    *s = (struct step){.op = op, .dst = dst, .a = {a}};
    if (op == STEP_PUSH || op == STEP_PUSH_TRUE)
        p->depth++;
    if (op == STEP_POP)
        p->depth--;
    if (p->depth > p->max_depth)
        p->max_depth = p->depth;
    return s;
}

static struct vec *new_vec(struct program *p, enum sql_type type)
{
    struct vec *v = sql_get(p->run.q, 1, sizeof(*v));
    return v && sql_vec_room(p->run.q, v, type) == 0 ? v : NULL;
}

static struct vec *compile_const(struct program *p, const struct expr *e)
{
    struct vec *v = new_vec(p, e->type);
    if (!v)
        return NULL;
    v->stable = true;
    if (e->value.type == SQL_NULL) {
        v->has_null = true;
        memset(v->null, 1, SQL_ROWS);
        return v;
    }
    for (uint32_t i = 0; i < SQL_ROWS; i++) {
        if (sql_is_textual(e->type))
            v->t[i] = (struct text){e->value.text.data, e->value.text.size};
        else if (e->type == SQL_DOUBLE)
            v->d[i] = e->value.number;
        else
            v->i[i] = e->type == SQL_BOOL ? e->value.boolean : e->value.integer;
    }
    return v;
}

static struct vec *compile_expr(struct program *p, const struct expr *e);

/* Is it a BOOL of one dictionary column and constants?  Then each id is asked once. */
static bool by_id(const struct expr *e)
{
    if (e->type != SQL_BOOL || !e->args[0]->dict || e->args[0]->kind != EXPR_COLUMN)
        return false;
    for (uint32_t i = 1; i < e->n_args; i++)
        if (e->args[i]->kind != EXPR_CONST || e->args[i]->value.type == SQL_NULL)
            return false;
    return true;
}

static struct vec *compile_call(struct program *p, const struct expr *e)
{
    struct query *q = p->run.q;
    uint32_t n = e->n_args;
    bool nulls = e->kind == EXPR_SUBQUERY || (e->kind == EXPR_IN && n > 1) ||
                 (e->kind == EXPR_CALL && (e->func->flags & FUNC_NULLS));
    struct vec **args = sql_get(q, n, sizeof(*args)); /* the stack is short */
    if (!args)
        return NULL;
    for (uint32_t i = 0; i < n; i++)
        if (!(args[i] = compile_expr(p, e->args[i])))
            return NULL;
    struct vec *dst = new_vec(p, e->type);
    struct step *s = dst ? add_step(p, nulls ? STEP_CALL_NULLS : STEP_CALL, dst, NULL) : NULL;
    if (!s)
        return NULL;
    s->run = e->kind == EXPR_SUBQUERY ? e->run : e->kind == EXPR_IN ? sql_run_in : e->func->run;
    s->expr = e;
    s->n_args = n;
    s->args = args;
    for (uint32_t i = 0; i < n && i < 3; i++)
        s->a[i] = args[i];
    if (n > 0 && !nulls && by_id(e)) {
        s->n_cache = 1;
        s->cache = sql_get(q, 1, 1);
    }
    return dst;
}

static struct vec *compile_case(struct program *p, const struct expr *e)
{
    struct vec *dst = new_vec(p, e->type), *a;
    if (!dst || !add_step(p, STEP_PUSH, dst, NULL))
        return NULL;
    for (uint32_t i = 0; i + 1 < e->n_args; i += 2) {
        struct vec *when = compile_expr(p, e->args[i]);
        if (!when || !add_step(p, STEP_PUSH_TRUE, NULL, when))
            return NULL;
        a = compile_expr(p, e->args[i + 1]);
        if (!a || !add_step(p, STEP_COPY, dst, a) || !add_step(p, STEP_POP, NULL, NULL) ||
            !add_step(p, STEP_KEEP_NOT_TRUE, NULL, when))
            return NULL;
    }
    if (e->n_args % 2) {
        a = compile_expr(p, e->args[e->n_args - 1]);
        if (!a || !add_step(p, STEP_COPY, dst, a))
            return NULL;
    } else if (!add_step(p, STEP_NULL, dst, NULL)) {
        return NULL;
    }
    return add_step(p, STEP_POP, NULL, NULL) ? dst : NULL;
}

/* and, or, coalesce: the first argument for all rows, the next for those it does not decide. */
static struct vec *compile_chain(struct program *p, const struct expr *e)
{
    int keep = e->kind == EXPR_AND  ? STEP_KEEP_NOT_FALSE
               : e->kind == EXPR_OR ? STEP_KEEP_NOT_TRUE
                                    : STEP_KEEP_NULL;
    int combine = e->kind == EXPR_AND ? STEP_AND : e->kind == EXPR_OR ? STEP_OR : STEP_COPY;
    struct vec *dst = new_vec(p, e->type);
    if (!dst || !add_step(p, STEP_PUSH, dst, NULL))
        return NULL;
    for (uint32_t i = 0; i < e->n_args; i++) {
        struct vec *a = compile_expr(p, e->args[i]);
        if (!a || !add_step(p, i ? combine : STEP_COPY, dst, a))
            return NULL;
        if (i + 1 < e->n_args && !add_step(p, keep, NULL, dst))
            return NULL;
    }
    return add_step(p, STEP_POP, NULL, NULL) ? dst : NULL;
}

static struct vec *compile_expr(struct program *p, const struct expr *e)
{
    switch (e->kind) {
    case EXPR_CONST:
        return compile_const(p, e);
    case EXPR_COLUMN:
        return &p->input->v[e->column];
    case EXPR_CALL:
    case EXPR_IN:
    case EXPR_SUBQUERY:
        return compile_call(p, e);
    case EXPR_AND:
    case EXPR_OR:
    case EXPR_COALESCE:
        return compile_chain(p, e);
    case EXPR_CASE:
        return compile_case(p, e);
    case EXPR_AGG:
    case EXPR_GROUPING:
    case EXPR_WINDOW:
        break;
    }
    (void)sql_error(p->run.q->text, p->run.q->size, e->pos, -EINVAL,
                    "an aggregate is not allowed here");
    return NULL;
}

static void program_done(void *arg)
{
    struct program *p = arg;
    arena_done(&p->scratch);
}

int sql_compile(struct query *q, struct batch *input, struct expr **exprs, uint32_t n,
                struct program **ret)
{
    struct program *p = sql_get(q, 1, sizeof(*p));
    if (!p)
        return -ENOMEM;
    *p = (struct program){.run = {.q = q, .scratch = &p->scratch}, .input = input, .n_results = n};
    arena_init_in(&p->scratch, q->budget);
    p->results = sql_get(q, n, sizeof(*p->results));
    if (!p->results || sql_defer(q, program_done, p) < 0)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++) {
        p->results[i] = compile_expr(p, exprs[i]);
        if (!p->results[i])
            return exprs[i]->kind == EXPR_AGG ? -EINVAL : -ENOMEM;
    }
    p->live = sql_get(q, SQL_ROWS, sizeof(*p->live));
    p->frames = sql_get(q, p->max_depth + 1, sizeof(*p->frames));
    if (!p->live || !p->frames)
        return -ENOMEM;
    for (uint32_t i = 0; i <= p->max_depth; i++)
        if (!(p->frames[i].room = sql_get(q, SQL_ROWS, sizeof(uint16_t))))
            return -ENOMEM;
    *ret = p;
    return 0;
}
