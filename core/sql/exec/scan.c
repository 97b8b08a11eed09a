/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/exec/scan.c - where rows come from: stored tables, computed tables, rows kept in memory.
 *
 * The query's thread only.  A stored table's columns are used in place (no copy), texts as ids of
 * the dictionary; a computed table is asked once and its rows are kept until the query ends.
 */
#include "core/sql/exec/ops.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/redact.h"

#define BOUNDS_MAX 16
#define NAME_BYTES 4096  /* of a name that is looked at for being a secret's */
#define CHECK_EVERY 1024 /* rows of a computed table between looks at limits */

struct scan {
    const struct table *table;
    struct store_scan *stored;
    struct store_batch batch;
    struct store_bound bounds[BOUNDS_MAX];
    uint32_t n_bounds;
    uint32_t *wants, *compares; /* by column: how often it was asked for, how often in bounds */
    struct rowset *rows;        /* computed, or made by the engine */
    enum sql_type *types;
    uint32_t next_row;
    int64_t utc_offset;
    struct text *tail; /* room for texts of the tail column */
    /* For a client that may only read: which column has names, -1: none, and what becomes of the
     * texts of each. */
    bool hides;
    int names;
    enum hide { HIDE_PARTS, HIDE_NAMED, HIDE_ALL } hide[TABLE_COLUMNS_MAX];
    struct vec *pending;
    uint32_t n_pending;
    int failed;
};

static enum sql_type column_type(uint32_t type)
{
    switch (type) {
    case PROBING_I64:
        return SQL_INT;
    case PROBING_F64:
        return SQL_DOUBLE;
    case PROBING_STR:
        return SQL_TEXT;
    case PROBING_TIME:
        return SQL_TIMESTAMP;
    default:
        return SQL_BLOB;
    }
}

/* ---- stored ---- */

static void close_stored(void *arg)
{
    struct scan *s = arg;
    store_scan_free(s->stored);
    s->stored = NULL;
}

/* The scan is closed with the query; vectors get room where somebody wants them. */
static int own_stored(struct op *op)
{
    struct scan *s = op->state;
    int rc = sql_defer(op->q, close_stored, s);
    for (uint32_t c = 0; c < op->n_cols && rc == 0; c++)
        if (op->want[c])
            rc = sql_vec_room(op->q, &op->out.v[c], s->types[c]);
    if (rc == 0 && s->table->has_tail)
        s->tail = op->out.v[op->n_cols - 1].t;
    return rc;
}

static int open_stored(struct op *op)
{
    struct scan *s = op->state;
    for (uint32_t c = 0; c < op->n_cols && s->names >= 0; c++)
        if (op->want[c] && s->hide[c] == HIDE_NAMED && !op->want[s->names]) {
            op->want[s->names] = true; /* whose value it is */
            s->wants[s->names]++;
        }
    struct store_scan_options o = {.from_row = op->q->o->from_row,
                                   .to_row = op->q->o->to_row,
                                   .bounds = s->bounds,
                                   .n_bounds = s->n_bounds};
    for (uint32_t c = 0; c < op->n_cols; c++)
        if (op->want[c]) {
            o.columns[c / 64] |= UINT64_C(1) << (c % 64);
            if (s->wants[c] == s->compares[c])
                o.for_bounds[c / 64] |= UINT64_C(1) << (c % 64);
        }
    int rc = store_scan_new(op->q->s->store, s->table, &o, &s->stored);
    return rc < 0 ? rc : own_stored(op);
}

static void find_nulls(struct vec *v, uint32_t n)
{
    const uint64_t *cells = v->ids ? v->ids : (const uint64_t *)(const void *)v->i;
    uint64_t null = v->ids                  ? PROBING_NULL_ID
                    : v->type == SQL_DOUBLE ? PROBING_NULL_F64
                                            : (uint64_t)PROBING_NULL_I64;
    uint8_t any = 0;
    for (uint32_t i = 0; i < n; i++)
        any |= v->null[i] = cells[i] == null;
    v->has_null = any;
}

/* The largest id or whole number that there may be, of what is never negative; 0: not known. */
static uint64_t largest_value(const struct vec *v, union probing_cell min, union probing_cell max)
{
    if (v->type == SQL_TEXT || v->type == SQL_BLOB)
        return max.u == PROBING_NULL_ID ? 0 : max.u;
    return v->type == SQL_DOUBLE || min.i < 0 ? 0 : max.u; /* NULL is negative */
}

