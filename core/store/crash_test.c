/* SPDX-License-Identifier: Apache-2.0
 *
 * core/store/crash_test.c - kill -9 at many moments: each row whose append returned is there, once.
 *
 * A child writes rows from two threads and says in a shared page how many appends have returned;
 * the parent kills it and reads what is left.  Kills come in kinds by turns: at any moment, in the
 * midst of drains, of retention, of the start; and instead of a kill, copies of the directory made
 * while it is written, and a file of old and new pages such as a power cut leaves.
 *
 * usage: crash_test [kills [seed]]
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/store/store.h"
#include "tests/test.h"

#define WRITERS 2

enum kind { ANYWHERE, IN_DRAIN, IN_RETENTION, IN_START, COPIED, POWER_CUT, KINDS };
static const char *const kind_names[KINDS] = {"anywhere",     "in a drain", "in retention",
                                              "in the start", "copied",     "power cut"};
static uint32_t kills = 50;
static uint64_t seed = UINT64_C(88172645463325252);

struct shared {
    _Atomic uint64_t returned[WRITERS]; /* appends that have returned 0 */
    _Atomic uint32_t failed;
};

static struct shared *shared;
static struct table *table;
static enum kind kind;

static uint64_t next_random(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

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

static void *drain_always(void *arg)
{
    for (;;)
        (void)store_drain(arg);
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
        (kind == IN_RETENTION && store_retention_set(store, "rows", "256KB") < 0) ||
        pthread_create(&thread, NULL, write_rows, (void *)(uintptr_t)1) ||
        (kind != ANYWHERE && pthread_create(&thread, NULL, drain_always, store))) {
        printf("# the child: %s\n", err_text());
        atomic_store_explicit(&shared->failed, 1, memory_order_relaxed);
        _exit(1);
    }
    (void)write_rows(NULL);
}

struct found {
    uint64_t first[WRITERS], next[WRITERS], rows[WRITERS];
    uint64_t bad, gaps;
    bool opened, told;
};

static void look_at_row(const struct store_batch *b, uint32_t i, struct found *f)
{
    uint64_t w = b->cells[2][i].u, n = b->cells[3][i].u;
    uint32_t tail_n = b->tail_offsets[i + 1] - b->tail_offsets[i];
    if (w >= WRITERS) {
        f->bad++;
        return;
    }
    if (f->rows[w]++ == 0)
        f->first[w] = f->next[w] = n;
    /* A ring keeps its thread's order, so the numbers of a writer rise, by one where none lacks. */
    f->bad += n < f->next[w] || b->cells[4][i].u != hash(w, n) || tail_n != n % 8 + 1 ||
              memcmp(b->tails + b->tail_offsets[i], "abcdefg", tail_n - 1) != 0;
    f->gaps += n > f->next[w];
    f->next[w] = n + 1;
}

static void read_rows(struct store *store, const struct table *t, struct found *f)
{
    struct store_scan *scan;
    struct store_scan_options o = {.columns = {UINT64_MAX, UINT64_MAX}};
    struct store_batch batch;
    int rc;
    if (!CHECK_INT(store_scan_new(store, t, &o, &scan), 0))
        return;
    uint64_t last_row = 0;
    while ((rc = store_scan_next(scan, &batch)) == 1) {
        f->bad += batch.first_row < last_row;
        last_row = batch.first_row + batch.n_rows;
        for (uint32_t i = 0; i < batch.n_rows; i++)
            look_at_row(&batch, i, f);
    }
    f->told |= rc != 0;
    store_scan_free(scan);
}

/* The results of all tries, by kind. */
static struct {
    uint64_t tries, rows, told;
} sums[KINDS];

static struct found read_directory(const char *directory)
{
    struct tables *tables;
    struct store *store;
    struct found f = {.bad = 0};
    if (!CHECK_INT(tables_new(&tables), 0))
        return f;
    if (store_open(directory, tables, &store) == 0) {
        struct table *t = tables_find(tables, "crash", "rows");
        f.opened = t != NULL;
        f.told = *store_damage(store) != '\0';
        if (f.told && kind < IN_START)
            printf("# %s: %s", kind_names[kind], store_damage(store));
        if (t)
            read_rows(store, t, &f);
        store_free(store);
    }
    tables_free(tables);
    sums[kind].tries++;
    sums[kind].told += f.told;
    sums[kind].rows += f.rows[0] + f.rows[1];
    return f;
}

/* `returned`: appends that had, before whatever happened to the directory. */
static void check_directory(const char *directory, const uint64_t *returned)
{
    struct found f = read_directory(directory);
    bool all = true;
    CHECK_INT(f.bad, 0);
    for (int w = 0; w < WRITERS; w++) {
        bool kept = kind == IN_RETENTION || (f.first[w] == 0 || returned[w] == 0);
        all = all && kept && f.next[w] >= returned[w];
        /* One more may be there: its append was done but could not say so. */
        if (kind < COPIED && !CHECK(f.next[w] <= returned[w] + 1))
            printf("# %s: writer %d: %llu of %llu rows\n", kind_names[kind], w,
                   (unsigned long long)f.next[w], (unsigned long long)returned[w]);
    }
    all = all && f.gaps == 0;
    if (kind < COPIED && returned[0] + returned[1] > 0)
        CHECK(f.opened && all && !f.told);
    else if (kind >= COPIED)
        CHECK(all || f.told || !f.opened); /* what is incomplete says so */
}

