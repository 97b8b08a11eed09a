/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/distribute/colocate.c - joins of tables of all whose rows meet only within one member:
 * each member joins its own.
 *
 *     select a._rank, count(*), sum(b.y) from global.s.a a join global.s.b b
 *     on a._rank = b._rank and a.k = b.k where a.x > 5 group by 1
 *
 * becomes a select from one table of all, which a member makes as
 *
 *     (select b.y as __j1_7 from s.a as a join s.b as b on a.k = b.k where a.x > 5)
 *
 * and which is then split or pulled as any other.  That is so where each table is tied to one
 * before it by tags that say which member it is, and by a column, too: a member never makes all
 * pairs.  What is optional (left join) may not be asked for its tags.  One thread.
 */
#include <string.h>
#include <strings.h>

#include "core/sql/distribute/parts.h"

#define LEAVES_MAX 8

struct leaf {
    struct from *from;
    struct global_table *table;
    bool optional; /* its rows may be made up of NULLs */
    bool *uses;    /* columns that conditions need */
};

struct global_join {
    struct from *from; /* as members run it */
    struct node *where;
    struct leaf leaves[LEAVES_MAX];
    uint32_t n;
};

struct colocate {
    struct sql_global *g;
    struct select *s;
    struct global_join *join;
    struct global_table *table; /* of the joined rows */
    struct tree_copy copy;
    bool inside;     /* for members: names of leaves stay */
    bool no_aliases; /* in where and on those of the list do not count */
};

/* ---- names ---- */

static const char *name_of(const struct from *f)
{
    return f->alias ? f->alias : f->names[0];
}

static int column_of(const struct colocate *c, uint32_t leaf, const struct node *n)
{
    const struct leaf *l = &c->join->leaves[leaf];
    const struct scope_of s = {c->g, c->s, l->from, l->table, false, c->no_aliases};
    return scope_column(&s, n);
}

static bool is_using(const struct from *f, const char *name)
{
    if (!f || f->kind != FROM_JOIN)
        return false;
    for (uint32_t i = 0; i < f->n_columns; i++)
        if (strcasecmp(f->columns[i], name) == 0)
            return true;
    return is_using(f->left, name);
}

/* Which leaf's column is it?  Of using (x) that of the first that has it.  -1: of none. */
static int resolve_column(const struct colocate *c, const struct node *n, uint32_t *ret_leaf)
{
    struct node named = *n;
    bool first = !n->parts[0] && is_using(c->s->from, n->text);
    for (uint32_t i = 0; i < c->join->n; i++) {
        named.parts[0] = first ? name_of(c->join->leaves[i].from) : n->parts[0];
        int column = column_of(c, i, &named);
        if (column >= 0) {
            *ret_leaf = i;
            return column;
        }
    }
    return -1;
}

/* ---- what can be joined so ---- */

static bool add_leaf(struct colocate *c, struct from *f, bool optional)
{
    struct global_join *j = c->join;
    struct global_table *t = f->kind == FROM_TABLE ? global_table_of(c->g, f) : NULL;
    if (!t || t->join || j->n == LEAVES_MAX)
        return false;
    for (uint32_t i = 0; i < j->n; i++)
        if (strcasecmp(name_of(j->leaves[i].from), name_of(f)) == 0)
            return false;
    j->leaves[j->n] = (struct leaf){f, t, optional, arena_zalloc(&c->g->mem.arena, t->n, 1)};
    return j->leaves[j->n++].uses != NULL;
}

/* a join b join c ...: from the left, inner ones and what lies to the right of left ones. */
static bool add_leaves(struct colocate *c, struct from *f)
{
    if (f->kind != FROM_JOIN)
        return add_leaf(c, f, false);
    bool known = f->join == JOIN_INNER || f->join == JOIN_LEFT || f->join == JOIN_CROSS ||
                 f->join == JOIN_ASOF || f->join == JOIN_ASOF_LEFT;
    return known && !f->natural && !f->alias && add_leaves(c, f->left) &&
           add_leaf(c, f->right, f->join == JOIN_LEFT || f->join == JOIN_ASOF_LEFT);
}

struct look {
    const struct colocate *c;
    bool bad; /* a star, a select: what it means hangs on the from as it is */
    bool tags, others;
    uint32_t leaves;
};

