/* SPDX-License-Identifier: Apache-2.0
 *
 * core/catalog/catalog.c - the directory of tables: checks descriptions, copies them, finds them
 * again.
 *
 * Any thread; a read-write lock guards the list, and tables in it never move or go.
 * It knows nothing of rings or the store.
 */
#include "core/catalog/catalog.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/text.h"
#include "sdk/lib/arena.h"

#define PLUGIN_COLUMNS_MAX 64 /* plugin.h: n_columns is 1 to 64 */
#define DOC_MAX 4096          /* bytes: one line */
#define VERSIONS_MAX 9 /* a program that changes its mind more often makes names of its own */

const char *const table_loss_names[TABLE_LOSS_REASONS] = {
    [TABLE_LOST_RING_FULL] = "ring_full", [TABLE_LOST_NO_RING] = "no_ring",
    [TABLE_LOST_NESTED] = "nested",       [TABLE_LOST_STORE] = "store",
    [TABLE_LOST_TOO_LONG] = "too_long",   [TABLE_LOST_DAMAGED] = "damaged",
    [TABLE_LOST_NO_TABLE] = "no_table",   [TABLE_LOST_BAD_ROW] = "bad_row",
    [TABLE_LOST_VALUE] = "value",
};

/* A table and what only this file knows of it. */
struct entry {
    struct table table;
    _Atomic uint64_t own[1 + TABLE_LOSS_REASONS]; /* counters until they are bound to a file */
    struct arena arena;                           /* names, docs, columns */
};

struct tables {
    pthread_rwlock_t lock;
    struct entry *by_id[TABLES_MAX + 1]; /* lock: lock.  [0] is never used */
    uint32_t last_stored, last_computed; /* ids.  lock: lock */
    struct entry refused;                /* its counters only */
};

/* A description with its names taken apart. */
struct wanted_table {
    const struct probing_table_desc *desc;
    char schema[64], name[64];
    bool stored;
};

int tables_new(struct tables **ret)
{
    struct tables *t = calloc(1, sizeof(*t));
    struct entry *refused = t ? &t->refused : NULL;
    if (!t)
        return err_set(-ENOMEM, "no memory for the directory of tables");
    int rc = pthread_rwlock_init(&t->lock, NULL);
    if (rc) {
        free(t);
        return err_set(-rc, "no lock for the directory of tables: %s", strerror(rc));
    }
    t->last_computed = TABLES_STORED_MAX;
    refused->table = (struct table){.schema = "probing",
                                    .name = "refused",
                                    .doc = "",
                                    .appended = &refused->own[0],
                                    .lost = &refused->own[1]};
    *ret = t;
    return 0;
}

void tables_free(struct tables *t)
{
    if (!t)
        return;
    for (uint32_t id = 1; id <= TABLES_MAX; id++) {
        if (t->by_id[id]) {
            arena_done(&t->by_id[id]->arena);
            free(t->by_id[id]);
        }
    }
    (void)pthread_rwlock_destroy(&t->lock);
    free(t);
}

static const struct probing_column *desc_column(const struct probing_table_desc *d, uint32_t i)
{
    return (const struct probing_column *)((const char *)d->columns + (size_t)i * d->column_size);
}

/* "schema.name", or a bare name in `schema`. */
static int split_name(const char *schema, const char *name, struct wanted_table *ret)
{
    const char *dot = name ? strchr(name, '.') : NULL;
    size_t n = dot ? (size_t)(dot - name) : schema ? strlen(schema) : 0;
    const char *bare = dot ? dot + 1 : name;
    if (!name || n >= sizeof(ret->schema) || strlen(bare) >= sizeof(ret->name))
        return err_set(-EINVAL, "the table name '%.80s' is missing or too long", name ? name : "");
    if (n)
        memcpy(ret->schema, dot ? name : schema, n);
    ret->schema[n] = '\0';
    memcpy(ret->name, bare, strlen(bare) + 1);
    if (!text_is_name(ret->schema) || !text_is_name(ret->name))
        return err_set(-EINVAL,
                       "table '%.80s': names are made of a-z, 0-9 and _, and begin with a letter",
                       name);
    return 0;
}

