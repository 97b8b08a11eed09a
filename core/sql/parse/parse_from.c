/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/parse/parse_from.c - tables, selects and functions to read from, and how they are
 * joined.
 *
 * The query's thread only.
 */
#include "core/sql/parse/parse.h"

#define TABLES_JOINED_MAX 128 /* each is a level of our stack when rows are asked for */

/* ---- from ---- */

static struct from *new_from(struct parser *p, uint32_t pos)
{
    struct from *f = p->error ? NULL : sql_parse_get(p, 1, sizeof(*f));
    if (f)
        f->pos = pos;
    return f;
}

void sql_parse_table_name(struct parser *p, const char *names[3])
{
    names[0] = take_name(p, "a table's name");
    while (take_sign(p, ".")) {
        if (names[2]) {
            sql_parse_fail(p, now(p)->pos,
                           "a table's name has at most three parts: catalog.schema.table");
            return;
        }
        names[2] = names[1];
        names[1] = names[0];
        if (now(p)->type != TOKEN_WORD && now(p)->type != TOKEN_QUOTED) {
            sql_parse_expected(p, "a table's name");
            return;
        }
        names[0] = p->tokens[p->at++].text;
    }
}

/* lateral (select ...), lateral f(...); a table of this name is no matter */
static bool take_lateral(struct parser *p)
{
    const struct token *next = &p->tokens[p->at + 1];
    if (!is_word(p, 0, "lateral") ||
        (next->type != TOKEN_WORD && (next->type != TOKEN_SIGN || strcmp(next->text, "(") != 0)))
        return false;
    return take_word(p, "lateral");
}

/* unnest(array[1, 2]) n: its column is named as it is itself. */
static void name_rows(struct parser *p, struct from *f, const char *name)
{
    f->alias = name;
    if (f->n_aliases)
        return;
    f->aliases = sql_parse_get(p, 1, sizeof(*f->aliases));
    if (p->error)
        return;
    f->aliases[0] = name;
    f->n_aliases = 1;
}

/* f(x) with ordinality: (select *, row_number() over () as ordinality from f(x)) */
static struct from *number_rows(struct parser *p, struct from *f, const char *name)
{
    struct from *around = new_from(p, f->pos);
    struct select *s = p->error ? NULL : sql_parse_get(p, 1, sizeof(*s));
    struct item *items = p->error ? NULL : sql_parse_get(p, 2, sizeof(*items));
    struct window_node *over = p->error ? NULL : sql_parse_get(p, 1, sizeof(*over));
    struct node *star = sql_parse_node(p, NODE_STAR, f->pos);
    struct node *number = sql_parse_make(p, "row_number", f->pos, NULL, NULL);
    if (p->error || !star || !number)
        return NULL;
    number->over = over;
    items[0] = (struct item){.node = star};
    items[1] = (struct item){.node = number, .alias = "ordinality"};
    *s = (struct select){.pos = f->pos, .items = items, .n_items = 2, .from = f, .ctes = p->ctes};
    *around = (struct from){
        .kind = FROM_SELECT, .pos = f->pos, .alias = name, .select = s, .lateral = true};
    if (f->kind == FROM_CALL || f->n_aliases > 1) { /* else they name its own column */
        around->aliases = f->aliases;
        around->n_aliases = f->n_aliases;
        f->n_aliases = 0;
    }
    f->alias = name;
    return around;
}

