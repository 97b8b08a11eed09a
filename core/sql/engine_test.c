/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/engine_test.c - the language by example: statements with their answers or errors.
 */
#include <errno.h>

#include "core/sql/example_test.h"
#include "sdk/lib/json.h"
#include "tests/fail_alloc.h"

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
         "500,true,post forward|pre forward"},
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
         "line 1, column 35: unknown window 'w1'; define it after having: window w1 as (...)"},
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
         "line 1, column 8: unknown column 'modul' in python.torch_trace; did you mean 'module'?"},
        {"select *\nfrom python.torch_trc",
         "line 2, column 6: unknown table 'python.torch_trc'; did you mean 'python.torch_trace'?"},
        {"select rond(1)", "line 1, column 8: unknown function 'rond'; did you mean 'round'?"},
        {"select * form torch_trace",
         "line 1, column 10: found 'form', expected the end of the statement or 'from'"},
        {"select (1", "line 1, column 10: the statement ends here, expected )"},
        {"select 'abc", "line 1, column 8: the text that begins here is not closed with '"},
        {"select module from torch_trace group by stage",
         "line 1, column 8: column 'module' must be in group by or inside an aggregate"},
        {"select 1 from torch_trace where avg(duration) > 3",
         "line 1, column 33: the aggregate avg() is not allowed in where; use having"},
        {"select 1 from torch_trace where module = 3",
         "line 1, column 40: no operator = for text and bigint; cast one of them: x::text"},
        {"select 1 from torch_trace where row_number() over () = 1",
         "line 1, column 33: window functions are not allowed in where; qualify filters by them, "
         "or a select around this one"},
        {"select count(*) from torch_trace having row_number() over () = 1",
         "line 1, column 41: window functions are not allowed in having; qualify filters by them, "
         "or a select around this one"},
        {"show tables from python like 3",
         "line 1, column 30: found '3', expected a pattern like '%step%'"},
        {"show tables from pyton",
         "line 1, column 18: unknown schema 'pyton'; did you mean 'python'?"},
        {"show index from torch_trace",
         "line 1, column 6: no indexes: a segment knows the least and the most of each of its "
         "columns"},
        {"select rank() from torch_trace",
         "line 1, column 8: rank() is a window function: rank(...) over (order by ...)"},
        {"select sum(local_step) over (order by module range 3 preceding) from torch_trace",
         "line 1, column 52: range with a distance needs order by of a number or a time, not of a "
         "text"},
        {"select 'x'::int", "line 1, column 8: 'x' is not a bigint"},
        {"python.torch_trace where 1 = 1;",
         "line 1, column 1: 'python.torch_trace' is no statement; write: select * from "
         "python.torch_trace limit 10"},
        {"",
         "line 1, column 1: the statement ends here, expected select, from, with, values, table, "
         "show, describe, summarize or explain"},
        {"select 1 from torch_trace where step = (select step from torch_trace)",
         "line 1, column 40: a subquery used as a value gave more than one row; use an aggregate "
         "or "
         "limit 1"}};
    TRY(list);
}

TEST(describes_itself)
{
    CHECK_STR(ask("describe torch_trace"),
              "local_step,bigint,\"\",\"\";module,text,\"\",\"\";stage,text,\"\",\"\";"
              "duration,double,s,how long;ts,timestamp,\"\",\"\";allocated,bigint,MB,\"\"");
    CHECK_STR(ask("select table_name, table_type from information_schema.tables where "
                  "table_schema <> 'information_schema' order by 1"),
              "column_docs,VIEW;memory_usage,VIEW;table_docs,VIEW;"
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

TEST(lists_what_there_is)
{
    static const struct example list[] = {
        {"show tables like '%TRACE'", "python,torch_trace,COMPUTED,modules"},
        {"show tables from python like 'python.w%'", "python,where_am_i,COMPUTED,modules"},
        {"show full tables in python like 'x'", ""},
        {"show all tables like 'memory_u%'", "\"\",memory_usage,VIEW,as in the seeds"},
        {"show views like 'memory_u%'", "\"\",memory_usage,as in the seeds"},
        {"show columns from torch_trace like 'dur%'", "duration,double,s,how long"},
        {"show fields in torch_trace from python like 'DUR%'", "duration,double,s,how long"},
        {"show columns from torch_trace like 'it''s'", ""},
        {"show functions like 'time_b%'", "time_bucket"},
        {"show schemas like 'py%'", "python"},
        {"show databases like '%b%'", "probing"}};
    TRY(list);
    struct sql_report report;
    struct buf out;
    buf_init(&out, 1 << 20);
    CHECK_INT(ask_as(SQL_FORMAT_CSV, "show tables like 'x'", NULL, &out, &report), 0);
    CHECK_STR(report.empty, ""); /* it was of a table that a view would have read */
    buf_done(&out);
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
                 "unknown column 'local_step'") != NULL); /* of a count nothing is made */
    CHECK(strstr(ask("select thread_id from torch_trace"), "unknown column 'thread_id'") != NULL);
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
    CHECK(strstr(ask("show create table nothing"), "unknown table 'nothing'") != NULL);
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
        ("select module, count(distinct stage), avg(duration) from torch_trace where step > 3 and "
         "module like '%e%' group by module order by 3 desc limit 2"),
        "show create table torch_trace", "show create view memory_usage",
        "select count(*) from information_schema.views",
        "select r.* from information_schema.routines r limit 1"};
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
    if (begin_examples(scan) != 0)
        return 1;
    RUN(arithmetic_is_postgresqls);
    RUN(null_has_three_values);
    RUN(texts_and_times);
    RUN(groups_and_order);
    RUN(selects_in_selects);
    RUN(windows_have_frames);
    RUN(errors_say_what_and_where);
    RUN(describes_itself);
    RUN(lists_what_there_is);
    RUN(columns_have_other_names);
    RUN(tells_how_a_table_is_made);
    RUN(memory_may_fail_anywhere);
    return end_examples();
}
