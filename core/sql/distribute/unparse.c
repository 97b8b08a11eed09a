/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/distribute/unparse.c - selects written back as SQL: lists, from, sets, with.
 *
 * One thread.
 */
#include "core/sql/distribute/unparse.h"

#include <string.h>

#define NAME_BYTES 128 /* of a column without an alias: plan_list.c cuts it there, too */

void unparse_written(const struct unparser *u, const struct node *n, char *ret, size_t size)
{
    size_t at = 0;
    for (uint32_t i = n->start; i < n->end && i < u->size && at + 1 < size; i++) {
        char c = u->text[i];
        bool blank = c == ' ' || c == '\n' || c == '\t' || c == '\r';
        if (blank && at && ret[at - 1] == ' ')
            continue;
        ret[at++] = blank ? ' ' : c;
    }
    while (at && ((unsigned char)ret[at - 1] & 0xc0) == 0x80 && at + 1 == size)
        at--; /* cut inside a character */
    ret[at] = '\0';
}

static void add_names(struct unparser *u, const char *const *names, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        (void)buf_adds(u->out, i ? ", " : " (");
        unparse_name(u, names[i]);
    }
    if (n)
        (void)buf_addc(u->out, ')');
}

static void add_item(struct unparser *u, const struct item *item)
{
    char name[NAME_BYTES];
    unparse_node(u, item->node);
    if (item->node->kind == NODE_STAR || (!item->alias && item->node->kind == NODE_NAME))
        return;
    unparse_written(u, item->node, name, sizeof(name));
    if (!item->alias && !name[0])
        return;
    (void)buf_adds(u->out, " as ");
    unparse_name(u, item->alias ? item->alias : name);
}

static void add_items(struct unparser *u, const struct select *s)
{
    (void)buf_adds(u->out, "select ");
    if (s->distinct)
        (void)buf_adds(u->out, "distinct ");
    for (uint32_t i = 0; i < s->n_distinct_on; i++) {
        (void)buf_adds(u->out, i ? ", " : "distinct on (");
        unparse_node(u, s->distinct_on[i]);
    }
    if (s->n_distinct_on)
        (void)buf_adds(u->out, ") ");
    for (uint32_t i = 0; i < s->n_items && !u->out->failed; i++) {
        if (i)
            (void)buf_adds(u->out, ", ");
        add_item(u, &s->items[i]);
    }
}

static void add_clause(struct unparser *u, const char *word, const struct node *n)
{
    if (!n)
        return;
    (void)buf_adds(u->out, word);
    unparse_node(u, n);
}

/* ---- from ---- */

static void add_source(struct unparser *u, const struct from *f)
{
    switch (f->kind) {
    case FROM_TABLE:
        for (int i = 2; i >= 0; i--) {
            if (!f->names[i])
                continue;
            unparse_name(u, f->names[i]);
            (void)buf_adds(u->out, i ? "." : "");
        }
        return;
    case FROM_SELECT:
        (void)buf_adds(u->out, f->lateral ? "lateral (" : "(");
        unparse_select(u, f->select);
        (void)buf_addc(u->out, ')');
        return;
    case FROM_CALL:
        unparse_node(u, f->call); /* it sees what stands left of it anyway */
        return;
    case FROM_JOIN:
        (void)buf_addc(u->out, '(');
        unparse_from(u, f);
        (void)buf_addc(u->out, ')');
        return;
    }
}

static void add_one(struct unparser *u, const struct from *f)
{
    add_source(u, f);
    if (!f->alias)
        return;
    (void)buf_adds(u->out, " as ");
    unparse_name(u, f->alias);
    add_names(u, f->aliases, f->n_aliases);
}

void unparse_from(struct unparser *u, const struct from *f)
{
    static const char *const words[] = {[JOIN_INNER] = "join",
                                        [JOIN_LEFT] = "left join",
                                        [JOIN_RIGHT] = "right join",
                                        [JOIN_FULL] = "full join",
                                        [JOIN_CROSS] = "cross join",
                                        [JOIN_ASOF] = "asof join",
                                        [JOIN_ASOF_LEFT] = "asof left join"};
    if (f->kind != FROM_JOIN) {
        add_one(u, f);
        return;
    }
    if (f->left->kind == FROM_JOIN && !f->left->alias)
        unparse_from(u, f->left);
    else
        add_one(u, f->left);
    (void)buf_addf(u->out, "%s %s ", f->natural ? " natural" : "", words[f->join]);
    add_one(u, f->right);
    add_clause(u, " on ", f->on);
    if (f->n_columns)
        (void)buf_adds(u->out, " using");
    add_names(u, f->columns, f->n_columns);
}

/* ---- selects ---- */

static void add_set_keys(struct unparser *u, const struct select *s, uint64_t set)
{
    bool more = false;
    for (uint32_t k = 0; k < s->n_group && !u->out->failed; k++) {
        if (!(set >> k & 1))
            continue;
        (void)buf_adds(u->out, more ? ", " : "");
        unparse_node(u, s->group[k]);
        more = true;
    }
}

