/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/exec/aggregate_test.c - aggregates of stored numbers: quick ways answer as the plain
 * one.
 *
 * The store says how large numbers are, and what has no group by is kept in registers; `x + 0` and
 * `group by zero * 1` take neither way.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/ring/ring.h"
#include "core/sql/sql.h"
#include "core/store/store.h"
#include "tests/test.h"

#define ROWS 60000 /* several segments: the last has other numbers than the first */

static struct sql *engine;
static struct store *store;
static struct table *table;

static int add_bytes(void *arg, const char *data, size_t size)
{
    return buf_add(arg, data, size);
}

static int ask(const char *text, struct buf *out)
{
    struct sql_options o = {.timeout_ns = 0};
    struct sql_report report;
    struct sql_writer *w;
    int rc = sql_writer_new(SQL_FORMAT_CSV, 0, add_bytes, out, &w);
    if (rc < 0)
        return rc;
    struct sql_sink sink = sql_writer_sink(w);
    rc = sql_run(engine, text, strlen(text), &o, &sink, &report);
    sql_writer_free(w);
    return rc;
}

/* `text` with x in the place of each @. */
static const char *with(const char *text, const char *x, char *out, size_t size)
{
    size_t n = 0;
    for (; *text && n + strlen(x) + 1 < size; text++)
        n += (size_t)snprintf(out + n, size - n, "%.*s", *text == '@' ? (int)strlen(x) : 1,
                              *text == '@' ? x : text);
    return out;
}

static void compare(const char *quick, const char *plain)
{
    struct buf a, b;
    buf_init(&a, 1 << 22);
    buf_init(&b, 1 << 22);
    if (!CHECK_INT(ask(quick, &a), 0) || !CHECK_INT(ask(plain, &b), 0) ||
        !CHECK_STR(strchr(buf_text(&a), '\n'), strchr(buf_text(&b), '\n')))
        printf("# %s: %s\n", quick, err_text());
    buf_done(&a);
    buf_done(&b);
}

static const char *const numbers[][2] = {{"small", "small + 0"},   {"half", "half + 0"},
                                         {"huge", "huge + 0"},     {"mixed", "mixed + 0"},
                                         {"number", "number + 0"}, {"odd", "odd + 0"}};
#define N_NUMBERS (sizeof(numbers) / sizeof(*numbers))

TEST(groups_of_numbers)
{
    static const char *const texts[] = {
        "select key, avg(@), min(@), max(@), count(@), count(*) from t.numbers group by 1 order by "
        "1",
        "select key, name, avg(@), min(@) from t.numbers where small % 3 <> 1 group by 1, 2 order "
        "by 1, 2",
        "select name, avg(@) filter (where small > 9), max(@) from t.numbers group by 1 order by 1",
        "select name, avg(distinct @) from t.numbers where small < 5000 group by 1 order by 1",
        "select sum(n), max(k) from (select @ as k, count(*) as n from t.numbers group by 1) x",
        "select sum(n), max(k) from (select @ as k, name, count(*) as n from t.numbers group by 1, "
        "2) x"};
    char quick[512], plain[512];
    for (size_t i = 0; i < N_NUMBERS; i++)
        for (size_t k = 0; k < sizeof(texts) / sizeof(*texts); k++)
            compare(with(texts[k], numbers[i][0], quick, sizeof(quick)),
                    with(texts[k], numbers[i][1], plain, sizeof(plain)));
}

TEST(all_rows_together)
{
    static const char *const texts[] = {
        "select avg(@), min(@), max(@), count(@), count(*) from t.numbers",
        "select avg(@), min(@), max(@), count(@) from t.numbers where small % 7 = 2",
        "select min(@), max(@) filter (where mixed < 0), avg(@) from t.numbers where key = 3"};
    char quick[512], plain[512];
    for (size_t i = 0; i < N_NUMBERS; i++)
        for (size_t k = 0; k < sizeof(texts) / sizeof(*texts); k++) {
            (void)with(texts[k], numbers[i][0], plain, sizeof(plain));
            (void)snprintf(plain + strlen(plain), sizeof(plain) - strlen(plain),
                           " group by key * 0");
            compare(with(texts[k], numbers[i][0], quick, sizeof(quick)), plain);
        }
}

