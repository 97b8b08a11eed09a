/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/fuzz/answer_fuzz.c - an answer of any bytes, as the command takes it: in one piece, byte by
 * byte and row by row it gives the same values, all of them lie in what was sent, and rows that are
 * kept are those that came.
 */
#include <string.h>

/* The command is no library: what reads the stream is built in. */
#include "cli/answer/answer_rows.c"
#include "cli/answer/arrow_reader.c"
#include "sdk/lib/hash.h"
#include "tests/fuzz/arrow_seed.h"

struct seen {
    uint64_t sum; /* of all values */
    uint32_t n_columns;
};

static int take_columns(void *arg, const struct sql_column *columns, uint32_t n)
{
    struct seen *s = arg;
    for (uint32_t i = 0; i < n; i++)
        s->sum = hash_bytes(s->sum, columns[i].name, strlen(columns[i].name));
    s->n_columns = n;
    return 0;
}

static uint64_t add_value(uint64_t sum, const struct sql_value *v)
{
    sum = hash_bytes(sum, &v->type, sizeof(v->type));
    if (v->type == SQL_TEXT || v->type == SQL_BLOB)
        return hash_bytes(sum, v->text.data, v->text.size);
    if (v->type == SQL_BOOL)
        return sum + v->boolean;
    return v->type != SQL_NULL ? hash_bytes(sum, &v->integer, sizeof(v->integer)) : sum;
}

static uint64_t sum_of(uint64_t sum, const struct answer_rows *rows)
{
    struct sql_value v;

    for (uint32_t row = 0; row < answer_rows_count(rows); row++)
        for (uint32_t i = 0; i < answer_rows_columns(rows); i++) {
            answer_rows_value(rows, row, i, &v);
            sum = add_value(sum, &v);
        }
    return sum;
}

static int take_row(void *arg, const struct sql_value *cells, uint32_t n)
{
    struct seen *s = arg;
    fuzz_must(n == s->n_columns);
    for (uint32_t i = 0; i < n; i++) {
        bool text = cells[i].type == SQL_TEXT || cells[i].type == SQL_BLOB;
        fuzz_must(!text || cells[i].text.data[cells[i].text.size] == '\0');
        s->sum = add_value(s->sum, &cells[i]);
    }
    return 0;
}

static int take_some(void *arg, const struct answer_rows *rows)
{
    struct seen *s = arg;
    struct answer_rows *kept;
    fuzz_must(answer_rows_columns(rows) == s->n_columns);
    fuzz_must(answer_rows_keep(rows, &kept) == 0);
    uint64_t sum = sum_of(s->sum, rows);
    fuzz_must(sum == sum_of(s->sum, kept) && answer_rows_bytes(kept) == answer_rows_bytes(rows));
    answer_rows_free(kept);
    s->sum = sum;
    return 0;
}

/* step: bytes at a time, 0: all.  By batches, or by rows. */
static int read_all(const uint8_t *data, size_t size, size_t step, bool by_row, struct seen *ret)
{
    const struct answer_sink sink = {.arg = ret,
                                     .columns = take_columns,
                                     .rows = by_row ? NULL : take_some,
                                     .row = by_row ? take_row : NULL};
    struct arrow_reader *r;
    char cut[ANSWER_CUT_BYTES];
    int rc = arrow_reader_new(&sink, &r);
    fuzz_must(rc == 0);
    for (size_t at = 0; at < size && rc == 0; at += step > 0 ? step : size) {
        size_t n = step > 0 && step < size - at ? step : size - at;
        rc = arrow_reader_feed(r, (const char *)data + at, n);
    }
    if (rc == 0 && arrow_reader_end(r) == 0)
        ret->sum += 1 + arrow_reader_rows(r) + arrow_reader_lost(r);
    fuzz_must(rc < 0 || arrow_reader_cut(r, cut) == 0 || arrow_reader_end(r) < 0);
    arrow_reader_free(r);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct seen whole = {.sum = 1}, parts = {.sum = 1}, rows = {.sum = 1};
    int all = read_all(data, size, 0, /* by_row= */ false, &whole);
    fuzz_must(read_all(data, size, 1, /* by_row= */ false, &parts) == all);
    fuzz_must(read_all(data, size, 0, /* by_row= */ true, &rows) == all);
    fuzz_must(all < 0 || (whole.sum == parts.sum && whole.sum == rows.sum));
    return 0;
}

size_t fuzz_seed(uint8_t *data, size_t max)
{
    size_t size =
        arrow_seed("select n, 'text ' || n as s, n % 2 = 0 as b, null as x, n / 2.0 as d, "
                   "date '2024-01-01' + n as day, timestamp '2024-01-01' as t, "
                   "interval '1 day' as i from generate_series(1, 9) g(n)",
                   data, max);
    struct seen seen = {.sum = 1};
    fuzz_must(read_all(data, size, 0, /* by_row= */ false, &seen) == 0 && seen.n_columns == 8);
    return size;
}
