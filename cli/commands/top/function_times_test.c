/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/top/function_times_test.c - own times are the processor time that was used.
 */
#include "core/base/json.h"

/* One unit, because a unit test is linked with libcore.a alone. */
#include "cli/commands/top/function_times.c"
#include "tests/test.h"

#define FRAME(name) "{\"type\": \"python\", \"func\": \"" name "\", \"file\": \"a.py\"}"
#define THREAD(tid, state, frames) \
    "{\"tid\": " tid ", \"state\": \"" state "\", \"frames\": [" frames "]}"

static uint64_t now_ns;

/* A second passes, of which the two threads have used so much. */
static void add(struct tally *t, const char *stacks, uint64_t first, uint64_t second)
{
    static struct tally_thread used[2] = {{.tid = 7, .cpu_ns = 1000}, {.tid = 9, .cpu_ns = 5000}};
    struct arena a;
    struct json *list;
    arena_init(&a, 1 << 20);
    CHECK(json_parse(&a, stacks, strlen(stacks), &list) == 0);
    now_ns += 1000000000;
    used[0].cpu_ns += first;
    used[1].cpu_ns += second;
    tally_add(t, list, used, 2, now_ns);
    arena_done(&a);
}

static uint64_t own(struct tally *t, const char *name, uint64_t *ret_total)
{
    const struct tally_function *f;
    uint32_t n = tally_sort(t, &f);
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(f[i].name, name) == 0) {
            *ret_total = f[i].all_total_ns;
            return f[i].all_own_ns;
        }
    *ret_total = 0;
    return 0;
}

TEST(own_times_are_processor_time)
{
    struct tally t = {.n = 0};
    uint64_t total;
    static const char both[] = "[" THREAD("7", "running", FRAME("f") "," FRAME("main")) "," THREAD(
        "9", "running", FRAME("g") "," FRAME("main")) "]";
    static const char one[] = "[" THREAD("7", "waiting", FRAME("f") "," FRAME("main")) "," THREAD(
        "9", "running", FRAME("h") "," FRAME("main")) "]";
    now_ns = 0;
    add(&t, both, 0, 0); /* what they used before belongs to nobody */
    CHECK(own(&t, "f", &total) == 0 && t.samples == 0);
    add(&t, both, 40, 60); /* both wanted a processor all of the second */
    CHECK(own(&t, "f", &total) == 40 && total == 40);
    CHECK(own(&t, "g", &total) == 60 && total == 60);
    CHECK(own(&t, "main", &total) == 0 && total == 100);
    add(&t, one, 5, 30);
    CHECK(own(&t, "f", &total) == 40 && own(&t, "h", &total) == 30);
    add(&t, both, 10, 0); /* with what it used while it was seen waiting */
    CHECK(own(&t, "f", &total) == 55 && own(&t, "g", &total) == 60);
    tally_next(&t);
    CHECK(t.samples == 3 && t.span_ns == UINT64_C(3000000000));
    tally_done(&t);
}

/* All samples between two screens are shown on the second, not only its own one. */
TEST(a_span_has_all_its_samples)
{
    struct tally t = {.n = 0};
    const struct tally_function *f;
    static const char in_f[] = "[" THREAD("7", "running", FRAME("f")) "]";
    static const char in_g[] = "[" THREAD("7", "running", FRAME("g")) "]";
    add(&t, in_f, 0, 0);
    tally_next(&t);
    add(&t, in_f, 40, 0);
    add(&t, in_f, 40, 0);
    add(&t, in_g, 20, 0);
    tally_next(&t);
    CHECK(t.samples == 3 && t.span_ns == UINT64_C(3000000000));
    CHECK_INT(tally_sort(&t, &f), 2);
    CHECK(strcmp(f[0].name, "f") == 0 && f[0].own_ns == 80 && f[1].own_ns == 20);
    add(&t, in_g, 30, 0);
    tally_next(&t);
    CHECK_INT(tally_sort(&t, &f), 2);
    CHECK(strcmp(f[0].name, "g") == 0 && f[0].own_ns == 30 && f[1].own_ns == 0);
    CHECK(t.samples == 1 && t.span_ns == UINT64_C(1000000000) && f[1].all_own_ns == 80);
    tally_done(&t);
}

TEST(a_new_thread_gives_all_its_time)
{
    struct tally t = {.n = 0};
    struct arena a;
    struct json *list;
    uint64_t total;
    static const char stacks[] = "[" THREAD("9", "running", FRAME("g")) "]";
    const struct tally_thread first = {.tid = 7, .cpu_ns = 50};
    const struct tally_thread then[2] = {first, {.tid = 9, .cpu_ns = 20}};
    arena_init(&a, 1 << 20);
    CHECK(json_parse(&a, stacks, strlen(stacks), &list) == 0);
    tally_add(&t, list, &first, 1, 1000);
    CHECK(own(&t, "g", &total) == 0);
    tally_add(&t, list, then, 2, 2000);
    CHECK(own(&t, "g", &total) == 20);
    const struct tally_thread again = {.tid = 9, .cpu_ns = 5}; /* another thread of that number */
    tally_add(&t, list, &again, 1, 3000);
    CHECK(own(&t, "g", &total) == 25);
    arena_done(&a);
    tally_done(&t);
}

int main(void)
{
    RUN(own_times_are_processor_time);
    RUN(a_span_has_all_its_samples);
    RUN(a_new_thread_gives_all_its_time);
    return test_end();
}
