/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/target/remote.c - commands of a process that answers: words go there, its answer goes to
 * stdout.
 *
 * One thread.  Ctrl-C cancels what runs in the target and leaves cleanly.
 */

#include <errno.h>
#include <fcntl.h>
#include <probing/client.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands/commands.h"
#include "cli/target/core_lookup.h"
#include "cli/target/installed.h"
#include "cli/target/live_run.h"
#include "cli/target/target.h"
#include "cli/terminal/args.h"
#include "cli/terminal/fit_text.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/pager.h"
#include "cli/terminal/terminal.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "sdk/lib/arena.h"
#include "sdk/lib/buf.h"
#include "sdk/lib/json.h"

#define SCRIPT_MAX_BYTES (1u << 20)
#define TOLD_MAX_BYTES (1u << 20)

/* ---- one command, its answer, its status ---- */

struct stream {
    int64_t ids[3]; /* what was started: the end of the first is ours */
    int status;
    bool lines;  /* flush after each piece: somebody watches */
    bool people; /* read it: its lines are made to fit the terminal */
    bool told;   /* that answers are whole each */
    /* These fields are for a script that is followed. */
    char end_topic[80]; /* where its end is published, "": none is followed */
    bool as_json, starts, ended;
};

static int put(struct stream *s, const struct probing_client_event *e)
{
    if (e->whole && !s->told && isatty(STDOUT_FILENO) != 1)
        terminal_say("this statement aggregates, limits or reads current state, so its whole "
                     "answer follows each time");
    s->told = s->told || e->whole;
    if (e->whole && s->people)
        return fit_screen(e->text, e->size);
    if (e->whole)
        terminal_clear();
    return fwrite(e->text, 1, e->size, stdout) == e->size ? 0 : -EPIPE;
}

static bool write_text(const char *text, size_t size)
{
    return fwrite(text, 1, size, stdout) == size;
}

/* A text as it is, "ms=812 name=x" of a table of names, and other values as JSON. */
static bool write_value(const struct json *v, const char *text, size_t size)
{
    bool good = true;

    if (v != NULL && v->type == JSON_STRING)
        return write_text(v->text, v->size);
    bool flat = v != NULL && v->type == JSON_OBJECT && v->size > 0;
    for (const struct json *m = flat ? v->first : NULL; m != NULL; m = m->next)
        flat = flat && m->type != JSON_OBJECT && m->type != JSON_ARRAY;
    if (!flat)
        return write_text(text, size);
    for (const struct json *m = v->first; m != NULL && good; m = m->next) {
        const char *of = m->type == JSON_NULL   ? "null"
                         : m->type != JSON_BOOL ? m->text
                         : m->boolean           ? "true"
                                                : "false";
        good = printf("%s%s=%s", m == v->first ? "" : " ", m->key, of) >= 0;
    }
    return good;
}

/* A value that the script has published, or its end.  1: there is no more. */
static int put_event(struct stream *s, const struct probing_client_event *e)
{
    struct arena a;
    struct json *value = NULL;
    struct json_error bad;
    bool good = true;

    arena_init(&a, 16u << 20);
    if (json_read(&a, e->text, e->size, &value, &bad) < 0)
        value = NULL;
    if (strcmp(e->topic, s->end_topic) == 0) {
        s->ended = true;
        if (strcmp(json_text(value, "state", ""), "failed") == 0)
            s->status = err_set(-EINVAL, "%s", json_text(value, "error", "the script failed"));
    } else {
        good = (s->as_json ? write_text(e->text, e->size) : write_value(value, e->text, e->size)) &&
               fputc('\n', stdout) != EOF && fflush(stdout) != EOF;
    }
    arena_done(&a);
    return !good ? -EPIPE : s->ended && !s->starts ? 1 : 0;
}

static int on_event(void *arg, const struct probing_client_event *e)
{
    struct stream *s = arg;
    int rc;

    switch (e->kind) {
    case PROBING_CLIENT_DATA:
        if (s->starts)
            return 0; /* that it runs */
        if ((rc = put(s, e)) < 0)
            return rc;
        return s->lines && fflush(stdout) == EOF ? -EPIPE : 0;
    case PROBING_CLIENT_EVENT:
        return put_event(s, e);
    case PROBING_CLIENT_DROPPED:
        terminal_say("%llu messages were lost because this client reads too slowly",
                     (unsigned long long)e->dropped);
        return 0;
    case PROBING_CLIENT_LATE:
        terminal_say("%llu rows came after their bucket had been sent and are in none (setting "
                     "query.watermark_delay)",
                     (unsigned long long)e->late);
        return 0;
    case PROBING_CLIENT_DONE:
        if (e->status < 0)
            return err_set(e->status, "%s", e->text[0] != '\0' ? e->text : strerror(-e->status));
        if (e->size > 0)
            terminal_say("%s", e->text);
        if (e->id == s->ids[0])
            s->status = e->status;
        s->starts = s->starts && e->id != s->ids[0];
        return s->ended && !s->starts ? 1 : e->status;
    }
    return 0;
}

