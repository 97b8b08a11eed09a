-- Checked with PostgreSQL: rollup, cube, grouping sets, grouping().

select a, b, sum(n), grouping(a, b), count(*) from (values ('a', 'x', 1), ('a', 'y', 2), ('b', 'x', 4), (null, 'x', 8)) v(a, b, n) group by rollup (a, b) order by 4, 1, 2
----
a,x,1,0,1
a,y,2,0,1
b,x,4,0,1
,x,8,0,1
a,,3,1,2
b,,4,1,1
,,8,1,1
,,15,3,4

select a, b, sum(n), grouping(b), grouping(a) from (values ('a', 'x', 1), ('a', 'y', 2), ('b', 'x', 4), (null, 'x', 8)) v(a, b, n) group by cube (a, b) order by grouping(a), grouping(b), 1, 2
----
a,x,1,0,0
a,y,2,0,0
b,x,4,0,0
,x,8,0,0
a,,3,1,0
b,,4,1,0
,,8,1,0
,x,13,0,1
,y,2,0,1
,,15,1,1

select a, b, sum(n) from (values ('a', 'x', 1), ('a', 'y', 2), ('b', 'x', 4)) v(a, b, n) group by grouping sets (a, b, (), (), rollup (a)) order by 1, 2, 3
----
a,,3
a,,3
b,,4
b,,4
,x,5
,y,2
,,7
,,7
,,7

select a, b, c, count(*) from (values (1, 2, 3), (1, 2, 4), (1, 5, 4)) v(a, b, c) group by a, rollup (b), cube (c) order by 1, 2, 3, 4
----
1,2,3,1
1,2,4,1
1,2,,2
1,5,4,1
1,5,,1
1,,3,1
1,,4,2
1,,,3

select a, b, c, count(*) from (values (1, 2, 3), (1, 2, 4), (1, 5, 4)) v(a, b, c) group by rollup ((a, b), c) order by 1, 2, 3, 4
----
1,2,3,1
1,2,4,1
1,2,,2
1,5,4,1
1,5,,1
,,,3

select a, count(*) from (values (1), (2)) v(a) group by rollup (a, a) order by 1, 2
----
1,1
1,1
2,1
2,1
,2

select a, count(*) from (values (1), (2)) v(a) group by distinct rollup (a), rollup (a) order by 1, 2
----
1,1
2,1
,2

-- Of no rows, there is still a group for each set without columns.
select a, sum(n), count(*), grouping(a) from (values ('a', 1)) v(a, n) where n > 1 group by rollup (a)
----
,,0,1

select count(*), max(n) from (values ('a', 1)) v(a, n) where n > 1 group by grouping sets ((), ())
----
0,
0,

select a, count(*) from (values ('a', 1)) v(a, n) where n > 1 group by grouping sets ((a))
----

select a, sum(n), string_agg(b, ',' order by n), count(distinct b), sum(n) filter (where n > 1) from (values ('a', 'x', 1), ('a', 'y', 2), ('b', 'x', 4), (null, 'x', 8)) v(a, b, n) group by rollup (a) having sum(n) > 3 order by 2
----
b,4,x,1,4
,8,x,1,8
,15,"x,y,x,x",2,14

select case when grouping(a) = 1 then 'all' else coalesce(a, '-') end, sum(n), rank() over (partition by grouping(a) order by sum(n) desc) from (values ('a', 1), ('a', 2), ('b', 4), (null, 8)) v(a, n) group by rollup (a) order by 2
----
a,3,3
b,4,2
-,8,1
all,15,1

select upper(a) || length(a), count(*) from (values ('a'), ('b'), ('a')) v(a) group by rollup (upper(a) || length(a)) order by 1
----
A1,2
B1,1
,3

select a, b from (select a, b, count(*) as n from (values (1, 2), (1, 3)) v(a, b) group by cube (a, b)) t where a is null order by 1, 2
----
,2
,3
,

select rollup, cube from (values (1, 2)) v(rollup, cube) group by v.rollup, v.cube
----
1,2

select a, grouping(a) from (values (1), (2)) v(a) group by a order by 1
----
1,0
2,0
