/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/inject/inject.c - `inject`: options, cli/inject, then waiting until it answers; and
 * `eject`.
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
#include "cli/commands/inject/inject_dry_run.h"
#include "cli/commands/inject/inject_setup.h"
#include "cli/inject/inject.h"
#include "cli/inject/retry.h"
#include "cli/inject/starved.h"
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
#include "core/stack/stack.h"
#include "sdk/lib/buf.h"
#include "sdk/lib/proc/task.h"

#define SETTINGS_MAX 64
#define PLUGINS_MAX 16
#define TIMEOUT_NS (10 * NS_PER_S)
#define PATIENT_NS (60 * NS_PER_S) /* with --wait */
#define AGAIN_MS 20
#define LOOK_NS (50 * NS_PER_MS) /* between looks at what program it is */
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

static int take(void *arg, const char *option, const char *value)
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

struct why {
    struct stack_process *p;
    uint64_t at; /* 0: not known */
};

static int find_why(void *arg, const struct stack_module *m)
{
    struct why *w = arg;
    w->at = stack_symbol_address(w->p, m, "probing_why");
    return w->at != 0;
}

static int try_connect(struct target *t)
{
    struct probing_client *c = NULL;
    int rc = directory_of(t->pid, t->directory, sizeof(t->directory));

    if (rc < 0)
        return rc;
    t->kind = TARGET_LIVE;
    rc = target_connect(t, &c);
    if (rc == 0)
        probing_client_free(c);
    return rc;
}

/* Where the core is in it now; w->at is 0: it is not, or that cannot be seen. */
static bool find_core(struct why *w, pid_t pid)
{
    w->at = 0;
    if (w->p != NULL)
        stack_process_refresh(w->p, /* maps_too= */ true);
    else if (stack_process_open(pid, &w->p) < 0) /* not in the middle of an exec */
        return false;
    (void)stack_modules(w->p, find_why, w);
    return w->at != 0;
}

/* The core was in it: is it still?  An exec takes everything along but the pid and the start time.
 * 0, or -ESTALE. */
static int check_program(struct why *w, pid_t pid)
{
    char path[64], program[4096];

    (void)find_core(w, pid);
    if (w->p == NULL)
        return 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
    ssize_t n = readlink(path, program, sizeof(program) - 1);
    if (w->at != 0 || n <= 0) /* no link: it is ending, which is another thing */
        return 0;
    program[n] = '\0';
    return err_set(
        -ESTALE,
        "process %d now runs another program (exec of %s), and the core ended with the previous "
        "one; enter it again: probing -t %d inject (--wait does this automatically)",
        (int)pid, program, (int)pid);
}

/* A core that cannot start may have no directory to say why: it leaves a line in its memory, which
 * is that of another program after an exec. */
static int check_why(struct why *w, pid_t pid)
{
    char why[ERR_TEXT_BYTES] = "";

    if (w->at == 0)
        return 0;
    stack_process_refresh(w->p, /* maps_too= */ false);
    if (stack_read(w->p, w->at, why, sizeof(why) - 1) < 0 || why[0] == '\0')
        return 0;
    if (check_program(w, pid) < 0)
        return -ESTALE;
    return err_set(-ECANCELED, "the core in process %d could not start: %s", (int)pid, why);
}

static int say_silent(const struct target *t, struct starved *looks, uint64_t waited_ns,
                      bool mapped, const char *why)
{
    char starved[STARVED_WORDS_BYTES];

    if (!mapped)
        return err_set(-ETIMEDOUT,
                       "process %d was entered, and no core can be seen in it now: it may run "
                       "another program (exec); enter it again: probing -t %d inject",
                       (int)t->pid, (int)t->pid);
    starved_words(looks, waited_ns, starved, sizeof(starved));
    return err_set(
        -ETIMEDOUT, "the core is in process %d but does not answer yet (%s)%s", (int)t->pid, why,
        starved[0] != '\0' ? starved : "; try again, and see probing.log in its data directory");
}

