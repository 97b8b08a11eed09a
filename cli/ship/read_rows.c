/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/ship/read_rows.c - ranges of rows out of the sources and to the destination.
 *
 * One thread.  Of each table that has news one range a turn, so that none waits for another's
 * flood.  The ranges stand in the state file before the first of them is sent.  What is held at a
 * time is bounded: some ranges of one table, HELD_BYTES together, sent before more is read.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/answer/columns.h"
#include "cli/ship/run.h"
#include "cli/target/target.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/terminal.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "sdk/lib/array.h"

#define GROUP_ROWS ((uint64_t)2 * SHIP_RANGE_ROWS)
#define GROUP_MEMBERS 64
#define EACH_BYTES ((size_t)16 << 20) /* of a range, unless it is one row */
#define HELD_BYTES ((size_t)64 << 20)
#define REFUSED_NS (60 * NS_PER_S) /* until a batch that was refused is tried again */
#define PARTS_MAX 4096
#define METRICS_MAX 20000 /* figures of a source: a core has some hundred */

/* One range that is to be read. */
struct item {
    uint32_t member, source_table;
    struct ship_source *source;
    struct arena mem; /* its columns */
    struct own_columns columns;
    struct answer_rows **parts;
    uint32_t n_parts, room;
    uint64_t rows;
    size_t bytes;
    bool crowded; /* it was given up because others held the memory */
};

struct group {
    struct ship_run *run;
    struct item **items; /* of one table's name */
    uint32_t n;
    size_t held;
};

static struct ship_table *table_of(const struct item *i)
{
    return &i->source->tables[i->source_table];
}

static void empty_item(struct item *i)
{
    for (uint32_t k = 0; k < i->n_parts; k++)
        answer_rows_free(i->parts[k]);
    free(i->parts);
    i->parts = NULL;
    i->n_parts = i->room = 0;
    i->rows = 0;
    i->bytes = 0;
    arena_done(&i->mem);
    arena_init(&i->mem, (size_t)8 << 20);
    i->columns = (struct own_columns){.n = 0};
}

/* ---- what comes ---- */

static struct item *item_of(const struct group *g, const struct member *m)
{
    for (uint32_t i = 0; i < g->n; i++)
        if (&g->run->members.list[g->items[i]->member] == m)
            return g->items[i];
    return NULL;
}

static int take_columns(void *arg, const struct member *m, const struct sql_column *columns,
                        uint32_t n)
{
    struct item *i = item_of(arg, m);

    return own_columns_keep(&i->mem, columns, n, &i->columns);
}

static int keep_rows(struct item *i, const struct answer_rows *rows)
{
    if (i->n_parts == PARTS_MAX)
        return err_set(-EBADMSG, "it sends its rows one by one");
    struct answer_rows **more =
        array_grow(i->parts, i->n_parts, &i->room, sizeof(struct answer_rows *), UINT32_MAX);
    if (more == NULL)
        return err_set(-ENOMEM, "no memory for rows");
    i->parts = more;
    int rc = answer_rows_keep(rows, &i->parts[i->n_parts]);
    i->n_parts += rc == 0;
    return rc;
}

static int take_rows(void *arg, const struct member *m, const struct answer_rows *rows)
{
    struct group *g = arg;
    struct item *i = item_of(g, m);
    const struct ship_table *t = table_of(i);
    size_t bytes = answer_rows_bytes(rows);

    i->rows += answer_rows_count(rows);
    if (i->rows > t->pending_to - t->next)
        return err_set(-EBADMSG, "it sends more rows than it was asked for");
    if (g->held + bytes > HELD_BYTES && g->held > i->bytes) {
        i->crowded = true;
        return err_set(-EFBIG, "too much at once");
    }
    int rc = keep_rows(i, rows);
    if (rc < 0)
        return rc;
    i->bytes += bytes;
    g->held += bytes;
    return 0;
}

