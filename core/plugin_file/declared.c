/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_file/declared.c - what a plugin declares, copied piece by piece and looked at.
 *
 * Any thread.
 */
#include "core/plugin_file/declared.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/text.h"
#include "sdk/lib/buf.h"

#define STRIDE_MAX 4096u
#define TEXTS_MAX ((size_t)1 << 20) /* bytes, of one plugin */
#define CHUNK 64u                   /* bytes: no page ends inside of one */
#define WHEN "{when}"
#define FIRST_BYTES offsetof(struct probing_declarations, n_tables)    /* of version 1.1 */
#define SECOND_BYTES offsetof(struct probing_declarations, n_tracks)   /* of 1.2 */
#define THIRD_BYTES offsetof(struct probing_declarations, n_resources) /* of 1.3 */
#define FIRST_FLAME_BYTES offsetof(struct probing_flame, stacks)       /* of 1.1 */
#define SECOND_FLAME_BYTES offsetof(struct probing_flame, missing)     /* of 1.3 */
#define PANEL_ROWS_MAX 64
#define RESOURCE_MAX (UINT64_C(1) << 40)

struct copying {
    const struct declared_source *from;
    struct declared *to;
    const char *kind; /* "view" ... */
    uint32_t i;
    const char *name; /* of the i-th, once it is known */
};

static int refuse_declaration(const struct copying *c, const char *what)
{
    if (c->name)
        return err_set(-EINVAL, "%s %u ('%.100s') %s", c->kind, c->i, c->name, what);
    return err_set(-EINVAL, "%s %u %s", c->kind, c->i, what);
}

/* ---- texts ---- */

enum { LINE = 1, MAY_LACK = 2 };

static bool is_line(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            return false;
    return true;
}

/* *text is an address of the source, and becomes one of ours. */
static int copy_text(struct copying *c, const char **text, const char *field, size_t max, int how)
{
    char room[DECLARED_SQL_BYTES], why[200];
    uint64_t at = (uint64_t)(uintptr_t)*text;
    size_t n = 0, got = 1;
    const char *end = NULL;

    (void)snprintf(why, sizeof(why), "has no %s", field);
    if (at == 0)
        return how & MAY_LACK ? 0 : refuse_declaration(c, why);
    while (!end && got > 0 && n < max) {
        size_t want = CHUNK - (size_t)((at + n) % CHUNK);
        want = want < max - n ? want : max - n;
        got = c->from->read(c->from->arg, at + n, room + n, want, /* pointers= */ false);
        end = got ? memchr(room + n, '\0', got) : NULL;
        n += got;
    }
    (void)snprintf(why, sizeof(why),
                   n < max ? "has a %s at an address that cannot be read"
                           : "has a %s longer than %zu bytes",
                   field, max - 1);
    if (!end)
        return refuse_declaration(c, why);
    (void)snprintf(why, sizeof(why), "has a %s of more than one line, or with control characters",
                   field);
    if (how & LINE && !is_line(room))
        return refuse_declaration(c, why);
    *text = arena_text(&c->to->texts, room, (size_t)(end - room));
    return *text ? 0 : refuse_declaration(c, "has texts that take too much room");
}

/* "name", or where dotted "schema.name" too. */
static bool is_full_name(const char *text, bool dotted)
{
    char first[DECLARED_NAME_BYTES];
    const char *dot = strchr(text, '.');
    if (!dot || !dotted)
        return text_is_name(text);
    (void)snprintf(first, sizeof(first), "%.*s", (int)(dot - text), text);
    return text_is_name(first) && text_is_name(dot + 1);
}

static int copy_name(struct copying *c, const char **name, bool dotted)
{
    int rc = copy_text(c, name, "name", DECLARED_NAME_BYTES, LINE);
    if (rc < 0)
        return rc;
    c->name = *name;
    return is_full_name(*name, dotted)
               ? 0
               : refuse_declaration(
                     c, dotted ? "has a bad name: [a-z][a-z0-9_]*, or two of them with '.' "
                                 "between"
                               : "has a bad name: [a-z][a-z0-9_]*");
}

/* ---- the kinds ---- */

