/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/store/stress_test.c - writers, drains, readers, retention, new tables and forks at once.
 *
 * What has to hold meanwhile: a scan gives right rows in order, none twice, and all that were
 * appended before it and have not expired; the counts add up at the end.  Under the sanitizers and
 * valgrind it has to be silent, too.
 *
 * usage: stress_test [rows of each writer]
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/store/store.h"
#include "tests/test.h"

#define WRITERS 3
#define NEW_TABLES 24

static struct store *store;
static struct tables *tables;
static struct table *table;
static uint64_t rows_each = 150000;
static _Atomic uint64_t appended[WRITERS];
static _Atomic uint32_t writing = WRITERS;
static _Atomic uint64_t scans, wrong, refused;

static const struct probing_column columns[] = {
    {.name = "writer", .type = PROBING_I64},
    {.name = "n", .type = PROBING_I64},
    {.name = "sum", .type = PROBING_I64},
    {.name = "name", .type = PROBING_STR},
};

static int add_table(const char *name, uint32_t n_columns, struct table **ret)
{
    struct probing_table_desc d = {.size = sizeof(d),
                                   .column_size = sizeof(columns[0]),
                                   .name = name,
                                   .columns = columns,
                                   .n_columns = n_columns};
    return store_table_add(store, "stress", &d, NULL, ret);
}

static uint64_t sum_of(uint64_t writer, uint64_t n)
{
    uint64_t x = (3 * n + writer + 1) * UINT64_C(0x9e3779b97f4a7c15);
    return (x ^ x >> 29) >> 1;
}

static bool still_writing(void)
{
    return atomic_load_explicit(&writing, memory_order_acquire) > 0;
}

static void rest(void)
{
    static const struct timespec moment = {.tv_nsec = (int32_t)NS_PER_MS};
    (void)nanosleep(&moment, NULL);
}

static void *write_rows(void *arg)
{
    uint64_t writer = (uint64_t)(uintptr_t)arg, id = 0;
    char name[32];
    for (uint64_t n = 0; n < rows_each;) {
        int size = snprintf(name, sizeof(name), "name %llu", (unsigned long long)(n / 500));
        if (n % 500 == 0 && intern(store_interns(store), name, (size_t)size, &id) != 0)
            (void)atomic_fetch_add_explicit(&wrong, 1, memory_order_relaxed);
        union probing_cell cells[4] = {
            {.u = writer}, {.u = n}, {.u = sum_of(writer, n)}, {.u = id}};
        if (ring_append(table, clock_now(), cells, 4, NULL, 0) == 0) {
            atomic_store_explicit(&appended[writer], ++n, memory_order_release);
        } else {
            (void)atomic_fetch_add_explicit(&refused, 1, memory_order_relaxed);
            rest();
        }
    }
    (void)atomic_fetch_sub_explicit(&writing, 1, memory_order_release);
    return NULL;
}

/* Threads that come, append a row and go: their rings go from hand to hand. */
static void *come_and_go(void *arg)
{
    (void)arg;
    union probing_cell cells[4] = {{.u = WRITERS}, {.u = 1}, {.u = 2}, {.u = 0}};
    (void)ring_append(table, clock_now(), cells, 4, NULL, 0);
    return NULL;
}

static void *start_threads(void *arg)
{
    pthread_t thread;
    (void)arg;
    while (still_writing()) {
        if (pthread_create(&thread, NULL, come_and_go, NULL) == 0)
            (void)pthread_join(thread, NULL);
        rest();
    }
    return NULL;
}

static uint64_t check_batch(const struct store_batch *b, uint64_t *next)
{
    uint64_t bad = 0;
    for (uint32_t i = 0; i < b->n_rows; i++) {
        uint64_t w = b->cells[2][i].u, n = b->cells[3][i].u;
        if (w < WRITERS) {
            bad += n < next[w] || b->cells[4][i].u != sum_of(w, n);
            next[w] = n + 1;
        }
    }
    return bad;
}

static void scan_once(void)
{
    struct store_scan *scan;
    struct store_batch b;
    struct store_scan_options o = {.columns = {UINT64_MAX, UINT64_MAX}};
    uint64_t before[WRITERS], next[WRITERS] = {0}, bad = 0, last = 0;
    int rc;
    for (int w = 0; w < WRITERS; w++)
        before[w] = atomic_load_explicit(&appended[w], memory_order_acquire);
    if (store_scan_new(store, table, &o, &scan) != 0) {
        (void)atomic_fetch_add_explicit(&wrong, 1, memory_order_relaxed);
        return;
    }
    while ((rc = store_scan_next(scan, &b)) == 1) {
        bad += b.first_row < last;
        last = b.first_row + b.n_rows;
        bad += check_batch(&b, next);
    }
    for (int w = 0; w < WRITERS; w++) /* the newest of each is never the one that expired */
        bad += next[w] < before[w];
    store_scan_free(scan);
    (void)atomic_fetch_add_explicit(&wrong, bad + (rc != 0), memory_order_relaxed);
    (void)atomic_fetch_add_explicit(&scans, 1, memory_order_relaxed);
}

