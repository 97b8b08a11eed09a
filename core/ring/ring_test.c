/* SPDX-License-Identifier: Apache-2.0
 *
 * core/ring/ring_test.c - appends from threads, signal handlers and children, and their reader.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/ring/internal.h"
#include "core/ring/ring.h"
#include "tests/test.h"

static char directory[] = "/tmp/probing-ring-XXXXXX";
static char path[64];
static struct tables *tables;
static struct table *table;
static struct rings *rings;

static const struct probing_column columns[] = {
    {.name = "writer", .type = PROBING_I64},
    {.name = "n", .type = PROBING_I64},
    {.name = "twice", .type = PROBING_I64},
};
static const struct probing_table_desc desc = {.size = sizeof(desc),
                                               .column_size = sizeof(struct probing_column),
                                               .name = "test.rows",
                                               .columns = columns,
                                               .n_columns = 3,
                                               .tail_type = PROBING_STR,
                                               .tail_name = "text"};

static bool begin(void)
{
    return CHECK_INT(tables_new(&tables), 0) &&
           CHECK_INT(tables_add(tables, "x", &desc, NULL, &table), 0) &&
           CHECK_INT(rings_create(path, &rings), 0) && CHECK_INT(rings_bind_table(rings, table), 0);
}

static void end(void)
{
    rings_free(rings);
    tables_free(tables);
    rings = NULL;
    tables = NULL;
}

static uint64_t lost(enum table_loss why)
{
    return atomic_load_explicit(&table->lost[why], memory_order_relaxed);
}

static int append(int64_t writer, int64_t n)
{
    union probing_cell cells[3] = {{.i = writer}, {.i = n}, {.i = 2 * n}};
    return ring_append(table, (uint64_t)n, cells, 3, NULL, 0);
}

/* The slot that the newest generation lives in. */
static uint32_t newest_slot(struct rings *r)
{
    uint32_t best = 0;
    for (uint32_t slot = 0; slot < rings_count(r); slot++) {
        if (ring_generation(r, slot) > ring_generation(r, best))
            best = slot;
    }
    return best;
}

TEST(a_row_comes_out_as_it_went_in)
{
    struct ring_row row;
    if (!begin())
        return;
    union probing_cell cells[3] = {{.i = -1}, {.i = INT64_MIN}, {.u = 7}};
    CHECK_INT(ring_append(table, 123, cells, 3, "hello", 5), 0);
    CHECK_INT(ring_append(table, 124, cells, 1, NULL, 0), 0);
    uint32_t slot = newest_slot(rings);
    uint64_t at = ring_row(rings, slot, ring_tail(rings, slot), &row);
    CHECK(at > 0);
    CHECK_INT(row.table_id, table->id);
    CHECK_INT(row.tid, syscall(SYS_gettid));
    CHECK_INT(row.ts, 123);
    CHECK_INT(row.n_cells, 3);
    CHECK(row.cells[0].i == -1 && row.cells[1].i == INT64_MIN && row.cells[2].u == 7);
    CHECK_INT(row.tail_n, 5);
    CHECK_INT(memcmp(row.tail, "hello", 5), 0);
    at = ring_row(rings, slot, at, &row);
    CHECK_INT(row.n_cells, 1);
    CHECK_INT(row.tail_n, 0);
    CHECK_INT(at, ring_head(rings, slot));
    CHECK_INT(ring_row(rings, slot, at, &row), 0);
    atomic_store_explicit(&table->wanted, false, memory_order_relaxed);
    CHECK_INT(append(1, 1), 0);
    CHECK_INT(ring_head(rings, slot), at);
    atomic_store_explicit(&table->wanted, true, memory_order_relaxed);
    rings_free(rings);
    CHECK_INT(append(0, 0), -ESHUTDOWN); /* nobody collects any more */
    rings = NULL;
    end();
}

