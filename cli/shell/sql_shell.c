/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/shell/sql_shell.c - see sql_shell.h: lines become statements, and each gets its answer.
 *
 * A statement has a connection of its own, so a prompt may be left alone; a process that has ended
 * meanwhile is answered for by its files.
 */
#include "cli/shell/sql_shell.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands/export/export_file.h"
#include "cli/target/target.h"
#include "cli/terminal/args.h"
#include "cli/terminal/exit_codes.h"
#include "cli/terminal/fit_text.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/pager.h"
#include "cli/terminal/prompt.h"
#include "cli/terminal/terminal.h"
#include "core/base/clock.h"
#include "core/base/err.h"

#define STATEMENT_BYTES ((size_t)1 << 20)
#define ANSWER_BYTES ((size_t)64 << 20) /* of the screen that is held back */
#define FILES_DEPTH 16                  /* of \i */
#define NAME_COLUMNS 16                 /* of the prompt */
#define COMING_NS (5 * NS_PER_S)        /* as cli/main.c waits with one statement */
#define COMING_LOOK_MS 20
#define WORD_BREAKS " \t\n,()=<>+-*/%|;"

/* ---- one answer ---- */

struct shown {
    FILE *file;
    struct buf held; /* until the screen is full: then a pager is worth its while */
    uint32_t lines, widest;
    bool holds, probes, too_wide;
};

/* Is the first line too wide, in a table whose lines are not cut? */
static bool is_too_wide(const char *data, size_t size)
{
    const char *end = memchr(data, '\n', size);

    return end != NULL && fit_columns(data, (size_t)(end - data)) > cli_width();
}

static int write_out(struct shown *o, const char *data, size_t size)
{
    bool written = fwrite(data, 1, size, o->file) == size && fflush(o->file) == 0;

    return written ? 0 : -EPIPE;
}

static int flush_held(struct shown *o)
{
    int rc = o->held.failed ? o->held.failed : write_out(o, o->held.data, o->held.size);

    buf_reset(&o->held);
    o->holds = false;
    return rc;
}

static int on_bytes(void *arg, const char *data, size_t size)
{
    struct shown *o = arg;

    o->too_wide = o->probes && is_too_wide(data, size);
    o->probes = false;
    if (o->too_wide)
        return -EPIPE; /* it is asked again, as records */
    if (!o->holds)
        return write_out(o, data, size);
    for (size_t i = 0; i < size; i++)
        o->lines += data[i] == '\n';
    int rc = buf_add(&o->held, data, size);
    if (rc == 0 && o->lines >= cli_rows()) {
        pager_begin();
        rc = flush_held(o);
    }
    return rc;
}

static const char *format_of(const struct sql_shell *s, bool *ret_probes)
{
    bool table = strcmp(s->ask.format, "table") == 0;

    *ret_probes = table && s->expanded == EXPANDED_AUTO && cli_width() > 0;
    return table && s->expanded == EXPANDED_ON ? "expanded" : s->ask.format;
}

int sql_shell_answer(struct sql_shell *s, const char *statement, bool pages)
{
    struct answer_ask ask = s->ask;
    struct shown o = {.file = stdout, .holds = pages && s->source == NULL};

    buf_init(&o.held, ANSWER_BYTES);
    ask.statement = statement;
    ask.format = format_of(s, &o.probes);
    ask.width = o.probes ? 0 : cli_width();
    if (s->output_path != NULL) {
        ask.format = s->output_format != NULL ? s->output_format : ask.format;
        ask.width = 0;
        o = (struct shown){.file = s->output.file, .held = o.held};
    }
    int rc = answer_bytes(&s->target, &ask, on_bytes, &o);
    if (o.too_wide) {
        ask.format = "expanded";
        rc = answer_bytes(&s->target, &ask, on_bytes, &o);
    }
    if (o.held.size > 0 && rc != -EPIPE) {
        int written = flush_held(&o);
        rc = rc < 0 ? rc : written < 0 ? written : rc;
    }
    if (rc == -EPIPE && pager_runs())
        rc = 0; /* somebody has seen enough */
    pager_end();
    if (rc == -EPIPE && s->output_path != NULL)
        rc = err_set(-EIO, "%s cannot be written: %s", s->output_path, output_why(errno));
    buf_done(&o.held);
    return rc;
}

/* ---- one statement ---- */

/* Look what has become of the process since the last statement: once it has ended its own files are
 * read, whoever has its pid now. */
