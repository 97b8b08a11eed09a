-- Checked with PostgreSQL 15.18
-- Keys of a join that are small whole numbers, and others among them.

select a, b from (values (5), (-1), (null), (1000), (99), (9223372036854775807), (0)) l(a) left join generate_series(1, 100) r(b) on a = b order by 1
----
-1,
0,
5,5
99,99
1000,
9223372036854775807,
,

select a, c, r.b from (values (5, 5), (-1, 2), (null, 7), (6, null), (99, 99), (9223372036854775807, 1), (3, 131)) l(a, c) left join (select g as b, g as d from generate_series(1, 100) g(g)) r on a = b and c = d order by 1, 2
----
-1,2,
3,131,
5,5,5
6,,
99,99,99
9223372036854775807,1,
,7,

select count(*), sum(b) from generate_series(-50, 500, 7) l(a) join generate_series(0, 300, 3) r(b) on a = b
----
15,2295

select count(*) from generate_series(1, 300) g(a) where (a, a + 1) in (select b, b + 1 from generate_series(-5, 400, 5) r(b))
----
60
