/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/parse.c - tokens to a tree: statements by descent, expressions by precedence.
 *
 * Runs on the query's thread.  Nothing is looked up here: unknown names are bind.c's business.
 * Recursion is bounded by SQL_DEPTH, trees that grow to the left by SQL_CHAIN.
 */
#include "core/sql/parse.h"

#include <stdio.h>

#include "core/base/err.h"
#include "core/base/text.h"

static const char *const reserved[] = {
    "select",    "from",   "where",   "group", "having", "order",  "limit",  "offset", "union",
    "intersect", "except", "on",      "using", "join",   "inner",  "left",   "right",  "full",
    "cross",     "asof",   "natural", "as",    "and",    "or",     "not",    "in",     "between",
    "like",      "ilike",  "is",      "case",  "when",   "then",   "else",   "end",    "distinct",
    "by",        "asc",    "desc",    "nulls", "with",   "values", "window", "fetch",  "qualify"};

#define SETS_MAX 100 /* selects in one union */

static int fail(struct parser *p, int code)
{
    if (!p->error)
        p->error = code;
    return code;
}

void *sql_parse_fail(struct parser *p, uint32_t pos, const char *what)
{
    if (!p->error)
        p->error = sql_error(p->text, p->size, pos, -EINVAL, "%s", what);
    return NULL;
}

/* "found 'x', expected y" at the current token. */
void *sql_parse_expected(struct parser *p, const char *what)
{
    const struct token *t = now(p);
    if (p->error)
        return NULL;
    if (t->type == TOKEN_END)
        p->error = sql_error(p->text, p->size, t->pos, -EINVAL,
                             "the statement ends here, expected %s", what);
    else
        p->error =
            sql_error(p->text, p->size, t->pos, -EINVAL, "found '%.*s', expected %s",
                      (int)(t->end - t->pos > 60 ? 60 : t->end - t->pos), p->text + t->pos, what);
    return NULL;
}

void *sql_parse_get(struct parser *p, size_t count, size_t size)
{
    void *m = arena_zalloc(p->arena, count ? count : 1, size);
    if (!m)
        fail(p, -ENOMEM);
    return m;
}
bool sql_parse_is_reserved(const struct token *t)
{
    for (size_t i = 0; t->type == TOKEN_WORD && i < sizeof(reserved) / sizeof(*reserved); i++)
        if (strcmp(t->text, reserved[i]) == 0)
            return true;
    return false;
}

/* Grow an array in the arena, doubling; pieces left behind are part of the price of an arena. */
void *sql_parse_grown(struct parser *p, void *array, uint32_t n, size_t size)
{
    if (n & (n - 1) || p->error) /* room is the next power of two */
        return array;
    void *more = sql_parse_get(p, n ? 2 * (size_t)n : 1, size);
    if (more && n)
        memcpy(more, array, n * size);
    return more ? more : array;
}

bool sql_parse_enter(struct parser *p)
{
    if (p->error)
        return false;
    if (++p->depth > SQL_DEPTH) {
        p->error = sql_error(p->text, p->size, now(p)->pos, -E2BIG,
                             "nested more than %d levels deep", SQL_DEPTH);
        return false;
    }
    return true;
}

struct node *sql_parse_node(struct parser *p, enum node_kind kind, uint32_t pos)
{
    struct node *n = p->error ? NULL : sql_parse_get(p, 1, sizeof(*n));
    if (n)
        *n = (struct node){.kind = kind, .pos = pos, .end = pos, .depth = 1};
    return n;
}

void sql_parse_add(struct parser *p, struct node *n, struct node *arg)
{
    if (!n || !arg || p->error)
        return;
    n->args = sql_parse_grown(p, n->args, n->n_args, sizeof(*n->args));
    if (p->error)
        return;
    n->args[n->n_args++] = arg;
    if (arg->depth + 1 > n->depth)
        n->depth = arg->depth + 1;
    if (n->depth > SQL_CHAIN && !p->error)
        p->error = sql_error(p->text, p->size, n->pos, -E2BIG,
                             "an expression of more than %d operators in a row", SQL_CHAIN);
}

struct node *sql_parse_make(struct parser *p, const char *name, uint32_t pos, struct node *a,
                            struct node *b)
{
    struct node *n = sql_parse_node(p, NODE_CALL, pos);
    if (!n)
        return NULL;
    n->text = name;
    n->size = (uint32_t)strlen(name);
    sql_parse_add(p, n, a);
    if (b)
        sql_parse_add(p, n, b);
    return n;
}

