/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/main.c - the `probing` command: which target, which command, which exit code.
 *
 * One thread.  What commands there are stands in command_table.c, what they do in their files.
 */

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/cluster/job_report.h"
#include "cli/command_table.h"
#include "cli/commands/doctor/other_installations.h"
#include "cli/commands/obtain.h"
#include "cli/link/link.h"
#include "cli/many/many.h"
#include "cli/many/members.h"
#include "cli/many/run_there.h"
#include "cli/report/report.h"
#include "cli/target/installed.h"
#include "cli/target/live_run.h"
#include "cli/target/no_core.h"
#include "cli/target/query_client.h"
#include "cli/target/remote_target.h"
#include "cli/target/target.h"
#include "cli/terminal/args.h"
#include "cli/terminal/atomic_output.h"
#include "cli/terminal/check_lines.h"
#include "cli/terminal/exit_codes.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/limits.h"
#include "cli/terminal/pager.h"
#include "cli/terminal/terminal.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/redact.h"
#include "core/base/text.h"
#include "core/base/version.h"

#define COMING_NS (5 * NS_PER_S) /* for so long the plugins of a new core are waited for */
#define COMING_LOOK_NS 20000000
#define SECRET_NAME_MAX 64 /* longer words are code or SQL, not names */

/* Could this first word be a target rather than a mistyped command? */
static bool looks_like_target(const char *word)
{
    return isdigit((unsigned char)word[0]) || strpbrk(word, ":/.[") != NULL ||
           strcmp(word, "all") == 0;
}

/* Words of the field for what is not here, with a target or without one. */
static const char *missing_command(const char *word)
{
    if (strcmp(word, "rdma") == 0 || strcmp(word, "rd") == 0)
        return "RDMA counters are not measured yet";
    return NULL;
}

/* Say which plugin could bring it, as most plugins' command has the plugin's name. */
static void say_nobody_brings(const char *word)
{
    char places[4096], path[4096];

    report_places(places, sizeof(places));
    terminal_say("no command '%s', and no plugin in %s brings it (%s.so %s); PROBING_PLUGIN_PATH "
                 "may name other folders, `probing help` lists what there is",
                 word, places, word,
                 plugin_find(word, path, sizeof(path)) == 0 ? "has none" : "is not there");
}

static int unknown_command(const char *word)
{
    const char *near = cli_command_near(word);

    if (near != NULL)
        terminal_say("no command '%s'; did you mean '%s'? `probing help` lists them", word, near);
    else if (text_is_name(word))
        say_nobody_brings(word);
    else
        terminal_say("unknown command '%s'; `probing help` lists them", word);
    return EXIT_USAGE;
}

static bool is_target_option(const char *word)
{
    return strcmp(word, "-t") == 0 || strcmp(word, "--target") == 0 || strcmp(word, "-p") == 0 ||
           strcmp(word, "--pid") == 0;
}

static bool is_pid(const char *word)
{
    return word[0] != '\0' && word[strspn(word, "0123456789")] == '\0';
}

/* $(pgrep ...) finds several at times: they are one text then, and target_resolve() names them. */
static const char *take_pids(int *argc, char ***argv)
{
    static char all[4096]; /* a training with hundreds of workers */
    char **words = *argv;
    int n = 1;

    (void)snprintf(all, sizeof(all), "%s", words[0]);
    while (n < *argc && is_pid(words[0]) && is_pid(words[n]) &&
           strlen(all) + strlen(words[n]) + 2 <= sizeof(all)) {
        strcat(strcat(all, " "), words[n]);
        n++;
    }
    *argc -= n;
    *argv += n;
    return n > 1 ? all : words[0];
}

/* `query SQL -t 4242`: behind the command, where that has no option of this name. */
static const char *take_late_target(int *argc, char **words)
{
    const struct cli_command *c = cli_command_named(words[0]);
    bool value = false;

    for (int i = 1; c != NULL && i + 1 < *argc && strcmp(words[i], "--") != 0; i++) {
        bool own = cli_option_of(c, words[i], &value);
        if (!own && is_target_option(words[i]) && (c->needs_target || c->may_target)) {
            const char *text = words[i + 1];
            *argc -= 2;
            memmove(words + i, words + i + 2, (size_t)(*argc - i + 1) * sizeof(*words));
            return text;
        }
        if (c->verbatim && !own && words[i][0] != '-')
            break;
        i += own && value;
    }
    return NULL;
}

/* --yes, out of the words of a command that has it.  What stands behind the code of `eval`, or
 * behind its file, is the code's. */
