/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/value/query.c - one query's memory, limits and the small helpers every operator needs.
 *
 * The query's thread only.  Nothing here knows SQL.
 */
#include "core/sql/value/query.h"

#define PIECE_BYTES ((size_t)4 << 20) /* of memory written between looks at the limits */

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/guest/headroom.h"

#define ROOM_PART 4u /* several may run at once, and the program goes on taking its own */
#define MEMORY_LEAST ((size_t)1 << 20)
#define RUNNING_MAX 8 /* selects run within each other: our threads have 512 KiB */

struct deferred {
    void (*fn)(void *arg);
    void *arg;
    struct deferred *next;
};

static size_t limit_now(const struct arena_budget *b)
{
    return atomic_load_explicit(&b->limit_bytes, memory_order_relaxed);
}

/* A question must not be what the kernel kills the program for. */
static void look_up_limit(struct query_budget *b)
{
    size_t limit = b->wanted_bytes, least = limit < MEMORY_LEAST ? limit : MEMORY_LEAST;
    const char *whose = b->asked ? "" : " (setting query.max_memory)";
    if (atomic_load_explicit(&b->whose, memory_order_acquire))
        return;
    uint64_t share = room_left() / ROOM_PART;
    if (share < limit) {
        limit = share < least ? least : (size_t)share;
        whose = " (a quarter of what its cgroup, its limits and the machine leave the process)";
    }
    atomic_store_explicit(&b->arenas.limit_bytes, limit, memory_order_relaxed);
    atomic_store_explicit(&b->whose, whose, memory_order_release); /* who sees it sees the limit */
}

static bool raise_limit(struct arena_budget *arenas, size_t met)
{
    look_up_limit((struct query_budget *)arenas);
    return limit_now(arenas) > met;
}

size_t sql_memory_limit(const struct query *q)
{
    look_up_limit((struct query_budget *)q->budget);
    return limit_now(q->budget);
}

/* The machine is not asked about what every query may have. */
static void limit_memory(struct query *q)
{
    struct query_budget *b = &q->own;
    uint64_t asked = q->o->memory_bytes, limit = asked ? asked : sql_setting(q->s, SQL_SET_MEMORY);
    b->asked = asked != 0;
    b->wanted_bytes = limit != 0 ? (size_t)limit : SIZE_MAX;
    b->arenas.raise = raise_limit;
    atomic_store_explicit(&b->arenas.limit_bytes,
                          b->wanted_bytes < MEMORY_LEAST ? b->wanted_bytes : MEMORY_LEAST,
                          memory_order_relaxed);
    q->budget = &b->arenas;
}

int sql_query_init(struct query *q, struct sql *s, const char *text, size_t size,
                   const struct sql_options *o)
{
    static const struct sql_options none;
    o = o ? o : &none;
    *q = (struct query){.s = s, .o = o, .text = text, .size = size};
    limit_memory(q);
    q->timeout_ns = o->timeout_ns ? o->timeout_ns : sql_setting(s, SQL_SET_TIMEOUT);
    q->max_rows = o->max_rows ? o->max_rows : sql_setting(s, SQL_SET_ROWS);
    arena_init_in(&q->mem, q->budget);
    uint64_t begin = clock_monotonic();
    /* Even for a dead process' store: now() is the asker's now. */
    q->now_utc = (int64_t)begin + clock_utc_offset();
    q->deadline = q->timeout_ns ? begin + q->timeout_ns : 0;
    q->all = sql_get(q, SQL_ROWS, sizeof(*q->all));
    if (!q->all) {
        sql_query_done(q);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < SQL_ROWS; i++)
        q->all[i] = (uint16_t)i;
    return 0;
}

void sql_query_beside(struct query *q, const struct query *of, const _Atomic int *stop)
{
    *q = (struct query){.s = of->s,
                        .budget = of->budget,
                        .o = of->o,
                        .timeout_ns = of->timeout_ns,
                        .text = of->text,
                        .size = of->size,
                        .now_utc = of->now_utc,
                        .deadline = of->deadline,
                        .analyze = of->analyze,
                        .all = of->all,
                        .stop = stop};
    arena_init_in(&q->mem, q->budget);
}

