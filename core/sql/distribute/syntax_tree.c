/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/distribute/syntax_tree.c - walking, comparing and copying parsed statements.
 *
 * One thread.
 */
#include "core/sql/distribute/syntax_tree.h"

#include <string.h>
#include <strings.h>

/* ---- walking ---- */

static void walk_nodes(struct tree_visit *v, struct node *const *nodes, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        tree_walk_node(v, nodes[i]);
}

static void walk_orders(struct tree_visit *v, const struct order *o, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        tree_walk_node(v, o[i].node);
}

static void walk_window(struct tree_visit *v, const struct window_node *w)
{
    walk_nodes(v, w->partition, w->n_partition);
    walk_orders(v, w->order, w->n_order);
    walk_nodes(v, w->offset, 2);
}

void tree_walk_node(struct tree_visit *v, const struct node *n)
{
    if (!n || (v->node && !v->node(v->arg, n)))
        return;
    walk_nodes(v, n->args, n->n_args);
    tree_walk_node(v, n->filter);
    if (!n->within)
        walk_orders(v, n->order, n->n_order);
    if (n->over)
        walk_window(v, n->over);
    if (n->select)
        tree_walk_select(v, n->select);
}

void tree_walk_from(struct tree_visit *v, struct from *f)
{
    if (!f)
        return;
    if (v->from)
        v->from(v->arg, f);
    if (f->kind == FROM_SELECT)
        tree_walk_select(v, f->select);
    if (f->kind == FROM_CALL)
        tree_walk_node(v, f->call);
    if (f->kind != FROM_JOIN)
        return;
    tree_walk_from(v, f->left);
    tree_walk_from(v, f->right);
    tree_walk_node(v, f->on);
}

static void walk_ctes(struct tree_visit *v, const struct cte *c, const struct cte *end)
{
    if (!c || c == end)
        return;
    walk_ctes(v, c->next, end);
    v->ctes = c->recursive ? c : c->next;
    tree_walk_select(v, c->select);
}

void tree_walk_select(struct tree_visit *v, struct select *s)
{
    if (!s)
        return;
    const struct cte *outer = v->ctes;
    if (v->select)
        v->select(v->arg, s);
    if (s->ctes)
        walk_ctes(v, s->ctes, outer);
    v->ctes = s->ctes ? s->ctes : outer;
    tree_walk_select(v, s->left);
    tree_walk_select(v, s->right);
    walk_nodes(v, s->rows, s->n_rows);
    walk_nodes(v, s->distinct_on, s->n_distinct_on);
    for (uint32_t i = 0; i < s->n_items; i++)
        tree_walk_node(v, s->items[i].node);
    tree_walk_from(v, s->from);
    tree_walk_node(v, s->where);
    walk_nodes(v, s->group, s->n_group);
    tree_walk_node(v, s->having);
    for (const struct named_window *w = s->windows; w; w = w->next)
        walk_window(v, w->window);
    tree_walk_node(v, s->qualify);
    walk_orders(v, s->order, s->n_order);
    v->ctes = outer;
}

/* ---- copying ---- */

static struct node **copy_nodes(struct tree_copy *c, struct node *const *nodes, uint32_t n)
{
    struct node **copy = arena_zalloc(&c->mem->arena, n ? n : 1, sizeof(struct node *));
    c->failed = c->failed || !copy;
    c->mem->failed = c->mem->failed || !copy;
    for (uint32_t i = 0; i < n && !c->failed; i++)
        copy[i] = tree_copy(c, nodes[i]);
    return copy;
}

struct order *tree_copy_order(struct tree_copy *c, const struct order *o, uint32_t n)
{
    struct order *copy = arena_zalloc(&c->mem->arena, n ? n : 1, sizeof(*copy));
    c->failed = c->failed || !copy;
    c->mem->failed = c->mem->failed || !copy;
    for (uint32_t i = 0; i < n && !c->failed; i++) {
        copy[i] = o[i];
        copy[i].node = tree_copy(c, o[i].node);
    }
    return copy;
}

struct window_node *tree_copy_window(struct tree_copy *c, const struct window_node *w)
{
    struct window_node *copy = arena_zalloc(&c->mem->arena, 1, sizeof(*copy));
    c->failed = c->failed || !copy;
    c->mem->failed = c->mem->failed || !copy;
    if (c->failed)
        return NULL;
    *copy = *w;
    copy->partition = copy_nodes(c, w->partition, w->n_partition);
    copy->order = tree_copy_order(c, w->order, w->n_order);
    for (int i = 0; i < 2; i++)
        copy->offset[i] = w->offset[i] ? tree_copy(c, w->offset[i]) : NULL;
    return copy;
}