static int ask_group(struct group *g)
{
    struct ship_run *r = g->run;
    const struct ship_table *t = table_of(g->items[0]);
    bool *only = calloc(r->members.n, sizeof(*only));
    struct members_range *ranges = calloc(r->members.n, sizeof(*ranges));
    char statement[256];
    const struct members_sink sink = {.arg = g, .columns = take_columns, .rows = take_rows};
    const struct members_ask ask = {.statement = statement,
                                    .ranges = ranges,
                                    .only = only,
                                    .max_bytes = g->n == 1 ? HELD_BYTES : EACH_BYTES};
    int rc = only == NULL || ranges == NULL ? err_set(-ENOMEM, "no memory to ask") : 0;

    (void)snprintf(statement, sizeof(statement), "select * from \"%s\".\"%s\"", t->schema, t->name);
    for (uint32_t i = 0; i < g->n && rc == 0; i++) {
        const struct item *one = g->items[i];
        only[one->member] = true;
        ranges[one->member] =
            (struct members_range){table_of(one)->next, table_of(one)->pending_to};
    }
    if (rc == 0)
        rc = members_query(&r->members, &ask, &sink);
    free(only);
    free(ranges);
    return rc;
}

/* ---- what goes ---- */

static void say_table(const struct ship_source *s, struct ship_table *t, const char *what)
{
    char label[80];

    if (!t->said)
        terminal_say("%s, %s.%s: %s", source_label(s, label, sizeof(label)), t->schema, t->name,
                     what);
    t->said = true;
}

void rows_look_ahead(struct ship_run *r, struct ship_source *s, struct ship_table *t)
{
    const struct target *of = &r->members.list[s->member].target;
    bool all = !of->stopped && of->kind != TARGET_THERE; /* else some may be in the process only */
    char what[320];

    if (t->end_row >= t->next)
        return;
    (void)snprintf(what, sizeof(what),
                   "the state file says that its first %llu rows were sent, and it never had more "
                   "than %llu: a machine that crashed has lost the others, or the state file is "
                   "not about what is there now; no row goes until it has more",
                   (unsigned long long)t->next, (unsigned long long)t->end_row);
    if (t->wanted && all)
        say_table(s, t, what);
    r->ahead = r->ahead || (t->wanted && all);
    t->end_row = t->next;
}

static void halve_range(struct ship_run *r, struct ship_table *t)
{
    t->pending_to = t->next + (t->pending_to - t->next + 1) / 2;
    r->halved++;
    r->state.changed = true;
}

/* fresh: none of it was there. */
static void commit_item(struct ship_run *r, const struct item *i, bool fresh)
{
    struct ship_table *t = table_of(i);
    uint64_t asked = t->pending_to - t->next;

    t->sent += i->rows;
    t->lost += asked - i->rows;
    r->state.totals.rows += i->rows;
    r->state.totals.lost += asked - i->rows;
    r->state.totals.batches++;
    t->next = t->pending_to;
    t->pending_to = 0;
    t->said = t->tried = false;
    t->begun = fresh ? r->to.claims.made : 0;
    r->state.changed = true;
}

/* Count the samples of a batch, but not of one that will be sent again: it is counted then. */
static void count_samples(struct ship_run *r, const struct ship_destination *before, int rc)
{
    if (rc < 0)
        return;
    r->state.totals.samples += r->to.samples - before->samples;
    r->state.totals.samples_refused += r->to.refused - before->refused;
    r->state.totals.samples_over += r->to.over - before->over;
}

