/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/store/clocks_test.c - retention by age as time goes by, and clocks that jump: hours pass in
 * milliseconds, by clock_move().
 *
 * Threads: the test's and the store's.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/datadir/own_dir.h"
#include "core/sql/format/format.h"
#include "core/sql/sql.h"
#include "core/store/store.h"
#include "tests/test.h"

#define MINUTE_NS (60 * NS_PER_S)
#define HOUR_NS (60 * MINUTE_NS)
#define YEAR_NS (365 * 24 * HOUR_NS)
#define ROWS 20          /* a minute */
#define LAST_DRAIN 32768 /* bytes: 1,020 rows of two cells */

static char directory[] = "/tmp/probing-clocks-XXXXXX";
static struct tables *tables;
static struct store *store;
static int64_t monotonic, utc; /* how far the clocks were moved */

static const struct probing_column columns[] = {{.name = "n", .type = PROBING_I64}};

static struct table *make(const char *name, uint64_t keep_ns)
{
    struct table *t = NULL;
    const struct probing_table_desc d = {.size = sizeof(d),
                                         .column_size = sizeof(columns[0]),
                                         .name = name,
                                         .columns = columns,
                                         .n_columns = 1,
                                         .keep_ns = keep_ns};
    CHECK_INT(store_table_add(store, "t", &d, NULL, &t), 0);
    return t;
}

static bool begin(uint64_t max_bytes, uint64_t keep_ns, bool resume)
{
    struct store_options o = {
        .directory = directory, .max_bytes = max_bytes, .keep_ns = keep_ns, .resume = resume};
    return CHECK_INT(tables_new(&tables), 0) && CHECK_INT(store_create(&o, tables, &store), 0);
}

static void end(bool remove)
{
    store_free(store);
    tables_free(tables);
    if (remove) {
        CHECK_INT(file_remove_dir(directory), 0);
        CHECK(file_private_dir(directory) >= 0);
    }
}

static void pass(int64_t ns)
{
    monotonic += ns;
    utc += ns;
    clock_move(monotonic, utc);
}

static void append(struct table *t, int n)
{
    union probing_cell cell = {.i = n};
    for (int i = 0; i < ROWS; i++)
        CHECK_INT(ring_append(t, clock_monotonic(), &cell, 1, NULL, 0), 0);
}

/* Check a table to which ROWS came each minute, `minutes` of them so far. */
static void check_age(struct table *t, uint64_t minutes, uint64_t keep_minutes, uint64_t at_most)
{
    struct store_table_stats s;
    CHECK_INT(store_stats(store, t, &s), 0);
    CHECK_INT(s.rows + s.waiting + s.expired, minutes * ROWS);
    /* Nothing that is younger has gone. */
    uint64_t young = minutes < keep_minutes ? minutes : keep_minutes;
    CHECK(s.rows >= young * ROWS);
    /* Segments go when the youngest of their rows is too old. */
    uint64_t now = clock_monotonic() + (uint64_t)store_utc_offset(store);
    CHECK(now - s.first_ts <= (3 * at_most / 2 + 2) * MINUTE_NS && s.segments < 12);
    CHECK(s.last_ts <= now && now - s.last_ts < MINUTE_NS);
}

TEST(age_takes_what_is_older_and_nothing_younger)
{
    if (!begin(64 << 20, HOUR_NS, false))
        return;
    struct table *all = make("all_tables", 0), *own = make("its_own", 10 * MINUTE_NS);
    struct table *later = make("set_later", 0);
    for (uint64_t minute = 1; minute <= 12 * 60; minute++) {
        append(all, (int)minute);
        append(own, (int)minute);
        append(later, (int)minute);
        CHECK_INT(store_drain(store), 0);
        check_age(all, minute, 60, 60);
        check_age(own, minute, 10, 10);
        check_age(later, minute, minute <= 390 ? 60 : 5, minute < 400 ? 60 : 5);
        if (minute == 390)
            CHECK_INT(store_retention_set(store, "set_later", "5m"), 0);
        pass(MINUTE_NS);
    }
    end(true);
}

/* The oldest of all tables go first, and the youngest stays, whoever wrote more. */
TEST(bytes_of_all_take_the_oldest)
{
    struct store_table_stats busy_now, calm_now;
    uint64_t noise = 1;
    if (!begin(8 << 20, 0, false))
        return;
    struct table *busy = make("busy", 0), *calm = make("calm", 0);
    for (int minute = 0; minute < 2000; minute++) {
        union probing_cell cell;
        append(calm, minute);
        for (int i = 0; i < 1000; i++) {
            noise ^= noise << 13;
            noise ^= noise >> 7;
            noise ^= noise << 17;
            cell.u = noise;
            CHECK_INT(ring_append(busy, clock_monotonic(), &cell, 1, NULL, 0), 0);
        }
        CHECK_INT(store_drain(store), 0);
        pass(MINUTE_NS);
    }
    CHECK_INT(store_stats(store, busy, &busy_now), 0);
    CHECK_INT(store_stats(store, calm, &calm_now), 0);
    /* Room is made before rows come: those of the last drain may stand above the limit. */
    CHECK(busy_now.bytes + calm_now.bytes <= (8 << 20) + LAST_DRAIN && busy_now.expired > 0);
    CHECK(busy_now.rows > 300000 && busy_now.rows + busy_now.expired == 2000000);
    CHECK(calm_now.last_ts - busy_now.last_ts < MINUTE_NS || calm_now.last_ts < busy_now.last_ts);
    end(true);
}

