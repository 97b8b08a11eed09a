/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/distribute/ranks_test.h - some ranks in one process, an engine each, and one engine that
 * has the rows of all of them in one table: what a statement over all ranks must equal.
 *
 * Tables s.t and s.u, with values of all types, NULL, NaN, and texts that must be quoted.  A test's
 * own thread.
 */
#ifndef CORE_SQL_DISTRIBUTE_RANKS_TEST_H
#define CORE_SQL_DISTRIBUTE_RANKS_TEST_H

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/sql/distribute/answer_store.h"
#include "core/sql/distribute/distribute.h"
#include "tests/test.h"

#define RANKS_MAX 12

struct rank_table {
    const char *name;
    struct held_table *own[RANKS_MAX], *all;
};

struct ranks {
    struct arena mem;
    uint32_t n, seed;
    bool clocks; /* hosts' clocks go wrong: what a rank has is not what it would by the asker's */
    struct held own[RANKS_MAX], all;
    struct sql_value tags[RANKS_MAX][SQL_TAGS];
    char names[RANKS_MAX][16];
    struct rank_table t, u;
    struct sql_global_options options;
    bool silent[RANKS_MAX];  /* does not answer */
    bool relays;             /* others merge on the way: of even ranks, of odd ones, and below */
    uint32_t way_rows;       /* that have come of them */
    char notes[4096];        /* of the last statement */
    uint32_t asked, answers; /* of it */
};

static const struct sql_column t_columns[] = {{"k", SQL_INT, 0, ""},
                                              {"g", SQL_TEXT, 0, ""},
                                              {"x", SQL_DOUBLE, PROBING_SECONDS, "how long"},
                                              {"i", SQL_INT, 0, ""},
                                              {"b", SQL_BOOL, 0, ""},
                                              {"ts", SQL_TIMESTAMP, 0, ""},
                                              {"d", SQL_INTERVAL, 0, ""},
                                              {"day", SQL_DATE, 0, ""},
                                              {"bytes", SQL_BLOB, 0, ""},
                                              {"y", SQL_DOUBLE, 0, ""}};
static const struct sql_column u_columns[] = {
    {"k", SQL_INT, 0, ""}, {"label", SQL_TEXT, 0, ""}, {"w", SQL_DOUBLE, 0, ""}};
#define T_COLUMNS (sizeof(t_columns) / sizeof(t_columns[0]))
#define U_COLUMNS (sizeof(u_columns) / sizeof(u_columns[0]))

static inline uint32_t next_random(uint32_t *seed, uint32_t n)
{
    *seed = *seed * 1664525 + 1013904223;
    return (*seed >> 8) % n;
}

static inline struct sql_value text_value(enum sql_type type, const char *text, uint32_t size)
{
    return (struct sql_value){.type = type, .text = {text, size}};
}

static inline struct sql_value int_value(enum sql_type type, int64_t i)
{
    return (struct sql_value){.type = type, .integer = i};
}

/* How far the clock of each host goes wrong; of the last rank it is not known. */
static const int64_t host_offsets[] = {0, 5000000123, -2500000000};

static inline bool clock_known(const struct ranks *r, uint32_t m)
{
    return r->clocks && m != r->n - 1;
}

static inline int64_t offset_of(const struct ranks *r, uint32_t m)
{
    return clock_known(r, m) ? host_offsets[m / 2 % 3] : 0;
}

static inline void make_tags(struct ranks *r, uint32_t m)
{
    static const char *const hosts[] = {"node1", "node2", "it's"};
    static const char *const addresses[] = {"a:1", "a:2", "b:1", "b:2", "c:1", "c:2",
                                            "d:1", "d:2", "e:1", "e:2", "f:1", "f:2"};
    (void)snprintf(r->names[m], sizeof(r->names[m]), "rank %u", m);
    const char *host = hosts[m / 2 % 3];
    r->tags[m][SQL_TAG_HOST] = text_value(SQL_TEXT, host, (uint32_t)strlen(host));
    r->tags[m][SQL_TAG_ADDR] = text_value(SQL_TEXT, addresses[m], 3);
    r->tags[m][SQL_TAG_RANK] = int_value(SQL_INT, m);
    r->tags[m][SQL_TAG_NODE_RANK] = int_value(SQL_INT, m / 2);
    r->tags[m][SQL_TAG_LOCAL_RANK] = int_value(SQL_INT, m % 2);
    r->tags[m][SQL_TAG_ROLE] = m == 1 ? int_value(SQL_NULL, 0) : text_value(SQL_TEXT, "default", 7);
    enum sql_type clock = clock_known(r, m) ? SQL_INT : SQL_NULL;
    r->tags[m][SQL_TAG_CLOCK_OFFSET] = int_value(clock, offset_of(r, m));
    r->tags[m][SQL_TAG_CLOCK_ERROR] = int_value(clock, m * 1000);
}

