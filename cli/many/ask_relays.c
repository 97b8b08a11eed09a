/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/ask_relays.c - members behind relays, asked by these: one question for all that are
 * behind one, and one answer (cli/link/merge_protocol.h).
 *
 * One thread.  What a relay says is bounded and its numbers are checked; it can lie about itself
 * and those behind it only.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/link/frame.h"
#include "cli/many/child.h"
#include "cli/many/relay_questions.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/text.h"
#include "sdk/lib/array.h"

/* We wait longer than members have, and their relays less so: an eighth of it, within these. */
#define GRACE_LEAST_NS (200 * NS_PER_MS)
#define GRACE_MOST_NS (3 * NS_PER_S)
#define QUESTIONS_MAX (1u << 15)
#define RUN_POLLS 3

/* ---- who is asked by whom ---- */

bool relays_stand_before(const struct member *m)
{
    return m->error == 0 && m->target.there != NULL;
}

static bool is_asked(const struct asking *a, uint32_t i)
{
    return (a->ask->only == NULL || a->ask->only[i]) && relays_stand_before(&a->all->list[i]);
}

/* The relay that we have started and that stands before the host; of a host that is lost the host
 * itself, and to ask it says why. */
static int find_relay(uint32_t host, struct order *ret)
{
    struct link_host h;
    int rc = link_host_of(host, &h);

    if (rc < 0)
        return rc;
    ret->relay = h.reached && h.first <= host ? h.first : host;
    ret->merges = h.merges;
    return 0;
}

static int compare_orders(const void *one, const void *two)
{
    const struct order *a = one, *b = two;

    if (a->relay != b->relay)
        return a->relay < b->relay ? -1 : 1;
    if (a->merges != b->merges)
        return a->merges ? -1 : 1;
    return a->member < b->member ? -1 : 1;
}

/* Each host is looked up once. */
static int order_members(struct relays *r)
{
    const struct members *m = r->a->all;
    uint32_t hosts = 0;
    int rc = 0;

    for (uint32_t i = 0; i < m->n; i++)
        if (is_asked(r->a, i) && m->list[i].target.there->host >= hosts)
            hosts = m->list[i].target.there->host + 1;
    struct order *of = calloc(hosts + 1, sizeof(*of));
    r->order = calloc(m->n + 1, sizeof(*r->order));
    if (of == NULL || r->order == NULL)
        rc = err_set(-ENOMEM, "no memory for %u processes", m->n);
    for (uint32_t i = 0; i < m->n && rc == 0; i++) {
        if (!is_asked(r->a, i))
            continue;
        struct order *host = &of[m->list[i].target.there->host];
        if (host->member == 0) /* not looked up yet */
            rc = find_relay(m->list[i].target.there->host, host);
        host->member = 1;
        r->order[r->n++] = (struct order){host->relay, i, host->merges};
    }
    free(of);
    if (rc == 0)
        qsort(r->order, r->n, sizeof(*r->order), compare_orders);
    return rc;
}

/* ---- the questions ---- */

static void begin_text(const struct relays *r, struct question *q)
{
    const struct members_ask *ask = r->a->ask;
    const struct buf *merge = q->kind == MERGED_GROUPS ? ask->merge : NULL;
    const struct merged_question head = {.kind = q->kind,
                                         .timeout_ns = r->a->timeout_ns,
                                         .grace_ns = r->grace_ns,
                                         .max_bytes = ask->max_bytes,
                                         .limit = ask->limit,
                                         .merge = merge != NULL ? merge->data : NULL,
                                         .merge_size = merge != NULL ? (uint32_t)merge->size : 0};

    buf_init(&q->text, 2 * MERGED_QUESTION_BYTES);
    merged_ask(&head, &q->text);
}

static int add_place(struct question *q, uint32_t i)
{
    const struct asking *a = q->all->a;
    const struct members_range range =
        a->ask->ranges != NULL ? a->ask->ranges[i] : (struct members_range){.from = 0};
    struct merged_place one = {.host = a->all->list[i].target.there->host,
                               .from = range.from,
                               .to = range.to,
                               .statement = a->ask->statements != NULL ? a->ask->statements[i]
                                                                       : a->ask->statement};
    struct buf place, about;

    buf_init(&place, LINK_PLACE_BYTES);
    buf_init(&about, MERGED_QUESTION_BYTES);
    int rc = link_member_place(a->all->list[i].target.there, &place);
    if (rc == 0 && q->kind == MERGED_GROUPS)
        rc = a->sink->about(a->sink->arg, i, &about);
    one.place = buf_text(&place);
    one.about = about.data;
    one.about_size = (uint32_t)about.size;
    if (rc == 0)
        merged_ask_member(&one, q->statement, &q->text);
    buf_done(&place);
    buf_done(&about);
    q->statement = one.statement;
    q->n++;
    return rc == 0 && q->text.failed < 0 ? err_set(-ENOMEM, "no memory for a question to relays")
                                         : rc;
}