static int copy_view(struct copying *c, void *of)
{
    struct probing_view *v = of;
    int rc = copy_name(c, &v->name, /* dotted= */ true);
    if (rc == 0 &&
        (strncmp(v->name, "probing.", 8) == 0 || strncmp(v->name, "information_schema.", 19) == 0))
        return refuse_declaration(c, "is in a schema that is the core's own");
    if (rc == 0)
        rc = copy_text(c, &v->sql, "sql", DECLARED_SQL_BYTES, 0);
    if (rc == 0)
        rc = copy_text(c, &v->doc, "doc", DECLARED_LINE_BYTES, LINE);
    return rc < 0 ? rc : copy_text(c, &v->why, "why", DECLARED_SQL_BYTES, MAY_LACK);
}

static int copy_metric(struct copying *c, void *of)
{
    struct probing_metric *m = of;
    int rc = copy_name(c, &m->name, /* dotted= */ false);
    if (rc == 0 && m->kind != PROBING_GAUGE && m->kind != PROBING_COUNTER)
        return refuse_declaration(c, "is neither PROBING_GAUGE nor PROBING_COUNTER");
    if (rc == 0 && m->unit > PROBING_MB)
        return refuse_declaration(c, "has a unit that there is not");
    if (rc == 0)
        rc = copy_text(c, &m->help, "help", DECLARED_LINE_BYTES, LINE);
    return rc < 0 ? rc : copy_text(c, &m->sql, "sql", DECLARED_SQL_BYTES, 0);
}

static int copy_alias(struct copying *c, void *of)
{
    struct probing_alias *a = of;
    int rc = copy_name(c, &a->name, /* dotted= */ true);
    if (rc == 0 && !strchr(a->name, '.'))
        return refuse_declaration(c, "has no owner: OWNER.NAME");
    if (rc == 0)
        rc = copy_text(c, &a->setting, "setting", DECLARED_NAME_BYTES, LINE);
    return rc < 0                     ? rc
           : text_is_name(a->setting) ? 0
                                      : refuse_declaration(c, "has a bad name of a setting");
}

static int copy_table(struct copying *c, void *of)
{
    struct probing_table_name *t = of;
    int rc = copy_name(c, &t->name, /* dotted= */ true);
    return rc == 0 && !strchr(t->name, '.') ? refuse_declaration(c, "has no schema: SCHEMA.NAME")
                                            : rc;
}

/* "name=value" */
static bool is_assignment(const char *text)
{
    char name[DECLARED_NAME_BYTES];
    const char *equals = strchr(text, '=');
    if (!equals || equals[1] == '\0')
        return false;
    (void)snprintf(name, sizeof(name), "%.*s", (int)(equals - text), text);
    return text_is_name(name);
}

static int copy_flame(struct copying *c, void *of)
{
    struct probing_flame *f = of;
    int rc = copy_name(c, &f->name, /* dotted= */ false);
    if (rc == 0 && f->unit != PROBING_NS && f->unit != PROBING_BYTES)
        return refuse_declaration(c, "has a unit that is neither PROBING_NS nor PROBING_BYTES");
    if (rc == 0)
        rc = copy_text(c, &f->doc, "doc", DECLARED_LINE_BYTES, LINE);
    if (rc == 0)
        rc = copy_text(c, &f->sql, "sql", DECLARED_SQL_BYTES, 0);
    if (rc == 0)
        rc = copy_text(c, &f->rest, "rest", DECLARED_SQL_BYTES, MAY_LACK);
    if (rc == 0)
        rc = copy_text(c, &f->newest, "newest", DECLARED_LINE_BYTES, MAY_LACK);
    if (rc == 0)
        rc = copy_text(c, &f->empty, "empty", DECLARED_LINE_BYTES, LINE | MAY_LACK);
    if (rc == 0)
        rc = copy_text(c, &f->stacks, "stacks", DECLARED_SQL_BYTES, MAY_LACK);
    if (rc == 0)
        rc = copy_text(c, &f->setting, "setting", DECLARED_NAME_BYTES, LINE | MAY_LACK);
    if (rc == 0)
        rc = copy_text(c, &f->missing, "missing", DECLARED_SQL_BYTES, MAY_LACK);
    return rc == 0 && f->setting && !is_assignment(f->setting)
               ? refuse_declaration(c, "has a bad setting: NAME=VALUE")
               : rc;
}

