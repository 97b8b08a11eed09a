/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/distribute/schema.c - the tables of all: what columns they have, and where members
 * differ.
 *
 * A table of all has each column that any member has.  Its type is that of most; whole numbers
 * beside doubles are doubles.  A member that lacks a column gives NULLs for it, one that has it as
 * another type is not asked, and both are told by name.  Moments (type timestamp) of a member whose
 * clock is known to go wrong by our own are put right by the member, before anything is done with
 * them; what is counted from elsewhere (bigint, double, interval: monotonic clocks, durations) and
 * days stay as they are.  One thread.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "core/base/err.h"
#include "core/sql/distribute/parts.h"

#define COLUMNS_MAX 1024

/* ---- which tables ---- */

static bool is_global(const struct from *f)
{
    const char *last = f->names[2] ? f->names[2] : f->names[1];
    return f->kind == FROM_TABLE && last && strcmp(last, GLOBAL_SCHEMA) == 0;
}

static bool same_schema(const char *a, const char *b)
{
    return a && b ? strcasecmp(a, b) == 0 : a == b;
}

struct global_table *global_table_of(const struct sql_global *g, const struct from *f)
{
    if (!is_global(f))
        return NULL;
    const char *schema = f->names[2] ? f->names[1] : NULL;
    for (struct global_table *t = g->tables; t; t = t->next)
        if (strcasecmp(t->name, f->names[0]) == 0 && same_schema(t->schema, schema))
            return t;
    return NULL;
}

struct finder {
    struct sql_global *g;
    struct global_table **end;
    const struct select *with[256]; /* that have a `with` */
    uint32_t n_with;
    const struct from *others[256]; /* tables that are not of all */
    uint32_t n_others;
    int rc;
};

static const char *quoted_source(struct sql_global *g, const char *schema, const char *name)
{
    struct buf b;
    struct unparser u = {.out = &b};
    buf_init(&b, 4096);
    if (schema) {
        unparse_name(&u, schema);
        (void)buf_addc(&b, '.');
    }
    unparse_name(&u, name);
    char *copy = b.failed ? NULL : arena_text(&g->mem.arena, buf_text(&b), b.size);
    buf_done(&b);
    return copy;
}

static void find_table(void *arg, struct from *f)
{
    struct finder *d = arg;
    if (d->rc < 0 || f->kind != FROM_TABLE)
        return;
    if (!is_global(f)) {
        if (d->n_others < sizeof(d->others) / sizeof(d->others[0]))
            d->others[d->n_others++] = f;
        return;
    }
    if (f->n_aliases) {
        d->rc = sql_error(d->g->text, d->g->size, f->pos, -EINVAL,
                          "columns of a table of all ranks cannot be renamed in from; rename them "
                          "in the list: select x as y");
        return;
    }
    if (global_table_of(d->g, f))
        return;
    struct global_table *t = arena_zalloc(&d->g->mem.arena, 1, sizeof(*t));
    if (!t) {
        d->rc = global_no_memory();
        return;
    }
    t->schema = f->names[2] ? f->names[1] : NULL;
    t->name = f->names[0];
    t->source = quoted_source(d->g, t->schema, t->name);
    t->probe = t->source ? global_text(d->g, "select * from %s limit 0", t->source) : NULL;
    d->rc = t->probe ? 0 : global_no_memory();
    *d->end = t;
    d->end = &t->next;
    d->g->n_tables++;
}

static void find_with(void *arg, struct select *s)
{
    struct finder *d = arg;
    if (s->ctes && d->n_with < sizeof(d->with) / sizeof(d->with[0]))
        d->with[d->n_with++] = s;
}

/* A name of a `with`, or a table that every engine has? */
static bool is_ours(const struct finder *d, const struct from *f)
{
    if (f->names[1])
        return strcasecmp(f->names[1], "information_schema") == 0;
    for (uint32_t i = 0; i < d->n_with; i++)
        for (const struct cte *c = d->with[i]->ctes; c; c = c->next)
            if (strcasecmp(c->name, f->names[0]) == 0)
                return true;
    return false;
}

int global_find_tables(struct sql_global *g)
{
    struct finder d = {.g = g, .end = &g->tables};
    struct tree_visit v = {.arg = &d, .from = find_table, .select = find_with};
    tree_walk_select(&v, g->st.select);
    for (uint32_t i = 0; i < d.n_others && d.rc == 0; i++) {
        const struct from *f = d.others[i];
        const char *schema = f->names[1] ? f->names[1] : "";
        if (!is_ours(&d, f))
            d.rc =
                sql_error(g->text, g->size, f->pos, -EINVAL,
                          "'%s%s%s' is a table of one process; beside a table of all ranks it is "
                          "written " GLOBAL_SCHEMA ".%s%s%s",
                          schema, schema[0] ? "." : "", f->names[0], schema, schema[0] ? "." : "",
                          f->names[0]);
    }
    return d.rc;
}

uint32_t sql_global_tables(const struct sql_global *g)
{
    return g->n_tables;
}

