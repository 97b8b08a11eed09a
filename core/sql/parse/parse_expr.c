/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/parse/parse_expr.c - expressions by precedence: literals, names, casts.
 *
 * The query's thread only.  Operators are in parse_infix.c, calls and windows in parse_call.c.
 */
#include "core/sql/parse/parse.h"

#include <stdio.h>

#include "core/base/text.h"
#include "core/sql/value/timestamp_parts.h"

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
        return sql_parse_fail(p, t->pos,
                              "the integer does not fit into 64 bits; written with a point (or as "
                              "1e19) it is a double, which keeps 15 digits");
    }
    n->kind = NODE_DOUBLE;
    if (parse_f64(t->text, t->size, &n->number) < 0)
        return sql_parse_fail(p, t->pos, "the number is too large for a double");
    n->number = negative ? -n->number : n->number;
    sql_parse_decimals(n, t->text, negative);
    return n;
}

/* * exclude (a, b), * except (a, b), * replace (x as a): no select begins there */
static void parse_exclude(struct parser *p, struct node *n)
{
    need_sign(p, "(", "( after exclude");
    do {
        struct node *name = sql_parse_node(p, NODE_NAME, now(p)->pos);
        if (!name || !(name->text = take_name(p, "a column's name")))
            return;
        n->exclude = sql_parse_grown(p, n->exclude, n->n_exclude, sizeof(*n->exclude));
        if (p->error)
            return;
        n->exclude[n->n_exclude++] = name;
    } while (take_sign(p, ","));
    need_sign(p, ")", ", or )");
}

static void parse_replace(struct parser *p, struct node *n)
{
    need_sign(p, "(", "( after replace");
    do {
        n->replaced = sql_parse_grown(p, n->replaced, n->n_args, sizeof(*n->replaced));
        struct node *x = sql_parse_expr(p, 0);
        need_word(p, "as", "as");
        const char *name = take_name(p, "a column's name");
        if (p->error)
            return;
        n->replaced[n->n_args] = name;
        sql_parse_add(p, n, x);
    } while (take_sign(p, ","));
    need_sign(p, ")", ", or )");
}

static struct node *parse_star(struct parser *p, struct node *n)
{
    if (!n)
        return NULL;
    n->kind = NODE_STAR;
    bool inner = is_sign_at(p, 1, "(");
    if (inner && is_word(p, 0, "except")) {
        p->at += 2;
        inner = is_name(p);
        p->at -= 2;
    }
    if (take_word(p, "exclude") || (inner && take_word(p, "except")))
        parse_exclude(p, n);
    if (is_sign_at(p, 1, "(") && take_word(p, "replace"))
        parse_replace(p, n);
    return p->error ? NULL : n;
}

/* name, table.name, schema.table.name, t.* */
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

struct type {
    enum sql_type type;
    uint32_t bits; /* of an integer that is not one of 64; 0: it is, or it is none */
    struct node *digits, *decimals; /* numeric(10, 2), varchar(20); NULL: all there are */
    bool padded;                    /* char(20): blanks at its end mean nothing */
    bool single;                    /* real */
    bool clock;                     /* timestamp without time zone */
};

/* varchar(20), numeric(10, 2); numeric(10) has no decimals, other numbers count for nothing. */
static void parse_type_size(struct parser *p, const char *name, struct type *t)
{
    bool decimal = strcmp(name, "numeric") == 0 || strncmp(name, "dec", 3) == 0;
    bool moment = t->type == SQL_TIMESTAMP || t->type == SQL_INTERVAL;
    uint32_t pos = now(p)->pos;
    if (!take_sign(p, "("))
        return;
    for (int i = 0; i < 2 && now(p)->type == TOKEN_NUMBER; i++) {
        struct node *n = parse_number(p, false);
        if (moment && i == 0) {
            t->digits = n;
            if (n && (n->kind != NODE_INT || n->integer > 9))
                sql_parse_fail(p, pos, "seconds have up to nine digits behind their point");
        } else if (t->type == SQL_TEXT && i == 0) {
            t->digits = n;
            if (n && (n->kind != NODE_INT || n->integer < 1))
                sql_parse_fail(p, pos, "a text has room for one character at least");
        } else if (decimal && i == 0) {
            t->digits = n;
            t->decimals = sql_parse_node(p, NODE_INT, n ? n->pos : 0); /* 0 of them */
        } else if (decimal) {
            t->decimals = n;
        }
        if (!take_sign(p, ","))
            break;
    }
    need_sign(p, ")", ")");
}

