/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/sample/address_room_test.c - tables take their part of what is left, or nothing.
 */
#include "sample/address_room.h"

#include <sys/resource.h>

#include "sample/live_table.h"
#include "sampling/sample_pool.h"
#include "tests/test.h"

#define MIB (UINT64_C(1) << 20)
#define SCRATCH 70000u /* of the python plugin */

TEST(all_where_there_is_no_limit)
{
    struct table_sizes t;
    CHECK(fit_tables(UINT64_MAX, SCRATCH, false, &t));
    CHECK_INT(t.slots, SAMPLE_SLOTS_MAX);
    CHECK_INT(t.entries, LIVE_MAX);
}

TEST(a_part_where_there_is_one)
{
    struct table_sizes t;
    uint64_t before = 0;
    bool fitted = false;
    for (uint64_t room = 0; room < 2048 * MIB; room += 7 * MIB) {
        bool fits = fit_tables(room, SCRATCH, false, &t);
        CHECK(fits || !fitted); /* more room never gives less */
        fitted |= fits;
        if (!fits)
            continue;
        CHECK(table_bytes(&t, SCRATCH) <= room / ADDRESS_ROOM_PART);
        CHECK(table_bytes(&t, SCRATCH) >= before);
        CHECK_INT(t.slots % 64, 0);
        before = table_bytes(&t, SCRATCH);
    }
    CHECK_INT(t.slots, SAMPLE_SLOTS_MAX);
    CHECK_INT(t.entries, LIVE_MAX);
    CHECK(!fit_tables(60 * MIB, 0, false, &t));
    CHECK(fit_tables(60 * MIB, 0, /* has_table= */ true, &t));
}

TEST(a_limit_is_seen)
{
    struct rlimit limit, low;
    (void)getrlimit(RLIMIT_AS, &limit);
    low = limit;
    low.rlim_cur = 1 << 20; /* less than there is */
    CHECK_INT(setrlimit(RLIMIT_AS, &low), 0);
    uint64_t room = address_room();
    CHECK_INT(setrlimit(RLIMIT_AS, &limit), 0);
    CHECK_INT(room, 0);
}

int main(void)
{
    RUN(all_where_there_is_no_limit);
    RUN(a_part_where_there_is_one);
    RUN(a_limit_is_seen);
    return test_end();
}
