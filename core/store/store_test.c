/* SPDX-License-Identifier: Apache-2.0
 *
 * core/store/store_test.c - append, drain, scan, merge, prune, expire; the dead and the damaged.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/guest/thread.h"
#include "core/store/store.h"
#include "tests/fail_alloc.h"
#include "tests/test.h"

static char directory[] = "/tmp/probing-store-XXXXXX";
static struct tables *tables;
static struct store *store;
static struct table *table;

static const struct probing_column columns[] = {
    {.name = "n", .type = PROBING_I64, .unit = PROBING_COUNT, .doc = "which row"},
    {.name = "name", .type = PROBING_STR},
    {.name = "seconds", .type = PROBING_F64, .unit = PROBING_SECONDS},
    {.name = "begun", .type = PROBING_TIME},
};
static const struct probing_table_desc desc = {.size = sizeof(desc),
                                               .column_size = sizeof(struct probing_column),
                                               .name = "rows",
                                               .doc = "rows of a test",
                                               .columns = columns,
                                               .n_columns = 4,
                                               .tail_type = PROBING_STR,
                                               .tail_name = "text"};

static bool begin(uint64_t max_bytes, uint64_t keep_ns)
{
    struct store_options o = {.directory = directory, .max_bytes = max_bytes, .keep_ns = keep_ns};
    return CHECK(mkdir(directory, 0700) == 0 || errno == EEXIST) &&
           CHECK_INT(tables_new(&tables), 0) && CHECK_INT(store_create(&o, tables, &store), 0) &&
           CHECK_INT(store_table_add(store, "test", &desc, NULL, &table), 0);
}

static bool begin_dead(void)
{
    int rc = tables_new(&tables);
    if (rc == 0)
        rc = store_open(directory, tables, &store);
    if (!CHECK_INT(rc, 0))
        printf("# %s\n", err_text());
    table = rc ? NULL : tables_find(tables, "test", "rows");
    return CHECK(table != NULL);
}

static void end(void)
{
    store_free(store);
    tables_free(tables);
    store = NULL;
    tables = NULL;
}

static int append(uint64_t ts, int64_t n)
{
    uint64_t id = 0;
    char text[16];
    (void)intern(store_interns(store), "a name", 6, &id);
    int size = snprintf(text, sizeof(text), "row %lld", (long long)n);
    union probing_cell cells[4] = {
        {.i = n}, {.u = n % 2 ? 1 : 0}, {.f = (double)n / 1000}, {.i = (int64_t)ts - 5}};
    int rc;
    /* A ring may be full for a moment: these tests want every row. */
    while ((rc = ring_append(table, ts, cells, 4, n % 3 ? text : NULL,
                             n % 3 ? (uint32_t)size : 0)) == -ENOSPC)
        (void)store_drain(store);
    return rc;
}

struct answer {
    uint64_t rows, first_row, bad, pruned, segments;
    int64_t first_n, last_n;
};

/* Read everything and compare each row with what append() wrote. */
static struct answer read_rows(const struct store_bound *bound, uint64_t from_row)
{
    struct answer a = {.first_row = UINT64_MAX};
    struct store_scan *scan;
    struct store_batch b;
    struct store_scan_options o = {.columns = {UINT64_MAX, UINT64_MAX},
                                   .from_row = from_row,
                                   .bounds = bound,
                                   .n_bounds = bound ? 1 : 0};
    int rc = store_scan_new(store, table, &o, &scan);
    if (!CHECK_INT(rc, 0))
        return a;
    int64_t offset = store_utc_offset(store);
    while ((rc = store_scan_next(scan, &b)) == 1) {
        a.bad += b.n_rows == 0 || b.n_rows > STORE_BATCH_ROWS;
        if (a.rows == 0) {
            a.first_row = b.first_row;
            a.first_n = b.cells[2][0].i;
        }
        for (uint32_t i = 0; i < b.n_rows; i++) {
            int64_t n = b.cells[2][i].i;
            char text[16];
            int size = snprintf(text, sizeof(text), "row %lld", (long long)n);
            uint32_t tail_n = b.tail_offsets[i + 1] - b.tail_offsets[i];
            a.bad += b.cells[1][i].i <= 0 || b.cells[3][i].u != (n % 2 ? 1u : 0u) ||
                     b.cells[4][i].f != (double)n / 1000 ||
                     b.cells[5][i].i != b.cells[0][i].i - 5 ||
                     tail_n != (n % 3 ? (uint32_t)size + 1 : 0) ||
                     memcmp(b.tails + b.tail_offsets[i], text, tail_n) != 0;
            a.bad += b.cells[0][i].i < offset;
            a.last_n = n;
        }
        a.bad += b.cells[2][0].i < b.min[2].i || b.cells[2][0].i > b.max[2].i;
        a.rows += b.n_rows;
    }
    CHECK_INT(rc, 0);
    a.pruned = store_scan_pruned(scan, &a.segments);
    store_scan_free(scan);
    return a;
}

