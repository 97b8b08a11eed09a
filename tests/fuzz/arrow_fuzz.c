/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/fuzz/arrow_fuzz.c - an Arrow stream of any bytes, as the command follows it: in one piece
 * and byte by byte it is the same, and nothing behind its end is looked at.
 */

/* The command is no library: what follows the stream is built in. */
#include "cli/export/arrow_rows.c"
#include "tests/fuzz/arrow_seed.h"

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

size_t fuzz_seed(uint8_t *data, size_t max)
{
    size_t size = arrow_seed("select n, 'text ' || n as s, n % 2 = 0 as b, null as x from "
                             "generate_series(1, 20) g(n)",
                             data, max);
    struct export_arrow a;
    export_arrow_init(&a);
    fuzz_must(export_arrow_feed(&a, (const char *)data, size) == 0 && export_arrow_end(&a) == 0);
    fuzz_must(a.rows == 20);
    export_arrow_done(&a);
    return size;
}
