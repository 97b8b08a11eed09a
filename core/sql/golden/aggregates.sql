-- Checked with DuckDB 2.0.0: aggregates beyond SQLite's.

select percentile_cont(0.5) within group (order by x), percentile_cont(0.25) within group (order by x desc), percentile_disc(0.5) within group (order by x), percentile_disc(0.9) within group (order by x desc), median(x) from (values (1.0), (2.0), (4.0), (8.0), (null)) t(x)
----
3,5,2,1,3

select percentile_cont(0) within group (order by x), percentile_cont(1) within group (order by x), percentile_disc(0) within group (order by x), percentile_disc(1) within group (order by x) from (values (3.0), (1.0), (2.0)) t(x)
----
1,3,1,3

select arg_min(a, b), arg_max(a, b), min_by(a, b), max_by(b, a) from (values ('x', 3), ('y', 1), ('z', 9), (null, 0), ('w', null)) t(a, b)
----
y,z,y,9

select g, arg_max(v, k), first(v order by k), last(v order by k) from (values (1, 'a', 3), (1, 'b', 5), (2, 'c', 1), (1, 'd', 4)) t(g, v, k) group by g order by g
----
1,b,a,b
2,c,c,c

select string_agg(v, '|' order by k), string_agg(v, '|' order by k desc), string_agg(v order by v) from (values ('b', 2), ('a', 3), ('c', 1)) t(v, k)
----
c|b|a,a|b|c,"a,b,c"

select stddev(x), stddev_pop(x), var_samp(x), var_pop(x), stddev(x) filter (where x > 7) from (values (1.0), (2.0), (4.0), (8.0)) t(x)
----
3.095695936834452,2.680951323690902,9.583333333333334,7.1875,

select bool_and(b), bool_or(b), count(*) filter (where b), sum(distinct x), avg(distinct x), count(distinct x) from (values (true, 1), (false, 1), (true, 3), (null, null)) t(b, x)
----
false,true,2,4,2,2

select median(x), count(x), min(x), max(x), sum(x), avg(x), bool_or(x > 1) from (values (1)) t(x) where x > 5
----
,0,,,,,

select g, count(*) c, sum(count(*)) over (order by g) from (values (1), (1), (2)) t(g) group by g qualify count(*) = 1 order by g
----
2,1,3

select lpad('ab', 5, 'xy'), rpad('ab', 5, 'xy'), lpad('abcdef', 3, ' '), repeat('ab', 3), concat_ws('-', 'a', null, 'b'), contains('hello', 'ell'), starts_with('abc', 'ab'), position('lo' in 'hello')
----
xyxab,abxyx,abc,ababab,a-b,true,true,4

select round(atan2(1, 1), 6), round(degrees(pi()), 6), isnan('nan'::double), isfinite(1.5)
----
0.785398,180,true,true