static int take(void *arg, const char *data, size_t size)
{
    return buf_add(arg, data, size);
}

/* Rows as CSV behind its header. */
static bool says(const char *statement, const char *rows)
{
    const struct sql_options o = {.memory_bytes = 64 << 20};
    struct sql_report report;
    struct sql_writer *w = NULL;
    struct sql *engine = NULL;
    struct buf b;
    buf_init(&b, 1 << 20);
    int rc = sql_new(tables, store, &engine);
    if (rc == 0)
        rc = sql_writer_new(SQL_FORMAT_CSV, 0, take, &b, &w);
    if (rc == 0) {
        struct sql_sink sink = sql_writer_sink(w);
        rc = sql_run(engine, statement, strlen(statement), &o, &sink, &report);
    }
    if (rc == 0)
        rc = sql_writer_finish(w, &report);
    const char *said = strchr(buf_text(&b), '\n');
    bool same = CHECK_INT(rc, 0) && said && strcmp(said + 1, rows) == 0;
    if (!same)
        printf("# %s is %s%s\n", statement, buf_text(&b), rc ? err_text() : "");
    sql_writer_free(w);
    sql_free(engine);
    buf_done(&b);
    return same;
}

#define IN_ORDER                                                                                 \
    "select count(*) from (select ts < lag(ts) over (order by n, ts) as back from t.rows) as q " \
    "where back"

/* The wall clock is asked once: whatever it does then, rows stay in order and as old as they are,
 * and now() is their clock's. */
TEST(a_wall_clock_that_jumps_changes_nothing)
{
    static const int64_t jumps[] = {0, (int64_t)YEAR_NS, -(int64_t)HOUR_NS, -2 * (int64_t)YEAR_NS};
    if (!begin(64 << 20, HOUR_NS, false))
        return;
    struct table *t = make("rows", 0);
    for (int i = 0; i < 4; i++) {
        utc += jumps[i];
        pass(MINUTE_NS);
        append(t, i);
        CHECK_INT(store_drain(store), 0);
    }
    CHECK(says("select count(*), count(distinct n) from t.rows", "80,4\r\n"));
    CHECK(says(IN_ORDER, "0\r\n"));
    CHECK(says("select count(*) from t.rows where ts > now() - interval '90 seconds'", "40\r\n"));
    CHECK(says("select count(*) from t.rows where ts > now()", "0\r\n"));
    CHECK(says("select round(extract(epoch from max(ts) - min(ts))) from t.rows", "180\r\n"));
    /* A machine that slept: the monotonic clock stood still, and so did the age of the rows. */
    utc += 8 * (int64_t)HOUR_NS;
    pass(MINUTE_NS);
    CHECK_INT(store_drain(store), 0);
    CHECK(says("select count(*) from t.rows", "80\r\n"));
    pass(2 * (int64_t)HOUR_NS);
    append(t, 4);
    CHECK_INT(store_drain(store), 0);
    CHECK(says("select min(n), count(*) from t.rows", "4,20\r\n"));
    end(true);
}

/* The process is left and entered again, and the wall clock was put right in between. */
TEST(a_second_life_goes_on_by_the_clock_of_the_first)
{
    struct own_dir p = {.resumed = true};
    if (!begin(64 << 20, HOUR_NS, false))
        return;
    struct table *t = make("rows", 0);
    append(t, 1);
    CHECK_INT(store_drain(store), 0);
    (void)snprintf(p.directory, sizeof(p.directory), "%s", directory);
    CHECK_INT(own_dir_info(&p, "1", store_utc_offset(store)), 0);
    static const int64_t jumps[] = {(int64_t)YEAR_NS, -2 * (int64_t)YEAR_NS};
    for (int life = 0; life < 2; life++) {
        end(false);
        utc += jumps[life];
        pass(MINUTE_NS);
        clock_utc_offset_keep(0); /* the core comes anew, and knows nothing */
        resume_clock(&p);
        if (!begin(64 << 20, HOUR_NS, true))
            return;
        t = make("rows", 0);
        append(t, 2 + life);
        CHECK_INT(store_drain(store), 0);
        CHECK(says("select count(*) from t.rows", life ? "60\r\n" : "40\r\n"));
        CHECK(says(IN_ORDER, "0\r\n"));
    }
    end(true);
}

int main(void)
{
    if (!mkdtemp(directory))
        return test_skip("no directory in /tmp");
    RUN(age_takes_what_is_older_and_nothing_younger);
    RUN(bytes_of_all_take_the_oldest);
    RUN(a_wall_clock_that_jumps_changes_nothing);
    RUN(a_second_life_goes_on_by_the_clock_of_the_first);
    (void)file_remove_dir(directory);
    return test_end();
}
