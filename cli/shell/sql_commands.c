/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/shell/sql_commands.c - psql's commands, by their names there.
 *
 * One thread.
 */
#include "cli/shell/sql_shell.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/commands/export/export_file.h"
#include "cli/target/target.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/terminal.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/text.h"

#define STATEMENT_BYTES 8192
#define WATCH_NS (2 * NS_PER_S) /* psql's */
#define WATCH_LEAST_NS (NS_PER_S / 10)

/* The next word of the rest of a line, which may be quoted; NULL: there is none. */
static char *next_word(char **at)
{
    char *word = *at + strspn(*at, " \t\r\n"), quote = *word;

    if (*word == '\0')
        return NULL;
    if (quote == '\'' || quote == '"')
        word++;
    else
        quote = '\0';
    char *end =
        word + (quote != '\0' ? strcspn(word, (char[]){quote, '\0'}) : strcspn(word, " \t\r\n"));
    *at = end + (*end != '\0');
    *end = '\0';
    return word;
}

/* Answer a statement that asks the tables about themselves. */
static int ask_tables(struct sql_shell *s, struct buf *statement)
{
    int rc = statement->failed ? err_set(statement->failed, "the name is too long")
                               : sql_shell_answer(s, buf_text(statement), /* pages= */ true);

    buf_done(statement);
    return rc;
}

/* ---- \d ---- */

/* " and COLUMN like 'PATTERN'", of psql's pattern: * for any letters, ? for one. */
static void add_like(struct buf *b, const char *column, const char *pattern, size_t n)
{
    if (n == 0)
        return;
    (void)buf_addf(b, " and lower(%s) like lower('", column);
    for (size_t i = 0; i < n; i++) {
        char c = pattern[i];
        if (c == '\'')
            (void)buf_addc(b, c);
        (void)buf_addc(b, c == '*' ? '%' : c == '?' ? '_' : c);
    }
    (void)buf_adds(b, "')");
}

static bool is_pattern(const char *name)
{
    return strpbrk(name, "*?") != NULL;
}

static void add_tables(struct buf *b, const char *pattern, const char *and)
{
    const char *dot = strchr(pattern, '.'), *name = dot != NULL ? dot + 1 : pattern;

    (void)buf_addf(b,
                   "select table_schema, table_name, table_type, doc "
                   "from information_schema.tables where true%s",
                   and);
    add_like(b, "table_schema", pattern, dot != NULL ? (size_t)(dot - pattern) : 0);
    add_like(b, "table_name", name, strlen(name));
    (void)buf_adds(b, " order by 1, 2");
}

static int list_tables(struct sql_shell *s, char *rest)
{
    const char *pattern = next_word(&rest);
    struct buf b;

    buf_init(&b, STATEMENT_BYTES);
    if (pattern == NULL)
        (void)buf_adds(&b, s->source == NULL ? query_some_tables : "show tables");
    else
        add_tables(&b, pattern, /* and= */ "");
    return ask_tables(s, &b);
}

static int list_views(struct sql_shell *s, char *rest)
{
    const char *pattern = next_word(&rest);
    struct buf b;

    buf_init(&b, STATEMENT_BYTES);
    add_tables(&b, pattern != NULL ? pattern : "*", " and table_type = 'VIEW'");
    return ask_tables(s, &b);
}

static int describe_table(struct sql_shell *s, char *rest)
{
    char *at = rest;
    const char *name = next_word(&at);
    struct buf b;

    if (name == NULL)
        return list_tables(s, at);
    buf_init(&b, STATEMENT_BYTES);
    if (is_pattern(name))
        add_tables(&b, name, /* and= */ "");
    else
        (void)buf_addf(&b, "describe %s", name);
    return ask_tables(s, &b);
}

static int list_functions(struct sql_shell *s, char *rest)
{
    const char *pattern = next_word(&rest);
    struct buf b;

    buf_init(&b, STATEMENT_BYTES);
    (void)buf_adds(&b, "select routine_name as name, data_type as result, lower(function_type) as "
                       "kind from information_schema.routines where true");
    add_like(&b, "routine_name", pattern != NULL ? pattern : "", pattern ? strlen(pattern) : 0);
    (void)buf_adds(&b, " group by all order by 1, 2");
    return ask_tables(s, &b);
}

static int list_schemas(struct sql_shell *s, char *rest)
{
    (void)rest;
    return sql_shell_answer(s, "show schemas", /* pages= */ true);
}

/* ---- how answers are shown ---- */

/* "on", "off", or the other one. */
static int set_flag(const char *command, const char *word, bool *flag)
{
    if (word == NULL)
        *flag = !*flag;
    else if (strcmp(word, "on") == 0 || strcmp(word, "off") == 0)
        *flag = word[1] == 'n';
    else
        return err_set(-EINVAL, "\\%s is on or off, not '%s'", command, word);
    return 0;
}

