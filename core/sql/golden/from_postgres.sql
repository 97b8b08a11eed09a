-- Checked with PostgreSQL 15.18
-- Words and functions that people bring along from there.

select id from (values (1, 'a', 1.5), (2, 'b', 2.5), (3, 'a', null), (4, 'c', 0.5)) t(id, module, dur) where module = any (select 'a') order by id
----
1
3

select id from (values (1, 'a', 1.5), (2, 'b', 2.5), (3, 'a', null), (4, 'c', 0.5)) t(id, module, dur) where module = some (select 'a' union select 'c') and id <> all (select 1) order by id
----
3
4

select id from (values (1, 'a', 1.5), (2, 'b', 2.5), (3, 'a', null), (4, 'c', 0.5)) t(id, module, dur) where id <> all (select null::int) order by id
----

select 'a_c' like 'a!_c' escape '!', 'abc' like 'a!_c' escape '!', '50%' like '%!%' escape '!', 'a\b' like 'a\b' escape '', 'x' not like '!x' escape '!'
----
true,false,true,true,false

select 'A%' ilike 'a/%' escape '/', 'AB' ilike 'a/%' escape '/', 'a\c' like 'a\c' escape '!'
----
true,false,true

select id from (values (1, 'a', 1.5), (2, 'b', 2.5), (3, 'a', null), (4, 'c', 0.5)) t(id, module, dur) order by id fetch first row only
----
1

select id from (values (1, 'a', 1.5), (2, 'b', 2.5), (3, 'a', null), (4, 'c', 0.5)) t(id, module, dur) order by id offset 1 row fetch next rows only
----
2

select 5 & 3, 5 | 3, 5 # 3, 1 << 4, 16 >> 2, -16 >> 2, 1 | 2 + 4, 6 & 3 = 2
----
1,7,6,16,4,-4,7,true

select 1::bigint << 62, (-1)::bigint >> 63, 7 & null
----
4611686018427387904,-1,

select timestamptz '2024-01-01 00:00:00+02' = timestamp '2023-12-31 22:00', cast('2024-01-01 10:00' as timestamp without time zone)
----
true,2024-01-01T10:00:00.000000000Z

select '2024-05-06 10:11:12'::date = date '2024-05-06', cast(timestamp '1969-12-31 23:59' as date) = '1969-12-31'::timestamp, date '2024-05-06 23:00' = timestamp '2024-05-06'
----
true,true,true

select 2.345::numeric(10, 2) > 2.3, cast(12.5 as numeric(5, 1)), cast('7.126' as decimal(8,2)), 1.26::numeric(3), 3::numeric(4, 2)
----
true,12.5,7.13,1,3

select current_date <= now(), current_date > now() - interval '25 hours', localtimestamp <= now()
----
true,true,true

select div(7, 2), div(-7, 2), chr(65), chr(228), chr(8364), chr(128512), ascii('A'), ascii('ä'), ascii('€uro'), ascii(''), ascii('😀')
----
3,-3,A,ä,€,😀,65,228,8364,0,128512

select chr(0)
----
error: line 1, column 8: there is no character with this number

select split_part('a.b.c', '.', -1), split_part('a.b.c', '.', -3), split_part('a.b.c', '.', -4), split_part('a.b.c', '', -1), split_part('abc', '.', -1), split_part('', '.', -1), split_part('a..b', '..', -2)
----
c,a,"",a.b.c,abc,"",a

select split_part('a.b', '.', 0)
----
error: line 1, column 8: split_part counts parts from 1, or from -1 backwards from the end

select pg_size_pretty(0::bigint), pg_size_pretty(10239::bigint), pg_size_pretty(10240::bigint), pg_size_pretty(123456789::bigint), pg_size_pretty((-123456789)::bigint), pg_size_pretty(10485248::bigint), pg_size_pretty(10485247::bigint)
----
0 bytes,10239 bytes,10 kB,118 MB,-118 MB,10 MB,10239 kB

select pg_size_pretty(9223372036854775807::bigint), pg_size_pretty((-9223372036854775807)::bigint), pg_size_pretty(1000000000000::bigint)
----
8192 PB,-8192 PB,931 GB

select json_array_length('[1, [2, 3], "x"]'), json_array_length('[]'), json_typeof('[1]'), json_typeof('{"a": 1}'), json_typeof('"x"'), json_typeof('1.5'), json_typeof('true'), json_typeof('null')
----
3,0,array,object,string,number,boolean,null

select count(*) from (values (1, 'a', 1.5), (2, 'b', 2.5), (3, 'a', null), (4, 'c', 0.5)) t(id, module, dur) group by ()
----
4

select 1 as a union all select 2 order by 1 limit all
----
1
2

select * from (select 1 as semi, 2 as anti) pivot order by 1
----
1,2

select sum(dur) as s from (values (1, 'a', 1.5), (2, 'b', 2.5), (3, 'a', null), (4, 'c', 0.5)) t(id, module, dur) having sum(dur) > 1
----
4.5

select sum(x) over (groups between 1 preceding and current row) from (values (1),(2)) t(x)
----
error: line 1, column 21: groups counts groups of equal rows, so it needs an order by

select power(10, 400)
----
error: line 1, column 8: the power is too large for a double, or undefined for a negative number or zero

select exp(1000)
----
error: line 1, column 8: the result of exp() is too large for a double

select n from (values (1)) a(n), (values (2)) b(n)
----
error: line 1, column 8: column 'n' is ambiguous: more than one of the tables has it; write a.n or b.n

with t(a, b) as (values (1, 'x'), (3, 'y'), (2, 'z')) table t order by a desc limit 2 offset 1
----
2,z
1,x

with t(a) as (values (1), (2)), u as (table t) table u union all table t union select 5 order by 1 fetch first 4 rows only
----
1
2
5

with t(a) as (values (1), (2)), u as (table t) (table u) union all table only t order by 1
----
1
1
2
2

with t(a) as (values (1), (2)) select a, a in (table t), exists (table t), (select max(v.a) from (table t) v) from t order by a
----
1,true,true,2
2,true,true,2

with t(a) as (values (1), (2)) table t * order by 1
----
1
2

with t(a) as (values (1), (2)) table t where a = 1
----
error: line 1, column 40: found 'where' too late, or a second time; their order is from, where, group by, having, order by, limit, offset

-- From 10^15 on a double is written with an exponent, and the least ones have few digits.
select 1e15::double precision::text, 999999999999999::double precision::text, 9999999999999998::double precision::text, (-1234567890123456.5)::double precision::text, 1200000000000001::double precision::text, 5e-324::double precision::text
----
1e+15,999999999999999,9.999999999999998e+15,-1.2345678901234565e+15,1.200000000000001e+15,5e-324

-- Comments nest.
select 1 /* a /* b */ c */ + 1
----
2

select 1 /* a /* b */ c
----
error: line 1, column 10: the comment that begins here is not closed with */