static void add_group(struct unparser *u, const struct select *s)
{
    if (s->group_all || s->group_none)
        (void)buf_adds(u->out, s->group_all ? " group by all" : " group by ()");
    for (uint32_t i = 0; i < s->n_group && !s->n_sets && !u->out->failed; i++) {
        (void)buf_adds(u->out, i ? ", " : " group by ");
        unparse_node(u, s->group[i]);
    }
    for (uint32_t i = 0; i < s->n_sets && !u->out->failed; i++) {
        (void)buf_adds(u->out, i                  ? "), ("
                               : s->sets_distinct ? " group by distinct grouping sets (("
                                                  : " group by grouping sets ((");
        add_set_keys(u, s, s->sets[i]);
    }
    (void)buf_adds(u->out, s->n_sets ? "))" : "");
}

/* The list has the newest first. */
static void add_windows(struct unparser *u, const struct named_window *w)
{
    if (!w)
        return;
    add_windows(u, w->next);
    (void)buf_adds(u->out, w->next ? ", " : " window ");
    unparse_name(u, w->name);
    (void)buf_adds(u->out, " as ");
    unparse_window(u, w->window);
}

static void add_core(struct unparser *u, const struct select *s)
{
    add_items(u, s);
    if (s->from) {
        (void)buf_adds(u->out, " from ");
        unparse_from(u, s->from);
    }
    add_clause(u, " where ", s->where);
    add_group(u, s);
    add_clause(u, " having ", s->having);
    add_windows(u, s->windows);
    add_clause(u, " qualify ", s->qualify);
}

static void add_values(struct unparser *u, const struct select *s)
{
    for (uint32_t i = 0; i < s->n_rows && !u->out->failed; i++) {
        (void)buf_adds(u->out, i ? ", (" : "values (");
        for (uint32_t c = 0; c < s->rows[i]->n_args; c++) {
            (void)buf_adds(u->out, c ? ", " : "");
            unparse_node(u, s->rows[i]->args[c]);
        }
        (void)buf_addc(u->out, ')');
    }
}

/* May it stand left of such a set without parentheses?  Then it does: in (...) and from (...) take
 * what begins with a word. */
static bool is_plain_left(const struct select *left, enum set_kind set, const struct cte *ctes)
{
    bool set_first = left->set == SET_UNION || left->set == SET_EXCEPT;
    return !left->n_order && !left->order_all && !left->limit && !left->offset &&
           (!left->ctes || left->ctes == ctes) && !(set_first && set == SET_INTERSECT);
}

static void add_set(struct unparser *u, const struct select *s)
{
    bool plain = is_plain_left(s->left, s->set, u->ctes);
    (void)buf_adds(u->out, plain ? "" : "(");
    unparse_select(u, s->left);
    (void)buf_addf(u->out, plain ? " %s%s (" : ") %s%s (",
                   s->set == SET_UNION       ? "union"
                   : s->set == SET_INTERSECT ? "intersect"
                                             : "except",
                   s->all ? " all" : "");
    unparse_select(u, s->right);
    (void)buf_addc(u->out, ')');
}

/* A select sees those of the selects around it, too: they have been written there. */
static bool add_ctes(struct unparser *u, const struct cte *c, const struct cte *end, bool recursive)
{
    if (!c || c == end)
        return false;
    bool more = add_ctes(u, c->next, end, recursive);
    const struct cte *outer = u->ctes;
    (void)buf_adds(u->out, more ? ", " : recursive ? "with recursive " : "with ");
    unparse_name(u, c->name);
    add_names(u, c->columns, c->n_columns);
    (void)buf_adds(u->out, " as (");
    u->ctes = c->recursive ? c : c->next;
    unparse_select(u, c->select);
    u->ctes = outer;
    (void)buf_addc(u->out, ')');
    return true;
}

static void add_order(struct unparser *u, const struct select *s)
{
    if (s->order_all)
        (void)buf_addf(u->out, " order by all%s nulls %s", s->order->descending ? " desc" : "",
                       s->order->nulls_first ? "first" : "last");
    else
        unparse_order(u, s->order, s->n_order);
    if (!s->ties)
        add_clause(u, " limit ", s->limit);
    add_clause(u, " offset ", s->offset);
    if (s->ties) {
        add_clause(u, " fetch first (", s->limit);
        (void)buf_adds(u->out, ") rows with ties");
    }
}

void unparse_select(struct unparser *u, const struct select *s)
{
    const struct cte *outer = u->ctes;
    bool recursive = false;
    if (u->out->failed)
        return;
    for (const struct cte *c = s->ctes; c && c != outer; c = c->next)
        recursive = recursive || c->recursive;
    if (s->ctes && add_ctes(u, s->ctes, outer, recursive))
        (void)buf_addc(u->out, ' ');
    u->ctes = s->ctes ? s->ctes : outer;
    switch (s->set) {
    case SET_NONE:
        add_core(u, s);
        break;
    case SET_VALUES:
        add_values(u, s);
        break;
    case SET_UNION:
    case SET_INTERSECT:
    case SET_EXCEPT:
        add_set(u, s);
        break;
    }
    add_order(u, s);
    u->ctes = outer;
}
