-- Checked with PostgreSQL 15.18

with recursive r(n) as (select 1 union all select n + 1 from r where n < 5) select * from r
----
1
2
3
4
5

with recursive r(n) as (values (1) union select (n * 2) % 7 from r) select * from r order by 1
----
1
2
4

with recursive t(id, parent) as (values (1,null),(2,1),(3,2),(4,1)), r as (select id, 0 as d from t where parent is null union all select t.id, d + 1 from t join r on t.parent = r.id) select * from r order by 1
----
1,0
2,1
3,2
4,1

with recursive r(n) as (select 1 union all select n + 1 from r) select n from r limit 3
----
1
2
3

with recursive a as (select 1 as x), r(n) as (select x from a union all select n + x from r, a where n < 4) select sum(n), count(*) from r
----
10,4

with recursive t(n) as (select 1 union all select n+1 from t where n < 3), u as (select n * 10 as m from t) select * from t join u on u.m = t.n * 10 order by 1
----
1,10
2,20
3,30

with recursive fib(i, a, b) as (values (1, 0, 1) union all select i + 1, b, a + b from fib where i < 10) select a from fib order by i
----
0
1
1
2
3
5
8
13
21
34

with recursive edges(a,b) as (values (1,2),(2,3),(3,1)), reach(x) as (select 1 union select b from edges join reach on a = x) select x from reach order by 1
----
1
2
3

with recursive r(s) as (select 'a' union all select s || 'b' from r where length(s) < 4) select s from r order by s
----
a
ab
abb
abbb

select * from (with recursive r(n) as (select 1 union all select n+1 from r where n < 3) select * from r) x, (select 2 as y) z order by 1
----
1,2
2,2
3,2

select o.a, (with recursive r(n) as (select o.a union all select n + 1 from r where n < 5) select count(*) from r) from generate_series(3,5) o(a) order by 1
----
3,3
4,2
5,1

with recursive r(n) as (select n from r union all select 1) select * from r
----
error: line 1, column 39: 'r' can read itself behind its union only

with recursive r(n) as (select 1 union all select n + 1 from r where n < 3 order by 1) select * from r
----
error: line 1, column 34: order by and limit of a recursive select belong where it is read

with recursive r(n) as (select 1 union all select n, n from r) select * from r
----
error: line 1, column 34: union of 1 columns and 2 columns

with recursive r as (select 5 as n) select * from r
----
5