static void remove_all(void)
{
    CHECK_INT(file_remove_dir(directory), 0);
}

TEST(rows_appended_before_a_scan_are_in_it)
{
    struct store_table_stats stats;
    if (!begin(1 << 28, 0))
        return;
    CHECK_INT(read_rows(NULL, 0).rows, 0);
    uint64_t ts = clock_now();
    for (int64_t n = 0; n < 50000; n++) {
        CHECK_INT(append(ts + (uint64_t)n, n), 0);
        if (n == 0 || n == 7 || n == 3000)
            CHECK_INT(read_rows(NULL, 0).rows, n + 1);
    }
    CHECK_INT(store_next_row(store, table), 50000);
    struct answer a = read_rows(NULL, 0);
    CHECK_INT(a.rows, 50000);
    CHECK_INT(a.bad, 0);
    CHECK_INT(a.last_n, 49999);
    /* A continuous query's cursor: nothing before it, nothing twice. */
    a = read_rows(NULL, 49990);
    CHECK_INT(a.rows, 10);
    CHECK_INT(a.first_row, 49990);
    CHECK_INT(a.first_n, 49990);
    CHECK_INT(read_rows(NULL, 50000).rows, 0);
    CHECK_INT(store_stats(store, table, &stats), 0);
    CHECK_INT(stats.rows, 50000);
    CHECK_INT(stats.waiting, 0);
    CHECK_INT(stats.last_ts - stats.first_ts, 49999);
    CHECK_INT(stats.first_ts, (int64_t)ts + store_utc_offset(store));
    CHECK_INT(*table->appended, 50000);
    end();
    remove_all();
}

TEST(bounds_skip_segments)
{
    if (!begin(1 << 28, 0))
        return;
    for (int64_t n = 0; n < 100000; n++)
        CHECK_INT(append((uint64_t)n + 1000000, n), 0);
    struct store_bound bound = {.column = 2, .lo.i = 99990, .hi.i = PROBING_NULL_I64};
    struct answer a = read_rows(&bound, 0);
    CHECK(a.rows >= 10 && a.rows < 40000 && a.bad == 0 && a.last_n == 99999);
    CHECK(a.pruned >= 4 && a.segments > a.pruned);
    bound = (struct store_bound){.column = 2, .lo.i = 200000, .hi.i = 300000};
    a = read_rows(&bound, 0);
    CHECK_INT(a.rows, 0);
    CHECK_INT(a.pruned, a.segments);
    bound = (struct store_bound){.column = 4, .lo.f = -1, .hi.f = 0.5};
    CHECK(read_rows(&bound, 0).rows >= 501);
    end();
    remove_all();
}

TEST(slow_tables_do_not_become_many_segments)
{
    struct store_table_stats stats;
    if (!begin(1 << 28, 0))
        return;
    for (int64_t n = 0; n < 2000; n++) {
        CHECK_INT(append((uint64_t)n + 1, n), 0);
        CHECK_INT(store_drain(store), 0);
    }
    CHECK_INT(store_stats(store, table, &stats), 0);
    CHECK_INT(stats.rows, 2000);
    CHECK(stats.segments < 40);
    struct answer a = read_rows(NULL, 0);
    CHECK(a.rows == 2000 && a.bad == 0);
    end();
    remove_all();
}

