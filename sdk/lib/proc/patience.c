/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/proc/patience.c - waiting for another thread of this process, measured by what that
 * thread could do and not by the clock.
 */
#define _GNU_SOURCE
#include "sdk/lib/proc/patience.h"

#include <time.h>

#include "sdk/lib/proc/task.h"

#define REST_NS 1000000
#define LOOK_NS UINT64_C(10000000) /* a look costs some microseconds */

static uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* The part of the time in which it neither ran nor was ready to.  One that polls in short steps
 * waits, too.  What cannot be seen has done nothing. */
static uint64_t still_ns(struct patience *p, int32_t tid, uint64_t passed_ns)
{
    struct proc_stat stat;
    struct proc_schedstat has;
    if (tid == 0)
        return 0;
    if (proc_stat_of(0, tid, &stat) < 0)
        return passed_ns;
    if (stat.state == 'R') /* how long it has waited is counted when it has ended */
        return 0;
    if (proc_schedstat_of(0, tid, &has) < 0)
        return passed_ns;
    uint64_t busy = has.ran_ns + has.waited_ns - p->busy_ns;
    p->busy_ns += busy;
    return passed_ns > busy ? passed_ns - busy : 0;
}

bool patience_rest(struct patience *p, int32_t tid)
{
    uint64_t most = p->most_ns ? p->most_ns : PATIENCE_MOST_NS;
    uint64_t now = now_ns();
    if (p->begun_ns == 0)
        p->begun_ns = p->looked_ns = now;
    uint64_t passed = now - p->looked_ns;
    if (passed >= LOOK_NS) {
        p->looked_ns = now;
        /* The caller may have had no processor either: then both lost the same time. */
        if (p->limit_ns != 0)
            p->still_ns += still_ns(p, tid, passed < 2 * LOOK_NS ? passed : 2 * LOOK_NS);
    }
    if ((p->limit_ns != 0 && p->still_ns >= p->limit_ns) || now - p->begun_ns >= most)
        return false;
    (void)nanosleep(&(struct timespec){.tv_nsec = REST_NS}, NULL);
    return true;
}

const char *patience_end(const struct patience *p)
{
    return p->limit_ns != 0 && p->still_ns >= p->limit_ns
               ? "waits for something"
               : "gets no processor on this machine; try again when it is less busy";
}
