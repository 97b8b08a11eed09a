/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/store/limits_test.c - a store that may not grow: budgets, a full map, full and failing
 * disks, directories that cannot be written or are gone.
 *
 * Each case is a child of its own: mounts, limits and filters end with it.  What has to hold is the
 * same everywhere: each row appended is kept, expired or counted as lost; nothing dies.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/store/internal.h"
#include "tests/store/limits.h"

/* ---- budgets ---- */

/* A day in fast forward: a busy table, slow ones, and a reader that never goes away.  Rows carry
 * times of the last 24 hours; age is set so that two hours of them are kept. */
static void a_day_body(void)
{
    struct table *slow[8];
    struct store_scan *scan = NULL;
    struct store_batch b;
    struct store_scan_options o = {.columns = {0x1c, 0}};
    char name[32];
    uint64_t n = 0, most = 0, live_most = 0, begun = clock_monotonic() - 24 * HOUR;
    if (!CHECK_INT(begin(64 * MB), 0))
        return;
    for (int i = 0; i < 8; i++) {
        (void)snprintf(name, sizeof(name), "slow_%d", i);
        CHECK_INT(add_table(name, 3, &slow[i]), 0);
    }
    CHECK_INT(store_retention_set(store, "slow_7", "2h|1MB"), 0);
    for (uint64_t minute = 0; minute < 24 * 60; minute++) {
        uint64_t now = begun + minute * 60 * NS_PER_S;
        for (int k = 0; k < 6000; k++, n++)
            append(table, now + (uint64_t)k * 10 * NS_PER_MS, n);
        for (uint64_t i = 0; i < 8; i++)
            for (uint64_t k = 0; k < 1u << i; k++)
                append(slow[i], now + k, minute * (1u << i) + k);
        store_set_limits(store, 64 * MB, clock_monotonic() - now + 2 * HOUR);
        CHECK_INT(store_drain(store), 0);
        if (!scan || store_scan_next(scan, &b) != 1) {
            store_scan_free(scan);
            CHECK_INT(store_scan_new(store, table, &o, &scan), 0);
        }
        uint64_t live = 0;
        struct store_table_stats stats;
        for (int i = -1; i < 8; i++) {
            CHECK_INT(store_stats(store, i < 0 ? table : slow[i], &stats), 0);
            live += stats.bytes;
        }
        live_most = live > live_most ? live : live_most;
        most = file_bytes() > most ? file_bytes() : most;
    }
    store_scan_free(scan);
    printf("# file %.2f MB, data %.2f MB: %.3f\n", (double)most / 1e6, (double)live_most / 1e6,
           (double)most / (double)live_most);
    CHECK(most <= live_most + live_most / 4);
    CHECK_INT(lost_rows(table), 0);
    CHECK_INT(account(table, n), n - 1);
    CHECK_INT(account(slow[0], 24 * 60), 24 * 60 - 1);
    end();
}

TEST(a_day_of_steady_writing_stays_within_its_file)
{
    in_child(a_day_body);
}

static void keep_body(void)
{
    struct table *later;
    uint64_t ns = 1, bytes = 1;
    if (!CHECK_INT(begin(64 * MB), 0))
        return;
    CHECK_INT(store_retention_parse("2h|100MB", &ns, &bytes), 0);
    CHECK(ns == 2 * HOUR && bytes == 100 * MB);
    CHECK_INT(store_retention_parse("100MB", &ns, &bytes), 0);
    CHECK(ns == 0 && bytes == 100 * MB);
    CHECK_INT(store_retention_parse("0", &ns, &bytes), 0);
    CHECK(ns == 0 && bytes == 0);
    CHECK_INT(store_retention_parse("100", &ns, &bytes), -EINVAL);
    CHECK_INT(store_retention_parse("2h|", &ns, &bytes), 0);
    CHECK_INT(store_retention_parse("2h||1MB", &ns, &bytes), -EINVAL);
    CHECK_INT(store_retention_set(store, "limits.later", "soon"), -EINVAL);
    CHECK_INT(store_retention_set(store, "limits.later", "1MB"), 1); /* to come */
    CHECK_INT(add_table("later", 3, &later), 0);
    for (uint64_t n = 0; n < 300000; n++) {
        append(later, n + 1, n);
        append(table, n + 1, n);
    }
    struct store_table_stats stats;
    CHECK_INT(store_drain(store), 0);
    CHECK_INT(store_retention_set(store, "later", "1MB"), 0); /* by the name alone, at once */
    CHECK_INT(store_drain(store), 0);
    CHECK_INT(store_stats(store, later, &stats), 0);
    CHECK(stats.bytes <= MB && stats.expired > 0);
    CHECK_INT(store_stats(store, table, &stats), 0);
    CHECK_INT(stats.expired, 0);
    CHECK_INT(account(later, 300000), 299999);
    end();
}

TEST(a_table_has_a_budget_of_its_own)
{
    in_child(keep_body);
}

