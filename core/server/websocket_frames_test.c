/* SPDX-License-Identifier: Apache-2.0
 *
 * core/server/websocket_frames_test.c - frames of websocket clients, right, wrong and too many.
 */
#include "core/base/clock.h"
#include "core/server/internal.h"
#include "tests/test.h"

#define NOW (1000 * NS_PER_S)

static const struct {
    const char *bytes;
    size_t size;
    int code;
} cases[] = {
    {"\x81\x83mask{}\n", 9, 0},
    {"\x81\x80mask\x81\x82mask{}\x81", 15, 0},
    {"\x81\xfe\x00\x80mask", 8, 0},                             /* and 128 bytes to come */
    {"\x81\xff\x00\x00\x00\x00\x00\x40\x00\x00mask", 14, 0},    /* 4 MiB */
    {"\x81\xff\x00\x00\x00\x00\x00\x40\x00\x01mask", 14, 1009}, /* and one */
    {"\x81\xff\xff\xff\xff\xff\xff\xff\xff\xffmask", 14, 1009},
    {"\x89\x84maskping\x8a\x80mask", 16, 0},
    {"\x81\x02{}", 4, 1002}, /* no mask */
    {"\x81\x82mask{}\x81\x02{}", 12, 1002},
    {"\x89\x00", 2, 1002},
    {"\xc1\x82mask{}", 8, 1002},            /* a reserved bit */
    {"\x09\x84maskping", 10, 1002},         /* a ping in parts */
    {"\x89\xfe\x00\x7emaskping", 12, 1002}, /* a long one */
};

TEST(frames_are_judged_whole_and_byte_by_byte)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct frames whole = {.have = 0}, bits = {.have = 0};
        int code = 0;
        if (!CHECK_INT(server_frames_arrived(&whole, cases[i].bytes, cases[i].size, NOW),
                       cases[i].code))
            printf("# case %zu\n", i);
        for (size_t k = 0; k < cases[i].size && code == 0; k++)
            code = server_frames_arrived(&bits, cases[i].bytes + k, 1, NOW);
        CHECK_INT(code, cases[i].code);
    }
}

static int many(const char *frame, size_t size, int n, uint64_t apart_ns)
{
    struct frames f = {.have = 0};
    int code = 0;
    for (int i = 0; i < n && code == 0; i++)
        code = server_frames_arrived(&f, frame, size, NOW + (uint64_t)i * apart_ns);
    return code;
}

TEST(a_flood_of_small_frames_ends_and_a_trickle_does_not)
{
    CHECK_INT(many("\x89\x84maskping", 10, 100000, 0), 1008);
    CHECK_INT(many("\x8a\x80mask", 6, 100000, 0), 1008);
    CHECK_INT(many("\x01\x80mask", 6, 100000, NS_PER_US), 1008); /* a message that never ends */
    CHECK_INT(many("\x00\x81mask ", 7, 100000, 0), 1008);
    CHECK_INT(many("\x81\x80mask", 6, 100000, 0), 1008);
    CHECK_INT(many("\x89\x84maskping", 10, 100000, 20 * NS_PER_MS), 0);
    CHECK_INT(many("\x81\x82mask{}", 8, 100000, 0), 0); /* requests have a rate of their own */
}

int main(void)
{
    RUN(frames_are_judged_whole_and_byte_by_byte);
    RUN(a_flood_of_small_frames_ends_and_a_trickle_does_not);
    return test_end();
}
