/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/stored_test.c - SQL over the store: ids as keys, pruning, tails, undrained rows.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/ring/ring.h"
#include "core/sql/sql.h"
#include "core/store/store.h"
#include "tests/test.h"

#define ROWS 100000

static struct sql *engine;
static struct store *store;
static struct table *table;

static int add_bytes(void *arg, const char *data, size_t size)
{
    return buf_add(arg, data, size);
}

/* The answer as CSV without its header, lines joined by ';', or the error. */
static const char *ask_from(const char *text, uint64_t from_row)
{
    static char answer[4096];
    struct sql_options o = {.from_row = from_row};
    struct sql_report report;
    struct sql_writer *w;
    struct buf out;
    size_t n = 0;
    buf_init(&out, 1 << 22);
    if (sql_writer_new(SQL_FORMAT_CSV, 0, add_bytes, &out, &w) < 0)
        return "no writer";
    struct sql_sink sink = sql_writer_sink(w);
    int rc = sql_run(engine, text, strlen(text), &o, &sink, &report);
    const char *from = rc < 0 ? err_text() : strstr(buf_text(&out), "\r\n") + 2;
    for (; *from && n < sizeof(answer) - 1; from++)
        if (*from != '\r')
            answer[n++] = *from == '\n' ? ';' : *from;
    answer[n] = '\0';
    sql_writer_free(w);
    buf_done(&out);
    return answer;
}

static const char *ask(const char *text)
{
    return ask_from(text, 0);
}

/* Rows of a moment (monotonic ns), 0: of now. */
static bool append_at(int first, int n, uint64_t ts)
{
    static uint64_t ids[3];
    static const char *const names[] = {"alpha", "beta", "gamma"};
    for (int i = 0; i < 3; i++)
        if (intern(store_interns(store), names[i], strlen(names[i]), &ids[i]) < 0)
            return false;
    for (int i = first; i < first + n; i++) {
        union probing_cell c[3] = {
            {.i = i / 10}, {.u = i % 4 == 3 ? 0 : ids[i % 4]}, {.f = 0.5 * (i % 8)}};
        if (i % 5 == 4)
            c[2].u = PROBING_NULL_F64;
        int rc;
        while ((rc = ring_append(table, ts ? ts : clock_now(), c, 3, i % 20 ? "tail-text" : NULL,
                                 (uint32_t)(i % 10))) == -ENOSPC)
            if (store_drain(store) < 0)
                return false;
        if (rc < 0)
            return false;
    }
    return true;
}

static bool append_rows(int first, int n)
{
    return append_at(first, n, 0);
}

static int ignore_rows(void *arg, const struct sql_rows *rows)
{
    (void)arg, (void)rows;
    return 0;
}

TEST(groups_by_ids)
{
    CHECK_STR(ask("select name, count(*), count(value) from t.rows group by name order by 1"),
              "alpha,25000,20000;beta,25000,20000;gamma,25000,20000;,25000,20000;");
    CHECK_STR(ask("select name, n % 2, sum(value) from t.rows where n < 10 group by 1, 2 order by "
                  "1, 2 limit 2"),
              "alpha,0,8;alpha,1,10;");
    CHECK_STR(ask("select count(*) from t.rows where name = 'beta'"), "25000;");
    CHECK_STR(ask("select count(*) from t.rows where name like '%a%m%' or name in ('alpha')"),
              "50000;");
    CHECK_STR(ask("select upper(name), max(n) from t.rows where name is not null group by 1 order "
                  "by 1"),
              "ALPHA,9999;BETA,9999;GAMMA,9999;");
    CHECK_STR(ask("select distinct name from t.rows where name > 'alpha' order by name desc"),
              "gamma;beta;");
}

TEST(tails_are_texts)
{
    CHECK_STR(ask("select tail, count(*) from t.rows group by tail order by 1 limit 3"),
              "\"\",5000;t,10000;ta,10000;");
    CHECK_STR(ask("select max(tail), count(tail), count(*) from t.rows"),
              "tail-text,95000,100000;");
    CHECK_STR(ask("select count(*), count(tail), max(length(tail)) from t.rows where tail = '' or "
                  "tail is null"),
              "10000,5000,0;");
    CHECK_STR(ask("select n, tail from t.rows where tail = 'tail-text' order by n desc limit 2"),
              "9999,tail-text;9998,tail-text;");
}

