/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/expr/expr.h - expressions, typed and bound, and the flat steps that compute them.
 *
 * expr.c and expr_compile.c (steps), func*.c and cast.c (what the steps do), in_set.c.
 * Private to core/sql; one thread a query, but for the helpers of parallel.c.
 */
#ifndef CORE_SQL_EXPR_EXPR_H
#define CORE_SQL_EXPR_EXPR_H

#include "core/sql/value/query.h"

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
    /* A letter each: i d t b o(blob) s(timestamp) D(date) v(interval) m(with months) x(any); '*':
     * the last again. */
    const char *args;
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
    EXPR_SUBQUERY, /* run for each combination of its arguments, by `run` */
    EXPR_AGG,
    EXPR_GROUPING, /* of its arguments, which does the row's grouping set lack: a bit each */
    EXPR_WINDOW    /* args: all that it is computed from */
};

struct expr {
    enum expr_kind kind;
    enum sql_type type;
    uint32_t pos, start, end;
    bool literal; /* CONST: written as 'text' or NULL: takes the type it is compared with */
    bool dict;
    uint8_t mark;  /* enum mark: bind_json.c, bind_zone.c */
    bool numeric;  /* a double that PostgreSQL would compute as numeric: halves round up */
    bool negated;  /* IN */
    bool null_in;  /* IN: NULL is one of the values */
    bool unknown;  /* CONST: a column of a query around, which has no value yet */
    uint8_t outer; /* CONST: of how many around it is one of the nearest, from 1; 0: not known */
    struct expr **args;
    uint32_t n_args;
    struct sql_value value; /* CONST; SUBQUERY: what tells it from others */
    uint32_t column;        /* COLUMN, AGG: number; SUBQUERY: its kind */
    uint32_t unit;
    union {
        const struct func *func; /* CALL */
        kernel run;              /* SUBQUERY: what answers it */
    };
    void *set; /* IN: the constants, see expr.c; AGG: struct agg_spec, WINDOW: struct win_spec */
};

/* The nearer of two queries around; 0: none. */
static inline uint8_t sql_nearer(uint8_t a, uint8_t b)
{
    return !a || (b && b < a) ? b : a;
}

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

bool sql_same_set(const struct expr *a, const struct expr *b); /* of two IN */
int sql_run_in(struct run *r, struct step *st, const uint16_t *sel, uint32_t n);
/* Is the row of probes among the n rows?  NULL when that hangs on a NULL. */
struct sql_value sql_is_among(const struct sql_value *probe, const struct sql_value *rows,
                              uint32_t n, uint32_t n_cols);

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

const struct func *sql_func_find(const char *name, const enum sql_type *types, const bool *literals,
                                 uint32_t n, bool *ret_known);
const char *sql_func_nearest(const char *name);
uint32_t sql_func_names(const char **ret, uint32_t max);
const struct func *sql_func_at(uint32_t number); /* of all, from 0; NULL: there are fewer */
bool sql_func_is_called(const struct func *f);   /* by its name, name(...): not an operator */
enum sql_type sql_letter_type(char letter, enum sql_type any);
/* Is every value of one type one of the other, too?  Then it is made so where that is needed. */
bool sql_widens(enum sql_type from, enum sql_type to);
const struct func *sql_cast_func(enum sql_type from, enum sql_type to, bool forgiving);

/* ---- expr_tree.c ---- */

struct out_item { /* one column of a select list */
    struct expr *expr;
    const char *name;
    bool aliased;
};

struct expr *sql_new_expr(struct query *q, enum expr_kind kind, enum sql_type type, uint32_t pos,
                          uint32_t n_args);
struct expr *sql_const(struct query *q, struct sql_value v, uint32_t pos);
bool sql_expr_equal(const struct expr *a, const struct expr *b);
bool sql_expr_has_agg(const struct expr *e);
bool sql_expr_has_window(const struct expr *e);
struct expr *sql_column_expr(struct query *q, const struct op *op, uint32_t column, uint32_t pos);
/* The column in the place of *e, whose mark stays: that of array_agg(x)::text is none. */
int sql_use_column(struct query *q, const struct op *op, uint32_t column, struct expr **e);
bool sql_expr_has_column(const struct expr *e);
/* Can several threads compute it at once, each on its own rows? */
bool sql_expr_is_free(const struct expr *e);
bool sql_expr_only_from(const struct expr *e, uint32_t first, uint32_t end);
/* A node of its own, with an array of its own of the same arguments, which the caller may replace.
 * NULL: no memory. */
struct expr *sql_expr_copy(struct query *q, const struct expr *e);
/* *e becomes such a copy, in which `change` has been called for each argument; one without
 * arguments stays.  0, or what `change` gave below 0, or -ENOMEM. */
int sql_expr_change_args(struct query *q, struct expr **e,
                         int (*change)(struct query *q, const void *arg, struct expr **e),
                         const void *arg);
/* The same expression with its columns counted from `by`. */
struct expr *sql_expr_shifted(struct query *q, const struct expr *e, uint32_t by);

#endif
