/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/distribute/plan_parts.c - a statement over all members becomes parts that they run and a
 * last statement over their answers.
 *
 * First the statement is planned over tables of all without rows, so that whatever is wrong with it
 * is said with its place.  Then selects that can be split are, and what is left is pulled; the tree
 * is changed on the way and written back at the end.  One thread.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "core/base/err.h"
#include "core/sql/distribute/parts.h"
#include "sdk/lib/hash.h"

#define SELECTS_MAX 256

/* ---- is it right? ---- */

static void blank_text(char *text, uint32_t from, uint32_t end)
{
    for (uint32_t i = from; i < end; i++)
        if (text[i] != '\n')
            text[i] = ' ';
}

struct blanking {
    const struct sql_global *g;
    char *text;
    const struct token *tokens;
    uint32_t n;
};

/* `global.` before a table goes, and all else stays where it is. */
static void blank_global(void *arg, struct from *f)
{
    struct blanking *b = arg;
    if (f->kind != FROM_TABLE || !global_table_of(b->g, f))
        return;
    for (uint32_t i = 0; i + 1 < b->n; i++)
        if (b->tokens[i].pos == f->pos)
            blank_text(b->text, f->pos, b->tokens[i + 1].end);
}

static int check_statement(struct sql_global *g)
{
    struct token *tokens;
    struct blanking b = {.g = g, .text = arena_text(&g->mem.arena, g->text, g->size)};
    int rc =
        b.text ? sql_tokens(&g->mem.arena, g->text, g->size, &tokens, &b.n) : global_no_memory();
    if (rc < 0)
        return rc;
    b.tokens = tokens;
    if (g->st.explain)
        blank_text(b.text, tokens[0].pos, tokens[g->st.analyze].end);
    tree_walk_select(&(struct tree_visit){.arg = &b, .from = blank_global}, g->st.select);
    rc = sql_grows(g->schemas.engine, b.text, g->size);
    g->checked = b.text;
    return rc < 0 ? rc : 0;
}

/* ---- one meaning of names and of now ---- */

static bool make_plain(void *arg, const struct node *n)
{
    struct sql_global *g = arg;
    struct node *own = (struct node *)(uintptr_t)n; /* the tree is ours */
    if (n->kind == NODE_NAME || n->kind == NODE_STAR)
        own->parts[1] = NULL; /* tables are going to be called by their names alone */
    if (n->kind != NODE_CALL || n->n_args || strcmp(n->text, "now") != 0)
        return true;
    char text[SQL_CELL_BYTES];
    const struct sql_value now = {.type = SQL_TIMESTAMP, .integer = g->now_utc};
    (void)sql_cell_text(&now, /* exact= */ true, text);
    struct node *cast = tree_cast(
        &g->mem, tree_text(&g->mem, arena_text(&g->mem.arena, text, strlen(text))), SQL_TIMESTAMP);
    if (!cast)
        return true;
    own->kind = NODE_CAST; /* one moment for all members */
    own->args = cast->args;
    own->n_args = 1;
    own->cast = SQL_TIMESTAMP;
    return false;
}

struct selects {
    struct select *list[SELECTS_MAX];
    uint32_t n;
    bool too_many;
};

static void collect_select(void *arg, struct select *s)
{
    struct selects *l = arg;
    if (s->set != SET_NONE)
        return;
    if (l->n < SELECTS_MAX)
        l->list[l->n++] = s;
    else
        l->too_many = true;
}

/* ---- parts ---- */

struct columns {
    struct sql_global *g;
    struct sql_column *list;
    uint32_t n;
};