TEST(scans_prune)
{
    CHECK_STR(ask("select count(*), min(n), max(n) from t.rows where n >= 9990 and n <= 9999 and "
                  "ts > now() - interval '1 hour'"),
              "100,9990,9999;");
    CHECK_STR(ask("select count(*) from t.rows where n = 5"), "10;");
    CHECK_STR(ask("select count(*) from t.rows where 9998 < n"), "10;");
    CHECK_STR(ask("select count(*) from t.rows where timestamp < now() - 3600"), "0;");
    CHECK_STR(ask("select count(*) from (select n as m, name from t.rows) x where x.m > 9998"),
              "10;");
    CHECK(strstr(ask("explain analyze select count(*) from t.rows where n > 9995"),
                 "segments pruned") != NULL);
}

/* A clock that goes 5 s wrong: the scan is told the bounds by its own. */
TEST(moved_moments_prune)
{
    static const char *const moved[] = {"- interval '5 s'", "+ interval '5 s'",
                                        "- interval '-5 s'"};
    char text[600], half[64], want[64];
    (void)snprintf(half, sizeof(half), "%s",
                   ask("select min(ts) + (max(ts) - min(ts)) / 2 from t.rows"));
    half[strcspn(half, ";")] = '\0';
    (void)snprintf(text, sizeof(text),
                   "select count(*), min(n), max(n) from t.rows where ts > timestamp '%s'", half);
    (void)snprintf(want, sizeof(want), "%s", ask(text));
    for (int i = 0; i < 3; i++) {
        (void)snprintf(text, sizeof(text),
                       "select count(*), min(n), max(n) from (select * replace (ts %s as ts) from "
                       "t.rows) where ts > timestamp '%s' %s",
                       moved[i], half, moved[i]);
        CHECK_STR(ask(text), want);
        (void)snprintf(text, sizeof(text),
                       "explain analyze select count(*) from (select * replace (ts %s as ts) from "
                       "t.rows) where ts > now() + interval '1 hour'",
                       moved[i]);
        CHECK(strstr(ask(text), "scan t.rows  (0 rows") != NULL);
    }
    CHECK_STR(ask("select count(*) from (select * replace (ts - interval '73000 days' as ts) from "
                  "t.rows) where ts < timestamp '2261-01-01'"),
              "100000;"); /* the bound would lie behind the last moment */
}

TEST(undrained_rows_are_seen)
{
    uint64_t next = store_next_row(store, table);
    CHECK(append_rows(ROWS, 25));
    CHECK_STR(ask("select count(*) from t.rows"), "100025;");
    CHECK_STR(ask_from("select count(*), min(n) from t.rows", next), "25,10000;");
}

TEST(some_can_be_followed)
{
    const struct table *t = NULL;
    const char *yes = "select n * 2, name from t.rows where n > 3";
    const char *no = "select count(*) from t.rows",
               *sub = "select 1 from t.rows where n > (select 1)";
    struct sql_options o = {.from_row = UINT64_MAX};
    struct sql_sink nothing = {.arg = NULL};
    struct sql_report report;
    CHECK_INT(sql_run(engine, yes, strlen(yes), &o, &nothing, &report), 0);
    CHECK_INT(report.rows, 0);
    CHECK_INT(report.next_row, store_next_row(store, table));
    o.from_row = 7;
    CHECK_INT(sql_run(engine, yes, strlen(yes), &o, &nothing, &report), 0);
    CHECK_INT(report.next_row, store_next_row(store, table));
    CHECK_INT(sql_run(engine, no, strlen(no), &o, &nothing, &report), 0);
    CHECK_INT(report.next_row, 0);
    CHECK_INT(sql_followable(engine, yes, strlen(yes), &t), 1);
    CHECK(t == table);
    CHECK_INT(sql_followable(engine, no, strlen(no), &t), 0);
    CHECK_INT(sql_followable(engine, sub, strlen(sub), &t), 0);
}

TEST(some_only_grow)
{
    static const char *const yes[] = {
        "select n, row_number() over (order by ts) as i from t.rows",
        "select n from t.rows order by ts desc",
        "select distinct name from t.rows",
        "select a.n from t.rows a join t.rows b on a.n = b.n",
        "select n from t.rows where n < 5 union all select n * 2 from t.rows",
        "select * from rows where n > (select 1)"};
    static const char *const no[] = {
        "select count(*) from t.rows",
        "select name, max(n) from t.rows group by 1",
        "select n from t.rows limit 3",
        "select n from t.rows where n > (select avg(n) from t.rows)",
        "select distinct on (name) name, n from t.rows order by name, n desc",
        "select n from t.rows except select n + 1 from t.rows",
        "select * from information_schema.tables",
        "select 1"};
    for (size_t i = 0; i < sizeof(yes) / sizeof(*yes); i++)
        if (!CHECK_INT(sql_grows(engine, yes[i], strlen(yes[i])), 1))
            printf("# %s\n", yes[i]);
    for (size_t i = 0; i < sizeof(no) / sizeof(*no); i++)
        if (!CHECK_INT(sql_grows(engine, no[i], strlen(no[i])), 0))
            printf("# %s\n", no[i]);
}

