/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/profile/sample_period_test.c - the rate that is asked for comes out, where the kernel
 * looks at timers only once a tick.
 */
#include "sample_period.h"

#include <stdbool.h>

#include "tests/test.h"

#define DRAWS 100000
#define MS UINT64_C(1000000)

/* The mean of what passes until the tick at which the kernel finds the timer at its end.  The
 * thread is at a tick when it sets it, or `off` ns later. */
static double mean_ns(uint64_t period, uint64_t tick, uint64_t off, bool *ret_varies)
{
    uint64_t chance = 7, sum = 0, first = 0;
    *ret_varies = false;
    for (int i = 0; i < DRAWS; i++) {
        chance = chance * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint64_t set = period_draw(chance, period, tick);
        uint64_t rings = (off + set + tick - 1) / tick * tick;
        if (set == 0)
            return 0; /* it would disarm it */
        first = i ? first : rings;
        *ret_varies = *ret_varies || rings != first;
        sum += rings;
    }
    return (double)sum / DRAWS;
}

TEST(the_rate_asked_for_comes_out)
{
    static const uint64_t ticks[] = {1, MS, 4 * MS, 10 * MS};
    static const uint64_t rates[] = {1, 49, 50, 97, 100, 123, 200, 249, 250, 333, 1000};
    for (size_t t = 0; t < sizeof(ticks) / sizeof(ticks[0]); t++)
        for (size_t r = 0; r < sizeof(rates) / sizeof(rates[0]); r++) {
            uint64_t period = 1000 * MS / rates[r], tick = ticks[t];
            double want = (double)(period > tick ? period : tick);
            bool varies;
            double mean = mean_ns(period, tick, 0, &varies);
            CHECK(mean > 0.98 * want && mean < 1.02 * want);
            CHECK(varies == (period > tick)); /* or a program in step with them is fooled */
            mean = mean_ns(period, tick, tick / 3, &varies); /* the handler came late */
            CHECK(mean > 0.98 * want && mean < 1.02 * want);
        }
}

int main(void)
{
    RUN(the_rate_asked_for_comes_out);
    return test_end();
}
