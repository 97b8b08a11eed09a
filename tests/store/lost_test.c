/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/store/lost_test.c - files of a store that are lost under it: cut short, copied over, or on
 * a disk that cannot read them any more.
 *
 * Each case is a child of its own.  What has to hold: the process lives, what was lost is counted,
 * and what is appended afterwards is kept.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "core/base/err.h"
#include "core/guest/mmap_guard.h"
#include "core/store/internal.h"
#include "tests/store/limits.h"
#include "tests/store/mounts.h"

static uint64_t damaged(const struct table *t)
{
    return atomic_load_explicit(&t->lost[TABLE_LOST_DAMAGED], memory_order_relaxed);
}

static int open_one(const char *directory, const char *name, int flags)
{
    char path[100];
    (void)snprintf(path, sizeof(path), "%s/%s", directory, name);
    int fd = open(path, flags | O_CLOEXEC, 0600);
    CHECK(fd != -1);
    return fd;
}

static void cut(const char *directory, const char *name)
{
    (void)close(open_one(directory, name, O_WRONLY | O_TRUNC));
}

static uint64_t append_to(uint64_t n, uint64_t end_n)
{
    for (; n < end_n; n++)
        append(table, n + 1, n);
    CHECK_INT(store_drain(store), 0);
    return n;
}

/* How many rows can be read; -errno. */
static int64_t read_rows(struct store *s, struct table *t)
{
    struct store_scan *scan;
    struct store_batch b;
    struct store_scan_options o = {.columns = {0x1c, 0}};
    int64_t rows = 0;
    int rc = store_scan_new(s, t, &o, &scan);
    if (rc)
        return rc;
    while ((rc = store_scan_next(scan, &b)) == 1) {
        for (uint32_t i = 0; i < b.n_rows; i++)
            CHECK(b.cells[3][i].u == noise(b.cells[2][i].u));
        rows += b.n_rows;
    }
    store_scan_free(scan);
    return rc ? rc : rows;
}

/* ---- data.mdb ---- */

/* As the core does it at its end: no link leads to where the store's files lay for this test. */
static void bring_home(void)
{
    static const char *const names[] = {"rings", "strings"};
    char from[128], to[128];
    for (size_t i = 0; i < 2; i++) {
        (void)snprintf(from, sizeof(from), "%s/%s", fast, names[i]);
        (void)snprintf(to, sizeof(to), "%s/%s", data, names[i]);
        CHECK_INT(rename(from, to), 0);
    }
}

static void cut_data_body(void)
{
    struct table *other, *later;
    if (!CHECK_INT(begin(64 * MB), 0) || !CHECK_INT(add_table("other", 3, &other), 0))
        return;
    append(other, 1, 0);
    uint64_t n = append_to(0, 100000);
    cut(data, "data.mdb");
    CHECK_INT(read_rows(store, table), 0);
    CHECK_INT(lost_rows(table), 100000);
    CHECK_INT(lost_rows(other), 1);
    n = append_to(n, 200000);
    append(other, 2, 1);
    CHECK_INT(account(table, n), n - 1);
    CHECK_INT(account(other, 2), 1);
    CHECK_INT(store_next_row(store, table), n);
    CHECK_INT(add_table("later", 2, &later), 0);
    end();

    /* The dead knows all of it. */
    bring_home();
    struct tables *left;
    struct store *dead;
    CHECK_INT(tables_new(&left), 0);
    if (CHECK_INT(store_open(data, left, &dead), 0)) {
        CHECK_STR(store_damage(dead), "");
        CHECK_INT(read_rows(dead, tables_find(left, "limits", "rows")), 100000);
        CHECK(tables_find(left, "limits", "later") != NULL);
        CHECK_INT(lost_rows(tables_find(left, "limits", "rows")), 100000);
        store_free(dead);
    }
    tables_free(left);
}

