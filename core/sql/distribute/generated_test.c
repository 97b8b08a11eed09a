/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/distribute/generated_test.c - statements put together by chance, over ranks of one
 * process, over the same by others who merge on the way, and over one table with all rows: the same
 * columns, the same values.
 *
 * With arguments, `SEED N`: tries so many from there on; `print SEED N`: lines of JSON with the
 * tables, then statements and their answers over ranks, for tests/store/test_ranks_duckdb.py, which
 * asks DuckDB the same.  A test's own thread.
 */
#include <ctype.h>
#include <unistd.h>

#include "core/sql/distribute/ranks_test.h"
#include "sdk/lib/json.h"

#define STATEMENTS 400

static struct ranks ranks;
static uint32_t seed, merged, pulled;
static bool portable; /* only what DuckDB says the same way */

#define PICK(list) (list)[next_random(&seed, sizeof(list) / sizeof((list)[0]))]

static bool chance(uint32_t one_in)
{
    return next_random(&seed, one_in) == 0;
}

static const char *const keys[] = {"_rank",
                                   "_host",
                                   "k",
                                   "g",
                                   "b",
                                   "k % 2",
                                   "_rank % 2",
                                   "_local_rank",
                                   "_role",
                                   "case when x > 0 then 'up' else 'down' end",
                                   "_host || '/' || g",
                                   "i % 10",
                                   "length(g)",
                                   "k + _rank",
                                   "date_trunc('second', ts)",
                                   "date_trunc('minute', ts)",
                                   "day",
                                   "y"};
static const char *const own_keys[] = {"interval '1 month' * k",
                                       "interval '1 month 3 s' * (k - 2)",
                                       "date_trunc('month', ts + interval '1 month' * k)",
                                       "date_trunc('minute', ts at time zone 'Asia/Kolkata')",
                                       "date_trunc('minute', ts, 'Asia/Kathmandu')",
                                       "(ts at time zone 'America/New_York')::date",
                                       "round(ts, 0)",
                                       "x::real",
                                       "regexp_substr(g, '[[:alpha:]]')"};
static const char *const aggregates[] = {"count(*)",
                                         "count(x)",
                                         "sum(x)",
                                         "sum(i)",
                                         "avg(x)",
                                         "avg(i)",
                                         "min(x)",
                                         "max(i)",
                                         "min(g)",
                                         "max(g)",
                                         "min(y)",
                                         "max(y)",
                                         "count(y)",
                                         "count(distinct y)",
                                         "max(ts)",
                                         "min(ts)",
                                         "arg_min(i, ts)",
                                         "count(distinct ts)",
                                         "min(day)",
                                         "bool_and(b)",
                                         "bool_or(i > 0)",
                                         "stddev(x)",
                                         "stddev_pop(i)",
                                         "variance(x)",
                                         "var_pop(i)",
                                         "corr(x, i)",
                                         "covar_samp(x, i)",
                                         "covar_pop(i, x)",
                                         "regr_slope(x, i)",
                                         "regr_intercept(x, i)",
                                         "regr_r2(x, i)",
                                         "bit_and(i)",
                                         "bit_or(k)",
                                         "bit_xor(i)",
                                         "bit_xor(distinct k)",
                                         "count(distinct (k, g))",
                                         "max(i::integer)",
                                         "count(distinct g)",
                                         "count(distinct k)",
                                         "sum(distinct k)",
                                         "arg_min(i, x)",
                                         "arg_max(g, x)",
                                         "median(x)",
                                         "quantile_cont(x, 0.25)",
                                         "max(_rank)",
                                         "count(distinct _host)",
                                         "min(_local_rank)",
                                         "sum(_rank)",
                                         "sum(x) filter (where b)",
                                         "count(*) filter (where _rank > 1)",
                                         "sum(i) filter (where k = 1 and _rank < 4)",
                                         "count(distinct g) filter (where i > 0)",
                                         "count(distinct _rank) filter (where _rank > 1)",
                                         "string_agg(g, ',' order by g)",
                                         "avg(x * 2 + 1)",
                                         "sum(i * i)",
                                         "sum(case when b then x end)",
                                         "max(length(g))",
                                         "sum(x * _rank)",
                                         "max(i) - min(i)",
                                         "sum(x) / nullif(count(x), 0)",
                                         "coalesce(max(g), 'none')"};
