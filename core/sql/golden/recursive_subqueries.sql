-- Checked with DuckDB 2.0.1
-- Subqueries and laterals of the second part, which are planned while it runs.

with recursive r(n) as (select 1 union all select n + 1 from r where n < 5 and exists (select 1 from r q where q.n = r.n)) select * from r order by n
----
1
2
3
4
5

with recursive r(n) as (select 1 union all select n + 1 from r where n < 5 and n in (select n from r)) select * from r order by n
----
1
2
3
4
5

with recursive r(n) as (select 1 union select n + 1 from r where n < 5 and not exists (select 1 from r q where q.n > r.n)) select * from r order by n
----
1
2
3
4
5

with recursive r(n) as (select 1 union all select r.n + 1 from r, lateral (select q.n as m from r q where q.n = r.n) l where r.n < 5) select * from r order by n
----
1
2
3
4
5

with recursive r(n) as (select 1 union all select (select max(q.n) + 1 from r q where q.n = r.n) from r where n < 4) select * from r order by n
----
1
2
3
4

with recursive r(n) as (select 1 union all select n + 1 from r where n < (select count(*) from r q where q.n <= r.n) + 3) select * from r order by n
----
1
2
3
4

with recursive r(n, s) as (select 1, 'a' union all select n + 1, (select max(q.s) || 'b' from r q where q.n = r.n) from r where n < 5) select * from r order by n
----
1,a
2,ab
3,abb
4,abbb
5,abbbb

with recursive r(n) as (select 1 union all select n + 1 from r where n < 6 and exists (with s as (select n from r) select 1 from s where s.n = r.n)) select sum(n), count(*) from r
----
21,6

with recursive r(n) as (select 1 union select n + 1 from r where n < 5 and not exists (select 1 from r q where q.n > r.n)), s(m) as (select n from r union all select m + 10 from s where m < 30 and exists (select 1 from r where r.n = s.m % 10)) select count(*), sum(m) from s
----
20,360

with recursive r(n) as (select 1 union all select n + 1 from r where n < 5) select a.n, (select sum(b.n) from r b where b.n <= a.n) from r a order by 1
----
1,1
2,3
3,6
4,10
5,15

select t.x, (with recursive r(n) as (select t.x union all select n + 1 from r where n < t.x + 3 and exists (select 1 from r q where q.n = r.n and q.n >= t.x)) select sum(n) from r) from (values (1), (2), (null), (5)) t(x) order by 1 nulls first
----
,
1,10
2,14
5,26

with recursive r(n) as (select 1 union all select n + 1 from r where n < 4 and n in (with recursive q(m) as (select n from r union all select m + 1 from q where m < 4 and exists (select 1 from r where r.n <= q.m)) select m from q)) select * from r order by n
----
1
2
3
4

select l.x, count(*) from (values (2), (3)) t(x), lateral (with recursive r(n) as (select 1 union all select n + 1 from r where n < t.x and exists (select 1 from r q where q.n = r.n)) select n, t.x from r) l group by 1 order by 1
----
2,2
3,3