/* A scan that has begun when it happens ends with an error, and the next one does not. */
static void cut_while_read_body(void)
{
    struct store_scan *scan;
    struct store_batch b;
    struct store_scan_options o = {.columns = {0x1c, 0}};
    if (!CHECK_INT(begin(64 * MB), 0))
        return;
    uint64_t n = append_to(0, 100000);
    CHECK_INT(store_scan_new(store, table, &o, &scan), 0);
    CHECK_INT(store_scan_next(scan, &b), 1);
    cut(data, "data.mdb");
    int rc;
    while ((rc = store_scan_next(scan, &b)) == 1)
        ;
    CHECK(rc == -EIO || rc == 0); /* 0: the drain thread was quicker */
    store_scan_free(scan);
    n = append_to(n, 100010);
    CHECK_INT(account(table, n), n - 1);
    CHECK_INT(read_rows(store, table), 10);
    end();
}

/* Pages of the map itself, while LMDB works on them. */
static void cut_within_body(void)
{
    MDB_txn *txn;
    if (!CHECK_INT(begin(64 * MB), 0))
        return;
    uint64_t n = append_to(0, 100000);
    (void)pthread_rwlock_rdlock(&store->map_lock);
    CHECK_INT(env_begin(store, MDB_RDONLY, &txn), 0);
    cut(data, "data.mdb");
    struct segment_key k = key_of(table->id, 0);
    MDB_val key = value_of(&k, sizeof(k)), value;
    CHECK(mdb_get(txn, store->segments, &key, &value) != 0);
    CHECK_INT(env_end(store, txn), EIO);
    (void)pthread_rwlock_unlock(&store->map_lock);
    n = append_to(n, 100010);
    CHECK_INT(account(table, n), n - 1);
    end();
}

/* cp over it: the same file, other contents. */
static void copied_over_body(void)
{
    static uint8_t junk[1 << 20];
    if (!CHECK_INT(begin(64 * MB), 0))
        return;
    uint64_t n = append_to(0, 100000);
    for (size_t i = 0; i < sizeof(junk); i++)
        junk[i] = (uint8_t)(noise(i) >> 3);
    int fd = open_one(data, "data.mdb", O_WRONLY | O_TRUNC);
    for (int i = 0; i < 8; i++) /* longer than it was */
        CHECK_INT(write(fd, junk, sizeof(junk)), sizeof(junk));
    (void)close(fd);
    n = append_to(n, 100010);
    CHECK_INT(account(table, n), n - 1);
    CHECK_INT(lost_rows(table), 100000);
    CHECK_INT(read_rows(store, table), 10);
    end();
}

TEST(a_data_file_that_is_cut_short_is_begun_anew)
{
    in_child(cut_data_body);
    in_child(cut_while_read_body);
    in_child(cut_within_body);
}

TEST(a_data_file_that_is_copied_over_is_begun_anew)
{
    in_child(copied_over_body);
}

static void cut_lock_body(void)
{
    if (!CHECK_INT(begin(64 * MB), 0))
        return;
    uint64_t n = append_to(0, 100000);
    cut(fast, "lock.mdb");
    for (int i = 0; i < 10; i++, n++)
        append(table, n + 1, n);
    (void)store_drain(store); /* may run into it */
    n = append_to(n, 200000);
    CHECK_INT(account(table, n), n - 1);
    CHECK(read_rows(store, table) >= 199990);
    end();
}

TEST(a_lock_file_that_is_cut_short_costs_a_drain)
{
    in_child(cut_lock_body);
}

/* A host that closes what it does not know, and has a file of its own there then. */
static void taken_descriptor_body(void)
{
    struct stat st;
    int fd;
    if (!CHECK_INT(begin(64 * MB), 0))
        return;
    uint64_t n = append_to(0, 100000);
    int theirs = open_one(fast, "theirs", O_RDWR | O_CREAT);
    (void)pthread_rwlock_wrlock(&store->map_lock);
    CHECK_INT(mdb_env_get_fd(store->env, &fd), 0);
    CHECK_INT(dup2(theirs, fd), fd);
    (void)pthread_rwlock_unlock(&store->map_lock);
    n = append_to(n, 200000);
    CHECK_INT(account(table, n), n - 1);
    CHECK_INT(lost_rows(table), 0);
    CHECK(fstat(fd, &st) == 0 && st.st_size == 0);
    end();
    CHECK(fstat(fd, &st) == 0);
}

