/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/relay/merge_answers.c - see merge_answers.h.
 *
 * One thread, in a process of its own: the relay goes on meanwhile.
 */
#include "cli/relay/merge_answers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/link/frame.h"
#include "cli/link/link.h"
#include "cli/link/merge_protocol.h"
#include "cli/many/query_members.h"
#include "cli/target/remote_target.h"
#include "cli/target/target.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/terminal.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/sql/distribute/distribute.h"

#define COLUMNS_BYTES ((size_t)16 << 20) /* of all that differ */
#define RECORDS_BYTES ((size_t)64 << 20)
#define GRACE_MAX_NS (60 * NS_PER_S)
#define TIMEOUT_MAX_NS (24 * 3600 * NS_PER_S)
#define HELD_BYTES ((size_t)64 << 20) /* of rows that wait for those of members before them */
#define PIECE_BYTES ((size_t)1 << 20) /* of a record */
#define PLACES_BYTES ((size_t)64 << 20)

/* Bytes that a member has sent as MERGED_ROWS and that have not gone out. */
struct part {
    struct buf bytes;
    bool told, ended; /* its columns; its end */
};

struct answering {
    struct merged_question q;
    struct members all;
    struct merged_place *places;  /* [all.n] */
    const char **statements;      /* [all.n] */
    struct members_range *ranges; /* [all.n] */
    uint32_t ended;               /* of them, as was reported last */
    /* MERGED_COLUMNS: the lists that differ, each u32 size and its bytes; which is whose. */
    struct buf columns;
    uint32_t n_columns, *column_of; /* [all.n] */
    /* MERGED_ROWS */
    struct part *parts; /* [all.n] */
    uint32_t head;      /* whose rows go out now */
    size_t held;
    /* MERGED_GROUPS */
    struct sql_global *g;
    struct sql_value *cells;
    uint32_t n_cells;
    struct buf members; /* records of their ends, also of MERGED_COLUMNS */
    bool any;           /* has answered: there is something to merge */
    int fatal;
    char why[ERR_TEXT_BYTES];
};

/* ---- what goes out ---- */

static int write_out(const void *data, size_t size)
{
    bool written = fwrite(data, 1, size, stdout) == size && fflush(stdout) == 0;

    return written ? 0 : err_set(-EPIPE, "nobody takes the answer");
}

static int write_record(char kind, const void *data, size_t size)
{
    struct buf b;

    buf_init(&b, size + 64);
    merged_write(&b, kind, data, size);
    int rc =
        b.failed < 0 ? err_set(b.failed, "no memory for an answer") : write_out(b.data, b.size);
    buf_done(&b);
    return rc;
}

/* ---- columns, each list of them once ---- */

static int keep_bytes(void *arg, const char *data, size_t size)
{
    return buf_add(arg, data, size);
}

static int add_columns(struct answering *a, const char *bytes, size_t size, uint32_t *ret)
{
    char head[4];
    uint32_t number = 0;

    for (size_t at = 0; at < a->columns.size; number++) {
        uint32_t n;
        memcpy(&n, a->columns.data + at, sizeof(n));
        if (n == size && memcmp(a->columns.data + at + sizeof(n), bytes, n) == 0) {
            *ret = number;
            return 0;
        }
        at += sizeof(n) + n;
    }
    *ret = a->n_columns++;
    const uint32_t n = (uint32_t)size;
    memcpy(head, &n, sizeof(n));
    (void)buf_add(&a->columns, head, sizeof(head));
    return buf_add(&a->columns, bytes, size) < 0 ? err_set(-ENOMEM, "no memory for columns") : 0;
}

static int write_columns(struct answering *a, const struct sql_column *columns, uint32_t n,
                         uint32_t *ret)
{
    struct sql_report report = {0};
    struct sql_writer *w = NULL;
    struct buf bytes;

    buf_init(&bytes, COLUMNS_BYTES);
    int rc = sql_writer_new(SQL_FORMAT_ARROW, 0, keep_bytes, &bytes, &w);
    if (rc == 0) {
        struct sql_sink sink = sql_writer_sink(w);
        rc = sink.columns(sink.arg, columns, n);
    }
    if (rc == 0)
        rc = sql_writer_finish(w, &report);
    if (rc == 0)
        rc = add_columns(a, bytes.data, bytes.size, ret);
    sql_writer_free(w);
    buf_done(&bytes);
    return rc;
}

/* ---- rows ---- */

static int make_cells(struct answering *a, uint32_t n)
{
    if (n <= a->n_cells)
        return 0;
    struct sql_value *more = realloc(a->cells, n * sizeof(*more));
    if (more == NULL)
        return err_set(-ENOMEM, "no memory for rows of the answer");
    a->cells = more;
    a->n_cells = n;
    return 0;
}

