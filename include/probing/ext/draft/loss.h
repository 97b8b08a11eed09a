/* SPDX-License-Identifier: Apache-2.0
 *
 * probing/ext/draft/loss.h - "probing.loss/1", by the core: what a plugin could not keep of what
 * its users gave it, for probing.lost.  append() counts by itself what it refuses.
 *
 * Draft: may change until two plugins use it; the id stays.
 */
#ifndef PROBING_EXT_LOSS_H
#define PROBING_EXT_LOSS_H

#include <stdint.h>

#include <probing/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PROBING_LOSS_1 "probing.loss/1"

struct probing_loss_1 {
    uint32_t size, reserved;
    /* Rows that were kept without a value that could not be: reason "value".            [signal] */
    void (*values)(struct probing_table *t, uint64_t values);
    /* Rows of a table that table() refused to make: reason "no_table", under no name.      [any] */
    void (*no_table)(const struct probing_host *h, uint64_t rows);
};

#ifdef __cplusplus
}
#endif
#endif