static const char *const own_aggregates[] = {
    "sum(d)",
    "avg(d)",
    "avg(ts)",
    "first(i)",
    "last(i)",
    "any_value(g)",
    "mode(g)",
    "min(bytes)",
    "max(bytes)",
    "histogram(x)",
    "last(g)",
    "sum(y)",
    "avg(y)",
    "first(bytes)",
    "json_agg(g order by g)",
    "json_agg(json_build_object('i', i, 'g', to_json(g)) order by i)",
    "json_build_array(max(i), json_agg(x order by i))",
    "max(d)",
    "max(_clock_offset_ns)",
    "max(interval '1 month' * k)",
    "min(ts + interval '1 month' * k)",
    "count(distinct interval '1 month' * k)",
    "arg_max(interval '1 month' * i, x)",
    "max(age(ts, timestamp '2020-02-29 12:00:00'))",
    "count(*) filter (where _clock_error_ns < 3000)",
    "max(ts) filter (where _clock_offset_ns is null)",
    "count(bytes)",
    "stddev(y)",
    "max_by(bytes, x)",
    "any_value(i) filter (where b)",
    "first(g) filter (where i > 0)",
    "json_build_array(max(json_build_array(i)))",
    "json_build_array(last(to_json(g)), any_value(json_build_object('k', k)))",
    "json_build_array(arg_max(json_build_array(g), x))",
    "max(ts at time zone 'Europe/Berlin') at time zone 'Europe/Berlin'",
    "max(ts::timestamp) at time zone 'Europe/Berlin'",
    "min(ts at time zone 'UTC') at time zone 'Asia/Tokyo'",
    "count(distinct bytes)"};
static const char *const conditions[] = {
    "x > 0",
    "k = 2",
    "k in (1, 3)",
    "g like '%a%'",
    "b",
    "i between -100 and 2000",
    "_rank < 3",
    "_rank in (0, 2, 4)",
    "_host = 'node1'",
    "_host <> 'it''s'",
    "_rank <> 3",
    "_role is null",
    "(_local_rank = 0 or x > 100)",
    "g is not null",
    "x is null",
    "length(g) > 1 and _rank > 0",
    "i > (select avg(i) from global.s.t)",
    "k in (select k from global.s.u where w > 50)",
    "not b",
    "y > 1",
    "_node_rank + _local_rank = 1",
    "i > _rank * 1000",
    "ts >= timestamp '2023-11-14 22:13:25'",
    "ts < timestamp '2023-11-14 22:14:00'",
    ("ts between timestamp '2023-11-14 22:13:30' and timestamp "
     "'2023-11-14 22:14:30'"),
    "k = 77"};
/* Conditions that DuckDB has not, or understands otherwise: a row, similar to. */
static const char *const own_conditions[] = {
    "(k, g) is not null",
    "g = any (string_to_array('a,b,' || k, ','))",
    "g <> all (string_to_array('a,b', ','))",
    "g similar to '(a|b)%'",
    "g not like all (array['a%', '%b'])",
    "g is not null and x is not null and i::integer > 0",
    "g !~~ 'a%' and @ i > 2",
    "regexp_count(g, '[aA]') > 0",
    "ts at time zone 'Europe/Berlin' >= timestamp '2023-11-14 23:13:25'",
    "to_char(ts, 'YYYYMMDD')::date > date '2020-01-01'"};
static const char *const havings[] = {"count(*) > 2",
                                      "sum(i) > 100",
                                      "max(x) > 0",
                                      "count(distinct g) > 1",
                                      "avg(i) < 9e9",
                                      "min(_rank) < 3",
                                      "count(*) > (select count(*) / 40 from global.s.t)"};
static const char *const columns[] = {"x",   "k",     "g",         "i",
                                      "b",   "ts",    "_rank",     "_host",
                                      "day", "x * 2", "k + _rank", "coalesce(g, '-')",
                                      "y",   "_role", "abs(i)"};

