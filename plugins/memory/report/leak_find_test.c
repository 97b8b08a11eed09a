/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/report/leak_find_test.c - leaks are found alone and spread over stacks, under the
 * function that says the most, and healthy programs have none.
 *
 * Samples are drawn from a program whose every allocation is known; every seed is fixed.
 */
#include "report/leak_find.h"

#include <stdio.h>
#include <string.h>

#include "lib/hash.h"
#include "tests/test.h"

#define PAST 8u
#define LAST (PAST + LEAK_PERIODS)
#define SAMPLE 524288.0 /* bytes that a sample of something small stands for */

static uint64_t state;

static uint32_t below(uint32_t n)
{
    state = hash_spread(state + 1) ^ state >> 29;
    return (uint32_t)(state >> 33) % n;
}

static void add(struct leak_find *f, int64_t stack, uint32_t born, uint32_t ended)
{
    const struct leak_samples x = {.stack_id = stack,
                                   .born = born,
                                   .ended = ended,
                                   .bytes = SAMPLE,
                                   .variance = SAMPLE * SAMPLE,
                                   .count = 1,
                                   .largest = 5000};
    CHECK(leak_find_add(f, &x) == 0);
}

/* A block so large that it is surely a sample. */
static void block(struct leak_find *f, int64_t stack, double bytes, uint32_t born, uint32_t ended)
{
    for (uint32_t end = 0; end <= ended; end += ended ? ended : 1) {
        const struct leak_samples x = {.stack_id = stack,
                                       .born = born,
                                       .ended = end,
                                       .bytes = bytes,
                                       .variance = 1,
                                       .count = 1,
                                       .largest = bytes};
        if (born || end)
            CHECK(leak_find_add(f, &x) == 0);
    }
}

/* It came and, where `ended` is not 0, went; what is from before moment 0 has no row of its own. */
static void live(struct leak_find *f, int64_t stack, uint32_t born, uint32_t ended)
{
    if (born)
        add(f, stack, born, 0);
    if (ended && ended <= LAST)
        add(f, stack, born, ended);
}

static void on_way(struct leak_find *f, int64_t stack, uint32_t depth, const char *function)
{
    const struct leak_frame frame = {
        .function = function, .file = "a.py", .line = (double)depth, .own = function[0] != '_'};
    CHECK(leak_find_frame(f, stack, depth, &frame) == 0);
}

/* inner < middle < main */
static void stack_of(struct leak_find *f, int64_t stack, const char *inner, const char *middle)
{
    CHECK(leak_find_origin(f, stack, inner, "a.py", 1) == 0);
    on_way(f, stack, 0, inner);
    on_way(f, stack, 1, middle);
    on_way(f, stack, 2, "main");
}

static const char *name(const char *of, uint32_t i)
{
    static char text[40];
    (void)snprintf(text, sizeof(text), "%s%u", of, i);
    return text;
}

/* Add blocks that come and go all the time, on `n` stacks, at a level of `level` samples. */
static void churn(struct leak_find *f, int64_t first, uint32_t n, uint32_t level)
{
    for (uint32_t i = 0; i < level; i++)
        for (uint32_t at = below(3); at <= LAST;) {
            uint32_t next = at + 1 + below(3);
            live(f, first + below(n), at, next);
            at = next;
        }
}

static int run(struct leak_find *f, struct leak leaks[LEAKS])
{
    int n = leak_find_run(f, leaks);
    for (int i = 0; i < n; i++)
        printf("%s %s: %.1f MB on %u stacks\n", leaks[i].is_below ? "below" : "at",
               leaks[i].at.function, leaks[i].at.bytes / 1e6, leaks[i].n_stacks);
    return n;
}

TEST(one_stack_leaks)
{
    struct leak leaks[LEAKS];
    struct leak_find *f = leak_find_new(PAST);
    for (uint32_t i = 0; i < 40; i++)
        live(f, 7, 1 + i % LAST, 0);
    churn(f, 8, 1, 30);
    stack_of(f, 7, "make", "handle");
    stack_of(f, 8, "work", "handle");
    CHECK(run(f, leaks) == 1);
    CHECK_STR(leaks[0].at.function, "make");
    CHECK(leaks[0].n_stacks == 1 && leaks[0].stacks[0].stack_id == 7 && !leaks[0].is_below);
    CHECK(leaks[0].at.line == 1 && leak_find_of(f, 7) == leaks[0].number);
    CHECK(leak_find_of(f, 8) == 0);
    leak_find_free(f);
}

