-- Checked with PostgreSQL 15.18
-- What statements made by chance (tests/sql/test_postgres.py) were answered otherwise, or not at all.

select 'nan'::float8::text, '-inf'::float8::text, 'inf'::float8 || '!'
----
NaN,-Infinity,Infinity!

select least('NaN'::float8, 1), least(2, 'NaN'::float8), greatest('NaN'::float8, 1), greatest(1, 'NaN'::float8)
----
1,2,nan,nan

select 1e308::float8 * 10
----
error: line 1, column 22: the result is too large for a double

select -1e308::float8 - 1e308::float8
----
error: line 1, column 23: the result is too large for a double

select 1e300::float8 / 1e-300::float8
----
error: line 1, column 22: the result is too large for a double

select 'inf'::float8 * 10, 'inf'::float8 + 1, 'inf'::float8 - 'inf'::float8, 'NaN'::float8 / 0
----
inf,inf,nan,nan

select 1::float8 / 0
----
error: line 1, column 18: division by zero (nullif(x, 0) avoids it)

select sin('inf'::float8)
----
error: line 1, column 8: an infinity has no sine

select power(0::float8, '-inf'::float8)
----
error: line 1, column 8: the power is too large for a double, or undefined for a negative number or zero

select power('-inf'::float8, 0.5::float8)
----
error: line 1, column 8: the power is too large for a double, or undefined for a negative number or zero

select trim(both 'ä' from 'äöä'), ltrim('日本日', '日語'), rtrim('aöäö', 'äö'), btrim('ß', 'ä'), trim('  é ')
----
ö,本日,a,ß,é

select 1 isnull, null notnull, 1 notnull, null is unknown, true is not unknown, (1 = null) is unknown
----
false,false,true,true,true,true

select 'abcdef'::varchar(2), cast('äöü' as character varying(2)), 'abc'::varchar, length('x'::varchar(5))
----
ab,äö,abc,1

select 'abc'::varchar(0)
----
error: line 1, column 22: a text has room for one character at least

select string_agg(distinct x, ',') from (values ('b'), ('a'), ('b'), ('c'), ('A')) t(x)
----
"A,a,b,c"

select string_agg(distinct x, '-') filter (where x <> 'c') as s, max(x) from (values ('b'), ('a'), ('b'), ('c'), (null)) t(x)
----
a-b,c

select sum(x) over (order by x rows between 1 following and 1 preceding) from (values (1)) t(x)
----
error: line 1, column 21: a frame must not end before it begins

select sum(x) over (order by x rows between current row and 1 preceding) from (values (1)) t(x)
----
error: line 1, column 21: a frame must not end before it begins

select sum(x) over (order by x rows 1 following) from (values (1)) t(x)
----
error: line 1, column 21: a frame must not end before it begins

select to_timestamp(1709210096.789::float8), to_timestamp(-0.0000004::float8), to_timestamp(0.1234567::float8)
----
2024-02-29T12:34:56.789000000Z,1970-01-01T00:00:00.000000000Z,1970-01-01T00:00:00.123457000Z

select '20240229'::date, timestamp '20240229 10:00', 'epoch'::timestamp, date 'epoch', '2024-01-01 24:00'::date, timestamp '2024-01-01 24:00'
----
2024-02-29,2024-02-29T10:00:00.000000000Z,1970-01-01T00:00:00.000000000Z,1970-01-01,2024-01-01,2024-01-02T00:00:00.000000000Z

select '20240230'::date
----
error: line 1, column 8: '20240230' is not a date like '2024-05-01'

select 'tr'::boolean, 'FAL'::boolean, 'ye'::boolean, 'of'::boolean, 'n'::boolean
----
true,false,true,false,false

select 'o'::boolean
----
error: line 1, column 8: 'o' is not a boolean

select ~5, ~(-1), ~0 & 7, ~1 + 2, - ~3
----
-6,0,7,-4,4

select log(2, 8), log(10, 1000), log(3, 81)
----
3,3,4

select log(-2, 8)
----
error: line 1, column 8: cannot take the logarithm of a number that is not positive

select substring('hello' for 2), substring('hello' for 2 from 2), substring('hello' from 2), substring('hello' from -1 for 4)
----
he,el,ello,he

select substring('foobar' from 'o.b'), substring('foobar' from 'o(.)b'), substring('foobar', 'z'), regexp_substr('foobar', 'o(.)b')
----
oob,o,,oob

select $$a'b$$, $x$a$$b$x$, $$$$ || 'e', length($y$a
b$y$)
----
a'b,a$$b,e,3

select 'b' collate "C" < 'a', x from (values ('b'), ('A'), ('a')) t(x) order by x collate "C"
----
false,A
false,a
false,b

select x, x > all (select 2), x > any (select 2), x >= all (values (1), (5)), x <= some (values (0), (1)), x <> any (values (1), (1)), x = all (values (1), (1)) from (values (1), (5), (null)) t(x) order by x
----
1,false,false,false,true,false,true
5,true,true,true,false,true,false
,,,,,,

