/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/sample/live_snapshot.h - what was alive at a moment, by stack and domain.
 *
 * The sampler's lock.
 */
#ifndef MEMORY_SAMPLE_LIVE_SNAPSHOT_H
#define MEMORY_SAMPLE_LIVE_SNAPSHOT_H

#include "live_table.h"
#include "origin.h"
#include "tables.h"

#define SNAPSHOT_STACKS 200 /* rows of one that is stored; the rest are one more */

struct snapshot {
    uint64_t at;                       /* CLOCK_MONOTONIC ns */
    struct live_row *rows;             /* largest first */
    const struct origin_texts **texts; /* of each; they stay */
    uint32_t n;
    double bytes, count, bytes_variance; /* all together */
};

/* Take what was alive `at` that moment: now, or one that the reader has not passed, as entries that
 * the reader has released are forgotten.  0 or -ENOMEM. */
int snapshot_take(struct live_table *live, const struct origins *origins, uint64_t at,
                  struct snapshot *ret);
int snapshot_copy(const struct snapshot *s, struct snapshot *ret); /* 0 or -ENOMEM */
void snapshot_done(struct snapshot *s);
/* Into memory.snapshots; `at` and `total` of what is said about it are the snapshot's. */
void snapshot_store(const struct snapshot *s, const struct sample_tables *tables,
                    const struct snapshot_about *about);

/* An item that keyed_sort() puts in order of `key`, upwards.  (qsort() may allocate from the
 * program's heap.) */
struct keyed {
    uint64_t key;
    uint32_t index;
    uint32_t what; /* the caller's */
};
void keyed_sort(struct keyed *items, uint32_t n);

#endif