static bool look_at(void *arg, const struct node *n)
{
    struct look *l = arg;
    uint32_t leaf;
    l->bad = l->bad || n->kind == NODE_STAR || n->select;
    if (n->kind == NODE_CALL && (n->over || sql_agg_find(n->text)))
        l->others = true;
    if (n->kind != NODE_NAME)
        return true;
    int column = resolve_column(l->c, n, &leaf);
    if (column < 0) {
        l->others = true;
        return true;
    }
    l->leaves |= 1u << leaf;
    l->tags = l->tags || column < SQL_TAGS;
    if (column < SQL_TAGS && l->c->join->leaves[leaf].optional)
        l->bad = true;
    return true;
}

static struct look look_into(const struct colocate *c, const struct node *n)
{
    struct look l = {.c = c};
    if (n)
        tree_walk_node(&(struct tree_visit){.arg = &l, .node = look_at}, n);
    return l;
}

/* a = b, of the leaf and one before it that is always there: 1: a tag, which is set in *tags; 2: a
 * column; 0: neither. */
static int tie_leaf(const struct colocate *c, uint32_t leaf, const struct node *n, uint32_t *tags)
{
    uint32_t a, b;
    if (n->kind != NODE_CALL || strcmp(n->text, "=") != 0 || n->n_args != 2 ||
        n->args[0]->kind != NODE_NAME || n->args[1]->kind != NODE_NAME)
        return 0;
    int x = resolve_column(c, n->args[0], &a), y = resolve_column(c, n->args[1], &b);
    if (x < 0 || y < 0 || (a > b ? a : b) != leaf || a == b)
        return 0;
    if (x >= SQL_TAGS && y >= SQL_TAGS)
        return 2;
    if (x != y || c->join->leaves[a < b ? a : b].optional)
        return 0;
    *tags |= 1u << x;
    return 1;
}

struct ties {
    uint32_t tags;
    bool column;
    struct node *on; /* what is left for members */
};

static bool take_condition(struct colocate *c, const struct from *f, uint32_t leaf, struct node *n,
                           struct ties *t)
{
    int what = tie_leaf(c, leaf, n, &t->tags);
    bool asof = f->join == JOIN_ASOF || f->join == JOIN_ASOF_LEFT;
    struct look l = look_into(c, n);
    t->column = t->column || what == 2 || (asof && what == 0);
    if (what == 1)
        return true;
    if (l.bad || l.tags || l.others)
        return false;
    t->on = tree_and(&c->g->mem, t->on, n);
    return t->on != NULL;
}

/* using (x): the first leaf that has it, and this one. */
static struct node *using_condition(struct colocate *c, uint32_t leaf, const char *name)
{
    struct tree_memory *mem = &c->g->mem;
    struct node *a = tree_name(mem, name), *b = tree_name(mem, name);
    if (!a || !b)
        return NULL;
    for (uint32_t i = 0; i < leaf && !a->parts[0]; i++) {
        struct node named = *a;
        named.parts[0] = name_of(c->join->leaves[i].from);
        if (column_of(c, i, &named) >= 0)
            a->parts[0] = named.parts[0];
    }
    b->parts[0] = name_of(c->join->leaves[leaf].from);
    return a->parts[0] ? tree_call(mem, "=", a, b) : NULL;
}

/* Is this join, whose right side is the leaf, tied?  t->on: what members need. */
static bool take_join(struct colocate *c, const struct from *f, uint32_t leaf, struct ties *t)
{
    struct node *list[CONJUNCTS_MAX];
    uint32_t n = scope_conjuncts(f->on, list, CONJUNCTS_MAX);
    bool fits = n < CONJUNCTS_MAX && !(f->n_columns && f->join >= JOIN_ASOF);
    for (uint32_t i = 0; i < n && fits; i++)
        fits = take_condition(c, f, leaf, list[i], t);
    for (uint32_t i = 0; i < f->n_columns && fits; i++) {
        struct node *equal = using_condition(c, leaf, f->columns[i]);
        fits = equal && take_condition(c, f, leaf, equal, t);
    }
    bool inner = f->join == JOIN_INNER || f->join == JOIN_CROSS;
    n = fits && inner ? scope_conjuncts(c->s->where, list, CONJUNCTS_MAX) : 0;
    for (uint32_t i = 0; i < n; i++)
        t->column = tie_leaf(c, leaf, list[i], &t->tags) == 2 || t->column;
    return fits && t->column && t->tags && global_tags_identify(c->g, t->tags);
}

