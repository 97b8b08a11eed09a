/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/distribute/split.c - a select that groups rows of one table of all: members group, and
 * what they send is merged.
 *
 *     select _rank, k, avg(x) + 1 from global.s.t where y > 5 and _rank < 3 group by 1, 2
 *
 * is at each member of rank 0 to 2
 *
 *     select k as __k0, avg_state(x) as __s0 from s.t where y > 5 group by 1
 *
 * and here, where `answers_1` has all of these with the tags before them,
 *
 *     select _rank, __k0 as k, avg_merge(__s0, null::double) + 1 from answers_1 group by 1, 2
 *
 * What cannot be said so is left to pull.c.  One thread.
 */
#include "core/sql/distribute/split.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "core/base/err.h"

static struct tree_memory *mem_of(const struct split *p)
{
    return &p->scope.g->mem;
}

const char *split_key(struct split *p, const struct node *n)
{
    for (uint32_t k = 0; k < p->n_keys; k++)
        if (tree_equal(p->keys[k], n))
            return p->key_names[k];
    if (p->n_keys == SPLIT_KEYS_MAX)
        return NULL;
    const char *name = global_text(p->scope.g, "__k%u", p->n_keys);
    p->keys[p->n_keys] = scope_spelled_out(&p->scope, n);
    p->key_names[p->n_keys] = name;
    if (!name || !p->keys[p->n_keys])
        return NULL;
    p->n_keys++;
    return name;
}

void split_use_tags(struct split *p, const struct node *n)
{
    bool *marks = arena_zalloc(&mem_of(p)->arena, p->scope.table->n, 1);
    p->copy.failed = p->copy.failed || !marks;
    if (marks)
        scope_mark(&p->scope, n, marks);
    for (uint32_t t = 0; t < SQL_TAGS && marks; t++)
        p->tags |= marks[t] ? 1u << t : 0;
}

/* ---- the last select's expressions ---- */

static struct node *refuse_split(struct split *p)
{
    p->copy.failed = true;
    return NULL;
}

static struct node *named_like(struct split *p, const char *name, const struct node *n)
{
    struct node *copy = name ? tree_name(mem_of(p), name) : NULL;
    if (!copy)
        return refuse_split(p);
    copy->pos = n->pos;
    copy->start = n->start;
    copy->end = n->end;
    return copy;
}

static bool gives_json(const struct node *n);

/* max(to_json(x)) and others that give one of their values. */
static bool picks_json(const struct node *n)
{
    const struct agg_kind *kind = sql_agg_find(n->text);
    return kind && !n->over && sql_agg_picks(kind->op) && n->n_args && gives_json(n->args[0]);
}

/* Is it JSON, which what members send is not by itself? */
static bool gives_json(const struct node *n)
{
    bool of_many =
        n->kind == NODE_CASE || (n->kind == NODE_CALL && strcmp(n->text, "coalesce") == 0);
    for (uint32_t i = 0; i < n->n_args && of_many; i++)
        if (gives_json(n->args[i]))
            return true;
    return n->kind == NODE_CALL && (sql_gives_json(n->text) || picks_json(n));
}

/* Is it a time that clocks show (bind_zone.c), which what members send is not by itself? */
static bool gives_clock(const struct node *n)
{
    static const char *const names[] = {"date_trunc", "date_bin", "time_bucket", "+",       "-",
                                        "round",      "greatest", "least",       "coalesce"};
    uint32_t count = 0;
    bool of_many = n->kind == NODE_CASE;
    if (n->kind == NODE_CAST)
        return n->clock;
    for (uint32_t i = 0; i < n->n_args; i++)
        count += gives_clock(n->args[i]);
    if (n->kind == NODE_CALL && strcmp(n->text, "timezone") == 0)
        return n->n_args == 2 && count == 0;
    const struct agg_kind *kind = n->kind == NODE_CALL ? sql_agg_find(n->text) : NULL;
    of_many = of_many || (kind && !n->over && sql_agg_picks(kind->op));
    for (size_t i = 0; n->kind == NODE_CALL && i < sizeof(names) / sizeof(*names); i++)
        of_many = of_many || strcmp(n->text, names[i]) == 0;
    bool apart = n->kind == NODE_CALL && strcmp(n->text, "-") == 0 && count > 1; /* an interval */
    return of_many && count > 0 && !apart;
}

/* A subquery of one table of all, all of whose names are its own. */
struct inner {
    struct sql_global *g;
    const struct select *select;
    bool own;
};