int setup_await(struct target *t, uint64_t timeout_ns, bool mapped)
{
    uint64_t begin = clock_monotonic(), look = 0;
    struct why w = {.p = NULL};
    struct starved looks;
    int rc;

    starved_begin(&looks, t->pid, /* only= */ 0, /* from_birth= */ true);
    mapped = find_core(&w, t->pid) || mapped;
    while ((rc = try_connect(t)) < 0) {
        uint64_t waited = clock_monotonic() - begin;
        starved_look(&looks, begin + waited);
        if (rc == -ESTALE)
            break;
        int gave_up = check_why(&w, t->pid);
        if (gave_up < 0) {
            rc = gave_up;
            break;
        }
        if (waited >= look) {
            rc = mapped ? check_program(&w, t->pid) : 0;
            if (rc < 0)
                break;
            mapped = mapped || find_core(&w, t->pid);
            look = waited + LOOK_NS;
            rc = try_connect(t); /* its sentence, for below */
            if (rc == 0)
                break;
        }
        if (cli_interrupted) {
            rc = err_set(-ECANCELED, "interrupted; the core is in process %d and may still start",
                         (int)t->pid);
            break;
        }
        if (rc == -ESRCH) {
            rc = err_set(rc, "process %d ended while its core started", (int)t->pid);
            break;
        }
        if (waited > timeout_ns) {
            char why[ERR_TEXT_BYTES] = "it has made no data directory";
            if (rc != -ENOENT)
                (void)snprintf(why, sizeof(why), "%s", err_text());
            rc = say_silent(t, &looks, waited, mapped, why);
            break;
        }
        /* A core that starts takes 5 to 20 ms: look often at first. */
        (void)poll(NULL, 0, waited < 160 * NS_PER_MS ? 1 + (int)(waited / (8 * NS_PER_MS)) : 20);
    }
    stack_process_free(w.p);
    return rc;
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
    int r = setup_await(t, o->inject.timeout_ns,
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

#define EJECT_WAIT_NS (60 * NS_PER_S)  /* in which no thread ends: rows go to a slow disk */
#define EJECT_MOST_NS (600 * NS_PER_S) /* while threads end, or get no processor */

/* How many threads of ours run in the process. */
static uint32_t our_threads(pid_t pid)
{
    struct proc_numbers all;
    struct proc_number one;
    char comm[PROC_COMM_BYTES];
    uint32_t n = 0;

    (void)proc_threads_open(&all, pid);
    while (proc_numbers_next(&all, &one))
        n += proc_comm_of(pid, (pid_t)one.value, comm, sizeof(comm)) == 0 &&
             strncmp(comm, "probing/", 8) == 0;
    proc_numbers_close(&all);
    return n;
}

/* Wait until nothing of ours runs in the process any more. */
static int wait_left(pid_t pid)
{
    uint64_t begin = clock_monotonic(), now = begin, counted = begin;
    uint32_t fewest = UINT32_MAX, n;
    char starved[STARVED_WORDS_BYTES] = "";
    struct starved looks;

    starved_begin(&looks, pid, /* only= */ 0, /* from_birth= */ false);
    while (pid != 0 && (n = our_threads(pid)) > 0) {
        if (cli_interrupted)
            return err_set(-ECANCELED, "interrupted; the core is leaving process %d", (int)pid);
        now = clock_monotonic();
        starved_look(&looks, now);
        counted = n < fewest ? now : counted;
        fewest = n < fewest ? n : fewest;
        if (now - counted > EJECT_WAIT_NS)
            starved_words(&looks, now - begin, starved, sizeof(starved));
        if (now - begin > EJECT_MOST_NS || (now - counted > EJECT_WAIT_NS && !starved[0]))
            return err_set(-ETIMEDOUT,
                           "process %d was asked to let go of its core, of which %u threads have "
                           "not ended within %d s%s",
                           (int)pid, n, (int)((now - begin) / NS_PER_S), starved);
        (void)poll(NULL, 0, 5);
    }
    return EXIT_DONE;
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
    int rc = cli_parse(argc, argv, take, &o);

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
        rc = leaving ? wait_left(t->pid) : enter_again(t, &o, c);
        probing_client_free(c);
        bool replaced = !leaving && rc == -ESTALE && o.wait; /* there is another to enter */
        if ((!leaving || rc < 0) && !replaced)
            return rc;
    }
    return enter_patiently(t, &o);
}

/* The answer to an eject was lost, and the core may have left all the same: what counts is what has
 * become of it.  start_time: of the process, 0 where it is not known.  0: it has left; -ESTALE: the
 * process runs another program; -ECONNRESET: neither, the reason stays. */
static int has_left(const struct target *t, uint64_t start_time)
{
    /* A process that cannot be seen to have died is not waited for long. */
    uint64_t now = clock_monotonic(), looked = now, other = 0;
    uint64_t deadline = now + EJECT_WAIT_NS / (start_time != 0 ? 1 : 10);
    struct why w = {.p = NULL};
    char sock[4200];
    int rc = 1;

    (void)snprintf(sock, sizeof(sock), "%s/sock", t->directory);
    for (; rc == 1 && !cli_interrupted && now < deadline; now = clock_monotonic()) {
        bool dead =
            start_time != 0 && (proc_start_time(t->pid, &other) < 0 || other != start_time ||
                                !(inject_runs_on(t->pid) || target_state(t->pid) != 'Z'));
        if (dead || t->directory[0] == '\0')
            break;
        if (access(sock, F_OK) == -1 && errno == ENOENT)
            rc = 0;
        else if (t->pid != 0 && now - looked > LOOK_NS) {
            looked = now;
            rc = check_program(&w, t->pid) < 0 ? -ESTALE : 1;
        }
        (void)poll(NULL, 0, rc == 1 ? AGAIN_MS : 0);
    }
    stack_process_free(w.p);
    return rc == 1 ? -ECONNRESET : rc;
}

int command_eject(struct target *t, int argc, char **argv)
{
    uint64_t start_time = 0;
    char why[ERR_TEXT_BYTES];

    if (t->pid != 0)
        (void)proc_start_time(t->pid, &start_time);
    int rc = command_forward(t, argc, argv);
    if (rc == -ECONNRESET && t->host[0] == '\0') {
        (void)snprintf(why, sizeof(why), "%s", err_text());
        rc = has_left(t, start_time);
        if (rc == 0) {
            const char *inside = strstr(t->directory, "/root/"); /* as the process sees it */
            printf("ejected; what was measured stays in %s\n",
                   inside != NULL ? inside + 5 : t->directory);
            rc = EXIT_DONE;
        } else if (rc == -ECONNRESET) {
            (void)err_set(rc, "%s", why);
        }
    }
    /* The answer comes before the end does: be done only when the process is as it was. */
    return rc == EXIT_DONE ? wait_left(t->pid) : rc;
}