struct node *sql_parse_wrap(struct parser *p, enum node_kind kind, uint32_t pos, struct node *a)
{
    struct node *n = sql_parse_node(p, kind, pos);
    sql_parse_add(p, n, a);
    return n;
}

struct node *sql_parse_text(struct parser *p, const struct token *t)
{
    struct node *n = sql_parse_node(p, NODE_TEXT, t->pos);
    if (n) {
        n->text = t->text;
        n->size = t->size;
    }
    return n;
}

/* ---- select ---- */

static void parse_items(struct parser *p, struct select *s)
{
    do {
        s->items = sql_parse_grown(p, s->items, s->n_items, sizeof(*s->items));
        struct item item = {.node = sql_parse_expr(p, 0)};
        if (item.node && item.node->kind == NODE_STAR) {
            /* no alias: in `select * form t` the word is a slip */
        } else if (take_word(p, "as")) {
            if (now(p)->type != TOKEN_WORD && now(p)->type != TOKEN_QUOTED)
                sql_parse_expected(p, "an alias");
            else
                item.alias = p->tokens[p->at++].text;
        } else if (!p->error && is_name(p)) {
            item.alias = take_name(p, "an alias");
        }
        if (p->error)
            return;
        s->items[s->n_items++] = item;
    } while (take_sign(p, ","));
}

static void parse_group(struct parser *p, struct select *s)
{
    need_word(p, "by", "by after group");
    if (take_word(p, "all")) {
        s->group_all = true;
        return;
    }
    if (is_sign(p, "(") && p->tokens[p->at + 1].type == TOKEN_SIGN &&
        strcmp(p->tokens[p->at + 1].text, ")") == 0) {
        s->group_none = true;
        p->at += 2;
        return;
    }
    do {
        struct node *n = sql_parse_expr(p, 0);
        uint32_t parts = n && n->kind == NODE_ROW ? n->n_args : 1;
        for (uint32_t i = 0; i < parts && !p->error; i++) {
            s->group = sql_parse_grown(p, s->group, s->n_group, sizeof(*s->group));
            if (!p->error)
                s->group[s->n_group++] = n && n->kind == NODE_ROW ? n->args[i] : n;
        }
    } while (take_sign(p, ",") && !p->error);
}

static void parse_values(struct parser *p, struct select *s)
{
    s->set = SET_VALUES;
    do {
        struct node *row = sql_parse_node(p, NODE_ROW, now(p)->pos);
        s->rows = sql_parse_grown(p, s->rows, s->n_rows, sizeof(*s->rows));
        if (!row || !need_sign(p, "(", "( of a row of values"))
            return;
        sql_parse_list(p, row);
        if (p->error)
            return;
        s->rows[s->n_rows++] = row;
    } while (take_sign(p, ","));
}

static void parse_windows(struct parser *p, struct select *s)
{
    do {
        struct named_window *w = sql_parse_get(p, 1, sizeof(*w));
        const char *name = take_name(p, "a name after window");
        need_word(p, "as", "as");
        struct window_node *window = p->error ? NULL : sql_parse_window(p);
        if (!w || p->error)
            return;
        *w = (struct named_window){name, window, s->windows};
        s->windows = w;
    } while (take_sign(p, ","));
}

/* distinct on (a, b): the first row of each */
static void parse_distinct_on(struct parser *p, struct select *s)
{
    s->distinct = false;
    need_sign(p, "(", "( after distinct on");
    do {
        struct node *n = sql_parse_expr(p, 0);
        s->distinct_on =
            sql_parse_grown(p, s->distinct_on, s->n_distinct_on, sizeof(struct node *));
        if (p->error)
            return;
        s->distinct_on[s->n_distinct_on++] = n;
    } while (take_sign(p, ","));
    need_sign(p, ")", ", or )");
}

/* One select or values without what stands behind set operations. */
static struct select *parse_core(struct parser *p)
{
    struct select *s = p->error ? NULL : sql_parse_get(p, 1, sizeof(*s));
    if (!s)
        return NULL;
    s->pos = now(p)->pos;
    if (take_sign(p, "(")) {
        struct select *inner = sql_parse_select(p);
        need_sign(p, ")", ")");
        return inner;
    }
    if (take_word(p, "values")) {
        parse_values(p, s);
        return s;
    }
    if (!take_word(p, "select"))
        return sql_parse_expected(p, "select, with, values, show, describe or explain");
    s->distinct = take_word(p, "distinct");
    if (!s->distinct)
        (void)take_word(p, "all");
    else if (take_word(p, "on"))
        parse_distinct_on(p, s);
    parse_items(p, s);
    if (take_word(p, "from"))
        s->from = sql_parse_from(p);
    if (take_word(p, "where"))
        s->where = sql_parse_expr(p, 0);
    if (take_word(p, "group"))
        parse_group(p, s);
    if (take_word(p, "having"))
        s->having = sql_parse_expr(p, 0);
    if (take_word(p, "window"))
        parse_windows(p, s);
    if (take_word(p, "qualify"))
        s->qualify = sql_parse_expr(p, 0);
    return s;
}

