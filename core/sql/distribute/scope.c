/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/distribute/scope.c - what the names in a select mean: columns and tags of a table of
 * all, aliases of its list, or something else.
 *
 * As plan/bind.c finds them: columns first, then aliases, then other names of columns.  One thread.
 */
#include <string.h>
#include <strings.h>

#include "core/sql/distribute/parts.h"

#define EXPANSIONS_MAX 16 /* aliases of aliases */

static bool is_called(const char *name, const struct node *n)
{
    return n->quoted ? strcmp(name, n->text) == 0 : strcasecmp(name, n->text) == 0;
}

static int column_named(const struct global_table *t, const char *name, bool exact)
{
    for (uint32_t c = 0; c < t->n; c++)
        if (exact ? strcmp(t->columns[c].name, name) == 0
                  : strcasecmp(t->columns[c].name, name) == 0)
            return (int)c;
    return -1;
}

static int by_other_name(const struct global_table *t, const struct node *n)
{
    const char *name;
    uint32_t at = 0;
    int found = -1;
    while (found < 0 && (name = sql_other_name(n->text, &at)) != NULL)
        found = column_named(t, name, n->quoted);
    return found;
}

/* May another table of the from have a column of this name?  What cannot be known may. */
static bool is_elsewhere(const struct scope_of *s, const struct from *f, const struct node *n)
{
    if (!f || f == s->from)
        return false;
    if (f->kind == FROM_JOIN)
        return is_elsewhere(s, f->left, n) || is_elsewhere(s, f->right, n);
    const struct global_table *t = global_table_of(s->g, f);
    return !t || column_named(t, n->text, n->quoted) >= 0 || by_other_name(t, n) >= 0;
}

static const struct node *alias_of(const struct scope_of *s, const struct node *n)
{
    for (uint32_t i = 0; i < s->select->n_items && !n->parts[0] && !s->no_aliases; i++) {
        const struct item *item = &s->select->items[i];
        if (item->alias && is_called(item->alias, n))
            return item->node;
    }
    return NULL;
}

int scope_column(const struct scope_of *s, const struct node *n)
{
    const char *name = s->from->alias ? s->from->alias : s->from->names[0];
    if (n->parts[0] && strcasecmp(n->parts[0], name) != 0)
        return -1;
    if (!n->parts[0] && !s->alone && is_elsewhere(s, s->select->from, n))
        return -1;
    int c = column_named(s->table, n->text, n->quoted);
    return c >= 0 || alias_of(s, n) ? c : by_other_name(s->table, n);
}

const struct node *scope_alias(const struct scope_of *s, const struct node *n)
{
    return scope_column(s, n) >= 0 ? NULL : alias_of(s, n);
}

const struct node *scope_order_node(const struct scope_of *s, const struct node *n)
{
    const struct select *l = s->select;
    for (uint32_t i = 0; i < l->n_items && n->kind == NODE_INT; i++)
        if (l->items[i].node->kind == NODE_STAR)
            return NULL;
    if (n->kind == NODE_INT)
        return n->integer >= 1 && n->integer <= l->n_items ? l->items[n->integer - 1].node : NULL;
    for (uint32_t i = 0; i < l->n_items && n->kind == NODE_NAME && !n->parts[0]; i++)
        if (l->items[i].alias && strcasecmp(l->items[i].alias, n->text) == 0)
            return l->items[i].node;
    return n;
}

/* ---- what hangs on what ---- */

struct use {
    const struct scope_of *s;
    uint32_t found;
    bool *marks; /* of columns; may be NULL */
    uint32_t depth;
};

static bool note_use(void *arg, const struct node *n);

static void look_at(struct use *u, const struct node *n)
{
    tree_walk_node(&(struct tree_visit){.arg = u, .node = note_use}, n);
}

static void note_name(struct use *u, const struct node *n)
{
    int c = scope_column(u->s, n);
    const struct node *alias = c < 0 ? scope_alias(u->s, n) : NULL;
    if (c >= 0 && u->marks)
        u->marks[c] = true;
    if (c >= 0) {
        u->found |= c < SQL_TAGS ? USES_TAG : USES_COLUMN;
    } else if (alias && u->depth < EXPANSIONS_MAX) {
        u->depth++;
        look_at(u, alias);
        u->depth--;
    } else {
        u->found |= USES_OTHER;
    }
}

static bool note_use(void *arg, const struct node *n)
{
    struct use *u = arg;
    if (n->kind == NODE_NAME)
        note_name(u, n);
    if (n->kind == NODE_STAR)
        u->found |= USES_STAR;
    if (n->kind == NODE_CALL && n->over)
        u->found |= USES_WINDOW;
    else if (n->kind == NODE_CALL && sql_agg_find(n->text))
        u->found |= USES_AGG;
    if (n->select)
        u->found |= USES_SELECT;
    return true;
}

uint32_t scope_uses(const struct scope_of *s, const struct node *n)
{
    struct use u = {.s = s};
    if (n)
        look_at(&u, n);
    return u.found;
}

void scope_mark(const struct scope_of *s, const struct node *n, bool *uses)
{
    struct use u = {.s = s, .marks = uses};
    if (n)
        look_at(&u, n);
}

/* ---- as members see it ---- */

struct spelling {
    const struct scope_of *s;
    struct tree_copy copy;
    uint32_t depth;
};

static struct node *spell_column(void *arg, const struct node *n)
{
    struct spelling *p = arg;
    const struct node *alias = n->kind == NODE_NAME ? scope_alias(p->s, n) : NULL;
    if (!alias)
        return NULL;
    if (p->depth == EXPANSIONS_MAX) {
        p->copy.failed = true;
        return NULL;
    }
    p->depth++;
    struct node *copy = tree_copy(&p->copy, alias);
    p->depth--;
    return copy;
}

struct node *scope_spelled_out(const struct scope_of *s, const struct node *n)
{
    struct spelling p = {.s = s, .copy = {.mem = &s->g->mem, .replace = spell_column, .arg = &p}};
    return tree_copy(&p.copy, n);
}

uint32_t scope_conjuncts(struct node *where, struct node **ret, uint32_t max)
{
    uint32_t n = 0;
    if (!where || max == 0)
        return 0;
    if (where->kind != NODE_AND) {
        ret[0] = where;
        return 1;
    }
    for (uint32_t i = 0; i < where->n_args; i++)
        n += scope_conjuncts(where->args[i], ret + n, max - n);
    return n;
}