TEST(sums_are_exact)
{
    struct buf b;
    buf_init(&b, 1 << 16);
    CHECK_INT(ask("select sum(small), sum(half), max(sum(half)) over () from t.numbers where key = "
                  "1 and small < 100",
                  &b),
              0);
    CHECK_STR(strchr(buf_text(&b), '\n') + 1, "1070,23643898044352735,23643898044352735\r\n");
    buf_reset(&b);
    CHECK_INT(ask("select sum(huge) from t.numbers", &b), -ERANGE);
    CHECK_INT(ask("select key, sum(huge) from t.numbers group by 1", &b), -ERANGE);
    buf_done(&b);
}

/* huge and half: sums of 64 bits that do not last for one batch, and for a few.  mixed: negative
 * in the second half, so that the store promises something of one part of the segments alone. */
static bool append_rows(void)
{
    static const char *const names[] = {"alpha", "beta", "gamma"};
    uint64_t ids[3];
    for (int i = 0; i < 3; i++)
        if (intern(store_interns(store), names[i], strlen(names[i]), &ids[i]) < 0)
            return false;
    for (int64_t i = 0; i < ROWS; i++) {
        union probing_cell c[7] = {{.i = i % 10},
                                   {.i = i * 7919 % 30011},
                                   {.i = (INT64_C(1) << 50) + i},
                                   {.i = INT64_MAX - i},
                                   {.i = i < ROWS / 2 ? i : -i},
                                   {.f = (double)(i * 31 % 1009) * 0.1},
                                   {.f = i % 4000 == 3999 ? NAN : (double)i - 0.25 * ROWS}};
        union probing_cell row[8];
        if (i % 100 == 77) /* NULLs in some columns */
            c[1].i = c[4].i = PROBING_NULL_I64, c[5].u = PROBING_NULL_F64;
        memcpy(row, c, sizeof(c));
        row[7].u = i % 7 == 6 ? PROBING_NULL_ID : ids[i % 3];
        int rc;
        while ((rc = ring_append(table, (uint64_t)(i + 1) * 1000, row, 8, NULL, 0)) == -ENOSPC)
            if (store_drain(store) < 0)
                return false;
        if (rc < 0)
            return false;
    }
    return store_drain(store) == 0;
}

int main(void)
{
    static const struct probing_column columns[] = {
        {.name = "key", .type = PROBING_I64},   {.name = "small", .type = PROBING_I64},
        {.name = "half", .type = PROBING_I64},  {.name = "huge", .type = PROBING_I64},
        {.name = "mixed", .type = PROBING_I64}, {.name = "number", .type = PROBING_F64},
        {.name = "odd", .type = PROBING_F64},   {.name = "name", .type = PROBING_STR}};
    static const struct probing_table_desc desc = {.size = sizeof(desc),
                                                   .column_size = sizeof(*columns),
                                                   .name = "t.numbers",
                                                   .doc = "",
                                                   .columns = columns,
                                                   .n_columns = 8};
    char directory[] = "/tmp/probing-sql-XXXXXX";
    struct tables *tables;
    if (!mkdtemp(directory))
        return 1;
    struct store_options o = {.directory = directory, .max_bytes = 64u << 20};
    if (tables_new(&tables) || store_create(&o, tables, &store) ||
        store_table_add(store, "t", &desc, NULL, &table) || sql_new(tables, store, &engine) ||
        !append_rows()) {
        printf("# %s\n", err_text());
        return 1;
    }
    RUN(groups_of_numbers);
    RUN(all_rows_together);
    RUN(sums_are_exact);
    sql_free(engine);
    store_free(store);
    tables_free(tables);
    (void)file_remove_dir(directory);
    return test_end();
}
