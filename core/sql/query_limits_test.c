/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/query_limits_test.c - what a query may use, and how it ends early: depth, time, memory,
 * niceness, cancellation.
 */
#include <errno.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/guest/thread.h"
#include "core/sql/example_test.h"

TEST(depth_is_bounded)
{
    static char text[200000];
    size_t n = (size_t)snprintf(text, sizeof(text), "select ");
    memset(text + n, '(', 100);
    text[n + 100] = '1';
    memset(text + n + 101, ')', 100);
    CHECK_STR(ask(text), "1");
    memset(text + n, '(', 150000);
    CHECK(strstr(ask(text), "nested more than 128 levels deep") != NULL);
    n = (size_t)snprintf(text, sizeof(text), "select 1");
    for (int i = 0; i < 10000; i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n, " + 1");
    CHECK(strstr(ask(text), "more than 250 operators in a row") != NULL);
    n = (size_t)snprintf(text, sizeof(text), "select count(*) from torch_trace where step = -1");
    for (int i = 0; i < 2000; i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n, " or step = %d", i);
    CHECK_STR(ask(text), "1000");
    n = 0;
    for (int i = 0; i < 60; i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n, "select * from (");
    n += (size_t)snprintf(text + n, sizeof(text) - n, "select 7");
    memset(text + n, ')', 60);
    text[n + 60] = '\0';
    CHECK_STR(ask(text), "7");
}

/* Chains within subqueries within chains, on a stack as small as our threads have. */
static void *ask_deep(void *arg)
{
    static char text[400000];
    size_t n = 0;
    (void)arg;
    for (int i = 0; i < 40; i++) {
        n += (size_t)snprintf(text + n, sizeof(text) - n,
                              "select max(local_step) from torch_trace "
                              "where (select 1) < 2 and 1 < ");
        for (int k = 0; k < 200; k++)
            n += (size_t)snprintf(text + n, sizeof(text) - n, "local_step + ");
        n += (size_t)snprintf(text + n, sizeof(text) - n, "(");
    }
    n += (size_t)snprintf(text + n, sizeof(text) - n, "select 1");
    memset(text + n, ')', 40);
    CHECK(strstr(ask(text), "deep") != NULL);
    n = (size_t)snprintf(text, sizeof(text), "select count(*) from torch_trace where 0 < ");
    for (int k = 0; k < 240; k++)
        n += (size_t)snprintf(text + n, sizeof(text) - n, "local_step + ");
    (void)snprintf(text + n, sizeof(text) - n, "1");
    CHECK_STR(ask(text), "1000");
    n = (size_t)snprintf(text, sizeof(text), "select count(*), sum(a) from (values (1), (2)) t(a)");
    for (int k = 1; k < 128; k++)
        n += (size_t)snprintf(text + n, sizeof(text) - n,
                              " join (values (%d), (1), (2)) t%d(a) using (a)", k + 2, k);
    CHECK_STR(ask(text), "2,3");
    (void)snprintf(text + n, sizeof(text) - n, " cross join (values (1)) u");
    CHECK(strstr(ask(text), "more than 128 tables cannot be joined") != NULL);
    return NULL;
}

TEST(a_small_stack_is_enough)
{
    pthread_t thread;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    size_t stack = 4u << 20; /* their frames are several times as large */
#else
    size_t stack = 0;
#endif
    if (CHECK_INT(thread_start(&thread, "test/deep", stack, ask_deep, NULL), 0))
        (void)pthread_join(thread, NULL);
}

TEST(limits_stop_a_query)
{
    const char *many = "select count(*) from torch_trace a, torch_trace b, torch_trace c, "
                       "torch_trace d";
    struct buf out;
    struct sql_report report;
    _Atomic int cancel = 1;
    struct sql_options timeout = {.timeout_ns = 20000000}, cancelled = {.cancel = &cancel};
    struct sql_options small = {.memory_bytes = 1 << 20}, few = {.max_rows = 3000};
    buf_init(&out, 1 << 24);
    CHECK_INT(ask_as(SQL_FORMAT_CSV, many, &timeout, &out, &report), -ETIMEDOUT);
    CHECK_INT(ask_as(SQL_FORMAT_CSV, many, &cancelled, &out, &report), -ECANCELED);
    CHECK_INT(ask_as(SQL_FORMAT_CSV, "select * from torch_trace a, torch_trace b order by a.ts",
                     &small, &out, &report),
              -ENOMEM);
    buf_reset(&out);
    CHECK_INT(
        ask_as(SQL_FORMAT_CSV, "select 1 from torch_trace a, torch_trace b", &few, &out, &report),
        0);
    CHECK_INT(report.rows, 3000);
    CHECK(report.cut);
    buf_done(&out);
}