static inline void random_t(uint32_t *seed, uint32_t m, struct sql_value *v)
{
    static const char *const texts[] = {"a",    "b",  "it's", "", "\xc3\xa9\xf0\x9f\x94\xa5",
                                        "%_\\", "a b"};
    static const char blobs[][3] = {{0, 1, 2}, {'a', 0, '\''}, {(char)0xff, (char)0xfe, 0}};
    uint32_t text = next_random(seed, 7), blob = next_random(seed, 3);
    v[0] = int_value(SQL_INT, next_random(seed, 5));
    v[1] = text_value(SQL_TEXT, texts[text], (uint32_t)strlen(texts[text]));
    v[2] = (struct sql_value){.type = SQL_DOUBLE,
                              .number = ((double)next_random(seed, 200001) - 100000) / 64};
    v[3] = int_value(SQL_INT, (int64_t)next_random(seed, 1000) - 500 + 1000 * m);
    v[4] = (struct sql_value){.type = SQL_BOOL, .boolean = next_random(seed, 2)};
    v[5] = int_value(SQL_TIMESTAMP,
                     1700000000000000000 + (int64_t)next_random(seed, 100000) * 1000000);
    v[6] = int_value(SQL_INTERVAL, (int64_t)next_random(seed, 5000) * 1000000);
    v[7] = int_value(SQL_DATE, (int64_t)(19000 + next_random(seed, 10)) * 86400 * 1000000000);
    v[8] = text_value(SQL_BLOB, blobs[blob], next_random(seed, 4));
    static const double odd[] = {NAN, INFINITY, -INFINITY, 0.1, 1e300, 5e-324, 3, 3, 4};
    v[9] = (struct sql_value){.type = SQL_DOUBLE, .number = odd[next_random(seed, 9)]};
    for (uint32_t c = 0; c < T_COLUMNS; c++)
        if (next_random(seed, 9) == 0)
            v[c].type = SQL_NULL;
}

static inline void random_u(uint32_t *seed, uint32_t m, struct sql_value *v)
{
    static const char *const labels[] = {"one", "two", "three"};
    const char *label = labels[next_random(seed, 3)];
    v[0] = int_value(SQL_INT, next_random(seed, 6));
    v[1] = text_value(SQL_TEXT, label, (uint32_t)strlen(label));
    v[2] = (struct sql_value){.type = SQL_DOUBLE, .number = next_random(seed, 100) + m * 0.5};
}

static inline int make_table(struct ranks *r, struct rank_table *t, const char *name,
                             const struct sql_column *columns, uint32_t n)
{
    struct sql_column *all = arena_zalloc(&r->mem, SQL_TAGS + n, sizeof(*all));
    t->name = name;
    for (int c = 0; c < SQL_TAGS; c++)
        all[c] = (struct sql_column){.name = sql_tag_names[c],
                                     .type = sql_tag_types[c],
                                     .unit = c < SQL_TAGS_SHOWN ? PROBING_PLAIN : PROBING_NS,
                                     .doc = ""};
    memcpy(all + SQL_TAGS, columns, n * sizeof(*all));
    struct held_table held = {
        .schema = "s", .name = name, .columns = columns, .n_columns = n, .n_parts = 1};
    int rc = 0;
    for (uint32_t m = 0; m < r->n && rc == 0; m++)
        rc = held_add(&r->own[m], &r->mem, &held, &t->own[m]);
    held = (struct held_table){.schema = "s",
                               .name = name,
                               .columns = all,
                               .n_columns = SQL_TAGS + n,
                               .n_front = SQL_TAGS,
                               .n_aside = SQL_TAGS - SQL_TAGS_SHOWN,
                               .n_parts = r->n};
    if (rc == 0)
        rc = held_add(&r->all, &r->mem, &held, &t->all);
    for (uint32_t m = 0; m < r->n && rc == 0; m++)
        t->all->parts[m].front = r->tags[m];
    return rc;
}

static inline void add_row(struct ranks *r, struct rank_table *t, uint32_t m,
                           const struct sql_value *v)
{
    struct sql_value own[T_COLUMNS];
    for (uint32_t c = 0; c < t->all->n_columns - SQL_TAGS; c++) {
        own[c] = v[c];
        own[c].integer += v[c].type == SQL_TIMESTAMP ? offset_of(r, m) : 0;
    }
    CHECK_INT(held_row(t->own[m], 0, own), 0);
    CHECK_INT(held_row(t->all, m, v), 0);
}