TEST(a_full_ring_counts_what_it_refuses)
{
    struct ring_row row;
    if (!begin())
        return;
    int64_t n = 0, refused = 0;
    while (append(0, n) == 0)
        n++;
    for (; refused < 9; refused++)
        CHECK_INT(append(0, n), -ENOSPC);
    CHECK_INT(lost(TABLE_LOST_RING_FULL), 10);
    CHECK(n > 20000 && rings_fill(rings) > 0.99);
    uint32_t slot = newest_slot(rings);
    /* Around the end many times, with rows of all lengths. */
    uint64_t position = ring_tail(rings, slot);
    static char tail[RING_BYTES / 4];
    int64_t read = 0;
    for (int round = 0; round < 2000; round++) {
        uint64_t next = ring_row(rings, slot, position, &row);
        if (next) {
            CHECK(read >= n || row.cells[1].i == read);
            read++;
            ring_release(rings, slot, next);
            position = next;
        }
        union probing_cell cell = {.i = 1};
        (void)ring_append(table, 1, &cell, 1, tail, (uint32_t)(round * 37 % 5000));
    }
    uint64_t before = lost(TABLE_LOST_TOO_LONG);
    CHECK_INT(ring_append(table, 1, NULL, 0, tail, sizeof(tail)), -ENOSPC);
    CHECK_INT(lost(TABLE_LOST_TOO_LONG), before + 1);
    end();
}

TEST(what_is_no_row_of_the_table_is_refused_and_counted)
{
    const union probing_cell cells[20] = {{.i = 1}};
    struct table *plain;
    struct probing_table_desc no_tail = desc;
    if (!begin())
        return;
    no_tail.name = "test.plain";
    no_tail.tail_type = 0;
    CHECK_INT(tables_add(tables, "x", &no_tail, NULL, &plain), 0);
    CHECK_INT(rings_bind_table(rings, plain), 0);
    CHECK_INT(ring_append(plain, 1, cells, 2, NULL, 0), 0); /* what is missing is NULL */
    for (uint32_t n = 4; n <= 20; n += 16)
        CHECK_INT(ring_append(plain, 1, cells, n, NULL, 0), -EINVAL);
    CHECK_INT(ring_append(table, 1, cells, 4, "text", 4), -EINVAL);
    CHECK_INT(ring_append(plain, 1, cells, 3, "text", 4), -EINVAL);
    CHECK_INT(lost(TABLE_LOST_BAD_ROW), 1);
    CHECK_INT(plain->lost[TABLE_LOST_BAD_ROW], 3);
    CHECK_INT(plain->misuse, TABLE_MORE_CELLS | TABLE_NO_TAIL);
    CHECK_INT(plain->misuse_cells, 20);
    CHECK(tables_misused() && !tables_misused());
    end();
}

TEST(an_empty_tail_is_not_none)
{
    static const char text[] = "0123456789012345678901234567890123456789";
    struct ring_row row;
    if (!begin())
        return;
    for (int n = -1; n < 40; n++) {
        union probing_cell cell = {.i = n};
        CHECK_INT(ring_append(table, 1, &cell, n & 1, n < 0 ? NULL : text, n < 0 ? 0 : (uint32_t)n),
                  0);
    }
    uint32_t slot = newest_slot(rings);
    uint64_t position = ring_tail(rings, slot);
    for (int n = -1; n < 40; n++) {
        position = ring_row(rings, slot, position, &row);
        if (!CHECK(position != 0 && row.n_cells == (uint32_t)(n & 1)))
            break;
        CHECK((row.tail == NULL) == (n < 0));
        CHECK(row.tail_n == (n < 0 ? 0 : (uint32_t)n) &&
              (n < 0 || memcmp(row.tail, text, row.tail_n) == 0));
    }
    end();
}

/* ---- several threads ---- */

#define WRITERS 3
#define ROWS_EACH 60000

static _Atomic uint32_t done;
static _Atomic uint64_t handled; /* rows that signal handlers have appended */

static void *write_rows(void *arg)
{
    int64_t writer = (int64_t)(intptr_t)arg;
    for (int64_t n = 0; n < ROWS_EACH;) {
        if (append(writer, n) == 0)
            n++;
        else
            (void)sched_yield();
    }
    (void)atomic_fetch_add_explicit(&done, 1, memory_order_release);
    return NULL;
}

struct seen {
    int64_t next[WRITERS];
    uint64_t from_signals, bad;
};

static void drain(struct seen *seen)
{
    struct ring_reader reader;
    struct ring_row row;
    for (uint32_t slot = 0; slot < rings_count(rings); slot++) {
        if (!ring_generation(rings, slot) ||
            ring_read(rings, slot, ring_tail(rings, slot), &reader) != 0)
            continue;
        while (ring_next(&reader, &row) == 1) {
            int64_t writer = row.cells[0].i, n = row.cells[1].i;
            seen->bad += row.n_cells != 3 || row.cells[2].i != 2 * n || row.ts != (uint64_t)n;
            if (writer < 0)
                seen->from_signals++;
            else if (writer >= WRITERS || n != seen->next[writer]++)
                seen->bad++;
        }
        ring_release(rings, slot, reader.position);
    }
}