static int keep_columns(void *arg, const struct sql_column *columns, uint32_t n)
{
    struct columns *c = arg;
    c->list = arena_zalloc(&c->g->mem.arena, n ? n : 1, sizeof(*c->list));
    c->n = n;
    for (uint32_t i = 0; c->list && i < n; i++) {
        c->list[i] = columns[i];
        c->list[i].name = arena_text(&c->g->mem.arena, columns[i].name, strlen(columns[i].name));
        c->list[i].doc = arena_text(&c->g->mem.arena, columns[i].doc, strlen(columns[i].doc));
        if (!c->list[i].name || !c->list[i].doc)
            c->list = NULL;
    }
    return c->list ? 0 : global_no_memory();
}

int global_columns_of(struct sql_global *g, const char *text, struct sql_column **ret,
                      uint32_t *ret_n)
{
    struct columns c = {.g = g};
    const struct sql_sink sink = {.arg = &c, .columns = keep_columns};
    int rc = sql_run(g->schemas.engine, text, strlen(text), NULL, &sink, NULL);
    *ret = c.list;
    *ret_n = c.n;
    return rc;
}

const char *global_unparsed(struct sql_global *g, const struct node *n)
{
    if (!n)
        return NULL;
    struct buf b;
    struct unparser u = {.out = &b, .text = g->text, .size = g->size, .bare = true};
    buf_init(&b, SQL_TEXT_BYTES);
    unparse_node(&u, n);
    const char *copy = b.failed ? NULL : arena_text(&g->mem.arena, buf_text(&b), b.size);
    buf_done(&b);
    g->mem.failed = g->mem.failed || !copy;
    return copy;
}

void global_add_condition(struct sql_global *g, struct buf *b, const struct node *n)
{
    struct unparser u = {.out = b, .text = g->text, .size = g->size, .bare = true};
    (void)buf_adds(b, b->size ? " and " : "");
    unparse_node(&u, n);
    g->mem.failed = g->mem.failed || b->failed;
}

static bool same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static int hold_answers(struct sql_global *g, struct part *p)
{
    uint32_t n = SQL_TAGS + p->n_columns;
    struct sql_column *all = arena_zalloc(&g->mem.arena, n, sizeof(*all));
    if (!all)
        return global_no_memory();
    memcpy(all, p->table->columns, SQL_TAGS * sizeof(*all));
    memcpy(all + SQL_TAGS, p->columns, p->n_columns * sizeof(*all));
    const struct held_table held = {.schema = GLOBAL_SCHEMA,
                                    .name = p->name,
                                    .columns = all,
                                    .n_columns = n,
                                    .n_front = SQL_TAGS,
                                    .n_aside = SQL_TAGS - SQL_TAGS_SHOWN,
                                    .n_parts = g->n_members};
    int rc = held_add(&g->answers, &g->mem.arena, &held, &p->held);
    for (uint32_t m = 0; m < g->n_members && rc == 0; m++)
        p->held->parts[m].front = g->members[m].tags;
    return rc;
}

static int new_part(struct sql_global *g, const struct part *like, struct part **ret)
{
    struct part *p = arena_zalloc(&g->mem.arena, 1, sizeof(*p)), **end = &g->parts;
    if (!p)
        return global_no_memory();
    *p = *like;
    p->name = global_text(g, "answers_%u", g->n_parts + 1);
    p->answers = arena_zalloc(&g->mem.arena, g->n_members, sizeof(*p->answers));
    const char *text = global_text(g, "%s%s%s", p->before, p->table->source, p->after);
    if (!p->name || !p->answers || !text)
        return global_no_memory();
    int rc = global_columns_of(g, text, &p->columns, &p->n_columns);
    if (rc == 0)
        rc = hold_answers(g, p);
    while (*end)
        end = &(*end)->next;
    if (rc == 0) {
        *end = p;
        g->n_parts++;
        *ret = p;
    }
    return rc;
}

/* Two selects ask the same: what is merged must do for both. */
static int share_part(struct part *p, const struct part *like)
{
    bool same = same_text(p->way, like->way);
    p->merge_tags = p->merge_tags || like->merge_tags;
    p->in_order = p->in_order || like->in_order;
    p->on_the_way = p->on_the_way && like->on_the_way;
    p->way = same ? p->way : NULL;
    p->way_tags = same ? p->way_tags : 0;
    return 0;
}