static uint64_t news_of(struct sql_news *news, const char *text, uint64_t from)
{
    struct sql_sink to = {.rows = ignore_rows}, sink = sql_news_sink(news, &to, from);
    struct sql_options o = {.max_rows = UINT64_MAX};
    CHECK_INT(sql_run(engine, text, strlen(text), &o, &sink, NULL), 0);
    return sql_news_told(news);
}

TEST(what_is_new_is_told_once)
{
    const char *same = "select name from t.rows where n < 2000", /* 20,000 rows, few different */
        *more = "select name from t.rows where n < 2001", *all = "select n, tail, ts from t.rows";
    struct sql_news *news = NULL;
    CHECK_INT(sql_news_new(&news), 0);
    CHECK_INT(news_of(news, same, UINT64_MAX), 0);
    CHECK_INT(news_of(news, same, 0), 0);
    CHECK_INT(news_of(news, more, 0), 10);
    CHECK_INT(news_of(news, same, 0), 0); /* some went */
    CHECK_INT(news_of(news, more, 0), 10);
    uint64_t there = store_next_row(store, table);
    CHECK_INT(news_of(news, all, there - 7), 7);
    CHECK(append_rows(ROWS + 25, 3));
    CHECK_INT(news_of(news, all, 0), 3);
    CHECK(news_of(news, same, 0) >= 20000); /* forgotten meanwhile */
    sql_news_free(news);
    CHECK(append_rows(ROWS + 28, SQL_NEWS_ROWS - ROWS));
    CHECK_INT(sql_news_new(&news), 0);
    struct sql_sink nothing = {.rows = ignore_rows}, sink = sql_news_sink(news, &nothing, 0);
    struct sql_options o = {.max_rows = UINT64_MAX};
    CHECK_INT(sql_run(engine, all, strlen(all), &o, &sink, NULL), -E2BIG);
    sql_news_free(news);
}

struct seen { /* buckets in order of arrival */
    int64_t begins[4096];
    uint32_t n;
    int64_t rows;
};

static int take_buckets(void *arg, const struct sql_rows *rows)
{
    struct seen *seen = arg;
    for (uint32_t i = 0; i < sql_rows_count(rows) && seen->n < 4096; i++) {
        struct sql_value v;
        sql_rows_value(rows, i, 0, &v);
        seen->begins[seen->n++] = v.integer;
        sql_rows_value(rows, i, 1, &v);
        seen->rows += v.integer;
    }
    return 0;
}

/* Rows come all the time: each bucket is given once, whole, and none is left out. */
TEST(each_closed_bucket_is_given_once)
{
    const struct table *t = NULL;
    const char *text = "select time_bucket(interval '1 ms', ts) as b, count(*) from t.rows where "
                       "n >= 200000 group by 1 order by 1";
    const char *all =
        "select time_bucket(interval '1 ms', ts), count(*) from t.rows where n >= 200000 "
        "group by 1 order by 1";
    const char *const such[] = {
        text, "select time_bucket('1s', ts), count(*) from t.rows group by 1",
        "select time_bucket('1s', ts) as b, name, max(tail) from t.rows where name <> 'x' group by "
        "b, name having count(*) > 1 order by 1 desc",
        "select * from (select date_trunc('hour', timestamp) as h, avg(n) as a from rows group by "
        "all) x where a > 3"};
    static const char *const others[] = {
        "select count(*) from t.rows", "select name, count(*) from t.rows group by 1",
        "select time_bucket('1 s', ts), count(*) from t.rows group by 1 limit 3",
        "select time_bucket('1 s', a.ts), count(*) from t.rows a, t.rows b group by 1"};
    static struct seen live, whole;
    struct sql_sink sink = {.arg = &live, .rows = take_buckets};
    struct sql_options o = {.closed = true, .from_ts = INT64_MAX};
    struct sql_report report;
    for (size_t i = 0; i < sizeof(such) / sizeof(*such); i++)
        if (!CHECK_INT(sql_bucketed(engine, such[i], strlen(such[i]), &t), 1) || !CHECK(t == table))
            printf("# %s\n", such[i]);
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
        CHECK_INT(sql_bucketed(engine, others[i], strlen(others[i]), &t), 0);
    sql_configure(engine, SQL_SET_LATE, 2 * NS_PER_MS);
    CHECK_INT(sql_run(engine, text, strlen(text), &o, &sink, &report), 0);
    CHECK_INT(live.n, 0);
    CHECK_INT(report.bucket_ns, NS_PER_MS);
    CHECK_INT(report.next_ts % (int64_t)NS_PER_MS, 0);
    o.from_ts = report.next_ts;
    for (int i = 0; i < 400; i++) {
        CHECK(append_rows(2000000 + 5 * i, 5));
        CHECK_INT(sql_run(engine, text, strlen(text), &o, &sink, &report), 0);
        CHECK(report.next_ts >= o.from_ts);
        o.from_ts = report.next_ts;
    }
    int64_t end = (int64_t)clock_monotonic() + clock_utc_offset();
    while (o.from_ts <= end) { /* until the last row's bucket is closed */
        CHECK_INT(sql_run(engine, text, strlen(text), &o, &sink, &report), 0);
        o.from_ts = report.next_ts;
    }
    sink.arg = &whole;
    CHECK_INT(sql_run(engine, all, strlen(all), NULL, &sink, &report), 0);
    CHECK_INT(live.rows, 2000);
    CHECK_INT(whole.rows, 2000);
    CHECK_INT(live.n, whole.n);
    CHECK(memcmp(live.begins, whole.begins, live.n * sizeof(int64_t)) == 0);
    sql_configure(engine, SQL_SET_LATE, NS_PER_S);
}

