-- What others have and this has not: refused with what does the same; and what is ours alone.

select id from (values (1)) a(id) semi join (values (1)) b(id) on a.id = b.id
----
error: line 1, column 35: no semi join: where exists (select 1 from ... where ...)

select 1 from (values (1)) a(id) anti join (values (1)) b(id) on true
----
error: line 1, column 34: no anti join: where not exists (select 1 from ... where ...)

select 1 from (values (1)) a positional join (values (1)) b
----
error: line 1, column 30: a positional join is not supported; join by row_number() over ()

select 1 from (values (1)) t tablesample bernoulli (10)
----
error: line 1, column 30: samples are not supported; `where step % 100 = 0` takes one row of a hundred

select 1 from (values (1)) t using sample 10
----
error: line 1, column 30: samples are not supported; `where step % 100 = 0` takes one row of a hundred

select 1 from (values (1)) t pivot (sum(x) for k in (1))
----
error: line 1, column 30: pivot is not supported; sum(x) filter (where k = 'a') makes a column

pivot t on x
----
error: line 1, column 1: pivot is not supported; sum(x) filter (where k = 'a') makes a column

select a, count(*) from (values (1)) t(a) group by a with rollup
----
error: line 1, column 54: write group by rollup (a, b) in place of `with rollup`

select grouping(b) from (values (1, 2)) t(a, b) group by rollup (a)
----
error: line 1, column 17: grouping() takes expressions that are grouped by, as written there

select a from (values (1)) t(a) where grouping(a) = 0 group by rollup (a)
----
error: line 1, column 39: grouping() is not allowed in where

select sum(grouping(a)) from (values (1)) t(a) group by rollup (a)
----
error: line 1, column 12: grouping() is not allowed in an aggregate

select grouping(a) from (values (1)) t(a)
----
error: line 1, column 17: grouping() takes expressions that are grouped by, as written there

select 1 from (values (1)) t(a) group by cube (a, a, a, a, a, a, a, a, a, a, a, a, a)
----
error: line 1, column 42: a cube of more than 12 makes more than 4096 grouping sets

select 1 from (values (1)) t(a) group by grouping sets (a, (a, ))
----
error: line 1, column 64: found ')', expected an expression

select [1, 2]
----
error: line 1, column 8: arrays stand only in = any (array[1, 2]) and unnest(array[1, 2]); array_agg(), json_agg() and json_build_array() make lists as values

select array[1, 2]
----
error: line 1, column 8: arrays stand only in = any (array[1, 2]) and unnest(array[1, 2]); array_agg(), json_agg() and json_build_array() make lists as values

select generate_series(1, 3)
----
error: line 1, column 8: unknown function 'generate_series'; it gives rows: from generate_series(1, 9) n

select 'a' like 'b' escape 'cd'
----
error: line 1, column 28: escape takes one character, after a pattern that is a literal

select lag(x) respect nulls over (order by x) from (values (1), (2)) t(x) order by x
----
(null)
1

select 1 as a union by name select 2 as a
----
error: line 1, column 21: the columns of a union are matched by position only

insert into t values (1)
----
error: line 1, column 1: insert is not supported: tables are read-only here; `with` names a select

create table t (x int)
----
error: line 1, column 1: create is not supported: tables are read-only here; `with` names a select

begin
----
error: line 1, column 1: transactions are not supported: tables are read-only here

pragma table_info('t')
----
error: line 1, column 1: pragma is not supported; see `describe TABLE`, `show all` and `set`

select random()
----
error: line 1, column 8: unknown function 'random'; random functions are not supported; `where step % 100 = 0` takes one row of a hundred

describe select 1 as a, 'x' as b, now() as c, 1.5 as d
----
a,bigint,"",""
b,text,"",""
c,timestamp,"",""
d,double,"",""

describe from (values (1, true)) t(x, y)
----
x,bigint,"",""
y,boolean,"",""

summarize information_schema.nothing
----
error: line 1, column 11: unknown table 'information_schema.nothing'; `show tables` lists them

summarize information_schema.schemata
----
catalog_name,text,probing,probing,1,,,,,,1,0
schema_name,text,information_schema,information_schema,1,,,,,,1,0
schema_owner,text,,,0,,,,,,1,100
default_character_set_catalog,text,,,0,,,,,,1,100
default_character_set_schema,text,,,0,,,,,,1,100
default_character_set_name,text,,,0,,,,,,1,100
sql_path,text,,,0,,,,,,1,100

