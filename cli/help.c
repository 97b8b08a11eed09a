/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/help.c - `help`: the table of commands as text.
 *
 * One thread.  It knows no command by name, and asks a command for words that come from plugins.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/command_table.h"
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

void help_put_names(const char *const *names, const char *between)
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
        help_put_names(c->aliases, ", ");
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
