/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/bench/polite_bench.c - what a host's step takes while heavy queries run all the time.
 *
 * usage: polite_bench [seconds for each part]         5 by default
 *
 * A thread does steps of equal work (a few ms over 4 MiB); beside it a client asks for a group by
 * over two million rows without pause.  Both are kept on one core, where a step can only grow by
 * the share of the core that the queries get: with the same priority one half, with query.nice=10
 * about a tenth; then on two cores.  Shown: a step's time by the clock (median, 99 of 100), the
 * CPU time it used (median: what caches and memory cost it), the share that the queries had of the
 * CPU time of both, the median that this share explains, and queries answered in a second.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/ring/ring.h"
#include "core/sql/sql.h"
#include "core/store/store.h"
#include "tests/bench/bench.h"

#define ROWS 2000000
#define WORDS (4u << 20 >> 3) /* what a step goes over */
#define STEPS_MAX 100000

static struct store *store;
static struct sql *engine;
static struct table *table;
static uint64_t work[WORDS];
static _Atomic int over;
static uint64_t answered; /* by the client, read when it has ended */

static uint64_t read_clock(clockid_t which)
{
    struct timespec t;
    (void)clock_gettime(which, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static int fill(void)
{
    for (uint64_t i = 0; i < ROWS; i++) {
        union probing_cell c[3] = {{.i = (int64_t)(i / 400)},
                                   {.i = (int64_t)(i % 400)},
                                   {.f = (double)(i * 7919 % 100003) * 1e-7}};
        int rc;
        while ((rc = ring_append(table, NS_PER_S + i * 1000, c, 3, NULL, 0)) == -ENOSPC)
            if ((rc = store_drain(store)) < 0)
                return rc;
    }
    return store_drain(store);
}

static void keep_on(const cpu_set_t *cores)
{
    (void)sched_setaffinity(0, sizeof(*cores), cores);
}

static void *ask(void *arg)
{
    static const char text[] = "select module, count(*), avg(duration), median(duration) from "
                               "bench.steps where step > 10 group by module order by 3 desc";
    struct sql_options o = {.cancel = &over};
    struct sql_sink nothing = {.arg = NULL};
    struct sql_report report;
    keep_on(arg);
    answered = 0;
    while (sql_run(engine, text, strlen(text), &o, &nothing, &report) == 0)
        answered++;
    return NULL;
}

static uint64_t step(uint64_t seed)
{
    for (int k = 0; k < 4; k++)
        for (uint32_t i = 0; i < WORDS; i++) {
            seed = (seed ^ work[i]) * UINT64_C(0x9e3779b97f4a7c15);
            work[i] += seed >> 60;
        }
    return seed;
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Steps for so long; the client, when there is one, on the same cores. */
static int measure(const char *name, uint64_t seconds, const cpu_set_t *cores, int nice)
{
    static uint64_t clock_ns[STEPS_MAX], cpu_ns[STEPS_MAX];
    pthread_t client;
    struct rusage before, after;
    uint32_t n = 0;
    uint64_t seed = 1;
    keep_on(cores);
    atomic_store_explicit(&over, 0, memory_order_relaxed);
    sql_configure(engine, SQL_SET_NICE, nice < 0 ? 0 : (uint64_t)nice);
    if (nice >= 0 && pthread_create(&client, NULL, ask, (void *)(uintptr_t)cores) != 0)
        return err_set(-EAGAIN, "no thread");
    uint64_t begin = clock_monotonic(), own = read_clock(CLOCK_THREAD_CPUTIME_ID);
    (void)getrusage(RUSAGE_SELF, &before);
    while (clock_monotonic() - begin < seconds * NS_PER_S && n < STEPS_MAX) {
        uint64_t at = clock_monotonic(), cpu = read_clock(CLOCK_THREAD_CPUTIME_ID);
        seed = step(seed);
        clock_ns[n] = clock_monotonic() - at;
        cpu_ns[n++] = read_clock(CLOCK_THREAD_CPUTIME_ID) - cpu;
    }
    (void)getrusage(RUSAGE_SELF, &after);
    uint64_t whole = clock_monotonic() - begin;
    own = read_clock(CLOCK_THREAD_CPUTIME_ID) - own;
    atomic_store_explicit(&over, 1, memory_order_relaxed);
    if (nice >= 0)
        (void)pthread_join(client, NULL);
    qsort(clock_ns, n, sizeof(*clock_ns), by_size);
    qsort(cpu_ns, n, sizeof(*cpu_ns), by_size);
    double all = (double)(after.ru_utime.tv_sec - before.ru_utime.tv_sec + after.ru_stime.tv_sec -
                          before.ru_stime.tv_sec) *
                     1e9 +
                 (double)(after.ru_utime.tv_usec - before.ru_utime.tv_usec +
                          after.ru_stime.tv_usec - before.ru_stime.tv_usec) *
                     1e3;
    double share = (all - (double)own) / all; /* of what both got of the core */
    bool same = CPU_COUNT(cores) == 1;
    static double alone; /* ms, of the last part without queries */
    alone = nice < 0 ? (double)clock_ns[n / 2] / 1e6 : alone;
    char compared[96] = "";
    if (nice >= 0)
        (void)snprintf(compared, sizeof(compared),
                       "\texplained=%.4g\tquery_share_percent=%.4g\tratio=%.4g\tagainst=%s",
                       alone / (same ? 1 - share : 1), 100 * share,
                       (double)clock_ns[n / 2] / 1e6 / alone,
                       same ? "one core, alone" : "two cores, alone");
    bench_figure(name, "ms a step", "median=%.4g\tp99=%.4g\tcpu=%.4g\tanswers_a_second=%.4g%s",
                 (double)clock_ns[n / 2] / 1e6, (double)clock_ns[n * 99 / 100] / 1e6,
                 (double)cpu_ns[n / 2] / 1e6, (double)answered * 1e9 / (double)whole, compared);
    answered = 0;
    return seed == 0 ? err_set(-EINVAL, "the work was for nothing") : 0;
}

static int measure_all(uint64_t seconds)
{
    cpu_set_t one, two;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    two = one;
    CPU_SET(1, &two);
    int rc = measure("one core, alone", seconds, &one, -1);
    rc = rc ? rc : measure("one core, nice 0", seconds, &one, 0);
    rc = rc ? rc : measure("one core, nice 10", seconds, &one, 10);
    rc = rc ? rc : measure("two cores, alone", seconds, &two, -1);
    return rc ? rc : measure("two cores, nice 10", seconds, &two, 10);
}

int main(int argc, char **argv)
{
    static const struct probing_column columns[] = {{.name = "step", .type = PROBING_I64},
                                                    {.name = "module", .type = PROBING_I64},
                                                    {.name = "duration", .type = PROBING_F64}};
    static const struct probing_table_desc desc = {.size = sizeof(desc),
                                                   .column_size = sizeof(*columns),
                                                   .name = "bench.steps",
                                                   .doc = "",
                                                   .columns = columns,
                                                   .n_columns = 3};
    char directory[] = "/tmp/probing-bench-XXXXXX";
    struct tables *tables;
    uint64_t seconds = 5;
    if (argc > 1 && parse_u64(argv[1], &seconds) < 0)
        return 2;
    if (!mkdtemp(directory))
        return 1;
    struct store_options o = {.directory = directory, .max_bytes = UINT64_C(1) << 30};
    int rc = tables_new(&tables);
    rc = rc ? rc : store_create(&o, tables, &store);
    rc = rc ? rc : store_table_add(store, "bench", &desc, NULL, &table);
    rc = rc ? rc : sql_new(tables, store, &engine);
    rc = rc ? rc : fill();
    rc = rc ? rc : measure_all(seconds);
    if (rc < 0)
        printf("# %s\n", err_text());
    sql_free(engine);
    store_free(store);
    tables_free(tables);
    (void)file_remove_dir(directory);
    return rc < 0;
}
