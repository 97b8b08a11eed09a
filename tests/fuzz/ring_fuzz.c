/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/fuzz/ring_fuzz.c - a rings file of any bytes: it opens or not, and shows no row that was
 * never appended.
 *
 * An input is what a file has that is not a hole: its first page, the first slot's header and the
 * beginning of that slot's rows.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/ring/ring.h"
#include "tests/fuzz/fuzz.h"

#define HEAD 256 /* bytes of the file's first page: the header; its copy is as long again */
#define COPY_AT 512
#define SLOT_AT 65536
#define SLOT 256
#define DATA_AT 262144
#define ROWS_AT (2 * HEAD + SLOT) /* in an input */
#define ROWS 40

static void must(int held)
{
    if (!held)
        abort();
}

static uint64_t sum_of(uint64_t n)
{
    uint64_t x = (n + 1) * UINT64_C(0x9e3779b97f4a7c15);
    return x ^ x >> 29;
}

static const struct {
    size_t in_file, in_input, size;
} parts[] = {
    {0, 0, HEAD}, {COPY_AT, HEAD, HEAD}, {SLOT_AT, 2 * HEAD, SLOT}, {DATA_AT, ROWS_AT, RING_BYTES}};

static int memory_file(char *path, size_t size)
{
    int fd = memfd_create("rings", MFD_CLOEXEC);
    must(fd != -1);
    (void)snprintf(path, size, "/proc/self/fd/%d", fd);
    return fd;
}

static void read_rows(struct rings *r, uint32_t slot, uint64_t from)
{
    struct ring_reader reader;
    struct ring_row row;
    if (ring_read(r, slot, from, &reader) != 0)
        return;
    uint64_t at = reader.position;
    while (ring_next(&reader, &row) == 1) {
        must(reader.position > at && reader.position <= reader.head);
        at = reader.position;
        must(row.table_id == 1 && row.n_cells == 2 && row.ts == row.cells[0].u);
        must(row.cells[1].u == sum_of(row.cells[0].u));
        must(row.tail_n == row.cells[0].u % 11 && memcmp(row.tail, "0123456789", row.tail_n) == 0);
    }
    must(reader.damaged <= RING_BYTES);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[32];
    struct rings *r;
    int fd = memory_file(path, sizeof(path));
    must(ftruncate(fd, DATA_AT + (off_t)(size > ROWS_AT ? size - ROWS_AT : 0)) == 0);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        size_t n = size > parts[i].in_input ? size - parts[i].in_input : 0;
        n = n < parts[i].size ? n : parts[i].size;
        must(pwrite(fd, data + parts[i].in_input, n, (off_t)parts[i].in_file) == (ssize_t)n);
    }
    if (rings_open(path, &r) == 0) {
        for (uint32_t slot = 0; slot < rings_count(r) && slot < 3; slot++) {
            read_rows(r, slot, ring_tail(r, slot));
            read_rows(r, slot, 0);
        }
        rings_free(r);
    }
    (void)close(fd);
    return 0;
}

size_t fuzz_seed(uint8_t *data, size_t max)
{
    static const struct probing_column columns[] = {{.name = "n", .type = PROBING_I64},
                                                    {.name = "sum", .type = PROBING_I64}};
    struct probing_table_desc d = {.size = sizeof(d),
                                   .column_size = sizeof(columns[0]),
                                   .name = "fuzz.rows",
                                   .columns = columns,
                                   .n_columns = 2,
                                   .tail_type = PROBING_STR,
                                   .tail_name = "text"};
    char path[] = "/tmp/probing-fuzz-XXXXXX";
    struct tables *tables;
    struct table *table;
    struct rings *r;
    must(mkdtemp(path) != NULL);
    char file[64];
    (void)snprintf(file, sizeof(file), "%s/rings", path);
    must(tables_new(&tables) == 0 && tables_add(tables, "fuzz", &d, NULL, &table) == 0);
    must(rings_create(file, &r) == 0 && rings_bind_table(r, table) == 0);
    for (uint64_t n = 0; n < ROWS; n++) {
        union probing_cell cells[2] = {{.u = n}, {.u = sum_of(n)}};
        must(ring_append(table, n, cells, 2, "0123456789", (uint32_t)(n % 11)) == 0);
    }
    size_t size = ROWS_AT + (size_t)ring_head(r, 0);
    must(size <= max);
    FILE *f = fopen(file, "rb");
    must(f != NULL);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        size_t n =
            size - parts[i].in_input < parts[i].size ? size - parts[i].in_input : parts[i].size;
        must(fseek(f, (int32_t)parts[i].in_file, SEEK_SET) == 0);
        must(fread(data + parts[i].in_input, 1, n, f) == n);
    }
    (void)fclose(f);
    rings_free(r);
    tables_free(tables);
    must(unlink(file) == 0 && rmdir(path) == 0);
    return size;
}