/* ---- what members run ---- */

static struct node *rename_column(void *arg, const struct node *n)
{
    struct colocate *c = arg;
    uint32_t leaf;
    int column = n->kind == NODE_NAME ? resolve_column(c, n, &leaf) : -1;
    if (column < 0)
        return NULL;
    const struct leaf *l = &c->join->leaves[leaf];
    const char *name = c->inside || column < SQL_TAGS ? l->table->columns[column].name
                                                      : global_text(c->g, "__j%u_%d", leaf, column);
    struct node *copy = name ? tree_name(&c->g->mem, name) : NULL;
    c->copy.failed = c->copy.failed || !copy;
    if (!copy)
        return NULL;
    copy->pos = n->pos;
    copy->start = n->start;
    copy->end = n->end;
    if (!c->inside)
        return copy;
    l->uses[column] = true;
    copy->quoted = true;
    copy->parts[0] = name_of(l->from);
    return copy;
}

static struct node *split_inside(struct colocate *c, const struct node *n)
{
    c->inside = true;
    struct node *copy = n ? tree_copy(&c->copy, n) : NULL;
    c->inside = false;
    return copy;
}

/* The tree for members; *leaf counts. */
static struct from *copy_joins(struct colocate *c, struct from *f, uint32_t *leaf)
{
    struct from *copy = arena_zalloc(&c->g->mem.arena, 1, sizeof(*copy));
    struct ties t = {.tags = 0};
    if (!copy || f->kind != FROM_JOIN)
        return copy ? f : NULL;
    *copy = *f;
    copy->left = copy_joins(c, f->left, leaf);
    ++*leaf;
    if (!copy->left || !take_join(c, f, *leaf, &t))
        return NULL;
    copy->columns = NULL;
    copy->n_columns = 0;
    copy->on = split_inside(c, t.on);
    if (copy->join == JOIN_CROSS && copy->on)
        copy->join = JOIN_INNER;
    else if (copy->join == JOIN_INNER && !copy->on)
        copy->join = JOIN_CROSS; /* where ties it */
    return copy->on || copy->join == JOIN_CROSS ? copy : NULL;
}

/* Conditions on columns alone go to where they are joined. */
static struct node *take_where(struct colocate *c)
{
    struct node *list[CONJUNCTS_MAX], *left = NULL;
    uint32_t n = scope_conjuncts(c->s->where, list, CONJUNCTS_MAX);
    if (n == CONJUNCTS_MAX)
        return c->s->where;
    for (uint32_t i = 0; i < n; i++) {
        struct look l = look_into(c, list[i]);
        if (l.leaves && !l.tags && !l.others)
            c->join->where = tree_and(&c->g->mem, c->join->where, split_inside(c, list[i]));
        else
            left = tree_and(&c->g->mem, left, list[i]);
    }
    return left;
}

/* ---- the table of the joined rows ---- */

static int name_columns(struct colocate *c)
{
    struct global_table *t = c->table;
    uint32_t n = SQL_TAGS;
    for (uint32_t i = 0; i < c->join->n; i++)
        n += c->join->leaves[i].table->n - SQL_TAGS;
    t->columns = arena_zalloc(&c->g->mem.arena, n, sizeof(*t->columns));
    if (!t->columns)
        return global_no_memory();
    memcpy(t->columns, c->join->leaves[0].table->columns, SQL_TAGS * sizeof(*t->columns));
    t->n = SQL_TAGS;
    for (uint32_t i = 0; i < c->join->n; i++)
        for (uint32_t k = SQL_TAGS; k < c->join->leaves[i].table->n; k++) {
            t->columns[t->n] = c->join->leaves[i].table->columns[k];
            t->columns[t->n].name = global_text(c->g, "__j%u_%u", i, k);
            if (!t->columns[t->n++].name)
                return global_no_memory();
        }
    return 0;
}

/* A member has it that has all of its tables. */
static void unite_members(struct sql_global *g, struct global_table *t)
{
    for (uint32_t m = 0; m < g->n_members; m++) {
        t->members[m].state = SCHEMA_HERE;
        for (uint32_t i = 0; i < t->join->n; i++) {
            const struct member_schema *s = &t->join->leaves[i].table->members[m];
            if (s->state != SCHEMA_HERE && t->members[m].state == SCHEMA_HERE)
                t->members[m] = *s;
        }
    }
}