TEST(an_engine_has_limits_of_its_own)
{
    const char *endless = "select count(*) from generate_series(1, 200000000000) n";
    struct buf out;
    struct sql_report report;
    const struct sql_options none = {.timeout_ns = 0};
    buf_init(&out, 1 << 24);
    sql_configure(engine, SQL_SET_ROWS, 7);
    CHECK_INT(ask_as(SQL_FORMAT_CSV, "select 1 from torch_trace", &none, &out, &report), 0);
    CHECK(report.rows == 7 && report.cut);
    sql_configure(engine, SQL_SET_ROWS, 0);
    sql_configure(engine, SQL_SET_TIMEOUT, 1000000);
    CHECK_STR(ask(endless),
              "the query ran longer than its 1 ms and was stopped (setting query.timeout)");
    sql_configure(engine, SQL_SET_TIMEOUT, 0);
    buf_done(&out);
}

/* The part that is refused memory is named; all that a query keeps counts, in whichever part. */
TEST(who_needs_too_much_memory_is_named)
{
#define TOO_MUCH                                                                             \
    " needs more than the 4 MiB of memory that the query may use (setting query.max_memory)" \
    "; filter, aggregate or limit what it has to keep"
    static const struct example list[] = {
        {"select count(*) from (select n from generate_series(1, 1000000) n order by n) x",
         "sort" TOO_MUCH},
        {"select count(*) from (select n from generate_series(1, 1000000) n group by n) x",
         "aggregate (1 key, 0 aggregates)" TOO_MUCH},
        {"select count(*) from generate_series(1, 9) a join generate_series(1, 1000000) b on a.a = "
         "b.b",
         "join (inner, by hash)" TOO_MUCH},
        {"select count(*) from (select distinct n from generate_series(1, 1000000) n) x",
         "distinct" TOO_MUCH},
        {"select count(*) from (select sum(n) over () from generate_series(1, 1000000) n) x",
         "window (1 function)" TOO_MUCH},
        {"select max(n) from (select n from generate_series(1, 1000000) n except select 1) x",
         "except" TOO_MUCH},
        {"select median(n) from generate_series(1, 1000000) n",
         "aggregate (0 keys, 1 aggregate)" TOO_MUCH}};
    sql_configure(engine, SQL_SET_MEMORY, 4u << 20);
    TRY(list);
    sql_configure(engine, SQL_SET_MEMORY, 256u << 20);
}

/* The memory of a subquery goes before the next one begins; its answer stays. */
TEST(subqueries_give_their_memory_back)
{
#define ONE(n)                                                                          \
    "(select max('x' || n) from (select n from generate_series(1, 20000) n group by n " \
    "order by n desc) x where n <= " #n ")"
    static const struct example list[] = {
        {"select " ONE(1) ", " ONE(2) ", " ONE(3) ", " ONE(4) ", " ONE(5) ", " ONE(6),
         "x1,x2,x3,x4,x5,x6"},
        {"select count(*) from generate_series(1, 3) s where 'x' || s in (" ONE(1) ", " ONE(
             2) ", " ONE(3) ", " ONE(7) ")",
         "3"}};
    sql_configure(engine, SQL_SET_MEMORY, 8u << 20);
    TRY(list);
    sql_configure(engine, SQL_SET_MEMORY, 256u << 20);
}

static pthread_t scanned_by; /* written by scan_where(), read after the query's end */

static uint32_t scans = 1; /* of 1,000 rows each, that where_am_i is made of */

static int scan_where(void *self, struct probing_rows *out)
{
    int rc = 0;
    scanned_by = pthread_self();
    for (uint32_t i = 0; i < scans && rc == 0; i++)
        rc = scan(self, out);
    return rc;
}

static pid_t own_tid(void)
{
    return (pid_t)syscall(SYS_gettid);
}

struct answerer {
    int nice;
    pid_t thread; /* pthread_self() may be the same of two that come one after the other */
};

