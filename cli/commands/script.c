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

    if (rc == -ENOENT && strchr(file, '/') == NULL &&
        snprintf(leaf, sizeof(leaf), "scripts/%s", file) < (int)sizeof(leaf) &&
        installed_file(leaf, shipped, sizeof(shipped)) == 0)
        return file_read(AT_FDCWD, shipped, ret);
    return rc;
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

static int run_script(struct target *t, const char *file, bool follow, bool as_json)
{
    char name[64];
    struct buf source;
    struct probing_client *c = NULL;
    struct script_run run = {.as_json = as_json};
    struct live_stream s = {.status = 0};
    int rc = script_name(file, name, sizeof(name));

    buf_init(&source, SCRIPT_MAX_BYTES);
    if (rc == 0)
        rc = script_source(file, &source);
    if (rc == 0)
        rc = target_connect(t, &c);
    if (rc == 0 && follow)
        rc = follow_script(c, name, &run, &s);
    if (rc == 0) {
        const char *words[] = {"script", "run", name, buf_text(&source)};
        s.ids[0] = probing_client_start_run(c, 4, words, /* timeout_ns= */ 0);
        rc = s.ids[0] < 0 ? (int)s.ids[0] : live_stream_follow(c, &s);
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

static int parse_option(void *arg, const char *option, const char *value)
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

    if (argc >= 2 && strcmp(argv[1], "list") == 0)
        return live_list(t, argc, argv,
                         "select name, state, started_at, error, rows from probing.scripts "
                         "order by name");
    if (argc < 2 || strcmp(argv[1], "run") != 0)
        return live_run(t, argc, (const char *const *)argv);
    int rc = cli_parse(argc, argv, parse_option, &w);
    if (rc == 0 && w.n < 2)
        rc = cli_misuse(err_set(-EINVAL, "script run needs a file: script run slow_step.lua"));
    return rc < 0 ? rc : run_script(t, w.word[1], w.follow, w.as_json);
}
