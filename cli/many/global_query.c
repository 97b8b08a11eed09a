/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/global_query.c - see global_query.h.
 *
 * One thread.  core/sql/distribute says what is to be asked of whom and makes one of the answers;
 * this file asks: first what columns the tables have, then each part.
 */
#include "cli/many/global_query.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/link/merge_protocol.h"
#include "cli/target/query_client.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/terminal.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/sql/distribute/distribute.h"

#define SENT_PER_HELD 2 /* bytes of an Arrow stream for one that is held, at most */
#define SENT_MORE (1 << 20)

struct global {
    struct members *all;
    const struct members_ask *how;
    const struct answer_ask *ask;
    struct sql_global *g;
    struct progress progress;
    bool *only;              /* [all->n] who is asked now */
    bool *ended;             /* of them, whose answer is whole or never will be */
    const char **statements; /* [all->n] what they are asked */
    uint32_t at;             /* which table, or which part */
    bool for_columns;
    struct sql_value *cells; /* of one row */
    uint32_t n_cells;
    int fatal; /* all of it ends with that, for this reason: */
    char why[ERR_TEXT_BYTES];
    uint64_t lost;
};

static uint32_t index_of(const struct global *q, const struct member *m)
{
    return (uint32_t)(m - q->all->list);
}

/* The error is one of the whole, not of the member that was being read. */
static int end_all(struct global *q, int rc)
{
    q->fatal = rc;
    (void)snprintf(q->why, sizeof(q->why), "%s", err_why(rc));
    return rc;
}

/* ---- what members send ---- */

static int on_columns(void *arg, const struct member *m, const struct sql_column *columns,
                      uint32_t n)
{
    struct global *q = arg;
    int rc = q->for_columns ? sql_global_schema(q->g, q->at, index_of(q, m), columns, n)
                            : sql_global_columns(q->g, q->at, index_of(q, m), columns, n);

    if (rc == 0 && n > q->n_cells) {
        struct sql_value *more = realloc(q->cells, n * sizeof(*more));
        if (more == NULL)
            return err_set(-ENOMEM, "no memory for rows of the answer");
        q->cells = more;
        q->n_cells = n;
    }
    return rc;
}

/* Its values, from column `from` on. */
static int take_row(struct global *q, const struct member *m, const struct answer_rows *rows,
                    uint32_t row, uint32_t from)
{
    uint32_t n = answer_rows_columns(rows);

    for (uint32_t c = from; c < n; c++)
        answer_rows_value(rows, row, c, &q->cells[c - from]);
    int rc = sql_global_row(q->g, q->at, index_of(q, m), q->cells);
    return rc == -EFBIG || rc == -ENOMEM ? end_all(q, rc) : rc;
}

static int on_rows(void *arg, const struct member *m, const struct answer_rows *rows)
{
    struct global *q = arg;
    int rc = 0;

    if (q->for_columns)
        return err_set(-EBADMSG, "it sent rows where none were asked for");
    for (uint32_t row = 0; row < answer_rows_count(rows) && rc == 0; row++)
        rc = take_row(q, m, rows, row, 0);
    return rc;
}

/* It has no such table, says its engine: anything else is no answer at all. */
static bool is_lack(const struct member_result *r)
{
    return r->error == -ENOENT || r->error == -EINVAL;
}

/* Places in errors are those of a statement that the user has not written. */
static void drop_place(char *why)
{
    int n = 0;

    (void)sscanf(why, "line %*[0-9], column %*[0-9]: %n", &n);
    if (n > 0)
        memmove(why, why + n, strlen(why + n) + 1);
}