static void tail_texts(struct scan *s, struct vec *v)
{
    const struct store_batch *b = &s->batch;
    v->t = s->tail;
    v->ids = NULL;
    v->has_null = false;
    v->stable = false; /* the store's page may go when its transaction is renewed */
    for (uint32_t i = 0; i < b->n_rows; i++) {
        uint32_t size = b->tail_offsets[i + 1] - b->tail_offsets[i];
        v->t[i] = (struct text){(const char *)b->tails + b->tail_offsets[i], size ? size - 1 : 0};
        if (size == 0)
            sql_set_null(v, i);
    }
}

static struct text shown_text(const struct op *op, uint32_t column, struct text t, struct text name)
{
    const struct scan *s = op->state;
    bool secret = s->hide[column] == HIDE_ALL ||
                  (s->hide[column] == HIDE_NAMED && name.data && secret_name(name.data, name.size));
    return secret && t.size > 0 ? (struct text){SECRET_SHOWN, strlen(SECRET_SHOWN)}
                                : sql_hide_text(op->q, t);
}

/* Texts that are not hidden by their id alone. */
static void hide_stored(struct op *op, uint32_t c)
{
    struct scan *s = op->state;
    struct vec *v = &op->out.v[c];
    const struct vec *names = s->names >= 0 ? &op->out.v[s->names] : NULL;
    const uint64_t *ids = v->ids, *name_ids = names ? names->ids : NULL;
    for (uint32_t i = 0; i < s->batch.n_rows; i++) {
        struct text name = {NULL, 0}, t = ids ? sql_id_text(op->q, ids[i]) : v->t[i];
        if (name_ids)
            name = sql_id_text(op->q, name_ids[i]);
        v->t[i] = t.data ? shown_text(op, c, t, name) : (struct text){"", 0};
    }
    v->ids = NULL;
    v->most = 0;
    v->stable = false;
}

static int next_stored(struct op *op)
{
    struct scan *s = op->state;
    int rc = s->stored ? 0 : open_stored(op);
    if (rc < 0)
        return rc;
    rc = store_scan_next(s->stored, &s->batch);
    if (rc <= 0) {
        op->pruned = store_scan_pruned(s->stored, &op->segments);
        return rc;
    }
    for (uint32_t c = 0; c < op->n_cols; c++) {
        struct vec *v = &op->out.v[c];
        if (!op->want[c])
            continue;
        if (s->table->has_tail && c == op->n_cols - 1) {
            tail_texts(s, v);
            continue;
        }
        v->inside = s->batch.inside[c / 64] >> (c % 64) & 1;
        if (!s->batch.cells[c])
            continue; /* nobody looks at it where it is inside */
        if (sql_is_textual(v->type))
            v->ids = &s->batch.cells[c]->u;
        else
            v->data = (void *)(uintptr_t)s->batch.cells[c];
        v->most = largest_value(v, s->batch.min[c], s->batch.max[c]);
        v->has_null = false;
        if (s->batch.has_null[c])
            find_nulls(v, s->batch.n_rows);
    }
    for (uint32_t c = 0; s->hides && c < op->n_cols; c++)
        if (op->want[c] && sql_is_textual(op->out.v[c].type) && !op->cols[c].dict &&
            (op->out.v[c].ids || (s->table->has_tail && c == op->n_cols - 1)))
            hide_stored(op, c);
    op->out.n = op->out.n_sel = s->batch.n_rows;
    return 1;
}

/* The rows are those of the scan that is under way, shared out between the two. */
static int beside_stored(struct query *q, struct op *op, struct op *child, struct op **ret)
{
    struct scan *s = op->state;
    (void)child;
    int rc = sql_scan_table(q, s->table, op->cols[0].table, ret);
    if (rc < 0)
        return rc;
    struct scan *other = (*ret)->state;
    for (uint32_t c = 0; c < op->n_cols; c++)
        (*ret)->want[c] = op->want[c];
    rc = store_scan_beside(s->stored, &other->stored);
    return rc < 0 ? rc : own_stored(*ret);
}

uint64_t sql_scan_row(const struct op *op)
{
    return ((const struct scan *)op->state)->batch.first_row;
}

