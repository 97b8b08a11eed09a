/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/parse/ast.h - a statement as the parser leaves it: words and structure, nothing looked
 * up.
 *
 * All of it lives in the query's arena.  Positions are byte offsets into the statement's text.
 * Private to core/sql; the query's thread only.
 */
#ifndef CORE_SQL_PARSE_AST_H
#define CORE_SQL_PARSE_AST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/sql/sql.h"
#include "sdk/lib/arena.h"

#define SQL_DEPTH 128 /* nested parentheses, calls, subqueries: bounds our stack */
#define SQL_CHAIN 250 /* a + b + c ...: bounds the depth of trees that grow to the left */
#define SQL_TEXT_BYTES (1 << 20) /* longest statement */
#define SQL_SETS_MAX 4096        /* grouping sets of one select, as in PostgreSQL */
#define SQL_SET_KEYS_MAX 31      /* expressions in them: what grouping() can say */

enum token_type { TOKEN_END, TOKEN_WORD, TOKEN_QUOTED, TOKEN_NUMBER, TOKEN_STRING, TOKEN_SIGN };

struct token {
    enum token_type type;
    uint32_t pos, end;
    const char *text; /* WORD: lower case; QUOTED, STRING: unquoted; NUMBER, SIGN: as written */
    uint32_t size;
};

/* All tokens of a text, the last one TOKEN_END.  -EINVAL says where and what. */
int sql_tokens(struct arena *a, const char *text, size_t size, struct token **ret, uint32_t *ret_n);

enum node_kind {
    NODE_NULL,
    NODE_BOOL,
    NODE_INT,
    NODE_DOUBLE,
    NODE_TEXT,
    NODE_NAME,
    NODE_STAR,
    NODE_CALL,
    NODE_NOT,
    NODE_AND,
    NODE_OR,
    NODE_CASE,
    NODE_IN,
    NODE_IN_SELECT,
    NODE_EXISTS,
    NODE_SELECT,
    NODE_IS_NULL,
    NODE_CAST,
    NODE_ROW
};

struct select;
struct order;
struct working;

enum frame_edge {
    FRAME_UNBOUNDED_PRECEDING,
    FRAME_PRECEDING,
    FRAME_CURRENT,
    FRAME_FOLLOWING,
    FRAME_UNBOUNDED_FOLLOWING
};

enum null_choice { NULLS_AS_USUAL, NULLS_IGNORED, NULLS_RESPECTED };
enum frame_mode { FRAME_RANGE, FRAME_ROWS, FRAME_GROUPS };
enum frame_exclude { EXCLUDE_NOTHING, EXCLUDE_CURRENT, EXCLUDE_GROUP, EXCLUDE_TIES };

struct window_node {  /* over (...) */
    const char *base; /* over w, over (w ...): a window of the select's; NULL: none */
    uint32_t pos;
    struct node **partition;
    uint32_t n_partition;
    struct order *order;
    uint32_t n_order;
    bool framed;
    enum frame_mode mode;
    enum frame_exclude exclude;
    enum frame_edge edge[2];
    struct node *offset[2]; /* PRECEDING, FOLLOWING */
};

struct node {
    enum node_kind kind;
    uint32_t pos;        /* what errors point at: the operator of a + b */
    uint32_t start, end; /* the whole expression's text */
    uint32_t depth;      /* of the tree below, this one included */
    /* NAME: the last part; CALL: function or operator, lower case; TEXT: the content. */
    const char *text;
    uint32_t size;
    const char
        *parts[2];       /* NAME, STAR: what stands before, outermost last: [0] table, [1] schema */
    bool quoted;         /* NAME: case matters */
    bool negated;        /* IS_NULL, IN, IN_SELECT */
    bool star, distinct; /* CALL: count(*), count(distinct x) */
    bool flag;           /* BOOL: its value; CASE: the last argument is ELSE */
    int64_t integer;     /* INT; DOUBLE that is exact: without its point */
    double number;
    bool exact; /* DOUBLE: integer / 10^decimals, as written or computed; CAST: to numeric */
    uint32_t decimals;
    enum sql_type cast;
    bool clock; /* CAST: to a timestamp without time zone */
    struct node **args;
    uint32_t n_args;
    struct node *filter; /* CALL: filter (where ...) */
    struct order *order; /* CALL: f(x order by ...), within group (order by ...) */
    uint32_t n_order;
    bool within;
    enum null_choice nulls;   /* CALL: ignore nulls, respect nulls */
    struct window_node *over; /* CALL: NULL: no window */
    struct select *select;
    void **answer;         /* of the select, once it is known: bind_subquery.c */
    struct node **exclude; /* STAR: names */
    uint32_t n_exclude;
    const char **replaced; /* STAR: columns that args[i] stand for */
};