TEST(a_descriptor_that_the_host_took_is_its_own)
{
    in_child(taken_descriptor_body);
}

/* ---- what is written through a mapping ---- */

static void cut_rings_body(void)
{
    uint64_t id;
    if (!CHECK_INT(begin(64 * MB), 0))
        return;
    uint64_t n = append_to(0, 1000);
    cut(fast, "rings");
    for (int i = 0; i < 1000; i++, n++) /* by the host's own thread */
        (void)ring_append(table, n + 1, (union probing_cell[]){{.u = n}, {.u = noise(n)}, {.f = 1}},
                          3, NULL, 0);
    for (int i = 0; i < 6000 && damaged(table) == 0; i++) /* the drain thread sees it */
        (void)usleep(10000);
    CHECK(damaged(table) > 0);
    struct store_table_stats before, after;
    CHECK_INT(store_stats(store, table, &before), 0);
    for (int i = 0; i < 50000; i++, n++)
        append(table, n + 1, n);
    CHECK_INT(store_drain(store), 0);
    CHECK_INT(store_stats(store, table, &after), 0);
    CHECK_INT(after.rows, before.rows + 50000);

    cut(fast, "strings");
    CHECK_INT(intern(store_interns(store), "a name", 6, &id), -EIO);
    CHECK(strstr(err_text(), "injected again") != NULL);
    CHECK(intern_text(store_interns(store), 1, NULL) == NULL);
    CHECK_INT(store_drain(store), 0);
    end();
}

TEST(rings_that_are_cut_short_are_begun_anew)
{
    in_child(cut_rings_body);
}

/* ---- a disk that cannot read ---- */

/* An ext4 in a file of another one, which is shut down below it: what is not in memory then cannot
 * be had any more. */
static void unreadable_body(void)
{
    char below[100], image[120];
    uint32_t how = 2;
    (void)snprintf(below, sizeof(below), "%s/below", fast);
    (void)snprintf(image, sizeof(image), "%s/above", below);
    if (!mount_on("ext4", 64 * MB, 64 * MB, below, NULL) ||
        !mount_on("ext4", 48 * MB, 0, data, image) || !begin_with_rings_in_memory())
        return;
    uint64_t n = append_to(0, 200000);
    int down, fd;
    sync();
    down = open(below, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (ioctl(down, EXT4_SHUTDOWN, &how) != 0) {
        printf("# this kernel does not shut ext4 down: not tried\n");
    } else {
        (void)pthread_rwlock_wrlock(&store->map_lock);
        CHECK_INT(mdb_env_get_fd(store->env, &fd), 0);
        (void)madvise((void *)(uintptr_t)store->map, 48 * MB, MADV_DONTNEED);
        CHECK_INT(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
        (void)pthread_rwlock_unlock(&store->map_lock);
        int64_t rows = read_rows(store, table);
        printf("# read from a disk that cannot: %lld\n", (long long)rows);
        CHECK(rows == -EIO);
        for (int i = 0; i < 1000; i++, n++)
            append(table, n + 1, n);
        (void)store_drain(store);
        (void)read_rows(store, table);
    }
    (void)close(down);
    end();
}

TEST(a_disk_that_cannot_read_does_not_end_the_host)
{
    if (may_mount())
        in_child(unreadable_body);
}

int main(void)
{
    if (!mkdtemp(root))
        return test_skip("no /tmp");
    RUN(a_data_file_that_is_cut_short_is_begun_anew);
    RUN(a_data_file_that_is_copied_over_is_begun_anew);
    RUN(a_descriptor_that_the_host_took_is_its_own);
    RUN(a_lock_file_that_is_cut_short_costs_a_drain);
    RUN(rings_that_are_cut_short_are_begun_anew);
    RUN(a_disk_that_cannot_read_does_not_end_the_host);
    (void)rmdir(root);
    return test_end();
}
