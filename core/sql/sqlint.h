/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/sqlint.h - what the files of core/sql share: vectors, operators, expressions, a query.
 *
 * The way of a statement: token.c, parse.c (text to tree), plan.c with bind.c (tree to operators
 * and typed expressions), scan.c, exec.c, aggregate.c, sort.c, join.c, lateral.c, window.c
 * (operators; team.c runs some in several threads), expr.c and func.c (expressions as flat steps
 * over vectors), format.c (answers to bytes), sql.c (the whole).
 *
 * A batch is up to 2,048 rows, a typed vector per column.  Rows that count are named by a
 * selection (indices, ascending); vectors are always indexed by the row's own place, so filtering
 * moves nothing.  Everything of a query lives in its arena or is given back by sql_defer().
 * Private to core/sql; one thread a query, but for the helpers of team.c.
 */
#ifndef CORE_SQL_SQLINT_H
#define CORE_SQL_SQLINT_H

#include "core/base/arena.h"
#include "core/ring/intern.h"
#include "core/sql/ast.h"
#include "core/sql/sql.h"
#include "core/store/store.h"

#define SQL_ROWS STORE_BATCH_ROWS /* rows in a batch */
#define SQL_WORK 65536     /* pieces of work between looks at the limits: a few ms at the worst */
#define SQL_CALL_ARGS 64   /* arguments of one function: more is a mistake */
#define SQL_BIND_DEPTH 500 /* expressions in subqueries in views ...: our threads have 512 KiB */
#define SQL_VIEW_DEPTH 16  /* views over views */

struct text {
    const char *data;
    uint32_t size;
};

/* One column of a batch.  BOOL, INT, TIMESTAMP and INTERVAL are in i, DOUBLE in d, TEXT and BLOB
 * in t, or in ids when they come from the store's dictionary (then t is room, see sql_texts). */
struct vec {
    enum sql_type type;
    bool has_null;
    bool stable;   /* TEXT: the bytes live as long as the query */
    bool inside;   /* all rows meet the conditions that were pushed down to their scan */
    uint8_t *null; /* [SQL_ROWS], valid when has_null: 1 is NULL */
    uint64_t most; /* no id or whole number is larger, none negative; 0: not known */
    union {
        int64_t *i;
        double *d;
        struct text *t;
        void *data;
    };
    const uint64_t *ids;
};

struct batch {
    uint32_t n;          /* rows in the vectors */
    const uint16_t *sel; /* NULL: all of them */
    uint32_t n_sel;      /* rows that count: n when sel is NULL */
    struct vec *v;
};

struct col {
    const char *name;
    const char *table; /* alias or name it may be qualified with, NULL: none */
    const char *schema;
    enum sql_type type;
    uint32_t unit;
    const char *doc;
    bool dict;   /* vectors carry ids of the store's dictionary, always */
    bool hidden; /* not part of *, found by its table's name only: the right side of using () */
    bool first;  /* comes first in *: the columns of using () */
};

struct query;
struct op;

/* next: fill op->out.  1: rows (n_sel > 0), 0: no more, -errno. */
typedef int (*op_next)(struct op *op);
/* The same operator over `child` in a query beside, for a share of the rows. */
typedef int (*op_beside)(struct query *q, struct op *op, struct op *child, struct op **ret);

struct op {
    struct query *q;
    op_next next;
    const char *name;   /* for explain */
    const char *detail; /* for explain, may be NULL */
    struct op *child, *right;
    struct col *cols;
    uint32_t n_cols;
    struct batch out;
    void *state;
    bool *want; /* [n_cols] columns somebody reads; NULL: all are made anyway */
    void (*on_want)(struct op *op, uint32_t column); /* tells the children; NULL: nobody */
    op_beside beside;                                /* NULL: its rows cannot be shared out */
    uint64_t rows, ns, pruned, segments;             /* for explain analyze */
    bool done;
};