TEST(a_scan_stays_right_while_segments_are_merged)
{
    struct store_scan *scan;
    struct store_batch b;
    struct store_scan_options o = {.columns = {4, 0}};
    if (!begin(1 << 28, 0))
        return;
    int64_t n = 0;
    for (; n < 3000; n++) {
        CHECK_INT(append((uint64_t)n + 1, n), 0);
        if (n % 700 == 0)
            CHECK_INT(store_drain(store), 0);
    }
    CHECK_INT(store_scan_new(store, table, &o, &scan), 0);
    CHECK_INT(store_scan_end(scan), 3000);
    uint64_t next = 0, bad = 0;
    while (store_scan_next(scan, &b) == 1) {
        bad += b.first_row != next || b.cells[0] != NULL;
        for (uint32_t i = 0; i < b.n_rows; i++)
            bad += b.cells[2][i].u != next++;
        for (int k = 0; k < 900; k++, n++)
            CHECK_INT(append((uint64_t)n + 1, n), 0);
        CHECK_INT(store_drain(store), 0);
    }
    CHECK_INT(bad, 0);
    CHECK_INT(store_scan_end(scan), 3000);
    CHECK_INT(next, 3000); /* those before the scan, not those that came meanwhile */
    store_scan_free(scan);
    end();
    remove_all();
}

TEST(old_rows_go_by_bytes_and_by_age)
{
    struct store_table_stats stats;
    if (!begin(8 << 20, 0))
        return;
    int64_t n = 0;
    for (; n < 1200000; n++)
        CHECK_INT(append((uint64_t)n + 1, n), 0);
    CHECK_INT(store_drain(store), 0);
    CHECK_INT(store_stats(store, table, &stats), 0);
    CHECK(stats.bytes < (9 << 20) && stats.bytes > (6 << 20));
    CHECK_INT(stats.rows + stats.expired, n);
    CHECK(stats.expired > 0);
    struct answer a = read_rows(NULL, 0);
    CHECK_INT(a.rows, stats.rows);
    CHECK_INT(a.first_row, stats.expired);
    CHECK(a.last_n == n - 1 && a.bad == 0);
    struct stat st;
    char path[100];
    (void)snprintf(path, sizeof(path), "%s/data.mdb", directory);
    CHECK_INT(stat(path, &st), 0);
    CHECK(st.st_size < (20 << 20));
    CHECK_INT(table->lost[TABLE_LOST_STORE], 0);
    struct event never;
    CHECK_INT(event_init(&never), 0);
    /* All these rows are from just after the machine was started. */
    atomic_store_explicit(&table->keep_ns, NS_PER_MS, memory_order_relaxed);
    for (int tries = 0; tries < 40 && stats.rows > 1; tries++) {
        (void)event_wait(&never, 100 * NS_PER_MS); /* age is looked at each second */
        CHECK_INT(append(clock_now(), n++), 0);
        CHECK_INT(store_drain(store), 0);
        CHECK_INT(store_stats(store, table, &stats), 0);
    }
    CHECK(stats.rows < 100);
    event_done(&never);
    end();
    remove_all();
}

/* LMDB's first two pages: each transaction that writes leaves its number in one of them. */
static void read_first_pages(char pages[8192])
{
    char path[100];
    (void)snprintf(path, sizeof(path), "%s/data.mdb", directory);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK_INT(pread(fd, pages, 8192, 0), 8192);
    (void)close(fd);
}

TEST(a_store_that_nothing_comes_to_is_not_written_and_still_loses_what_is_old)
{
    static char before[8192], after[8192];
    struct store_table_stats stats;
    if (!begin(8 << 20, 0))
        return;
    atomic_store_explicit(&table->keep_ns, 365 * 86400 * NS_PER_S, memory_order_relaxed);
    CHECK_INT(append(1, 1), 0);
    CHECK_INT(store_drain(store), 0);
    read_first_pages(before);
    for (int i = 0; i < 3; i++) {
        store_set_limits(store, 8 << 20, 3600 * NS_PER_S); /* age is looked at now */
        CHECK_INT(store_drain(store), 0);
    }
    read_first_pages(after);
    CHECK(memcmp(before, after, sizeof(before)) == 0);
    CHECK_INT(store_stats(store, table, &stats), 0);
    CHECK(stats.rows == 1 && stats.expired == 0);
    atomic_store_explicit(&table->keep_ns, 1, memory_order_relaxed);
    store_set_limits(store, 8 << 20, 3600 * NS_PER_S);
    CHECK_INT(store_drain(store), 0);
    CHECK_INT(store_stats(store, table, &stats), 0);
    CHECK(stats.rows == 0 && stats.expired == 1);
    read_first_pages(after);
    CHECK(memcmp(before, after, sizeof(before)) != 0);
    end();
    remove_all();
}

