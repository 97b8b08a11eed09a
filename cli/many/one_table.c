/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/one_table.c - see one_table.h.
 *
 * One thread.  Nothing goes out before it is known what columns there are: all members have told
 * theirs, or have come to an end.  Then one member after the other gives its rows; those whose turn
 * has not come are read as long as there is room for what they send, and then wait.
 */
#include "cli/many/one_table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/target/query_client.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/terminal.h"
#include "core/base/clock.h"
#include "core/base/err.h"

#define HELD_BYTES ((size_t)64 << 20) /* of rows that wait for their turn, of all members */
#define WHOLE_BYTES ((size_t)8 << 20) /* of one member's, that are kept until its answer is whole */
#define COLUMNS_BYTES ((size_t)512 << 20) /* of the columns of all members */

struct held {
    struct answer_rows *rows;
    struct held *next;
};

/* The answer of one member, as far as it has come. */
struct part {
    struct own_columns columns;
    bool told, ended; /* its columns; its end */
    bool flows;       /* rows of it have gone out */
    struct held *first, **last;
    size_t bytes; /* held */
};

struct one_table {
    struct members *all;
    const struct answer_ask *ask;
    struct arena mem;
    struct part *parts;
    uint32_t head;   /* whose turn it is */
    uint32_t n_told; /* have told their columns, or ended */
    size_t held;
    struct joined_columns columns; /* of all, without ours */
    uint32_t n_own;                /* ours, in front: rank, process */
    struct sql_column *shown;      /* ours and theirs; NULL: not known yet */
    struct sql_writer *writer;
    struct sql_sink out;
    struct sql_report report;
    struct progress progress;
    bool written; /* something has gone out, and a line of progress would stand in it */
    int (*fn)(void *arg, const char *data, size_t size);
    void *arg;
    char *rooms; /* SQL_CELL_BYTES for each value of a batch that is shown as text */
    size_t n_rooms;
};

/* ---- columns ---- */

static const char *free_name(const struct one_table *t, const char *name)
{
    for (uint32_t i = 0; i < t->columns.n; i++)
        if (strcmp(t->columns.list[i].name, name) == 0)
            return strcmp(name, "rank") == 0 ? "_rank" : "_process";
    return name;
}

static int join_columns(struct one_table *t)
{
    int rc = 0;

    for (uint32_t i = 0; i < t->all->n && rc == 0; i++)
        if (t->parts[i].told)
            rc = joined_columns_add(&t->mem, &t->columns, &t->parts[i].columns);
    for (uint32_t i = 0; i < t->all->n && rc == 0; i++)
        if (t->parts[i].told)
            rc = joined_columns_place(&t->mem, &t->columns, &t->parts[i].columns);
    return rc;
}

static int begin_answer(struct one_table *t)
{
    int rc = join_columns(t);

    if (rc < 0)
        return rc;
    t->shown = arena_zalloc(&t->mem, t->columns.n + 2, sizeof(*t->shown));
    if (t->shown == NULL)
        return err_set(-ENOMEM, "no memory for the columns of the answer");
    if (t->all->any_rank)
        t->shown[t->n_own++] = (struct sql_column){
            .name = free_name(t, "rank"), .type = SQL_INT, .unit = PROBING_PLAIN, .doc = ""};
    if (!t->all->ranked)
        t->shown[t->n_own++] = (struct sql_column){
            .name = free_name(t, "process"), .type = SQL_TEXT, .unit = PROBING_PLAIN, .doc = ""};
    if (t->columns.n > 0)
        memcpy(t->shown + t->n_own, t->columns.list, t->columns.n * sizeof(*t->shown));
    return t->out.columns(t->out.arg, t->shown, t->n_own + t->columns.n);
}

/* ---- rows ---- */

struct given {
    const struct one_table *t;
    const struct member *m;
    const struct answer_rows *rows;
    const uint32_t *from;
    uint32_t first; /* row of the texts in t->rooms */
};

static void own_value(const struct given *g, uint32_t column, struct sql_value *ret)
{
    if (column == 0 && g->t->all->any_rank) {
        int64_t rank = g->m->tags.rank;
        *ret = (struct sql_value){.type = rank != MEMBER_UNKNOWN ? SQL_INT : SQL_NULL};
        ret->integer = rank;
        return;
    }
    *ret = (struct sql_value){.type = SQL_TEXT};
    ret->text.data = g->m->name;
    ret->text.size = (uint32_t)strlen(g->m->name);
}

static void give_value(void *arg, uint32_t row, uint32_t column, struct sql_value *ret)
{
    const struct given *g = arg;
    const struct one_table *t = g->t;

    if (column < t->n_own) {
        own_value(g, column, ret);
        return;
    }
    uint32_t i = column - t->n_own, from = g->from[i];
    *ret = (struct sql_value){.type = SQL_NULL};
    if (from == NO_COLUMN)
        return;
    answer_rows_value(g->rows, g->first + row, from, ret);
    joined_value(ret, t->columns.list[i].type,
                 t->rooms + SQL_CELL_BYTES * ((size_t)row * t->columns.n + i));
}

