/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/conditions_test.c - conditions by chance over a stored table: what the scan skips and
 * what dictionaries, joins and threads do must not change which rows they are true for.
 *
 * The rows where p, where not p and where p is null are together all rows; as many are counted
 * where p as p is true of, alone, by groups and behind a join.  With arguments, `RUNS SEED`: so
 * many from there on.  A test's own thread.
 */
#include <errno.h>
#include <stdlib.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/ring/ring.h"
#include "core/sql/sql.h"
#include "core/store/store.h"
#include "tests/test.h"

#define ROWS 30000 /* several segments; of them LAST are not drained */
#define LAST 300
#define TEXT_BYTES 2048

static struct sql *engine;
static struct store *store;
static struct table *table;
static uint32_t runs = 25;
static uint64_t seed = 1;

static uint32_t below(uint32_t n)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(seed >> 33) % n;
}

/* ---- conditions: each # is a number ---- */

static const char *const leaves[] = {
    "n < #",
    "n >= #",
    "n = #",
    "n <> #",
    "# <= n",
    "n between # and #",
    "n in (#, #, 7, null)",
    "n not in (#, #)",
    "n in (#, 12)",
    "n is null",
    "n is distinct from #",
    "n % 7 = 3",
    "n + 1 > #",
    "-n < -#",
    "n = any (array[#, #])",
    "n < all (array[#, 2500])",
    "n = # / 2.0",
    "n < #.5",
    "name = 'alpha'",
    "name <> 'beta'",
    "'b' < name",
    "name >= 'beta'",
    "name is null",
    "name in ('alpha', 'nobody')",
    "name not in ('gamma', 'x')",
    "name in ('beta', null)",
    "name like '%a'",
    "name not like 'b_ta%'",
    "name ~ '^[ab]'",
    "upper(name) = 'ALPHA'",
    "name || 'x' = 'gammax'",
    "length(name) = 4",
    "coalesce(name, 'alpha') = 'alpha'",
    "value < 1.5",
    "value > 1e300",
    "value = n",
    "value is not null",
    "value in (0.5, 2, 'nan')",
    "coalesce(value, -1) < 2",
    "value <> value",
    "value >= 'nan'",
    "tail is null",
    "tail = 'tail-te'",
    "length(tail) > 3",
    "tail > name",
    "ts > (select min(ts) from t.rows)",
    "ts >= (select max(ts) from t.rows) - interval '# us'",
    "ts < (select min(ts) from t.rows) + interval '# us'",
    "case when n > # then value > 1 end",
    "n > (select avg(n) from t.rows)",
    "n in (select m * # from generate_series(1, 5) m)",
    "name = (select max(name) from t.rows where n < #)",
    "true",
    "false",
    "null",
    "name = name",
    "exists (select 1 from generate_series(1, 3) m where m = n % 5)",
    "n * n < # * 10",
    "name between 'alpha' and 'beta'",
    "nullif(name, 'beta') is null",
    "(n, name) < (#, 'beta')",
    "(n, name) in ((#, 'alpha'), (#, 'beta'))",
    "greatest(n, #) = n"};

static size_t put(char *out, size_t at, const char *form)
{
    for (; *form && at < TEXT_BYTES - 16; form++) {
        if (*form == '#')
            at += (size_t)snprintf(out + at, 16, "%u", below(ROWS / 10 + 100));
        else
            out[at++] = *form;
    }
    out[at] = '\0';
    return at;
}

static size_t put_condition(char *out, size_t at, uint32_t depth)
{
    uint32_t kind = depth ? below(5) : 0;
    if (kind <= 1)
        return put(out, at, leaves[below(sizeof(leaves) / sizeof(*leaves))]);
    at = put(out, at, kind == 2 ? "not (" : "(");
    at = put_condition(out, at, depth - 1);
    if (kind > 2) {
        at = put(out, at, kind == 3 ? ") and (" : ") or (");
        at = put_condition(out, at, depth - 1);
    }
    return put(out, at, ")");
}

/* ---- answers ---- */

static int take_first(void *arg, const struct sql_rows *rows)
{
    sql_rows_value(rows, 0, 0, arg);
    return 0;
}

/* The number that a statement gives; P in it is the condition. */
static int64_t number(const char *form, const char *condition)
{
    char text[8 * TEXT_BYTES];
    size_t n = 0;
    struct sql_value v = {.type = SQL_NULL};
    const struct sql_sink sink = {.arg = &v, .rows = take_first};
    for (; *form; form++)
        n += (size_t)snprintf(text + n, sizeof(text) - n, *form == 'P' ? "(%s)" : "%.1s",
                              *form == 'P' ? condition : form);
    if (!CHECK_INT(sql_run(engine, text, n, NULL, &sink, NULL), 0)) {
        printf("# %s: %s\n", text, err_text());
        return -1;
    }
    return v.type == SQL_NULL ? 0 : v.integer;
}

