/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/parse_expr.c - expressions by precedence: literals, names, casts, operators.
 *
 * The query's thread only.  Calls and windows are in parse_call.c.
 */
#include "core/sql/parse.h"

#include <strings.h>

#include "core/base/text.h"
/* ---- literals, names, calls ---- */

static struct node *parse_number(struct parser *p, bool negative)
{
    const struct token *t = &p->tokens[p->at++];
    struct node *n = sql_parse_node(p, NODE_INT, t->pos);
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
        return sql_parse_fail(p, t->pos, "a number too large for a double");
    n->number = negative ? -n->number : n->number;
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
            struct node *name = sql_parse_node(p, NODE_NAME, now(p)->pos);
            if (!name || !(name->text = take_name(p, "a column's name")))
                return NULL;
            n->exclude = sql_parse_grown(p, n->exclude, n->n_exclude, sizeof(*n->exclude));
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
    struct node *n = sql_parse_node(p, NODE_NAME, now(p)->pos);
    if (!n)
        return NULL;
    n->quoted = now(p)->type == TOKEN_QUOTED;
    n->text = p->tokens[p->at++].text;
    while (take_sign(p, ".")) {
        if (n->parts[1])
            return sql_parse_fail(p, n->pos,
                                  "a column's name has at most three parts: schema.table.column");
        n->parts[1] = n->parts[0];
        n->parts[0] = n->text;
        if (take_sign(p, "*"))
            return parse_star(p, n);
        if (now(p)->type != TOKEN_WORD && now(p)->type != TOKEN_QUOTED)
            return sql_parse_expected(p, "a column's name or *");
        n->quoted = now(p)->type == TOKEN_QUOTED;
        n->text = p->tokens[p->at++].text;
    }
    n->size = (uint32_t)strlen(n->text);
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
    sql_parse_expected(p, "a type: boolean, bigint, double, text, blob, timestamp or interval");
    return SQL_NULL;
}

static struct node *parse_cast(struct parser *p)
{
    struct node *n = sql_parse_node(p, NODE_CAST, now(p)->pos);
    if (!n)
        return NULL;
    n->flag = is_word(p, 0, "try_cast");
    p->at += 2;
    sql_parse_add(p, n, sql_parse_expr(p, 0));
    need_word(p, "as", "as");
    n->cast = type_named(p);
    need_sign(p, ")", ")");
    return n;
}

static struct node *parse_case(struct parser *p)
{
    struct node *n = sql_parse_node(p, NODE_CASE, now(p)->pos);
    struct node *operand = NULL;
    p->at++;
    if (!is_word(p, 0, "when"))
        operand = sql_parse_expr(p, 0);
    while (n && take_word(p, "when")) {
        uint32_t pos = now(p)->pos;
        struct node *when = sql_parse_expr(p, 0);
        sql_parse_add(p, n, operand ? sql_parse_make(p, "=", pos, operand, when) : when);
        need_word(p, "then", "then");
        sql_parse_add(p, n, sql_parse_expr(p, 0));
    }
    if (n && n->n_args == 0)
        return sql_parse_expected(p, "when");
    if (n && take_word(p, "else")) {
        n->flag = true;
        sql_parse_add(p, n, sql_parse_expr(p, 0));
    }
    need_word(p, "end", "when, else or end");
    return n;
}

/* interval '5 min', timestamp '2024-05-01 10:00', date '2024-05-01' */
static struct node *parse_typed_text(struct parser *p, enum sql_type type)
{
    struct node *n = sql_parse_node(p, NODE_CAST, now(p)->pos);
    p->at++;
    const struct token *t = &p->tokens[p->at++];
    if (!n)
        return NULL;
    n->cast = type;
    sql_parse_add(p, n, sql_parse_text(p, t));
    return n;
}