/* n ranks; the last but one has no rows of s.t. */
static inline int ranks_init_clocks(struct ranks *r, uint32_t n, uint32_t rows, uint32_t seed,
                                    bool clocks)
{
    *r = (struct ranks){.n = n, .seed = seed, .clocks = clocks};
    arena_init(&r->mem, 0);
    int rc = held_init(&r->all);
    for (uint32_t m = 0; m < n && rc == 0; m++) {
        make_tags(r, m);
        rc = held_init(&r->own[m]);
    }
    if (rc == 0)
        rc = make_table(r, &r->t, "t", t_columns, T_COLUMNS);
    if (rc == 0)
        rc = make_table(r, &r->u, "u", u_columns, U_COLUMNS);
    for (uint32_t m = 0; m < n && rc == 0; m++) {
        struct sql_value v[T_COLUMNS];
        for (uint32_t i = 0; i < rows && m != n - 2; i++) {
            random_t(&r->seed, m, v);
            add_row(r, &r->t, m, v);
        }
        for (uint32_t i = 0; i < 4; i++) {
            random_u(&r->seed, m, v);
            add_row(r, &r->u, m, v);
        }
    }
    return rc;
}

static inline int ranks_init(struct ranks *r, uint32_t n, uint32_t rows, uint32_t seed)
{
    return ranks_init_clocks(r, n, rows, seed, /* clocks= */ false);
}

static inline void ranks_done(struct ranks *r)
{
    for (uint32_t m = 0; m < r->n; m++)
        held_done(&r->own[m]);
    held_done(&r->all);
    arena_done(&r->mem);
}

/* ---- asking ---- */

struct forward { /* a rank's answer on its way */
    struct sql_global *g;
    uint32_t table, part, member, n;
};

static inline int take_schema(void *arg, const struct sql_column *columns, uint32_t n)
{
    const struct forward *f = arg;
    return sql_global_schema(f->g, f->table, f->member, columns, n);
}

/* Intervals that may have months come as text, as in Arrow. */
static inline int take_columns(void *arg, const struct sql_column *columns, uint32_t n)
{
    struct forward *f = arg;
    struct sql_column sent[64];
    for (uint32_t c = 0; c < n; c++) {
        sent[c] = columns[c];
        sent[c].type = columns[c].type == SQL_CALENDAR ? SQL_TEXT : columns[c].type;
    }
    f->n = n;
    return sql_global_columns(f->g, f->part, f->member, sent, n);
}

static inline void send_interval(struct sql_value *v, char room[SQL_CELL_BYTES])
{
    if (v->type != SQL_CALENDAR)
        return;
    uint32_t size = (uint32_t)sql_cell_text(v, /* exact= */ true, room);
    *v = text_value(SQL_TEXT, room, size);
}

static inline int take_rows(void *arg, const struct sql_rows *rows)
{
    const struct forward *f = arg;
    struct sql_value cells[64];
    static char texts[64][SQL_CELL_BYTES]; /* a test's own thread */
    int rc = 0;
    for (uint32_t i = 0; i < sql_rows_count(rows) && rc == 0; i++) {
        for (uint32_t c = 0; c < f->n; c++) {
            sql_rows_value(rows, i, c, &cells[c]);
            send_interval(&cells[c], texts[c]);
        }
        rc = sql_global_row(f->g, f->part, f->member, cells);
    }
    return rc;
}

static inline int ask_schemas(struct ranks *r, struct sql_global *g)
{
    int rc = 0;
    for (uint32_t t = 0; t < sql_global_tables(g) && rc == 0; t++) {
        const char *probe = sql_global_probe(g, t);
        for (uint32_t m = 0; m < r->n && rc == 0; m++) {
            struct forward f = {.g = g, .table = t, .member = m};
            const struct sql_sink sink = {.arg = &f, .columns = take_schema};
            rc = sql_run(r->own[m].engine, probe, strlen(probe), NULL, &sink, NULL);
            if (rc < 0)
                rc = sql_global_lacks(g, t, m, err_text(), /* gone= */ false);
        }
    }
    return rc;
}

/* ---- over others, who merge ---- */

struct way { /* one answer on its way up */
    struct ranks *r;
    struct sql_global *asker, *up;
    uint32_t part, up_part, n;
    uint32_t members[RANKS_MAX], places[RANKS_MAX]; /* whose rows: of all, and to `up` */
    bool whole[RANKS_MAX];
    uint32_t n_columns;
};

