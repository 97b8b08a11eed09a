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
