/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/tables.c - computed tables about the host itself: plugins, settings, commands,
 * log.
 *
 * Threads: scans run on workers; each row is copied out under its part's lock and emitted without.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/redact.h"
#include "core/plugin_host/internal.h"

#define STR(n, d)                                \
    {                                            \
        .name = n, .type = PROBING_STR, .doc = d \
    }
#define I64(n, d)                                \
    {                                            \
        .name = n, .type = PROBING_I64, .doc = d \
    }

static const char *level_name(int level)
{
    return level <= PROBING_ERROR  ? "error"
           : level <= PROBING_WARN ? "warn"
           : level <= PROBING_INFO ? "info"
                                   : "debug";
}

static char *copy_text(const char *text)
{
    return text && text[0] ? strdup(text) : NULL;
}

static int scan_plugins(void *self, struct probing_rows *out)
{
    struct host *h = self;
    int rc = 0;
    uint32_t n = atomic_load_explicit(&h->n_plugins, memory_order_acquire);

    for (uint32_t i = 0; i < n && rc == 0; i++) {
        struct plugin *p = atomic_load_explicit(&h->plugins[i], memory_order_acquire);
        int state = atomic_load_explicit(&p->state, memory_order_acquire);
        bool waits =
            state == PLUGIN_FAILED && atomic_load_explicit(&p->later, memory_order_relaxed);
        uint32_t left, inside = calls_inside(h, p, &left);
        (void)pthread_mutex_lock(&h->plugins_lock);
        char *version = copy_text(p->version), *reason = copy_text(p->reason),
             *doc = copy_text(p->doc), *path = copy_text(p->path);
        (void)pthread_mutex_unlock(&h->plugins_lock);
        const union probing_cell row[] = {
            {.s = p->name}, {.s = version}, {.s = waits ? "waiting" : plugin_state_name(state)},
            {.s = reason},  {.s = doc},     {.s = path},
            {.i = inside},  {.i = left}};
        rc = out->row(out, row, 8);
        free(version);
        free(reason);
        free(doc);
        free(path);
    }
    return rc;
}

/* These tables are open to clients that may only read. */
static const char *may_show(const char *name, const char *value)
{
    return value && value[0] && secret_name(name, strlen(name)) ? SECRET_SHOWN : value;
}

static int setting_row(void *arg, const struct setting *s, const char *value)
{
    static const char *const types[] = {
        [PROBING_I64] = "integer", [PROBING_F64] = "number", [PROBING_STR] = "text"};
    static const char *const units[] = {"", "ns", "bytes", "percent", "count", "seconds", "MB"};
    struct probing_rows *out = arg;
    char name[2 * HOST_NAME_BYTES];

    (void)snprintf(name, sizeof(name), "%s.%s", s->owner, s->name);
    const union probing_cell row[] = {
        {.s = name},
        {.s = may_show(name, value)},
        {.s = s->fallback},
        {.s = s->pending ? NULL : types[s->type]},
        {.s = s->unit < sizeof(units) / sizeof(units[0]) && s->unit ? units[s->unit] : NULL},
        {.s = s->pending ? "stored for a plugin that is not loaded" : s->doc},
        {.i = (s->flags & PROBING_LIVE) ? 1 : 0}};
    return out->row(out, row, 7);
}

static int scan_settings(void *self, struct probing_rows *out)
{
    return settings_each(self, setting_row, out);
}

/* Settings that have a name in DataFusion or in common use, too. */
static const struct {
    const char *own, *theirs;
} df_names[] = {{"query.threads", "datafusion.execution.target_partitions"},
                {"query.threads", "max_threads"},
                {"query.max_memory", "datafusion.runtime.memory_limit"},
                {"query.max_memory", "memory_pool_size"}};

