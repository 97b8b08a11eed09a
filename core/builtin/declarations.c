/* SPDX-License-Identifier: Apache-2.0
 *
 * core/builtin/declarations.c - what plugins declare becomes views of the engine, a line in the
 * data directory and rows of probing.flame_modes.
 *
 * Threads: plugins that are loaded, on the control thread; those that are only installed, by
 * whichever worker asks for a name that nobody knows, under the host's lock.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/builtin/builtin.h"
#include "core/plugin_file/declared.h"
#include "core/plugin_host/plugin_host.h"
#include "core/sql/sql.h"

/* ---- is it right? ---- */

static int check_sql(const char *kind, const char *name, const char *field, const char *sql)
{
    char why[ERR_TEXT_BYTES / 2];
    struct buf text;
    if (!sql)
        return 0;
    buf_init(&text, 4 * (size_t)DECLARED_SQL_BYTES);
    int r = declared_sql(sql, "true", &text);
    if (r == 0)
        r = sql_check_select(buf_text(&text), text.size);
    buf_done(&text);
    if (r == 0)
        return 0;
    (void)snprintf(why, sizeof(why), "%s", err_why(r));
    return err_set(-EINVAL, "%s '%s': its %s is no select: %s", kind, name, field, why);
}

/* A computed table of a plugin's own schema may have a view of its name: the table is asked while
 * the plugin runs, the view when nobody can compute any more. */
static int check_view(struct core *c, const char *plugin, const struct probing_view *v)
{
    char schema[DECLARED_NAME_BYTES] = "probing";
    const char *dot = strchr(v->name, '.');
    if (dot)
        (void)snprintf(schema, sizeof(schema), "%.*s", (int)(dot - v->name), v->name);
    const struct table *t = tables_find(c->tables, schema, dot ? dot + 1 : v->name);
    if (t && (!t->scan || strcmp(schema, plugin) != 0))
        return err_set(-EINVAL, "view '%s' has the name of a table that there is", v->name);
    int rc = check_sql("view", v->name, "sql", v->sql);
    return rc < 0 ? rc : check_sql("view", v->name, "why", v->why);
}

static int check_declared(void *arg, const struct declared *d)
{
    struct core *c = arg;
    int rc = 0;
    for (uint32_t i = 0; i < d->all.n_views && rc == 0; i++)
        rc = check_view(c, d->plugin, &d->all.views[i]);
    for (uint32_t i = 0; i < d->all.n_metrics && rc == 0; i++)
        rc = check_sql("metric", d->all.metrics[i].name, "sql", d->all.metrics[i].sql);
    for (uint32_t i = 0; i < d->all.n_flames && rc == 0; i++) {
        const struct probing_flame *f = &d->all.flames[i];
        rc = check_sql("flame", f->name, "sql", f->sql);
        if (rc == 0)
            rc = check_sql("flame", f->name, "rest", f->rest);
        if (rc == 0)
            rc = check_sql("flame", f->name, "newest", f->newest);
        if (rc == 0)
            rc = check_sql("flame", f->name, "stacks", f->stacks);
        if (rc == 0)
            rc = check_sql("flame", f->name, "missing", f->missing);
    }
    for (uint32_t i = 0; i < d->all.n_tracks && rc == 0; i++) {
        rc = check_sql("track", d->all.tracks[i].name, "sql", d->all.tracks[i].sql);
        if (rc == 0)
            rc = check_sql("track", d->all.tracks[i].name, "newest", d->all.tracks[i].newest);
    }
    for (uint32_t i = 0; i < d->all.n_panels && rc == 0; i++)
        rc = check_sql("panel", d->all.panels[i].name, "sql", d->all.panels[i].sql);
    return rc;
}

/* ---- for those who read the directory later ---- */

static int add_line(const char *path, const struct buf *line)
{
    struct stat st;
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd == -1)
        return -errno;
    int rc = fstat(fd, &st) == -1 ? -errno : 0;
    if (rc == 0 && (uint64_t)st.st_size + line->size > DECLARED_LINES_BYTES)
        rc = -ENOSPC;
    if (rc == 0 && write(fd, line->data, line->size) != (ssize_t)line->size)
        rc = -EIO;
    (void)close(fd);
    return rc;
}

static void remember_settings(struct core *c, const struct declared *d)
{
    char path[DATADIR_PATH_BYTES];
    struct buf line;
    buf_init(&line, DECLARED_LINES_BYTES);
    int rc = own_dir_path(&c->place, DECLARED_FILE, path);
    if (rc == 0)
        rc = declared_write(d, &line);
    if (rc == 0)
        rc = add_line(path, &line);
    buf_done(&line);
    if (rc < 0)
        host_log(c->host, PROBING_WARN,
                 "views of plugin %s will not be known when this process is dead: %s", d->plugin,
                 strerror(-rc));
    err_clear();
}

static int take_declared(void *arg, const struct declared *d, bool loaded)
{
    struct sql_view views[2 * DECLARED_MAX];
    struct core *c = arg;
    for (uint32_t i = 0; i < d->all.n_views; i++) {
        const struct probing_view *v = &d->all.views[i];
        views[i] = (struct sql_view){.name = v->name,
                                     .definition = v->sql,
                                     .doc = v->doc,
                                     .why = v->why,
                                     .plugin = d->plugin,
                                     .loaded = loaded};
    }
    uint32_t n = d->all.n_views;
    for (uint32_t i = 0; i < d->all.n_tables && !loaded; i++)
        views[n++] = (struct sql_view){.name = d->all.tables[i].name, .plugin = d->plugin};
    int rc = sql_declare_views(c->sql, views, n);
    bool no_views = d->all.n_views == 0 && d->all.n_flames + d->all.n_tracks > 0;
    if (loaded && (rc == 0 || (rc > 0 && no_views)))
        remember_settings(c, d);
    return rc < 0 ? rc : 0;
}

