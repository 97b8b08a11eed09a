/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/ask_relays.c - members behind relays, asked by these: one question for all that are
 * behind one, and one answer that it has made of theirs (cli/link/merge_protocol.h).
 *
 * One thread.  A relay of another build is not asked so, nor one that says that it cannot: its
 * members are asked one by one.  What a relay says is checked; it can lie about itself and those
 * behind it only.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/link/merge_protocol.h"
#include "cli/link/run_many.h"
#include "cli/many/ask.h"
#include "cli/target/target.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/version.h"
#include "sdk/lib/buf.h"

/* We wait longer than members have, and their relays less so: an eighth of it, within these. */
#define GRACE_LEAST_NS (200 * NS_PER_MS)
#define GRACE_MOST_NS (3 * NS_PER_S)
#define MEMBERS_LEAST 2 /* behind one relay: of one there is nothing to merge */

/* A question to one relay. */
struct group {
    uint32_t first, n; /* of the order */
    uint32_t ended;    /* of them; as it has said, by `at` in its answer */
    size_t at;
    struct buf text;
    struct merged_place before; /* the member that was added last */
};

struct by {
    struct members *all;
    const struct members_by_relays *how;
    bool *only;
    struct link_host *hosts; /* [n_hosts], as they are when this begins */
    uint32_t n_hosts;
    struct order {
        uint32_t relay, member;
    } * order; /* who may be asked so, by relay */
    uint32_t n;
    struct group *groups;
    uint32_t n_groups;
};

/* ---- who may be asked so ---- */

static bool is_behind(const struct member *m)
{
    return m->error == 0 && m->target.there != NULL && m->target.kind == TARGET_LIVE;
}

/* All hosts that can be on the way: they are numbered as they stand in the tree. */
static int look_at_hosts(struct by *b)
{
    uint32_t n = 0;
    int rc = 0;

    for (uint32_t i = 0; i < b->all->n; i++)
        if (b->only[i] && is_behind(&b->all->list[i]) && b->all->list[i].target.there->host >= n)
            n = b->all->list[i].target.there->host + 1;
    if (n == 0)
        return 0;
    b->hosts = calloc(n, sizeof(*b->hosts));
    if (b->hosts == NULL)
        return err_set(-ENOMEM, "no memory for %u hosts", n);
    b->n_hosts = n;
    for (uint32_t i = 0; i < n && rc == 0; i++)
        rc = link_host_of(i, &b->hosts[i]);
    return rc;
}

/* States of aggregates may look different in another build. */
static bool merges(const struct by *b, uint32_t host)
{
    const struct link_host *h = &b->hosts[host];
    bool same = h->reached && h->first <= host;

    for (uint32_t i = h->first; same && i <= host; i++)
        same = !b->hosts[i].reached || strcmp(b->hosts[i].build, probing_build) == 0;
    return same;
}

static int compare(const void *one, const void *two)
{
    const struct order *a = one, *b = two;

    if (a->relay != b->relay)
        return a->relay < b->relay ? -1 : 1;
    return a->member < b->member ? -1 : 1;
}

static int put_in_order(struct by *b)
{
    b->order = calloc(b->all->n + 1, sizeof(*b->order));
    if (b->order == NULL)
        return err_set(-ENOMEM, "no memory for %u processes", b->all->n);
    for (uint32_t i = 0; i < b->all->n; i++) {
        const struct member *m = &b->all->list[i];
        if (!b->only[i] || !is_behind(m) || !merges(b, m->target.there->host))
            continue;
        b->order[b->n++] = (struct order){b->hosts[m->target.there->host].first, i};
    }
    qsort(b->order, b->n, sizeof(*b->order), compare);
    return 0;
}

/* ---- the questions ---- */

static uint64_t timeout_of(const struct by *b)
{
    return b->how->ask->timeout_ns > 0 ? b->how->ask->timeout_ns : ASK_TIMEOUT_NS;
}

static uint64_t grace_of(const struct by *b)
{
    uint64_t grace = timeout_of(b) / 8;

    grace = grace < GRACE_LEAST_NS ? GRACE_LEAST_NS : grace;
    return grace < GRACE_MOST_NS ? grace : GRACE_MOST_NS;
}

static void begin_text(const struct by *b, struct buf *ret)
{
    const struct merged_question q = {.timeout_ns = timeout_of(b),
                                      .grace_ns = grace_of(b),
                                      .max_bytes = b->how->all_bytes,
                                      .merge = b->how->merge->data,
                                      .merge_size = (uint32_t)b->how->merge->size};

    buf_init(ret, 2 * MERGED_QUESTION_BYTES);
    merged_ask(&q, ret);
}