static bool is_own(void *arg, const struct node *n)
{
    struct inner *i = arg;
    const struct from *f = i->select->from;
    struct scope_of s = {i->g, i->select, f, global_table_of(i->g, f), true, false};
    if (n->kind == NODE_NAME && scope_column(&s, n) < 0 && !scope_alias(&s, n))
        i->own = false;
    if (n->select)
        i->own = false;
    return true;
}

static bool is_alone(struct split *p, const struct node *n)
{
    struct select *s = n->select;
    struct inner i = {p->scope.g, s, true};
    if (!s || s->set != SET_NONE || !s->from || n->n_args || !global_table_of(p->scope.g, s->from))
        return false;
    tree_walk_select(&(struct tree_visit){.arg = &i, .node = is_own, .ctes = s->ctes}, s);
    return i.own;
}

static struct node *as_json(struct split *p, struct node *name)
{
    struct node *call = tree_call(mem_of(p), "json", name, NULL);
    if (!call)
        return refuse_split(p);
    call->pos = name->pos;
    call->start = name->start;
    call->end = name->end;
    return call;
}

/* Turn what members send for n into what it was there. */
static struct node *as_it_was(struct split *p, struct node *name, const struct node *n, bool json)
{
    if (!name || json)
        return name ? as_json(p, name) : NULL;
    if (!gives_clock(n))
        return name;
    struct node *cast = tree_cast(mem_of(p), name, SQL_TIMESTAMP);
    if (!cast)
        return refuse_split(p);
    cast->clock = true;
    cast->pos = name->pos;
    cast->start = name->start;
    cast->end = name->end;
    return cast;
}

static struct node *replace_node(void *arg, const struct node *n)
{
    struct split *p = arg;
    if (n->select)
        return is_alone(p, n) ? (struct node *)(uintptr_t)n : refuse_split(p);
    if (n->kind == NODE_STAR)
        return refuse_split(p);
    bool value = n->kind == NODE_INT || n->kind == NODE_TEXT || n->kind == NODE_NULL;
    for (uint32_t k = 0; k < p->n_keys && !value; k++)
        if (tree_equal(p->keys[k], n)) {
            struct node *name = named_like(p, p->key_names[k], n);
            return as_it_was(p, name, n, gives_json(n));
        }
    if (n->kind == NODE_CALL && !n->over && sql_agg_find(n->text)) {
        struct node *call = split_aggregate(p, n);
        if (!call)
            return refuse_split(p);
        call->start = n->start;
        call->end = n->end;
        return as_it_was(p, call, n, picks_json(n));
    }
    if (n->kind != NODE_NAME)
        return NULL;
    int c = scope_column(&p->scope, n);
    if (c >= SQL_TAGS || (c < 0 && !scope_alias(&p->scope, n)))
        return refuse_split(p);
    p->tags |= c >= 0 ? 1u << c : 0;
    return NULL;
}

/* ---- what is grouped by ---- */

/* Members group by the whole of it, where it hangs on their columns alone, else by its columns. */
struct leaves {
    struct split *p;
    bool failed;
};

static bool add_leaf(void *arg, const struct node *n)
{
    struct leaves *l = arg;
    if (n->kind != NODE_NAME || l->failed)
        return true;
    int c = scope_column(&l->p->scope, n);
    const struct node *alias = c < 0 ? scope_alias(&l->p->scope, n) : NULL;
    if (c >= SQL_TAGS)
        l->failed = !split_key(l->p, n);
    else if (alias)
        tree_walk_node(&(struct tree_visit){.arg = l, .node = add_leaf}, alias);
    return true;
}

static bool add_group(struct split *p, const struct node *n)
{
    struct leaves l = {p, false};
    uint32_t uses = scope_uses(&p->scope, n);
    if (uses & ~(uint32_t)(USES_COLUMN | USES_TAG))
        return false;
    const struct node *alias = n->kind == NODE_NAME ? scope_alias(&p->scope, n) : NULL;
    if (uses == USES_COLUMN)
        return split_key(p, alias ? alias : n) != NULL;
    p->finer = p->finer || uses == (USES_COLUMN | USES_TAG);
    tree_walk_node(&(struct tree_visit){.arg = &l, .node = add_leaf}, n);
    return !l.failed;
}

