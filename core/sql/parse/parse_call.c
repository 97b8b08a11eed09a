/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/parse/parse_call.c - calls: arguments, order by, filter, within group, and over a
 * window.
 *
 * The query's thread only.
 */
#include "core/sql/parse/parse.h"

bool sql_parse_list(struct parser *p, struct node *n)
{
    do
        sql_parse_add(p, n, sql_parse_expr(p, 0));
    while (take_sign(p, ","));
    return need_sign(p, ")", ", or )");
}

void sql_parse_direction(struct parser *p, struct order *o)
{
    o->descending = take_word(p, "desc");
    if (!o->descending)
        (void)take_word(p, "asc");
    o->nulls_first = o->descending; /* as PostgreSQL: NULL is the largest */
    if (take_word(p, "nulls")) {
        o->nulls_first = take_word(p, "first");
        if (!o->nulls_first)
            need_word(p, "last", "first or last");
    }
}

void sql_parse_order(struct parser *p, struct order **orders, uint32_t *n)
{
    need_word(p, "by", "by after order");
    do {
        struct order o = {.node = sql_parse_expr(p, 0)};
        sql_parse_direction(p, &o);
        /* order by (a, b) desc is order by a desc, b desc */
        uint32_t parts = o.node && o.node->kind == NODE_ROW ? o.node->n_args : 1;
        for (uint32_t i = 0; i < parts && !p->error; i++) {
            struct order part = o;
            part.node = o.node && o.node->kind == NODE_ROW ? o.node->args[i] : o.node;
            *orders = sql_parse_grown(p, *orders, *n, sizeof(**orders));
            if (!p->error)
                (*orders)[(*n)++] = part;
        }
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
        w->offset[i] = sql_parse_expr(p, BIND_OTHER);
    bool before = take_word(p, "preceding");
    if (!before)
        need_word(p, "following", "preceding or following");
    if (unbounded && before == (i == 1))
        sql_parse_fail(p, now(p)->pos,
                       i ? "a frame cannot end unbounded preceding"
                         : "a frame cannot begin unbounded following");
    w->edge[i] = unbounded ? before ? FRAME_UNBOUNDED_PRECEDING : FRAME_UNBOUNDED_FOLLOWING
                 : before  ? FRAME_PRECEDING
                           : FRAME_FOLLOWING;
}

static void parse_exclude(struct parser *p, struct window_node *w)
{
    if (!take_word(p, "exclude"))
        return;
    if (take_word(p, "group")) {
        w->exclude = EXCLUDE_GROUP;
    } else if (take_word(p, "ties")) {
        w->exclude = EXCLUDE_TIES;
    } else if (take_word(p, "current")) {
        w->exclude = EXCLUDE_CURRENT;
        need_word(p, "row", "row after current");
    } else {
        need_word(p, "no", "current row, group, ties or no others");
        need_word(p, "others", "others after no");
    }
}

static void parse_frame(struct parser *p, struct window_node *w)
{
    w->mode = take_word(p, "rows")     ? FRAME_ROWS
              : take_word(p, "groups") ? FRAME_GROUPS
                                       : FRAME_RANGE;
    if (w->mode == FRAME_RANGE && !take_word(p, "range"))
        return;
    w->framed = true;
    w->edge[1] = FRAME_CURRENT;
    bool both = take_word(p, "between");
    parse_edge(p, w, 0);
    if (both) {
        need_word(p, "and", "and (between ... and ...)");
        parse_edge(p, w, 1);
    }
    if (w->edge[0] > w->edge[1])
        sql_parse_fail(p, w->pos, "a frame must not end before it begins");
    parse_exclude(p, w);
}

/* over w, over (...): the name is looked up when it is bound, its window stands further on. */
static struct window_node *parse_over(struct parser *p)
{
    if (!is_name(p))
        return sql_parse_window(p);
    struct window_node *w = sql_parse_get(p, 1, sizeof(*w));
    if (!w)
        return NULL;
    w->pos = now(p)->pos;
    w->base = take_name(p, "a window");
    return w;
}

struct window_node *sql_parse_window(struct parser *p)
{
    struct window_node *w = sql_parse_get(p, 1, sizeof(*w));
    if (!w || !need_sign(p, "(", "( or a window's name after over"))
        return NULL;
    static const char *const words[] = {"partition", "order", "rows", "range", "groups"};
    bool begins = false;
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        begins = begins || is_word(p, 0, words[i]);
    w->pos = now(p)->pos;
    if (!begins && is_name(p))
        w->base = take_name(p, "a window");
    if (take_word(p, "partition")) {
        need_word(p, "by", "by after partition");
        do {
            w->partition = sql_parse_grown(p, w->partition, w->n_partition, sizeof(*w->partition));
            struct node *n = sql_parse_expr(p, 0);
            if (p->error)
                return NULL;
            w->partition[w->n_partition++] = n;
        } while (take_sign(p, ","));
    }
    if (take_word(p, "order"))
        sql_parse_order(p, &w->order, &w->n_order);
    parse_frame(p, w);
    need_sign(p, ")", "partition by, order by, rows, range or )");
    return p->error ? NULL : w;
}

/* ignore nulls, respect nulls: before the ) or behind it */
static void parse_null_choice(struct parser *p, struct node *n)
{
    bool ignored = is_word(p, 0, "ignore");
    if (!is_word(p, 1, "nulls") || (!ignored && !is_word(p, 0, "respect")))
        return;
    n->nulls = ignored ? NULLS_IGNORED : NULLS_RESPECTED;
    p->at += 2;
}

static void parse_call_tail(struct parser *p, struct node *n)
{
    parse_null_choice(p, n);
    if (is_word(p, 0, "within")) {
        p->at++;
        need_word(p, "group", "group after within");
        need_sign(p, "(", "( after within group");
        need_word(p, "order", "order by");
        n->within = true;
        sql_parse_order(p, &n->order, &n->n_order);
        if (n->n_order > 1)
            sql_parse_fail(p, n->pos, "within group takes one expression in its order by");
        if (!p->error)
            sql_parse_add(p, n, n->order[0].node);
        need_sign(p, ")", ")");
    }
    if (is_word(p, 0, "filter") && p->tokens[p->at + 1].type == TOKEN_SIGN) {
        p->at++;
        need_sign(p, "(", "( after filter");
        need_word(p, "where", "where");
        n->filter = sql_parse_expr(p, 0);
        need_sign(p, ")", ")");
    }
    if (is_word(p, 0, "over")) {
        p->at++;
        n->over = parse_over(p);
    }
}

/* substring(x from 2 for 3): its words are commas. */
static bool take_word_comma(struct parser *p, const struct node *n)
{
    if (strncmp(n->text, "substr", 6) != 0)
        return false;
    return (n->n_args == 1 && take_word(p, "from")) || (n->n_args == 2 && take_word(p, "for"));
}

/* substring(x for 3), substring(x for 3 from 2) */
static void parse_substring_for(struct parser *p, struct node *n)
{
    struct node *from = sql_parse_node(p, NODE_INT, now(p)->pos);
    struct node *count = sql_parse_expr(p, 0);
    if (from)
        from->integer = 1;
    sql_parse_add(p, n, take_word(p, "from") ? sql_parse_expr(p, 0) : from);
    sql_parse_add(p, n, count);
}

/* trim(both 'x' from text), trim(from text); false: it is a plain call. */
static bool parse_trim(struct parser *p, struct node *n)
{
    static const char *const words[] = {"both", "leading", "trailing"};
    static const char *const names[] = {"trim", "ltrim", "rtrim"};
    int which = 0;
    while (which < 3 && !take_word(p, words[which]))
        which++;
    if (which == 3 && !is_word(p, 0, "from"))
        return false;
    n->text = names[which % 3];
    n->size = (uint32_t)strlen(n->text);
    struct node *what = is_word(p, 0, "from") ? NULL : sql_parse_expr(p, 0);
    if (take_word(p, "from") || !what) {
        sql_parse_add(p, n, sql_parse_expr(p, 0));
        if (what || take_sign(p, ","))
            sql_parse_add(p, n, what ? what : sql_parse_expr(p, 0));
    } else { /* trim(both text) */
        sql_parse_add(p, n, what);
    }
    need_sign(p, ")", ")");
    return true;
}

/* The condition in addition to the filter that is there. */
static void add_filter(struct parser *p, struct node *n, struct node *condition)
{
    if (n->filter && condition) {
        condition = sql_parse_wrap(p, NODE_AND, n->pos, condition);
        sql_parse_add(p, condition, n->filter);
    }
    n->filter = condition;
}

/* count(*) filter (where ...) */
static void become_count(struct parser *p, struct node *n, struct node *condition)
{
    n->text = "count";
    n->size = 5;
    n->star = true;
    n->n_args = 0;
    add_filter(p, n, condition);
}

/* if(x, a, b) is a case; count_if(x) is count(*) filter (where x); a statement has one now(). */
static void spell_out(struct parser *p, struct node *n)
{
    if (!p->error && n->distinct && n->n_args == 1 && n->args[0]->kind == NODE_ROW &&
        strcmp(n->text, "count") == 0) { /* rows of values are told apart by their texts */
        n->args[0]->kind = NODE_CALL;
        n->args[0]->text = "json_build_array";
        n->args[0]->size = (uint32_t)strlen(n->args[0]->text);
    }
    if (p->error || n->star || n->distinct)
        return;
    if (n->n_args == 0 && (strcmp(n->text, "transaction_timestamp") == 0 ||
                           strcmp(n->text, "statement_timestamp") == 0)) {
        n->text = "now";
        n->size = 3;
    }
    if (n->n_args == 3 && (strcmp(n->text, "if") == 0 || strcmp(n->text, "iif") == 0)) {
        n->kind = NODE_CASE;
        n->flag = true;
    }
    if (n->n_args == 1 && (strcmp(n->text, "count_if") == 0 || strcmp(n->text, "countif") == 0))
        become_count(p, n, n->args[0]);
}

struct node *sql_parse_call(struct parser *p)
{
    const struct token *name = now(p);
    struct node *n = sql_parse_node(p, NODE_CALL, name->pos);
    if (!n)
        return NULL;
    n->text = name->text;
    n->size = name->size;
    p->at += 2; /* the name and ( */
    if (strcmp(n->text, "extract") == 0 && p->tokens[p->at + 1].type == TOKEN_WORD &&
        strcmp(p->tokens[p->at + 1].text, "from") == 0) {
        n->text = "date_part";
        n->size = 9;
        sql_parse_add(p, n, sql_parse_text(p, now(p)));
        p->at += 2;
        sql_parse_add(p, n, sql_parse_expr(p, 0));
        need_sign(p, ")", ")");
        return n;
    }
    if (strcmp(n->text, "position") == 0 && !is_sign(p, ")")) { /* position('b' in 'abc') */
        n->text = "strpos";
        n->size = 6;
        struct node *what = sql_parse_expr(p, BIND_IN);
        need_word(p, "in", "in (position(x in text))");
        sql_parse_add(p, n, sql_parse_expr(p, 0));
        sql_parse_add(p, n, what);
        need_sign(p, ")", ")");
        return n;
    }
    bool trims = strcmp(n->text, "trim") == 0;
    if (trims && parse_trim(p, n))
        return n;
    if (take_sign(p, "*")) {
        n->star = true;
        need_sign(p, ")", ")");
    } else if (!take_sign(p, ")")) {
        n->distinct = take_word(p, "distinct");
        if (!n->distinct)
            (void)take_word(p, "all");
        do
            sql_parse_add(p, n, sql_parse_expr(p, 0));
        while (take_sign(p, ",") || take_word_comma(p, n));
        if (trims && n->n_args == 1 && take_word(p, "from")) { /* trim('x' from text) */
            struct node *what = n->args[0];
            n->n_args = 0;
            sql_parse_add(p, n, sql_parse_expr(p, 0));
            sql_parse_add(p, n, what);
        }
        if (strncmp(n->text, "substr", 6) == 0 && n->n_args == 1 && take_word(p, "for"))
            parse_substring_for(p, n);
        if (take_word(p, "order"))
            sql_parse_order(p, &n->order, &n->n_order);
        parse_null_choice(p, n);
        need_sign(p, ")", ", or )");
    }
    parse_call_tail(p, n);
    spell_out(p, n);
    return n;
}