static void *read_rows(void *arg)
{
    (void)arg;
    do
        scan_once();
    while (still_writing());
    return NULL;
}

/* Drains, limits, retention and statistics by another thread than the drain's own. */
static void *meddle(void *arg)
{
    struct store_table_stats stats;
    (void)arg;
    for (uint32_t i = 0; still_writing(); i++) {
        int rc = store_drain(store);
        store_set_limits(store, (UINT64_C(64) + i % 5) << 20, 3600 * NS_PER_S);
        rc = rc ? rc : store_retention_set(store, "stress.rows", i % 2 ? "3MB" : "2MB|1h");
        rc = rc < 0 ? rc : store_stats(store, table, &stats);
        if (rc < 0)
            (void)atomic_fetch_add_explicit(&wrong, 1, memory_order_relaxed);
        rest();
    }
    return NULL;
}

static void *make_tables(void *arg)
{
    struct table *t;
    char name[32];
    (void)arg;
    for (uint32_t i = 0; i < NEW_TABLES; i++) {
        (void)snprintf(name, sizeof(name), "new_%u", i / 3); /* and with other columns */
        union probing_cell cells[3] = {{.u = i}, {.u = i}, {.u = i}};
        if (add_table(name, 1 + i % 3, &t) != 0)
            (void)atomic_fetch_add_explicit(&wrong, 1, memory_order_relaxed);
        else
            (void)ring_append(t, clock_now(), cells, 1 + i % 3, NULL, 0);
        rest();
    }
    return NULL;
}

/* A child has no store, whatever went on around its fork. */
static void fork_some(void)
{
    for (int i = 0; i < 20 && still_writing(); i++) {
        int status = 1;
        pid_t child = fork();
        if (child == 0) {
            union probing_cell cell = {.u = 1};
            store_disable_in_child(store);
            _exit(ring_append(table, 1, &cell, 1, NULL, 0) == -ESHUTDOWN &&
                          store_drain(store) == -ESHUTDOWN
                      ? 0
                      : 1);
        }
        CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
        rest();
    }
}

TEST(everything_at_once)
{
    void *(*const work[])(void *) = {read_rows, read_rows, meddle, make_tables, start_threads};
    enum { OTHERS = sizeof(work) / sizeof(work[0]) };
    pthread_t threads[WRITERS + OTHERS];
    struct store_table_stats stats;
    char directory[] = "/tmp/probing-stress-XXXXXX";
    struct store_options o = {.directory = directory, .max_bytes = UINT64_C(64) << 20};
    if (!CHECK(mkdtemp(directory) != NULL) || !CHECK_INT(tables_new(&tables), 0) ||
        !CHECK_INT(store_create(&o, tables, &store), 0) ||
        !CHECK_INT(add_table("rows", 4, &table), 0))
        return;
    for (uintptr_t i = 0; i < WRITERS; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, write_rows, (void *)i), 0);
    for (int i = 0; i < OTHERS; i++)
        CHECK_INT(pthread_create(&threads[WRITERS + i], NULL, work[i], NULL), 0);
    fork_some();
    for (int i = 0; i < WRITERS + OTHERS; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    scan_once();
    CHECK_INT(atomic_load_explicit(&wrong, memory_order_relaxed), 0);
    CHECK_INT(store_stats(store, table, &stats), 0);
    CHECK(stats.rows + stats.expired >= WRITERS * rows_each && stats.waiting == 0);
    CHECK_INT(table->lost[TABLE_LOST_RING_FULL],
              atomic_load_explicit(&refused, memory_order_relaxed));
    CHECK_INT(table->lost[TABLE_LOST_STORE] + table->lost[TABLE_LOST_DAMAGED], 0);
    printf("# %llu scans, %llu rows kept, %llu expired, %llu refused\n",
           (unsigned long long)atomic_load_explicit(&scans, memory_order_relaxed),
           (unsigned long long)stats.rows, (unsigned long long)stats.expired,
           (unsigned long long)atomic_load_explicit(&refused, memory_order_relaxed));
    store_free(store);
    tables_free(tables);
    CHECK_INT(file_remove_dir(directory), 0);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        rows_each = strtoull(argv[1], NULL, 10);
    RUN(everything_at_once);
    return test_end();
}
