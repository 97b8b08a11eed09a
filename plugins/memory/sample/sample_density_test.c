/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/sample/sample_density_test.c - samples that cost too much thin out, those of a
 * process that does next to nothing do not.
 */
#include "sample_density.h"

#include "probing_sdk.h"
#include "sample/sample.h"
#include "tests/test.h"

#define MEAN 65536
#define BLOCKS 2000
#define SLOTS 64

static uint64_t now(void)
{
    return probing_clock_ns(CLOCK_MONOTONIC);
}

static const struct probing_host host = {.size = sizeof(host), .now = now};

/* The distance after BLOCKS samples that were taken within `passed_ns`. */
static uint64_t mean_after(uint64_t passed_ns)
{
    static struct live_table *table;
    struct sample_pool *slots;
    struct sampling_counts counts;
    struct density d = {.max_overhead = 0.005, .asked = MEAN};
    if ((!table && !CHECK_INT(live_table_new(LIVE_MAX, &table), 0)) ||
        !CHECK_INT(sample_pool_new(SLOTS, 0, &slots), 0))
        return 0;
    sampling_begin(&(struct sampling){.host = &host, .live = table, .slots = slots, .mean = MEAN});
    memory_thread = (struct memory_thread){.chance = 12345};
    sampling_counts(&counts);
    uint64_t begun = now();
    density_begin(&d, &counts, begun);
    for (uint64_t i = 0; i < BLOCKS; i++) {
        memory_allocated((void *)(uintptr_t)(0x10000 + 16 * i), (size_t)16 * MEAN, MEMORY_MALLOC,
                         __builtin_frame_address(0));
        for (struct sample_slot *x; (x = sample_slot_next(slots)) != NULL;)
            sample_slot_release(slots, x);
    }
    density_adapt(&d, begun + passed_ns);
    uint64_t mean = sampling_mean();
    CHECK_INT(sampling_end(), 0);
    sample_pool_free(slots);
    return mean;
}

/* 2,000 in a day may cost what they do, though the process has done nothing beside them. */
TEST(who_is_idle_is_sampled_all_the_same)
{
    CHECK_INT(mean_after(UINT64_C(86400) * PROBING_NS_PER_S), MEAN);
}

TEST(samples_that_cost_too_much_thin_out)
{
    CHECK(mean_after(25 * PROBING_NS_PER_MS) > 2 * MEAN);
}

int main(void)
{
    RUN(who_is_idle_is_sampled_all_the_same);
    RUN(samples_that_cost_too_much_thin_out);
    return test_end();
}
