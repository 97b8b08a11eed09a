/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/parse/parse_infix.c - what stands between expressions: operators, is, in, between, like,
 * and.
 *
 * The query's thread only.  How tightly they bind is PostgreSQL's table, in parse.h.
 */
#include "core/sql/parse/parse.h"

#include <stdio.h>
#include <strings.h>

#include "core/base/text.h"

struct infix {
    const char *sign; /* or word */
    const char *name; /* of the function it is */
    int binding;
};

static const struct infix infixes[] = {{"=", "=", BIND_COMPARE},
                                       {"==", "=", BIND_COMPARE},
                                       {"<>", "<>", BIND_COMPARE},
                                       {"!=", "<>", BIND_COMPARE},
                                       {"<", "<", BIND_COMPARE},
                                       {"<=", "<=", BIND_COMPARE},
                                       {">", ">", BIND_COMPARE},
                                       {">=", ">=", BIND_COMPARE},
                                       {"||", "||", BIND_OTHER},
                                       {"~", "~", BIND_OTHER},
                                       {"~~", "like", BIND_OTHER},
                                       {"~~*", "ilike", BIND_OTHER},
                                       {"!~~", "like", BIND_OTHER},
                                       {"!~~*", "ilike", BIND_OTHER},
                                       {"^@", "starts_with", BIND_OTHER},
                                       {"->", "->", BIND_OTHER},
                                       {"->>", "->>", BIND_OTHER},
                                       {"~*", "~*", BIND_OTHER},
                                       {"!~", "!~", BIND_OTHER},
                                       {"!~*", "!~*", BIND_OTHER},
                                       {"+", "+", BIND_PLUS},
                                       {"-", "-", BIND_PLUS},
                                       {"*", "*", BIND_TIMES},
                                       {"/", "/", BIND_TIMES},
                                       {"%", "%", BIND_TIMES},
                                       {"^", "power", BIND_POWER},
                                       {"&", "&", BIND_OTHER},
                                       {"|", "|", BIND_OTHER},
                                       {"#", "#", BIND_OTHER},
                                       {"<<", "<<", BIND_OTHER},
                                       {">>", ">>", BIND_OTHER},
                                       {"#>", "json_extract_path", BIND_OTHER},
                                       {"#>>", "json_extract_path_text", BIND_OTHER}};

static const struct infix *infix_now(const struct parser *p)
{
    for (size_t i = 0; now(p)->type == TOKEN_SIGN && i < sizeof(infixes) / sizeof(*infixes); i++)
        if (strcmp(infixes[i].sign, now(p)->text) == 0)
            return &infixes[i];
    return NULL;
}

static struct node *negate_node(struct parser *p, bool negated, uint32_t pos, struct node *n)
{
    return negated ? sql_parse_wrap(p, NODE_NOT, pos, n) : n;
}

