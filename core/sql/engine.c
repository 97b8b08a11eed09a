/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/engine.c - the engine: statements from text to the sink, explain.
 *
 * Any thread, several at once: the engine's only changing state is its list of views
 * (value/view_list.c).
 */
#include "core/sql/plan/plan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/sql/catalog/catalog.h"

void sql_free(struct sql *s)
{
    if (!s)
        return;
    sql_threads_end(&s->threads);
    sql_free_views(s);
    free(s);
}

int sql_new(struct tables *tables, struct store *store, struct sql **ret)
{
    struct sql *s = calloc(1, sizeof(*s));
    if (!s)
        return err_set(-ENOMEM, "no memory for the query engine");
    int rc = sql_threads_init(&s->threads);
    if (rc < 0) {
        free(s);
        return rc;
    }
    s->tables = tables;
    s->store = store;
    s->interns = store ? store_interns(store) : NULL;
    rc = sql_add_own_views(s);
    if (rc < 0)
        sql_free(s);
    else
        *ret = s;
    return rc;
}

void sql_ask_why(struct sql *s, int (*fn)(void *arg, const struct table *t, char *text, size_t n),
                 void *arg)
{
    s->why = fn;
    s->why_arg = arg;
}

void sql_configure(struct sql *s, enum sql_setting which, uint64_t value)
{
    atomic_store_explicit(&s->settings[which], value, memory_order_relaxed);
}

void sql_ask_unknown(struct sql *s, const struct sql_unknown *u)
{
    s->unknown = *u;
}

/* ---- explain ---- */

struct plan_text {
    struct query *q;
    struct rowset *rows;
    struct vec v, *pointer;
    bool analyze;
};

static int explain_op(struct plan_text *p, const struct op *op, uint32_t depth)
{
    char counts[160] = "";
    if (p->analyze) {
        int n = snprintf(counts, sizeof(counts), "  (%llu rows, %.3f ms",
                         (unsigned long long)op->rows, (double)op->ns / 1e6);
        if (op->segments)
            n += snprintf(counts + n, sizeof(counts) - (size_t)n, ", %llu of %llu segments pruned",
                          (unsigned long long)op->pruned, (unsigned long long)op->segments);
        (void)snprintf(counts + n, sizeof(counts) - (size_t)n, ")");
    }
    uint32_t indent = 2 * (depth < 40 ? depth : 40);
    char *line = sql_getf(p->q, "%*s%s%s%s%s", (int)indent, "", op->name, op->detail ? " " : "",
                          op->detail ? op->detail : "", counts);
    if (!line)
        return -ENOMEM;
    p->v.t[0] = (struct text){line, (uint32_t)strlen(line)};
    int rc = sql_rowset_add(p->rows, &p->pointer, NULL, 1);
    if (rc == 0 && op->child)
        rc = explain_op(p, op->child, depth + 1);
    if (rc == 0 && op->right)
        rc = explain_op(p, op->right, depth + 1);
    return rc;
}

/* Run the plan when analyze, then make its lines the answer. */
static int plan_explain(struct query *q, struct op *plan, bool analyze, struct op **ret)
{
    struct plan_text p = {.q = q, .analyze = analyze};
    struct col *col = sql_get(q, 1, sizeof(*col));
    enum sql_type *type = sql_get(q, 1, sizeof(*type));
    p.rows = sql_get(q, 1, sizeof(*p.rows));
    p.pointer = &p.v;
    if (!col || !type || !p.rows || sql_vec_room(q, &p.v, SQL_TEXT) < 0)
        return -ENOMEM;
    p.v.stable = true;
    int rc = 1;
    while (analyze && rc > 0)
        rc = sql_next(plan);
    if (rc < 0)
        return rc;
    *type = SQL_TEXT;
    *col = (struct col){.name = "plan", .type = SQL_TEXT, .doc = ""};
    (void)sql_rowset_init(p.rows, q, &q->mem, type, 1);
    rc = explain_op(&p, plan, 0);
    return rc < 0 ? rc : sql_scan_rowset(q, p.rows, col, ret);
}