static int df_row(void *arg, const struct setting *s, const char *value)
{
    struct probing_rows *out = arg;
    char name[2 * HOST_NAME_BYTES];

    (void)snprintf(name, sizeof(name), "%s.%s", s->owner, s->name);
    const union probing_cell row[] = {{.s = name}, {.s = may_show(name, value)}};
    int rc = out->row(out, row, 2);
    for (size_t i = 0; rc == 0 && i < sizeof(df_names) / sizeof(df_names[0]); i++) {
        const union probing_cell again[] = {{.s = df_names[i].theirs}, row[1]};
        if (strcmp(df_names[i].own, name) == 0)
            rc = out->row(out, again, 2);
    }
    return rc;
}

static int scan_df_settings(void *self, struct probing_rows *out)
{
    return settings_each(self, df_row, out);
}

static int command_row(void *arg, const struct probing_command *c)
{
    struct probing_rows *out = arg;
    const union probing_cell row[] = {
        {.s = c->name}, {.s = c->usage}, {.s = c->doc}, {.i = (c->flags & PROBING_WRITES) ? 1 : 0}};
    return out->row(out, row, 4);
}

static int scan_commands(void *self, struct probing_rows *out)
{
    return host_commands(self, command_row, out);
}

static int log_row(void *arg, const struct log_line *line)
{
    struct probing_rows *out = arg;
    const union probing_cell row[] = {{.i = (int64_t)line->ts},
                                      {.s = level_name(line->level)},
                                      {.s = line->source},
                                      {.s = line->text}};
    return out->row(out, row, 4);
}

static int scan_log(void *self, struct probing_rows *out)
{
    return log_each(self, log_row, out);
}

static const struct probing_column plugin_columns[] = {
    STR("name", "the plugin, as plugin load names it"),
    STR("version", "version of the plugin"),
    STR("state", "loading, running, stopping, stopped, failed, or waiting to be tried again"),
    STR("reason",
        "why it failed, waits or did not stop, what it has left behind, or what it reports"),
    STR("doc", "what it does"),
    STR("path", "the file it was loaded from"),
    I64("calls", "scans and commands that are inside its code now"),
    I64("calls_left",
        "those of them that did not end when they were told to: nobody waits for them")};
static const struct probing_column setting_columns[] = {
    STR("name", "OWNER.NAME, as config set takes it"),
    STR("value", "current value"),
    STR("default", "default value"),
    STR("type", "integer, number or text"),
    STR("unit", "unit of a number"),
    STR("doc", "what it does"),
    I64("live", "1: it can be changed while its owner runs")};
static const struct probing_column df_columns[] = {STR("name", "OWNER.NAME"),
                                                   STR("value", "current value")};
static const struct probing_column command_columns[] = {
    STR("name", "name of the command"), STR("usage", "its arguments"), STR("doc", "what it does"),
    I64("writes", "1: it changes the process and is refused to read-only clients")};
static const struct probing_column log_columns[] = {
    {.name = "ts", .type = PROBING_TIME, .unit = PROBING_NS, .doc = "when the line was logged"},
    STR("level", "error, warn, info or debug"),
    STR("source", "who logged it: probing, a plugin or a script"),
    STR("text", "text of the line")};

#define COMPUTED(n, d, c, s)                                                                     \
    {                                                                                            \
        .size = sizeof(struct probing_table_desc), .column_size = sizeof(struct probing_column), \
        .name = n, .doc = d, .columns = c, .n_columns = sizeof(c) / sizeof((c)[0]), .scan = s    \
    }

int about_add(struct host *h)
{
    static const struct probing_table_desc tables[] = {
        COMPUTED("probing.plugins", "plugins that were loaded, and their states", plugin_columns,
                 scan_plugins),
        COMPUTED("probing.settings", "all settings of the core and its plugins", setting_columns,
                 scan_settings),
        COMPUTED("information_schema.df_settings",
                 "settings by name and value, under the name that DataFusion uses", df_columns,
                 scan_df_settings),
        COMPUTED("probing.commands", "commands that are available now", command_columns,
                 scan_commands),
        COMPUTED("probing.log", "the last 1,000 lines of the core, its plugins and scripts",
                 log_columns, scan_log),
    };
    int rc = 0;
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]) && rc == 0; i++) {
        struct table *t;
        rc = tables_add(h->tables, "probing", &tables[i], h, &t);
    }
    return rc;
}
