/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/help.c - the table of commands as text: help, manual page, completion for three shells.
 *
 * One thread.  It knows no command by name, and asks a command for words that come from plugins.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/command_table.h"
#include "cli/target/target.h"
#include "cli/terminal/args.h"
#include "cli/terminal/exit_codes.h"
#include "core/base/err.h"
#include "core/base/version.h"

#define FILL 78 /* columns of running text */

/* Running text, filled, each line behind `indent`. */
static void put_filled(FILE *out, const char *indent, const char *text)
{
    size_t room = FILL - strlen(indent), used = 0;

    fputs(indent, out);
    while (*text != '\0') {
        size_t n = strcspn(text, " ");
        if (used > 0 && used + 1 + n > room) {
            fprintf(out, "\n%s", indent);
            used = 0;
        }
        fprintf(out, "%s%.*s", used > 0 ? " " : "", (int)n, text);
        used += (used > 0) + n;
        text += n;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

/* A list that ends with NULL. */
static void put_names(const char *const *names, const char *between)
{
    for (const char *const *name = names; *name != NULL; name++)
        printf("%s%s", name == names ? "" : between, *name);
}

void help_all(FILE *out)
{
    const struct cli_command *c;

    fputs(
        "probing " PROBING_VERSION ": inspect a running process\n"
        "\n"
        "usage: probing [--raw] [-t TARGET] COMMAND [ARGUMENTS]\n"
        "       probing TARGET COMMAND [ARGUMENTS]\n"
        "       probing -t TARGETS [--at-once N] [--timeout TIME] COMMAND [ARGUMENTS]\n"
        "\n"
        "TARGET  a pid; host:port; a unix socket; the data directory of a process, which may have\n"
        "        ended; without -t, PROBING_TARGET or ENDPOINT from the environment\n"
        "TARGETS several processes: 12,13; all (every process with a core); job:NAME;\n"
        "        'node[1-8]:9922'; 'ssh:node[1-8]/job:NAME' (on other machines)\n"
        "        --at-once N: ask this many at a time; --timeout TIME: how long each may take\n"
        "--raw   do not escape control characters; only for a target that you trust\n",
        out);
    for (uint32_t i = 0; (c = cli_command_at(i)) != NULL; i++) {
        if (c->heading != NULL)
            fprintf(out, "\n%s:\n", c->heading);
        fprintf(out, "  %-11s %s\n", c->name, c->doc);
    }
    fputs("\n"
          "  probing help COMMAND   show options and examples of a command\n"
          "  probing --version [-v] show the build; with -v also where its files are\n"
          "  probing --licenses     show the licences of what is linked in\n"
          "\n"
          "for programs: list, backtrace, top, cluster, reports, query, tables, describe, watch, "
          "gc, doctor\n"
          "and the lists of config, plugin, script and trace have --json; `probing help --json` "
          "has all of this\n"
          "exit codes: 0 success; 1 failure, or the evaluated code raised an exception; 2 wrong "
          "usage\n",
          out);
}

/* "-t TARGET watch [-f FORMAT] ... SQL" */
static void put_usage(FILE *out, const struct cli_command *c)
{
    fprintf(out, "probing %s%s", c->needs_target ? "-t TARGET " : "", c->name);
    for (const struct cli_option *o = c->options; o->name != NULL; o++)
        fprintf(out, " [%s%s%s]", o->letter != NULL ? o->letter : o->name,
                o->value != NULL ? " " : "", o->value != NULL ? o->value : "");
    fprintf(out, "%s%s\n", c->arguments[0] != '\0' ? " " : "", c->arguments);
}

/* begun: whether one was shown before. */
static void put_word(void *begun, const char *word, const char *doc)
{
    if (!*(bool *)begun)
        puts("\nof plugins that are installed:");
    *(bool *)begun = true;
    printf("  %-24s %s\n", word, doc);
}

static void put_command(const struct cli_command *c)
{
    char option[64];

    put_usage(stdout, c);
    printf("\n  %s\n", c->doc);
    if (c->aliases[0] != NULL) {
        fputs("  also: ", stdout);
        put_names(c->aliases, ", ");
        putchar('\n');
    }
    if (c->text != NULL) {
        putchar('\n');
        put_filled(stdout, "  ", c->text);
    }
    if (c->options[0].name != NULL)
        puts("\noptions:");
    for (const struct cli_option *o = c->options; o->name != NULL; o++) {
        (void)snprintf(option, sizeof(option), "%s%s%s%s%s", o->letter != NULL ? o->letter : "",
                       o->letter != NULL ? ", " : "    ", o->name, o->value != NULL ? " " : "",
                       o->value != NULL ? o->value : "");
        printf("  %-24s %s\n", option, o->doc);
    }
    if (c->words != NULL)
        c->words(put_word, &(bool){false});
    if (c->examples[0] != NULL)
        printf("\nexample%s:\n", c->examples[1] != NULL ? "s" : "");
    for (const char *const *e = c->examples; *e != NULL; e++)
        printf("  probing %s\n", *e);
}

int help_one(const char *word, bool json)
{
    const struct cli_command *c = cli_command_named(word);

    if (c == NULL)
        c = cli_report_named(word);
    if (c == NULL) {
        const char *near = cli_command_near(word);
        return near != NULL
                   ? err_set(-EINVAL,
                             "no command '%s'; did you mean '%s'? `probing help` lists them", word,
                             near)
                   : err_set(-EINVAL, "unknown command '%s'; `probing help` lists them", word);
    }
    if (json)
        return help_json(c);
    put_command(c);
    return EXIT_DONE;
}

/* ---- the manual page ---- */

/* roff takes '-' for a hyphen and a line's first '.' or ''' for a request. */
static void put_roff(const char *text)
{
    if (*text == '.' || *text == '\'')
        fputs("\\&", stdout);
    for (; *text != '\0'; text++) {
        if (*text == '\\' || *text == '-')
            putchar('\\');
        fputs(*text == '\\' ? "e" : (char[2]){*text, '\0'}, stdout);
    }
}

static void put_man_word(void *arg, const char *word, const char *doc)
{
    (void)arg;
    printf(".TP\n.B %s\n", word);
    put_roff(doc);
    putchar('\n');
}

static void put_man_command(const struct cli_command *c)
{
    printf(".SS %s", c->name);
    if (c->arguments[0] != '\0') {
        putchar(' ');
        put_roff(c->arguments);
    }
    putchar('\n');
    put_roff(c->doc);
    puts(".");
    if (c->aliases[0] != NULL) {
        fputs("Also written\n.BR ", stdout);
        put_names(c->aliases, " \", \" ");
        puts(" .");
    }
    if (c->text != NULL) {
        put_roff(c->text);
        putchar('\n');
    }
    for (const struct cli_option *o = c->options; o->name != NULL; o++) {
        fputs(".TP\n.B ", stdout);
        if (o->letter != NULL) {
            put_roff(o->letter);
            fputs(", ", stdout);
        }
        put_roff(o->name);
        printf("%s%s\n", o->value != NULL ? " " : "", o->value != NULL ? o->value : "");
        put_roff(o->doc);
        putchar('\n');
    }
    if (c->words != NULL)
        c->words(put_man_word, NULL);
    if (c->examples[0] != NULL)
        puts(".PP\n.nf");
    for (const char *const *e = c->examples; *e != NULL; e++) {
        fputs("    probing ", stdout);
        put_roff(*e);
        putchar('\n');
    }
    if (c->examples[0] != NULL)
        puts(".fi");
}

int command_man(struct target *t, int argc, char **argv)
{
    const struct cli_command *c;

    (void)t;
    if (argc != 1)
        return cli_misuse(err_set(-EINVAL, "man takes no argument '%s'", argv[1]));
    puts(".TH PROBING 1 \"\" \"probing " PROBING_VERSION "\" \"User Commands\"\n"
         ".SH NAME\nprobing \\- inspect a running Python or PyTorch process\n"
         ".SH SYNOPSIS\n.B probing\n[\\-t TARGET] COMMAND [ARGUMENTS]\n.br\n"
         ".B probing\nTARGET COMMAND [ARGUMENTS]\n.br\n"
         ".B probing\n\\-t TARGETS [\\-\\-at\\-once N] [\\-\\-timeout TIME] COMMAND [ARGUMENTS]\n"
         ".SH DESCRIPTION\n"
         "Enters a running Python or PyTorch process without restarting it, and answers "
         "questions about it: stacks of all threads, SQL over what was measured, Python code, live "
         "streams. After the process has ended, its data can still be queried.\n.PP\n"
         "TARGET is a pid, host:port, a unix socket or a data directory; when it is left out, "
         "PROBING_TARGET or ENDPOINT of the environment.\n.PP\n"
         "TARGETS are several: 12,13 (a list of any of these), all (every process that the list of "
         "`probing list` has), job:NAME (the ranks on this machine of a job of torchrun, SLURM, "
         "PBS, "
         "LSF or Kubernetes, or of that MASTER_ADDR:MASTER_PORT), 'node[01\\-16,20]:9922'. Rows of "
         "query, tables, describe and export become one table with a column rank (or process); "
         "what other commands print comes with a line that says whose it is, equal answers once. "
         "The last line names who did not answer and why, and the exit code is 1 then.\n"
         ".SH COMMANDS");
    for (uint32_t i = 0; (c = cli_command_at(i)) != NULL; i++)
        put_man_command(c);
    puts(
        ".SH OPTIONS\n.TP\n.B \\-\\-version [\\-v]\nThe version and the build; with \\-v where "
        "the library, the plugins and the scripts were found.\n.TP\n.B \\-\\-licenses\nThe "
        "licences of what is linked in.\n.TP\n.B \\-\\-at\\-once N\nOf several targets, before the "
        "command: how many are asked at a time; 256, or 32 where each takes a process of its own.\n"
        ".TP\n.B \\-\\-timeout TIME\nOf several targets, before the command: the time that each "
        "has to answer; 30s for rows, 60s for other commands.\n.SH EXIT STATUS\n0: success. 1: "
        "failure, or the "
        "evaluated code raised an exception. 2: wrong usage. 130: interrupted.");
    return EXIT_DONE;
}

/* ---- completion ---- */

static void put_options(const struct cli_command *c, const char *between)
{
    for (const struct cli_option *o = c->options; o->name != NULL; o++)
        printf("%s%s", o == c->options ? "" : between, o->name);
}

static void put_verb(void *arg, const char *word, const char *doc)
{
    (void)arg;
    (void)doc;
    printf(" %s", word);
}

/* Words that begin an argument list such as "run FILE.lua | list | stop NAME". */
static void put_verbs(const struct cli_command *c)
{
    for (const char *at = c->arguments; *at != '\0';) {
        size_t n = strspn(at, "abcdefghijklmnopqrstuvwxyz");
        if (n > 0 && (at[n] == ' ' || at[n] == ']' || at[n] == '|' || at[n] == '\0'))
            printf(" %.*s", (int)n, at);
        at += strcspn(at, "|");
        at += strspn(at, "| [");
    }
    if (c->words != NULL)
        c->words(put_verb, NULL);
}

static const char *quoted(const char *text) /* in '...': no text of ours holds a quote */
{
    return strchr(text, '\'') == NULL ? text : "";
}

static void bash_completion(void)
{
    const struct cli_command *c;

    puts("# probing's completion for bash; made by `probing completion bash`\n"
         "_probing() {\n"
         "    local word=\"${COMP_WORDS[COMP_CWORD]}\" before=\"${COMP_WORDS[COMP_CWORD-1]}\" i "
         "command=\n"
         "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
         "        case \"${COMP_WORDS[i]}\" in\n"
         "        -t|-p|--target|--pid|--at-once|--timeout) ((i++)) ;;\n"
         "        [a-z]*) command=\"${COMP_WORDS[i]}\"; break ;;\n"
         "        esac\n"
         "    done\n"
         "    case \"$before\" in\n"
         "    -t|-p|--target|--pid)\n"
         "        COMPREPLY=($(compgen -W \"all $(probing list 2>/dev/null | grep -oE '^ "
         "*[0-9]+')\" -- "
         "\"$word\"))\n"
         "        return ;;\n"
         "    esac\n"
         "    case \"$command\" in");
    fputs("    '') COMPREPLY=($(compgen -W '-t help", stdout);
    for (uint32_t i = 0; (c = cli_command_at(i)) != NULL; i++)
        printf(" %s", c->name);
    puts("' -- \"$word\")) ;;");
    for (uint32_t i = 0; (c = cli_command_at(i)) != NULL; i++) {
        printf("    %s%s", c->name, c->aliases[0] != NULL ? "|" : "");
        put_names(c->aliases, "|");
        fputs(") COMPREPLY=($(compgen -W '", stdout);
        put_options(c, " ");
        put_verbs(c);
        puts("' -f -- \"$word\")) ;;");
    }
    puts("    esac\n}\ncomplete -F _probing probing");
}

static void zsh_completion(void)
{
    const struct cli_command *c;

    puts("#compdef probing\n# probing's completion for zsh; made by `probing completion zsh`\n"
         "local -a commands=(");
    for (uint32_t i = 0; (c = cli_command_at(i)) != NULL; i++)
        printf("    '%s:%s'\n", c->name, quoted(c->doc));
    puts(")\nlocal -i i\nlocal command=\n"
         "for ((i = 2; i < CURRENT; i++)); do\n"
         "    case $words[i] in\n"
         "    (-t|-p|--target|--pid|--at-once|--timeout) ((i++)) ;;\n"
         "    ([a-z]*) command=$words[i]; break ;;\n"
         "    esac\n"
         "done\n"
         "case $words[CURRENT-1] in\n"
         "(-t|-p|--target|--pid) compadd -- all ${(f)\"$(probing list 2>/dev/null | grep -oE "
         "'^ *[0-9]+' | tr -d ' ')\"}; return ;;\n"
         "esac\n"
         "case $command in\n"
         "('') _describe command commands ;;");
    for (uint32_t i = 0; (c = cli_command_at(i)) != NULL; i++) {
        printf("(%s%s", c->name, c->aliases[0] != NULL ? "|" : "");
        put_names(c->aliases, "|");
        fputs(") compadd --", stdout);
        for (const struct cli_option *o = c->options; o->name != NULL; o++)
            printf(" %s", o->name);
        put_verbs(c);
        puts("; _files ;;");
    }
    puts("esac");
}

static void fish_completion(void)
{
    const struct cli_command *c;

    puts("# probing's completion for fish; made by `probing completion fish`\n"
         "complete -c probing -s t -s p -l target -l pid -x -d 'pid, host:port, socket or data "
         "directory' -a 'all (probing list 2>/dev/null | string match -rg \"^ *([0-9]+)\")'");
    /* A target is a word before the command, which fish would take for one itself. */
    fputs("set -l commands", stdout);
    for (uint32_t i = 0; (c = cli_command_at(i)) != NULL; i++)
        printf(" %s", c->name);
    puts("");
    for (uint32_t i = 0; (c = cli_command_at(i)) != NULL; i++) {
        printf("complete -c probing -n \"not __fish_seen_subcommand_from $commands\" -f -a %s "
               "-d '%s'\n",
               c->name, quoted(c->doc));
        for (const struct cli_option *o = c->options; o->name != NULL; o++) {
            printf("complete -c probing -n '__fish_seen_subcommand_from %s' -l %s", c->name,
                   o->name + 2);
            if (o->letter != NULL)
                printf(" -s %s", o->letter + 1);
            printf("%s -d '%s'\n", o->value != NULL ? " -r" : "", quoted(o->doc));
        }
        fputs("complete -c probing -n '__fish_seen_subcommand_from ", stdout);
        printf("%s' -a '", c->name);
        put_verbs(c);
        puts("'");
    }
}

int command_completion(struct target *t, int argc, char **argv)
{
    static const struct {
        const char *shell;
        void (*put)(void);
    } shells[] = {{"bash", bash_completion}, {"zsh", zsh_completion}, {"fish", fish_completion}};

    (void)t;
    for (size_t i = 0; argc == 2 && i < sizeof(shells) / sizeof(shells[0]); i++)
        if (strcmp(argv[1], shells[i].shell) == 0) {
            shells[i].put();
            return EXIT_DONE;
        }
    return cli_misuse(err_set(-EINVAL, "completion needs bash, zsh or fish%s%s%s",
                              argc > 1 ? ", not '" : "", argc > 1 ? argv[1] : "",
                              argc > 1 ? "'" : ""));
}
