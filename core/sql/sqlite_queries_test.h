/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/sqlite_queries_test.h - statements at random, over a table t(a, b: integers, c: double,
 * s, u: texts, h: huge), of which SQLite and we should think the same.
 *
 * sqlite_test.c's own; one thread.
 */
#ifndef CORE_SQL_SQLITE_QUERIES_TEST_H
#define CORE_SQL_SQLITE_QUERIES_TEST_H

#include <stdint.h>

#include "sdk/lib/buf.h"

#define ROWS 300

static uint64_t seed = 20240501;

static uint32_t below(uint32_t n)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(seed >> 33) % n;
}

/* ---- the data: t(a, b: integers, c: double, s, u: texts, h: huge), NULLs ---- */

struct cells {
    bool null[5];
    int64_t a, b, h;
    double c;
    const char *s, *u;
};
static struct cells data[ROWS];
#define WORDS 10
/* No letter beyond ASCII has another case here: of those SQLite knows nothing. */
static const char *const words[WORDS] = {
    "alpha", "beta", "gamma",  "delta",        "",
    "Beta",  "a%",   "al_pha", "\xd7\x90pfel", "\xe6\x97\xa5\xe6\x9c\xac"};

static void make_data(void)
{
    for (int i = 0; i < ROWS; i++) {
        struct cells *d = &data[i];
        for (int c = 0; c < 5; c++)
            d->null[c] = below(8) == 0;
        d->a = (int64_t)below(20) - 5;
        d->b = (int64_t)below(1000);
        d->c = ((double)below(400) - 100) / 4;
        d->s = words[below(WORDS)];
        d->h = (int64_t)(below(3) ? seed >> 1 : below(2) ? (uint64_t)INT64_MAX - below(3) : 1);
        d->h = below(2) ? d->h : -d->h;
        d->u = words[below(4)];
    }
}

/* ---- queries ---- */

static void gen_bool(struct buf *b, int depth);
static void gen_int(struct buf *b, int depth);
static void gen_text(struct buf *b, int depth);
static void gen_double(struct buf *b, int depth);

static const char *pick(const char *const *list, uint32_t n)
{
    return list[below(n)];
}

static void gen_int(struct buf *b, int depth)
{
    static const char *const signs[] = {"+", "-", "*"};
    switch (depth <= 0 ? below(3) : below(9)) {
    case 0:
        (void)buf_addf(b, "%d", (int)below(30) - 3);
        return;
    case 1:
        (void)buf_adds(b, "a");
        return;
    case 2:
        (void)buf_adds(b, "b");
        return;
    case 3:
    case 4:
        (void)buf_adds(b, "(");
        gen_int(b, depth - 2);
        (void)buf_addf(b, " %s ", pick(signs, 3));
        gen_int(b, depth - 2);
        (void)buf_adds(b, ")");
        return;
    case 5:
        (void)buf_adds(b, "(");
        gen_int(b, depth - 1);
        (void)buf_adds(b, below(2) ? " / nullif(" : " % nullif(");
        gen_int(b, depth - 1);
        (void)buf_adds(b, ", 0))");
        return;
    case 6:
        (void)buf_adds(b, "case when ");
        gen_bool(b, depth - 1);
        (void)buf_adds(b, " then ");
        gen_int(b, depth - 1);
        (void)buf_adds(b, " else ");
        gen_int(b, depth - 1);
        (void)buf_adds(b, " end");
        return;
    case 7:
        (void)buf_adds(b, below(2) ? "coalesce(" : "nullif(");
        gen_int(b, depth - 1);
        (void)buf_adds(b, ", ");
        gen_int(b, depth - 1);
        (void)buf_adds(b, ")");
        return;
    default:
        (void)buf_adds(b, below(2) ? "abs(" : "(- ");
        gen_int(b, depth - 1);
        (void)buf_adds(b, ")");
    }
}

static void gen_double(struct buf *b, int depth)
{
    static const char *const signs[] = {"+", "-", "*"};
    switch (depth <= 0 ? below(2) : below(4)) {
    case 0:
        (void)buf_adds(b, "c");
        return;
    case 1:
        (void)buf_addf(b, "%d.%d", (int)below(40), (int)below(4) * 25);
        return;
    case 2:
        (void)buf_adds(b, "(");
        gen_double(b, depth - 2);
        (void)buf_addf(b, " %s ", pick(signs, 3));
        gen_int(b, 0);
        (void)buf_adds(b, ")");
        return;
    default:
        (void)buf_adds(b, "coalesce(");
        gen_double(b, depth - 1);
        (void)buf_adds(b, ", c)");
    }
}