select x, x > all (select null::int), x > any (select 1 where false), x > all (select 1 where false), x < all (values (9), (null)), x > any (values (0), (null)), x > any (values (9), (null)) from (values (1), (5), (null)) t(x) order by x
----
1,,false,true,,true,
5,,false,true,,true,
,,false,true,,,

select a.x from (values (1), (2), (3)) a(x) where a.x >= all (select b.y from (values (1, 2), (2, 1), (3, 3)) b(x, y) where b.x <= a.x) order by 1
----
2
3

select round(2.5), round(-2.5), round(0.5), round(2.5::float8), round(3.5), round(2.5::numeric), round(5 / 2.0), round(2.5 * 1)
----
3,-3,1,2,4,3,3,3

select round(avg(x)), round(avg(x::float8)) from (values (2), (3)) t(x)
----
3,2

select round(1.005, 2), round(2.675, 2), round(2.675::float8::numeric, 2), round(-1.005, 2), round(1234.5, -2), round(1250, -2), round(0.285, 2), round(1.115, 2)
----
1.01,2.68,2.68,-1.01,1200,1300,0.29,1.12

select trunc(0.29, 2), trunc(2.3, 1), trunc(-1.999, 2), trunc(4.35 * 100), trunc(1.15, 1), trunc(1999.9, -3)
----
0.29,2.3,-1.99,435,1.1,1000

select 2.675::numeric(10, 2), 1.005::numeric(5, 2), 0.285::float8::numeric(4, 2), 99.995::numeric(5, 2)
----
2.68,1.01,0.29,100

select round(123456789.125, 2), round(0.1 + 0.2, 10), round(1e15 + 0.5), round(100.4999999999999, 0)
----
123456789.13,0.3,1000000000000001,100

select 1.5::float8::int, 2.5::int, 2.5::float8::int, 3.5::int, -2.5::int
----
2,3,2,4,-3

select (2.5)::bigint, cast(2.5 as int), cast(0.5 as bigint), 2.5::numeric::int
----
3,3,1,3

select e'a\nb', E'it''s\t\x41\u00e4\\', e'\101\b', E'\U0001F600', e'q\q'
----
"a
b",it's	Aä\,A,😀,qq

select e'\u00'
----
error: line 1, column 10: no letter is written so

select e'\ud800'
----
error: line 1, column 10: no letter is written so

select e'abc
----
error: line 1, column 8: the text that begins here is not closed with '

select date_trunc('hour', interval '1 day 02:03:04'), date_trunc('month', interval '1 year 2 mons 3 days'), date_trunc('minute', interval '-02:03:04'), date_trunc('year', interval '-14 mons'), date_trunc('quarter', interval '14 mons')
----
1 day 02:00:00,1 year 2 mons,-02:03:00,-1 years,1 year

select date_trunc('week', interval '14 days 1 mon')
----
error: line 1, column 8: an interval is cut to microseconds, milliseconds, seconds, minutes, hours, days, months, quarters or years

select concat_ws(',', 1, null, 2, 1.5::float8, date '2024-01-01')
----
"1,2,1.5,2024-01-01"

select date_trunc('decade', timestamp '2024-02-29'), date_trunc('century', timestamp '2024-02-29'), date_trunc('century', timestamp '2000-12-31'), date_trunc('millennium', timestamp '2024-02-29'), date_trunc('decade', timestamp '1969-01-01')
----
2020-01-01T00:00:00.000000000Z,2001-01-01T00:00:00.000000000Z,1901-01-01T00:00:00.000000000Z,2001-01-01T00:00:00.000000000Z,1960-01-01T00:00:00.000000000Z

select extract(decade from date '1969-02-28'), extract(century from date '2000-02-29'), extract(century from date '2001-01-01'), extract(millennium from date '2001-01-01'), extract(century from interval '250 years'), extract(decade from interval '25 years')
----
196,20,21,3,2,2

select round(x::numeric), cast(cast(x as decimal) as bigint) from (values (2.5::float8), (0.5), (-2.5)) t(x) order by 1
----
-3,-3
1,1
3,3

select '{"a": {"b": [1, 2]}}'::json -> 'a' -> 'b' ->> 0, cast('[1, "x"]' as jsonb) ->> 1, ('{"a": null}'::json ->> 'a') is null
----
1,x,true

select '{'::json
----
error: line 1, column 11: the text is not JSON

select x::json ->> 'k' from (values ('{"k": 1}'), (null)) t(x) order by 1
----
1
(null)

select json_extract_path_text('{"a": {"b": "c"}}', 'a', 'b'), json_extract_path('{"a": {"b": "c"}}', 'a', 'b'), json_extract_path_text('{"$a": 1}', '$a')
----
c,"""c""",1

select power('-inf'::float8, 'NaN'::float8), round(-0.25)::float8::text, round(-0.001::numeric, 2)::float8::text
----
nan,0,0
