/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/distribute/distribute_test.c - statements over ranks of one process: the same answers as
 * one table with all rows.
 *
 * With arguments, `ask SQL`: that is asked and shown.  A test's own thread.
 */
#include "core/sql/distribute/ranks_test.h"
#include "tests/fail_alloc.h"

static struct ranks ranks;

static void try(const char *text)
{
    struct buf all, one;
    buf_init(&all, 1 << 24);
    buf_init(&one, 1 << 24);
    int rc = ranks_ask_one(&ranks, text, &one);
    if (!CHECK_INT(rc, 0))
        printf("# one: %s\n# %s\n", text, err_text());
    rc = ranks_ask(&ranks, text, &all);
    if (!CHECK_INT(rc, 0))
        printf("# all: %s\n# %s\n", text, err_text());
    if (strcmp(buf_text(&all), buf_text(&one)) != 0) {
        printf("# %s\n", text);
        CHECK_STR(buf_text(&all), buf_text(&one));
    }
    buf_done(&all);
    buf_done(&one);
}

TEST(the_same_as_one_table)
{
    static const char *const texts[] = {
        "select count(*) from global.s.t",
        "select _rank, count(*) from global.s.t group by 1 order by 1",
        "select k, sum(x), avg(x), min(x), max(x), count(x) from global.s.t group by k order by k",
        "select k, sum(i), avg(i), min(i), max(i) from global.s.t where x > 0 group by k order by "
        "k",
        "select g, min(ts), max(ts), avg(ts), sum(d), avg(d) from global.s.t group by g order by g",
        "select _host, k, count(*) c from global.s.t where _rank < 5 and k is not null group by 1, "
        "2 "
        "having count(*) > 3 order by c desc, 1, 2 limit 7",
        "select count(distinct g), count(distinct k) from global.s.t",
        "select k % 2 as p, count(distinct i % 7), sum(x) from global.s.t group by p order by p",
        "select bool_and(b), bool_or(b), bool_and(i > -99999) from global.s.t",
        "select min(g), max(g), min(bytes), max(bytes), min(day), max(b) from global.s.t",
        "select k, first(i), last(i), any_value(g) from global.s.t group by k order by k",
        "select arg_min(g, x), arg_max(i, ts), max_by(bytes, i) from global.s.t",
        "select median(x), quantile_cont(x, 0.9), mode(g) from global.s.t",
        "select histogram(x, 5) from global.s.t where k = 1",
        "select string_agg(g, '|' order by i) from global.s.t where k = 2",
        "select json_agg(j order by i) from (select i, json_build_array(i, g) as j from global.s.t "
        "order by i limit 5) q",
        "select json_build_array(k, to_json(g)), json_build_object('k', j) from (select k, g, "
        "json_build_array(k, i) as j, count(*) from global.s.t group by 1, 2, 3) q order by 1, 2",
        "select * from global.s.t order by i, _rank, x limit 20",
        "select * exclude (bytes, g), k + 1 from global.s.t where x > 1000 order by all",
        "select distinct k, b from global.s.t order by 1, 2",
        "select _rank, i from global.s.t order by i desc limit 5 offset 3",
        "select i from global.s.t limit 5",
        "select a.k, count(*), sum(b.w) from global.s.t a join global.s.u b on a.k = b.k and "
        "a._rank "
        "= b._rank group by 1 order by 1",
        "select a._rank, b.label, a.i from global.s.t a left join global.s.u b using (k) where a.x "
        "> "
        "1400 order by all",
        "with m as (select _rank r, avg(x) v from global.s.t group by 1) select a.r, a.v - b.v "
        "from m "
        "a, m b where a.r < b.r order by 1, 2",
        "select _rank, avg(x) from global.s.t group by 1 having avg(x) > (select avg(x) from "
        "global.s.t) order by 1",
        "select k, i, rank() over (partition by k order by i desc) r from global.s.t qualify r <= "
        "2 "
        "order by k, i",
        "select k, sum(sum(i)) over (order by k) from global.s.t group by k order by k",
        "select k from global.s.t where _rank = 0 union select k from global.s.u where _rank = 1 "
        "order by 1",
        "select count(*) filter (where _rank = 1), count(*) filter (where k = 1 and _rank > 2) "
        "from "
        "global.s.t",
        "select max(_rank), count(distinct _host), min(_addr) from global.s.t where k = 3",
        "select k, min(_rank) from global.s.t group by k order by k",
        "select count(*), sum(x), avg(x), max(g) from global.s.t where k = 99",
        "select k, count(*) from global.s.t where k = 99 group by k",
        "select _host || '/' || g as h, count(*) from global.s.t group by h order by h",
        "select date_trunc('minute', ts) as m, count(*) from global.s.t group by m order by m",
        "select case when x > 0 then 'up' else 'down' end as way, sum(i) from global.s.t group by "
        "way order by way",
        "select _role is null as r, count(*) from global.s.t group by 1 order by 1",
        "select t.k, global_t.n from (select k, count(*) n from global.s.t group by k) as global_t "
        "join global.s.u as t using (k) order by 1, 2, t.w",
        "select i from global.s.t where i in (select max(i) from global.s.t group by _rank) order "
        "by "
        "i",
        "select count(*) from global.s.t a where exists (select 1 from global.s.u b where b.k = "
        "a.k "
        "and b._rank = a._rank)",
        "select t.x from global.s.t where t.i > 0 and t._rank = 0 order by s.t.x limit 3",
        "select bytes, g from global.s.t where bytes is not null order by bytes, g, i limit 9",
        "select timestamp from global.s.t order by timestamp limit 3",
        "from global.s.u order by all limit 2",
        "select k, count(*) from global.s.t group by all order by all",
        "select sum(x) + count(*) * 2 as v, -min(i) from global.s.t having count(*) > 5",
        "select k + 1 as j, count(*) from global.s.t group by j order by j desc nulls last",
        "select i % 3 as m, avg(m) from (select i, k as m from global.s.t) t group by i % 3 order "
        "by "
        "1",
        "select k, count(*) from global.s.t where g like '%''%' or g = 'é🔥' group by k order by k",
        "select avg(x) filter (where b), sum(i) filter (where not b and k > 1) from global.s.t",
        "select count(distinct g) filter (where b), sum(distinct k) from global.s.t",
        "select _rank, k, sum(x) from global.s.t where _rank in (0, 2) and _host = 'node1' group "
        "by 1, "
        "2 order by sum(x) limit 4",
        "select cast(x as numeric(10, 2)), d, day from global.s.t where x is not null order by x "
        "limit 3",
        "select k, any_value(g) filter (where b), first(i) filter (where i > 0) from global.s.t "
        "group "
        "by k order by k",
        "select count(*) from global.s.t where ts < now()",
        "select _rank, i from global.s.t order by _rank, i limit 4",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        try(texts[i]);
}

/* ---- merged on the way ---- */

static void ask_merged(const char *text, struct buf *ret)
{
    ranks.relays = true;
    ranks.way_rows = 0;
    if (!CHECK_INT(ranks_ask(&ranks, text, ret), 0))
        printf("# %s: %s\n", text, err_text());
    ranks.relays = false;
}

TEST(merged_on_the_way_it_is_the_same)
{
    static const char *const texts[] = {
        "select count(*), sum(x), sum(i), avg(i), avg(ts), sum(d), min(g), max(y) from global.s.t",
        "select k, count(*), sum(x), avg(x), max(i), bool_or(b) from global.s.t group by k order "
        "by "
        "k",
        "select k, g, count(*) filter (where x > 0) from global.s.t group by 1, 2 order by 1, 2",
        "select k, count(distinct g), sum(distinct i), sum(x) from global.s.t group by k order by "
        "k",
        "select k, arg_min(i, x), arg_max(g, x), first(i), any_value(g) filter (where b) from "
        "global.s.t group by k order by k",
        "select count(*), sum(x) from global.s.t where k = 99",
        "select approx_quantile(x, 0.3), approx_quantile(y, 0.9) from global.s.t",
        "select distinct k from global.s.t group by k order by k",
        "select _rank, _host, k, sum(i) from global.s.t group by 1, 2, 3",
        "select _host, k, sum(i), max(_rank), count(*) filter (where _rank % 2 = 1) from "
        "global.s.t group by 1, 2 order by 1 desc, 2",
        "select k, max(_rank), count(*) from global.s.t group by k order by k desc limit 2",
        "select _rank, k, avg(x) a, sum(i) + 1 from global.s.t group by 1, 2 order by a desc, "
        "count(*), 1 limit 7 offset 2",
        "select k, g, sum(d), first(i), last(g) from global.s.t group by 1, 2 order by 1, 2 limit "
        "5",
        "select _host, k, count(*) from global.s.t group by all order by k, _host limit 4",
        "select *, length(g) from global.s.t order by length(g) desc, _rank desc, i limit 9",
        "select i, interval '1 month' * k from global.s.t where x > 0 order by 1 limit 6 offset 3",
        "select i + 1 as j, _host || g from global.s.t order by j desc nulls first limit 11",
        "select k from global.s.t order by _rank % 2, _rank desc limit 17",
        "select x from global.s.t limit 3",
        "select distinct k, b from global.s.t",
        "select distinct _host, k from global.s.t where _rank > 0 and k < _rank order by 1, 2",
        "select distinct _role from global.s.t",
        "select distinct * from global.s.u",
        "with a as (select count(*) as n from global.s.t), b as (select _rank as r, count(*) as n "
        "from global.s.t group by 1) select r, b.n, a.n from a, b order by r",
        "select a.k, b.h from (select distinct k from global.s.u) a, (select distinct _host as h, "
        "k from global.s.u) b where a.k = b.k order by 1, 2",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        struct buf all, merged;
        buf_init(&all, 1 << 24);
        buf_init(&merged, 1 << 24);
        CHECK_INT(ranks_ask(&ranks, texts[i], &all), 0);
        ask_merged(texts[i], &merged);
        CHECK(ranks.way_rows > 0 || strstr(texts[i], "k = 99"));
        if (strcmp(buf_text(&all), buf_text(&merged)) != 0) {
            printf("# %s\n", texts[i]);
            CHECK_STR(buf_text(&merged), buf_text(&all));
        }
        buf_done(&all);
        buf_done(&merged);
    }
}

/* ---- what cannot be, and who is missing ---- */

static void check_error(const char *text, const char *words)
{
    struct buf b;
    buf_init(&b, 1 << 24);
    int rc = ranks_ask(&ranks, text, &b);
    if (!CHECK(rc < 0 && strstr(err_text(), words)))
        printf("# %s\n# %d %s\n# not %s\n", text, rc, rc < 0 ? err_text() : "", words);
    buf_done(&b);
}

/* Is that in the answer, or in the notes? */
static void check_answer(const char *text, const char *words, const char *notes)
{
    struct buf b;
    buf_init(&b, 1 << 24);
    int rc = ranks_ask(&ranks, text, &b);
    if (!CHECK(rc == 0 && strstr(buf_text(&b), words)))
        printf("# %s\n# %s\n# lacks %s\n", text, rc < 0 ? err_text() : buf_text(&b), words);
    if (!CHECK(strstr(ranks.notes, notes)))
        printf("# %s\n# notes %s\n# lack %s\n", text, ranks.notes, notes);
    buf_done(&b);
}

/* All ranks together send far more than is allowed to be held. */
TEST(groups_that_ranks_share_are_held_once)
{
    static const char text[] =
        "select count(*), sum(n), sum(s), max(length(r)) from (select repeat(coalesce(g, '-') || "
        "k, 32000) as r, count(*) as n, sum(i) as s from global.s.t group by 1) q";
    struct sql_global_options before = ranks.options;
    ranks.options.max_bytes = 13 << 20;
    try(text);
    struct buf b;
    buf_init(&b, 1 << 24);
    CHECK_INT(ranks_ask(&ranks,
                        "select count(*) from (select repeat(coalesce(g, '-') || k, 32000) as r, "
                        "first(i) as f from global.s.t group by 1) q",
                        &b),
              -EFBIG); /* in the order of ranks nothing can be made one before all are there */
    ranks.options = before;
    buf_done(&b);
}

TEST(tables_of_all_describe_themselves)
{
    check_answer("describe global.s.u",
                 "[\"_role\",\"text\",\"\",\"torchrun's ROLE_NAME\"],[\"k\",\"bigint\",\"\",\"\"],"
                 "[\"label\"",
                 "");
    check_answer("describe global.s.u",
                 "[\"_clock_error_ns\",\"bigint\",\"ns\",\"how far times of just now may be "
                 "from the asker's clock still; clocks drift; not part of *\"]]",
                 "");
    check_answer("describe select k, avg(x) as a from global.s.t group by 1",
                 "\"rows\":[[\"k\",\"bigint\",\"\",\"\"],[\"a\",\"double\",\"s\",\"\"]]", "");
    check_answer("show columns from global.s.t like 'D%'",
                 "\"rows\":[[\"d\",\"interval\",\"\",\"\"],[\"day\",\"date\",\"\",\"\"]]", "");
    check_answer("show columns from global.s.t like '_clock%'", /* which are not part of * */
                 "\"rows\":[[\"_clock_offset_ns\",\"bigint\",\"ns\",", "");
    check_answer("show columns from (select k, avg(x) as a from global.s.t group by 1) like 'a'",
                 "\"rows\":[[\"a\",\"double\",\"s\",\"\"]]", "");
    check_answer("show columns from global.s.t like 'no%'", "\"rows\":[]", "");
    check_answer("show tables from global like 'df_s%'",
                 "[\"information_schema\",\"df_settings\",\"COMPUTED\",6,", "");
    check_error("describe global.s.nothing", "unknown table 's.nothing'");
    check_error("show create table global.s.t", "only select, describe, summarize");
    /* As one table says, which has the tags, too. */
    struct buf all, one;
    buf_init(&all, 1 << 20);
    buf_init(&one, 1 << 20);
    CHECK_INT(ranks_ask(&ranks, "summarize global.s.u", &all), 0);
    CHECK_INT(ranks_ask_one(&ranks, "summarize s.u", &one), 0);
    const char *ours = strstr(buf_text(&all), "[\"k\""), *theirs = strstr(buf_text(&one), "[\"k\"");
    const char *end = ours ? strstr(ours, "]]") : NULL;
    CHECK(end && theirs && end - ours > 100 && strncmp(ours, theirs, (size_t)(end - ours)) == 0);
    buf_done(&all);
    buf_done(&one);
    CHECK(sql_is_global("summarize global.s.t", 20) && sql_is_global("describe global.t", 17));
    CHECK(!sql_is_global("describe s.t", 12) && !sql_is_global("show tables", 11));
}

TEST(what_is_wrong_is_said_with_its_place)
{
    check_error("select zz from global.s.t", "line 1, column 8: unknown column 'zz'");
    check_error("select k from global.s.t join s.u using (k)",
                "column 31: 's.u' is a table of one process");
    check_error("select k from global.s.tt", "no process of these has the table");
    check_error("select a from global.s.t as x(a)", "cannot be renamed in from");
    check_error("select k\nfrom global.s.t\nwhere g > 1", "line 3, column 9");
    check_error("show functions", "only select, describe");
    check_error("select k, count(*) from global.s.t group by 9", "column 45");
    CHECK(!sql_is_global("select 1", 8));
    CHECK(!sql_is_global("select * from python.steps", 26));
    CHECK(!sql_is_global("select (", 8));
    CHECK(sql_is_global("select 1 where exists (select 1 from global.a.b)", 48));
    CHECK(sql_is_global("with a as (select * from global.b) select 1", 43));
}

TEST(a_silent_rank_is_missing_by_name)
{
    ranks.silent[3] = true;
    check_answer("select max(_rank), count(distinct _rank) from global.s.u", "[[5,5]]", "");
    CHECK_INT(ranks.asked, 6);
    CHECK_INT(ranks.answers, 5);
    check_answer("select count(*) from global.s.u where _rank < 3", "[[12]]", "");
    CHECK_INT(ranks.asked, 3); /* it was not needed */
    CHECK_INT(ranks.answers, 3);
    ranks.options.strict = true;
    check_error("select count(*) from global.s.u", "5 of 6 answered");
    check_error("select count(*) from global.s.u", "rank 3: it was silent");
    check_answer("select count(*) from global.s.u where _rank <> 3", "[[20]]", "");
    ranks.options.strict = false;
    for (uint32_t m = 0; m < ranks.n; m++)
        ranks.silent[m] = true;
    check_error("select count(*) from global.s.u", "none of 6 answered");
    memset(ranks.silent, 0, sizeof(ranks.silent));
}

TEST(too_many_bytes_are_refused_in_words)
{
    ranks.options.max_bytes = 2000;
    check_error("select * from global.s.t", "more than 2000 bytes");
    check_error("select median(x) from global.s.t", "--max-bytes");
    check_answer("select k, count(*), avg(x) from global.s.t group by k order by k", "[0,", "");
    check_answer("select i from global.s.t order by i limit 10", "[", "");
    ranks.options.sketch = true;
    ranks.options.max_bytes = 0;
    check_answer("select median(x), count(*) from global.s.t", ",300]]", "within 1 %");
    ranks.options = (struct sql_global_options){.max_bytes = 0};
}

/* Rank 2 of another build: no column g, x whole, b a text; rank 4 without the table. */
TEST(ranks_that_differ)
{
    static const struct sql_column other[] = {{"k", SQL_INT, 0, ""},
                                              {"x", SQL_INT, 0, ""},
                                              {"b", SQL_TEXT, 0, ""},
                                              {"z", SQL_INT, 0, ""}};
    const struct held_table t = {
        .schema = "s", .name = "t", .columns = other, .n_columns = 4, .n_parts = 1};
    const struct sql_value row[] = {int_value(SQL_INT, 1), int_value(SQL_INT, 7),
                                    text_value(SQL_TEXT, "no", 2), int_value(SQL_INT, 5)};
    struct held_table *before[2] = {ranks.own[2].first, ranks.own[4].first}, *made;
    ranks.own[2].first = NULL;
    ranks.own[4].first = NULL;
    CHECK_INT(held_add(&ranks.own[2], &ranks.mem, &t, &made), 0);
    CHECK_INT(held_row(made, 0, row), 0);
    check_answer("select sum(x), count(*), count(g) from global.s.t where _rank = 2", "[[7,1,0]]",
                 "no column g in \"s\".\"t\", NULL there: rank 2\n");
    check_answer("select typeof(x), x from global.s.t where _rank = 2", "[[\"double\",7]]",
                 "x of \"s\".\"t\" is bigint, made double, there: rank 2");
    check_answer("select max(z), min(_rank), count(z) from global.s.t", "[[5,0,1]]",
                 "no column z in \"s\".\"t\", NULL there: rank 0, rank 1, rank 3, rank 5\n");
    CHECK_INT(ranks.asked, 6);
    CHECK_INT(ranks.answers, 5); /* but for rank 4 */
    check_answer("select count(*) from global.s.t where b or true", "[[", "");
    CHECK_INT(ranks.answers, 4); /* b is a text at rank 2 */
    check_answer("select count(distinct _rank), max(k) from global.s.t", "[[5,", "");
    CHECK_INT(ranks.answers, 5);
    held_done(&(struct held){.first = made});
    ranks.own[2].first = before[0];
    ranks.own[4].first = before[1];
}

/* ---- answers of liars ---- */

static int lie(struct sql_global *g, const struct sql_column *columns, uint32_t n,
               const struct sql_value *cells)
{
    int rc = sql_global_columns(g, 0, 1, columns, n);
    if (rc == 0 && cells)
        rc = sql_global_row(g, 0, 1, cells);
    if (rc < 0)
        sql_global_failed(g, 0, 1, err_text());
    return rc;
}

static void check_lie(const struct sql_column *columns, uint32_t n, const struct sql_value *cells,
                      const char *words)
{
    struct sql_global *g;
    if (!CHECK_INT(ranks_prepare(&ranks, "select avg(x), count(*) from global.s.t", &g), 0))
        return;
    int rc = lie(g, columns, n, cells);
    if (!CHECK_INT(rc, words ? -EBADMSG : 0) || (words && !CHECK(strstr(err_text(), words))))
        printf("# %s, not %s\n", err_text(), words ? words : "fine");
    const char *why = sql_global_why(g, 1);
    CHECK((why != NULL) == (words != NULL));
    CHECK(sql_global_row(g, 0, 1, cells) < 0 || !words);
    CHECK(sql_global_columns(g, 0, 99, columns, n) < 0 &&
          sql_global_columns(g, 9, 0, columns, n) < 0);
    sql_global_free(g);
}

TEST(answers_that_were_not_asked_for_are_refused)
{
    const struct sql_column good[] = {{"__s0", SQL_BLOB, 0, ""}, {"__s1", SQL_INT, 0, ""}};
    const struct sql_column types[] = {{"__s0", SQL_BLOB, 0, ""}, {"__s1", SQL_DOUBLE, 0, ""}};
    const struct sql_column names[] = {{"__s0", SQL_BLOB, 0, ""}, {"x", SQL_INT, 0, ""}};
    const struct sql_column nulls[] = {{"__s0", SQL_NULL, 0, ""}, {"__s1", SQL_INT, 0, ""}};
    const char state[25] = {2, 3};
    struct sql_value row[] = {text_value(SQL_BLOB, state, 25), int_value(SQL_INT, 3)};
    check_lie(good, 2, row, NULL);
    check_lie(good, 1, NULL, "sent 1 columns and was asked for 2");
    check_lie(types, 2, NULL, "as double, which is bigint");
    check_lie(names, 2, NULL, "column 'x'");
    row[1].integer = -1;
    check_lie(good, 2, row, "counted -1 rows");
    row[1].integer = INT64_MAX;
    check_lie(good, 2, row, "to have counted");
    row[1] = text_value(SQL_TEXT, "3", 1);
    check_lie(good, 2, row, "a text in the column __s1");
    row[1] = int_value(SQL_INT, 3);
    check_lie(nulls, 2, row, "a blob in the column __s0");
    row[0].text.size = 24;
    check_lie(good, 2, row, "no state of an aggregate");
    row[0].type = SQL_NULL;
    check_lie(nulls, 2, row, NULL);
}

static int one_of_all(const char *text)
{
    struct buf b;
    buf_init(&b, 1 << 24);
    int rc = ranks_ask(&ranks, text, &b);
    if (rc < 0)
        printf("error: %s\n", err_text());
    else
        printf("%s%s", buf_text(&b), ranks.notes);
    buf_done(&b);
    return rc < 0;
}

/* A failure gives an error, or names a missing rank; an answer of all is the right one. */
TEST(memory_may_fail_anywhere)
{
    static const char *const texts[] = {
        "select _rank, k, sum(x), count(distinct g) from global.s.t where i > 0 group by 1, 2 "
        "order by 3, 1, 2 limit 3",
        "select a.k, sum(b.w) s from global.s.t a join global.s.u b on a._rank = b._rank and a.k = "
        "b.k group by 1 order by 1",
        "explain select k from global.s.u order by k limit 1", "summarize global.s.u",
        "describe global.s.t"};
    uint32_t n_ranks = ranks.n;
    ranks.n = 2;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct buf right, out;
        buf_init(&right, 1 << 20);
        CHECK_INT(ranks_ask(&ranks, texts[i], &right), 0);
        bool failed = true;
        for (unsigned n = 1; failed; n += 1 + n / 40) {
            buf_init(&out, 1 << 20);
            fail_alloc_at(n);
            int rc = ranks_ask(&ranks, texts[i], &out);
            failed = fail_alloc_happened();
            fail_alloc_at(0);
            bool whole = rc == 0 && ranks.answers == ranks.asked && ranks.asked > 0;
            if (whole && strcmp(buf_text(&out), buf_text(&right)) != 0)
                CHECK_STR(buf_text(&out), buf_text(&right));
            if (rc < 0)
                CHECK(err_text()[0] != '\0');
            buf_done(&out);
        }
        buf_done(&right);
    }
    ranks.n = n_ranks;
}

int main(int argc, char **argv)
{
    if (ranks_init(&ranks, 6, 60, 1) < 0) {
        printf("# %s\n", err_text());
        return 1;
    }
    if (argc == 3 && strcmp(argv[1], "ask") == 0)
        return one_of_all(argv[2]);
    RUN(the_same_as_one_table);
    RUN(merged_on_the_way_it_is_the_same);
    RUN(groups_that_ranks_share_are_held_once);
    RUN(tables_of_all_describe_themselves);
    RUN(what_is_wrong_is_said_with_its_place);
    RUN(a_silent_rank_is_missing_by_name);
    RUN(too_many_bytes_are_refused_in_words);
    RUN(ranks_that_differ);
    RUN(memory_may_fail_anywhere);
    RUN(answers_that_were_not_asked_for_are_refused);
    ranks_done(&ranks);
    return test_end();
}