select ltrim(version(), 'probing .0123456789')
----
""

select iif(true, 1, 2), nvl(null, 3), pg_typeof(1), json_array_length('{"a": 1}') is null, json_typeof('nonsense') is null
----
1,3,bigint,true,true

select 1 << 64
----
error: line 1, column 10: a bigint is shifted by 0 to 63 bits

select json_extract('[1, 2, 3]', '$[x]')
----
(null)

select sum(x) as s, row_number() over (order by sum(x)) as n, max(n) from (values (1)) t(x)
----
error: line 1, column 67: an aggregate cannot be inside another aggregate

-- A week begins on Monday, as in date_trunc(): DuckDB counts from the epoch.
select date_diff('week', timestamp '2024-01-07', timestamp '2024-01-08'), date_diff('week', timestamp '2024-01-08', timestamp '2024-01-14 23:59')
----
1,0

select 18446744073709551616
----
error: line 1, column 8: the integer does not fit into 64 bits; written with a point (or as 1e19) it is a double, which keeps 15 digits

select top 5 n from (values (1)) t(n)
----
error: line 1, column 8: `top` is not supported; write `limit 5` at the end of the select

select cnt(*) from (values (1)) t(n)
----
error: line 1, column 8: unknown function 'cnt'; count(*), count(x)

select n from (values (1)) t(n) where n = "python"
----
error: line 1, column 43: unknown column "python" in t; a text is written in single quotes: 'python'

select date '2024-01-01' + 1.5
----
error: line 1, column 26: a date moves by whole days, or by an interval: date + interval '36 hours'

select time_bucket(interval '1 month', timestamp '2024-01-10')
----
error: line 1, column 8: a time bucket cannot be months or years, which have no fixed length; date_trunc('month', ts) follows the calendar

select strftime(timestamp '2024-05-03', '%Q')
----
error: line 1, column 8: strftime() does not know %Q; it knows %Y %y %m %d %e %H %I %M %S %f %g %n %p %j %a %A %b %B %u %V %G %F %T %D %R %Z %z %%

select lead(x order by x) over () from (values (1)) t(x)
----
error: line 1, column 24: the order of lead() stands in its window: over (order by ...)

select arg_min(x, y order by x) from (values (1, 2)) t(x, y)
----
error: line 1, column 30: arg_min() is ordered by its second argument and takes no order by

show probing.sample_rat
----
error: line 1, column 1: unknown setting 'probing.sample_rat'; `show all` lists them

select sum(x) respect nulls from (values (1)) t(x)
----
error: line 1, column 8: sum() never counts NULLs; `respect nulls` is for first and last

\d
----
error: line 1, column 1: unexpected '\': psql's commands are for the shell, `probing -t PID query`; in SQL write `show tables` for \d and \dt, `describe TABLE` for \d TABLE, `show views`, `show schemas` and `show functions`

select $__timeFilter(ts)
----
error: line 1, column 8: unexpected '$': this begins a text ($$like this$$) or a macro of Grafana's PostgreSQL source, which nobody has replaced: write ts >= now() - interval '1 hour'

select ? + 1
----
error: line 1, column 8: unexpected '?': a statement has no parameters, write the value

selct 1
----
error: line 1, column 1: found 'selct'; did you mean 'select'?

desribe x
----
error: line 1, column 1: found 'desribe'; did you mean 'describe'?

help
----
error: line 1, column 1: `show tables`, `describe TABLE` and `show functions` say what there is

use probing
----
error: line 1, column 1: no database is chosen: tables are named schema.table

vacuum
----
error: line 1, column 1: vacuum is not supported: tables are read-only here; `with` names a select

select n from (values (1)) t(n) wher n = 1
----
error: line 1, column 33: found 'wher', expected the end of the statement or 'where'

select n from (values (1)) t(n) grup by n
----
error: line 1, column 33: found 'grup', expected the end of the statement or 'group'

select 1; select 2
----
error: line 1, column 11: found 'select', expected no more: one statement is answered at a time

select * from pg_class
----
error: line 1, column 15: unknown table 'pg_class'; information_schema.tables, .columns and .routines say what there is

select * from pg_catalog.pg_tables
----
error: line 1, column 15: unknown table 'pg_catalog.pg_tables'; information_schema.tables, .columns and .routines say what there is

select now() >= 1700000000
----
error: line 1, column 14: no operator >= for timestamp and bigint; to_timestamp(x) makes a timestamp of seconds

