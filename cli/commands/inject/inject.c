/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/inject/inject.c - `inject`: options, cli/inject, then waiting until it answers.
 *
 * One thread.
 */

#include <errno.h>
#include <poll.h>
#include <probing/client.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands/commands.h"
#include "cli/commands/inject/await_core.h"
#include "cli/commands/inject/inject_dry_run.h"
#include "cli/commands/inject/inject_setup.h"
#include "cli/inject/inject.h"
#include "cli/inject/retry.h"
#include "cli/target/auth_token.h"
#include "cli/target/core_lookup.h"
#include "cli/target/datadir.h"
#include "cli/target/installed.h"
#include "cli/target/target.h"
#include "cli/terminal/args.h"
#include "cli/terminal/exit_codes.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/terminal.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/base/version.h"
#include "core/datadir/datadir.h"
#include "sdk/lib/buf.h"

#define SETTINGS_MAX 64
#define PLUGINS_MAX 16
#define TIMEOUT_NS (10 * NS_PER_S)
#define PATIENT_NS (60 * NS_PER_S) /* with --wait */
#define LISTEN_WAIT_NS (2 * NS_PER_S)
#define LISTEN_KEY (sizeof "server.listen=" - 1) /* bytes before the address */

struct enter_options {
    struct inject_options inject;
    const char *settings[SETTINGS_MAX + 1];
    uint32_t n_settings;
    char listen[300];
    const char *plugins[PLUGINS_MAX + 1];
    uint32_t n_plugins;
    bool wait;
    char library[4096];
};

static int add_setting(struct enter_options *o, const char *text)
{
    if (o->n_settings == SETTINGS_MAX)
        return err_set(-E2BIG, "more than %d settings", SETTINGS_MAX);
    if (strchr(text, '=') == NULL || strchr(text, '\n') != NULL || text[0] == '=')
        return err_set(-EINVAL, "-D needs KEY=VALUE, not '%s'", text);
    o->settings[o->n_settings++] = text;
    return 0;
}

static int add_plugin(struct enter_options *o, const char *name)
{
    if (o->n_plugins == PLUGINS_MAX)
        return err_set(-E2BIG, "more than %d plugins", PLUGINS_MAX);
    o->plugins[o->n_plugins++] = name;
    return 0;
}

static int parse_option(void *arg, const char *option, const char *value)
{
    struct enter_options *o = arg;

    if (option == NULL)
        return err_set(-EINVAL, "inject takes no argument '%s'", value);
    if (strcmp(option, "--define") == 0)
        return add_setting(o, value);
    if (strcmp(option, "--background") == 0)
        return 0;
    if (strcmp(option, "--listen") == 0 || strcmp(option, "--address") == 0) {
        (void)snprintf(o->listen, sizeof(o->listen), "server.listen=%s", value);
        return add_setting(o, o->listen);
    }
    if (strcmp(option, "--plugin") == 0)
        return add_plugin(o, value);
    if (strcmp(option, "--pprof") == 0)
        return add_plugin(o, "profile");
    if (strcmp(option, "--crash") == 0)
        return add_setting(o, "crash.handler=on");
    if (strcmp(option, "--dry-run") == 0) {
        o->inject.dry_run = true;
        return 0;
    }
    if (strcmp(option, "--way") == 0) {
        o->inject.way = strcmp(value, "remote") == 0 ? INJECT_REMOTE : INJECT_PTRACE;
        if (o->inject.way == INJECT_REMOTE || strcmp(value, "ptrace") == 0)
            return 0;
        return err_set(-EINVAL, "--way is ptrace or remote, not '%s'", value);
    }
    if (strcmp(option, "--wait") == 0) {
        o->wait = true;
        return 0;
    }
    return cli_take_time(option, value, &o->inject.timeout_ns); /* --timeout */
}

/* "127.0.0.1:40123", what a core listens on by its own word; "": nothing.  A port 0 in what was
 * asked for is another one there.  0, or -ESTALE. */
static int real_address(const struct target *t, char *ret, size_t size)
{
    static const char *const words[] = {"info"};
    static const char key[] = "\nlistening: ";
    struct probing_client *c = NULL;
    struct buf info;

    ret[0] = '\0';
    buf_init(&info, 65536);
    int rc = target_connect(t, &c);
    if (rc == 0)
        rc = client_command(c, 1, words, &info);
    if (rc == 0) {
        const char *at = strstr(buf_text(&info), key);
        at = at != NULL ? at + sizeof(key) - 1 : "(";
        if (at[0] != '(')
            (void)snprintf(ret, size, "%.*s", (int)strcspn(at, "\n"), at);
    }
    probing_client_free(c);
    buf_done(&info);
    return rc == -ESTALE ? rc : 0;
}

