/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/exec/agg_state_test.c - states as bytes: merged in any way they say what one
 * aggregation of all rows says; quantiles of sketches; bytes that are no states.
 *
 * A test's own thread.
 */
#include <math.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/sql/distribute/answer_store.h"
#include "core/sql/exec/agg.h"
#include "tests/test.h"

static struct sql *engine;
static struct held_table *table; /* "state", of one blob */
static struct sql_value cell;    /* the first of the last answer */
static char bytes[1 << 20];

static int keep(void *arg, const struct sql_rows *rows)
{
    (void)arg;
    sql_rows_value(rows, 0, 0, &cell);
    if (sql_is_textual(cell.type) && cell.text.size <= sizeof(bytes)) {
        memcpy(bytes, cell.text.data, cell.text.size);
        cell.text.data = bytes;
    }
    return 0;
}

static int ask(const char *text)
{
    struct sql_sink sink = {.rows = keep};
    cell = (struct sql_value){.type = SQL_NULL};
    return sql_run(engine, text, strlen(text), NULL, &sink, NULL);
}

static double number(const char *text)
{
    if (!CHECK_INT(ask(text), 0))
        printf("# %s: %s\n", text, err_text());
    return cell.type == SQL_INT ? (double)cell.integer : cell.type == SQL_NULL ? -1 : cell.number;
}

#define FROM                                                                       \
    "from (select x * 0.37 - 99 as x, sin(x) * x as y, x %% 7 as k, x %% 31 as j " \
    "from generate_series(1, 5000) t(x)) r"

/* f over all; merged of groups; merged of merged states. */
static void check_merge(const char *name, const char *args, const char *of, double tolerance)
{
    char text[1024], all[96];
    (void)snprintf(text, sizeof(text), "select %s(%s) " FROM, name, args);
    double whole = number(text);
    (void)snprintf(text, sizeof(text),
                   "select %s_merge(s, null::%s) from (select %s_state(%s) s " FROM " group by k)",
                   name, of, name, args);
    double merged = number(text);
    (void)snprintf(text, sizeof(text),
                   "select %s_merge(s, null::%s) from (select %s_merge_state(s, null::%s) s from "
                   "(select %s_state(%s) s, k, j " FROM " group by k, j) group by k)",
                   name, of, name, of, name, args);
    double twice = number(text);
    (void)snprintf(all, sizeof(all), "%.15g %.15g %.15g", whole, merged, twice);
    if (!CHECK(fabs(merged - whole) <= tolerance * fabs(whole)) ||
        !CHECK(fabs(twice - whole) <= tolerance * fabs(whole)))
        printf("# %s(%s): %s\n", name, args, all);
}

TEST(merged_states_say_what_all_rows_say)
{
    check_merge("sum", "x", "double", 0);
    check_merge("avg", "x", "double", 0);
    check_merge("avg", "k", "bigint", 0);
    check_merge("sum", "k", "bigint", 0);
    static const char *const spreads[] = {"stddev", "stddev_pop", "variance", "var_pop"};
    for (size_t i = 0; i < 4; i++)
        check_merge(spreads[i], "x", "double", 1e-13);
    static const char *const pairs[] = {"corr", "covar_samp", "covar_pop", "regr_slope",
                                        "regr_intercept"};
    for (size_t i = 0; i < 5; i++)
        check_merge(pairs[i], "y, x", "double", 1e-11);
}

TEST(sums_that_cancel_between_processes_are_exact)
{
    CHECK(number("select sum_merge(s, null::double) from (select sum_state(x) s from (values "
                 "(1, 1e16), (1, 1.0), (2, -1e16), (2, 1.0)) t(k, x) group by k)") == 2);
    CHECK(
        number("select avg_merge(s, null::bigint) from (select avg_state(x) s from (values "
               "(1, 9223372036854775807), (1, 9223372036854775807), (2, 5)) t(k, x) group by k)") >
        6.1e18);
}

TEST(nothing_is_null)
{
    CHECK_INT(ask("select avg_state(x) from (select 1 as x) t where false"), 0);
    CHECK_INT(cell.type, SQL_NULL);
    CHECK_INT(ask("select avg_merge(s, null::double) from (select null::blob) t(s)"), 0);
    CHECK_INT(cell.type, SQL_NULL);
    CHECK_INT(ask("select variance_merge(s, null::double) from (select variance_state(1) s)"), 0);
    CHECK_INT(cell.type, SQL_NULL); /* of one value there is no sample variance */
}

