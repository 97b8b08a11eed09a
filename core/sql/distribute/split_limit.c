/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/distribute/split_limit.c - order by ... limit n over groups: which groups members need
 * not send.
 *
 * A group is whole only if every member that has a part of it sends that.  So the first n of each
 * member are enough in two cases:
 *
 *     by keys    in an order that hangs on what is grouped by alone: what is left of the keys is
 *                put behind it, there and here, so that no two groups are equal in it.  Where a
 *                member leaves a group out it sends n that come before it, and they do so here.
 *     by member  grouped by tags that no two members share: a group is of one member alone, and
 *                may be ordered by its aggregates.
 *
 * On the way the same n go on, of groups that are merged there, by the same order.  One thread.
 */
#include <string.h>

#include "core/sql/distribute/split.h"

struct limit {
    struct split *p;
    const struct select *s;
    struct order *order; /* of members */
    uint32_t n;
    struct order *way;            /* [split->n_way_orders] the same by names, on the way */
    bool of_keys[SPLIT_KEYS_MAX]; /* which of them are in it */
    bool by_keys;
};

/* Which tags are grouped by, as they are. */
static uint32_t grouped_tags(const struct split *p)
{
    const struct select *s = p->scope.select;
    uint32_t tags = 0;
    for (uint32_t i = 0; i < s->n_group; i++) {
        const struct node *n = s->group[i];
        if (n->kind == NODE_INT && n->integer >= 1 && n->integer <= s->n_items)
            n = s->items[n->integer - 1].node;
        const struct node *alias = n->kind == NODE_NAME ? scope_alias(&p->scope, n) : NULL;
        n = alias ? alias : n;
        int c = n->kind == NODE_NAME ? scope_column(&p->scope, n) : -1;
        tags |= c >= 0 && c < SQL_TAGS ? 1u << c : 0;
    }
    return tags;
}

static int key_of(const struct split *p, const struct node *n)
{
    for (uint32_t k = 0; k < p->n_keys; k++)
        if (tree_equal(p->keys[k], n))
            return (int)k;
    return -1;
}

/* By what it is to be ordered on the way: `n`, over merged groups. */
static void add_way(struct limit *l, const struct order *o, struct node *n)
{
    struct split *p = l->p;
    uint32_t at = p->n_way_orders;
    struct node *name = tree_name(&p->scope.g->mem, global_text(p->scope.g, "__o%u", at));
    if (!n || !name || at == SPLIT_ORDERS_MAX) {
        p->copy.failed = true;
        return;
    }
    l->way[at] = *o;
    l->way[at].node = name;
    p->way_orders[p->n_way_orders++] = n;
}

/* One of the select's; false: members cannot go by it. */
static bool take_order(struct limit *l, const struct order *o)
{
    const struct scope_of *scope = &l->p->scope;
    const struct node *n = scope_order_node(scope, o->node);
    uint32_t use = n ? scope_uses(scope, n) : USES_OTHER;
    if (use & ~(uint32_t)(USES_COLUMN | USES_AGG) && use != USES_TAG)
        return false;
    struct node *spelled = n ? scope_spelled_out(scope, n) : NULL;
    if (use == USES_TAG && spelled)
        add_way(l, o, tree_copy(&l->p->copy, spelled));
    if (use == USES_TAG || use == 0)
        return n->kind != NODE_INT; /* the same for all groups of a member */
    int key = spelled ? key_of(l->p, spelled) : -1;
    if (!spelled || (key < 0 && l->by_keys))
        return false;
    if (key >= 0)
        l->of_keys[key] = true;
    l->order[l->n] = *o;
    l->order[l->n++].node = spelled;
    add_way(l, o, tree_copy(&l->p->copy, spelled));
    return true;
}