/* One function, reached in 300 ways: hardly one stack has two samples. */
TEST(a_leak_on_many_ways_is_its_function_s)
{
    struct leak leaks[LEAKS];
    struct leak_find *f = leak_find_new(PAST);
    for (uint32_t i = 0; i < 80; i++)
        live(f, 1 + (i * 79) % 300, 1 + i % LAST, 0);
    churn(f, 1000, 300, 40);
    for (uint32_t i = 0; i < 300; i++) {
        stack_of(f, 1 + i, "make", name("way", i));
        stack_of(f, 1000 + i, name("work", i), "other");
    }
    CHECK(run(f, leaks) == 1);
    CHECK_STR(leaks[0].at.function, "make");
    CHECK(leaks[0].n_stacks == 300 && !leaks[0].is_below);
    CHECK(leaks[0].frames[0].is_shared && !leaks[0].frames[1].is_shared);
    /* each has one sample, half of them from before the time that is looked at */
    CHECK(leaks[0].stacks[39].bytes > 0 && leaks[0].stacks[40].bytes == 0);
    CHECK(strncmp(leaks[0].stacks[0].apart.function, "way", 3) == 0);
    leak_find_free(f);
}

/* One caller, 300 functions that allocate: of those that hold all of it the innermost is told, and
 * it is one of the program's. */
TEST(a_leak_of_many_functions_is_below_one)
{
    struct leak leaks[LEAKS];
    struct leak_find *f = leak_find_new(PAST);
    for (uint32_t i = 0; i < 80; i++)
        live(f, 1 + (i * 79) % 300, 1 + i % LAST, 0);
    churn(f, 1000, 50, 20);
    for (uint32_t i = 0; i < 300; i++) {
        CHECK(leak_find_origin(f, 1 + i, name("line", i), "a.py", 1) == 0);
        on_way(f, 1 + i, 0, name("line", i));
        on_way(f, 1 + i, 1, "_library");
        on_way(f, 1 + i, 2, "load");
        on_way(f, 1 + i, 3, "handle");
        on_way(f, 1 + i, 4, "main");
    }
    for (uint32_t i = 0; i < 50; i++)
        stack_of(f, 1000 + i, name("work", i), "handle");
    CHECK(run(f, leaks) == 1);
    CHECK_STR(leaks[0].at.function, "load");
    CHECK(leaks[0].is_below && leaks[0].n_stacks == 300);
    leak_find_free(f);
}

/* Other growth there, by chance or once, does not hide which part of it is the leak. */
TEST(what_is_no_leak_is_left_out)
{
    struct leak leaks[LEAKS];
    struct leak_find *f = leak_find_new(PAST);
    for (uint32_t i = 0; i < 200; i++)
        live(f, 1 + (i * 79) % 200, 1 + i % LAST, 0);
    for (uint32_t i = 0; i < 40; i++) /* a cache that fills while it is looked at */
        live(f, 1000 + i, PAST + 1 + i % 2, 0);
    for (uint32_t i = 0; i < 200; i++) {
        stack_of(f, 1 + i, name("line", i), "load");
        stack_of(f, 1000 + i, name("entry", i), "caching");
    }
    CHECK(run(f, leaks) == 1);
    CHECK_STR(leaks[0].at.function, "load");
    leak_find_free(f);
}

/* Two of them below the same caller are told apart. */
TEST(a_group_is_told_by_its_parts)
{
    struct leak leaks[LEAKS];
    struct leak_find *f = leak_find_new(PAST);
    for (uint32_t i = 0; i < 300; i++) {
        live(f, 1 + (i * 79) % 200, 1 + i % LAST, 0);
        if (i % 2)
            live(f, 1000 + (i * 79) % 200, 1 + i % LAST, 0);
    }
    for (uint32_t i = 0; i < 200; i++) {
        stack_of(f, 1 + i, name("line", i), "load");
        stack_of(f, 1000 + i, name("field", i), "parse");
    }
    CHECK(run(f, leaks) == 2);
    CHECK_STR(leaks[0].at.function, "load");
    CHECK_STR(leaks[1].at.function, "parse");
    leak_find_free(f);
}

