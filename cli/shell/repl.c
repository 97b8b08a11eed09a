/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/shell/repl.c - `repl`: Python in the process, a line at a time; `%` before a line is a
 * command.
 *
 * One thread, and a connection for each statement: the process closes one that is left alone, and
 * keeps the session's variables itself.  It also decides when a statement is whole and what a name
 * may become.
 */
#include <ctype.h>
#include <errno.h>
#include <probing/client.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands/commands.h"
#include "cli/target/core_lookup.h"
#include "cli/target/target.h"
#include "cli/terminal/args.h"
#include "cli/terminal/exit_codes.h"
#include "cli/terminal/interrupt.h"
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
    struct buf statement; /* lines so far */
    bool more;            /* than those are needed */
    int failed;           /* the last statement raised, or a command said no */
};

/* The end of what was cancelled: nothing of it is news. */
static int ignore_event(void *arg, const struct probing_client_event *e)
{
    (void)arg;
    (void)e;
    return 0;
}

static int print_event(void *arg, const struct probing_client_event *e)
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

/* Run words over this connection; Ctrl-C cancels them and is forgotten then.  0 and the command's
 * status, or -errno: what became of the connection. */
static int run_over(struct probing_client *c, int argc, const char *const *argv, int *ret_status)
{
    static const volatile sig_atomic_t *const stop = &cli_interrupted;
    int64_t id = probing_client_start_run(c, argc, argv, /* timeout_ns= */ 0);
    int result = id < 0 ? (int)id : probing_client_stream(c, print_event, ret_status, 0, stop);

    if (result == -ECANCELED && cli_interrupted && !cli_terminated) {
        cli_interrupt_over();
        (void)probing_client_cancel(c, id);
        result = probing_client_stream(c, ignore_event, NULL, 0, stop);
        *ret_status = EXIT_FAILED;
        puts("KeyboardInterrupt");
    }
    return client_failed(c, result);
}

/* Is the process that was asked still there, whatever became of one connection to it? */
static bool is_there(const struct target *t)
{
    struct probing_client *c = NULL;
    struct target now = *t;
    bool local = t->pid != 0 && t->there == NULL;

    if (local && (target_resolve(t->text, &now) < 0 || now.start_time != t->start_time))
        return false;
    bool there = now.stopped || (now.kind == TARGET_LIVE && target_connect(&now, &c) == 0);
    probing_client_free(c);
    return there;
}

/* Run words in the process: the command's status, which is EXIT_FAILED where the connection broke;
 * *ret_gone: below 0 when the process has gone, with err_set(). */
static int run_words(struct repl *r, int argc, const char *const *argv, int *ret_gone)
{
    struct probing_client *c = NULL;
    char why[ERR_TEXT_BYTES];
    int status = 0, result = target_connect(r->target, &c);

    if (result == 0)
        result = run_over(c, argc, argv, &status);
    probing_client_free(c);
    *ret_gone = 0;
    if (result == 0)
        return status;
    (void)snprintf(why, sizeof(why), "%s", err_why(result));
    if (result == -EPIPE || cli_terminated || !is_there(r->target))
        *ret_gone = err_set(result, "%s", why);
    else if (result != -ECANCELED)
        terminal_say("%s", why);
    return EXIT_FAILED;
}

static int keep_answer(void *arg, const char *data, size_t size)
{
    return buf_add(arg, data, size);
}

static bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || (unsigned char)c >= 0x80;
}

/* The opening bracket of the one that closes right before `end`; `end` itself: there is none. */
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
static int complete_word(void *arg, const char *before, const char *word, struct buf *ret)
{
    struct repl *r = arg;
    const char *words[] = {"complete", chain_of(before)};
    size_t ahead = strlen(words[1]) - strlen(word);
    struct probing_client *c = NULL;
    struct buf names;
    int status;

    if (words[1][0] == '\0' || words[1][0] == '.' || target_connect(r->target, &c) < 0)
        return 0;
    buf_init(&names, COMPLETIONS_BYTES);
    int result = probing_client_run(c, 2, words, 0, keep_answer, &names, &status);
    probing_client_free(c);
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

/* "%query select 1": the first word is a command; what follows `query` and `eval` is one text. */
static int run_command(struct repl *r, char *line, int *ret_gone)
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
    if (n == 0)
        words[n++] = "help";
    return run_words(r, n, words, ret_gone);
}

