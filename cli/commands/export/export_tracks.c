/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/export/export_tracks.c - what plugins declare for the time line of a trace: which
 * tracks a process has, and the statement of each.
 *
 * One thread.  A living process is asked which it has; a dead one's directory tells, and for what
 * that does not know the plugins that are installed.
 */
#include "cli/commands/export/export_tracks.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/target/declarations.h"
#include "cli/target/query_client.h"
#include "cli/target/target.h"
#include "cli/terminal/terminal.h"
#include "core/base/err.h"
#include "sdk/lib/buf.h"

#define TRACKS_MAX 256 /* of all plugins */

struct found {
    const char *plugin;
    struct probing_track track;
};

struct tracks {
    struct arena texts;
    struct found all[TRACKS_MAX];
    uint32_t n;
    bool only_new; /* what is there already counts */
};

/* ---- which there are ---- */

static const char *keep_text(struct tracks *t, const char *text)
{
    return text == NULL ? NULL : arena_text(&t->texts, text, strlen(text));
}

static int add_track(struct tracks *t, const char *plugin, const struct probing_track *given)
{
    uint32_t i = 0;
    while (i < t->n && (strcmp(t->all[i].plugin, plugin) != 0 ||
                        strcmp(t->all[i].track.name, given->name) != 0))
        i++;
    if (i == TRACKS_MAX || (i < t->n && t->only_new))
        return 0;
    struct found *f = &t->all[i];
    *f = (struct found){.plugin = keep_text(t, plugin),
                        .track = {.name = keep_text(t, given->name),
                                  .doc = keep_text(t, given->doc),
                                  .sql = keep_text(t, given->sql),
                                  .newest = keep_text(t, given->newest)}};
    t->n += i == t->n;
    return f->plugin == NULL || f->track.name == NULL || f->track.sql == NULL
               ? err_set(-ENOMEM, "no memory for what plugins declare")
               : 0;
}

/* name, plugin, doc, sql, newest */
static int track_row(void *self, const struct sql_value *c, uint32_t n)
{
    if (n != 5)
        return err_set(-EPROTO, "tracks of %u columns, not 5", n);
    const struct probing_track track = {.name = answer_text(&c[0]),
                                        .doc = answer_text(&c[2]),
                                        .sql = answer_text(&c[3]),
                                        .newest = c[4].type == SQL_TEXT ? c[4].text.data : NULL};
    return add_track(self, answer_text(&c[1]), &track);
}

static int take_declared(void *arg, const struct declared *d)
{
    int rc = 0;
    for (uint32_t i = 0; i < d->all.n_tracks && rc == 0; i++)
        rc = add_track(arg, d->plugin, &d->all.tracks[i]);
    return rc;
}

/* -ENOENT: a core that is older than this command has no such table; its plugins' are ours. */
static int find_tracks(const struct target *target, struct tracks *ret)
{
    const struct answer_sink to = {.arg = ret, .row = track_row};
    bool files = target_is_files(target);
    int rc = files ? directory_declarations(target->directory, take_declared, ret)
                   : answer_read(target,
                                 "select name, plugin, doc, sql, newest from probing.tracks", &to);
    if (rc < 0 && rc != -ENOENT)
        return rc;
    ret->only_new = true;
    return files || rc == -ENOENT ? installed_declarations(take_declared, ret) : 0;
}

/* ---- which are wanted ---- */

static bool is_among(const char *names, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = names; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, n) == 0 && (at[n] == '\0' || at[n] == ','))
            return true;
    }
    return false;
}

static int check_names(const struct tracks *t, const char *names)
{
    char there[512] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < t->n && used + 1 < sizeof(there); i++)
        used += (size_t)snprintf(there + used, sizeof(there) - used, "%s%s", i > 0 ? ", " : "",
                                 t->all[i].track.name);
    for (const char *at = names; *at != '\0';) {
        char name[DECLARED_NAME_BYTES];
        size_t n = strcspn(at, ",");
        (void)snprintf(name, sizeof(name), "%.*s", (int)n, at);
        bool known = false;
        for (uint32_t i = 0; i < t->n && !known; i++)
            known = strcmp(t->all[i].track.name, name) == 0;
        if (!known)
            return err_set(-EINVAL, "there is no track '%.60s'; there are: %s", name,
                           t->n > 0 ? there : "none");
        at += n + (at[n] == ',');
    }
    return 0;
}

