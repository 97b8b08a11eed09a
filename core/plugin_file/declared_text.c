/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_file/declared_text.c - what a plugin declares, all but metrics, as a line of JSON:
 * what a data directory says of the plugins that were loaded, to whoever reads it later; and what
 * the command tells a core of the plugins that are installed beside the command.
 *
 * Any thread.  A line that is read is believed no more than a plugin's file: it goes the same way.
 *
 *     {"plugin":"mine","views":[{"name":"..","sql":"..","doc":"..","why":".."}],
 *      "flames":[{"name":"..","doc":"..","sql":"..","rest":"..","newest":"..","empty":"..",
 *                 "unit":1,"stacks":"..","setting":"..","missing":"..","flags":0}],
 *      "aliases":[{"name":"..","setting":".."}],
 *      "tables":[{"name":".."}],
 *      "tracks":[{"name":"..","doc":"..","sql":"..","newest":".."}],
 *      "panels":[{"name":"..","doc":"..","sql":"..","kind":1,"rows":8}],
 *      "resources":[{"name":"..","takes":1,"each_thread":0}]}
 */
#include <errno.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/base/text.h"
#include "core/plugin_file/declared.h"
#include "sdk/lib/buf.h"

static void add_text(struct buf *b, const char *before, const char *text)
{
    if (!text)
        return;
    (void)buf_adds(b, before);
    (void)json_add_text(b, text, strlen(text));
}

static void add_view(struct buf *b, const struct probing_view *v)
{
    add_text(b, "{\"name\":", v->name);
    add_text(b, ",\"sql\":", v->sql);
    add_text(b, ",\"doc\":", v->doc);
    add_text(b, ",\"why\":", v->why);
    (void)buf_adds(b, "}");
}

static void add_flame(struct buf *b, const struct probing_flame *f)
{
    add_text(b, "{\"name\":", f->name);
    add_text(b, ",\"doc\":", f->doc);
    add_text(b, ",\"sql\":", f->sql);
    add_text(b, ",\"rest\":", f->rest);
    add_text(b, ",\"newest\":", f->newest);
    add_text(b, ",\"empty\":", f->empty);
    add_text(b, ",\"stacks\":", f->stacks);
    add_text(b, ",\"setting\":", f->setting);
    add_text(b, ",\"missing\":", f->missing);
    (void)buf_addf(b, ",\"unit\":%u,\"flags\":%llu}", f->unit, (unsigned long long)f->flags);
}

static void add_track(struct buf *b, const struct probing_track *t)
{
    add_text(b, "{\"name\":", t->name);
    add_text(b, ",\"doc\":", t->doc);
    add_text(b, ",\"sql\":", t->sql);
    add_text(b, ",\"newest\":", t->newest);
    (void)buf_adds(b, "}");
}

static void add_panel(struct buf *b, const struct probing_panel *p)
{
    add_text(b, "{\"name\":", p->name);
    add_text(b, ",\"doc\":", p->doc);
    add_text(b, ",\"sql\":", p->sql);
    (void)buf_addf(b, ",\"kind\":%u,\"rows\":%u}", p->kind, p->rows);
}

