/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/man.c - `man`: the table of commands as the manual page, for man(1).
 *
 * One thread.
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

static void put_word(void *arg, const char *word, const char *doc)
{
    (void)arg;
    printf(".TP\n.B %s\n", word);
    put_roff(doc);
    putchar('\n');
}

static void put_command(const struct cli_command *c)
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
        help_put_names(c->aliases, " \", \" ");
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
        c->words(put_word, NULL);
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
        put_command(c);
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
