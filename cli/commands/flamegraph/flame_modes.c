/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/flamegraph/flame_modes.c - modes of flame graphs that plugins declare: which there
 * are, a profile of one, and the plugin that takes its samples.
 *
 * One thread.  A living process is asked which modes it has; a dead one's directory tells.
 */
#include <errno.h>
#include <probing/client.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands/flamegraph/flame.h"
#include "cli/commands/obtain.h"
#include "cli/export/plain_name.h"
#include "cli/target/declarations.h"
#include "cli/target/live_run.h"
#include "cli/target/no_core.h"
#include "cli/target/query_client.h"
#include "cli/target/target.h"
#include "core/base/err.h"
#include "core/base/text.h"

/* ---- which there are ---- */

static const char *keep_text(struct flame_mode *m, const char *text)
{
    return text == NULL ? NULL : arena_text(&m->texts, text, strlen(text));
}

/* name, plugin, doc, unit, sql, rest, newest, empty, stacks, setting, missing */
#define MODE_COLUMNS                                                                       \
    "select m.name, m.plugin, m.doc, m.unit, m.sql, m.rest, m.newest, m.empty, m.stacks, " \
    "m.setting, m.missing from probing.flame_modes m "
static int mode_row(void *self, const struct sql_value *c, uint32_t n)
{
    struct flame_mode *m = self;
    const char *text[11] = {NULL};
    for (uint32_t i = 0; i < 11 && i < n; i++)
        text[i] = c[i].type == SQL_TEXT ? keep_text(m, c[i].text.data) : NULL;
    if (text[0] == NULL || text[1] == NULL || text[2] == NULL || text[4] == NULL)
        return err_set(-EPROTO, "the process lists a mode that has no name, doc or sql");
    m->plugin = text[1];
    m->is_known = m->is_loaded = true;
    m->mode = (struct probing_flame){
        .name = text[0],
        .doc = text[2],
        .sql = text[4],
        .rest = text[5],
        .newest = text[6],
        .empty = text[7],
        .stacks = text[8],
        .setting = text[9],
        .missing = text[10],
        .unit = text[3] != NULL && strcmp(text[3], "bytes") == 0 ? PROBING_BYTES : PROBING_NS};
    return 0;
}

struct search {
    struct flame_mode *mode;
    const char *name; /* NULL: the default */
    char there[400];  /* names of all, with ", " between */
};

static bool is_wanted(const struct search *s, const struct probing_flame *f)
{
    return s->name != NULL ? strcmp(f->name, s->name) == 0
                           : (f->flags & PROBING_FLAME_DEFAULT) != 0;
}

/* The last that has it counts: it was loaded last. */
static int take_mode(void *arg, const struct declared *d)
{
    struct search *s = arg;
    struct flame_mode *m = s->mode;
    for (uint32_t i = 0; i < d->all.n_flames; i++) {
        const struct probing_flame *f = &d->all.flames[i];
        size_t n = strlen(s->there);
        (void)snprintf(s->there + n, sizeof(s->there) - n, "%s%s", n > 0 ? ", " : "", f->name);
        if (!is_wanted(s, f))
            continue;
        m->is_known = true;
        m->plugin = keep_text(m, d->plugin);
        m->mode = (struct probing_flame){.name = keep_text(m, f->name),
                                         .doc = keep_text(m, f->doc),
                                         .sql = keep_text(m, f->sql),
                                         .rest = keep_text(m, f->rest),
                                         .newest = keep_text(m, f->newest),
                                         .empty = keep_text(m, f->empty),
                                         .stacks = keep_text(m, f->stacks),
                                         .setting = keep_text(m, f->setting),
                                         .missing = keep_text(m, f->missing),
                                         .unit = f->unit};
    }
    return 0;
}

/* Give the error for a mode unknown to the process: one that takes samples can be loaded for it. */
static int no_mode(const struct target *t, struct search *s)
{
    struct flame_mode *m = s->mode;
    s->there[0] = '\0';
    int rc = installed_declarations(take_mode, s);
    if (rc == 0 && m->is_known && m->mode.setting == NULL && t->kind == TARGET_LIVE)
        lack_note(/* bare= */ 0, m->plugin);
    if (rc == 0 && m->is_known && m->mode.setting == NULL && t->kind == TARGET_LIVE && t->pid != 0)
        return err_set(-ENOENT, "plugin %s is not loaded: probing -t %d inject --plugin %s",
                       m->plugin, (int)t->pid, m->plugin);
    if (rc == 0 && m->is_known && m->mode.setting == NULL && t->kind == TARGET_LIVE)
        return err_set(-ENOENT, "plugin %s is not loaded there: plugin load %s", m->plugin,
                       m->plugin);
    if (rc == 0 && !m->is_known && s->name == NULL)
        return err_set(-ENOENT, "no plugin is installed that draws flame graphs by default; name a "
                                "mode: flamegraph MODE");
    if (rc == 0 && !m->is_known)
        rc =
            err_set(-EINVAL, "flamegraph has no mode '%s'; there are %s; or did you mean diff A B?",
                    s->name, s->there[0] != '\0' ? s->there : "none");
    return rc;
}

