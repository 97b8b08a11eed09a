/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/report/leak_judge.h - is it a leak?  The one judge of growth, for one stack or for
 * several added up.
 *
 * Growth that chance explains is none.  Beyond chance a program has reasons to grow without a leak:
 * it fills a cache, warms up, waits for its collector, is in the middle of an epoch.  So growth has
 * to go on in every part of the time, not to have slowed down, to be made of what came early as
 * well as of what came last, and to lead above everything that was before.  Or it is of blocks that
 * are replaced by ever larger ones (realloc(), a copy that is longer than its original): then
 * nothing that came early is there any more, and the sizes say that it goes on.
 *
 * One thread; no state.
 */
#ifndef MEMORY_REPORT_LEAK_JUDGE_H
#define MEMORY_REPORT_LEAK_JUDGE_H

#include "leak_find.h"

struct leak_judge {
    uint32_t past; /* periods before the time that is looked at */
    double surely; /* so many variances the square of a growth has to be at least */
};

/* As sure as each of so many questions has to be answered. */
double leak_surely(uint32_t questions);
/* By how many bytes in the time that is looked at. */
double leak_growth_bytes(const struct leak_judge *j, const struct leak_growth *g);
enum leak_verdict leak_judge(const struct leak_judge *j, const struct leak_growth *g,
                             bool is_group);

#endif