/* A child that appends and is gone at once, without any end. */
static void leave_rows(int64_t rows, bool drain)
{
    pid_t child = fork();
    if (child == 0) {
        if (!begin(1 << 28, 0))
            _exit(1);
        for (int64_t n = 0; n < rows; n++)
            (void)append((uint64_t)n + 1, n);
        if (drain)
            (void)store_drain(store);
        for (int64_t n = rows; n < rows + 100; n++)
            (void)append((uint64_t)n + 1, n);
        _exit(0);
    }
    int status = 1;
    CHECK_INT(waitpid(child, &status, 0), child);
    CHECK_INT(status, 0);
}

TEST(the_dead_are_read_whole_and_left_unchanged)
{
    struct store_table_stats stats;
    uint32_t size;
    leave_rows(30000, true);
    if (!begin_dead())
        return;
    CHECK_STR(store_damage(store), "");
    struct answer a = read_rows(NULL, 0);
    CHECK_INT(a.rows, 30100);
    CHECK_INT(a.bad, 0);
    CHECK_INT(read_rows(NULL, 30050).rows, 50);
    CHECK_INT(store_stats(store, table, &stats), 0);
    CHECK(stats.rows == 30100 && stats.last_ts - stats.first_ts == 30099);
    CHECK_INT(store_next_row(store, table), 30100);
    CHECK_INT(*table->appended, 30100);
    CHECK_STR(intern_text(store_interns(store), 1, &size), "a name");
    CHECK_STR(table->doc, "rows of a test");
    CHECK_STR(table->columns[2].doc, "which row");
    CHECK_INT(table->columns[4].unit, PROBING_SECONDS);
    struct table *t;
    CHECK_INT(store_table_add(store, "test", &desc, NULL, &t), -EROFS);
    end();
    if (begin_dead()) /* as often as one likes */
        CHECK_INT(read_rows(NULL, 0).rows, 30100);
    end();
    remove_all();
}

TEST(without_lmdb_the_rings_still_answer)
{
    char path[100];
    leave_rows(30000, true);
    (void)snprintf(path, sizeof(path), "%s/data.mdb", directory);
    CHECK_INT(truncate(path, 40000), 0);
    if (begin_dead()) {
        CHECK(strstr(store_damage(store), "data.mdb is truncated") != NULL);
        struct answer a = read_rows(NULL, 0);
        CHECK(a.rows >= 100 && a.bad == 0 && a.last_n == 30099);
    }
    end();
    CHECK_INT(file_write(AT_FDCWD, path, "rubbish", 7, 0600), 0);
    if (begin_dead())
        CHECK(read_rows(NULL, 0).rows >= 100 && *store_damage(store));
    end();
    CHECK_INT(unlink(path), 0);
    if (begin_dead())
        CHECK(read_rows(NULL, 0).rows >= 100 && *store_damage(store));
    end();
    remove_all();
}

TEST(without_rings_lmdb_still_answers)
{
    char path[100];
    leave_rows(30000, true);
    (void)snprintf(path, sizeof(path), "%s/rings", directory);
    CHECK_INT(unlink(path), 0);
    (void)snprintf(path, sizeof(path), "%s/strings", directory);
    CHECK_INT(truncate(path, 100), 0);
    if (begin_dead()) {
        CHECK(strstr(store_damage(store), "newest rows may be missing") != NULL);
        CHECK(strstr(store_damage(store), "names are missing") != NULL);
        CHECK_INT(read_rows(NULL, 0).rows, 30000);
    }
    end();
    remove_all();
    CHECK_INT(tables_new(&tables), 0);
    CHECK_INT(store_open("/nonexistent", tables, &store), -ENOENT);
    CHECK_INT(store_open("/proc", tables, &store), -ENOENT);
    CHECK_INT(store_open("/dev/null", tables, &store), -ENOTDIR);
    tables_free(tables);
}

