/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/parse/parse_select.c - selects and their clauses, values, sets, with.
 *
 * The query's thread only.
 */
#include "core/sql/parse/parse.h"

#include <strings.h>

#define SETS_MAX 100 /* selects in one union */

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
        for (const struct named_window *o = s->windows; o; o = o->next)
            if (strcasecmp(o->name, name) == 0)
                sql_parse_fail(p, window->pos, "this window's name is another one's already");
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

/* Parse what stands behind `select`. */
static void parse_list(struct parser *p, struct select *s)
{
    s->distinct = take_word(p, "distinct");
    if (!s->distinct)
        (void)take_word(p, "all");
    else if (take_word(p, "on"))
        parse_distinct_on(p, s);
    parse_items(p, s);
}

static void parse_all_columns(struct parser *p, struct select *s)
{
    struct node *star = sql_parse_node(p, NODE_STAR, s->pos);
    s->items = sql_parse_get(p, 1, sizeof(*s->items));
    if (p->error)
        return;
    s->items[0].node = star;
    s->n_items = 1;
}

/* table [only] t [*], behind which no where may stand */
static struct select *parse_whole_table(struct parser *p, struct select *s)
{
    p->at++;
    const struct token *next = &p->tokens[p->at + 1];
    if (is_word(p, 0, "only") && (next->type == TOKEN_QUOTED || next->type == TOKEN_WORD) &&
        !sql_parse_is_reserved(next))
        p->at++;
    s->from = sql_parse_get(p, 1, sizeof(*s->from));
    if (!s->from)
        return NULL;
    s->from->kind = FROM_TABLE;
    s->from->pos = now(p)->pos;
    sql_parse_table_name(p, s->from->names);
    (void)take_sign(p, "*");
    parse_all_columns(p, s);
    return p->error ? NULL : s;
}

static bool starts_plain_select(const struct parser *p)
{
    return is_word(p, 0, "select") || is_word(p, 0, "with") || is_word(p, 0, "values") ||
           is_word(p, 0, "from") || starts_table(p);
}

/* Behind the parenthesis that closes the one opened before. */
static void skip_parenthesis(struct parser *p)
{
    for (uint32_t open = 1; open && now(p)->type != TOKEN_END; p->at++)
        open = is_sign(p, "(") ? open + 1 : is_sign(p, ")") ? open - 1 : open;
}

static bool goes_on(const struct parser *p)
{
    static const char *const words[] = {"union", "intersect", "except", "order",
                                        "limit", "offset",    "fetch"};
    bool found = false;
    for (size_t i = 0; i < sizeof(words) / sizeof(*words) && !found; i++)
        found = is_word(p, 0, words[i]);
    return found;
}

bool starts_select(const struct parser *p)
{
    struct parser look = {.tokens = p->tokens, .at = p->at};
    uint32_t open = 0;
    for (; is_sign(&look, "("); look.at++)
        open++;
    if (!starts_plain_select(&look))
        return false;
    for (; open; open--) {
        skip_parenthesis(&look);
        if (!goes_on(&look) && !is_sign(&look, ")"))
            return false; /* ((select 1) + 2), ((select 1 as x) a join b) */
    }
    return true;
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
    if (starts_table(p))
        return parse_whole_table(p, s);
    bool from_first = take_word(p, "from"); /* from t [select x]: DuckDB's */
    if (from_first)
        s->from = sql_parse_from(p);
    if (take_word(p, "select"))
        parse_list(p, s);
    else if (from_first)
        parse_all_columns(p, s);
    else if (!sql_parse_other_statement(p))
        return sql_parse_expected(
            p, "select, from, with, values, table, show, describe, summarize or explain");
    if (!from_first && take_word(p, "from"))
        s->from = sql_parse_from(p);
    if (take_word(p, "where"))
        s->where = sql_parse_expr(p, 0);
    if (take_word(p, "group"))
        sql_parse_group(p, s);
    if (take_word(p, "having"))
        s->having = sql_parse_expr(p, 0);
    if (take_word(p, "window"))
        parse_windows(p, s);
    if (take_word(p, "qualify"))
        s->qualify = sql_parse_expr(p, 0);
    return s;
}

