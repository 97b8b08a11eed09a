-- Checked with DuckDB 2.0.0
-- Words and functions that people bring along from there.

from (values (1, 'a', 1.5), (2, 'b', 2.5), (3, 'a', null), (4, 'c', 0.5)) t(id, module, dur) select id, module where id > 2 order by id
----
3,a
4,c

from (values (1, 'a', 1.5), (2, 'b', 2.5), (3, 'a', null), (4, 'c', 0.5)) t(id, module, dur) where id < 3 order by id
----
1,a,1.5
2,b,2.5

select count(*) from (from (values (1, 'a', 1.5), (2, 'b', 2.5), (3, 'a', null), (4, 'c', 0.5)) t(id, module, dur))
----
4

select * except (dur) from (values (1, 'a', 1.5), (2, 'b', 2.5), (3, 'a', null), (4, 'c', 0.5)) t(id, module, dur) order by id limit 2
----
1,a
2,b

select t.* exclude (module, id) from (values (1, 'a', 1.5), (2, 'b', 2.5), (3, 'a', null), (4, 'c', 0.5)) t(id, module, dur) order by dur limit 1
----
0.5

select * replace (dur * 2 as dur, upper(module) as module) from (values (1, 'a', 1.5), (2, 'b', 2.5), (3, 'a', null), (4, 'c', 0.5)) t(id, module, dur) order by id limit 2
----
1,A,3
2,B,5

select * exclude (id) replace (coalesce(dur, 0) as dur) from (values (1, 'a', 1.5), (2, 'b', 2.5), (3, 'a', null), (4, 'c', 0.5)) t(id, module, dur) order by all
----
a,0
a,1.5
b,2.5
c,0.5

select * exclude (nothing) from (values (1, 'a', 1.5), (2, 'b', 2.5), (3, 'a', null), (4, 'c', 0.5)) t(id, module, dur)
----
error: line 1, column 8: unknown column 'nothing' in t; `describe` lists them

select * replace (1 as nothing) from (values (1, 'a', 1.5), (2, 'b', 2.5), (3, 'a', null), (4, 'c', 0.5)) t(id, module, dur)
----
error: line 1, column 8: unknown column 'nothing' in t; `describe` lists them

select module, id from (values (1, 'a', 1.5), (2, 'b', 2.5), (3, 'a', null), (4, 'c', 0.5)) t(id, module, dur) order by all desc
----
c,4
b,2
a,3
a,1

select module, count(*) from (values (1, 'a', 1.5), (2, 'b', 2.5), (3, 'a', null), (4, 'c', 0.5)) t(id, module, dur) group by all order by all
----
a,2
b,1
c,1

select module, dur from (values (1, 'a', 1.5), (2, 'b', 2.5), (3, 'a', null), (4, 'c', 0.5)) t(id, module, dur) order by all nulls first
----
a,
a,1.5
b,2.5
c,0.5

select 1 as a union all select 0 order by all
----
0
1

select id + 1 as b, b * 2 as c, c - b as d from (values (1, 'a', 1.5), (2, 'b', 2.5), (3, 'a', null), (4, 'c', 0.5)) t(id, module, dur) order by id limit 2
----
2,4,2
3,6,3

select module, sum(id) as s, s / count(*) as mean from (values (1, 'a', 1.5), (2, 'b', 2.5), (3, 'a', null), (4, 'c', 0.5)) t(id, module, dur) group by module order by module
----
a,4,2
b,2,2
c,4,4

select dur as id, id + 1 as next from (values (1, 'a', 1.5), (2, 'b', 2.5), (3, 'a', null), (4, 'c', 0.5)) t(id, module, dur) order by 2 limit 2
----
1.5,2
2.5,3

select row_number() over (order by id) as n, n * 10 as m from (values (1, 'a', 1.5), (2, 'b', 2.5), (3, 'a', null), (4, 'c', 0.5)) t(id, module, dur) order by 1 limit 2
----
1,10
2,20

select sum(id) as s, max(s) from (values (1, 'a', 1.5), (2, 'b', 2.5), (3, 'a', null), (4, 'c', 0.5)) t(id, module, dur)
----
error: line 1, column 26: an aggregate cannot be inside another aggregate

select count_if(dur > 1), countif(id > 1), count_if(id > 9) from (values (1, 'a', 1.5), (2, 'b', 2.5), (3, 'a', null), (4, 'c', 0.5)) t(id, module, dur)
----
2,3,0

select count_if(dur > 1) filter (where id = 1) from (values (1, 'a', 1.5), (2, 'b', 2.5), (3, 'a', null), (4, 'c', 0.5)) t(id, module, dur)
----
1