static const struct {
    const char *one, *other;
} pairs[] = {
    {"select count(*) from t.rows", "select count(*) from (select 1 from t.rows where P union all "
                                    "select 1 from t.rows where not P "
                                    "union all select 1 from t.rows where P is null) x"},
    {"select count(*) from t.rows where P",
     "select sum(case when P then 1 else 0 end) from t.rows"},
    {"select sum(n) from t.rows where P", "select sum(n) filter (where P) from t.rows"},
    {"select count(*) from t.rows where P and n > 900 and name <> 'beta'",
     "select count(*) from (select n, name, P as p from t.rows) x where n > 900 and name <> 'beta' "
     "and p"},
    {"select 0",
     "select count(*) from (select name, count(*) from t.rows where P group by 1 except all select "
     "name, sum(case when P then 1 else 0 end) from t.rows group by 1) x"},
    {"select count(*) from t.rows r join (values (3), (44), (555), (1300)) v(k) on n = k where P",
     "select sum(case when P then 1 else 0 end) from t.rows where n in (3, 44, 555, 1300)"},
    {"select count(*) from (values (3), (44), (555), (9999)) v(k) left join t.rows r on n = k and "
     "P",
     "select sum(greatest((select count(*) from t.rows where n = k and P), 1)) from (values (3), "
     "(44), (555), (9999)) v(k)"},
    {"select count(*) from (select * from t.rows order by n desc, ts limit 400) x where P",
     "select count(*) filter (where P) from (select * from t.rows order by n desc, ts limit 400) "
     "x"},
    {"select max(n) from t.rows where P",
     "select n from t.rows where P order by n desc nulls last limit 1"}};

TEST(conditions_mean_the_same_everywhere)
{
    for (uint32_t i = 0; i < runs; i++) {
        char condition[TEXT_BYTES];
        uint64_t begun = seed;
        (void)put_condition(condition, 0, 3);
        sql_configure(engine, SQL_SET_THREADS, 1 + i % 2);
        for (size_t k = 0; k < sizeof(pairs) / sizeof(*pairs); k++) {
            int64_t one = number(pairs[k].one, condition);
            if (!CHECK_INT(number(pairs[k].other, condition), one))
                printf("# seed %llu, %s: %s\n", (unsigned long long)begun, pairs[k].one, condition);
        }
    }
}

static bool fill(void)
{
    static const char *const names[] = {"alpha", "beta", "gamma"};
    uint64_t ids[3];
    for (int i = 0; i < 3; i++)
        if (intern(store_interns(store), names[i], strlen(names[i]), &ids[i]) < 0)
            return false;
    for (int i = 0; i < ROWS; i++) {
        union probing_cell c[3] = {{.i = i % 17 == 16 ? PROBING_NULL_I64 : i / 10},
                                   {.u = i % 4 == 3 ? 0 : ids[i / 500 % 3]},
                                   {.f = i % 11 == 10 ? 0.0 / 0.0 : 0.5 * (i % 8)}};
        if (i % 5 == 4)
            c[2].u = PROBING_NULL_F64;
        int rc;
        while ((rc = ring_append(table, clock_now(), c, 3, i % 20 ? "tail-text" : NULL,
                                 (uint32_t)(i % 10))) == -ENOSPC)
            if (store_drain(store) < 0)
                return false;
        if (rc < 0 || (i == ROWS - LAST && store_drain(store) < 0))
            return false;
    }
    return true;
}

int main(int argc, char **argv)
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
    char directory[] = "/tmp/probing-conditions-XXXXXX";
    struct tables *tables;
    if (argc > 2) {
        runs = (uint32_t)strtoul(argv[1], NULL, 10);
        seed = strtoull(argv[2], NULL, 10);
    }
    if (!mkdtemp(directory))
        return 1;
    struct store_options o = {.directory = directory, .max_bytes = 64u << 20};
    if (tables_new(&tables) || store_create(&o, tables, &store) ||
        store_table_add(store, "t", &desc, NULL, &table) || sql_new(tables, store, &engine) ||
        !fill()) {
        printf("# %s\n", err_text());
        return 1;
    }
    RUN(conditions_mean_the_same_everywhere);
    sql_free(engine);
    store_free(store);
    tables_free(tables);
    (void)file_remove_dir(directory);
    return test_end();
}
