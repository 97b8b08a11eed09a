/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/store/limits.h - a store in a child of its own, rows that prove themselves, and the account
 * of them: what tests of full, small and failing file systems share.
 *
 * What has to hold is the same everywhere: each row appended is kept, expired or counted as lost;
 * nothing dies.  Mounts, limits and filters end with the child.
 */
#ifndef TESTS_STORE_LIMITS_H
#define TESTS_STORE_LIMITS_H

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/store/store.h"
#include "tests/test.h"

#define MB (UINT64_C(1) << 20)
#define HOUR (3600 * NS_PER_S)

static char root[] = "/tmp/probing-limits-XXXXXX";
static char data[64], fast[64];
static struct tables *tables;
static struct store *store;
static struct table *table;

static const struct probing_column columns[] = {
    {.name = "n", .type = PROBING_I64},
    {.name = "a", .type = PROBING_I64},
    {.name = "b", .type = PROBING_F64},
};

static inline int add_table(const char *name, uint32_t n_columns, struct table **ret)
{
    struct probing_table_desc d = {.size = sizeof(d),
                                   .column_size = sizeof(columns[0]),
                                   .name = name,
                                   .doc = "",
                                   .columns = columns,
                                   .n_columns = n_columns};
    return store_table_add(store, "limits", &d, NULL, ret);
}

static inline int begin(uint64_t max_bytes)
{
    struct store_options o = {.directory = data, .fast_directory = fast, .max_bytes = max_bytes};
    int rc = tables_new(&tables);
    if (rc == 0)
        rc = store_create(&o, tables, &store);
    if (rc == 0)
        rc = add_table("rows", 3, &table);
    return rc;
}

static inline void end(void)
{
    store_free(store);
    tables_free(tables);
    store = NULL;
}

/* Run `body` in a child with empty directories; its checks count here as one. */
static inline void in_child(void (*body)(void))
{
    (void)snprintf(data, sizeof(data), "%s/data", root);
    (void)snprintf(fast, sizeof(fast), "%s/fast", root);
    CHECK_INT(mkdir(data, 0700), 0);
    CHECK_INT(mkdir(fast, 0700), 0);
    (void)fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        body();
        (void)fflush(stdout);
        _exit(atomic_load_explicit(&test_bad_checks, memory_order_relaxed) ? 1 : 0);
    }
    int status = 1;
    CHECK_INT(waitpid(child, &status, 0), child);
    CHECK_INT(status, 0);
    (void)file_remove_dir(data);
    (void)file_remove_dir(fast);
}

/* Numbers that pack into about 15 bytes a row. */
static inline uint64_t noise(uint64_t n)
{
    uint64_t x = n * UINT64_C(0x9e3779b97f4a7c15);
    return (x ^ x >> 29) & UINT64_C(0xffffffffffff);
}

static inline void append(struct table *t, uint64_t ts, uint64_t n)
{
    union probing_cell cells[3] = {{.u = n}, {.u = noise(n)}, {.f = (double)noise(n + 1) / 1e4}};
    while (ring_append(t, ts, cells, 3, NULL, 0) == -ENOSPC)
        (void)store_drain(store); /* a full ring is not what is tried here */
}

static inline uint64_t lost_rows(const struct table *t)
{
    return atomic_load_explicit(&t->lost[TABLE_LOST_STORE], memory_order_relaxed);
}

/* Every row is somewhere; gives the number of the newest row that can be read, by column n. */
static inline uint64_t account(struct table *t, uint64_t appended)
{
    struct store_table_stats stats;
    struct store_scan *scan;
    struct store_batch b;
    struct store_scan_options o = {.columns = {0x1c, 0}};
    uint64_t rows = 0, bad = 0, last = 0;
    (void)store_drain(store);
    CHECK_INT(store_stats(store, t, &stats), 0);
    CHECK_INT(stats.rows + stats.expired + lost_rows(t), appended);
    if (!CHECK_INT(store_scan_new(store, t, &o, &scan), 0))
        return 0;
    while (store_scan_next(scan, &b) == 1) {
        for (uint32_t i = 0; i < b.n_rows; i++) {
            bad += b.cells[3][i].u != noise(b.cells[2][i].u) || b.cells[2][i].u < last;
            last = b.cells[2][i].u;
        }
        rows += b.n_rows;
    }
    store_scan_free(scan);
    CHECK_INT(rows, stats.rows);
    CHECK_INT(bad, 0);
    return last;
}

static inline uint64_t file_bytes(void)
{
    char path[100];
    struct stat st = {0};
    (void)snprintf(path, sizeof(path), "%s/data.mdb", data);
    (void)stat(path, &st);
    return (uint64_t)st.st_blocks * 512;
}

/* `data` becomes a file system of its own.  false: not root, or not allowed. */
static inline bool mount_small(const char *options)
{
    return unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("probing", data, "tmpfs", 0, options) == 0;
}

static inline bool may_mount(void)
{
    static int known = -1;
    if (known < 0) {
        pid_t child = fork();
        int status = 1;
        if (child == 0)
            _exit(unshare(CLONE_NEWNS) == 0 &&
                          mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0
                      ? 0
                      : 1);
        (void)waitpid(child, &status, 0);
        known = status == 0;
        if (!known)
            printf("# not root, or in a chroot: no small file systems are tried\n");
    }
    return known == 1;
}

#endif
