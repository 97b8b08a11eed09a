/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/script.c - `script`: run a Lua probe in the process, and print what it says.
 *
 * One thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <probing/client.h>
#include <stdio.h>
#include <string.h>

#include "cli/commands/commands.h"
#include "cli/target/installed.h"
#include "cli/target/live_run.h"
#include "cli/target/target.h"
#include "cli/terminal/args.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/terminal.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "sdk/lib/arena.h"
#include "sdk/lib/buf.h"
#include "sdk/lib/json.h"

#define SCRIPT_MAX_BYTES (1u << 20)
#define SCRIPT_PARAMS_MAX 32

/* One that is followed. */
struct script_run {
    char end_topic[80]; /* where its end is published */
    bool as_json;
};

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

    if (rc != -ENOENT || strchr(file, '/') != NULL ||
        snprintf(leaf, sizeof(leaf), "scripts/%s", file) >= (int)sizeof(leaf))
        return rc;
    if (installed_file(leaf, shipped, sizeof(shipped)) == 0)
        return file_read(AT_FDCWD, shipped, ret);
    return err_set(-ENOENT, "there is no file '%s' here, and no script of that name ships", file);
}

/* ---- what it publishes ---- */

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
static int on_published(struct live_stream *s, const struct probing_client_event *e)
{
    const struct script_run *run = s->arg;
    struct arena a;
    struct json *value = NULL;
    struct json_error bad;
    bool good = true;

    arena_init(&a, 16u << 20);
    if (json_read(&a, e->text, e->size, &value, &bad) < 0)
        value = NULL;
    if (strcmp(e->topic, run->end_topic) == 0) {
        s->ended = true;
        if (strcmp(json_text(value, "state", ""), "failed") == 0)
            s->status = err_set(-EINVAL, "%s", json_text(value, "error", "the script failed"));
    } else {
        good =
            (run->as_json ? write_text(e->text, e->size) : write_value(value, e->text, e->size)) &&
            fputc('\n', stdout) != EOF && fflush(stdout) != EOF;
    }
    arena_done(&a);
    return !good ? -EPIPE : s->ended && !s->starts ? 1 : 0;
}

/* ---- the command ---- */

/* Before it starts, so that its first word is heard. */
static int follow_script(struct probing_client *c, const char *name, struct script_run *run,
                         struct live_stream *s)
{
    char topic[80];

    (void)snprintf(topic, sizeof(topic), "script.%s", name);
    (void)snprintf(run->end_topic, sizeof(run->end_topic), "script.%s.end", name);
    s->on_published = on_published;
    s->arg = run;
    s->starts = true;
    s->ids[1] = probing_client_start_follow(c, topic);
    s->ids[2] = s->ids[1] < 0 ? s->ids[1] : probing_client_start_follow(c, run->end_topic);
    return s->ids[2] < 0 ? (int)s->ids[2] : 0;
}

/* The words of `script run`, `reload`, `help` and `check`. */
struct script_words {
    const char *verb;    /* "run" */
    const char *file;    /* or, for `reload`, `help` and `check`, a script's name; NULL: `code` */
    const char *code;    /* of -e; NULL: none */
    const char **params; /* "limit=5" */
    int n_params;
    bool follow, as_json;
};

/* Is it a script that was started, by its name, and no file? */
static bool names_running(const struct script_words *w)
{
    return strcmp(w->verb, "run") != 0 && w->file != NULL && text_is_name(w->file);
}

/* The name of the script and its text, where the words have one. */
static int read_script(const struct script_words *w, char *name, size_t size, struct buf *source)
{
    int rc;

    if (w->code != NULL) {
        (void)snprintf(name, size, "oneliner");
        return buf_adds(source, w->code);
    }
    rc = script_name(w->file, name, size);
    if (rc == 0 && !names_running(w))
        rc = script_source(w->file, source);
    return rc;
}