static struct node *parse_parenthesis(struct parser *p)
{
    uint32_t pos = now(p)->pos;
    p->at++;
    if (starts_select(p)) {
        struct node *n = sql_parse_node(p, NODE_SELECT, pos);
        struct select *s = sql_parse_select(p);
        need_sign(p, ")", ")");
        if (n) {
            n->select = s;
            n->answer = sql_parse_get(p, 1, sizeof(*n->answer));
        }
        return n;
    }
    struct node *n = sql_parse_expr(p, 0);
    if (is_sign(p, ",")) {
        n = sql_parse_wrap(p, NODE_ROW, pos, n);
        while (take_sign(p, ","))
            sql_parse_add(p, n, sql_parse_expr(p, 0));
        need_sign(p, ")", ", or )");
        return n;
    }
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
        struct node *n = sql_parse_node(p, is_word(p, 0, "null") ? NODE_NULL : NODE_BOOL, pos);
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
    if (call_next && is_word(p, 0, "row")) {
        struct node *n = sql_parse_node(p, NODE_ROW, pos);
        p->at += 2;
        sql_parse_list(p, n);
        return n;
    }
    if (call_next && (is_word(p, 0, "cast") || is_word(p, 0, "try_cast")))
        return parse_cast(p);
    if (call_next && is_word(p, 0, "exists")) {
        p->at++;
        struct node *n = starts_select(&(struct parser){.tokens = p->tokens, .at = p->at + 1})
                             ? parse_parenthesis(p)
                             : sql_parse_expected(p, "(select ...)");
        if (n)
            n->kind = NODE_EXISTS;
        return n;
    }
    if (call_next &&
        (is_word(p, 0, "left") || is_word(p, 0, "right") || !sql_parse_is_reserved(now(p))))
        return sql_parse_call(p);
    if (is_word(p, 0, "current_timestamp")) {
        p->at++;
        return sql_parse_make(p, "now", pos, NULL, NULL);
    }
    if (sql_parse_is_reserved(now(p)))
        return sql_parse_expected(p, "an expression");
    return parse_name(p);
}

static struct node *parse_prefix(struct parser *p)
{
    const struct token *t = now(p);
    if (p->error)
        return NULL;
    switch (t->type) {
    case TOKEN_END:
        return sql_parse_expected(p, "an expression");
    case TOKEN_NUMBER:
        return parse_number(p, false);
    case TOKEN_STRING:
        p->at++;
        return sql_parse_text(p, t);
    case TOKEN_QUOTED:
        return parse_name(p);
    case TOKEN_WORD:
        if (take_word(p, "not"))
            return sql_parse_wrap(p, NODE_NOT, t->pos, sql_parse_expr(p, BIND_NOT));
        return parse_word(p);
    case TOKEN_SIGN:
        break;
    }
    if (is_sign(p, "("))
        return parse_parenthesis(p);
    if (take_sign(p, "+"))
        return sql_parse_expr(p, BIND_SIGN);
    if (take_sign(p, "-")) {
        if (now(p)->type == TOKEN_NUMBER) /* -9223372036854775808 is one number */
            return parse_number(p, true);
        return sql_parse_make(p, "neg", t->pos, sql_parse_expr(p, BIND_SIGN), NULL);
    }
    if (is_sign(p, "*")) {
        p->at++;
        return parse_star(p, sql_parse_node(p, NODE_STAR, t->pos));
    }
    return sql_parse_expected(p, "an expression");
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
    {"->", "->", BIND_OTHER},   {"->>", "->>", BIND_OTHER}, {"~*", "~*", BIND_OTHER},
    {"!~", "!~", BIND_OTHER},   {"!~*", "!~*", BIND_OTHER}, {"+", "+", BIND_PLUS},
    {"-", "-", BIND_PLUS},      {"*", "*", BIND_TIMES},     {"/", "/", BIND_TIMES},
    {"%", "%", BIND_TIMES},     {"^", "power", BIND_POWER}};

static const struct infix *infix_now(const struct parser *p)
{
    for (size_t i = 0; now(p)->type == TOKEN_SIGN && i < sizeof(infixes) / sizeof(*infixes); i++)
        if (strcmp(infixes[i].sign, now(p)->text) == 0)
            return &infixes[i];
    return NULL;
}

static struct node *negate(struct parser *p, bool negated, uint32_t pos, struct node *n)
{
    return negated ? sql_parse_wrap(p, NODE_NOT, pos, n) : n;
}

