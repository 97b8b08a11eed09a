/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/main.c - the `probing` command: which target, which command, which exit code.
 *
 * One thread.  It does not know what commands do: see the table below and their files.
 */
#include "cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/text.h"

#define VERSION "0.1.0"

volatile sig_atomic_t cli_interrupted;

struct command {
    const char *name, *alias, *usage, *doc;
    bool needs_target;
    int (*run)(struct target *t, int argc, char **argv);
    const char *example;
};

static const struct command COMMANDS[] = {
    {"inject", NULL, "[-l ADDR] [-D KEY=VALUE] [--plugin NAME] [--timeout S] [--dry-run]",
     "enter the running process", true, command_inject, "probing -t 4242 inject --plugin torch"},
    {"backtrace", "bt", "[--thread TID] [--native|--python] [--json]",
     "stacks of all threads, Python and native; works in a hung process", true, command_forward,
     "probing -t 4242 backtrace"},
    {"eval", NULL, "[--timeout S] CODE", "run Python in the process, print what it prints", true,
     command_forward, "probing -t 4242 eval \"import torch; print(torch.__version__)\""},
    {"query", NULL, "[--format table|json|jsonl|csv] [--limit N] [--timeout S] SQL",
     "ask in SQL, the living or the dead", true, command_query,
     "probing -t 4242 query \"select module, avg(duration) from python.torch_trace group by "
     "module\""},
    {"watch", NULL, "[--interval S] [--format table|json|jsonl|csv] SQL",
     "print rows as they arrive, until Ctrl-C", true, command_watch,
     "probing -t 4242 watch \"select step, module, duration from python.torch_trace\""},
    {"tables", NULL, "[--format F]", "what can be asked", true, command_query,
     "probing -t 4242 tables"},
    {"describe", NULL, "[--format F] TABLE", "columns of a table, their units and meaning", true,
     command_query, "probing -t 4242 describe python.torch_trace"},
    {"export", NULL, "--format csv|jsonl|arrow|perfetto|chrome|parquet [-o FILE] [--table T | SQL]",
     "a table or an answer into a file; perfetto and chrome: a trace, of torch's modules if no "
     "other",
     true, command_export, "probing -t 4242 export --format perfetto -o trace.json"},
    {"plugin", NULL, "list | load NAME|FILE | stop NAME", "plugins: list, load, stop", true,
     command_plugin, "probing -t 4242 plugin load torch"},
    {"config", NULL, "[list] | get NAME | set NAME VALUE | NAME=VALUE", "settings, live", true,
     command_forward, "probing -t 4242 config probing.max_memory=1GB"},
    {"script", NULL, "run FILE.lua [--follow] | list | stop NAME",
     "probe scripts in Lua, inside the process", true, command_script,
     "probing -t 4242 script run slow_step.lua --follow"},
    {"eject", NULL, "", "leave the process: threads, sockets and hooks go, the data stays", true,
     command_eject, "probing -t 4242 eject"},
    {"list", "ls", "[--dead]", "processes with a core in them; data directories of dead ones",
     false, command_list, "probing list"},
    {"gc", NULL, "[--older DAYS]", "remove the data of dead processes", false, command_gc,
     "probing gc --older 7"},
};
#define N_COMMANDS (sizeof COMMANDS / sizeof COMMANDS[0])

static const struct command *command_named(const char *word)
{
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strcmp(COMMANDS[i].name, word) == 0 ||
            (COMMANDS[i].alias != NULL && strcmp(COMMANDS[i].alias, word) == 0))
            return &COMMANDS[i];
    return NULL;
}

static void print_help(FILE *out)
{
    fputs("probing " VERSION ": enter a running process and ask it\n\n"
          "usage: probing [-t TARGET] COMMAND [ARGUMENTS]\n"
          "       probing TARGET COMMAND [ARGUMENTS]\n\n"
          "TARGET  a pid; host:port; a unix socket; a data directory (of a dead process, too);\n"
          "        or the environment's PROBING_TARGET or ENDPOINT\n\n",
          out);
    for (size_t i = 0; i < N_COMMANDS; i++)
        fprintf(out, "  %-10s %s\n", COMMANDS[i].name, COMMANDS[i].doc);
    fputs("\n  probing help COMMAND   its arguments and an example\n"
          "  probing --version\n\n"
          "exit codes: 0 done; 1 it failed, or the evaluated code raised; 2 wrong usage\n",
          out);
}

static int print_command_help(const char *word)
{
    const struct command *c = command_named(word);

    if (c == NULL)
        return err_set(-EINVAL, "no command '%s'; `probing help` lists them", word);
    printf("probing %s%s %s\n\n  %s\n\nexample:\n  %s\n", c->needs_target ? "-t TARGET " : "",
           c->name, c->usage, c->doc, c->example);
    return EXIT_DONE;
}