static int copy_track(struct copying *c, void *of)
{
    struct probing_track *t = of;
    int rc = copy_name(c, &t->name, /* dotted= */ false);
    if (rc == 0)
        rc = copy_text(c, &t->doc, "doc", DECLARED_LINE_BYTES, LINE);
    if (rc == 0)
        rc = copy_text(c, &t->sql, "sql", DECLARED_SQL_BYTES, 0);
    return rc < 0 ? rc : copy_text(c, &t->newest, "newest", DECLARED_LINE_BYTES, MAY_LACK);
}

static int copy_panel(struct copying *c, void *of)
{
    struct probing_panel *p = of;
    int rc = copy_name(c, &p->name, /* dotted= */ false);
    if (rc == 0 && p->kind != PROBING_LINES && p->kind != PROBING_COLUMNS)
        return refuse_declaration(c, "is neither PROBING_LINES nor PROBING_COLUMNS");
    if (rc == 0 && (p->rows == 0 || p->rows > PANEL_ROWS_MAX))
        return refuse_declaration(c, "has no rows, or more than 64");
    if (rc == 0)
        rc = copy_text(c, &p->doc, "doc", DECLARED_LINE_BYTES, LINE);
    return rc < 0 ? rc : copy_text(c, &p->sql, "sql", DECLARED_SQL_BYTES, 0);
}

static int copy_resource(struct copying *c, void *of)
{
    struct probing_resource *r = of;
    char which[200] = "is no limit that is known: use one of";
    enum room_limit limit;
    int rc = copy_name(c, &r->name, /* dotted= */ false);
    if (rc == 0 && !room_limit_of(r->name, &limit)) {
        for (int i = 0; i < ROOM_LIMITS; i++)
            (void)snprintf(which + strlen(which), sizeof(which) - strlen(which), "%s %s",
                           i ? "," : "", room_limit_name(i));
        return refuse_declaration(c, which);
    }
    return rc == 0 && (r->takes > RESOURCE_MAX || r->each_thread > RESOURCE_MAX)
               ? refuse_declaration(c, "takes more than 1 TiB")
               : rc;
}

void declared_takes(const struct declared *d, struct room_part *ret)
{
    enum room_limit limit;
    if (!d || d->all.n_resources == 0)
        return;
    *ret = (struct room_part){.name = ret->name};
    for (uint32_t i = 0; i < d->all.n_resources; i++) {
        const struct probing_resource *r = &d->all.resources[i];
        if (!room_limit_of(r->name, &limit))
            continue;
        ret->takes[limit] = r->takes;
        ret->each_thread[limit] = r->each_thread;
    }
    ret->takes[ROOM_LOCKED] = ret->takes[ROOM_ADDRESS_SPACE];
    ret->each_thread[ROOM_LOCKED] = ret->each_thread[ROOM_ADDRESS_SPACE];
}

/* ---- all of them ---- */

struct list {
    const char *kind, *type, *stride_name; /* type: without probing_ */
    uint32_t n, stride, size;              /* size: of ours */
    uint64_t at;
    int (*copy)(struct copying *c, void *of);
};

/* Refuse a name that is there twice; several views may share one. */
static int check_twice(const struct copying *c, const struct list *l, const char *all)
{
    const char *name, *other;
    memcpy(&name, all + (size_t)c->i * l->size, sizeof(name));
    for (uint32_t k = 0; k < c->i && l->copy != copy_view; k++) {
        memcpy(&other, all + (size_t)k * l->size, sizeof(other));
        if (strcmp(name, other) == 0)
            return refuse_declaration(c, "is there twice");
    }
    return 0;
}

/* How much of one there is: all, or as much as an older version had.  0: less than any. */
static uint32_t size_of_version(const struct list *l)
{
    if (l->stride >= l->size)
        return l->size;
    if (l->copy != copy_flame || l->stride < FIRST_FLAME_BYTES)
        return 0;
    return l->stride < SECOND_FLAME_BYTES ? FIRST_FLAME_BYTES : SECOND_FLAME_BYTES;
}