static int add_place(const struct by *b, struct group *g, uint32_t i)
{
    char place[4200];
    struct buf about;
    const struct members_ask *ask = b->how->ask;
    const struct link_member *m = b->all->list[i].target.there;
    struct merged_place one = {.host = m->host,
                               .place = place,
                               .statement =
                                   ask->statements != NULL ? ask->statements[i] : ask->statement};

    int n = snprintf(place, sizeof(place), "%lld %lld %s", (long long)m->pid,
                     (long long)m->start_time, m->directory);
    if (n < 0 || (size_t)n >= sizeof(place))
        return err_set(-ENAMETOOLONG, "the name of a data directory is too long");
    buf_init(&about, MERGED_QUESTION_BYTES);
    int rc = b->how->merge->size > 0 ? b->how->about(b->how->sink->arg, i, &about) : 0;
    one.about = about.data;
    one.about_size = (uint32_t)about.size;
    if (rc == 0)
        merged_ask_member(&one, g->n > 0 ? &g->before : NULL, &g->text);
    buf_done(&about);
    g->before = one;
    g->n++;
    return rc == 0 && g->text.failed < 0 ? err_set(-ENOMEM, "no memory for a question to relays")
                                         : rc;
}

static struct group *new_group(struct by *b, uint32_t first)
{
    struct group *list = realloc(b->groups, (b->n_groups + 1) * sizeof(*list));

    if (list == NULL) {
        (void)err_set(-ENOMEM, "no memory for questions to relays");
        return NULL;
    }
    b->groups = list;
    list[b->n_groups] = (struct group){.first = first};
    begin_text(b, &list[b->n_groups].text);
    return &list[b->n_groups++];
}

static int make_groups(struct by *b)
{
    struct group *g = NULL;
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < b->n; i++) {
        bool other = i == 0 || b->order[i].relay != b->order[i - 1].relay;
        if (other || g->text.size > MERGED_QUESTION_BYTES)
            g = new_group(b, i);
        rc = g == NULL ? -ENOMEM : add_place(b, g, b->order[i].member);
    }
    return rc;
}

/* ---- the answers ---- */

struct answer {
    struct by *b;
    const struct group *g;
    bool any; /* has answered */
    struct arrow_reader **columns;
    uint32_t n_columns;
    struct merged_member *said; /* [g->n] */
    bool *told;
    int at; /* of the columns that are read */
    struct columns_of {
        const struct sql_column *list;
        uint32_t n;
    } * lists;
};

static struct member *member_of(const struct answer *a, uint32_t which)
{
    return &a->b->all->list[a->b->order[a->g->first + which].member];
}

static int keep_columns(void *arg, const struct sql_column *columns, uint32_t n)
{
    struct answer *a = arg;

    a->lists[a->n_columns - 1] = (struct columns_of){columns, n};
    return 0;
}

static int read_columns(struct answer *a, const struct merged_record *r)
{
    const struct answer_sink to = {.arg = a, .columns = keep_columns};
    struct arrow_reader **readers = NULL;
    struct columns_of *lists = NULL;

    if (a->n_columns >= a->g->n)
        return err_set(-EBADMSG, "its relay sent more columns than it has processes");
    readers = realloc(a->columns, (a->n_columns + 1) * sizeof(*readers));
    a->columns = readers != NULL ? readers : a->columns;
    lists = realloc(a->lists, (a->n_columns + 1) * sizeof(*lists));
    a->lists = lists != NULL ? lists : a->lists;
    if (readers == NULL || lists == NULL || arrow_reader_new(&to, &readers[a->n_columns]) < 0)
        return err_set(-ENOMEM, "no memory for columns");
    lists[a->n_columns] = (struct columns_of){NULL, 0};
    a->n_columns++;
    int rc = arrow_reader_feed(readers[a->n_columns - 1], r->data, r->size);
    return rc < 0 ? rc : arrow_reader_end(readers[a->n_columns - 1]);
}

static int read_member(struct answer *a, const struct merged_record *r)
{
    struct merged_member m;
    int rc = merged_read_member(r, a->g->n, a->n_columns, &m);

    if (rc == 0 && a->told[m.which])
        rc = err_set(-EBADMSG, "its relay named a process twice");
    if (rc < 0)
        return rc;
    a->told[m.which] = true;
    a->said[m.which] = m;
    a->any = a->any || m.error == 0;
    return 0;
}

static bool has_answered(const struct answer *a, uint32_t which)
{
    return a->told[which] && a->said[which].error == 0;
}

