/* SPDX-License-Identifier: Apache-2.0
 *
 * core/plugin_host/audit.c - one line in probing.log for every command that changes the process: by
 * whom.
 *
 * Threads: any.  probing.log is open to clients that may only read, so a line never shows code, a
 * script's text or the value of a setting that sounds like a secret: their sizes stand for them.
 */
#include <string.h>

#include "core/base/redact.h"
#include "core/plugin_host/internal.h"

#define LINE_BYTES 512 /* a line of the log */
#define WORD_BYTES 96  /* longer words are shown by their size */

/* A name, a path, a number: what settings and plugins are called by. */
static bool is_plain(const char *word, size_t n)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789_./:=,+-%@*|[]";
    return n > 0 && n <= WORD_BYTES && strspn(word, plain) == n;
}

/* Commands whose words are names; of all others (eval, and what plugins bring) only sizes show. */
static bool is_shown(const char *command)
{
    static const char *const shown[] = {"config", "plugin", "script", "eject"};
    size_t n = strcspn(command, " ");
    for (size_t i = 0; i < sizeof(shown) / sizeof(shown[0]); i++)
        if (strlen(shown[i]) == n && memcmp(shown[i], command, n) == 0)
            return true;
    return false;
}

static void add_word(struct buf *line, const char *word, bool shown, bool secret)
{
    size_t n = strlen(word), name = strcspn(word, "=");
    if (secret)
        (void)buf_adds(line, " " SECRET_SHOWN);
    else if (shown && n > name && secret_name(word, name) && is_plain(word, n))
        (void)buf_addf(line, " %.*s=" SECRET_SHOWN, (int)name, word);
    else if (shown && is_plain(word, n))
        (void)(buf_addc(line, ' ') == 0 && secret_text(word, n, line)); /* a URL's password */
    else
        (void)buf_addf(line, " (%zu bytes)", n);
}

void audit_command(struct host *h, const struct command *c, const struct host_request *r, int skip,
                   const char *outcome)
{
    struct buf line;
    bool shown = is_shown(c->name), secret = false;

    buf_init(&line, LINE_BYTES);
    size_t n = strlen(c->name);
    n -= n > 2 && strcmp(c->name + n - 2, " =") == 0 ? 2 : 0;
    (void)buf_addf(&line, "%s%s: %.*s", r->who, outcome, (int)n, c->name);
    bool script = strncmp(c->name, "script", strlen("script")) == 0; /* NAME [SOURCE] */
    for (int i = 1 + skip; i < r->argc; i++) {
        add_word(&line, r->argv[i], shown && !(script && i > 1 + skip), secret);
        /* `config set NAME VALUE`: the word after a name */
        secret = shown && !strchr(r->argv[i], '=') && secret_name(r->argv[i], strlen(r->argv[i]));
    }
    host_logs(h, PROBING_INFO, "server", buf_text(&line));
    buf_done(&line);
}