void sql_scan_leave(struct op *op)
{
    store_scan_leave(((struct scan *)op->state)->stored);
}

/* ---- computed ---- */

static int flush_pending(struct op *op)
{
    struct scan *s = op->state;
    struct vec *v[TABLE_COLUMNS_MAX];
    for (uint32_t c = 0; c < op->n_cols; c++)
        v[c] = &s->pending[c];
    int rc = sql_rowset_add(s->rows, v, NULL, s->n_pending);
    for (uint32_t c = 0; c < op->n_cols; c++)
        s->pending[c].has_null = false;
    s->n_pending = 0;
    return rc;
}

static int put_cell(struct op *op, uint32_t c, uint32_t row, union probing_cell cell,
                    struct text name)
{
    struct scan *s = op->state;
    struct vec *v = &s->pending[c];
    if (sql_is_textual(v->type)) {
        if (!cell.s) {
            sql_set_null(v, row);
            return 0;
        }
        struct text t = {cell.s, (uint32_t)strnlen(cell.s, 1u << 24)};
        v->t[row] = sql_copy_text(op->q, s->hides ? shown_text(op, c, t, name) : t);
        return v->t[row].data ? 0 : -ENOMEM;
    }
    bool null = v->type == SQL_DOUBLE ? cell.u == PROBING_NULL_F64 : cell.i == PROBING_NULL_I64;
    if (null)
        sql_set_null(v, row);
    v->i[row] = null                       ? 0
                : v->type == SQL_TIMESTAMP ? (int64_t)((uint64_t)cell.i + (uint64_t)s->utc_offset)
                                           : cell.i;
    return 0;
}

/* The plugin's emit(): one row. */
static int take_row(struct probing_rows *out, const union probing_cell *cells, uint32_t n)
{
    struct op *op = out->arg;
    struct scan *s = op->state;
    if (s->failed == 0 && n == 0) /* no row: it asks whether anybody wants one */
        s->failed = sql_check(op->q);
    if (s->failed || n == 0)
        return s->failed ? -ECANCELED : 0;
    uint32_t row = s->n_pending;
    struct text name = {NULL, 0};
    if (s->names >= 0 && (uint32_t)s->names < n && cells[s->names].s)
        name = (struct text){cells[s->names].s, (uint32_t)strnlen(cells[s->names].s, NAME_BYTES)};
    for (uint32_t c = 0; c < op->n_cols && s->failed == 0; c++) {
        if (!op->want[c])
            continue;
        if (c >= n)
            sql_set_null(&s->pending[c], row);
        else
            s->failed = put_cell(op, c, row, cells[c], name);
    }
    s->n_pending++;
    if (s->failed == 0 && s->n_pending % CHECK_EVERY == 0)
        s->failed = sql_check(op->q);
    if (s->failed == 0 && s->n_pending == SQL_ROWS)
        s->failed = flush_pending(op);
    return s->failed ? -ECANCELED : 0;
}

static int run_computed(void *arg)
{
    struct op *op = arg;
    struct scan *s = op->state;
    if (atomic_load_explicit(&s->table->retired, memory_order_acquire))
        return err_set(-ENOENT, "%s.%s is computed by a plugin that is not loaded any more",
                       s->table->schema, s->table->name);
    s->rows = sql_get(op->q, 1, sizeof(*s->rows));
    s->pending = sql_get(op->q, op->n_cols, sizeof(*s->pending));
    if (!s->rows || !s->pending)
        return -ENOMEM;
    for (uint32_t c = 0; c < op->n_cols; c++) {
        s->pending[c] = (struct vec){.type = SQL_NULL}; /* that nobody wants: no room, all NULL */
        if (op->want[c] && sql_vec_room(op->q, &s->pending[c], s->types[c]) < 0)
            return -ENOMEM;
        s->pending[c].stable = true;
    }
    (void)sql_rowset_init(s->rows, op->q, &op->q->mem, s->types, op->n_cols);
    s->utc_offset = clock_utc_offset();
    struct probing_rows out = {.table = s->table, .row = take_row, .arg = op, .want = op->want};
    err_clear();
    int rc = s->table->scan(s->table->self, &out);
    if (rc == -ETIME &&
        s->failed != -ENOMEM) /* a plugin that did not return; its words are there */
        return rc;
    if (s->failed)
        return s->failed;
    if (rc < 0) {
        char why[ERR_TEXT_BYTES / 2];
        (void)snprintf(why, sizeof(why), "%s", err_why(rc));
        return err_set(rc, "%s.%s: %s", s->table->schema, s->table->name, why);
    }
    if (s->rows->n + s->n_pending == 0)
        sql_table_empty(op->q, s->table);
    return flush_pending(op);
}