/* IS [NOT] NULL | TRUE | FALSE | DISTINCT FROM x */
static struct node *parse_is(struct parser *p, struct node *left, uint32_t pos)
{
    bool negated = take_word(p, "not");
    if (take_word(p, "null")) {
        struct node *n = sql_parse_wrap(p, NODE_IS_NULL, pos, left);
        if (n)
            n->negated = negated;
        return n;
    }
    if (take_word(p, "distinct")) {
        need_word(p, "from", "from");
        return sql_parse_make(p, negated ? "is not distinct from" : "is distinct from", pos, left,
                              sql_parse_expr(p, BIND_IS));
    }
    if (is_word(p, 0, "true") || is_word(p, 0, "false")) {
        struct node *value = parse_word(p);
        return sql_parse_make(p, negated ? "is distinct from" : "is not distinct from", pos, left,
                              value);
    }
    return sql_parse_expected(p, "null, true, false or distinct from");
}

static struct node *parse_in(struct parser *p, struct node *left, uint32_t pos, bool negated)
{
    if (!need_sign(p, "(", "( after in"))
        return NULL;
    bool select = starts_select(p);
    struct node *n = sql_parse_wrap(p, select ? NODE_IN_SELECT : NODE_IN, pos, left);
    if (!n)
        return NULL;
    n->negated = negated;
    if (!select) {
        sql_parse_list(p, n);
        return n;
    }
    n->select = sql_parse_select(p);
    n->answer = sql_parse_get(p, 1, sizeof(*n->answer));
    need_sign(p, ")", ")");
    return n;
}

static struct node *parse_between(struct parser *p, struct node *left, uint32_t pos)
{
    bool either = take_word(p, "symmetric");
    struct node *low = sql_parse_expr(p, BIND_IN);
    need_word(p, "and", "and (x between a and b)");
    struct node *high = sql_parse_expr(p, BIND_IN);
    struct node *n = sql_parse_node(p, NODE_AND, pos);
    sql_parse_add(p, n, sql_parse_make(p, ">=", pos, left, low));
    sql_parse_add(p, n, sql_parse_make(p, "<=", pos, left, high));
    if (!either)
        return n;
    struct node *turned = sql_parse_node(p, NODE_AND, pos), *any = sql_parse_node(p, NODE_OR, pos);
    sql_parse_add(p, turned, sql_parse_make(p, ">=", pos, left, high));
    sql_parse_add(p, turned, sql_parse_make(p, "<=", pos, left, low));
    sql_parse_add(p, any, n);
    sql_parse_add(p, any, turned);
    return any;
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
            struct node *pattern = sql_parse_expr(p, BIND_IN);
            return negate(p, not, pos,
                          sql_parse_make(p, like == 2 ? "~" : likes[like], pos, left, pattern));
        }
    }
    *ret_more = false;
    return left;
}

/* x and y and z is one node of three, so that long chains stay flat. */
static struct node *parse_logic(struct parser *p, struct node *left, const char *word,
                                enum node_kind kind, int binding)
{
    struct node *n = sql_parse_wrap(p, kind, now(p)->pos, left);
    while (n && take_word(p, word))
        sql_parse_add(p, n, sql_parse_expr(p, binding));
    return n;
}

static struct node *parse_infix(struct parser *p, struct node *left, int binding, bool *ret_more)
{
    uint32_t pos = now(p)->pos;
    const struct infix *i = infix_now(p);
    *ret_more = true;
    if (i && i->binding > binding) {
        p->at++;
        return sql_parse_make(p, i->name, pos, left, sql_parse_expr(p, i->binding));
    }
    if (binding < BIND_CAST && take_sign(p, "::")) {
        struct node *n = sql_parse_wrap(p, NODE_CAST, pos, left);
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
            return sql_parse_expected(p, "'UTC': times are kept in UTC and no other zone is known");
        p->at++;
        return left;
    }
    return parse_word_infix(p, left, binding, ret_more);
}

struct node *sql_parse_expr(struct parser *p, int binding)
{
    uint32_t pos = now(p)->pos;
    if (!sql_parse_enter(p))
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