/* The first column says whose a row is. */
static int pass_columns(void *arg, const struct sql_column *columns, uint32_t n)
{
    const struct answer *a = arg;
    const struct members_sink *s = a->b->how->sink;
    int rc = n < 2 ? err_set(-EBADMSG, "its relay sent no columns") : 0;

    for (uint32_t i = 0; i < a->g->n && rc == 0; i++)
        if (has_answered(a, i))
            rc = s->columns(s->arg, member_of(a, i), columns + 1, n - 1);
    return rc;
}

static int pass_rows(void *arg, const struct answer_rows *rows)
{
    const struct answer *a = arg;
    struct sql_value whose;
    int rc = 0;

    for (uint32_t row = 0; row < answer_rows_count(rows) && rc == 0; row++) {
        answer_rows_value(rows, row, 0, &whose);
        bool known = whose.type == SQL_INT && whose.integer >= 0 && whose.integer < a->g->n &&
                     has_answered(a, (uint32_t)whose.integer);
        rc = known ? a->b->how->row(a->b->how->sink->arg, member_of(a, (uint32_t)whose.integer),
                                    rows, row)
                   : err_set(-EBADMSG, "its relay sent rows of one who has none");
    }
    return rc;
}

/* All records of one kind, in their order. */
static int each_record(struct answer *a, const struct buf *bytes, char kind,
                       int (*fn)(struct answer *a, const struct merged_record *r))
{
    struct merged_record r;
    size_t at = 0;
    int rc = 0;

    for (int more = 1; more == 1 && rc == 0;) {
        more = merged_read(bytes->data, bytes->size, &at, &r);
        rc = more < 0 ? more : more == 1 && r.kind == kind ? fn(a, &r) : 0;
    }
    return rc;
}

static struct arrow_reader *rows_reader; /* of the answer that is read; one thread */

static int read_rows(struct answer *a, const struct merged_record *r)
{
    return a->any && a->b->how->merge->size > 0
               ? arrow_reader_feed(rows_reader, r->data, r->size)
               : err_set(-EBADMSG, "its relay sent rows where none were asked for");
}

static void take_result(struct member *m, const struct merged_member *said)
{
    struct member_result *r = &m->result;

    *r = (struct member_result){.state = MEMBER_ANSWERED,
                                .rows = said->rows,
                                .bytes = said->bytes,
                                .elapsed_ns = said->elapsed_ns,
                                .lost = said->lost};
    if (said->error < 0)
        member_failed(m, MEMBER_FAILED, err_set(said->error, "%s", said->why));
    else
        (void)snprintf(r->note, sizeof(r->note), "%s", said->why);
    for (char *at = r->note; *at != '\0'; at++)
        *at = (unsigned char)*at < ' ' ? ' ' : *at;
}

static int fail_all(const struct answer *a, int rc, const char *why)
{
    const struct members_sink *s = a->b->how->sink;
    int fatal = 0;

    for (uint32_t i = 0; i < a->g->n && fatal == 0; i++) {
        struct member *m = member_of(a, i);
        m->result = (struct member_result){.state = MEMBER_FAILED};
        member_failed(m, MEMBER_FAILED, err_set(rc, "%s", why));
        a->b->only[m - a->b->all->list] = false;
        fatal = s->done(s->arg, m);
    }
    return fatal;
}

static int tell_columns(const struct answer *a, struct member *m, const struct merged_member *said)
{
    const struct members_sink *s = a->b->how->sink;
    int rc = 0;

    if (said->error == 0 && said->columns == MERGED_NONE)
        rc = err_set(-EBADMSG, "its relay sent no columns of it");
    else if (said->error == 0)
        rc = s->columns(s->arg, m, a->lists[said->columns].list, a->lists[said->columns].n);
    if (rc < 0)
        member_failed(m, MEMBER_FAILED, rc);
    return s->done(s->arg, m);
}

/* Pass on what the relay has said of each. */
static int tell_all(const struct answer *a)
{
    const struct members_sink *s = a->b->how->sink;
    static const struct merged_member silent = {.error = -EBADMSG,
                                                .why = "its relay did not name it"};
    bool columns = a->b->how->merge->size == 0;
    int rc = 0;

    for (uint32_t i = 0; i < a->g->n; i++) {
        struct member *m = member_of(a, i);
        a->b->only[m - a->b->all->list] = false;
        take_result(m, a->told[i] ? &a->said[i] : &silent);
    }
    for (uint32_t i = 0; i < a->g->n && rc == 0; i++) {
        struct member *m = member_of(a, i);
        rc = columns ? tell_columns(a, m, a->told[i] ? &a->said[i] : &silent) : s->done(s->arg, m);
        if (rc == 0 && !columns && m->result.state == MEMBER_ANSWERED)
            a->b->how->within(s->arg, m);
    }
    return rc;
}

