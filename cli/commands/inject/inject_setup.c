/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/inject/inject_setup.c - what inject was asked for beside coming in: settings and
 * plugins, in a core that answers; and the sentence about each that did not come to be.
 *
 * One thread.
 */
#include "cli/commands/inject/inject_setup.h"

#include <errno.h>
#include <probing/client.h>
#include <stdio.h>
#include <string.h>

#include "cli/target/core_lookup.h"
#include "cli/target/declarations.h"
#include "cli/target/installed.h"
#include "cli/target/plugin_door.h"
#include "cli/target/target.h"
#include "cli/terminal/terminal.h"
#include "core/base/err.h"
#include "core/base/redact.h"
#include "core/base/text.h"
#include "sdk/lib/buf.h"

#define ANSWER_MAX_BYTES 65536
#define KEY_BYTES 256
#define FIRST_MAX 32 /* plugins that a core may want brought: it says how many, and may lie */
#define LISTEN "server.listen="
static const char KEPT[] = "(kept until plugin "; /* the core's words, core/plugin_host/command.c */

static int ask_config(struct probing_client *c, const char *verb, const char *key,
                      const char *value, struct buf *answer)
{
    const char *const argv[] = {"config", verb, key, value};
    buf_reset(answer);
    return client_command(c, value != NULL ? 4 : 3, argv, answer);
}

/* 1: it is there already. */
static int load_plugin(const struct target *t, const char *name)
{
    char file[4096], note[ERR_TEXT_BYTES] = "";
    int rc = plugin_find(name, file, sizeof(file));
    if (rc == -ENOENT)
        return installed_plugin_near(name, rc);
    if (rc == 0)
        rc = upload_plugin(t, name, file, note, sizeof(note));
    if (rc == 0 && note[0] != '\0')
        fprintf(stderr, "probing: plugin %s: %s\n", name, note);
    return rc == -EALREADY ? 1 : rc;
}

/* How many failed, 1 or 0, and that is said; -ESTALE: the process runs another program now.
 * already: what is said of one that is there; NULL: it is one that the core starts with, and
 * nothing is said. */
static int load_one(const struct target *t, const char *name, const char *already)
{
    int rc = load_plugin(t, name);
    if (rc == -ESTALE)
        return rc;
    if (rc < 0) {
        terminal_say("%s", err_text());
        return 1;
    }
    if (already != NULL)
        printf("plugin %s %s\n", name, rc > 0 ? already : "loaded");
    return 0;
}

/* A value that was refused at the start is the default now; setting it again says why.  One that
 * can be given at the start only is right when it is what holds.  One of a plugin that is not there
 * loads it.  1: that did not work, which is said. */
static int setup_one(const struct target *t, struct probing_client *c, const char *text, bool fresh,
                     struct buf *answer)
{
    char key[KEY_BYTES], why[ERR_TEXT_BYTES], file[4096];
    const char *value = strchr(text, '=') + 1;

    if ((size_t)snprintf(key, sizeof(key), "%.*s", (int)(value - 1 - text), text) >= sizeof(key))
        return err_set(-ENAMETOOLONG, "the name of a setting cannot be as long as '%.80s...'",
                       text);
    if (strcmp(key, "probing.token") == 0 || strcmp(key, "probing.read_token") == 0)
        return 0; /* taken as they are at the start, and shown to nobody */
    int rc = ask_config(c, "set", key, value, answer);
    if (rc == 0 && strstr(buf_text(answer), KEPT) == NULL)
        return 0;
    if (rc == 0) {
        (void)snprintf(why, sizeof(why), "%.*s", (int)strcspn(key, "."), key);
        if (plugin_find(why, file, sizeof(file)) < 0)
            return err_set(-ENOENT, "%s: there is no such setting, and no plugin '%s'", key, why);
        if (fresh || text_is_off(value)) /* what its start has not loaded waits, or was said */
            return 0;
        if ((rc = load_one(t, why, "is loaded already")) != 0)
            return rc;
        return ask_config(c, "set", key, value, answer); /* it knows its settings now */
    }
    if (rc == -ESTALE)
        return rc;
    (void)snprintf(why, sizeof(why), "%s", err_text());
    int got = ask_config(c, "get", key, NULL, answer);
    if (got < 0)
        return got == -ESTALE ? got : err_set(rc, "%s", why);
    const char *now = buf_text(answer);
    size_t n = strcspn(now, "\n");
    if (n == strlen(value) && strncmp(now, value, n) == 0)
        return 0;
    return err_set(rc, "%s; it stays %.*s", why, n > 0 ? (int)n : 5, n > 0 ? now : "empty");
}

