/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/parse.c - tokens to a tree: statements by descent, expressions by precedence.
 *
 * Runs on the query's thread.  Nothing is looked up here: unknown names are bind.c's business.
 * Recursion is bounded by SQL_DEPTH, trees that grow to the left by SQL_CHAIN.
 */
#include "core/sql/ast.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/text.h"

struct parser {
    struct arena *arena;
    const char *text;
    size_t size;
    struct token *tokens;
    uint32_t at;
    uint32_t depth;
    int error; /* the first one: everything after unwinds */
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

static const char *const reserved[] = {
    "select",    "from",   "where",   "group", "having", "order",  "limit",  "offset", "union",
    "intersect", "except", "on",      "using", "join",   "inner",  "left",   "right",  "full",
    "cross",     "asof",   "natural", "as",    "and",    "or",     "not",    "in",     "between",
    "like",      "ilike",  "is",      "case",  "when",   "then",   "else",   "end",    "distinct",
    "by",        "asc",    "desc",    "nulls", "with",   "values", "window", "fetch",  "qualify"};

static struct node *parse_expr(struct parser *p, int binding);
static struct select *parse_select(struct parser *p);

static const struct token *now(const struct parser *p)
{
    return &p->tokens[p->at];
}

static int fail(struct parser *p, int code)
{
    if (!p->error)
        p->error = code;
    return code;
}

static void *fail_at(struct parser *p, uint32_t pos, const char *what)
{
    if (!p->error)
        p->error = sql_error(p->text, p->size, pos, -EINVAL, "%s", what);
    return NULL;
}

/* "found 'x', expected y" at the current token. */
static void *expected(struct parser *p, const char *what)
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

static void *get(struct parser *p, size_t count, size_t size)
{
    void *m = arena_zalloc(p->arena, count ? count : 1, size);
    if (!m)
        fail(p, -ENOMEM);
    return m;
}

static bool is_word(const struct parser *p, uint32_t ahead, const char *word)
{
    for (uint32_t i = 0; i < ahead; i++)
        if (p->tokens[p->at + i].type == TOKEN_END)
            return false;
    const struct token *t = &p->tokens[p->at + ahead];
    return t->type == TOKEN_WORD && strcmp(t->text, word) == 0;
}

static bool is_sign(const struct parser *p, const char *sign)
{
    return now(p)->type == TOKEN_SIGN && strcmp(now(p)->text, sign) == 0;
}

static bool take_word(struct parser *p, const char *word)
{
    if (p->error || !is_word(p, 0, word))
        return false;
    p->at++;
    return true;
}

static bool take_sign(struct parser *p, const char *sign)
{
    if (p->error || !is_sign(p, sign))
        return false;
    p->at++;
    return true;
}

static bool need_word(struct parser *p, const char *word, const char *what)
{
    if (take_word(p, word))
        return true;
    expected(p, what);
    return false;
}

static bool need_sign(struct parser *p, const char *sign, const char *what)
{
    if (take_sign(p, sign))
        return true;
    expected(p, what);
    return false;
}

static bool is_reserved(const struct token *t)
{
    for (size_t i = 0; t->type == TOKEN_WORD && i < sizeof(reserved) / sizeof(*reserved); i++)
        if (strcmp(t->text, reserved[i]) == 0)
            return true;
    return false;
}

static bool is_name(const struct parser *p)
{
    return now(p)->type == TOKEN_QUOTED || (now(p)->type == TOKEN_WORD && !is_reserved(now(p)));
}

static const char *take_name(struct parser *p, const char *what)
{
    if (p->error)
        return NULL;
    if (!is_name(p))
        return expected(p, what);
    return p->tokens[p->at++].text;
}

/* Grow an array in the arena, doubling; pieces left behind are part of the price of an arena. */
static void *grown(struct parser *p, void *array, uint32_t n, size_t size)
{
    if (n & (n - 1) || p->error) /* room is the next power of two */
        return array;
    void *more = get(p, n ? 2 * (size_t)n : 1, size);
    if (more && n)
        memcpy(more, array, n * size);
    return more ? more : array;
}

static bool enter(struct parser *p)
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

static struct node *node(struct parser *p, enum node_kind kind, uint32_t pos)
{
    struct node *n = p->error ? NULL : get(p, 1, sizeof(*n));
    if (n)
        *n = (struct node){.kind = kind, .pos = pos, .end = pos, .depth = 1};
    return n;
}

static void add_arg(struct parser *p, struct node *n, struct node *arg)
{
    if (!n || !arg || p->error)
        return;
    n->args = grown(p, n->args, n->n_args, sizeof(*n->args));
    if (p->error)
        return;
    n->args[n->n_args++] = arg;
    if (arg->depth + 1 > n->depth)
        n->depth = arg->depth + 1;
    if (n->depth > SQL_CHAIN && !p->error)
        p->error = sql_error(p->text, p->size, n->pos, -E2BIG,
                             "an expression of more than %d operators in a row", SQL_CHAIN);
}

static struct node *call(struct parser *p, const char *name, uint32_t pos, struct node *a,
                         struct node *b)
{
    struct node *n = node(p, NODE_CALL, pos);
    if (!n)
        return NULL;
    n->text = name;
    n->size = (uint32_t)strlen(name);
    add_arg(p, n, a);
    if (b)
        add_arg(p, n, b);
    return n;
}

static struct node *wrap(struct parser *p, enum node_kind kind, uint32_t pos, struct node *a)
{
    struct node *n = node(p, kind, pos);
    add_arg(p, n, a);
    return n;
}

/* ---- literals, names, calls ---- */

static struct node *parse_number(struct parser *p, bool negative)
{
    const struct token *t = &p->tokens[p->at++];
    struct node *n = node(p, NODE_INT, t->pos);
    if (!n)
        return NULL;
    if (!strpbrk(t->text, ".eE")) {
        uint64_t value = 0;
        int rc = parse_u64(t->text, &value);
        if (rc == 0 && value <= (uint64_t)INT64_MAX + negative) {
            n->integer = negative ? (int64_t)(0 - value) : (int64_t)value;
            return n;
        }
    }
    n->kind = NODE_DOUBLE;
    if (parse_f64(t->text, t->size, &n->number) < 0)
        return fail_at(p, t->pos, "a number too large for a double");
    n->number = negative ? -n->number : n->number;
    return n;
}

static struct node *text_node(struct parser *p, const struct token *t)
{
    struct node *n = node(p, NODE_TEXT, t->pos);
    if (n) {
        n->text = t->text;
        n->size = t->size;
    }
    return n;
}

/* name, table.name, schema.table.name, t.*, * exclude (a, b) */
static struct node *parse_star(struct parser *p, struct node *n)
{
    if (!n)
        return NULL;
    n->kind = NODE_STAR;
    if (take_word(p, "exclude")) {
        need_sign(p, "(", "( after exclude");
        do {
            struct node *name = node(p, NODE_NAME, now(p)->pos);
            if (!name || !(name->text = take_name(p, "a column's name")))
                return NULL;
            n->exclude = grown(p, n->exclude, n->n_exclude, sizeof(*n->exclude));
            if (p->error)
                return NULL;
            n->exclude[n->n_exclude++] = name;
        } while (take_sign(p, ","));
        need_sign(p, ")", ", or )");
    }
    return n;
}

static struct node *parse_name(struct parser *p)
{
    struct node *n = node(p, NODE_NAME, now(p)->pos);
    if (!n)
        return NULL;
    n->quoted = now(p)->type == TOKEN_QUOTED;
    n->text = p->tokens[p->at++].text;
    while (take_sign(p, ".")) {
        if (n->parts[1])
            return fail_at(p, n->pos,
                           "a column's name has at most three parts: schema.table.column");
        n->parts[1] = n->parts[0];
        n->parts[0] = n->text;
        if (take_sign(p, "*"))
            return parse_star(p, n);
        if (now(p)->type != TOKEN_WORD && now(p)->type != TOKEN_QUOTED)
            return expected(p, "a column's name or *");
        n->quoted = now(p)->type == TOKEN_QUOTED;
        n->text = p->tokens[p->at++].text;
    }
    n->size = (uint32_t)strlen(n->text);
    return n;
}

static bool parse_list(struct parser *p, struct node *n)
{
    do
        add_arg(p, n, parse_expr(p, 0));
    while (take_sign(p, ","));
    return need_sign(p, ")", ", or )");
}

static void parse_order(struct parser *p, struct order **orders, uint32_t *n)
{
    need_word(p, "by", "by after order");
    do {
        *orders = grown(p, *orders, *n, sizeof(**orders));
        struct order o = {.node = parse_expr(p, 0)};
        if (take_word(p, "desc"))
            o.descending = true;
        else
            (void)take_word(p, "asc");
        o.nulls_first = o.descending; /* as PostgreSQL: NULL is the largest */
        if (take_word(p, "nulls")) {
            o.nulls_first = take_word(p, "first");
            if (!o.nulls_first)
                need_word(p, "last", "first or last");
        }
        if (p->error)
            return;
        (*orders)[(*n)++] = o;
    } while (take_sign(p, ","));
}

/* ---- over (partition by ... order by ... rows between ... and ...) ---- */

static void parse_edge(struct parser *p, struct window_node *w, int i)
{
    if (take_word(p, "current")) {
        need_word(p, "row", "row after current");
        w->edge[i] = FRAME_CURRENT;
        return;
    }
    bool unbounded = take_word(p, "unbounded");
    if (!unbounded)
        w->offset[i] = parse_expr(p, BIND_OTHER);
    bool before = take_word(p, "preceding");
    if (!before)
        need_word(p, "following", "preceding or following");
    if (unbounded && before == (i == 1))
        fail_at(p, now(p)->pos,
                i ? "a frame cannot end unbounded preceding"
                  : "a frame cannot begin unbounded following");
    w->edge[i] = unbounded ? before ? FRAME_UNBOUNDED_PRECEDING : FRAME_UNBOUNDED_FOLLOWING
                 : before  ? FRAME_PRECEDING
                           : FRAME_FOLLOWING;
}

static void parse_frame(struct parser *p, struct window_node *w)
{
    w->rows = take_word(p, "rows");
    if (!w->rows && !take_word(p, "range"))
        return;
    w->framed = true;
    w->edge[1] = FRAME_CURRENT;
    bool both = take_word(p, "between");
    parse_edge(p, w, 0);
    if (!both)
        return;
    need_word(p, "and", "and (between ... and ...)");
    parse_edge(p, w, 1);
}

static struct window_node *parse_over(struct parser *p)
{
    struct window_node *w = get(p, 1, sizeof(*w));
    if (!w || !need_sign(p, "(", "( after over; named windows are not in this version"))
        return NULL;
    if (take_word(p, "partition")) {
        need_word(p, "by", "by after partition");
        do {
            w->partition = grown(p, w->partition, w->n_partition, sizeof(*w->partition));
            struct node *n = parse_expr(p, 0);
            if (p->error)
                return NULL;
            w->partition[w->n_partition++] = n;
        } while (take_sign(p, ","));
    }
    if (take_word(p, "order"))
        parse_order(p, &w->order, &w->n_order);
    parse_frame(p, w);
    need_sign(p, ")", "partition by, order by, rows, range or )");
    return p->error ? NULL : w;
}

static void parse_call_tail(struct parser *p, struct node *n)
{
    if (is_word(p, 0, "within")) {
        p->at++;
        need_word(p, "group", "group after within");
        need_sign(p, "(", "( after within group");
        need_word(p, "order", "order by");
        need_word(p, "by", "by");
        add_arg(p, n, parse_expr(p, 0));
        if (take_word(p, "desc"))
            fail_at(p, n->pos, "within group (... desc) is not known; turn the fraction round");
        (void)take_word(p, "asc");
        need_sign(p, ")", ")");
    }
    if (is_word(p, 0, "filter") && p->tokens[p->at + 1].type == TOKEN_SIGN) {
        p->at++;
        need_sign(p, "(", "( after filter");
        need_word(p, "where", "where");
        n->filter = parse_expr(p, 0);
        need_sign(p, ")", ")");
    }
    if (is_word(p, 0, "over")) {
        p->at++;
        n->over = parse_over(p);
    }
}

static struct node *parse_call(struct parser *p)
{
    const struct token *name = now(p);
    struct node *n = node(p, NODE_CALL, name->pos);
    if (!n)
        return NULL;
    n->text = name->text;
    n->size = name->size;
    p->at += 2; /* the name and ( */
    if (strcmp(n->text, "extract") == 0 && p->tokens[p->at + 1].type == TOKEN_WORD &&
        strcmp(p->tokens[p->at + 1].text, "from") == 0) {
        n->text = "date_part";
        n->size = 9;
        add_arg(p, n, text_node(p, now(p)));
        p->at += 2;
        add_arg(p, n, parse_expr(p, 0));
        need_sign(p, ")", ")");
        return n;
    }
    if (take_sign(p, "*")) {
        n->star = true;
        need_sign(p, ")", ")");
    } else if (!take_sign(p, ")")) {
        n->distinct = take_word(p, "distinct");
        if (!n->distinct)
            (void)take_word(p, "all");
        parse_list(p, n);
    }
    parse_call_tail(p, n);
    return n;
}

static enum sql_type type_named(struct parser *p)
{
    static const struct {
        const char *name;
        enum sql_type type;
    } types[] = {{"bool", SQL_BOOL},
                 {"boolean", SQL_BOOL},
                 {"int", SQL_INT},
                 {"integer", SQL_INT},
                 {"bigint", SQL_INT},
                 {"smallint", SQL_INT},
                 {"int2", SQL_INT},
                 {"int4", SQL_INT},
                 {"int8", SQL_INT},
                 {"int64", SQL_INT},
                 {"double", SQL_DOUBLE},
                 {"float", SQL_DOUBLE},
                 {"float8", SQL_DOUBLE},
                 {"float4", SQL_DOUBLE},
                 {"float64", SQL_DOUBLE},
                 {"real", SQL_DOUBLE},
                 {"numeric", SQL_DOUBLE},
                 {"decimal", SQL_DOUBLE},
                 {"text", SQL_TEXT},
                 {"varchar", SQL_TEXT},
                 {"char", SQL_TEXT},
                 {"string", SQL_TEXT},
                 {"blob", SQL_BLOB},
                 {"bytea", SQL_BLOB},
                 {"timestamp", SQL_TIMESTAMP},
                 {"timestamptz", SQL_TIMESTAMP},
                 {"datetime", SQL_TIMESTAMP},
                 {"date", SQL_TIMESTAMP},
                 {"interval", SQL_INTERVAL}};
    const struct token *t = now(p);
    for (size_t i = 0; t->type == TOKEN_WORD && i < sizeof(types) / sizeof(*types); i++) {
        if (strcmp(t->text, types[i].name) != 0)
            continue;
        p->at++;
        if (types[i].type == SQL_DOUBLE)
            (void)take_word(p, "precision");
        if (take_sign(p, "(")) { /* varchar(20), decimal(10, 2): sizes are not kept */
            while (now(p)->type == TOKEN_NUMBER || is_sign(p, ","))
                p->at++;
            need_sign(p, ")", ")");
        }
        return types[i].type;
    }
    expected(p, "a type: boolean, bigint, double, text, blob, timestamp or interval");
    return SQL_NULL;
}

static struct node *parse_cast(struct parser *p)
{
    struct node *n = node(p, NODE_CAST, now(p)->pos);
    if (!n)
        return NULL;
    n->flag = is_word(p, 0, "try_cast");
    p->at += 2;
    add_arg(p, n, parse_expr(p, 0));
    need_word(p, "as", "as");
    n->cast = type_named(p);
    need_sign(p, ")", ")");
    return n;
}

static struct node *parse_case(struct parser *p)
{
    struct node *n = node(p, NODE_CASE, now(p)->pos);
    struct node *operand = NULL;
    p->at++;
    if (!is_word(p, 0, "when"))
        operand = parse_expr(p, 0);
    while (n && take_word(p, "when")) {
        uint32_t pos = now(p)->pos;
        struct node *when = parse_expr(p, 0);
        add_arg(p, n, operand ? call(p, "=", pos, operand, when) : when);
        need_word(p, "then", "then");
        add_arg(p, n, parse_expr(p, 0));
    }
    if (n && n->n_args == 0)
        return expected(p, "when");
    if (n && take_word(p, "else")) {
        n->flag = true;
        add_arg(p, n, parse_expr(p, 0));
    }
    need_word(p, "end", "when, else or end");
    return n;
}

/* interval '5 min', timestamp '2024-05-01 10:00', date '2024-05-01' */
static struct node *parse_typed_text(struct parser *p, enum sql_type type)
{
    struct node *n = node(p, NODE_CAST, now(p)->pos);
    p->at++;
    const struct token *t = &p->tokens[p->at++];
    if (!n)
        return NULL;
    n->cast = type;
    add_arg(p, n, text_node(p, t));
    return n;
}

static bool starts_select(const struct parser *p)
{
    return is_word(p, 0, "select") || is_word(p, 0, "with") || is_word(p, 0, "values");
}

static struct node *parse_parenthesis(struct parser *p)
{
    uint32_t pos = now(p)->pos;
    p->at++;
    if (starts_select(p)) {
        struct node *n = node(p, NODE_SELECT, pos);
        struct select *s = parse_select(p);
        need_sign(p, ")", ")");
        if (n)
            n->select = s;
        return n;
    }
    struct node *n = parse_expr(p, 0);
    if (is_sign(p, ","))
        return fail_at(p, pos, "row values (a, b) are not in this version");
    need_sign(p, ")", ")");
    return n;
}

static struct node *parse_word(struct parser *p)
{
    uint32_t pos = now(p)->pos;
    bool string_next = p->tokens[p->at + 1].type == TOKEN_STRING;
    bool call_next =
        p->tokens[p->at + 1].type == TOKEN_SIGN && strcmp(p->tokens[p->at + 1].text, "(") == 0;
    if (is_word(p, 0, "null") || is_word(p, 0, "true") || is_word(p, 0, "false")) {
        struct node *n = node(p, is_word(p, 0, "null") ? NODE_NULL : NODE_BOOL, pos);
        if (n)
            n->flag = is_word(p, 0, "true");
        p->at++;
        return n;
    }
    if (is_word(p, 0, "case"))
        return parse_case(p);
    if (string_next && is_word(p, 0, "interval"))
        return parse_typed_text(p, SQL_INTERVAL);
    if (string_next && (is_word(p, 0, "timestamp") || is_word(p, 0, "date")))
        return parse_typed_text(p, SQL_TIMESTAMP);
    if (call_next && (is_word(p, 0, "cast") || is_word(p, 0, "try_cast")))
        return parse_cast(p);
    if (call_next && is_word(p, 0, "exists")) {
        p->at++;
        struct node *n = starts_select(&(struct parser){.tokens = p->tokens, .at = p->at + 1})
                             ? parse_parenthesis(p)
                             : expected(p, "(select ...)");
        if (n)
            n->kind = NODE_EXISTS;
        return n;
    }
    if (call_next && (is_word(p, 0, "left") || is_word(p, 0, "right") || !is_reserved(now(p))))
        return parse_call(p);
    if (is_word(p, 0, "current_timestamp")) {
        p->at++;
        return call(p, "now", pos, NULL, NULL);
    }
    if (is_reserved(now(p)))
        return expected(p, "an expression");
    return parse_name(p);
}

static struct node *parse_prefix(struct parser *p)
{
    const struct token *t = now(p);
    if (p->error)
        return NULL;
    switch (t->type) {
    case TOKEN_END:
        return expected(p, "an expression");
    case TOKEN_NUMBER:
        return parse_number(p, false);
    case TOKEN_STRING:
        p->at++;
        return text_node(p, t);
    case TOKEN_QUOTED:
        return parse_name(p);
    case TOKEN_WORD:
        if (take_word(p, "not"))
            return wrap(p, NODE_NOT, t->pos, parse_expr(p, BIND_NOT));
        return parse_word(p);
    case TOKEN_SIGN:
        break;
    }
    if (is_sign(p, "("))
        return parse_parenthesis(p);
    if (take_sign(p, "+"))
        return parse_expr(p, BIND_SIGN);
    if (take_sign(p, "-")) {
        if (now(p)->type == TOKEN_NUMBER) /* -9223372036854775808 is one number */
            return parse_number(p, true);
        return call(p, "neg", t->pos, parse_expr(p, BIND_SIGN), NULL);
    }
    if (is_sign(p, "*")) {
        p->at++;
        return parse_star(p, node(p, NODE_STAR, t->pos));
    }
    return expected(p, "an expression");
}

/* ---- operators ---- */

struct infix {
    const char *sign; /* or word */
    const char *name; /* of the function it is */
    int binding;
};

static const struct infix infixes[] = {
    {"=", "=", BIND_COMPARE},   {"<>", "<>", BIND_COMPARE}, {"!=", "<>", BIND_COMPARE},
    {"<", "<", BIND_COMPARE},   {"<=", "<=", BIND_COMPARE}, {">", ">", BIND_COMPARE},
    {">=", ">=", BIND_COMPARE}, {"||", "||", BIND_OTHER},   {"~", "~", BIND_OTHER},
    {"~*", "~*", BIND_OTHER},   {"!~", "!~", BIND_OTHER},   {"!~*", "!~*", BIND_OTHER},
    {"+", "+", BIND_PLUS},      {"-", "-", BIND_PLUS},      {"*", "*", BIND_TIMES},
    {"/", "/", BIND_TIMES},     {"%", "%", BIND_TIMES},     {"^", "power", BIND_POWER}};

static const struct infix *infix_now(const struct parser *p)
{
    for (size_t i = 0; now(p)->type == TOKEN_SIGN && i < sizeof(infixes) / sizeof(*infixes); i++)
        if (strcmp(infixes[i].sign, now(p)->text) == 0)
            return &infixes[i];
    return NULL;
}

static struct node *negate(struct parser *p, bool negated, uint32_t pos, struct node *n)
{
    return negated ? wrap(p, NODE_NOT, pos, n) : n;
}

/* IS [NOT] NULL | TRUE | FALSE | DISTINCT FROM x */
static struct node *parse_is(struct parser *p, struct node *left, uint32_t pos)
{
    bool negated = take_word(p, "not");
    if (take_word(p, "null")) {
        struct node *n = wrap(p, NODE_IS_NULL, pos, left);
        if (n)
            n->negated = negated;
        return n;
    }
    if (take_word(p, "distinct")) {
        need_word(p, "from", "from");
        return call(p, negated ? "is not distinct from" : "is distinct from", pos, left,
                    parse_expr(p, BIND_IS));
    }
    if (is_word(p, 0, "true") || is_word(p, 0, "false")) {
        struct node *value = parse_word(p);
        return call(p, negated ? "is distinct from" : "is not distinct from", pos, left, value);
    }
    return expected(p, "null, true, false or distinct from");
}

static struct node *parse_in(struct parser *p, struct node *left, uint32_t pos, bool negated)
{
    if (!need_sign(p, "(", "( after in"))
        return NULL;
    bool select = starts_select(p);
    struct node *n = wrap(p, select ? NODE_IN_SELECT : NODE_IN, pos, left);
    if (!n)
        return NULL;
    n->negated = negated;
    if (!select) {
        parse_list(p, n);
        return n;
    }
    n->select = parse_select(p);
    need_sign(p, ")", ")");
    return n;
}

static struct node *parse_between(struct parser *p, struct node *left, uint32_t pos)
{
    struct node *low = parse_expr(p, BIND_IN);
    need_word(p, "and", "and (x between a and b)");
    struct node *high = parse_expr(p, BIND_IN);
    struct node *n = node(p, NODE_AND, pos);
    add_arg(p, n, call(p, ">=", pos, left, low));
    add_arg(p, n, call(p, "<=", pos, left, high));
    return n;
}

/* What may follow with words: is, in, between, like, ilike, regexp, each perhaps with not. */
static struct node *parse_word_infix(struct parser *p, struct node *left, int binding,
                                     bool *ret_more)
{
    uint32_t pos = now(p)->pos;
    *ret_more = true;
    if (binding < BIND_IS && take_word(p, "is"))
        return parse_is(p, left, pos);
    if (binding < BIND_IN) {
        uint32_t not = is_word(p, 0, "not") ? 1 : 0;
        static const char *const likes[] = {"like", "ilike", "regexp"};
        bool in = is_word(p, not, "in");
        bool between = is_word(p, not, "between");
        int like = -1;
        for (int i = 0; i < 3; i++)
            if (is_word(p, not, likes[i]))
                like = i;
        if (in || between || like >= 0) {
            p->at += not +1;
            if (in)
                return parse_in(p, left, pos, not );
            if (between)
                return negate(p, not, pos, parse_between(p, left, pos));
            struct node *pattern = parse_expr(p, BIND_IN);
            return negate(p, not, pos, call(p, like == 2 ? "~" : likes[like], pos, left, pattern));
        }
    }
    *ret_more = false;
    return left;
}

/* x and y and z is one node of three, so that long chains stay flat. */
static struct node *parse_logic(struct parser *p, struct node *left, const char *word,
                                enum node_kind kind, int binding)
{
    struct node *n = wrap(p, kind, now(p)->pos, left);
    while (n && take_word(p, word))
        add_arg(p, n, parse_expr(p, binding));
    return n;
}

static struct node *parse_infix(struct parser *p, struct node *left, int binding, bool *ret_more)
{
    uint32_t pos = now(p)->pos;
    const struct infix *i = infix_now(p);
    *ret_more = true;
    if (i && i->binding > binding) {
        p->at++;
        return call(p, i->name, pos, left, parse_expr(p, i->binding));
    }
    if (binding < BIND_CAST && take_sign(p, "::")) {
        struct node *n = wrap(p, NODE_CAST, pos, left);
        enum sql_type type = type_named(p);
        if (n)
            n->cast = type;
        return n;
    }
    if (binding < BIND_OR && is_word(p, 0, "or"))
        return parse_logic(p, left, "or", NODE_OR, BIND_OR);
    if (binding < BIND_AND && is_word(p, 0, "and"))
        return parse_logic(p, left, "and", NODE_AND, BIND_AND);
    if (binding < BIND_CAST && is_word(p, 0, "at") && is_word(p, 1, "time")) {
        p->at += 2;
        need_word(p, "zone", "zone");
        if (now(p)->type != TOKEN_STRING || strcasecmp(now(p)->text, "utc") != 0)
            return expected(p, "'UTC': times are kept in UTC and no other zone is known");
        p->at++;
        return left;
    }
    return parse_word_infix(p, left, binding, ret_more);
}

static struct node *parse_expr(struct parser *p, int binding)
{
    uint32_t pos = now(p)->pos;
    if (!enter(p))
        return NULL;
    struct node *n = parse_prefix(p);
    for (bool more = true; more && n && !p->error;)
        n = parse_infix(p, n, binding, &more);
    p->depth--;
    if (!n || p->error)
        return NULL;
    n->start = pos;
    n->end = p->tokens[p->at - 1].end;
    return n;
}

/* ---- from ---- */

static struct from *new_from(struct parser *p, uint32_t pos)
{
    struct from *f = p->error ? NULL : get(p, 1, sizeof(*f));
    if (f)
        f->pos = pos;
    return f;
}

static void parse_table_name(struct parser *p, const char *names[3])
{
    names[0] = take_name(p, "a table's name");
    while (take_sign(p, ".")) {
        if (names[2]) {
            fail_at(p, now(p)->pos, "a table's name has at most three parts: catalog.schema.table");
            return;
        }
        names[2] = names[1];
        names[1] = names[0];
        if (now(p)->type != TOKEN_WORD && now(p)->type != TOKEN_QUOTED) {
            expected(p, "a table's name");
            return;
        }
        names[0] = p->tokens[p->at++].text;
    }
}

static struct from *parse_joins(struct parser *p);

static struct from *parse_table(struct parser *p)
{
    struct from *f = new_from(p, now(p)->pos);
    if (!f || !enter(p))
        return NULL;
    if (take_sign(p, "(")) {
        if (starts_select(p)) {
            f->kind = FROM_SELECT;
            f->select = parse_select(p);
        } else {
            f = parse_joins(p);
        }
        need_sign(p, ")", ")");
    } else {
        f->kind = FROM_TABLE;
        parse_table_name(p, f->names);
        if (is_sign(p, "("))
            fail_at(p, f->pos, "table functions are not in this version");
    }
    p->depth--;
    if (p->error || !f)
        return NULL;
    if (take_word(p, "as") || is_name(p))
        f->alias = take_name(p, "an alias");
    return f;
}

static void parse_join_condition(struct parser *p, struct from *f)
{
    if (f->join == JOIN_CROSS)
        return;
    if (take_word(p, "on")) {
        f->on = parse_expr(p, 0);
    } else if (take_word(p, "using")) {
        need_sign(p, "(", "( after using");
        do {
            f->columns = grown(p, f->columns, f->n_columns, sizeof(*f->columns));
            const char *name = take_name(p, "a column's name");
            if (p->error)
                return;
            f->columns[f->n_columns++] = name;
        } while (take_sign(p, ","));
        need_sign(p, ")", ", or )");
    } else {
        expected(p, "on or using");
    }
}

static bool parse_join_word(struct parser *p, enum join_type *ret)
{
    if (take_sign(p, ",")) {
        *ret = JOIN_CROSS;
        return true;
    }
    if (is_word(p, 0, "right") || is_word(p, 0, "full") || is_word(p, 0, "asof") ||
        is_word(p, 0, "natural")) {
        fail_at(p, now(p)->pos, "this version joins with inner, left and cross join only");
        return false;
    }
    if (take_word(p, "cross")) {
        *ret = JOIN_CROSS;
    } else if (take_word(p, "left")) {
        (void)take_word(p, "outer");
        *ret = JOIN_LEFT;
    } else {
        *ret = JOIN_INNER;
        if (!take_word(p, "inner"))
            return take_word(p, "join");
    }
    return need_word(p, "join", "join");
}

static struct from *parse_joins(struct parser *p)
{
    struct from *f = parse_table(p);
    enum join_type join;
    uint32_t n = 0;
    while (f && !p->error && parse_join_word(p, &join)) {
        struct from *both = new_from(p, now(p)->pos);
        if (!both)
            return NULL;
        if (++n > 32)
            return fail_at(p, now(p)->pos, "more than 32 tables are joined");
        both->kind = FROM_JOIN;
        both->join = join;
        both->left = f;
        both->right = parse_table(p);
        parse_join_condition(p, both);
        f = both;
    }
    return p->error ? NULL : f;
}

/* ---- select ---- */

static void parse_items(struct parser *p, struct select *s)
{
    do {
        s->items = grown(p, s->items, s->n_items, sizeof(*s->items));
        struct item item = {.node = parse_expr(p, 0)};
        if (item.node && item.node->kind == NODE_STAR) {
            /* no alias: in `select * form t` the word is a slip */
        } else if (take_word(p, "as")) {
            if (now(p)->type != TOKEN_WORD && now(p)->type != TOKEN_QUOTED)
                expected(p, "an alias");
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
    do {
        s->group = grown(p, s->group, s->n_group, sizeof(*s->group));
        struct node *n = parse_expr(p, 0);
        if (p->error)
            return;
        s->group[s->n_group++] = n;
    } while (take_sign(p, ","));
}

static void parse_values(struct parser *p, struct select *s)
{
    s->set = SET_VALUES;
    do {
        struct node *row = node(p, NODE_ROW, now(p)->pos);
        s->rows = grown(p, s->rows, s->n_rows, sizeof(*s->rows));
        if (!row || !need_sign(p, "(", "( of a row of values"))
            return;
        parse_list(p, row);
        if (p->error)
            return;
        s->rows[s->n_rows++] = row;
    } while (take_sign(p, ","));
}

/* One select or values without what stands behind set operations. */
static struct select *parse_core(struct parser *p)
{
    struct select *s = p->error ? NULL : get(p, 1, sizeof(*s));
    if (!s)
        return NULL;
    s->pos = now(p)->pos;
    if (take_sign(p, "(")) {
        struct select *inner = parse_select(p);
        need_sign(p, ")", ")");
        return inner;
    }
    if (take_word(p, "values")) {
        parse_values(p, s);
        return s;
    }
    if (!take_word(p, "select"))
        return expected(p, "select, with, values, show, describe or explain");
    s->distinct = take_word(p, "distinct");
    if (!s->distinct)
        (void)take_word(p, "all");
    parse_items(p, s);
    if (take_word(p, "from"))
        s->from = parse_joins(p);
    if (take_word(p, "where"))
        s->where = parse_expr(p, 0);
    if (take_word(p, "group"))
        parse_group(p, s);
    if (take_word(p, "having"))
        s->having = parse_expr(p, 0);
    if (is_word(p, 0, "window") || is_word(p, 0, "qualify"))
        return fail_at(p, now(p)->pos,
                       "named windows and qualify are not in this version; f() over (...) is");
    return s;
}

static struct select *parse_sets(struct parser *p)
{
    struct select *left = parse_core(p);
    uint32_t n = 0;
    while (left && !p->error) {
        enum set_kind kind = SET_NONE;
        uint32_t pos = now(p)->pos;
        if (take_word(p, "union"))
            kind = take_word(p, "all") ? SET_UNION_ALL : SET_UNION;
        else if (take_word(p, "intersect"))
            kind = SET_INTERSECT;
        else if (take_word(p, "except"))
            kind = SET_EXCEPT;
        if (kind == SET_NONE)
            break;
        if (++n > 100)
            return fail_at(p, pos, "more than 100 selects in one union");
        struct select *both = get(p, 1, sizeof(*both));
        struct select *right = parse_core(p);
        if (!both || p->error)
            return NULL;
        *both = (struct select){.pos = pos, .set = kind, .left = left, .right = right};
        left = both;
    }
    return left;
}

static void parse_ctes(struct parser *p)
{
    if (is_word(p, 0, "recursive")) {
        fail_at(p, now(p)->pos, "with recursive is not in this version");
        return;
    }
    do {
        struct cte *c = get(p, 1, sizeof(*c));
        const char *name = take_name(p, "a name after with");
        need_word(p, "as", "as");
        need_sign(p, "(", "( select ... )");
        struct select *s = parse_select(p);
        need_sign(p, ")", ")");
        if (!c || p->error)
            return;
        *c = (struct cte){.name = name, .select = s, .next = p->ctes};
        p->ctes = c;
    } while (take_sign(p, ","));
}

static struct select *parse_select(struct parser *p)
{
    if (!enter(p))
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
    bool more = is_word(p, 0, "order") || is_word(p, 0, "limit") || is_word(p, 0, "offset");
    if (more && (s->n_order || s->limit || s->offset))
        return fail_at(p, now(p)->pos, "put the inner select with its own order by in from (...)");
    if (take_word(p, "order"))
        parse_order(p, &s->order, &s->n_order);
    for (int i = 0; i < 2; i++) {
        if (take_word(p, "limit")) {
            if (!take_word(p, "all"))
                s->limit = parse_expr(p, 0);
        }
        if (take_word(p, "offset")) {
            s->offset = parse_expr(p, 0);
            if (!take_word(p, "rows"))
                (void)take_word(p, "row");
        }
    }
    return p->error ? NULL : s;
}

static void parse_statement(struct parser *p, struct statement *s)
{
    s->pos = now(p)->pos;
    if (take_word(p, "explain")) {
        s->explain = true;
        s->analyze = take_word(p, "analyze");
    } else if (take_word(p, "show")) {
        s->kind = STATEMENT_SHOW_TABLES;
        need_word(p, "tables", "tables (show tables)");
        return;
    } else if (take_word(p, "describe") || take_word(p, "desc")) {
        s->kind = STATEMENT_DESCRIBE;
        (void)take_word(p, "table");
        s->pos = now(p)->pos;
        parse_table_name(p, s->names);
        return;
    }
    s->select = parse_select(p);
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
    expected(p, what);
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