static void add_where(struct buf *b, const char *prefix)
{
    uint32_t n = next_random(&seed, 4);
    for (uint32_t i = 0; i < n; i++)
        (void)buf_addf(b, "%s%s", i ? " and " : prefix,
                       portable || !chance(6) ? PICK(conditions) : PICK(own_conditions));
}

/* By all keys, which no two groups share; some first by an aggregate.  DuckDB's corr() of one row
 * is NaN, ours NULL. */
static void add_group_order(struct buf *b, uint32_t n_keys)
{
    uint32_t first = n_keys ? next_random(&seed, n_keys) : 0;
    bool odd = portable && (strstr(buf_text(b), "corr(") || strstr(buf_text(b), "regr_"));
    bool by_value = n_keys && chance(4) && !odd;
    if (by_value)
        (void)buf_addf(b, " order by v0%s", chance(2) ? " desc nulls last" : " nulls first");
    for (uint32_t i = 0; i < n_keys; i++)
        (void)buf_addf(b, "%s%u%s", i || by_value ? ", " : " order by ", (i + first) % n_keys + 1,
                       chance(2) ? " desc nulls last" : " nulls first");
}

/* DuckDB makes two grouping sets of a key named twice; we and PostgreSQL 15 make one. */
static bool is_twice(const char *const *by, uint32_t n)
{
    bool twice = false;
    for (uint32_t i = 1; i < n; i++)
        for (uint32_t k = 0; k < i; k++)
            twice = twice || strcmp(by[i], by[k]) == 0;
    return twice;
}

/* Groups in an order in which no two of them are equal. */
static void add_grouped(struct buf *b)
{
    const char *by[4];
    uint32_t n_keys = next_random(&seed, 4), n = 1 + next_random(&seed, 4);
    (void)buf_adds(b, "select ");
    for (uint32_t i = 0; i < n_keys; i++) {
        by[i] = i == 0 && chance(3)       ? "_rank"
                : portable || !chance(12) ? PICK(keys)
                                          : PICK(own_keys);
        (void)buf_addf(b, "%s as c%u, ", by[i], i);
    }
    for (uint32_t i = 0; i < n; i++)
        (void)buf_addf(b, "%s%s as v%u", i ? ", " : "",
                       portable || !chance(6) ? PICK(aggregates) : PICK(own_aggregates), i);
    (void)buf_adds(b, " from global.s.t");
    add_where(b, " where ");
    bool sets = n_keys && chance(4) && !(portable && is_twice(by, n_keys));
    static const char *const kinds[] = {"rollup (", "cube (", "grouping sets ((), "};
    if (sets)
        (void)buf_addf(b, " group by %s", PICK(kinds));
    for (uint32_t i = 0; i < n_keys; i++)
        (void)buf_addf(b, "%s%u", i ? ", " : sets ? "" : " group by ", i + 1);
    (void)buf_adds(b, sets ? ")" : "");
    if (chance(4))
        (void)buf_addf(b, " having %s", PICK(havings));
    add_group_order(b, n_keys);
    for (uint32_t i = 0; i < n_keys && sets; i++) /* NULL of the data and of a total */
        (void)buf_addf(b, ", grouping(%s)", by[i]);
    bool ties = n_keys && !portable && chance(8);
    if (ties)
        (void)buf_addf(b, " fetch first %u rows with ties", next_random(&seed, 12));
    else if (n_keys && chance(3))
        (void)buf_addf(b, " limit %u", next_random(&seed, 12));
    if (n_keys && chance(6))
        (void)buf_addf(b, " offset %u", next_random(&seed, 5));
}