struct source {
    struct sql_global *g;
    const struct part *part; /* NULL: of nobody, with all columns */
    uint32_t member;
    struct buf text;
    const char *why;
    bool failed;
};

static void add_leaf_source(struct source *s, const struct global_join *j, const struct from *f)
{
    uint32_t i = 0, first = SQL_TAGS;
    while (j->leaves[i].from != f)
        first += j->leaves[i++].table->n - SQL_TAGS;
    struct global_table *t = j->leaves[i].table;
    struct part own = {.table = t, .uses = arena_zalloc(&s->g->mem.arena, t->n, 1)};
    const char *text = t->source;
    for (uint32_t c = SQL_TAGS; s->part && own.uses && c < t->n; c++)
        own.uses[c] = j->leaves[i].uses[c] || s->part->uses[first + c - SQL_TAGS];
    if (s->part)
        text = own.uses ? global_source(s->g, &own, s->member, &s->why) : NULL;
    s->failed = s->failed || !text;
    struct unparser u = {.out = &s->text};
    (void)buf_addf(&s->text, "%s as ", text ? text : "");
    unparse_name(&u, name_of(f));
}

static void add_joins(struct source *s, const struct global_join *j, const struct from *f)
{
    static const char *const words[] = {[JOIN_INNER] = "join",
                                        [JOIN_LEFT] = "left join",
                                        [JOIN_CROSS] = "cross join",
                                        [JOIN_ASOF] = "asof join",
                                        [JOIN_ASOF_LEFT] = "asof left join"};
    struct unparser u = {.out = &s->text, .text = s->g->text, .size = s->g->size};
    if (f->kind != FROM_JOIN) {
        add_leaf_source(s, j, f);
        return;
    }
    add_joins(s, j, f->left);
    (void)buf_addf(&s->text, " %s ", words[f->join]);
    add_leaf_source(s, j, f->right);
    if (!f->on)
        return;
    (void)buf_adds(&s->text, " on ");
    unparse_node(&u, f->on);
}

static const char *source_of(struct source *s, const struct global_table *t)
{
    const struct global_join *j = t->join;
    struct unparser u = {.out = &s->text, .text = s->g->text, .size = s->g->size};
    uint32_t at = SQL_TAGS, n = 0;
    buf_init(&s->text, SQL_TEXT_BYTES);
    (void)buf_adds(&s->text, "(select ");
    for (uint32_t i = 0; i < j->n; i++)
        for (uint32_t k = SQL_TAGS; k < j->leaves[i].table->n; k++, at++) {
            if (s->part && !s->part->uses[at])
                continue;
            (void)buf_adds(&s->text, n++ ? ", " : "");
            unparse_name(&u, name_of(j->leaves[i].from));
            (void)buf_addc(&s->text, '.');
            unparse_name(&u, j->leaves[i].table->columns[k].name);
            (void)buf_addf(&s->text, " as %s", t->columns[at].name);
        }
    (void)buf_adds(&s->text, n ? " from " : "1 as __one from ");
    add_joins(s, j, j->from);
    if (j->where) {
        (void)buf_adds(&s->text, " where ");
        unparse_node(&u, j->where);
    }
    (void)buf_addc(&s->text, ')');
    s->failed = s->failed || s->text.failed;
    const char *copy = s->failed ? NULL : global_text(s->g, "%s", buf_text(&s->text));
    buf_done(&s->text);
    return copy;
}

const char *global_join_source(struct sql_global *g, const struct part *p, uint32_t member,
                               const char **ret_why)
{
    struct source s = {.g = g, .part = p, .member = member};
    const char *text = source_of(&s, p->table);
    if (!text)
        *ret_why = s.why ? s.why : "no memory for its statement";
    return text;
}

/* ---- the select ---- */

static bool is_output(const struct select *s, const struct node *n)
{
    for (uint32_t i = 0; i < s->n_items && n->kind == NODE_NAME && !n->parts[0]; i++) {
        const struct item *item = &s->items[i];
        const char *name = item->alias                     ? item->alias
                           : item->node->kind == NODE_NAME ? item->node->text
                                                           : NULL;
        if (name && strcasecmp(name, n->text) == 0)
            return true;
    }
    return false;
}