static bool take_yes(const struct cli_command *c, int *argc, char **words)
{
    bool value = false, yes = false;

    if (c == NULL || !cli_option_of(c, "--yes", &value))
        return false;
    for (int i = 1; i < *argc && strcmp(words[i], "--") != 0; i++) {
        bool own = cli_option_of(c, words[i], &value);
        bool file = strcmp(words[i], "-f") == 0 || strcmp(words[i], "--file") == 0;
        if (c->verbatim && (file || (!own && words[i][0] != '-')))
            break;
        if (strcmp(words[i], "--yes") == 0 || (own && strcmp(words[i], "-y") == 0)) {
            yes = true;
            memmove(words + i, words + i + 1, (size_t)(*argc - i) * sizeof(*words));
            (*argc)--;
            i--;
        } else if (own && value) {
            i++;
        }
    }
    return yes;
}

/* A command of a plugin in the process.  One that we lack may be a report of a plugin there. */
static int forward_command(struct target *t, int argc, char **argv)
{
    char places[4096], why[ERR_TEXT_BYTES];
    const char *near = cli_command_near(argv[0]); /* of ours, which the process does not know */
    int rc = live_run(t, argc, (const char *const *)argv);

    if (rc != -ENOENT)
        return rc;
    (void)snprintf(why, sizeof(why), "%s", err_why(rc));
    if (strncmp(why, "unknown command", 15) != 0)
        return rc;
    if (near != NULL)
        return cli_misuse(
            err_set(rc, "unknown command '%s'; did you mean '%s'? `probing help` lists them",
                    argv[0], near));
    if (!text_is_name(argv[0]) || !answer_plugin_runs(t, argv[0]))
        return cli_misuse(err_set(rc, "%s", why));
    report_places(places, sizeof(places));
    return err_set(rc,
                   "plugin %s runs in %s, but this probing has no %s.so with a report of it: "
                   "install it into %s, or set PROBING_PLUGIN_PATH",
                   argv[0], t->text, argv[0], places);
}

static bool target_by_environment; /* no word of the command named it */

/* The target's text: an option, else the first word, else the environment. */
static const char *take_target(int *argc, char ***argv)
{
    char **words = *argv;

    if (*argc >= 2 && is_target_option(words[0])) {
        *argc -= 1;
        *argv += 1;
        return take_pids(argc, argv);
    }
    if (*argc >= 1 && cli_command_named(words[0]) == NULL && looks_like_target(words[0]))
        return take_pids(argc, argv);
    const char *text = *argc >= 1 ? take_late_target(argc, words) : NULL;
    target_by_environment = text == NULL;
    if (text == NULL)
        text = getenv("PROBING_TARGET");
    return text != NULL && text[0] != '\0' ? text : getenv("ENDPOINT");
}

static bool has_word(int argc, char **argv, const char *word)
{
    bool found = false;

    for (int i = 1; i < argc && !found; i++)
        found = strcmp(argv[i], word) == 0;
    return found;
}

/* `help`, `help COMMAND`, either with --json. */
static int command_help(int argc, char **argv)
{
    bool json = has_word(argc, argv, "--json");
    const char *word = NULL;

    for (int i = 1; i < argc && word == NULL; i++)
        word = strcmp(argv[i], "--json") != 0 ? argv[i] : NULL;
    if (word != NULL)
        return cli_misuse(help_one(word, json));
    if (json)
        return help_json(NULL);
    help_all(stdout);
    return EXIT_DONE;
}

static bool asks_for_help(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "--help") == 0)
            return true;
    return false;
}

/* Options for several targets, before the command: `probing -t all --at-once 8 query ...`. */
static struct many_options many_options;

static bool is_many(const struct cli_command *c, const char *target_text, int argc, char **argv)
{
    return target_text != NULL && (c == NULL || c->needs_target || c->may_target) &&
           (c == NULL || !c->finds_targets) &&
           ((c != NULL && c->whole_job) || members_are_named(target_text) ||
            many_asks_all(c, argc, argv));
}

static bool is_remote(const char *text)
{
    struct remote_name r;

    return remote_name_read(text, &r);
}

/* A core that has just come refuses what its plugins bring until they are there, and has done
 * nothing then.  For so long the command is run again. */
static int run_when_known(int (*run)(struct target *t, int argc, char **argv), struct target *t,
                          int argc, char **argv)
{
    uint64_t until = clock_monotonic() + COMING_NS;
    char **words =
        malloc(((size_t)argc + 1) * sizeof(*words)); /* who reads options may move them */
    int rc;

    if (words == NULL)
        return err_set(-ENOMEM, "no memory for the arguments");
    do {
        memcpy(words, argv, ((size_t)argc + 1) * sizeof(*words));
        rc = run(t, argc, words);
    } while (rc == -EINPROGRESS && clock_monotonic() < until && !cli_interrupted &&
             nanosleep(&(struct timespec){.tv_nsec = COMING_LOOK_NS}, NULL) == 0);
    free(words);
    return rc;
}