static bool add_groups(struct split *p, bool aggregated)
{
    const struct select *s = p->scope.select;
    for (uint32_t i = 0; i < s->n_group; i++) {
        const struct node *n = s->group[i];
        bool number = n->kind == NODE_INT;
        if (number && (n->integer < 1 || n->integer > s->n_items))
            return false;
        if (!add_group(p, number ? s->items[n->integer - 1].node : n))
            return false;
    }
    /* Without group by, whatever is not aggregated is grouped by. */
    bool implied = s->group_all || (!s->n_group && !s->n_sets && !s->group_none && aggregated);
    for (uint32_t i = 0; i < s->n_items && implied; i++) {
        uint32_t uses = scope_uses(&p->scope, s->items[i].node);
        if (!(uses & (USES_AGG | USES_WINDOW)) && (uses & (USES_COLUMN | USES_TAG)) &&
            !add_group(p, s->items[i].node))
            return false;
    }
    return true;
}

/* ---- the member's select ---- */

struct asked {
    struct buf where, tags;
    struct node *tag_where; /* what is left to the last select */
};

/* false: a condition needs both, or something else. */
static bool sort_conditions(struct split *p, struct asked *a, bool *uses)
{
    struct scope_of scope = p->scope;
    struct node *list[CONJUNCTS_MAX];
    uint32_t n = scope_conjuncts(scope.select->where, list, CONJUNCTS_MAX);
    scope.no_aliases = true;
    if (n == CONJUNCTS_MAX)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t use = scope_uses(&scope, list[i]);
        if (use == USES_TAG) {
            global_add_condition(scope.g, &a->tags, list[i]);
            a->tag_where = tree_and(mem_of(p), a->tag_where, list[i]);
        } else if (use == USES_COLUMN || use == 0) {
            global_add_condition(scope.g, &a->where, list[i]);
            scope_mark(&scope, list[i], uses);
        } else {
            return false;
        }
    }
    return true;
}

static void add_member_list(struct split *p, struct buf *b)
{
    struct sql_global *g = p->scope.g;
    (void)buf_adds(b, "select ");
    for (uint32_t k = 0; k < p->n_keys; k++)
        (void)buf_addf(b, "%s%s as %s", k ? ", " : "", global_unparsed(g, p->keys[k]),
                       p->key_names[k]);
    for (uint32_t i = 0; i < p->n_states; i++)
        (void)buf_addf(b, "%s%s as %s", i || p->n_keys ? ", " : "", p->states[i].text,
                       p->states[i].name);
    if (!p->n_keys && !p->n_states)
        (void)buf_adds(b, "1 as \"__one\"");
    (void)buf_adds(b, " from ");
}

static void add_member_tail(struct split *p, const struct asked *a, const char *limit,
                            struct buf *b)
{
    if (a->where.size)
        (void)buf_addf(b, " where %s", a->where.data);
    for (uint32_t k = 0; k < p->n_keys; k++)
        (void)buf_addf(b, "%s%u", k ? ", " : " group by ", k + 1);
    if (!p->n_keys) /* who has no rows says nothing */
        (void)buf_adds(b, " group by () having count(*) > 0");
    (void)buf_adds(b, limit ? limit : "");
}

/* keys, merged states */
static void add_merged(const struct split *p, struct buf *b)
{
    for (uint32_t k = 0; k < p->n_keys; k++)
        (void)buf_addf(b, "%s%s", k ? ", " : "", p->key_names[k]);
    for (uint32_t i = 0; i < p->n_states; i++)
        (void)buf_addf(b, "%s%s as %s", i || p->n_keys ? ", " : "", p->states[i].merge,
                       p->states[i].name);
    if (!p->n_keys && !p->n_states)
        (void)buf_adds(b, "1 as \"__one\"");
}

static void add_merged_groups(const struct split *p, uint32_t tags, struct buf *b)
{
    uint32_t n = 0;
    for (uint32_t t = 0; t < SQL_TAGS; t++)
        if (tags & (1u << t))
            (void)buf_addf(b, "%s%s", n++ ? ", " : " group by ", sql_tag_names[t]);
    for (uint32_t k = 0; k < p->n_keys; k++)
        (void)buf_addf(b, "%s%s", n++ ? ", " : " group by ", p->key_names[k]);
    if (!n)
        (void)buf_adds(b, " group by () having count(*) > 0");
}

static const char *text_of(struct split *p, struct buf *b)
{
    const char *copy = b->failed ? NULL : global_text(p->scope.g, "%s", buf_text(b));
    buf_done(b);
    return copy;
}

/* select keys, merged states from answers group by keys */
static const char *merge_statement(struct split *p)
{
    struct buf b;
    buf_init(&b, SQL_TEXT_BYTES);
    (void)buf_adds(&b, "select ");
    add_merged(p, &b);
    (void)buf_adds(&b, " from answers");
    add_merged_groups(p, 0, &b);
    return text_of(p, &b);
}

