/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/bench/append_bench.c - what it costs a thread to append a row of six cells.
 *
 * usage: append_bench [bursts]         400 by default
 *
 * Timed in bursts that fit in a ring, by the wall clock, best and median of all bursts, so that a
 * thread that lost its core for a moment does not count.  Beside it, in the same run and the same
 * rhythm: the cycle counter and the kernel's clock alone, and a plain memcpy() of as many bytes
 * around as much memory.  It is no test: it prints, and fails only when it cannot run.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/store/store.h"
#include "tests/bench/bench.h"

#define BURST 4096 /* rows: a quarter of a ring */
#define BURSTS_MAX 400
#define ROW_BYTES 64 /* in the ring: word, ts, six cells */
#define THREADS_MAX 8

enum what { APPEND, APPEND_AT, CLOCK, COUNTER, KERNEL, COPY };

static struct table *table;
static uint64_t bursts = BURSTS_MAX;

struct job {
    enum what what;
    double best, median;
    uint64_t refused;
    uint8_t *memory; /* COPY: as large as a ring */
    uint32_t at;
};

static uint64_t counter(void)
{
#if defined(__x86_64__)
    return __rdtsc();
#else
    return clock_now();
#endif
}

static uint64_t one_burst(struct job *job)
{
    uint64_t refused = 0, sum = 0, ts = clock_now();
    union probing_cell cells[8] = {{.i = 1}, {.i = 2}, {.i = 3}, {.i = 4}, {.f = 5}, {.i = 6}};
    for (int i = 0; i < BURST; i++) {
        cells[0].i = i;
        switch (job->what) {
        case APPEND:
            refused += ring_append(table, clock_now(), cells, 6, NULL, 0) != 0;
            break;
        case APPEND_AT:
            refused += ring_append(table, ts, cells, 6, NULL, 0) != 0;
            break;
        case CLOCK:
            sum += clock_now();
            break;
        case COUNTER:
            sum += counter();
            break;
        case KERNEL:
            sum += clock_monotonic();
            break;
        case COPY:
            memcpy(job->memory + job->at, cells, ROW_BYTES);
            job->at = (job->at + ROW_BYTES) & (RING_BYTES - 1);
            __asm__ __volatile__("" : : "r"(job->memory) : "memory");
            break;
        }
    }
    return refused + (sum == 1);
}

static void *run_job(void *arg)
{
    struct job *job = arg;
    double ns[BURSTS_MAX];
    struct timespec rest = {.tv_nsec = 2 * (int32_t)NS_PER_MS};
    if (job->what == COPY && !(job->memory = calloc(1, RING_BYTES)))
        return NULL;
    for (uint64_t i = 0; i < bursts; i++) {
        uint64_t start = clock_monotonic();
        job->refused += one_burst(job);
        ns[i] = (double)(clock_monotonic() - start) / BURST;
        (void)nanosleep(&rest, NULL); /* the drain's turn: full rings are not what is timed */
    }
    job->median = bench_median(ns, (int)bursts);
    job->best = ns[0];
    free(job->memory);
    return NULL;
}

/* ns a call when n threads do it at once: the threads' mean. */
static struct job run_jobs(enum what what, int n)
{
    struct job jobs[THREADS_MAX] = {{0}}, all = {.what = what};
    pthread_t threads[THREADS_MAX];
    int made = 0;
    for (; made < n; made++) {
        jobs[made].what = what;
        if (pthread_create(&threads[made], NULL, run_job, &jobs[made]) != 0)
            break;
    }
    for (int i = 0; i < made; i++) {
        (void)pthread_join(threads[i], NULL);
        all.best += jobs[i].best / made;
        all.median += jobs[i].median / made;
        all.refused += jobs[i].refused;
    }
    return all;
}

/* against: the figure that this one is compared with, whose best is `base`; NULL: none. */
static double show(const char *what, enum what kind, int threads, const char *against, double base,
                   const char *goal)
{
    struct job job = run_jobs(kind, threads);
    if (against)
        bench_figure(what, "ns", "best=%.4g\tmedian=%.4g\tratio=%.4g\tagainst=%s%s%s", job.best,
                     job.median, job.best / base, against, goal[0] ? "\tgoal=" : "", goal);
    else
        bench_best(what, job.best, job.median, "ns", goal);
    if (job.refused)
        printf("# %s: %llu of %llu rows refused: a ring was full\n", what,
               (unsigned long long)job.refused,
               (unsigned long long)threads * BURST * (unsigned long long)bursts);
    return job.best;
}

static void run_all(void)
{
    char what[64];
    /* The drain's thread needs a moment to calibrate the clock. */
    struct timespec moment = {.tv_nsec = 600 * (int32_t)NS_PER_MS};
    (void)nanosleep(&moment, NULL);
    static const char counted[] = "cycle counter", copied[] = "memcpy of 64 bytes around 1 MiB",
                      one[] = "append with clock_now, 1 thread";
    double tsc = show(counted, COUNTER, 1, NULL, 0, "");
    (void)show("clock_gettime", KERNEL, 1, counted, tsc, "");
    (void)show("clock_now", CLOCK, 1, counted, tsc, "");
    double copy = show(copied, COPY, 1, NULL, 0, "");
    (void)show("append without a clock", APPEND_AT, 1, copied, copy, "");
    double least = show(one, APPEND, 1, copied, copy, "<= 15");
    for (int n = 2; n <= THREADS_MAX; n *= 2) {
        (void)snprintf(what, sizeof(what), "append with clock_now, %d threads", n);
        (void)show(what, APPEND, n, one, least, "as 1 thread");
    }
}

int main(int argc, char **argv)
{
    if (argc > 1 && (parse_u64(argv[1], &bursts) < 0 || bursts == 0 || bursts > BURSTS_MAX))
        return 2;
    char directory[] = "/dev/shm/probing-bench-XXXXXX";
    static const struct probing_column six[] = {
        {.name = "a", .type = PROBING_I64}, {.name = "b", .type = PROBING_I64},
        {.name = "c", .type = PROBING_I64}, {.name = "d", .type = PROBING_I64},
        {.name = "e", .type = PROBING_F64}, {.name = "f", .type = PROBING_I64},
    };
    struct probing_table_desc d = {.size = sizeof(d),
                                   .column_size = sizeof(six[0]),
                                   .name = "six",
                                   .columns = six,
                                   .n_columns = 6};
    struct tables *tables;
    struct store *store;
    struct store_options o = {.directory = directory, .max_bytes = UINT64_C(1) << 28};
    if (!mkdtemp(directory) || tables_new(&tables) != 0)
        return 1;
    int rc = store_create(&o, tables, &store);
    if (rc == 0) {
        rc = store_table_add(store, "bench", &d, NULL, &table);
        if (rc == 0)
            run_all();
        store_free(store);
    }
    if (rc)
        printf("%s\n", err_why(rc));
    tables_free(tables);
    (void)file_remove_dir(directory);
    return rc ? 1 : 0;
}