static int note_answerer(void *arg, const struct sql_rows *rows)
{
    (void)rows;
    *(struct answerer *)arg = (struct answerer){getpriority(PRIO_PROCESS, 0), own_tid()};
    return 0;
}

static struct answerer answerer_of(const char *text)
{
    struct answerer a = {-100, own_tid()};
    struct sql_sink sink = {.arg = &a, .rows = note_answerer};
    struct sql_report report;
    CHECK_INT(sql_run(engine, text, strlen(text), NULL, &sink, &report), 0);
    return a;
}

/* A query steps back behind the host's threads, but not while it is inside a plugin. */
TEST(a_nice_query_runs_aside)
{
    int before = getpriority(PRIO_PROCESS, 0);
    sql_configure(engine, SQL_SET_NICE, 3);
    struct answerer a = answerer_of("select count(*) from where_am_i, generate_series(1, 9) n");
    CHECK(pthread_equal(scanned_by, pthread_self()));
    CHECK_INT(a.nice, before + 3 > 19 ? 19 : before + 3);
    CHECK_INT(getpriority(PRIO_PROCESS, 0), before);
    CHECK_STR(ask("select 1 / 0"), "line 1, column 10: division by zero (nullif(x, 0) avoids it)");
    CHECK_STR(ask("select count(*) from torch_trace where local_step in (select local_step from "
                  "where_am_i)"),
              "1000");
    sql_configure(engine, SQL_SET_NICE, 0);
}

/* A query that takes less than changing to another thread runs where it was asked; a table is plain
 * enough where it has few rows. */
TEST(what_does_little_runs_at_once)
{
    static const char *const little[] = {
        "select 1", "select count(*), avg(duration) from where_am_i where local_step > 3",
        "select stage, max(duration) d from torch_trace group by 1 having count(*) > 3 order by 2",
        "select distinct stage from torch_trace limit 3"};
    static const char *const much[] = {
        "select 1 union all select 2",
        "select (select 1)",
        "select 1 where exists (select 1)",
        "select 1 where 1 in (select 1)",
        "with x as (select 1) select * from x",
        "select count(*) from (select 1) x",
        "select count(*) from memory_usage",
        "select count(*) from generate_series(1, 9) n",
        "select sum(duration) over () from torch_trace",
        "select count(*) from torch_trace a join where_am_i b on a.ts = b.ts"};
    int before = getpriority(PRIO_PROCESS, 0);
    sql_configure(engine, SQL_SET_NICE, 3);
    for (size_t i = 0; i < sizeof(little) / sizeof(*little); i++) {
        struct answerer a = answerer_of(little[i]);
        if (!CHECK(a.thread == own_tid() && a.nice == before))
            printf("# %s\n", little[i]);
    }
    for (size_t i = 0; i < sizeof(much) / sizeof(*much); i++)
        if (!CHECK(answerer_of(much[i]).thread != own_tid()))
            printf("# %s\n", much[i]);
    scanned_by = pthread_self();
    CHECK_STR(ask("select * from where_am_i limit 0"), "");
    CHECK_STR(ask("select * from memory_usage limit 0"), "");
    scans = 9;
    CHECK(answerer_of("select count(*) from where_am_i").thread != own_tid());
    CHECK(pthread_equal(scanned_by, pthread_self()));
    CHECK_STR(ask("select count(*) from where_am_i"), "9000");
    sql_configure(engine, SQL_SET_MEMORY, 1u << 20);
    CHECK_STR(ask("select * from where_am_i"),
              "scan (python.where_am_i (computed)) needs more than the 1 MiB of memory that the "
              "query may use (setting query.max_memory); filter, aggregate or limit what it has to "
              "keep");
    sql_configure(engine, SQL_SET_MEMORY, 256u << 20);
    scans = 1;
    CHECK_INT(getpriority(PRIO_PROCESS, 0), before);
    sql_configure(engine, SQL_SET_NICE, 0);
}

