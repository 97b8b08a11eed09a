/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/inject_setup.c - what inject was asked for beside coming in: settings and plugins,
 * in a core that answers; and the sentence about each that did not come to be.
 *
 * One thread.
 */
#include "cli/commands/inject_setup.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/ui/terminal.h"
#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/base/redact.h"
#include "sdk/client/client.h"

#define ANSWER_MAX_BYTES 65536
#define ANSWER_NS (10 * UINT64_C(1000000000))
#define KEY_BYTES 256
#define LISTEN "server.listen="
static const char KEPT[] = "(kept until plugin "; /* the core's words, core/host/command.c */

static int keep_text(void *arg, const char *data, size_t size)
{
    return buf_add(arg, data, size);
}

int settle_ask(struct probing_client *c, int argc, const char *const *argv, struct buf *answer)
{
    int status = 0;
    int r = client_run(c, argc, argv, ANSWER_NS, keep_text, answer, &status);
    return r < 0 ? r : status < 0 ? status : status > 0 ? -EPROTO : 0;
}

static int config(struct probing_client *c, const char *verb, const char *key, const char *value,
                  struct buf *answer)
{
    const char *const argv[] = {"config", verb, key, value};
    buf_reset(answer);
    return settle_ask(c, value != NULL ? 4 : 3, argv, answer);
}

/* A value that was refused at the start is the default now; setting it again says why.  One that
 * can be given at the start only is right when it is what holds. */
static int settle_one(struct probing_client *c, const char *text, struct buf *answer)
{
    char key[KEY_BYTES], why[ERR_TEXT_BYTES], file[4096];
    const char *value = strchr(text, '=') + 1;

    if ((size_t)snprintf(key, sizeof key, "%.*s", (int)(value - 1 - text), text) >= sizeof key)
        return err_set(-ENAMETOOLONG, "no setting has a name as long as '%.80s...'", text);
    if (strcmp(key, "probing.token") == 0 || strcmp(key, "probing.read_token") == 0)
        return 0; /* taken as they are at the start, and shown to nobody */
    int r = config(c, "set", key, value, answer);
    if (r == 0 && strstr(buf_text(answer), KEPT) == NULL)
        return 0;
    if (r == 0) {
        (void)snprintf(why, sizeof why, "%.*s", (int)strcspn(key, "."), key);
        if (plugin_find(why, file, sizeof file) < 0)
            return err_set(-ENOENT, "%s: there is no such setting, and no plugin '%s'", key, why);
        printf("%s", buf_text(answer));
        return 0;
    }
    (void)snprintf(why, sizeof why, "%s", err_text());
    if (config(c, "get", key, NULL, answer) < 0)
        return err_set(r, "%s", why);
    const char *now = buf_text(answer);
    size_t n = strcspn(now, "\n");
    if (n == strlen(value) && strncmp(now, value, n) == 0)
        return 0;
    return err_set(r, "%s; it stays %.*s", why, (int)n, now);
}

/* The address is in the page's line, and a secret in none. */
static bool may_show(const char *setting)
{
    size_t n = strcspn(setting, "=");
    return strncmp(setting, LISTEN, sizeof LISTEN - 1) != 0 && !secret_name(setting, n);
}

int settle_settings(const struct target *t, const char *const *settings, const char *but)
{
    struct probing_client *c = NULL;
    struct buf answer, held;
    int failed = 0, r = settings[0] != NULL ? target_connect(t, &c) : 0;

    if (r < 0)
        return r;
    buf_init(&answer, ANSWER_MAX_BYTES);
    buf_init(&held, ANSWER_MAX_BYTES);
    for (; *settings != NULL; settings++) {
        r = *settings != but ? settle_one(c, *settings, &answer) : 0;
        if (r < 0) {
            terminal_say("%s", err_why(r));
            failed++;
        } else if (may_show(*settings)) {
            (void)buf_addf(&held, "%s%s", held.size > 0 ? ", " : "", *settings);
        }
    }
    if (held.size > 0)
        printf("set: %s\n", buf_text(&held));
    buf_done(&held);
    buf_done(&answer);
    client_close(c);
    return failed;
}