static struct from *parse_table(struct parser *p)
{
    struct from *f = new_from(p, now(p)->pos);
    if (!f || !sql_parse_enter(p))
        return NULL;
    bool lateral = take_lateral(p);
    const char *rows = NULL; /* the function that gives them */
    if (take_sign(p, "(")) {
        if (starts_select(p)) {
            f->kind = FROM_SELECT;
            f->select = sql_parse_select(p);
        } else {
            f = sql_parse_from(p);
        }
        need_sign(p, ")", ")");
    } else {
        f->kind = FROM_TABLE;
        bool call = p->tokens[p->at + 1].type == TOKEN_SIGN && now(p)->type == TOKEN_WORD &&
                    strcmp(p->tokens[p->at + 1].text, "(") == 0;
        if (call && is_word(p, 0, "unnest") && sql_parse_is_array(p, 2)) {
            p->at += 2;
            rows = "unnest";
            f->kind = FROM_SELECT;
            f->select = sql_parse_unnest(p);
        } else if (call && is_word(p, 0, "unnest") && is_word(p, 2, "string_to_array") &&
                   is_sign_at(p, 3, "(")) {
            p->at += 2;
            rows = "unnest";
            f->kind = FROM_CALL;
            f->call = sql_parse_call(p);
            if (f->call)
                f->call->text = "string_to_table";
            need_sign(p, ")", ")");
        } else if (call && is_name(p)) {
            f->kind = FROM_CALL;
            f->call = sql_parse_call(p);
            rows = f->call ? f->call->text : NULL;
        } else {
            sql_parse_table_name(p, f->names);
        }
    }
    p->depth--;
    if (p->error || !f)
        return NULL;
    if (lateral && f->kind != FROM_SELECT && f->kind != FROM_CALL)
        return sql_parse_fail(p, f->pos, "lateral stands before a (select ...) or a function");
    f->lateral = lateral || f->kind == FROM_CALL;
    bool numbered = rows && is_word(p, 0, "with") && is_word(p, 1, "ordinality");
    p->at += numbered ? 2 : 0;
    if (sql_parse_other_from(p))
        return NULL;
    if (take_word(p, "as") || is_name(p)) {
        f->alias = take_name(p, "an alias");
        if (is_sign(p, "("))
            sql_parse_columns(p, &f->aliases, &f->n_aliases);
        (void)sql_parse_other_from(p);
    }
    if (rows && strcmp(rows, "unnest") == 0)
        name_rows(p, f, f->alias ? f->alias : rows);
    if (numbered)
        f = number_rows(p, f, f->alias ? f->alias : rows);
    return p->error ? NULL : f;
}

void sql_parse_columns(struct parser *p, const char ***names, uint32_t *n)
{
    need_sign(p, "(", "( and columns' names");
    do {
        *names = sql_parse_grown(p, *names, *n, sizeof(**names));
        const char *name = take_name(p, "a column's name");
        if (p->error)
            return;
        (*names)[(*n)++] = name;
    } while (take_sign(p, ","));
    need_sign(p, ")", ", or )");
}

static void parse_join_condition(struct parser *p, struct from *f)
{
    if (f->join == JOIN_CROSS || f->natural)
        return;
    if (take_word(p, "on")) {
        f->on = sql_parse_expr(p, 0);
    } else if (take_word(p, "using")) {
        sql_parse_columns(p, &f->columns, &f->n_columns);
    } else {
        sql_parse_expected(p, "on or using");
    }
}

static bool parse_join_word(struct parser *p, struct from *f)
{
    static const struct {
        const char *word;
        enum join_type join;
        bool outer;
    } words[] = {{"cross", JOIN_CROSS, false},
                 {"inner", JOIN_INNER, false},
                 {"left", JOIN_LEFT, true},
                 {"right", JOIN_RIGHT, true},
                 {"full", JOIN_FULL, true}};
    f->join = JOIN_INNER;
    if (take_sign(p, ",")) {
        f->join = JOIN_CROSS;
        return true;
    }
    f->natural = take_word(p, "natural");
    bool asof = !f->natural && take_word(p, "asof"), found = false;
    for (size_t i = 0; i < sizeof(words) / sizeof(*words) && !found; i++) {
        found = take_word(p, words[i].word);
        if (!found)
            continue;
        f->join = words[i].join;
        if (words[i].outer)
            (void)take_word(p, "outer");
        if ((asof && f->join != JOIN_INNER && f->join != JOIN_LEFT) ||
            (f->natural && f->join == JOIN_CROSS))
            sql_parse_fail(p, now(p)->pos,
                           asof ? "an asof join must be inner or left"
                                : "a cross join has no condition");
    }
    if (asof)
        f->join = f->join == JOIN_LEFT ? JOIN_ASOF_LEFT : JOIN_ASOF;
    if (!found && !asof && !f->natural)
        return take_word(p, "join");
    return need_word(p, "join", "join");
}

struct from *sql_parse_from(struct parser *p)
{
    struct from *f = parse_table(p);
    uint32_t n = 0;
    while (f && !p->error) {
        struct from *both = new_from(p, now(p)->pos);
        if (!both || !parse_join_word(p, both))
            break;
        if (++n == TABLES_JOINED_MAX)
            return sql_parse_fail(p, now(p)->pos, "more than 128 tables cannot be joined");
        both->kind = FROM_JOIN;
        both->left = f;
        both->right = parse_table(p);
        parse_join_condition(p, both);
        f = both;
    }
    return p->error ? NULL : f;
}
