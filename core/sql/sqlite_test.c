/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/sqlite_test.c - thousands of generated queries, answered by us and by SQLite, compared.
 *
 * SQLite is loaded when it is there (else the test says that it is skipped).  Where the two differ
 * by design the generator keeps away: division by zero (ours: an error; so divisors are nullif),
 * integer overflow (ours: an error; so numbers are small), casts of doubles to integers (ours
 * rounds), comparing numbers with texts (ours: an error), NULLs in order by (always said), LIKE
 * (SQLite's is told to mind the case).  PROBING_FUZZ_RUNS=n asks for more queries,
 * PROBING_FUZZ_SEED=n for others.
 */
#include <dlfcn.h>
#include <stdlib.h>

#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/base/text.h"
#include "core/sql/sql.h"
#include "tests/test.h"

#define ROWS 300
#ifdef __SANITIZE_THREAD__
#define QUERIES 500 /* one thread: there is little for the thread sanitizer to see */
#else
#define QUERIES 10000
#endif
#define LINES_MAX 4096

/* The few functions of SQLite's C interface that are used (sqlite.org/c3ref). */
static struct {
    int (*open)(const char *, void **);
    int (*close)(void *);
    int (*exec)(void *, const char *, void *, void *, char **);
    int (*prepare)(void *, const char *, int, void **, const char **);
    int (*step)(void *);
    int (*finalize)(void *);
    int (*count)(void *);
    int (*type)(void *, int);
    int64_t (*integer)(void *, int);
    double (*number)(void *, int);
    const unsigned char *(*text)(void *, int);
    const char *(*message)(void *);
} lite;

static void *db;
static uint64_t rows_compared;
static struct sql *engine;
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

static int scan(void *self, struct probing_rows *out)
{
    (void)self;
    for (int i = 0; i < ROWS; i++) {
        const struct cells *d = &data[i];
        union probing_cell c[6] = {{.i = d->null[0] ? PROBING_NULL_I64 : d->a},
                                   {.i = d->null[1] ? PROBING_NULL_I64 : d->b},
                                   {.f = d->c},
                                   {.s = d->null[3] ? NULL : d->s},
                                   {.s = d->null[4] ? NULL : d->u},
                                   {.i = d->h}};
        if (d->null[2])
            c[2].u = PROBING_NULL_F64;
        int rc = out->row(out, c, 6);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static bool fill_sqlite(void)
{
    struct buf b;
    buf_init(&b, 1 << 20);
    (void)buf_adds(
        &b, "pragma case_sensitive_like = on;"
            "create table t(a integer, b integer, c real, s text, u text, h integer);begin;");
    for (int i = 0; i < ROWS; i++) {
        const struct cells *d = &data[i];
        (void)buf_adds(&b, "insert into t values(");
        (void)(d->null[0] ? buf_adds(&b, "null") : buf_addf(&b, "%d", (int)d->a));
        (void)(d->null[1] ? buf_adds(&b, ",null") : buf_addf(&b, ",%d", (int)d->b));
        (void)(d->null[2] ? buf_adds(&b, ",null") : buf_addf(&b, ",%.2f", d->c));
        (void)(d->null[3] ? buf_adds(&b, ",null") : buf_addf(&b, ",'%s'", d->s));
        (void)(d->null[4] ? buf_adds(&b, ",null") : buf_addf(&b, ",'%s'", d->u));
        (void)buf_addf(&b, ",%lld);", (long long)d->h);
    }
    (void)buf_adds(&b, "commit;");
    bool good = lite.exec(db, buf_text(&b), NULL, NULL, NULL) == 0;
    buf_done(&b);
    return good;
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

/* ---- answers, as sorted lines ---- */

struct lines {
    char *line[LINES_MAX];
    uint32_t n, columns;
    struct buf now;
};

static void add_number(struct buf *b, double v)
{
    (void)buf_addf(b, "%.12g|", v + 0.0);
}

static void end_line(struct lines *l)
{
    if (l->n < LINES_MAX)
        l->line[l->n++] = strdup(buf_text(&l->now));
    buf_reset(&l->now);
}

static int take_rows(void *arg, const struct sql_rows *rows)
{
    struct lines *l = arg;
    for (uint32_t r = 0; r < sql_rows_count(rows); r++) {
        for (uint32_t c = 0; c < l->columns; c++) {
            struct sql_value v;
            sql_rows_value(rows, r, c, &v);
            if (v.type == SQL_NULL)
                (void)buf_adds(&l->now, "null|");
            else if (v.type == SQL_TEXT)
                (void)buf_addf(&l->now, "'%.*s'|", (int)v.text.size, v.text.data);
            else if (v.type == SQL_DOUBLE)
                add_number(&l->now, v.number);
            else
                add_number(&l->now, v.type == SQL_BOOL ? v.boolean : (double)v.integer);
        }
        end_line(l);
    }
    return 0;
}

static int take_columns(void *arg, const struct sql_column *columns, uint32_t n)
{
    struct lines *l = arg;
    (void)columns;
    l->columns = n;
    buf_init(&l->now, 65536);
    return 0;
}

static int by_text(const void *x, const void *y)
{
    return strcmp(*(char *const *)x, *(char *const *)y);
}

static void drop(struct lines *l)
{
    for (uint32_t i = 0; i < l->n; i++)
        free(l->line[i]);
    buf_done(&l->now);
}

static bool ask_sqlite(const char *text, struct lines *l)
{
    void *st = NULL;
    buf_init(&l->now, 65536);
    if (lite.prepare(db, text, -1, &st, NULL) != 0)
        return false;
    int rc;
    while ((rc = lite.step(st)) == 100) { /* SQLITE_ROW */
        for (int c = 0; c < lite.count(st); c++) {
            int type = lite.type(st, c); /* 1 integer, 2 float, 3 text, 5 null */
            if (type == 5)
                (void)buf_adds(&l->now, "null|");
            else if (type == 3)
                (void)buf_addf(&l->now, "'%s'|", lite.text(st, c));
            else
                add_number(&l->now, type == 1 ? (double)lite.integer(st, c) : lite.number(st, c));
        }
        end_line(l);
    }
    lite.finalize(st);
    return rc == 101; /* SQLITE_DONE */
}

static bool compare(const char *text)
{
    struct lines ours = {.n = 0}, theirs = {.n = 0};
    struct sql_sink sink = {.arg = &ours, .columns = take_columns, .rows = take_rows};
    int rc = sql_run(engine, text, strlen(text), NULL, &sink, NULL);
    bool good = ask_sqlite(text, &theirs);
    bool same = good == (rc == 0);
    if (!same)
        printf("# %s\n#   ours: %s, SQLite: %s\n", text, rc ? err_text() : "fine",
               good ? "fine" : lite.message(db));
    if (rc == 0 && good) {
        qsort(ours.line, ours.n, sizeof(char *), by_text);
        qsort(theirs.line, theirs.n, sizeof(char *), by_text);
        same = ours.n == theirs.n;
        uint32_t at = 0;
        while (at < ours.n && at < theirs.n && strcmp(ours.line[at], theirs.line[at]) == 0)
            at++;
        same = same && at == ours.n;
        rows_compared += at;
        if (!same)
            printf("# %s\n#   %u and %u rows; row %u is %s, SQLite has %s\n", text, ours.n,
                   theirs.n, at, at < ours.n ? ours.line[at] : "missing",
                   at < theirs.n ? theirs.line[at] : "none");
    }
    drop(&ours);
    drop(&theirs);
    return same;
}

TEST(same_answers_as_sqlite)
{
    void (*const gens[])(struct buf *) = {gen_plain,  gen_plain,  gen_plain,      gen_grouped,
                                          gen_joined, gen_nested, gen_window,     gen_sets,
                                          gen_joined, gen_window, gen_correlated, gen_huge};
    uint64_t runs = QUERIES;
    const char *more = getenv("PROBING_FUZZ_RUNS"), *start = getenv("PROBING_FUZZ_SEED");
    if (more && parse_u64(more, &runs) < 0)
        runs = QUERIES;
    if (start)
        (void)parse_u64(start, &seed);
    uint32_t different = 0;
    struct buf b;
    buf_init(&b, 1 << 16);
    for (uint64_t i = 0; i < runs && different < 10; i++) {
        buf_reset(&b);
        gens[below(12)](&b);
        different += !compare(buf_text(&b));
    }
    buf_done(&b);
    CHECK_INT(different, 0);
    CHECK(rows_compared > 20 * runs); /* the generator must not have become toothless */
}

static bool load_sqlite(void)
{
    void *l = dlopen("libsqlite3.so.0", RTLD_NOW);
    const struct {
        const char *name;
        void *to;
    } symbols[] = {{"sqlite3_open", &lite.open},
                   {"sqlite3_close", &lite.close},
                   {"sqlite3_exec", &lite.exec},
                   {"sqlite3_prepare_v2", &lite.prepare},
                   {"sqlite3_step", &lite.step},
                   {"sqlite3_finalize", &lite.finalize},
                   {"sqlite3_column_count", &lite.count},
                   {"sqlite3_column_type", &lite.type},
                   {"sqlite3_column_int64", &lite.integer},
                   {"sqlite3_column_double", &lite.number},
                   {"sqlite3_column_text", &lite.text},
                   {"sqlite3_errmsg", &lite.message}};
    for (size_t i = 0; l && i < sizeof(symbols) / sizeof(*symbols); i++) {
        void *f = dlsym(l, symbols[i].name);
        if (!f)
            return false;
        memcpy(symbols[i].to, &f, sizeof(f));
    }
    return l && lite.open(":memory:", &db) == 0;
}

int main(void)
{
    static const struct probing_column columns[] = {
        {.name = "a", .type = PROBING_I64}, {.name = "b", .type = PROBING_I64},
        {.name = "c", .type = PROBING_F64}, {.name = "s", .type = PROBING_STR},
        {.name = "u", .type = PROBING_STR}, {.name = "h", .type = PROBING_I64}};
    static const struct probing_table_desc desc = {.size = sizeof(desc),
                                                   .column_size = sizeof(*columns),
                                                   .name = "test.t",
                                                   .doc = "",
                                                   .columns = columns,
                                                   .n_columns = 6,
                                                   .scan = scan};
    struct tables *tables;
    struct table *t;
    if (!load_sqlite())
        return test_skip("no libsqlite3.so.0 here to compare with (apt install libsqlite3-0)");
    make_data();
    if (tables_new(&tables) || tables_add(tables, "test", &desc, NULL, &t) ||
        sql_new(tables, NULL, &engine) || !fill_sqlite()) {
        printf("# %s %s\n", err_text(), lite.message(db));
        return 1;
    }
    RUN(same_answers_as_sqlite);
    lite.close(db);
    sql_free(engine);
    tables_free(tables);
    return test_end();
}