static struct question *add_question(struct relays *r, uint32_t first)
{
    struct question *list =
        array_grow(r->questions, r->n_questions, &r->room_questions, sizeof(*list), QUESTIONS_MAX);

    if (list == NULL) {
        (void)err_set(-ENOMEM, "no memory for questions to relays");
        return NULL;
    }
    r->questions = list;
    struct question *q = &list[r->n_questions++];
    *q = (struct question){.all = r,
                           .relay = r->order[first].relay,
                           .first = first,
                           .run = {.out = -1, .err = -1, .end = -1}};
    q->kind = r->a->ask->columns                                   ? MERGED_COLUMNS
              : r->a->ask->merge != NULL && r->order[first].merges ? MERGED_GROUPS
                                                                   : MERGED_ROWS;
    begin_text(r, q);
    buf_init(&q->in, MERGED_RECORD_BYTES + ((size_t)1 << 20));
    buf_init(&q->stderr_text, RELAY_STDERR_BYTES);
    return q;
}

static int make_questions(struct relays *r)
{
    struct question *q = NULL;
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < r->n; i++) {
        bool other = i == 0 || r->order[i].relay != r->order[i - 1].relay ||
                     r->order[i].merges != r->order[i - 1].merges;
        if (other || q->text.size > MERGED_QUESTION_BYTES)
            q = add_question(r, i);
        rc = q == NULL ? -ENOMEM : add_place(q, r->order[i].member);
    }
    return rc;
}

/* ---- their life ---- */

static int start_question(struct question *q)
{
    const struct relays *r = q->all;

    q->state = QUESTION_RUNS;
    q->deadline_ns = clock_monotonic() + r->a->timeout_ns + r->grace_ns;
    q->ends = calloc(q->n, sizeof(*q->ends));
    q->replies = q->kind == MERGED_ROWS ? calloc(q->n, sizeof(*q->replies)) : NULL;
    if (q->ends == NULL || (q->kind == MERGED_ROWS && q->replies == NULL))
        return err_set(-ENOMEM, "no memory for an answer");
    for (uint32_t i = 0; i < q->n; i++) {
        q->ends[i].error = NOT_TOLD;
        relay_member(q, i)->result = (struct member_result){.state = MEMBER_ASKED};
    }
    int rc = link_merge_begin(q->relay, &q->text, &q->run);
    if (rc < 0)
        relay_end_question(q, rc, err_why(rc));
    return 0;
}

static int start_more(struct relays *r)
{
    uint32_t running = 0;
    int rc = 0;

    for (uint32_t i = 0; i < r->n_questions; i++)
        running += r->questions[i].state == QUESTION_RUNS;
    for (uint32_t i = 0; i < r->n_questions && rc == 0 && running < r->at_once; i++)
        if (r->questions[i].state == QUESTION_WAITS) {
            rc = start_question(&r->questions[i]);
            running += r->questions[i].state == QUESTION_RUNS;
        }
    return rc;
}

int relays_begin(struct asking *a, struct relays **ret)
{
    struct relays *r = calloc(1, sizeof(*r));
    uint64_t grace = a->ask->grace_ns > 0 ? a->ask->grace_ns : a->timeout_ns / 8;

    *ret = NULL;
    if (r == NULL)
        return err_set(-ENOMEM, "no memory for questions to relays");
    r->a = a;
    grace = grace < GRACE_LEAST_NS && a->ask->grace_ns == 0 ? GRACE_LEAST_NS : grace;
    r->grace_ns = grace < GRACE_MOST_NS ? grace : GRACE_MOST_NS;
    int rc = order_members(r);
    if (rc == 0)
        rc = make_questions(r);
    *ret = r;
    r->at_once = members_at_once(r->n_questions);
    r->lost_ns = a->lost_ns;
    return rc == 0 ? start_more(r) : rc;
}

uint32_t relays_poll_room(const struct relays *r)
{
    return RUN_POLLS * r->n_questions;
}

/* Does anybody want more of it now?  Where not all questions can be asked at once, those that are
 * must not wait for others. */
static bool is_wanted(struct question *q)
{
    const struct members_sink *s = q->all->a->sink;
    bool wanted = s->wanted == NULL || q->kind != MERGED_ROWS || q->told == q->n ||
                  q->all->at_once < q->all->n_questions;

    for (uint32_t i = 0; i < q->n && !wanted; i++)
        wanted = !relay_has_told(q, i) && s->wanted(s->arg, relay_member(q, i));
    return wanted;
}