int declared_write(const struct declared *d, struct buf *ret)
{
    add_text(ret, "{\"plugin\":", d->plugin);
    (void)buf_adds(ret, ",\"views\":[");
    for (uint32_t i = 0; i < d->all.n_views; i++) {
        (void)buf_adds(ret, i ? "," : "");
        add_view(ret, &d->all.views[i]);
    }
    (void)buf_adds(ret, "],\"flames\":[");
    for (uint32_t i = 0; i < d->all.n_flames; i++) {
        (void)buf_adds(ret, i ? "," : "");
        add_flame(ret, &d->all.flames[i]);
    }
    (void)buf_adds(ret, "],\"aliases\":[");
    for (uint32_t i = 0; i < d->all.n_aliases; i++) {
        add_text(ret, i ? ",{\"name\":" : "{\"name\":", d->all.aliases[i].name);
        add_text(ret, ",\"setting\":", d->all.aliases[i].setting);
        (void)buf_adds(ret, "}");
    }
    (void)buf_adds(ret, "],\"tables\":[");
    for (uint32_t i = 0; i < d->all.n_tables; i++) {
        add_text(ret, i ? ",{\"name\":" : "{\"name\":", d->all.tables[i].name);
        (void)buf_adds(ret, "}");
    }
    (void)buf_adds(ret, "],\"tracks\":[");
    for (uint32_t i = 0; i < d->all.n_tracks; i++) {
        (void)buf_adds(ret, i ? "," : "");
        add_track(ret, &d->all.tracks[i]);
    }
    (void)buf_adds(ret, "],\"panels\":[");
    for (uint32_t i = 0; i < d->all.n_panels; i++) {
        (void)buf_adds(ret, i ? "," : "");
        add_panel(ret, &d->all.panels[i]);
    }
    (void)buf_adds(ret, "],\"resources\":[");
    for (uint32_t i = 0; i < d->all.n_resources; i++) {
        const struct probing_resource *r = &d->all.resources[i];
        add_text(ret, i ? ",{\"name\":" : "{\"name\":", r->name);
        (void)buf_addf(ret, ",\"takes\":%llu,\"each_thread\":%llu}", (unsigned long long)r->takes,
                       (unsigned long long)r->each_thread);
    }
    return buf_adds(ret, "]}\n");
}

/* ---- and back ---- */

struct parsed {
    struct probing_view views[DECLARED_MAX];
    struct probing_flame flames[DECLARED_MAX];
    struct probing_alias aliases[DECLARED_MAX];
    struct probing_table_name tables[DECLARED_MAX];
    struct probing_track tracks[DECLARED_MAX];
    struct probing_panel panels[DECLARED_MAX];
    struct probing_resource resources[DECLARED_MAX];
};

static uint32_t take_views(const struct json *list, struct probing_view *ret)
{
    uint32_t n = 0;
    for (const struct json *v = list ? list->first : NULL; v && n < DECLARED_MAX; v = v->next)
        ret[n++] = (struct probing_view){.name = json_text(v, "name", NULL),
                                         .sql = json_text(v, "sql", NULL),
                                         .doc = json_text(v, "doc", NULL),
                                         .why = json_text(v, "why", NULL)};
    return n;
}

static uint32_t take_flames(const struct json *list, struct probing_flame *ret)
{
    uint32_t n = 0;
    for (const struct json *f = list ? list->first : NULL; f && n < DECLARED_MAX; f = f->next)
        ret[n++] = (struct probing_flame){.name = json_text(f, "name", NULL),
                                          .doc = json_text(f, "doc", NULL),
                                          .sql = json_text(f, "sql", NULL),
                                          .rest = json_text(f, "rest", NULL),
                                          .newest = json_text(f, "newest", NULL),
                                          .empty = json_text(f, "empty", NULL),
                                          .unit = (uint32_t)json_int(f, "unit", 0),
                                          .stacks = json_text(f, "stacks", NULL),
                                          .setting = json_text(f, "setting", NULL),
                                          .missing = json_text(f, "missing", NULL),
                                          .flags = (uint64_t)json_int(f, "flags", 0)};
    return n;
}

static uint32_t take_aliases(const struct json *list, struct probing_alias *ret)
{
    uint32_t n = 0;
    for (const struct json *a = list ? list->first : NULL; a && n < DECLARED_MAX; a = a->next)
        ret[n++] = (struct probing_alias){.name = json_text(a, "name", NULL),
                                          .setting = json_text(a, "setting", NULL)};
    return n;
}

static uint32_t take_tables(const struct json *list, struct probing_table_name *ret)
{
    uint32_t n = 0;
    for (const struct json *t = list ? list->first : NULL; t && n < DECLARED_MAX; t = t->next)
        ret[n++] = (struct probing_table_name){.name = json_text(t, "name", NULL)};
    return n;
}

static uint32_t take_tracks(const struct json *list, struct probing_track *ret)
{
    uint32_t n = 0;
    for (const struct json *t = list ? list->first : NULL; t && n < DECLARED_MAX; t = t->next)
        ret[n++] = (struct probing_track){.name = json_text(t, "name", NULL),
                                          .doc = json_text(t, "doc", NULL),
                                          .sql = json_text(t, "sql", NULL),
                                          .newest = json_text(t, "newest", NULL)};
    return n;
}