static inline int way_columns(void *arg, const struct sql_column *columns, uint32_t n)
{
    struct way *w = arg;
    struct forward f = {.g = w->up, .part = w->up_part};
    int rc = 0;
    w->n_columns = n;
    for (uint32_t i = 0; i < w->n && rc == 0; i++) {
        f.member = w->places[i];
        rc = w->whole[i] ? take_columns(&f, columns + 1, n - 1) : 0;
    }
    return rc;
}

static inline int way_rows(void *arg, const struct sql_rows *rows)
{
    const struct way *w = arg;
    struct sql_value cells[64];
    static char texts[64][SQL_CELL_BYTES]; /* a test's own thread */
    int rc = 0;
    for (uint32_t i = 0; i < sql_rows_count(rows) && rc == 0; i++) {
        for (uint32_t c = 0; c < w->n_columns; c++) {
            sql_rows_value(rows, i, c, &cells[c]);
            send_interval(&cells[c], texts[c]);
        }
        if (!CHECK(cells[0].type == SQL_INT && cells[0].integer >= 0 && cells[0].integer < w->n &&
                   w->whole[cells[0].integer]))
            return -EBADMSG;
        rc = sql_global_row(w->up, w->up_part, w->places[cells[0].integer], cells + 1);
        w->r->way_rows += w->up == w->asker;
    }
    return rc;
}

static inline int way_up(struct way *w, const struct buf *question);

static inline int way_own(struct way *w, struct sql_global *g, uint32_t i)
{
    struct forward f = {.g = g, .member = i};
    const struct sql_sink sink = {.arg = &f, .columns = take_columns, .rows = take_rows};
    uint32_t m = w->members[i];
    const char *text = sql_global_statement(w->asker, w->part, m);
    if (w->r->silent[m]) {
        sql_global_failed(g, 0, i, "it was silent");
        return 0;
    }
    int rc = sql_run(w->r->own[m].engine, text, strlen(text), NULL, &sink, NULL);
    if (rc == 0)
        sql_global_answered(g, 0, i, 1000);
    w->whole[i] = rc == 0;
    return rc;
}

static inline int way_half(struct way *w, struct sql_global *g, uint32_t first, uint32_t end,
                           const struct buf *question)
{
    struct way below = {.r = w->r, .asker = w->asker, .part = w->part, .up = g};
    for (uint32_t i = first; i < end; i++) {
        below.members[below.n] = w->members[i];
        below.places[below.n++] = i;
    }
    int rc = way_up(&below, question);
    for (uint32_t i = first; i < end && rc == 0; i++) {
        w->whole[i] = below.whole[i - first];
        if (!w->whole[i])
            sql_global_failed(g, 0, i, "it was silent");
    }
    return rc;
}

/* One answer of those who are in it, two of whom are asked and more of whom are halved. */
static inline int way_up(struct way *w, const struct buf *question)
{
    const struct sql_sink sink = {.arg = w, .columns = way_columns, .rows = way_rows};
    struct sql_global *g = NULL;
    bool any = false;
    int rc = sql_global_from_question(question->data, question->size, w->n, &w->r->options, &g);
    for (uint32_t i = 0; i < w->n && rc == 0; i++) {
        struct buf tags;
        buf_init(&tags, 4096);
        rc = sql_global_question_member(w->asker, w->part, w->members[i], &tags);
        if (rc == 0)
            rc = sql_global_take_member(g, i, buf_text(&tags), tags.size);
        buf_done(&tags);
    }
    for (uint32_t i = 0; i < w->n && rc == 0 && w->n <= 2; i++)
        rc = way_own(w, g, i);
    if (rc == 0 && w->n > 2)
        rc = way_half(w, g, 0, w->n / 2, question);
    if (rc == 0 && w->n > 2)
        rc = way_half(w, g, w->n / 2, w->n, question);
    for (uint32_t i = 0; i < w->n; i++)
        any = any || w->whole[i];
    if (rc == 0 && any)
        rc = sql_global_run_merge(g, &sink, NULL);
    for (uint32_t i = 0; i < w->n && rc == 0; i++)
        if (w->whole[i])
            sql_global_answered(w->up, w->up_part, w->places[i], 1000);
    sql_global_free(g);
    return rc;
}

