/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/value/vector.h - rows as they flow: vectors, batches, and the operators that give them.
 *
 * A batch is up to 2,048 rows, a typed vector per column.  Rows that count are named by a
 * selection (indices, ascending); vectors are always indexed by the row's own place, so filtering
 * moves nothing.  Private to core/sql; one thread a query, but for the helpers of parallel.c.
 */
#ifndef CORE_SQL_VALUE_VECTOR_H
#define CORE_SQL_VALUE_VECTOR_H

#include "core/sql/sql.h"
#include "core/store/store.h"

#define SQL_ROWS STORE_BATCH_ROWS /* rows in a batch */
#define SQL_CALL_ARGS 64 /* arguments of one function, columns of a key: more is a mistake */

struct query;
struct op;

struct text {
    const char *data;
    uint32_t size;
};

/* One column of a batch.  BOOL, INT, TIMESTAMP, DATE and INTERVAL are in i, DOUBLE in d, TEXT, BLOB
 * and CALENDAR in t, or in ids when they come from the store's dictionary (then t is room, see
 * sql_texts). */
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

struct sql_rows { /* sql.h */
    struct query *q;
    const struct batch *batch;
    uint32_t n;
};

/* Values that have no type of their own: MARK_JSON is a text that is JSON, MARK_CLOCK a timestamp
 * that the clocks of some zone show, MARK_ARRAY a text that is an array: {a,b}. */
enum mark { MARK_NONE, MARK_JSON, MARK_CLOCK, MARK_ARRAY };

struct col {
    const char *name;
    const char *table; /* alias or name it may be qualified with, NULL: none */
    const char *schema;
    enum sql_type type;
    uint32_t unit;
    const char *doc;
    uint8_t mark;   /* what its values are more than their type says: enum mark */
    bool literal;   /* a text as it is written: in a union it takes the other side's type */
    bool dict;      /* vectors carry ids of the store's dictionary, always */
    bool hidden;    /* not part of *, found by its table's name only: the right side of using () */
    uint32_t place; /* in *, of a join's: from 1; 0: as it stands */
    bool aside;     /* not part of * nor of a natural join, found by its name */
};

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

struct op *sql_op(struct query *q, op_next next, const char *name, uint32_t n_cols);
/* Vectors of an operator's own, with room for SQL_ROWS values each. */
int sql_op_vectors(struct op *op);
int sql_vec_room(struct query *q, struct vec *v, enum sql_type type);
int sql_next(struct op *op); /* op->next with limits, counting and time */
/* Make t of a vector with ids, for the selected rows. */
void sql_texts(struct query *q, struct vec *v, const uint16_t *sel, uint32_t n);
const char *sql_a_type(enum sql_type t); /* with its article: "an interval" */
struct sql_value sql_vec_value(struct query *q, const struct vec *v, uint32_t row);
void sql_set_null(struct vec *v, uint32_t row);
void sql_put_value(struct vec *v, uint32_t row, const struct sql_value *x);
struct text sql_copy_text(struct query *q, struct text t); /* data NULL: no memory */

static inline bool sql_is_null(const struct vec *v, uint32_t row)
{
    return v->type == SQL_NULL || (v->has_null && v->null[row]);
}

/* Are values of the type bytes, whose order is that of the bytes? */
static inline bool sql_is_textual(enum sql_type t)
{
    return t == SQL_TEXT || t == SQL_BLOB || t == SQL_CALENDAR;
}

#endif