static int open_rows(struct op *op)
{
    struct scan *s = op->state;
    return s->rows ? 0 : sql_by_caller(op->q, run_computed, op);
}

static int next_rows(struct op *op)
{
    struct scan *s = op->state;
    int rc = open_rows(op);
    if (rc < 0)
        return rc;
    if (s->next_row >= s->rows->n)
        return 0;
    uint32_t n = s->rows->n - s->next_row;
    n = n < SQL_ROWS ? n : SQL_ROWS;
    if (s->rows->n_cols)
        memcpy(op->out.v, s->rows->chunks[s->next_row / SQL_ROWS], op->n_cols * sizeof(struct vec));
    op->out.n = op->out.n_sel = n;
    s->next_row += n;
    return 1;
}

/* ---- making them ---- */

static void count_want(struct op *op, uint32_t column)
{
    struct scan *s = op->state;
    s->wants[column]++;
}

static struct op *new_scan(struct query *q, op_next next, uint32_t n_cols)
{
    struct op *op = sql_op(q, next, "scan", n_cols);
    struct scan *s = op ? sql_get(q, 1, sizeof(*s)) : NULL;
    if (!s)
        return NULL;
    op->state = s;
    op->want = sql_get(q, n_cols, sizeof(*op->want));
    op->on_want = count_want;
    s->wants = sql_get(q, n_cols, sizeof(*s->wants));
    s->compares = sql_get(q, n_cols, sizeof(*s->compares));
    if (!s->wants || !s->compares)
        return NULL;
    s->types = sql_get(q, n_cols, sizeof(*s->types));
    return op->want && s->types ? op : NULL;
}

int sql_scan_table(struct query *q, const struct table *t, const char *alias, struct op **ret)
{
    struct op *op = new_scan(q, t->scan ? next_rows : next_stored, t->n_columns);
    if (!op)
        return -ENOMEM;
    struct scan *s = op->state;
    s->table = t;
    s->hides = q->o->hide_secrets;
    s->names = s->hides ? sql_hide_names(t) : -1;
    for (uint32_t c = 0; s->hides && c < t->n_columns; c++)
        s->hide[c] = sql_hide_column(t, c)                    ? HIDE_ALL
                     : s->names >= 0 && sql_hide_values(t, c) ? HIDE_NAMED
                                                              : HIDE_PARTS;
    for (uint32_t c = 0; c < t->n_columns; c++) {
        enum sql_type type = column_type(t->columns[c].type);
        bool tail = t->has_tail && c == t->n_columns - 1;
        op->cols[c] = (struct col){.name = t->columns[c].name,
                                   .table = alias ? alias : t->name,
                                   .schema = alias ? NULL : t->schema,
                                   .type = type,
                                   .unit = t->columns[c].unit,
                                   .doc = t->columns[c].doc,
                                   .dict = !t->scan && sql_is_textual(type) && !tail &&
                                           s->hide[c] == HIDE_PARTS};
        s->types[c] = type;
        op->out.v[c] = (struct vec){.type = type, .stable = true};
    }
    op->beside = t->scan ? NULL : beside_stored;
    op->detail = sql_getf(q, "%s.%s%s", t->schema, t->name, t->scan ? " (computed)" : "");
    if (!op->detail || sql_saw_table(q, t) < 0)
        return -ENOMEM;
    if (!t->scan && !q->s->store)
        return err_set(-ENOENT, "%s.%s is a stored table, and there is no store here", t->schema,
                       t->name);
    *ret = op;
    return 0;
}

int sql_scan_rowset(struct query *q, struct rowset *rows, struct col *cols, struct op **ret)
{
    struct op *op = new_scan(q, next_rows, rows->n_cols);
    if (!op)
        return -ENOMEM;
    struct scan *s = op->state;
    s->rows = rows;
    for (uint32_t c = 0; c < rows->n_cols; c++) {
        op->cols[c] = cols[c];
        op->out.v[c] = (struct vec){.type = cols[c].type};
    }
    op->detail = "values";
    *ret = op;
    return 0;
}