/* ---- from when on ---- */

static void find_newest(const struct target *target, const struct found *f, struct sql_value *ret)
{
    struct buf sql;
    struct sql_value at;

    buf_init(&sql, 2 * (size_t)DECLARED_LINE_BYTES);
    (void)buf_addf(&sql, "select (%s)", f->track.newest);
    if (answer_value(target, buf_text(&sql), &at) == 0 && at.type == SQL_TIMESTAMP &&
        (ret->type == SQL_NULL || at.integer > ret->integer))
        *ret = at;
    buf_done(&sql);
    err_clear();
}

/* The same moment for all: the newest event of any. */
static void tell_when(const struct target *target, const struct tracks *t,
                      const struct export_tracks *wanted, char *ret, size_t size)
{
    struct sql_value newest = {.type = SQL_NULL};
    char text[SQL_CELL_BYTES];
    (void)snprintf(ret, size, "true");
    for (uint32_t i = 0; i < t->n && wanted->last_ns > 0; i++)
        if (t->all[i].track.newest != NULL)
            find_newest(target, &t->all[i], &newest);
    (void)sql_cell_text(&newest, /* exact= */ true, text);
    if (newest.type != SQL_NULL)
        (void)snprintf(ret, size, "ts > timestamp '%s' - interval '%.6f seconds'", text,
                       (double)wanted->last_ns / 1e9);
}

/* ---- all of them ---- */

static int ask_track(const struct found *f, const char *when, const struct export_tracks *wanted)
{
    struct buf sql;
    buf_init(&sql, 8 * (size_t)DECLARED_SQL_BYTES);
    int rc = declared_sql(f->track.sql, f->track.newest != NULL ? when : "true", &sql);
    if (rc == 0)
        rc = wanted->each(wanted->arg, f->track.name, buf_text(&sql));
    buf_done(&sql);
    if (rc == -ENOENT) { /* what it is of has not happened yet */
        err_clear();
        return 0;
    }
    return rc;
}

static int fail_without_tracks(const struct target *target)
{
    static struct tracks known; /* one at a time: it is large */
    char which[512] = "";
    size_t used = 0;

    known = (struct tracks){.n = 0};
    arena_init(&known.texts, (size_t)4 << 20);
    int rc = installed_declarations(take_declared, &known);
    for (uint32_t i = 0; rc == 0 && i < known.n && used + 1 < sizeof(which); i++)
        used += (size_t)snprintf(which + used, sizeof(which) - used, "%s%s (plugin %s)",
                                 i > 0 ? ", " : "", known.all[i].track.name, known.all[i].plugin);
    arena_done(&known.texts);
    return rc < 0 ? rc
                  : err_set(-ENOENT,
                            "%s has no plugin with tracks for a trace; there are %s; or export a "
                            "table that has times: --table",
                            target->text, which[0] != '\0' ? which : "none");
}

int export_tracks_each(const struct target *target, const struct export_tracks *wanted)
{
    static struct tracks t; /* one at a time: it is large */
    char when[160];

    t = (struct tracks){.n = 0};
    arena_init(&t.texts, (size_t)16 << 20);
    int rc = find_tracks(target, &t);
    if (rc == 0 && t.n == 0)
        rc = fail_without_tracks(target);
    if (rc == 0 && wanted->names != NULL)
        rc = check_names(&t, wanted->names);
    if (rc == 0)
        tell_when(target, &t, wanted, when, sizeof(when));
    for (uint32_t i = 0; i < t.n && rc == 0; i++)
        if (wanted->names == NULL || is_among(wanted->names, t.all[i].track.name))
            rc = ask_track(&t.all[i], when, wanted);
    arena_done(&t.texts);
    return rc;
}