/* 1: it may be asked so, and has been. */
static inline int ask_way(struct ranks *r, struct sql_global *g, uint32_t part)
{
    struct buf question;
    buf_init(&question, 1 << 16);
    int asked = r->relays ? sql_global_question(g, part, &question) : 0, rc = 0;
    for (uint32_t odd = 0; odd < 2 && asked == 1 && rc == 0; odd++) {
        struct way w = {.r = r, .asker = g, .up = g, .part = part, .up_part = part};
        for (uint32_t m = odd; m < r->n; m += 2)
            if (sql_global_statement(g, part, m)) {
                w.members[w.n] = m;
                w.places[w.n++] = m;
            }
        rc = w.n ? way_up(&w, &question) : 0;
        for (uint32_t i = 0; i < w.n && rc == 0; i++)
            if (!w.whole[i])
                sql_global_failed(g, part, w.places[i], "it was silent");
    }
    buf_done(&question);
    return rc < 0 ? rc : asked;
}

static inline int ask_parts(struct ranks *r, struct sql_global *g)
{
    for (uint32_t p = 0; p < sql_global_parts(g); p++) {
        int way = ask_way(r, g, p);
        if (way < 0)
            return way;
        if (way == 1)
            continue;
        for (uint32_t m = 0; m < r->n; m++) {
            struct forward f = {.g = g, .part = p, .member = m};
            const struct sql_sink sink = {.arg = &f, .columns = take_columns, .rows = take_rows};
            const char *text = sql_global_statement(g, p, m);
            if (!text)
                continue;
            int rc = r->silent[m]
                         ? err_set(-ETIMEDOUT, "it was silent")
                         : sql_run(r->own[m].engine, text, strlen(text), NULL, &sink, NULL);
            if (rc == -EFBIG)
                return rc;
            if (rc < 0)
                sql_global_failed(g, p, m, err_text());
            else
                sql_global_answered(g, p, m, 1000);
        }
    }
    return 0;
}

static inline int ranks_prepare(struct ranks *r, const char *text, struct sql_global **ret)
{
    int rc = sql_global_new(text, strlen(text), &r->options, ret);
    if (rc < 0)
        return rc;
    for (uint32_t m = 0; m < r->n && rc >= 0; m++)
        rc = sql_global_member(*ret, r->names[m], r->tags[m]);
    if (rc >= 0)
        rc = ask_schemas(r, *ret);
    if (rc == 0)
        rc = sql_global_plan(*ret);
    if (rc < 0) {
        sql_global_free(*ret);
        *ret = NULL;
    }
    return rc;
}

static inline int add_bytes(void *arg, const char *data, size_t size)
{
    return buf_add(arg, data, size);
}

/* Over all ranks, as JSON without its end. */
static inline int ranks_ask(struct ranks *r, const char *text, struct buf *ret)
{
    struct sql_global *g;
    struct sql_writer *w;
    int rc = ranks_prepare(r, text, &g);
    if (rc < 0)
        return rc;
    if (!sql_global_only_explains(g))
        rc = ask_parts(r, g);
    if (rc == 0)
        rc = sql_writer_new(SQL_FORMAT_JSON, 0, add_bytes, ret, &w);
    if (rc == 0) {
        struct sql_sink sink = sql_writer_sink(w);
        struct sql_report report;
        rc = sql_global_run(g, &sink, &report);
        report.elapsed_ns = 0;
        report.empty[0] = '\0';
        if (rc == 0)
            rc = sql_writer_finish(w, &report);
        sql_writer_free(w);
    }
    (void)snprintf(r->notes, sizeof(r->notes), "%s", sql_global_notes(g));
    r->asked = sql_global_asked(g);
    r->answers = sql_global_answers(g);
    sql_global_free(g);
    return rc;
}

/* The same of the one engine that has all rows. */
static inline int ranks_ask_one(struct ranks *r, const char *text, struct buf *ret)
{
    struct sql_writer *w;
    struct buf plain;
    buf_init(&plain, 1 << 20);
    while (*text) {
        bool skip = strncmp(text, "global.", 7) == 0;
        (void)buf_add(&plain, text, !skip);
        text += skip ? 7 : 1;
    }
    int rc = sql_writer_new(SQL_FORMAT_JSON, 0, add_bytes, ret, &w);
    if (rc == 0) {
        struct sql_sink sink = sql_writer_sink(w);
        struct sql_report report;
        rc = sql_run(r->all.engine, buf_text(&plain), plain.size, NULL, &sink, &report);
        report.elapsed_ns = 0;
        report.empty[0] = '\0';
        if (rc == 0)
            rc = sql_writer_finish(w, &report);
        sql_writer_free(w);
    }
    buf_done(&plain);
    return rc;
}

#endif