select current_database()
----
probing

select current_schema()
----
error: line 1, column 8: unknown function 'current_schema'; tables are named schema.table; `show schemas` lists the schemas

select pg_sleep(1)
----
error: line 1, column 8: unknown function 'pg_sleep'; nothing waits here; `probing watch` asks again and again

select try_cast('{' as json), try_cast('[1]' as json)
----
,[1]

select n from (values (1)) t(n) fetch first 1 row with ties
----
error: line 1, column 51: with ties needs an order by: rows tie that are equal in it

select to_char(interval '1 day', 'HH24')
----
error: line 1, column 8: to_char() does not format intervals: they are texts by themselves, x::text, and extract(epoch from x) is seconds

select 1 = any ('{1,2')
----
error: line 1, column 17: an array is written '{a,b}', or array['a', 'b']

select 1 = any ('{1}2}')
----
error: line 1, column 17: an array is written '{a,b}', or array['a', 'b']

select 1 = any ('{1,,2}')
----
error: line 1, column 17: an array is written '{a,b}', or array['a', 'b']

select array(select 1)
----
error: line 1, column 8: arrays stand only in = any (array[1, 2]) and unnest(array[1, 2]); array_agg(), json_agg() and json_build_array() make lists as values

select (regexp_match('ab', '(a)(b)'))[2]
----
error: line 1, column 38: arrays have no subscripts here; first(x order by y), split_part(text, ',', 2), regexp_match(text, re, 2) and text ->> 2 give one of several

select * from unnest(array[]::int[])
----
error: line 1, column 22: unnest of an array without elements has no rows

select scale(1.5)
----
error: line 1, column 8: unknown function 'scale'; numbers with a point are doubles, which keep no count of their digits

select string_to_array('a,b', ',')
----
error: line 1, column 8: unknown function 'string_to_array'; x = any (string_to_array(text, ',')), from t, string_to_table(t.text, ',') x, split_part(text, ',', 1)

select percentile_cont(null) within group (order by a) from (values (1)) t(a)
----
error: line 1, column 24: the fraction must be a constant between 0 and 1

select '[1]'::json #> a from (values ('{0}')) t(a)
----
error: line 1, column 23: found 'a', expected '{a,b}' or array['a', 'b'] behind #>, as constants

select 'a' similar to a from (values ('a')) t(a)
----
error: line 1, column 12: the pattern of `similar to` is a literal; x ~ regexp takes others

select 3 = any (string_to_array('1,2', ','))
----
error: line 1, column 8: in needs a text, this is a bigint

select 100000::smallint
----
error: line 1, column 14: smallint out of range; a bigint holds it

select a from (values (1)) t(a) order by 1.5
----
error: line 1, column 42: order by a constant that is no column's number: it orders nothing; a column's name is written in "double quotes", or without any

select x like 'a\' from (values ('ab')) t(x)
----
error: line 1, column 10: the pattern of like ends with its escape character, which stands before another one; \\ is a \ itself

select 1 = any (string_to_array('1', ',')::int[])
----
error: line 1, column 42: found '::', expected ) behind string_to_array(text, ','): its values are texts

select coalesce()
----
error: line 1, column 8: coalesce() takes at least one argument

select nullif(1)
----
error: line 1, column 8: nullif() takes two arguments

select a from (values (1)) t(a) limit 1, 2
----
error: line 1, column 40: write `limit COUNT offset FIRST` in place of `limit a, b`

select a from (values (1)) t(a) limit 5 order by a
----
error: line 1, column 41: found 'order' too late, or a second time; their order is from, where, group by, having, order by, limit, offset

select a from (values (1)) t(a) order by a where a = 1
----
error: line 1, column 44: found 'where' too late, or a second time; their order is from, where, group by, having, order by, limit, offset

select a from (values (1)) t(a) for update
----
error: line 1, column 33: rows are not locked: tables are read-only here

select a into x from (values (1)) t(a)
----
error: line 1, column 15: select into is not supported: tables are read-only here

select t from (values (1)) t(a)
----
error: line 1, column 8: 't' is a table and no value; its columns are t.*, and json_build_object('a', a) makes one value of several

select time '10:00'
----
error: line 1, column 8: there is no type 'time'; texts are cast to boolean, bigint, double, text, blob, timestamp, date or interval

select '10:00'::time
----
error: line 1, column 17: there is no type for a time of day: ts - date_trunc('day', ts) is an interval, to_char(ts, 'HH24:MI:SS') a text