static int next_none(struct op *op)
{
    bool *given = op->state;
    if (*given)
        return 0;
    *given = true;
    op->out.n = op->out.n_sel = 1;
    return 1;
}

int sql_scan_none(struct query *q, struct op **ret)
{
    struct op *op = sql_op(q, next_none, "one row", 0);
    if (!op || !(op->state = sql_get(q, 1, sizeof(bool))))
        return -ENOMEM;
    *ret = op;
    return 0;
}

int sql_scan_begin(struct op *op, uint64_t *ret_rows)
{
    const struct scan *s = op->state;
    int rc = op->next == next_stored ? open_stored(op) : op->next == next_rows ? open_rows(op) : 0;
    if (rc == 0)
        *ret_rows = op->next == next_stored ? store_scan_rows(s->stored)
                    : op->next == next_rows ? s->rows->n
                                            : 1;
    return sql_failed(op, rc);
}

bool sql_is_scan(const struct op *op, const struct table **ret_table)
{
    if (op->next != next_stored)
        return false;
    *ret_table = ((const struct scan *)op->state)->table;
    return true;
}

uint64_t sql_scan_end(const struct op *op)
{
    const struct scan *s = op->state;
    return op->next == next_stored && s->stored ? store_scan_end(s->stored) : 0;
}

/* Undo the move of a moment by a constant, to reach its column: ts - 5 s >= v is ts >= v + 5 s. */
static bool undo_move(const struct expr *e, uint32_t *column, struct sql_value *v)
{
    bool moved = e->kind == EXPR_CALL && e->type == SQL_TIMESTAMP && e->n_args == 2 &&
                 e->args[0]->kind == EXPR_COLUMN && e->args[0]->type == SQL_TIMESTAMP &&
                 e->args[1]->kind == EXPR_CONST && e->args[1]->value.type == SQL_INTERVAL &&
                 v->type == SQL_TIMESTAMP;
    bool less = moved && strcmp(e->func->name, "-") == 0;
    if (!moved || (!less && strcmp(e->func->name, "+") != 0))
        return false;
    int64_t by = e->args[1]->value.integer;
    *column = e->args[0]->column;
    return less ? !__builtin_add_overflow(v->integer, by, &v->integer)
                : !__builtin_sub_overflow(v->integer, by, &v->integer);
}

bool sql_push_bound(struct op *op, uint32_t column, const char *compare, const struct expr *value)
{
    struct sql_value at = value->value;
    bool direct = true;               /* the filter stands on the scan itself */
    while (op->next != next_stored) { /* through renamings of views and subqueries */
        const struct expr *e = sql_project_expr(op, column);
        if (e) {
            if (e->kind == EXPR_COLUMN)
                column = e->column;
            else if (!undo_move(e, &column, &at))
                return false;
            direct = false;
        } else if (strcmp(op->name, "filter") != 0) {
            return false;
        }
        op = op->child;
    }
    struct scan *s = op->state;
    enum sql_type type = op->cols[column].type;
    if (s->n_bounds == BOUNDS_MAX || at.type != type || sql_is_textual(type) || type == SQL_BOOL ||
        strcmp(compare, "<>") == 0)
        return false;
    struct store_bound b = {.column = column};
    bool real = type == SQL_DOUBLE;
    if (real && at.number != at.number)
        return false;
    b.lo.u = b.hi.u = real ? PROBING_NULL_F64 : (uint64_t)PROBING_NULL_I64;
    union probing_cell v = {.i = at.integer};
    if (real)
        v.f = at.number;
    if (compare[0] == '>' || compare[0] == '=')
        b.lo = v;
    if (compare[0] == '<' || compare[0] == '=')
        b.hi = v;
    if (!real && strcmp(compare, ">") == 0 && v.i < INT64_MAX)
        b.lo.i++; /* to NULL, which is open, never: it is the least */
    if (!real && strcmp(compare, "<") == 0 && v.i > INT64_MIN + 1)
        b.hi.i--;
    s->bounds[s->n_bounds++] = b;
    bool exact = !real && (strcmp(compare, ">") != 0 || v.i < INT64_MAX) &&
                 (strcmp(compare, "<") != 0 || v.i > INT64_MIN + 1) && v.i != PROBING_NULL_I64;
    s->compares[column] += direct && exact;
    return direct && exact;
}
