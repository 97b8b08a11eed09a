/* SPDX-License-Identifier: Apache-2.0
 *
 * probing/ext/draft/access.h - "probing.access/1", by the core: what the client of a command may.
 *
 * Draft: may change until two plugins use it; the id stays.  A command that always changes the
 * process has PROBING_WRITES and never runs for a client that may only read; this is for one that
 * does so by some of its words.  Secrets in answers are hidden by the core for such clients.
 */
#ifndef PROBING_EXT_ACCESS_H
#define PROBING_EXT_ACCESS_H

#include <stdint.h>

#include <probing/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PROBING_ACCESS_1 "probing.access/1"

struct probing_access_1 {
    uint32_t size, reserved;
    /* In run(), whose `out` it is: 1: the client of this answer may only read; 0: it may all.
     *                                                                                [worker] */
    int (*read_only)(const struct probing_reply *out);
};

#ifdef __cplusplus
}
#endif
#endif
