/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/sample/unsampled_test.c - errors that are stated cover the truth as often as they
 * say, where samples are as asked for, and where they have thinned out in a burst.
 *
 * A program's allocations are drawn and sampled some thousand times; every seed is fixed.
 */
#include "sample/unsampled.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

#include "sample/estimate.h"
#include "tests/test.h"

#define MIB 1048576u
#define ASKED (MIB / 2)
#define RUNS 3000

static uint64_t chance = 1;
static uint64_t left; /* bytes to the next sample */

struct told {
    double bytes, variance;
};

/* n blocks of a size, at this distance, of which none is freed. */
static void allocate(struct told *to, uint32_t n, uint64_t size, uint64_t mean)
{
    uint64_t beside = 0;
    left = estimate_distance(estimate_random(&chance), mean);
    for (uint32_t i = 0; i < n; i++) {
        if (size <= left) {
            left -= size;
            beside += size;
            continue;
        }
        double weight = estimate_weight(size, mean), bytes = (double)size;
        to->bytes += bytes * weight;
        to->variance += bytes * bytes * estimate_variance(weight);
        left = estimate_distance(estimate_random(&chance), mean);
    }
    unsampled_add(mean, beside);
}

struct covered {
    uint32_t once, twice; /* runs in which the truth was within one error, within two */
    double error;         /* on average */
};

/* A stack that keeps `n` blocks of a size at the distance that was asked for and `in_burst` more of
 * them at another, beside others that allocate `others` times as much. */
static struct covered cover(uint32_t n, uint32_t in_burst, uint64_t size, uint64_t mean,
                            uint32_t others)
{
    struct covered c = {.once = 0};
    unsampled_ask(ASKED);
    for (uint32_t run = 0; run < RUNS; run++) {
        struct told x = {.bytes = 0}, rest = {.bytes = 0};
        unsampled_begin();
        allocate(&x, n, size, ASKED);
        allocate(&rest, n * others, size, ASKED);
        allocate(&x, in_burst, size, mean);
        allocate(&rest, in_burst * others, size, mean);
        double truth = (double)((n + in_burst) * size), unseen = unsampled_bytes();
        double error = estimate_root(x.variance + unseen * unseen);
        double off = x.bytes > truth ? x.bytes - truth : truth - x.bytes;
        c.once += off <= error;
        c.twice += off <= 2 * error;
        c.error += error / RUNS;
    }
    printf("%u + %u of %llu bytes, 1 in %llu: within one error %.3f, two %.3f; error %.2f MB\n", n,
           in_burst, (unsigned long long)size, (unsigned long long)mean, (double)c.once / RUNS,
           (double)c.twice / RUNS, c.error / MIB);
    return c;
}

TEST(errors_cover_where_samples_are_as_asked)
{
    static const uint64_t sizes[] = {4096, 65536, 262144, MIB};
    for (uint32_t i = 0; i < 4; i++) {
        struct covered c = cover((uint32_t)(50 * MIB / sizes[i]), 0, sizes[i], ASKED, 2);
        CHECK(c.once > 0.63 * RUNS && c.once < 0.78 * RUNS);
        CHECK(c.twice > 0.92 * RUNS && c.twice < 0.98 * RUNS);
        CHECK(unsampled_bytes() == 0);
    }
}

/* 52 MB of a stack came while samples were 105 MB apart, and 3 MB as asked for. */
TEST(errors_cover_what_thinned_out)
{
    static const uint64_t means[] = {4 * MIB, 26 * MIB, 105 * MIB, 1024 * MIB};
    for (uint32_t i = 0; i < 4; i++) {
        struct covered c = cover(48, 832, 65536, means[i], 2);
        CHECK(c.once > 0.63 * RUNS);
        CHECK(c.twice > 0.92 * RUNS);
    }
    /* no more than what was allocated then can be in no sample */
    struct covered c = cover(48, 832, 65536, UINT64_C(1) << 40, 0);
    CHECK(c.twice == RUNS && c.error < 56.0 * MIB);
    c = cover(800, 16, 65536, 105 * MIB, 0);
    CHECK(c.once > 0.63 * RUNS && c.error < 8.0 * MIB);
}

TEST(time_begins_anew)
{
    unsampled_begin();
    unsampled_ask(ASKED);
    unsampled_add(64 * MIB, 10 * MIB);
    CHECK(unsampled_since(/* begin_anew= */ true) > 9.9 * MIB);
    unsampled_add(ASKED, 100 * MIB);
    CHECK(unsampled_since(/* begin_anew= */ true) == 0);
    CHECK(unsampled_bytes() > 9.9 * MIB);
}

#define LOOKS 200000

static void *look(void *arg)
{
    _Atomic bool *ends = arg;
    while (!atomic_load_explicit(ends, memory_order_relaxed))
        (void)unsampled_since(/* begin_anew= */ false);
    return NULL;
}

TEST(a_look_takes_nothing_back)
{
    _Atomic bool ends = false;
    pthread_t thread;
    uint32_t wrong = 0;
    unsampled_begin();
    unsampled_ask(ASKED);
    if (!CHECK_INT(pthread_create(&thread, NULL, look, &ends), 0))
        return;
    for (uint32_t i = 0; i < LOOKS; i++) {
        unsampled_add(64 * MIB, MIB);
        wrong += unsampled_since(/* begin_anew= */ true) > 1.1 * MIB;
    }
    atomic_store_explicit(&ends, true, memory_order_relaxed);
    (void)pthread_join(thread, NULL);
    CHECK_INT(wrong, 0);
}

int main(void)
{
    RUN(errors_cover_where_samples_are_as_asked);
    RUN(errors_cover_what_thinned_out);
    RUN(time_begins_anew);
    RUN(a_look_takes_nothing_back);
    return test_end();
}