static void take_end(struct global *q, uint32_t i)
{
    struct member_result *r = &q->all->list[i].result;

    drop_place(r->why);
    const char *why = r->why[0] != '\0' ? r->why : "it was not asked any more";
    q->lost += q->for_columns ? 0 : r->lost;
    if (q->for_columns && r->state != MEMBER_ANSWERED)
        (void)sql_global_lacks(q->g, q->at, i, why, !is_lack(r));
    else if (!q->for_columns && r->state == MEMBER_ANSWERED && !r->truncated)
        sql_global_answered(q->g, q->at, i, r->elapsed_ns);
    else if (!q->for_columns)
        sql_global_failed(q->g, q->at, i,
                          r->truncated ? "its own limit of rows has cut its answer" : why);
}

/* Answers that are whole can be made one while others come. */
static int on_done(void *arg, const struct member *m)
{
    struct global *q = arg;
    uint32_t i = index_of(q, m);

    if (q->fatal == 0 && !q->ended[i])
        take_end(q, i);
    q->ended[i] = true;
    return q->fatal;
}

static int on_about(void *arg, uint32_t i, struct buf *ret)
{
    const struct global *q = arg;

    return sql_global_question_member(q->g, q->at, i, ret);
}

/* Take a row of a member whose rows came in an answer of many. */
static int on_row(void *arg, const struct member *m, const struct answer_rows *rows, uint32_t row)
{
    return take_row(arg, m, rows, row, 1);
}

/* Note what the member itself has sent, to its relay. */
static void on_within(void *arg, const struct member *m)
{
    struct global *q = arg;
    const struct sql_global_said said = {
        .elapsed_ns = m->result.elapsed_ns, .rows = m->result.rows, .bytes = m->result.bytes};

    sql_global_answered_within(q->g, q->at, index_of(q, m), &said);
}

static int on_tick(void *arg, uint32_t done, uint32_t asked)
{
    struct global *q = arg;

    progress_say(&q->progress, "%u of %u have answered", done, asked);
    return q->fatal;
}

/* ---- asking ---- */

/* Ask the members in q->only one statement, or NULL: each its own. */
static int ask_some(struct global *q, const char *statement)
{
    const struct members_sink sink = {.arg = q,
                                      .columns = on_columns,
                                      .rows = on_rows,
                                      .about = on_about,
                                      .row = on_row,
                                      .within = on_within,
                                      .done = on_done,
                                      .tick = on_tick};
    struct members_ask ask = *q->how;
    struct buf merge;
    uint64_t max = q->ask->max_bytes > 0 ? q->ask->max_bytes : SQL_GLOBAL_MAX_BYTES;

    ask.statement = statement;
    ask.statements = statement == NULL ? q->statements : NULL;
    ask.limit = 0;
    ask.keep = true;
    ask.only = q->only;
    ask.max_bytes = SENT_PER_HELD * max + SENT_MORE;
    if (q->ask->timeout_ns > 0)
        ask.timeout_ns = q->ask->timeout_ns;
    ask.columns = q->for_columns;
    memset(q->ended, 0, q->all->n);
    buf_init(&merge, MERGED_QUESTION_BYTES);
    int rc = q->for_columns ? 0 : sql_global_question(q->g, q->at, &merge);
    const char *off = getenv("PROBING_RELAY_MERGE");
    if (rc == 1 && merge.failed == 0 && (off == NULL || strcmp(off, "0") != 0))
        ask.merge = &merge; /* one that is too long is for each */
    if (rc >= 0)
        rc = members_query(q->all, &ask, &sink);
    buf_done(&merge);
    for (uint32_t i = 0; i < q->all->n && rc == 0; i++)
        if (q->only[i] && !q->ended[i])
            take_end(q, i);
    return q->fatal < 0 ? err_set(q->fatal, "%s", q->why) : rc;
}

static int ask_columns(struct global *q)
{
    int rc = 0;

    q->for_columns = true;
    memset(q->only, true, q->all->n);
    for (q->at = 0; q->at < sql_global_tables(q->g) && rc == 0; q->at++)
        rc = ask_some(q, sql_global_probe(q->g, q->at));
    q->for_columns = false;
    return rc;
}