static struct select *combine(struct parser *p, struct select *left, enum set_kind kind,
                              uint32_t pos, bool all, struct select *right)
{
    struct select *both = sql_parse_get(p, 1, sizeof(*both));
    if (!both || p->error)
        return NULL;
    *both = (struct select){.pos = pos, .set = kind, .all = all, .left = left, .right = right};
    return both;
}

static bool take_all(struct parser *p)
{
    bool all = take_word(p, "all");
    if (!all)
        (void)take_word(p, "distinct");
    return all;
}

/* intersect binds tighter than union and except. */
static struct select *parse_intersects(struct parser *p, uint32_t *n)
{
    struct select *left = parse_core(p);
    while (left && !p->error) {
        uint32_t pos = now(p)->pos;
        if (!take_word(p, "intersect"))
            break;
        if (++*n > SETS_MAX)
            return sql_parse_fail(p, pos, "more than 100 selects in one union");
        bool all = take_all(p);
        left = combine(p, left, SET_INTERSECT, pos, all, parse_core(p));
    }
    return left;
}

static struct select *parse_sets(struct parser *p)
{
    uint32_t n = 0;
    struct select *left = parse_intersects(p, &n);
    while (left && !p->error) {
        uint32_t pos = now(p)->pos;
        enum set_kind kind = take_word(p, "union")    ? SET_UNION
                             : take_word(p, "except") ? SET_EXCEPT
                                                      : SET_NONE;
        if (kind == SET_NONE)
            break;
        if (++n > SETS_MAX)
            return sql_parse_fail(p, pos, "more than 100 selects in one union");
        bool all = take_all(p);
        left = combine(p, left, kind, pos, all, parse_intersects(p, &n));
    }
    return left;
}

static void parse_ctes(struct parser *p)
{
    bool recursive = take_word(p, "recursive");
    do {
        struct cte *c = sql_parse_get(p, 1, sizeof(*c));
        const char *name = take_name(p, "a name after with"), **columns = NULL;
        uint32_t n_columns = 0;
        if (is_sign(p, "("))
            sql_parse_columns(p, &columns, &n_columns);
        need_word(p, "as", "as");
        (void)take_word(p, "not"); /* [not] materialized: ours to decide */
        (void)take_word(p, "materialized");
        need_sign(p, "(", "( select ... )");
        if (!c || p->error)
            return;
        *c = (struct cte){.name = name,
                          .columns = columns,
                          .n_columns = n_columns,
                          .recursive = recursive,
                          .next = p->ctes};
        p->ctes = recursive ? c : p->ctes;
        c->select = sql_parse_select(p);
        need_sign(p, ")", ")");
        p->ctes = c;
    } while (take_sign(p, ","));
}

/* fetch first 5 rows only: the standard's limit */
static void parse_fetch(struct parser *p, struct select *s)
{
    if (!take_word(p, "first"))
        need_word(p, "next", "first or next");
    s->limit = sql_parse_expr(p, 0);
    if (!take_word(p, "rows"))
        need_word(p, "row", "row or rows");
    need_word(p, "only", "only");
}

struct select *sql_parse_select(struct parser *p)
{
    if (!sql_parse_enter(p))
        return NULL;
    struct cte *outer = p->ctes;
    if (take_word(p, "with"))
        parse_ctes(p);
    struct cte *visible = p->ctes;
    struct select *s = parse_sets(p);
    p->ctes = outer;
    p->depth--;
    if (!s || p->error)
        return NULL;
    if (!s->ctes)
        s->ctes = visible;
    bool more = is_word(p, 0, "order") || is_word(p, 0, "limit") || is_word(p, 0, "offset") ||
                is_word(p, 0, "fetch");
    if (more && (s->n_order || s->limit || s->offset))
        return sql_parse_fail(p, now(p)->pos,
                              "put the inner select with its own order by in from (...)");
    if (take_word(p, "order"))
        sql_parse_order(p, &s->order, &s->n_order);
    for (int i = 0; i < 2; i++) {
        if (take_word(p, "limit")) {
            if (!take_word(p, "all"))
                s->limit = sql_parse_expr(p, 0);
        }
        if (take_word(p, "offset")) {
            s->offset = sql_parse_expr(p, 0);
            if (!take_word(p, "rows"))
                (void)take_word(p, "row");
        }
        if (take_word(p, "fetch"))
            parse_fetch(p, s);
    }
    return p->error ? NULL : s;
}