/* A client that asks every second has the same thread each time, as nice as it is to be. */
TEST(a_thread_for_nice_queries_waits_for_the_next)
{
    int before = getpriority(PRIO_PROCESS, 0);
    sql_configure(engine, SQL_SET_NICE, 2);
    struct answerer first = answerer_of("select 1 union all select 2");
    CHECK_INT(first.nice, before + 2 > 19 ? 19 : before + 2);
    for (int i = 0; i < 20; i++) {
        struct answerer a = answerer_of("select count(*) from where_am_i union all select 1");
        CHECK_INT(a.thread, first.thread);
        CHECK_INT(a.nice, first.nice);
    }
    sql_configure(engine, SQL_SET_NICE, 4);
    struct answerer other = answerer_of("select 1 union all select 2");
    CHECK_INT(other.nice, before + 4 > 19 ? 19 : before + 4);
    CHECK(other.thread != first.thread);
    CHECK_STR(ask("select 1 / 0"), "line 1, column 10: division by zero (nullif(x, 0) avoids it)");
    CHECK_STR(ask("select 1"), "1");
    sql_configure(engine, SQL_SET_NICE, 0);
}

/* Streams rest by it. */
static uint64_t own_cpu(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

TEST(what_a_nice_query_costs_its_thread_is_told)
{
    const char *text = "select count(*) from generate_series(1, 300000) n";
    struct sql_sink none = {.arg = NULL};
    struct sql_report report;
    uint64_t own = own_cpu(), all = thread_cpu();
    CHECK_INT(sql_run(engine, text, strlen(text), NULL, &none, &report), 0);
    uint64_t here = own_cpu() - own;
    CHECK(thread_cpu() - all < here + NS_PER_MS); /* nobody else worked for it */
    sql_configure(engine, SQL_SET_NICE, 2);
    own = own_cpu();
    all = thread_cpu();
    CHECK_INT(sql_run(engine, text, strlen(text), NULL, &none, &report), 0);
    uint64_t aside = thread_cpu() - all - (own_cpu() - own);
    CHECK(aside > here / 10 && aside <= report.elapsed_ns);
    sql_configure(engine, SQL_SET_NICE, 0);
}

static void *ask_many(void *arg)
{
    (void)arg;
    for (int i = 0; i < 100; i++) {
        struct answerer a = answerer_of(i % 2 ? "select count(*) from (select 1 from torch_trace) x"
                                              : "select 1 union all select 2");
        CHECK(a.thread != own_tid());
    }
    return NULL;
}

TEST(nice_queries_of_many_at_once_all_end)
{
    pthread_t threads[6];
    sql_configure(engine, SQL_SET_NICE, 1);
    for (int i = 0; i < 6; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, ask_many, NULL), 0);
    for (int i = 0; i < 6; i++)
        (void)pthread_join(threads[i], NULL);
    sql_configure(engine, SQL_SET_NICE, 0);
}

struct mind { /* somebody's, changed a moment later, wherever the query is by then */
    _Atomic int changed;
    uint32_t after_us;
};

static void *cancel_soon(void *arg)
{
    struct mind *m = arg;
    const struct timespec moment = {.tv_nsec = 1000 * (int64_t)m->after_us};
    (void)nanosleep(&moment, NULL);
    atomic_store_explicit(&m->changed, 1, memory_order_relaxed);
    return NULL;
}

