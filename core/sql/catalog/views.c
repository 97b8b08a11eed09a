/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/catalog/views.c - views: the list of them, and those of the core's own.
 *
 * Any thread, several at once: views are added at the front of the list and never removed; one that
 * another has taken the place of is marked, since a query may be reading it.
 * The bare names that the field's queries use come from the plugins that measure such things.
 */
#include "core/sql/catalog/catalog.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/base/err.h"

#define VIEWS_MAX 4096 /* of all plugins, in the life of an engine */

/* The last of one name is tried first. */
static const struct {
    const char *name, *definition, *doc;
} own[] = {
    {"probing.table_docs",
     "select table_schema, table_name, nullif(doc, '') as description, null::text as synonyms, "
     "null::text as notes, null::text as global_name from information_schema.tables",
     "descriptions of the tables"},
    {"probing.column_docs",
     "select table_schema, table_name, column_name, data_type, unit, nullif(doc, '') as "
     "description from information_schema.columns",
     "descriptions of the columns"}};

/* ---- how much a definition reads ---- */

#define TABLES_COUNTED 16 /* of one definition; more count as so many */

struct reads {
    const struct from *all[TABLES_COUNTED];
    uint32_t n;
};

static bool is_one_table(const struct from *a, const struct from *b)
{
    for (int i = 0; i < 2; i++) {
        const char *x = a->names[i] ? a->names[i] : "", *y = b->names[i] ? b->names[i] : "";
        if (strcasecmp(x, y) != 0)
            return false;
    }
    return true;
}

static void count_select(struct reads *r, const struct select *s);

static void count_from(struct reads *r, const struct from *f)
{
    uint32_t i = 0;
    if (!f)
        return;
    count_from(r, f->left);
    count_from(r, f->right);
    count_select(r, f->select);
    while (f->kind == FROM_TABLE && i < r->n && !is_one_table(r->all[i], f))
        i++;
    if (f->kind == FROM_TABLE && i == r->n && i < TABLES_COUNTED)
        r->all[r->n++] = f;
}

static void count_select(struct reads *r, const struct select *s)
{
    if (!s)
        return;
    count_select(r, s->left);
    count_select(r, s->right);
    count_from(r, s->from);
}

/* Count the tables behind its from, as one in an expression says nothing of what the rows are of.
 * 0: none, or it cannot be read. */
static uint32_t tables_of(const char *definition)
{
    struct reads r = {.n = 0};
    struct statement st;
    struct arena mem;
    arena_init(&mem, (size_t)4 << 20);
    if (definition && sql_parse(&mem, definition, strlen(definition), &st) == 0 &&
        st.kind == STATEMENT_SELECT)
        count_select(&r, st.select);
    arena_done(&mem);
    err_clear();
    return r.n;
}

/* ---- the list ---- */

static void free_view(struct view *v)
{
    free((char *)(uintptr_t)v->schema);
    free((char *)(uintptr_t)v->name);
    free((char *)(uintptr_t)v->definition);
    free((char *)(uintptr_t)v->doc);
    free((char *)(uintptr_t)v->why);
    free((char *)(uintptr_t)v->plugin);
    free(v);
}

void sql_free_views(struct sql *s)
{
    struct view *next, *v = atomic_load_explicit(&s->views, memory_order_acquire);
    for (; v; v = next) {
        next = v->next;
        free_view(v);
    }
}

static struct view *new_view(const struct sql_view *given)
{
    struct view *v = calloc(1, sizeof(*v));
    const char *dot = strchr(given->name, '.');
    bool made = v != NULL;
    if (v) {
        v->schema = strndup(given->name, dot ? (size_t)(dot - given->name) : 0);
        v->name = strdup(dot ? dot + 1 : given->name);
        v->definition = given->definition ? strdup(given->definition) : NULL;
        v->doc = strdup(given->doc ? given->doc : "");
        v->why = given->why ? strdup(given->why) : NULL;
        v->plugin = given->plugin ? strdup(given->plugin) : NULL;
        v->loaded = given->loaded;
        v->n_tables = given->plugin ? tables_of(given->definition) : 0;
        made = v->schema && v->name && (v->definition || !given->definition) && v->doc &&
               (v->why || !given->why) && (v->plugin || !given->plugin);
    }
    if (made)
        return v;
    if (v)
        free_view(v);
    (void)err_set(-ENOMEM, "no memory for the view %s", given->name);
    return NULL;
}

static void push_view(struct sql *s, struct view *v)
{
    v->next = atomic_load_explicit(&s->views, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&s->views, &v->next, v, memory_order_release,
                                                  memory_order_relaxed))
        ;
}

int sql_add_view(struct sql *s, const char *name, const char *definition, const char *doc)
{
    struct view *v = new_view(
        &(struct sql_view){.name = name, .definition = definition, .doc = doc, .loaded = true});
    if (!v)
        return -ENOMEM;
    push_view(s, v);
    return 0;
}