static void check_all(const struct seen *seen)
{
    CHECK_INT(seen->bad, 0);
    for (int i = 0; i < WRITERS; i++)
        CHECK_INT(seen->next[i], ROWS_EACH);
}

TEST(every_row_of_every_thread_arrives_once)
{
    pthread_t threads[WRITERS];
    struct seen seen = {.bad = 0};
    if (!begin())
        return;
    atomic_store_explicit(&done, 0, memory_order_relaxed);
    for (intptr_t i = 0; i < WRITERS; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, write_rows, (void *)i), 0);
    while (atomic_load_explicit(&done, memory_order_acquire) < WRITERS) {
        rings_wait(rings, 10 * NS_PER_MS);
        drain(&seen);
    }
    for (int i = 0; i < WRITERS; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    drain(&seen);
    check_all(&seen);
    /* Their rings go back when they are gone: to spares, or to holes. */
    rings_maintain(rings);
    uint32_t taken = 0;
    for (uint32_t slot = 0; slot < rings_count(rings); slot++)
        taken += ring_generation(rings, slot) != 0;
    CHECK_INT(taken, 0);
    end();
}

static void handler(int number)
{
    (void)number;
    if (append(-1, 5) == 0)
        (void)atomic_fetch_add_explicit(&handled, 1, memory_order_relaxed);
}

TEST(signal_handlers_may_append_while_their_thread_appends)
{
    pthread_t thread;
    struct seen seen = {.bad = 0};
    struct sigaction old, action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    if (!begin())
        return;
    CHECK_INT(sigaction(SIGUSR1, &action, &old), 0);
    atomic_store_explicit(&done, WRITERS - 1, memory_order_relaxed);
    atomic_store_explicit(&handled, 0, memory_order_relaxed);
    CHECK_INT(pthread_create(&thread, NULL, write_rows, (void *)(intptr_t)0), 0);
    while (atomic_load_explicit(&done, memory_order_acquire) < WRITERS) {
        (void)pthread_kill(thread, SIGUSR1);
        drain(&seen);
    }
    CHECK_INT(pthread_join(thread, NULL), 0);
    drain(&seen);
    CHECK_INT(seen.bad, 0);
    CHECK_INT(seen.next[0], ROWS_EACH);
    CHECK_INT(seen.from_signals, atomic_load_explicit(&handled, memory_order_relaxed));
    CHECK(seen.from_signals > 0);
    CHECK_INT(sigaction(SIGUSR1, &old, NULL), 0);
    end();
}

TEST(a_forked_child_writes_nothing)
{
    int status = 1;
    if (!begin())
        return;
    CHECK_INT(append(0, 0), 0);
    uint32_t slot = newest_slot(rings);
    uint64_t head = ring_head(rings, slot);
    /* The bare system call: no handler of pthread_atfork() runs. */
    pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (child == 0)
        _exit(append(0, 1) == -ESHUTDOWN ? 0 : 1);
    CHECK_INT(waitpid(child, &status, 0), child);
    CHECK_INT(status, 0);
    CHECK_INT(ring_head(rings, slot), head);
    CHECK_INT(append(0, 1), 0);
    ring_disable_in_child();
    CHECK_INT(append(0, 2), -ESHUTDOWN);
    end();
}

static _Atomic bool stop;

static void *write_always(void *arg)
{
    (void)arg;
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        if (append(1, 1) != 0)
            (void)sched_yield();
    }
    return NULL;
}

TEST(rings_come_and_go_while_threads_append)
{
    pthread_t threads[2];
    if (!begin())
        return;
    atomic_store_explicit(&stop, false, memory_order_relaxed);
    for (int i = 0; i < 2; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, write_always, NULL), 0);
    for (int round = 0; round < 50; round++) {
        struct seen seen = {.bad = 0};
        drain(&seen);
        rings_free(rings);
        if (!CHECK_INT(rings_create(path, &rings), 0))
            break;
        CHECK_INT(rings_bind_table(rings, table), 0);
        struct rings *second;
        CHECK_INT(rings_create(path, &second), -EBUSY);
    }
    atomic_store_explicit(&stop, true, memory_order_relaxed);
    for (int i = 0; i < 2; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    end();
}