void sql_query_done(struct query *q)
{
    for (struct deferred *d = q->deferred; d; d = d->next)
        d->fn(d->arg);
    q->deferred = NULL;
    arena_done(&q->mem);
}

/* Somebody was refused, so it has been looked up. */
static const char *limit_whose(const struct query *q)
{
    const struct query_budget *b = (const struct query_budget *)q->budget;
    const char *whose = atomic_load_explicit(&b->whose, memory_order_acquire);
    return whose ? whose : "";
}

static void say_no_memory(struct query *q)
{
    if (atomic_load_explicit(&q->budget->refused, memory_order_relaxed))
        (void)err_set(-ENOMEM,
                      "planning this needs more than the %zu MiB of memory that the "
                      "query may use%s",
                      sql_memory_limit(q) >> 20, limit_whose(q));
    else
        (void)err_set(-ENOMEM, "the process has no memory for the query");
}

/* The innermost operator that is refused memory is the one to name. */
static int blame_op(struct op *op)
{
    struct query *q = op->q;
    if (q->blamed || !atomic_load_explicit(&q->budget->refused, memory_order_relaxed))
        return -ENOMEM;
    q->blamed = op;
    return err_set(-ENOMEM,
                   "%s%s%s%s needs more than the %zu MiB of memory that the query may "
                   "use%s; filter, aggregate or limit what it has to keep",
                   op->name, op->detail ? " (" : "", op->detail ? op->detail : "",
                   op->detail ? ")" : "", sql_memory_limit(q) >> 20, limit_whose(q));
}

void *sql_grow(struct query *q, const void *old, size_t used, size_t room, size_t size)
{
    size_t whole, kept = used * size;
    bool fits = !__builtin_mul_overflow(room ? room : 1, size ? size : 1, &whole);
    char *m = fits ? arena_alloc(&q->mem, whole) : NULL;
    if (!m) {
        say_no_memory(q);
        return NULL;
    }
    /* Memory of the kernel's costs as much as 0.3 ms a MiB: look at the limits on the way. */
    for (size_t at = 0, end; at < whole; at = end) {
        end = at < kept ? kept : whole;
        end = end - at > PIECE_BYTES ? at + PIECE_BYTES : end;
        if (at && sql_check(q) < 0)
            return NULL; /* sql_next() and sql_run() know why */
        if (at < kept)
            memcpy(m + at, (const char *)old + at, end - at);
        else
            memset(m + at, 0, end - at);
    }
    return m;
}

void *sql_get(struct query *q, size_t count, size_t size)
{
    return sql_grow(q, NULL, 0, count, size);
}

