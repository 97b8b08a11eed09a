-- Checked with PostgreSQL 15.18: which query an aggregate is of, sums beyond a double.

-- An aggregate is one of the innermost query whose columns it uses, also in its filter and its order.
select (select sum(t.x) filter (where u.z > 0) from (values (1),(2)) u(z)) from (values (1),(2),(3)) t(x) order by 1
----
2
4
6

select (select sum(u.z) filter (where t.x > 1) from (values (1),(2)) u(z)) from (values (1),(2),(3)) t(x) order by 1
----
3
3
(null)

select (select string_agg(t.x::text, ',' order by u.z) from (values (1),(2)) u(z)) from (values (1),(2),(3)) t(x) order by 1
----
"1,1"
"2,2"
"3,3"

select (select corr(t.x, u.z) from (values (1),(2)) u(z)) is null from (values (1),(2),(3)) t(x)
----
true
true
true

select sum(x order by nope) from (values (1),(2),(3)) t(x)
----
error: line 1, column 23: unknown column 'nope' in t; `describe` lists them

-- What no double can hold is an error, as in 1e308 * 10.
select sum(x::float8) from (values (1e308),(1e308),(1e308)) t(x)
----
error: line 1, column 8: the sum is too large for a double

select avg(x) from (select 1e308::float8 as x from generate_series(1, 5000)) t
----
error: line 1, column 8: the sum is too large for a double

select n % 2, sum(x) from (select n, 1e308::float8 as x from generate_series(1,6) n) t group by 1
----
error: line 1, column 15: the sum is too large for a double

select sum(x) over (order by n rows between 1 preceding and current row) from (select n, 1e308::float8 as x from generate_series(1,6) n) t
----
error: line 1, column 8: the sum is too large for a double

select sum(x), avg(y) from (values ('inf'::float8, 1e308::float8), (1e308, 'inf'), (1e308, 1e308)) t(x, y)
----
inf,inf

select sum(x) from (values ('inf'::float8),(1e308),('-inf')) t(x)
----
nan

select sum(x) filter (where x < 1e300), sum(-x) filter (where x < 1e300) from (values ('inf'::float8),(1e308),('-inf'), (1)) t(x)
----
-inf,inf

-- Those of the query around are computed there.
select (select max(t.a)) from (values (1),(5)) t(a)
----
5

select (select count(*) filter (where t.x > 1) from (values (1)) u(z)) from (values (1),(2),(3)) t(x)
----
2

select (select corr(t.x, t.y) from (values (1)) u(z)) from (values (1,2),(2,3),(3,5)) t(x,y)
----
0.9819805060619659

select (select percentile_cont(0.5) within group (order by t.x) from (values (1)) u(z)) from (values (1),(2),(3)) t(x)
----
2

select (select string_agg(t.x::text, ',') from (values (1)) u(z)) from (values (1),(2),(3)) t(x)
----
"1,2,3"

select (select sum(t.x) from (values (1), (2)) u(z)) from (values (1),(2),(3)) t(x)
----
error: line 1, column 8: a subquery used as a value gave more than one row; use an aggregate or limit 1

select x % 2 as g, (select string_agg(y::text, ',' order by y) from generate_series(1, max(x)) g(y)) from generate_series(1, 5) t(x) group by 1 order by 1
----
0,"1,2,3,4"
1,"1,2,3,4,5"

select x % 2 as g, (select string_agg(y::text, ',' order by y) from generate_series(1, 9) g(y) where y < max(x)) from generate_series(1, 5) t(x) group by 1 order by 1
----
0,"1,2,3"
1,"1,2,3,4"

select min(x), max(x), (select min(y) from generate_series(1, 9) g(y) where y > min(t.x) and y < max(t.x)) from generate_series(3, 6) t(x)
----
3,6,4

with t(k,g) as (values (1,'a'),(2,'b'),(3,'b')) select g, (select string_agg(u.k::text, ',' order by u.k) from t u where u.g = t.g) from t group by g having exists (select 1 from t u where u.g = t.g and u.k > max(t.k) - 1) order by 1
----
a,1
b,"2,3"

with t(k,g) as (values (1,'a'),(2,'b'),(3,'b')) select g, (select max(u.k) + max(t.k) from t u where u.g <> t.g) from t group by g order by 1
----
a,4
b,4

with t(k,g) as (values (1,'a'),(2,'b'),(3,'b')) select g, (select sum(u.k + t.k) from t u) from t group by g, k order by 1, 2
----
a,9
b,12
b,15

with t(k,g) as (values (1,'a'),(2,'b'),(3,'b')) select g, (select sum(t.k) + count(*) from t u) from t group by g order by 1
----
a,4
b,8

with t(k,g) as (values (1,'a'),(2,'b'),(3,'b')) select g from t group by g order by (select max(t.k) - 10 * count(*) from t u where u.k = 1) desc, 1
----
b
a

with t(k,g) as (values (1,'a'),(2,'b'),(3,'b')) select g from t where (select max(t.k)) > 1 group by g
----
error: line 1, column 79: max() uses only columns of the outer query and belongs there: write it in that query, or use a column of this select in it

with t(k,g) as (values (1,'a'),(2,'b'),(3,'b')) select (select max(t.k)), (select min(t.k) where max(t.k) > 2), max(k) in (select max(t.k)), exists (select 1 having max(t.k) > 7) from t
----
3,1,true,false

with t(k,g) as (values (1,'a'),(2,'b'),(3,'b')) select g, sum(k) over (order by g), (select max(k2) from (select k as k2) q) from t order by 1, 2
----
a,1,1
b,6,2
b,6,3

with t(k,g) as (values (1,'a'),(2,'b'),(3,'b')) select g, (select count(*) from t u group by u.g having count(*) >= count(t.k) order by 1 limit 1) from t group by g order by 1
----
a,1
b,2

with t(k,g) as (values (1,'a'),(2,'b'),(3,'b')) select grouping(g), g, (select max(t.k) + 1) from t group by rollup (g) order by 1, 2
----
0,a,2
0,b,4
1,,4

with t(k,g) as (values (1,'a'),(2,'b'),(3,'b')) select g, sum((select t.k)), (select sum(t.k) * 2) from t group by g order by 1
----
a,1,2
b,5,10