static int check_columns(const struct wanted_table *w)
{
    const struct probing_table_desc *d = w->desc;
    for (uint32_t i = 0; i < d->n_columns; i++) {
        const struct probing_column *c = desc_column(d, i);
        if (!c->name || !text_is_name(c->name))
            return err_set(-EINVAL, "table %s.%s: column %u has the bad name '%.70s'", w->schema,
                           w->name, i, c->name ? c->name : "");
        if (c->type < PROBING_I64 || c->type > PROBING_TIME)
            return err_set(-EINVAL, "table %s.%s: column '%s' has the unknown type %u", w->schema,
                           w->name, c->name, c->type);
        bool twice = w->stored && (strcmp(c->name, "ts") == 0 || strcmp(c->name, "tid") == 0);
        for (uint32_t k = 0; k < i && !twice; k++)
            twice = strcmp(desc_column(d, k)->name, c->name) == 0;
        if (twice || (d->tail_type && strcmp(d->tail_name, c->name) == 0))
            return err_set(-EINVAL, "table %s.%s: two columns are called '%s'%s", w->schema,
                           w->name, c->name,
                           w->stored ? " (ts and tid are added automatically)" : "");
    }
    return 0;
}

static int check_desc(const char *schema, const struct probing_table_desc *d,
                      struct wanted_table *ret)
{
    *ret = (struct wanted_table){.desc = d};
    if (!d || d->size < offsetof(struct probing_table_desc, scan) + sizeof(d->scan))
        return err_set(-EINVAL, "a table description of %u bytes is too short", d ? d->size : 0);
    int rc = split_name(schema, d->name, ret);
    if (rc)
        return rc;
    ret->stored = d->scan == NULL;
    if (d->column_size < offsetof(struct probing_column, reserved) || d->column_size % 8 ||
        (d->n_columns && !d->columns))
        return err_set(-EINVAL, "table %s.%s: column_size is %u, not sizeof(struct probing_column)",
                       ret->schema, ret->name, d->column_size);
    if (d->n_columns > PLUGIN_COLUMNS_MAX || d->n_columns + (d->tail_type ? 1 : 0) == 0)
        return err_set(-EINVAL, "table %s.%s has %u columns; 1 to %d are possible", ret->schema,
                       ret->name, d->n_columns, PLUGIN_COLUMNS_MAX);
    if (d->tail_type && d->tail_type != PROBING_STR && d->tail_type != PROBING_BLOB)
        return err_set(-EINVAL, "table %s.%s: a tail is PROBING_STR or PROBING_BLOB, not %u",
                       ret->schema, ret->name, d->tail_type);
    if (d->tail_type && (!d->tail_name || !text_is_name(d->tail_name)))
        return err_set(-EINVAL, "table %s.%s: the tail has the bad name '%.70s'", ret->schema,
                       ret->name, d->tail_name ? d->tail_name : "");
    return check_columns(ret);
}

static const char *copy_text(struct arena *a, const char *text)
{
    text = text ? text : "";
    size_t n = strlen(text);
    return arena_text(a, text, n < DOC_MAX ? n : DOC_MAX);
}

static bool add_column(struct entry *e, const char *name, uint32_t type, uint32_t unit,
                       const char *doc)
{
    struct table_column *c = &e->table.columns[e->table.n_columns++];
    *c = (struct table_column){.name = copy_text(&e->arena, name),
                               .doc = copy_text(&e->arena, doc),
                               .type = type,
                               .unit = unit};
    return c->name && c->doc;
}

static bool fill_columns(struct entry *e, const struct wanted_table *w)
{
    const struct probing_table_desc *d = w->desc;
    bool whole = true;
    e->table.columns = arena_zalloc(&e->arena, d->n_columns + 3, sizeof(struct table_column));
    if (!e->table.columns)
        return false;
    if (w->stored) {
        whole = add_column(e, "ts", PROBING_TIME, PROBING_NS, "when the row was added") &&
                add_column(e, "tid", PROBING_I64, PROBING_PLAIN, "thread that added the row");
    }
    for (uint32_t i = 0; i < d->n_columns && whole; i++) {
        const struct probing_column *c = desc_column(d, i);
        whole = add_column(e, c->name, c->type, c->unit, c->doc);
    }
    if (d->tail_type && whole)
        whole = add_column(e, d->tail_name, d->tail_type, PROBING_PLAIN, "");
    return whole;
}