/* A block that grows: each takes the place of a smaller one. */
TEST(a_block_that_grows_is_a_leak)
{
    struct leak leaks[LEAKS];
    for (uint32_t each = 1; each <= 4; each++) { /* times in a period */
        struct leak_find *f = leak_find_new(PAST);
        uint32_t n = 0;
        for (uint32_t at = 1; at <= LAST; at++)
            for (uint32_t i = 0; i < each; i++)
                block(f, 7, 1e6 * ++n, at, i + 1 < each ? at : at < LAST ? at + 1 : 0);
        churn(f, 8, 1, 30);
        stack_of(f, 7, "append", "handle");
        stack_of(f, 8, "work", "handle");
        CHECK(run(f, leaks) == 1);
        CHECK_STR(leaks[0].at.function, "append");
        CHECK(leaks[0].at.bytes == 1e6 * LEAK_PERIODS * each);
        leak_find_free(f);
    }
}

/* Each function that has grown is a leak, or has the reason why it is none. */
TEST(what_has_grown_is_not_denied)
{
    struct leak leaks[LEAKS];
    struct leak_other others[LEAK_OTHERS];
    struct leak_find *f = leak_find_new(PAST);
    for (uint32_t i = 0; i < 40; i++)
        live(f, 7, 1 + i % LAST, 0);
    for (uint32_t i = 0; i < 3; i++)
        block(f, 8, 100e6, PAST + 1 + i, 0);
    for (uint32_t i = 0; i < 100; i++)
        live(f, 9, PAST + 1 + i % 3, 0);
    block(f, 0, 5e6, LAST, 0);
    stack_of(f, 7, "make", "handle");
    stack_of(f, 8, "load", "main");
    stack_of(f, 9, "fill", "main");
    CHECK(run(f, leaks) == 1);
    CHECK_STR(leaks[0].at.function, "make");
    CHECK(leak_find_grown(f, /* leaks_too= */ true, others) == 3);
    CHECK_STR(others[0].at.function, "load");
    CHECK_STR(others[2].at.function, "make");
    CHECK(others[2].why == LEAK_FOUND);
    CHECK(leak_find_grown(f, /* leaks_too= */ false, others) == 2);
    CHECK_STR(others[0].at.function, "load");
    CHECK(others[0].why == LEAK_FEW && others[0].at.bytes == 300e6);
    CHECK_STR(others[1].at.function, "fill");
    CHECK(others[1].why == LEAK_PAUSES && others[1].n_stacks == 1);
    leak_find_free(f);
}

/* Some of a thousand stacks and as many groups seem to grow by chance: in 300 programs no more than
 * some are told, and the errors are what they say. */
TEST(chance_is_no_leak)
{
    uint32_t told = 0;
    for (uint32_t seed = 1; seed <= 300; seed++) {
        struct leak leaks[LEAKS];
        struct leak_find *f = leak_find_new(PAST);
        state = seed * HASH_GOLDEN;
        churn(f, 1, 200, 400);
        churn(f, 500, 5, 200);
        for (uint32_t i = 0; i < 200; i++)
            stack_of(f, 1 + i, name("work", i % 20), name("way", i % 13));
        for (uint32_t i = 0; i < 5; i++)
            stack_of(f, 500 + i, name("busy", i), "handle");
        told += leak_find_run(f, leaks) > 0;
        leak_find_free(f);
    }
    CHECK(told <= 3);
}

/* Sets of samples that a healthy program has, on stacks of one function. */
static bool is_told(void (*program)(struct leak_find *f))
{
    struct leak leaks[LEAKS];
    struct leak_find *f = leak_find_new(PAST);
    state = 1;
    program(f);
    for (uint32_t i = 0; i < 100; i++)
        stack_of(f, 1 + i, "make", name("way", i));
    bool told = run(f, leaks) > 0;
    leak_find_free(f);
    return told;
}

static void fill_and_stop(struct leak_find *f)
{
    for (uint32_t i = 0; i < 400; i++)
        live(f, 1 + i % 100, PAST + 1 + i % 3, 0);
    churn(f, 1, 100, 50);
}

/* Each thing is allocated once, ever more rarely. */
static void warm_up(struct leak_find *f)
{
    for (uint32_t at = 1; at <= LAST; at++)
        for (uint32_t i = 0; i < 600 / (at * at); i++)
            live(f, 1 + below(100), at, 0);
}