/* The local socket opens before TCP does: wait for the token a little, then say the page's URL. */
static int say_page(const struct target *t, const char *address)
{
    uint64_t deadline = clock_monotonic() + LISTEN_WAIT_NS;
    char token[TOKEN_BYTES], real[300] = "", page[320];

    for (;;) {
        if (real_address(t, real, sizeof(real)) < 0)
            return -ESTALE;
        if (real[0] != '\0' && token_read(t->directory, token) == 0)
            break;
        if (clock_monotonic() > deadline)
            return err_set(-EADDRNOTAVAIL,
                           "process %d does not listen on %s; why: probing -t %d query "
                           "\"select text from probing.log\"",
                           (int)t->pid, address, (int)t->pid);
        (void)poll(NULL, 0, 5);
    }
    page_of(real, page, sizeof(page));
    printf("page: %s?token=%s\n", page, token);
    return 0;
}

/* The page that was asked for.  1: there is none, which was said; -ESTALE. */
static int offer_page(const struct target *t, const struct enter_options *o)
{
    int rc = o->listen[0] != '\0' ? say_page(t, o->listen + LISTEN_KEY) : 0;

    if (rc == -ESTALE || rc == 0)
        return rc;
    terminal_say("%s", err_text());
    return 1;
}

/* Why the core did not take the place that it should have; its own words. */
static void say_note(const struct target *t)
{
    struct datadir d;
    char note[ERR_TEXT_BYTES];

    if (datadir_open(t->directory, DATADIR_ANY, &d) == 0 &&
        directory_info(&d, "note", note, sizeof(note)) == 0) {
        for (char *c = note; *c != '\0'; c++)
            *c = *c < ' ' || *c > '~' ? '?' : *c;
        fprintf(stderr, "probing: note: %s\n", note);
    }
    datadir_close(&d);
}

static void say_place(const struct target *t)
{
    const char *inside = strstr(t->directory, "/root/"); /* as the process sees it */
    printf("data: %s\n", inside != NULL ? inside + 5 : t->directory);
    say_note(t);
}

/* A core answers there already: it is asked for what can still be had of it. */
static int enter_again(struct target *t, const struct enter_options *o, struct probing_client *c)
{
    static const char *const words[] = {"version"};
    struct buf version;

    buf_init(&version, 4096);
    int r = client_command(c, 1, words, &version);
    const char *text = r == 0 ? buf_text(&version) : "?";
    int n = (int)strcspn(text, " \n"); /* what follows is the build */
    if (r == 0 &&
        (n != sizeof(PROBING_VERSION) - 1 || strncmp(text, PROBING_VERSION, (size_t)n) != 0))
        r = err_set(-EEXIST,
                    "probing %.*s is in process %d and this is %s: use it as it is, or restart the "
                    "process to enter it with this one",
                    n, text, (int)t->pid, PROBING_VERSION);
    else if (r == 0) {
        target_compare_builds(t, c);
        printf("probing %.*s is in process %d already\n", n, text, (int)t->pid);
    }
    buf_done(&version);
    if (r < 0 || o->inject.dry_run)
        return r < 0 ? r : EXIT_DONE;
    char now[300] = "";
    setup_known(t);
    if (o->listen[0] != '\0' && (r = real_address(t, now, sizeof(now))) < 0)
        return r;
    int there = setup_listen(t, now, o->listen + LISTEN_KEY);
    r = there < 0 ? there : setup_plugins(t, o->plugins, /* fresh= */ false);
    if (r < 0)
        return r;
    int failed = setup_settings(t, o->settings, there > 0 ? o->listen : NULL, /* fresh= */ false);
    int deaf = failed < 0 ? failed : offer_page(t, o);
    if (deaf < 0)
        return deaf;
    say_place(t);
    return r + failed + deaf > 0 ? EXIT_FAILED : EXIT_DONE;
}

