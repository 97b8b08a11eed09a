/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/parse/parse.c - tokens to a tree: statements, and what all files of the parser stand on.
 *
 * Runs on the query's thread.  Nothing is looked up here: unknown names are bind.c's business.
 * Recursion is bounded by SQL_DEPTH, trees that grow to the left by SQL_CHAIN.
 */
#include "core/sql/parse/parse.h"

#include <stdio.h>

#include "core/base/err.h"
#include "core/base/text.h"

static const char *const reserved[] = {
    "select",    "from",   "where",   "group", "having", "order",  "limit",  "offset", "union",
    "intersect", "except", "on",      "using", "join",   "inner",  "left",   "right",  "full",
    "cross",     "asof",   "natural", "as",    "and",    "or",     "not",    "in",     "between",
    "like",      "ilike",  "is",      "case",  "when",   "then",   "else",   "end",    "distinct",
    "by",        "asc",    "desc",    "nulls", "with",   "values", "window", "fetch",  "qualify"};

static int fail_with(struct parser *p, int code)
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
        fail_with(p, -ENOMEM);
    return m;
}

bool sql_parse_is_reserved(const struct token *t)
{
    for (size_t i = 0; i < sizeof(reserved) / sizeof(*reserved) && t->type == TOKEN_WORD; i++)
        if (strcmp(reserved[i], t->text) == 0)
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
                             "the statement is nested more than %d levels deep", SQL_DEPTH);
        return false;
    }
    return true;
}

struct node *sql_parse_node(struct parser *p, enum node_kind kind, uint32_t pos)
{
    struct node *n = p->error ? NULL : sql_parse_get(p, 1, sizeof(*n));
    p->subqueries |= kind == NODE_SELECT || kind == NODE_IN_SELECT || kind == NODE_EXISTS;
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
                             "an expression has more than %d operators in a row", SQL_CHAIN);
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

/* ---- statements ---- */

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
        fail_with(p, -ENOMEM);
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
        fail_with(p, -ENOMEM);
}

/* like 'p%', in any case: who asks knows a part of the name. */
static void parse_like(struct parser *p, struct statement *s)
{
    if (p->error || (!take_word(p, "like") && !take_word(p, "ilike")))
        return;
    if (now(p)->type == TOKEN_STRING)
        s->like = p->tokens[p->at++].text;
    else
        sql_parse_expected(p, "a pattern like '%step%'");
}

static bool take_from(struct parser *p)
{
    return take_word(p, "from") || take_word(p, "in");
}

/* columns from TABLE [from SCHEMA] [like PATTERN], or from (SELECT) [like PATTERN] */
static void parse_show_columns(struct parser *p, struct statement *s)
{
    s->kind = STATEMENT_DESCRIBE;
    if (!take_from(p)) {
        sql_parse_expected(p, "from TABLE");
        return;
    }
    s->pos = now(p)->pos;
    if (take_sign(p, "(")) {
        s->select = sql_parse_select(p);
        if (!take_sign(p, ")"))
            sql_parse_expected(p, "')'");
    } else {
        sql_parse_table_name(p, s->names);
        if (!p->error && take_from(p))
            s->names[1] = take_name(p, "a schema's name");
    }
    parse_like(p, s);
}

/* Parse what PostgreSQL, DataFusion, MySQL and DuckDB can show, behind the word. */
static void parse_show(struct parser *p, struct statement *s)
{
    static const struct {
        const char *word, *list; /* of statement.name */
    } lists[] = {{"tables", "tables"},   {"views", "views"},      {"functions", "functions"},
                 {"schemas", "schemas"}, {"schemata", "schemas"}, {"databases", "databases"},
                 {"all", "all"},         {"variables", "all"},    {"settings", "all"}};
    bool more = is_word(p, 0, "full") || is_word(p, 0, "extended");
    more = more || (is_word(p, 0, "all") && is_word(p, 1, "tables"));
    p->at += more;
    if (is_word(p, 0, "create") && (is_word(p, 1, "table") || is_word(p, 1, "view"))) {
        p->at += 2;
        s->kind = STATEMENT_SHOW_CREATE;
        s->pos = now(p)->pos;
        sql_parse_table_name(p, s->names);
        return;
    }
    if (take_word(p, "columns") || take_word(p, "fields")) {
        parse_show_columns(p, s);
        return;
    }
    for (size_t i = 0; i < sizeof(lists) / sizeof(*lists) && !s->name; i++)
        if (take_word(p, lists[i].word))
            s->name = lists[i].list;
    if (!s->name) {
        s->kind = STATEMENT_SHOW;
        if (!sql_parse_other_show(p))
            s->name = parse_setting(p, "tables, views, columns, functions, schemas, databases, "
                                       "all or a setting's name");
        return;
    }
    s->kind = STATEMENT_SHOW_LIST;
    if ((strcmp(s->name, "tables") == 0 || strcmp(s->name, "views") == 0) && take_from(p)) {
        s->pos = now(p)->pos;
        s->names[0] = take_name(p, "a schema's name");
    }
    parse_like(p, s);
}

static void parse_statement(struct parser *p, struct statement *s)
{
    s->pos = now(p)->pos;
    if (take_word(p, "explain")) {
        s->explain = true;
        s->analyze = take_word(p, "analyze");
    } else if (take_word(p, "show")) {
        parse_show(p, s);
        return;
    } else if (take_word(p, "set")) {
        s->kind = STATEMENT_SET;
        parse_set(p, s);
        return;
    } else if (is_word(p, 0, "summarize") || is_word(p, 0, "describe") || is_word(p, 0, "desc")) {
        s->kind = is_word(p, 0, "summarize") ? STATEMENT_SUMMARIZE : STATEMENT_DESCRIBE;
        p->at++;
        (void)take_word(p, "table");
        s->pos = now(p)->pos;
        if (s->kind == STATEMENT_SUMMARIZE || !starts_select(p)) {
            sql_parse_table_name(p, s->names);
            return;
        }
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
    char what[96] = "the end of the statement";
    const struct token *last = p->at ? &p->tokens[p->at - 1] : now(p);
    if (sql_parse_other_end(p))
        return;
    const char *meant = last->type == TOKEN_WORD
                            ? text_nearest(last->text, words, sizeof(words) / sizeof(*words))
                            : NULL;
    if (meant && !near && strcmp(meant, last->text) != 0) { /* wher x = 1 */
        (void)snprintf(what, sizeof(what), "'%.20s' is taken for an alias; did you mean '%s'?",
                       last->text, meant);
        sql_parse_fail(p, last->pos, what);
        return;
    }
    if (last->type == TOKEN_SIGN && strcmp(last->text, ";") == 0)
        (void)snprintf(what, sizeof(what), "no more: one statement is answered at a time");
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
    s.subqueries = p.subqueries;
    *ret = s;
    return 0;
}
