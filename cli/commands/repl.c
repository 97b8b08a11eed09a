/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/repl.c - `repl`: Python in the process, a line at a time; `%` before a line is a
 * command.
 *
 * One thread, one connection.  The process decides when a statement is whole and what a name may
 * become; here are the prompt, the history and Ctrl-C.
 */
#include <ctype.h>
#include <errno.h>
#include <probing/client.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/cli.h"
#include "cli/terminal/prompt.h"
#include "cli/terminal/terminal.h"
#include "core/base/err.h"
#include "sdk/lib/buf.h"

#define STATEMENT_MAX_BYTES ((size_t)1 << 20)
#define WORDS_MAX 16
#define COMPLETIONS_BYTES ((size_t)256 << 10)
#define MORE 2 /* what `eval --line` answers when a statement needs more lines */
#define NAME_BREAKS " \t\n\"\\'`@$><=;|&{(,+-*/%:[]})!^~?."

struct repl {
    const struct target *target;
    struct probing_client *client;
    struct prompt *prompt;
    struct buf statement; /* lines so far */
    bool more;            /* than those are needed */
    int failed;           /* the last statement raised, or a command said no */
};

/* The end of what was cancelled: nothing of it is news. */
static int ignore(void *arg, const struct probing_client_event *e)
{
    (void)arg;
    (void)e;
    return 0;
}

static int print(void *arg, const struct probing_client_event *e)
{
    int *ret_status = arg;

    if (e->kind == PROBING_CLIENT_DATA)
        return fwrite(e->text, 1, e->size, stdout) == e->size && fflush(stdout) == 0 ? 0 : -EPIPE;
    if (e->kind == PROBING_CLIENT_DONE) {
        *ret_status = e->status;
        if (e->status < 0 && e->size > 0)
            terminal_say("%s", e->text);
    }
    return 0;
}

/* Run words in the process; Ctrl-C cancels them and is forgotten then.  The command's status, or
 * -ECONNRESET when the process has gone. */
static int run(struct repl *r, int argc, const char *const *argv)
{
    static const volatile sig_atomic_t *const stop = &cli_interrupted;
    int status = 0;
    int64_t id = probing_client_start_run(r->client, argc, argv, /* timeout_ns= */ 0);
    int result = id < 0 ? (int)id : probing_client_stream(r->client, print, &status, 0, stop);

    if (result == -ECANCELED && cli_interrupted) {
        cli_interrupted = 0;
        (void)probing_client_cancel(r->client, id);
        result = probing_client_stream(r->client, ignore, NULL, 0, stop);
        status = EXIT_FAILED;
        puts("KeyboardInterrupt");
    }
    return result < 0 ? result : status;
}

static int keep(void *arg, const char *data, size_t size)
{
    return buf_add(arg, data, size);
}

static bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || (unsigned char)c >= 0x80;
}

/* Where the bracket opens that closes right before `end`; `end` itself: nowhere. */
static size_t bracket_begin(const char *line, size_t end)
{
    int open = 0;

    for (size_t i = end; i-- > 0;) {
        if (line[i] == ']' || line[i] == ')' || line[i] == '}')
            open++;
        else if ((line[i] == '[' || line[i] == '(' || line[i] == '{') && --open == 0)
            return i;
        else if (line[i] == '"' || line[i] == '\'') /* to where that text begins */
            for (char quote = line[i]; i > 0 && line[--i] != quote;)
                continue;
    }
    return end;
}

/* `model.h[0].at` of "print(model.h[0].at": names, dots, and brackets with what is in them. */
static const char *chain_of(const char *line)
{
    size_t i = strlen(line);

    for (;;) {
        while (i > 0 && is_name(line[i - 1]))
            i--;
        if (i > 0 && line[i - 1] == '.') {
            i--;
            continue;
        }
        bool closes = i > 0 && (line[i - 1] == ']' || line[i - 1] == ')');
        bool goes_on = line[i] == '.' || line[i] == '[' || line[i] == '(';
        size_t begin = closes && goes_on ? bracket_begin(line, i) : i;
        if (begin == i)
            return line + i;
        i = begin;
    }
}

/* The process is asked for the whole of `model.h[0].at`; only what stands for its last name comes
 * into the line. */
static int complete(void *arg, const char *before, const char *word, struct buf *ret)
{
    struct repl *r = arg;
    const char *words[] = {"complete", chain_of(before)};
    size_t ahead = strlen(words[1]) - strlen(word);
    struct buf names;
    int status;

    if (words[1][0] == '\0' || words[1][0] == '.')
        return 0;
    buf_init(&names, COMPLETIONS_BYTES);
    int result = probing_client_run(r->client, 2, words, 0, keep, &names, &status);
    for (const char *at = buf_text(&names); result >= 0 && *at != '\0';) {
        size_t n = strcspn(at, "\n");
        if (n > ahead && memcmp(at, words[1], ahead) == 0 &&
            (buf_add(ret, at + ahead, n - ahead) < 0 || buf_addc(ret, '\n') < 0))
            result = -ENOMEM;
        at += n + (at[n] == '\n');
    }
    buf_done(&names);
    return result;
}

