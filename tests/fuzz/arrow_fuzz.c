/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/fuzz/arrow_fuzz.c - an Arrow stream of any bytes, as the command follows it: in one piece
 * and byte by byte it is the same, and nothing behind its end is looked at.
 */
#include <string.h>

/* The command is no library: what follows the stream is built in. */
#include "cli/export/arrow_rows.c"
#include "core/sql/sql.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct export_arrow whole, parts;
    char cut[EXPORT_CUT_BYTES];
    int rc = 0;
    export_arrow_init(&whole);
    export_arrow_init(&parts);
    int all = export_arrow_feed(&whole, (const char *)data, size);
    for (size_t i = 0; i < size && rc == 0; i++)
        rc = export_arrow_feed(&parts, (const char *)data + i, 1);
    fuzz_must(rc == all);
    fuzz_must(rc < 0 || (whole.rows == parts.rows && whole.over == parts.over &&
                         whole.body == parts.body && whole.meta.size == parts.meta.size));
    fuzz_must(rc < 0 || !export_arrow_cut(&whole, cut) || export_arrow_end(&whole) < 0);
    export_arrow_done(&whole);
    export_arrow_done(&parts);
    return 0;
}

static int add_bytes(void *arg, const char *data, size_t size)
{
    return buf_add(arg, data, size);
}

size_t fuzz_seed(uint8_t *data, size_t max)
{
    static const char text[] = "select n, 'text ' || n as s, n % 2 = 0 as b, null as x from "
                               "generate_series(1, 20) g(n)";
    struct tables *tables;
    struct sql *engine = NULL;
    struct sql_writer *w;
    struct sql_report report;
    struct buf out;
    buf_init(&out, max);
    fuzz_must(tables_new(&tables) == 0 && sql_new(tables, /* store= */ NULL, &engine) == 0);
    fuzz_must(sql_writer_new(SQL_FORMAT_ARROW, 0, add_bytes, &out, &w) == 0);
    struct sql_sink sink = sql_writer_sink(w);
    fuzz_must(sql_run(engine, text, sizeof(text) - 1, NULL, &sink, &report) == 0);
    fuzz_must(sql_writer_finish(w, &report) == 0);
    size_t size = out.size;
    memcpy(data, out.data, size);
    sql_writer_free(w);
    sql_free(engine);
    tables_free(tables);
    struct export_arrow a;
    export_arrow_init(&a);
    fuzz_must(export_arrow_feed(&a, out.data, out.size) == 0 && export_arrow_end(&a) == 0);
    fuzz_must(a.rows == 20);
    export_arrow_done(&a);
    buf_done(&out);
    return size;
}