TEST(quantiles_of_a_sketch_are_within_one_percent)
{
    static const char *const series[] = {"x", "-x", "exp(x / 200.0)", "x - 2500", "1.0 / x"};
    char text[1024];
    for (size_t i = 0; i < sizeof(series) / sizeof(*series); i++) {
        for (int f = 0; f <= 20; f++) {
            (void)snprintf(text, sizeof(text),
                           "select quantile_disc(v, %.2f) from (select %s as v from "
                           "generate_series(1, 5000) t(x))",
                           f / 20.0, series[i]);
            double exact = number(text);
            (void)snprintf(text, sizeof(text),
                           "select quantile_sketch_merge(s, %.2f) from (select "
                           "quantile_sketch_state(%s) s from generate_series(1, 5000) t(x) group "
                           "by x %% 13)",
                           f / 20.0, series[i]);
            double close = number(text);
            if (!CHECK(fabs(close - exact) <= 0.01 * fabs(exact) * (1 + 1e-9)))
                printf("# %s at %.2f: %g, exactly %g\n", series[i], f / 20.0, close, exact);
        }
    }
    CHECK(isnan(number("select quantile_sketch('nan'::double, 0.5)")));
    CHECK(isinf(number("select quantile_sketch(x, 0.1) from (values ('-inf'::double), (1)) t(x)")));
    CHECK(number("select quantile_sketch(x, 0.5) from (values (5e-324), (0), (1.7e308)) t(x)") <
          1e-323);
}

/* Whatever bytes come: a value or a refusal, and the check before says the same. */
static void check_bytes(enum agg_op op, const char *call, const char *data, uint32_t size)
{
    char text[128];
    struct sql_value state = {.type = SQL_BLOB, .text = {data, size}};
    held_drop(&table->parts[0]);
    if (!CHECK_INT(held_row(table, 0, &state), 0))
        return;
    (void)snprintf(text, sizeof(text), "select %s from state", call);
    int rc = ask(text);
    bool good = sql_agg_is_state(op, SQL_DOUBLE, data, size);
    if (!CHECK(good == (rc == 0)))
        printf("# %s of %u bytes: %d %s\n", call, size, rc, rc < 0 ? err_text() : "");
}

static void spoil(enum agg_op op, const char *name, const char *args, const char *call)
{
    char text[512], good[4096], data[4096];
    (void)snprintf(text, sizeof(text), "select %s_state(%s) from generate_series(-20, 20) t(x)",
                   name, args);
    if (!CHECK_INT(ask(text), 0) || !CHECK(cell.text.size <= sizeof(good)))
        return;
    uint32_t size = cell.text.size, seed = 1;
    memcpy(good, bytes, size);
    for (uint32_t n = 0; n <= size; n++)
        check_bytes(op, call, good, n);
    for (uint32_t i = 0; i < 400; i++) {
        memcpy(data, good, size);
        for (int k = 0; k < 3; k++) {
            seed = seed * 1664525 + 1013904223;
            uint32_t at = (seed >> 8) % size;
            seed = seed * 1664525 + 1013904223;
            data[at] = (char)(k == 0 && i % 4 == 0 ? 0xff : seed >> 24);
        }
        check_bytes(op, call, data, size);
    }
}

TEST(spoilt_states_are_refused_or_are_numbers)
{
    spoil(AGG_AVG, "avg", "x * 1.5", "avg_merge(s, null::double)");
    spoil(AGG_VAR, "var", "x * 1.5", "var_merge(s, null::double)");
    spoil(AGG_CORR, "corr", "x * 1.5, x", "corr_merge(s, null::double)");
    spoil(AGG_SKETCH, "quantile_sketch", "x * 1.5", "quantile_sketch_merge(s, 0.5)");
    CHECK(ask("select avg_merge(avg_state, null::bigint) from (select avg_state(x * 1.5) as "
              "avg_state from generate_series(1, 3) t(x))") < 0); /* of doubles */
    CHECK(ask("select avg_state(distinct 1)") < 0);
    CHECK(ask("select avg_state(1) over ()") < 0);
    CHECK(ask("select count_state(1)") < 0);
}

int main(void)
{
    static const struct sql_column column = {.name = "s", .type = SQL_BLOB, .doc = ""};
    const struct held_table t = {.name = "state", .columns = &column, .n_columns = 1, .n_parts = 1};
    struct held held;
    struct arena mem;
    arena_init(&mem, 0);
    if (held_init(&held) < 0 || held_add(&held, &mem, &t, &table) < 0) {
        printf("# %s\n", err_text());
        return 1;
    }
    engine = held.engine;
    RUN(merged_states_say_what_all_rows_say);
    RUN(sums_that_cancel_between_processes_are_exact);
    RUN(nothing_is_null);
    RUN(quantiles_of_a_sketch_are_within_one_percent);
    RUN(spoilt_states_are_refused_or_are_numbers);
    held_done(&held);
    arena_done(&mem);
    return test_end();
}