/* ---- running ---- */

/* How far a statement has come. */
struct sql_begun {
    struct query q;
    uint64_t begin_ns;
    struct statement st;
    bool parsed;
    struct op *op; /* NULL: it is not planned */
    int rc;        /* of the last step */
};

static int begin_statement(const struct query_thread_query *r, struct sql_begun *ret)
{
    *ret = (struct sql_begun){.begin_ns = clock_monotonic()};
    return sql_query_init(&ret->q, r->s, r->text, r->size, r->o);
}

static int parse_statement(struct sql_begun *b)
{
    struct query *q = &b->q;
    b->parsed = true;
    int rc = sql_parse(&q->mem, q->text, q->size, &b->st);
    return rc == -ENOMEM ? err_set(rc, "no memory for the statement") : rc;
}

static int plan_statement(struct query *q, const struct statement *s, struct op **ret)
{
    struct statement st = *s;
    switch (st.kind) {
    case STATEMENT_SHOW_LIST:
    case STATEMENT_SHOW_CREATE:
    case STATEMENT_DESCRIBE:
    case STATEMENT_SUMMARIZE:
    case STATEMENT_SHOW:
    case STATEMENT_SET:
        return sql_plan_other(q, &st, ret);
    case STATEMENT_SELECT:
        break;
    }
    q->analyze = st.analyze;
    int rc = sql_plan_select(q, st.select, NULL, ret);
    return rc == 0 && st.explain ? plan_explain(q, *ret, st.analyze, ret) : rc;
}

static int tell_columns(struct query *q, struct op *op, const struct sql_sink *sink)
{
    struct sql_column *columns = sql_get(q, op->n_cols, sizeof(*columns));
    if (!columns)
        return -ENOMEM;
    for (uint32_t c = 0; c < op->n_cols; c++) {
        sql_want(op, c);
        columns[c] = (struct sql_column){.name = op->cols[c].name,
                                         .type = op->cols[c].type,
                                         .unit = op->cols[c].unit,
                                         .doc = op->cols[c].doc ? op->cols[c].doc : ""};
    }
    return sink->columns ? sink->columns(sink->arg, columns, op->n_cols) : 0;
}

static int give_rows(struct query *q, struct op *op, const struct sql_sink *sink,
                     struct sql_report *report)
{
    uint64_t max = q->max_rows ? q->max_rows : UINT64_MAX;
    int rc;
    while ((rc = sql_next(op)) > 0) {
        struct sql_rows rows = {.q = q, .batch = &op->out, .n = op->out.n_sel};
        if (report->rows + rows.n > max) {
            rows.n = (uint32_t)(max - report->rows);
            report->cut = true;
        }
        report->rows += rows.n;
        uint64_t begin = clock_monotonic();
        rc = rows.n && sink->rows ? sink->rows(sink->arg, &rows) : 0;
        if (q->deadline && !q->o->timeout_ns) /* a reader who takes his time is no runaway */
            q->deadline += clock_monotonic() - begin;
        if (rc < 0 || report->cut)
            return rc;
    }
    return rc;
}

static void count_lost(struct query *q, struct sql_report *report)
{
    for (struct table_seen *s = q->notes.seen; s; s = s->next) {
        uint64_t lost = table_lost_rows(s->table);
        report->lost += lost;
        if (lost && !report->lost_table)
            report->lost_table = s->table->name;
    }
}

/* The scan a plan of rows as they come stands on, or whatever else is there. */
static const struct op *row_source(const struct op *op)
{
    while (strcmp(op->name, "project") == 0 || strcmp(op->name, "filter") == 0)
        op = op->child;
    return op;
}