static void look_again(struct sql_shell *s)
{
    struct target now, *t = &s->target;

    if (t->pid == 0 || t->directory[0] == '\0' || t->there != NULL || t->answer != NULL)
        return;
    const char *leaf = strrchr(t->directory, '/');
    bool found =
        target_resolve(t->text, &now) == 0 && leaf != NULL && strstr(now.directory, leaf) != NULL;
    if (!found && target_resolve(t->directory, &now) < 0)
        return;
    if (t->kind == TARGET_LIVE && target_is_files(&now) && !now.stopped)
        terminal_say("process %d has ended; from here on its files are read", (int)t->pid);
    now.text = t->text;
    now.answer_global = t->answer_global;
    *t = now;
}

/* The reason with the place in the file; the engine counts lines from the statement's first. */
static int place_error(const struct sql_shell *s, int rc)
{
    const char *file = s->source->name, *why = err_why(rc);
    char text[ERR_TEXT_BYTES];
    unsigned line = 1, column = 0;
    int n = 0;

    if (sscanf(why, "line %u, column %u: %n", &line, &column, &n) == 2 && n > 0)
        column += line == 1 ? s->first_column : 0;
    line += s->first_line - 1;
    (void)snprintf(text, sizeof(text), "%s", why + n);
    if (file == NULL)
        return column > 0 ? err_set(rc, "line %u, column %u: %s", line, column, text) : rc;
    return column > 0 ? err_set(rc, "%s:%u:%u: %s", file, line, column, text)
                      : err_set(rc, "%s:%u: %s", file, line, text);
}

int sql_shell_failed(struct sql_shell *s, int rc)
{
    if (rc >= 0 || rc == -EPIPE || cli_terminated)
        return rc < 0 ? rc : 0;
    if (s->source != NULL)
        return rc == -ECANCELED ? rc : place_error(s, rc);
    terminal_say("%s", rc == -ECANCELED && cli_interrupted ? "cancelled" : err_why(rc));
    cli_interrupt_over();
    return 0;
}

static int run_once(struct sql_shell *s, const char *statement, const char *into)
{
    struct answer_ask ask = s->ask;

    ask.statement = statement;
    return into != NULL ? export_answer(&s->target, &ask, /* format= */ NULL, into)
                        : sql_shell_answer(s, statement, /* pages= */ true);
}

int sql_shell_run(struct sql_shell *s, const char *statement, const char *into)
{
    uint64_t began = clock_monotonic();

    look_again(s);
    int rc = run_once(s, statement, into);
    /* A core that has just come does not know yet what its plugins bring. */
    while (rc == -EINPROGRESS && clock_monotonic() - began < COMING_NS && !cli_interrupted) {
        (void)poll(NULL, 0, COMING_LOOK_MS);
        rc = run_once(s, statement, into);
    }
    if (rc == -EINPROGRESS) { /* main() would begin the script again */
        char why[ERR_TEXT_BYTES];
        (void)snprintf(why, sizeof(why), "%s", err_why(rc));
        rc = err_set(-EAGAIN, "%s", why);
    }
    if (s->timing && rc >= 0)
        printf("Time: %.3f ms\n", (double)(clock_monotonic() - began) / 1e6);
    s->status = rc > 0 ? rc : s->status;
    if (statement != s->last.data) {
        buf_reset(&s->last);
        (void)buf_adds(&s->last, statement);
    }
    return rc < 0 ? rc : 0;
}

/* ---- lines ---- */

void sql_shell_forget(struct sql_shell *s)
{
    buf_reset(&s->text);
    s->scan = (struct sql_scan){.in = SCAN_PLAIN};
}

/* A piece of a line, without the blanks before a statement; column: of its first byte, from 0. */
static int add_piece(struct sql_shell *s, const char *piece, size_t n, uint32_t column)
{
    size_t blanks = s->text.size == 0 ? strspn(piece, " \t\r\n\f\v") : 0;

    if (blanks >= n && s->text.size == 0)
        return 0;
    if (s->text.size == 0) {
        s->first_line = s->source != NULL ? s->source->line : 1;
        s->first_column = column + fit_columns(piece, blanks);
    }
    if (buf_add(&s->text, piece + blanks, n - blanks) == 0)
        return 0;
    sql_shell_forget(s);
    return sql_shell_failed(s, err_set(-E2BIG, "the statement is longer than 1 MiB"));
}