static void gen_text(struct buf *b, int depth)
{
    switch (depth <= 0 ? below(3) : below(7)) {
    case 0:
        (void)buf_adds(b, "s");
        return;
    case 1:
        (void)buf_adds(b, "u");
        return;
    case 2:
        (void)buf_addf(b, "'%s'", words[below(WORDS)]);
        return;
    case 3:
        (void)buf_adds(b, "(");
        gen_text(b, depth - 1);
        (void)buf_adds(b, " || ");
        gen_text(b, depth - 1);
        (void)buf_adds(b, ")");
        return;
    case 4:
        (void)buf_adds(b, "substr(");
        gen_text(b, depth - 1);
        (void)buf_addf(b, ", %d, %d)", (int)below(5) + 1, (int)below(4));
        return;
    case 5:
        (void)buf_adds(b, below(2) ? "upper(" : "lower(");
        gen_text(b, depth - 1);
        (void)buf_adds(b, ")");
        return;
    default:
        (void)buf_adds(b, "replace(");
        gen_text(b, depth - 1);
        (void)buf_adds(b, ", 'a', 'xy')");
    }
}

static void gen_compare(struct buf *b, int depth)
{
    static const char *const compare[] = {" = ",
                                          " <> ",
                                          " < ",
                                          " <= ",
                                          " > ",
                                          " >= ",
                                          " is distinct from ",
                                          " is not distinct from "};
    void (*gen)(struct buf *, int) = below(3) == 0 ? gen_text : below(2) ? gen_int : gen_double;
    (void)buf_adds(b, "(");
    gen(b, depth - 1);
    (void)buf_adds(b, compare[below(8)]);
    gen(b, depth - 1);
    (void)buf_adds(b, ")");
}

static void gen_bool(struct buf *b, int depth)
{
    switch (depth <= 0 ? below(3) : below(8)) {
    case 0:
    case 1:
        gen_compare(b, depth);
        return;
    case 2:
        (void)buf_adds(b, "(");
        gen_text(b, depth - 1);
        (void)buf_adds(b, below(2) ? " is null)" : " is not null)");
        return;
    case 3:
    case 4:
        (void)buf_adds(b, "(");
        gen_bool(b, depth - 1);
        (void)buf_adds(b, below(2) ? " and " : " or ");
        gen_bool(b, depth - 1);
        (void)buf_adds(b, ")");
        return;
    case 5:
        (void)buf_adds(b, "(not ");
        gen_bool(b, depth - 1);
        (void)buf_adds(b, ")");
        return;
    case 6:
        (void)buf_adds(b, "(");
        gen_int(b, depth - 1);
        (void)buf_addf(b, " %sin (1, %d, %s))", below(2) ? "not " : "", (int)below(20),
                       below(4) ? "7" : "null");
        return;
    default:
        (void)buf_adds(b, "(");
        gen_text(b, depth - 1);
        (void)buf_addf(b, " %slike '%s')", below(3) ? "" : "not ",
                       (const char *const[]){"%a", "a%", "%e%a", "_eta", "%", "a_%"}[below(6)]);
    }
}

static void gen_agg(struct buf *b, int depth)
{
    static const char *const numeric[] = {"sum", "avg", "min", "max", "count"};
    switch (below(5)) {
    case 0:
        (void)buf_adds(b, "count(*)");
        break;
    case 1:
        (void)buf_addf(b, "count(distinct %s)", (const char *const[]){"a", "s", "c"}[below(3)]);
        break;
    case 2:
        (void)buf_adds(b, below(2) ? "min(" : "max(");
        gen_text(b, depth);
        (void)buf_adds(b, ")");
        break;
    default:
        (void)buf_addf(b, "%s(", pick(numeric, 5));
        (below(2) ? gen_int : gen_double)(b, depth);
        (void)buf_adds(b, ")");
    }
    if (below(5) == 0) {
        (void)buf_adds(b, " filter (where ");
        gen_bool(b, 1);
        (void)buf_adds(b, ")");
    }
}

static void gen_where(struct buf *b)
{
    if (below(3) == 0)
        return;
    (void)buf_adds(b, " where ");
    gen_bool(b, 3);
}

static void gen_plain(struct buf *b)
{
    void (*const gens[])(struct buf *, int) = {gen_int, gen_double, gen_text, gen_bool};
    (void)buf_adds(b, below(4) ? "select " : "select distinct ");
    uint32_t n = below(3) + 1;
    for (uint32_t i = 0; i < n; i++) {
        (void)buf_adds(b, i ? ", " : "");
        gens[below(4)](b, 3);
    }
    (void)buf_adds(b, " from t");
    gen_where(b);
    if (below(3))
        return;
    (void)buf_adds(b, " order by ");
    for (uint32_t i = 0; i < n; i++)
        (void)buf_addf(b, "%s%u %s nulls %s", i ? ", " : "", i + 1, below(2) ? "desc" : "asc",
                       below(2) ? "first" : "last");
    (void)buf_addf(b, " limit %u offset %u", below(20), below(10));
}