/* CROSS has no condition; ASOF finds at most one row of the right side for each of the left. */
enum join_type {
    JOIN_INNER,
    JOIN_LEFT,
    JOIN_RIGHT,
    JOIN_FULL,
    JOIN_CROSS,
    JOIN_ASOF,
    JOIN_ASOF_LEFT
};

struct from {
    enum { FROM_TABLE, FROM_SELECT, FROM_CALL, FROM_JOIN } kind;
    uint32_t pos;
    const char *names[3]; /* table, schema, catalog */
    const char *alias;    /* NULL: none */
    const char **aliases; /* t(a, b): new names of the first columns */
    uint32_t n_aliases;
    struct node *call;
    struct select *select;
    struct from *left, *right;
    enum join_type join;
    struct node *on;
    bool natural;
    bool lateral;         /* it may see what stands left of it */
    const char **columns; /* using (...) */
    uint32_t n_columns;
};

struct item {
    struct node *node;
    const char *alias; /* NULL: none */
};

struct order {
    struct node *node;
    bool descending, nulls_first;
};

struct named_window { /* window w as (...) */
    const char *name;
    struct window_node *window;
    struct named_window *next;
};

struct cte {
    const char *name;
    const char **columns; /* with w(a, b) */
    uint32_t n_columns;
    struct select *select;
    struct cte *next;
    bool recursive; /* it sees itself */
    /* The rest is for a recursive one: recursive.c. */
    bool open; /* its first part is being planned */
    bool used; /* something has read it */
    /* The rows behind its own name while its second part is planned and run; NULL: none. */
    const struct working *working;
};

enum set_kind { SET_NONE, SET_UNION, SET_INTERSECT, SET_EXCEPT, SET_VALUES };

struct select {
    uint32_t pos;
    uint32_t start, end; /* its text; 0, 0: put together of others */
    struct cte *ctes;    /* the newest first */
    enum set_kind set;
    bool all;                    /* union all, intersect all, except all */
    struct select *left, *right; /* set operations */
    struct node **rows;          /* VALUES: NODE_ROW each */
    uint32_t n_rows;
    bool distinct;
    struct node **distinct_on;
    uint32_t n_distinct_on;
    struct item *items;
    uint32_t n_items;
    struct from *from;
    struct node *where, *having, *qualify;
    struct named_window *windows;
    struct node **group;
    uint32_t n_group;
    bool group_all, group_none; /* group by all, group by () */
    uint64_t *sets;             /* grouping sets: which of `group` each has, a bit each */
    uint32_t n_sets;            /* 0: all of them, once */
    bool sets_distinct;         /* equal ones once */
    bool order_all;             /* order by all, as order[0] says */
    struct order *order;
    uint32_t n_order;
    struct node *limit, *offset;
    bool ties; /* rows that are equal in order to the last one, too */
};

enum statement_kind {
    STATEMENT_SELECT,
    STATEMENT_SHOW_LIST, /* name: "tables", "views", "functions", "schemas", "databases", "all" */
    STATEMENT_SHOW_CREATE,
    STATEMENT_SHOW, /* of a setting */
    STATEMENT_SET,
    STATEMENT_DESCRIBE, /* of a select, or of names */
    STATEMENT_SUMMARIZE
};

struct statement {
    enum statement_kind kind;
    bool explain, analyze;
    bool subqueries; /* in expressions; a with, from (...) and a union are seen at the select */
    struct select *select;
    const char *names[3];     /* DESCRIBE, SUMMARIZE, SHOW_CREATE; SHOW_LIST: [0] is a schema */
    const char *like;         /* SHOW_LIST, DESCRIBE: a pattern for names, NULL: all of them */
    const char *name, *value; /* SHOW, SET */
    uint32_t pos;
};

/* -EINVAL: "line 1, column 8: ...".  -ENOMEM. */
int sql_parse(struct arena *a, const char *text, size_t size, struct statement *ret);

/* err_set() with "line L, column C: " before it.  Gives code. */
int sql_error(const char *text, size_t size, uint32_t pos, int code, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

#endif