static int copy_list(const struct declared_source *from, struct declared *to, const struct list *l,
                     const void **ret)
{
    struct copying c = {.from = from, .to = to, .kind = l->kind};
    int rc = 0;

    *ret = NULL;
    if (l->n == 0)
        return 0;
    if (l->n > DECLARED_MAX)
        return err_set(-EINVAL, "it declares %u %ss; at most %d are possible", l->n, l->kind,
                       DECLARED_MAX);
    if (size_of_version(l) == 0 || l->stride > STRIDE_MAX)
        return err_set(-EINVAL, "%s is %u, struct probing_%s has %u bytes; set .%s", l->stride_name,
                       l->stride, l->type, l->size, l->stride_name);
    const uint32_t size = size_of_version(l);
    char *all = arena_zalloc(&to->texts, l->n, l->size);
    if (!all)
        return err_set(-ENOMEM, "no memory for what plugin %s declares", to->plugin);
    for (; c.i < l->n && rc == 0; c.i++) {
        char *one = all + (size_t)c.i * l->size;
        c.name = NULL;
        if (l->at == 0 || from->read(from->arg, l->at + (uint64_t)c.i * l->stride, one, size,
                                     /* pointers= */ true) != size)
            return refuse_declaration(&c, "is at an address that cannot be read");
        rc = l->copy(&c, one);
        if (rc == 0)
            rc = check_twice(&c, l, all);
    }
    *ret = all;
    return rc;
}

#define COPIED(called, what, strides, names, copier)                   \
    {                                                                  \
        {.kind = called,                                               \
         .type = #what,                                                \
         .stride_name = #strides,                                      \
         .n = given.n_##names,                                         \
         .stride = given.strides,                                      \
         .size = sizeof(struct probing_##what),                        \
         .at = (uint64_t)(uintptr_t)given.names,                       \
         .copy = copier},                                              \
            &all->n_##names, &all->strides, (const void **)&all->names \
    }

static int copy_all(const struct declared_source *from, uint64_t address, struct declared *d)
{
    struct probing_declarations given = {.size = 0}, *all = &d->all;
    uint32_t size;

    if (from->read(from->arg, address, &size, sizeof(size), true) != sizeof(size))
        return err_set(-EINVAL, "its declarations are at an address that cannot be read");
    if (size < FIRST_BYTES || size > STRIDE_MAX)
        return err_set(-EINVAL,
                       "its declarations say %u bytes, version 1.1 has %zu; set .size = "
                       "sizeof(struct probing_declarations)",
                       size, FIRST_BYTES);
    size = size < SECOND_BYTES    ? FIRST_BYTES
           : size < THIRD_BYTES   ? SECOND_BYTES
           : size < sizeof(given) ? THIRD_BYTES
                                  : sizeof(given);
    if (from->read(from->arg, address, &given, size, true) != size)
        return err_set(-EINVAL, "its declarations are at an address that cannot be read");
    *all = (struct probing_declarations){.size = sizeof(*all)};
    const struct copied {
        struct list list;
        uint32_t *n, *stride;
        const void **to;
    } lists[] = {COPIED("view", view, view_size, views, copy_view),
                 COPIED("metric", metric, metric_size, metrics, copy_metric),
                 COPIED("alias", alias, alias_size, aliases, copy_alias),
                 COPIED("flame", flame, flame_size, flames, copy_flame),
                 COPIED("table", table_name, table_size, tables, copy_table),
                 COPIED("track", track, track_size, tracks, copy_track),
                 COPIED("panel", panel, panel_size, panels, copy_panel),
                 COPIED("resource", resource, resource_size, resources, copy_resource)};
    int rc = 0;
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]) && rc == 0; i++) {
        *lists[i].n = lists[i].list.n;
        *lists[i].stride = lists[i].list.size;
        rc = copy_list(from, d, &lists[i].list, lists[i].to);
    }
    return rc;
}

int declared_read(const struct declared_source *from, uint64_t address, const char *plugin,
                  struct declared **ret)
{
    struct declared *d = calloc(1, sizeof(*d));
    if (!d)
        return err_set(-ENOMEM, "no memory for what plugin %s declares", plugin);
    arena_init(&d->texts, TEXTS_MAX);
    (void)snprintf(d->plugin, sizeof(d->plugin), "%s", plugin);
    int rc = copy_all(from, address, d);
    if (rc < 0) {
        declared_free(d);
        return rc;
    }
    *ret = d;
    return 0;
}