static const struct named_type {
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
             {"dec", SQL_DOUBLE},
             {"text", SQL_TEXT},
             {"varchar", SQL_TEXT},
             {"char", SQL_TEXT},
             {"character", SQL_TEXT},
             {"bpchar", SQL_TEXT},
             {"name", SQL_TEXT},
             {"json", SQL_TEXT},
             {"jsonb", SQL_TEXT},
             {"string", SQL_TEXT},
             {"blob", SQL_BLOB},
             {"bytea", SQL_BLOB},
             {"timestamp", SQL_TIMESTAMP},
             {"timestamptz", SQL_TIMESTAMP},
             {"datetime", SQL_TIMESTAMP},
             {"date", SQL_DATE},
             {"interval", SQL_INTERVAL}};

static uint32_t bits_of(const char *name)
{
    bool wide =
        strcmp(name, "int") == 0 || strcmp(name, "integer") == 0 || strcmp(name, "int4") == 0;
    return wide ? 32 : strcmp(name, "smallint") == 0 || strcmp(name, "int2") == 0 ? 16 : 0;
}

static const struct named_type *find_type(const struct token *t)
{
    for (size_t i = 0; t->type == TOKEN_WORD && i < sizeof(types) / sizeof(*types); i++)
        if (strcmp(t->text, types[i].name) == 0)
            return &types[i];
    return NULL;
}

static struct type type_named(struct parser *p)
{
    const struct token *t = now(p);
    const struct named_type *named = find_type(t);
    if (named) {
        p->at++;
        struct type found = {.type = named->type, .bits = bits_of(named->name)};
        if (found.type == SQL_DOUBLE)
            (void)take_word(p, "precision");
        found.single = strcmp(t->text, "real") == 0 || strcmp(t->text, "float4") == 0;
        found.padded = strcmp(t->text, "bpchar") == 0 ||
                       (strncmp(t->text, "char", 4) == 0 && !take_word(p, "varying"));
        parse_type_size(p, t->text, &found);
        if (found.padded && !found.digits && t->text[0] == 'c') { /* char is char(1) */
            found.digits = sql_parse_node(p, NODE_INT, t->pos);
            if (found.digits)
                found.digits->integer = 1;
        }
        found.clock = found.type == SQL_TIMESTAMP && strcmp(t->text, "timestamptz") != 0;
        if (found.type == SQL_TIMESTAMP && is_word(p, 1, "time") &&
            (is_word(p, 0, "with") || is_word(p, 0, "without"))) {
            found.clock = found.clock && is_word(p, 0, "without");
            p->at += 2;
            need_word(p, "zone", "zone");
        }
        return found;
    }
    if (is_word(p, 0, "time") || is_word(p, 0, "timetz"))
        sql_parse_fail(p, t->pos,
                       "there is no type for a time of day: ts - date_trunc('day', ts) is an "
                       "interval, to_char(ts, 'HH24:MI:SS') a text");
    sql_parse_expected(p,
                       "a type: boolean, bigint, double, text, blob, timestamp, date or interval");
    return (struct type){.type = SQL_NULL};
}

struct node *sql_parse_as_type(struct parser *p, struct node *x, uint32_t pos, bool forgiving)
{
    struct node *n = sql_parse_wrap(p, NODE_CAST, pos, x);
    bool numeric = is_word(p, 0, "numeric") || is_word(p, 0, "decimal") || is_word(p, 0, "dec");
    bool json = is_word(p, 0, "json") || is_word(p, 0, "jsonb");
    struct type type = type_named(p);
    if (!n || p->error)
        return NULL;
    n->exact = numeric;
    n->cast = type.type;
    n->clock = type.clock;
    n->flag = forgiving;
    if (json) /* a text that is proved */
        return sql_parse_make(p, forgiving ? "try_json" : "json", pos, n, NULL);
    if (type.digits && type.type == SQL_TEXT) /* what is longer is cut */
        n = sql_parse_make(p, "left", pos, n, type.digits);
    if (type.padded)
        return sql_parse_make(p, "rtrim", pos, n, NULL);
    if (type.digits && type.type != SQL_TEXT && !type.decimals) /* timestamp(3) */
        return sql_parse_make(p, "round", pos, n, type.digits);
    if (type.single)
        return sql_parse_make(p, forgiving ? "try_real" : "to_real", pos, n, NULL);
    if (type.bits) { /* its values are those of a bigint, but no more than it would have */
        struct node *bits = sql_parse_node(p, NODE_INT, pos);
        if (bits)
            bits->integer = type.bits;
        return sql_parse_make(p, forgiving ? "to int?" : "to int", pos, n, bits);
    }
    if (!type.decimals)
        return n;
    n = sql_parse_make(p, forgiving ? "to_numeric?" : "to_numeric", pos, n, type.digits);
    if (n)
        sql_parse_add(p, n, type.decimals);
    return n;
}