/* Is all that it says about columns of the tables, or of the query around it? */
static bool is_readable(const struct colocate *c)
{
    const struct select *s = c->s;
    bool bad = s->windows || s->n_distinct_on || look_into(c, s->where).bad ||
               look_into(c, s->having).bad || look_into(c, s->qualify).bad;
    for (uint32_t i = 0; i < s->n_items && !bad; i++)
        bad = look_into(c, s->items[i].node).bad;
    for (uint32_t i = 0; i < s->n_group && !bad; i++)
        bad = look_into(c, s->group[i]).bad;
    for (uint32_t i = 0; i < s->n_order && !bad; i++)
        bad = look_into(c, s->order[i].node).bad;
    return !bad;
}

static void rewrite_select(struct colocate *c, struct select *s)
{
    struct from *f = arena_zalloc(&c->g->mem.arena, 1, sizeof(*f));
    c->no_aliases = true;
    s->where = tree_copy(&c->copy, take_where(c));
    c->no_aliases = false;
    for (uint32_t i = 0; i < s->n_order; i++)
        if (!is_output(s, s->order[i].node))
            s->order[i].node = tree_copy(&c->copy, s->order[i].node);
    for (uint32_t i = 0; i < s->n_group; i++)
        s->group[i] = tree_copy(&c->copy, s->group[i]);
    s->having = tree_copy(&c->copy, s->having);
    s->qualify = tree_copy(&c->copy, s->qualify);
    for (uint32_t i = 0; i < s->n_items; i++) {
        if (!s->items[i].alias && s->items[i].node->kind == NODE_NAME)
            s->items[i].alias = s->items[i].node->text;
        s->items[i].node = tree_copy(&c->copy, s->items[i].node);
    }
    c->copy.failed = c->copy.failed || !f;
    if (!f)
        return;
    *f = (struct from){.kind = FROM_TABLE,
                       .pos = s->from->pos,
                       .names = {c->table->name, GLOBAL_SCHEMA},
                       .alias = c->table->name};
    s->from = f;
}

static const char *title_of(const struct colocate *c)
{
    struct buf b;
    buf_init(&b, SQL_TEXT_BYTES);
    for (uint32_t i = 0; i < c->join->n; i++)
        (void)buf_addf(&b, "%s%s", i ? " and " : "", c->join->leaves[i].table->source);
    (void)buf_adds(&b, ", joined by each");
    const char *text = b.failed ? NULL : global_text(c->g, "%s", buf_text(&b));
    buf_done(&b);
    return text;
}

static int add_table(struct colocate *c)
{
    struct global_table *t = c->table, **end = &c->g->tables;
    struct source all = {.g = c->g};
    t->source = source_of(&all, t);
    t->title = title_of(c);
    if (!t->source || !t->title)
        return global_no_memory();
    unite_members(c->g, t);
    while (*end)
        end = &(*end)->next;
    *end = t;
    return 0;
}

int global_colocate(struct sql_global *g, struct select *s)
{
    struct colocate c = {.g = g, .s = s};
    uint32_t leaf = 0;
    if (!s->from || s->from->kind != FROM_JOIN)
        return 0;
    c.join = arena_zalloc(&g->mem.arena, 1, sizeof(*c.join));
    c.table = arena_zalloc(&g->mem.arena, 1, sizeof(*c.table));
    if (!c.join || !c.table)
        return global_no_memory();
    c.copy = (struct tree_copy){.mem = &g->mem, .replace = rename_column, .arg = &c};
    if (!add_leaves(&c, s->from) || !is_readable(&c))
        return 0;
    c.no_aliases = true;
    c.join->from = copy_joins(&c, s->from, &leaf);
    c.no_aliases = false;
    if (!c.join->from)
        return c.copy.failed ? global_no_memory() : 0;
    c.table->join = c.join;
    c.table->name = global_text(g, "__join_%u", ++g->n_joins);
    c.table->members = arena_zalloc(&g->mem.arena, g->n_members, sizeof(*c.table->members));
    if (!c.table->name || !c.table->members || name_columns(&c) < 0)
        return global_no_memory();
    rewrite_select(&c, s);
    return c.copy.failed ? global_no_memory() : add_table(&c);
}