/* A reader in another process that never ends pins LMDB's pages: the map gets full, rows are lost
 * and counted; when it goes, all is well again. */
static void map_full_body(void)
{
    MDB_txn *reader;
    uint64_t n = 0;
    if (!CHECK_INT(begin(8 * MB), 0))
        return;
    append(table, 1, n++);
    CHECK_INT(store_drain(store), 0);
    CHECK_INT(mdb_txn_begin(store->env, NULL, MDB_RDONLY, &reader), 0);
    while (lost_rows(table) == 0 && n < 20000000)
        append(table, n + 1, n), n++;
    CHECK(lost_rows(table) > 0);
    for (int i = 0; i < 200000; i++)
        append(table, n + 1, n), n++;
    uint64_t lost = lost_rows(table);
    struct store_table_stats stats;
    CHECK_INT(store_stats(store, table, &stats), 0);
    CHECK(stats.bytes > 4 * MB); /* what is there was not given away for nothing */
    mdb_txn_abort(reader);
    (void)pthread_mutex_lock(&store->drain_lock);
    store->room_made_at = 0; /* as if a minute had gone by */
    (void)pthread_mutex_unlock(&store->drain_lock);
    (void)store_drain(store);
    lost = lost_rows(table);
    for (int i = 0; i < 400000; i++)
        append(table, n + 1, n), n++;
    CHECK_INT(account(table, n), n - 1);
    CHECK_INT(lost_rows(table), lost);
    end();
}

TEST(a_full_map_is_counted_and_passes)
{
    in_child(map_full_body);
}

/* ---- the device ---- */

/* The device is full at 4 MB, long before the budget: the newest rows are kept. */
static void full_disk_body(void)
{
    uint64_t n = 0;
    if (!CHECK(mount_small("size=4m,mode=700")) || !CHECK_INT(begin(256 * MB), 0))
        return;
    for (; n < 1500000; n++)
        append(table, n + 1, n);
    (void)store_drain(store);
    struct store_table_stats stats;
    CHECK_INT(store_stats(store, table, &stats), 0);
    printf("# full disk: %llu kept, %llu expired, %llu lost of %llu\n",
           (unsigned long long)stats.rows, (unsigned long long)stats.expired,
           (unsigned long long)lost_rows(table), (unsigned long long)n);
    CHECK(stats.expired > 0 && stats.bytes > 2 * MB);
    CHECK(lost_rows(table) < n / 20);
    CHECK(account(table, n) > n - n / 20);
    end();
}

TEST(a_full_disk_keeps_the_newest_rows)
{
    if (may_mount())
        in_child(full_disk_body);
}

static void fill_up_body(void)
{
    char path[100], block[4096] = {0};
    uint64_t n = 0;
    if (!CHECK(mount_small("size=8m,mode=700")) || !CHECK_INT(begin(256 * MB), 0))
        return;
    for (; n < 50000; n++)
        append(table, n + 1, n);
    CHECK_INT(store_drain(store), 0);
    (void)snprintf(path, sizeof(path), "%s/somebody", data);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    while (write(fd, block, sizeof(block)) > 0)
        ;
    for (; n < 400000; n++)
        append(table, n + 1, n);
    (void)account(table, n);
    struct table *more; /* may be refused, for its reason */
    int rc = add_table("more", 2, &more);
    CHECK(rc == 0 || rc == -ENOSPC || rc == -EIO);
    (void)close(fd);
    CHECK_INT(unlink(path), 0);
    for (; n < 600000; n++)
        append(table, n + 1, n);
    CHECK_INT(account(table, n), n - 1);
    end();
}

TEST(a_disk_filled_by_somebody_else)
{
    if (may_mount())
        in_child(fill_up_body);
}

/* Reads of what is there go on, and writers do not notice. */
static void eio_of(bool all)
{
#if defined(__x86_64__) || defined(__aarch64__)
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pwrite64, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pwritev, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_writev, all ? 1 : 0, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EIO)};
    struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]), .filter = code};
    uint64_t n = 0;
    if (!CHECK_INT(begin(64 * MB), 0))
        return;
    for (; n < 50000; n++)
        append(table, n + 1, n);
    CHECK_INT(store_drain(store), 0);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0) {
        printf("# no seccomp here: EIO is not tried\n");
        return;
    }
    for (; n < 250000; n++)
        append(table, n + 1, n);
    CHECK_INT(account(table, n), 49999);
    CHECK_INT(lost_rows(table), 200000);
    struct table *more;
    CHECK(add_table("more", 2, &more) < 0);
    end();
#endif
}

static void eio_body(void)
{
    eio_of(true);
}

/* Data is written and LMDB's last page is not: it refuses to go on until it is opened afresh. */
static void eio_at_the_end_body(void)
{
    eio_of(false);
}

TEST(a_disk_that_fails_is_counted)
{
    in_child(eio_body);
    in_child(eio_at_the_end_body);
}