/* The one that is set comes last. */
#define MODE_DEFAULT                                                                             \
    MODE_COLUMNS "left join probing.settings s on s.name = m.plugin || '.' || "                  \
                 "split_part(m.setting, '=', 1) where m.plugin in (select plugin from "          \
                 "probing.flame_modes where is_default = 1) and (m.is_default = 1 or s.value = " \
                 "split_part(m.setting, '=', 2)) order by case when s.value = "                  \
                 "split_part(m.setting, '=', 2) then 1 else 0 end"

int flame_mode_find(const struct target *t, const char *name, struct flame_mode *ret)
{
    struct search s = {.mode = ret, .name = name};
    const struct answer_sink to = {.arg = ret, .row = mode_row};
    char sql[400];
    int rc = 0;

    *ret = (struct flame_mode){.is_known = false};
    arena_init(&ret->texts, (size_t)1 << 20);
    if (name != NULL && !text_is_name(name))
        return err_set(-EINVAL, "flamegraph has no mode '%s'", name);
    (void)snprintf(sql, sizeof(sql), MODE_COLUMNS "where m.name = '%s'", name != NULL ? name : "");
    if (target_is_files(t))
        rc = directory_declarations(t->directory, take_mode, &s);
    else
        rc = answer_read(t, name != NULL ? sql : MODE_DEFAULT, &to);
    return rc < 0 || ret->is_known ? rc : no_mode(t, &s);
}

void flame_mode_done(struct flame_mode *m)
{
    arena_done(&m->texts);
}

struct args {
    void (*fn)(void *arg, const char *word, const char *doc);
    void *arg;
};

static int each_word(void *arg, const struct declared *d)
{
    const struct args *w = arg;
    for (uint32_t i = 0; i < d->all.n_flames; i++)
        w->fn(w->arg, d->all.flames[i].name, d->all.flames[i].doc);
    return 0;
}

void flame_mode_words(void (*fn)(void *arg, const char *word, const char *doc), void *arg)
{
    struct args w = {fn, arg};
    (void)installed_declarations(each_word, &w);
    err_clear();
}

/* ---- a profile of one ---- */

struct reading {
    struct flame_calls *calls;
    struct buf stack;
};

static int calls_begin(void *self, const struct sql_column *columns, uint32_t n)
{
    (void)self, (void)columns;
    return n == 2 || n == 6 ? 0
                            : err_set(-EPROTO,
                                      "the mode's select gives %u columns: stack and value, or "
                                      "also track, end_ns, duration_ns, via",
                                      n);
}

/* The frames between ';', each with a plain name. */
static int plain_stack(const char *stack, struct buf *ret)
{
    char name[2048];
    buf_reset(ret);
    for (const char *at = stack;; at++) {
        size_t n = strcspn(at, ";");
        bool cpp = n > 2 && n < sizeof(name) && strncmp(at, "_Z", 2) == 0;
        (void)snprintf(name, sizeof(name), "%.*s", cpp ? (int)n : 0, at);
        (void)(cpp ? buf_adds(ret, cli_plain_name(name)) : buf_add(ret, at, n));
        at += n;
        if (*at == '\0')
            return ret->failed;
        (void)buf_add(ret, at, 1);
    }
}

static int call_row(void *self, const struct sql_value *c, uint32_t n)
{
    struct reading *r = self;
    const bool nested = n == 6;
    int rc = plain_stack(answer_text(&c[0]), &r->stack);
    if (rc < 0)
        return rc;
    const struct flame_call call = {.stack = buf_text(&r->stack),
                                    .value = answer_number(&c[1]),
                                    .track = nested ? answer_text(&c[2]) : NULL,
                                    .end_ns = nested ? answer_int(&c[3]) : 0,
                                    .duration_ns =
                                        nested && answer_is_number(&c[4]) ? answer_int(&c[4]) : -1,
                                    .via = nested && c[5].type == SQL_TEXT ? c[5].text.data : NULL};
    return flame_calls_add(r->calls, &call);
}

static int rest_row(void *self, const struct sql_value *c, uint32_t n)
{
    struct reading *r = self;
    (void)n;
    return flame_calls_rest(r->calls, answer_text(&c[0]), answer_number(&c[1]),
                            answer_number(&c[2]));
}

static int rest_begin(void *self, const struct sql_column *columns, uint32_t n)
{
    (void)self, (void)columns;
    return n == 3 ? 0 : err_set(-EPROTO, "the mode's rest gives %u columns, not 3", n);
}

