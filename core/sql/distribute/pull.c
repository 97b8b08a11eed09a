/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/distribute/pull.c - a table of all that is read row by row: which columns and rows of it
 * members send.
 *
 * The columns that the statement names anywhere; the rows that the conditions leave which hang on
 * this table alone.  Where the select has no more to it, its distinct, or its order and limit, are
 * done by each member first, and once more here.  One thread.
 */
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "core/base/err.h"
#include "core/sql/distribute/parts.h"

#define ONE_NAME "\"__one\""
#define ONE "1 as " ONE_NAME

/* ---- names in the statement ---- */

static bool note_name(void *arg, const struct node *n)
{
    struct sql_global *g = arg;
    if (n->kind != NODE_NAME || g->names_failed)
        return true;
    for (uint32_t i = 0; i < g->n_names; i++)
        if (strcasecmp(g->names[i], n->text) == 0)
            return true;
    if ((g->n_names & (g->n_names - 1)) == 0) {
        const char **more =
            arena_zalloc(&g->mem.arena, g->n_names ? 2 * (size_t)g->n_names : 1, sizeof(*more));
        g->names_failed = !more;
        if (!more)
            return true;
        if (g->n_names)
            memcpy(more, g->names, g->n_names * sizeof(*more));
        g->names = more;
    }
    g->names[g->n_names++] = n->text;
    return true;
}

/* using (a, b) names columns, and no node does. */
static void note_using(void *arg, struct from *f)
{
    for (uint32_t i = 0; f->kind == FROM_JOIN && i < f->n_columns; i++)
        (void)note_name(arg, &(struct node){.kind = NODE_NAME, .text = f->columns[i]});
}

int global_collect_names(struct sql_global *g)
{
    struct tree_visit v = {.arg = g, .node = note_name, .from = note_using};
    tree_walk_select(&v, g->st.select);
    return g->names_failed ? global_no_memory() : 0;
}

static bool is_named(const struct sql_global *g, const char *column)
{
    for (uint32_t i = 0; i < g->n_names; i++) {
        const char *other;
        uint32_t at = 0;
        if (strcasecmp(g->names[i], column) == 0)
            return true;
        while ((other = sql_other_name(g->names[i], &at)) != NULL)
            if (strcasecmp(other, column) == 0)
                return true;
    }
    return false;
}

static bool is_natural(const struct from *f)
{
    return f && f->kind == FROM_JOIN && (f->natural || is_natural(f->left) || is_natural(f->right));
}

/* Does a star of the list stand for this column of the table? */
static bool is_starred(const struct scope_of *s, const char *column)
{
    const char *name = s->from->alias ? s->from->alias : s->from->names[0];
    for (uint32_t i = 0; i < s->select->n_items; i++) {
        const struct node *n = s->select->items[i].node;
        bool excluded = false;
        if (n->kind != NODE_STAR || (n->parts[0] && strcasecmp(n->parts[0], name) != 0))
            continue;
        for (uint32_t e = 0; e < n->n_exclude && s->alone; e++)
            excluded = excluded || strcasecmp(n->exclude[e]->text, column) == 0;
        if (!excluded)
            return true;
    }
    return false;
}

/* ---- conditions ---- */

/* Is f where rows of it may be made up of NULLs, or matched by their order? */
static bool is_optional(const struct from *tree, const struct from *f, bool optional)
{
    if (tree == f)
        return optional;
    if (!tree || tree->kind != FROM_JOIN)
        return false;
    bool asof = tree->join == JOIN_ASOF || tree->join == JOIN_ASOF_LEFT,
         full = tree->join == JOIN_FULL;
    return is_optional(tree->left, f, optional || full || tree->join == JOIN_RIGHT) ||
           is_optional(tree->right, f, optional || full || asof || tree->join == JOIN_LEFT);
}

struct pushed {
    struct buf where, tags;
    bool all; /* every condition is one or the other */
};

static void push_conditions(const struct scope_of *list_scope, struct pushed *p, bool *uses)
{
    struct scope_of where = *list_scope, *s = &where;
    where.no_aliases = true;
    struct node *list[CONJUNCTS_MAX];
    uint32_t n = is_optional(s->select->from, s->from, false)
                     ? 0
                     : scope_conjuncts(s->select->where, list, CONJUNCTS_MAX);
    p->all = n < CONJUNCTS_MAX && (n > 0 || !s->select->where);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t use = scope_uses(s, list[i]);
        struct node *spelled =
            use == USES_COLUMN || use == USES_TAG ? scope_spelled_out(s, list[i]) : NULL;
        if (spelled)
            global_add_condition(s->g, use == USES_TAG ? &p->tags : &p->where, spelled);
        else
            p->all = false;
        if (spelled && use == USES_COLUMN)
            scope_mark(s, spelled, uses);
    }
}

