-- Checked with PostgreSQL 15.18: arrays that are nothing but lists, with ordinality, types before texts.

select n from (values (1), (2), (3), (null)) t(n) where n = any (array[1, 3]) order by n
----
1
3

select n from (values (1), (2), (3), (null)) t(n) where n <> all ('{1, 2}') order by n
----
3

select n, n > any (array[1, 2]), n >= all ('{1,2}'::bigint[]), n = any (array[1, null]), n = some (array[n, 7]) from (values (1), (2), (null)) t(n) order by n
----
1,false,false,true,true
2,true,true,,true
,,,,

select 'a b' = any ('{"a b", c}'), 'c' = any ('{"a b" , c }'), 'x"y' = any ('{"x\"y"}'), null = any ('{null}'), 'null' = any ('{"null"}')
----
true,true,true,,true

select 1 = any (array[]::int[]), 1 <> all ('{}'), null::int = any ('{}'::int[])
----
false,true,false

select x from unnest(array[3, 1, 2]) x order by x
----
1
2
3

select v, i from unnest('{a,b,null}'::text[]) with ordinality as u(v, i) order by i
----
a,1
b,2
,3

select * from unnest(array['a', 'b']) with ordinality order by 2
----
a,1
b,2

select g, ordinality from generate_series(5, 6) with ordinality g order by 1
----
5,1
6,2

select t.n, g.n, g.o from (values (1), (2)) t(n) cross join lateral generate_series(1, t.n) with ordinality g(n, o) order by 1, 2
----
1,1,1
2,1,1
2,2,2

select bool 't', int '5' + 1, float8 '2.5', text 'x' || 'y', varchar 'abc', bigint '7'
----
true,6,2.5,xy,abc,7

select date 'today' = current_date, 'tomorrow'::date - 'yesterday'::date, 'now'::timestamp = now(), now() >= 'today', date(timestamp '2024-05-01 10:00'), statement_timestamp() >= now()
----
true,2,true,true,2024-05-01,true

select quote_ident('select'), quote_ident('ab'), quote_literal('a\b'), quote_literal(null), quote_nullable(null), quote_nullable('x')
----
"""select""",ab,E'a\\b',,NULL,'x'

-- What stands beside an empty list is looked at all the same.
select nosuch = any ('{}')
----
error: line 1, column 8: unknown column 'nosuch': the statement has no from with a table; texts are written in single quotes

select 1 / 0 <> all ('{}')
----
error: line 1, column 10: division by zero (nullif(x, 0) avoids it)

select n = any ('{}'), n <> all ('{}') from (values (1), (null)) t(n)
----
false,true
false,true
