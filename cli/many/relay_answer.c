/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/relay_answer.c - reads a relay's answer, record by record (cli/link/merge_protocol.h).
 *
 * One thread.  What a relay says is bounded and its numbers are checked; it can lie about itself
 * and those behind it only.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/link/frame.h"
#include "cli/many/relay_questions.h"
#include "core/base/err.h"
#include "sdk/lib/array.h"

/* ---- the members of a question ---- */

struct member *relay_member(const struct question *q, uint32_t which)
{
    return &q->all->a->all->list[q->all->order[q->first + which].member];
}

bool relay_has_told(const struct question *q, uint32_t which)
{
    return q->ends[which].error != NOT_TOLD;
}

/* One line, and nothing in it that steers a terminal. */
static void take_note(struct member_result *r, const char *note)
{
    (void)snprintf(r->note, sizeof(r->note), "%s", note);
    for (char *at = r->note; *at != '\0'; at++)
        *at = (unsigned char)*at < ' ' ? ' ' : *at;
}

static void end_member(struct question *q, struct reply *r)
{
    int rc = q->all->fatal == 0 ? reply_end(r) : 0;

    q->all->fatal = q->all->fatal == 0 ? rc : q->all->fatal;
}

void relay_end_question(struct question *q, int rc, const char *why)
{
    char kept[ERR_TEXT_BYTES]; /* `why` may be err_text() */

    (void)snprintf(kept, sizeof(kept), "%s", why);
    q->state = QUESTION_OVER;
    link_run_end(&q->run);
    for (uint32_t i = 0; i < q->n; i++) {
        struct reply r = {.a = q->all->a, .m = relay_member(q, i)};
        if (q->kind != MERGED_GROUPS && relay_has_told(q, i))
            continue;
        if (rc < 0)
            member_failed(r.m, MEMBER_FAILED, err_set(rc, "%s", kept));
        end_member(q, &r);
    }
}

/* ---- records ---- */

static int keep_columns(void *arg, const struct sql_column *columns, uint32_t n)
{
    struct question *q = arg;
    struct columns_list *last = &q->columns[q->n_columns - 1];

    last->list = columns;
    last->n = n;
    return 0;
}

static int take_columns(struct question *q, const struct merged_record *r)
{
    const struct answer_sink to = {.arg = q, .columns = keep_columns};
    struct columns_list *list =
        array_grow(q->columns, q->n_columns, &q->room_columns, sizeof(*list), q->n);

    if (list == NULL)
        return err_set(-EBADMSG, "its relay sent more columns than it has processes");
    q->columns = list;
    list += q->n_columns++;
    *list = (struct columns_list){.reader = NULL};
    int rc = arrow_reader_new(&to, &list->reader);
    if (rc == 0)
        rc = arrow_reader_feed(list->reader, r->data, r->size);
    return rc == 0 ? arrow_reader_end(list->reader) : rc;
}

/* The i-th member's answer is whole, as its relay says: is it? */
static int judge_end(struct question *q, uint32_t i)
{
    const struct members_sink *s = q->all->a->sink;
    const struct merged_member *end = &q->ends[i];

    if (end->error < 0)
        return err_set(end->error, "%s", end->why);
    if (q->kind == MERGED_GROUPS)
        return 0;
    if (q->kind == MERGED_ROWS ? q->replies[i].reader == NULL : end->columns == MERGED_NONE)
        return err_set(-EBADMSG, "its relay sent no columns of it");
    return q->kind == MERGED_ROWS
               ? arrow_reader_end(q->replies[i].reader)
               : s->columns(s->arg, relay_member(q, i), q->columns[end->columns].list,
                            q->columns[end->columns].n);
}

/* Records of a member whose end has come are left out. */
static int take_end(struct question *q, const struct merged_record *r)
{
    struct merged_member end;
    int rc = merged_read_member(r, q->n, q->n_columns, &end);

    if (rc < 0 || relay_has_told(q, end.which))
        return rc;
    struct member *m = relay_member(q, end.which);
    q->ends[end.which] = end;
    m->result.state = MEMBER_ANSWERED;
    m->result.elapsed_ns = end.elapsed_ns;
    if (q->kind != MERGED_ROWS) { /* which are counted here */
        m->result.rows = end.rows;
        m->result.bytes = end.bytes;
        m->result.lost = end.lost;
    }
    rc = judge_end(q, end.which);
    if (rc < 0)
        member_failed(m, MEMBER_FAILED, rc);
    else
        take_note(&m->result, end.why);
    if (q->kind == MERGED_GROUPS)
        return 0; /* its rows are still to come */
    struct reply none = {.a = q->all->a, .m = m};
    struct reply *reply =
        q->replies != NULL && q->replies[end.which].m != NULL ? &q->replies[end.which] : &none;
    q->told++;
    end_member(q, reply);
    reply_done(reply);
    return 0;
}