static struct select *combine_selects(struct parser *p, struct select *left, enum set_kind kind,
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
    if (is_word(p, 0, "by") && is_word(p, 1, "name"))
        sql_parse_fail(p, now(p)->pos, "the columns of a union are matched by position only");
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
            return sql_parse_fail(p, pos, "a union has more than 100 selects");
        bool all = take_all(p);
        left = combine_selects(p, left, SET_INTERSECT, pos, all, parse_core(p));
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
            return sql_parse_fail(p, pos, "a union has more than 100 selects");
        bool all = take_all(p);
        left = combine_selects(p, left, kind, pos, all, parse_intersects(p, &n));
    }
    return left;
}

static void parse_ctes(struct parser *p)
{
    bool recursive = take_word(p, "recursive");
    const struct cte *before = p->ctes;
    do {
        struct cte *c = sql_parse_get(p, 1, sizeof(*c));
        uint32_t pos = now(p)->pos;
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
        for (const struct cte *other = p->ctes; other != before; other = other->next)
            if (strcasecmp(other->name, name) == 0) {
                sql_parse_fail(p, pos, "`with` defines this name twice");
                return;
            }
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

/* fetch first 5 rows only, or with ties: the standard's limit */
static void parse_fetch(struct parser *p, struct select *s)
{
    if (!take_word(p, "first"))
        need_word(p, "next", "first or next");
    bool one = is_word(p, 0, "row") || is_word(p, 0, "rows"); /* fetch first row only */
    s->limit = one ? sql_parse_node(p, NODE_INT, now(p)->pos) : sql_parse_expr(p, 0);
    if (one && s->limit)
        s->limit->integer = 1;
    if (!take_word(p, "rows"))
        need_word(p, "row", "row or rows");
    uint32_t pos = now(p)->pos;
    s->ties = take_word(p, "with");
    if (!s->ties)
        need_word(p, "only", "only, or with ties");
    else if (need_word(p, "ties", "ties") && !s->n_order && !s->order_all)
        sql_parse_fail(p, pos, "with ties needs an order by: rows tie that are equal in it");
}

/* limit, fetch or offset, each once; false: none stands here. */
static bool parse_piece(struct parser *p, struct select *s)
{
    bool limit = is_word(p, 0, "limit"), fetch = is_word(p, 0, "fetch"), twice;
    if (p->error || (!limit && !fetch && !is_word(p, 0, "offset")))
        return false;
    twice = limit || fetch ? s->limit != NULL : s->offset != NULL;
    if (twice)
        return sql_parse_fail(p, now(p)->pos, "limit and offset stand once behind a select");
    p->at++;
    if (fetch) {
        parse_fetch(p, s);
    } else if (limit) {
        s->limit =
            take_word(p, "all") ? sql_parse_node(p, NODE_NULL, now(p)->pos) : sql_parse_expr(p, 0);
    } else {
        s->offset = sql_parse_expr(p, 0);
        if (!take_word(p, "rows"))
            (void)take_word(p, "row");
    }
    return !p->error;
}

/* order by all [desc]: by every column of the list, from left to right */
static bool parse_order_all(struct parser *p, struct select *s)
{
    bool sign = p->tokens[p->at + 1].type != TOKEN_END && p->tokens[p->at + 2].type == TOKEN_SIGN;
    if (!is_word(p, 0, "by") || !is_word(p, 1, "all") ||
        (sign && !is_sign_at(p, 2, ")") && !is_sign_at(p, 2, ";")))
        return false;
    struct order *o = sql_parse_get(p, 1, sizeof(*o));
    if (!o)
        return true;
    p->at += 2;
    s->order = o;
    s->order_all = true;
    sql_parse_direction(p, o);
    return true;
}

struct select *sql_parse_select(struct parser *p)
{
    if (is_word(p, 0, "select") && is_word(p, 1, "top") &&
        p->tokens[p->at + 2].type == TOKEN_NUMBER)
        return sql_parse_fail(p, p->tokens[p->at + 1].pos,
                              "`top` is not supported; write `limit 5` at the end of the select");
    if (!sql_parse_enter(p))
        return NULL;
    uint32_t start = now(p)->pos;
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
    if (more && (s->n_order || s->order_all || s->limit || s->offset))
        return sql_parse_fail(p, now(p)->pos,
                              "put the inner select with its own order by in from (...)");
    if (take_word(p, "order") && !parse_order_all(p, s))
        sql_parse_order(p, &s->order, &s->n_order);
    while (parse_piece(p, s))
        ;
    s->start = start;
    s->end = p->tokens[p->at - 1].end;
    return p->error ? NULL : s;
}
