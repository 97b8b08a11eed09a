-- Checked with PostgreSQL 15.18: what subqueries give beside values of other types; several over one row.

with t(k) as (values (1.5::float8),(2),(3)) select k, k in (select x from (values (2::bigint),(k::bigint)) u(x)), k not in (select x from generate_series(1::bigint, k::bigint) u(x)) from t order by 1
----
1.5,false,true
2,true,false
3,true,false

with t(k) as (values (timestamp '2024-01-01'),(timestamp '2024-01-02 01:00')) select k in (select date '2024-01-01'), k in (select k::date), k = any (select k::date) from t order by k
----
true,true,true
false,false,false

with t(k) as (values (date '2024-01-01'),(date '2024-01-02')) select k in (select timestamp '2024-01-01'), k in (select k::timestamp), k > all (select k - interval '1 hour') from t order by k
----
true,true,true
false,true,true

with t(k) as (values (1::bigint),(2)) select k in (select 1.0::float8), k in (select k * 1.0::float8), (k, k) in (select k, k * 0.5::float8 * 2), (k, 1.0::float8) in (select k, 1::bigint) from t order by k
----
true,true,true,true
false,true,true,true

with t(k) as (values ('1'),('2')) select k in (select '1'), k in (select k), '1' in (select k), null::text in (select k) from t order by k
----
true,true,true,
false,true,false,

with t(k) as (values (interval '1 day'),(interval '1 month')) select k in (select interval '30 days'), k in (select k), k in (select interval '24 hours') from t order by k
----
false,true,true
true,true,false

with t(k) as (values (true),(false),(null)) select k in (select true), k in (select not k), k in (select k or true) from t order by k
----
false,false,false
true,false,true
,,

with t(k) as (values (interval '1 day'),(interval '1 month')) select k in (select interval '30 days'), k in (select k), k in (select interval '24 hours'), k in (interval '30 days', interval '2 days'), (k, 1) in (select interval '30 days', 1), (k, 1) not in (select k + interval '30 days' - interval '1 month', 1) from t order by k
----
false,true,true,false,false,false
true,true,false,true,true,false

with t(k) as (values (interval '1 day'),(interval '1 month')), u(k) as (values (interval '24 hours'), (interval '30 days')) select count(*) from t join u on t.k = u.k
----
2

with t(k) as (values (interval '1 day'),(interval '1 month')), u(k) as (values (interval '24 hours'), (interval '30 days')) select count(*) from t join u using (k)
----
2

with t(k) as (values (interval '1 day'),(interval '1 month')), u(k) as (values (interval '24 hours'), (interval '30 days')) select count(*) from t where exists (select 1 from u where u.k = t.k)
----
2

with t(k) as (values (interval '1 day'),(interval '1 month')), u(k) as (values (interval '24 hours'), (interval '30 days')) select t.k, (select count(*) from u where u.k = t.k) from t order by 1
----
1 day,1
1 mon,1

with t(k) as (values (interval '30 days'),(interval '1 month')) select k, (select k::text) from t order by 2
----
1 mon,1 mon
30 days,30 days

with t(k) as (values (interval '30 days'),(interval '1 month')) select (select k::text), (select extract(day from k)) from t order by 1
----
1 mon,0
30 days,30

with t(k,g) as (values (1,'a'),(2,'b'),(3,null),(null,'a')), u(k,v) as (values (1,10),(2,20),(2,5)) select k, (select sum(v) from u where u.k = t.k) s from t order by (select max(v) from u where u.k = t.k) desc nulls last, 1
----
2,25
1,10
3,
,

with t(k,g) as (values (1,'a'),(2,'b'),(3,null),(null,'a')), u(k,v) as (values (1,10),(2,20),(2,5)) select (select sum(v) from u where u.k = t.k) s from t order by (select min(v) from u where u.k = t.k) nulls first, 1
----
(null)
(null)
25
10

with t(k,g) as (values (1,'a'),(2,'b'),(3,null),(null,'a')), u(k,v) as (values (1,10),(2,20),(2,5)) select distinct on ((select sum(v) from u where u.k = t.k)) k from t order by (select sum(v) from u where u.k = t.k), k
----
1
2
3