static int set_expanded(struct sql_shell *s, char *rest)
{
    const char *word = next_word(&rest);
    bool on = s->expanded == EXPANDED_ON;
    bool automatic = word != NULL && strcmp(word, "auto") == 0;
    int rc = automatic ? 0 : set_flag("x", word, &on);

    if (rc < 0)
        return err_set(rc, "\\x is on, off or auto, not '%s'", word);
    s->expanded = automatic ? EXPANDED_AUTO : on ? EXPANDED_ON : EXPANDED_OFF;
    printf("Expanded display is %s.\n", automatic ? "used automatically" : on ? "on" : "off");
    return 0;
}

static int set_timing(struct sql_shell *s, char *rest)
{
    int rc = set_flag("timing", next_word(&rest), &s->timing);

    if (rc == 0)
        printf("Timing is %s.\n", s->timing ? "on" : "off");
    return rc;
}

int sql_shell_output(struct sql_shell *s, const char *path)
{
    const char *format = path != NULL ? export_format_at(path) : NULL;
    int rc = s->output_path != NULL ? output_close(&s->output, 0) : 0;

    free(s->output_path);
    s->output_path = NULL;
    if (rc < 0 || path == NULL)
        return rc;
    if (format != NULL &&
        (format[0] == '\0' || strcmp(format, "json") == 0 || strcmp(format, "arrow") == 0))
        return err_set(-EINVAL, "%s can hold one answer only: \\g %s behind its statement", path,
                       path);
    s->output_path = strdup(path);
    if (s->output_path == NULL)
        return err_set(-ENOMEM, "no memory for a path");
    s->output_format = format;
    rc = output_open(&s->output, s->output_path);
    if (rc < 0) {
        free(s->output_path);
        s->output_path = NULL;
    }
    return rc;
}

static int set_output(struct sql_shell *s, char *rest)
{
    const char *path = next_word(&rest);

    if (path != NULL && path[0] == '|')
        return err_set(-EINVAL,
                       "\\o takes a file; into a program: probing ... query ... | PROGRAM");
    return sql_shell_output(s, path);
}

/* ---- what runs a statement ---- */

/* Give the statement that was begun, else the last one. */
static const char *statement_of(struct sql_shell *s)
{
    if (s->scan.begun) {
        buf_reset(&s->last);
        (void)buf_adds(&s->last, buf_text(&s->text));
    }
    sql_shell_forget(s);
    return buf_text(&s->last);
}

static int run_statement(struct sql_shell *s, char *rest)
{
    const char *path = next_word(&rest), *statement = statement_of(s);

    return statement[0] == '\0' ? 0 : sql_shell_run(s, statement, path);
}

static int go_expanded(struct sql_shell *s, char *rest)
{
    enum sql_expanded before = s->expanded;

    s->expanded = EXPANDED_ON;
    int rc = run_statement(s, rest);
    s->expanded = before;
    return rc;
}

/* "0.5", "i=2", "500ms", "c=3". */
static int take_watch(const char *word, uint64_t *interval_ns, uint64_t *count)
{
    const char *value = strncmp(word, "i=", 2) == 0 ? word + 2 : word;

    if (strncmp(word, "c=", 2) == 0)
        return parse_u64(word + 2, count);
    if (value[strspn(value, "0123456789.")] == '\0' && value[0] != '\0')
        *interval_ns = (uint64_t)(strtod(value, NULL) * (double)NS_PER_S);
    else if (parse_ns(value, interval_ns) < 0)
        return err_set(-EINVAL, "\\watch takes seconds, and c=N for N times, not '%s'", word);
    if (*interval_ns < WATCH_LEAST_NS)
        *interval_ns = WATCH_LEAST_NS;
    return 0;
}

static void wait_until(uint64_t until_ns)
{
    for (uint64_t now = clock_monotonic(); now < until_ns && !cli_interrupted;
         now = clock_monotonic())
        (void)poll(NULL, 0, (int)((until_ns - now) / NS_PER_MS + 1));
}

static int watch_statement(struct sql_shell *s, char *rest)
{
    uint64_t interval_ns = WATCH_NS, count = 0, next = clock_monotonic();
    const char *word;
    char every[32], now[64];
    int rc = 0;

    while (rc == 0 && (word = next_word(&rest)) != NULL)
        rc = take_watch(word, &interval_ns, &count);
    if (rc < 0)
        return rc;
    const char *statement = statement_of(s);
    if (statement[0] == '\0')
        return err_set(-EINVAL, "\\watch repeats a statement, and there is none");
    text_ns((int64_t)interval_ns, every);
    for (uint64_t n = 1; rc >= 0 && !cli_interrupted; n++) {
        time_t t = time(NULL);
        struct tm tm;
        (void)strftime(now, sizeof(now), "%F %T", gmtime_r(&t, &tm));
        printf("%s UTC (every %s)\n\n", now, every);
        rc = sql_shell_answer(s, statement, /* pages= */ false);
        putchar('\n');
        (void)fflush(stdout);
        if (n == count)
            break;
        next += interval_ns;
        wait_until(next);
    }
    if (!cli_interrupted || cli_terminated)
        return rc < 0 ? rc : 0;
    if (s->source == NULL)
        cli_interrupt_over(); /* Ctrl-C is how a watch ends */
    return 0;
}