static bool is_old(const struct view *v)
{
    return atomic_load_explicit(&v->is_old, memory_order_acquire);
}

static bool same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static bool is_same(const struct view *v, const struct sql_view *given)
{
    const char *dot = strchr(given->name, '.');
    size_t n = dot ? (size_t)(dot - given->name) : 0;
    return v->loaded == given->loaded && strlen(v->schema) == n &&
           memcmp(v->schema, given->name, n) == 0 &&
           strcmp(v->name, dot ? dot + 1 : given->name) == 0 &&
           same_text(v->definition, given->definition) && same_text(v->doc, given->doc) &&
           same_text(v->why, given->why);
}

/* Are these the very views of this plugin that are there? */
static bool is_there(const struct view *first, const struct sql_view *views, uint32_t n)
{
    uint32_t i = 0;
    for (const struct view *v = first; v; v = v->next) {
        if (is_old(v) || !v->plugin || strcmp(v->plugin, views[0].plugin) != 0)
            continue;
        if (i == n || !is_same(v, &views[i++]))
            return false;
    }
    return i == n;
}

static void make_old(struct view *first, const char *plugin)
{
    for (struct view *v = first; v; v = v->next)
        if (v->plugin && strcmp(v->plugin, plugin) == 0)
            atomic_store_explicit(&v->is_old, true, memory_order_release);
}

int sql_declare_views(struct sql *s, const struct sql_view *views, uint32_t n)
{
    struct view *first = atomic_load_explicit(&s->views, memory_order_acquire), *made = NULL, *v;
    uint32_t count = n;
    int rc = 0;

    for (v = first; v; v = v->next)
        count++;
    if (n == 0 || is_there(first, views, n))
        return 1;
    if (count > VIEWS_MAX)
        return err_set(-ENOSPC, "no room for the views of plugin %s: %d are there", views[0].plugin,
                       VIEWS_MAX);
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        v = new_view(&views[i]);
        rc = v ? 0 : -ENOMEM;
        if (v)
            v->next = made;
        made = v ? v : made;
    }
    if (rc == 0)
        make_old(first, views[0].plugin);
    for (; made; made = v) { /* the last goes first: then the first is in front */
        v = made->next;
        if (rc == 0)
            push_view(s, made);
        else
            free_view(made);
    }
    return rc;
}

int sql_check_select(const char *text, size_t size)
{
    struct statement st;
    struct arena mem;
    arena_init(&mem, (size_t)4 << 20);
    int rc = sql_parse(&mem, text, size, &st);
    if (rc == 0 && (st.kind != STATEMENT_SELECT || st.explain))
        rc = err_set(-EINVAL, "it is no select");
    arena_done(&mem);
    return rc;
}

/* ---- which of several ---- */

/* Lower is tried earlier. */
static int rank_of(const struct view *v)
{
    return !v->plugin ? 0 : v->loaded ? 1 : 2;
}

/* Which of two is tried earlier, as plugin.h says: below 0: `a`; 0: as they stand in the list.  In
 * what order plugins were loaded does not count, else the answer would be another one. */
static int compare_views(const struct view *a, const struct view *b)
{
    if (rank_of(a) != rank_of(b))
        return rank_of(a) - rank_of(b);
    if (a->n_tables != b->n_tables)
        return (int)b->n_tables - (int)a->n_tables;
    return a->plugin ? strcmp(a->plugin, b->plugin) : 0;
}

static bool has_name(const struct view *v, const char *schema, const char *name)
{
    return !is_old(v) && v->definition && strcasecmp(v->name, name) == 0 &&
           strcasecmp(v->schema, schema ? schema : "") == 0;
}

const struct view *sql_next_view(const struct sql *s, const char *schema, const char *name,
                                 const struct view *after)
{
    const struct view *v = atomic_load_explicit(&s->views, memory_order_acquire), *best = NULL;
    for (bool passed = false; v; v = v->next) {
        int order = after ? compare_views(v, after) : 1;
        if (has_name(v, schema, name) && v != after && (order > 0 || (order == 0 && passed)) &&
            (!best || compare_views(v, best) < 0))
            best = v;
        passed = passed || v == after;
    }
    return best;
}

const struct view *sql_declared_table(const struct sql *s, const char *schema, const char *name)
{
    const struct view *v = atomic_load_explicit(&s->views, memory_order_acquire), *found = NULL;
    for (; v; v = v->next) {
        if (v->definition || atomic_load_explicit(&v->is_old, memory_order_acquire) ||
            (schema && strcasecmp(v->schema, schema) != 0) || strcasecmp(v->name, name) != 0)
            continue;
        if (found && strcasecmp(found->schema, v->schema) != 0)
            return NULL;
        found = v;
    }
    return found;
}

int sql_add_own_views(struct sql *s)
{
    int rc = 0;
    for (size_t i = 0; i < sizeof(own) / sizeof(*own) && rc == 0; i++)
        rc = sql_add_view(s, own[i].name, own[i].definition, own[i].doc);
    return rc;
}
