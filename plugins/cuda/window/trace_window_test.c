/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/window/trace_window_test.c - rates of calls in, windows out: what a share allows is
 * never exceeded, and what can be traced is.
 *
 * No clock: each case says what time it is.
 */
#include "window/trace_window.h"

#include <string.h>

#include "tests/test.h"
#include "window/charge.h"
#include "window/spare_time.h"

#define S UINT64_C(1000000000)
#define LOOK_NS (S / 5)

struct run {
    struct window w;
    uint64_t now_ns, begin_ns, next_ns; /* next: when the one after this begins; 0: it is open */
    double idle, late;
    double cost_ns, traced_ns;
    uint64_t windows, first_ns, last_ns; /* how long the first and the last have been */
};

static struct run begin(double share)
{
    struct run r = {.now_ns = 1000 * S, .begin_ns = 1000 * S, .idle = 1, .late = 1};
    const struct window_rule rule = {.share = share};
    (void)window_set(&r.w, &rule, r.now_ns);
    window_open(&r.w, r.now_ns);
    return r;
}

static void close(struct run *r)
{
    r->last_ns = r->now_ns - r->w.begun_ns;
    r->first_ns = r->windows++ ? r->first_ns : r->last_ns;
    r->next_ns = window_close(&r->w, r->now_ns);
}

/* So long, with so many calls a second. */
static void run(struct run *r, uint64_t ns, double calls, uint64_t look_ns)
{
    for (uint64_t until_ns = r->now_ns + ns; r->now_ns < until_ns;) {
        if (r->next_ns) {
            r->now_ns = r->next_ns < until_ns ? r->next_ns : until_ns;
            if (r->now_ns == r->next_ns) {
                window_open(&r->w, r->now_ns);
                r->next_ns = 0;
            }
            continue;
        }
        r->now_ns += look_ns;
        struct window_seen seen = {
            .calls = (uint64_t)(calls * (double)look_ns / S), .idle = r->idle, .late = r->late};
        double cost_ns = (double)seen.calls * WINDOW_CALL_NS;
        r->cost_ns += cost_ns < (double)look_ns ? cost_ns : (double)look_ns;
        r->traced_ns += (double)look_ns;
        if (window_look(&r->w, r->now_ns, &seen))
            close(r);
    }
}

static double passed(const struct run *r)
{
    return (double)(r->now_ns - r->begin_ns);
}

TEST(what_costs_less_than_the_share_is_traced_all_the_time)
{
    struct run r = begin(0.02);
    run(&r, 3600 * S, 2400, LOOK_NS);
    CHECK_INT(r.windows, 0);
    char words[200];
    window_words(&r.w, words, sizeof(words));
    CHECK_STR(words, "");
}

TEST(a_heavy_program_is_judged_at_once_and_then_seen_for_two_seconds_at_a_time)
{
    struct run r = begin(0.02);
    char words[300];
    run(&r, 2 * S, 82000, LOOK_NS);
    CHECK_INT(r.windows, 1);
    CHECK_INT(r.first_ns, LOOK_NS);
    run(&r, 600 * S, 82000, LOOK_NS);
    CHECK_INT(r.last_ns, 2 * S);
    /* The pause that pays for the last one has hardly begun. */
    CHECK(r.cost_ns / passed(&r) < 0.025 && r.cost_ns / passed(&r) > 0.018);
    window_words(&r.w, words, sizeof(words));
    CHECK_STR(words, "it traces for 2 s of every 66 s: 82,000 calls a second would cost up to 66 % "
                     "of the time (cuda.window=2%); cuda.window=always traces all the time");
}

TEST(it_adapts)
{
    struct run r = begin(0.02);
    run(&r, 3600 * S, 10, LOOK_NS);
    CHECK_INT(r.windows, 0);
    uint64_t change_ns = r.now_ns;
    run(&r, S, 100000, LOOK_NS);
    CHECK(r.windows == 1 && r.w.begun_ns + r.last_ns <= change_ns + S / 2);
    run(&r, 300 * S, 100000, LOOK_NS);
    uint64_t windows = r.windows;
    double traced_ns = r.traced_ns;
    run(&r, 600 * S, 100, LOOK_NS);
    CHECK(r.windows <= windows + 1 && r.traced_ns - traced_ns > 540.0 * S);
    char words[200];
    window_words(&r.w, words, sizeof(words));
    CHECK_STR(words, "");
}

TEST(a_pause_is_an_hour_at_most_and_says_so)
{
    struct run r = begin(WINDOW_SHARE_LEAST);
    char words[400];
    run(&r, 10 * S, 1e9, LOOK_NS);
    CHECK(r.next_ns && r.next_ns - r.now_ns < WINDOW_PAUSE_MOST_NS);
    struct window_seen seen = {.calls = UINT64_MAX / 8192, .idle = 1, .late = 1};
    window_open(&r.w, r.next_ns);
    uint64_t late_ns = r.next_ns + 60 * S; /* the machine was starved: so long nobody looked */
    CHECK(window_look(&r.w, late_ns, &seen));
    CHECK_INT(window_close(&r.w, late_ns) - late_ns, WINDOW_PAUSE_MOST_NS);
    window_words(&r.w, words, sizeof(words));
    CHECK(strstr(words, "and more than that, as a pause is an hour at most") != NULL);
}

TEST(time_that_the_device_fills_costs_nothing)
{
    struct run r = begin(0.02);
    r.idle = 0.01;
    r.late = 0.001;
    run(&r, 60 * S, 80000, LOOK_NS);
    CHECK_INT(r.windows, 0);
    r.late = 0.5; /* half of it had not been queued: somebody waits for each of his */
    run(&r, 60 * S, 80000, LOOK_NS);
    CHECK(r.windows > 0);
}