/* The keys that are not in the order yet, behind it. */
static bool add_keys(struct limit *l, struct order **ret, uint32_t *ret_n)
{
    struct split *p = l->p;
    for (uint32_t k = 0; k < p->n_keys; k++) {
        if (l->of_keys[k])
            continue;
        struct node *name = tree_name(&p->scope.g->mem, p->key_names[k]);
        if (!name)
            return false;
        const struct order by_name = {.node = name};
        l->order[l->n++] = (struct order){.node = p->keys[k]};
        add_way(l, &by_name, name);
        (*ret)[(*ret_n)++] = (struct order){.node = name};
    }
    return true;
}

static bool has_windows(const struct split *p)
{
    uint32_t uses = 0;
    for (uint32_t i = 0; i < p->scope.select->n_items; i++)
        uses |= scope_uses(&p->scope, p->scope.select->items[i].node);
    return (uses & USES_WINDOW) || p->scope.select->windows;
}

/* Is there a limit, and nothing that would need what lies behind it?  *ret: rows. */
static bool is_limited(const struct split *p, int64_t *ret)
{
    const struct select *s = p->scope.select;
    bool fits = s->limit && s->limit->kind == NODE_INT && s->limit->integer >= 0 && !s->ties &&
                !s->order_all && !s->distinct && !s->having && !s->qualify && !p->finer &&
                p->n_keys &&
                (!s->offset || (s->offset->kind == NODE_INT && s->offset->integer >= 0));
    return fits &&
           !__builtin_add_overflow(s->limit->integer, s->offset ? s->offset->integer : 0, ret) &&
           !has_windows(p);
}

/* " order by ... limit n", NULL: no memory. */
static const char *limit_text(struct sql_global *g, const struct order *order, uint32_t n,
                              int64_t rows)
{
    struct buf b;
    struct unparser u = {.out = &b, .text = g->text, .size = g->size, .bare = true};
    buf_init(&b, SQL_TEXT_BYTES);
    if (n)
        unparse_order(&u, order, n);
    (void)buf_addf(&b, " limit %lld", (long long)rows);
    const char *text = b.failed ? NULL : global_text(g, "%s", buf_text(&b));
    buf_done(&b);
    return text;
}

/* Groups that are equal in all of it come in the order of members, as everywhere.  grouped: tags by
 * which they are; where others are needed groups are parts of groups there, and all go on. */
static void limit_way(struct limit *l, uint32_t grouped, int64_t rows)
{
    struct split *p = l->p;
    struct sql_global *g = p->scope.g;
    bool failed = p->copy.failed; /* an order that cannot be said there */
    p->copy.failed = false;
    if (!failed && (p->tags & ~grouped) == 0 &&
        (l->way[p->n_way_orders].node = tree_name(&g->mem, WAY_MEMBER)) != NULL)
        p->way_limit = limit_text(g, l->way, p->n_way_orders + 1, rows);
}

const char *split_limit(struct split *p, struct order **order, uint32_t *n_order)
{
    struct sql_global *g = p->scope.g;
    const struct select *s = p->scope.select;
    uint32_t tags = grouped_tags(p), n = *n_order;
    struct limit l = {p, s, .by_keys = !tags || !global_tags_identify(g, tags)};
    struct order *last;
    int64_t rows;
    bool fits = is_limited(p, &rows);
    l.order = fits ? arena_zalloc(&g->mem.arena, s->n_order + p->n_keys, sizeof(*l.order)) : NULL;
    l.way = l.order ? arena_zalloc(&g->mem.arena, SPLIT_ORDERS_MAX + 1, sizeof(*l.way)) : NULL;
    last = l.way ? arena_zalloc(&g->mem.arena, n + p->n_keys, sizeof(*last)) : NULL;
    if (!last)
        return NULL;
    if (n)
        memcpy(last, *order, n * sizeof(*last));
    for (uint32_t i = 0; i < s->n_order && fits; i++)
        fits = take_order(&l, &s->order[i]);
    if (!fits || (l.by_keys && !add_keys(&l, &last, &n)))
        return NULL;
    const char *text = limit_text(g, l.order, l.n, rows);
    if (text) {
        *order = last;
        *n_order = n;
        limit_way(&l, tags, rows);
    }
    return text;
}