char *sql_getf(struct query *q, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    size_t size = n < 0 ? 0 : (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1;
    char *copy = arena_text(&q->mem, text, size);
    if (!copy)
        say_no_memory(q);
    return copy;
}

struct text sql_copy_text(struct query *q, struct text t)
{
    char *copy = arena_text(&q->mem, t.data ? t.data : "", t.size);
    if (!copy)
        say_no_memory(q);
    return (struct text){copy, t.size};
}

int sql_defer(struct query *q, void (*fn)(void *arg), void *arg)
{
    struct deferred *d = sql_get(q, 1, sizeof(*d));
    if (!d)
        return -ENOMEM;
    *d = (struct deferred){fn, arg, q->deferred};
    q->deferred = d;
    return 0;
}

void sql_sandbox_enter(struct query *q, struct sandbox *s)
{
    *s = (struct sandbox){q->mem, q->deferred, q->notes, q->hidden};
    q->deferred = NULL;
    q->hidden = NULL; /* its texts would be the sandbox's */
    arena_init_in(&q->mem, q->budget);
}

int sql_sandbox_leave(struct query *q, struct sandbox *s, struct sql_value *v, int rc)
{
    struct query inside = {.mem = q->mem, .deferred = q->deferred};
    q->mem = s->mem;
    q->deferred = s->deferred;
    q->notes = s->notes;
    q->hidden = s->hidden;
    if (rc == 0 && v && sql_is_textual(v->type)) {
        struct text t = sql_copy_text(q, (struct text){v->text.data, v->text.size});
        v->text.data = t.data;
        rc = t.data ? 0 : -ENOMEM;
    }
    sql_query_done(&inside);
    return rc;
}

void sql_notes_looked(struct query *q, const struct query_notes *before)
{
    q->notes.bucketed = before->bucketed;
    if (q->notes.view_op != before->view_op && !q->notes.lacks)
        q->notes.view_op = NULL;
}

struct place sql_place(const struct query *q)
{
    return (struct place){q->outer, q->text, q->size, q->depth};
}

static void go_to(struct query *q, const struct place *p)
{
    q->outer = p->outer;
    q->text = p->text;
    q->size = p->size;
    q->depth = p->depth;
}

int sql_nested_enter(struct query *q, struct nested *n, const struct place *place)
{
    if (q->n_running == RUNNING_MAX)
        return err_set(-E2BIG,
                       "recursive selects, correlated subqueries and lateral joins run more than "
                       "%d levels deep within each other",
                       RUNNING_MAX);
    *n = (struct nested){.place = sql_place(q), .n_plans = q->n_plans};
    sql_sandbox_enter(q, &n->box);
    q->n_running++;
    go_to(q, place);
    return 0;
}

int sql_nested_leave(struct query *q, struct nested *n, struct sql_value *v, int rc)
{
    go_to(q, &n->place);
    q->n_plans = n->n_plans;
    q->n_running--;
    return sql_sandbox_leave(q, &n->box, v, rc);
}

int sql_check(struct query *q)
{
    if (q->o->cancel && atomic_load_explicit(q->o->cancel, memory_order_relaxed))
        return err_set(-ECANCELED, "the query was cancelled");
    if (q->stop && atomic_load_explicit(q->stop, memory_order_relaxed))
        return err_set(-ECANCELED, "the query was cancelled");
    if (q->deadline && clock_monotonic() > q->deadline)
        return err_set(-ETIMEDOUT, "the query ran longer than its %llu ms and was stopped%s",
                       (unsigned long long)(q->timeout_ns / NS_PER_MS),
                       q->o->timeout_ns ? "" : " (setting query.timeout)");
    return 0;
}

int sql_saw_table(struct query *q, const struct table *t)
{
    for (struct table_seen *s = q->notes.seen; s; s = s->next)
        if (s->table == t)
            return 0;
    struct table_seen *s = sql_get(q, 1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    *s = (struct table_seen){.table = t, .next = q->notes.seen};
    q->notes.seen = s;
    return 0;
}

void sql_table_empty(struct query *q, const struct table *t)
{
    for (struct table_seen *s = q->notes.seen; s; s = s->next)
        if (s->table == t)
            s->empty = true;
}

struct op *sql_op(struct query *q, op_next next, const char *name, uint32_t n_cols)
{
    struct op *op = sql_get(q, 1, sizeof(*op));
    if (!op)
        return NULL;
    *op = (struct op){.q = q, .next = next, .name = name, .n_cols = n_cols};
    op->cols = sql_get(q, n_cols, sizeof(*op->cols));
    op->out.v = sql_get(q, n_cols, sizeof(*op->out.v));
    return op->cols && op->out.v ? op : NULL;
}

int sql_vec_room(struct query *q, struct vec *v, enum sql_type type)
{
    *v = (struct vec){.type = type};
    v->null = sql_get(q, SQL_ROWS, 1);
    v->data = sql_get(q, SQL_ROWS, sql_is_textual(type) ? sizeof(struct text) : sizeof(int64_t));
    return v->null && v->data ? 0 : -ENOMEM;
}

int sql_op_vectors(struct op *op)
{
    for (uint32_t c = 0; c < op->n_cols; c++)
        if (sql_vec_room(op->q, &op->out.v[c], op->cols[c].type) < 0)
            return -ENOMEM;
    return 0;
}

int sql_failed(struct op *op, int rc)
{
    if (rc != -ENOMEM)
        return rc;
    int ended = sql_check(op->q); /* memory is refused because the query is to end, too */
    return ended < 0 ? ended : blame_op(op);
}

int sql_next(struct op *op)
{
    if (op->done)
        return 0;
    int rc;
    uint64_t begin = op->q->analyze ? clock_monotonic() : 0;
    do {
        rc = sql_check(op->q);
        if (rc == 0)
            rc = op->next(op);
    } while (rc > 0 && op->out.n_sel == 0);
    rc = sql_failed(op, rc);
    if (op->q->analyze)
        op->ns += clock_monotonic() - begin;
    if (rc > 0)
        op->rows += op->out.n_sel;
    if (rc <= 0)
        op->done = true;
    return rc;
}

void sql_texts(struct query *q, struct vec *v, const uint16_t *sel, uint32_t n)
{
    if (!v->ids)
        return;
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = sel ? sel[k] : k;
        struct text t = sql_id_text(q, v->ids[i]);
        v->t[i] = t.data ? t : (struct text){"", 0};
    }
}

void sql_set_null(struct vec *v, uint32_t row)
{
    if (!v->has_null) {
        memset(v->null, 0, SQL_ROWS);
        v->has_null = true;
    }
    v->null[row] = 1;
}

const char *sql_type_name(enum sql_type t)
{
    static const char *const names[] = {"null", "boolean",   "bigint",   "double", "text",
                                        "blob", "timestamp", "interval", "date",   "interval"};
    return names[t];
}

const char *sql_a_type(enum sql_type t)
{
    static const char *const names[] = {"a null", "a boolean",  "a bigint",    "a double",
                                        "a text", "a blob",     "a timestamp", "an interval",
                                        "a date", "an interval"};
    return names[t];
}

struct sql_value sql_vec_value(struct query *q, const struct vec *v, uint32_t row)
{
    struct sql_value r = {.type = v->type};
    if (sql_is_null(v, row))
        return (struct sql_value){.type = SQL_NULL};
    switch (v->type) {
    case SQL_BOOL:
        r.boolean = v->i[row] != 0;
        break;
    case SQL_DOUBLE:
        r.number = v->d[row];
        break;
    case SQL_TEXT:
    case SQL_BLOB:
    case SQL_CALENDAR:
        if (v->ids) {
            struct text t = sql_id_text(q, v->ids[row]);
            if (!t.data)
                return (struct sql_value){.type = SQL_NULL};
            r.text.data = t.data;
            r.text.size = t.size;
        } else {
            r.text.data = v->t[row].data;
            r.text.size = v->t[row].size;
        }
        break;
    case SQL_NULL:
    case SQL_INT:
    case SQL_TIMESTAMP:
    case SQL_INTERVAL:
    case SQL_DATE:
        r.integer = v->i[row];
        break;
    }
    return r;
}

void sql_put_value(struct vec *v, uint32_t row, const struct sql_value *x)
{
    if (x->type == SQL_NULL)
        sql_set_null(v, row);
    else if (sql_is_textual(v->type))
        v->t[row] = (struct text){x->text.data, x->text.size};
    else if (v->type == SQL_DOUBLE)
        v->d[row] = x->number;
    else
        v->i[row] = x->type == SQL_BOOL ? x->boolean : x->integer;
}

static const char *const unit_names[] = {"", "ns", "bytes", "%", "count", "s", "MB"};
#define UNITS ((uint32_t)(sizeof(unit_names) / sizeof(*unit_names)))

const char *sql_unit_name(uint32_t unit)
{
    return unit < UNITS ? unit_names[unit] : "";
}

uint32_t sql_unit_named(const char *name)
{
    for (uint32_t unit = 1; unit < UNITS; unit++)
        if (strcmp(unit_names[unit], name) == 0)
            return unit;
    return PROBING_PLAIN;
}

uint64_t sql_setting(const struct sql *s, enum sql_setting which)
{
    return atomic_load_explicit(&s->settings[which], memory_order_relaxed);
}

uint32_t sql_rows_count(const struct sql_rows *r)
{
    return r->n;
}

void sql_rows_value(const struct sql_rows *r, uint32_t row, uint32_t column, struct sql_value *ret)
{
    uint32_t i = r->batch->sel ? r->batch->sel[row] : row;
    *ret = sql_vec_value(r->q, &r->batch->v[column], i);
}