static void renew_table(struct table *t, const struct probing_table_desc *d, void *self)
{
    t->scan = d->scan;
    t->self = self;
    atomic_store_explicit(&t->keep_ns, d->keep_ns, memory_order_relaxed);
    atomic_store_explicit(&t->keep_bytes, d->keep_bytes, memory_order_relaxed);
    atomic_store_explicit(&t->retired, false, memory_order_release);
}

static void drop_entry(struct entry *e)
{
    if (!e)
        return;
    arena_done(&e->arena);
    free(e);
}

static struct entry *make_entry(uint32_t id, const struct wanted_table *w, void *self)
{
    struct entry *e = calloc(1, sizeof(*e));
    if (!e)
        return NULL;
    arena_init(&e->arena, 0);
    e->table.id = id;
    e->table.schema = copy_text(&e->arena, w->schema);
    e->table.name = copy_text(&e->arena, w->name);
    e->table.doc = copy_text(&e->arena, w->desc->doc);
    e->table.has_tail = w->desc->tail_type != 0;
    e->table.n_cells = w->stored ? w->desc->n_columns : 0;
    e->table.appended = &e->own[0];
    e->table.lost = &e->own[1];
    if (!e->table.schema || !e->table.name || !e->table.doc || !fill_columns(e, w)) {
        drop_entry(e);
        return NULL;
    }
    renew_table(&e->table, w->desc, self);
    atomic_store_explicit(&e->table.wanted, true, memory_order_relaxed);
    return e;
}

/* The next id that may be in use, from 0 on; 0: there is none.  lock: lock */
static uint32_t next_id(const struct tables *t, uint32_t id)
{
    if (id < t->last_stored)
        return id + 1;
    id = id < TABLES_STORED_MAX ? TABLES_STORED_MAX : id;
    return id < t->last_computed ? id + 1 : 0;
}

static struct entry *find_entry(struct tables *t, const char *schema, const char *name)
{
    for (uint32_t id = next_id(t, 0); id; id = next_id(t, id)) {
        struct entry *e = t->by_id[id];
        if (e && strcmp(e->table.name, name) == 0 && strcmp(e->table.schema, schema) == 0)
            return e;
    }
    return NULL;
}

/* The same columns in the same order?  Docs and units may be said better the second time. */
static bool same_columns(const struct table *t, const struct wanted_table *w)
{
    const struct probing_table_desc *d = w->desc;
    uint32_t first = w->stored ? 2 : 0;
    if ((t->scan == NULL) != w->stored || t->has_tail != (d->tail_type != 0) ||
        t->n_columns != first + d->n_columns + (d->tail_type ? 1 : 0))
        return false;
    for (uint32_t i = 0; i < d->n_columns; i++) {
        const struct table_column *have = &t->columns[first + i];
        const struct probing_column *want = desc_column(d, i);
        if (strcmp(have->name, want->name) != 0 || have->type != want->type)
            return false;
    }
    const struct table_column *last = &t->columns[t->n_columns - 1];
    return !d->tail_type || (last->type == d->tail_type && strcmp(last->name, d->tail_name) == 0);
}

/* lock: lock */
static int free_id(const struct tables *t, const struct wanted_table *w, uint32_t *ret)
{
    uint32_t last = w->stored ? t->last_stored : t->last_computed;
    uint32_t most = w->stored ? TABLES_STORED_MAX : TABLES_MAX;
    if (last == most)
        return err_set(-ENOSPC, "table %s.%s: this process already has %d %s tables, the maximum",
                       w->schema, w->name,
                       w->stored ? TABLES_STORED_MAX : TABLES_MAX - TABLES_STORED_MAX,
                       w->stored ? "stored" : "computed");
    *ret = last + 1;
    return 0;
}

/* lock: lock */
static void put_entry(struct tables *t, struct entry *e)
{
    uint32_t id = e->table.id;
    uint32_t *last = id <= TABLES_STORED_MAX ? &t->last_stored : &t->last_computed;
    t->by_id[id] = e;
    *last = id > *last ? id : *last;
}