void declared_free(struct declared *d)
{
    if (!d)
        return;
    arena_done(&d->texts);
    free(d);
}

/* ---- are they the same? ---- */

static bool same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static bool same_flame(const struct probing_flame *a, const struct probing_flame *b)
{
    return same_text(a->name, b->name) && same_text(a->doc, b->doc) && same_text(a->sql, b->sql) &&
           same_text(a->rest, b->rest) && same_text(a->newest, b->newest) &&
           same_text(a->empty, b->empty) && same_text(a->stacks, b->stacks) &&
           same_text(a->setting, b->setting) && a->flags == b->flags &&
           same_text(a->missing, b->missing) && a->unit == b->unit;
}

static bool same_track(const struct probing_track *a, const struct probing_track *b)
{
    return same_text(a->name, b->name) && same_text(a->doc, b->doc) && same_text(a->sql, b->sql) &&
           same_text(a->newest, b->newest);
}

static bool same_panel(const struct probing_panel *a, const struct probing_panel *b)
{
    return same_text(a->name, b->name) && same_text(a->doc, b->doc) && same_text(a->sql, b->sql) &&
           a->kind == b->kind && a->rows == b->rows;
}

bool declared_same(const struct declared *one, const struct declared *other)
{
    const struct probing_declarations *a = &one->all, *b = &other->all;
    bool r = same_text(one->plugin, other->plugin) && a->n_views == b->n_views &&
             a->n_metrics == b->n_metrics && a->n_aliases == b->n_aliases &&
             a->n_flames == b->n_flames && a->n_tables == b->n_tables &&
             a->n_tracks == b->n_tracks && a->n_panels == b->n_panels &&
             a->n_resources == b->n_resources;
    for (uint32_t i = 0; r && i < a->n_views; i++)
        r = same_text(a->views[i].name, b->views[i].name) &&
            same_text(a->views[i].sql, b->views[i].sql) &&
            same_text(a->views[i].doc, b->views[i].doc) &&
            same_text(a->views[i].why, b->views[i].why);
    for (uint32_t i = 0; r && i < a->n_metrics; i++)
        r = same_text(a->metrics[i].name, b->metrics[i].name) &&
            same_text(a->metrics[i].sql, b->metrics[i].sql) &&
            same_text(a->metrics[i].help, b->metrics[i].help) &&
            a->metrics[i].kind == b->metrics[i].kind && a->metrics[i].unit == b->metrics[i].unit;
    for (uint32_t i = 0; r && i < a->n_aliases; i++)
        r = same_text(a->aliases[i].name, b->aliases[i].name) &&
            same_text(a->aliases[i].setting, b->aliases[i].setting);
    for (uint32_t i = 0; r && i < a->n_flames; i++)
        r = same_flame(&a->flames[i], &b->flames[i]);
    for (uint32_t i = 0; r && i < a->n_tables; i++)
        r = same_text(a->tables[i].name, b->tables[i].name);
    for (uint32_t i = 0; r && i < a->n_tracks; i++)
        r = same_track(&a->tracks[i], &b->tracks[i]);
    for (uint32_t i = 0; r && i < a->n_panels; i++)
        r = same_panel(&a->panels[i], &b->panels[i]);
    for (uint32_t i = 0; r && i < a->n_resources; i++)
        r = same_text(a->resources[i].name, b->resources[i].name) &&
            a->resources[i].takes == b->resources[i].takes &&
            a->resources[i].each_thread == b->resources[i].each_thread;
    return r;
}

int declared_sql(const char *template, const char *when, struct buf *ret)
{
    for (const char *at = template, *next; *at; at = next) {
        const char *mark = strstr(at, WHEN);
        next = mark ? mark + strlen(WHEN) : at + strlen(at);
        (void)buf_add(ret, at, mark ? (size_t)(mark - at) : strlen(at));
        if (mark)
            (void)buf_adds(ret, when);
    }
    return ret->failed ? err_set(ret->failed, "a select of a plugin is too long") : 0;
}
