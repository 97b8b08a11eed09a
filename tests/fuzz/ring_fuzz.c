/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/fuzz/ring_fuzz.c - a rings file of any bytes: it opens or not, and shows no row that was
 * never appended.
 */
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/ring/ring.h"
#include "tests/fuzz/fuzz.h"

#define ROWS 40
#define DATA_AT 262144

/* The header, its copy, the first slot's header, that slot's rows. */
static const struct fuzz_part parts[] = {
    {0, 256}, {512, 256}, {131072, 256}, {DATA_AT, RING_BYTES}};
#define N_PARTS (sizeof(parts) / sizeof(parts[0]))

static uint64_t sum_of(uint64_t n)
{
    uint64_t x = (n + 1) * UINT64_C(0x9e3779b97f4a7c15);
    return x ^ x >> 29;
}

static void read_rows(struct rings *r, uint32_t slot, uint64_t from)
{
    struct ring_reader reader;
    struct ring_row row;
    if (ring_read(r, slot, from, &reader) != 0)
        return;
    uint64_t at = reader.position;
    while (ring_next(&reader, &row) == 1) {
        fuzz_must(reader.position > at && reader.position <= reader.head);
        at = reader.position;
        fuzz_must(row.table_id == 1 && row.n_cells == 2 && row.ts == row.cells[0].u);
        fuzz_must(row.cells[1].u == sum_of(row.cells[0].u));
        fuzz_must(row.tail_n == row.cells[0].u % 11 &&
                  memcmp(row.tail, "0123456789", row.tail_n) == 0);
    }
    fuzz_must(reader.damaged <= RING_BYTES);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[32];
    struct rings *r;
    int fd = fuzz_file(parts, N_PARTS, DATA_AT, data, size, path);
    if (rings_open(dup(fd), path, &r) == 0) {
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
    char path[64];
    struct tables *tables;
    struct table *table;
    struct rings *r;
    fuzz_place("rings", path);
    fuzz_must(tables_new(&tables) == 0 && tables_add(tables, "fuzz", &d, NULL, &table) == 0);
    fuzz_must(rings_create(path, &r) == 0 && rings_bind_table(r, table) == 0);
    for (uint64_t n = 0; n < ROWS; n++) {
        union probing_cell cells[2] = {{.u = n}, {.u = sum_of(n)}};
        fuzz_must(ring_append(table, n, cells, 2, "0123456789", (uint32_t)(n % 11)) == 0);
    }
    size_t size = fuzz_input(parts, N_PARTS, DATA_AT + (off_t)ring_head(r, 0), path, data, max);
    rings_free(r);
    tables_free(tables);
    fuzz_remove(path);
    return size;
}
