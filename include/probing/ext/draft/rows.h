/* SPDX-License-Identifier: Apache-2.0
 *
 * probing/ext/draft/rows.h - "probing.rows/1", by the core: what of a computed table is asked for.
 *
 * Draft: may change until two plugins use it; the id stays.
 */
#ifndef PROBING_EXT_ROWS_H
#define PROBING_EXT_ROWS_H

#include <stdint.h>

#include <probing/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PROBING_ROWS_1 "probing.rows/1"

struct probing_rows_1 {
    uint32_t size, reserved;
    /* In scan(), whose `out` it is.  0: nobody looks at the cells of this column of the table, so
     * any value will do there, NULL too.                                              [worker] */
    int (*wanted)(const struct probing_rows *out, uint32_t column);
};

#ifdef __cplusplus
}
#endif
#endif
