/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/value/query.h - a query and the engine: what a statement has while it runs, and its
 * limits.
 *
 * The way of a statement: parse/ (text to tree: ast.h), plan/ (tree to operators and typed
 * expressions: ops.h, expr.h), exec/ (operators; parallel.c runs some in several threads), expr/
 * (expressions as flat steps over vectors), format/ (answers to bytes), engine.c (the whole).
 *
 * Everything of a query lives in its arena or is given back by sql_defer(): query.c; query_thread.c
 * runs one on a thread of its own.  Private to core/sql; one thread a query, but for the helpers of
 * parallel.c.
 */
#ifndef CORE_SQL_VALUE_QUERY_H
#define CORE_SQL_VALUE_QUERY_H

#include <pthread.h>

#include "core/catalog/dictionary.h"
#include "core/sql/parse/ast.h"
#include "core/sql/value/vector.h"
#include "sdk/lib/arena.h"

#define SQL_WORK 65536 /* pieces of work between looks at the limits: a few ms at the worst */

/* The memory that a query and those beside it may take.  Most need so little that nobody has to
 * look what the machine has: that costs more than such a query. */
struct query_budget {
    struct arena_budget arenas; /* first */
    size_t wanted_bytes;        /* the limit where the machine leaves enough */
    bool asked;                 /* by whoever runs the query; else the setting */
    const char *_Atomic whose;  /* which limit it is, for messages */
};

/* Planning leaves these notes for the report. */
struct query_notes {
    struct table_seen *seen;
    const struct view *view_used; /* the definition of the view that was planned last */
    const struct view *view;      /* that was read and can say why it has no rows; NULL: none */
    const char *lacks;            /* the table that this view's plugin has not made; NULL: none */
    const struct op *view_op;     /* that gives its rows; NULL: planned anew for each use */
    /* The aggregation by buckets of time that was planned last, see sql_bucketed(); where its first
     * bucket begins that is not closed, and the length of the one before. */
    struct op *bucketed;
    int64_t bucket_end, bucket_ns;
};

struct query {
    struct sql *s;
    struct arena_budget *budget; /* of mem and of all other arenas of the query */
    struct query_budget own;
    struct arena mem;
    const struct sql_options *o;
    uint64_t timeout_ns, max_rows;
    uint64_t worked;            /* since the limits were looked at: sql_worked() */
    struct op *blamed;          /* the operator whose memory was refused */
    struct query_thread *aside; /* NULL: it runs on the caller's thread; query_thread.c */
    const char *text;           /* of the statement, for positions */
    size_t size;
    int64_t now_utc;
    uint64_t deadline; /* clock_monotonic() ns, 0: none */
    bool dry;          /* only look: no subquery runs, nothing is scanned */
    bool analyze;
    uint32_t depth;      /* of binding and planning at this moment, subqueries and views too */
    uint32_t n_views;    /* views being expanded */
    bool subqueries;     /* one was met */
    bool sums_up;        /* its answer is made anew by each row, see sql_grows() */
    uint32_t n_plans;    /* selects planned: views and CTEs are expanded at each use */
    struct outer *outer; /* the query around the one that is bound now: bind_subquery.c */
    struct query_notes notes;
    uint32_t n_running; /* selects that are planned and run anew within each other */
    struct deferred *deferred;
    struct sql_hidden *hidden; /* redact.c */
    uint16_t *all;             /* 0, 1, 2, ...: the selection of all rows */
    /* A query beside another (parallel.c) ends when it is not 0.  NULL: it is nobody's helper. */
    const _Atomic int *stop;
};

struct table_seen {
    const struct table *table;
    bool empty; /* a computed one gave no row */
    struct table_seen *next;
};

struct query_threads { /* query_thread.c: those that wait for a query, and that nobody has joined */
    pthread_mutex_t mutex;
    struct query_thread *idle, *ended; /* lock: mutex */
    uint32_t n_idle;                   /* lock: mutex */
};

/* The engine; the views are added before queries run or under the lock. */
struct view {
    const char *schema, *name; /* schema "" for a bare name */
    const char *definition, *doc;
    const char *why;     /* a select of one text or none: why it has no rows; may be NULL */
    const char *plugin;  /* NULL: the engine's owner */
    bool loaded;         /* else only known */
    uint32_t n_tables;   /* that it reads; of plugins' */
    _Atomic bool is_old; /* another has taken its place */
    struct view *next;
};

struct sql {
    struct tables *tables;
    struct store *store;        /* NULL: computed tables only */
    struct interns *interns;    /* NULL without a store */
    struct view *_Atomic views; /* added at the front, never removed */
    int (*why)(void *arg, const struct table *t, char *text, size_t n); /* may be NULL */
    void *why_arg;
    struct sql_unknown unknown; /* its functions may be NULL */
    /* Tables that somebody holds in memory (distribute/answer_store.c).  1: *ret, 0: none of that
     * name. */
    int (*held)(struct query *q, void *arg, const char *schema, const char *name, const char *alias,
                struct op **ret);
    void *held_arg;
    _Atomic uint64_t settings[SQL_SETTINGS];
    struct query_threads threads;
};