/* probing.torch.sample_rate: as it is written. */
static const char *parse_setting(struct parser *p, const char *what)
{
    uint32_t first = p->at;
    (void)take_name(p, what);
    while (take_sign(p, ".") && !p->error)
        (void)take_name(p, "a setting's name");
    if (p->error)
        return NULL;
    uint32_t from = p->tokens[first].pos, end = p->tokens[p->at - 1].end;
    if (p->at == first + 1)
        return p->tokens[first].text;
    char *name = arena_text(p->arena, p->text + from, end - from);
    if (!name)
        fail(p, -ENOMEM);
    return name;
}

/* set NAME = VALUE, set NAME to VALUE: a value is a text, a number or a word. */
static void parse_set(struct parser *p, struct statement *s)
{
    s->pos = now(p)->pos;
    s->name = parse_setting(p, "a setting's name");
    if (!take_sign(p, "="))
        need_word(p, "to", "= or to");
    if (p->error)
        return;
    uint32_t from = now(p)->pos;
    if (now(p)->type == TOKEN_STRING) {
        s->value = p->tokens[p->at++].text;
        return;
    }
    (void)take_sign(p, "-");
    if (now(p)->type != TOKEN_WORD && now(p)->type != TOKEN_NUMBER) {
        sql_parse_expected(p, "a value");
        return;
    }
    uint32_t end = p->tokens[p->at++].end;
    if (p->tokens[p->at - 1].type == TOKEN_NUMBER && now(p)->type == TOKEN_WORD &&
        now(p)->pos == end) /* 64MB */
        end = p->tokens[p->at++].end;
    s->value = arena_text(p->arena, p->text + from, end - from);
    if (!s->value)
        fail(p, -ENOMEM);
}

static void parse_statement(struct parser *p, struct statement *s)
{
    s->pos = now(p)->pos;
    if (take_word(p, "explain")) {
        s->explain = true;
        s->analyze = take_word(p, "analyze");
    } else if (take_word(p, "show")) {
        s->kind = STATEMENT_SHOW_TABLES;
        if (take_word(p, "tables"))
            return;
        s->kind = STATEMENT_SHOW;
        if (!take_word(p, "all"))
            s->name = parse_setting(p, "tables, all or a setting's name");
        return;
    } else if (take_word(p, "set")) {
        s->kind = STATEMENT_SET;
        parse_set(p, s);
        return;
    } else if (take_word(p, "describe") || take_word(p, "desc")) {
        s->kind = STATEMENT_DESCRIBE;
        (void)take_word(p, "table");
        s->pos = now(p)->pos;
        sql_parse_table_name(p, s->names);
        return;
    }
    s->select = sql_parse_select(p);
}

/* A word that stands where nothing may is often a slip of one that may. */
static void expected_end(struct parser *p)
{
    static const char *const words[] = {"from",  "where",  "group", "having", "order",
                                        "limit", "offset", "union", "join"};
    const char *near = now(p)->type == TOKEN_WORD
                           ? text_nearest(now(p)->text, words, sizeof(words) / sizeof(*words))
                           : NULL;
    char what[64] = "the end of the statement";
    if (near && strcmp(near, now(p)->text) != 0)
        (void)snprintf(what, sizeof(what), "the end of the statement or '%s'", near);
    sql_parse_expected(p, what);
}

int sql_parse(struct arena *a, const char *text, size_t size, struct statement *ret)
{
    struct parser p = {.arena = a, .text = text, .size = size};
    struct statement s = {.kind = STATEMENT_SELECT};
    uint32_t n = 0;
    int rc = sql_tokens(a, text, size, &p.tokens, &n);
    if (rc < 0)
        return rc;
    parse_statement(&p, &s);
    while (take_sign(&p, ";"))
        ;
    if (!p.error && now(&p)->type != TOKEN_END)
        expected_end(&p);
    if (p.error)
        return p.error;
    *ret = s;
    return 0;
}