int tables_add(struct tables *t, const char *schema, const struct probing_table_desc *d, void *self,
               struct table **ret)
{
    uint32_t id = 0;
    struct wanted_table w;
    int rc = check_desc(schema, d, &w);
    if (rc)
        return rc;
    (void)pthread_rwlock_wrlock(&t->lock);
    struct entry *e = find_entry(t, w.schema, w.name);
    if (e && same_columns(&e->table, &w)) {
        renew_table(&e->table, d, self);
    } else if (e) {
        rc = err_set(-EEXIST, "table %s.%s is already there with other columns", w.schema, w.name);
    } else {
        rc = free_id(t, &w, &id);
        e = rc ? NULL : make_entry(id, &w, self);
        if (e)
            put_entry(t, e);
        else if (rc == 0)
            rc = err_set(-ENOMEM, "no memory for table %s.%s", w.schema, w.name);
    }
    (void)pthread_rwlock_unlock(&t->lock);
    if (rc == 0)
        *ret = &e->table;
    return rc;
}

/* NAME_v1, _v2 ...: the first that is free.  lock: lock */
static int free_name(struct tables *t, const struct table *old, char ret[64])
{
    for (int version = 1; version <= VERSIONS_MAX; version++) {
        (void)snprintf(ret, 64, "%.50s_v%d", old->name, version);
        if (!find_entry(t, old->schema, ret))
            return 0;
    }
    return err_set(-EEXIST,
                   "the columns of table %s.%s have changed %d times; it cannot change again",
                   old->schema, old->name, VERSIONS_MAX);
}

/* lock: lock.  Readers without it see the old texts or the new ones; both stay. */
static int rename_entry(struct entry *e, const char *name)
{
    struct table *t = &e->table;
    char doc[DOC_MAX];
    (void)snprintf(doc, sizeof(doc), "rows of %.64s.%.64s from before its columns changed: %.3800s",
                   t->schema, t->name, t->doc);
    const char *new_name = copy_text(&e->arena, name), *new_doc = copy_text(&e->arena, doc);
    if (!new_name || !new_doc)
        return err_set(-ENOMEM, "no memory for table %s.%s", t->schema, name);
    atomic_store_explicit(&t->doc, new_doc, memory_order_release);
    atomic_store_explicit(&t->name, new_name, memory_order_release);
    return 0;
}

int tables_supersede(struct tables *t, const char *schema, const struct probing_table_desc *d,
                     struct table **ret_old, struct table **ret)
{
    struct wanted_table w;
    struct entry *e = NULL;
    uint32_t id = 0;
    char name[64];
    int rc = check_desc(schema, d, &w);
    if (rc)
        return rc;
    (void)pthread_rwlock_wrlock(&t->lock);
    struct entry *old = find_entry(t, w.schema, w.name);
    if (!old || old->table.scan || !w.stored)
        rc = err_set(-EEXIST, "table %s.%s is already there%s", w.schema, w.name,
                     old ? " and is not of the same kind" : "");
    if (rc == 0)
        rc = free_id(t, &w, &id);
    if (rc == 0)
        rc = free_name(t, &old->table, name);
    if (rc == 0) {
        e = make_entry(id, &w, /* self= */ NULL);
        rc = e ? rename_entry(old, name) : err_set(-ENOMEM, "no memory for table %s", w.name);
    }
    if (rc == 0) {
        put_entry(t, e);
        *ret_old = &old->table;
        *ret = &e->table;
    } else {
        drop_entry(e);
    }
    (void)pthread_rwlock_unlock(&t->lock);
    return rc;
}

