/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/bench/append_bench.c - what a row costs: to append, to drain, to keep, to scan.
 *
 * usage: append_bench [million rows]
 *
 * Appending is timed in bursts that fit in a ring, wall clock, median of all bursts, so that a
 * thread that lost its core for a moment does not count.  Draining is timed by the CPU time of the
 * drain's thread, with a producer that never lets it rest.  Rows are like those of
 * python.torch_trace, made by a fixed generator: 100 modules, forward and backward, durations with
 * 8 % noise.  It is no test: it prints, and fails only when it cannot run.
 */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/store/store.h"

#define BURST 4096 /* rows: about a third of a ring */
#define BURSTS 400
#define MODULES 100
#define MADE (1 << 20) /* rows made beforehand and used over and over */

struct made_row {
    uint64_t ns; /* after the row before */
    union probing_cell cells[5];
};

static struct table *table;
static struct made_row *made;
static uint64_t seed = UINT64_C(88172645463325252);

static uint64_t next_random(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static double uniform(void)
{
    return (double)(next_random() >> 11) * (1.0 / 9007199254740992.0);
}

static double normal(void)
{
    double u = uniform() + 1e-12, v = uniform();
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

static int make_rows(struct interns *names)
{
    double base[MODULES];
    uint64_t module[MODULES], stage[3];
    int64_t size[MODULES], allocated = (int64_t)2 << 30;
    char name[32];
    made = malloc(sizeof(*made) * MADE);
    if (!made)
        return -ENOMEM;
    for (int m = 0; m < MODULES; m++) {
        base[m] = 20000 + uniform() * 400000;
        size[m] = (int64_t)(1 + uniform() * 4000) * 512;
        int n = snprintf(name, sizeof(name), "layers.%d.attention", m);
        if (intern(names, name, (size_t)n, &module[m]) != 0)
            return -ENOSPC;
    }
    for (int i = 0; i < 3; i++) {
        if (intern(names, (const char *[]){"forward", "backward", "step"}[i], 4, &stage[i]) != 0)
            return -ENOSPC;
    }
    for (uint32_t i = 0; i < MADE; i++) {
        uint32_t k = i % (2 * MODULES + 1);
        uint32_t m = k < MODULES ? k : k < 2 * MODULES ? 2 * MODULES - 1 - k : 0;
        uint32_t st = k < MODULES ? 0 : k < 2 * MODULES ? 1 : 2;
        double d = base[m] * (st == 1 ? 2 : 1) * (1 + 0.08 * normal());
        int64_t ns = d < 1000 ? 1000 : (int64_t)d;
        allocated += st == 0 ? size[m] : st == 1 ? -size[m] : 0;
        int64_t jitter = (next_random() & 15) == 0 ? (int64_t)(uniform() * 64) * 512 : 0;
        made[i].ns = (uint64_t)ns + 4000 + (uint64_t)(uniform() * 8000);
        made[i].cells[0].i = i / (2 * MODULES + 1);
        made[i].cells[1].u = module[m];
        made[i].cells[2].u = stage[st];
        made[i].cells[3].i = allocated + jitter;
        made[i].cells[4].f = (double)ns * 1e-9;
    }
    return 0;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof(*v), compare);
    return v[n / 2];
}

struct job {
    int what; /* 0 append with clock_now(), 1 without a clock, 2 clock_now(), 3 rdtsc, 4 kernel */
    double ns;
    uint64_t refused;
};

static uint64_t one_burst(int what)
{
    uint64_t refused = 0, sum = 0, ts = what == 1 ? clock_now() : 0;
    union probing_cell cells[6] = {{.i = 1}, {.i = 2}, {.i = 3}, {.i = 4}, {.f = 5}, {.i = 6}};
    for (int i = 0; i < BURST; i++) {
        cells[0].i = i;
        switch (what) {
        case 0:
            refused += ring_append(table, clock_now(), cells, 6, NULL, 0) != 0;
            break;
        case 1:
            refused += ring_append(table, ts, cells, 6, NULL, 0) != 0;
            break;
        case 2:
            sum += clock_now();
            break;
        case 3:
#if defined(__x86_64__)
            sum += __rdtsc();
#endif
            break;
        case 4:
            sum += clock_monotonic();
            break;
        }
    }
    return refused + (sum == 1);
}

static void *run_job(void *arg)
{
    struct job *job = arg;
    double ns[BURSTS];
    struct timespec rest = {.tv_nsec = 2 * (int32_t)NS_PER_MS};
    for (int i = 0; i < BURSTS; i++) {
        uint64_t start = clock_monotonic();
        job->refused += one_burst(job->what);
        ns[i] = (double)(clock_monotonic() - start) / BURST;
        if (job->what < 2)
            (void)nanosleep(&rest, NULL); /* the drain's turn: full rings are not what is timed */
    }
    job->ns = median(ns, BURSTS);
    return NULL;
}

/* ns a call when n threads do it at once; mean of the threads' medians. */
static double run_jobs(int what, int n, uint64_t *refused)
{
    struct job jobs[16] = {{0}};
    pthread_t threads[16];
    double sum = 0;
    for (int i = 0; i < n; i++) {
        jobs[i].what = what;
        if (pthread_create(&threads[i], NULL, run_job, &jobs[i]) != 0)
            return NAN;
    }
    for (int i = 0; i < n; i++) {
        (void)pthread_join(threads[i], NULL);
        sum += jobs[i].ns;
        *refused += jobs[i].refused;
    }
    return sum / n;
}

/* CPU seconds that the thread "probing/drain" has used. */
static double drain_seconds(void)
{
    char path[64], text[256];
    double seconds = 0;
    DIR *dir = opendir("/proc/self/task");
    for (struct dirent *e; dir && (e = readdir(dir));) {
        (void)snprintf(path, sizeof(path), "/proc/self/task/%.20s/comm", e->d_name);
        FILE *f = fopen(path, "r");
        bool ours = f && fgets(text, sizeof(text), f) && strncmp(text, "probing/drain", 13) == 0;
        if (f)
            (void)fclose(f);
        (void)snprintf(path, sizeof(path), "/proc/self/task/%.20s/schedstat", e->d_name);
        f = ours ? fopen(path, "r") : NULL;
        if (f && fgets(text, sizeof(text), f))
            seconds = (double)strtoull(text, NULL, 10) * 1e-9;
        if (f)
            (void)fclose(f);
    }
    if (dir)
        (void)closedir(dir);
    return seconds;
}

static void run_drain(struct store *store, uint64_t rows)
{
    struct store_table_stats before, after;
    struct timespec rest = {.tv_nsec = 20000};
    uint64_t ts = clock_now();
    (void)store_drain(store);
    (void)store_stats(store, table, &before);
    double cpu = drain_seconds();
    uint64_t start = clock_monotonic();
    for (uint64_t i = 0; i < rows; i++) {
        const struct made_row *r = &made[i % MADE];
        ts += r->ns;
        while (ring_append(table, ts, r->cells, 5, NULL, 0) == -ENOSPC)
            (void)nanosleep(&rest, NULL);
    }
    (void)store_drain(store);
    double wall = (double)(clock_monotonic() - start) * 1e-9;
    cpu = drain_seconds() - cpu;
    (void)store_stats(store, table, &after);
    double kept = (double)(after.rows - before.rows);
    printf("drain             %6.1f M rows/s of its CPU time, %.1f M rows/s by the wall clock\n",
           kept / cpu * 1e-6, kept / wall * 1e-6);
    printf("store             %6.2f bytes a row (33 raw), %llu segments, %.0f rows\n",
           (double)(after.bytes - before.bytes) / kept,
           (unsigned long long)(after.segments - before.segments), kept);
}

static void run_scan(struct store *store)
{
    struct store_scan *scan;
    struct store_batch batch;
    struct store_scan_options o = {.columns = {0x7d, 0}}; /* all but tid */
    uint64_t rows = 0, start = clock_monotonic();
    if (store_scan_new(store, table, &o, &scan) != 0)
        return;
    while (store_scan_next(scan, &batch) == 1)
        rows += batch.n_rows;
    double seconds = (double)(clock_monotonic() - start) * 1e-9;
    store_scan_free(scan);
    printf("scan, six columns %6.1f M rows/s\n", (double)rows / seconds * 1e-6);
}

static const struct probing_column columns[] = {
    {.name = "step", .type = PROBING_I64},     {.name = "module", .type = PROBING_STR},
    {.name = "stage", .type = PROBING_STR},    {.name = "allocated", .type = PROBING_I64},
    {.name = "duration", .type = PROBING_F64},
};
static const struct probing_column six[] = {
    {.name = "a", .type = PROBING_I64}, {.name = "b", .type = PROBING_I64},
    {.name = "c", .type = PROBING_I64}, {.name = "d", .type = PROBING_I64},
    {.name = "e", .type = PROBING_F64}, {.name = "f", .type = PROBING_I64},
};

static int add_table(struct store *store, const char *name, const struct probing_column *c,
                     uint32_t n)
{
    struct probing_table_desc d = {
        .size = sizeof(d), .column_size = sizeof(*c), .name = name, .columns = c, .n_columns = n};
    return store_table_add(store, "bench", &d, NULL, &table);
}

static void run_all(struct store *store, uint64_t rows)
{
    uint64_t refused = 0;
    /* The drain's thread needs a moment to calibrate the clock. */
    struct timespec moment = {.tv_nsec = 600 * (int32_t)NS_PER_MS};
    (void)nanosleep(&moment, NULL);
    double tsc = run_jobs(3, 1, &refused), kernel = run_jobs(4, 1, &refused);
    printf("rdtsc             %6.1f ns\nclock_gettime     %6.1f ns\nclock_now         %6.1f ns\n",
           tsc, kernel, run_jobs(2, 1, &refused));
    refused = 0;
    printf("append, no clock  %6.1f ns\n", run_jobs(1, 1, &refused));
    for (int n = 1; n <= 8; n *= 2) {
        double ns = run_jobs(0, n, &refused);
        printf("append, %d thread%s %6.1f ns   %.2f of rdtsc, %.2f of clock_gettime\n", n,
               n == 1 ? " " : "s", ns, ns / tsc, ns / kernel);
    }
    printf("                  %llu of %d rows refused\n", (unsigned long long)refused,
           BURST * BURSTS * 16);
    if (add_table(store, "torch_trace", columns, 5) == 0 && make_rows(store_interns(store)) == 0) {
        run_drain(store, rows);
        run_scan(store);
    }
    free(made);
}

int main(int argc, char **argv)
{
    char directory[] = "/dev/shm/probing-bench-XXXXXX";
    uint64_t rows = (argc > 1 ? strtoull(argv[1], NULL, 10) : 10) * 1000000;
    struct tables *tables;
    struct store *store;
    struct store_options o = {.directory = directory, .max_bytes = UINT64_C(1) << 30};
    if (!mkdtemp(directory) || tables_new(&tables) != 0)
        return 1;
    int rc = store_create(&o, tables, &store);
    if (rc == 0) {
        rc = add_table(store, "six", six, 6);
        if (rc == 0)
            run_all(store, rows);
        store_free(store);
    }
    if (rc)
        printf("%s\n", err_why(rc));
    tables_free(tables);
    (void)file_remove_dir(directory);
    return rc ? 1 : 0;
}
