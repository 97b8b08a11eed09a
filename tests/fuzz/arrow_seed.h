/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/fuzz/arrow_seed.h - what our engine answers to a statement, as an Arrow stream: where
 * fuzzers of such streams begin.
 */
#ifndef TESTS_FUZZ_ARROW_SEED_H
#define TESTS_FUZZ_ARROW_SEED_H

#include <string.h>

#include "core/sql/sql.h"
#include "sdk/lib/buf.h"
#include "tests/fuzz/fuzz.h"

static int arrow_seed_add(void *arg, const char *data, size_t size)
{
    return buf_add(arg, data, size);
}

/* Into data, max bytes at most; gives how many. */
static size_t arrow_seed(const char *statement, uint8_t *data, size_t max)
{
    struct tables *tables;
    struct sql *engine = NULL;
    struct sql_writer *w;
    struct sql_report report;
    struct buf out;
    buf_init(&out, max);
    fuzz_must(tables_new(&tables) == 0 && sql_new(tables, /* store= */ NULL, &engine) == 0);
    fuzz_must(sql_writer_new(SQL_FORMAT_ARROW, 0, arrow_seed_add, &out, &w) == 0);
    struct sql_sink sink = sql_writer_sink(w);
    fuzz_must(sql_run(engine, statement, strlen(statement), NULL, &sink, &report) == 0);
    fuzz_must(sql_writer_finish(w, &report) == 0);
    size_t size = out.size;
    memcpy(data, out.data, size);
    buf_done(&out);
    sql_writer_free(w);
    sql_free(engine);
    tables_free(tables);
    return size;
}

#endif
