/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/bench/lua_bench.c - what a filter in Lua costs a row, and a host's step beside scripts.
 *
 * usage: lua_bench [rounds [settle s]]       5 and 10 by default
 *
 * First a Lua function that looks at one row and is called for each of a million: CPU time a row
 * (least and median of the rounds), and the same function's body in the loop itself.
 * Then a step as training does it: a thread on each core, equal work, a barrier.  Rounds without
 * and with four scripts that loop for ever take turns; shown are medians, 99 of 100, and their
 * ratios; and the part of a core that the scripts had, which other load does not change.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/text.h"
#include "core/guest/thread.h"
#include "tests/bench/bench.h"
#include "tests/script_world.h"

#define ROWS 1000000
#define ROUNDS_MAX 50
#define STEPS_MAX 200000
#define THREADS_MAX 64
#define LOOPS 4
#define TURNS 4000000 /* of a multiplication: some ms */
#define ROUND_NS (2 * NS_PER_S)

static pthread_barrier_t barrier;
static _Atomic int over;
static int n_threads;
static volatile uint64_t sink; /* so that the work is not left out */
static uint64_t settle_s = 10; /* till scripts have used what they may use at once */

static uint64_t read_clock(clockid_t which)
{
    struct timespec t;
    (void)clock_gettime(which, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    uint64_t x, y;
    memcpy(&x, a, sizeof(x));
    memcpy(&y, b, sizeof(y));
    return x < y ? -1 : x > y;
}

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, err_text());
    exit(1);
}

/* ---- a row ---- */

/* CPU time of the process while a script's lines run. */
static uint64_t cost_of(const char *source)
{
    uint64_t begin = read_clock(CLOCK_PROCESS_CPUTIME_ID);
    if (scripts_run_within(scripts, "row", source, strlen(source), 60 * NS_PER_S) < 0)
        fail("script");
    return read_clock(CLOCK_PROCESS_CPUTIME_ID) - begin;
}

/* against: the figure whose least is `base`; NULL: none.  Gives the least. */
static double show_row(const char *name, const char *source, int rounds, const char *against,
                       double base)
{
    uint64_t ns[ROUNDS_MAX];
    for (int i = 0; i < rounds; i++)
        ns[i] = cost_of(source);
    qsort(ns, (size_t)rounds, sizeof(ns[0]), by_size);
    double least = (double)ns[0] / ROWS, median = (double)ns[rounds / 2] / ROWS;
    if (against)
        bench_figure(name, "ns a row", "least=%.4g\tmedian=%.4g\tratio=%.4g\tagainst=%s", least,
                     median, least / base, against);
    else
        bench_figure(name, "ns a row", "least=%.4g\tmedian=%.4g", least, median);
    return least;
}

/* ---- a step ---- */

static void work(void)
{
    uint64_t x = sink;
    for (int i = 0; i < TURNS; i++)
        x = x * 6364136223846793005u + 1442695040888963407u;
    sink = x;
}

static void *helper(void *arg)
{
    (void)arg;
    for (;;) {
        (void)pthread_barrier_wait(&barrier);
        if (atomic_load_explicit(&over, memory_order_acquire))
            return NULL;
        work();
        (void)pthread_barrier_wait(&barrier);
    }
}

static size_t steps_for(uint64_t ns, uint64_t *took, size_t n)
{
    uint64_t end = clock_now() + ns;
    while (clock_now() < end && n < STEPS_MAX) {
        uint64_t begin = clock_now();
        (void)pthread_barrier_wait(&barrier);
        work();
        (void)pthread_barrier_wait(&barrier);
        took[n++] = clock_now() - begin;
    }
    return n;
}

static void loops(bool on)
{
    static const char text[] = "probing.every('10ms', function() while true do end end)";
    for (int i = 0; i < LOOPS; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "loop%d", i);
        int r =
            on ? scripts_run(scripts, name, text, sizeof(text) - 1) : scripts_stop(scripts, name);
        if (r < 0)
            fail(name);
    }
}

/* CPU time of all that is not the host's: scripts, and the core's own threads. */
static uint64_t ours(const pthread_t *threads)
{
    uint64_t rest = read_clock(CLOCK_PROCESS_CPUTIME_ID) - read_clock(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 1; i < n_threads; i++) {
        clockid_t clock;
        if (pthread_getcpuclockid(threads[i], &clock) == 0)
            rest -= read_clock(clock);
    }
    return rest;
}

static void show_steps(int rounds)
{
    static uint64_t took[2][STEPS_MAX];
    pthread_t threads[THREADS_MAX];
    size_t n[2] = {0, 0};
    double part = 0;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    n_threads = cores < 1 ? 1 : cores > THREADS_MAX ? THREADS_MAX : (int)cores;
    (void)pthread_barrier_init(&barrier, NULL, (unsigned)n_threads);
    for (int i = 1; i < n_threads; i++)
        if (pthread_create(&threads[i], NULL, helper, NULL))
            fail("thread");
    for (int i = 0; i < rounds; i++) {
        n[0] = steps_for(ROUND_NS, took[0], n[0]);
        loops(true);
        (void)steps_for(settle_s * NS_PER_S, took[1], n[1]); /* not counted */
        uint64_t begin = clock_now(), had = ours(threads);
        n[1] = steps_for(ROUND_NS, took[1], n[1]);
        part += (double)(ours(threads) - had) / (double)(clock_now() - begin) / rounds;
        loops(false);
    }
    atomic_store_explicit(&over, 1, memory_order_release);
    (void)pthread_barrier_wait(&barrier);
    for (int i = 1; i < n_threads; i++)
        (void)pthread_join(threads[i], NULL);
    double mean[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        char ratio[64] = "";
        qsort(took[i], n[i], sizeof(took[i][0]), by_size);
        for (size_t k = 0; k < n[i]; k++)
            mean[i] += (double)took[i][k] / (double)n[i] / 1e6;
        if (i)
            (void)snprintf(ratio, sizeof(ratio), "\tratio=%.4g\tagainst=step alone",
                           mean[1] / mean[0]);
        bench_figure(i ? "step beside 4 scripts that loop" : "step alone", "ms",
                     "mean=%.4g\tmedian=%.4g\tp99=%.4g\tsteps=%zu%s", mean[i],
                     (double)took[i][n[i] / 2] / 1e6, (double)took[i][n[i] * 99 / 100] / 1e6, n[i],
                     ratio);
    }
    bench_figure("the scripts", "% of a core", "mean=%.4g", 100 * part);
}

int main(int argc, char **argv)
{
    uint64_t rounds = 5;
    if ((argc > 1 && (parse_u64(argv[1], &rounds) < 0 || rounds < 1 || rounds > ROUNDS_MAX)) ||
        (argc > 2 && parse_u64(argv[2], &settle_s) < 0)) {
        fprintf(stderr, "usage: lua_bench [rounds [settle s]]\n");
        return 2;
    }
    if (world_begin() < 0)
        fail("world");
    double in_loop = show_row("a filter, in the loop",
                              "local n = 0\n"
                              "for i = 1, 1000000 do local ms = i * 0.001\n"
                              "  if ms > 20.5 and i % 10 == 0 then n = n + 1 end end",
                              (int)rounds, NULL, 0);
    (void)show_row("a filter, called",
                   "local function slow(step, ms) return ms > 20.5 and step % 10 == 0 end\n"
                   "local n = 0\n"
                   "for i = 1, 1000000 do if slow(i, i * 0.001) then n = n + 1 end end",
                   (int)rounds, "a filter, in the loop", in_loop);
    show_steps((int)rounds);
    world_end();
    return 0;
}