/* An error of all together is not an error of one. */
static int judge_row(struct answering *a, int rc)
{
    if (rc == -EFBIG || rc == -ENOMEM) {
        a->fatal = rc;
        (void)snprintf(a->why, sizeof(a->why), "%s", err_why(rc));
    }
    return rc;
}

/* A row's values from column `from` on, for the i-th member. */
static int merge_row(struct answering *a, uint32_t i, const struct answer_rows *rows, uint32_t row,
                     uint32_t from)
{
    uint32_t n = answer_rows_columns(rows);
    int rc = make_cells(a, n);

    for (uint32_t c = from; c < n && rc == 0; c++)
        answer_rows_value(rows, row, c, &a->cells[c - from]);
    return judge_row(a, rc == 0 ? sql_global_row(a->g, 0, i, a->cells) : rc);
}

/* ---- the answer ---- */

static int send_rows(void *arg, const char *data, size_t size)
{
    (void)arg;
    return write_record('R', data, size);
}

static int send_merge(struct answering *a)
{
    struct sql_report report = {0};
    struct sql_writer *w = NULL;
    int rc = sql_writer_new(SQL_FORMAT_ARROW, 0, send_rows, a, &w);

    if (rc == 0) {
        struct sql_sink sink = sql_writer_sink(w);
        rc = sql_global_run_merge(a->g, &sink, NULL);
    }
    if (rc == 0)
        rc = sql_writer_finish(w, &report);
    sql_writer_free(w);
    return rc;
}

static int send_columns(struct answering *a)
{
    int rc = 0;

    for (size_t at = 0; at < a->columns.size && rc == 0;) {
        uint32_t n;
        memcpy(&n, a->columns.data + at, sizeof(n));
        rc = write_record('C', a->columns.data + at + sizeof(n), n);
        at += sizeof(n) + n;
    }
    return rc;
}

static int send_answer(struct answering *a)
{
    int rc = a->columns.failed < 0 || a->members.failed < 0
                 ? err_set(-ENOMEM, "no memory for what members have sent")
                 : send_columns(a);

    if (rc == 0 && a->members.size > 0)
        rc = write_out(a->members.data, a->members.size);
    if (rc == 0 && a->g != NULL && a->any)
        rc = send_merge(a);
    return rc == 0 ? write_record('E', NULL, 0) : rc;
}

/* ---- what members send ---- */

static uint32_t index_of(const struct answering *a, const struct member *m)
{
    return (uint32_t)(m - a->all.list);
}

static int on_columns(void *arg, const struct member *m, const struct sql_column *columns,
                      uint32_t n)
{
    struct answering *a = arg;
    uint32_t i = index_of(a, m);

    switch (a->q.kind) {
    case MERGED_ROWS:
        a->parts[i].told = true;
        return 0;
    case MERGED_COLUMNS:
        return write_columns(a, columns, n, &a->column_of[i]);
    case MERGED_GROUPS:
        break;
    }
    return sql_global_columns(a->g, 0, i, columns, n);
}

static int on_rows(void *arg, const struct member *m, const struct answer_rows *rows)
{
    struct answering *a = arg;
    int rc = a->q.kind == MERGED_COLUMNS
                 ? err_set(-EBADMSG, "it sent rows where none were asked for")
                 : 0;

    for (uint32_t row = 0; a->g != NULL && row < answer_rows_count(rows) && rc == 0; row++)
        rc = merge_row(a, index_of(a, m), rows, row, 0);
    return rc;
}

static int on_row(void *arg, const struct member *m, const struct answer_rows *rows, uint32_t row)
{
    struct answering *a = arg;

    return merge_row(a, index_of(a, m), rows, row, 1);
}

static int on_about(void *arg, uint32_t i, struct buf *ret)
{
    const struct merged_place *one = &((const struct answering *)arg)->places[i];

    return buf_add(ret, one->about, one->about_size);
}

static int on_tick(void *arg, uint32_t done, uint32_t asked)
{
    struct answering *a = arg;
    char number[4];

    (void)asked;
    if (done == a->ended)
        return 0;
    a->ended = done;
    store_le32(number, done);
    return write_record('P', number, sizeof(number));
}

/* ---- MERGED_ROWS: each member's stream as it comes ---- */

static int send_piece(uint32_t i, const char *data, size_t size)
{
    char number[4];
    struct buf b;
    int rc = 0;

    store_le32(number, i);
    buf_init(&b, PIECE_BYTES + sizeof(number));
    for (size_t at = 0, n; at < size && rc == 0; at += n) {
        n = size - at < PIECE_BYTES ? size - at : PIECE_BYTES;
        buf_reset(&b);
        (void)buf_add(&b, number, sizeof(number));
        rc = buf_add(&b, data + at, n) < 0 ? err_set(-ENOMEM, "no memory for an answer")
                                           : write_record('D', b.data, b.size);
    }
    buf_done(&b);
    return rc;
}

