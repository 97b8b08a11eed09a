/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/store/damage_test.c - a dead process's directory with bytes changed and files cut short.
 *
 * Whatever is damaged, opening and reading it ends, gives only rows that were written, each once,
 * and store_damage() says that something is missing when it is.  Rows carry a sum of themselves.
 * Each try is made in this process: a crash is a failed test.
 *
 * usage: damage_test [tries [seed]]
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/store/store.h"
#include "tests/test.h"

#define ROWS UINT64_C(60000) /* drained; */
#define LEFT UINT64_C(2000)  /* and in the rings */
#define KEEP_BYTES (64 << 20)

static char root[] = "/tmp/probing-damage-XXXXXX";
static char directory[64], path[128];
static uint32_t tries = 250;
static uint64_t seed = UINT64_C(88172645463325252);

static uint64_t next_random(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static uint64_t sum_of(uint64_t n, uint64_t writer)
{
    uint64_t x = (2 * n + writer) * UINT64_C(0x9e3779b97f4a7c15);
    return (x ^ x >> 29) >> 1;
}

static const struct probing_column columns[] = {
    {.name = "n", .type = PROBING_I64},
    {.name = "writer", .type = PROBING_I64},
    {.name = "sum", .type = PROBING_I64},
    {.name = "name", .type = PROBING_STR},
};

static int add_table(struct store *s, const char *name, uint32_t tail, struct table **ret)
{
    struct probing_table_desc d = {.size = sizeof(d),
                                   .column_size = sizeof(columns[0]),
                                   .name = name,
                                   .doc = "",
                                   .columns = columns,
                                   .n_columns = 4,
                                   .tail_type = tail,
                                   .tail_name = tail ? "text" : NULL};
    return store_table_add(s, "damage", &d, NULL, ret);
}

/* A child's life: two tables of many segments, some expired, some merged, and rows in the rings. */
static int write_rows(void)
{
    struct tables *tables;
    struct store *store;
    struct table *t[2];
    uint64_t id;
    struct store_options o = {.directory = directory, .max_bytes = UINT64_C(1) << 28};
    if (tables_new(&tables) || store_create(&o, tables, &store) ||
        add_table(store, "plain", 0, &t[0]) || add_table(store, "texts", PROBING_STR, &t[1]) ||
        intern(store_interns(store), "a name", 6, &id) ||
        store_retention_set(store, "plain", "600KB"))
        return 1;
    for (uint64_t n = 0; n < ROWS + LEFT; n++) {
        for (uint64_t w = 0; w < 2; w++) {
            union probing_cell cells[4] = {{.u = n}, {.u = w}, {.u = sum_of(n, w)}, {.u = id}};
            while (ring_append(t[w], n + 1, cells, 4, w ? "some text" : NULL, w ? 9 : 0) == -ENOSPC)
                (void)store_drain(store);
        }
        if (n == ROWS - 1 || (n < ROWS && n % 977 == 0))
            (void)store_drain(store);
    }
    return 0;
}

struct answer {
    uint64_t rows, bad, unnamed;
    bool told, opened;
};

static void read_table(struct store *store, const struct table *t, struct answer *a)
{
    struct store_scan *scan;
    struct store_batch b;
    struct store_scan_options o = {.columns = {UINT64_MAX, UINT64_MAX}};
    uint64_t next = 0, w = strcmp(t->name, "texts") == 0;
    if (t->n_columns < 6 || store_scan_new(store, t, &o, &scan) != 0)
        return;
    int rc;
    while ((rc = store_scan_next(scan, &b)) == 1) {
        for (uint32_t i = 0; i < b.n_rows; i++) {
            uint64_t n = b.cells[2][i].u;
            a->bad += b.cells[4][i].u != sum_of(n, w) || b.cells[3][i].u != w || n < next;
            next = n + 1;
            if (b.tail_offsets && b.tail_offsets[i + 1] - b.tail_offsets[i] == 10)
                a->bad += memcmp(b.tails + b.tail_offsets[i], "some text", 9) != 0;
            const char *name = intern_text(store_interns(store), b.cells[5][i].u, NULL);
            a->bad += name && strcmp(name, "a name") != 0;
            a->unnamed += !name;
        }
        a->rows += b.n_rows;
    }
    a->told |= rc < 0;
    store_scan_free(scan);
}

static struct answer read_all(void)
{
    struct answer a = {0};
    struct tables *tables;
    struct store *store;
    struct table *list[16];
    if (tables_new(&tables) != 0)
        return a;
    int rc = store_open(directory, tables, &store);
    if (rc == 0) {
        a.opened = true;
        uint32_t n = tables_list(tables, list, 16);
        for (uint32_t i = 0; i < n; i++)
            read_table(store, list[i], &a);
        a.told |= *store_damage(store) != '\0';
        store_free(store);
    }
    a.told |= rc != 0;
    tables_free(tables);
    return a;
}

/* A file whole, its non-zero parts known: holes are not worth a try. */
struct whole {
    char *bytes;
    size_t size, n_used;
    off_t file_bytes; /* may be more: beyond there are holes */
    uint32_t *used;   /* pages with something in them */
};

static bool take(const char *name, struct whole *ret)
{
    struct stat st;
    (void)snprintf(path, sizeof(path), "%s/%s", directory, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    *ret = (struct whole){0};
    if (!CHECK(fd != -1) || !CHECK_INT(fstat(fd, &st), 0))
        return false;
    size_t size = (size_t)st.st_size < KEEP_BYTES ? (size_t)st.st_size : KEEP_BYTES;
    ret->bytes = malloc(size + 4096);
    ret->used = malloc((size / 4096 + 1) * sizeof(uint32_t));
    if (!CHECK(ret->bytes && ret->used) || !CHECK_INT(pread(fd, ret->bytes, size, 0), size))
        return false;
    (void)close(fd);
    ret->size = size;
    ret->file_bytes = st.st_size;
    for (size_t at = 0; at < size; at += 4096) {
        size_t n = size - at < 4096 ? size - at : 4096, i = 0;
        while (i < n && ret->bytes[at + i] == 0)
            i++;
        if (i < n)
            ret->used[ret->n_used++] = (uint32_t)(at / 4096);
    }
    return true;
}

static void drop(struct whole *w)
{
    free(w->bytes);
    free(w->used);
}

static void put(int fd, const struct whole *w, size_t at, size_t n)
{
    n = at + n > w->size ? w->size - at : n;
    CHECK_INT(pwrite(fd, w->bytes + at, n, (off_t)at), n);
}

/* No wrong value comes of it: all that the files hold has checksums. */
static void flip_bytes(const char *name)
{
    struct whole w;
    uint64_t fewer = 0, closed = 0;
    struct answer good = read_all();
    CHECK(good.opened && !good.told && good.bad == 0 && good.rows > ROWS + LEFT);
    if (!take(name, &w))
        return;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    for (uint32_t i = 0; i < tries; i++) {
        uint64_t r = next_random();
        size_t page = (size_t)w.used[r % w.n_used] * 4096, within = (r >> 32) % 4096;
        /* Every second time in a page's head, where the file's own structure is. */
        size_t at = page + (i % 2 ? within : within % 160);
        size_t n = i % 5 == 4 ? 4096 : 1;
        at = at < w.size ? at : w.size - 1;
        char bytes[4096];
        n = at + n > w.size ? w.size - at : n;
        memcpy(bytes, w.bytes + at, n);
        for (size_t k = 0; k < n; k++)
            bytes[k] = (char)(bytes[k] ^ (n == 1 ? 1 << (r >> 50) % 8 : (int)next_random()));
        if (n == 1 && i % 3 == 0)
            bytes[0] = (char)(i & 4 ? 0xff : 0);
        CHECK_INT(pwrite(fd, bytes, n, (off_t)at), n);
        struct answer a = read_all();
        closed += !a.opened;
        fewer += a.rows < good.rows;
        bool right = CHECK(a.bad == 0) && CHECK(a.rows >= good.rows || a.told) &&
                     CHECK(a.unnamed == 0 || a.told) && CHECK(a.rows <= 2 * (ROWS + LEFT));
        if (!right)
            printf("# %s: byte %zu, %zu bytes changed, %llu rows\n", name, at, n,
                   (unsigned long long)a.rows);
        put(fd, &w, at, n);
    }
    printf("# %s: %u changes, %llu with fewer rows, %llu not opened\n", name, tries,
           (unsigned long long)fewer, (unsigned long long)closed);
    (void)close(fd);
    drop(&w);
    CHECK(read_all().rows == good.rows);
}

static void cut(const char *name, bool whole_without)
{
    struct whole w;
    struct answer good = read_all();
    if (!take(name, &w))
        return;
    for (uint32_t i = 0; i < tries / 2; i++) {
        size_t most = (w.used[w.n_used - 1] + 1u) * (size_t)4096;
        size_t at = i < 40 ? i * 4096 / 8 : next_random() % most;
        at = at < w.size ? at : w.size - 1;
        CHECK_INT(truncate(path, (off_t)at), 0);
        struct answer a = read_all();
        bool right = CHECK(a.bad == 0) && CHECK(a.rows >= good.rows || a.told || whole_without) &&
                     CHECK(a.unnamed == 0 || a.told);
        if (!right)
            printf("# %s: cut at %zu of %zu\n", name, at, w.size);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        CHECK_INT(ftruncate(fd, w.file_bytes), 0);
        for (size_t k = 0; k < w.n_used; k++)
            put(fd, &w, (size_t)w.used[k] * 4096, 4096);
        (void)close(fd);
    }
    CHECK_INT(unlink(path), 0);
    struct answer a = read_all();
    CHECK(a.bad == 0 && (a.told || (whole_without && a.unnamed == 0)));
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK_INT(ftruncate(fd, w.file_bytes), 0);
    for (size_t k = 0; k < w.n_used; k++)
        put(fd, &w, (size_t)w.used[k] * 4096, 4096);
    (void)close(fd);
    drop(&w);
    CHECK(read_all().rows == good.rows);
}

TEST(data_with_changed_bytes)
{
    flip_bytes("data.mdb");
}

/* Every byte of a stretch: one bit, the upper bit, or all of them. */
static void flip_each(const char *name, size_t from, size_t n, size_t step)
{
    static const char changes[] = {1, (char)0x80, (char)0xff};
    struct whole w;
    struct answer good = read_all();
    uint64_t fewer = 0;
    if (!take(name, &w))
        return;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    for (size_t at = from; at < from + n && at < w.size; at += step) {
        char byte = (char)(w.bytes[at] ^ changes[next_random() % sizeof(changes)]);
        CHECK_INT(pwrite(fd, &byte, 1, (off_t)at), 1);
        struct answer a = read_all();
        fewer += a.rows < good.rows;
        if (!CHECK(a.bad == 0 && (a.rows == good.rows || (a.told && a.rows < good.rows))))
            printf("# %s: byte %zu is %02x: %llu rows, %llu wrong, told %d\n", name, at,
                   byte & 0xff, (unsigned long long)a.rows, (unsigned long long)a.bad, a.told);
        put(fd, &w, at, 1);
    }
    printf("# %s: each byte from %zu to %zu, %llu times fewer rows\n", name, from, from + n,
           (unsigned long long)fewer);
    (void)close(fd);
    drop(&w);
}

/* The head and its copy, the first slots' heads, the first rows and the last. */
TEST(each_byte_of_the_rings_that_matters)
{
    flip_each("rings", 0, 96, 1);
    flip_each("rings", 512, 80, 1);
    flip_each("rings", 131072, 256, 1);
    flip_each("rings", 131072 + 256, 256, 1);
    struct whole w;
    if (!take("rings", &w))
        return;
    size_t last = w.used[w.n_used - 1] * (size_t)4096;
    drop(&w);
    flip_each("rings", last, 4096, 31);
}

TEST(data_cut_short)
{
    cut("data.mdb", false);
}

TEST(rings_with_changed_bytes)
{
    flip_bytes("rings");
}

TEST(rings_cut_short)
{
    cut("rings", false);
}

TEST(names_with_changed_bytes)
{
    flip_bytes("strings");
}

TEST(names_cut_short)
{
    cut("strings", true);
}

TEST(descriptions_with_changed_bytes)
{
    flip_bytes("tables");
}

TEST(descriptions_cut_short)
{
    cut("tables", true);
}

static bool is_told(const char *what)
{
    struct tables *tables;
    struct store *store;
    bool told = false;
    if (tables_new(&tables) != 0)
        return false;
    if (store_open(directory, tables, &store) == 0) {
        told = strstr(store_damage(store), what) != NULL;
        store_free(store);
    } else {
        told = strstr(err_text(), what) != NULL;
    }
    tables_free(tables);
    return told;
}

/* Files of another version are not taken for damaged ones, and never for whole ones. */
TEST(files_of_another_version_are_named)
{
    static const struct {
        const char *name, *told;
        off_t at[2];
        char is;
    } files[] = {{"rings", "rings has the format 1", {8, 512 + 8}, 1},
                 {"strings", "strings has the format 2", {8, 8}, 2}};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        char now[2];
        (void)snprintf(path, sizeof(path), "%s/%s", directory, files[i].name);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        for (int k = 0; k < 2; k++)
            CHECK_INT(pread(fd, &now[k], 1, files[i].at[k]), 1);
        for (int k = 0; k < 2; k++)
            CHECK_INT(pwrite(fd, &files[i].is, 1, files[i].at[k]), 1);
        CHECK(is_told(files[i].told));
        for (int k = 0; k < 2; k++)
            CHECK_INT(pwrite(fd, &now[k], 1, files[i].at[k]), 1);
        (void)close(fd);
    }
    struct whole w;
    if (!take("data.mdb", &w))
        return;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    for (size_t at = 16; at + 4 < w.size; at += 4096)
        if (memcmp(w.bytes + at, "PSG3", 4) == 0)
            CHECK_INT(pwrite(fd, "1", 1, (off_t)at + 3), 1);
    CHECK(is_told("segments of data.mdb are of another format"));
    for (size_t at = 16; at + 4 < w.size; at += 4096)
        put(fd, &w, at, 4);
    (void)close(fd);
    drop(&w);
    CHECK(!read_all().told);
}

/* Both first pages gone: everything is found by itself. */
TEST(without_any_tree_the_segments_are_found)
{
    struct whole w;
    char nothing[8192] = {0};
    struct answer good = read_all();
    if (!take("data.mdb", &w))
        return;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK_INT(pwrite(fd, nothing, sizeof(nothing), 0), sizeof(nothing));
    struct answer a = read_all();
    CHECK(a.told && a.bad == 0);
    CHECK_INT(a.rows, good.rows); /* expired ones are known and left out */
    put(fd, &w, 0, sizeof(nothing));
    (void)close(fd);
    drop(&w);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        tries = (uint32_t)strtoul(argv[1], NULL, 10);
    if (argc > 2)
        seed = strtoull(argv[2], NULL, 10) | 1;
    if (!mkdtemp(root))
        return test_skip("no /tmp");
    (void)snprintf(directory, sizeof(directory), "%s/data", root);
    int status = 1;
    (void)mkdir(directory, 0700);
    pid_t child = fork();
    if (child == 0)
        _exit(write_rows());
    (void)waitpid(child, &status, 0);
    if (status != 0)
        return test_skip("no store can be made in /tmp");
    RUN(data_with_changed_bytes);
    RUN(data_cut_short);
    RUN(rings_with_changed_bytes);
    RUN(each_byte_of_the_rings_that_matters);
    RUN(rings_cut_short);
    RUN(names_with_changed_bytes);
    RUN(names_cut_short);
    RUN(descriptions_with_changed_bytes);
    RUN(descriptions_cut_short);
    RUN(files_of_another_version_are_named);
    RUN(without_any_tree_the_segments_are_found);
    (void)file_remove_dir(directory);
    (void)rmdir(root);
    return test_end();
}
