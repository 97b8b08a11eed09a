-- Checked with PostgreSQL 15.18
-- Functions that people know from PostgreSQL.

select 5 between symmetric 7 and 3, 5 between symmetric 3 and 7, 5 not between symmetric 7 and 6, 8 between symmetric 7 and 3, null between symmetric 1 and 2, 5 between symmetric null and 3
----
true,true,true,false,,

select extract(isodow from timestamp '2024-05-05'), extract(isodow from timestamp '2024-05-06'), extract(isoyear from timestamp '2021-01-03'), extract(isoyear from timestamp '2024-12-31')
----
7,1,2020,2025

select to_char(timestamp '2024-05-03 07:08:09.123456', 'YYYY-MM-DD HH24:MI:SS.MS US'), to_char(timestamp '2024-05-03 17:08:09', 'HH12:MI am, HH:MI PM')
----
2024-05-03 07:08:09.123 123456,"05:08 pm, 05:08 PM"

select to_char(timestamp '2024-05-03 07:08:09', 'Day|DAY|day|Dy|DY|dy|Month|MONTH|month|Mon|MON|mon')
----
Friday   |FRIDAY   |friday   |Fri|FRI|fri|May      |MAY      |may      |May|MAY|may

select to_char(timestamp '2024-05-03 07:08:09', 'FMDay, FMDD FMMonth YYYY') || '.', to_char(timestamp '2024-05-03 07:08:09', 'yyyy yy iyyy iw id d ddd q ssss')
----
"Friday, 3 May 2024.",2024 24 2024 18 5 6 124 2 25689

select to_char(timestamp '2024-12-31 23:59:59.999', 'YYYYMMDD"T"HH24MISS"Z", IYYY-"W"IW-ID FF3 FF6'), to_char(timestamp '1969-07-20 20:17:40.5', 'YY.MM.DD MS')
----
"20241231T235959Z, 2025-W01-2 999 999000",69.07.20 500

select to_char(timestamp '2024-05-03 00:00:00', 'HH12 HH24 FMHH24 AM')
----
12 00 0 AM

select mode() within group (order by x), mode() within group (order by x desc) from (values (3), (1), (2), (2), (3), (null)) t(x)
----
2,3

select k, mode() within group (order by x) from (values ('a', 'p'), ('a', 'q'), ('a', 'q'), ('b', null), ('c', 'z')) t(k, x) group by k order by k
----
a,q
b,
c,z

select round((corr(y, x) * 1000000000))::bigint, covar_pop(y, x), covar_samp(y, x), regr_slope(y, x), regr_intercept(y, x) from (values (1.0::double precision, 2.0::double precision), (2, 4.5), (3, 5), (null, 9), (4, null), (5, 11)) t(y, x)
----
978180094,4.78125,6.375,0.4377682403433477,0.2875536480686689

select corr(y, x), covar_samp(y, x), covar_pop(y, x), regr_slope(y, x) from (values (1.0::double precision, 2.0::double precision)) t(y, x)
----
,,0,

select corr(y, x) from (values (1.0::double precision, 2.0::double precision), (2, 2), (3, 2)) t(y, x)
----
(null)

select string_agg(distinct x, ',' order by x), string_agg(distinct x, '-' order by x desc) from (values ('b'), ('a'), ('b'), ('c'), (null), ('a')) t(x)
----
"a,b,c",c-b-a

select string_agg(distinct x, ',' order by y) from (values ('b', 1), ('a', 2)) t(x, y)
----
error: line 1, column 44: with distinct, string_agg is ordered by what it collects

select count(*) from (values (1), (2)) t(x) group by ()
----
2

select 1 from (values (1), (2)) t(x) group by ()
----
1

select x from (values (1), (2)) t(x) group by ()
----
error: line 1, column 8: column 'x' must be in group by or inside an aggregate

select sum(x) from (values (1), (2)) t(x) where x > 5 group by () having count(*) = 0
----
(null)

select * from generate_series(null, 5) t(n)
----

select count(*) from generate_series(1, null::bigint) t(n)
----
0
