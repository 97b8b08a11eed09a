-- Checked with PostgreSQL 15.18: subqueries that look at the row around them.

with t(a, b) as (values (1, 10), (2, 20), (3, 30), (null, 40)), u(a, c) as (values (1, 5), (1, 6), (3, 7)) select a, (select sum(c) from u where u.a = t.a) from t order by a
----
1,11
2,
3,7
,

with t(a, b) as (values (1, 10), (2, 20), (3, 30), (null, 40)), u(a, c) as (values (1, 5), (1, 6), (3, 7)) select a from t where exists (select 1 from u where u.a = t.a and c > 5) order by a
----
1
3

with t(a, b) as (values (1, 10), (2, 20), (3, 30), (null, 40)), u(a, c) as (values (1, 5), (1, 6), (3, 7)) select a from t where not exists (select 1 from u where u.a = t.a) order by a
----
2
(null)

with t(a, b) as (values (1, 10), (2, 20), (3, 30), (null, 40)), u(a, c) as (values (1, 5), (1, 6), (3, 7)) select a, b, b / 5 in (select c from u where u.a <= t.a) from t order by a
----
1,10,false
2,20,false
3,30,true
,40,false

with t(g, v) as (values ('x', 1), ('x', 5), ('y', 2), ('y', 9), ('z', 4)) select g, v from t o where v = (select max(v) from t where g = o.g) order by g
----
x,5
y,9
z,4

with t(g, v) as (values ('x', 1), ('x', 5), ('y', 2), ('y', 9), ('z', 4)) select g, sum(v), (select count(*) from t i where i.g < o.g) from t o group by g order by g
----
x,6,0
y,11,2
z,4,4

with t(a) as (values (1), (2), (3)) select a, (select max(b) from (values (1), (2), (3), (4)) u(b) where b < (select max(c) from (values (2), (3), (4)) w(c) where c <= t.a + u.b)) from t order by a
----
1,3
2,3
3,3

with t(a) as (values (1), (2), (3), (4)) select a from t where (a, a * 2) in (select b, c from (values (1, 2), (2, 5), (4, 8)) u(b, c) where b >= t.a - 1) order by a
----
1
4

with t(a) as (values (1), (2), (3)), u(b) as (values (2), (3)) select a, case when a in (select b from u) then 'in' else 'out' end from t order by a
----
1,out
2,in
3,in

with t(a, b) as (values (1, 1), (2, 1), (3, 2)) select b, count(*) from t group by b having count(*) > (select count(*) from t i where i.b = 2) order by b
----
1,2

with t(a) as (values (1), (2), (3)), u(b) as (values (1), (3)) select t.a, u.b from t left join u on u.b = (select max(b) from u v where v.b <= t.a) order by 1
----
1,1
2,1
3,3

with t(a, b) as (values (1, 1), (2, 1)) select x.a, (select y.a from t y where y.a > x.a limit 1) from t x order by 1
----
1,2
2,
