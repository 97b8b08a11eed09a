/* SPDX-License-Identifier: Apache-2.0
 *
 * probing/ext/draft/empty.h - "probing.empty/1", by a plugin: why a table of its own has no rows.
 *
 * Draft: may change until two plugins use it; the id stays.
 */
#ifndef PROBING_EXT_EMPTY_H
#define PROBING_EXT_EMPTY_H

#include <stdint.h>

#include <probing/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PROBING_EMPTY_1 "probing.empty/1"
#define PROBING_EMPTY_BYTES 320u /* of a reason, with the NUL at its end */

struct probing_empty_1 {
    uint32_t size, reserved;
    /* Somebody has asked a table of this plugin that has no rows.  table: "python.torch_trace".
     * Put into `text` why, as a clause that goes after the table's name and a colon, and what to do
     * about it.  0, or -ENOENT: it is not known.                                      [worker] */
    int (*why)(void *self, const char *table, char *text, uint32_t size);
};

#ifdef __cplusplus
}
#endif
#endif
