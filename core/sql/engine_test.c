/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/engine_test.c - the language by example: statements with their answers or errors.
 *
 * One computed table of 1,000 rows, python.torch_trace, and a view over it.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/base/thread.h"
#include "core/sql/sql.h"
#include "tests/fail_alloc.h"
#include "tests/test.h"

#define ROWS 1000

static struct tables *tables;
static struct sql *engine;

static int scan(void *self, struct probing_rows *out)
{
    static const char *const modules[] = {"encoder", "decoder", "head", "mlp", NULL};
    static const char *const stages[] = {"pre forward", "post forward"};
    (void)self;
    for (int i = 0; i < ROWS; i++) {
        union probing_cell c[6] = {{.i = i / 10},
                                   {.s = modules[i % 5]},
                                   {.s = stages[i % 2]},
                                   {.f = 0.25 * (i % 8)},
                                   {.i = (int64_t)i * 1000000000},
                                   {.i = i % 10 == 9 ? PROBING_NULL_I64 : i}};
        if (i % 4 == 3)
            c[3].u = PROBING_NULL_F64;
        int rc = out->row(out, c, 6);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static const struct probing_column columns[] = {
    {.name = "local_step", .type = PROBING_I64},
    {.name = "module", .type = PROBING_STR},
    {.name = "stage", .type = PROBING_STR},
    {.name = "duration", .type = PROBING_F64, .unit = PROBING_SECONDS, .doc = "how long"},
    {.name = "ts", .type = PROBING_TIME},
    {.name = "allocated", .type = PROBING_I64, .unit = PROBING_MB}};

static const struct probing_table_desc desc = {.size = sizeof(desc),
                                               .column_size = sizeof(*columns),
                                               .name = "python.torch_trace",
                                               .doc = "modules",
                                               .columns = columns,
                                               .n_columns = 6,
                                               .scan = scan};

static int add_bytes(void *arg, const char *data, size_t size)
{
    return buf_add(arg, data, size);
}

static int ask_as(enum sql_format format, const char *text, const struct sql_options *o,
                  struct buf *out, struct sql_report *report)
{
    struct sql_writer *w;
    int rc = sql_writer_new(format, 0, add_bytes, out, &w);
    if (rc < 0)
        return rc;
    struct sql_sink sink = sql_writer_sink(w);
    rc = sql_run(engine, text, strlen(text), o, &sink, report);
    if (rc == 0)
        rc = sql_writer_finish(w, report);
    sql_writer_free(w);
    return rc;
}

/* The answer without its header, lines joined by ';', or the error. */
static const char *ask(const char *text)
{
    static char answer[4096];
    struct buf out;
    struct sql_report report;
    buf_init(&out, 1 << 20);
    int rc = ask_as(SQL_FORMAT_CSV, text, NULL, &out, &report);
    size_t n = 0;
    const char *from = rc < 0 ? err_text() : strstr(buf_text(&out), "\r\n");
    for (from = rc < 0 || !from ? from : from + 2; from && *from && n < sizeof(answer) - 1;
         from++) {
        if (*from == '\r')
            continue;
        answer[n++] = *from == '\n' ? ';' : *from;
    }
    answer[n] = '\0';
    if (rc == 0 && n && answer[n - 1] == ';')
        answer[n - 1] = '\0';
    buf_done(&out);
    return answer;
}

struct example {
    const char *text, *answer;
};

static void try_all(const struct example *e, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *answer = ask(e[i].text);
        if (strcmp(answer, e[i].answer) != 0)
            printf("# %s\n", e[i].text);
        CHECK_STR(answer, e[i].answer);
    }
}
#define TRY(list) try_all(list, sizeof(list) / sizeof(*(list)))

TEST(arithmetic_is_postgresqls)
{
    static const struct example list[] = {
        {"select 1 + 2 * 3, 7 / 2, -7 / 2, 7 % 3, -7 % 3, 7.0 / 2", "7,3,-3,1,-1,3.5"},
        {"select 9223372036854775807, -9223372036854775808",
         "9223372036854775807,-9223372036854775808"},
        {"select 9223372036854775807 + 1", "line 1, column 28: integer out of range"},
        {"select 1 / 0", "line 1, column 10: division by zero (nullif(x, 0) avoids it)"},
        {"select case when false then 1 / 0 else 2 end", "2"},
        {"select count(*) from torch_trace where local_step <> 0 and 10 / local_step > 4", "20"},
        {"select 2 ^ 10, abs(-3), round(2.567, 2), floor(-1.5), sqrt(16), sign(-2.0)",
         "1024,3,2.57,-2,4,-1"},
        {"select 'a' || 'b' || 3, 1 = 1.0, '5' + 3", "ab3,true,8"}};
    TRY(list);
}

TEST(null_has_three_values)
{
    static const struct example list[] = {
        {"select null = null, null is null, not null, null and false, null or true",
         ",true,,false,true"},
        {"select 1 in (1, null), 2 in (1, null), 2 not in (1, 3), null in (1)", "true,,true,"},
        {"select null is distinct from 1, null is not distinct from null", "true,true"},
        {"select coalesce(null, null, 5), nullif(3, 3), greatest(1, null, 7), least(2, 1)",
         "5,,7,1"},
        {"select count(*), count(allocated), count(module) from torch_trace", "1000,900,800"}};
    TRY(list);
}

TEST(texts_and_times)
{
    static const struct example list[] = {
        {"select substr('hello', 2, 3), upper('abc'), length('h\xc3\xa9llo')", "ell,ABC,5"},
        {"select split_part('a,b,c', ',', 2), replace('aXbX', 'X', '--'), trim('  x ')",
         "b,a--b--,x"},
        {"select strpos('hello', 'l'), 'hello' like 'h%o', 'a%b' like 'a\\%b', 'HE' ilike 'h_'",
         "3,true,true,true"},
        {"select interval '5 min', interval '1 hour' + interval '30 sec', interval '1 day' * 2",
         "00:05:00,01:00:30,2 days"},
        {"select now() - interval '1 day' < now(), now() - 60 < now(), now() - now()",
         "true,true,00:00:00"},
        {"select date_trunc('hour', timestamp '2024-05-01 10:20:30')",
         "2024-05-01T10:00:00.000000000Z"},
        {"select extract(year from '2024-02-29'::timestamp), hour(timestamp '2024-05-01 10:20')",
         "2024,10"},
        {"select epoch('2024-05-01T10:00:00+02:00'::timestamp)", "1714550400"},
        {"select date_bin(interval '15 min', timestamp '2024-05-01 10:20:30')",
         "2024-05-01T10:15:00.000000000Z"},
        {"select '2023-02-29'::timestamp",
         "line 1, column 8: '2023-02-29' is not a timestamp like '2024-05-01 10:00:00'"}};
    TRY(list);
}

TEST(groups_and_order)
{
    static const struct example list[] = {
        {"select module, stage, avg(duration), count(*) from python.torch_trace where step > 3 "
         "group by module, stage order by 3 desc, 1, 2 limit 3",
         "decoder,post forward,0.75,96;decoder,pre forward,0.75,96;encoder,post forward,0.75,96"},
        {"SELECT step, AVG(allocated) as avg_memory, MAX(allocated) as peak_memory FROM "
         "python.torch_trace WHERE step >= (SELECT MAX(step) - 1 FROM python.torch_trace) "
         "GROUP BY step ORDER BY step",
         "98,984,988;99,994,998"},
        {"select module m, count(*) c from torch_trace group by m having c > 100 order by m desc "
         "nulls last limit 2",
         "mlp,200;head,200"},
        {"select module from torch_trace group by module order by module",
         "decoder;encoder;head;mlp;"},
        {"select module from torch_trace group by module order by module desc limit 2", ";mlp"},
        {"select local_step / 50, sum(allocated) from torch_trace group by 1 order by 1",
         "0,112050;1,337050"},
        {"select module, count(*) from torch_trace where module > 'h' order by 1",
         "head,200;mlp,200"},
        {"select count(distinct stage), min(module), max(stage), median(local_step) from "
         "torch_trace",
         "2,decoder,pre forward,49.5"},
        {"select count(*) filter (where stage = 'pre forward'), bool_and(local_step >= 0), "
         "string_agg(distinct stage, '|') from torch_trace",
         "500,true,pre forward|post forward"},
        {"select sum(local_step), count(*) from torch_trace where false", ",0"},
        {"select local_step from torch_trace where false group by 1", ""},
        {"select distinct stage from torch_trace order by 1 limit 1 offset 1", "pre forward"},
        {"select local_step from torch_trace order by allocated desc nulls last limit 2", "99;99"}};
    TRY(list);
    /* The first is right only if its order and counts are: */
    CHECK_STR(ask("select count(*) from torch_trace where step > 3 and module = 'head' and "
                  "stage = 'pre forward'"),
              "96");
}

TEST(selects_in_selects)
{
    static const struct example list[] = {
        {"select * from (select step, count(*) n from torch_trace group by step) x where x.n = 10 "
         "order by step desc limit 2",
         "99,10;98,10"},
        {"with w as (select module m from torch_trace where step = 1) select m, count(*) from w "
         "group by 1 order by 1 limit 1",
         "decoder,2"},
        {"select count(*) from torch_trace where module in (select 'mlp' union select 'head')",
         "400"},
        {"select a.column1, b.column1 from (values (1), (2)) a left join (values (2), (3)) b on "
         "a.column1 = b.column1 order by 1",
         "1,;2,2"},
        {"select column1 from (values (1), (2)) a join (values (2), (3)) b using (column1)", "2"},
        {"select count(*) from (values (1), (2), (3)) a join (values (2), (3)) b on a.column1 < "
         "b.column1",
         "3"},
        {"select count(*) from torch_trace a join torch_trace b on a.allocated = b.allocated",
         "900"},
        {"select 1 union select 2 union all select 1.5 order by 1", "1;1.5;2"},
        {"SELECT hour(timestamp) >= 0, count(memory_mb) FROM memory_usage GROUP BY 1", "true,900"}};
    TRY(list);
}

TEST(windows_have_frames)
{
    static const struct example list[] = {
        {"select column1, row_number() over (order by column1 desc), rank() over (order by "
         "column1 / 2), dense_rank() over (order by column1 / 2), ntile(2) over (order by column1) "
         "from (values (1), (2), (3)) v order by 1",
         "1,3,1,1,1;2,2,2,2,1;3,1,2,2,2"},
        {"select column1, lag(column1) over w1, 0 from (values (1)) v",
         "line 1, column 35: no window 'w1'; window w1 as (...) behind having makes one"},
        {"select column1, lag(column1) over (order by column1), lead(column1, 2, 99) over (order "
         "by column1), sum(column1) over (order by column1 rows between 1 preceding and current "
         "row) from (values (1), (2), (3)) v order by 1",
         "1,,3,1;2,1,99,3;3,2,99,5"},
        {"select module, sum(count(*)) over (), max(module) over (order by module) from "
         "torch_trace where module is not null group by module order by module",
         "decoder,800,decoder;encoder,800,encoder;head,800,head;mlp,800,mlp"},
        {"select distinct stage, last_value(local_step) over (partition by stage order by "
         "local_step rows between unbounded preceding and unbounded following) from torch_trace "
         "order by 1",
         "post forward,99;pre forward,99"},
        {"select * from (select module, duration, row_number() over (partition by module order by "
         "duration desc nulls last, ts) n from torch_trace) x where n = 1 order by 1 limit 2",
         "decoder,1.5,1;encoder,1.5,1"}};
    TRY(list);
}

TEST(errors_say_what_and_where)
{
    static const struct example list[] = {
        {"select modul from python.torch_trace",
         "line 1, column 8: no column 'modul' in python.torch_trace; did you mean 'module'?"},
        {"select *\nfrom python.torch_trce",
         "line 2, column 6: no table 'python.torch_trce'; did you mean 'python.torch_trace'?"},
        {"select lenght('a')", "line 1, column 8: no function 'lenght'; did you mean 'length'?"},
        {"select * form torch_trace",
         "line 1, column 10: found 'form', expected the end of the statement or 'from'"},
        {"select (1", "line 1, column 10: the statement ends here, expected )"},
        {"select 'abc", "line 1, column 8: the text that begins here is not closed with '"},
        {"select module from torch_trace group by stage",
         "line 1, column 8: column 'module' must be in group by or inside an aggregate"},
        {"select 1 from torch_trace where avg(duration) > 3",
         "line 1, column 33: the aggregate avg() cannot stand in where; having is for that"},
        {"select 1 from torch_trace where module = 3",
         "line 1, column 40: no operator = for text and bigint; cast one of them: x::text"},
        {"select 1 from torch_trace where row_number() over () = 1",
         "line 1, column 33: a window function may stand in the select list and in order by only; "
         "filter by it in a select around this one"},
        {"select rank() from torch_trace",
         "line 1, column 8: rank() is a window function: rank(...) over (order by ...)"},
        {"select sum(local_step) over (order by module range 3 preceding) from torch_trace",
         "line 1, column 52: range with a distance needs order by of a number or a time, not of a "
         "text"},
        {"select 'x'::int", "line 1, column 8: 'x' is not a bigint"},
        {"",
         "line 1, column 1: the statement ends here, expected select, from, with, values, show, "
         "describe, summarize or explain"},
        {"select 1 from torch_trace where step = (select step from torch_trace)",
         "line 1, column 40: a subquery used as a value gave more than one row; use an aggregate "
         "or "
         "limit 1"}};
    TRY(list);
}

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
    return NULL;
}