static int ask_part(struct global *q)
{
    for (uint32_t i = 0; i < q->all->n; i++) {
        q->statements[i] = sql_global_statement(q->g, q->at, i);
        q->only[i] = q->statements[i] != NULL;
    }
    return ask_some(q, NULL);
}

/* ---- who they are ---- */

static struct sql_value text_or_null(const char *text)
{
    struct sql_value v = {.type = text[0] != '\0' ? SQL_TEXT : SQL_NULL};

    v.text.data = text;
    v.text.size = (uint32_t)strlen(text);
    return v;
}

static struct sql_value number_if(bool known, int64_t n)
{
    struct sql_value v = {.type = known ? SQL_INT : SQL_NULL};

    v.integer = n;
    return v;
}

static struct sql_value number_or_null(int64_t n)
{
    return number_if(n != MEMBER_UNKNOWN, n);
}

static int add_members(struct global *q)
{
    struct member_clock *clocks = calloc(q->all->n + 1, sizeof(*clocks));
    int rc = clocks != NULL ? 0 : err_set(-ENOMEM, "no memory for %u clocks", q->all->n);

    if (rc == 0)
        members_clocks(q->all, clocks);
    for (uint32_t i = 0; i < q->all->n && rc >= 0; i++) {
        const struct member *m = &q->all->list[i];
        const struct sql_value tags[SQL_TAGS] = {
            [SQL_TAG_HOST] = text_or_null(m->tags.host),
            [SQL_TAG_ADDR] = text_or_null(m->name),
            [SQL_TAG_RANK] = number_or_null(m->tags.rank),
            [SQL_TAG_NODE_RANK] = number_or_null(m->tags.node_rank),
            [SQL_TAG_LOCAL_RANK] = number_or_null(m->tags.local_rank),
            [SQL_TAG_ROLE] = text_or_null(m->tags.role),
            [SQL_TAG_CLOCK_OFFSET] = number_if(clocks[i].error_ns >= 0, clocks[i].offset_ns),
            [SQL_TAG_CLOCK_ERROR] = number_if(clocks[i].error_ns >= 0, clocks[i].error_ns)};
        char label[320];
        rc = sql_global_member(q->g, member_label(q->all, m, label, sizeof(label)), tags);
    }
    free(clocks);
    return rc;
}

/* ---- the answer ---- */

struct out {
    struct global *q;
    int (*fn)(void *arg, const char *data, size_t size);
    void *arg;
};

static int on_bytes(void *arg, const char *data, size_t size)
{
    const struct out *o = arg;

    progress_end(&o->q->progress);
    return o->fn(o->arg, data, size);
}

static int write_answer(struct global *q, enum sql_format format, uint64_t began, struct out *out)
{
    struct sql_writer *w = NULL;
    struct sql_report report = {0};
    int rc = sql_writer_new(format, q->ask->width, on_bytes, out, &w);

    if (rc == 0) {
        struct sql_sink sink = sql_writer_sink(w);
        rc = sql_global_run(q->g, &sink, &report);
    }
    for (uint32_t i = 0; i < q->all->n; i++)
        report.missing += sql_global_why(q->g, i) != NULL;
    report.lost = q->lost;
    report.elapsed_ns = clock_monotonic() - began;
    if (rc == 0)
        rc = sql_writer_finish(w, &report);
    if (rc == 0)
        answer_say_note(q->ask, &report);
    sql_writer_free(w);
    return rc;
}

static bool is_asked(const struct global *q, uint32_t member)
{
    bool asked = false;

    for (uint32_t p = 0; p < sql_global_parts(q->g) && !asked; p++)
        asked = sql_global_statement(q->g, p, member) != NULL;
    return asked;
}

