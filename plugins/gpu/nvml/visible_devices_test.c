/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/gpu/nvml/visible_devices_test.c - which devices a process sees, list by list.
 */
#include "nvml/nvml_reader.h"
#include "tests/test.h"

#define A "GPU-8f6d1a2c-0000-0000-0000-000000000001"
#define B "GPU-8f6d1b2c-0000-0000-0000-000000000002"
#define C "GPU-11111111-0000-0000-0000-000000000003"

static void devices_of(struct gpu_device d[3])
{
    static const char *const uuids[] = {A, B, C};
    memset(d, 0, 3 * sizeof(*d));
    for (uint32_t i = 0; i < 3; i++) {
        d[i].index = i;
        d[i].partition = -1;
        (void)snprintf(d[i].uuid, sizeof(d[i].uuid), "%s", uuids[i]);
        (void)snprintf(d[i].name, sizeof(d[i].name), "one kind");
    }
}

/* The ordinals as text, "-" for not visible, "x" for not known: "10-". */
static const char *seen(const char *list, const char *order, struct gpu_device *d, uint32_t n)
{
    static char text[16];
    cuda_visible(list, order, d, n);
    for (uint32_t i = 0; i < n; i++)
        text[i] = d[i].visible == 0                          ? '-'
                  : d[i].visible == -1 || d[i].ordinal == -1 ? 'x'
                                                             : (char)('0' + d[i].ordinal);
    text[n] = '\0';
    return text;
}

TEST(lists)
{
    static const struct {
        const char *list, *seen;
    } cases[] = {{NULL, "012"},
                 {"", "---"},
                 {"0", "0--"},
                 {"2,0", "1-0"},
                 {" 1 , 2 ", "-01"},
                 {"0,7,1", "0--"}, /* it ends at the first that is wrong */
                 {"-1", "---"},
                 {"0,-1,1", "0--"},
                 {"1,1", "---"}, /* twice: none */
                 {"0,x", "0--"},
                 {"NoDevFiles", "---"},
                 {"1gpu2,2ampere", "-01"},
                 {"+1", "-0-"},
                 {"99999999999999999999", "---"},
                 {A, "0--"},
                 {C "," A, "1-0"},
                 {"GPU-1", "--0"}, /* one begins so */
                 {"GPU-8f6d1b", "-0-"},
                 {"GPU-8f6d", "---"}, /* two do */
                 {"GPU-1,GPU-8f6d,0", "--0"},
                 {"GPU-1,1", "--0"},      /* the kinds do not mix */
                 {"GPU-1,GPU-11", "---"}, /* the same one twice */
                 {"GPU-nobody," A, "---"},
                 {"MIG-" A "/1/0", "---"}};
    struct gpu_device d[3];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        devices_of(d);
        if (!CHECK_STR(seen(cases[i].list, NULL, d, 3), cases[i].seen))
            printf("# '%s'\n", cases[i].list ? cases[i].list : "none");
    }
}

TEST(the_fastest_first_is_not_guessed)
{
    struct gpu_device d[3];
    devices_of(d);
    (void)snprintf(d[2].name, sizeof(d[2].name), "another kind");
    CHECK_STR(seen("2,0", NULL, d, 3), "xxx");
    CHECK_STR(seen("2,0", "PCI_BUS_ID", d, 3), "1-0");
    CHECK_STR(seen("2,0", "FASTEST_FIRST", d, 3), "xxx");
    CHECK_STR(seen(C "," A, NULL, d, 3), "1-0");
    CHECK_STR(seen(NULL, NULL, d, 3), "xxx");
    CHECK_INT(d[1].visible, 1); /* all are */
    CHECK_STR(seen("", NULL, d, 3), "---");
}

/* Device 0 is partitioned in two, device 1 is not. */
static void partitions_of(struct gpu_device d[4])
{
    struct gpu_device whole[3];
    devices_of(whole);
    d[0] = d[1] = d[2] = whole[0];
    d[3] = whole[1];
    d[0].partitioned = true;
    for (uint32_t i = 1; i < 3; i++) {
        d[i].partition = (int32_t)i - 1;
        d[i].slots[0] = i;
        d[i].slots[1] = 0;
        (void)snprintf(d[i].uuid, sizeof(d[i].uuid), "MIG-%u0000000-aaaa", i);
    }
}

TEST(partitions)
{
    static const struct {
        const char *list, *seen;
    } cases[] = {{"MIG-20000000-aaaa", "--0-"},
                 {"MIG-2,MIG-1", "-10-"},
                 {"MIG-" A "/2/0", "--0-"},
                 {"MIG-" A "/3/0", "----"},
                 {"1", "---0"},
                 {"0", "xxx-"}, /* which one CUDA takes is not said */
                 {A, "xxx-"},
                 {NULL, "xxxx"}};
    struct gpu_device d[4];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        partitions_of(d);
        if (!CHECK_STR(seen(cases[i].list, NULL, d, 4), cases[i].seen))
            printf("# '%s'\n", cases[i].list ? cases[i].list : "none");
    }
    partitions_of(d);
    CHECK_STR(seen(NULL, NULL, d, 3), "-0-"); /* all are partitioned: one partition */
}

int main(void)
{
    RUN(lists);
    RUN(the_fastest_first_is_not_guessed);
    RUN(partitions);
    return test_end();
}