static const char WELCOME[] =
    "Python in the process; its variables can be read, names assigned here stay here.\n"
    "  %COMMAND ...       a command: %backtrace, %tables, %query select ..., %config, %help\n"
    "  Tab                what a name may become; Ctrl-C stops what runs; Ctrl-D or %quit leaves\n";

static void forget_typed(void *arg)
{
    struct repl *r = arg;

    buf_done(&r->statement);
    buf_init(&r->statement, STATEMENT_MAX_BYTES);
    r->more = false;
}

static int take_command(struct repl *r, struct prompt *p, const char *line)
{
    char *copy = strdup(strchr(line, '%') + 1);
    int gone = 0;

    if (copy == NULL)
        return err_set(-ENOMEM, "no memory for a line");
    bool quit = strcmp(copy, "quit") == 0 || strcmp(copy, "exit") == 0;
    prompt_remember(p, line);
    if (!quit)
        r->failed = run_command(r, copy, &gone);
    free(copy);
    return quit ? PROMPT_LEAVE : gone;
}

static int take_line(void *arg, struct prompt *p, const char *line)
{
    struct repl *r = arg;
    int gone;

    if (line == NULL && !r->more)
        return 0;
    if (line == NULL)
        line = ""; /* the input ended: what is there is all there will be */
    if (!r->more && line[strspn(line, " \t")] == '%')
        return take_command(r, p, line);
    if (!r->more && line[strspn(line, " \t")] == '\0')
        return 0;
    if (!r->more && (strcmp(line, "exit()") == 0 || strcmp(line, "quit()") == 0))
        return PROMPT_LEAVE; /* there it would only raise SystemExit */
    /* No line end behind the last line: there, an empty line is what ends a block. */
    if ((r->more && buf_addc(&r->statement, '\n') < 0) || buf_adds(&r->statement, line) < 0)
        return err_set(-E2BIG, "the statement is too long");
    if (line[0] != '\0')
        prompt_remember(p, line);
    const char *words[] = {"eval", "--line", buf_text(&r->statement)};
    int status = run_words(r, 3, words, &gone);
    if (status != MORE) {
        forget_typed(r);
        r->failed = status;
    }
    r->more = status == MORE;
    return gone;
}

static const char *prompt_text(void *arg)
{
    const struct repl *r = arg;
    return r->more ? "... " : ">>> ";
}

int command_repl(struct target *t, int argc, char **argv)
{
    struct repl r = {.target = t};
    struct probing_client *c = NULL;
    const struct prompt_options o = {.arg = &r,
                                     .complete = complete_word,
                                     .word_breaks = NAME_BREAKS,
                                     .history = "history",
                                     .welcome = WELCOME,
                                     .text = prompt_text,
                                     .take = take_line,
                                     .forget = forget_typed};

    if (argc == 2 && strcmp(argv[1], "--raw") == 0)
        terminal_raw();
    else if (argc != 1)
        return cli_misuse(err_set(-EINVAL, "repl takes no argument '%s'", argv[1]));
    terminal_exact();
    int result = target_connect(t, &c); /* does it answer at all? */
    probing_client_free(c);
    if (result < 0)
        return result;
    forget_typed(&r);
    result = prompt_run(&o);
    buf_done(&r.statement);
    if (result < 0)
        return result;
    /* Errors were said when they happened; a person has seen them. */
    return r.failed == 0 || prompt_is_person() ? EXIT_DONE : r.failed < 0 ? EXIT_FAILED : r.failed;
}