/* "%query select 1": the first word is a command; what follows `query` and `watch` is one SQL. */
static int run_command(struct repl *r, char *line)
{
    const char *words[WORDS_MAX];
    int n = 0;

    for (char *at = line + strspn(line, " \t"); *at != '\0' && n < WORDS_MAX;) {
        words[n++] = at;
        if (n == 2 && (strcmp(words[0], "query") == 0 || strcmp(words[0], "eval") == 0))
            break;
        at += strcspn(at, " \t");
        if (*at != '\0')
            *at++ = '\0';
        at += strspn(at, " \t");
    }
    if (n == 0) {
        words[n++] = "help";
    }
    return run(r, n, words);
}

static const char HELP[] =
    "Python in the process; its variables can be read, names assigned here stay here.\n"
    "  %COMMAND ...       a command: %backtrace, %tables, %query select ..., %config, %help\n"
    "  Tab                what a name may become; Ctrl-C stops what runs; Ctrl-D or %quit leaves\n";

static void forget(struct repl *r)
{
    buf_done(&r->statement);
    buf_init(&r->statement, STATEMENT_MAX_BYTES);
    r->more = false;
}

/* One line was read.  false: leave. */
static bool take_line(struct repl *r, const char *line)
{
    if (!r->more && line[strspn(line, " \t")] == '%') {
        char *copy = strdup(strchr(line, '%') + 1);
        if (copy == NULL)
            return false;
        bool quit = strcmp(copy, "quit") == 0 || strcmp(copy, "exit") == 0;
        prompt_remember(r->prompt, line);
        if (!quit)
            r->failed = run_command(r, copy);
        free(copy);
        return !quit && r->failed != -ECONNRESET;
    }
    if (!r->more && line[strspn(line, " \t")] == '\0')
        return true;
    if (!r->more && (strcmp(line, "exit()") == 0 || strcmp(line, "quit()") == 0))
        return false; /* there it would only raise SystemExit */
    /* No line end behind the last line: there, an empty line is what ends a block. */
    if ((r->more && buf_addc(&r->statement, '\n') < 0) || buf_adds(&r->statement, line) < 0) {
        r->failed = err_set(-E2BIG, "the statement is too long");
        return false;
    }
    if (line[0] != '\0')
        prompt_remember(r->prompt, line);
    const char *words[] = {"eval", "--line", buf_text(&r->statement)};
    int status = run(r, 3, words);
    r->more = status == MORE;
    if (!r->more) {
        forget(r);
        r->failed = status;
    }
    return status != -ECONNRESET;
}

/* ~/.local/state/probing/history, or what XDG_STATE_HOME says.  NULL: there is no place; a home
 * that is not there is none, and is not made. */
static const char *history_file(char *room, size_t size)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    char directory[4000];
    size_t from = 1; /* what is made begins behind this */

    if (state != NULL && state[0] == '/') {
        (void)snprintf(directory, sizeof(directory), "%s/probing", state);
    } else if (home != NULL && home[0] == '/' && access(home, W_OK | X_OK) == 0) {
        (void)snprintf(directory, sizeof(directory), "%s/.local/state/probing", home);
        from = strlen(home) + 1;
    } else {
        return NULL;
    }
    for (char *slash = strchr(directory + from, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(directory, 0700);
        *slash = '/';
    }
    if (mkdir(directory, 0700) == -1 && errno != EEXIST)
        return NULL;
    (void)snprintf(room, size, "%s/history", directory);
    return room;
}

static void loop(struct repl *r)
{
    for (;;) {
        const char *line = prompt_read(r->prompt, r->more ? "... " : ">>> ");
        if (cli_terminated)
            break;
        if (line == NULL && cli_interrupted) { /* Ctrl-C at the prompt: this statement is dropped */
            cli_interrupted = 0;
            putchar('\n');
            forget(r);
            continue;
        }
        if (line == NULL && r->more) {
            (void)take_line(r, ""); /* the input ended: what is there is all there will be */
            break;
        }
        if (line == NULL || !take_line(r, line))
            break;
    }
}

int command_repl(struct target *t, int argc, char **argv)
{
    struct repl r = {.target = t};
    char file[4096];
    const struct prompt_options o = {.complete = complete,
                                     .arg = &r,
                                     .word_breaks = NAME_BREAKS,
                                     .history_file = history_file(file, sizeof(file))};

    if (argc == 2 && strcmp(argv[1], "--raw") == 0)
        terminal_raw();
    else if (argc != 1)
        return cli_misuse(err_set(-EINVAL, "repl takes no argument '%s'", argv[1]));
    terminal_exact();
    int result = target_connect(t, &r.client);
    if (result < 0)
        return result;
    forget(&r);
    result = prompt_new(&o, &r.prompt);
    if (result == 0) {
        if (prompt_edits(r.prompt))
            fputs(HELP, stdout);
        loop(&r);
        result = r.failed;
        if (prompt_edits(r.prompt)) {
            putchar('\n');
            result = result == -ECONNRESET ? result : 0; /* a person has seen what went wrong */
        }
    }
    prompt_free(r.prompt);
    buf_done(&r.statement);
    probing_client_free(r.client);
    if (cli_terminated)
        return err_set(-ECANCELED, "terminated");
    if (result < 0 && result != -ECONNRESET)
        return EXIT_FAILED; /* said when it happened */
    return result;
}
