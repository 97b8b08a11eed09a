/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/relay/merge_run.c - see merge_run.h.
 *
 * One thread, in a process of its own: the relay goes on meanwhile.
 */
#include "cli/relay/merge_run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/many/ask.h"
#include "cli/target/target.h"
#include "cli/terminal/interrupt.h"
#include "core/base/err.h"
#include "core/sql/distribute/distribute.h"

#define COLUMNS_BYTES ((size_t)16 << 20) /* of all that differ */
#define RECORDS_BYTES ((size_t)64 << 20)
#define PLACE_TEXT 24

typedef int (*merged_out)(void *arg, const char *data, size_t size);

struct answering {
    struct sql_global *g; /* NULL: it is columns that are asked for */
    struct buf columns;   /* of those that differ: u32 size, the bytes */
    uint32_t n_columns;
    struct sql_value *cells;
    uint32_t n_cells;
    struct buf members; /* records */
    bool any;           /* has answered: there is something to merge */
    int fatal;
    merged_out out;
    void *arg;
    char why[ERR_TEXT_BYTES];
};

/* Begin with the members of one host, NULL: of all. */
static int begin(struct answering *a, const struct merged_question *q, const uint32_t *host,
                 uint32_t n_members)
{
    struct merged_place one = {.end = 0};
    uint32_t at = 0;

    const struct sql_global_options o = {.max_bytes = q->max_bytes, .cancel = &cli_cancel};

    buf_init(&a->columns, COLUMNS_BYTES);
    buf_init(&a->members, RECORDS_BYTES);
    if (q->merge_size == 0)
        return 0;
    int rc = sql_global_from_question(q->merge, q->merge_size, n_members, &o, &a->g);
    while (rc == 0 && merged_question_member(q, &one))
        if (host == NULL || one.host == *host)
            rc = sql_global_take_member(a->g, at++, one.about, one.about_size);
    return rc;
}