static struct global_table *table_at(const struct sql_global *g, uint32_t table)
{
    struct global_table *t = g->tables;
    while (t && table--)
        t = t->next;
    return t;
}

const char *sql_global_probe(const struct sql_global *g, uint32_t table)
{
    const struct global_table *t = table_at(g, table);
    return t ? t->probe : NULL;
}

/* ---- what members have ---- */

static struct member_schema *schema_of(struct sql_global *g, uint32_t table, uint32_t member)
{
    struct global_table *t = table_at(g, table);
    if (!t || member >= g->n_members)
        return NULL;
    if (!t->members)
        t->members = arena_zalloc(&g->mem.arena, g->n_members, sizeof(*t->members));
    return t->members ? &t->members[member] : NULL;
}

int sql_global_schema(struct sql_global *g, uint32_t table, uint32_t member,
                      const struct sql_column *columns, uint32_t n)
{
    struct member_schema *m = schema_of(g, table, member);
    if (!m)
        return err_set(-EINVAL, "no such table or member");
    if (n > COLUMNS_MAX)
        return err_set(-EBADMSG, "it says that the table has %u columns", n);
    struct sql_column *copy = arena_zalloc(&g->mem.arena, n ? n : 1, sizeof(*copy));
    for (uint32_t c = 0; copy && c < n; c++) {
        copy[c] = columns[c];
        copy[c].name = arena_text(&g->mem.arena, columns[c].name, strlen(columns[c].name));
        copy[c].doc =
            columns[c].doc ? arena_text(&g->mem.arena, columns[c].doc, strlen(columns[c].doc)) : "";
        if (!copy[c].name || !copy[c].doc)
            copy = NULL;
    }
    if (!copy)
        return global_no_memory();
    *m = (struct member_schema){.state = SCHEMA_HERE, .columns = copy, .n = n};
    return 0;
}

int sql_global_lacks(struct sql_global *g, uint32_t table, uint32_t member, const char *why,
                     bool gone)
{
    struct member_schema *m = schema_of(g, table, member);
    const char *copy = m ? arena_text(&g->mem.arena, why, strlen(why)) : NULL;
    if (!copy)
        return m ? global_no_memory() : err_set(-EINVAL, "no such table or member");
    *m = (struct member_schema){.state = gone ? SCHEMA_GONE : SCHEMA_NONE, .why = copy};
    return 0;
}

/* ---- the columns of all ---- */

static int find_column(const struct sql_column *columns, uint32_t n, const char *name)
{
    for (uint32_t c = 0; c < n; c++)
        if (strcasecmp(columns[c].name, name) == 0)
            return (int)c;
    return -1;
}

/* The type that most members have it as. */
static enum sql_type type_of_most(const struct sql_global *g, const struct global_table *t,
                                  const char *name)
{
    uint32_t votes[SQL_CALENDAR + 1] = {0};
    for (uint32_t m = 0; m < g->n_members; m++) {
        const struct member_schema *s = &t->members[m];
        int c = s->state == SCHEMA_HERE ? find_column(s->columns, s->n, name) : -1;
        if (c >= 0 && s->columns[c].type <= SQL_CALENDAR)
            votes[s->columns[c].type]++;
    }
    enum sql_type best = SQL_NULL;
    for (enum sql_type type = SQL_BOOL; type <= SQL_CALENDAR; type++)
        if (votes[type] && (best == SQL_NULL || votes[type] > votes[best]))
            best = type;
    return best == SQL_INT && votes[SQL_DOUBLE] ? SQL_DOUBLE : best;
}

static int add_columns_of(struct sql_global *g, struct global_table *t,
                          const struct member_schema *s)
{
    for (uint32_t c = 0; c < s->n; c++) {
        if (find_column(t->columns, t->n, s->columns[c].name) >= 0)
            continue; /* of a tag's name, too: the tag is what is meant */
        if (t->n == COLUMNS_MAX)
            return err_set(-E2BIG, "%s has more than %d columns over all ranks", t->source,
                           COLUMNS_MAX);
        t->columns[t->n] = s->columns[c];
        t->columns[t->n].type = type_of_most(g, t, s->columns[c].name);
        t->n++;
    }
    return 0;
}

static int unite_columns(struct sql_global *g, struct global_table *t)
{
    const struct member_schema *none = NULL;
    uint32_t who = 0;
    int rc = 0;
    t->columns = arena_zalloc(&g->mem.arena, COLUMNS_MAX, sizeof(*t->columns));
    if (!t->columns || !t->members)
        return global_no_memory();
    for (; t->n < SQL_TAGS; t->n++)
        t->columns[t->n] =
            (struct sql_column){.name = sql_tag_names[t->n],
                                .type = sql_tag_types[t->n],
                                .unit = t->n < SQL_TAGS_SHOWN ? PROBING_PLAIN : PROBING_NS,
                                .doc = sql_tag_docs[t->n]};
    for (uint32_t m = 0; m < g->n_members && rc == 0; m++) {
        const struct member_schema *s = &t->members[m];
        if (s->state == SCHEMA_HERE)
            rc = add_columns_of(g, t, s);
        else if (!none || (s->state == SCHEMA_NONE && none->state != SCHEMA_NONE)) {
            none = s;
            who = m;
        }
    }
    if (rc == 0 && t->n == SQL_TAGS)
        return err_set(none && none->state == SCHEMA_NONE ? -ENOENT : -ENODATA,
                       "no process of these has the table %s; %s: %s", t->source,
                       g->members[who].name, none && none->why ? none->why : "no answer");
    const struct held_table held = {.schema = t->schema,
                                    .name = t->name,
                                    .columns = t->columns,
                                    .n_columns = t->n,
                                    .n_front = SQL_TAGS,
                                    .n_aside = SQL_TAGS - SQL_TAGS_SHOWN};
    return rc < 0 ? rc : held_add(&g->schemas, &g->mem.arena, &held, NULL);
}