/* ---- distinct, order and limit ---- */

static bool is_grouped(const struct scope_of *s)
{
    const struct select *l = s->select;
    uint32_t uses = scope_uses(s, l->having) | scope_uses(s, l->qualify);
    for (uint32_t i = 0; i < l->n_items; i++)
        uses |= scope_uses(s, l->items[i].node);
    for (uint32_t i = 0; i < l->n_order; i++)
        uses |= scope_uses(s, l->order[i].node);
    return l->n_group || l->n_sets || l->group_all || l->group_none || l->having || l->qualify ||
           l->n_distinct_on || (uses & (USES_AGG | USES_WINDOW | USES_SELECT | USES_OTHER));
}

static void add_order(struct unparser *u, const struct order *o)
{
    if (!u->out->size) {
        unparse_order(u, o, 1);
        return;
    }
    (void)buf_adds(u->out, ", ");
    unparse_node(u, o->node);
    (void)buf_addf(u->out, "%s nulls %s", o->descending ? " desc" : "",
                   o->nulls_first ? "first" : "last");
}

/* order by ... limit n, behind the where of members; and on the way, where tags differ. */
static void push_limit(const struct scope_of *s, struct buf *after, struct buf *way, bool *uses)
{
    const struct select *l = s->select;
    struct buf b;
    struct unparser u = {.out = &b, .text = s->g->text, .size = s->g->size, .bare = true};
    struct unparser there = {.out = way, .text = s->g->text, .size = s->g->size, .bare = true};
    bool fits = l->limit && l->limit->kind == NODE_INT && l->limit->integer >= 0 && !l->ties &&
                !l->order_all && !l->distinct && (!l->offset || l->offset->kind == NODE_INT);
    int64_t rows = 0;
    if (fits &&
        __builtin_add_overflow(l->limit->integer, l->offset ? l->offset->integer : 0, &rows))
        fits = false;
    buf_init(&b, SQL_TEXT_BYTES);
    for (uint32_t i = 0; i < l->n_order && fits; i++) {
        const struct node *n = scope_order_node(s, l->order[i].node);
        uint32_t use = n ? scope_uses(s, n) : USES_OTHER;
        struct order o = l->order[i];
        if (use == 0)
            continue;
        o.node = use == USES_COLUMN || use == USES_TAG ? scope_spelled_out(s, n) : NULL;
        fits = o.node != NULL;
        if (!fits)
            break;
        scope_mark(s, o.node, uses);
        add_order(&there, &o);
        if (use == USES_COLUMN) /* tags are the same for all rows of a member */
            add_order(&u, &o);
    }
    if (fits) {
        (void)buf_addf(after, "%s limit %lld", buf_text(&b), (long long)rows);
        (void)buf_addf(way, " limit %lld", (long long)rows);
    } else {
        buf_reset(way);
    }
    buf_done(&b);
}

/* ---- the part ---- */

static void list_columns(const struct scope_of *s, bool *uses, struct buf *ret)
{
    struct unparser u = {.out = ret};
    bool natural = is_natural(s->select->from);
    uint32_t n = 0;
    for (uint32_t c = SQL_TAGS; c < s->table->n; c++) {
        const char *name = s->table->columns[c].name;
        if (!natural && !is_named(s->g, name) && !is_starred(s, name))
            continue;
        (void)buf_adds(ret, n++ ? ", " : "");
        unparse_name(&u, name);
        uses[c] = true;
    }
    if (n == 0)
        (void)buf_adds(ret, ONE); /* there are as many rows */
}

/* ---- on the way ---- */

/* The tags that the order names; all: that the whole select does, but for conditions on tags alone,
 * which all who are asked meet. */
static int used_tags(const struct scope_of *s, bool all, uint32_t *ret)
{
    const struct select *l = s->select;
    struct node *list[CONJUNCTS_MAX];
    bool *marks = arena_zalloc(&s->g->mem.arena, s->table->n, 1);
    uint32_t n = all ? scope_conjuncts(l->where, list, CONJUNCTS_MAX) : 0;
    if (!marks)
        return global_no_memory();
    for (uint32_t i = 0; i < l->n_order; i++)
        scope_mark(s, scope_order_node(s, l->order[i].node), marks);
    for (uint32_t i = 0; i < l->n_items && all; i++) {
        scope_mark(s, l->items[i].node, marks);
        if (scope_uses(s, l->items[i].node) & USES_STAR)
            memset(marks, true, SQL_TAGS_SHOWN);
    }
    for (uint32_t i = 0; i < n; i++)
        if (scope_uses(s, list[i]) != USES_TAG)
            scope_mark(s, list[i], marks);
    if (n == CONJUNCTS_MAX || l->order_all)
        memset(marks, true, SQL_TAGS);
    *ret = 0;
    for (uint32_t t = 0; t < SQL_TAGS; t++)
        *ret |= marks[t] ? 1u << t : 0;
    return 0;
}