/* Each member's result: of several that it was asked, the one that failed. */
static void keep_results(const struct global *q)
{
    for (uint32_t i = 0; i < q->all->n; i++) {
        struct member *m = &q->all->list[i];
        if (!is_asked(q, i))
            m->result.note[0] = '\0'; /* of its columns only: none of it is in the answer */
        const char *why = sql_global_why(q->g, i);
        bool failed = m->result.state == MEMBER_FAILED;
        if (why != NULL)
            member_failed(m, MEMBER_FAILED, err_set(failed ? m->result.error : -EIO, "%s", why));
        else
            m->result.state = MEMBER_ANSWERED;
    }
}

static void say_notes(struct global *q)
{
    const char *at = sql_global_notes(q->g);

    for (size_t n = strcspn(at, "\n"); at[0] != '\0'; at += n + (at[n] == '\n')) {
        n = strcspn(at, "\n");
        terminal_say("%.*s", (int)n, at);
    }
}

/* One try.  -EFBIG with *ret_sketch: it would do with sketches. */
static int try_once(struct global *q, bool sketch, enum sql_format format, struct out *out,
                    bool *ret_sketch)
{
    const struct sql_global_options o = {.max_bytes = q->ask->max_bytes,
                                         .timeout_ns = q->ask->timeout_ns,
                                         .max_rows = q->ask->limit,
                                         .cancel = &cli_cancel,
                                         .strict = q->ask->strict,
                                         .sketch = sketch};
    uint64_t began = clock_monotonic();
    int rc = sql_global_new(q->ask->statement, strlen(q->ask->statement), &o, &q->g);

    q->fatal = 0;
    if (rc == 0)
        rc = add_members(q);
    if (rc >= 0)
        rc = ask_columns(q);
    if (rc == 0)
        rc = sql_global_plan(q->g);
    for (q->at = 0; rc == 0 && q->at < sql_global_parts(q->g); q->at++)
        if (!sql_global_only_explains(q->g))
            rc = ask_part(q);
    progress_end(&q->progress);
    for (uint32_t i = 0; i < q->all->n && q->fatal < 0; i++)
        q->all->list[i].result.state = MEMBER_ANSWERED; /* nothing was wrong with them */
    *ret_sketch = rc == -EFBIG && sql_global_can_sketch(q->g);
    if (rc == 0)
        rc = write_answer(q, format, began, out);
    if (rc == 0 || rc == -ENODATA) {
        char why[ERR_TEXT_BYTES]; /* of the whole */
        (void)snprintf(why, sizeof(why), "%s", rc < 0 ? err_why(rc) : "");
        keep_results(q);
        rc = rc < 0 ? err_set(rc, "%s", why) : 0;
    }
    if (rc == 0 && !q->ask->quiet) {
        say_notes(q);
        members_say_notes(q->all);
    }
    return rc;
}

int members_global(struct members *m, const struct members_ask *how, const struct answer_ask *ask,
                   int (*fn)(void *arg, const char *data, size_t size), void *arg)
{
    struct global q = {.all = m, .how = how, .ask = ask};
    struct out out = {.q = &q, .fn = fn, .arg = arg};
    enum sql_format format;
    bool sketch = false;
    int rc = sql_format_parse(ask->format, &format);

    q.only = calloc(2, m->n + 1);
    q.ended = q.only != NULL ? q.only + m->n + 1 : NULL;
    q.statements = calloc(m->n + 1, sizeof(char *));
    if (rc == 0 && (q.only == NULL || q.statements == NULL))
        rc = err_set(-ENOMEM, "no memory for %u answers", m->n);
    progress_begin(&q.progress, ask->quiet);
    if (rc == 0)
        rc = try_once(&q, false, format, &out, &sketch);
    if (sketch) {
        sql_global_free(q.g);
        q.g = NULL;
        rc = try_once(&q, true, format, &out, &sketch);
    }
    progress_end(&q.progress);
    members_hang_up(m);
    sql_global_free(q.g);
    free(q.only);
    free(q.statements);
    free(q.cells);
    return rc;
}