with t(k,g) as (values (1,'a'),(2,'b'),(3,null),(null,'a')), u(k,v) as (values (1,10),(2,20),(2,5)) select g, sum((select sum(v) from u where u.k = t.k)) from t group by g having sum((select count(*) from u where u.k = t.k)) > 0 order by 1
----
a,10
b,25

with t(k,g) as (values (1,'a'),(2,'b'),(3,null),(null,'a')), u(k,v) as (values (1,10),(2,20),(2,5)) select k, sum((select sum(v) from u where u.k = t.k)) over (order by k), sum((select max(v) from u where u.k = t.k)) over (order by k) from t order by 1
----
1,10,10
2,35,30
3,35,30
,35,30

with t(k,g) as (values (1,'a'),(2,'b'),(3,null),(null,'a')), u(k,v) as (values (1,10),(2,20),(2,5)) select k, rank() over (order by (select sum(v) from u where u.k = t.k)), rank() over (order by (select min(v) from u where u.k = t.k)) from t order by 1
----
1,1,2
2,2,1
3,3,3
,3,3

with t(k) as (values (1),(2),(3)) select k, k in (select 1.0::float8 union all select 2.5::float8), k in (select 1::bigint), k not in (select null::bigint), k in (select null::bigint union all select 3) from t order by 1
----
1,true,true,,
2,false,false,,
3,false,false,,true

with t(k) as (values (1.5::float8),(2),(3)) select k, k in (select x::bigint from (values (2),(3)) u(x)), k in (select x from (values (2::bigint),(k::bigint)) u(x)) from t order by 1
----
1.5,false,false
2,true,true
3,true,true

with t(k) as (values (1),(2),(3)) select t.k, l.* from t left join lateral (select u.k, count(*) over () n from t u where u.k > t.k order by u.k limit 1) l on true order by 1
----
1,2,2
2,3,1
3,,

with t(k) as (values (1),(2),(3)) select t.k, (select count(*) from t u where u.k < t.k) c, (select count(*) from t u where u.k <= t.k) c2 from t where (select count(*) from t u where u.k < t.k) between 1 and 2 order by 1
----
2,1,2
3,2,3

with t(k) as (values (1),(2),(3)) select max(k) filter (where (select count(*) from t u where u.k < t.k) = 1), max(k) filter (where (select count(*) from t u where u.k <= t.k) = 1) from t
----
2,1

with t(k) as (values (1),(2),(3)) select case (select count(*) from t u where u.k < t.k) when 0 then 'none' when (select count(*) from t u where u.k > t.k) then 'mid' else 'x' end from t order by 1
----
mid
none
x

with t(k,g) as (values (1,'a'),(2,'b'),(3,'b')) select g, count(*), grouping(g), (select count(*) from t u where u.g = t.g) from t group by rollup(g) order by 1
----
a,1,0,1
b,2,0,2
,3,1,0

select x, (select y from (select x + 1 as y union all select x + 2) q order by y desc limit 1) from generate_series(1,3) t(x)
----
1,3
2,4
3,5

select x, (select sum(y) from (select x as y union select x) q), (select count(*) from (select x intersect select 2) q) from generate_series(1,3) t(x)
----
1,1,0
2,2,1
3,3,0

select x, (with q as (select x * 2 as y) select y from q), (with q(y) as (values (1),(2)) select sum(y * x) from q) from generate_series(1,3) t(x)
----
1,2,3
2,4,6
3,6,9

select x, a.*, b.* from generate_series(1,2) t(x), lateral (select x + 1 as y) a, lateral (select x + y as z, (select max(w) from generate_series(1, y) g(w)) m) b
----
1,2,3,2
2,3,5,3

select (select (select x + y from (select 1 as q) z) from (select 10 as y) w) from generate_series(1,2) t(x)
----
11
12

select x from generate_series(1,4) t(x) where x = (select max(y) from generate_series(1,x) g(y) where y <> 3) order by 1
----
1
2
4

select count(*) from generate_series(1,5000) t(x) where exists (select 1 from generate_series(1,3) g(y) where y = x % 1000)
----
15

select sum((select x % 7)) , sum((select x % 11)) from generate_series(1,5000) t(x)
----
14997,24991

select x % 3, sum((select max(y) from generate_series(1, x % 5) g(y))) from generate_series(1,5000) t(x) group by 1 order by 1
----
0,3333
1,3335
2,3332