/* Blocks of data.mdb overwritten: every answer is right rows or an error, never a wrong row. */
TEST(a_damaged_segment_is_told)
{
    char path[100];
    leave_rows(60000, true);
    (void)snprintf(path, sizeof(path), "%s/data.mdb", directory);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    struct stat st;
    CHECK_INT(fstat(fd, &st), 0);
    /* A segment's head begins 16 bytes into a page: find one and break it. */
    uint32_t magic = 0;
    off_t at = 16;
    for (; at < st.st_size && magic != UINT32_C(0x33475350); at += 4096)
        CHECK_INT(pread(fd, &magic, 4, at), 4);
    CHECK_INT(magic, UINT32_C(0x33475350));
    CHECK_INT(pwrite(fd, "zz", 2, at - 4096 + 30), 2);
    (void)close(fd);
    if (begin_dead()) {
        CHECK(strstr(store_damage(store), "damaged") != NULL);
        struct answer a = read_rows(NULL, 0);
        CHECK(a.rows < 60100 && a.rows > 10000 && a.bad == 0);
    }
    end();
    remove_all();
}

TEST(a_second_life_goes_on_where_the_first_ended)
{
    if (!begin(1 << 28, 0))
        return;
    for (int64_t n = 0; n < 500; n++)
        CHECK_INT(append((uint64_t)n + 1, n), 0);
    end();
    if (!begin(1 << 28, 0))
        return;
    CHECK_INT(read_rows(NULL, 0).rows, 500);
    for (int64_t n = 500; n < 600; n++)
        CHECK_INT(append((uint64_t)n + 1, n), 0);
    struct answer a = read_rows(NULL, 0);
    CHECK(a.rows == 600 && a.bad == 0 && a.last_n == 599);
    uint32_t size;
    CHECK_STR(intern_text(store_interns(store), 1, &size), "a name");
    end();
    remove_all();
}

/* Count the rows that a table of the store has now, whoever has it open. */
static uint64_t rows_of(const char *name)
{
    struct store_table_stats stats = {0};
    struct table *t = tables_find(tables, "test", name);
    if (CHECK(t != NULL) && CHECK_INT(store_drain(store), 0))
        CHECK_INT(store_stats(store, t, &stats), 0);
    return stats.rows;
}

/* A program or plugin of another version: what it wrote before stays readable under a name of its
 * own, of the living, the dead, and in the next life. */
TEST(other_columns_make_another_table)
{
    struct table *other;
    struct probing_table_desc d = desc;
    d.n_columns = 2;
    d.tail_type = 0;
    d.tail_name = NULL;
    pid_t child = fork();
    if (child == 0) {
        if (!begin(1 << 28, 0))
            _exit(1);
        for (int64_t n = 0; n < 500; n++)
            (void)append((uint64_t)n + 1, n);
        CHECK_INT(store_table_add(store, "test", &d, NULL, &other), 0);
        union probing_cell cells[2] = {{.i = 1}, {.u = 1}};
        for (int n = 0; n < 70; n++)
            CHECK_INT(ring_append(other, clock_now(), cells, 2, NULL, 0), 0);
        for (int64_t n = 500; n < 510; n++) /* who has the old one goes on with it */
            CHECK_INT(append((uint64_t)n + 1, n), 0);
        CHECK(rows_of("rows") == 70 && rows_of("rows_v1") == 510);
        CHECK_INT(ring_append(other, clock_now(), cells, 2, NULL, 0), 0);
        _exit(atomic_load_explicit(&test_bad_checks, memory_order_relaxed) ? 1 : 0);
    }
    int status = 1;
    CHECK_INT(waitpid(child, &status, 0), child);
    CHECK_INT(status, 0);
    for (int without_data = 0; without_data < 2; without_data++) {
        if (begin_dead()) {
            CHECK(*store_damage(store) == '\0' || without_data);
            CHECK(table->n_cells == 2 && rows_of("rows") == 71);
            CHECK(rows_of("rows_v1") == 510);
            table = tables_find(tables, "test", "rows_v1");
            CHECK(read_rows(NULL, 0).bad == 0);
        }
        end();
        char path[100];
        (void)snprintf(path, sizeof(path), "%s/%s", directory,
                       without_data ? "data.kept" : "data.mdb");
        char other_path[100];
        (void)snprintf(other_path, sizeof(other_path), "%s/%s", directory,
                       without_data ? "data.mdb" : "data.kept");
        CHECK_INT(rename(path, other_path), 0);
    }
    if (begin(1 << 28, 0)) { /* the first columns again */
        CHECK(rows_of("rows") == 0 && rows_of("rows_v1") == 510 && rows_of("rows_v2") == 70);
        for (int64_t n = 0; n < 20; n++)
            CHECK_INT(append((uint64_t)n + 1, n), 0);
        CHECK(rows_of("rows") == 20);
    }
    end();
    remove_all();
}

