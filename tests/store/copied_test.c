/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/store/copied_test.c - a data.mdb that was copied while the process wrote it.
 *
 * A store is looked at after each of its drains.  Of two such moments files are made as a copy
 * gives them, the one up to a page and the other from there on, with the rings of the one or of the
 * other.  Whatever comes of it: each row is there once, and when one lacks that is told.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/store/store.h"
#include "tests/test.h"

#define MOMENTS 7
#define TABLES 60 /* so that their records need more pages than one */
#define PAGE ((size_t)4096)
#ifdef __SANITIZE_THREAD__ /* a copy takes some fifteen times as long: every seventh of them */
#define STEP 7
#else
#define STEP 1
#endif
#define RING_PAGES 512 /* of the rings' file: all of the first ring */

static char root[] = "/tmp/probing-copied-XXXXXX";
static char directory[64];

/* The files as they were at one moment, and the rows that had been appended by then. */
static struct moment {
    char *data, *rings;
    size_t data_bytes, rings_bytes;
    uint64_t rows[TABLES];
} moments[MOMENTS];

static const struct probing_column columns[] = {{.name = "n", .type = PROBING_I64}};

static int add_tables(struct store *s, struct table **ret)
{
    char name[16];
    int rc = 0;
    for (int i = 0; i < TABLES && rc == 0; i++) {
        struct probing_table_desc d = {.size = sizeof(d),
                                       .column_size = sizeof(columns[0]),
                                       .name = name,
                                       .doc = "",
                                       .columns = columns,
                                       .n_columns = 1};
        (void)snprintf(name, sizeof(name), "t%02d", i);
        rc = store_table_add(s, "copied", &d, NULL, &ret[i]);
    }
    return rc;
}

static char *take(const char *name, size_t most, size_t *ret_bytes)
{
    char path[96];
    struct stat st = {0};
    (void)snprintf(path, sizeof(path), "%s/%s", directory, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd != -1 && fstat(fd, &st) == 0);
    *ret_bytes = (size_t)st.st_size < most ? (size_t)st.st_size : most;
    char *bytes = malloc(*ret_bytes);
    CHECK(bytes && pread(fd, bytes, *ret_bytes, 0) == (ssize_t)*ret_bytes);
    (void)close(fd);
    return bytes;
}

static void put(const char *name, const char *bytes, size_t from, size_t to)
{
    char path[96];
    (void)snprintf(path, sizeof(path), "%s/%s", directory, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    CHECK(fd != -1);
    if (to > from)
        CHECK_INT(pwrite(fd, bytes + from, to - from, (off_t)from), to - from);
    if (strcmp(name, "data.mdb") == 0)
        CHECK_INT(ftruncate(fd, (off_t)to), 0);
    (void)close(fd);
}

/* Few rows, so that segments are merged, and some that are not drained yet. */
static void append_some(struct store *store, struct table **t, struct moment *m, uint64_t *rows)
{
    for (int i = 0; i < TABLES; i++) {
        for (uint64_t k = 0; k < 1 + (uint64_t)i % 7 * 40; k++) {
            union probing_cell cell = {.u = rows[i]++};
            CHECK_INT(ring_append(t[i], cell.u + 1, &cell, 1, NULL, 0), 0);
        }
        if (i == TABLES - 5) /* the last five tables' rows stay in the ring */
            CHECK_INT(store_drain(store), 0);
    }
    memcpy(m->rows, rows, sizeof(m->rows));
    m->data = take("data.mdb", SIZE_MAX, &m->data_bytes);
    m->rings = take("rings", RING_PAGES * PAGE, &m->rings_bytes);
}

static void live(void)
{
    struct tables *tables;
    struct store *store;
    struct table *t[TABLES];
    uint64_t rows[TABLES] = {0};
    struct store_options o = {.directory = directory, .max_bytes = UINT64_C(1) << 26};
    if (!CHECK_INT(tables_new(&tables), 0) || !CHECK_INT(store_create(&o, tables, &store), 0) ||
        !CHECK_INT(add_tables(store, t), 0))
        return;
    for (int i = 0; i < MOMENTS; i++)
        append_some(store, t, &moments[i], rows);
    /* As it would lie there after a kill: nothing is drained at an end. */
    store_disable_in_child(store);
}

struct answer {
    uint64_t bad, fewer;
    bool told;
};

static void read_table(struct store *store, const struct table *t, uint64_t most, struct answer *a)
{
    struct store_scan *scan;
    struct store_batch b;
    struct store_scan_options o = {.columns = {UINT64_MAX, UINT64_MAX}};
    uint64_t next = 0;
    int rc = store_scan_new(store, t, &o, &scan);
    if (!CHECK_INT(rc, 0))
        return;
    while ((rc = store_scan_next(scan, &b)) == 1) {
        for (uint32_t i = 0; i < b.n_rows; i++) {
            uint64_t n = b.cells[2][i].u;
            a->bad += n < next;
            a->fewer += n > next;
            next = n + 1;
        }
    }
    a->fewer += next < most;
    a->told |= rc < 0;
    store_scan_free(scan);
}

/* least: the moment of which every row must be there, or else that is told. */
static struct answer read_all(const struct moment *least)
{
    struct answer a = {0};
    struct tables *tables;
    struct store *store;
    struct table *t;
    char name[16];
    if (!CHECK_INT(tables_new(&tables), 0) || !CHECK_INT(store_open(directory, tables, &store), 0))
        return a;
    for (int i = 0; i < TABLES; i++) {
        (void)snprintf(name, sizeof(name), "t%02d", i);
        t = tables_find(tables, "copied", name);
        if (CHECK(t != NULL))
            read_table(store, t, least->rows[i], &a);
    }
    a.told |= *store_damage(store) != '\0';
    store_free(store);
    tables_free(tables);
    return a;
}

static uint64_t tries, told, whole;

static void try_one(int first, int second, size_t page, bool first_rings)
{
    const struct moment *x = &moments[first], *y = &moments[second];
    const struct moment *rings = first_rings ? x : y;
    size_t at = page * PAGE, end = at < x->data_bytes ? at : x->data_bytes;
    put("data.mdb", x->data, 0, end);
    put("data.mdb", y->data, end, y->data_bytes);
    put("rings", rings->rings, 0, rings->rings_bytes);
    struct answer a = read_all(first < second ? x : y);
    tries++;
    told += a.told;
    whole += !a.told && !a.fewer;
    if (!CHECK(a.bad == 0) || !CHECK(a.fewer == 0 || a.told))
        printf("# %d up to page %zu, then %d, rings of %d\n", first, page, second,
               first_rings ? first : second);
}

TEST(pages_of_two_moments)
{
    live();
    for (int i = 0; i < MOMENTS; i++) { /* each by itself is whole */
        try_one(i, i, 0, true);
        CHECK_INT(told, 0);
    }
    for (int x = 0; x < MOMENTS; x++) {
        for (int y = 0; y < MOMENTS; y++) {
            for (size_t page = 1; x != y && page * PAGE < moments[y].data_bytes; page += STEP) {
                try_one(x, y, page, true);
                try_one(x, y, page, false);
            }
        }
    }
    printf("# %llu copies, %llu whole, %llu told what they lack\n", (unsigned long long)tries,
           (unsigned long long)whole, (unsigned long long)told);
}

int main(void)
{
    CHECK(mkdtemp(root) != NULL);
    (void)snprintf(directory, sizeof(directory), "%s/store", root);
    CHECK_INT(mkdir(directory, 0700), 0);
    RUN(pages_of_two_moments);
    CHECK_INT(file_remove_dir(directory), 0);
    (void)rmdir(root);
    return test_end();
}