uint32_t relays_polls(struct relays *r, uint64_t now, struct pollfd *ret, uint64_t *until)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < r->n_questions; i++) {
        struct question *q = &r->questions[i];
        if (q->state != QUESTION_RUNS)
            continue;
        bool wanted = is_wanted(q);
        if (wanted && q->paused_ns != 0)
            q->deadline_ns += now - q->paused_ns;
        q->paused_ns = wanted ? 0 : q->paused_ns != 0 ? q->paused_ns : now;
        link_run_polls(&q->run, ret + n);
        if (!wanted)
            ret[n].fd = -1;
        else if (q->deadline_ns < *until)
            *until = q->deadline_ns;
        n += RUN_POLLS;
    }
    return n;
}

/* It has come to its end without the last record. */
static int take_status(struct question *q)
{
    char why[MEMBER_WHY_BYTES];

    if (q->run.status < 0)
        return err_set(q->run.status, "%s", q->run.why);
    child_last_words(&q->stderr_text, why, sizeof(why));
    return q->run.status > 0
               ? err_set(-EIO, "%s", why[0] != '\0' ? why : "its relay could not ask it")
               : err_set(-EBADMSG, "its relay sent what is no answer");
}

static void turn_question(struct question *q, const struct pollfd *polls)
{
    const struct relays *r = q->all;
    const uint64_t limit_ns = r->a->timeout_ns + r->grace_ns;
    char limit[TEXT_AMOUNT_BYTES];
    uint32_t ended = q->ended;

    int rc = link_run_turn(&q->run, polls, relay_on_bytes, q);
    uint64_t now = clock_monotonic();
    if (q->state == QUESTION_OVER || r->fatal < 0)
        return;
    if (q->kind == MERGED_ROWS && q->ended > ended)
        q->deadline_ns = now + limit_ns; /* the next member's rows come from now on */
    if (rc == 0 && q->paused_ns == 0 && now > q->deadline_ns) {
        text_ns((int64_t)r->a->timeout_ns, limit);
        rc = err_set(-ETIMEDOUT, "%s within %s",
                     q->bytes > 0 ? "its answer was not whole" : "no answer", limit);
    }
    if (rc == 1)
        rc = take_status(q);
    if (rc < 0)
        relay_end_question(q, rc, err_why(rc));
}

int relays_turn(struct relays *r, const struct pollfd *polls)
{
    for (uint32_t i = 0, at = 0; i < r->n_questions; i++)
        if (r->questions[i].state == QUESTION_RUNS) {
            r->questions[i].deadline_ns += r->a->lost_ns - r->lost_ns;
            turn_question(&r->questions[i], polls + at);
            at += RUN_POLLS;
        }
    r->lost_ns = r->a->lost_ns;
    return r->fatal == 0 ? start_more(r) : r->fatal;
}

bool relays_are_done(const struct relays *r)
{
    for (uint32_t i = 0; i < r->n_questions; i++)
        if (r->questions[i].state != QUESTION_OVER)
            return false;
    return true;
}

uint32_t relays_ended(const struct relays *r)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < r->n_questions; i++) {
        const struct question *q = &r->questions[i];
        uint32_t ended = q->ended < q->n ? q->ended : q->n;
        n += q->state == QUESTION_RUNS && ended > q->told ? ended - q->told : 0;
    }
    return n;
}

void relays_end(struct relays *r, const char *why)
{
    for (uint32_t i = 0; r != NULL && i < r->n_questions; i++) {
        struct question *q = &r->questions[i];
        for (uint32_t k = 0; q->ends != NULL && k < q->n && q->state == QUESTION_RUNS; k++)
            if (q->kind == MERGED_GROUPS || !relay_has_told(q, k))
                member_failed(relay_member(q, k), MEMBER_FAILED, err_set(-ECANCELED, "%s", why));
        link_run_end(&q->run);
        for (uint32_t k = 0; q->replies != NULL && k < q->n; k++)
            reply_done(&q->replies[k]);
        for (uint32_t k = 0; k < q->n_columns; k++)
            arrow_reader_free(q->columns[k].reader);
        arrow_reader_free(q->merged);
        buf_done(&q->text);
        buf_done(&q->in);
        buf_done(&q->stderr_text);
        free(q->ends);
        free(q->replies);
        free(q->columns);
    }
    free(r != NULL ? r->questions : NULL);
    free(r != NULL ? r->order : NULL);
    free(r);
}
