/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/parse/unsupported.c - what people know from other engines and this has not: refused by
 * name.
 *
 * Each refusal says what does the same here.  Looked at only where nothing else fits, or where a
 * word would be taken for an alias and the question for another one.  The query's thread only.
 */
#include "core/sql/parse/parse.h"

#include <stdio.h>

#include "core/base/text.h"

/* `python.samples`, alone or with a where behind it: a table's name begins no statement. */
static void fail_table_name(struct parser *p)
{
    const struct token *first = now(p), *last = first + 2;
    char what[300];
    int size;
    if (first->type != TOKEN_WORD || !is_sign_at(p, 1, ".") || last->type != TOKEN_WORD ||
        (size = (int)(last->end - first->pos)) > 100)
        return;
    (void)snprintf(what, sizeof(what), "'%.*s' is no statement; write: select * from %.*s limit 10",
                   size, p->text + first->pos, size, p->text + first->pos);
    sql_parse_fail(p, first->pos, what);
}

/* selct 1 */
static void fail_slip(struct parser *p)
{
    static const char *const words[] = {"select", "with",     "values",    "from",
                                        "show",   "describe", "summarize", "explain"};
    const struct token *t = now(p);
    const char *near =
        t->type == TOKEN_WORD ? text_nearest(t->text, words, sizeof(words) / sizeof(*words)) : NULL;
    char what[80];
    if (!near || strcmp(near, t->text) == 0)
        return;
    (void)snprintf(what, sizeof(what), "found '%.30s'; did you mean '%s'?", t->text, near);
    sql_parse_fail(p, t->pos, what);
}

bool sql_parse_other_statement(struct parser *p)
{
    static const char *const words[] = {"insert", "update",  "delete",   "create", "drop",
                                        "alter",  "copy",    "truncate", "merge",  "replace",
                                        "vacuum", "analyze", "grant",    "lock"};
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
        if (!is_word(p, 0, words[i]))
            continue;
        char what[120];
        bool copy = strcmp(words[i], "copy") == 0;
        (void)snprintf(what, sizeof(what), "%s is not supported: %s", words[i],
                       copy ? "to write a file: probing -t TARGET export TABLE -o FILE.csv"
                            : "tables are read-only here; `with` names a select");
        sql_parse_fail(p, now(p)->pos, what);
        return true;
    }
    bool pragma = is_word(p, 0, "pragma");
    if (pragma || is_word(p, 0, "pivot") || is_word(p, 0, "unpivot"))
        sql_parse_fail(
            p, now(p)->pos,
            pragma ? "pragma is not supported; see `describe TABLE`, `show all` and `set`"
                   : "pivot is not supported; sum(x) filter (where k = 'a') makes a column");
    if (is_word(p, 0, "begin") || is_word(p, 0, "commit") || is_word(p, 0, "rollback"))
        sql_parse_fail(p, now(p)->pos, "transactions are not supported: tables are read-only here");
    if (is_word(p, 0, "use"))
        sql_parse_fail(p, now(p)->pos, "no database is chosen: tables are named schema.table");
    if (is_word(p, 0, "help"))
        sql_parse_fail(p, now(p)->pos,
                       "`show tables`, `describe TABLE` and `show functions` say what there is");
    fail_table_name(p);
    fail_slip(p);
    return p->error != 0;
}

/* Behind `show`: what servers have and a process has not, or under another name. */
bool sql_parse_other_show(struct parser *p)
{
    static const struct {
        const char *word, *instead;
    } others[] = {
        {"index", "no indexes: a segment knows the least and the most of each of its columns"},
        {"indexes", "no indexes: a segment knows the least and the most of each of its columns"},
        {"keys", "no indexes: a segment knows the least and the most of each of its columns"},
        {"processlist", "no sessions: select * from probing.clients says who is connected"},
        {"status", "no status: `info` says what runs, select * from process.memory what it takes"},
        {"warnings", "no warnings: select * from probing.log has what was said"},
        {"errors", "no errors: select * from probing.log has what was said"},
        {"search_path", "no search path: schemas are looked through in the order of their names"}};
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
        if (is_word(p, 0, others[i].word))
            sql_parse_fail(p, now(p)->pos, others[i].instead);
    return p->error != 0;
}

