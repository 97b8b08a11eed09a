/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/bench/cancel_bench.c - how long a query goes on after it was told to end.
 *
 * usage: cancel_bench [rounds]         20 by default
 *
 * Each query is cancelled at moments spread over its first half second.  What is shown is the CPU
 * time that its thread used from then until sql_run() gave -ECANCELED (median and most), and the
 * most by the clock, which holds the wait for a core too.  The goal is 50 ms.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/text.h"
#include "core/sql/sql.h"
#include "tests/bench/bench.h"

#define SPREAD_NS (NS_PER_S / 2)
#define ROUNDS_MAX 200

#define ROWS "generate_series(1, 100000000) n"

static const struct {
    const char *name, *text;
} queries[] = {
    {"scan", "select count(*) from " ROWS " where n % 7 = 9"},
    {"nested loop", "select count(*) from " ROWS ", generate_series(1, 100000) m where n < m"},
    {"hash join", "select count(*) from generate_series(1, 9000000) m join " ROWS " on n.n = m.m"},
    {"group by", "select n % 9000001, count(*) from " ROWS " group by 1"},
    {"group by texts", "select (n % 3000001)::text, count(*) from " ROWS " group by 1"},
    {"distinct", "select distinct n from " ROWS},
    {"except", "select 1 except select n from " ROWS},
    {"sort", "select n from " ROWS " order by n * 7919 % 1000003"},
    {"sort texts", "select n from " ROWS " order by (n * 7919 % 1000003)::text"},
    {"window", "select sum(s) from (select sum(n) over (partition by n % 100003 order by n desc) s "
               "from " ROWS ") x"},
    {"sliding frame", "select max(s) from (select max(n) over (order by n rows between 90000 "
                      "preceding and 90000 following) s from generate_series(1, 400000) n) x"},
    {"percentile", "select median(n * 7919 % 1000003) from " ROWS},
    {"percentiles", "select n % 20000, median(n) from " ROWS " group by 1"},
    {"string_agg", "select length(string_agg(n::text, ',' order by n % 1000003)) from " ROWS},
    {"histogram", "select histogram(n, 100) from " ROWS},
    {"asof", "select count(*) from " ROWS " asof join generate_series(1, 9000000) m on n.n >= m.m"},
    {"in many", "select count(*) from " ROWS " where n in (select m from generate_series(1, "
                "5000000) m)"},
    {"in rows", "select count(*) from " ROWS " where (n, null) not in (select m, m from "
                "generate_series(1, 300000) m)"},
    {"correlated", "select count(*) from " ROWS " where n = (select max(m) from "
                   "generate_series(1, 100000) m where m <= n + m)"},
    {"recursive", "with recursive r(k) as (select 1 union all select k + 1 from r) select count(*) "
                  "from r"},
    {"regexp", "select count(*) from " ROWS " where repeat('a', 60000) ~ "
               "'(a|aa|aaa|aaaa)*(a?){300}b'"},
    {"like", "select count(*) from " ROWS " where repeat('a', 1000000) like '%' || repeat('a', "
             "100000) || n::text"},
    {"replace", "select max(replace(repeat('ab', 200000), 'a', 'xy')) from " ROWS " where "
                "length(repeat('c', 1000000)) > n % 2"},
    {"strpos", "select count(*) from " ROWS " where strpos(repeat('ab', 400000), 'b' || n::text) > "
               "0"}};

struct mind {
    _Atomic int changed;
    clockid_t clock; /* CPU time of the query's thread */
    uint64_t after_ns, cpu_ns, clock_ns;
};

static uint64_t read_clock(clockid_t which)
{
    struct timespec t;
    (void)clock_gettime(which, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static void *change(void *arg)
{
    struct mind *m = arg;
    struct timespec wait = {.tv_nsec = (int64_t)m->after_ns};
    (void)nanosleep(&wait, NULL);
    m->cpu_ns = read_clock(m->clock);
    m->clock_ns = clock_monotonic();
    atomic_store_explicit(&m->changed, 1, memory_order_release);
    return NULL;
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int measure(struct sql *s, const char *name, const char *text, uint64_t rounds)
{
    uint64_t spent[ROUNDS_MAX], worst = 0;
    for (uint64_t i = 0; i < rounds; i++) {
        struct mind m = {.after_ns = SPREAD_NS * (i + 1) / (rounds + 1)};
        struct sql_options o = {.cancel = &m.changed, .memory_bytes = UINT64_C(4) << 30};
        struct sql_sink nothing = {.arg = NULL};
        struct sql_report report;
        pthread_t thread;
        if (pthread_getcpuclockid(pthread_self(), &m.clock) != 0 ||
            pthread_create(&thread, NULL, change, &m) != 0)
            return -EAGAIN;
        int rc = sql_run(s, text, strlen(text), &o, &nothing, &report);
        uint64_t cpu = read_clock(CLOCK_THREAD_CPUTIME_ID), end = clock_monotonic();
        (void)pthread_join(thread, NULL);
        if (rc != -ECANCELED) {
            printf("# %s: %s\n", name, rc < 0 ? err_text() : "ended by itself");
            return 0;
        }
        spent[i] = cpu - m.cpu_ns;
        worst = end - m.clock_ns > worst ? end - m.clock_ns : worst;
    }
    qsort(spent, rounds, sizeof(*spent), by_size);
    bench_figure(name, "ms", "median=%.4g\tmost=%.4g\tmost_by_clock=%.4g\tgoal=most <= 50",
                 (double)spent[rounds / 2] / 1e6, (double)spent[rounds - 1] / 1e6,
                 (double)worst / 1e6);
    return 0;
}

int main(int argc, char **argv)
{
    struct tables *tables;
    struct sql *s;
    uint64_t rounds = 20;
    if (argc > 1 && (parse_u64(argv[1], &rounds) < 0 || rounds == 0 || rounds > ROUNDS_MAX))
        return 2;
    if (tables_new(&tables) < 0 || sql_new(tables, NULL, &s) < 0)
        return 1;
    int rc = 0;
    for (size_t i = 0; i < sizeof(queries) / sizeof(*queries) && rc == 0; i++)
        rc = measure(s, queries[i].name, queries[i].text, rounds);
    sql_free(s);
    tables_free(tables);
    return rc < 0;
}