/* Could this first word be a target rather than a mistyped command? */
static bool looks_like_target(const char *word)
{
    return isdigit((unsigned char)word[0]) || strpbrk(word, ":/.[") != NULL;
}

static int unknown_command(const char *word)
{
    const char *names[N_COMMANDS];

    for (size_t i = 0; i < N_COMMANDS; i++)
        names[i] = COMMANDS[i].name;
    const char *near = text_nearest(word, names, N_COMMANDS);
    fprintf(stderr, "probing: no command '%s'%s%s%s; `probing help` lists them\n", word,
            near != NULL ? "; did you mean '" : "", near != NULL ? near : "",
            near != NULL ? "'" : "");
    return EXIT_USAGE;
}

static void on_interrupt(int signo)
{
    (void)signo;
    cli_interrupted = 1;
}

static void catch_interrupts(void)
{
    struct sigaction action = {.sa_handler = on_interrupt}; /* no SA_RESTART: waits must end */

    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    action.sa_handler = SIG_IGN; /* `probing ... | head`: the write fails, and that is handled */
    (void)sigaction(SIGPIPE, &action, NULL);
}

uint32_t cli_width(void)
{
    struct winsize size;

    if (isatty(STDOUT_FILENO) != 1 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == -1)
        return 0;
    return size.ws_col;
}

/* The target's text: an option, else the first word, else the environment. */
static const char *take_target(int *argc, char ***argv)
{
    char **words = *argv;

    if (*argc >= 2 && (strcmp(words[0], "-t") == 0 || strcmp(words[0], "--target") == 0 ||
                       strcmp(words[0], "-p") == 0 || strcmp(words[0], "--pid") == 0)) {
        *argc -= 2;
        *argv += 2;
        return words[1];
    }
    if (*argc >= 1 && command_named(words[0]) == NULL && looks_like_target(words[0])) {
        *argc -= 1;
        *argv += 1;
        return words[0];
    }
    const char *text = getenv("PROBING_TARGET");
    return text != NULL && text[0] != '\0' ? text : getenv("ENDPOINT");
}

static int run_command(int argc, char **argv, const char *target_text)
{
    struct target target = {.kind = TARGET_NONE};
    const struct command *c = command_named(argv[0]);

    if (c == NULL) { /* a plugin's own command, perhaps: the process knows */
        int r = target_text != NULL ? target_resolve(target_text, &target) : -ENOENT;
        if (r == 0 && target.kind == TARGET_LIVE)
            return command_forward(&target, argc, argv);
        return unknown_command(argv[0]);
    }
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "--help") == 0)
            return print_command_help(c->name);
    if (c->needs_target) {
        if (target_text == NULL || target_text[0] == '\0') {
            fprintf(stderr,
                    "probing: %s needs a target: probing -t <pid> %s (`probing list` shows "
                    "processes with a core)\n",
                    c->name, c->name);
            return EXIT_USAGE;
        }
        int r = target_resolve(target_text, &target);
        if (r < 0)
            return r;
    }
    argv[0] = (char *)(uintptr_t)c->name; /* an alias stands for its name */
    return c->run(&target, argc, argv);
}

int main(int argc, char **argv)
{
    int r;

    catch_interrupts();
    argc--;
    argv++;
    if (argc >= 2 && strcmp(argv[0], "--dump") == 0) { /* oldest seed: probing --dump <pid> */
        char *words[] = {(char *)(uintptr_t) "backtrace", NULL};
        r = run_command(1, words, argv[1]);
    } else {
        const char *target = take_target(&argc, &argv);
        if (argc == 0 || strcmp(argv[0], "-h") == 0 || strcmp(argv[0], "--help") == 0) {
            print_help(argc == 0 ? stderr : stdout);
            return argc == 0 ? EXIT_USAGE : EXIT_DONE;
        }
        if (strcmp(argv[0], "-V") == 0 || strcmp(argv[0], "--version") == 0 ||
            strcmp(argv[0], "version") == 0) {
            puts("probing " VERSION);
            return EXIT_DONE;
        }
        if (strcmp(argv[0], "help") == 0) {
            if (argc == 1) {
                print_help(stdout);
                return EXIT_DONE;
            }
            r = print_command_help(argv[1]);
        } else if (argv[0][0] == '-') {
            fprintf(stderr, "probing: no option '%s' here; `probing help` shows the usage\n",
                    argv[0]);
            return EXIT_USAGE;
        } else {
            r = run_command(argc, argv, target);
        }
    }
    if (fflush(stdout) == EOF && r >= 0 && errno != EPIPE)
        r = err_set(-EIO, "cannot write the answer: %s", strerror(errno));
    if (r >= 0)
        return r;
    if (r != -EPIPE && !(r == -ECANCELED && cli_interrupted))
        fprintf(stderr, "probing: %s\n", err_why(r));
    return cli_interrupted ? 130 : EXIT_FAILED;
}