static int send_item(struct ship_run *r, const struct item *i)
{
    struct ship_table *t = table_of(i);
    struct ship_batch b = {.source = i->source,
                           .table = t,
                           .from = t->next,
                           .to = t->pending_to,
                           .rows = i->rows,
                           .first = t->begun == 0 || t->begun != r->to.claims.made,
                           .n_columns = i->columns.n + SHIP_TAGS,
                           .parts = i->parts,
                           .n_parts = i->n_parts};
    struct arena mem;
    const struct ship_destination before = r->to;

    arena_init(&mem, (size_t)8 << 20);
    int rc = i->rows == 0 ? 0
                          : ship_batch_columns(&mem, i->columns.list, i->columns.n,
                                               r->to.kind->reserved, &b.columns);
    if (rc == 0 && i->rows > 0) {
        t->tried = true;
        rc = r->to.kind->send(&r->to, &b);
    }
    arena_done(&mem);
    count_samples(r, &before, rc);
    if (rc >= 0) {
        commit_item(r, i, i->rows > 0 && rc == 0);
        return 0;
    }
    if (rc == -EFBIG && t->pending_to - t->next > 1) {
        halve_range(r, t);
        return 0;
    }
    if (rc == -EREMOTEIO || rc == -EFBIG) {
        say_table(i->source, t, err_why(rc));
        r->state.totals.refused++;
        t->not_before_ns = clock_monotonic() + REFUSED_NS;
        return 0;
    }
    return rc;
}

/* It did not give the range.  true: it may, alone; what may have been sent already came alone, and
 * in other pieces it would be there twice. */
static bool was_crowded(struct ship_run *r, struct item *i, bool alone)
{
    const struct member_result *result = &r->members.list[i->member].result;
    struct ship_table *t = table_of(i);

    i->crowded = i->crowded || (result->error == -EFBIG && !alone && t->tried);
    if (result->error == -EFBIG && !i->crowded && t->pending_to - t->next > 1)
        halve_range(r, t);
    else if (result->error != -EFBIG)
        say_table(i->source, t, result->why);
    return i->crowded;
}

static int send_group(struct group *g)
{
    struct ship_run *r = g->run;
    int rc = ask_group(g);

    for (uint32_t i = 0; i < g->n && rc == 0; i++)
        if (r->members.list[g->items[i]->member].result.state == MEMBER_ANSWERED)
            rc = send_item(r, g->items[i]);
    for (uint32_t i = 0; i < g->n; i++) {
        struct item *one = g->items[i];
        bool failed = r->members.list[one->member].result.state == MEMBER_FAILED;
        one->crowded = rc == 0 && failed && was_crowded(r, one, g->n == 1);
        empty_item(one);
    }
    for (uint32_t i = 0; i < g->n && rc == 0 && g->n > 1; i++) {
        struct group alone = {.run = r, .items = &g->items[i], .n = 1};
        if (g->items[i]->crowded) {
            g->items[i]->crowded = false;
            rc = send_group(&alone);
        }
    }
    return rc;
}

/* ---- a turn ---- */

static bool has_news(const struct ship_table *t, uint64_t now)
{
    return t->wanted && t->listed && t->next < t->end_row && t->not_before_ns <= now;
}

/* Find the end of a table's next range; rows that retention has taken are counted and skipped. */
static void plan_range(struct ship_run *r, struct ship_table *t)
{
    if (t->pending_to > t->next)
        return; /* it may have been sent: the very same again */
    if (t->first_row > t->next) {
        uint64_t gone = (t->first_row < t->end_row ? t->first_row : t->end_row) - t->next;
        t->lost += gone;
        r->state.totals.lost += gone;
        t->next += gone;
        r->state.changed = true;
    }
    uint64_t left = t->end_row - t->next;
    t->pending_to = left == 0 ? 0 : t->next + (left < SHIP_RANGE_ROWS ? left : SHIP_RANGE_ROWS);
    r->state.changed = true;
}

static int by_table(const void *a, const void *b)
{
    const struct item *x = *(struct item *const *)a, *y = *(struct item *const *)b;
    const struct ship_table *s = table_of(x), *t = table_of(y);
    int order = strcmp(s->schema, t->schema);

    order = order != 0 ? order : strcmp(s->name, t->name);
    return order != 0 ? order : (x->member > y->member) - (x->member < y->member);
}