/* Words that would be taken for aliases of the table before them. */
bool sql_parse_other_from(struct parser *p)
{
    uint32_t pos = now(p)->pos;
    bool join = is_word(p, 1, "join"), anti = is_word(p, 0, "anti");
    if (join && (anti || is_word(p, 0, "semi")))
        sql_parse_fail(p, pos,
                       anti ? "no anti join: where not exists (select 1 from ... where ...)"
                            : "no semi join: where exists (select 1 from ... where ...)");
    else if (join && is_word(p, 0, "positional"))
        sql_parse_fail(p, pos, "a positional join is not supported; join by row_number() over ()");
    else if (is_word(p, 0, "tablesample") || (is_word(p, 0, "using") && is_word(p, 1, "sample")))
        sql_parse_fail(
            p, pos, "samples are not supported; `where step % 100 = 0` takes one row of a hundred");
    else if (is_sign_at(p, 1, "(") && (is_word(p, 0, "pivot") || is_word(p, 0, "unpivot")))
        sql_parse_fail(p, pos,
                       "pivot is not supported; sum(x) filter (where k = 'a') makes a column");
    return p->error != 0;
}

/* Behind group by. */
bool sql_parse_other_group(struct parser *p)
{
    if (is_word(p, 0, "with") && (is_word(p, 1, "rollup") || is_word(p, 1, "cube")))
        sql_parse_fail(p, now(p)->pos, "write group by rollup (a, b) in place of `with rollup`");
    return p->error != 0;
}

bool sql_parse_other_end(struct parser *p)
{
    static const char *const clauses[] = {"from", "where", "group", "having", "order", "limit"};
    const struct token *t = now(p), *last = p->at ? t - 1 : t;
    char what[160];
    bool ended = last->type == TOKEN_SIGN && strcmp(last->text, ";") == 0;
    for (size_t i = 0; i < sizeof(clauses) / sizeof(*clauses) && !ended; i++)
        if (is_word(p, 0, clauses[i])) {
            (void)snprintf(what, sizeof(what),
                           "found '%s' too late, or a second time; their order is from, where, "
                           "group by, having, order by, limit, offset",
                           clauses[i]);
            sql_parse_fail(p, t->pos, what);
        }
    bool into = is_word(p, 0, "into") || (last->type == TOKEN_WORD && !strcmp(last->text, "into"));
    if (is_word(p, 0, "for") || into)
        sql_parse_fail(p, t->pos,
                       into ? "select into is not supported: tables are read-only here"
                            : "rows are not locked: tables are read-only here");
    if (is_sign(p, ",") && p->at >= 2 &&
        is_word(&(struct parser){.tokens = p->tokens, .at = p->at - 2}, 0, "limit"))
        sql_parse_fail(p, t->pos, "write `limit COUNT offset FIRST` in place of `limit a, b`");
    const struct token *before = p->at > 1 ? last - 1 : last;
    bool begins = before->type == TOKEN_SIGN || sql_parse_is_reserved(before); /* a value */
    if (t->type == TOKEN_STRING && last->type == TOKEN_WORD && begins) {
        (void)snprintf(what, sizeof(what),
                       "there is no type '%.40s'; texts are cast to boolean, "
                       "bigint, double, text, blob, timestamp, date or interval",
                       last->text);
        sql_parse_fail(p, last->pos, what);
    }
    return p->error != 0;
}

bool sql_parse_other_value(struct parser *p)
{
    if (is_sign_at(p, 0, "[") ||
        (is_word(p, 0, "array") && (is_sign_at(p, 1, "[") || is_sign_at(p, 1, "("))))
        sql_parse_fail(p, now(p)->pos,
                       "arrays stand only in = any (array[1, 2]) and unnest(array[1, 2]); "
                       "array_agg(), json_agg() and json_build_array() make lists as values");
    return p->error != 0;
}
