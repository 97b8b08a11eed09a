-- Checked with DuckDB 2.0.1
-- NULLs that count or do not, orders inside of aggregates, letters of both cases, numbers with a point.

select median(distinct x), quantile_cont(distinct x, 0.5), avg(distinct x) from (values (1),(1),(1),(2),(3)) t(x)
----
2,2,2

select first(x order by y nulls first), last(x order by y desc nulls last), first(x order by y desc nulls first) from (values (1,null),(2,3),(3,1)) t(x,y)
----
1,1,1

select string_agg(x, ',' order by y nulls first), string_agg(x, ',' order by y desc nulls last) from (values ('a',null),('b',3),('c',1)) t(x,y)
----
"a,c,b","b,c,a"

select first(x order by i), last(x order by i), any_value(x) from (values (1,null),(2,5),(3,null)) t(i,x)
----
,,5

select k, first(x order by i), last(x order by i), first(t order by i), last(t order by i) from (values (1,'a',null,'x'),(2,'b',1,null),(3,'a',5,null),(4,'b',null,'z')) t(i,k,x,t) group by k order by k
----
a,,5,x,
b,1,,,z

select lag(x ignore nulls) over (order by i), last_value(x ignore nulls) over (order by i), first_value(x ignore nulls) over (order by i), nth_value(x, 2 ignore nulls) over (order by i rows between unbounded preceding and unbounded following), lead(x, 2, -1 ignore nulls) over (order by i) from (values (1,null),(2,5),(3,null),(4,7),(5,9)) t(i,x) order by i
----
,,,7,7
,5,5,7,9
5,5,5,7,9
5,7,5,7,-1
7,9,5,7,-1

select first_value(x respect nulls) over (order by i), last_value(x ignore nulls) over (order by i rows between 1 following and 2 following) from (values (1,null),(2,5),(3,null),(4,7),(5,null)) t(i,x) order by i
----
,5
,7
,7
,
,

with recursive r(n) as (select 1 union all select 2) select n from r order by n
----
1
2

with recursive r(n) as (select 1 where false union all select 2) select n from r order by n
----
2

with recursive r(n) as (select 1 union select 1) select n from r
----
1

with a as (select 1), a as (select 2) select * from a
----
error: line 1, column 23: `with` defines this name twice

select upper('äöÿ'), lower('ÀÉΣ'), 'ÄÖ' ilike 'äö', 'x' ilike '_', 'Ж%' ilike 'ж%', 'É' ilike '_'
----
ÄÖŸ,àéσ,true,true,true,true

select regexp_extract('a1b22', '([a-z])(\d+)', 2), regexp_extract('a1b22', '[a-z](\d+)'), regexp_extract('a1b22', '([a-z])(\d+)', 1)
----
1,a1,a

select strftime(timestamp '2024-05-03 07:08:09.25', '%Y-%m-%d %H:%M:%S.%f'), strftime(timestamp '2024-05-03 17:08:09', '%a %A %b %B %d %j %p %I %y %%')
----
2024-05-03 07:08:09.250000,Fri Friday May May 03 124 PM 05 24 %

select 0.06 + 0.01 = 0.07, 0.1 + 0.2 = 0.3, 1.1 * 1.1 = 1.21, 0.07 between 0.06 - 0.01 and 0.06 + 0.01, 1 - 0.9 = 0.1
----
true,true,true,true,true

select cast('99.999' as decimal(4,2))
----
error: line 1, column 8: the number has more digits than its type allows

select try_cast('99.999' as decimal(4,2)) is null, cast(1.237 as decimal(10,2))::double, try_cast('x' as decimal(10,2)) is null
----
true,1.24,true

select len('äbc'), 1 == 1
----
3,true

-- All NaN are one value, however they were made.
select ('inf'::float8 - 'inf'::float8) in ('nan'::float8), ('inf'::float8 - 'inf'::float8) in ('nan'::float8, 1, 2), -'nan'::float8 in ('nan'::float8, 1)
----
true,true,true

select x in (select -y from (values ('nan'::float8), (1)) u(y)), x not in (select -y from (values ('nan'::float8)) u(y)) from (values ('nan'::float8), (2)) t(x) order by x
----
false,true
true,false

select (x, 1) in (select -y, 1 from (values ('nan'::float8), (1)) u(y)) from (values ('nan'::float8), (2)) t(x) order by x
----
false
true

select x, (select count(*) from (values ('nan'::float8), (1)) u(y) where -y = t.x or x in (-y, 7)) from (values ('nan'::float8), (2)) t(x) order by x
----
2,0
nan,1
