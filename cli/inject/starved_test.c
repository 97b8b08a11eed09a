/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/inject/starved_test.c - who waits for a processor, by what the kernel says look after look.
 *
 * The texts are those of a process in a cgroup with a thousandth of a processor.
 */
#include "cli/inject/starved.c"
#include "tests/test.h"

#define HALF_S (500 * NS_PER_MS)

struct look {
    char state;
    const char *schedstat;
};

/* Give the count after these looks at one thread, each half a second after the one before. */
static uint64_t counted(const struct look *looks, size_t n)
{
    struct starved s;
    starved_begin(&s, 1, /* only= */ 0, /* from_birth= */ true);
    for (size_t i = 0; i < n; i++) {
        struct proc_schedstat has;
        if (proc_schedstat_parse(looks[i].schedstat, &has) == 0)
            starved_take(&s, 7, looks[i].state, &has, NS_PER_S + i * HALF_S);
    }
    return starved_ns(&s);
}
#define COUNTED(...)                            \
    counted((const struct look[]){__VA_ARGS__}, \
            sizeof((const struct look[]){__VA_ARGS__}) / sizeof(struct look))

TEST(a_wait_that_goes_on_is_counted)
{
    CHECK_INT(COUNTED({'R', "135504 4360917 2\n"}, {'R', "167440 1007665000 4\n"},
                      {'R', "167440 1007665000 4\n"}, {'R', "167440 1007665000 4\n"},
                      {'R', "167440 1007665000 4\n"}, {'R', "167440 1007665000 4\n"},
                      {'R', "167440 1007665000 4\n"}, {'R', "167440 1007665000 4\n"}),
              1007665000 + 6 * HALF_S);
}

TEST(who_never_ran_waits)
{
    CHECK_INT(COUNTED({'R', "0 0 0\n"}, {'R', "0 0 0\n"}, {'R', "0 0 0\n"}), 2 * HALF_S);
}

TEST(a_wait_that_has_ended_is_counted_once)
{
    CHECK_INT(COUNTED({'R', "855646 54525 5\n"}, {'R', "855646 54525 5\n"},
                      {'R', "855646 54525 5\n"}, {'R', "1288758 983878775 7\n"}),
              983878775);
    CHECK_INT(COUNTED({'R', "855646 54525 5\n"}, {'R', "855646 54525 5\n"},
                      {'S', "10044336 983878775 116\n"}, {'S', "10044336 983878775 116\n"}),
              983878775);
}

TEST(who_sleeps_or_runs_waits_for_nothing)
{
    CHECK_INT(COUNTED({'S', "40099 0 2\n"}, {'S', "40099 0 2\n"}, {'S', "40099 0 2\n"}), 0);
    CHECK_INT(COUNTED({'D', "40099 0 2\n"}, {'D', "40099 0 2\n"}), 0);
    CHECK_INT(COUNTED({'R', "40099 0 2\n"}, {'R', "500040099 0 2\n"}, {'R', "900040099 0 2\n"}), 0);
}

TEST(a_number_that_another_thread_has_now)
{
    CHECK_INT(COUNTED({'S', "900 5000 2\n"}, {'S', "100 70 1\n"}), 5070);
}

TEST(who_has_ended_waits_no_longer)
{
    CHECK_INT(COUNTED({'R', "900 0 1\n"}, {'R', "900 0 1\n"}, {'R', ""}, {'R', ""}), HALF_S);
}

TEST(what_is_no_text_of_the_kernel_is_nothing)
{
    CHECK_INT(COUNTED({'R', ""}, {'R', ""}), 0);
    CHECK_INT(COUNTED({'R', "x 5 1\n"}, {'R', "5"}, {'R', "5 \n"}, {'R', "-1 -1 0\n"}), 0);
}

TEST(more_threads_than_there_is_room_for)
{
    struct starved s;
    starved_begin(&s, 1, /* only= */ 0, /* from_birth= */ true);
    for (pid_t tid = 1; tid <= 2 * STARVED_THREADS; tid++)
        starved_take(&s, tid, 'S', &(struct proc_schedstat){1, 1}, NS_PER_S);
    CHECK_INT(starved_ns(&s), STARVED_THREADS);
}

int main(void)
{
    RUN(a_wait_that_goes_on_is_counted);
    RUN(who_never_ran_waits);
    RUN(a_wait_that_has_ended_is_counted_once);
    RUN(who_sleeps_or_runs_waits_for_nothing);
    RUN(a_number_that_another_thread_has_now);
    RUN(who_has_ended_waits_no_longer);
    RUN(what_is_no_text_of_the_kernel_is_nothing);
    RUN(more_threads_than_there_is_room_for);
    return test_end();
}