TEST(a_small_stack_is_enough)
{
    pthread_t thread;
#ifdef __SANITIZE_ADDRESS__
    size_t stack = 4u << 20; /* its frames are several times as large */
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

/* What is refused memory is named, and all that a query keeps counts, whichever part keeps it. */
TEST(who_needs_too_much_memory_is_named)
{
#define TOO_MUCH                                                                                   \
    " needs more than the 4 MiB of memory that the query may use (setting query.memory); filter, " \
    "aggregate or limit what it has to keep"
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

/* What a subquery needed goes before the next one begins; its answer stays. */
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

static int scan_where(void *self, struct probing_rows *out)
{
    scanned_by = pthread_self();
    return scan(self, out);
}

static int note_niceness(void *arg, const struct sql_rows *rows)
{
    (void)rows;
    *(int *)arg = getpriority(PRIO_PROCESS, 0);
    return 0;
}

/* A query steps back behind the host's threads, but not while it is inside a plugin. */
TEST(a_nice_query_runs_aside)
{
    int before = getpriority(PRIO_PROCESS, 0), during = before;
    const char *text = "select count(*) from where_am_i";
    struct sql_sink sink = {.arg = &during, .rows = note_niceness};
    struct sql_report report;
    sql_configure(engine, SQL_SET_NICE, 3);
    CHECK_INT(sql_run(engine, text, strlen(text), NULL, &sink, &report), 0);
    CHECK(pthread_equal(scanned_by, pthread_self()));
    CHECK_INT(during, before + 3 > 19 ? 19 : before + 3);
    CHECK_INT(getpriority(PRIO_PROCESS, 0), before);
    CHECK_STR(ask("select 1 / 0"), "line 1, column 10: division by zero (nullif(x, 0) avoids it)");
    CHECK_STR(ask("select count(*) from torch_trace where local_step in (select local_step from "
                  "where_am_i)"),
              "1000");
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

TEST(writers_write)
{
    const char *text = "select 1 as a, null as b, 'x\"\n' as c, 0.1 as d, "
                       "'2024-05-01'::timestamp as t";
    struct sql_report report;
    struct buf out;
    buf_init(&out, 1 << 20);
    CHECK_INT(ask_as(SQL_FORMAT_JSONL, text, NULL, &out, &report), 0);
    CHECK_STR(buf_text(&out), "{\"a\":1,\"b\":null,\"c\":\"x\\\"\\n\",\"d\":0.1,"
                              "\"t\":\"2024-05-01T00:00:00.000000000Z\"}\n");
    buf_reset(&out);
    CHECK_INT(ask_as(SQL_FORMAT_CSV, text, NULL, &out, &report), 0);
    CHECK_STR(buf_text(&out), "a,b,c,d,t\r\n1,,\"x\"\"\n\",0.1,2024-05-01T00:00:00.000000000Z\r\n");
    buf_reset(&out);
    CHECK_INT(ask_as(SQL_FORMAT_JSON, text, NULL, &out, &report), 0);
    struct arena a;
    struct json *j;
    arena_init(&a, 0);
    CHECK_INT(json_parse(&a, out.data, out.size, &j), 0);
    CHECK_INT(json_int(j, "row_count", -1), 1);
    arena_done(&a);
    buf_reset(&out);
    CHECK_INT(ask_as(SQL_FORMAT_TABLE, "select module, duration from torch_trace limit 2", NULL,
                     &out, &report),
              0);
    CHECK(strncmp(buf_text(&out),
                  " module  | duration [s]\n---------+--------------\n"
                  " encoder |            0\n decoder |         0.25\n(2 rows, ",
                  90) == 0);
    buf_done(&out);
}

TEST(a_table_fits_the_terminal)
{
    const char *text =
        "select replace('xxxxxxxxxx', 'x', 'abcdefghi') as long, 5 as n, 'short' as s";
    struct sql_report report;
    struct sql_writer *w;
    struct buf out;
    buf_init(&out, 1 << 20);
    if (!CHECK_INT(sql_writer_new(SQL_FORMAT_TABLE, 60, add_bytes, &out, &w), 0))
        return;
    struct sql_sink sink = sql_writer_sink(w);
    CHECK_INT(sql_run(engine, text, strlen(text), NULL, &sink, &report), 0);
    CHECK_INT(sql_writer_finish(w, &report), 0);
    CHECK(strstr(buf_text(&out), "... | 5 | short\n") != NULL);
    CHECK(strchr(buf_text(&out), '\n') - buf_text(&out) <= 60);
    sql_writer_free(w);
    buf_done(&out);
}

/* A stream of answers by one writer: the header comes again only when a column has become wider. */
TEST(answers_that_follow_each_other)
{
    static const char *const answers[] = {"select 1 as n", "select 2 as n", "select 1 as n limit 0",
                                          "select 345 as n", "select 6 as n"};
    struct buf out;
    struct sql_writer *w;
    buf_init(&out, 1u << 20);
    if (!CHECK_INT(sql_writer_new(SQL_FORMAT_TABLE, 0, add_bytes, &out, &w), 0))
        return;
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        struct sql_sink sink = sql_writer_sink(w);
        struct sql_options o = {0};
        struct sql_report report;
        CHECK_INT(sql_run(engine, answers[i], strlen(answers[i]), &o, &sink, &report), 0);
        CHECK_INT(sql_writer_pause(w), 0);
    }
    CHECK_STR(buf_text(&out), " n\n---\n 1\n 2\n   n\n-----\n 345\n   6\n");
    sql_writer_free(w);
    buf_done(&out);
}

TEST(describes_itself)
{
    CHECK_STR(ask("describe torch_trace"),
              "local_step,bigint,\"\",\"\";module,text,\"\",\"\";stage,text,\"\",\"\";"
              "duration,double,s,how long;ts,timestamp,\"\",\"\";allocated,bigint,MB,\"\"");
    CHECK_STR(ask("select table_name, table_type from information_schema.tables where "
                  "table_schema <> 'information_schema' order by 1"),
              "column_docs,VIEW;memory_usage,VIEW;profiling_data,VIEW;table_docs,VIEW;"
              "torch_trace,COMPUTED;where_am_i,COMPUTED");
    /* A table of the host's takes the place of the engine's own, it is not there twice. */
    CHECK_STR(ask("select count(*), max(local_step) from information_schema.df_settings"),
              "1000,99");
    CHECK_STR(ask("select count(*) from information_schema.tables where table_name = "
                  "'df_settings'"),
              "1");
    CHECK(strstr(ask("explain select module from torch_trace where step > 3 limit 2"), "filter") !=
          NULL);
    const struct table *t = NULL;
    const char *text = "select * from torch_trace"; /* computed: nothing to follow */
    CHECK_INT(sql_followable(engine, text, strlen(text), &t), 0);
    CHECK_INT(sql_followable(engine, "select x", 8, &t), -EINVAL);
}

TEST(columns_have_other_names)
{
    CHECK_STR(ask("select max(step), max(steps), max(local_step), max(t.steps) from torch_trace t "
                  "where t.step < 9 and steps > 2"),
              "8,8,8,8");
    CHECK_STR(ask("select count(time), max(abs(cast(time as bigint) / 1e9 - epoch(ts))) < 0.001, "
                  "count(*) filter (where time <> timestamp) from torch_trace"),
              "1000,true,0");
    CHECK_STR(ask("select max(steps), max(local_step) from (select local_step / 2 as step from "
                  "torch_trace) s"),
              "49,49");
    /* A name of the list goes before another name of a column. */
    CHECK_STR(ask("select step / 50 as steps, count(*) from torch_trace group by steps order by 1"),
              "0,500;1,500");
    CHECK(strstr(ask("select count(*) as steps, max(local_step) from (select 1 as steps) s"),
                 "no column 'local_step'") != NULL); /* of a count nothing is made */
    CHECK(strstr(ask("select thread_id from torch_trace"), "no column 'thread_id'") != NULL);
}

TEST(tells_how_a_table_is_made)
{
    const char *table =
        "\"-- modules;create table python.torch_trace (;    \"\"local_step\"\" bigint,;"
        "    \"\"module\"\" text,;    \"\"stage\"\" text,;    \"\"duration\"\" "
        "double, -- s: how long;    \"\"ts\"\" timestamp,;    \"\"allocated\"\" "
        "bigint -- MB;);\"";
    CHECK(strstr(ask("show create table probe.python.torch_trace"), table) != NULL);
    CHECK(strstr(ask("show create table TORCH_TRACE"), table) != NULL);
    CHECK_STR(ask("show create view memory_usage"),
              "\"\",memory_usage,as in the seeds,\"-- as in the seeds;create view memory_usage as "
              "select ts as timestamp, allocated as memory_mb from python.torch_trace;\"");
    CHECK(strstr(ask("show create table information_schema.views"), "check_option\"\" text") !=
          NULL);
    CHECK(strstr(ask("show create table nothing"), "no table 'nothing'") != NULL);
    CHECK(strstr(ask("show create table"), "expected a table's name") != NULL);
    CHECK_STR(ask("select description from probe.probing.table_docs where table_name = "
                  "'torch_trace'"),
              "modules");
    CHECK_STR(ask("select column_name, data_type, unit, description from probing.column_docs where "
                  "table_name = 'torch_trace' and description is not null"),
              "duration,double,s,how long");
    CHECK_STR(ask("select view_definition from information_schema.views where table_name = "
                  "'memory_usage'"),
              "\"select ts as timestamp, allocated as memory_mb from python.torch_trace\"");
    /* Tables about tables, over which there are views, are looked at only once. */
    CHECK_STR(
        ask("select count(*) from information_schema.columns where table_name = 'table_docs'"),
        "6");
}

TEST(memory_may_fail_anywhere)
{
    static const char *const texts[] = {
        "select module, count(distinct stage), avg(duration) from torch_trace where step > 3 and "
        "module like '%e%' group by module order by 3 desc limit 2",
        "show create table torch_trace", "show create view memory_usage",
        "select count(*) from information_schema.views",
        "select p.* from information_schema.parameters p limit 1"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        for (unsigned n = 1; fail_alloc_step(n); n++) {
            struct buf out;
            struct sql_report report;
            buf_init(&out, 1 << 20);
            int rc = ask_as(SQL_FORMAT_TABLE, texts[i], NULL, &out, &report);
            if (rc != 0 && rc != -ENOMEM)
                CHECK_INT(rc, -ENOMEM);
            buf_done(&out);
        }
    }
}

int main(void)
{
    struct probing_table_desc settings = desc;
    struct table *t;
    struct probing_table_desc where = desc;
    settings.name = "information_schema.df_settings";
    where.name = "python.where_am_i";
    where.scan = scan_where;
    if (tables_new(&tables) || tables_add(tables, "python", &desc, NULL, &t) ||
        tables_add(tables, "information_schema", &settings, NULL, &t) ||
        tables_add(tables, "python", &where, NULL, &t) || sql_new(tables, NULL, &engine) ||
        sql_add_view(engine, "memory_usage",
                     "select ts as timestamp, allocated as memory_mb from python.torch_trace",
                     "as in the seeds")) {
        printf("# %s\n", err_text());
        return 1;
    }
    RUN(arithmetic_is_postgresqls);
    RUN(null_has_three_values);
    RUN(texts_and_times);
    RUN(groups_and_order);
    RUN(selects_in_selects);
    RUN(windows_have_frames);
    RUN(errors_say_what_and_where);
    RUN(depth_is_bounded);
    RUN(a_small_stack_is_enough);
    RUN(limits_stop_a_query);
    RUN(an_engine_has_limits_of_its_own);
    RUN(who_needs_too_much_memory_is_named);
    RUN(subqueries_give_their_memory_back);
    RUN(a_nice_query_runs_aside);
    RUN(everything_can_be_cancelled);
    RUN(writers_write);
    RUN(a_table_fits_the_terminal);
    RUN(answers_that_follow_each_other);
    RUN(describes_itself);
    RUN(columns_have_other_names);
    RUN(tells_how_a_table_is_made);
    RUN(memory_may_fail_anywhere);
    sql_free(engine);
    tables_free(tables);
    return test_end();
}