/* Are there rows of it to be sent, and by us? */
static bool is_ours(struct ship_run *r, struct ship_source *s, uint64_t now)
{
    bool news = false;
    char label[80];

    for (uint32_t t = 0; t < s->n_tables && !news; t++)
        news = has_news(&s->tables[t], now);
    if (!news)
        return false;
    int rc = ship_claims_take(&r->to.claims, s);
    if (rc < 0 && !s->said_claimed)
        terminal_say("%s: %s", source_label(s, label, sizeof(label)), err_why(rc));
    s->said_claimed = rc < 0;
    return rc == 0;
}

static int find_items(struct ship_run *r, struct item ***ret, uint32_t *ret_n)
{
    uint64_t now = clock_monotonic();
    uint32_t n = 0, k = 0;

    for (uint32_t i = 0; i < r->members.n; i++) {
        struct ship_source *s = r->source[i];
        if (s == NULL || s->ended || r->members.list[i].error < 0)
            continue;
        for (uint32_t t = 0; t < s->n_tables; t++)
            n += has_news(&s->tables[t], now);
    }
    *ret = calloc(n + 1, sizeof(struct item *));
    *ret_n = 0;
    if (*ret == NULL)
        return err_set(-ENOMEM, "no memory for %u tables", n);
    for (uint32_t i = 0; i < r->members.n; i++) {
        struct ship_source *s = r->source[i];
        if (s == NULL || s->ended || r->members.list[i].error < 0 || !is_ours(r, s, now))
            continue;
        for (uint32_t t = 0; t < s->n_tables; t++) {
            if (!has_news(&s->tables[t], now))
                continue;
            plan_range(r, &s->tables[t]);
            if (s->tables[t].pending_to == 0)
                continue;
            struct item *one = calloc(1, sizeof(*one));
            if (one == NULL)
                return err_set(-ENOMEM, "no memory for %u tables", n);
            *one = (struct item){.member = i, .source_table = t, .source = s};
            arena_init(&one->mem, (size_t)8 << 20);
            (*ret)[k++] = one;
            *ret_n = k;
        }
    }
    qsort(*ret, k, sizeof(struct item *), by_table);
    return 0;
}

static bool same_table(const struct item *a, const struct item *b)
{
    return strcmp(table_of(a)->schema, table_of(b)->schema) == 0 &&
           strcmp(table_of(a)->name, table_of(b)->name) == 0;
}

int rows_send(struct ship_run *r, uint64_t *ret_moved)
{
    struct ship_totals before = r->state.totals;
    uint64_t halved = r->halved;
    struct item **items = NULL;
    uint32_t n = 0;
    int rc = find_items(r, &items, &n);

    if (rc == 0)
        rc = ship_state_save(&r->state); /* what may be sent from now on is known */
    for (uint32_t i = 0, end; i < n && rc == 0 && !cli_interrupted; i = end) {
        uint64_t rows = 0;
        for (end = i; end < n && end - i < GROUP_MEMBERS && same_table(items[i], items[end]) &&
                      (end == i || rows < GROUP_ROWS);
             end++)
            rows += table_of(items[end])->pending_to - table_of(items[end])->next;
        struct group g = {.run = r, .items = &items[i], .n = end - i};
        rc = send_group(&g);
    }
    for (uint32_t i = 0; i < n; i++) {
        empty_item(items[i]);
        arena_done(&items[i]->mem);
        free(items[i]);
    }
    free(items);
    *ret_moved = r->state.totals.rows - before.rows + r->state.totals.lost - before.lost +
                 r->halved - halved;
    int saved = ship_state_save(&r->state);
    return rc < 0 ? rc : saved;
}

/* ---- figures ---- */

struct figures {
    struct ship_run *run;
    struct ship_metrics *of; /* [members.n] */
    struct arena *mem;       /* the same */
};

static const char *copy_text(struct arena *a, const struct sql_value *v)
{
    if (v->type != SQL_TEXT || memchr(v->text.data, '\0', v->text.size) != NULL)
        return "";
    return arena_text(a, v->text.data, v->text.size);
}