int global_unite(struct sql_global *g)
{
    int rc = g->n_members ? 0 : err_set(-ENOENT, "there is no process to ask");
    for (struct global_table *t = g->tables; t && rc == 0; t = t->next) {
        if (!t->members)
            t->members = arena_zalloc(&g->mem.arena, g->n_members, sizeof(*t->members));
        rc = unite_columns(g, t);
    }
    return rc;
}

/* ---- members that differ ---- */

static const char *cast_name(enum sql_type type)
{
    return type == SQL_NULL ? "double" : type == SQL_CALENDAR ? "interval" : sql_type_name(type);
}

/* ", x as y" for the lists of `* replace (...)` and of what comes behind. */
static void add_item(struct buf *b, const char *what, const char *name)
{
    struct unparser u = {.out = b};
    (void)buf_adds(b, b->size ? ", " : "");
    (void)buf_adds(b, what);
    unparse_name(&u, name);
}

/* A member's moments in the asker's clock. */
static void add_moved(const struct sql_global *g, uint32_t member, const char *name,
                      struct buf *replaced)
{
    const struct sql_value *offset = &g->members[member].tags[SQL_TAG_CLOCK_OFFSET];
    struct unparser u = {.out = replaced};
    if (offset->type != SQL_INT || offset->integer == 0)
        return;
    (void)buf_adds(replaced, replaced->size ? ", " : "");
    unparse_name(&u, name);
    (void)buf_addf(replaced, " - interval '%lld ns' as ", (long long)offset->integer);
    unparse_name(&u, name);
}

static int make_up(struct sql_global *g, const struct sql_column *want, const struct part *p,
                   uint32_t member, struct buf *replaced, struct buf *added, const char **ret_why)
{
    const struct member_schema *s = &p->table->members[member];
    char cast[64];
    int c = find_column(s->columns, s->n, want->name);
    enum sql_type type = c < 0 ? SQL_NULL : s->columns[c].type;
    if (c >= 0 && type == want->type) {
        if (type == SQL_TIMESTAMP)
            add_moved(g, member, want->name, replaced);
        return 0;
    }
    (void)snprintf(cast, sizeof(cast), "cast(null as %s) as ", cast_name(want->type));
    if (type == SQL_NULL) {
        if (c < 0)
            global_note(g, g->members[member].name, "no column %s in %s, NULL there", want->name,
                        p->table->source);
        add_item(c < 0 ? added : replaced, cast, want->name);
        return 0;
    }
    if (type == SQL_INT && want->type == SQL_DOUBLE) {
        struct buf text;
        struct unparser u = {.out = &text};
        buf_init(&text, 1024);
        (void)buf_adds(&text, "cast(");
        unparse_name(&u, want->name);
        (void)buf_adds(&text, " as double) as ");
        add_item(replaced, buf_text(&text), want->name);
        buf_done(&text);
        global_note(g, g->members[member].name, "%s of %s is bigint, made double, there",
                    want->name, p->table->source);
        return 0;
    }
    *ret_why = global_text(g, "its column %s of %s is %s, which is %s elsewhere", want->name,
                           p->table->source, sql_type_name(type), sql_type_name(want->type));
    return -EINVAL;
}

const char *global_source(struct sql_global *g, const struct part *p, uint32_t member,
                          const char **ret_why)
{
    const struct global_table *t = p->table;
    struct buf replaced, added;
    const char *source = t->source;
    int rc = 0;
    if (t->join)
        return global_join_source(g, p, member, ret_why);
    buf_init(&replaced, SQL_TEXT_BYTES);
    buf_init(&added, SQL_TEXT_BYTES);
    for (uint32_t c = SQL_TAGS; c < t->n && rc == 0; c++)
        if (p->uses[c])
            rc = make_up(g, &t->columns[c], p, member, &replaced, &added, ret_why);
    if (rc == 0 && (replaced.size || added.size))
        source = global_text(g, "(select *%s%s%s%s%s from %s)", replaced.size ? " replace (" : "",
                             buf_text(&replaced), replaced.size ? ")" : "", added.size ? ", " : "",
                             buf_text(&added), t->source);
    buf_done(&replaced);
    buf_done(&added);
    return rc < 0 ? NULL : source;
}
