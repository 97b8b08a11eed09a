/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/job/rank_ranges.h - ranks in print: "0-2,5".
 *
 * Any thread; no state.
 */
#ifndef CLI_JOB_RANK_RANGES_H
#define CLI_JOB_RANK_RANGES_H

#include <stddef.h>
#include <stdint.h>

#include "sdk/lib/buf.h"

/* n numbers in rising order.  After `most` ranges the rest is counted: "0-2,5 and 40 more". */
void rank_ranges(const int64_t *ranks, size_t n, size_t most, struct buf *ret);

#endif
