/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/bench/sql_bench.c - what questions cost: SQL over stored rows, and a loop written by hand.
 *
 * usage: sql_bench [rows] [text of a name] [threads]    10,000,000 rows and 1 thread by default
 *
 * Row number i is made by arithmetic that other engines can repeat (sql_bench.py does), so that
 * their answers can be compared.  Every question is asked until 2 s have gone, 3 times at least.
 * The least CPU time of the thread counts, since the machine is not ours alone; where a query may
 * have more than one it is the time on the clock.  The answer follows its figure as
 * `# answer<TAB>name<TAB>answer`.  It is no test: it fails only when it cannot run.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/ring/ring.h"
#include "core/sql/sql.h"
#include "core/store/store.h"
#include "tests/bench/bench.h"

#define MODULES 201
#define STEPS 10000  /* rows of the small table */
#define SOME 1000000 /* rows of the questions that keep rows */
#define BASE_NS UINT64_C(1000000000)
#define STEP_NS 1000

static struct store *store;
static struct sql *engine;
static struct table *trace, *steps;
static uint64_t rows = 10000000, threads = 1;

static int add_bytes(void *arg, const char *data, size_t size)
{
    return buf_add(arg, data, size);
}

/* ---- the data ---- */

static int append(struct table *t, uint64_t ts, const union probing_cell *cells, uint32_t n)
{
    int rc;
    while ((rc = ring_append(t, ts, cells, n, NULL, 0)) == -ENOSPC)
        if ((rc = store_drain(store)) < 0)
            break;
    return rc;
}

static int fill(uint64_t base)
{
    uint64_t modules[MODULES], stages[2];
    char name[32];
    int rc = intern(store_interns(store), "pre forward", 11, &stages[0]);
    if (rc == 0)
        rc = intern(store_interns(store), "post forward", 12, &stages[1]);
    for (uint64_t m = 0; m < MODULES && rc == 0; m++) {
        int n = snprintf(name, sizeof(name), "layer.%u.%s", (unsigned)(m / 3),
                         m % 3 == 0   ? "attn"
                         : m % 3 == 1 ? "mlp"
                                      : "norm");
        rc = intern(store_interns(store), name, (size_t)n, &modules[m]);
    }
    for (uint64_t i = 0; i < rows && rc == 0; i++) {
        union probing_cell c[5] = {{.i = (int64_t)(i / 402)},
                                   {.u = modules[i / 2 % MODULES]},
                                   {.u = stages[i % 2]},
                                   {.f = (double)(i * 7919 % 100003) * 1e-7},
                                   {.i = (int64_t)(i * 2654435761 % 4096 * 512)}};
        rc = append(trace, base + i * STEP_NS, c, 5);
    }
    for (uint64_t i = 0; i < STEPS && rc == 0; i++) {
        union probing_cell c[2] = {{.i = (int64_t)i}, {.f = (double)(i * 31 % 1000) * 0.001}};
        rc = append(steps, base + i * (rows / STEPS) * STEP_NS, c, 2);
    }
    return rc < 0 ? rc : store_drain(store);
}

/* ---- asking ---- */