/* ---- others ---- */

static int read_file(struct sql_shell *s, char *rest)
{
    const char *path = next_word(&rest);

    return path != NULL ? sql_shell_file(s, path) : err_set(-EINVAL, "\\i needs a file");
}

static int print_buffer(struct sql_shell *s, char *rest)
{
    (void)rest;
    puts(buf_text(s->text.size > 0 ? &s->text : &s->last));
    return 0;
}

static int drop_buffer(struct sql_shell *s, char *rest)
{
    (void)rest;
    sql_shell_forget(s);
    return 0;
}

static int echo_words(struct sql_shell *s, char *rest)
{
    FILE *to = s->output_path != NULL ? s->output.file : stdout;
    const char *word;

    for (bool first = true; (word = next_word(&rest)) != NULL; first = false)
        fprintf(to, "%s%s", first ? "" : " ", word);
    fputc('\n', to);
    return 0;
}

static int tell_target(struct sql_shell *s, char *rest)
{
    const struct target *t = &s->target;

    (void)rest;
    printf("Target %s", t->text);
    if (t->pid > 0)
        printf(", process %d%s", (int)t->pid, target_is_files(t) ? ", read from its files" : "");
    printf("%s%s\n", t->directory[0] != '\0' ? ", data: " : "", t->directory);
    return 0;
}

static int quit_shell(struct sql_shell *s, char *rest)
{
    (void)rest;
    s->leave = true;
    return 0;
}

static int show_help(struct sql_shell *s, char *rest)
{
    (void)s;
    (void)rest;
    sql_shell_help();
    return 0;
}

static const struct {
    const char *name, *arguments, *doc; /* no doc: as the one before */
    int (*run)(struct sql_shell *s, char *rest);
} commands[] = {
    {"d", "[TABLE]", "the columns of a table; without one, the tables", describe_table},
    {"d+", "", NULL, describe_table},
    {"dt", "[PATTERN]", "the tables: \\dt cpu.*; * has those of probing itself, too", list_tables},
    {"dt+", "", NULL, list_tables},
    {"dv", "[PATTERN]", "the views", list_views},
    {"df", "[PATTERN]", "the functions: \\df *time*", list_functions},
    {"dn", "", "the schemas", list_schemas},
    {"x", "[on|off|auto]", "a line for each column; auto: where a row is wider than the screen",
     set_expanded},
    {"timing", "[on|off]", "how long each statement took, with the way there and back", set_timing},
    {"watch", "[SECONDS] [c=N]", "repeat the statement, until Ctrl-C or N times", watch_statement},
    {"g", "[FILE]", "run the statement; into a file: .csv .json .jsonl .parquet .arrow .txt",
     run_statement},
    {"gx", "", "run the statement, a line for each column", go_expanded},
    {"o", "[FILE]", "all answers into this file from here on; without one, here again", set_output},
    {"i", "FILE", "run the statements of a file", read_file},
    {"ir", "", NULL, read_file},
    {"e", "", "edit the statement with $EDITOR", sql_shell_edit},
    {"p", "", "print the statement so far", print_buffer},
    {"r", "", "drop the statement so far", drop_buffer},
    {"echo", "TEXT", "print a text", echo_words},
    {"conninfo", "", "what is asked", tell_target},
    {"?", "", "this list", show_help},
    {"h", "", NULL, show_help},
    {"q", "", "leave", quit_shell},
};
#define N_COMMANDS (sizeof(commands) / sizeof(commands[0]))

void sql_shell_help(void)
{
    char left[48];

    puts(
        "A statement ends with `;` and may take several lines.  Tab completes names, Ctrl-C stops\n"
        "what runs or drops what was begun.");
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (commands[i].doc == NULL)
            continue;
        (void)snprintf(left, sizeof(left), "\\%s %s", commands[i].name, commands[i].arguments);
        printf("  %-23s %s\n", left, commands[i].doc);
    }
}

int sql_shell_commands(const char *begin, struct buf *ret)
{
    int rc = 0;

    for (size_t i = 0; i < N_COMMANDS && rc == 0; i++)
        if (strncmp(commands[i].name, begin, strlen(begin)) == 0)
            rc = buf_addf(ret, "%s\n", commands[i].name);
    return rc;
}

int sql_shell_command(struct sql_shell *s, const char *text)
{
    char *copy = strdup(text), *rest = copy;
    bool found = false;
    int rc = 0;

    if (copy == NULL)
        return err_set(-ENOMEM, "no memory for a line");
    size_t n = strcspn(rest, " \t\r\n");
    const char *name = rest;
    rest += n + (rest[n] != '\0');
    copy[n] = '\0';
    for (size_t i = 0; i < N_COMMANDS && !found; i++) {
        found = strcmp(commands[i].name, name) == 0;
        rc = found ? commands[i].run(s, rest) : 0;
    }
    if (!found)
        rc = err_set(-EINVAL, "there is no command \\%s; \\? lists them", name);
    free(copy);
    s->status = rc > 0 ? rc : s->status;
    return sql_shell_failed(s, rc);
}
