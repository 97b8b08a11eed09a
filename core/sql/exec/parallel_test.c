/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/exec/parallel_test.c - what several threads answer is what one answers, to the last
 * character.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/ring/ring.h"
#include "core/sql/sql.h"
#include "core/store/store.h"
#include "tests/test.h"

#define ROWS 400000 /* helpers come after 131,072 */

static struct sql *engine;
static struct store *store;
static struct table *table;
#ifdef __SANITIZE_THREAD__ /* each takes ten times as long, and a race shows in any of them */
static int queries = 12;
#else
static int queries = 60; /* or the first argument */
#endif
static uint64_t seed = 20240501;

static uint32_t any(uint32_t n)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(seed >> 33) % n;
}

static int add_bytes(void *arg, const char *data, size_t size)
{
    return buf_add(arg, data, size);
}

/* The answer as CSV or the error; false: it was an error. */
static bool ask(const char *text, uint64_t threads, const struct sql_options *o, struct buf *ret)
{
    struct sql_writer *w;
    buf_reset(ret);
    sql_configure(engine, SQL_SET_THREADS, threads);
    if (sql_writer_new(SQL_FORMAT_CSV, 0, add_bytes, ret, &w) < 0)
        return false;
    struct sql_sink sink = sql_writer_sink(w);
    int rc = sql_run(engine, text, strlen(text), o, &sink, NULL);
    sql_writer_free(w);
    if (rc < 0)
        (void)buf_adds(ret, err_text());
    return rc == 0;
}

static bool fill(void)
{
    static const char *const names[] = {"alpha", "beta", "gamma", "delta", "omega"};
    uint64_t ids[5];
    char tail[32];
    for (int i = 0; i < 5; i++)
        if (intern(store_interns(store), names[i], strlen(names[i]), &ids[i]) < 0)
            return false;
    for (uint32_t i = 0; i < ROWS; i++) {
        double value = ((double)any(2000001) - 1e6) * (any(2) ? 1e-7 : 1e3);
        union probing_cell c[4] = {
            {.i = i}, {.u = any(7) < 5 ? ids[any(5)] : 0}, {.f = value}, {.i = any(50000)}};
        if (any(9) == 0)
            c[2].f = -0.0;
        if (any(11) == 0)
            c[2].u = PROBING_NULL_F64;
        if (any(13) == 0)
            c[3].i = PROBING_NULL_I64;
        int n = snprintf(tail, sizeof(tail), "%u", any(i / 8 + 1));
        int rc;
        while ((rc = ring_append(table, clock_now(), c, 4, tail, (uint32_t)(n - 1))) == -ENOSPC)
            if (store_drain(store) < 0)
                return false;
        if (rc < 0)
            return false;
    }
    return store_drain(store) == 0;
}

/* ---- queries made by chance ---- */

static const char *pick(const char *const *list, uint32_t n)
{
    return list[any(n)];
}
#define PICK(list) pick(list, sizeof(list) / sizeof(*(list)))

static void make_query(struct buf *q)
{
    static const char *const keys[] = {"name",  "code % 7", "tail",         "code",
                                       "n / 9", "value",    "length(tail)", "value > 0"};
    static const char *const aggs[] = {
        "count(*)",           "count(value)",
        "sum(value)",         "avg(value)",
        "sum(code)",          "avg(code)",
        "min(value)",         "max(value)",
        "min(tail)",          "max(name)",
        "first(n)",           "last(n)",
        "first(tail)",        "last(name)",
        "arg_min(n, code)",   "arg_max(n, value)",
        "median(value)",      "percentile_disc(0.3) within group (order by n)",
        "bool_and(n > 5)",    "bool_or(code = 17)",
        "histogram(code, 4)", "first(n order by code)",
        "max(ts) > now()",    "sum(value) filter (where code > 99)"};
    static const char *const conditions[] = {"",
                                             " where code > 25000",
                                             " where name in ('beta', 'omega')",
                                             " where name like '%a%t%'",
                                             " where value is null",
                                             " where n between 100000 and 350000 and code <> 5",
                                             " where tail > '3' or value < -1"};
    static const char *const sources[] = {"t.rows", "t.rows",
                                          "(select *, code as other from t.rows where n > 70) x"};
    uint32_t n_keys = any(3), n_aggs = 1 + any(4);
    (void)buf_adds(q, "select ");
    for (uint32_t i = 0; i < n_keys; i++)
        (void)buf_addf(q, "%s as k%u, ", PICK(keys), i);
    for (uint32_t i = 0; i < n_aggs; i++)
        (void)buf_addf(q, "%s%s", i ? ", " : "", PICK(aggs));
    (void)buf_addf(q, " from %s%s", PICK(sources), PICK(conditions));
    for (uint32_t i = 0; i < n_keys; i++)
        (void)buf_addf(q, "%s%u", i ? ", " : " group by ", i + 1);
    if (any(3) == 0)
        (void)buf_adds(q, " limit 100"); /* the groups come in the same order */
}