/* The address is in the page's line, and a secret in none. */
static bool may_show(const char *setting)
{
    size_t n = strcspn(setting, "=");
    return strncmp(setting, LISTEN, sizeof(LISTEN) - 1) != 0 && !secret_name(setting, n);
}

int setup_settings(const struct target *t, const char *const *settings, const char *but, bool fresh)
{
    struct probing_client *c = NULL;
    struct buf answer, held;
    int failed = 0, rc = settings[0] != NULL ? target_connect(t, &c) : 0;

    if (rc < 0)
        return rc;
    buf_init(&answer, ANSWER_MAX_BYTES);
    buf_init(&held, ANSWER_MAX_BYTES);
    for (; *settings != NULL; settings++) {
        rc = *settings != but ? setup_one(t, c, *settings, fresh, &answer) : 0;
        if (rc == -ESTALE) { /* of another program nothing was asked */
            failed = rc;
            break;
        }
        if (rc < 0) {
            terminal_say("%s", err_why(rc));
            failed++;
        } else if (rc > 0) {
            failed++;
        } else if (may_show(*settings)) {
            (void)buf_addf(&held, "%s%s", held.size > 0 ? ", " : "", *settings);
        }
    }
    if (held.size > 0)
        printf("set: %s\n", buf_text(&held));
    buf_done(&held);
    buf_done(&answer);
    probing_client_free(c);
    return failed;
}

int setup_listen(const struct target *t, const char *now, const char *wanted)
{
    char question[ERR_TEXT_BYTES];
    const char *port = strrchr(now, ':');

    if (now[0] == '\0')
        return 0;
    /* For any port the one that is there will do; ":8080" is that port of all addresses. */
    if (strcmp(now, wanted) == 0 ||
        (wanted[0] == ':' && strncmp(now, "0.0.0.0:", 8) == 0 &&
         (strcmp(port, wanted) == 0 || strcmp(wanted, ":0") == 0)) ||
        (strncmp(now, wanted, (size_t)(port - now) + 1) == 0 &&
         strcmp(wanted + (port - now) + 1, "0") == 0))
        return 1;
    (void)snprintf(question, sizeof(question),
                   "process %d listens on %s already: move it to %s, away from who is there?",
                   (int)t->pid, now, wanted);
    /* Whoever uses the other address loses it: a script must say so otherwise. */
    if (terminal_may_ask() && terminal_agrees(question, /* by_default= */ false))
        return 0;
    return err_set(-EEXIST,
                   "process %d listens on %s already; to move it: probing -t %d config %s%s",
                   (int)t->pid, now, (int)t->pid, LISTEN, wanted);
}

static int add_failed(int failed, int rc)
{
    return rc < 0 ? rc : failed + rc;
}

/* Load those of probing.plugins that the core has not found: the command carries them there. */
static int load_first(const struct target *t)
{
    struct probing_client *c = NULL;
    struct buf all;
    char file[4096], name[64];
    int failed = 0;

    buf_init(&all, ANSWER_MAX_BYTES);
    int rc = target_connect(t, &c);
    if (rc == 0)
        rc = ask_config(c, "get", "probing.plugins", NULL, &all);
    probing_client_free(c);
    const char *at = rc == 0 ? buf_text(&all) : "";
    at += strspn(at, ", \n");
    for (int i = 0; *at != '\0' && failed >= 0 && i < FIRST_MAX; i++, at += strspn(at, ", \n")) {
        int n = (int)strcspn(at, ", \n");
        (void)snprintf(name, sizeof(name), "%.*s", n, at);
        at += n;
        /* The process says this: a path of its own making would have us open the file for it. */
        if (text_is_name(name) && plugin_find(name, file, sizeof(file)) == 0)
            failed = add_failed(failed, load_one(t, name, /* already= */ NULL));
    }
    buf_done(&all);
    return rc < 0 ? rc : failed;
}

static int add_line(void *arg, const struct declared *d)
{
    return declared_write(d, arg);
}

void setup_known(const struct target *t)
{
    struct buf lines;
    FILE *file = tmpfile();
    buf_init(&lines, DECLARED_LINES_BYTES);
    int r = file != NULL ? installed_declarations(add_line, &lines) : -EIO;
    if (r == 0 && lines.size > 0 && fwrite(lines.data, 1, lines.size, file) == lines.size &&
        fflush(file) == 0)
        (void)door_tell_known(t, fileno(file));
    if (file != NULL)
        (void)fclose(file);
    buf_done(&lines);
    err_clear();
}

int setup_plugins(const struct target *t, const char *const *plugins, bool fresh)
{
    int failed = fresh ? load_first(t) : 0;

    for (; *plugins != NULL && failed >= 0; plugins++)
        failed = add_failed(failed, load_one(t, *plugins, fresh ? "loaded" : "is loaded already"));
    return failed;
}