/* The statement that has ended.  One of blanks and comments is none. */
static int run_begun(struct sql_shell *s)
{
    char *statement = s->scan.begun ? strdup(buf_text(&s->text)) : NULL;
    int rc = statement != NULL ? sql_shell_run(s, statement, /* into= */ NULL) : 0;

    rc = sql_shell_failed(s, rc);

    free(statement);
    sql_shell_forget(s);
    return rc;
}

/* As psql has them at its prompt, where no statement was begun. */
static bool is_word(struct sql_shell *s, const char *line, const char *word)
{
    size_t n = strlen(word);

    return s->source == NULL && !s->scan.begun && strncmp(line, word, n) == 0 &&
           line[n + strspn(line + n, " ;\t\n")] == '\0';
}

static int feed_line(struct sql_shell *s, const char *line)
{
    size_t size = strlen(line), at = 0;
    int rc = 0;

    if (is_word(s, line, "help")) {
        sql_shell_help();
        return 0;
    }
    s->leave = s->leave || is_word(s, line, "quit") || is_word(s, line, "exit");
    while (rc == 0 && at < size && !s->leave) {
        size_t n = sql_scan_next(&s->scan, line + at, size - at);
        rc = add_piece(s, line + at, n, fit_columns(line, at));
        at += n;
        if (rc != 0 || at == size)
            break;
        if (line[at] == '\\') {
            if (!s->scan.begun && s->source != NULL)
                s->first_line = s->source->line;
            return sql_shell_command(s, line + at + 1);
        }
        rc = run_begun(s);
        at++;
    }
    return rc;
}

int sql_shell_feed(struct sql_shell *s, const char *text)
{
    int rc = 0;

    while (rc == 0 && *text != '\0' && !s->leave) {
        size_t n = strcspn(text, "\n");
        char *line = strndup(text, n + (text[n] == '\n'));
        if (s->source != NULL)
            s->source->line++;
        rc = line != NULL ? feed_line(s, line) : err_set(-ENOMEM, "no memory for a line");
        free(line);
        text += n + (text[n] == '\n');
    }
    return rc;
}

/* ---- lines of a file ---- */

static int feed_stream(struct sql_shell *s, FILE *f)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    int rc = 0;

    while (rc == 0 && !s->leave && (n = getline(&line, &room, f)) >= 0) {
        bool marked = ++s->source->line == 1 && n >= 3 && memcmp(line, "\xef\xbb\xbf", 3) == 0;
        if (strlen(line) != (size_t)n)
            rc = err_set(-EINVAL, "%s:%u: this is no text: it has a zero byte", s->source->name,
                         s->source->line);
        else
            rc = feed_line(s, marked ? line + 3 : line);
    }
    if (rc == 0 && ferror(f))
        rc = err_set(-EIO, "cannot read %s: %s", s->source->name, strerror(errno));
    if (rc == 0 && !s->leave)
        rc = run_begun(s); /* psql runs a last one without its `;`, too */
    free(line);
    return cli_interrupted && rc == 0 ? -ECANCELED : rc;
}

int sql_shell_file(struct sql_shell *s, const char *path)
{
    bool input = strcmp(path, "-") == 0;
    struct sql_source source = {.name = input ? "standard input" : path}, *before = s->source;
    const struct sql_scan scan = s->scan;
    FILE *f = input ? stdin : fopen(path, "re");

    if (f == NULL)
        return err_set(-errno, "cannot read %s: %s", path, strerror(errno));
    if (s->depth == FILES_DEPTH) {
        (void)fclose(f);
        return err_set(-ELOOP, "%d files read each other with \\i", FILES_DEPTH);
    }
    s->depth++;
    s->source = &source;
    s->scan = (struct sql_scan){.in = SCAN_PLAIN};
    int rc = feed_stream(s, f);
    s->source = before;
    s->scan = scan;
    s->depth--;
    if (!input)
        (void)fclose(f);
    return rc;
}

/* ---- at the prompt ---- */

static const char *prompt_text(void *arg)
{
    struct sql_shell *s = arg;
    char open = sql_scan_open(&s->scan), sign = s->text.size > 0 ? '-' : '=';

    (void)snprintf(s->prompt, sizeof(s->prompt), "%s%c> ", s->name, open != '\0' ? open : sign);
    return s->prompt;
}

