-- Checked with PostgreSQL 15.18
-- Joins whose right side sees the row on its left.

select t.x, s.y from (values (1), (2), (3)) t(x), lateral (select t.x * 10 as y) s order by 1
----
1,10
2,20
3,30

select t.x, s.n from (values (1), (2), (3)) t(x) cross join lateral generate_series(1, t.x) s(n) order by 1, 2
----
1,1
2,1
2,2
3,1
3,2
3,3

select t.x, n from (values (2), (null), (1)) t(x), generate_series(1, t.x) n order by 1, 2
----
1,1
2,1
2,2

select t.k, s.v from (values ('a'), ('b'), ('c')) t(k) cross join lateral (select v from (values ('a', 1), ('a', 3), ('b', 5), ('a', 2)) u(k, v) where u.k = t.k order by v desc limit 2) s order by 1, 2 desc
----
a,3
a,2
b,5

select t.k, s.v from (values ('a'), ('b'), ('c')) t(k) left join lateral (select v from (values ('a', 1), ('a', 3), ('b', 5), ('a', 2)) u(k, v) where u.k = t.k order by v desc limit 1) s on true order by 1
----
a,3
b,5
c,

select t.k, s.v from (values ('a', 1), ('b', 9)) t(k, least) join lateral (select v from (values ('a', 1), ('b', 5)) u(k, v) where u.k = t.k) s on s.v >= t.least order by 1
----
a,1

select t.x, s.a, r.b from (values (1), (2)) t(x), lateral (select t.x + 1 as a) s, lateral (select s.a * t.x as b) r order by 1
----
1,2,2
2,3,6

select t.x, s.c from (values (1), (5)) t(x), lateral (select count(*) as c, max(n) as m from generate_series(1, t.x) n) s where s.m > 2 order by 1
----
5,5

select (select sum(s.y) from (values (1), (2)) u(z), lateral (select u.z * t.x as y) s) as total from (values (1), (10)) t(x) order by 1
----
3
30

select s.y from (values ('p'), (null)) t(x), lateral (select coalesce(t.x, 'none') || '!' as y) s order by 1
----
none!
p!

select t.x from (values (1)) t(x) right join lateral (select t.x) s on true
----
error: line 1, column 46: what is lateral is joined by , cross join, join ... on or left join ... on true; its own where says the rest

select t.x, s.* from (values (1), (2)) t(x), lateral (select 7 as fixed) s order by 1
----
1,7
2,7

select t.x from lateral (select 1) t(x)
----
1

select count(*), sum(s.n) from generate_series(1, 300) t(x), lateral (select n from generate_series(1, 20) n where n % t.x = 0) s
----
66,786

select x, y from (values (1)) t(x), (select t.x as y) s
----
error: line 1, column 45: unknown table 't' in from

-- Batches of the left side that grow: rows of one must not be taken for rows of the next.
select count(*) from (select x from generate_series(1, 6000) a(x) where x > 2000) a, lateral (select x + 1) l
----
4000

select count(*), sum(y) from (select x from generate_series(1, 9000) a(x) where x > 2000 and x % 4096 > 50) a, lateral (select x + 1 as y) l where y > 0
----
6898,37881160

select count(*), count(l.y), sum(l.y) from (select x from generate_series(1, 9000) a(x) where x > 4090) a left join lateral (select x + n as y from generate_series(1, x % 3) b(n)) l on true
----
6547,4910,32143315