TEST(everything_can_be_cancelled)
{
    static const char *const endless[] = {
        "select count(*) from generate_series(1, 1000000) a, generate_series(1, 1000000) b",
        "select count(*) from generate_series(1, 2000000000) n where n % 3 = 5",
        "select count(*) from (select n from generate_series(1, 3000000) n, generate_series(1, 30) "
        "m "
        "order by n % 1000003, m) x",
        "select n % 1000003, count(*) from generate_series(1, 2000000000) n group by 1",
        "select max(s) from (select sum(n * 0.5) over (order by n rows between 100000 preceding "
        "and "
        "100000 following) as s from generate_series(1, 300000) n) x",
        "select count(*) from generate_series(1, 1000) n where repeat('a', 60000 + n) ~ "
        "'(a|aa|aaa|aaaa)*(a?){300}b'",
        "select count(*) from generate_series(1, 1000) n where repeat('a', 1000000 + n) like "
        "'%' || repeat('a', 100000) || 'b'",
        "select count(*) from generate_series(1, 100000) n where n = (select max(m) from "
        "generate_series(1, 100000) m where m <= n + m)",
        "select count(*) from generate_series(1, 2000000) a asof join generate_series(1, 2000000) "
        "b "
        "on a.a >= b.b join generate_series(1, 2000000) c on c.c < a.a",
        "select n from generate_series(1, 2000000000) n except select m from generate_series(1, 9) "
        "m",
        "select n from generate_series(1, 9) n intersect all select m from generate_series(1, "
        "2000000000) m",
        "select distinct n % 5000011 from generate_series(1, 2000000000) n",
        "select count(distinct n % 5000011) from generate_series(1, 2000000000) n",
        "select sum(r) from (select row_number() over (partition by n % 1000 order by n * 7919 % "
        "100003) r from generate_series(1, 3000000) n, generate_series(1, 5) m) x",
        "select median(n * 7919 % 1000003) from generate_series(1, 6000000) n, generate_series(1, "
        "9) m",
        "select length(string_agg(n::text, ',' order by n * 7919 % 1000003)) from "
        "generate_series(1, 2000000) n, generate_series(1, 9) m",
        "with recursive r(n) as (select 1 union all select n + 1 from r) select count(*) from r",
        "with recursive r(n) as (select 1 union select (n * 7919 + m) % 90000001 from r, "
        "generate_series(1, 2) m) select count(*) from r",
        "with recursive r(n) as (select 1 union all select n + 1 from r where exists (select 1 "
        "from r q where q.n = r.n)) select count(*) from r",
        "with recursive r(n) as (select 1 union all select n + m from r, lateral (select q.n as m "
        "from r q, generate_series(1, 2) where q.n <= r.n) l where n < 100) select count(*) from r",
        "with recursive r(n) as (select 1 union all select n + (with recursive s(m) as (select "
        "r.n union all select m + 1 from s where m > 0 and m in (select n from r union all select "
        "m from s q where q.m = s.m)) select max(m) from s) from r) select count(*) from r",
        "with a(n) as (select n from generate_series(1, 1000000000) n where n < 0), b as (select "
        "n from a union all select n from a), c as (select n from b union all select n from b), d "
        "as (select n from c where n in (select n from c)) select count(*) from "
        "generate_series(1, 100000) n where exists (select 1 from d where d.n = n)",
        "select count(*) from generate_series(1, 2000000) n where (n, null) not in (select m, m "
        "from generate_series(1, 300000) m)",
        "select count(*) from generate_series(1, 5000) n where strpos(repeat('ab', 400000), 'b' || "
        "n::text) > 0",
        "select count(*) from generate_series(1, 1000000000) n where n in (select m * 3 from "
        "generate_series(1, 500000) m) and n not in (1, 2, 3)",
        "select count(*) from generate_series(1, 3000000) a full join generate_series(1, 3000000) "
        "b on a.a = b.b and a.a % 3 < b.b % 5 join generate_series(1, 90000000) c on c.c = a.a"};
    size_t cancelled = 0;
    for (size_t i = 0; i < 2 * sizeof(endless) / sizeof(*endless); i++) {
        pthread_t thread;
        const char *text = endless[i / 2];
        struct mind mind = {.after_us = (uint32_t)((i * 7919 + 4243) % 60000)};
        struct sql_options o = {.cancel = &mind.changed, .memory_bytes = UINT64_C(1) << 30};
        struct sql_sink nothing = {.arg = NULL};
        struct sql_report report;
        if (!CHECK_INT(pthread_create(&thread, NULL, cancel_soon, &mind), 0))
            return;
        int rc = sql_run(engine, text, strlen(text), &o, &nothing, &report);
        /* On a busy machine the memory may be used up before the other thread has its turn. */
        if (!CHECK(rc == -ECANCELED || rc == -ENOMEM))
            printf("# %s: %s\n", text, rc < 0 ? err_text() : "it ended");
        (void)pthread_join(thread, NULL);
        cancelled += rc == -ECANCELED;
    }
    CHECK(cancelled > sizeof(endless) / sizeof(*endless));
}

int main(void)
{
    if (begin_examples(scan_where) != 0)
        return 1;
    RUN(depth_is_bounded);
    RUN(a_small_stack_is_enough);
    RUN(limits_stop_a_query);
    RUN(an_engine_has_limits_of_its_own);
    RUN(who_needs_too_much_memory_is_named);
    RUN(subqueries_give_their_memory_back);
    RUN(a_nice_query_runs_aside);
    RUN(what_does_little_runs_at_once);
    RUN(a_thread_for_nice_queries_waits_for_the_next);
    RUN(what_a_nice_query_costs_its_thread_is_told);
    RUN(nice_queries_of_many_at_once_all_end);
    RUN(everything_can_be_cancelled);
    return end_examples();
}
