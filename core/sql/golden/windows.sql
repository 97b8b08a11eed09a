-- Checked with PostgreSQL 15.18: frames by rows, range and groups, exclude, named windows.

with t(k, v) as (values (1, 10), (2, 20), (2, 21), (3, 30), (5, 50), (8, 80)) select k, v, sum(v) over (order by k range between 1 preceding and current row), count(*) over (order by k range between 2 preceding and 1 preceding), sum(v) over (order by k range between 1 following and 3 following) from t order by v
----
1,10,10,0,71
2,20,51,1,80
2,21,51,1,80
3,30,71,3,50
5,50,50,1,80
8,80,80,0,

with t(k, v) as (values (1, 10), (2, 20), (2, 21), (3, 30), (null, 50), (8, 80)) select k, v, sum(v) over (order by k desc range between 1 preceding and 1 following), sum(v) over (order by k nulls first range between unbounded preceding and 1 following) from t order by v
----
1,10,51,101
2,20,81,131
2,21,81,131
3,30,71,131
,50,50,50
8,80,80,211

with t(k, v) as (values (1.5, 10), (2.0, 20), (2.25, 21), (3.5, 30)) select k, v, sum(v) over (order by k range between 0.5 preceding and 0.25 following) from t order by v
----
1.5,10,10
2,20,51
2.25,21,41
3.5,30,30

with t(k, v) as (values (timestamp '2024-01-01 00:00', 1), (timestamp '2024-01-01 00:10', 2), (timestamp '2024-01-01 00:11', 3), (timestamp '2024-01-01 01:00', 4)) select v, sum(v) over (order by k range between interval '10 min' preceding and current row) from t order by v
----
1,1
2,3
3,5
4,4

with t(k, v) as (values (1, 10), (2, 20), (2, 21), (3, 30), (5, 50), (8, 80)) select k, v, sum(v) over (order by k groups between 1 preceding and current row), count(*) over (order by k groups between 1 following and 2 following), sum(v) over (order by k groups current row) from t order by v
----
1,10,10,3,10
2,20,51,2,41
2,21,51,2,41
3,30,71,2,30
5,50,80,1,50
8,80,130,0,80

with t(k, v) as (values (1, 10), (2, 20), (2, 21), (3, 30), (5, 50), (8, 80)) select v, sum(v) over (order by k, v rows between 1 preceding and 1 following exclude current row), sum(v) over (order by k rows between unbounded preceding and unbounded following exclude group), sum(v) over (order by k groups between 1 preceding and 1 following exclude ties), count(*) over (order by v rows between 1 preceding and current row exclude no others) from t order by v
----
10,20,201,51,1
20,31,170,60,2
21,50,170,61,2
30,71,181,121,2
50,110,161,160,2
80,50,131,130,2

with t(k, v) as (values (1, 10), (2, 20), (2, 21), (3, 30), (5, 50), (8, 80)) select v, first_value(v) over w, last_value(v) over w, nth_value(v, 2) over w, row_number() over (w2 order by v desc) from t window w as (order by v rows between 1 preceding and 1 following exclude current row), w2 as (partition by k) order by v
----
10,20,20,,1
20,10,21,21,2
21,20,30,30,1
30,21,50,50,1
50,30,80,80,1
80,50,50,,1

with t(k, v) as (values (1, 10), (2, 20), (2, 21), (3, 30), (5, 50), (8, 80)) select v, avg(v) over (order by v rows 2 preceding), max(v) over (order by v rows between 1 following and 2 following), sum(v) filter (where k > 1) over (order by v rows between 3 preceding and 1 preceding) from t order by v
----
10,10,21,
20,15,30,
21,17,50,20
30,23.666666666666668,80,41
50,33.666666666666664,80,71
80,53.333333333333336,,101