/* The same on the way: each group is the first member's who has it, of those who are alike in the
 * tags that count; and of all groups the first ones go on, where that is enough. */
static const char *way_statement(struct split *p)
{
    struct buf b;
    buf_init(&b, SQL_TEXT_BYTES);
    if (p->way_limit) {
        (void)buf_adds(&b, "select " WAY_MEMBER);
        for (uint32_t k = 0; k < p->n_keys; k++)
            (void)buf_addf(&b, ", %s", p->key_names[k]);
        for (uint32_t i = 0; i < p->n_states; i++)
            (void)buf_addf(&b, ", %s", p->states[i].name);
        (void)buf_adds(&b, " from (");
    }
    (void)buf_adds(&b, "select min(" WAY_MEMBER ") as " WAY_MEMBER ", ");
    add_merged(p, &b);
    for (uint32_t i = 0; i < p->n_way_orders && p->way_limit; i++)
        (void)buf_addf(&b, ", %s as __o%u", global_unparsed(p->scope.g, p->way_orders[i]), i);
    (void)buf_adds(&b, " from answers");
    add_merged_groups(p, p->tags, &b);
    if (p->way_limit)
        (void)buf_addf(&b, ") t%s", p->way_limit);
    return text_of(p, &b);
}

static int make_part(struct split *p, const struct asked *a, const char *limit, bool *uses,
                     struct part *ret)
{
    struct sql_global *g = p->scope.g;
    struct buf before, after;
    uint32_t n = p->n_keys + p->n_states;
    buf_init(&before, SQL_TEXT_BYTES);
    buf_init(&after, SQL_TEXT_BYTES);
    add_member_list(p, &before);
    add_member_tail(p, a, limit, &after);
    for (uint32_t k = 0; k < p->n_keys; k++)
        scope_mark(&p->scope, p->keys[k], uses);
    *ret = (struct part){
        .table = p->scope.table, .uses = uses, .merge_tags = p->tags != 0, .in_order = p->ordered};
    ret->before = global_text(g, "%s", buf_text(&before));
    ret->after = global_text(g, "%s", buf_text(&after));
    ret->condition = a->tags.size ? global_text(g, "%s", a->tags.data) : NULL;
    ret->merge = merge_statement(p);
    ret->on_the_way = true;
    ret->way = p->ordered ? NULL : way_statement(p);
    ret->way_tags = ret->way ? p->tags : 0;
    ret->checks = arena_zalloc(&g->mem.arena, n ? n : 1, sizeof(*ret->checks));
    for (uint32_t i = 0; i < p->n_states && ret->checks; i++)
        ret->checks[p->n_keys + i] = p->states[i].check;
    bool failed = before.failed || after.failed || !ret->before || !ret->after || !ret->merge ||
                  !ret->checks || (!p->ordered && !ret->way) || (a->tags.size && !ret->condition);
    buf_done(&before);
    buf_done(&after);
    return failed ? global_no_memory() : 0;
}

/* ---- the select ---- */

struct rewritten {
    struct item *items;
    struct node **group;
    struct node *having, *qualify;
    struct order *order;
    uint32_t n_order;
    struct named_window *windows;
    const char *limit; /* of members; NULL: none */
};

/* order by a column of the list by its name stays as it is. */
static bool is_output(const struct select *s, const struct node *n)
{
    if (n->kind != NODE_NAME || n->parts[0])
        return n->kind == NODE_INT;
    for (uint32_t i = 0; i < s->n_items; i++) {
        const struct item *item = &s->items[i];
        const char *name = item->alias                     ? item->alias
                           : item->node->kind == NODE_NAME ? item->node->text
                                                           : NULL;
        if (name && strcasecmp(name, n->text) == 0)
            return true;
    }
    return false;
}

static struct node *rewrite_output(struct split *p, struct node *n)
{
    return is_output(p->scope.select, n) ? n : tree_copy(&p->copy, n);
}

/* A column that has no alias keeps its name. */
static struct item rewrite_item(struct split *p, const struct item *item)
{
    struct item copy = {tree_copy(&p->copy, item->node), item->alias};
    if (!copy.alias && item->node->kind == NODE_NAME)
        copy.alias = item->node->text;
    return copy;
}

