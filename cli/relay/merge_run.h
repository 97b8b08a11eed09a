/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/relay/merge_run.h - what a relay does with a question about members: asks its own, and makes
 * one answer of several.  Both take as long as members do, and run in a process of their own.
 *
 * One thread.  0 or -errno with err_set(); fn gets the bytes of the answer
 * (cli/link/merge_protocol.h).
 */
#ifndef CLI_RELAY_MERGE_RUN_H
#define CLI_RELAY_MERGE_RUN_H

#include "cli/link/merge_protocol.h"

struct merge_source { /* an answer: from below, or of its own members */
    struct buf bytes;
    uint32_t *map; /* [n] which member of the question each of its own is */
    uint32_t n;
    int error; /* it did not come, with `why` */
    char why[400];
};

/* Ask the members of the question on this host, numbered as if they were all there are. */
int merge_run_own(const struct merged_question *q, uint32_t host,
                  int (*fn)(void *arg, const char *data, size_t size), void *arg);
int merge_run_combine(const struct merged_question *q, const struct merge_source *list, uint32_t n,
                      int (*fn)(void *arg, const char *data, size_t size), void *arg);

#endif