#define GIVE_ROWS 512 /* at a time: room for texts of them all */

static int make_rooms(struct one_table *t)
{
    if (t->rooms == NULL)
        t->rooms = malloc(SQL_CELL_BYTES * GIVE_ROWS * ((size_t)t->columns.n + 1));
    return t->rooms != NULL ? 0 : err_set(-ENOMEM, "no memory for rows of the answer");
}

static int give_rows(struct one_table *t, uint32_t i, const struct answer_rows *rows)
{
    struct given g = {
        .t = t, .m = &t->all->list[i], .rows = rows, .from = t->parts[i].columns.from};
    const struct sql_given given = {
        .columns = t->shown, .n_columns = t->n_own + t->columns.n, .value = give_value, .arg = &g};
    uint32_t n = answer_rows_count(rows);
    uint64_t left = t->ask->limit > 0 ? t->ask->limit - t->report.rows : UINT64_MAX;
    int rc = make_rooms(t);

    t->report.cut = t->report.cut || n > left;
    n = n > left ? (uint32_t)left : n;
    for (g.first = 0; g.first < n && rc == 0; g.first += GIVE_ROWS)
        rc = sql_give_rows(&t->out, &given, n - g.first < GIVE_ROWS ? n - g.first : GIVE_ROWS);
    t->report.rows += n;
    t->parts[i].flows = true;
    return rc;
}

static void drop_held(struct one_table *t, struct part *p)
{
    while (p->first != NULL) {
        struct held *h = p->first;
        p->first = h->next;
        answer_rows_free(h->rows);
        free(h);
    }
    p->last = &p->first;
    t->held -= p->bytes;
    p->bytes = 0;
}

static int give_held(struct one_table *t, uint32_t i)
{
    struct part *p = &t->parts[i];
    int rc = 0;

    for (struct held *h = p->first; h != NULL && rc == 0; h = h->next)
        rc = give_rows(t, i, h->rows);
    drop_held(t, p);
    return rc;
}

/* Without any answer nothing is written, not even what columns there are. */
static bool anybody_told(const struct one_table *t)
{
    for (uint32_t i = 0; i < t->all->n; i++)
        if (t->parts[i].told)
            return true;
    return false;
}

/* Write all that can go out now. */
static int go_on(struct one_table *t)
{
    int rc = 0;

    if (t->shown == NULL && (t->n_told < t->all->n || !anybody_told(t)))
        return 0;
    if (t->shown == NULL)
        rc = begin_answer(t);
    while (rc == 0 && t->head < t->all->n) {
        struct part *p = &t->parts[t->head];
        bool whole = p->ended && t->all->list[t->head].result.state == MEMBER_ANSWERED;
        if (p->ended && !whole)
            drop_held(t, p);
        if (whole || p->bytes > WHOLE_BYTES || p->flows)
            rc = give_held(t, t->head);
        if (!p->ended)
            return rc;
        t->head++;
    }
    return rc;
}

/* ---- what members send ---- */

static int on_columns(void *arg, const struct member *m, const struct sql_column *columns,
                      uint32_t n)
{
    struct one_table *t = arg;
    struct part *p = &t->parts[m - t->all->list];
    int rc = own_columns_keep(&t->mem, columns, n, &p->columns);

    if (rc < 0)
        return rc;
    p->told = true;
    t->n_told++;
    if (t->shown != NULL) { /* the others could not wait for it */
        struct joined_columns before = t->columns;
        rc = joined_columns_add(&t->mem, &before, &p->columns);
        if (rc == 0 && before.n != t->columns.n)
            return err_set(-ESTALE,
                           "it has a column %s that the others have not, and told so when "
                           "their rows had gone out",
                           before.list[t->columns.n].name);
        return rc < 0 ? rc : joined_columns_place(&t->mem, &t->columns, &p->columns);
    }
    return 0;
}

static int on_rows(void *arg, const struct member *m, const struct answer_rows *rows)
{
    struct one_table *t = arg;
    struct part *p = &t->parts[m - t->all->list];
    struct held *h = calloc(1, sizeof(*h));
    int rc = h != NULL ? answer_rows_keep(rows, &h->rows) : -ENOMEM;

    if (rc < 0) {
        free(h);
        return rc;
    }
    *p->last = h;
    p->last = &h->next;
    p->bytes += answer_rows_bytes(rows);
    t->held += answer_rows_bytes(rows);
    return 0;
}

/* Its first rows have gone out, and cannot be taken back. */
static void say_incomplete(struct member_result *r)
{
    size_t n = strlen(r->why);

    (void)snprintf(r->why + n, sizeof(r->why) - n, " (some of its rows are in the answer)");
}

static int on_done(void *arg, const struct member *m)
{
    struct one_table *t = arg;
    struct part *p = &t->parts[m - t->all->list];

    p->ended = true;
    t->n_told += !p->told;
    if (p->flows && m->result.state != MEMBER_ANSWERED)
        say_incomplete(&t->all->list[m - t->all->list].result);
    t->report.lost += m->result.lost;
    t->report.cut = t->report.cut || m->result.truncated;
    return go_on(t);
}