static void gen_grouped(struct buf *b)
{
    static const char *const keys[] = {"a", "s", "u", "a % 3", "c"};
    uint32_t n = below(3);
    const char *by[2] = {pick(keys, 5), pick(keys, 5)};
    (void)buf_adds(b, "select ");
    for (uint32_t i = 0; i < n; i++)
        (void)buf_addf(b, "%s, ", by[i]);
    gen_agg(b, 2);
    (void)buf_adds(b, ", ");
    gen_agg(b, 1);
    (void)buf_adds(b, " from t");
    gen_where(b);
    for (uint32_t i = 0; i < n; i++)
        (void)buf_addf(b, "%s%s", i ? ", " : " group by ", by[i]);
    if (n && below(3) == 0) {
        (void)buf_adds(b, " having ");
        (void)buf_adds(b, below(2) ? "count(*) > 5" : "min(a) < 3 or max(s) > 'b'");
    }
}

static void gen_joined(struct buf *b)
{
    static const char *const lists[] = {"t.a, x.n", "count(*), sum(x.n)", "t.s, x.m, t.b", "*",
                                        "x.*, t.s"};
    static const char *const ons[] = {"t.s = x.k",
                                      "t.s = x.k and t.a < x.m",
                                      "t.b < x.n and t.a = 3",
                                      "t.s = x.k and x.n > 20",
                                      "t.s = x.k and t.b > 500",
                                      "t.a = x.m"};
    static const char *const joins[] = {"inner", "left", "right", "full"};
    static const char *const wheres[] = {"t.b > 300",      "x.n > 25",
                                         "x.m is null",    "t.a is null",
                                         "t.a + x.m > 10", "coalesce(t.b, 0) < coalesce(x.n, 50)"};
    if (below(4) == 0) {
        (void)buf_addf(b,
                       "select t.a, t.u, y.b from t, (select s, max(b) as b from t group by s) y "
                       "where t.s = y.s and %s",
                       below(2) ? "t.b < y.b - 100" : "y.b > 900");
        return;
    }
    if (below(4) == 0) {
        (void)buf_addf(b,
                       "select %s from (select a, s, b from t where b < %u) x %s join (select a, "
                       "s, c from t where b > %u) y using (%s)",
                       below(2) ? "s, y.a, x.b" : "s, x.a, y.c", below(400), pick(joins, 4),
                       600 + below(400), below(2) ? "s" : "s, a");
        return;
    }
    (void)buf_addf(b,
                   "select %s from t %s join (select s as k, count(*) as n, max(a) as m from t "
                   "group by s) x on %s",
                   pick(lists, 5), pick(joins, 4), pick(ons, 6));
    if (below(2))
        (void)buf_addf(b, " where %s", pick(wheres, 6));
}

static void gen_sets(struct buf *b)
{
    static const char *const signs[] = {"union", "union all", "intersect", "except"};
    static const char *const lists[] = {"a, s", "u, b", "s, h", "c, a", "null, a", "a, null"};
    uint32_t left = below(6);
    (void)buf_addf(b, "select %s from t", lists[left]);
    gen_where(b);
    (void)buf_addf(b, " %s select %s from t", pick(signs, 4), left == 3 ? "a, b" : lists[left]);
    gen_where(b);
}

/* Subqueries that look at the row around them, and rows of values. */
static void gen_correlated(struct buf *b)
{
    static const char *const scalar[] = {
        "(select count(*) from t i where i.a = o.a and i.b < o.b)",
        "(select max(i.b) from t i where i.s = o.s)",
        "(select i.u from t i where i.a = o.a order by i.b desc nulls last, i.h limit 1)",
        "(select sum(x.b) from (select b from t where a = o.a) x)"};
    static const char *const tests[] = {
        "exists (select 1 from t i where i.a = o.a and i.b > o.b + 500)",
        "not exists (select 1 from t i where i.s = o.s and i.b > o.b)",
        "o.b in (select b from t i where i.a = o.a + 1)",
        "o.a not in (select a from t i where i.s = o.u and a is not null)",
        "(o.a, o.s) in (select a, u from t)",
        "(o.a, o.u) not in (select a, s from t where b < 50)",
        "(o.a, o.b) < (3, 500)",
        "(o.a, o.s, o.b) >= (2, 'beta', 100)",
        "(o.a, o.s) = (1, 'beta')",
        "o.b > (select avg(b) from t i where i.u = o.u)"};
    (void)buf_addf(b, "select o.a, o.b, %s from t o where %s and o.b %% 7 = %u", pick(scalar, 4),
                   pick(tests, 10), below(7));
}

