/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/identify.c - the place in a job of members whose environment cannot be read from here,
 * and what time it is there: they are asked for both.
 *
 * One thread.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/many/find.h"
#include "cli/many/query_members.h"
#include "cli/target/target.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/text.h"
#include "sdk/lib/buf.h"

#define PLACE_BYTES ((size_t)16 << 10) /* of all variables of a member */

struct identify {
    struct members *all;
    struct buf *texts; /* of each: "NAME=value", NUL, as the kernel would show it */
    struct heard {
        bool known;
        int64_t said_ns, utc_ns; /* its clock, and ours when we heard of it */
    } * heard;
};

/* A name that no variable has. */
static void take_time(struct heard *h, const struct sql_value *said)
{
    struct timespec t = {0};
    char number[32];

    (void)clock_gettime(CLOCK_REALTIME, &t);
    (void)snprintf(number, sizeof(number), "%.*s",
                   (int)(said->text.size < 31 ? said->text.size : 31), said->text.data);
    h->known = parse_i64(number, &h->said_ns) == 0;
    h->utc_ns = (int64_t)t.tv_sec * (int64_t)NS_PER_S + t.tv_nsec;
}

/* It looked at its clock somewhere between our asking and when we heard of it. */
static int take_end(void *arg, const struct member *m)
{
    struct identify *id = arg;
    uint32_t i = (uint32_t)(m - id->all->list);
    const struct heard *h = &id->heard[i];
    int64_t half = (int64_t)(m->result.elapsed_ns / 2), offset;

    if (m->result.state == MEMBER_ANSWERED && h->known &&
        !__builtin_sub_overflow(h->said_ns, h->utc_ns - half, &offset))
        id->all->list[i].asked = (struct member_clock){offset, half + 1};
    return 0;
}

static int take_rows(void *arg, const struct member *m, const struct answer_rows *rows)
{
    struct identify *id = arg;
    struct buf *text = &id->texts[m - id->all->list];
    struct sql_value v[2];

    if (answer_rows_columns(rows) != 2)
        return 0;
    for (uint32_t row = 0; row < answer_rows_count(rows); row++) {
        for (uint32_t i = 0; i < 2; i++)
            answer_rows_value(rows, row, i, &v[i]);
        if (v[0].type != SQL_TEXT || v[1].type != SQL_TEXT)
            continue;
        if (v[0].text.size == 0) {
            take_time(&id->heard[m - id->all->list], &v[1]);
            continue;
        }
        (void)buf_add(text, v[0].text.data, v[0].text.size);
        (void)buf_addc(text, '=');
        (void)buf_add(text, v[1].text.data, v[1].text.size);
        (void)buf_addc(text, '\0');
    }
    return 0;
}

/* Choose the members on other machines: nobody knows the places of the dead any more. */
static uint32_t choose_remote(const struct members *m, bool *only)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < m->n; i++) {
        const struct member *one = &m->list[i];
        only[i] = one->error == 0 && one->target.kind == TARGET_LIVE &&
                  one->tags.rank == MEMBER_UNKNOWN && one->target.host[0] != '\0';
        n += only[i];
    }
    return n;
}

/* A member that did not answer is not asked the next: its time limit would go by twice. */
static void take_place(struct member *m, struct buf *text, bool asked)
{
    if (asked && m->result.state == MEMBER_FAILED)
        m->error = m->result.error;
    if (text->size > 0)
        rank_read_environment(text, &m->tags);
}

int members_identify(struct members *m, uint64_t timeout_ns, uint32_t at_once)
{
    struct identify id = {.all = m,
                          .texts = calloc(m->n, sizeof(*id.texts)),
                          .heard = calloc(m->n, sizeof(*id.heard))};
    bool *only = calloc(m->n, sizeof(*only));
    struct buf statement;
    int rc = id.texts == NULL || id.heard == NULL || only == NULL
                 ? err_set(-ENOMEM, "no memory for %u places", m->n)
                 : 0;

    buf_init(&statement, 4096);
    for (uint32_t i = 0; rc == 0 && i < m->n; i++)
        buf_init(&id.texts[i], PLACE_BYTES);
    if (rc == 0 && choose_remote(m, only) > 0) {
        const struct members_sink sink = {.arg = &id, .rows = take_rows, .done = take_end};
        job_add_variables_statement(&statement);
        (void)buf_adds(&statement, " union all select '', epoch_ns(now())::text");
        const struct members_ask ask = {.statement = buf_text(&statement),
                                        .timeout_ns = timeout_ns,
                                        .at_once = at_once,
                                        .max_bytes = 4 * PLACE_BYTES,
                                        .only = only};
        rc = members_query(m, &ask, &sink);
        for (uint32_t i = 0; i < m->n && rc == 0; i++)
            take_place(&m->list[i], &id.texts[i], only[i]);
    }
    for (uint32_t i = 0; id.texts != NULL && i < m->n; i++)
        buf_done(&id.texts[i]);
    free(id.texts);
    free(id.heard);
    free(only);
    buf_done(&statement);
    return rc < 0 ? rc : members_sort(m);
}