/* Read what comes until all that was started has ended. */
static int follow_to_end(struct probing_client *c, struct stream *s)
{
    static volatile sig_atomic_t *const stop = &cli_interrupted;
    int r = client_failed(c, probing_client_stream(c, on_event, s, /* timeout_ns= */ 0, stop));

    if (r == -ECANCELED && cli_interrupted)
        for (int i = 0; i < 3; i++)
            if (s->ids[i] > 0)
                (void)probing_client_cancel(c, s->ids[i]);
    return r != 0 && !s->ended ? r : s->status;
}

int live_run(const struct target *t, int argc, const char *const *argv)
{
    struct probing_client *c = NULL;
    struct stream s = {.lines = true};
    int rc = target_connect(t, &c);

    if (rc < 0)
        return rc;
    s.ids[0] = probing_client_start_run(c, argc, argv, /* timeout_ns= */ 0);
    rc = s.ids[0] < 0 ? (int)s.ids[0] : follow_to_end(c, &s);
    probing_client_free(c);
    return rc;
}

static int to_text(void *arg, const char *data, size_t size)
{
    return buf_add(arg, data, size);
}

int live_tell(const struct target *t, int argc, const char *const *argv)
{
    struct probing_client *c = NULL;
    struct buf answer;
    int status = 0, rc = target_connect(t, &c);

    buf_init(&answer, TOLD_MAX_BYTES);
    if (rc == 0)
        rc = probing_client_run(c, argc, argv, /* timeout_ns= */ 0, to_text, &answer, &status);
    if (rc == 0 && status > 0)
        rc = err_set(-EIO, "%s %s failed: %s", argv[0], argv[1], buf_text(&answer));
    buf_done(&answer);
    probing_client_free(c);
    return rc == 0 && status < 0 ? status : rc;
}

/* "config", "plugin list": an answer that is a table, and may be made to fit. */
static bool is_list(int argc, char **argv)
{
    return strcmp(argv[argc - 1], "list") == 0 || (argc == 1 && strcmp(argv[0], "config") == 0);
}

/* The tables that have what these lists print, for `config list --json` and its like. */
static const char *const lists[][2] = {
    {"config", "select name, value, \"default\", type, unit, doc from probing.settings order by 1"},
    {"plugin", "select name, version, state, reason, doc, path from probing.plugins order by name"},
    {"script", "select name, state, started_at, error, rows from probing.scripts order by name"}};

/* NULL: it is no list, or not asked for as JSON. */
static const char *list_as_json(int argc, char **argv)
{
    bool all = argc == 2 && strcmp(argv[0], "config") == 0;

    if (strcmp(argv[argc - 1], "--json") != 0 ||
        !(all || (argc == 3 && strcmp(argv[1], "list") == 0)))
        return NULL;
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        if (strcmp(argv[0], lists[i][0]) == 0)
            return lists[i][1];
    return NULL;
}

int command_forward(struct target *t, int argc, char **argv)
{
    char width[16];
    const char *json[] = {"query", "--format", "json", "--", list_as_json(argc, argv)};
    const char *words[5] = {argv[0], argv[1], "--width", width, NULL};

    if (json[4] != NULL)
        return live_run(t, 5, json);
    if (cli_width() == 0 || argc > 2 || !is_list(argc, argv))
        return live_run(t, argc, (const char *const *)argv);
    (void)snprintf(width, sizeof(width), "%u", cli_width());
    words[argc] = "--width";
    words[argc + 1] = width;
    return live_run(t, argc + 2, words);
}

/* ---- watch ---- */

static int take_watch(void *arg, const char *option, const char *value)
{
    struct probing_client_watch *w = arg;

    if (option == NULL) {
        if (w->sql != NULL)
            return err_set(-EINVAL, "unexpected argument '%s' (put the statement in quotes)",
                           value);
        w->sql = value;
        return 0;
    }
    if (strcmp(option, "--interval") == 0)
        return cli_take_time(option, value, &w->interval_ns);
    if (strcmp(option, "--last") == 0)
        return parse_u64(value, &w->last);
    w->format = value; /* --format */
    return 0;
}

