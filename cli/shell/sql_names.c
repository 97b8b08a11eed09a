/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/shell/sql_names.c - what a Tab in SQL may become: commands, keywords, functions, tables, and
 * columns of the tables that the statement names.
 *
 * One thread.  The names are asked for at a Tab, and kept for some seconds.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/shell/sql_shell.h"
#include "cli/target/target.h"
#include "cli/terminal/prompt.h"
#include "core/base/clock.h"
#include "core/base/err.h"

#define NAMES_BYTES ((size_t)8 << 20)
#define FRESH_NS (10 * NS_PER_S)
#define NAME_BYTES 256

struct sql_names {
    struct buf columns; /* lines "schema,table,column" */
    struct buf functions;
    uint64_t at_ns;
};

static const char *const keywords[] = {
    "all",       "and",     "as",    "asc",      "between",   "by",       "case",      "cast",
    "columns",   "cross",   "desc",  "describe", "distinct",  "else",     "end",       "except",
    "exists",    "explain", "false", "filter",   "first",     "from",     "full",      "group",
    "having",    "ilike",   "in",    "inner",    "intersect", "interval", "is",        "join",
    "last",      "lateral", "left",  "like",     "limit",     "not",      "null",      "nulls",
    "offset",    "on",      "or",    "order",    "outer",     "over",     "partition", "range",
    "recursive", "right",   "rows",  "schemas",  "select",    "set",      "show",      "tables",
    "then",      "true",    "union", "using",    "values",    "views",    "when",      "where",
    "window",    "with"};
#define N_KEYWORDS (sizeof(keywords) / sizeof(keywords[0]))

/* Behind these stands a table. */
static const char *const before_tables[] = {"from", "join", "describe", "desc",
                                            "\\d",  "\\dt", "\\dv"};
/* And behind these a file. */
static const char *const before_files[] = {"\\i", "\\ir", "\\o", "\\g"};

/* ---- what there is ---- */

static int keep_names(void *arg, const char *data, size_t size)
{
    return buf_add(arg, data, size);
}

static void ask_names(const struct target *t, const char *statement, struct buf *ret)
{
    const struct answer_ask ask = {
        .statement = statement, .format = "csv", .quiet = true, .timeout_ns = 5 * NS_PER_S};

    buf_done(ret);
    buf_init(ret, NAMES_BYTES);
    if (answer_bytes(t, &ask, keep_names, ret) < 0)
        buf_reset(ret); /* then nothing is known */
}

static struct sql_names *names_of(struct sql_shell *s)
{
    uint64_t now = clock_monotonic();
    struct sql_names *n = s->names;

    if (n != NULL && now - n->at_ns < FRESH_NS)
        return n;
    if (n == NULL && (n = s->names = calloc(1, sizeof(*n))) == NULL)
        return NULL;
    ask_names(
        &s->target,
        "select distinct table_schema, table_name, column_name from information_schema.columns",
        &n->columns);
    ask_names(&s->target, "select distinct routine_name from information_schema.routines",
              &n->functions);
    n->at_ns = now;
    return n;
}

void sql_names_free(struct sql_names *n)
{
    if (n == NULL)
        return;
    buf_done(&n->columns);
    buf_done(&n->functions);
    free(n);
}

/* ---- candidates ---- */

struct search {
    const char *word;
    size_t size; /* of it */
    struct buf *ret;
};

static bool is_offered(struct buf *ret, const char *line, size_t n)
{
    for (const char *at = buf_text(ret); *at != '\0'; at += strcspn(at, "\n") + 1)
        if (strncmp(at, line, n) == 0 && (at[n] == '\n' || strncmp(at + n, " \n", 2) == 0))
            return true;
    return false;
}

/* A name that begins as the word, without regard to case; it keeps the word's letters. */
static void offer_name(struct search *q, const char *name, const char *end)
{
    char line[2 * NAME_BYTES];
    int n = snprintf(line, sizeof(line), "%s%s", name, end);

    if (n <= 0 || (size_t)n >= sizeof(line) || (size_t)n < q->size ||
        strncasecmp(line, q->word, q->size) != 0)
        return;
    memcpy(line, q->word, q->size);
    bool capitals = q->size > 0 && q->word[0] >= 'A' && q->word[0] <= 'Z';
    for (size_t i = q->size; capitals && line[i] != '\0'; i++)
        line[i] = line[i] >= 'a' && line[i] <= 'z' ? (char)(line[i] - 'a' + 'A') : line[i];
    if (!is_offered(q->ret, line, (size_t)n))
        (void)buf_addf(q->ret, "%s\n", line);
}

/* The last three fields of a line of `columns`: of several members ours come first.  false: a field
 * needs quotes, and is nothing to be completed. */
static bool split_fields(const char *line, size_t n, char fields[3][NAME_BYTES])
{
    size_t end = n;

    if (memchr(line, '"', n) != NULL)
        return false;
    for (int f = 2; f >= 0; f--) {
        size_t begin = end;
        while (begin > 0 && line[begin - 1] != ',')
            begin--;
        if (end - begin >= NAME_BYTES)
            return false;
        memcpy(fields[f], line + begin, end - begin);
        fields[f][end - begin] = '\0';
        end = begin > 0 ? begin - 1 : 0;
    }
    return true;
}