static struct node *parse_cast(struct parser *p)
{
    uint32_t pos = now(p)->pos;
    bool forgiving = is_word(p, 0, "try_cast");
    p->at += 2;
    struct node *x = sql_parse_expr(p, 0);
    need_word(p, "as", "as");
    struct node *n = sql_parse_as_type(p, x, pos, forgiving);
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

static struct node *cast_node(struct parser *p, struct node *x, enum sql_type type, uint32_t pos)
{
    struct node *n = sql_parse_wrap(p, NODE_CAST, pos, x);
    if (n)
        n->cast = type;
    return n;
}

/* The unit that stands here: year, days, hours ...; NULL: none does. */
static const struct token *take_unit(struct parser *p)
{
    const struct token *t = now(p);
    enum time_part part = t->type == TOKEN_WORD ? sql_time_part(t->text, t->size) : PART_NONE;
    if (p->error || part > PART_YEAR)
        return NULL;
    p->at++;
    return t;
}

static struct node *interval_node(struct parser *p, const char *number, const char *unit,
                                  uint32_t pos)
{
    struct node *text = sql_parse_node(p, NODE_TEXT, pos);
    size_t size = strlen(number) + strlen(unit) + 2;
    char *out = arena_alloc(p->arena, size);
    if (!text || !out)
        return sql_parse_fail(p, pos, "no memory");
    text->text = out;
    text->size = (uint32_t)snprintf(out, size, "%s %s", number, unit);
    return cast_node(p, text, SQL_INTERVAL, pos);
}

/* Behind interval: '5 min', '5' minute, '1-2' year to month, 5 minutes, (n + 1) minutes. */
static struct node *parse_interval(struct parser *p)
{
    uint32_t pos = now(p)->pos;
    const struct token *t = &p->tokens[++p->at], *unit;
    if (is_sign(p, "(")) { /* as many of one */
        p->at++;
        struct node *count = sql_parse_expr(p, 0);
        need_sign(p, ")", ")");
        if (!(unit = take_unit(p)))
            return sql_parse_expected(p, "a unit: year, month, day, hour, minute, second ...");
        return sql_parse_make(p, "*", pos, count, interval_node(p, "1", unit->text, pos));
    }
    p->at++;
    unit = take_unit(p);
    if (t->type == TOKEN_NUMBER && !unit)
        return sql_parse_expected(p, "a unit: year, month, day, hour, minute, second ...");
    const char *number = t->type == TOKEN_NUMBER ? t->text : sql_parse_text(p, t)->text;
    bool bare = number[strspn(number, " +-.0123456789")] == '\0';
    if (unit && take_word(p, "to")) { /* the text says it all; the field's names say it again */
        const struct token *last = take_unit(p);
        if (!last || (strcmp(unit->text, "minute") == 0 && strcmp(last->text, "second") == 0))
            return sql_parse_expected(p, "month behind year to; hour, minute or second behind day "
                                         "to or hour to");
        size_t sign = strspn(number, " +-");
        bool one = number[sign + strspn(number + sign, " .0123456789")] == '\0';
        return interval_node(p, number, one ? last->text : "", pos); /* a number is of the last */
    }
    if (unit && !bare)
        return sql_parse_fail(p, unit->pos, "a unit, where the text before it has its own");
    return interval_node(p, number, unit ? unit->text : "", pos);
}

/* timestamp '2024-05-01 10:00', date '2024-05-01': the type stands before. */
static struct node *parse_typed_text(struct parser *p)
{
    uint32_t at = p->at, pos = now(p)->pos, sized = is_sign_at(p, 1, "(") ? 3 : 0;
    struct node *text = sql_parse_text(p, &p->tokens[at + 1 + sized]);
    struct node *n = sql_parse_as_type(p, text, pos, /* forgiving= */ false);
    p->at = at + 2 + sized;
    return n;
}

/* timestamp '...', timestamp(3) '...' */
static bool starts_typed_text(const struct parser *p)
{
    const struct token *next = &p->tokens[p->at + 1];
    if (!find_type(now(p)))
        return false;
    bool sized = is_sign_at(p, 1, "(") && next[1].type == TOKEN_NUMBER && is_sign_at(p, 3, ")");
    return sized ? next[3].type == TOKEN_STRING
                 : next->type == TOKEN_STRING && !is_word(p, 0, "interval");
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

struct node *sql_parse_word(struct parser *p)
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
    if (starts_typed_text(p))
        return parse_typed_text(p);
    if (is_word(p, 0, "timestamp") && (is_word(p, 1, "with") || is_word(p, 1, "without")) &&
        is_word(p, 2, "time") && is_word(p, 3, "zone") &&
        p->tokens[p->at + 4].type == TOKEN_STRING) {
        p->at += 5;
        struct node *n = cast_node(p, sql_parse_text(p, &p->tokens[p->at - 1]), SQL_TIMESTAMP, pos);
        if (n)
            n->clock =
                is_word(&(struct parser){.tokens = p->tokens, .at = p->at - 4}, 0, "without");
        return n;
    }
    if (is_word(p, 0, "interval") &&
        (string_next || call_next || p->tokens[p->at + 1].type == TOKEN_NUMBER))
        return parse_interval(p);
    if (call_next && is_word(p, 0, "row")) {
        struct node *n = sql_parse_node(p, NODE_ROW, pos);
        p->at += 2;
        sql_parse_list(p, n);
        return n;
    }
    if (call_next && (is_word(p, 0, "cast") || is_word(p, 0, "try_cast")))
        return parse_cast(p);
    if (call_next && is_word(p, 0, "date")) { /* date(ts) is ts::date */
        p->at++;
        return cast_node(p, parse_parenthesis(p), SQL_DATE, pos);
    }
    if (call_next && is_word(p, 0, "exists")) {
        p->at++;
        struct node *n = starts_select(&(struct parser){.tokens = p->tokens, .at = p->at + 1})
                             ? parse_parenthesis(p)
                             : sql_parse_expected(p, "(select ...)");
        if (n)
            n->kind = NODE_EXISTS;
        return n;
    }
    if (call_next && (is_word(p, 0, "current_timestamp") || is_word(p, 0, "localtimestamp"))) {
        p->at++; /* current_timestamp(0) */
        return sql_parse_make(p, "round", pos, sql_parse_make(p, "now", pos, NULL, NULL),
                              parse_parenthesis(p));
    }
    if (call_next && is_word(p, 0, "array") && sql_parse_other_value(p))
        return NULL;
    if (call_next &&
        (is_word(p, 0, "left") || is_word(p, 0, "right") || !sql_parse_is_reserved(now(p))))
        return sql_parse_call(p);
    if (take_word(p, "current_timestamp") || take_word(p, "localtimestamp"))
        return sql_parse_make(p, "now", pos, NULL, NULL);
    if (take_word(p, "current_date"))
        return cast_node(p, sql_parse_make(p, "now", pos, NULL, NULL), SQL_DATE, pos);
    if (sql_parse_other_value(p))
        return NULL;
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
        return sql_parse_word(p);
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
    static const char *const signs[][2] = {
        {"~", "~"}, {"|/", "sqrt"}, {"||/", "cbrt"}, {"@", "abs"}};
    for (size_t i = 0; i < sizeof(signs) / sizeof(*signs); i++)
        if (take_sign(p, signs[i][0]))
            return sql_parse_make(p, signs[i][1], t->pos, sql_parse_expr(p, BIND_OTHER), NULL);
    if (is_sign(p, "*")) {
        p->at++;
        return parse_star(p, sql_parse_node(p, NODE_STAR, t->pos));
    }
    return sql_parse_other_value(p) ? NULL : sql_parse_expected(p, "an expression");
}

struct node *sql_parse_expr(struct parser *p, int binding)
{
    uint32_t pos = now(p)->pos;
    if (!sql_parse_enter(p))
        return NULL;
    struct node *n = parse_prefix(p);
    for (bool more = true; more && n && !p->error;) {
        n = sql_parse_infix(p, n, binding, &more);
        if (n && n->kind == NODE_SELECT && n->select && !n->select->end) { /* x > all (...) */
            n->select->start = pos;
            n->select->end = p->tokens[p->at - 1].end;
        }
    }
    p->depth--;
    if (!n || p->error)
        return NULL;
    n->start = pos;
    n->end = p->tokens[p->at - 1].end;
    return n;
}