select sum(count_if(dur > 1)) over () from (values (1, 'a', 1.5), (2, 'b', 2.5), (3, 'a', null), (4, 'c', 0.5)) t(id, module, dur)
----
2

select if(1 > 0, 'y', 'n'), if(null, 1, 2), if(id > 1, dur, -1) from (values (1, 'a', 1.5), (2, 'b', 2.5), (3, 'a', null), (4, 'c', 0.5)) t(id, module, dur) order by id limit 2
----
y,2,-1
y,2,2.5

select group_concat(module, '/'), listagg(module, ',' order by id desc) from (values (1, 'a', 1.5), (2, 'b', 2.5), (3, 'a', null), (4, 'c', 0.5)) t(id, module, dur)
----
a/b/a/c,"c,a,b,a"

select quantile(id, 0.5), quantile_disc(id, 0.5), quantile_cont(id, 0.5), quantile_cont(dur, 0.25), approx_quantile(id, 1.0) from (values (1, 'a', 1.5), (2, 'b', 2.5), (3, 'a', null), (4, 'c', 0.5)) t(id, module, dur)
----
2,2,2.5,1,4

select date_diff('hour', timestamp '2024-01-01 00:59', timestamp '2024-01-01 01:00'), date_diff('month', timestamp '2024-01-31', timestamp '2024-02-01'), datediff('year', timestamp '2024-12-31', timestamp '2020-01-01')
----
1,1,-4

select date_diff('quarter', timestamp '2024-12-31', timestamp '2020-01-01'), date_diff('day', timestamp '1969-12-31 23:00', timestamp '1970-01-01'), date_diff('second', timestamp '2024-01-01 00:00:00.9', timestamp '2024-01-01 00:00:00'), date_diff('minute', null, timestamp '2024-01-01')
----
-19,1,0,

select date_diff('month', timestamp '1969-11-15', timestamp '1970-02-01'), date_diff('day', timestamp '2024-03-01', timestamp '2024-02-28'), date_diff('millisecond', timestamp '1969-12-31 23:59:59.9995', timestamp '1970-01-01'), date_diff('microsecond', timestamp '2024-01-01', timestamp '2024-01-02')
----
3,-2,1,86400000000

select date_diff('fortnight', timestamp '1969-11-15', timestamp '1970-02-01')
----
error: line 1, column 8: a timestamp has no part 'fortnight'; use microsecond, millisecond, second, minute, hour, day, week, month, quarter, year, decade, century, millennium, dow, doy, isodow, isoyear, epoch

select epoch_ms(timestamp '2024-01-01 00:00:00.123456'), epoch_us(timestamp '2024-01-01 00:00:00.123456'), epoch_ms(timestamp '1969-12-31 23:59:59.9995')
----
1704067200123,1704067200123456,-1

select format_bytes(0), format_bytes(1), format_bytes(1023), format_bytes(1024), format_bytes(123456), format_bytes(1048575), format_bytes(-5), format_bytes(-123456), format_bytes(9223372036854775807)
----
0 bytes,1 byte,1023 bytes,1.0 KiB,120.5 KiB,1023.9 KiB,-5 bytes,-120.5 KiB,8191.9 PiB

select * from range(3)
----
0
1
2

select n from range(2, 8, 2) r(n)
----
2
4
6

select sum(range) from range(5, 0, -2)
----
9

select count(*) from range(3, 3) a, range(0) b
----
0

select r from range(timestamp '2024-01-01', timestamp '2024-01-02', interval '12 hours') r(r)
----
2024-01-01T00:00:00.000000000Z
2024-01-01T12:00:00.000000000Z

select range('a', 2)
----
error: line 1, column 8: unknown function 'range'; it gives rows: from range(9) n

select json_extract('{"a": {"b": [1, "x"]}}', '$.a.b[1]'), json_extract_string('{"a": {"b": [1, "x"]}}', '$.a.b[1]'), json_extract('{"a": {"b": [1, "x"]}}', '$.a.c'), json_extract('{"a": 7}', '$'), json_extract('{"a b": 7}', '$."a b"')
----
"""x""",x,,"{""a"":7}",7

select json_extract('{"a": 7}', 'a'), json_extract_string('{"a": null}', '$.a'), json_extract('{"$a": 7}', '$.$a'), json_extract('[[1, 2], [3]]', '$[1][0]'), json_extract('[1]', '$[4]')
----
7,,7,3,

select json_extract('{"a": 7}', '$.')
----
error: line 1, column 8: a JSON path looks like $.key[0]."other key"

select json_extract('[7]', '$[0')
----
error: line 1, column 8: a JSON path looks like $.key[0]."other key"

select json_array_length('[1, 2]'), instr('abc', 'c'), instr('abc', 'z')
----
2,3,0