TEST(answers_are_those_of_one_thread)
{
    struct buf one, more, q;
    buf_init(&one, 1 << 28);
    buf_init(&more, 1 << 28);
    buf_init(&q, 1 << 16);
    for (int i = 0; i < queries; i++) {
        buf_reset(&q);
        make_query(&q);
        bool right = ask(buf_text(&q), 1, NULL, &one);
        CHECK_INT(ask(buf_text(&q), 2 + any(2), NULL, &more), right);
        bool same = one.size == more.size && memcmp(one.data, more.data, one.size) == 0;
        if (!CHECK(same))
            printf("# %s\n%.300s\n%.300s\n", buf_text(&q), buf_text(&one), buf_text(&more));
    }
    buf_done(&one);
    buf_done(&more);
    buf_done(&q);
}

TEST(errors_are_those_of_one_thread)
{
    static const char *const wrong[] = {
        "select sum(1 / (n - 390000)) from t.rows",
        "select code, sum(n * 100000000000000) from t.rows group by 1",
        "select count(*) from t.rows where 1 / (n - 200000) > 1",
    };
    struct buf one, more;
    buf_init(&one, 1 << 28);
    buf_init(&more, 1 << 28);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        CHECK(!ask(wrong[i], 1, NULL, &one));
        CHECK(!ask(wrong[i], 2, NULL, &more));
        CHECK_STR(buf_text(&more), buf_text(&one));
    }
    buf_done(&one);
    buf_done(&more);
}

TEST(limits_hold_for_all_together)
{
    struct sql_options little = {.memory_bytes = 8 << 20}, soon = {.timeout_ns = 2 * NS_PER_MS};
    struct sql_options some = {.memory_bytes = 40 << 20};
    _Atomic int cancel = 1;
    struct sql_options cancelled = {.cancel = &cancel};
    struct buf out;
    buf_init(&out, 1 << 28);
    CHECK(!ask("select n, count(*) from t.rows group by 1", 2, &little, &out));
    CHECK(strstr(buf_text(&out), "needs more than the 8 MiB of memory"));
    /* Enough for one thread, not for two that each know all groups: they make do. */
    CHECK(ask("select tail, count(*) from t.rows group by 1", 2, &some, &out));
    CHECK(!ask("select tail, value, median(n) from t.rows group by 1, 2", 2, &soon, &out));
    CHECK(strstr(buf_text(&out), "ran longer than its 2 ms"));
    CHECK(!ask("select count(code) from t.rows", 2, &cancelled, &out));
    buf_done(&out);
}

static bool explains(const char *text, const char *what)
{
    struct buf out;
    buf_init(&out, 1 << 20);
    bool found = ask(text, 2, NULL, &out) && strstr(buf_text(&out), what);
    if (!found)
        printf("# %s\n%s\n", text, buf_text(&out));
    buf_done(&out);
    return found;
}

TEST(explain_says_how_many)
{
    CHECK(explains("explain select count(*) from t.rows", "up to 2 threads"));
    CHECK(explains("explain select stddev(n) from t.rows", "one thread: stddev() goes by"));
    CHECK(explains("explain select count(distinct n) from t.rows", "one thread: count(distinct)"));
    CHECK(explains("explain select count(*) from t.rows r where n = (select max(v.a) from (values "
                   "(1), (2)) v(a) where v.a < r.code)",
                   "one thread: a subquery"));
    CHECK(explains("explain select count(*) from (values (1)) v", "one thread: its rows do not"));
    CHECK(explains("explain select count(*) from (select code from t.rows group by 1) x",
                   "1 aggregate, one thread: its rows do not"));
    CHECK(explains("explain analyze select name, avg(code) from t.rows group by 1", "2 had rows"));
}

int main(int argc, char **argv)
{
    static const struct probing_column columns[] = {{.name = "n", .type = PROBING_I64},
                                                    {.name = "name", .type = PROBING_STR},
                                                    {.name = "value", .type = PROBING_F64},
                                                    {.name = "code", .type = PROBING_I64}};
    static const struct probing_table_desc desc = {.size = sizeof(desc),
                                                   .column_size = sizeof(*columns),
                                                   .name = "t.rows",
                                                   .doc = "",
                                                   .columns = columns,
                                                   .n_columns = 4,
                                                   .tail_type = PROBING_STR,
                                                   .tail_name = "tail"};
    char directory[] = "/tmp/probing-team-XXXXXX";
    struct tables *tables;
    cpu_set_t set;
    uint64_t wanted;
    if (argc > 1 && parse_u64(argv[1], &wanted) == 0)
        queries = (int)wanted;
    if (!mkdtemp(directory))
        return 1;
    struct store_options o = {.directory = directory, .max_bytes = 256u << 20};
    if (tables_new(&tables) || store_create(&o, tables, &store) ||
        store_table_add(store, "t", &desc, NULL, &table) || sql_new(tables, store, &engine) ||
        !fill()) {
        printf("# %s\n", err_text());
        return 1;
    }
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 1) {
        RUN(answers_are_those_of_one_thread);
        RUN(errors_are_those_of_one_thread);
        RUN(limits_hold_for_all_together);
        RUN(explain_says_how_many);
    } else {
        printf("# skipped: one processor, nobody can help\n");
    }
    sql_free(engine);
    store_free(store);
    tables_free(tables);
    (void)file_remove_dir(directory);
    return test_end();
}
