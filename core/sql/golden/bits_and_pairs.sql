-- Checked with PostgreSQL 15.18
-- Aggregates of bits, of pairs and of rows; questions about NULLs of several values.

select bit_and(a), bit_or(a), bit_xor(a), bit_xor(distinct a) from (values (3), (5), (5), (null)) t(a)
----
1,7,3,6

select bit_and(a), bit_or(a), bit_xor(a) from (values (1)) t(a) where a > 1
----
,,

select k, bit_and(a), bit_or(a), bit_xor(a) filter (where a <> -1) from (values (1, -1), (1, 12), (2, 6), (2, null)) t(k, a) group by k order by k
----
1,12,-1,12
2,6,6,6

select bit_or(a) over (order by a), bit_and(a) over (order by a rows 1 preceding) from (values (1), (2), (4)) t(a) order by a
----
1,1
3,0
7,0

select bit_and(a) from (values (1.5)) t(a)
----
error: line 1, column 8: no bit_and of a double

select bit_or(true)
----
error: line 1, column 8: no bit_or of a boolean

select bool_and(null), bool_or(null)
----
,

select regr_r2(y, x), regr_slope(y, x), round(regr_intercept(y, x)::numeric, 9) from (values (3, 1), (5, 2), (7, 4), (null, 9), (9, null)) t(y, x)
----
0.9642857142857144,1.2857142857142858,2

select regr_r2(y, x), regr_slope(y, x) from (values (1, null::int)) t(y, x)
----
,

select corr(n, n), corr(n, -n) from (values (1::float8), (2), (3)) t(n)
----
1,-1

select regr_r2(y, x), regr_r2(x, y), regr_slope(x, y) from (values (1, 1), (1, 2)) t(y, x)
----
1,,

select count(distinct (a, b)), count(distinct (a, 1)) from (values (3, 'x'), (3, 'x'), (7, 'x'), (null, 'x'), (null, null), (null, null)) t(a, b)
----
4,3

select row(1, null) is null, row(null, null) is null, (1, null) is not null, (1, 2) is not null, not (1, null) is null
----
false,true,false,true,true

select a, b from (values (1, 2), (1, null), (null, null)) t(a, b) where (a, b) is not null or (a, b) is null
----
1,2
,