/* Rows by all that is shown of them. */
static void add_rows(struct buf *b)
{
    uint32_t n = 1 + next_random(&seed, 4);
    (void)buf_adds(b, chance(3) ? "select distinct " : "select ");
    for (uint32_t i = 0; i < n; i++)
        (void)buf_addf(b, "%s%s as c%u", i ? ", " : "", PICK(columns), i);
    (void)buf_adds(b, " from global.s.t");
    add_where(b, " where ");
    for (uint32_t i = 0; i < n; i++)
        (void)buf_addf(b, "%s%u%s", i ? ", " : " order by ", i + 1,
                       chance(2) ? " desc nulls first" : " nulls last");
    if (!portable && chance(6))
        (void)buf_addf(b, " fetch first %u rows with ties", 1 + next_random(&seed, 9));
    else if (chance(2))
        (void)buf_addf(b, " limit %u", next_random(&seed, 20));
    if (chance(5))
        (void)buf_addf(b, " offset %u", next_random(&seed, 5));
}

static void add_join(struct buf *b)
{
    static const char *const joins[] = {"join", "left join", "right join", "full join"};
    static const char *const on[] = {
        "on a.k = b.k",
        "on a.k = b.k and a._rank = b._rank",
        "on a._rank = b._rank",
        "on a.k = b.k and b.w > 20",
        "on b._addr = a._addr and a.k = b.k and a.i > b.w",
        "on a._host = b._host and a.k = b.k",
        "on a._host = b._host and a._local_rank = b._local_rank and b.k = a.k and a.x > 0",
        "using (_rank, k)",
        "on a._role = b._role and a.k = b.k",
        ("on a._rank = b._rank and a.k = b.k join global.s.t c on c._rank = b._rank and c.k = b.k "
         "and c.i = a.i")};
    static const char *const wheres[] = {"",
                                         " where a.x > 0",
                                         " where b.w > 30 and a._rank < 4",
                                         " where a._host = b._host",
                                         " where b.label is null",
                                         " where label = 'one' and a.i > 0",
                                         " where a.i > b.w + 10 and b.label <> 'two'"};
    static const char *const lists[] = {
        "count(*) as c, sum(a.i) as s, max(b.w) as m",
        "count(a.x) as c, count(b.label) as l, min(w) as w, max(a._rank) as r"};
    if (chance(6))
        (void)buf_addf(b,
                       "select %s from global.s.t a %s global.s.u b on a._rank = b._rank and a.i "
                       ">= b.w%s",
                       PICK(lists), chance(2) ? "asof join" : "asof left join", PICK(wheres));
    else if (chance(6))
        (void)buf_addf(b,
                       "select a._rank as r, %s from global.s.t a, global.s.u b where a._rank = "
                       "b._rank and a.k = b.k and a.i > %u group by 1 order by 1",
                       PICK(lists), next_random(&seed, 3000));
    else if (chance(2))
        (void)buf_addf(b, "select %s from global.s.t a %s global.s.u b %s%s", PICK(lists),
                       PICK(joins), PICK(on), PICK(wheres));
    else
        (void)buf_addf(
            b,
            "select a.k as k, b.label as l, count(*) as c, sum(a.i) as s from global.s.t "
            "a %s global.s.u b %s%s group by 1, 2 order by 1 nulls last, 2 nulls last",
            PICK(joins), PICK(on), PICK(wheres));
}