/* Does a text name this, as a word of its own? */
static bool names_word(const char *text, const char *name)
{
    static const char part[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    size_t n = strlen(name);

    for (const char *at = text; (at = strcasestr(at, name)) != NULL; at++)
        if ((at == text || strchr(part, at[-1]) == NULL) &&
            (at[n] == '\0' || strchr(part, at[n]) == NULL))
            return true;
    return false;
}

/* "tasks" or "t" of "from cpu.tasks as t": is a prefix ours, of a table that is named so? */
static bool is_alias(const char *text, const char *table, const char *alias, size_t n)
{
    const char *at = text;
    size_t size = strlen(table);

    if (strlen(table) == n && strncasecmp(table, alias, n) == 0)
        return true;
    while ((at = strcasestr(at, table)) != NULL) {
        at += size;
        const char *next = at + strspn(at, " \t\n");
        if (next > at && strncasecmp(next, "as ", 3) == 0)
            next += 3 + strspn(next + 3, " \t\n");
        if (next > at && strncasecmp(next, alias, n) == 0 &&
            (next[n] == '\0' || strchr(" \t\n,;)", next[n]) != NULL))
            return true;
    }
    return false;
}

/* Does the statement so far name a table? */
static bool names_any(struct sql_names *n, const char *text)
{
    char f[3][NAME_BYTES];
    bool any = false;

    for (const char *at = buf_text(&n->columns); *at != '\0' && !any;) {
        size_t size = strcspn(at, "\r\n");
        any = split_fields(at, size, f) && names_word(text, f[1]);
        at += size + strspn(at + size, "\r\n");
    }
    return any;
}

/* tables: only they are wanted.  text: the statement so far; as long as it names no table, columns
 * may be of any. */
static void offer_stored(struct search *q, struct sql_names *n, const char *text, bool tables)
{
    char f[3][NAME_BYTES], name[3 * NAME_BYTES];
    const char *dot = strchr(q->word, '.');
    size_t prefix = dot != NULL ? (size_t)(dot - q->word) : 0;
    bool all = !tables && dot == NULL && !names_any(n, text);

    for (const char *at = buf_text(&n->columns); *at != '\0';) {
        size_t size = strcspn(at, "\r\n");
        bool good = split_fields(at, size, f);
        at += size + strspn(at + size, "\r\n");
        if (!good || strcmp(f[1], "table_name") == 0)
            continue;
        (void)snprintf(name, sizeof(name), "%s%s%s", f[0], f[0][0] != '\0' ? "." : "", f[1]);
        offer_name(q, name, " ");
        if (tables || (!all && !names_word(text, f[1])))
            continue;
        if (dot == NULL)
            offer_name(q, f[2], "");
        else if (is_alias(text, f[1], q->word, prefix)) {
            (void)snprintf(name, sizeof(name), "%.*s.%s", (int)prefix, q->word, f[2]);
            offer_name(q, name, "");
        }
    }
}

static void offer_functions(struct search *q, struct sql_names *n)
{
    char name[NAME_BYTES];

    for (const char *at = buf_text(&n->functions); *at != '\0';) {
        size_t size = strcspn(at, "\r\n"), begin = size;
        while (begin > 0 && at[begin - 1] != ',')
            begin--;
        (void)snprintf(name, sizeof(name), "%.*s", (int)(size - begin), at + begin);
        if (strcmp(name, "routine_name") != 0)
            offer_name(q, name, "(");
        at += size + strspn(at + size, "\r\n");
    }
}

/* ---- what a Tab asks for ---- */

/* The word in front of the one that is completed. */
static void word_before(const char *before, size_t end, char *ret, size_t size)
{
    while (end > 0 && strchr(" \t\n", before[end - 1]) != NULL)
        end--;
    size_t begin = end;
    while (begin > 0 && strchr(" \t\n(", before[begin - 1]) == NULL)
        begin--;
    (void)snprintf(ret, size, "%.*s", (int)(end - begin), before + begin);
}

static bool is_one_of(const char *word, const char *const *list, size_t n)
{
    bool found = false;

    for (size_t i = 0; i < n && !found; i++)
        found = strcasecmp(word, list[i]) == 0;
    return found;
}
#define IS_ONE_OF(word, list) is_one_of(word, list, sizeof(list) / sizeof((list)[0]))

static int offer_all(struct sql_shell *s, const char *before, const char *word, struct buf *ret)
{
    struct search q = {.word = word, .size = strlen(word), .ret = ret};
    char ahead[NAME_BYTES];
    struct buf text;

    word_before(before, strlen(before) - q.size, ahead, sizeof(ahead));
    size_t begin = strlen(before) - q.size; /* libedit takes a backslash off a word */
    if (word[0] != '\\' && begin > 0 && before[begin - 1] == '\\')
        return sql_shell_commands(word, ret);
    if (IS_ONE_OF(ahead, before_files))
        return PROMPT_FILES;
    if (ahead[0] == '\0' && s->text.size == 0) { /* no name begins a statement */
        for (size_t i = 0; i < N_KEYWORDS; i++)
            offer_name(&q, keywords[i], " ");
        return 0;
    }
    struct sql_names *n = names_of(s);
    if (n == NULL)
        return -ENOMEM;
    bool tables = IS_ONE_OF(ahead, before_tables);
    buf_init(&text, NAMES_BYTES);
    (void)buf_addf(&text, "%s %s", buf_text(&s->text), before);
    offer_stored(&q, n, buf_text(&text), tables);
    buf_done(&text);
    if (!tables)
        offer_functions(&q, n);
    for (size_t i = 0; i < N_KEYWORDS && !tables; i++)
        offer_name(&q, keywords[i], " ");
    return 0;
}

int sql_names_complete(struct sql_shell *s, const char *before, const char *word, struct buf *ret)
{
    int rc = offer_all(s, before, word, ret);

    /* A tab of pasted text stands behind a whole word, and more has come. */
    bool whole = rc == 0 && (ret->size == 0 || is_offered(ret, word, strlen(word)));
    if (!whole || !prompt_has_more())
        return rc;
    buf_reset(ret);
    return PROMPT_TAB;
}
