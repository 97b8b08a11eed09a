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

select 'b' = any (string_to_array('a,b,c', ',')), 'x' = any (string_to_array('a,b,c', ',')), 'b' <> all (string_to_array('a,b', ',')), 'c' > all (string_to_array('a,b', ','))
----
true,false,false,true

select a, x = any (string_to_array(a, ',')), x <> all (string_to_array(a, ',')) from (values ('a,b', 'b'), ('a', 'b'), (null, 'b'), ('', 'b'), ('b', null)) t(a, x)
----
"a,b",true,false
a,false,true
,,
"",false,true
b,,

select x, length(x) from unnest(string_to_array('a,b,,c', ',')) x
----
a,1
b,1
"",0
c,1

select * from unnest(string_to_array('a,b', ','))
----
a
b

select a, x from (values (1, 'a b'), (2, ''), (3, null), (4, 'c')) t(a, s), unnest(string_to_array(s, ' ')) x
----
1,a
1,b
4,c

select a, x, n from (values (1, 'a;b')) t(a, s), unnest(string_to_array(s, ';')) with ordinality u(x, n)
----
1,a,1
1,b,2

select x, length(x) from string_to_table('a,b,', ',') x
----
a,1
b,1
"",0

select * from string_to_table('añb', null) x
----
a
ñ
b

select * from string_to_table('a,b', '') x
----
"a,b"

select * from string_to_table('a,-,b', ',', '-') x
----
a
(null)
b

select * from string_to_table('', ',') x
----

select * from regexp_split_to_table('a1b22c', '[0-9]+') x
----
a
b
c

select * from regexp_split_to_table('ab c', '\s*') x
----
a
b
c

select x, length(x) from regexp_split_to_table('', ',') x
----
"",0

select * from regexp_split_to_table('aXbxc', 'x', 'i') x
----
a
b
c

select * from regexp_split_to_table('a,b', '(') x
----
error: line 1, column 15: regexp_split_to_table: regular expression: there is a ( that is not closed at letter 2 of '('

select x, length(x) from regexp_split_to_table(',a,', ',') x
----
"",0
a,1
"",0

select 'abc' like any (array['x%', 'a%']), 'abc' like all (array['a%', 'x%']), 'abc' not like all (array['x%', 'y%']), 'abc' not like any (array['a%', 'x%']), 'ABC' ilike any ('{a%,x}')
----
true,false,true,true,true

select 'abc' like any (array['x%', null]), 'abc' not like all (array['x%', null]), 'abc' like any (array['a%', null])
----
,,true

select x from (values ('abc'), ('xyz'), ('qqq')) t(x) where x like any (select p from (values ('a%'), ('%z')) u(p)) order by 1
----
abc
xyz

select 'abc' similar to 'a%', 'abc' similar to 'a', 'abc' similar to '(a|b)%', 'abc' not similar to '_b_', 'a.c' similar to 'a.c', 'abc' similar to 'a.c', 'abc' similar to 'a[a-c]+c?', null similar to 'a'
----
true,false,true,false,true,false,true,

select 'a%' similar to 'a!%' escape '!', 'ab' similar to 'a!%' escape '!', 'a%' similar to 'a\%', 'ac' similar to 'b|ac|c', 'ab' similar to 'a|b'
----
true,false,true,true,false

select 'a' similar to '((((((((((((((((((((((((((((((a))))))))))))))))))))))))))))))', 'b' similar to '((((a))))'
----
true,false

-- The text of an array is a text, also behind an aggregate and a window.
select min(y) from (select array_agg(distinct x)::text as y from (values (1),(2)) t(x)) z
----
"{1,2}"

select min(y) from (select c::text as y, rank() over (order by n) from (select array_agg(x) as c, 1 as n from (values (1),(2)) t(x)) q) z
----
"{1,2}"

select max(y || 'b') from (select array_agg(distinct x)::text as y, x from (values (1),(2)) t(x) group by x) z
----
{2}b