static uint32_t take_panels(const struct json *list, struct probing_panel *ret)
{
    uint32_t n = 0;
    for (const struct json *p = list ? list->first : NULL; p && n < DECLARED_MAX; p = p->next)
        ret[n++] = (struct probing_panel){.name = json_text(p, "name", NULL),
                                          .doc = json_text(p, "doc", NULL),
                                          .sql = json_text(p, "sql", NULL),
                                          .kind = (uint32_t)json_int(p, "kind", 0),
                                          .rows = (uint32_t)json_int(p, "rows", 0)};
    return n;
}

static uint32_t take_resources(const struct json *list, struct probing_resource *ret)
{
    uint32_t n = 0;
    for (const struct json *r = list ? list->first : NULL; r && n < DECLARED_MAX; r = r->next)
        ret[n++] =
            (struct probing_resource){.name = json_text(r, "name", NULL),
                                      .takes = (uint64_t)json_int(r, "takes", 0),
                                      .each_thread = (uint64_t)json_int(r, "each_thread", 0)};
    return n;
}

/* Texts have their ends; what has pointers is whole. */
static size_t read_own(void *arg, uint64_t address, void *ret, size_t n, bool pointers)
{
    const char *at = (const char *)(uintptr_t)address;
    (void)arg;
    n = pointers || n == 0 ? n : strnlen(at, n - 1) + 1;
    memcpy(ret, at, n);
    return n;
}

static int declared_parse(const char *line, size_t size, struct declared **ret)
{
    const struct declared_source from = {.read = read_own};
    struct arena mem;
    struct json *j;
    arena_init(&mem, (size_t)8 << 20);
    int rc = json_parse(&mem, line, size, &j);
    const char *plugin = rc == 0 ? json_text(j, "plugin", "") : "";
    struct parsed *p = rc == 0 ? arena_zalloc(&mem, 1, sizeof(*p)) : NULL;
    if (rc == 0 && (!p || !text_is_name(plugin)))
        rc = err_set(-EINVAL, "a line about a plugin that is none");
    if (rc == 0) {
        const struct probing_declarations all = {
            .size = sizeof(all),
            .n_views = take_views(json_get(j, "views"), p->views),
            .view_size = sizeof(p->views[0]),
            .n_flames = take_flames(json_get(j, "flames"), p->flames),
            .flame_size = sizeof(p->flames[0]),
            .n_aliases = take_aliases(json_get(j, "aliases"), p->aliases),
            .alias_size = sizeof(p->aliases[0]),
            .aliases = p->aliases,
            .n_tables = take_tables(json_get(j, "tables"), p->tables),
            .table_size = sizeof(p->tables[0]),
            .tables = p->tables,
            .n_tracks = take_tracks(json_get(j, "tracks"), p->tracks),
            .track_size = sizeof(p->tracks[0]),
            .tracks = p->tracks,
            .n_panels = take_panels(json_get(j, "panels"), p->panels),
            .panel_size = sizeof(p->panels[0]),
            .panels = p->panels,
            .n_resources = take_resources(json_get(j, "resources"), p->resources),
            .resource_size = sizeof(p->resources[0]),
            .resources = p->resources,
            .views = p->views,
            .flames = p->flames};
        rc = declared_read(&from, (uint64_t)(uintptr_t)&all, plugin, ret);
    }
    arena_done(&mem);
    return rc;
}

int declared_parse_all(const char *text, size_t size, int (*fn)(void *arg, struct declared *d),
                       void *arg)
{
    int rc = 0;
    for (size_t at = 0; at < size && rc >= 0;) {
        const char *end = memchr(text + at, '\n', size - at);
        size_t n = end ? (size_t)(end - text) - at : size - at;
        struct declared *d = NULL;
        rc = n > 0 ? declared_parse(text + at, n, &d) : 0;
        if (rc == 0 && d)
            rc = fn(arg, d);
        at += n + 1;
    }
    return rc < 0 ? rc : 0;
}