/* Does the plan give the rows of its aggregation by buckets, all of them? */
static bool gives_buckets(const struct query *q, const struct op *op)
{
    while (strcmp(op->name, "project") == 0 || strcmp(op->name, "filter") == 0 ||
           strcmp(op->name, "sort") == 0)
        op = op->child;
    return q->notes.bucketed && op == q->notes.bucketed && !q->subqueries;
}

/* Plan the statement, up to its first row. */
static int prepare_rows(struct sql_begun *b, const struct sql_sink *sink)
{
    struct op *op;
    int rc = plan_statement(&b->q, &b->st, &op);
    if (rc == 0)
        rc = tell_columns(&b->q, op, sink);
    b->op = rc == 0 ? op : NULL;
    return rc;
}

int sql_run_here(const struct query_thread_query *r, struct query_thread *aside)
{
    struct sql_begun own, *b = r->begun ? r->begun : &own;
    struct sql_report report = {.rows = 0};
    int rc = r->begun ? b->rc : begin_statement(r, b);
    if (rc < 0 && !r->begun)
        return rc;
    struct query *q = &b->q;
    q->aside = aside;
    if (rc == 0 && !b->parsed)
        rc = parse_statement(b);
    if (rc == 0 && !b->op)
        rc = prepare_rows(b, r->sink);
    const struct op *op = b->op;
    if (rc == 0)
        rc = give_rows(q, b->op, r->sink, &report);
    if (rc == -ENOMEM && sql_check(q) < 0)
        rc = sql_check(q); /* memory was refused because the query is to end */
    if (rc == 0)
        count_lost(q, &report);
    if (rc == 0 && !report.cut)
        report.next_row = sql_scan_end(row_source(op));
    if (rc == 0 && gives_buckets(q, op)) {
        report.next_ts = q->notes.bucket_end;
        report.bucket_ns = q->notes.bucket_ns;
        report.next_row = sql_scan_end(row_source(q->notes.bucketed->child));
        report.late = q->o->late ? q->notes.bucketed->child->rows : 0;
    }
    if (rc == 0 && r->ret)
        sql_tell_empty(q, &report);
    sql_query_done(q);
    report.elapsed_ns = clock_monotonic() - b->begin_ns; /* all of that time is in it */
    if (rc == 0 && r->ret)
        *r->ret = report;
    return rc;
}

/* ---- statements that do little ---- */

#define SHORT_BYTES 4096 /* of text: what is longer is not even read on the caller's thread */
/* Rows: what is done with them takes less than a millisecond.  Of a small table a statement takes
 * 0.07 ms of the process's time so, and 0.12 by another thread (tests/bench/rank_cost.py). */
#define FEW_ROWS 8192

/* With which others ask for the columns. */
static bool asks_no_rows(const struct select *s)
{
    return s->limit && s->limit->kind == NODE_INT && s->limit->integer == 0;
}

/* Does it plan in no time, without running anything, and read one table at most? */
static bool is_plain(const struct sql *s, const struct statement *st)
{
    const struct select *x = st->kind == STATEMENT_SELECT && !st->explain ? st->select : NULL;
    const struct from *f = x ? x->from : NULL;
    if (!x || st->subqueries || x->ctes || x->set != SET_NONE)
        return false;
    return !f || (f->kind == FROM_TABLE &&
                  (asks_no_rows(x) || !sql_next_view(s, f->names[1], f->names[0], NULL)));
}

/* Give the scan below, if each operator on the way makes at most one row of one and looks at it
 * once; else NULL. */
static struct op *only_scan(struct op *op)
{
    static const char *const simple[] = {"filter", "project", "aggregate",
                                         "sort",   "limit",   "distinct"};
    while (op && op->child) {
        bool is_simple = false;
        for (size_t i = 0; i < sizeof(simple) / sizeof(*simple); i++)
            is_simple |= strcmp(op->name, simple[i]) == 0;
        op = is_simple && !op->right ? op->child : NULL;
    }
    return op;
}