select uuid '550e8400-e29b-41d4-a716-446655440000'
----
error: line 1, column 8: there is no type 'uuid'; texts are cast to boolean, bigint, double, text, blob, timestamp, date or interval

select '{1}'::int[]
----
error: line 1, column 18: there are no types of arrays: they stand only in = any ('{1,2}') and unnest('{1,2}'::bigint[]); array_agg(x) and json_build_array() make lists

select 1 || 2
----
error: line 1, column 10: no operator || for bigint and bigint; cast one of them: x::text

select true + 1
----
error: line 1, column 13: no operator + for boolean and bigint; cast one of them: x::bigint

select not 5
----
error: line 1, column 8: not needs a boolean, this is a bigint

select 'a' like 5
----
error: line 1, column 12: like compares texts; cast what is none: x::text

select :x
----
error: line 1, column 8: unexpected ':': a statement has no parameters, write the value

select current_user
----
error: line 1, column 8: unknown column 'current_user'; every query runs with the rights of its process

select sysdate
----
error: line 1, column 8: unknown column 'sysdate'; now()

select 'a' glob 'a*'
----
error: line 1, column 17: found ''a*'', expected the end of the statement

copy cpu.tasks to 'x.csv'
----
error: line 1, column 1: copy is not supported: to write a file: probing -t TARGET export TABLE -o FILE.csv

select array_agg(x) || 3 from (values (1), (2)) t(x)
----
error: line 1, column 8: arrays have no order here, and are no texts: x::text of the array is one, array_to_string(x, ',') joins its elements

select min(a) from (select array_agg(x) a from (values (1), (2)) t(x)) s
----
error: line 1, column 12: arrays have no order here, and are no texts: x::text of the array is one, array_to_string(x, ',') joins its elements

select a from (select array_agg(x) a from (values (1), (2)) t(x) group by x) s order by a
----
error: line 1, column 8: arrays have no order here, and are no texts: x::text of the array is one, array_to_string(x, ',') joins its elements

select row_number() over (order by a) from (select array_agg(x) a from (values (1), (2)) t(x)) s
----
error: line 1, column 36: arrays have no order here, and are no texts: x::text of the array is one, array_to_string(x, ',') joins its elements

select to_json(array_agg(x)) from (values (1), (2)) t(x)
----
error: line 1, column 16: an array is no JSON here: json_agg(x) makes a list of JSON

select array_length('a,b', 1)
----
error: line 1, column 21: array_length() takes an array, as array_agg(x) makes it

select string_agg(distinct x, ',' order by x, y) from (values ('a', 1)) t(x, y)
----
error: line 1, column 44: with distinct, string_agg() is ordered by what it collects

select 1 \watch 5
----
error: line 1, column 10: unexpected '\': psql's commands are for the shell, `probing -t PID query`; in SQL write `show tables` for \d and \dt, `describe TABLE` for \d TABLE, `show views`, `show schemas` and `show functions`

select json_object_agg(k, v ignore nulls) from (values ('a', 1), ('b', null)) t(k, v)
----
error: line 1, column 8: json_object_agg() has no list of single values to ignore NULLs in; use filter (where ... is not null)

-- An aggregate of a query further out than the one around, and one in a lateral.
with t(k) as (values (1),(2)) select (select (select max(t.k) from t v limit 1) from t u limit 1) from t
----
error: line 1, column 54: max() uses only columns of the outer query and belongs there: write it in that query, or use a column of this select in it

with t(k) as (values (1),(2)) select k, (select sum(m) from t u, lateral (select u.k + max(t.k) as m) l) from t group by k
----
error: line 1, column 88: max() uses only columns of the outer query and belongs there: write it in that query, or use a column of this select in it

select to_char(1234.5, '9G999D00')
----
error: line 1, column 8: no function to_char(double, '...'): numbers are rounded, round(x, 2), and cast, x::text

select to_date('2024-05', 'YYYY-MM')
----
error: line 1, column 8: unknown function 'to_date'; a text is cast: '2024-02-29'::date

select to_timestamp('2024-05', 'YYYY-MM')
----
error: line 1, column 8: no function to_timestamp('...', '...'): a text is cast: '2024-02-29 12:30:00'::timestamp

select format('%s of %s', 1, 2)
----
error: line 1, column 8: unknown function 'format'; concat(a, ' of ', b), round(x, 2)
