-- Checked with DuckDB 2.0.0.  a and b share k 2 and 3, and both have a NULL.

with a(k, x) as (values (1, 'a1'), (2, 'a2'), (3, 'a3'), (null, 'a0')), b(k, y) as (values (2, 'b2'), (3, 'b3'), (3, 'b3+'), (4, 'b4'), (null, 'b0')) select a.k, x, b.k, y from a left join b on a.k = b.k order by x, y
----
,a0,,
1,a1,,
2,a2,2,b2
3,a3,3,b3
3,a3,3,b3+

with a(k, x) as (values (1, 'a1'), (2, 'a2'), (3, 'a3'), (null, 'a0')), b(k, y) as (values (2, 'b2'), (3, 'b3'), (3, 'b3+'), (4, 'b4'), (null, 'b0')) select a.k, x, b.k, y from a right join b on a.k = b.k order by y, x
----
,,,b0
2,a2,2,b2
3,a3,3,b3
3,a3,3,b3+
,,4,b4

with a(k, x) as (values (1, 'a1'), (2, 'a2'), (3, 'a3'), (null, 'a0')), b(k, y) as (values (2, 'b2'), (3, 'b3'), (3, 'b3+'), (4, 'b4'), (null, 'b0')) select a.k, x, b.k, y from a full join b on a.k = b.k order by x nulls first, y nulls first
----
,,,b0
,,4,b4
,a0,,
1,a1,,
2,a2,2,b2
3,a3,3,b3
3,a3,3,b3+

with a(k, x) as (values (1, 'a1'), (2, 'a2'), (3, 'a3'), (null, 'a0')), b(k, y) as (values (2, 'b2'), (3, 'b3'), (3, 'b3+'), (4, 'b4'), (null, 'b0')) select * from a full join b using (k) order by x nulls first, y nulls first
----
,,b0
4,,b4
,a0,
1,a1,
2,a2,b2
3,a3,b3
3,a3,b3+

with a(k, x) as (values (1, 'a1'), (2, 'a2'), (3, 'a3')), b(k, y) as (values (2, 'b2'), (3, 'b3'), (4, 'b4')) select * from a right join b using (k) order by k
----
2,a2,b2
3,a3,b3
4,,b4

with a(k, x) as (values (1, 'a1'), (2, 'a2'), (3, 'a3')), b(y, k) as (values ('b2', 2), ('b3', 3), ('b4', 4)) select * from a natural join b order by k
----
2,a2,b2
3,a3,b3

with a(k, x) as (values (1, 10), (2, 20), (3, 30)), b(k, y) as (values (1, 15), (2, 15), (3, 35)) select a.k, x, b.k, y from a full join b on a.k = b.k and x > y order by a.k nulls first, b.k nulls first
----
,,1,15
,,3,35
1,10,,
2,20,2,15
3,30,,

with a(k, x) as (values (1, 10), (2, 20), (3, 30)), b(k, y) as (values (1, 15), (2, 15), (3, 35)) select count(*) from a, b where a.k = b.k and y > 20
----
1

with a(k, x) as (values (1, 10), (2, 20), (3, 30)), b(k, y) as (values (1, 15), (2, 15), (3, 35)), c(k, z) as (values (2, 'c2'), (3, 'c3')) select k, x, y, z from a join b using (k) left join c using (k) order by k
----
1,10,15,
2,20,15,c2
3,30,35,c3

with q(s, t, bid) as (values ('x', 1, 100), ('x', 5, 105), ('y', 3, 50), ('x', 5, 106)), e(s, t) as (values ('x', 0), ('x', 1), ('x', 4), ('x', 9), ('y', 4), ('z', 4)) select e.s, e.t, q.t, min(q.bid) <= 106 from e asof join q on e.s = q.s and e.t >= q.t group by 1, 2, 3 order by 1, 2
----
x,1,1,true
x,4,1,true
x,9,5,true
y,4,3,true

with q(s, t, bid) as (values ('x', 1, 100), ('x', 5, 105), ('y', 3, 50)), e(s, t) as (values ('x', 0), ('x', 1), ('x', 4), ('x', 9), ('y', 4), ('z', 4)) select e.s, e.t, q.t, q.bid from e asof left join q on e.s = q.s and e.t > q.t order by 1, 2
----
x,0,,
x,1,,
x,4,1,100
x,9,5,105
y,4,3,50
z,4,,

with q(s, t, bid) as (values ('x', 1, 100), ('x', 5, 105), ('y', 3, 50)), e(s, t) as (values ('x', 0), ('x', 1), ('x', 4), ('x', 9), ('y', 4), ('z', 4)) select e.s, e.t, q.t, q.bid from e asof left join q on e.s = q.s and e.t <= q.t order by 1, 2
----
x,0,1,100
x,1,1,100
x,4,5,105
x,9,,
y,4,,
z,4,,

with q(s, t, bid) as (values ('x', 1, 100), ('x', 5, 105), ('y', 3, 50)), e(s, t) as (values ('x', 0), ('x', 1), ('x', 4), ('x', 9), ('y', 4), ('z', 4)) select s, e.t, bid from e asof join q using (s, t) order by 1, 2
----
x,1,100
x,4,100
x,9,105
y,4,50