struct host_declares declarations_of(struct core *c)
{
    return (struct host_declares){.arg = c, .check = check_declared, .take = take_declared};
}

/* ---- tables of them ---- */

static int flame_rows(void *arg, const struct declared *d)
{
    struct probing_rows *out = arg;
    int rc = 0;
    for (uint32_t i = 0; i < d->all.n_flames && rc == 0; i++) {
        const struct probing_flame *f = &d->all.flames[i];
        const union probing_cell row[] = {{.s = f->name},
                                          {.s = d->plugin},
                                          {.s = f->doc},
                                          {.s = f->unit == PROBING_BYTES ? "bytes" : "ns"},
                                          {.s = f->sql},
                                          {.s = f->rest},
                                          {.s = f->newest},
                                          {.s = f->empty},
                                          {.s = f->stacks},
                                          {.s = f->setting},
                                          {.i = (f->flags & PROBING_FLAME_DEFAULT) != 0},
                                          {.s = f->missing}};
        rc = out->row(out, row, 12);
    }
    return rc;
}

static int track_rows(void *arg, const struct declared *d)
{
    struct probing_rows *out = arg;
    int rc = 0;
    for (uint32_t i = 0; i < d->all.n_tracks && rc == 0; i++) {
        const struct probing_track *t = &d->all.tracks[i];
        const union probing_cell row[] = {
            {.s = t->name}, {.s = d->plugin}, {.s = t->doc}, {.s = t->sql}, {.s = t->newest}};
        rc = out->row(out, row, 5);
    }
    return rc;
}

static int panel_rows(void *arg, const struct declared *d)
{
    struct probing_rows *out = arg;
    int rc = 0;
    for (uint32_t i = 0; i < d->all.n_panels && rc == 0; i++) {
        const struct probing_panel *p = &d->all.panels[i];
        const union probing_cell row[] = {{.s = p->name},
                                          {.s = d->plugin},
                                          {.s = p->doc},
                                          {.s = p->sql},
                                          {.s = p->kind == PROBING_LINES ? "lines" : "columns"},
                                          {.i = p->rows}};
        rc = out->row(out, row, 6);
    }
    return rc;
}

static int scan_flames(void *self, struct probing_rows *out)
{
    struct core *c = self;
    return host_declared_each(c->host, /* stopped= */ true, flame_rows, out);
}

static int scan_tracks(void *self, struct probing_rows *out)
{
    struct core *c = self;
    return host_declared_each(c->host, /* stopped= */ true, track_rows, out);
}

static int scan_panels(void *self, struct probing_rows *out)
{
    struct core *c = self;
    return host_declared_each(c->host, /* stopped= */ false, panel_rows, out);
}

int declarations_add(struct core *c)
{
#define STR(n, d)                                \
    {                                            \
        .name = n, .type = PROBING_STR, .doc = d \
    }
#define INT(n, d)                                \
    {                                            \
        .name = n, .type = PROBING_I64, .doc = d \
    }
#define TABLE(called, about, list, fill)                                             \
    {                                                                                \
        .size = sizeof(struct probing_table_desc), .column_size = sizeof((list)[0]), \
        .name = called, .doc = about, .columns = list,                               \
        .n_columns = sizeof(list) / sizeof((list)[0]), .scan = fill                  \
    }
    static const struct probing_column
        flames[] = {STR("name", "its name, as in flamegraph NAME"),
                    STR("plugin", "plugin that brings it"),
                    STR("doc", "what the picture shows"),
                    STR("unit", "unit of the values: ns or bytes"),
                    STR("sql", "query for stacks and values; {when} stands for a condition on ts"),
                    STR("rest", "query for the part of the total that no stack has; NULL: there "
                                "is none"),
                    STR("newest", "query for the time that --last counts back from"),
                    STR("empty", "what to do when there is no data"),
                    STR("stacks", "query for stacks by number, then sql has samples of them; NULL: "
                                  "sql has the stacks"),
                    STR("setting", "setting with which the plugin takes the samples"),
                    INT("is_default", "1: what flamegraph draws where no mode is named"),
                    STR("missing", "query for what the picture lacks; NULL: nothing can be said")},
        tracks[] = {STR("name", "its name, as in export --tracks NAME"),
                    STR("plugin", "plugin that brings it"), STR("doc", "what is on it"),
                    STR("sql", "query for events; {when} stands for a condition on ts"),
                    STR("newest", "query for the time that --last counts back from")},
        panels[] = {STR("name", "its name"),
                    STR("plugin", "plugin that brings it"),
                    STR("doc", "what it shows"),
                    STR("sql", "query for what is shown"),
                    STR("kind", "lines: each row is a line; columns: a table"),
                    INT("rows", "at most so many of them are shown")};
    static const struct probing_table_desc tables[] = {
        TABLE("probing.flame_modes", "what flamegraph can draw, of plugins that were loaded",
              flames, scan_flames),
        TABLE("probing.tracks", "events on the time line of export, of plugins that were loaded",
              tracks, scan_tracks),
        TABLE("probing.panels", "what top shows beside threads, of plugins that run", panels,
              scan_panels)};
#undef STR
#undef INT
#undef TABLE
    int rc = 0;
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]) && rc == 0; i++)
        rc = host_table_add(c->host, &tables[i], c);
    return rc;
}