static int take_figures(void *arg, const struct member *m, const struct answer_rows *rows)
{
    struct figures *f = arg;
    size_t at = (size_t)(m - f->run->members.list);
    struct ship_metrics *all = &f->of[at];
    uint32_t n = answer_rows_count(rows);
    struct sql_value v[6];

    if (answer_rows_columns(rows) != 6 || all->n + n > METRICS_MAX)
        return err_set(-EBADMSG, "its metrics are none");
    struct ship_sample *more = realloc(all->list, (all->n + n) * sizeof(*more));
    if (more == NULL)
        return err_set(-ENOMEM, "no memory for metrics");
    all->list = more;
    for (uint32_t row = 0; row < n; row++) {
        for (uint32_t i = 0; i < 6; i++)
            answer_rows_value(rows, row, i, &v[i]);
        struct ship_sample s = {.name = copy_text(&f->mem[at], &v[0]),
                                .type = copy_text(&f->mem[at], &v[1]),
                                .unit = copy_text(&f->mem[at], &v[2]),
                                .labels = copy_text(&f->mem[at], &v[3]),
                                .help = copy_text(&f->mem[at], &v[5]),
                                .value = v[4].type == SQL_DOUBLE ? v[4].number : 0};
        if (s.name == NULL || s.type == NULL || s.unit == NULL || s.labels == NULL ||
            s.help == NULL)
            return err_set(-ENOMEM, "no memory for metrics");
        if (v[4].type == SQL_DOUBLE && s.name[0] != '\0')
            all->list[all->n++] = s;
    }
    return 0;
}

static int64_t utc_now(void)
{
    struct timespec t = {.tv_sec = 0};

    (void)clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * (int64_t)NS_PER_S + t.tv_nsec;
}

/* Sent as soon as it is there, so that one source's is held at a time. */
static int figures_done(void *arg, const struct member *m)
{
    struct figures *f = arg;
    struct ship_run *r = f->run;
    size_t at = (size_t)(m - r->members.list);
    struct ship_metrics *all = &f->of[at];
    const struct ship_destination before = r->to;
    int rc = 0;

    all->source = r->source[at];
    all->at_ns = utc_now();
    if (m->result.state == MEMBER_ANSWERED && all->n > 0)
        rc = r->to.kind->send_metrics(&r->to, all);
    count_samples(r, &before, rc);
    r->state.changed = true;
    free(all->list);
    *all = (struct ship_metrics){.n = 0};
    arena_done(&f->mem[at]);
    return rc == -EREMOTEIO || rc == -EFBIG ? 0 : rc;
}

int metrics_send(struct ship_run *r)
{
    uint32_t n = r->members.n;
    bool *only = calloc(n + 1, sizeof(*only)), any = false;
    struct figures f = {
        .run = r, .of = calloc(n + 1, sizeof(*f.of)), .mem = calloc(n + 1, sizeof(*f.mem))};
    const struct members_sink sink = {.arg = &f, .rows = take_figures, .done = figures_done};
    const struct members_ask ask = {.statement = "select name, type, unit, labels, value, help "
                                                 "from probing.metrics",
                                    .max_bytes = (size_t)8 << 20,
                                    .at_once = 8,
                                    .only = only};
    int rc = only == NULL || f.of == NULL || f.mem == NULL ? err_set(-ENOMEM, "no memory") : 0;

    for (uint32_t i = 0; i < n && rc == 0; i++) {
        const struct member *m = &r->members.list[i];
        arena_init(&f.mem[i], (size_t)16 << 20);
        only[i] = m->error == 0 && r->source[i] != NULL && !target_is_files(&m->target) &&
                  m->target.kind != TARGET_THERE;
        any = any || only[i];
    }
    if (rc == 0 && any && r->to.kind->metrics)
        rc = members_query(&r->members, &ask, &sink);
    for (uint32_t i = 0; f.of != NULL && f.mem != NULL && i < n; i++) {
        free(f.of[i].list);
        arena_done(&f.mem[i]);
    }
    free(only);
    free(f.of);
    free(f.mem);
    return rc;
}