int command_watch(struct target *t, int argc, char **argv)
{
    struct probing_client_watch w = {.size = sizeof(w), .format = "table", .width = cli_width()};
    struct probing_client *c = NULL;
    struct stream s = {.lines = true};
    int rc = cli_parse(argc, argv, take_watch, &w);

    if (rc == 0 && w.sql == NULL)
        rc = cli_misuse(err_set(-EINVAL, "watch needs an SQL statement"));
    if (rc == 0)
        rc = target_connect(t, &c);
    if (rc < 0)
        return rc;
    s.people = terminal_format(w.format);
    s.ids[0] = probing_client_start_watch(c, &w);
    rc = s.ids[0] < 0 ? (int)s.ids[0] : follow_to_end(c, &s);
    probing_client_free(c);
    return rc;
}

/* ---- script ---- */

/* "probes/slow-step.lua" is the script slow_step. */
static int script_name(const char *file, char *ret, size_t size)
{
    const char *slash = strrchr(file, '/'), *leaf = slash != NULL ? slash + 1 : file;
    int n = (int)strcspn(leaf, ".");

    if (n == 0 || snprintf(ret, size, "%.*s", n, leaf) >= (int)size)
        return err_set(-EINVAL, "cannot make the name of a script from '%s'", file);
    for (char *p = ret; *p != '\0'; p++)
        *p = *p == '-' ? '_' : *p;
    if (!text_is_name(ret))
        return err_set(-EINVAL,
                       "'%s' cannot be the name of a script: use lower-case letters, digits and _",
                       file);
    return 0;
}

/* A file, or the name of a script that ships with us. */
static int script_source(const char *file, struct buf *ret)
{
    char shipped[4096], leaf[128];
    int rc = file_read_named(file, ret);

    if (rc == -ENOENT && strchr(file, '/') == NULL &&
        snprintf(leaf, sizeof(leaf), "scripts/%s", file) < (int)sizeof(leaf) &&
        installed_file(leaf, shipped, sizeof(shipped)) == 0)
        return file_read(AT_FDCWD, shipped, ret);
    return rc;
}

/* Before it starts, so that its first word is heard. */
static int follow_script(struct probing_client *c, const char *name, struct stream *s)
{
    char topic[80];

    (void)snprintf(topic, sizeof(topic), "script.%s", name);
    (void)snprintf(s->end_topic, sizeof(s->end_topic), "script.%s.end", name);
    s->starts = true;
    s->ids[1] = probing_client_start_follow(c, topic);
    s->ids[2] = s->ids[1] < 0 ? s->ids[1] : probing_client_start_follow(c, s->end_topic);
    return s->ids[2] < 0 ? (int)s->ids[2] : 0;
}

static int run_script(struct target *t, const char *file, bool follow, bool as_json)
{
    char name[64];
    struct buf source;
    struct probing_client *c = NULL;
    struct stream s = {.lines = true, .as_json = as_json};
    int rc = script_name(file, name, sizeof(name));

    buf_init(&source, SCRIPT_MAX_BYTES);
    if (rc == 0)
        rc = script_source(file, &source);
    if (rc == 0)
        rc = target_connect(t, &c);
    if (rc == 0 && follow)
        rc = follow_script(c, name, &s);
    if (rc == 0) {
        const char *words[] = {"script", "run", name, buf_text(&source)};
        s.ids[0] = probing_client_start_run(c, 4, words, /* timeout_ns= */ 0);
        rc = s.ids[0] < 0 ? (int)s.ids[0] : follow_to_end(c, &s);
    }
    if (rc == -ECANCELED && cli_interrupted && follow)
        terminal_say("script %s goes on in the process; to end it: probing -t %s script stop %s",
                     name, t->text, name);
    probing_client_free(c);
    buf_done(&source);
    return rc;
}

struct script_args {
    const char *word[2]; /* "run", FILE */
    uint32_t n;
    bool follow, as_json;
};

static int take_script(void *arg, const char *option, const char *value)
{
    struct script_args *w = arg;

    if (option != NULL && strcmp(option, "--json") == 0)
        w->as_json = true;
    else if (option != NULL)
        w->follow = true;
    else if (w->n == 2)
        return err_set(-EINVAL, "script run takes one FILE; unexpected argument '%s'", value);
    else
        w->word[w->n++] = value;
    return 0;
}

int command_script(struct target *t, int argc, char **argv)
{
    struct script_args w = {.n = 0};

    if (argc < 2 || strcmp(argv[1], "run") != 0)
        return command_forward(t, argc, argv);
    int rc = cli_parse(argc, argv, take_script, &w);
    if (rc == 0 && w.n < 2)
        rc = cli_misuse(err_set(-EINVAL, "script run needs a file: script run slow_step.lua"));
    return rc < 0 ? rc : run_script(t, w.word[1], w.follow, w.as_json);
}