TEST(other_rules)
{
    struct run r = begin(0);
    run(&r, 100 * S, 1e6, LOOK_NS);
    CHECK_INT(r.windows, 0);
    const struct window_rule rule = {.window_ns = 2 * S, .period_ns = 20 * S};
    CHECK(window_set(&r.w, &rule, r.now_ns));
    CHECK(!window_set(&r.w, &rule, r.now_ns));
    window_open(&r.w, r.now_ns);
    run(&r, 200 * S, 1e6, LOOK_NS);
    CHECK_INT(r.windows, 10);
    CHECK_INT(r.last_ns, 2 * S);
}

static uint64_t random_of(uint64_t *state, uint64_t n)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*state >> 33) % n;
}

/* Whatever a program does, and however late one looks. */
TEST(the_share_is_never_exceeded)
{
    static const double shares[] = {WINDOW_SHARE_LEAST, 0.005, 0.02, 0.1, WINDOW_SHARE_MOST};
    static const double rates[] = {0, 100, 3000, 4100, 10000, 50000, 100000, 1e6};
    double most = 0;
    for (uint64_t seed = 0; seed < 500; seed++) {
        uint64_t state = seed;
        double share = shares[random_of(&state, 5)], worst = 0;
        struct run r = begin(share);
        for (int i = 0; i < 200; i++) {
            uint64_t look_ns = LOOK_NS / 2 + random_of(&state, LOOK_NS);
            run(&r, random_of(&state, 20 * S), rates[random_of(&state, 8)], look_ns);
            if (random_of(&state, 20) == 0 && !r.next_ns) { /* by hand, and on again */
                close(&r);
                r.next_ns = r.now_ns + random_of(&state, S) + 1;
            }
            double over = r.cost_ns - share * passed(&r);
            worst = over > worst ? over : worst;
        }
        /* One long window more at the most, and that is paid for afterwards. */
        most = worst > most ? worst : most;
        if (!CHECK(worst <= (double)(WINDOW_LONG_NS + 3 * LOOK_NS)))
            return;
        run(&r, 2 * WINDOW_PAUSE_MOST_NS, 1000000, LOOK_NS);
        while (!r.next_ns)
            run(&r, LOOK_NS, 1000000, LOOK_NS);
        run(&r, r.next_ns - r.now_ns, 0, LOOK_NS);
        if (!CHECK(r.cost_ns <= share * passed(&r) * 1.000001))
            return;
    }
    CHECK(most > (double)WINDOW_LONG_NS / 2); /* else they were too quiet to say much */
}

TEST(calls_are_counted_once)
{
    static struct charge c;
    struct record runtime = {.kind = CUPTI_RUNTIME, .correlation = 7};
    struct record driver = {.kind = CUPTI_DRIVER, .correlation = 7};
    struct record kernel = {.kind = CUPTI_CONCURRENT_KERNEL, .correlation = 7};
    charge_record(&c, &driver);
    charge_record(&c, &runtime);
    charge_record(&c, &kernel);
    CHECK_INT(charge_take(&c), 1);
    kernel.kernel.graph = 3; /* each node has a record, and one call has launched them all */
    charge_record(&c, &kernel);
    charge_record(&c, &kernel);
    runtime.correlation = 0;
    charge_record(&c, &runtime);
    charge_record(&c, &runtime);
    CHECK_INT(charge_take(&c), 4);
    CHECK_INT(charge_take(&c), 0);
}

/* Kernels of 90 us, one each 100 us; queued_ns after their launch. */
static void kernels(struct spare_time *s, uint64_t from_ns, uint64_t until_ns, uint64_t queued_ns,
                    bool collective)
{
    for (uint64_t at = from_ns; at < until_ns; at += 100000)
        spare_worked(s, 0, at, at + 90000, at - queued_ns, collective);
}

TEST(what_a_device_leaves_to_spare)
{
    static struct spare_time s;
    double idle, late;
    spare_begin(&s, 10 * S);
    spare_look(&s, 10 * S + LOOK_NS, &idle, &late);
    CHECK(idle >= 1 && late >= 1); /* nothing is known */
    for (uint64_t at = 10 * S; at < 15 * S; at += LOOK_NS) {
        kernels(&s, at, at + LOOK_NS, 1000000, false);
        spare_look(&s, at + 2 * LOOK_NS, &idle, &late); /* it comes as late as that */
    }
    CHECK(idle > 0.09 && idle < 0.11 && late <= 0);
    for (uint64_t at = 15 * S; at < 20 * S; at += LOOK_NS) {
        kernels(&s, at, at + LOOK_NS, 10000, true); /* they may wait for somebody */
        spare_look(&s, at + 2 * LOOK_NS, &idle, &late);
    }
    CHECK(idle > 0.9 && late >= 1);
    spare_worked(&s, 1, 20 * S, 20 * S + 5, 0, false); /* another one, which has hardly worked */
    spare_look(&s, 25 * S, &idle, &late);
    CHECK(idle > 0.99);
}

int main(void)
{
    RUN(what_costs_less_than_the_share_is_traced_all_the_time);
    RUN(a_heavy_program_is_judged_at_once_and_then_seen_for_two_seconds_at_a_time);
    RUN(it_adapts);
    RUN(a_pause_is_an_hour_at_most_and_says_so);
    RUN(time_that_the_device_fills_costs_nothing);
    RUN(other_rules);
    RUN(the_share_is_never_exceeded);
    RUN(calls_are_counted_once);
    RUN(what_a_device_leaves_to_spare);
    return test_end();
}