/* Rows that come when their bucket has been told are counted, each once. */
TEST(late_rows_are_counted)
{
    static const char text[] =
        "select time_bucket('1ms', ts), count(*) from t.rows where n >= 300000 "
        "group by 1";
    struct sql_sink sink = {.rows = ignore_rows};
    struct sql_options o = {.closed = true, .from_ts = INT64_MAX}, late;
    struct sql_report report;
    int64_t begin = (int64_t)clock_monotonic() + clock_utc_offset();
    uint64_t then = clock_monotonic() + NS_PER_MS;
    CHECK(append_rows(3000000, 10));
    sql_configure(engine, SQL_SET_LATE, 0);
    o.from_ts = 0;
    do
        CHECK_INT(sql_run(engine, text, strlen(text), &o, &sink, &report), 0);
    while (report.next_ts < begin + 5 * (int64_t)NS_PER_MS);
    CHECK(report.next_row >= 10);
    late = (struct sql_options){.closed = true,
                                .late = true,
                                .late_ts = begin,
                                .from_ts = report.next_ts,
                                .from_row = report.next_row};
    CHECK_INT(sql_run(engine, text, strlen(text), &late, &sink, &report), 0);
    CHECK_INT(report.late, 0);
    late.from_row = report.next_row;
    CHECK(append_at(3000010, 7, then));
    CHECK(append_at(5, 1, then)); /* not what is asked for */
    late.to_row = report.next_row + 5;
    CHECK_INT(sql_run(engine, text, strlen(text), &late, &sink, &report), 0);
    CHECK_INT(report.late, 5);
    late.from_row = report.next_row;
    late.to_row = 0;
    CHECK_INT(sql_run(engine, text, strlen(text), &late, &sink, &report), 0);
    CHECK_INT(report.late, 2);
    late.from_row = 0;
    late.late_ts = late.from_ts; /* of buckets that were told none came late */
    CHECK_INT(sql_run(engine, text, strlen(text), &late, &sink, &report), 0);
    CHECK_INT(report.late, 0);
    sql_configure(engine, SQL_SET_LATE, NS_PER_S);
}

static int nobody_came(void *arg, const struct table *t, char *text, size_t n)
{
    (void)arg;
    (void)snprintf(text, n, "nobody came");
    return strcmp(t->name, "none") == 0 ? 0 : -ENOENT;
}

static int scan_nothing(void *self, struct probing_rows *out)
{
    (void)self;
    (void)out;
    return 0;
}

/* Why the answer to a statement has no rows. */
static const char *why(const char *text)
{
    static struct sql_report report;
    const struct sql_sink nothing = {.arg = NULL};
    CHECK_INT(sql_run(engine, text, strlen(text), NULL, &nothing, &report), 0);
    return report.empty;
}

