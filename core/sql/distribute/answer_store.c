/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/distribute/answer_store.c - tables held in memory: rows added cell by cell, and the
 * operator that gives them.
 *
 * One thread.
 */
#include "core/sql/distribute/answer_store.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "core/base/err.h"
#include "core/sql/exec/ops.h"

#define PART_BYTES ((size_t)4 << 30) /* of one member: its caller has a limit for all of them */

struct held_scan {
    const struct held_table *table;
    uint32_t part;
    size_t at; /* in its bytes */
};

/* ---- reading ---- */

static const char *take_cell(const char *p, enum sql_type type, struct sql_value *ret)
{
    ret->type = *p++ ? type : SQL_NULL;
    if (ret->type == SQL_NULL)
        return p;
    if (sql_is_textual(type)) {
        memcpy(&ret->text.size, p, 4);
        ret->text.data = p + 4;
        return p + 4 + ret->text.size;
    }
    if (type == SQL_BOOL) {
        ret->boolean = *p != 0;
        return p + 1;
    }
    memcpy(&ret->integer, p, 8); /* doubles are moved as they are */
    if (type == SQL_DOUBLE)
        memcpy(&ret->number, p, 8);
    return p + 8;
}

static void put_row(struct op *op, const struct held_part *p, struct held_scan *s, uint32_t row)
{
    const struct held_table *t = s->table;
    const char *from = p->rows.data + s->at;
    for (uint32_t c = 0; c < t->n_columns; c++) {
        struct sql_value v;
        if (c < t->n_front)
            v = p->front[c];
        else
            from = take_cell(from, t->columns[c].type, &v);
        if (op->out.v[c].type != SQL_NULL)
            sql_put_value(&op->out.v[c], row, &v);
    }
    s->at = (size_t)(from - p->rows.data);
}

static int next_held(struct op *op)
{
    struct held_scan *s = op->state;
    uint32_t n = 0;
    for (uint32_t c = 0; c < op->n_cols; c++)
        op->out.v[c].has_null = op->out.v[c].type == SQL_NULL;
    while (s->part < s->table->n_parts && n < SQL_ROWS) {
        const struct held_part *p = &s->table->parts[s->part];
        if (s->at < p->rows.size) {
            put_row(op, p, s, n++);
        } else {
            s->part++;
            s->at = 0;
        }
    }
    op->out.n = op->out.n_sel = n;
    return n > 0;
}

static int scan_held(struct query *q, const struct held_table *t, const char *alias,
                     struct op **ret)
{
    struct op *op = sql_op(q, next_held, "scan", t->n_columns);
    struct held_scan *s = op ? sql_get(q, 1, sizeof(*s)) : NULL;
    if (!s)
        return -ENOMEM;
    s->table = t;
    for (uint32_t c = 0; c < t->n_columns; c++)
        op->cols[c] = (struct col){.name = t->columns[c].name,
                                   .table = alias ? alias : t->name,
                                   .schema = alias ? NULL : t->schema,
                                   .type = t->columns[c].type,
                                   .unit = t->columns[c].unit,
                                   .doc = t->columns[c].doc,
                                   .aside = c + t->n_aside >= t->n_front && c < t->n_front};
    if (sql_op_vectors(op) < 0)
        return -ENOMEM;
    for (uint32_t c = 0; c < t->n_columns; c++) {
        op->out.v[c].stable = true;
        if (op->cols[c].type == SQL_NULL)
            memset(op->out.v[c].null, 1, SQL_ROWS);
    }
    op->state = s;
    op->detail = sql_getf(q, "%s (held)", t->name);
    *ret = op;
    return op->detail ? 0 : -ENOMEM;
}

static int find_held(struct query *q, void *arg, const char *schema, const char *name,
                     const char *alias, struct op **ret)
{
    const struct held *h = arg;
    for (const struct held_table *t = h->first; t; t = t->next) {
        if (strcasecmp(t->name, name) != 0 || (schema != NULL) != (t->schema != NULL) ||
            (schema && strcasecmp(t->schema, schema) != 0))
            continue;
        int rc = scan_held(q, t, alias, ret);
        return rc < 0 ? rc : 1;
    }
    return 0;
}

/* ---- writing ---- */

int held_row(struct held_table *t, uint32_t part, const struct sql_value *cells)
{
    struct buf *b = &t->parts[part].rows;
    for (uint32_t c = t->n_front; c < t->n_columns; c++) {
        const struct sql_value *v = &cells[c - t->n_front];
        enum sql_type type = t->columns[c].type;
        (void)buf_addc(b, v->type != SQL_NULL && type != SQL_NULL);
        if (v->type == SQL_NULL || type == SQL_NULL)
            continue;
        if (sql_is_textual(type)) {
            (void)buf_add(b, &v->text.size, 4);
            (void)buf_add(b, v->text.data, v->text.size);
        } else if (type == SQL_BOOL) {
            (void)buf_addc(b, v->boolean);
        } else {
            (void)buf_add(b, type == SQL_DOUBLE ? (const void *)&v->number : &v->integer, 8);
        }
    }
    t->parts[part].n++;
    return b->failed ? err_set(-ENOMEM, "no memory for the answers") : 0;
}

void held_drop(struct held_part *p)
{
    buf_done(&p->rows);
    buf_init(&p->rows, PART_BYTES);
    p->n = 0;
}

/* ---- life ---- */

int held_init(struct held *h)
{
    *h = (struct held){.tables = NULL};
    int rc = tables_new(&h->tables);
    if (rc == 0)
        rc = sql_new(h->tables, NULL, &h->engine);
    if (rc < 0)
        return rc;
    h->engine->held = find_held;
    h->engine->held_arg = h;
    return 0;
}

void held_done(struct held *h)
{
    for (struct held_table *t = h->first; t; t = t->next)
        for (uint32_t i = 0; i < t->n_parts; i++)
            buf_done(&t->parts[i].rows);
    sql_free(h->engine);
    tables_free(h->tables);
    *h = (struct held){.tables = NULL};
}

int held_add(struct held *h, struct arena *mem, const struct held_table *t, struct held_table **ret)
{
    struct held_table *copy = arena_zalloc(mem, 1, sizeof(*copy));
    struct held_part *parts = arena_zalloc(mem, t->n_parts ? t->n_parts : 1, sizeof(*parts));
    if (!copy || !parts)
        return err_set(-ENOMEM, "no memory for the answers");
    *copy = *t;
    copy->parts = parts;
    for (uint32_t i = 0; i < t->n_parts; i++)
        buf_init(&parts[i].rows, PART_BYTES);
    copy->next = h->first;
    h->first = copy;
    if (ret)
        *ret = copy;
    return 0;
}