static void rewrite_items(struct split *p, struct rewritten *r)
{
    const struct select *s = p->scope.select;
    struct tree_memory *mem = mem_of(p);
    r->items = arena_zalloc(&mem->arena, s->n_items, sizeof(*r->items));
    r->group = arena_zalloc(&mem->arena, s->n_group + 1, sizeof(struct node *));
    r->order = arena_zalloc(&mem->arena, s->n_order + 1, sizeof(*r->order));
    p->copy.failed = p->copy.failed || !r->items || !r->group || !r->order;
    for (uint32_t i = 0; i < s->n_items && !p->copy.failed; i++)
        r->items[i] = rewrite_item(p, &s->items[i]);
    for (uint32_t i = 0; i < s->n_group && !p->copy.failed; i++)
        r->group[i] =
            s->group[i]->kind == NODE_INT ? s->group[i] : tree_copy(&p->copy, s->group[i]);
    r->having = tree_copy(&p->copy, s->having);
    r->qualify = tree_copy(&p->copy, s->qualify);
    for (uint32_t i = 0; i < s->n_order && !p->copy.failed; i++) {
        r->order[i] = s->order[i];
        r->order[i].node = rewrite_output(p, s->order[i].node);
    }
    struct named_window **end = &r->windows;
    for (const struct named_window *w = s->windows; w && !p->copy.failed; w = w->next) {
        struct named_window *copy = arena_zalloc(&mem->arena, 1, sizeof(*copy));
        p->copy.failed = !copy;
        if (!copy)
            break;
        *copy = (struct named_window){w->name, tree_copy_window(&p->copy, w->window), NULL};
        *end = copy;
        end = &copy->next;
    }
}

/* Is it of a kind that may be split?  *ret_aggregated: it has aggregates. */
static bool is_candidate(struct split *p, bool *ret_aggregated)
{
    const struct select *s = p->scope.select;
    uint32_t uses = scope_uses(&p->scope, s->having) | scope_uses(&p->scope, s->qualify);
    if (s->n_distinct_on)
        return false;
    for (uint32_t i = 0; i < s->n_items; i++)
        uses |= scope_uses(&p->scope, s->items[i].node);
    for (uint32_t i = 0; i < s->n_order; i++)
        uses |= scope_uses(&p->scope, s->order[i].node);
    *ret_aggregated = (uses & USES_AGG) || s->having;
    return !(uses & USES_STAR) &&
           (*ret_aggregated || s->n_group || s->n_sets || s->group_all || s->group_none);
}

static int finish_select(struct split *p, struct select *s, struct asked *a, bool *uses)
{
    struct rewritten r = {.items = NULL};
    struct part part;
    rewrite_items(p, &r);
    if (p->rc < 0 || p->copy.failed || (p->finer && p->ordered))
        return p->rc;
    for (uint32_t i = 0; i < p->n_keys; i++)
        if (!p->keys[i])
            return 0;
    r.n_order = s->n_order;
    r.limit = split_limit(p, &r.order, &r.n_order);
    int rc = make_part(p, a, r.limit, uses, &part);
    if (rc == 0)
        rc = global_add_part(p->scope.g, &part, s->from);
    if (rc < 0)
        return rc;
    s->items = r.items;
    s->group = s->n_group ? r.group : s->group;
    s->having = r.having;
    s->qualify = r.qualify;
    s->order = r.n_order ? r.order : s->order;
    s->n_order = r.n_order;
    s->windows = r.windows;
    s->where = a->tag_where;
    return 1;
}

int global_split(struct sql_global *g, struct select *s)
{
    struct global_table *t = s->from ? global_table_of(g, s->from) : NULL;
    struct split *p = t ? arena_zalloc(&g->mem.arena, 1, sizeof(*p)) : NULL;
    struct asked a = {.tag_where = NULL};
    bool aggregated = false, *uses = t ? arena_zalloc(&g->mem.arena, t->n, 1) : NULL;
    int rc = 0;
    if (!t)
        return 0;
    if (!p || !uses)
        return global_no_memory();
    p->scope = (struct scope_of){g, s, s->from, t, true, false};
    p->copy = (struct tree_copy){.mem = &g->mem, .replace = replace_node, .arg = p};
    p->uses = uses;
    p->finer = s->n_sets > 0; /* totals are of many groups */
    buf_init(&a.where, SQL_TEXT_BYTES);
    buf_init(&a.tags, SQL_TEXT_BYTES);
    if (is_candidate(p, &aggregated) && sort_conditions(p, &a, uses) && add_groups(p, aggregated))
        rc = finish_select(p, s, &a, uses);
    buf_done(&a.where);
    buf_done(&a.tags);
    return rc;
}