int tables_restore(struct tables *t, uint32_t id, const char *schema,
                   const struct probing_table_desc *d, struct table **ret)
{
    struct wanted_table w;
    struct entry *e = NULL;
    int rc = check_desc(schema, d, &w);
    if (rc)
        return rc;
    if (id == 0 || id > TABLES_STORED_MAX)
        return err_set(-EINVAL, "table %s.%s has the id %u (1 to %d)", w.schema, w.name, id,
                       TABLES_STORED_MAX);
    (void)pthread_rwlock_wrlock(&t->lock);
    if (t->by_id[id] || find_entry(t, w.schema, w.name)) {
        rc = err_set(-EEXIST, "table %s.%s is there twice", w.schema, w.name);
    } else {
        e = make_entry(id, &w, /* self= */ NULL);
        if (!e)
            rc = err_set(-ENOMEM, "no memory for table %s.%s", w.schema, w.name);
        else
            put_entry(t, e);
    }
    (void)pthread_rwlock_unlock(&t->lock);
    if (rc == 0)
        *ret = &e->table;
    return rc;
}

struct table *tables_refused(struct tables *t)
{
    return &t->refused.table;
}

/* The counters of all tables: a caller of append() has the table and nothing else. */
static _Atomic bool any_misused;

void table_misused(struct table *t, enum table_misuse how, uint32_t n)
{
    if (how == TABLE_MORE_CELLS)
        atomic_store_explicit(&t->misuse_cells, n, memory_order_relaxed);
    (void)atomic_fetch_or_explicit(&t->misuse, how, memory_order_release);
    atomic_store_explicit(&any_misused, true, memory_order_release);
}

bool tables_misused(void)
{
    return atomic_exchange_explicit(&any_misused, false, memory_order_acquire);
}

uint64_t table_lost_rows(const struct table *t)
{
    uint64_t sum = 0;
    for (int i = 0; i < TABLE_LOST_ROWS; i++)
        sum += atomic_load_explicit(&t->lost[i], memory_order_relaxed);
    return sum;
}

void table_own_counters(struct table *t)
{
    struct entry *e = (struct entry *)t; /* `table` is its first member */
    if (t->appended == &e->own[0])
        return;
    atomic_store_explicit(&e->own[0], atomic_load_explicit(t->appended, memory_order_relaxed),
                          memory_order_relaxed);
    for (uint32_t i = 0; i < TABLE_LOSS_REASONS; i++)
        atomic_store_explicit(&e->own[1 + i],
                              atomic_load_explicit(&t->lost[i], memory_order_relaxed),
                              memory_order_relaxed);
    __atomic_store_n(&t->appended, &e->own[0], __ATOMIC_RELEASE);
    __atomic_store_n(&t->lost, &e->own[1], __ATOMIC_RELEASE);
}

struct table *tables_find(struct tables *t, const char *schema, const char *name)
{
    (void)pthread_rwlock_rdlock(&t->lock);
    struct entry *e = find_entry(t, schema, name);
    (void)pthread_rwlock_unlock(&t->lock);
    return e ? &e->table : NULL;
}

struct table *tables_by_id(struct tables *t, uint32_t id)
{
    if (id == 0 || id > TABLES_MAX)
        return NULL;
    (void)pthread_rwlock_rdlock(&t->lock);
    struct entry *e = t->by_id[id];
    (void)pthread_rwlock_unlock(&t->lock);
    return e ? &e->table : NULL;
}

uint32_t tables_list(struct tables *t, struct table **ret, uint32_t max)
{
    uint32_t n = 0;
    (void)pthread_rwlock_rdlock(&t->lock);
    for (uint32_t id = next_id(t, 0); id && n < max; id = next_id(t, id)) {
        if (t->by_id[id])
            ret[n++] = &t->by_id[id]->table;
    }
    (void)pthread_rwlock_unlock(&t->lock);
    return n;
}

uint32_t tables_last(struct tables *t)
{
    (void)pthread_rwlock_rdlock(&t->lock);
    uint32_t id = t->last_stored;
    (void)pthread_rwlock_unlock(&t->lock);
    return id;
}

static int exact_index(const struct table *t, const char *name)
{
    for (uint32_t i = 0; i < t->n_columns; i++) {
        if (strcmp(t->columns[i].name, name) == 0)
            return (int)i;
    }
    return -1;
}

int table_column_index(const struct table *t, const char *name)
{
    int i = exact_index(t, name);
    if (i < 0 && strcmp(name, "timestamp") == 0)
        i = exact_index(t, "ts");
    if (i < 0 && strcmp(name, "step") == 0)
        i = exact_index(t, "local_step");
    return i;
}