/* Its columns go out at once, as whoever makes one table of all needs those of each; its rows wait
 * for those of the members before it. */
static int on_bytes(void *arg, const struct member *m, const char *data, size_t size)
{
    struct answering *a = arg;
    uint32_t i = index_of(a, m);
    struct part *p = &a->parts[i];

    if (!p->told || i == a->head)
        return send_piece(i, data, size);
    a->held += size;
    return buf_add(&p->bytes, data, size) < 0 ? err_set(-ENOMEM, "no memory for its rows") : 0;
}

static bool is_wanted(void *arg, const struct member *m)
{
    const struct answering *a = arg;
    uint32_t i = index_of(a, m);

    return i == a->head || !a->parts[i].told || a->held < HELD_BYTES;
}

static int send_end(const struct merged_member *end)
{
    struct buf b;

    buf_init(&b, RECORDS_BYTES);
    merged_write_member(&b, end);
    int rc =
        b.failed < 0 ? err_set(b.failed, "no memory for an answer") : write_out(b.data, b.size);
    buf_done(&b);
    return rc;
}

/* ---- the end of a member ---- */

static struct merged_member end_of(const struct answering *a, uint32_t i)
{
    const struct member_result *r = &a->all.list[i].result;
    const bool answered = r->state == MEMBER_ANSWERED;

    return (struct merged_member){.which = i,
                                  .columns = a->column_of[i],
                                  .error = answered       ? 0
                                           : r->error < 0 ? r->error
                                                          : -EIO,
                                  .rows = r->rows,
                                  .bytes = r->bytes,
                                  .elapsed_ns = r->elapsed_ns,
                                  .lost = r->lost,
                                  .why = answered ? r->note : r->why};
}

/* Rows of those whose turn has come. */
static int send_parts(struct answering *a)
{
    int rc = 0;

    while (rc == 0 && a->head < a->all.n) {
        struct part *p = &a->parts[a->head];
        struct merged_member end = end_of(a, a->head);
        if (p->bytes.size > 0)
            rc = send_piece(a->head, p->bytes.data, p->bytes.size);
        a->held -= p->bytes.size;
        buf_done(&p->bytes);
        if (!p->ended)
            return rc;
        rc = rc == 0 ? send_end(&end) : rc;
        a->head++;
    }
    return rc;
}

static void merge_end(struct answering *a, struct merged_member *end)
{
    const struct member_result *r = &a->all.list[end->which].result;

    if (end->error == 0 && r->truncated) {
        end->error = -EIO;
        end->why = "its own limit of rows has cut its answer";
    }
    if (end->error == 0)
        sql_global_answered(a->g, 0, end->which, r->elapsed_ns);
    else
        sql_global_failed(a->g, 0, end->which, end->why);
    const char *why = sql_global_why(a->g, end->which);
    if (end->error == 0 && why != NULL) {
        end->error = -EBADMSG;
        end->why = why;
    }
    a->any = a->any || end->error == 0;
}

static int on_done(void *arg, const struct member *m)
{
    struct answering *a = arg;
    struct merged_member end = end_of(a, index_of(a, m));

    if (a->q.kind == MERGED_ROWS) {
        a->parts[end.which].ended = true;
        return send_parts(a);
    }
    if (a->g != NULL)
        merge_end(a, &end);
    merged_write_member(&a->members, &end);
    return a->fatal;
}

/* ---- the question ---- */

/* One of this host, as it was found by whoever asks. */
static int find_own(struct answering *a, const struct link_member *l, struct target *ret)
{
    struct remote_name other;
    char pid[24];

    if (!l->alive)
        return remote_name_read(l->what, &other)
                   ? err_set(-EINVAL, "a relay speaks for its own machine: '%s' names another",
                             l->what)
                   : target_resolve(l->what, ret);
    (void)snprintf(pid, sizeof(pid), "%lld", (long long)l->pid);
    *ret = (struct target){
        .kind = TARGET_LIVE,
        .text = l->pid > 0 ? arena_text(&a->all.mem, pid, strlen(pid)) : l->directory,
        .pid = l->pid > 0 ? (pid_t)l->pid : 0,
        .start_time = l->pid > 0 && l->start_time > 0 ? (uint64_t)l->start_time : 0};
    (void)snprintf(ret->directory, sizeof(ret->directory), "%s", l->directory);
    return ret->text != NULL ? 0 : err_set(-ENOMEM, "no memory for a process");
}