static void run(const char *const *words)
{
    pid_t child = fork();
    if (child == 0) {
        (void)execvp(words[0], (char *const *)(uintptr_t)words);
        _exit(127);
    }
    int status = 1;
    (void)waitpid(child, &status, 0);
    CHECK_INT(status, 0);
}

/* Pages of the second file that had not reached the disk: as they were in the first. */
static void mix_pages(const char *older, const char *newer)
{
    char page[4096];
    int from = open(older, O_RDONLY | O_CLOEXEC), to = open(newer, O_RDWR | O_CLOEXEC);
    if (CHECK(from != -1 && to != -1)) {
        for (off_t at = 0; pread(from, page, sizeof(page), at) == sizeof(page); at += 4096)
            if (next_random() % 2)
                CHECK_INT(pwrite(to, page, sizeof(page), at), sizeof(page));
    }
    (void)close(from);
    (void)close(to);
}

static void wait_ns(uint64_t ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (int32_t)(ns % NS_PER_S)};
    (void)nanosleep(&t, NULL);
}

static void take_returned(uint64_t *ret)
{
    for (int w = 0; w < WRITERS; w++)
        ret[w] = atomic_load_explicit(&shared->returned[w], memory_order_acquire);
}

/* As a copy of a large file goes: the process writes on between one part and the next. */
static void copy_slowly(const char *from, const char *to)
{
    char part[4 * 4096];
    struct stat st = {0};
    int in = open(from, O_RDONLY | O_CLOEXEC), out = open(to, O_WRONLY | O_TRUNC | O_CLOEXEC);
    if (CHECK(in != -1 && out != -1) && CHECK_INT(fstat(in, &st), 0)) {
        ssize_t n;
        for (off_t at = 0; at < st.st_size && (n = read(in, part, sizeof(part))) > 0; at += n) {
            CHECK_INT(write(out, part, (size_t)n), n);
            if (next_random() % 8 == 0)
                wait_ns(next_random() % NS_PER_MS);
        }
    }
    (void)close(in);
    (void)close(out);
}

/* The directory's copy takes the directory's place. */
static void copy_away(const char *directory, const char *copy)
{
    char older[64], newer[64], rings[64];
    (void)snprintf(older, sizeof(older), "%s.old", copy);
    (void)snprintf(newer, sizeof(newer), "%s/data.mdb", copy);
    (void)snprintf(rings, sizeof(rings), "%s/rings", copy);
    char data[64];
    (void)snprintf(data, sizeof(data), "%s/data.mdb", directory);
    if (kind == POWER_CUT) {
        run((const char *const[]){"cp", data, older, NULL});
        wait_ns(next_random() % (20 * NS_PER_MS));
    }
    run((const char *const[]){"cp", "-r", directory, copy, NULL});
    uint64_t way = next_random() % 3;
    if (kind == COPIED && way > 0)
        copy_slowly(data, newer);
    if (kind == COPIED && way > 1) { /* the rings come after, else before */
        char from[64];
        (void)snprintf(from, sizeof(from), "%s/rings", directory);
        run((const char *const[]){"cp", from, rings, NULL});
    }
    if (kind == POWER_CUT) {
        mix_pages(older, newer);
        CHECK_INT(unlink(older), 0);
        CHECK_INT(unlink(rings), 0); /* memory file systems are gone */
    }
}

static void kill_once(void)
{
    char directory[] = "/tmp/probing-crash-XXXXXX", copy[40];
    uint64_t returned[WRITERS];
    if (!CHECK(mkdtemp(directory) != NULL))
        return;
    (void)snprintf(copy, sizeof(copy), "%s.c", directory);
    *shared = (struct shared){.failed = 0};
    (void)fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        be_child(directory);
    while (kind != IN_START && !atomic_load_explicit(&shared->returned[0], memory_order_acquire) &&
           !atomic_load_explicit(&shared->failed, memory_order_relaxed))
        (void)sched_yield();
    /* Spread over the drain's rhythm; the start takes some milliseconds. */
    wait_ns(next_random() % ((kind == IN_START ? 8 : 60) * NS_PER_MS));
    take_returned(returned);
    if (kind >= COPIED)
        copy_away(directory, copy);
    CHECK_INT(kill(child, SIGKILL), 0);
    CHECK_INT(waitpid(child, NULL, 0), child);
    CHECK_INT(atomic_load_explicit(&shared->failed, memory_order_relaxed), 0);
    if (kind < COPIED)
        take_returned(returned);
    check_directory(kind < COPIED ? directory : copy, returned);
    CHECK_INT(file_remove_dir(directory), 0);
    if (kind >= COPIED)
        CHECK_INT(file_remove_dir(copy), 0);
}

TEST(no_row_is_lost_by_kill)
{
    for (uint32_t round = 0; round < kills; round++) {
        kind = COPIED;
        uint64_t before = seed;
        int bad = atomic_load_explicit(&test_bad_checks, memory_order_relaxed);
        kill_once();
        if (atomic_load_explicit(&test_bad_checks, memory_order_relaxed) != bad)
            printf("# round %u, %s, seed %llu\n", round, kind_names[kind],
                   (unsigned long long)before);
    }
    for (int k = 0; k < KINDS; k++)
        printf("# %-12s %4llu times, %llu rows read, %llu told what is missing\n", kind_names[k],
               (unsigned long long)sums[k].tries, (unsigned long long)sums[k].rows,
               (unsigned long long)sums[k].told);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        kills = (uint32_t)strtoul(argv[1], NULL, 10);
    if (argc > 2)
        seed = strtoull(argv[2], NULL, 10) | 1;
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return test_skip("no shared memory");
    RUN(no_row_is_lost_by_kill);
    return test_end();
}