static void add_other(struct buf *b)
{
    static const char *const texts[] = {
        "with m as (select _rank as r, avg(x) as v, count(*) as n from global.s.t%s group by 1) "
        "select a.r as r, b.r as q, a.v - b.v as d from m a, m b where a.r < b.r order by 1, 2",
        "select k, _rank as r from global.s.t%s union select k, _rank from global.s.u order by 1 "
        "nulls last, 2",
        "select k from global.s.t%s intersect select k from global.s.u order by 1 nulls last",
        "select k, _host as h from global.s.t%s except select k, _host from global.s.u order by 1 "
        "nulls last, 2",
        "select r, n, sum(n) over (order by r) as s from (select _rank as r, count(*) as n from "
        "global.s.t%s group by 1) t order by r",
        "select k, sum(i) as s, rank() over (order by sum(i) desc nulls last) as p from "
        "global.s.t%s group by k order by k nulls last",
        "select count(*) as n, max(a.ts) as m, min(b.ts - a.ts) < interval '1 s' as d "
        "from global.s.t a join global.s.t b on a._rank = b._rank and a.k = b.k and a.ts < b.ts",
        "select count(*) as n, max(b.ts) as m from global.s.t a join global.s.t b on a.k = b.k and "
        "b.ts between a.ts and a.ts + interval '3 seconds' where a._rank < b._rank",
        "select a._rank as r, count(b.ts) as n, max(b.ts) as m from global.s.t a asof left join "
        "global.s.t b on a._rank = b._rank and a.k = b.k and a.ts > b.ts group by 1 order by 1",
        "select r, ts, lag(ts) over (order by ts, i) as b from (select _rank as r, ts, i from "
        "global.s.t%s) t order by ts nulls last, i nulls last, r limit 20",
        "select count(*) as n from (select distinct k, g, b from global.s.t%s) t",
        "select max(s) as m, min(s) as l from (select _rank, k, sum(i) as s from global.s.t%s "
        "group "
        "by 1, 2) t",
        "select h, count(*) as n from (select _host as h, k, max(i) as m from global.s.t%s group "
        "by "
        "1, 2 having count(*) > 1) t group by h order by h",
        "select i, row_number() over (partition by _rank order by i, x, ts) as n from "
        "global.s.t%s order by 1 nulls last, 2",
        "select (select max(i) from global.s.t%s) as a, (select count(*) from global.s.u) as b",
        "select _rank as r, count(*) as n from global.s.t t where exists (select 1 from global.s.u "
        "u "
        "where u.k = t.k and u._rank = t._rank) group by 1 order by 1",
        "with a as (select k, count(*) as n from global.s.t%s group by k), b as (select k, "
        "count(*) as n from global.s.u group by k) select a.k as k, a.n as x, b.n as y from a left "
        "join b on a.k = b.k order by 1 nulls last"};
    struct buf where;
    buf_init(&where, 4096);
    add_where(&where, " where ");
    const char *text = PICK(texts), *gap = strstr(text, "%s");
    (void)buf_addf(b, "%.*s%s%s", gap ? (int)(gap - text) : (int)strlen(text), text,
                   gap ? buf_text(&where) : "", gap ? gap + 2 : "");
    buf_done(&where);
}

static void make_one(struct buf *b)
{
    uint32_t kind = next_random(&seed, 10);
    buf_reset(b);
    if (kind < 5)
        add_grouped(b);
    else if (kind < 7)
        add_rows(b);
    else if (kind < 8)
        add_join(b);
    else
        add_other(b);
}

static void generate(struct buf *b)
{
    bool zones = access("/usr/share/zoneinfo/Europe/Berlin", R_OK) == 0;
    do
        make_one(b);
    while (!zones && (strstr(buf_text(b), " zone ") || strstr(buf_text(b), "Asia/")));
}

/* ---- comparing ---- */

static bool close_to(double a, double b)
{
    double most = fabs(a) > fabs(b) ? fabs(a) : fabs(b);
    return a == b || fabs(a - b) <= 1e-10 * most || most < 1e-12;
}

/* The same text but for last digits of numbers. */
static bool same_answer(const char *a, const char *b)
{
    while (*a && *b) {
        bool number = isdigit((unsigned char)*a) || *a == '-' || *b == '-';
        if (!number || *a == '"') {
            if (*a++ != *b++)
                return false;
            continue;
        }
        char *end_a, *end_b;
        double x = strtod(a, &end_a), y = strtod(b, &end_b);
        if (end_a == a || end_b == b) {
            if (*a++ != *b++)
                return false;
            continue;
        }
        if (!close_to(x, y))
            return false;
        a = end_a;
        b = end_b;
    }
    return *a == *b;
}