/* A statement of several lines comes back whole. */
static void remember_statement(struct sql_shell *s, struct prompt *p, const char *line)
{
    if (line[0] != '\0')
        (void)buf_addf(&s->typed, "%s%s", s->typed.size > 0 ? "\n" : "", line);
    if (s->text.size > 0 || s->typed.size == 0)
        return;
    prompt_remember(p, buf_text(&s->typed));
    buf_reset(&s->typed);
}

static int take_line(void *arg, struct prompt *p, const char *line)
{
    struct sql_shell *s = arg;
    struct buf whole;

    buf_init(&whole, STATEMENT_BYTES);
    int rc = line != NULL ? buf_addf(&whole, "%s\n", line) : 0;
    if (rc < 0)
        rc = sql_shell_failed(s, err_set(rc, "the line is too long"));
    else if (line != NULL)
        rc = sql_shell_feed(s, buf_text(&whole));
    buf_done(&whole);
    remember_statement(s, p, line != NULL ? line : "");
    return rc < 0 ? rc : s->leave ? PROMPT_LEAVE : 0;
}

static void forget_statement(void *arg)
{
    struct sql_shell *s = arg;

    sql_shell_forget(s);
    buf_reset(&s->typed);
}

static int complete_name(void *arg, const char *before, const char *word, struct buf *ret)
{
    return sql_names_complete(arg, before, word, ret);
}

/* The last of a path, and not more than a prompt has room for. */
static void name_target(struct sql_shell *s)
{
    const char *text = s->target.text, *slash = strrchr(text, '/');
    struct buf name;

    buf_init(&name, sizeof(s->name));
    text = slash != NULL && slash[1] != '\0' ? slash + 1 : text;
    fit_add(&name, text, strlen(text), NAME_COLUMNS, FIT_MIDDLE);
    (void)terminal_field(s->name, sizeof(s->name), buf_text(&name));
    buf_done(&name);
}

static int shell_init(struct sql_shell *s, const struct target *t, const struct answer_ask *ask)
{
    struct probing_client *c = NULL;

    *s = (struct sql_shell){.target = *t, .ask = *ask};
    buf_init(&s->text, STATEMENT_BYTES);
    buf_init(&s->last, STATEMENT_BYTES);
    buf_init(&s->typed, STATEMENT_BYTES);
    if (strcmp(ask->format, "arrow") == 0)
        return cli_misuse(err_set(-EINVAL, "--format arrow takes one statement"));
    (void)terminal_format(ask->format);
    if (strcmp(ask->format, "expanded") == 0) {
        s->expanded = EXPANDED_ON;
        s->ask.format = "table";
    }
    if (t->kind == TARGET_BARE && !target_is_files(t))
        return target_connect(t, &c); /* which says why it cannot be asked */
    return 0;
}

static int shell_done(struct sql_shell *s, int rc)
{
    if (s->output_path != NULL)
        rc = output_close(&s->output, rc);
    free(s->output_path);
    buf_done(&s->text);
    buf_done(&s->last);
    buf_done(&s->typed);
    sql_names_free(s->names);
    return rc < 0 ? rc : s->status;
}

int sql_shell_talk(const struct target *t, const struct answer_ask *ask)
{
    static const char welcome[] = "SQL, ended by `;`. \\? lists the commands, \\d the tables; "
                                  "\\q or Ctrl-D leaves.\n";
    struct sql_shell s;
    const struct prompt_options o = {.arg = &s,
                                     .complete = complete_name,
                                     .word_breaks = WORD_BREAKS,
                                     .history = "sql_history",
                                     .welcome = welcome,
                                     .text = prompt_text,
                                     .take = take_line,
                                     .forget = forget_statement};
    int rc = shell_init(&s, t, ask);

    name_target(&s);
    if (rc == 0)
        rc = prompt_run(&o);
    s.status = EXIT_DONE; /* a person has seen what went wrong */
    return shell_done(&s, rc);
}

int sql_shell_script(const struct target *t, const struct answer_ask *ask, const char *text,
                     const char *path, const char *output)
{
    struct sql_shell s;
    struct sql_source source = {.name = NULL};
    int rc = shell_init(&s, t, ask);

    s.source = &source;
    if (rc == 0 && output != NULL)
        rc = cli_misuse(sql_shell_output(&s, output));
    if (rc == 0)
        rc = path != NULL ? sql_shell_file(&s, path) : sql_shell_feed(&s, text);
    if (rc == 0 && path == NULL && !s.leave)
        rc = run_begun(&s);
    return shell_done(&s, rc);
}
