/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/bench/store_bench.c - what it costs to take rows out of rings, keep them and read them.
 *
 * usage: store_bench [million rows [seconds of steady rows]]     20 and 5 by default
 *
 * Everything is measured several times, by CPU time where another program's turn must not count;
 * best and median are told.  It is no test: it prints, and fails only when it cannot run.
 */
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/store/store.h"
#include "tests/bench/bench.h"

#define RAW_BYTES 33    /* of a row of six columns: 8 + 4 + 4 + 8 + 8 + 1 */
#define ROUND 9000      /* rows: half a ring, when the drain is woken */
#define STEADY_S_MAX 60 /* seconds at 100,000 rows a second */

static struct table *table;
static struct bench_row *made;
static uint64_t next_row, ts, steady_s = 5;

static double cpu_seconds(clockid_t clock)
{
    struct timespec t = {0};
    (void)clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int append_some(uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct bench_row *r = &made[next_row++ % BENCH_MADE];
        ts += r->ns;
        if (ring_append(table, ts, r->cells, BENCH_CELLS, NULL, 0) != 0)
            return -ENOSPC;
    }
    return 0;
}

/* From ring to LMDB's file: this thread's CPU time in store_drain(), a million rows a sample. */
static void run_drain(struct store *store, uint64_t rows)
{
    double v[64];
    int n = 0;
    struct store_table_stats before, after;
    (void)store_stats(store, table, &before);
    for (; n < 64 && (uint64_t)n * 1000000 < rows; n++) {
        double cpu = 0;
        uint32_t done = 0;
        while (done < 1000000) {
            (void)append_some(ROUND);
            double start = cpu_seconds(CLOCK_THREAD_CPUTIME_ID);
            (void)store_drain(store);
            cpu += cpu_seconds(CLOCK_THREAD_CPUTIME_ID) - start;
            done += ROUND;
        }
        v[n] = cpu * 1e9 / done;
    }
    double median = bench_median(v, n);
    bench_best("ring to store, one core", 1e3 / v[0], 1e3 / median, "M rows/s", ">= 40");
    (void)store_stats(store, table, &after);
    double kept = (double)(after.rows - before.rows);
    double bytes = (double)(after.bytes - before.bytes) / kept;
    bench_figure("a row of six columns, raw", "bytes", "size=%d", RAW_BYTES);
    bench_figure("a row of six columns, stored", "bytes",
                 "size=%.4g\tratio=%.4g\tagainst=a row of six columns, raw\tgoal=<= 9", bytes,
                 bytes / RAW_BYTES);
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
        int ours = f && fgets(text, sizeof(text), f) && strncmp(text, "probing/drain", 13) == 0;
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

/* 100,000 rows a second, a hundred a millisecond: what the drain's own thread takes of a core. */
static void run_steady(void)
{
    double v[STEADY_S_MAX];
    struct timespec rest = {.tv_nsec = (int32_t)NS_PER_MS};
    for (uint64_t s = 0; s < steady_s; s++) {
        double cpu = drain_seconds();
        uint64_t begun = clock_monotonic();
        for (uint64_t now = begun, rows = 0; now - begun < NS_PER_S; now = clock_monotonic()) {
            uint64_t due = (now - begun) / 10000;
            (void)append_some((uint32_t)(due - rows));
            rows = due;
            (void)nanosleep(&rest, NULL);
        }
        v[s] = 100 * (drain_seconds() - cpu);
    }
    double median = bench_median(v, (int)steady_s);
    bench_best("drain at 100,000 rows/s", v[0], median, "% of a core", "<= 0.5");
}

static double copy_bandwidth(void)
{
    size_t n = (size_t)128 << 20;
    char *a = malloc(n), *b = malloc(n);
    double best = 0;
    for (int i = 0; i < 8 && a && b; i++) {
        memset(a, i, n);
        double start = cpu_seconds(CLOCK_THREAD_CPUTIME_ID);
        memcpy(b, a, n);
        double rate = (double)n / (cpu_seconds(CLOCK_THREAD_CPUTIME_ID) - start) * 1e-9;
        best = rate > best && i > 0 && b[i] == i ? rate : best;
    }
    free(a);
    free(b);
    return best;
}

static uint64_t scan_once(struct store *store, uint64_t columns, double *ret_seconds)
{
    struct store_scan *scan;
    struct store_batch batch;
    struct store_scan_options o = {.columns = {columns, 0}};
    uint64_t rows = 0;
    double start = cpu_seconds(CLOCK_THREAD_CPUTIME_ID);
    if (store_scan_new(store, table, &o, &scan) != 0)
        return 0;
    while (store_scan_next(scan, &batch) == 1)
        rows += batch.n_rows;
    store_scan_free(scan);
    *ret_seconds = cpu_seconds(CLOCK_THREAD_CPUTIME_ID) - start;
    return rows;
}

static void run_scan(struct store *store)
{
    static const struct {
        const char *what;
        uint64_t columns;
        int n;
    } scans[] = {{"scan of six columns", 0x7d, 6}, {"scan of two columns", 0x24, 2}};
    double bandwidth = copy_bandwidth();
    bench_figure("memcpy", "GB/s", "best=%.4g", bandwidth);
    for (int k = 0; k < 2; k++) {
        double v[7], gb[7];
        for (int i = 0; i < 7; i++) {
            double seconds = 1;
            uint64_t rows = scan_once(store, scans[k].columns, &seconds);
            v[i] = -(double)rows / seconds * 1e-6;
            gb[i] = -(double)rows * 8 * scans[k].n / seconds * 1e-9;
        }
        double median = bench_median(v, 7);
        char values[64];
        bench_best(scans[k].what, -v[0], -median, "M rows/s", "");
        (void)bench_median(gb, 7);
        (void)snprintf(values, sizeof(values), "%s, values", scans[k].what);
        bench_figure(values, "GB/s", "best=%.4g\tratio=%.4g\tagainst=memcpy", -gb[0],
                     -gb[0] / bandwidth);
    }
}

static int run_all(struct store *store, uint64_t rows)
{
    struct probing_table_desc d = {.size = sizeof(d),
                                   .column_size = sizeof(bench_columns[0]),
                                   .name = "torch_trace",
                                   .columns = bench_columns,
                                   .n_columns = BENCH_CELLS};
    int rc = store_table_add(store, "bench", &d, NULL, &table);
    made = rc ? NULL : bench_rows(store_interns(store));
    if (!made)
        return rc ? rc : -ENOMEM;
    ts = clock_now();
    run_drain(store, rows);
    run_scan(store);
    run_steady();
    free(made);
    return 0;
}

int main(int argc, char **argv)
{
    char directory[] = "/dev/shm/probing-bench-XXXXXX";
    uint64_t rows = (argc > 1 ? strtoull(argv[1], NULL, 10) : 20) * 1000000;
    struct tables *tables;
    struct store *store;
    struct store_options o = {.directory = directory, .max_bytes = UINT64_C(1) << 30};
    if (argc > 2 && (parse_u64(argv[2], &steady_s) < 0 || steady_s == 0 || steady_s > STEADY_S_MAX))
        return 2;
    if (!mkdtemp(directory) || tables_new(&tables) != 0)
        return 1;
    int rc = store_create(&o, tables, &store);
    if (rc == 0) {
        rc = run_all(store, rows);
        store_free(store);
    }
    if (rc)
        printf("%s\n", err_why(rc));
    tables_free(tables);
    (void)file_remove_dir(directory);
    return rc ? 1 : 0;
}
