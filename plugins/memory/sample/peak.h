/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/sample/peak.h - what was alive when the most was.
 *
 * Beginnings and ends of samples come in heaps, a turn of the reader's at a time; they are gone
 * through in the order of their times, and where the sum falls from above all before, what was
 * alive a moment ago is added up.  So a peak of a millisecond is found, too.
 *
 * The sampler's lock.
 */
#ifndef MEMORY_SAMPLE_PEAK_H
#define MEMORY_SAMPLE_PEAK_H

#include "live_snapshot.h"

struct peak;

int peak_new(struct peak **ret);
void peak_free(struct peak *p);

/* So many bytes more, or less, are alive from `ts` on. */
void peak_add(struct peak *p, uint64_t ts, double bytes);
/* Go through what was added.  What ended is still to be released. */
void peak_look(struct peak *p, struct live_table *live, const struct origins *origins,
               uint64_t now);
/* The snapshot from before most was freed within some seconds; it is given once, and at most every
 * 5 s: else NULL. */
const struct snapshot *peak_fall(struct peak *p, uint64_t now);
double peak_now(const struct peak *p); /* bytes alive */
/* A snapshot that somebody is shown: where it has more than the peak it is the peak, so nobody ever
 * sees more alive than at the peak.  The peak is `x` then, copied; 0 or -ENOMEM. */
int peak_shown(struct peak *p, const struct snapshot *x, uint64_t now);
/* The peak; n 0 and no rows: nothing was ever alive.  Lives until the next call of another. */
const struct snapshot *peak_found(const struct peak *p);
/* The peak, if it is another one than was given last, which is some seconds ago; else NULL.  Lives
 * until the next peak_look(). */
const struct snapshot *peak_due(struct peak *p, uint64_t now, bool at_once);

#endif