TEST(a_child_has_no_store)
{
    int status = 1;
    if (!begin(1 << 28, 0))
        return;
    CHECK_INT(append(1, 1), 0);
    pid_t child = fork();
    if (child == 0) {
        struct store_scan *scan;
        struct store_scan_options o = {.columns = {1, 0}};
        store_disable_in_child(store);
        bool right = store_scan_new(store, table, &o, &scan) == -ESHUTDOWN &&
                     store_drain(store) == -ESHUTDOWN && append(1, 1) == -ESHUTDOWN;
        store_free(store);
        _exit(right ? 0 : 1);
    }
    CHECK_INT(waitpid(child, &status, 0), child);
    CHECK_INT(status, 0);
    CHECK_INT(read_rows(NULL, 0).rows, 1);
    end();
    remove_all();
}

/* Every allocation of a life and of the reading after it fails once.  LMDB's own may make either
 * fail; rows may then be lost, and counted, but never wrong. */
TEST(missing_memory_is_an_error)
{
    for (unsigned n = 1; fail_alloc_step(n); n++) {
        struct store_options o = {.directory = directory, .max_bytes = 1 << 24};
        CHECK(mkdir(directory, 0700) == 0 || errno == EEXIST);
        tables = NULL;
        store = NULL;
        int rc = tables_new(&tables);
        if (rc == 0)
            rc = store_create(&o, tables, &store);
        if (rc == 0)
            rc = store_table_add(store, "test", &desc, NULL, &table);
        for (int64_t k = 0; k < 10 && rc == 0; k++)
            rc = append((uint64_t)k + 1, k);
        if (rc == 0)
            (void)store_drain(store);
        end();
        rc = tables_new(&tables);
        if (rc == 0)
            rc = store_open(directory, tables, &store);
        table = rc ? NULL : tables_find(tables, "test", "rows");
        struct store_scan *scan;
        struct store_batch b;
        struct store_scan_options all = {.columns = {UINT64_MAX, UINT64_MAX}};
        if (table && store_scan_new(store, table, &all, &scan) == 0) {
            while (store_scan_next(scan, &b) == 1)
                CHECK(b.n_rows <= 10 && b.cells[2][0].i == 0);
            store_scan_free(scan);
        }
        end();
        remove_all();
    }
}

int main(void)
{
    if (!mkdtemp(directory))
        return test_skip("no /tmp");
    RUN(rows_appended_before_a_scan_are_in_it);
    RUN(bounds_skip_segments);
    RUN(slow_tables_do_not_become_many_segments);
    RUN(a_scan_stays_right_while_segments_are_merged);
    RUN(old_rows_go_by_bytes_and_by_age);
    RUN(a_store_that_nothing_comes_to_is_not_written_and_still_loses_what_is_old);
    RUN(the_dead_are_read_whole_and_left_unchanged);
    RUN(without_lmdb_the_rings_still_answer);
    RUN(without_rings_lmdb_still_answers);
    RUN(a_damaged_segment_is_told);
    RUN(a_second_life_goes_on_where_the_first_ended);
    RUN(other_columns_make_another_table);
    RUN(a_child_has_no_store);
    RUN(missing_memory_is_an_error);
    return test_end();
}
