/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/inspect/offsets_test.c - which interpreters are read and which are refused, and
 * why.
 *
 * One thread; the interpreters are only described, none is here.
 */
#include "inspect/offsets.h"

#include <errno.h>

#include "tests/test.h"

static uint64_t runtime[128];

static int find(uint32_t version, struct offsets *ret, char *why, size_t size)
{
    struct cpython py = {.version = version, .runtime = runtime};
    struct peek peek;
    why[0] = '\0';
    CHECK_INT(peek_open(&peek, 0, 0), 0);
    return offsets_find(&py, &peek, ret, why, size);
}

TEST(known_versions)
{
    struct offsets o;
    char why[200];
    for (uint32_t minor = 8; minor <= 12; minor++) {
        CHECK_INT(find(0x030001f0u | minor << 16, &o, why, sizeof(why)), 0);
        CHECK_INT(o.minor, minor);
        CHECK((o.ts_frame < 0) != (o.ts_cframe < 0));
        CHECK((o.rt_gil < 0) != (o.is_gil < 0));
        CHECK(o.frame_size > 0 && o.frame_size <= 128);
    }
}

TEST(unknown_versions_are_refused)
{
    struct offsets o;
    char why[200];
    static const uint32_t versions[] = {0x030700f0, 0x040a00f0, 0};
    for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
        CHECK_INT(find(versions[i], &o, why, sizeof(why)), -ENOTSUP);
        CHECK(strstr(why, "from 3.8 on"));
    }
    struct cpython hidden = {.version = 0x030b02f0};
    struct peek peek;
    CHECK_INT(peek_open(&peek, 0, 0), 0);
    CHECK_INT(offsets_find(&hidden, &peek, &o, why, sizeof(why)), -ENOTSUP);
    CHECK(strstr(why, "_PyRuntime"));
}

/* Offsets that could be those of 3.13 or newer. */
static void publish(uint64_t ob_head)
{
    for (size_t i = 2; i < 128; i++)
        runtime[i] = 16;
    runtime[2] = 0;
    const struct {
        size_t word_13, word_15; /* offsets_words[] */
        uint64_t value;
    } other[] = {
        {32, 43, 72}, {38, 51, 120}, {44, 58, ob_head}, {68, 90, 24}, {70, 92, 32}, {3, 93, 48},
    };
    for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++)
        runtime[runtime[1] >> 16 == 0x030d ? other[i].word_13 : other[i].word_15] = other[i].value;
}

TEST(published_offsets_must_be_possible)
{
    struct offsets o;
    char why[200];
    const uint32_t version = 0x030d00f0;
    CHECK_INT(find(version, &o, why, sizeof(why)), -ENOTSUP); /* no cookie */
    memcpy(runtime, "xdebugpy", 8);
    runtime[1] = version;
    publish(/* ob_head= */ 24);
    CHECK_INT(find(version, &o, why, sizeof(why)), 0);
    CHECK_INT(o.f_back, 16);
    CHECK_INT(o.threaded, 0);
    CHECK_INT(o.ob_head, 24);
    CHECK_INT(o.set_used, 24); /* 3.13 does not publish it: the table's */
    runtime[2] = 1;
    CHECK_INT(find(version, &o, why, sizeof(why)), 0);
    CHECK_INT(o.threaded, 1);
    CHECK_INT(o.set_used, 40);
    runtime[2] = 0;
    runtime[31] = 1u << 30;
    CHECK_INT(find(version, &o, why, sizeof(why)), -ENOTSUP);
    runtime[31] = 66; /* eight bytes of a frame that has 72 */
    CHECK_INT(find(version, &o, why, sizeof(why)), -ENOTSUP);
    CHECK(strstr(why, "cannot be"));
    runtime[31] = 16;
    CHECK_INT(find(version, &o, why, sizeof(why)), 0);
    runtime[1] = 0x030d01f0;
    CHECK_INT(find(version, &o, why, sizeof(why)), -ENOTSUP); /* of another build */
}

TEST(newer_versions_wait_for_proof)
{
    struct offsets o;
    char why[300];
    const uint32_t version = 0x03ff00f0;
    struct cpython py = {.version = version, .runtime = runtime};
    CHECK_INT(find(version, &o, why, sizeof(why)), -ENOTSUP); /* nothing of it is published */
    runtime[1] = version;
    publish(/* ob_head= */ 24);
    CHECK_INT(find(version, &o, why, sizeof(why)), -ENOTSUP);
    CHECK(strstr(why, "newer than the versions known here") && strstr(why, "waits for the GIL"));
    CHECK_INT(offsets_proof(&py), OFFSETS_UNPROVED);
    offsets_prove("its stacks read wrong");
    CHECK_INT(find(version, &o, why, sizeof(why)), -ENOTSUP);
    CHECK(strstr(why, "its stacks read wrong"));
    offsets_prove(NULL);
    CHECK_INT(find(version, &o, why, sizeof(why)), 0);
    CHECK_INT(o.ob_head, 24);
    offsets_prove_again();
    CHECK_INT(offsets_proof(&py), OFFSETS_UNPROVED);
}

TEST(version_texts)
{
    CHECK_INT(cpython_parse_version("3.11.2 (main, Apr 28 2025)"), 0x030b02f0);
    CHECK_INT(cpython_parse_version("3.13.0rc2 (x)"), 0x030d00c2);
    CHECK_INT(cpython_parse_version("3.14.0a1+ (x)"), 0x030e00a1);
    CHECK_INT(cpython_parse_version("3.12"), 0);
    CHECK_INT(cpython_parse_version("nonsense"), 0);
    CHECK_INT(cpython_parse_version(""), 0);
    CHECK_INT(cpython_parse_version("999999999999.1.1"), 0);
}

int main(void)
{
    RUN(known_versions);
    RUN(unknown_versions_are_refused);
    RUN(published_offsets_must_be_possible);
    RUN(newer_versions_wait_for_proof);
    RUN(version_texts);
    return test_end();
}