/* Each row once: the first member's who has it, of those who are alike in the tags that count. */
static int way_of_distinct(const struct scope_of *s, const char *columns, struct part *ret)
{
    struct sql_global *g = s->g;
    struct buf b;
    int rc = used_tags(s, /* all= */ true, &ret->way_tags);
    ret->on_the_way = rc == 0;
    if (rc < 0 || global_tags_identify(g, ret->way_tags)) {
        ret->way_tags = 0;
        return rc; /* no two members have the same row */
    }
    buf_init(&b, SQL_TEXT_BYTES);
    (void)buf_addf(&b, "select min(" WAY_MEMBER ") as " WAY_MEMBER ", %s from answers group by ",
                   columns);
    for (uint32_t t = 0; t < SQL_TAGS; t++)
        if (ret->way_tags & (1u << t))
            (void)buf_addf(&b, "%s, ", sql_tag_names[t]);
    (void)buf_adds(&b, columns);
    ret->way = b.failed ? NULL : global_text(g, "%s", buf_text(&b));
    buf_done(&b);
    return ret->way ? 0 : global_no_memory();
}

static int way_of_limit(const struct scope_of *s, const char *columns, const char *limit,
                        struct part *ret)
{
    int rc = used_tags(s, /* all= */ false, &ret->way_tags);
    ret->on_the_way = rc == 0;
    if (rc == 0)
        ret->way = global_text(s->g, "select " WAY_MEMBER ", %s from answers%s", columns, limit);
    return rc < 0 || ret->way ? rc : global_no_memory();
}

/* A column that is not pulled needs no leaving out. */
static void drop_excludes(const struct scope_of *s, const bool *uses)
{
    for (uint32_t i = 0; i < s->select->n_items && s->alone; i++) {
        struct node *n = s->select->items[i].node;
        uint32_t left = 0;
        for (uint32_t e = 0; n->kind == NODE_STAR && e < n->n_exclude; e++) {
            int c = scope_column(s, n->exclude[e]);
            if (c >= 0 && (c < SQL_TAGS || uses[c]))
                n->exclude[left++] = n->exclude[e];
        }
        n->n_exclude = left;
    }
}

int global_pull(struct sql_global *g, struct select *l, struct from *f)
{
    const struct scope_of s = {g, l, f, global_table_of(g, f), l->from == f, false};
    struct pushed p = {.all = false};
    struct buf before, after, list, way;
    bool *uses = arena_zalloc(&g->mem.arena, s.table->n, 1);
    if (!uses)
        return global_no_memory();
    buf_init(&p.where, SQL_TEXT_BYTES);
    buf_init(&p.tags, SQL_TEXT_BYTES);
    buf_init(&before, SQL_TEXT_BYTES);
    buf_init(&after, SQL_TEXT_BYTES);
    buf_init(&list, SQL_TEXT_BYTES);
    buf_init(&way, SQL_TEXT_BYTES);
    push_conditions(&s, &p, uses);
    bool plain = s.alone && !is_grouped(&s);
    list_columns(&s, uses, &list);
    (void)buf_addf(&before, "select %s%s from ", plain && l->distinct ? "distinct " : "",
                   buf_text(&list));
    drop_excludes(&s, uses);
    if (p.where.size)
        (void)buf_addf(&after, " where %s", buf_text(&p.where));
    if (plain && p.all)
        push_limit(&s, &after, &way, uses);
    struct part part = {.table = s.table, .uses = uses};
    part.before = global_text(g, "%s", buf_text(&before));
    part.after = global_text(g, "%s", buf_text(&after));
    part.condition = p.tags.size ? global_text(g, "%s", buf_text(&p.tags)) : NULL;
    const char *columns = strcmp(buf_text(&list), ONE) == 0 ? ONE_NAME : buf_text(&list);
    bool failed = p.where.failed || p.tags.failed || before.failed || after.failed || list.failed ||
                  way.failed || !part.before || !part.after;
    int rc = failed ? global_no_memory() : 0;
    if (rc == 0 && plain && l->distinct)
        rc = way_of_distinct(&s, columns, &part);
    else if (rc == 0 && way.size)
        rc = way_of_limit(&s, columns, buf_text(&way), &part);
    if (rc == 0)
        rc = global_add_part(g, &part, f);
    buf_done(&p.where);
    buf_done(&p.tags);
    buf_done(&before);
    buf_done(&after);
    buf_done(&list);
    buf_done(&way);
    return rc;
}