static bool try_one(const char *text)
{
    struct buf all, one;
    buf_init(&all, 1 << 24);
    buf_init(&one, 1 << 24);
    int rc_one = ranks_ask_one(&ranks, text, &one);
    if (rc_one < 0)
        printf("# one table: %s\n", err_text());
    int rc = ranks_ask(&ranks, text, &all);
    if (rc < 0)
        printf("# all ranks: %s\n", err_text());
    bool same = CHECK((rc < 0) == (rc_one < 0)) &&
                CHECK(rc < 0 || same_answer(buf_text(&all), buf_text(&one)));
    if (!same)
        printf("# %s\n# all ranks: %.3000s\n# one table: %.3000s\n", text, buf_text(&all),
               buf_text(&one));
    buf_reset(&one);
    ranks.relays = true;
    rc_one = ranks_ask(&ranks, text, &one);
    ranks.relays = false;
    if (!CHECK(rc == rc_one) || !CHECK(rc < 0 || same_answer(buf_text(&all), buf_text(&one)))) {
        printf("# %s\n# all ranks: %.3000s\n# by others: %.3000s\n", text, buf_text(&all),
               rc_one < 0 ? err_text() : buf_text(&one));
        same = false;
    }
    buf_done(&all);
    buf_done(&one);
    return same && rc == 0;
}

static void count_kinds(const char *text)
{
    struct sql_global *g;
    if (ranks_prepare(&ranks, text, &g) < 0)
        return;
    for (uint32_t p = 0; p < sql_global_parts(g); p++) {
        struct buf question;
        buf_init(&question, 1 << 16);
        bool way = sql_global_question(g, p, &question) == 1;
        merged += way;
        pulled += !way;
        buf_done(&question);
    }
    sql_global_free(g);
}

static uint32_t try_many(uint32_t n)
{
    struct buf b;
    uint32_t good = 0;
    buf_init(&b, 1 << 16);
    for (uint32_t i = 0; i < n; i++) {
        generate(&b);
        good += try_one(buf_text(&b));
        count_kinds(buf_text(&b));
    }
    buf_done(&b);
    return good;
}

TEST(generated_statements_say_the_same)
{
    seed = 20;
    uint32_t good = try_many(STATEMENTS);
    CHECK(good > STATEMENTS * 9 / 10);
    CHECK(merged > STATEMENTS / 2 && pulled > STATEMENTS / 4);
}

/* ---- for DuckDB ---- */

static void print_answer(const char *kind, const char *text, bool all)
{
    struct buf b, line;
    buf_init(&b, 1 << 24);
    buf_init(&line, 1 << 25);
    int rc = all ? ranks_ask(&ranks, text, &b) : ranks_ask_one(&ranks, text, &b);
    (void)buf_adds(&line, "{\"kind\":");
    (void)json_add_text(&line, kind, strlen(kind));
    (void)buf_adds(&line, ",\"sql\":");
    (void)json_add_text(&line, text, strlen(text));
    (void)buf_adds(&line, ",\"error\":");
    (void)json_add_text(&line, rc < 0 ? err_text() : "", rc < 0 ? strlen(err_text()) : 0);
    int size = (int)strcspn(buf_text(&b), "\n");
    (void)buf_addf(&line, ",\"answer\":%.*s}\n", rc < 0 ? 4 : size, rc < 0 ? "null" : b.data);
    (void)fwrite(line.data, 1, line.size, stdout);
    buf_done(&b);
    buf_done(&line);
}

static int print_many(uint32_t n)
{
    struct buf b;
    buf_init(&b, 1 << 16);
    portable = true;
    print_answer("table t", "select * exclude (bytes, d) from global.s.t", false);
    print_answer("table u", "select * from global.s.u", false);
    for (uint32_t i = 0; i < n; i++) {
        generate(&b);
        print_answer("statement", buf_text(&b), true);
    }
    buf_done(&b);
    return 0;
}

int main(int argc, char **argv)
{
    int shift = argc > 3 && strcmp(argv[1], "print") == 0;
    if (ranks_init_clocks(&ranks, 6, 50, 7, /* clocks= */ true) < 0) {
        printf("# %s\n", err_text());
        return 1;
    }
    if (argc > 2) {
        seed = (uint32_t)atoi(argv[1 + shift]);
        if (shift)
            return print_many((uint32_t)atoi(argv[3]));
        uint32_t n = (uint32_t)atoi(argv[2]), good = try_many(n);
        printf("%u of %u the same; parts: %u merged, %u pulled\n", good, n, merged, pulled);
        return 0;
    }
    RUN(generated_statements_say_the_same);
    ranks_done(&ranks);
    return test_end();
}