/* Once more where it failed for a core or a plugin that could be got. */
static int run_obtaining(const struct cli_command *c, struct target *t, bool yes, int argc,
                         char **argv)
{
    bool offers, value, bare = t->kind == TARGET_BARE && !target_is_files(t);
    int rc;

    offers = cli_option_of(c, "--yes", &value);
    if (c->pages && !bare) /* a question stands before the answer, not in it */
        pager_begin();
    rc = run_when_known(c->run, t, argc, argv);
    if (rc >= 0 || !offers || cli_interrupted || (rc = obtain_lack(t, rc, yes)) < 0)
        return rc;
    t->answer_global = many_answer;
    if (c->pages)
        pager_begin();
    return run_when_known(c->run, t, argc, argv);
}

static int run_command(int argc, char **argv, const char *target_text)
{
    struct target target = {.kind = TARGET_NONE};
    const struct cli_command *c = cli_command_named(argv[0]);

    if (c == NULL && missing_command(argv[0]) != NULL) {
        terminal_say("%s", missing_command(argv[0]));
        return EXIT_USAGE;
    }
    if (c == NULL)
        c = cli_report_named(argv[0]);
    bool yes = take_yes(c, &argc, argv);
    bool many = is_many(c, target_text, argc, argv) && !asks_for_help(argc, argv);
    if (many && yes)
        return cli_misuse(err_set(-EINVAL,
                                  "--yes is for one process; to enter several: probing -t %s "
                                  "inject, or probing cluster attach",
                                  target_text));
    if (many)
        return many_run(target_text, &many_options, c, argc, argv);
    if (many_options.at_once > 0 || many_options.timeout_ns > 0)
        return cli_misuse(err_set(-EINVAL, "--at-once and --timeout before the command are for "
                                           "several targets: -t 12,13, -t all, -t job:NAME"));
    if (c == NULL) { /* a plugin's own command in the process, perhaps: that knows */
        int rc = target_text != NULL ? target_resolve(target_text, &target) : -ENOENT;
        if (rc == 0 && runs_there(&target, c, argc, argv))
            return run_there(&target, argc, argv);
        if (rc < 0 && target_text != NULL && is_remote(target_text))
            return rc;
        if (rc == 0 && target.kind == TARGET_LIVE)
            return run_when_known(forward_command, &target, argc, argv);
        if (rc == 0 && target.kind == TARGET_BARE && cli_command_near(argv[0]) == NULL)
            return target_no_core(target.pid, /* plugin= */ "");
        return unknown_command(argv[0]);
    }
    if (asks_for_help(argc, argv))
        return help_one(c->help_word != NULL ? c->help_word(argc, argv) : c->name,
                        has_word(argc, argv, "--json"));
    bool takes = c->needs_target || c->may_target || c->finds_targets;
    if (!takes && target_text != NULL && !target_by_environment && is_remote(target_text))
        return cli_misuse(err_set(-EINVAL,
                                  "`%s` is about this machine and takes no target; on another one: "
                                  "ssh HOST probing %s",
                                  c->name, c->name));
    if (c->needs_target) {
        if (target_text == NULL || target_text[0] == '\0') {
            bool pid =
                argc > 1 && argv[1][0] != '\0' && strspn(argv[1], "0123456789") == strlen(argv[1]);
            terminal_say("%s needs a target: probing -t %s %s (`probing list` shows "
                         "processes with a core)",
                         c->name, pid ? argv[1] : "<pid>", c->name);
            return EXIT_USAGE;
        }
    }
    target.text = target_text;
    target.by_environment = target_by_environment;
    if (!c->finds_targets &&
        (c->needs_target || (c->may_target && target_text != NULL && target_text[0] != '\0'))) {
        int rc = target_resolve(target_text, &target);
        if (rc < 0)
            return rc;
        target_say_whose(&target);
        target.answer_global = many_answer;
    }
    argv[0] = (char *)(uintptr_t)c->name; /* an alias stands for its name */
    if (runs_there(&target, c, argc, argv))
        return run_there(&target, argc, argv);
    cli_args_of(c);
    int rc = run_obtaining(c, &target, yes, argc, argv);
    if (rc < 0 && target.there != NULL) {
        char why[ERR_TEXT_BYTES];
        link_hints(target.there->host, err_why(rc), why, sizeof(why));
        rc = err_set(rc, "%s", why);
    }
    return rc;
}

