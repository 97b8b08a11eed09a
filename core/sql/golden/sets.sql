-- Checked with PostgreSQL 15.18: set operations, rows of values, null in them.

select 1 as a union all select 2 intersect select 2 order by 1
----
1
2

(select 1 as a union all select 2) intersect select 2
----
2

select column1 from (values (1), (1), (2), (null), (null)) v except select 2 order by 1
----
1
(null)

select column1 from (values (1), (1), (1), (2), (null), (null)) v except all select column1 from (values (1), (null)) w order by 1
----
1
1
2
(null)

select column1 from (values (1), (1), (1), (2), (null), (null)) v intersect all select column1 from (values (1), (1), (null), (3)) w order by 1
----
1
1
(null)

select null as a union all select true order by 1
----
true
(null)

select null as a union select 1.5 union select 2 order by 1
----
1.5
2
(null)

select (1, 2) < (1, 3), (1, 2) < (1, 2), (1, 2) <= (1, 2), (2, 1) > (1, 9), (1, null) < (2, 0), (1, null) < (1, 0), (1, 2) = (1, 2), (1, null) = (2, null), (1, 2) <> (1, 3)
----
true,false,true,true,true,,true,false,true

select a, b from (values (1, 'x'), (2, 'y'), (3, null)) t(a, b) where (a, b) in ((1, 'x'), (2, 'z'), (3, null))
----
1,x

select a, (a, b) in (select c, d from (values (1, 'x'), (2, null)) u(c, d)), (a, b) not in (select c, d from (values (1, 'x'), (2, null)) u(c, d)) from (values (1, 'x'), (2, 'y'), (3, null)) t(a, b) order by a
----
1,true,false
2,,
3,false,true

select a, b from (values (1, 2), (2, 1), (1, 1)) t(a, b) order by (b, a) desc
----
1,2
2,1
1,1

select a, count(*) from (values (1, 2), (2, 1), (1, 1)) t(a, b) group by (a) order by a
----
1,2
2,1

select x.a, x.b from (values (1, 2), (3, 4)) as x(a, b) where (x.a, x.b) between (1, 0) and (2, 9)
----
1,2

select n from generate_series(3, 9, 2) as n
----
3
5
7
9

select count(*), sum(n) from generate_series(10, 1, -3) as n
----
4,22

select count(*), max(t) from generate_series(timestamp '2024-01-01', timestamp '2024-01-02', interval '1 hour') as t
----
25,2024-01-02T00:00:00.000000000Z

-- fetch ... with ties
select n, s from (values (1, 'a'), (2, 'b'), (2, 'c'), (3, 'd'), (null, 'e')) t(n, s) order by n fetch first 2 rows with ties
----
1,a
2,b
2,c

select n from (values (1), (2), (2), (null), (null)) t(n) order by n desc offset 1 row fetch next 1 row with ties
----
(null)

select distinct n from (values (1), (2), (2), (null), (null)) t(n) order by n fetch first 2 rows with ties
----
1
2

select n from (values ('a'), ('')) t(n) order by n fetch first 0 rows with ties
----
