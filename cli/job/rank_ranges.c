/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/job/rank_ranges.c - see rank_ranges.h.
 *
 * Any thread; no state.
 */
#include "cli/job/rank_ranges.h"

void rank_ranges(const int64_t *ranks, size_t n, size_t most, struct buf *ret)
{
    size_t shown = 0;

    for (size_t i = 0; i < n;) {
        size_t end = i;
        while (end + 1 < n && (ranks[end + 1] == ranks[end] ||
                               (ranks[end] < INT64_MAX && ranks[end + 1] == ranks[end] + 1)))
            end++;
        if (shown++ == most) {
            (void)buf_addf(ret, " and %zu more", n - i);
            return;
        }
        (void)buf_addf(ret, "%s%lld", i > 0 ? "," : "", (long long)ranks[i]);
        if (ranks[end] > ranks[i])
            (void)buf_addf(ret, "-%lld", (long long)ranks[end]);
        i = end + 1;
    }
}