int global_add_part(struct sql_global *g, const struct part *like, struct from *f)
{
    struct part *p = g->parts;
    while (p && (p->table != like->table || !same_text(p->before, like->before) ||
                 !same_text(p->after, like->after) || !same_text(p->condition, like->condition)))
        p = p->next;
    int rc = p ? share_part(p, like) : new_part(g, like, &p);
    if (rc < 0)
        return rc;
    if (!f->alias)
        f->alias = f->names[0];
    f->names[0] = p->name;
    f->names[1] = GLOBAL_SCHEMA;
    f->names[2] = NULL;
    return 0;
}

/* ---- who runs what ---- */

struct choice {
    bool *wanted; /* [n_members] */
};

static int choose_values(void *arg, const struct sql_rows *rows)
{
    struct choice *c = arg;
    for (uint32_t i = 0; i < sql_rows_count(rows); i++) {
        struct sql_value v;
        sql_rows_value(rows, i, 0, &v);
        c->wanted[v.integer] = true;
    }
    return 0;
}

/* A table of the members: their tags, and which each is. */
static int hold_members(struct sql_global *g)
{
    static const struct sql_column number = {.name = "_member", .type = SQL_INT, .doc = ""};
    struct sql_column *all = arena_zalloc(&g->mem.arena, SQL_TAGS + 1, sizeof(*all));
    struct held_table *t;
    if (!all)
        return global_no_memory();
    memcpy(all, g->tables->columns, SQL_TAGS * sizeof(*all));
    all[SQL_TAGS] = number;
    const struct held_table held = {.schema = GLOBAL_SCHEMA,
                                    .name = "members",
                                    .columns = all,
                                    .n_columns = SQL_TAGS + 1,
                                    .n_front = SQL_TAGS,
                                    .n_aside = SQL_TAGS - SQL_TAGS_SHOWN,
                                    .n_parts = g->n_members};
    int rc = held_add(&g->answers, &g->mem.arena, &held, &t);
    for (uint32_t m = 0; m < g->n_members && rc == 0; m++) {
        const struct sql_value v = {.type = SQL_INT, .integer = m};
        t->parts[m].front = g->members[m].tags;
        rc = held_row(t, m, &v);
    }
    return rc;
}

static int wanted_members(struct sql_global *g, const struct part *p, bool *wanted)
{
    struct choice c = {wanted};
    const struct sql_sink sink = {.arg = &c, .rows = choose_values};
    memset(wanted, p->condition == NULL, g->n_members);
    if (!p->condition)
        return 0;
    const char *text =
        global_text(g, "select _member from " GLOBAL_SCHEMA ".members where %s", p->condition);
    return text ? sql_run(g->answers.engine, text, strlen(text), NULL, &sink, NULL)
                : global_no_memory();
}

/* The statement for a member that reads from `source`; the same pointer for the same text. */
static const char *statement_from(struct sql_global *g, const struct part *p, uint32_t member,
                                  const char *source)
{
    char *text = global_text(g, "%s%s%s", p->before, source, p->after);
    uint64_t hash = text ? hash_text(HASH_FNV, text) : 0;
    p->answers[member].hash = hash;
    for (uint32_t m = 0; text && m < member; m++)
        if (p->answers[m].hash == hash && p->answers[m].statement &&
            strcmp(p->answers[m].statement, text) == 0)
            return p->answers[m].statement;
    return text;
}

