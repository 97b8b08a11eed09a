/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/parse/parse_array.c - arrays where they are nothing but lists: = any (array[1, 2]),
 * <> all ('{a,b}'), unnest(array[1, 2]); and those of string_to_array(), which are rows.
 *
 * There is no type of arrays; an array elsewhere is refused by unsupported.c.  The query's thread
 * only.
 */
#include "core/sql/parse/parse.h"

#include <strings.h>

static void add_text(struct parser *p, struct node *list, const char *text, size_t size, bool null)
{
    struct node *n = sql_parse_node(p, null ? NODE_NULL : NODE_TEXT, list->pos);
    if (!n)
        return;
    n->text = text;
    n->size = (uint32_t)size;
    sql_parse_add(p, list, n);
}

/* '{a, "b c", null}' */
static void parse_braces(struct parser *p, const struct token *t, struct node *list)
{
    const char *at = t->text, *end = t->text + t->size;
    const char *wrong = "an array is written '{a,b}', or array['a', 'b']";
    char *room = arena_alloc(p->arena, (size_t)t->size + 2); /* for all of them */
    bool closed = false;
    at += strspn(at, " ");
    if (!room || at == end || *at++ != '{')
        (void)sql_parse_fail(p, t->pos, room ? wrong : "no memory");
    at += p->error ? 0 : strspn(at, " ");
    if (!p->error && at < end && *at == '}') {
        closed = true;
        at++;
    }
    while (!p->error && !closed) {
        char *out = room;
        size_t n = 0;
        bool quoted = *at == '"';
        for (at += quoted; at < end && (quoted ? *at != '"' : !strchr(",{}\"", *at));) {
            at += *at == '\\' && at + 1 < end;
            out[n++] = *at++;
        }
        while (!quoted && n && out[n - 1] == ' ')
            n--;
        out[n] = '\0';
        room += n + 1;
        at += quoted && at < end;
        at += strspn(at, " ");
        if (at >= end || (*at != ',' && *at != '}') || (!quoted && n == 0)) {
            (void)sql_parse_fail(p, t->pos, wrong);
            return;
        }
        add_text(p, list, out, n, !quoted && strcasecmp(out, "null") == 0);
        closed = *at++ == '}';
        at += closed ? 0 : strspn(at, " ");
    }
    if (!p->error && at + strspn(at, " ") != end)
        (void)sql_parse_fail(p, t->pos, wrong);
}

/* ::bigint[] behind it: each of them is cast. */
static void parse_cast_of_all(struct parser *p, struct node *list)
{
    if (!take_sign(p, "::"))
        return;
    uint32_t type = p->at;
    if (list->n_args == 0) /* the type is read, and means nothing */
        (void)sql_parse_as_type(p, sql_parse_node(p, NODE_NULL, list->pos), list->pos, false);
    for (uint32_t i = 0; i < list->n_args && !p->error; i++) {
        p->at = type;
        list->args[i] = sql_parse_as_type(p, list->args[i], list->pos, false);
    }
    need_sign(p, "[", "[] of an array's type");
    need_sign(p, "]", "]");
}

bool sql_parse_is_array(const struct parser *p, uint32_t ahead)
{
    const struct token *t = &p->tokens[p->at + ahead]; /* at most two: lexer.c */
    return (is_word(p, ahead, "array") && is_sign_at(p, ahead + 1, "[")) ||
           (t->type == TOKEN_STRING && t->text[strspn(t->text, " ")] == '{');
}

struct node *sql_parse_array(struct parser *p)
{
    struct node *list = sql_parse_node(p, NODE_ROW, now(p)->pos);
    if (!list)
        return NULL;
    if (now(p)->type == TOKEN_STRING) {
        parse_braces(p, now(p), list);
        p->at++;
    } else {
        p->at += 2;
        while (!p->error && !is_sign(p, "]")) {
            sql_parse_add(p, list, sql_parse_expr(p, 0));
            if (!take_sign(p, ","))
                break;
        }
        need_sign(p, "]", ", or ]");
    }
    parse_cast_of_all(p, list);
    return p->error ? NULL : list;
}

struct node *sql_parse_any_array(struct parser *p, struct node *left, uint32_t pos,
                                 const char *compare, bool all)
{
    struct node *list = sql_parse_array(p);
    bool in = strcmp(compare, all ? "<>" : "=") == 0;
    need_sign(p, ")", ")");
    bool none = list && list->n_args == 0;
    struct node *n = p->error ? NULL
                     : none   ? sql_parse_node(p, NODE_BOOL, pos)
                     : in     ? sql_parse_wrap(p, NODE_IN, pos, left)
                              : sql_parse_node(p, all ? NODE_AND : NODE_OR, pos);
    if (!n)
        return NULL;
    if (none) { /* the left side is an expression all the same, and may be wrong */
        n->flag = all;
        struct node *asked = sql_parse_wrap(p, NODE_IS_NULL, pos, left);
        struct node *both = sql_parse_wrap(p, all ? NODE_OR : NODE_AND, pos, asked);
        sql_parse_add(p, both, n);
        return p->error ? NULL : both;
    }
    n->negated = in && all;
    for (uint32_t i = 0; i < list->n_args && !p->error; i++)
        sql_parse_add(p, n,
                      in ? list->args[i] : sql_parse_make(p, compare, pos, left, list->args[i]));
    return !in && n->n_args == 1 ? n->args[0] : n;
}

struct select *sql_parse_unnest(struct parser *p)
{
    struct node *list = sql_parse_array(p);
    struct select *s = p->error ? NULL : sql_parse_get(p, 1, sizeof(*s));
    need_sign(p, ")", ") behind an array: unnest takes one");
    if (!s || p->error)
        return NULL;
    s->pos = list->pos;
    s->set = SET_VALUES;
    if (list->n_args == 0)
        return sql_parse_fail(p, list->pos, "unnest of an array without elements has no rows");
    for (uint32_t i = 0; i < list->n_args && !p->error; i++) {
        struct node *row = sql_parse_wrap(p, NODE_ROW, list->pos, list->args[i]);
        s->rows = sql_parse_grown(p, s->rows, s->n_rows, sizeof(*s->rows));
        if (!p->error)
            s->rows[s->n_rows++] = row;
    }
    return s;
}

struct select *sql_parse_rows_of(struct parser *p, struct node *call, const char *function)
{
    struct node *star = sql_parse_node(p, NODE_STAR, call->pos);
    struct select *s = p->error ? NULL : sql_parse_get(p, 1, sizeof(*s));
    struct from *from = p->error ? NULL : sql_parse_get(p, 1, sizeof(*from));
    struct item *item = p->error ? NULL : sql_parse_get(p, 1, sizeof(*item));
    if (p->error)
        return NULL;
    call->text = function;
    call->size = (uint32_t)strlen(function);
    *item = (struct item){.node = star};
    *from = (struct from){.kind = FROM_CALL, .pos = call->pos, .call = call};
    *s = (struct select){
        .pos = call->pos, .items = item, .n_items = 1, .from = from, .ctes = p->ctes};
    return s;
}