static int read_answer(struct answer *a, const struct buf *bytes)
{
    const struct answer_sink to = {.arg = a, .columns = pass_columns, .rows = pass_rows};
    bool rows = a->b->how->merge->size > 0;
    int rc = each_record(a, bytes, 'C', read_columns);

    if (rc == 0)
        rc = each_record(a, bytes, 'M', read_member);
    rows_reader = NULL;
    if (rc == 0)
        rc = arrow_reader_new(&to, &rows_reader);
    if (rc == 0)
        rc = each_record(a, bytes, 'R', read_rows);
    if (rc == 0 && rows && a->any)
        rc = arrow_reader_end(rows_reader);
    arrow_reader_free(rows_reader);
    return rc;
}

static int take_answer(struct by *b, const struct group *g, const struct buf *bytes)
{
    struct answer a = {.b = b,
                       .g = g,
                       .said = calloc(g->n, sizeof(*a.said)),
                       .told = calloc(g->n, sizeof(*a.told))};
    char why[ERR_TEXT_BYTES];
    int rc = a.said != NULL && a.told != NULL ? read_answer(&a, bytes)
                                              : err_set(-ENOMEM, "no memory for an answer");

    (void)snprintf(why, sizeof(why), "%s", rc < 0 ? err_why(rc) : "");
    rc = rc < 0 ? fail_all(&a, rc, why) : tell_all(&a);
    for (uint32_t i = 0; i < a.n_columns; i++)
        arrow_reader_free(a.columns[i]);
    free(a.columns);
    free(a.lists);
    free(a.said);
    free(a.told);
    return rc;
}

/* One that could not be asked so is asked otherwise; one that took all its time is not. */
static int take_run(struct by *b, const struct group *g, const struct remote_run *run)
{
    const struct answer a = {.b = b, .g = g};

    if (run->error == -ETIMEDOUT || run->error == -EMSGSIZE)
        return fail_all(&a, run->error, run->why);
    if (run->error < 0 || run->status > 0)
        return 0;
    return take_answer(b, g, &run->out);
}

/* How far they have come; what cannot be is not said. */
static void show_progress(void *arg, const struct remote_run *list, uint32_t n)
{
    struct by *b = arg;
    const struct members_sink *s = b->how->sink;
    uint32_t done = 0, asked = 0;

    for (uint32_t i = 0; i < n; i++) {
        struct group *g = &b->groups[i];
        if (list[i].runs)
            g->ended = merged_progress(list[i].out.data, list[i].out.size, &g->at, g->ended);
        bool whole = !list[i].runs && list[i].out.size > 0;
        done += whole || g->ended > g->n ? g->n : g->ended;
    }
    for (uint32_t i = 0; i < b->all->n; i++)
        asked += b->only[i];
    (void)s->tick(s->arg, done, asked);
}

static int ask_all(struct by *b)
{
    struct remote_run *runs = calloc(b->n_groups + 1, sizeof(*runs));
    const struct remote_limits limits = {.at_once = members_at_once(ASK_AT_ONCE) / 2 + 1,
                                         .timeout_ns = timeout_of(b) + grace_of(b),
                                         .bytes = b->how->all_bytes,
                                         .all_bytes = b->how->all_bytes,
                                         .tick = b->how->sink->tick != NULL ? show_progress : NULL,
                                         .arg = b};

    if (runs == NULL)
        return err_set(-ENOMEM, "no memory for questions to relays");
    for (uint32_t i = 0; i < b->n_groups; i++) {
        const struct group *g = &b->groups[i];
        runs[i] = (struct remote_run){.host = b->order[g->first].relay,
                                      .question = &g->text,
                                      .error = g->n < MEMBERS_LEAST ? -ENOTSUP : 0};
    }
    int rc = remote_runs(runs, b->n_groups, &limits);
    for (uint32_t i = 0; i < b->n_groups; i++) {
        rc = rc == 0 ? take_run(b, &b->groups[i], &runs[i]) : rc;
        remote_run_done(&runs[i]);
    }
    free(runs);
    return rc;
}

int members_query_relays(struct members *m, const struct members_by_relays *by, bool *only)
{
    const char *off = getenv("PROBING_RELAY_MERGE");
    struct by b = {.all = m, .how = by, .only = only};
    int rc = off != NULL && strcmp(off, "0") == 0 ? 0 : look_at_hosts(&b);

    if (rc == 0 && b.n_hosts > 0)
        rc = put_in_order(&b);
    if (rc == 0)
        rc = make_groups(&b);
    if (rc == 0 && b.n_groups > 0)
        rc = ask_all(&b);
    for (uint32_t i = 0; i < b.n_groups; i++)
        buf_done(&b.groups[i].text);
    free(b.groups);
    free(b.order);
    free(b.hosts);
    return rc;
}
