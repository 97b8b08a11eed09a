/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/proc/patience.h - waiting for another thread of this process, measured by what that
 * thread could do and not by the clock.
 *
 * On a machine that has no processor to spare a thread needs minutes for what takes it
 * microseconds, and nothing is wrong.  So only the time counts in which it waited for something
 * else than a processor, and did not run.  One thread uses one of these; no lock.
 */
#ifndef SDK_LIB_PROC_PATIENCE_H
#define SDK_LIB_PROC_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>

#define PATIENCE_MOST_NS (UINT64_C(60) * 1000000000) /* however long it gets no processor */

struct patience {
    uint64_t limit_ns;  /* of the time that counts; 0: none */
    uint64_t most_ns;   /* of all time; 0: PATIENCE_MOST_NS */
    uint64_t begun_ns;  /* 0: before the first look */
    uint64_t looked_ns; /* the last look at the thread */
    uint64_t busy_ns;   /* what it had run and waited for a processor then */
    uint64_t still_ns;  /* the time that counts */
};

/* Rest for a millisecond, or until a signal.  tid: the thread; 0: not known, as it has not run yet.
 * false: a limit is reached.  All but the limits begins as 0. */
bool patience_rest(struct patience *p, int32_t tid);
/* After that: the predicate of a sentence about the thread. */
const char *patience_end(const struct patience *p);

#endif
