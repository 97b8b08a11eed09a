/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/help_json.c - the table of commands as JSON, for programs that type commands: coding agents,
 * editors, wrappers.
 *
 * One thread.  Keys are only ever added.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/command_table.h"
#include "cli/terminal/args.h"
#include "cli/terminal/exit_codes.h"
#include "core/base/err.h"
#include "core/base/version.h"
#include "sdk/lib/buf.h"
#include "sdk/lib/json.h"

#define HELP_BYTES (1u << 20)

static void put_text(struct buf *b, const char *text)
{
    if (text == NULL)
        (void)buf_adds(b, "null");
    else
        (void)json_add_text(b, text, strlen(text));
}

static void put_member(struct buf *b, const char *key, const char *text)
{
    (void)buf_addf(b, ",\"%s\":", key);
    put_text(b, text);
}

static void put_list(struct buf *b, const char *key, const char *const *words, const char *before)
{
    char line[512];

    (void)buf_addf(b, ",\"%s\":[", key);
    for (const char *const *w = words; *w != NULL; w++) {
        (void)snprintf(line, sizeof(line), "%s%s", before, *w);
        (void)buf_adds(b, w == words ? "" : ",");
        put_text(b, line);
    }
    (void)buf_adds(b, "]");
}

struct words {
    struct buf *b;
    const char *between;
};

static void put_word(void *arg, const char *word, const char *doc)
{
    struct words *w = arg;

    (void)buf_addf(w->b, "%s{\"name\":", w->between);
    put_text(w->b, word);
    put_member(w->b, "doc", doc);
    (void)buf_adds(w->b, "}");
    w->between = ",";
}

static void put_command(struct buf *b, const struct cli_command *c)
{
    (void)buf_adds(b, "{\"name\":");
    put_text(b, c->name);
    put_list(b, "aliases", c->aliases, "");
    put_member(b, "doc", c->doc);
    put_member(b, "text", c->text);
    put_member(b, "target",
               c->needs_target                     ? "needed"
               : c->may_target || c->finds_targets ? "optional"
                                                   : "none");
    put_member(b, "arguments", c->arguments);
    (void)buf_adds(b, ",\"options\":[");
    for (const struct cli_option *o = c->options; o->name != NULL; o++) {
        (void)buf_addf(b, "%s{\"name\":", o == c->options ? "" : ",");
        put_text(b, o->name);
        put_member(b, "letter", o->letter);
        put_member(b, "value", o->value);
        put_member(b, "doc", o->doc);
        (void)buf_adds(b, "}");
    }
    (void)buf_adds(b, "],\"words\":[");
    if (c->words != NULL)
        c->words(put_word, &(struct words){.b = b, .between = ""});
    (void)buf_adds(b, "]");
    put_list(b, "examples", c->examples, "probing ");
    (void)buf_adds(b, "}");
}

static void put_all(struct buf *b)
{
    const struct cli_command *c;

    (void)buf_adds(b, "{\"version\":");
    put_text(b, PROBING_VERSION);
    (void)buf_adds(b, ",\"usage\":\"probing [-t TARGET] COMMAND [ARGUMENTS]\",\"exit_codes\":{"
                      "\"0\":\"success\",\"1\":\"failure, or part of the answer is missing\","
                      "\"2\":\"wrong usage\",\"130\":\"interrupted\"},\"commands\":[\n");
    for (uint32_t i = 0; (c = cli_command_at(i)) != NULL; i++) {
        (void)buf_adds(b, i == 0 ? "" : ",\n");
        put_command(b, c);
    }
    (void)buf_adds(b, "\n]}");
}

int help_json(const struct cli_command *command)
{
    struct buf b;

    buf_init(&b, HELP_BYTES);
    if (command != NULL)
        put_command(&b, command);
    else
        put_all(&b);
    int rc = b.failed < 0 ? err_set(b.failed, "no memory for the help") : EXIT_DONE;
    if (rc == EXIT_DONE)
        puts(buf_text(&b));
    buf_done(&b);
    return rc;
}
