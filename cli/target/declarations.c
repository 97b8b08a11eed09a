/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/target/declarations.c - what plugins declare, out of their files and of data directories.
 *
 * One thread.
 */
#include "cli/target/declarations.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/target/installed.h"
#include "core/base/err.h"
#include "core/base/text.h"
#include "core/datadir/datadir.h"
#include "core/sql/sql.h"
#include "sdk/lib/buf.h"

struct each {
    int (*fn)(void *arg, const struct declared *d);
    void *arg;
};

static int each_one(void *arg, struct declared *d)
{
    const struct each *e = arg;
    int rc = e->fn(e->arg, d);
    declared_free(d);
    return rc;
}

static int each_file(void *arg, const char *file, struct declared *d)
{
    (void)file;
    return each_one(arg, d);
}

int installed_declarations(int (*fn)(void *arg, const struct declared *d), void *arg)
{
    char path[8192], own[4096];
    struct each e = {fn, arg};
    const char *first = getenv("PROBING_PLUGIN_PATH");
    const struct declared_search s = {.path = path, .found = each_file, .arg = &e};

    if (installed_file("plugins", own, sizeof(own)) < 0)
        own[0] = '\0';
    (void)snprintf(path, sizeof(path), "%.4000s:%s", first != NULL ? first : "", own);
    return declared_search(&s);
}

struct near {
    const char *word;
    char name[64];
};

static int take_near(void *arg, const struct declared *d)
{
    struct near *n = arg;
    const char *name = d->plugin;

    if (n->name[0] == '\0' && text_nearest(n->word, &name, 1) != NULL)
        (void)snprintf(n->name, sizeof(n->name), "%s", name);
    return 0;
}

int installed_plugin_near(const char *word, int rc)
{
    struct near n = {.word = word};
    char why[ERR_TEXT_BYTES];

    (void)snprintf(why, sizeof(why), "%s", err_why(rc));
    (void)installed_declarations(take_near, &n);
    if (n.name[0] == '\0')
        return err_set(rc, "%s", why);
    return err_set(rc, "there is no plugin '%s'; did you mean '%s'?", word, n.name);
}

int directory_declarations(const char *directory, int (*fn)(void *arg, const struct declared *d),
                           void *arg)
{
    struct each e = {fn, arg};
    struct datadir d = DATADIR_NONE;
    struct buf text;

    buf_init(&text, DECLARED_LINES_BYTES);
    int rc = datadir_open(directory, DATADIR_ANY, &d);
    if (rc == 0 && datadir_has(&d, DECLARED_FILE, NULL))
        rc = datadir_read(&d, DECLARED_FILE, &text);
    if (rc == 0)
        rc = declared_parse_all(text.data, text.size, each_one, &e);
    buf_done(&text);
    datadir_close(&d);
    return rc;
}

/* ---- views of the dead ---- */

struct offer {
    struct sql *engine;
    bool loaded;
    char own[64][64]; /* plugins of which the directory tells */
    uint32_t n_own;
};

static bool is_select(const struct probing_view *v)
{
    return sql_check_select(v->sql, strlen(v->sql)) == 0 &&
           (v->why == NULL || sql_check_select(v->why, strlen(v->why)) == 0);
}

static int take_views(void *arg, const struct declared *d)
{
    struct sql_view views[2 * DECLARED_MAX];
    struct offer *o = arg;
    uint32_t n = 0;

    for (uint32_t i = 0; i < o->n_own && !o->loaded; i++)
        if (strcmp(o->own[i], d->plugin) == 0)
            return 0;
    for (uint32_t i = 0; i < d->all.n_views; i++)
        if (is_select(&d->all.views[i]))
            views[n++] = (struct sql_view){.name = d->all.views[i].name,
                                           .definition = d->all.views[i].sql,
                                           .doc = d->all.views[i].doc,
                                           .why = d->all.views[i].why,
                                           .plugin = d->plugin,
                                           .loaded = o->loaded};
    for (uint32_t i = 0; i < d->all.n_tables && !o->loaded; i++)
        views[n++] = (struct sql_view){.name = d->all.tables[i].name, .plugin = d->plugin};
    if (o->loaded && o->n_own < 64)
        (void)snprintf(o->own[o->n_own++], sizeof(o->own[0]), "%s", d->plugin);
    int rc = sql_declare_views(o->engine, views, n);
    return rc < 0 ? rc : 0;
}

static void look_installed(void *arg)
{
    (void)installed_declarations(take_views, arg);
    err_clear();
}

static int why_not(void *arg, const char *plugin, const char *table, char *text, size_t size)
{
    const struct offer *o = arg;
    for (uint32_t i = 0; i < o->n_own; i++)
        if (strcmp(o->own[i], plugin) == 0) {
            (void)snprintf(text, size, "plugin %s was loaded, and there is no table '%s'", plugin,
                           table);
            return 0;
        }
    (void)snprintf(text, size, "its process had not loaded plugin %s", plugin);
    return 0;
}

void offer_views(struct sql *engine, const char *directory)
{
    static struct offer offer; /* as long as the engine: one is used at a time */
    const struct sql_unknown unknown = {
        .find = look_installed, .why = why_not, .arg = &offer, .ended = true};

    offer = (struct offer){.engine = engine, .loaded = true};
    (void)directory_declarations(directory, take_views, &offer);
    offer.loaded = false;
    err_clear();
    sql_ask_unknown(engine, &unknown);
}
