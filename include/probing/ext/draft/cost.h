/* SPDX-License-Identifier: Apache-2.0
 *
 * probing/ext/draft/cost.h - "probing.cost/1", by a plugin: what it costs threads of the
 * program, which no thread of probing's shows.  It becomes rows of probing.overhead.
 *
 * Draft: may change until two plugins use it; the id stays.
 */
#ifndef PROBING_EXT_COST_H
#define PROBING_EXT_COST_H

#include <stdint.h>

#include <probing/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PROBING_COST_1 "probing.cost/1"

struct probing_cost {
    uint32_t size, reserved; /* in: sizeof(struct probing_cost) */
    const char *name;        /* "samples of allocations"; stays as long as the plugin runs */
    int64_t cpu_ns;          /* since the plugin began; PROBING_NULL_I64: none, or not known */
    int64_t since_ns;        /* so long ago it began */
    int64_t bytes;           /* of memory now; PROBING_NULL_I64: as above */
};

struct probing_cost_1 {
    uint32_t size, reserved;
    /* Fill in cost number i, from 0 on.  0, or -ENOENT: there are no more.            [worker] */
    int (*cost)(void *self, uint32_t i, struct probing_cost *ret);
};

#ifdef __cplusplus
}
#endif
#endif
