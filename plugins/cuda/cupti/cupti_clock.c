/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/cupti/cupti_clock.c - two clocks read beside each other.
 *
 * Threads: one at a time.
 */
#include "cupti/cupti_clock.h"

#include <stdbool.h>

#include "probing_sdk.h"

#define READINGS 5               /* the one in which least time passed counts */
#define LEAP_NS INT64_C(1000000) /* more is no drift: the clock was set, or is another one */

static struct clock_pair read_pair(const struct subscriber *s)
{
    struct clock_pair best = {.error_ns = UINT64_MAX};
    for (int i = 0; i < READINGS; i++) {
        uint64_t theirs = 0, before = probing_clock_ns(CLOCK_MONOTONIC);
        int rc = subscriber_timestamp(s, &theirs);
        uint64_t after = probing_clock_ns(CLOCK_MONOTONIC), took = (after - before + 1) / 2;
        if (rc == 0 && theirs && took < best.error_ns)
            best = (struct clock_pair){
                .cupti = theirs, .ours = before + (after - before) / 2, .error_ns = took};
    }
    return best;
}

void clock_begin(struct cupti_clock *c, const struct subscriber *s)
{
    c->old = c->now = read_pair(s);
    c->error_ns = c->now.error_ns;
}

void clock_compare(struct cupti_clock *c, const struct subscriber *s)
{
    struct clock_pair p = read_pair(s);
    if (!p.ours)
        return;
    /* A difference that both readings allow for is no drift: compared times have been read by the
     * same pair, and the noise of readings is not in their differences. */
    int64_t apart = (int64_t)(p.cupti - c->now.cupti) - (int64_t)(p.ours - c->now.ours);
    uint64_t far = (uint64_t)(apart < 0 ? -apart : apart);
    c->error_ns = far + p.error_ns;
    if (c->now.ours && far <= c->now.error_ns + p.error_ns)
        return;
    c->old = c->now;
    c->now = p;
    c->error_ns = p.error_ns;
}

uint64_t clock_ours(const struct cupti_clock *c, uint64_t cupti)
{
    /* A time since the last reading but one lies between the two; a clock that was set between them
     * counts as set when it was seen. */
    const struct clock_pair *p = &c->now;
    if (!cupti || !p->ours)
        return 0;
    int64_t drift = (int64_t)(c->now.cupti - c->old.cupti) - (int64_t)(c->now.ours - c->old.ours);
    bool leapt = drift > LEAP_NS || drift < -LEAP_NS;
    if (leapt && cupti <= c->old.cupti + (c->now.ours - c->old.ours) && c->old.ours)
        p = &c->old;
    uint64_t ours = p->ours + (cupti - p->cupti); /* wraps as it should for moments before */
    return ours < (UINT64_C(1) << 62) ? ours : 0;
}

int64_t clock_error(const struct cupti_clock *c)
{
    return c->now.ours ? (int64_t)c->error_ns : -1;
}