/* ---- redact.c: texts, without secrets where the client may only read ---- */

struct text sql_id_text(struct query *q, uint64_t id); /* of the dictionary; data NULL: no such */
struct text sql_hide_text(struct query *q, struct text t);
/* The column with names of a table of names and values, -1: it is none; is this one of the values;
 * is the column itself a secret's? */
int sql_hide_names(const struct table *t);
bool sql_hide_values(const struct table *t, uint32_t column);
bool sql_hide_column(const struct table *t, uint32_t column);

uint64_t sql_setting(const struct sql *s, enum sql_setting which);

/* ---- empty_reason.c ---- */

/* The query has ended: say in the report why what it read has no rows, if that is so. */
void sql_tell_empty(struct query *q, struct sql_report *report);

/* ---- query_thread.c: a query on a thread of its own ---- */

struct query_thread_query { /* what runs it, and the arguments of sql_run() */
    int (*run)(const struct query_thread_query *q, struct query_thread *aside);
    struct sql *s;
    const char *text;
    size_t size;
    const struct sql_options *o;
    const struct sql_sink *sink;
    struct sql_report *ret;
    struct sql_begun *begun; /* engine.c: what the caller's thread has done of it; NULL: nothing */
};
/* engine.c: on this thread; aside: of the query that this one belongs to, may be NULL. */
int sql_run_here(const struct query_thread_query *r, struct query_thread *aside);
/* false: no thread could be made, and nothing was done. */
bool sql_run_on_thread(const struct query_thread_query *q, int nice, int *ret_code);
/* Run fn(arg) on the thread that waits for the query: what may hold a lock of the host's must not
 * be done by a thread of low priority. */
int sql_by_caller(struct query *q, int (*fn)(void *arg), void *arg);
int sql_threads_init(struct query_threads *all);
void sql_threads_end(struct query_threads *all); /* no query runs any more */

/* ---- life, memory, limits ---- */

int sql_query_init(struct query *q, struct sql *s, const char *text, size_t size,
                   const struct sql_options *o);
/* A query for a thread that helps `of`: its limits and its budget, memory of its own.  `of` stands
 * still or is in sql_next() as long as it lives. */
void sql_query_beside(struct query *q, const struct query *of, const _Atomic int *stop);
void sql_query_done(struct query *q);
/* Memory of the query, zeroed; NULL after err_set(): return -ENOMEM. */
void *sql_get(struct query *q, size_t count, size_t size);
/* An array made longer: room items, the first `used` of them those of `old`, zeros behind. */
void *sql_grow(struct query *q, const void *old, size_t used, size_t room, size_t size);
char *sql_getf(struct query *q, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The limit of its memory, which is looked up now if it was not needed before. */
size_t sql_memory_limit(const struct query *q);
/* Call fn(arg) when the query ends. */
int sql_defer(struct query *q, void (*fn)(void *arg), void *arg);
/* Leaving gives back everything taken since entering; *v (may be NULL) is kept. */
struct sandbox {
    struct arena mem;
    struct deferred *deferred;
    struct query_notes notes;
    struct sql_hidden *hidden;
};
void sql_sandbox_enter(struct query *q, struct sandbox *s);
int sql_sandbox_leave(struct query *q, struct sandbox *s, struct sql_value *v, int rc);
/* The plan made since `before` never runs: its operators say nothing about rows. */
void sql_notes_looked(struct query *q, const struct query_notes *before);
/* The place of a select: the rows around it, the text that its errors point into. */
struct place {
    struct outer *outer;
    const char *text;
    size_t size;
    uint32_t depth;
};
struct place sql_place(const struct query *q); /* that is planned now */
/* A sandbox for a select that is planned and run once more while the query runs.  It is planned
 * where it stands, not where the query is then; what its names mean, struct cte included, must
 * hold until sql_nested_leave(). */
struct nested {
    struct sandbox box;
    struct place place;
    uint32_t n_plans;
};
/* -E2BIG: too many within each other; there is nothing to leave then. */
int sql_nested_enter(struct query *q, struct nested *n, const struct place *place);
int sql_nested_leave(struct query *q, struct nested *n, struct sql_value *v, int rc);
int sql_check(struct query *q); /* limits: 0, -ETIMEDOUT, -ECANCELED */
/* The operator failed with `rc`: what the query fails with, and whose memory was refused. */
int sql_failed(struct op *op, int rc);

/* n small pieces of work were done outside sql_next(): look at the limits now and then. */
static inline int sql_worked(struct query *q, uint64_t n)
{
    q->worked += n;
    if (q->worked < SQL_WORK)
        return 0;
    q->worked = 0;
    return sql_check(q);
}

int sql_saw_table(struct query *q, const struct table *t);
void sql_table_empty(struct query *q, const struct table *t); /* a computed one gave no row */

#endif