/* A script of -e ends with the command that started it. */
static int run_script(struct target *t, const struct script_words *w)
{
    char name[64];
    struct buf source;
    const char *words[4 + SCRIPT_PARAMS_MAX] = {"script", w->verb, name};
    int n_words = 3;
    struct probing_client *c = NULL;
    struct script_run run = {.as_json = w->as_json};
    struct live_stream s = {.status = 0};

    buf_init(&source, SCRIPT_MAX_BYTES);
    int rc = read_script(w, name, sizeof(name), &source);
    if (rc == 0 && !names_running(w))
        words[n_words++] = buf_text(&source);
    for (int i = 0; i < w->n_params; i++)
        words[n_words++] = w->params[i];
    if (rc == 0)
        rc = target_connect(t, &c);
    if (rc == 0 && w->follow)
        rc = follow_script(c, name, &run, &s);
    if (rc == 0) {
        s.ids[0] = probing_client_start_run(c, n_words, words, /* timeout_ns= */ 0);
        rc = s.ids[0] < 0 ? (int)s.ids[0] : live_stream_follow(c, &s);
    }
    bool interrupted = rc == -ECANCELED && cli_interrupted && w->follow;
    probing_client_free(c);
    buf_done(&source);
    if (interrupted && w->code == NULL) {
        terminal_say("script %s goes on in the process; to end it: probing -t %s script stop %s",
                     name, t->text, name);
    } else if (interrupted) {
        const char *stop[] = {"script", "stop", name};
        cli_interrupt_over();
        rc = live_tell(t, 3, stop);
    }
    return rc;
}

/* ---- its words ---- */

struct script_args {
    struct script_words words;
    const char *params[SCRIPT_PARAMS_MAX];
};

static int parse_option(void *arg, const char *option, const char *value)
{
    struct script_args *a = arg;
    struct script_words *w = &a->words;

    if (option != NULL && strcmp(option, "--json") == 0) {
        w->as_json = true;
    } else if (option != NULL && strcmp(option, "-e") == 0) {
        w->code = value;
    } else if (option != NULL) {
        w->follow = true;
    } else if (w->verb == NULL) {
        w->verb = value;
    } else if (w->file == NULL && w->code == NULL) {
        w->file = value;
    } else if (strchr(value, '=') == NULL || *value == '=') {
        return err_set(-EINVAL,
                       "unexpected argument '%s': behind the file stand parameters, NAME=VALUE",
                       value);
    } else if (w->n_params == SCRIPT_PARAMS_MAX) {
        return err_set(-E2BIG, "a script takes at most %d parameters", SCRIPT_PARAMS_MAX);
    } else {
        w->params[w->n_params++] = value;
    }
    return 0;
}

static bool takes_source(const char *verb)
{
    static const char *const verbs[] = {"run", "reload", "help", "check"};
    for (size_t i = 0; verb != NULL && i < sizeof(verbs) / sizeof(verbs[0]); i++)
        if (strcmp(verb, verbs[i]) == 0)
            return true;
    return false;
}

/* `script log NAME`: the lines that it has logged, of those that are kept. */
static int print_log(const struct target *t, const char *name)
{
    char sql[256];
    const char *words[] = {"query", "--", sql};

    if (!text_is_name(name))
        return err_set(-EINVAL, "'%s' is not a script's name", name);
    (void)snprintf(sql, sizeof(sql),
                   "select ts, level, text from probing.log where source = 'script.%s' order by ts",
                   name);
    return live_run(t, 3, words);
}

/* `script points [PATTERN]`: what probing.on() takes. */
static int print_points(const struct target *t, const char *pattern)
{
    char sql[512];
    const char *words[] = {"query", "--", sql};

    if (strchr(pattern, '\'') != NULL || strlen(pattern) > 200)
        return err_set(-EINVAL, "'%.80s' is no pattern: part of a name, or * for any letters",
                       pattern);
    (void)snprintf(sql, sizeof(sql),
                   "select name, payload, doc from probing.events where name like "
                   "replace('%%%s%%', '*', '%%') order by name",
                   pattern);
    return live_run(t, 3, words);
}

int command_script(struct target *t, int argc, char **argv)
{
    struct script_args a = {.words = {.verb = NULL}};
    struct script_words *w = &a.words;
    const char *verb = argc >= 2 ? argv[1] : "";

    if (strcmp(verb, "list") == 0)
        return live_list(t, argc, argv,
                         "select name, state, started_at, error, rows, cpu_ns, throttled_ns, "
                         "memory_bytes, errors, dropped from probing.scripts order by name");
    if (strcmp(verb, "log") == 0 && argc == 3)
        return print_log(t, argv[2]);
    if (strcmp(verb, "points") == 0 && argc <= 3)
        return print_points(t, argc == 3 ? argv[2] : "");
    w->params = a.params;
    int rc = cli_parse(argc, argv, parse_option, &a);
    if (rc < 0)
        return rc;
    if (w->code != NULL && w->verb == NULL) {
        w->verb = "run"; /* script -e CODE */
        w->follow = true;
    }
    if (!takes_source(w->verb))
        return live_run(t, argc, (const char *const *)argv);
    if (w->file == NULL && w->code == NULL)
        return cli_misuse(
            err_set(-EINVAL, "script %s needs a file: script %s slow_step.lua", w->verb, w->verb));
    return run_script(t, w);
}