struct query {
    struct sql *s;
    struct arena_budget *budget; /* of mem and of all other arenas of the query */
    struct arena_budget own;
    struct arena mem;
    const struct sql_options *o;
    const char *whose; /* which limit of memory it is, for messages */
    uint64_t timeout_ns, max_rows;
    uint64_t worked;     /* since the limits were looked at: sql_worked() */
    struct op *blamed;   /* the operator whose memory was refused */
    struct aside *aside; /* NULL: it runs on the caller's thread; aside.c */
    const char *text;    /* of the statement, for positions */
    size_t size;
    int64_t now_utc;
    uint64_t deadline; /* clock_monotonic() ns, 0: none */
    bool dry;          /* only look: no subquery runs, nothing is scanned */
    bool analyze;
    uint32_t depth;      /* of binding and planning at this moment, subqueries and views too */
    uint32_t n_views;    /* views being expanded */
    bool subqueries;     /* one was met */
    uint32_t n_plans;    /* selects planned: views and CTEs are expanded at each use */
    struct outer *outer; /* the query around the one that is bound now: bind_subquery.c */
    /* The aggregation by buckets of time that was planned last, see sql_bucketed(); where its first
     * bucket begins that is not closed, and the length of the one before. */
    struct op *bucketed;
    int64_t bucket_end, bucket_ns;
    uint32_t n_running; /* correlated subqueries within each other */
    struct table_seen *seen;
    struct deferred *deferred;
    uint16_t *all; /* 0, 1, 2, ...: the selection of all rows */
    /* Of a query beside another (team.c): end when it is not 0.  NULL: it is nobody's helper. */
    const _Atomic int *stop;
};

struct table_seen {
    const struct table *table;
    struct table_seen *next;
};

/* The engine; the views are added before queries run or under the lock. */
struct view {
    const char *schema, *name; /* schema "" for a bare name */
    const char *definition, *doc;
    struct view *next;
};

struct sql {
    struct tables *tables;
    struct store *store;        /* NULL: computed tables only */
    struct interns *interns;    /* NULL without a store */
    struct view *_Atomic views; /* added at the front, never removed */
    _Atomic uint64_t settings[SQL_SETTINGS];
};

int sql_add_own_views(struct sql *s); /* views.c */
uint64_t sql_setting(const struct sql *s, enum sql_setting which);
int sql_run_here(struct sql *s, const char *text, size_t size, const struct sql_options *o,
                 const struct sql_sink *sink, struct sql_report *ret, struct aside *aside);

/* ---- aside.c: a query on a thread of its own ---- */

struct aside_query { /* the arguments of sql_run() */
    struct sql *s;
    const char *text;
    size_t size;
    const struct sql_options *o;
    const struct sql_sink *sink;
    struct sql_report *ret;
};
/* false: no thread could be made, and nothing was done. */
bool sql_run_aside(const struct aside_query *q, int nice, int *ret_code);
/* Run fn(arg) on the thread that waits for the query: what may hold a lock of the host's must not
 * be done by a thread of low priority. */
int sql_by_caller(struct query *q, int (*fn)(void *arg), void *arg);

/* ---- query.c: life, memory, limits ---- */

int sql_query_init(struct query *q, struct sql *s, const char *text, size_t size,
                   const struct sql_options *o);
/* A query for a thread that helps `of`: its limits and its budget, memory of its own.  `of` stands
 * still or is in sql_next() as long as it lives. */