static int assign_part(struct sql_global *g, struct part *p)
{
    bool *wanted = arena_zalloc(&g->mem.arena, g->n_members, 1);
    const char *plain = global_text(g, "%s%s%s", p->before, p->table->source, p->after);
    int rc = wanted && plain ? wanted_members(g, p, wanted) : global_no_memory();
    for (uint32_t m = 0; m < g->n_members && rc == 0; m++) {
        struct part_answer *a = &p->answers[m];
        const struct member_schema *s = &p->table->members[m];
        if (!wanted[m])
            continue;
        g->members[m].asked = true;
        a->why = s->state == SCHEMA_NONE   ? s->why
                 : s->state == SCHEMA_HERE ? NULL
                 : s->why                  ? s->why
                                           : "it did not answer";
        const char *source = s->state == SCHEMA_HERE ? global_source(g, p, m, &a->why) : NULL;
        if (source && strcmp(source, p->table->source) == 0)
            a->statement = plain;
        else if (source)
            a->statement = statement_from(g, p, m, source);
        if (a->statement)
            a->state = ANSWER_AWAITED;
        if (a->statement)
            continue;
        g->members[m].failed = true;
        if (!g->members[m].why)
            g->members[m].why = a->why;
    }
    return rc;
}

/* ---- the plan ---- */

static int write_last(struct sql_global *g)
{
    struct buf b;
    struct unparser u = {.out = &b, .text = g->text, .size = g->size};
    buf_init(&b, SQL_TEXT_BYTES);
    unparse_select(&u, g->st.select);
    g->last = b.failed ? NULL : arena_text(&g->mem.arena, buf_text(&b), b.size);
    int rc = b.failed == -ENOBUFS ? err_set(-E2BIG, "the statement is too long to be taken apart")
             : g->last            ? 0
                                  : global_no_memory();
    buf_done(&b);
    return rc;
}

static int pull_from(struct sql_global *g, struct select *s, struct from *f)
{
    if (!f)
        return 0;
    if (f->kind != FROM_JOIN)
        return f->kind == FROM_TABLE && global_table_of(g, f) ? global_pull(g, s, f) : 0;
    int rc = pull_from(g, s, f->left);
    return rc < 0 ? rc : pull_from(g, s, f->right);
}

int sql_global_plan(struct sql_global *g)
{
    struct selects l = {.n = 0};
    struct tree_visit plain = {.arg = g, .node = make_plain};
    struct tree_visit collect = {.arg = &l, .select = collect_select};
    int rc = global_unite(g);
    if (rc == 0)
        rc = check_statement(g);
    if (rc == 0)
        rc = global_about_columns(g);
    if (rc != 0) {
        g->planned = rc > 0;
        return rc < 0 ? rc : 0;
    }
    tree_walk_select(&plain, g->st.select);
    tree_walk_select(&collect, g->st.select);
    if (l.too_many)
        return err_set(-E2BIG, "more than %d selects over tables of all ranks", SELECTS_MAX);
    for (uint32_t i = 0; i < l.n && rc >= 0; i++)
        rc = global_colocate(g, l.list[i]);
    for (uint32_t i = 0; i < l.n && rc >= 0; i++)
        rc = global_split(g, l.list[i]);
    if (rc >= 0)
        rc = global_collect_names(g);
    for (uint32_t i = 0; i < l.n && rc >= 0; i++)
        rc = pull_from(g, l.list[i], l.list[i]->from);
    rc = rc < 0 ? rc : hold_members(g);
    for (struct part *p = g->parts; p && rc == 0; p = p->next)
        rc = assign_part(g, p);
    if (rc == 0)
        rc = write_last(g);
    if (rc == 0 && g->mem.failed)
        rc = global_no_memory();
    g->planned = rc == 0;
    return rc;
}

static struct part *part_at(const struct sql_global *g, uint32_t part)
{
    struct part *p = g->parts;
    while (p && part--)
        p = p->next;
    return p;
}

uint32_t sql_global_parts(const struct sql_global *g)
{
    return g->n_parts;
}

const char *sql_global_statement(const struct sql_global *g, uint32_t part, uint32_t member)
{
    const struct part *p = part_at(g, part);
    return p && member < g->n_members ? p->answers[member].statement : NULL;
}