/* IS [NOT] NULL | TRUE | FALSE | DISTINCT FROM x */
static struct node *parse_is(struct parser *p, struct node *left, uint32_t pos)
{
    bool negated = take_word(p, "not");
    if (take_word(p, "null") || take_word(p, "unknown")) {
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
        struct node *value = sql_parse_word(p);
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

#define QUANTIFIED "any value" /* a name that no statement has by chance */

static struct node *call_of(struct parser *p, const char *name, uint32_t pos, struct node *arg)
{
    struct node *n = sql_parse_make(p, name, pos, arg, NULL);
    if (n)
        n->star = arg == NULL;
    return n;
}

/* (select CASE from (SELECT) as rows(value)) */
static struct node *quantified_select(struct parser *p, uint32_t pos, struct node *value,
                                      struct select *rows)
{
    static const char *columns[] = {QUANTIFIED};
    struct node *n = sql_parse_node(p, NODE_SELECT, pos);
    struct select *s = p->error ? NULL : sql_parse_get(p, 1, sizeof(*s));
    struct from *from = p->error ? NULL : sql_parse_get(p, 1, sizeof(*from));
    struct item *item = p->error ? NULL : sql_parse_get(p, 1, sizeof(*item));
    void **answer = p->error ? NULL : sql_parse_get(p, 1, sizeof(*answer));
    if (!n || !answer)
        return NULL;
    *item = (struct item){.node = value, .alias = QUANTIFIED};
    *from = (struct from){.kind = FROM_SELECT,
                          .pos = pos,
                          .alias = QUANTIFIED,
                          .aliases = columns,
                          .n_aliases = 1,
                          .select = rows};
    *s = (struct select){.pos = pos, .items = item, .n_items = 1, .from = from, .ctes = p->ctes};
    n->select = s;
    n->answer = answer;
    return n;
}

/* x > all (select ...): true of no rows, false where one is not so, NULL where one is unknown; any
 * is the opposite of that: case when count(*) = 0 then ALL when not bool_and(x > row) then false
 * when count(x > row) < count(*) then null else true end. */
static struct node *make_quantified(struct parser *p, struct node *left, uint32_t pos,
                                    const char *compare, bool all, struct select *rows)
{
    struct node *name = sql_parse_node(p, NODE_NAME, pos), *zero = sql_parse_node(p, NODE_INT, pos);
    struct node *n = sql_parse_node(p, NODE_CASE, pos), *truth[2];
    for (int i = 0; i < 2; i++) {
        truth[i] = sql_parse_node(p, NODE_BOOL, pos);
        if (truth[i])
            truth[i]->flag = i;
    }
    if (p->error || !n)
        return NULL;
    name->text = QUANTIFIED;
    name->size = sizeof(QUANTIFIED) - 1;
    name->quoted = true;
    struct node *one = sql_parse_make(p, compare, pos, left, name);
    struct node *count = call_of(p, "count", pos, NULL);
    struct node *decides = call_of(p, all ? "bool_and" : "bool_or", pos, one);
    n->flag = true;
    sql_parse_add(p, n, sql_parse_make(p, "=", pos, count, zero));
    sql_parse_add(p, n, truth[all]);
    sql_parse_add(p, n, all ? sql_parse_wrap(p, NODE_NOT, pos, decides) : decides);
    sql_parse_add(p, n, truth[!all]);
    sql_parse_add(p, n, sql_parse_make(p, "<", pos, call_of(p, "count", pos, one), count));
    sql_parse_add(p, n, sql_parse_node(p, NODE_NULL, pos));
    sql_parse_add(p, n, truth[all]);
    return quantified_select(p, pos, n, rows);
}

/* string_to_array(text, ','): the rows of string_to_table(); *ret_text: what is NULL where the
 * array is. */
static struct select *parse_split(struct parser *p, struct node **ret_text)
{
    uint32_t start = now(p)->pos;
    struct node *call = sql_parse_call(p);
    if (!call || call->n_args < 2)
        return sql_parse_fail(p, now(p)->pos, "string_to_array(text, ',') takes two texts");
    *ret_text = call->args[0];
    struct select *rows = sql_parse_rows_of(p, call, "string_to_table");
    if (rows) {
        rows->start = start;
        rows->end = p->tokens[p->at - 1].end;
    }
    return rows;
}

/* = any (select ...) is in, <> all (select ...) is not in. */
static struct node *any_row(struct parser *p, struct node *left, uint32_t pos, const char *compare,
                            bool all, struct select *rows)
{
    if (p->error || strcmp(compare, all ? "<>" : "=") != 0)
        return p->error ? NULL : make_quantified(p, left, pos, compare, all, rows);
    struct node *n = sql_parse_wrap(p, NODE_IN_SELECT, pos, left);
    if (!n)
        return NULL;
    n->negated = all;
    n->select = rows;
    n->answer = sql_parse_get(p, 1, sizeof(*n->answer));
    return n;
}

/* x = any (array[1, 2]), x > all (select ...), x = any (string_to_array(text, ',')) */
static struct node *parse_any(struct parser *p, struct node *left, uint32_t pos,
                              const char *compare, bool all)
{
    p->at += 2;
    if (sql_parse_is_array(p, 0))
        return sql_parse_any_array(p, left, pos, compare, all);
    if (is_word(p, 0, "string_to_array") && is_sign_at(p, 1, "(")) {
        struct node *text = NULL, *n = sql_parse_node(p, NODE_CASE, pos);
        struct select *rows = parse_split(p, &text);
        need_sign(p, ")", ") behind string_to_array(text, ','): its values are texts");
        if (!n || p->error)
            return NULL;
        n->flag = true;
        sql_parse_add(p, n, sql_parse_wrap(p, NODE_IS_NULL, pos, text));
        sql_parse_add(p, n, sql_parse_node(p, NODE_NULL, pos));
        sql_parse_add(p, n, any_row(p, left, pos, compare, all, rows));
        return p->error ? NULL : n;
    }
    if (!starts_select(p))
        return sql_parse_fail(p, p->tokens[p->at - 1].pos,
                              "any and all take array[1, 2], string_to_array(text, ',') or "
                              "(select ...); what is in a JSON text: (select value from "
                              "json_each(text))");
    struct select *rows = sql_parse_select(p);
    need_sign(p, ")", ")");
    return any_row(p, left, pos, compare, all, rows);
}

static bool starts_any(const struct parser *p)
{
    return is_sign_at(p, 1, "(") &&
           (is_word(p, 0, "any") || is_word(p, 0, "some") || is_word(p, 0, "all"));
}

/* x collate "C": texts are compared by bytes, so other orders are refused. */
static struct node *parse_collate(struct parser *p, struct node *left)
{
    static const char *const orders[] = {"c", "posix", "ucs_basic", "c.utf8", "c.utf-8", "default"};
    p->at++;
    for (size_t i = 0; i < sizeof(orders) / sizeof(*orders); i++)
        if (strcasecmp(now(p)->text, orders[i]) == 0) {
            p->at++;
            return left;
        }
    return sql_parse_expected(p, "\"C\": texts are compared by bytes, in no language's order");
}

/* like 'a!%' escape '!': the pattern with \ before what is meant as it stands. */
static void parse_escape(struct parser *p, struct node *pattern)
{
    if (!take_word(p, "escape"))
        return;
    const struct token *t = now(p);
    char *out = pattern ? arena_alloc(p->arena, 2 * (size_t)pattern->size + 1) : NULL;
    uint32_t n = 0;
    if (!out || pattern->kind != NODE_TEXT || t->type != TOKEN_STRING || t->size > 1) {
        sql_parse_fail(p, t->pos, "escape takes one character, after a pattern that is a literal");
        return;
    }
    p->at++;
    for (uint32_t i = 0; i < pattern->size; i++) {
        bool escape = t->size && pattern->text[i] == t->text[0];
        i += escape;
        if (escape || pattern->text[i] == '\\')
            out[n++] = '\\';
        if (i < pattern->size) /* an escape at the end is refused where it is met */
            out[n++] = pattern->text[i];
    }
    out[n] = '\0';
    pattern->text = out;
    pattern->size = n;
}

/* x #> '{a,0}' is json_extract_path(x, 'a', '0'). */
static struct node *parse_json_path(struct parser *p, struct node *left, uint32_t pos,
                                    const char *function)
{
    if (!sql_parse_is_array(p, 0))
        return sql_parse_expected(p, "'{a,b}' or array['a', 'b'] behind #>, as constants");
    struct node *path = sql_parse_array(p), *n = sql_parse_make(p, function, pos, left, NULL);
    if (n && path && path->n_args == 0)
        return sql_parse_fail(p, pos, "a path of no steps is the text itself");
    for (uint32_t i = 0; path && i < path->n_args; i++)
        sql_parse_add(p, n, path->args[i]);
    return p->error ? NULL : n;
}

/* x similar to 'a%|b_': SQL's pattern as a regular expression of the whole text; what
 * means nothing in SQL's stands for itself, and what is behind the escape is a regular
 * expression's: \d is a digit. */
static struct node *parse_similar(struct parser *p, struct node *left, uint32_t pos)
{
    struct node *pattern = sql_parse_expr(p, BIND_IN);
    char escape = '\\';
    if (take_word(p, "escape")) {
        if (now(p)->type != TOKEN_STRING || now(p)->size != 1)
            return sql_parse_expected(p, "one character");
        escape = p->tokens[p->at++].text[0];
    }
    char *out =
        pattern ? arena_alloc(p->arena, 3 * (size_t)pattern->size + 8) : NULL; /* ( is (?: */
    if (!out || pattern->kind != NODE_TEXT)
        return sql_parse_fail(p, pos,
                              "the pattern of `similar to` is a literal; x ~ regexp takes others");
    uint32_t n = (uint32_t)snprintf(out, 5, "^(?:");
    bool inside = false; /* [...] */
    for (uint32_t i = 0; i < pattern->size; i++) {
        char c = pattern->text[i];
        bool escaped = c == escape && i + 1 < pattern->size;
        c = escaped ? pattern->text[++i] : c;
        inside = !escaped && (inside ? c != ']' : c == '[');
        bool any = !escaped && !inside && (c == '%' || c == '_');
        if (escaped || c == '\\' || (!inside && strchr(".^$", c)))
            out[n++] = '\\';
        out[n++] = any ? '.' : c;
        if (any && c == '%')
            out[n++] = '*';
        else if (!any && !escaped && !inside && c == '(') {
            out[n++] = '?';
            out[n++] = ':';
        }
    }
    (void)memcpy(out + n, ")$", 3);
    pattern->text = out;
    pattern->size = n + 2;
    return sql_parse_make(p, "~", pos, left, pattern);
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

/* Parse an infix of words: is, in, between, like, ilike, regexp, each perhaps with not. */
static struct node *parse_word_infix(struct parser *p, struct node *left, int binding,
                                     bool *ret_more)
{
    uint32_t pos = now(p)->pos;
    *ret_more = true;
    if (binding < BIND_IS && take_word(p, "is"))
        return parse_is(p, left, pos);
    if (binding < BIND_IS && (is_word(p, 0, "isnull") || is_word(p, 0, "notnull"))) {
        struct node *n = sql_parse_wrap(p, NODE_IS_NULL, pos, left);
        if (n)
            n->negated = is_word(p, 0, "notnull");
        p->at++;
        return n;
    }
    if (binding < BIND_IN) {
        uint32_t not = is_word(p, 0, "not") ? 1 : 0;
        static const char *const likes[] = {"like", "ilike", "regexp"};
        bool in = is_word(p, not, "in");
        bool between = is_word(p, not, "between");
        int like = -1;
        for (int i = 0; i < 3; i++)
            if (is_word(p, not, likes[i]))
                like = i;
        if (is_word(p, not, "similar") && is_word(p, not +1, "to")) {
            p->at += not +2;
            return negate_node(p, not, pos, parse_similar(p, left, pos));
        }
        if (in || between || like >= 0) {
            p->at += not +1;
            if (in)
                return parse_in(p, left, pos, not );
            if (between)
                return negate_node(p, not, pos, parse_between(p, left, pos));
            const char *name = like == 2 ? "~" : likes[like];
            if (starts_any(p)) { /* not like all: it is not that it is like any */
                bool all = is_word(p, 0, "all") != (not == 1);
                return negate_node(p, not, pos, parse_any(p, left, pos, name, all));
            }
            struct node *pattern = sql_parse_expr(p, BIND_IN);
            if (like < 2)
                parse_escape(p, pattern);
            return negate_node(p, not, pos, sql_parse_make(p, name, pos, left, pattern));
        }
    }
    *ret_more = false;
    return left;
}

#define DECIMALS_MAX 18 /* digits: they fit an int64_t */

void sql_parse_decimals(struct node *n, const char *text, bool negative)
{
    const char *point = strchr(text, '.');
    size_t size = strlen(text);
    int64_t value = 0;
    if (!point || size > DECIMALS_MAX || strspn(text, "0123456789.") != size)
        return;
    for (; *text; text++)
        value = *text == '.' ? value : value * 10 + (*text - '0');
    n->integer = negative ? -value : value;
    n->decimals = (uint32_t)(size - 1 - (size_t)(point - (text - size)));
    n->exact = true;
}

static bool rescale_decimal(int64_t *value, uint32_t *decimals, uint32_t want)
{
    for (; *decimals < want; (*decimals)++)
        if (__builtin_mul_overflow(*value, 10, value))
            return false;
    return true;
}

static bool is_decimal(const struct node *n)
{
    return n->kind == NODE_INT || (n->kind == NODE_DOUBLE && n->exact);
}

/* 0.06 + 0.01 is 0.07, not the double below it: arithmetic of numbers as they are written is exact,
 * as PostgreSQL's numeric, and its result is made a double. */
static struct node *compute_decimals(struct node *n)
{
    if (!n || n->n_args != 2 || !is_decimal(n->args[0]) || !is_decimal(n->args[1]) ||
        (n->args[0]->kind == NODE_INT && n->args[1]->kind == NODE_INT))
        return n;
    int64_t a = n->args[0]->integer, b = n->args[1]->integer, value;
    uint32_t a_decimals = n->args[0]->decimals, b_decimals = n->args[1]->decimals;
    bool times = strcmp(n->text, "*") == 0, minus = strcmp(n->text, "-") == 0;
    if (!times && !minus && strcmp(n->text, "+") != 0)
        return n;
    if (!times && (!rescale_decimal(&a, &a_decimals, b_decimals) ||
                   !rescale_decimal(&b, &b_decimals, a_decimals)))
        return n;
    uint32_t decimals = times ? a_decimals + b_decimals : a_decimals;
    bool over = times   ? __builtin_mul_overflow(a, b, &value)
                : minus ? __builtin_sub_overflow(a, b, &value)
                        : __builtin_add_overflow(a, b, &value);
    if (over || decimals > DECIMALS_MAX)
        return n;
    char text[48];
    int size = snprintf(text, sizeof(text), "%llde-%u", (long long)value, decimals);
    if (parse_f64(text, (size_t)size, &n->number) < 0)
        return n;
    n->kind = NODE_DOUBLE;
    n->n_args = 0;
    n->integer = value;
    n->decimals = decimals;
    n->exact = true;
    return n;
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

struct node *sql_parse_infix(struct parser *p, struct node *left, int binding, bool *ret_more)
{
    uint32_t pos = now(p)->pos;
    const struct infix *i = infix_now(p);
    *ret_more = true;
    if (i && i->binding > binding) {
        p->at++;
        if (i->binding == BIND_COMPARE && starts_any(p))
            return parse_any(p, left, pos, i->name, is_word(p, 0, "all"));
        if (strcmp(i->sign, "#>") == 0 || strcmp(i->sign, "#>>") == 0)
            return parse_json_path(p, left, pos, i->name);
        bool negated = strncmp(i->sign, "!~~", 3) == 0;
        return negate_node(
            p, negated, pos,
            compute_decimals(sql_parse_make(p, i->name, pos, left, sql_parse_expr(p, i->binding))));
    }
    if (binding < BIND_CAST && take_sign(p, "::"))
        return sql_parse_as_type(p, left, pos, /* forgiving= */ false);
    if (is_sign(p, "[") && is_sign_at(p, 1, "]"))
        return sql_parse_fail(
            p, pos,
            "there are no types of arrays: they stand only in = any ('{1,2}') and "
            "unnest('{1,2}'::bigint[]); array_agg(x) and json_build_array() make lists");
    if (is_sign(p, "["))
        return sql_parse_fail(p, pos,
                              "arrays have no subscripts here; first(x order by y), "
                              "split_part(text, ',', 2), regexp_match(text, re, 2) and "
                              "text ->> 2 give one of several");
    if (binding < BIND_SIGN && is_word(p, 0, "collate") &&
        (p->tokens[p->at + 1].type == TOKEN_QUOTED || p->tokens[p->at + 1].type == TOKEN_WORD))
        return parse_collate(p, left);
    if (binding < BIND_OR && is_word(p, 0, "or"))
        return parse_logic(p, left, "or", NODE_OR, BIND_OR);
    if (binding < BIND_AND && is_word(p, 0, "and"))
        return parse_logic(p, left, "and", NODE_AND, BIND_AND);
    if (binding < BIND_CAST && is_word(p, 0, "at") && is_word(p, 1, "time")) {
        p->at += 2;
        need_word(p, "zone", "zone");
        return sql_parse_make(p, "timezone", pos, sql_parse_expr(p, BIND_CAST), left);
    }
    return parse_word_infix(p, left, binding, ret_more);
}
