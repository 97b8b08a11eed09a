/* SPDX-License-Identifier: Apache-2.0
 *
 * core/store/crash_test.c - kill -9 at many moments: each row whose append returned is there, once.
 *
 * A child writes rows from two threads and says in a shared page how many appends have returned;
 * the parent kills it and reads what is left.
 */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/store/store.h"
#include "tests/test.h"

#define KILLS 50
#define WRITERS 2

struct shared {
    _Atomic uint64_t returned[WRITERS]; /* appends that have returned 0 */
    _Atomic uint32_t failed;
};

static struct shared *shared;
static struct table *table;

static uint64_t hash(uint64_t writer, uint64_t n)
{
    uint64_t x = (n * 2 + writer + 1) * UINT64_C(0x9e3779b97f4a7c15);
    return (x ^ x >> 29) >> 1; /* positive, so never NULL */
}

static const struct probing_column columns[] = {
    {.name = "writer", .type = PROBING_I64},
    {.name = "n", .type = PROBING_I64},
    {.name = "hash", .type = PROBING_I64},
};
static const struct probing_table_desc desc = {.size = sizeof(desc),
                                               .column_size = sizeof(struct probing_column),
                                               .name = "crash.rows",
                                               .doc = "",
                                               .columns = columns,
                                               .n_columns = 3,
                                               .tail_type = PROBING_STR,
                                               .tail_name = "text"};

static void *write_rows(void *arg)
{
    uint64_t writer = (uint64_t)(uintptr_t)arg;
    for (uint64_t n = 0;;) {
        union probing_cell cells[3] = {{.u = writer}, {.u = n}, {.u = hash(writer, n)}};
        char tail[8] = "abcdefg";
        int rc = ring_append(table, clock_now(), cells, 3, tail, (uint32_t)(n % 8));
        if (rc == 0)
            atomic_store_explicit(&shared->returned[writer], ++n, memory_order_release);
        else if (rc != -ENOSPC)
            atomic_store_explicit(&shared->failed, 1, memory_order_relaxed);
    }
    return NULL;
}

static void be_child(const char *directory)
{
    struct tables *tables;
    struct store *store;
    pthread_t thread;
    struct store_options o = {.directory = directory, .max_bytes = UINT64_C(1) << 30};
    if (tables_new(&tables) || store_create(&o, tables, &store) ||
        store_table_add(store, "crash", &desc, NULL, &table) ||
        pthread_create(&thread, NULL, write_rows, (void *)(uintptr_t)1)) {
        printf("# the child: %s\n", err_text());
        atomic_store_explicit(&shared->failed, 1, memory_order_relaxed);
        _exit(1);
    }
    (void)write_rows(NULL);
}

/* Count the rows of each writer; every one must be right and there once. */
static void check_rows(struct store *store, struct table *t, uint64_t *seen)
{
    struct store_scan *scan;
    struct store_scan_options o = {.columns = {UINT64_MAX, UINT64_MAX}};
    struct store_batch batch;
    uint64_t bad = 0;
    int rc;
    if (!CHECK_INT(store_scan_new(store, t, &o, &scan), 0))
        return;
    uint64_t next[WRITERS] = {0}, last_row = 0;
    while ((rc = store_scan_next(scan, &batch)) == 1) {
        bad += batch.first_row != last_row;
        last_row = batch.first_row + batch.n_rows;
        for (uint32_t i = 0; i < batch.n_rows; i++) {
            uint64_t writer = batch.cells[2][i].u, n = batch.cells[3][i].u;
            uint32_t tail_n = batch.tail_offsets[i + 1] - batch.tail_offsets[i];
            if (writer >= WRITERS) {
                bad++;
                continue;
            }
            /* A ring keeps its thread's order, so the numbers of a writer rise by one. */
            bad += n != next[writer]++ || batch.cells[4][i].u != hash(writer, n) ||
                   tail_n != n % 8 ||
                   memcmp(batch.tails + batch.tail_offsets[i], "abcdefg", tail_n) != 0;
        }
    }
    CHECK_INT(rc, 0);
    CHECK_INT(bad, 0);
    for (int w = 0; w < WRITERS; w++)
        seen[w] = next[w];
    store_scan_free(scan);
}

static void check_directory(const char *directory)
{
    struct tables *tables;
    struct store *store;
    uint64_t seen[WRITERS] = {0};
    if (!CHECK_INT(tables_new(&tables), 0))
        return;
    if (CHECK_INT(store_open(directory, tables, &store), 0)) {
        struct table *t = tables_find(tables, "crash", "rows");
        CHECK_STR(store_damage(store), "");
        if (CHECK(t != NULL))
            check_rows(store, t, seen);
        for (int w = 0; w < WRITERS; w++) {
            uint64_t returned = atomic_load_explicit(&shared->returned[w], memory_order_acquire);
            /* One more may be there: its append was done but could not say so. */
            CHECK(seen[w] == returned || seen[w] == returned + 1);
        }
        store_free(store);
    } else {
        printf("# %s\n", err_text());
    }
    tables_free(tables);
}

static void kill_once(uint32_t round)
{
    char directory[] = "/tmp/probing-crash-XXXXXX";
    if (!CHECK(mkdtemp(directory) != NULL))
        return;
    *shared = (struct shared){.failed = 0};
    pid_t child = fork();
    if (child == 0)
        be_child(directory);
    while (!atomic_load_explicit(&shared->returned[0], memory_order_acquire) &&
           !atomic_load_explicit(&shared->failed, memory_order_relaxed))
        (void)sched_yield();
    /* Spread over the drain's rhythm, without the clock's help: 0.1 to 60 ms. */
    uint64_t delay = (uint64_t)(round * 2654435761u >> 8) % (60 * NS_PER_MS) + NS_PER_MS / 10;
    struct timespec t = {.tv_nsec = (int32_t)delay};
    (void)nanosleep(&t, NULL);
    CHECK_INT(kill(child, SIGKILL), 0);
    CHECK_INT(waitpid(child, NULL, 0), child);
    CHECK_INT(atomic_load_explicit(&shared->failed, memory_order_relaxed), 0);
    check_directory(directory);
    CHECK_INT(file_remove_dir(directory), 0);
}

TEST(no_row_is_lost_by_kill)
{
    for (uint32_t round = 0; round < KILLS; round++)
        kill_once(round);
}

int main(void)
{
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return test_skip("no shared memory");
    RUN(no_row_is_lost_by_kill);
    return test_end();
}