/* A full collection comes each ten periods. */
static void sawtooth(struct leak_find *f)
{
    for (uint32_t at = 1; at <= LAST; at++)
        for (uint32_t i = 0; i < 30; i++)
            live(f, 1 + below(100), at, at <= 6 ? 6 : at <= 16 ? 0 : 26);
    for (uint32_t i = 0; i < 30 * 10; i++) /* of the tooth before */
        live(f, 1 + below(100), 0, 6);
}

/* A few large ones, as a model that is loaded while the program starts. */
static void loads(struct leak_find *f)
{
    for (uint32_t i = 0; i < 3; i++) {
        const struct leak_samples x = {
            .stack_id = 1, .born = PAST + 2 + 3 * i, .bytes = 500e6, .variance = 1, .count = 1};
        CHECK(leak_find_add(f, &x) == 0);
    }
}

/* A buffer for each request, of a size that is by chance. */
static void buffers(struct leak_find *f)
{
    for (uint32_t stack = 1; stack <= 20; stack++)
        for (uint32_t at = 1; at <= LAST; at++)
            block(f, stack, 1e6 * (1 + below(100)), at, at < LAST ? at + 1 : 0);
}

/* A list that is built up in each epoch, and dropped. */
static void built_up(struct leak_find *f)
{
    for (uint32_t at = 1; at <= LAST; at++)
        for (uint32_t i = 1; i <= 2; i++)
            block(f, 1, 1e6 * (2 * (at % 4) + i), at, i == 1 ? at : at < LAST ? at + 1 : 0);
}

static void shrinks_again(struct leak_find *f)
{
    for (uint32_t i = 0; i < 200; i++)
        live(f, 1 + i % 100, PAST + 1 + i % 5, PAST + 6 + i % 2);
}

/* Teeth that are shorter than the time, of which the last is cut off at its top. */
static void epochs(struct leak_find *f)
{
    for (uint32_t at = 1; at <= LAST; at++)
        for (uint32_t i = 0; i < 60; i++)
            live(f, 1 + below(10), at, at + 3 - at % 3 > LAST ? 0 : at + 3 - at % 3);
}

/* More and more is in use, as of a server whose load rises, and none of it for long. */
static void rises(struct leak_find *f)
{
    for (uint32_t at = 1; at <= LAST; at++)
        for (uint32_t i = 0; i < 20 * at; i++)
            live(f, 1 + below(10), at, at + 1);
}

TEST(healthy_programs_have_none)
{
    CHECK(!is_told(fill_and_stop));
    CHECK(!is_told(warm_up));
    CHECK(!is_told(sawtooth));
    CHECK(!is_told(epochs));
    CHECK(!is_told(rises));
    CHECK(!is_told(loads));
    CHECK(!is_told(buffers));
    CHECK(!is_told(built_up));
    CHECK(!is_told(shrinks_again));
}

TEST(nothing_is_known_of_nothing)
{
    struct leak leaks[LEAKS];
    struct leak_find *f = leak_find_new(LEAK_PAST + 5);
    CHECK(leak_find_run(f, leaks) == 0 && leak_find_questions(f) == 0);
    CHECK(leak_find_of(f, 5) == 0);
    on_way(f, 5, 0, "stranger");
    add(f, 6, 1, 0); /* no frames, no origin */
    for (uint32_t i = 1; i <= LEAK_PAST + LEAK_PERIODS; i++)
        for (int k = 0; k < 4; k++)
            add(f, 0, i, 0);
    CHECK(leak_find_run(f, leaks) == 1 && leaks[0].at.function == NULL);
    CHECK(leaks[0].n_frames == 0 && leaks[0].stacks[0].stack_id == 0);
    leak_find_free(f);
}

int main(void)
{
    RUN(one_stack_leaks);
    RUN(a_leak_on_many_ways_is_its_function_s);
    RUN(a_leak_of_many_functions_is_below_one);
    RUN(what_is_no_leak_is_left_out);
    RUN(a_group_is_told_by_its_parts);
    RUN(a_block_that_grows_is_a_leak);
    RUN(what_has_grown_is_not_denied);
    RUN(chance_is_no_leak);
    RUN(healthy_programs_have_none);
    RUN(nothing_is_known_of_nothing);
    return test_end();
}
