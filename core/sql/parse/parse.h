/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/parse/parse.h - what the files of the parser share: where it stands, what it takes,
 * trees.
 *
 * parse.c (statements), parse_select.c (selects, their clauses), parse_group.c (group by),
 * parse_from.c (tables, joins), parse_array.c (arrays as lists), parse_expr.c (expressions by
 * precedence), parse_infix.c (what stands between them), parse_call.c (calls and windows),
 * unsupported.c (what is refused by name).  The first error stays; everything after it unwinds, so
 * results need no check where nothing is done with them.
 * Private to parse*.c; the query's thread only.
 */
#ifndef CORE_SQL_PARSE_PARSE_H
#define CORE_SQL_PARSE_PARSE_H

#include <errno.h>
#include <string.h>

#include "core/sql/parse/ast.h"

struct parser {
    struct arena *arena;
    const char *text;
    size_t size;
    struct token *tokens;
    uint32_t at;
    uint32_t depth;
    int error; /* the first one: everything after unwinds */
    bool subqueries;
    struct cte *ctes;
};

/* How tightly operators bind, loosest first: PostgreSQL's table. */
enum {
    BIND_OR = 1,
    BIND_AND,
    BIND_NOT,
    BIND_IS,
    BIND_COMPARE,
    BIND_IN,
    BIND_OTHER,
    BIND_PLUS,
    BIND_TIMES,
    BIND_POWER,
    BIND_SIGN,
    BIND_CAST
};

/* An expression up to an operator that binds no tighter than `binding` (0: all of it). */
struct node *sql_parse_expr(struct parser *p, int binding);
struct select *sql_parse_select(struct parser *p);
struct from *sql_parse_from(struct parser *p);
void sql_parse_table_name(struct parser *p, const char *names[3]);
struct node *sql_parse_call(struct parser *p);                              /* stands at NAME ( */
struct window_node *sql_parse_window(struct parser *p);                     /* stands at ( */
void sql_parse_columns(struct parser *p, const char ***names, uint32_t *n); /* (a, b) */
bool sql_parse_list(struct parser *p, struct node *n);                      /* a, b ...) */
void sql_parse_order(struct parser *p, struct order **orders, uint32_t *n); /* behind `order` */
void sql_parse_direction(struct parser *p, struct order *o); /* [asc | desc] [nulls first | last] */

/* parse_array.c: array[a, b], '{a, b}', where one stands; behind `any (` or `all (`; behind
 * `unnest (`, its rows. */
bool sql_parse_is_array(const struct parser *p, uint32_t ahead);
struct node *sql_parse_array(struct parser *p);
struct node *sql_parse_any_array(struct parser *p, struct node *left, uint32_t pos,
                                 const char *compare, bool all);
struct select *sql_parse_unnest(struct parser *p);
/* All rows that the function gives of the call's arguments. */
struct select *sql_parse_rows_of(struct parser *p, struct node *call, const char *function);

/* unsupported.c: what others have and this has not is refused with what does the same.  true: it
 * stands here. */
bool sql_parse_other_statement(struct parser *p);
bool sql_parse_other_show(struct parser *p);
bool sql_parse_other_from(struct parser *p);
bool sql_parse_other_group(struct parser *p);
void sql_parse_group(struct parser *p, struct select *s); /* parse_group.c: stands behind `group` */
bool sql_parse_other_value(struct parser *p);
bool sql_parse_other_end(struct parser *p); /* where the statement should end */

/* Say what is wrong here: where, what was found, what would do.  They give NULL. */
void *sql_parse_fail(struct parser *p, uint32_t pos, const char *what);
void *sql_parse_expected(struct parser *p, const char *what);
void *sql_parse_get(struct parser *p, size_t count, size_t size);
bool sql_parse_is_reserved(const struct token *t);
/* Grow an array in the arena, doubling; pieces left behind are part of the price of an arena. */
void *sql_parse_grown(struct parser *p, void *array, uint32_t n, size_t size);
bool sql_parse_enter(struct parser *p); /* a level deeper, if that may be */
struct node *sql_parse_node(struct parser *p, enum node_kind kind, uint32_t pos);
void sql_parse_add(struct parser *p, struct node *n, struct node *arg);
/* A call of `name` with one or two arguments, or none; a node around one. */
struct node *sql_parse_make(struct parser *p, const char *name, uint32_t pos, struct node *a,
                            struct node *b);
struct node *sql_parse_wrap(struct parser *p, enum node_kind kind, uint32_t pos, struct node *a);
struct node *sql_parse_text(struct parser *p, const struct token *t);
/* Note what a number with a point is exactly, where that fits. */
void sql_parse_decimals(struct node *n, const char *text, bool negative);
struct node *sql_parse_word(struct parser *p); /* an expression that begins with a word */
/* One operator more behind `left`; *ret_more false: there is none that binds tighter. */
struct node *sql_parse_infix(struct parser *p, struct node *left, int binding, bool *ret_more);
/* x as a type that is named here: cast(x as ...), x::... */
struct node *sql_parse_as_type(struct parser *p, struct node *x, uint32_t pos, bool forgiving);

static inline const struct token *now(const struct parser *p)
{
    return &p->tokens[p->at];
}

static inline bool is_word(const struct parser *p, uint32_t ahead, const char *word)
{
    for (uint32_t i = 0; i < ahead; i++)
        if (p->tokens[p->at + i].type == TOKEN_END)
            return false;
    const struct token *t = &p->tokens[p->at + ahead];
    return t->type == TOKEN_WORD && strcmp(t->text, word) == 0;
}

static inline bool is_sign(const struct parser *p, const char *sign)
{
    return now(p)->type == TOKEN_SIGN && strcmp(now(p)->text, sign) == 0;
}

static inline bool is_sign_at(const struct parser *p, uint32_t ahead, const char *sign)
{
    const struct token *t = &p->tokens[p->at + ahead]; /* at most three: lexer.c */
    return t->type == TOKEN_SIGN && strcmp(t->text, sign) == 0;
}

static inline bool take_word(struct parser *p, const char *word)
{
    if (p->error || !is_word(p, 0, word))
        return false;
    p->at++;
    return true;
}

static inline bool take_sign(struct parser *p, const char *sign)
{
    if (p->error || !is_sign(p, sign))
        return false;
    p->at++;
    return true;
}

static inline bool need_word(struct parser *p, const char *word, const char *what)
{
    if (take_word(p, word))
        return true;
    sql_parse_expected(p, what);
    return false;
}

static inline bool need_sign(struct parser *p, const char *sign, const char *what)
{
    if (take_sign(p, sign))
        return true;
    sql_parse_expected(p, what);
    return false;
}

static inline bool is_name(const struct parser *p)
{
    return now(p)->type == TOKEN_QUOTED ||
           (now(p)->type == TOKEN_WORD && !sql_parse_is_reserved(now(p)));
}

static inline const char *take_name(struct parser *p, const char *what)
{
    if (p->error)
        return NULL;
    if (!is_name(p))
        return sql_parse_expected(p, what);
    return p->tokens[p->at++].text;
}

/* table t: all of it, as PostgreSQL has it; `table` alone is a name like any other. */
static inline bool starts_table(const struct parser *p)
{
    const struct token *next = &p->tokens[p->at + 1];
    return is_word(p, 0, "table") && (next->type == TOKEN_QUOTED ||
                                      (next->type == TOKEN_WORD && !sql_parse_is_reserved(next)));
}

/* Also one whose first part stands in parentheses: (select 1) union select 2. */
bool starts_select(const struct parser *p);

#endif