/* Read the one whose turn it is, always; others while there is room, and for their columns. */
static bool is_wanted(void *arg, const struct member *m)
{
    struct one_table *t = arg;
    uint32_t i = (uint32_t)(m - t->all->list);

    return t->held < HELD_BYTES || i == t->head || (t->shown == NULL && !t->parts[i].told);
}

static bool columns_may_come(const struct one_table *t)
{
    for (uint32_t i = 0; i < t->all->n; i++)
        if (!t->parts[i].told && t->all->list[i].result.state == MEMBER_ASKED)
            return true;
    return false;
}

static int on_tick(void *arg, uint32_t done, uint32_t asked)
{
    struct one_table *t = arg;

    if (!t->written || isatty(STDOUT_FILENO) != 1)
        progress_say(&t->progress, "%u of %u have answered", done, asked);
    if (t->shown != NULL)
        return go_on(t);
    /* All who are asked wait for room, and the next cannot be asked before one has ended: it is not
     * known whether they have other columns, and they are refused if they do. */
    return t->held < HELD_BYTES || columns_may_come(t) ? 0 : begin_answer(t);
}

/* ---- all of it ---- */

static int on_bytes(void *arg, const char *data, size_t size)
{
    struct one_table *t = arg;

    if (!t->written)
        progress_end(&t->progress);
    t->written = true;
    return t->fn(t->arg, data, size);
}

static int query_all(struct one_table *t, const struct members_ask *how)
{
    const struct members_sink sink = {.arg = t,
                                      .columns = on_columns,
                                      .rows = on_rows,
                                      .done = on_done,
                                      .wanted = is_wanted,
                                      .tick = on_tick};
    struct members_ask ask = *how;

    ask.statement = t->ask->statement;
    ask.limit = t->ask->limit;
    if (t->ask->timeout_ns > 0)
        ask.timeout_ns = t->ask->timeout_ns;
    return members_query(t->all, &ask, &sink);
}

static const struct own_columns *columns_of(const void *arg, uint32_t i)
{
    const struct one_table *t = arg;

    return t->parts[i].told ? &t->parts[i].columns : NULL;
}

/* Ctrl-C: whole answers that have come are shown, and that they are not all. */
static int give_what_came(struct one_table *t)
{
    int rc = 0;

    for (uint32_t i = 0; i < t->all->n; i++)
        t->parts[i].ended = true;
    t->n_told = t->all->n;
    t->report.cut = true;
    t->report.missing = t->all->n - members_answered(t->all);
    if (members_answered(t->all) > 0)
        rc = go_on(t);
    return rc == 0 && t->shown != NULL ? sql_writer_finish(t->writer, &t->report) : rc;
}

/* Why it has no rows, where the first who knows says so for all. */
static void tell_empty(struct one_table *t)
{
    for (uint32_t i = 0; i < t->all->n && t->report.rows == 0 && t->report.empty[0] == '\0'; i++)
        (void)snprintf(t->report.empty, sizeof(t->report.empty), "%s",
                       t->all->list[i].result.empty);
}

static void free_all(struct one_table *t)
{
    for (uint32_t i = 0; t->parts != NULL && i < t->all->n; i++)
        drop_held(t, &t->parts[i]);
    free(t->parts);
    free(t->rooms);
    sql_writer_free(t->writer);
    arena_done(&t->mem);
}

int members_table(struct members *m, const struct members_ask *how, const struct answer_ask *ask,
                  int (*fn)(void *arg, const char *data, size_t size), void *arg)
{
    struct one_table t = {.all = m, .ask = ask, .fn = fn, .arg = arg};
    enum sql_format format;
    uint64_t began = clock_monotonic();
    int rc = sql_format_parse(ask->format, &format);

    arena_init(&t.mem, COLUMNS_BYTES);
    progress_begin(&t.progress, ask->quiet);
    t.parts = calloc(m->n, sizeof(*t.parts));
    if (rc == 0 && t.parts == NULL)
        rc = err_set(-ENOMEM, "no memory for %u answers", m->n);
    for (uint32_t i = 0; i < m->n && rc == 0; i++)
        t.parts[i].last = &t.parts[i].first;
    if (rc == 0)
        rc = sql_writer_new(format, ask->width, on_bytes, &t, &t.writer);
    if (rc == 0) {
        t.out = sql_writer_sink(t.writer);
        rc = query_all(&t, how);
    }
    progress_end(&t.progress);
    if (rc == -ECANCELED && cli_interrupted && give_what_came(&t) < 0)
        rc = -EPIPE;
    if (rc == 0 && members_answered(m) == 0)
        rc = err_set(m->list[0].result.error, "%s", m->list[0].result.why);
    if (rc == 0) {
        t.report.elapsed_ns = clock_monotonic() - began;
        tell_empty(&t);
        t.report.missing = m->n - members_answered(m);
        rc = sql_writer_finish(t.writer, &t.report);
    }
    if (rc == 0)
        answer_say_note(ask, &t.report);
    if (rc == 0 && !ask->quiet) {
        members_say_differences(m, &t.columns, columns_of, &t);
        members_say_notes(m);
    }
    free_all(&t);
    return rc;
}
