/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/link/merge_protocol.c - see merge_protocol.h: its bytes.
 *
 * One thread.
 */
#include "cli/link/merge_protocol.h"

#include <errno.h>
#include <string.h>

#include "cli/link/frame.h"
#include "core/base/err.h"

#define FORM 3
#define QUESTION_HEAD (2 * 4 + 4 * 8 + 4)
#define PLACE_HEAD (4 + 2 * 8)
#define RECORD_HEAD 5
#define MEMBER_HEAD (3 * 4 + 4 * 8)

/* ---- the question ---- */

void merged_ask(const struct merged_question *q, struct buf *ret)
{
    char head[QUESTION_HEAD];

    store_le32(head, FORM);
    store_le32(head + 4, q->kind);
    store_le64(head + 8, q->timeout_ns);
    store_le64(head + 16, q->grace_ns);
    store_le64(head + 24, q->max_bytes);
    store_le64(head + 32, q->limit);
    store_le32(head + 40, q->merge_size);
    (void)buf_add(ret, head, sizeof(head));
    if (q->merge_size > 0)
        (void)buf_add(ret, q->merge, q->merge_size);
}

void merged_ask_member(const struct merged_place *m, const char *before, struct buf *ret)
{
    bool same = before != NULL && strcmp(before, m->statement) == 0;
    char head[PLACE_HEAD], number[4];

    store_le32(head, m->host);
    store_le64(head + 4, m->from);
    store_le64(head + 12, m->to);
    (void)buf_add(ret, head, sizeof(head));
    (void)buf_add(ret, m->place, strlen(m->place) + 1);
    (void)buf_add(ret, same ? "" : m->statement, same ? 1 : strlen(m->statement) + 1);
    store_le32(number, m->about_size);
    (void)buf_add(ret, number, sizeof(number));
    if (m->about_size > 0)
        (void)buf_add(ret, m->about, m->about_size);
}

static int no_question(void)
{
    return err_set(-EBADMSG, "that is no question to a relay about its members");
}

int merged_question_read(const char *data, size_t size, struct merged_question *ret)
{
    struct merged_place m = {.end = 0};

    if (size < QUESTION_HEAD || load_le32(data) != FORM || load_le32(data + 4) > MERGED_GROUPS ||
        size - QUESTION_HEAD < load_le32(data + 40))
        return no_question();
    *ret = (struct merged_question){.kind = (enum merged_kind)load_le32(data + 4),
                                    .timeout_ns = load_le64(data + 8),
                                    .grace_ns = load_le64(data + 16),
                                    .max_bytes = load_le64(data + 24),
                                    .limit = load_le64(data + 32),
                                    .merge = data + QUESTION_HEAD,
                                    .merge_size = load_le32(data + 40)};
    ret->members = ret->merge + ret->merge_size;
    ret->members_size = size - QUESTION_HEAD - ret->merge_size;
    while (merged_question_member(ret, &m))
        ret->n++;
    return ret->n > 0 && ret->n <= MERGED_MEMBERS_MAX && m.end == ret->members_size ? 0
                                                                                    : no_question();
}

static const char *text_end(const char *text, size_t size)
{
    return size > 0 ? memchr(text, '\0', size) : NULL;
}

bool merged_question_member(const struct merged_question *q, struct merged_place *m)
{
    size_t left = q->members_size - m->end;
    const char *at = q->members + m->end;
    const char *place = left > PLACE_HEAD ? text_end(at + PLACE_HEAD, left - PLACE_HEAD) : NULL;
    const char *statement =
        place != NULL ? text_end(place + 1, left - (size_t)(place + 1 - at)) : NULL;

    if (statement == NULL || (place[1] == '\0' && m->statement == NULL))
        return false;
    left -= (size_t)(statement + 1 - at);
    if (left < 4 || left - 4 < load_le32(statement + 1))
        return false;
    m->host = load_le32(at);
    m->from = load_le64(at + 4);
    m->to = load_le64(at + 12);
    m->place = at + PLACE_HEAD;
    m->statement = place[1] != '\0' ? place + 1 : m->statement;
    m->about_size = load_le32(statement + 1);
    m->about = statement + 5;
    m->end += (size_t)(statement + 5 + m->about_size - at);
    return true;
}

/* ---- the answer ---- */

void merged_write(struct buf *ret, char kind, const void *data, size_t size)
{
    char head[RECORD_HEAD] = {kind};

    store_le32(head + 1, (uint32_t)size);
    (void)buf_add(ret, head, sizeof(head));
    if (size > 0)
        (void)buf_add(ret, data, size);
}

void merged_write_member(struct buf *ret, const struct merged_member *m)
{
    char head[RECORD_HEAD + MEMBER_HEAD] = {'M'};
    size_t n = strlen(m->why) + 1;

    store_le32(head + 1, (uint32_t)(MEMBER_HEAD + n));
    store_le32(head + 5, m->which);
    store_le32(head + 9, m->columns);
    store_le32(head + 13, (uint32_t)m->error);
    store_le64(head + 17, m->rows);
    store_le64(head + 25, m->bytes);
    store_le64(head + 33, m->elapsed_ns);
    store_le64(head + 41, m->lost);
    (void)buf_add(ret, head, sizeof(head));
    (void)buf_add(ret, m->why, n);
}

void merged_write_progress(struct buf *ret, uint32_t ended)
{
    char number[4];

    store_le32(number, ended);
    merged_write(ret, 'P', number, sizeof(number));
}

static int no_answer(void)
{
    return err_set(-EBADMSG, "its relay sent what is no answer");
}

int merged_read(const char *data, size_t size, size_t *at, struct merged_record *ret)
{
    size_t left = size - *at;

    if (left == 0)
        return 0;
    if (strchr("PCDMRE", data[*at]) == NULL || data[*at] == '\0')
        return no_answer();
    if (left < RECORD_HEAD)
        return 0;
    uint32_t n = load_le32(data + *at + 1);
    if (n > MERGED_RECORD_BYTES)
        return no_answer();
    if (left - RECORD_HEAD < n)
        return 0;
    *ret = (struct merged_record){.kind = data[*at], .data = data + *at + RECORD_HEAD, .size = n};
    *at += RECORD_HEAD + n;
    return 1;
}

int merged_read_member(const struct merged_record *r, uint32_t n_members, uint32_t n_columns,
                       struct merged_member *ret)
{
    if (r->size <= MEMBER_HEAD || r->data[r->size - 1] != '\0')
        return no_answer();
    *ret = (struct merged_member){.which = load_le32(r->data),
                                  .columns = load_le32(r->data + 4),
                                  .error = (int)load_le32(r->data + 8),
                                  .rows = load_le64(r->data + 12),
                                  .bytes = load_le64(r->data + 20),
                                  .elapsed_ns = load_le64(r->data + 28),
                                  .lost = load_le64(r->data + 36),
                                  .why = r->data + MEMBER_HEAD};
    bool columns = ret->columns == MERGED_NONE || ret->columns < n_columns;
    return ret->which < n_members && columns && ret->error <= 0 && ret->error > -4096 ? 0
                                                                                      : no_answer();
}
