/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/store/disk_test.c - real file systems that are full, over quota, failing, or torn away from
 * below: ext4 and btrfs in loop devices over files that are small or cannot grow.
 *
 * Root only, and what is missing (mkfs.ext4, btrfs-progs, loop devices) is said.  Each case has
 * mounts of its own, which end with it.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>

#include "core/base/err.h"
#include "tests/store/limits.h"
#include "tests/store/mounts.h"

static void end_all(void)
{
    end();
    (void)file_remove_dir(fast);
}

static void say(const char *what, uint64_t n)
{
    struct store_table_stats stats;
    CHECK_INT(store_stats(store, table, &stats), 0);
    printf("# %s: %llu kept, %llu expired, %llu lost of %llu\n", what,
           (unsigned long long)stats.rows, (unsigned long long)stats.expired,
           (unsigned long long)lost_rows(table), (unsigned long long)n);
    CHECK_INT(stats.rows + stats.expired + lost_rows(table), n);
}

static uint64_t append_until(uint64_t n, uint64_t end_n)
{
    for (; n < end_n; n++)
        append(table, n + 1, n);
    (void)store_drain(store);
    return n;
}

static void full_body(void)
{
    if (!mount_image("ext4", 16 * MB, 64 * MB) || !begin_with_rings_in_memory())
        return;
    uint64_t n = append_until(0, 2000000);
    say("a full ext4", n);
    CHECK(account(table, n) > n - n / 20);
    CHECK(lost_rows(table) < n / 20);
    end_all();
}

TEST(a_full_ext4_keeps_the_newest_rows)
{
    if (may_mount())
        in_child(full_body);
}

/* EDQUOT, by btrfs's groups: its quotas need no tables and no tools in the kernel's way. */
static void quota_body(void)
{
    const char *const enable[] = {"btrfs", "quota", "enable", data, NULL};
    const char *const limit[] = {"btrfs", "qgroup", "limit", "12M", data, NULL};
    if (!mount_image("btrfs", 256 * MB, 128 * MB))
        return;
    if (!run(enable) || !run(limit)) {
        printf("# no quota for btrfs here: not tried\n");
        return;
    }
    /* A write through a mapping would be a SIGBUS there, also to LMDB's lock file. */
    struct store_options o = {.directory = data, .max_bytes = 64 * MB};
    CHECK_INT(tables_new(&tables), 0);
    CHECK_INT(store_create(&o, tables, &store), -ENOTSUP);
    CHECK(strstr(err_text(), "/dev/shm") != NULL);
    tables_free(tables);
    if (!begin_with_rings_in_memory())
        return;
    uint64_t n = append_until(0, 2000000);
    say("quota", n);
    CHECK(file_bytes() <= 12 * MB);
    (void)account(table, n);
    const char *const more[] = {"btrfs", "qgroup", "limit", "none", data, NULL};
    CHECK(run(more));
    uint64_t lost = 0;
    for (int i = 0; i < 3; i++) { /* what was begun under the quota may fail yet */
        lost = lost_rows(table);
        n = append_until(n, n + 100000);
    }
    CHECK_INT(lost_rows(table), lost);
    CHECK_INT(account(table, n), n - 1);
    end_all();
}

TEST(a_quota_is_counted_and_passes)
{
    if (may_mount())
        in_child(quota_body);
}

/* The device below fails when the kernel writes back what it has taken: rows that were committed
 * are only in memory then, and later writes may fail.  We go on. */
static void failing_body(void)
{
    if (!mount_image("ext4", 64 * MB, 6 * MB) || !begin_with_rings_in_memory())
        return;
    uint64_t n = 0;
    for (int i = 0; i < 8; i++) {
        n = append_until(n, n + 100000);
        sync();
    }
    say("a failing disk", n);
    struct table *more;
    (void)add_table("more", 2, &more);
    end_all();
}

TEST(a_device_that_fails_below_does_not_end_the_host)
{
    if (may_mount())
        in_child(failing_body);
}

/* As when a disk is pulled out: everything fails from then on. */
static void torn_away_body(void)
{
    uint32_t how = 2; /* without writing the journal */
    if (!mount_image("ext4", 64 * MB, 64 * MB) || !begin_with_rings_in_memory())
        return;
    uint64_t n = append_until(0, 100000);
    int fd = open(data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (ioctl(fd, EXT4_SHUTDOWN, &how) != 0) {
        printf("# this kernel does not shut ext4 down: not tried\n");
    } else {
        n = append_until(n, 400000);
        say("a disk torn away", n);
        CHECK(lost_rows(table) >= 250000);
        struct table *more;
        CHECK(add_table("more", 2, &more) < 0);
    }
    (void)close(fd);
    end_all();
}

TEST(a_disk_that_is_torn_away_is_counted)
{
    if (may_mount())
        in_child(torn_away_body);
}

int main(void)
{
    if (!mkdtemp(root))
        return test_skip("no /tmp");
    RUN(a_full_ext4_keeps_the_newest_rows);
    RUN(a_quota_is_counted_and_passes);
    RUN(a_device_that_fails_below_does_not_end_the_host);
    RUN(a_disk_that_is_torn_away_is_counted);
    (void)rmdir(root);
    return test_end();
}