struct node *tree_copy(struct tree_copy *c, const struct node *n)
{
    struct node *copy = !n || c->failed ? NULL : c->replace(c->arg, n);
    if (!n || c->failed || copy)
        return c->failed ? NULL : copy;
    copy = arena_zalloc(&c->mem->arena, 1, sizeof(*copy));
    c->failed = !copy;
    c->mem->failed = c->mem->failed || !copy;
    if (!copy)
        return NULL;
    *copy = *n;
    copy->args = copy_nodes(c, n->args, n->n_args);
    copy->filter = tree_copy(c, n->filter);
    copy->order = n->order ? tree_copy_order(c, n->order, n->n_order) : NULL;
    copy->over = n->over ? tree_copy_window(c, n->over) : NULL;
    return c->failed ? NULL : copy;
}

/* ---- comparing ---- */

static bool equal_nodes(struct node *const *a, struct node *const *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!tree_equal(a[i], b[i]))
            return false;
    return true;
}

bool tree_equal(const struct node *a, const struct node *b)
{
    if (!a || !b || a == b)
        return a == b;
    if (a->kind != b->kind || a->n_args != b->n_args || a->flag != b->flag ||
        a->negated != b->negated || a->select || b->select || a->over || b->over || a->n_order ||
        b->n_order || a->filter || b->filter || a->star != b->star || a->distinct != b->distinct ||
        a->nulls != b->nulls)
        return false;
    switch (a->kind) {
    case NODE_NAME:
        return strcasecmp(a->text, b->text) == 0 && (!a->quoted || strcmp(a->text, b->text) == 0);
    case NODE_TEXT:
        return a->size == b->size && memcmp(a->text, b->text, a->size) == 0;
    case NODE_INT:
        return a->integer == b->integer;
    case NODE_DOUBLE:
        return memcmp(&a->number, &b->number, sizeof(a->number)) == 0;
    case NODE_CALL:
        return strcmp(a->text, b->text) == 0 && equal_nodes(a->args, b->args, a->n_args);
    case NODE_CAST:
        return a->cast == b->cast && a->clock == b->clock &&
               equal_nodes(a->args, b->args, a->n_args);
    case NODE_STAR:
        return false;
    case NODE_NULL:
    case NODE_BOOL:
    case NODE_NOT:
    case NODE_AND:
    case NODE_OR:
    case NODE_CASE:
    case NODE_IN:
    case NODE_IN_SELECT:
    case NODE_EXISTS:
    case NODE_SELECT:
    case NODE_IS_NULL:
    case NODE_ROW:
        break;
    }
    return equal_nodes(a->args, b->args, a->n_args);
}

/* ---- new nodes ---- */

static struct node *new_node(struct tree_memory *mem, enum node_kind kind, uint32_t n_args)
{
    struct node *n = arena_zalloc(&mem->arena, 1, sizeof(*n));
    struct node **args = arena_zalloc(&mem->arena, n_args ? n_args : 1, sizeof(struct node *));
    mem->failed = mem->failed || !n || !args;
    if (!n || !args)
        return NULL;
    *n = (struct node){.kind = kind, .depth = 1, .args = args, .n_args = n_args};
    return n;
}

struct node *tree_name(struct tree_memory *mem, const char *name)
{
    struct node *n = name ? new_node(mem, NODE_NAME, 0) : NULL;
    if (n) {
        n->text = name;
        n->size = (uint32_t)strlen(name);
    }
    return n;
}

struct node *tree_int(struct tree_memory *mem, int64_t value)
{
    struct node *n = new_node(mem, NODE_INT, 0);
    if (n)
        n->integer = value;
    return n;
}

struct node *tree_text(struct tree_memory *mem, const char *text)
{
    struct node *n = tree_name(mem, text);
    if (n)
        n->kind = NODE_TEXT;
    return n;
}

struct node *tree_cast(struct tree_memory *mem, struct node *x, enum sql_type type)
{
    struct node *n = x ? new_node(mem, NODE_CAST, 1) : NULL;
    if (n) {
        n->args[0] = x;
        n->cast = type;
    }
    return n;
}

struct node *tree_call(struct tree_memory *mem, const char *name, struct node *a, struct node *b)
{
    struct node *n = name ? new_node(mem, NODE_CALL, b ? 2 : a ? 1 : 0) : NULL;
    if (!n)
        return NULL;
    n->text = name;
    n->size = (uint32_t)strlen(name);
    if (a)
        n->args[0] = a;
    if (b)
        n->args[1] = b;
    return n;
}

struct node *tree_and(struct tree_memory *mem, struct node *a, struct node *b)
{
    if (!a || !b)
        return a ? a : b;
    struct node *n = new_node(mem, NODE_AND, 2);
    if (n) {
        n->args[0] = a;
        n->args[1] = b;
    }
    return n;
}