/* Whoever has the other address loses it: a person is asked, a script must say it in other words. */
static bool agrees(const char *question)
{
    char answer[16];
    if (isatty(STDIN_FILENO) != 1 || isatty(STDERR_FILENO) != 1)
        return false;
    fprintf(stderr, "probing: %s [y/N] ", question);
    return fgets(answer, sizeof answer, stdin) != NULL && (answer[0] == 'y' || answer[0] == 'Y');
}

int settle_listen(const struct target *t, const char *now, const char *wanted)
{
    char question[ERR_TEXT_BYTES];
    const char *port = strrchr(now, ':');

    if (now[0] == '\0')
        return 0;
    /* Of any port the one that is there will do; ":8080" is that port of all addresses. */
    if (strcmp(now, wanted) == 0 ||
        (wanted[0] == ':' && strncmp(now, "0.0.0.0:", 8) == 0 &&
         (strcmp(port, wanted) == 0 || strcmp(wanted, ":0") == 0)) ||
        (strncmp(now, wanted, (size_t)(port - now) + 1) == 0 &&
         strcmp(wanted + (port - now) + 1, "0") == 0))
        return 1;
    (void)snprintf(question, sizeof question,
                   "process %d listens on %s already: move it to %s, away from who is there?",
                   (int)t->pid, now, wanted);
    if (agrees(question))
        return 0;
    return err_set(-EEXIST,
                   "process %d listens on %s already; to move it: probing -t %d config %s%s",
                   (int)t->pid, now, (int)t->pid, LISTEN, wanted);
}

/* 1: it is there already. */
static int load(const struct target *t, const char *name)
{
    char file[4096], note[ERR_TEXT_BYTES] = "";
    int r = plugin_find(name, file, sizeof file);
    if (r == 0)
        r = door_load_plugin(t, name, file, note, sizeof note);
    if (r == 0 && note[0] != '\0')
        fprintf(stderr, "probing: plugin %s: %s\n", name, note);
    return r < 0 && strstr(err_text(), "is loaded already") != NULL ? 1 : r;
}

/* How many failed, 1 or 0, and that is said; -ESTALE: the process runs another program now. */
static int load_one(const struct target *t, const char *name, bool silent)
{
    int r = load(t, name);
    if (r == -ESTALE)
        return r;
    if (r < 0) {
        terminal_say("%s", err_text());
        return 1;
    }
    if (!silent)
        printf("plugin %s %s\n", name, r > 0 ? "is loaded already" : "loaded");
    return 0;
}

static int counted(int failed, int r)
{
    return r < 0 ? r : failed + r;
}

/* Those of the setting that the core has not found itself: the command carries them there. */
static int load_first(const struct target *t, const char *const *settings)
{
    static const char KEY[] = "probing.plugins=";
    char file[4096], name[64];
    const char *at = "python";
    int failed = 0;

    for (; *settings != NULL; settings++)
        if (strncmp(*settings, KEY, sizeof KEY - 1) == 0)
            at = *settings + sizeof KEY - 1;
    for (; *at != '\0' && failed >= 0; at += strspn(at, ", ")) {
        int n = (int)strcspn(at, ", ");
        (void)snprintf(name, sizeof name, "%.*s", n, at);
        at += n;
        if (n > 0 && plugin_find(name, file, sizeof file) == 0)
            failed = counted(failed, load_one(t, name, /* silent= */ true));
    }
    return failed;
}

int settle_plugins(const struct target *t, const char *const *plugins, const char *const *fresh)
{
    int failed = fresh != NULL ? load_first(t, fresh) : 0;

    for (; *plugins != NULL && failed >= 0; plugins++)
        failed = counted(failed, load_one(t, *plugins, /* silent= */ false));
    return failed;
}