/* Do what can be done at once, up to the first row, and begin to read.  Is what is left so little
 * that its niceness is not worth another thread? */
static bool does_little(struct sql_begun *b, const struct sql_sink *sink)
{
    uint64_t rows = 0;
    if (b->q.size > SHORT_BYTES)
        return false;
    b->rc = parse_statement(b);
    if (b->rc == 0 && !is_plain(b->q.s, &b->st))
        return false;
    if (b->rc == 0)
        b->rc = prepare_rows(b, sink);
    if (b->rc < 0 || asks_no_rows(b->st.select))
        return true;
    struct op *scan = only_scan(b->op);
    b->rc = scan ? sql_scan_begin(scan, &rows) : 0;
    return b->rc < 0 || (scan && rows <= FEW_ROWS);
}

int sql_run(struct sql *s, const char *text, size_t size, const struct sql_options *o,
            const struct sql_sink *sink, struct sql_report *ret)
{
    struct sql_begun b;
    struct query_thread_query query = {sql_run_here, s, text, size, o, sink, ret, NULL};
    int nice = (int)sql_setting(s, SQL_SET_NICE);
    int rc = nice ? begin_statement(&query, &b) : 0;
    if (rc < 0)
        return rc;
    query.begun = nice ? &b : NULL;
    if (nice && !does_little(&b, sink) && sql_run_on_thread(&query, nice, &rc))
        return rc;
    return sql_run_here(&query, /* aside= */ NULL);
}

/* Plan a select without running anything; `test` says whether it will do. */
static int look_at(struct sql *s, const char *text, size_t size, const struct table **ret_table,
                   bool (*test)(const struct query *q, const struct op *op,
                                const struct table **ret_table))
{
    struct query q;
    struct op *op;
    struct statement st;
    const struct table *table = NULL;
    int rc = sql_query_init(&q, s, text, size, NULL);
    if (rc < 0)
        return rc;
    q.dry = true;
    rc = sql_parse(&q.mem, text, size, &st);
    if (rc == 0 && st.kind == STATEMENT_SELECT && !st.explain) {
        rc = sql_plan_select(&q, st.select, NULL, &op);
        if (rc == 0 && test(&q, op, &table))
            rc = 1;
    }
    sql_query_done(&q);
    if (rc == 1)
        *ret_table = table;
    return rc;
}

static bool gives_rows_of(const struct query *q, const struct op *op, const struct table **ret)
{
    return !q->subqueries && sql_is_scan(row_source(op), ret);
}

static bool gives_buckets_of(const struct query *q, const struct op *op, const struct table **ret)
{
    return gives_buckets(q, op) && sql_is_scan(row_source(q->notes.bucketed->child), ret);
}

/* Windows, joins, unions, sorting: whatever gives a row for rows that stay once they are there. */
static bool gives_more_rows(const struct query *q, const struct op *op, const struct table **ret)
{
    (void)op;
    for (const struct table_seen *s = q->notes.seen; s; s = s->next) {
        if (s->table->scan)
            return false; /* computed: as it is at the moment */
        *ret = s->table;
    }
    return q->notes.seen && !q->sums_up;
}

static bool lacks_table(const struct query *q, const struct op *op, const struct table **ret)
{
    (void)op, (void)ret;
    return q->notes.lacks != NULL;
}

int sql_lacks(struct sql *s, const char *text, size_t size)
{
    const struct table *table;
    return look_at(s, text, size, &table, lacks_table);
}

int sql_followable(struct sql *s, const char *text, size_t size, const struct table **ret_table)
{
    return look_at(s, text, size, ret_table, gives_rows_of);
}

int sql_bucketed(struct sql *s, const char *text, size_t size, const struct table **ret_table)
{
    return look_at(s, text, size, ret_table, gives_buckets_of);
}

int sql_grows(struct sql *s, const char *text, size_t size)
{
    const struct table *table;
    return look_at(s, text, size, &table, gives_more_rows);
}
