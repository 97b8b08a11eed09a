/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/completion.c - `completion`: the table of commands as a script for bash, zsh or fish.
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

static const char *quote_text(const char *text) /* in '...': no text of ours holds a quote */
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
        help_put_names(c->aliases, "|");
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
        printf("    '%s:%s'\n", c->name, quote_text(c->doc));
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
        help_put_names(c->aliases, "|");
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
               c->name, quote_text(c->doc));
        for (const struct cli_option *o = c->options; o->name != NULL; o++) {
            printf("complete -c probing -n '__fish_seen_subcommand_from %s' -l %s", c->name,
                   o->name + 2);
            if (o->letter != NULL)
                printf(" -s %s", o->letter + 1);
            printf("%s -d '%s'\n", o->value != NULL ? " -r" : "", quote_text(o->doc));
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