/* A piece that cannot be taken ends its member, not the others. */
static int take_piece(struct question *q, const struct merged_record *r)
{
    uint32_t which = r->size >= 4 ? load_le32(r->data) : q->n;

    if (which >= q->n || q->kind != MERGED_ROWS)
        return err_set(-EBADMSG, "its relay sent rows for a member that has none");
    if (relay_has_told(q, which))
        return 0;
    struct reply *reply = &q->replies[which];
    int rc = reply->reader == NULL ? reply_begin(reply, q->all->a, relay_member(q, which)) : 0;
    if (rc == 0)
        rc = reply_take(reply, r->data + 4, r->size - 4);
    if (rc == 0)
        return 0;
    q->ends[which].error = rc;
    q->told++;
    member_failed(reply->m, MEMBER_FAILED, rc);
    end_member(q, reply);
    reply_done(reply);
    return 0;
}

/* The first column says whose a row is. */
static int on_columns(void *arg, const struct sql_column *columns, uint32_t n)
{
    const struct question *q = arg;
    const struct members_sink *s = q->all->a->sink;
    int rc = n < 2 ? err_set(-EBADMSG, "its relay sent no columns") : 0;

    for (uint32_t i = 0; i < q->n && rc == 0; i++)
        if (q->ends[i].error == 0)
            rc = s->columns(s->arg, relay_member(q, i), columns + 1, n - 1);
    return rc;
}

static int on_rows(void *arg, const struct answer_rows *rows)
{
    const struct question *q = arg;
    const struct members_sink *s = q->all->a->sink;
    struct sql_value whose;
    int rc = 0;

    for (uint32_t row = 0; row < answer_rows_count(rows) && rc == 0; row++) {
        answer_rows_value(rows, row, 0, &whose);
        bool known = whose.type == SQL_INT && whose.integer >= 0 && whose.integer < q->n &&
                     q->ends[whose.integer].error == 0;
        rc = known ? s->row(s->arg, relay_member(q, (uint32_t)whose.integer), rows, row)
                   : err_set(-EBADMSG, "its relay sent rows for a member that has none");
    }
    return rc;
}

static int take_rows(struct question *q, const struct merged_record *r)
{
    const struct answer_sink to = {.arg = q, .columns = on_columns, .rows = on_rows};

    if (q->kind != MERGED_GROUPS)
        return err_set(-EBADMSG, "its relay sent rows where none were asked for");
    int rc = q->merged == NULL ? arrow_reader_new(&to, &q->merged) : 0;
    return rc == 0 ? arrow_reader_feed(q->merged, r->data, r->size) : rc;
}

/* The last record: a member whose end has not come is one that the relay forgot. */
static int take_last(struct question *q)
{
    const struct members_sink *s = q->all->a->sink;
    const bool groups = q->kind == MERGED_GROUPS;
    bool any = false;

    for (uint32_t i = 0; i < q->n; i++)
        any = any || q->ends[i].error == 0;
    if (groups && any && q->merged == NULL)
        return err_set(-EBADMSG, "its relay sent no answer of those that it says have one");
    int rc = groups && any ? arrow_reader_end(q->merged) : 0;
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < q->n && groups; i++)
        if (!relay_has_told(q, i))
            member_failed(relay_member(q, i), MEMBER_FAILED,
                          err_set(-EBADMSG, "its relay did not name it"));
    relay_end_question(q, groups ? 0 : -EBADMSG, "its relay did not name it");
    for (uint32_t i = 0; i < q->n && groups && q->all->fatal == 0 && s->within != NULL; i++)
        if (q->ends[i].error == 0)
            s->within(s->arg, relay_member(q, i));
    return 0;
}

static int take_record(struct question *q, const struct merged_record *r)
{
    switch (r->kind) {
    case 'P':
        q->ended = r->size == 4 ? load_le32(r->data) : q->ended;
        return 0;
    case 'C':
        return take_columns(q, r);
    case 'M':
        return take_end(q, r);
    case 'D':
        return take_piece(q, r);
    case 'R':
        return take_rows(q, r);
    default: /* E; merged_read() knows no others */
        return take_last(q);
    }
}

int relay_on_bytes(void *arg, bool error, const char *data, size_t size)
{
    struct question *q = arg;
    const uint64_t most = q->all->a->ask->max_bytes;
    struct merged_record r;
    size_t at = 0;
    int more = 1, rc;

    if (error) {
        if (q->stderr_text.size + size < RELAY_STDERR_BYTES)
            (void)buf_add(&q->stderr_text, data, size);
        return 0;
    }
    q->bytes += size;
    if (q->kind != MERGED_ROWS && most > 0 && q->bytes > most)
        return err_set(-EMSGSIZE, "its answer has more than %llu MB",
                       (unsigned long long)(most >> 20));
    rc = buf_add(&q->in, data, size) < 0 ? err_set(-ENOMEM, "no memory for an answer") : 0;
    while (rc == 0 && more == 1 && q->state == QUESTION_RUNS && q->all->fatal == 0) {
        more = merged_read(q->in.data, q->in.size, &at, &r);
        rc = more < 0 ? more : more == 1 ? take_record(q, &r) : 0;
    }
    memmove(q->in.data, q->in.data + at, q->in.size - at);
    q->in.size -= at;
    return rc;
}