TEST(answers_say_why_they_have_no_rows)
{
    static const struct {
        const char *text, *why;
    } all[] = {
        {"select * from t.none", "t.none has no rows: nobody came"},
        {"select count(*), avg(n) from t.none", "t.none has no rows: nobody came"},
        {"select * from (select n from t.none where n > 3) x", "t.none has no rows: nobody came"},
        {"select r.n from t.rows r join t.none e on r.n = e.n", "t.none has no rows: nobody came"},
        {"select * from t.bare", "t.bare has no rows"},
        {"select * from t.empty", ""}, /* computed: that it has none is the answer */
        {"select * from t.rows where n < 0", ""},
        {"select count(*) from t.rows where n < 0", ""},
        {"select * from t.rows limit 0", ""},
        {"select n from t.rows union all select n from t.none", ""},
        {"select count(e.n) from t.rows r left join t.none e on r.n = e.n", ""},
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        CHECK_STR(why(all[i].text), all[i].why);
}

/* A subquery is planned to be looked at, and planned again for each row: the plan that the report
 * asks about a view's rows must be one that ran and is still there. */
TEST(views_of_subqueries_are_not_said_to_be_empty)
{
    static const struct sql_view views[] = {{.name = "some",
                                             .definition = "select n from t.rows",
                                             .why = "select 'nobody knows'",
                                             .plugin = "t",
                                             .loaded = true}};
    static const char *const all[] = {
        "select n from t.rows r where n < 2 and (select count(*) from some s where s.n = r.n) > 1",
        "select n from t.rows where n < 2 and n < (select count(*) from some)",
        "select r.n from t.rows r, lateral (select s.n from some s where s.n = r.n) l "
        "where r.n < 2",
        "with recursive r(n) as (select 3 union all select r.n - 1 from r "
        "where exists (select 1 from some s where s.n = r.n)) select n from r"};
    CHECK_INT(sql_declare_views(engine, views, 1), 0);
    CHECK_STR(why("select * from some where n < 0"), "some has no rows: nobody knows");
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        CHECK_STR(why(all[i]), "");
}

/* A hidden text is remembered no longer than the subquery that met it. */
TEST(secrets_stay_hidden_in_subqueries)
{
    const char *text = "select (select max(s.name) from t.rows s where s.n = r.n) "
                       "from t.rows r where r.n < 20";
    const struct sql_options o = {.hide_secrets = true};
    const struct sql_sink nothing = {.arg = NULL};
    for (int i = 0; i < 2; i++)
        CHECK_INT(sql_run(engine, text, strlen(text), &o, &nothing, NULL), 0);
}

TEST(tables_tell_rows_that_have_just_come)
{
    CHECK(append_rows(0, 7));
    CHECK_STR(ask("select buffered from probing.tables where name = 'rows'"), "0;");
}

int main(void)
{
    static const struct probing_column columns[] = {{.name = "n", .type = PROBING_I64},
                                                    {.name = "name", .type = PROBING_STR},
                                                    {.name = "value", .type = PROBING_F64}};
    static const struct probing_table_desc desc = {.size = sizeof(desc),
                                                   .column_size = sizeof(*columns),
                                                   .name = "t.rows",
                                                   .doc = "",
                                                   .columns = columns,
                                                   .n_columns = 3,
                                                   .tail_type = PROBING_STR,
                                                   .tail_name = "tail"};
    struct probing_table_desc none = desc, bare = desc, empty = desc;
    char directory[] = "/tmp/probing-sql-XXXXXX";
    struct tables *tables;
    struct table *t;
    none.name = "t.none";
    bare.name = "t.bare";
    empty.name = "t.empty";
    empty.scan = scan_nothing;
    empty.tail_type = 0;
    empty.tail_name = NULL;
    if (!mkdtemp(directory))
        return 1;
    struct store_options o = {.directory = directory, .max_bytes = 64u << 20};
    if (tables_new(&tables) || store_create(&o, tables, &store) ||
        store_table_add(store, "t", &desc, NULL, &table) ||
        store_table_add(store, "t", &none, NULL, &t) ||
        store_table_add(store, "t", &bare, NULL, &t) || tables_add(tables, "t", &empty, NULL, &t) ||
        store_about_add(store) || sql_new(tables, store, &engine) || !append_rows(0, ROWS)) {
        printf("# %s\n", err_text());
        return 1;
    }
    sql_ask_why(engine, nobody_came, NULL);
    RUN(answers_say_why_they_have_no_rows);
    RUN(views_of_subqueries_are_not_said_to_be_empty);
    RUN(secrets_stay_hidden_in_subqueries);
    RUN(groups_by_ids);
    RUN(tails_are_texts);
    RUN(scans_prune);
    RUN(moved_moments_prune);
    RUN(undrained_rows_are_seen);
    RUN(some_can_be_followed);
    RUN(some_only_grow);
    RUN(each_closed_bucket_is_given_once);
    RUN(late_rows_are_counted);
    RUN(what_is_new_is_told_once);
    RUN(tables_tell_rows_that_have_just_come);
    sql_free(engine);
    store_free(store);
    tables_free(tables);
    (void)file_remove_dir(directory);
    return test_end();
}