/* Threads that all hold a ring until the last has tried to get one. */
static pthread_barrier_t barrier;

static void *write_one(void *arg)
{
    (void)arg;
    (void)append(0, 0);
    (void)pthread_barrier_wait(&barrier);
    return NULL;
}

TEST(small_limits_mean_fewer_rings_and_counted_losses)
{
    enum { THREADS = 12, SLOTS_LEFT = 8 };
    pthread_t threads[THREADS];
    struct rlimit old, small;
    CHECK_INT(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 262144 + SLOTS_LEFT * (rlim_t)RING_BYTES;
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &small), 0);
    bool begun = begin();
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &old), 0);
    if (!begun)
        return;
    CHECK_INT(pthread_barrier_init(&barrier, NULL, THREADS), 0);
    for (int i = 0; i < THREADS; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, write_one, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    CHECK_INT(rings_count(rings), SLOTS_LEFT);
    CHECK_INT(lost(TABLE_LOST_NO_RING), THREADS - SLOTS_LEFT);
    struct seen seen = {.bad = 0};
    drain(&seen);
    rings_maintain(rings);
    CHECK_INT(append(0, 0), 0); /* there are rings again */
    (void)pthread_barrier_destroy(&barrier);
    end();
}

TEST(a_file_left_behind_is_read_and_a_broken_one_refused)
{
    struct rings *left;
    struct ring_row row;
    struct ring_reader reader;
    if (!begin())
        return;
    for (int64_t n = 0; n < 100; n++)
        CHECK_INT(append(0, n), 0);
    uint32_t slot = newest_slot(rings);
    if (CHECK_INT(rings_open(file_open(AT_FDCWD, path), path, &left), 0)) {
        CHECK_INT(rings_utc_offset(left), rings_utc_offset(rings));
        CHECK(rings_identity(left) == rings_identity(rings));
        CHECK_INT(ring_read(left, slot, ring_tail(left, slot), &reader), 0);
        int64_t n = 0;
        while (ring_next(&reader, &row) == 1)
            n += row.cells[1].i == n;
        CHECK_INT(n, 100);
        rings_free(left);
    }
    /* Every bit of the first rows flipped, one after another: that row is none, and is counted; all
     * others are as they were. */
    int fd = open(path, O_RDWR | O_CLOEXEC);
    uint8_t *map = mmap(NULL, RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                        262144 + (off_t)slot * RING_BYTES);
    uint32_t bad = 0;
    for (uint32_t i = 0; map != MAP_FAILED && i < 256; i++) {
        for (int bit = 0; bit < 8; bit++) {
            map[i] ^= (uint8_t)(1u << bit);
            uint32_t rows = 0;
            CHECK_INT(ring_read(rings, slot, 0, &reader), 0);
            while (ring_next(&reader, &row) == 1) {
                rows++;
                bad += row.n_cells != 3 || row.cells[2].i != 2 * row.cells[1].i ||
                       row.ts != row.cells[1].u;
            }
            bad += rows != 99 || reader.gaps != 1 || reader.damaged != 40;
            map[i] ^= (uint8_t)(1u << bit);
        }
    }
    CHECK_INT(bad, 0);
    /* A copy of the same bytes at another place is no row: it was not appended there. */
    if (map != MAP_FAILED) {
        uint8_t kept[80];
        memcpy(kept, map, sizeof(kept));
        memcpy(map, kept + 40, 40);
        CHECK_INT(ring_read(rings, slot, 0, &reader), 0);
        CHECK(ring_next(&reader, &row) == 1 && row.cells[1].i == 1);
        memcpy(map, kept, sizeof(kept));
    }
    (void)munmap(map, RING_BYTES);
    (void)close(fd);
    end();
    CHECK_INT(truncate(path, 262144 + (off_t)RING_BYTES), 0);
    if (CHECK_INT(rings_open(file_open(AT_FDCWD, path), path, &left), 0)) {
        CHECK(rings_count(left) > 1); /* their heads are all there, and say what is not */
        rings_free(left);
    }
    CHECK_INT(truncate(path, 5000), 0);
    CHECK_INT(rings_open(file_open(AT_FDCWD, path), path, &left), -EINVAL);
    CHECK_INT(file_write(AT_FDCWD, path, "no", 2, 0600), 0);
    CHECK_INT(rings_open(file_open(AT_FDCWD, path), path, &left), -EINVAL);
}