static uint64_t cpu_now(void)
{
    if (threads > 1)
        return clock_monotonic();
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static int ask_once(const char *text, struct buf *out, uint64_t *ret_ns)
{
    struct sql_writer *w;
    struct sql_report report;
    struct sql_options o = {.memory_bytes = UINT64_C(2) << 30};
    buf_reset(out);
    uint64_t begin = cpu_now();
    int rc = sql_writer_new(SQL_FORMAT_CSV, 0, add_bytes, out, &w);
    if (rc < 0)
        return rc;
    struct sql_sink sink = sql_writer_sink(w);
    rc = sql_run(engine, text, strlen(text), &o, &sink, &report);
    sql_writer_free(w);
    *ret_ns = cpu_now() - begin;
    return rc;
}

static void show(const char *name, uint64_t best, const char *answer)
{
    static double by_hand_ms;
    double ms = (double)best / 1e6;
    if (strcmp(name, "group") == 0 && by_hand_ms > 0)
        bench_figure(name, "ms", "least=%.5g\tratio=%.4g\tagainst=by hand", ms, ms / by_hand_ms);
    else
        bench_figure(name, "ms", "least=%.5g", ms);
    by_hand_ms = strcmp(name, "by hand") == 0 ? ms : by_hand_ms;
    printf("# answer\t%s\t", name);
    const char *line = strstr(answer, "\r\n");
    for (const char *p = line ? line + 2 : answer; *p; p++)
        if (*p != '\r')
            (void)putchar(*p == '\n' ? ';' : *p);
    printf("\n");
    (void)fflush(stdout);
}

static int ask(const char *name, const char *text)
{
    uint64_t best = UINT64_MAX, ns, begin = clock_monotonic();
    struct buf out;
    int rc = 0;
    buf_init(&out, 1 << 24);
    for (int i = 0; rc == 0 && (i < 3 || clock_monotonic() - begin < 2 * NS_PER_S); i++) {
        rc = ask_once(text, &out, &ns);
        best = rc == 0 && ns < best ? ns : best;
    }
    if (rc == 0)
        show(name, best, buf_text(&out));
    else
        printf("# %s: %s\n", name, err_text());
    buf_done(&out);
    return rc;
}

/* The first question as one would write it in C over the very same segments: the wanted columns
 * unpacked, groups by an array of module and stage. */
static int by_hand(uint64_t from_step)
{
    uint64_t best = UINT64_MAX, begin = clock_monotonic();
    static struct {
        int64_t sum, n;
    } groups[512][4];
    for (int k = 0; k < 3 || clock_monotonic() - begin < 2 * NS_PER_S; k++) {
        uint64_t start = cpu_now();
        struct store_bound bound = {.column = 2};
        struct store_scan_options o = {.bounds = &bound, .n_bounds = 1};
        struct store_scan *scan;
        struct store_batch b;
        bound.lo.i = (int64_t)from_step + 1;
        bound.hi.i = PROBING_NULL_I64;
        o.columns[0] = 1u << 2 | 1u << 3 | 1u << 4 | 1u << 6;
        memset(groups, 0, sizeof(groups));
        int rc = store_scan_new(store, trace, &o, &scan);
        while (rc >= 0 && (rc = store_scan_next(scan, &b)) > 0) {
            for (uint32_t i = 0; i < b.n_rows; i++) {
                if (b.cells[2][i].i <= (int64_t)from_step)
                    continue;
                uint64_t m = b.cells[3][i].u & 511, s = b.cells[4][i].u & 3;
                groups[m][s].sum += b.cells[6][i].i;
                groups[m][s].n++;
            }
        }
        store_scan_free(scan);
        if (rc < 0)
            return rc;
        uint64_t ns = cpu_now() - start;
        best = ns < best ? ns : best;
    }
    show("by hand", best, "");
    return 0;
}

struct question {
    const char *name, *format; /* %llu in order: see numbers() */
    int n;
    uint64_t numbers[2];
};

static int ask_all(const char *only, uint64_t base_utc)
{
    uint64_t step = rows / 402 / 100, middle = base_utc + rows / 2 * STEP_NS;
    const struct question list[] = {
        {"group",
         "select module, stage, avg(allocated), count(*) from bench.trace where local_step > %llu "
         "group by module, stage order by 3 desc, 1, 2 limit 10",
         1,
         {step, 0}},
        {"full scan",
         "select count(duration), max(duration), min(allocated) from bench.trace",
         0,
         {0, 0}},
        {"1% by time",
         "select count(duration), max(duration), min(allocated) from bench.trace where "
         "ts >= to_timestamp(%llu / 1000000000.0) and ts < "
         "to_timestamp(%llu / 1000000000.0)",
         2,
         {middle, middle + rows / 100 * STEP_NS}},
        {"1% by step",
         "select count(duration), max(duration), min(allocated) from bench.trace where "
         "local_step >= %llu and local_step < %llu",
         2,
         {50 * step, 51 * step}},
        {"count", "select count(*) from bench.trace", 0, {0, 0}},
        {"top 10",
         "select local_step, duration, allocated from bench.trace order by duration "
         "desc, local_step limit 10",
         0,
         {0, 0}},
        {"distinct",
         "select count(distinct module), count(distinct allocated) from bench.trace",
         0,
         {0, 0}},
        {"equal text", "select count(*) from bench.trace where module = 'layer.7.mlp'", 0, {0, 0}},
        {"like", "select count(*) from bench.trace where module like '%%.7.%%'", 0, {0, 0}},
        {"regexp", "select count(*) from bench.trace where module ~ 'layer\\.[0-9]\\.'", 0, {0, 0}},
        {"hash join",
         "select count(*), sum(loss) from bench.trace t join bench.steps s on t.local_step = "
         "s.step where t.local_step < %llu",
         1,
         {SOME / 402, 0}},
        {"asof join",
         "select count(*), sum(s.step) from (select ts from bench.trace where local_step < %llu) "
         "t asof join bench.steps s on t.ts >= s.ts",
         1,
         {SOME / 402, 0}},
        {"lag",
         "select count(d), max(d) from (select allocated - lag(allocated) over (partition by "
         "module order by ts) as d from bench.trace where local_step < %llu) x",
         1,
         {SOME / 402, 0}},
        {"percentile",
         "select module, percentile_cont(0.95) within group (order by duration) from bench.trace "
         "where local_step < %llu group by module order by 2 desc, 1 limit 3",
         1,
         {SOME / 402, 0}},
        {"sort",
         "select sum(n) from (select row_number() over (order by allocated, duration) as n from "
         "bench.trace where local_step < %llu) x",
         1,
         {SOME / 402, 0}}};
    char text[1024];
    int rc = 0;
    if (strstr("by hand", only) || strstr("group", only))
        rc = by_hand(step);
    for (size_t i = 0; i < sizeof(list) / sizeof(*list) && rc == 0; i++) {
        const struct question *q = &list[i];
        if (!strstr(q->name, only))
            continue;
        (void)snprintf(text, sizeof(text), q->format, (unsigned long long)q->numbers[0],
                       (unsigned long long)q->numbers[1]);
        rc = ask(q->name, text);
    }
    return rc;
}

int main(int argc, char **argv)
{
    static const struct probing_column columns[] = {{.name = "local_step", .type = PROBING_I64},
                                                    {.name = "module", .type = PROBING_STR},
                                                    {.name = "stage", .type = PROBING_STR},
                                                    {.name = "duration", .type = PROBING_F64},
                                                    {.name = "allocated", .type = PROBING_I64}};
    static const struct probing_column step_columns[] = {{.name = "step", .type = PROBING_I64},
                                                         {.name = "loss", .type = PROBING_F64}};
    struct probing_table_desc desc = {.size = sizeof(desc),
                                      .column_size = sizeof(*columns),
                                      .name = "bench.trace",
                                      .doc = "",
                                      .columns = columns,
                                      .n_columns = 5};
    struct probing_table_desc step_desc = desc;
    step_desc.name = "bench.steps";
    step_desc.columns = step_columns;
    step_desc.n_columns = 2;
    char directory[] = "/tmp/probing-bench-XXXXXX";
    struct tables *tables;
    if (argc > 1 && parse_u64(argv[1], &rows) < 0)
        return 2;
    if (argc > 3 && parse_u64(argv[3], &threads) < 0)
        return 2;
    if (!mkdtemp(directory))
        return 1;
    struct store_options o = {.directory = directory, .max_bytes = UINT64_C(4) << 30};
    uint64_t base = BASE_NS;
    int rc = tables_new(&tables);
    rc = rc ? rc : store_create(&o, tables, &store);
    rc = rc ? rc : store_table_add(store, "bench", &desc, NULL, &trace);
    rc = rc ? rc : store_table_add(store, "bench", &step_desc, NULL, &steps);
    rc = rc ? rc : sql_new(tables, store, &engine);
    rc = rc ? rc : fill(base);
    if (rc == 0)
        sql_configure(engine, SQL_SET_THREADS, threads);
    rc = rc ? rc : ask_all(argc > 2 ? argv[2] : "", base + (uint64_t)clock_utc_offset());
    if (rc < 0)
        printf("# %s\n", err_text());
    sql_free(engine);
    store_free(store);
    tables_free(tables);
    (void)file_remove_dir(directory);
    return rc < 0;
}