/* `ps` shows our words to everybody: those that hold a secret are ours alone from now on. */
static int hide_secrets(int argc, char **argv)
{
    bool next = false; /* `config set x.token VALUE` */

    for (int i = 1; i < argc; i++) {
        size_t n = strlen(argv[i]), name = strcspn(argv[i], "=");
        bool secret = next || (name < n && secret_name(argv[i], name));
        next = name == n && n < SECRET_NAME_MAX && strchr(argv[i], '/') == NULL &&
               secret_name(argv[i], n); /* a path is no name: what follows it is a command */
        if (!secret)
            continue;
        char *copy = strdup(argv[i]);
        if (copy == NULL)
            return err_set(-ENOMEM, "no memory for the arguments");
        memset(argv[i], '*', n);
        argv[i] = copy;
    }
    return 0;
}

/* The exit code; what went wrong is said. */
static int report_result(int rc)
{
    int failed = terminal_failed();

    if (failed == EPIPE && rc >= 0)
        rc = -EPIPE;
    else if (failed != 0 && failed != EPIPE && failed != EINTR && (rc >= 0 || rc == -EPIPE))
        rc = err_set(-EIO, "cannot write the output: %s", output_why(failed));
    bool unread = rc == -EPIPE && failed == EPIPE; /* another pipe that breaks is an error */
    if (unread && pager_runs())
        return EXIT_DONE; /* somebody has seen enough */
    if (rc >= 0)
        return rc;
    if (!unread && !(rc == -ECANCELED && cli_interrupted))
        terminal_say("%s", err_why(rc));
    return cli_interrupted ? 130 : cli_is_misused() ? EXIT_USAGE : EXIT_FAILED;
}

static int run_words(int argc, char **argv)
{
    int rc;

    cli_signals_keep();
    cli_signals_catch();
    if ((rc = terminal_begin()) < 0 || (rc = hide_secrets(argc, argv)) < 0) {
        terminal_say("%s", err_why(rc));
        return EXIT_FAILED;
    }
    argc--;
    argv++;
    if (argc >= 1 && strcmp(argv[0], "--raw") == 0) {
        terminal_raw();
        argc--;
        argv++;
    }
    if (argc >= 2 && strcmp(argv[0], "--dump") == 0) { /* oldest seed: probing --dump <pid> */
        char *words[] = {(char *)(uintptr_t) "backtrace", NULL};
        rc = run_command(1, words, argv[1]);
    } else if (argc >= 2 && strcmp(argv[0], "--pause") == 0) { /* and probing --pause <pid> */
        char *words[] = {(char *)(uintptr_t) "debug", (char *)(uintptr_t) "--pause", NULL};
        rc = run_command(2, words, argv[1]);
    } else {
        const char *target = take_target(&argc, &argv);
        if (target != NULL && (rc = many_options_take(&argc, &argv, &many_options)) < 0)
            return report_result(rc);
        if (target != NULL && cli_command_named(target) != NULL && access(target, F_OK) == -1) {
            terminal_say("-t needs a target, and '%s' is a command: is a variable empty? "
                         "(`probing list` shows processes with a core)",
                         target);
            return EXIT_USAGE;
        }
        if (argc == 0 || strcmp(argv[0], "-h") == 0 || strcmp(argv[0], "--help") == 0) {
            help_all(argc == 0 ? stderr : stdout);
            return argc == 0 ? EXIT_USAGE : report_result(EXIT_DONE);
        }
        if (strcmp(argv[0], "-V") == 0 || strcmp(argv[0], "--version") == 0 ||
            strcmp(argv[0], "version") == 0) {
            printf("probing %s\n", probing_build);
            bool where =
                argc == 2 && (strcmp(argv[1], "-v") == 0 || strcmp(argv[1], "--verbose") == 0);
            struct lines lines = {.json = NULL};
            rc = where ? installed_print(&lines) : 0;
            if (where && rc == 0)
                (void)other_installations_print(&lines, "");
            return report_result(rc);
        }
        if (strcmp(argv[0], "--licenses") == 0)
            return report_result(installed_licenses());
        if (strcmp(argv[0], "help") == 0) {
            rc = command_help(argc, argv);
        } else if (is_target_option(argv[0])) {
            terminal_say("%s needs a target: %s PID, and others that `probing help` lists", argv[0],
                         argv[0]);
            return EXIT_USAGE;
        } else if (argv[0][0] == '-') {
            terminal_say("unknown option '%s' here; `probing help` shows the usage", argv[0]);
            return EXIT_USAGE;
        } else {
            rc = run_command(argc, argv, target);
        }
    }
    rc = report_result(rc);
    pager_end();
    return rc;
}

int main(int argc, char **argv)
{
    return cli_with_stack(run_words, argc, argv);
}