/* The limit's signal would end the host. */
static void file_limit_body(void)
{
    uint64_t n = 0;
    if (!CHECK_INT(begin(64 * MB), 0))
        return;
    (void)signal(SIGXFSZ, SIG_DFL);
    struct rlimit limit = {.rlim_cur = 3 * MB, .rlim_max = RLIM_INFINITY};
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (; n < 1000000; n++)
        append(table, n + 1, n);
    CHECK(account(table, n) > n - n / 20);
    CHECK(file_bytes() <= 3 * MB);
    struct table *more;
    (void)add_table("more", 2, &more);
    sigset_t pending;
    CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 0);
    end();
}

TEST(a_limit_on_file_size_does_not_end_the_host)
{
    in_child(file_limit_body);
}

/* As many rows as this thread's ring takes; *arg is the number of the next. */
static void *fill_ring(void *arg)
{
    uint64_t *n = arg;
    for (bool room = true; room; *n += room) {
        union probing_cell cells[3] = {{.u = *n}, {.u = noise(*n)}, {.f = (double)noise(*n + 1)}};
        room = ring_append(table, *n + 1, cells, 3, NULL, 0) == 0;
    }
    return NULL;
}

/* If the drain is late, whole rings come at once: more than an eighth of what the file holds. */
static void late_drain_body(void)
{
    pthread_t other;
    uint64_t n = 0;
    if (!CHECK_INT(begin(64 * MB), 0))
        return;
    struct rlimit limit = {.rlim_cur = 3 * MB, .rlim_max = RLIM_INFINITY};
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (int round = 0; round < 12; round++) {
        (void)pthread_mutex_lock(&store->drain_lock);
        (void)fill_ring(&n);
        CHECK_INT(pthread_create(&other, NULL, fill_ring, &n), 0);
        (void)pthread_join(other, NULL);
        (void)pthread_mutex_unlock(&store->drain_lock);
        (void)store_drain(store);
    }
    CHECK_INT(lost_rows(table), 0);
    CHECK_INT(account(table, n), n - 1);
    end();
}

TEST(a_late_drain_into_a_full_file_loses_nothing)
{
    in_child(late_drain_body);
}

/* Linux before 5.14 has no MADV_POPULATE_WRITE: pages are reserved by the descriptor. */
static void old_kernel_body(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 23, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL)};
    struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]), .filter = code};
    uint64_t n = 0, id = 0;
    char name[32];
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0) {
        printf("# no seccomp here: an old kernel is not tried\n");
        return;
    }
    if (!CHECK_INT(begin(64 * MB), 0))
        return;
    for (; n < 200000; n++)
        append(table, n + 1, n);
    CHECK_INT(account(table, n), n - 1);
    for (int i = 0; i < 20000; i++) {
        int size = snprintf(name, sizeof(name), "name %d", i);
        CHECK_INT(intern(store_interns(store), name, (size_t)size, &id), 0);
    }
    CHECK_STR(intern_text(store_interns(store), id, NULL), "name 19999");
    end();
}

TEST(an_old_kernel_reserves_pages_in_its_way)
{
    in_child(old_kernel_body);
}

static void read_only_body(void)
{
    if (!CHECK(mount_small("size=1m,mode=500")) ||
        !CHECK_INT(mount("probing", data, "tmpfs", MS_REMOUNT | MS_RDONLY, "size=1m"), 0))
        return;
    CHECK_INT(begin(64 * MB), -EROFS);
    CHECK(strstr(err_text(), data) != NULL);
}

TEST(a_read_only_directory_is_refused)
{
    if (may_mount())
        in_child(read_only_body);
}

static void deleted_body(void)
{
    uint64_t n = 0;
    if (!CHECK_INT(begin(64 * MB), 0))
        return;
    for (; n < 50000; n++)
        append(table, n + 1, n);
    CHECK_INT(file_remove_dir(data), 0);
    CHECK_INT(file_remove_dir(fast), 0);
    for (; n < 200000; n++)
        append(table, n + 1, n);
    CHECK_INT(account(table, n), n - 1);
    struct table *more;
    CHECK_INT(add_table("more", 2, &more), -ENOENT);
    end();
}

TEST(a_deleted_directory_is_gone_on_with)
{
    in_child(deleted_body);
}

int main(void)
{
    if (!mkdtemp(root))
        return test_skip("no /tmp");
    RUN(a_day_of_steady_writing_stays_within_its_file);
    RUN(a_table_has_a_budget_of_its_own);
    RUN(a_full_map_is_counted_and_passes);
    RUN(a_full_disk_keeps_the_newest_rows);
    RUN(a_disk_filled_by_somebody_else);
    RUN(a_disk_that_fails_is_counted);
    RUN(a_limit_on_file_size_does_not_end_the_host);
    RUN(a_late_drain_into_a_full_file_loses_nothing);
    RUN(an_old_kernel_reserves_pages_in_its_way);
    RUN(a_read_only_directory_is_refused);
    RUN(a_deleted_directory_is_gone_on_with);
    (void)rmdir(root);
    return test_end();
}