static void gen_huge(struct buf *b)
{
    static const char *const lists[] = {"h, a", "min(h), max(h), count(h)", "h / 3, h % 7, abs(h)",
                                        "count(distinct h), max(s)", "h = h + 0.0"};
    static const char *const compare[] = {"<", ">=", "=", "<>"};
    (void)buf_addf(b, "select %s from t where h %s %lld", pick(lists, 4), pick(compare, 4),
                   (long long)data[below(ROWS)].h);
}

static void gen_nested(struct buf *b)
{
    switch (below(3)) {
    case 0:
        (void)buf_adds(b, "select a, s from t where a in (select a from t");
        gen_where(b);
        (void)buf_adds(b, ") and b > (select avg(b) from t)");
        return;
    case 1:
        (void)buf_adds(b, "with w as (select a, s from t");
        gen_where(b);
        (void)buf_adds(b, ") select s, count(*) from w group by s union all select u, b from t");
        return;
    default:
        (void)buf_adds(b, "select x.y, count(*) from (select a + 1 as y, s from t");
        gen_where(b);
        (void)buf_adds(b, ") x group by x.y having count(*) > 2 union select 5, 6");
    }
}

static void gen_window(struct buf *b)
{
    /* By all columns: rows that are still equal are equal altogether. */
    static const char *const all = "order by a nulls first, b nulls last, c desc nulls first, "
                                   "s nulls first, u nulls last";
    static const char *const whole[] = {"row_number()",  "lag(b)",          "lead(s, 2)",
                                        "lag(b, 3, -1)", "nth_value(a, 2)", "ntile(7)"};
    static const char *const peers[] = {"rank()", "dense_rank()", "percent_rank()", "cume_dist()"};
    static const char *const by[] = {"", "partition by u ", "partition by a % 3, s "};
    static const char *const from[] = {"unbounded preceding", "3 preceding", "current row",
                                       "1 following"};
    static const char *const to[] = {"1 preceding", "current row", "2 following",
                                     "unbounded following"};
    static const char *const sums[] = {"sum(b)", "count(c)",       "min(s)",        "max(c)",
                                       "avg(b)", "first_value(b)", "last_value(u)", "count(*)"};
    static const char *const ranges[] = {"range between 2 preceding and current row",
                                         "range between 3 preceding and 1 preceding",
                                         "range between 1 following and 4 following",
                                         "groups between 1 preceding and 1 following",
                                         "groups 2 preceding",
                                         "groups between current row and 1 following"};
    static const char *const excludes[] = {
        "", "", " exclude current row", " exclude group", " exclude ties", " exclude no others"};
    (void)buf_adds(b, "select a, b, s");
    for (uint32_t i = below(3) + 1; i > 0; i--) {
        switch (below(6)) {
        case 4:
        case 5:
            (void)buf_addf(b, ", %s over (%sorder by %s%s %s%s)", sums[below(5)], by[below(3)],
                           below(2) ? "a" : "b % 20",
                           below(2) ? " desc nulls last" : " nulls first", pick(ranges, 6),
                           pick(excludes, 6));
            break;
        case 0:
            (void)buf_addf(b, ", %s over (%s%s)", whole[below(6)], by[below(3)], all);
            break;
        case 1:
            (void)buf_addf(b, ", %s over (%sorder by a nulls last)", peers[below(4)], by[below(3)]);
            break;
        case 2: {
            uint32_t f = below(4), t = f == 3 ? below(2) + 2 : f == 2 ? below(3) + 1 : below(4);
            (void)buf_addf(b, ", %s%s over (%s%s rows between %s and %s)", sums[below(8)], "",
                           by[below(3)], all, from[f], to[t]);
            break;
        }
        default:
            (void)buf_addf(b, ", %s over (%sorder by b %% 5 nulls first%s)", sums[below(5)],
                           by[below(3)],
                           below(2) ? "" : " range between current row and unbounded following");
        }
    }
    (void)buf_adds(b, " from t");
    gen_where(b);
}

static void gen_query(struct buf *b)
{
    void (*const gens[])(struct buf *) = {gen_plain,  gen_plain,  gen_plain,      gen_grouped,
                                          gen_joined, gen_nested, gen_window,     gen_sets,
                                          gen_joined, gen_window, gen_correlated, gen_huge};
    gens[below(12)](b);
}

#endif