static void done(struct answering *a)
{
    sql_global_free(a->g);
    buf_done(&a->columns);
    buf_done(&a->members);
    free(a->cells);
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

static int cells_of(struct answering *a, const struct answer_rows *rows)
{
    return a->g != NULL ? make_cells(a, answer_rows_columns(rows))
                        : err_set(-EBADMSG, "it sent rows where none were asked for");
}

static void read_cells(struct answering *a, const struct answer_rows *rows, uint32_t row)
{
    for (uint32_t c = 0; c < answer_rows_columns(rows); c++)
        answer_rows_value(rows, row, c, &a->cells[c]);
}

/* ---- the answer ---- */

static int send_rows(void *arg, const char *data, size_t size)
{
    const struct answering *a = arg;
    struct buf b;

    buf_init(&b, size + 64);
    merged_write(&b, 'R', data, size);
    int rc = b.failed < 0 ? b.failed : a->out(a->arg, b.data, b.size);
    buf_done(&b);
    return rc;
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
    struct buf b;

    buf_init(&b, 2 * COLUMNS_BYTES);
    for (size_t at = 0; at < a->columns.size;) {
        uint32_t n;
        memcpy(&n, a->columns.data + at, sizeof(n));
        merged_write(&b, 'C', a->columns.data + at + sizeof(n), n);
        at += sizeof(n) + n;
    }
    int rc = b.failed;
    if (rc == 0 && b.size > 0)
        rc = a->out(a->arg, b.data, b.size);
    buf_done(&b);
    return rc;
}

static int send_answer(struct answering *a)
{
    int rc = a->columns.failed < 0 || a->members.failed < 0
                 ? err_set(-ENOMEM, "no memory for what members have said")
                 : send_columns(a);

    if (rc == 0 && a->members.size > 0)
        rc = a->out(a->arg, a->members.data, a->members.size);
    if (rc == 0 && a->g != NULL && a->any)
        rc = send_merge(a);
    struct buf end;
    buf_init(&end, 64);
    merged_write(&end, 'E', NULL, 0);
    if (rc == 0)
        rc = a->out(a->arg, end.data, end.size);
    buf_done(&end);
    return rc;
}

/* ---- its own members ---- */

struct own {
    struct answering a;
    struct members all;
    char (*texts)[PLACE_TEXT];
    const char **statements; /* [all.n] */
    uint32_t *columns;       /* [all.n] */
    uint32_t ended;          /* of them, as it was told last */
};

static int on_columns(void *arg, const struct member *m, const struct sql_column *columns,
                      uint32_t n)
{
    struct own *o = arg;
    uint32_t i = (uint32_t)(m - o->all.list);

    return o->a.g != NULL ? sql_global_columns(o->a.g, 0, i, columns, n)
                          : write_columns(&o->a, columns, n, &o->columns[i]);
}

static int on_rows(void *arg, const struct member *m, const struct answer_rows *rows)
{
    struct own *o = arg;
    int rc = cells_of(&o->a, rows);

    for (uint32_t row = 0; row < answer_rows_count(rows) && rc == 0; row++) {
        read_cells(&o->a, rows, row);
        rc = sql_global_row(o->a.g, 0, (uint32_t)(m - o->all.list), o->a.cells);
    }
    return judge_row(&o->a, rc);
}

static int on_tick(void *arg, uint32_t done, uint32_t asked)
{
    struct own *o = arg;
    struct buf b;

    (void)asked;
    if (done == o->ended)
        return 0;
    o->ended = done;
    buf_init(&b, 64);
    merged_write_progress(&b, done);
    int rc = b.failed < 0 ? 0 : o->a.out(o->a.arg, b.data, b.size);
    buf_done(&b);
    return rc;
}

static int on_done(void *arg, const struct member *m)
{
    struct own *o = arg;
    const struct member_result *r = &m->result;
    uint32_t i = (uint32_t)(m - o->all.list);
    bool cut = r->state == MEMBER_ANSWERED && r->truncated && o->a.g != NULL;
    struct merged_member said = {.which = i,
                                 .columns = o->columns[i],
                                 .rows = r->rows,
                                 .bytes = r->bytes,
                                 .elapsed_ns = r->elapsed_ns,
                                 .lost = r->lost,
                                 .why = r->note};

    if (r->state != MEMBER_ANSWERED || cut) {
        said.error = cut || r->error >= 0 ? -EIO : r->error;
        said.why = cut ? "its own limit of rows has cut its answer" : r->why;
    }
    if (o->a.g != NULL && said.error == 0)
        sql_global_answered(o->a.g, 0, i, r->elapsed_ns);
    else if (o->a.g != NULL)
        sql_global_failed(o->a.g, 0, i, said.why);
    if (o->a.g != NULL && said.error == 0 && sql_global_why(o->a.g, i) != NULL) {
        said.error = -EBADMSG;
        said.why = sql_global_why(o->a.g, i);
    }
    o->a.any = o->a.any || said.error == 0;
    merged_write_member(&o->a.members, &said);
    return o->a.fatal;
}

/* "PID START DIRECTORY", as link_open() writes it. */
static int add_own(struct own *o, const struct merged_place *one)
{
    struct member *m = &o->all.list[o->all.n];
    const char *place = one->place;
    long long pid, start;
    int at = 0;

    *m = (struct member){.target = {.kind = TARGET_LIVE}, .name = place};
    if (sscanf(place, "%lld %lld %n", &pid, &start, &at) != 2 || at == 0 || place[at] != '/' ||
        pid > INT32_MAX || strlen(place + at) >= sizeof(m->target.directory))
        return err_set(-EBADMSG, "that is no place of a process");
    (void)snprintf(o->texts[o->all.n], PLACE_TEXT, "%lld", pid);
    m->target.text = pid > 0 ? o->texts[o->all.n] : place + at;
    m->target.pid = pid > 0 ? (pid_t)pid : 0;
    m->target.start_time = pid > 0 && start > 0 ? (uint64_t)start : 0;
    (void)snprintf(m->target.directory, sizeof(m->target.directory), "%s", place + at);
    o->columns[o->all.n] = MERGED_NONE;
    o->statements[o->all.n] = one->statement;
    o->all.n++;
    return 0;
}

static int add_all(struct own *o, const struct merged_question *q, uint32_t host)
{
    struct merged_place one = {.end = 0};
    int rc = 0;

    o->all.list = calloc(q->n, sizeof(*o->all.list));
    o->texts = calloc(q->n, sizeof(*o->texts));
    o->columns = calloc(q->n, sizeof(*o->columns));
    o->statements = calloc(q->n, sizeof(*o->statements));
    if (o->all.list == NULL || o->texts == NULL || o->columns == NULL || o->statements == NULL)
        return err_set(-ENOMEM, "no memory for %u processes", q->n);
    while (rc == 0 && merged_question_member(q, &one))
        rc = one.host == host ? add_own(o, &one) : 0;
    return rc == 0 && o->all.n == 0 ? err_set(-EBADMSG, "none of these is of this host") : rc;
}

int merge_run_own(const struct merged_question *q, uint32_t host, merged_out fn, void *arg)
{
    struct own o = {.a = {.out = fn, .arg = arg}};
    const struct members_sink sink = {
        .arg = &o, .columns = on_columns, .rows = on_rows, .done = on_done, .tick = on_tick};
    int rc = add_all(&o, q, host);
    const struct members_ask ask = {.statements = o.statements,
                                    .timeout_ns = q->timeout_ns,
                                    .max_bytes = 2 * (q->max_bytes >> 1) + (1u << 20)};

    if (rc == 0)
        rc = begin(&o.a, q, &host, o.all.n);
    if (rc == 0)
        rc = members_query(&o.all, &ask, &sink);
    if (o.a.fatal < 0)
        rc = err_set(o.a.fatal, "%s", o.a.why);
    if (rc == 0)
        rc = send_answer(&o.a);
    done(&o.a);
    free(o.all.list);
    free(o.texts);
    free(o.statements);
    free(o.columns);
    return rc;
}

/* ---- several answers ---- */

struct combining {
    struct answering a;
    const struct merge_source *s; /* the one that is read */
    uint32_t *numbers;            /* of its columns, here */
    uint32_t n_numbers;
    enum { UNTOLD, TOLD, ANSWERED } * told; /* [s->n] */
    bool any;                               /* of them has answered */
};

static int source_columns(void *arg, const struct sql_column *columns, uint32_t n)
{
    struct combining *c = arg;
    int rc = n < 2 ? err_set(-EBADMSG, "its relay sent no columns") : 0;

    for (uint32_t i = 0; i < c->s->n && rc == 0; i++)
        if (c->told[i] == ANSWERED)
            rc = sql_global_columns(c->a.g, 0, c->s->map[i], columns + 1, n - 1);
    return rc;
}

static int source_rows(void *arg, const struct answer_rows *rows)
{
    struct combining *c = arg;
    int rc = cells_of(&c->a, rows);

    for (uint32_t row = 0; row < answer_rows_count(rows) && rc == 0; row++) {
        read_cells(&c->a, rows, row);
        const struct sql_value *whose = c->a.cells;
        if (whose->type != SQL_INT || whose->integer < 0 || whose->integer >= c->s->n ||
            c->told[whose->integer] != ANSWERED)
            return err_set(-EBADMSG, "its relay sent rows of one who has none");
        rc = sql_global_row(c->a.g, 0, c->s->map[whose->integer], c->a.cells + 1);
    }
    return judge_row(&c->a, rc);
}

static int fail_member(struct combining *c, uint32_t which, int error, const char *why)
{
    const struct merged_member m = {
        .which = which, .columns = MERGED_NONE, .error = error, .why = why};

    merged_write_member(&c->a.members, &m);
    return 0;
}

/* They go on as they came, so they are proved first: who asks believes us, or none of ours. */
static int prove_columns(const struct merged_record *r)
{
    const struct answer_sink none = {.arg = NULL};
    struct arrow_reader *reader;
    int rc = arrow_reader_new(&none, &reader);

    if (rc == 0) {
        rc = arrow_reader_feed(reader, r->data, r->size);
        if (rc == 0)
            rc = arrow_reader_end(reader);
        arrow_reader_free(reader);
    }
    return rc;
}

static int keep_number(struct combining *c, const struct merged_record *r)
{
    int rc = c->n_numbers < c->s->n ? prove_columns(r)
                                    : err_set(-EBADMSG, "its relay sent more columns than it has "
                                                        "processes");
    if (rc < 0)
        return rc;
    uint32_t *more = realloc(c->numbers, (c->n_numbers + 1) * sizeof(*more));

    if (more == NULL)
        return err_set(-ENOMEM, "no memory for columns");
    c->numbers = more;
    return add_columns(&c->a, r->data, r->size, &c->numbers[c->n_numbers++]);
}

static int take_record(struct combining *c, const struct merged_record *r, struct buf *members,
                       struct arrow_reader *reader)
{
    struct merged_member m;

    if (r->kind == 'P')
        return 0;
    if (r->kind == 'R')
        return reader != NULL ? arrow_reader_feed(reader, r->data, r->size)
                              : err_set(-EBADMSG, "it sent rows where none were asked for");
    if (r->kind == 'C')
        return keep_number(c, r);
    int rc = merged_read_member(r, c->s->n, c->n_numbers, &m);
    if (rc < 0 || c->told[m.which] != UNTOLD)
        return rc < 0 ? rc : err_set(-EBADMSG, "its relay named a process twice");
    c->told[m.which] = m.error == 0 ? ANSWERED : TOLD;
    c->any = c->any || m.error == 0;
    m.which = c->s->map[m.which];
    m.columns = m.columns != MERGED_NONE ? c->numbers[m.columns] : MERGED_NONE;
    merged_write_member(members, &m);
    return 0;
}

/* Its members' records come to `members`; its rows to g, who may refuse them. */
static int read_source(struct combining *c, struct buf *members)
{
    const struct answer_sink to = {.arg = c, .columns = source_columns, .rows = source_rows};
    struct arrow_reader *reader = NULL;
    struct merged_record r;
    size_t at = 0;
    bool rows = false;
    int rc = c->s->error < 0  ? err_set(c->s->error, "%s", c->s->why)
             : c->a.g != NULL ? arrow_reader_new(&to, &reader)
                              : 0;

    for (int more = 1; rc == 0 && more == 1;) {
        more = merged_read(c->s->bytes.data, c->s->bytes.size, &at, &r);
        rc = more < 0 ? more : more > 0 ? take_record(c, &r, members, reader) : 0;
        rows = rows || (more == 1 && rc == 0 && r.kind == 'R');
    }
    if (rc == 0 && reader != NULL && c->any)
        rc = rows ? arrow_reader_end(reader)
                  : err_set(-EBADMSG, "its relay sent no answer of those that it says have one");
    arrow_reader_free(reader);
    return rc;
}

/* Members that have answered are in it, and the others are not. */
static int end_source(struct combining *c)
{
    int rc = 0;

    for (uint32_t i = 0; i < c->s->n && rc == 0; i++) {
        if (c->told[i] == ANSWERED)
            sql_global_answered(c->a.g, 0, c->s->map[i], 0);
        else
            sql_global_failed(c->a.g, 0, c->s->map[i], "it has not answered");
        if (c->told[i] == ANSWERED && sql_global_why(c->a.g, c->s->map[i]) != NULL)
            rc = err_set(-EBADMSG, "%s", sql_global_why(c->a.g, c->s->map[i]));
    }
    return rc;
}

static int take_source(struct combining *c)
{
    struct buf members;
    char why[400];

    buf_init(&members, RECORDS_BYTES);
    c->n_numbers = 0;
    c->any = false;
    memset(c->told, 0, c->s->n * sizeof(*c->told));
    int rc = read_source(c, &members);
    if (rc == 0 && c->a.g != NULL)
        rc = end_source(c);
    (void)snprintf(why, sizeof(why), "%s", rc < 0 ? err_why(rc) : "its relay did not name it");
    if (rc == 0 && members.size > 0)
        (void)buf_add(&c->a.members, members.data, members.size);
    c->a.any = c->a.any || (rc == 0 && c->any);
    for (uint32_t i = 0; i < c->s->n; i++) {
        if (rc < 0 && c->a.g != NULL)
            sql_global_failed(c->a.g, 0, c->s->map[i], why);
        if (rc < 0 || c->told[i] == UNTOLD)
            (void)fail_member(c, c->s->map[i], rc < 0 ? rc : -EBADMSG, why);
    }
    buf_done(&members);
    return c->a.fatal < 0 ? err_set(c->a.fatal, "%s", c->a.why) : 0;
}

int merge_run_combine(const struct merged_question *q, const struct merge_source *list, uint32_t n,
                      merged_out fn, void *arg)
{
    struct combining c = {.a = {.out = fn, .arg = arg}, .told = calloc(q->n, sizeof(*c.told))};
    int rc = c.told != NULL ? begin(&c.a, q, /* host= */ NULL, q->n)
                            : err_set(-ENOMEM, "no memory for answers");

    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        c.s = &list[i];
        rc = take_source(&c);
    }
    if (rc == 0)
        rc = send_answer(&c.a);
    done(&c.a);
    free(c.told);
    free(c.numbers);
    return rc;
}