static int ask_mode(const struct target *t, const char *template, const char *when,
                    const struct answer_sink *to)
{
    struct buf sql;
    buf_init(&sql, 8 * (size_t)DECLARED_SQL_BYTES);
    int rc = declared_sql(template, when, &sql);
    if (rc == 0)
        rc = answer_read(t, buf_text(&sql), to);
    buf_done(&sql);
    return rc;
}

static int read_calls(struct flame *f, const struct target *t, const struct flame_mode *m,
                      const char *when)
{
    struct reading reading = {.calls = NULL};
    const struct answer_sink calls = {.arg = &reading, .columns = calls_begin, .row = call_row};
    const struct answer_sink rest = {.arg = &reading, .columns = rest_begin, .row = rest_row};
    int rc = flame_calls_new(f, &reading.calls);
    buf_init(&reading.stack, 1u << 20);
    if (rc == 0)
        rc = ask_mode(t, m->mode.sql, when, &calls);
    if (rc == 0 && m->mode.rest != NULL && flame_calls_any(reading.calls))
        rc = ask_mode(t, m->mode.rest, when, &rest);
    if (rc == 0)
        rc = flame_calls_end(reading.calls);
    flame_calls_free(reading.calls);
    buf_done(&reading.stack);
    return rc;
}

/* A process whose plugin has no such table lacks nothing that could be said. */
static void read_missing(struct flame *f, const struct target *t, const struct flame_mode *m,
                         const char *when)
{
    struct buf sql;
    if (m->mode.missing == NULL)
        return;
    buf_init(&sql, 8 * (size_t)DECLARED_SQL_BYTES);
    if (declared_sql(m->mode.missing, when, &sql) < 0 ||
        answer_word(t, buf_text(&sql), f->missing, sizeof(f->missing)) < 0)
        err_clear();
    buf_done(&sql);
}

int flame_read_mode(struct flame *f, const struct target *t, const struct flame_mode *m,
                    const char *when, bool in_time)
{
    struct buf sql;
    read_missing(f, t, m, when);
    if (m->mode.stacks == NULL)
        return read_calls(f, t, m, when);
    buf_init(&sql, 8 * (size_t)DECLARED_SQL_BYTES);
    int rc = declared_sql(m->mode.sql, when, &sql);
    if (rc == 0)
        rc = flame_read_samples(f, t, buf_text(&sql), in_time);
    buf_reset(&sql);
    if (rc == 0)
        rc = declared_sql(m->mode.stacks, when, &sql);
    if (rc == 0)
        rc = flame_read_stacks(f, t, buf_text(&sql));
    buf_done(&sql);
    return rc < 0 ? rc : flame_join(f);
}

/* ---- the plugin that takes samples in the process, for a time ---- */

static int set_setting(const struct target *t, const char *name, const char *value)
{
    const char *words[] = {"config", "set", name, value};
    return live_tell(t, 4, words);
}

static int change_setting(const struct target *t, struct flame_sampler *k, int i, const char *value)
{
    char sql[300];
    (void)snprintf(sql, sizeof(sql), "select value from probing.settings where name = '%s'",
                   k->name[i]);
    int rc = answer_word(t, sql, k->value[i], sizeof(k->value[i]));
    if (rc < 0 || value == NULL || strcmp(value, k->value[i]) == 0)
        return rc;
    k->changed[i] = true;
    return set_setting(t, k->name[i], value);
}

int flame_sampler_start(const struct target *t, bool named, const char *rate, struct flame_mode *m,
                        struct flame_sampler *k)
{
    *k = (struct flame_sampler){.ran = answer_plugin_runs(t, m->plugin)};
    (void)snprintf(k->plugin, sizeof(k->plugin), "%s", m->plugin);
    int rc = k->ran ? 0 : obtain_plugin(t, m->plugin);
    if (rc == 0 && !k->ran && !named) {
        flame_mode_done(m);
        rc = flame_mode_find(t, NULL, m);
    }
    if (rc == 0 && m->mode.setting == NULL)
        rc = err_set(-EINVAL, "flamegraph %s takes no samples", m->mode.name);
    if (rc < 0)
        return rc;
    const char *equals = strchr(m->mode.setting, '=');
    (void)snprintf(k->name[0], sizeof(k->name[0]), "%s.%.*s", k->plugin,
                   (int)(equals - m->mode.setting), m->mode.setting);
    (void)snprintf(k->name[1], sizeof(k->name[1]), "%s.rate", k->plugin);
    rc = change_setting(t, k, 0, equals + 1);
    return rc < 0 || rate == NULL ? rc : change_setting(t, k, 1, rate);
}

int flame_sampler_stop(const struct target *t, const struct flame_sampler *k)
{
    const char *words[] = {"plugin", "stop", k->plugin};
    int rc = 0;
    for (int i = 0; i < 2 && rc == 0; i++)
        if (k->changed[i] && k->value[i][0] != '\0')
            rc = set_setting(t, k->name[i], k->value[i]);
    int stopped = k->ran ? 0 : live_tell(t, 3, words);
    return rc < 0 ? rc : stopped;
}