/* Does `delta`, which a flipped bit adds to a sum, change the upper bits, whatever the sum was? */
static bool is_seen(uint64_t delta)
{
    uint64_t upper = delta >> WORD_BITS, all = UINT64_MAX >> WORD_BITS;
    return upper != 0 && (upper != all || (delta & WORD_MASK) == 0);
}

TEST(one_bit_of_a_row_changes_its_check_for_certain)
{
    uint64_t words[80], later = 1;
    uint32_t bad = 0;
    for (uint32_t more = 0; more <= 64 / CHECK_WORDS; more++, later *= CHECK_KEY_SUM) {
        for (uint32_t i = 0; i < CHECK_WORDS + 3; i++)
            for (int bit = 0; bit < 64; bit++) {
                bad += !is_seen((check_keys[i] * later) << bit);
                bad += !is_seen(0 - ((check_keys[i] * later) << bit));
            }
    }
    CHECK_INT(bad, 0);
    for (uint32_t i = 0; i < 80; i++)
        words[i] = i * UINT64_C(0x123456789abcdef);
    for (uint32_t n = 1; n < 80; n++) { /* and words that change places */
        uint64_t h = check_words(1, words, n), word = words[n - 1];
        words[n - 1] = words[n / 2];
        words[n / 2] = word;
        bad += n > 2 && (check_words(1, words, n) ^ h) >> WORD_BITS == 0;
        words[n / 2] = words[n - 1];
        words[n - 1] = word;
    }
    CHECK_INT(bad, 0);
}

/* Rows of every number of cells, quick ways and slow ones, are read as they were written. */
TEST(rows_of_any_width_are_whole)
{
    struct probing_column wide[64];
    char names[64][16];
    struct probing_table_desc d = {.size = sizeof(d),
                                   .column_size = sizeof(wide[0]),
                                   .name = "test.wide",
                                   .columns = wide,
                                   .n_columns = 64};
    struct table *t;
    struct ring_reader reader;
    struct ring_row row;
    union probing_cell cells[64];
    for (int i = 0; i < 64; i++) {
        (void)snprintf(names[i], sizeof(names[i]), "c%d", i);
        wide[i] = (struct probing_column){.name = names[i], .type = PROBING_I64};
        cells[i].i = i * 7919;
    }
    begin();
    CHECK_INT(tables_add(tables, "test", &d, NULL, &t), 0);
    CHECK_INT(rings_bind_table(rings, t), 0);
    for (uint32_t n = 0; n <= 64; n++)
        CHECK_INT(ring_append(t, n, cells, n, NULL, 0), 0);
    CHECK_INT(ring_append(t, 65, cells, 65, NULL, 0), -EINVAL);
    CHECK_INT(ring_read(rings, 0, 0, &reader), 0);
    for (uint32_t n = 0; n <= 64; n++) {
        if (!CHECK_INT(ring_next(&reader, &row), 1))
            break;
        CHECK(row.ts == n && row.n_cells == (n < 64 ? n : 64));
        CHECK(memcmp(row.cells, cells, 8 * row.n_cells) == 0);
    }
    CHECK_INT(reader.gaps, 0);
    end();
}

int main(void)
{
    if (!mkdtemp(directory))
        return test_skip("no /tmp");
    (void)snprintf(path, sizeof(path), "%s/rings", directory);
    (void)signal(SIGXFSZ, SIG_DFL); /* a write over the limit would kill us here */
    RUN(a_row_comes_out_as_it_went_in);
    RUN(what_is_no_row_of_the_table_is_refused_and_counted);
    RUN(an_empty_tail_is_not_none);
    RUN(one_bit_of_a_row_changes_its_check_for_certain);
    RUN(rows_of_any_width_are_whole);
    RUN(a_full_ring_counts_what_it_refuses);
    RUN(every_row_of_every_thread_arrives_once);
    RUN(signal_handlers_may_append_while_their_thread_appends);
    RUN(a_forked_child_writes_nothing);
    RUN(rings_come_and_go_while_threads_append);
    RUN(small_limits_mean_fewer_rings_and_counted_losses);
    RUN(a_file_left_behind_is_read_and_a_broken_one_refused);
    (void)file_remove_dir(directory);
    return test_end();
}
