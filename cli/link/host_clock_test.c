/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/link/host_clock_test.c - another host's clock by round trips that take as long as they
 * like.  A test's own thread.
 */
#include "cli/link/host_clock.c"
#include "tests/test.h"

static uint32_t seed = 1;

static int64_t random_ns(int64_t most)
{
    seed = seed * 1664525 + 1013904223;
    return (int64_t)(seed >> 8) * most / (1 << 24);
}

struct play {
    struct peer p;
    uint64_t now;  /* our clock_monotonic(); our wall clock is EPOCH further */
    int64_t ahead; /* theirs, of ours */
    int64_t shortest;
};
#define EPOCH (INT64_C(1790000000) * (int64_t)NS_PER_S)

static struct play begin(int64_t ahead)
{
    return (struct play){.p = {.told = {.error_ns = LINK_UNKNOWN}},
                         .now = 5 * NS_PER_S,
                         .ahead = ahead,
                         .shortest = INT64_MAX};
}

/* A look: so long there, so long back. */
static bool look(struct play *w, int64_t there, int64_t back)
{
    char data[16];
    const struct frame f = {.kind = FRAME_PONG, .data = data, .size = sizeof(data)};
    w->p.asked_ns = w->now;
    store_le64(data, w->now);
    w->now += (uint64_t)there;
    store_le64(data + 8, (uint64_t)(EPOCH + (int64_t)w->now + w->ahead));
    w->now += (uint64_t)back;
    w->shortest = there + back < w->shortest ? there + back : w->shortest;
    bool more = peer_take_pong(&w->p, &f, w->now, EPOCH + (int64_t)w->now);
    w->now += NS_PER_MS;
    return more;
}

static int64_t wrong_by(const struct play *w)
{
    int64_t by = w->p.told.offset_ns - w->ahead;
    return by < 0 ? -by : by;
}

/* However one-sided the ways are, the truth is within the error that is said. */
TEST(the_shortest_round_trip_counts)
{
    for (int run = 0; run < 2000; run++) {
        int64_t most = 1 + random_ns(run % 2 ? 200 * (int64_t)NS_PER_MS : 50 * (int64_t)NS_PER_US);
        struct play w = begin(random_ns(10 * (int64_t)NS_PER_S) - 5 * (int64_t)NS_PER_S);
        int looks = 1;
        while (look(&w, random_ns(most), random_ns(run % 3 ? most : 1 + most / 50)))
            looks++;
        if (!CHECK(wrong_by(&w) <= w.p.told.error_ns) || !CHECK_INT(looks, 8) ||
            !CHECK_INT(w.p.told.error_ns, w.shortest / 2 + 1))
            printf("# run %d: wrong by %lld, said %lld\n", run, (long long)wrong_by(&w),
                   (long long)w.p.told.error_ns);
    }
}

/* A longer look that cannot be of the same clock says that it has been set. */
TEST(a_clock_that_is_set)
{
    struct play w = begin(3 * (int64_t)NS_PER_S);
    (void)look(&w, 20000, 20000);
    CHECK_INT(w.p.told.offset_ns, 3 * NS_PER_S);
    (void)look(&w, 30000, 90000); /* it could be the same: the shorter one stays */
    CHECK_INT(w.p.told.offset_ns, 3 * NS_PER_S);
    CHECK_INT(w.p.told.error_ns, 20001);
    w.ahead = -250 * (int64_t)NS_PER_MS;
    (void)look(&w, 30000, 90000);
    CHECK(wrong_by(&w) <= w.p.told.error_ns);
    CHECK_INT(w.p.told.error_ns, 60001);
}

/* Whatever number it says, it is a number; and what nobody asked for is nothing. */
TEST(a_host_that_lies)
{
    static const uint64_t said[] = {0, 1, INT64_MAX, UINT64_MAX, (uint64_t)INT64_MIN};
    for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++)
        for (int64_t utc = -1; utc <= 1; utc++) {
            struct peer p = {.told = {.error_ns = LINK_UNKNOWN}};
            char data[16];
            const struct frame f = {.kind = FRAME_PONG, .data = data, .size = sizeof(data)};
            for (int k = 0; k < 3; k++) {
                p.asked_ns = 1000;
                store_le64(data, 1000);
                store_le64(data + 8, said[(i + (size_t)k) % 5]);
                (void)peer_take_pong(&p, &f, 1000 + (uint64_t)k, utc * INT64_MAX);
                CHECK(p.told.error_ns == LINK_UNKNOWN || p.told.error_ns <= 2);
            }
            uint32_t looks = p.looks;
            CHECK(!peer_take_pong(&p, &f, 9000, 0)); /* not asked for */
            CHECK_INT(p.looks, looks);
        }
}

int main(void)
{
    RUN(the_shortest_round_trip_counts);
    RUN(a_clock_that_is_set);
    RUN(a_host_that_lies);
    return test_end();
}