void sql_query_beside(struct query *q, const struct query *of, const _Atomic int *stop);
void sql_query_done(struct query *q);
/* Memory of the query, zeroed; NULL after err_set(): return -ENOMEM. */
void *sql_get(struct query *q, size_t count, size_t size);
char *sql_getf(struct query *q, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Call fn(arg) when the query ends. */
int sql_defer(struct query *q, void (*fn)(void *arg), void *arg);
/* What is taken between the two is given back at the second; *v (may be NULL) is kept. */
struct sandbox {
    struct arena mem;
    struct deferred *deferred;
    struct table_seen *seen;
};
void sql_sandbox_enter(struct query *q, struct sandbox *s);
int sql_sandbox_leave(struct query *q, struct sandbox *s, struct sql_value *v, int rc);
/* A sandbox for a select that is planned and run once more for each row outside it: it sees the
 * row through `outer`, and its errors stand in the text that it was written in. */
struct nested {
    struct sandbox box;
    struct outer *outer;
    const char *text;
    size_t size;
    uint32_t depth, n_plans;
};
void sql_nested_enter(struct query *q, struct nested *n, struct outer *outer, const char *text,
                      size_t size, uint32_t depth);
int sql_nested_leave(struct query *q, struct nested *n, struct sql_value *v, int rc);
int sql_check(struct query *q); /* limits: 0, -ETIMEDOUT, -ECANCELED */

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
struct op *sql_op(struct query *q, op_next next, const char *name, uint32_t n_cols);
/* Vectors of an operator's own, with room for SQL_ROWS values each. */
int sql_op_vectors(struct op *op);
int sql_vec_room(struct query *q, struct vec *v, enum sql_type type);
int sql_next(struct op *op); /* op->next with limits, counting and time */
/* Make t of a vector with ids, for the selected rows. */
void sql_texts(struct query *q, struct vec *v, const uint16_t *sel, uint32_t n);
const char *sql_type_name(enum sql_type t);
const char *sql_unit_name(uint32_t unit);
struct sql_value sql_vec_value(struct query *q, const struct vec *v, uint32_t row);
void sql_put_value(struct vec *v, uint32_t row, const struct sql_value *x);
struct text sql_copy_text(struct query *q, struct text t); /* data NULL: no memory */

static inline bool sql_is_textual(enum sql_type t)
{
    return t == SQL_TEXT || t == SQL_BLOB;
}

/* ---- expressions: expr.c, func.c ---- */

struct step;
struct run;

/* Compute st->dst for the n rows of sel (NULL: rows 0 to n - 1).  Rows with a NULL argument are
 * not among them unless the function is FUNC_NULLS. */
typedef int (*kernel)(struct run *r, struct step *st, const uint16_t *sel, uint32_t n);

enum {
    FUNC_NULLS = 1,    /* sees NULL arguments itself */
    FUNC_PER_BATCH = 2 /* not folded at plan time */
};

struct func {
    const char *name;
    const char
        *args;   /* a letter each: i d t b s(timestamp) v(interval) x(any); '*': the last again */
    char result; /* the same letters; x: as the first argument */
    uint32_t flags;
    kernel run;
};

enum expr_kind {
    EXPR_CONST,
    EXPR_COLUMN,
    EXPR_CALL,
    EXPR_AND,
    EXPR_OR,
    EXPR_CASE,
    EXPR_COALESCE,
    EXPR_IN,
    EXPR_SUBQUERY, /* run for each combination of its arguments, see bind_subquery.c */
    EXPR_AGG,
    EXPR_WINDOW /* args: all that it is computed from */
};

struct expr {
    enum expr_kind kind;
    enum sql_type type;
    uint32_t pos, start, end;
    bool literal; /* CONST: written as 'text' or NULL: takes the type it is compared with */
    bool dict;
    bool negated; /* IN */
    bool null_in; /* IN: NULL is one of the values */
    bool unknown; /* CONST: a column of the query around, which has no value yet */
    struct expr **args;
    uint32_t n_args;
    struct sql_value value; /* CONST */
    uint32_t column;        /* COLUMN, AGG: number */
    uint32_t unit;
    const struct func *func;
    void *set; /* IN: the constants, see expr.c; AGG: struct agg_spec, WINDOW: struct win_spec */
};

struct program;
/* Compile expressions over the vectors of `input`.  results[i] of sql_run_program() are the
 * vectors of exprs[i], good until the next run. */
int sql_compile(struct query *q, struct batch *input, struct expr **exprs, uint32_t n,
                struct program **ret);
int sql_run_program(struct program *p, struct vec **results);
/* Only the rows of a selection instead of the input's own. */
int sql_run_program_on(struct program *p, const uint16_t *sel, uint32_t n, struct vec **results);
/* Narrow sel to the rows for which the program's one BOOL result is true: gives how many. */
int sql_run_filter(struct program *p, const uint16_t *sel, uint32_t n, uint16_t *ret_sel);
/* The value of an expression of constants. */
int sql_fold(struct query *q, struct expr *e, struct sql_value *ret);
/* ---- in_set.c ---- */

/* IN: make the set of constants: n rows of as many values as the expression has arguments. */
int sql_make_set(struct query *q, struct expr *in, const struct sql_value *values, uint32_t n);

int sql_run_in(struct run *r, struct step *st, const uint16_t *sel, uint32_t n);
/* Is the row of probes among the n rows?  NULL when that hangs on a NULL. */
struct sql_value sql_is_among(const struct sql_value *probe, const struct sql_value *rows,
                              uint32_t n, uint32_t n_cols);
int sql_run_subquery(struct run *r, struct step *st, const uint16_t *sel, uint32_t n);

struct step {
    kernel run;
    int op; /* STEP_CALL ..., see expr.c */
    struct vec *dst;
    struct vec *a[3];
    struct vec **args; /* all of them, when more than three count */
    uint32_t n_args;
    const struct expr *expr;
    uint8_t *cache; /* answers by dictionary id: 0 not known, 1 false, 2 true, 3 NULL */
    uint64_t n_cache;
    void *state; /* a kernel's own: a compiled pattern */
};

struct run {
    struct query *q;
    struct arena *scratch; /* texts made here live until the next run */
    size_t made;           /* bytes of them since the limits were looked at */
    uint32_t error_row;
};

int sql_run_error(struct run *r, const struct step *st, int code, const char *what);
void *sql_scratch(struct run *r, size_t size); /* NULL after err_set() */
void sql_set_null(struct vec *v, uint32_t row);

const struct func *sql_func_find(const char *name, const enum sql_type *types, const bool *literals,
                                 uint32_t n, bool *ret_known);
const char *sql_func_nearest(const char *name);
uint32_t sql_func_names(const char **ret, uint32_t max);
enum sql_type sql_letter_type(char letter, enum sql_type any);
const struct func *sql_cast_func(enum sql_type from, enum sql_type to, bool forgiving);

/* ---- keys: hash.c ---- */

/* Distinct rows of keys, numbered from 0 in order of arrival. */
struct keys {
    struct query *q;
    uint32_t n_words; /* 8-byte words a key: one a column and one of NULL bits */
    uint32_t n, room;
    uint64_t *words; /* [room * n_words] */
    uint32_t *slots; /* key number + 1, 0: free */
    uint32_t mask;
    uint32_t *direct;        /* small keys by value, see hash.c; NULL: not in use */
    uint32_t direct_bits[3]; /* of each column */
    bool no_direct;          /* the words are too wide */
    struct key_text *texts;  /* dictionary of texts that have no id of the store */
    uint64_t *columns[SQL_CALL_ARGS + 1];
    enum sql_type types[SQL_CALL_ARGS];
    bool dict[SQL_CALL_ARGS];
    uint64_t *hashes;
};

int sql_keys_init(struct keys *k, struct query *q, const enum sql_type *types, const bool *dict,
                  uint32_t n);
/* Numbers of the n selected rows of the key vectors, new ones added: numbers[0 .. n - 1]. */
int sql_keys_add(struct keys *k, struct vec **v, const uint16_t *sel, uint32_t n,
                 uint32_t *numbers);
/* The same without adding: UINT32_MAX is none. */
int sql_keys_find(struct keys *k, struct vec **v, const uint16_t *sel, uint32_t n,
                  uint32_t *numbers);
/* Column c of the keys numbered first to first + n - 1, into a vector with room. */
int sql_keys_column(struct keys *k, uint32_t c, uint32_t first, uint32_t n, struct vec *ret);
/* The keys of another are added: numbers[other->n] says which they are here.  No vectors are added
 * or looked for after that. */
int sql_keys_merge(struct keys *k, const struct keys *other, uint32_t *numbers);
/* Item i becomes what order[i] was, each of them once; marks: n bytes of room. */
void sql_reorder(void *items, size_t size, const uint32_t *order, uint32_t n, uint8_t *marks);
/* The same for keys, which are found no more after it. */
void sql_keys_reorder(struct keys *k, const uint32_t *order, uint8_t *marks);
uint64_t sql_hash_bytes(const void *p, size_t n);

/* ---- rows kept: rows.c ---- */

struct rowset {
    struct query *q;
    struct arena *mem;
    uint32_t n_cols;
    const enum sql_type *types;
    struct vec **chunks; /* [chunk][column], SQL_ROWS rows each */
    uint32_t n_chunks, room;
    uint32_t n;
};

int sql_rowset_init(struct rowset *r, struct query *q, struct arena *mem,
                    const enum sql_type *types, uint32_t n_cols);
int sql_no_room(void); /* -ENOMEM after err_set(): the rows kept are too many */
int sql_rowset_add(struct rowset *r, struct vec **v, const uint16_t *sel, uint32_t n);
/* Copy the rows `index` (n of them, at most SQL_ROWS) into vectors with room; UINT32_MAX: NULLs. */
void sql_rowset_get(const struct rowset *r, const uint32_t *index, uint32_t n, uint32_t first_col,
                    uint32_t n_cols, struct vec *ret);

/* ---- planning: bind.c, plan.c ---- */

struct out_item { /* one column of a select list */
    struct expr *expr;
    const char *name;
    bool aliased;
};

struct scope {
    struct op *op;      /* whose columns are seen */
    struct expr **aggs; /* EXPR_AGG, found while binding */
    uint32_t n_aggs;
    bool allow_aggs, inside_agg;
    bool allow_windows, inside_window;
    bool allow_correlated; /* subqueries that look at the columns of op */
    const struct named_window *windows;
    const char *clause;           /* for messages: "where" */
    const struct out_item *items; /* aliases that may be used, NULL: none */
    uint32_t n_items;
    struct cte *ctes;
};

/* What a subquery sees of the query around it. */
struct outer {
    struct op *op; /* the outer rows */
    struct outer *up;
    struct expr **args; /* columns of op that were asked for */
    uint32_t n;
    const struct sql_value *values; /* of args, while it runs; NULL while it is looked at */
    bool unknown;                   /* something further out had no value yet */
};

struct agg_spec { /* one aggregate call */
    const struct agg_kind *kind;
    bool distinct, star;
    struct expr *arg, *filter;
    struct expr *arg2; /* what arg_min and f(x order by y) go by */
    double fraction;
    bool descending; /* within group (order by x desc), f(x order by y desc) */
    uint32_t bins;
    struct text separator;
    enum sql_type type;
    uint32_t pos;
};

int sql_bind(struct query *q, struct scope *s, const struct node *n, struct expr **ret);
/* A call of a function with bound arguments; n says where. */
int sql_call_named(struct query *q, const struct node *n, const char *name, struct expr *a,
                   struct expr *b, struct expr **ret);
/* Replace a call of constants by its value, if it has one. */
int sql_fold_call(struct query *q, struct expr **e);
/* bind_row.c: (a, b) < (c, d), (a, b) in ((1, 2), ...); the probes in so many rows of values. */
int sql_bind_row_compare(struct query *q, struct scope *s, const struct node *n, struct expr **ret);
int sql_bind_row_in(struct query *q, struct scope *s, const struct node *n, struct expr **ret);
int sql_bind_in_rows(struct query *q, const struct node *n, struct expr **probes, uint32_t n_probes,
                     const struct sql_value *values, uint32_t count, struct expr **ret);
/* bind_subquery.c.  sql_bind_outer: 1: a column of the query around, 0: there is none. */
int sql_bind_outer(struct query *q, const struct node *n, struct expr **ret);
int sql_bind_subquery(struct query *q, struct scope *s, const struct node *n, struct expr **ret);
int sql_bind_in_select(struct query *q, struct scope *s, const struct node *n, struct expr **ret);
/* Make the type wanted of it: NULL, 'text' and whole numbers adapt, others are refused. */
int sql_coerce(struct query *q, struct expr **e, enum sql_type type, const char *what);
int sql_cast_to(struct query *q, struct expr **e, enum sql_type type, bool forgiving);
/* One type for all of them. */
int sql_unify(struct query *q, struct expr **e, uint32_t n, const char *what, enum sql_type *ret);
struct expr *sql_new_expr(struct query *q, enum expr_kind kind, enum sql_type type, uint32_t pos,
                          uint32_t n_args);
void sql_want(struct op *op, uint32_t column);
/* Column of the scope by name; -1: none, -2: after err_set(). */
int sql_find_column(struct query *q, const struct op *op, const struct node *n);
int sql_no_column(struct query *q, const struct op *op, const struct node *n);
struct expr *sql_const(struct query *q, struct sql_value v, uint32_t pos);
bool sql_expr_equal(const struct expr *a, const struct expr *b);
bool sql_expr_has_agg(const struct expr *e);
bool sql_expr_has_window(const struct expr *e);
struct expr *sql_column_expr(struct query *q, const struct op *op, uint32_t column, uint32_t pos);

int sql_plan_select(struct query *q, const struct select *s, struct cte *ctes, struct op **ret);
int sql_plan_values(struct query *q, const struct select *s, struct op **ret);
int sql_plan_other(struct query *q, const struct statement *st, struct op **ret); /* describe.c */
/* plan_bucket.c: the key that is a bucket of the table's time, if one is; what is closed alone. */
const struct expr *sql_find_bucket(const struct op *input, struct expr *const *keys, uint32_t n);
int sql_only_closed(struct query *q, const struct expr *bucket, struct op **op);
int sql_plan_recursive(struct query *q, struct cte *c, struct op **ret); /* recursive.c */
int sql_plan_set(struct query *q, const struct select *s, struct cte *ctes, struct op **ret);
/* plan_join.c, plan_table.c */
int sql_plan_from(struct query *q, const struct from *f, struct cte *ctes, struct op **ret);
int sql_plan_table(struct query *q, const struct from *f, struct cte *ctes, struct op **ret);
/* lateral.c: `f` (a join) whose right side may see the columns of `left`.  *ret NULL: it does not,
 * and is in *ret_right as it stands. */
int sql_plan_lateral(struct query *q, const struct from *f, struct cte *ctes, struct op *left,
                     struct op **ret_right, struct op **ret);
int sql_plan_where(struct query *q, const struct node *where, struct cte *ctes, struct op **op);
/* Only rows for which the condition is true are wanted of *op. */
int sql_require(struct query *q, struct op **op, struct expr *condition);
int sql_rename_first(struct query *q, const struct from *f, struct op *op);
struct json;
int sql_json_text(struct query *q, const struct json *j, struct text *ret); /* data NULL: null */
/* Functions that give rows: func_rows.c */
int sql_plan_function(struct query *q, const struct node *call, struct op **ret);
bool sql_gives_rows(const char *name);
/* What does here what others call so; NULL: nothing known.  other_names.c */
const char *sql_instead_of(const char *function);
bool sql_expr_has_column(const struct expr *e);
/* Can several threads compute it at once, each on its own rows? */
bool sql_expr_is_free(const struct expr *e);
bool sql_expr_only_from(const struct expr *e, uint32_t first, uint32_t end);
/* The same expression with its columns counted from `by`. */
struct expr *sql_expr_shifted(struct query *q, const struct expr *e, uint32_t by);
const char *sql_mirrored(const char *compare); /* < for > */

/* ---- operators ---- */

int sql_scan_table(struct query *q, const struct table *t, const char *alias, struct op **ret);
/* A table made by the engine itself (information_schema); NULL in *ret: there is no such table. */
int sql_scan_schema(struct query *q, const char *name, const char *alias, struct op **ret);
int sql_scan_none(struct query *q, struct op **ret); /* one row without columns */
/* Number of the first row of the batch it gave last. */
uint64_t sql_scan_row(const struct op *op);
void sql_scan_leave(struct op *op); /* begin no further segment: a helper's */
int sql_scan_rowset(struct query *q, struct rowset *rows, struct col *cols, struct op **ret);
/* Tell the scan below that only rows with column `compare` value count. */
/* true: where the scan's vector says `inside`, the comparison holds for every row. */
bool sql_push_bound(struct op *op, uint32_t column, const char *compare, const struct expr *value);
bool sql_is_scan(const struct op *op, const struct table **ret_table);
/* Of a stored table's scan that ran: the number of the row after its last, 0: it did not run. */
uint64_t sql_scan_end(const struct op *op);

int sql_filter(struct op *child, struct expr **conjuncts, uint32_t n, struct op **ret);
/* One condition more; *op becomes a filter if it is none.  pushed: as sql_push_bound() says. */
int sql_filter_add(struct op **op, struct expr *condition, bool pushed);
int sql_project(struct op *child, struct expr **exprs, struct col *cols, uint32_t n,
                struct op **ret);
int sql_limit(struct op *child, uint64_t limit, uint64_t offset, struct op **ret);
/* The first of rows that are equal in n columns (NULL: in all of them); n_out: columns given on. */
int sql_distinct(struct op *child, const uint32_t *columns, uint32_t n, uint32_t n_out,
                 struct op **ret);
int sql_append(struct op *left, struct op *right, struct op **ret);
/* except: rows of the left side that are not on the right; else intersect: that are. */
int sql_set(struct op *left, struct op *right, bool except, bool all, struct op **ret);
const struct expr *sql_project_expr(const struct op *op, uint32_t column);

struct sort_key {
    uint32_t column; /* of the child */
    bool descending, nulls_first;
};
/* In order of size, NaN last; values that are not NULL. */
int sql_compare_values(const struct vec *a, uint32_t i, const struct vec *b, uint32_t j);
int sql_compare_cells(const struct vec *a, uint32_t i, const struct vec *b, uint32_t j,
                      const struct sort_key *k);
/* Sort n row numbers, keeping the order of equal ones.  prefix (may be NULL): two numbers (at
 * first 0) in the order of the rows; only rows with equal ones are compared. */
typedef int (*sql_compare)(uint32_t a, uint32_t b, void *arg);
typedef void (*sql_prefix)(uint32_t row, void *arg, uint64_t ret[2]);
int sql_sort_index(struct query *q, uint32_t *index, uint32_t n, sql_prefix prefix,
                   sql_compare compare, void *arg);
bool sql_is_whole_prefix(const struct vec *v, uint64_t prefix);
uint64_t sql_cell_prefix(const struct vec *v, uint32_t i, const struct sort_key *k);
/* keep: only the first `keep` rows are wanted (0: all).  n_out: columns given on. */
int sql_sort(struct op *child, const struct sort_key *keys, uint32_t n, uint64_t keep,
             uint32_t n_out, struct op **ret);

const struct agg_kind *sql_agg_find(const char *name);
uint32_t sql_agg_names(const char **ret, uint32_t max);
int sql_agg_bind(struct query *q, struct scope *s, const struct node *n,
                 const struct agg_kind *kind, struct expr **ret);
/* The call alone, not a column of an aggregation.  over_window: its arguments may hold
 * aggregates. */
int sql_agg_spec(struct query *q, struct scope *s, const struct node *n,
                 const struct agg_kind *kind, bool over_window, struct agg_spec **ret);
/* One group of one aggregate, a row at a time: frames of windows. */
struct agg;
int sql_agg_one_new(struct query *q, const struct agg_spec *spec, struct agg **ret);
void sql_agg_one_reset(struct agg *a);
int sql_agg_one_add(struct query *q, struct agg *a, struct vec *arg, const struct vec *filter,
                    uint16_t row);
bool sql_agg_one_can_remove(const struct agg *a);
void sql_agg_one_remove(struct agg *a, const struct vec *arg, const struct vec *filter,
                        uint16_t row);
int sql_agg_one_get(struct query *q, struct agg *a, struct vec *ret, uint32_t row);

bool sql_window_only(const char *name); /* a window function that is no aggregate */
int sql_window_bind(struct query *q, struct scope *s, const struct node *n, struct expr **ret);
/* Compute the window functions in the items over *op; the items then are over the new *op. */
int sql_plan_windows(struct query *q, struct out_item *items, uint32_t n, struct op **op);
/* Groups by keys; columns: the keys, then the aggregates. */
int sql_aggregate(struct op *child, struct expr **keys, uint32_t n_keys, struct expr **aggs,
                  uint32_t n_aggs, struct op **ret);

struct join_merge { /* using (...) of a full join: a column of the left and one of the right side */
    uint32_t left, right;
};
/* Columns: left, then right, then the merged ones.  Conditions are over these; they are added one
 * by one, and pairs that do not pass them all are no match.  Then sql_join_done(). */
int sql_join(struct op *left, struct op *right, enum join_type type,
             const struct join_merge *merges, uint32_t n_merges, struct op **ret);
int sql_join_add(struct op *join, struct expr *condition);
int sql_join_done(struct op *join, uint32_t pos);
bool sql_is_join(const struct op *op, enum join_type *ret_type, uint32_t *ret_n_left);

/* ---- time.c ---- */

enum time_part {
    PART_MICROSECOND,
    PART_MILLISECOND,
    PART_SECOND,
    PART_MINUTE,
    PART_HOUR,
    PART_DAY,
    PART_WEEK,
    PART_MONTH,
    PART_QUARTER,
    PART_YEAR,
    PART_DOW,
    PART_DOY,
    PART_ISODOW,
    PART_ISOYEAR,
    PART_EPOCH,
    PART_NONE
};
enum time_part sql_time_part(const char *name, size_t size);
int64_t sql_time_trunc(enum time_part part, int64_t ns);
double sql_time_get(enum time_part part, int64_t ns);
size_t sql_format_timestamp(int64_t ns, bool iso, char out[40]);
size_t sql_format_interval(int64_t ns, char out[48]);

#endif