/* The core has been started: is it there, and as it was asked for? */
static int enter_finish(struct target *t, const struct enter_options *o,
                        const struct inject_result *result)
{
    int r = await_core(t, o->inject.timeout_ns,
                       /* mapped= */ !result->remote && !result->already_there);
    if (r < 0 && result->filtered[0] != '\0') {
        char why[ERR_TEXT_BYTES];
        (void)snprintf(why, sizeof(why), "%s", err_text());
        return err_set(r, "%s; its seccomp filter refuses %s", why, result->filtered);
    }
    if (r < 0)
        return r;
    if (result->remote)
        printf("probing %s entered process %d by its interpreter (remote exec), %.1f ms in all\n",
               result->version, (int)t->pid, (double)result->total_ns / 1e6);
    else
        printf("probing %s entered process %d: stopped for %.2f ms, %.1f ms in all\n",
               result->version, (int)t->pid, (double)result->stopped_ns / 1e6,
               (double)result->total_ns / 1e6);
    int deaf = offer_page(t, o);
    if (deaf < 0)
        return deaf;
    setup_known(t);
    r = setup_plugins(t, o->plugins, /* fresh= */ true);
    if (r < 0)
        return r;
    int failed = setup_settings(t, o->settings, o->listen, /* fresh= */ true);
    if (failed < 0)
        return failed;
    say_place(t);
    return r + failed + deaf > 0 ? EXIT_FAILED : EXIT_DONE;
}

/* *ret_entered: a core came in, whatever happened then. */
static int enter_now(struct target *t, struct enter_options *o, bool *ret_entered)
{
    struct inject_result result = {0};
    int rc = installed_file("libprobing.so", o->library, sizeof(o->library));

    if (rc < 0)
        return rc;
    o->inject.library = o->library;
    o->inject.settings = o->settings;
    rc = inject_into(&o->inject, &result);
    if (rc < 0)
        return rc;
    *ret_entered = true;
    if (o->inject.dry_run) {
        plan_print(t, &result, o->library, o->plugins);
        return EXIT_DONE;
    }
    if (result.target_stopped) {
        printf("probing %s is in process %d, which is stopped: it will answer after kill -CONT "
               "%d\n",
               result.version, (int)t->pid, (int)t->pid);
        return EXIT_DONE;
    }
    return enter_finish(t, o, &result);
}

static bool is_interrupted(void)
{
    return cli_interrupted != 0;
}

/* Try again, if the user can wait and while there is time, what passes (cli/inject/retry.c). */
static int enter_patiently(struct target *t, struct enter_options *o)
{
    struct retry again = retry_begin(RETRY_COMMAND, clock_monotonic() + o->inject.timeout_ns);
    int rc;

    do {
        again.entered = false;
        rc = enter_now(t, o, &again.entered);
    } while (o->wait && retry_again(&again, rc, is_interrupted));
    return rc;
}

static int ignore_text(void *arg, const char *data, size_t size)
{
    (void)arg, (void)data, (void)size;
    return 0;
}

/* A core that is leaving refuses every command. */
static bool is_leaving(struct probing_client *c)
{
    static const char *const words[] = {"version"};
    int status = 0;
    int rc = probing_client_run(c, 1, words, TIMEOUT_NS, ignore_text, NULL, &status);
    return rc < 0 || status == -ESHUTDOWN; /* or closes the connection before it answers */
}

int command_inject(struct target *t, int argc, char **argv)
{
    struct enter_options o = {.inject = {.pid = t->pid}};
    struct probing_client *c = NULL;
    int rc = cli_parse(argc, argv, parse_option, &o);

    if (rc < 0)
        return rc;
    if (o.inject.timeout_ns == 0)
        o.inject.timeout_ns = o.wait ? PATIENT_NS : TIMEOUT_NS;
    if (t->host[0] != '\0' || t->pid == 0)
        return err_set(-EINVAL, "inject needs the pid of a process on this machine, not '%s'",
                       t->text);
    if (t->kind == TARGET_FILES && !t->stopped)
        return err_set(-ESRCH,
                       "there is no process %d, only data of an ended process with that pid",
                       (int)t->pid);
    if (t->kind == TARGET_LIVE && target_reach(t, &c) == 0) {
        bool leaving = is_leaving(c);
        rc = leaving ? await_core_end(t->pid) : enter_again(t, &o, c);
        probing_client_free(c);
        bool replaced = !leaving && rc == -ESTALE && o.wait; /* there is another to enter */
        if ((!leaving || rc < 0) && !replaced)
            return rc;
    }
    return enter_patiently(t, &o);
}