static int add_member(struct answering *a, const struct merged_place *one, uint32_t host)
{
    const uint32_t i = a->all.n++;
    struct member *m = &a->all.list[i];
    struct link_member *l = arena_zalloc(&a->all.mem, 1, sizeof(*l));
    int rc = l != NULL ? link_member_from_place(one->place, l)
                       : err_set(-ENOMEM, "no memory for a process");

    *m = (struct member){.target = {.kind = TARGET_LIVE, .text = one->place}, .name = one->place};
    a->places[i] = *one;
    a->statements[i] = one->statement;
    a->ranges[i] = (struct members_range){one->from, one->to};
    a->column_of[i] = MERGED_NONE;
    buf_init(&a->parts[i].bytes, HELD_BYTES + ((size_t)1 << 20));
    if (rc < 0)
        return rc;
    l->host = one->host;
    if (one->host != host) {
        m->target.there = l;
        return 0;
    }
    m->error = find_own(a, l, &m->target);
    if (m->error < 0)
        member_failed(m, MEMBER_NOT_ASKED, m->error);
    return 0;
}

static int add_members(struct answering *a, uint32_t host)
{
    struct merged_place one = {.end = 0};
    const uint32_t n = a->q.n;
    int rc = 0;

    a->all.list = calloc(n, sizeof(*a->all.list));
    a->places = calloc(n, sizeof(*a->places));
    a->statements = calloc(n, sizeof(*a->statements));
    a->ranges = calloc(n, sizeof(*a->ranges));
    a->column_of = calloc(n, sizeof(*a->column_of));
    a->parts = calloc(n, sizeof(*a->parts));
    if (a->all.list == NULL || a->places == NULL || a->statements == NULL || a->ranges == NULL ||
        a->column_of == NULL || a->parts == NULL)
        return err_set(-ENOMEM, "no memory for %u processes", n);
    while (rc == 0 && merged_question_member(&a->q, &one)) {
        rc = add_member(a, &one, host);
        if (rc == 0 && a->g != NULL)
            rc = sql_global_take_member(a->g, a->all.n - 1, one.about, one.about_size);
    }
    return rc;
}

static int ask_members(struct answering *a)
{
    const struct members_sink sink = {.arg = a,
                                      .columns = on_columns,
                                      .rows = on_rows,
                                      .bytes = a->q.kind == MERGED_ROWS ? on_bytes : NULL,
                                      .about = on_about,
                                      .row = on_row,
                                      .done = on_done,
                                      .wanted = a->q.kind == MERGED_ROWS ? is_wanted : NULL,
                                      .tick = on_tick};
    struct buf merge;
    const struct members_ask ask = {.statements = a->statements,
                                    .ranges = a->ranges,
                                    .timeout_ns = a->q.timeout_ns,
                                    .grace_ns = a->q.grace_ns / 3 * 2,
                                    .limit = a->q.limit,
                                    .max_bytes = a->q.max_bytes,
                                    .columns = a->q.kind == MERGED_COLUMNS,
                                    .merge = a->g != NULL ? &merge : NULL};

    buf_init(&merge, MERGED_QUESTION_BYTES);
    int rc = buf_add(&merge, a->q.merge, a->q.merge_size) < 0
                 ? err_set(-E2BIG, "the question is too long")
                 : members_query(&a->all, &ask, &sink);
    buf_done(&merge);
    return a->fatal < 0 ? err_set(a->fatal, "%s", a->why) : rc;
}

static int read_question(struct answering *a, const struct relay_question *q)
{
    int rc = merged_question_read(q->data, q->size, &a->q);
    const struct sql_global_options o = {.max_bytes = a->q.max_bytes, .cancel = &cli_cancel};

    if (rc == 0 && (a->q.timeout_ns > TIMEOUT_MAX_NS || a->q.grace_ns > GRACE_MAX_NS))
        rc = err_set(-EBADMSG, "that is no time limit");
    if (rc == 0 && a->q.kind == MERGED_GROUPS)
        rc = sql_global_from_question(a->q.merge, a->q.merge_size, a->q.n, &o, &a->g);
    return rc == 0 ? add_members(a, q->host) : rc;
}

int answer_question(void *question)
{
    struct answering a = {.q = {.n = 0}};

    terminal_exact();
    arena_init(&a.all.mem, PLACES_BYTES);
    buf_init(&a.columns, COLUMNS_BYTES);
    buf_init(&a.members, RECORDS_BYTES);
    int rc = read_question(&a, question);
    if (rc == 0)
        rc = ask_members(&a);
    return rc == 0 ? send_answer(&a) : rc; /* its process ends: nothing is given back */
}
