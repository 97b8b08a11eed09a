-- Checked with PostgreSQL 15.18
-- Dates, and intervals with months.

select timestamp '2024-01-01' + interval '1' year, interval '5' minute, interval '1-2' year to month, interval '1 12:30' day to minute
----
2025-01-01T00:00:00.000000000Z,00:05:00,1 year 2 mons,1 day 12:30:00

select timestamp '2024-01-31' + interval '1 month', timestamp '2024-03-31' - interval '1 month', timestamp '2024-02-29' + interval '1 year', timestamp '2024-01-01 10:00' + interval '1 month -1 day 02:00'
----
2024-02-29T00:00:00.000000000Z,2024-02-29T00:00:00.000000000Z,2025-02-28T00:00:00.000000000Z,2024-01-31T12:00:00.000000000Z

select interval '5 5 5'
----
error: line 1, column 8: '5 5 5' is not an interval like '5 min'

select interval '2023-01-01 00:00:00'
----
error: line 1, column 8: '2023-01-01 00:00:00' is not an interval like '5 min'

select interval 'foo'
----
error: line 1, column 8: 'foo' is not an interval like '5 min'

select interval ''
----
error: line 1, column 8: '' is not an interval like '5 min'

select interval '1 day 12:30:00.5', interval '1 year 2 mons 3 days 04:05:06', interval '3 days ago', interval '@ 1 minute', interval '1 12:30', interval '90'
----
1 day 12:30:00.5,1 year 2 mons 3 days 04:05:06,-3 days,00:01:00,1 day 12:30:00,00:01:30

select interval 'P1Y2M3DT4H5M6S', interval 'P2W', interval 'PT1.5S', interval '1-2', interval '1 century 1 decade', interval '1.5 years', interval '1.5 months'
----
1 year 2 mons 3 days 04:05:06,14 days,00:00:01.5,1 year 2 mons,110 years,1 year 6 mons,1 mon 15 days

select timestamp '2024-01-02' - '2024-01-01', timestamp '2024-05-01 10:00' - timestamp '2024-03-01 12:00:00.25'
----
1 day,60 days 21:59:59.75

select extract(year from interval '2 years'), extract(month from interval '14 months'), extract(day from interval '40 days'), extract(hour from interval '30 min'), extract(epoch from interval '1 year 1 mon'), extract(quarter from interval '7 months'), date_part('second', interval '00:00:01.5')
----
2,2,40,0,34149600,3,1.5

select date '2024-01-10' - 7, date '2024-01-10' + 7, 7 + date '2024-01-10', date '2024-03-01' - date '2024-02-01', date '2024-01-31' + interval '1 month', date '2024-01-10'::text, timestamp '2024-01-10 23:59'::date
----
2024-01-03,2024-01-17,2024-01-17,29,2024-02-29T00:00:00.000000000Z,2024-01-10,2024-01-10

select date '2024-01-10' + 1.5
----
error: line 1, column 26: a date moves by whole days, or by an interval: date + interval '36 hours'

select date '2024-01-10' = timestamp '2024-01-10', date '2024-01-10' < timestamp '2024-01-10 00:00:01', date '2024-01-10' in ('2024-01-10'), date '2024-01-10' between '2023-12-31' and '2024-02-01'
----
true,true,true,true

select max(d), min(d), count(distinct d) from (values (date '2024-01-10'), (date '2023-01-10'), (date '2024-01-10')) t(d)
----
2024-01-10,2023-01-10,2

select d, count(*) from (values (date '2024-01-10'), (date '2023-01-10'), (date '2024-01-10')) t(d) group by d order by d desc
----
2024-01-10,2
2023-01-10,1

select interval '1 month' * 2, interval '1 month' * 1.5, 3 * interval '1 month', interval '1 year' / 12, -interval '1 mon 1 day', interval '1 month' / 0.5
----
2 mons,1 mon 15 days,3 mons,1 mon,-1 mons -1 days,2 mons

select interval '1 month' / 0
----
error: line 1, column 27: division by zero (nullif(x, 0) avoids it)

select interval '1 mon' = interval '30 days', interval '1 year' > interval '359 days', interval '1 mon' < interval '31 days', interval '12 months' = interval '1 year', interval '1 mon' is distinct from interval '30 days'
----
true,true,true,true,false

select x from (values (interval '1 month'), (interval '40 days'), (interval '1 day'), (interval '1 year'), (null), (interval '-1 month')) t(x) order by x nulls first
----
(null)
-1 mons
1 day
1 mon
40 days
1 year

select max(x), min(x) from (values (interval '1 month'), (interval '40 days'), (interval '1 year')) t(x)
----
1 year,1 mon

select greatest(interval '1 month', interval '40 days'), coalesce(null, interval '1 month'), case when 1 = 1 then interval '1 day' else interval '1 month' end, nullif(interval '1 month', interval '1 mon')
----
40 days,1 mon,1 day,

select x::text, timestamp '2024-01-31' + x from (select s::interval as x from (values ('1 month'), (null), ('5 min'), ('-2 years')) t(s)) q
----
1 mon,2024-02-29T00:00:00.000000000Z
,
00:05:00,2024-01-31T00:05:00.000000000Z
-2 years,2022-01-31T00:00:00.000000000Z

select age(timestamp '2024-03-01', timestamp '2024-01-31'), age(timestamp '2024-01-31', timestamp '2024-03-01'), age(timestamp '2001-04-10', timestamp '1957-06-13'), age(timestamp '2024-03-01 05:00', timestamp '2024-02-28 12:00')
----
1 mon 1 day,-1 mons -1 days,43 years 9 mons 27 days,1 day 17:00:00

select date_bin('1 month', timestamp '2024-01-10', timestamp '2001-01-01')
----
error: line 1, column 8: a time bucket cannot be months or years, which have no fixed length; date_trunc('month', ts) follows the calendar

select g from generate_series(timestamp '2024-01-31', timestamp '2024-06-01', interval '1 month') g
----
2024-01-31T00:00:00.000000000Z
2024-02-29T00:00:00.000000000Z
2024-03-29T00:00:00.000000000Z
2024-04-29T00:00:00.000000000Z
2024-05-29T00:00:00.000000000Z

select g from generate_series(timestamp '2024-06-01', timestamp '2024-01-01', interval '-2 months') g
----
2024-06-01T00:00:00.000000000Z
2024-04-01T00:00:00.000000000Z
2024-02-01T00:00:00.000000000Z

select timestamp '2024-01-01 10:00:00.5'::text, timestamp '2024-01-01 10:00:00'::text, timestamp '2024-01-01 10:00:00.123456'::text
----
2024-01-01 10:00:00.5,2024-01-01 10:00:00,2024-01-01 10:00:00.123456

select timestamp with time zone '2024-01-01 00:00+16:00'
----
error: line 1, column 33: '2024-01-01 00:00+16:00' is not a timestamp like '2024-05-01 10:00:00'

select timestamp '2024-01-01' + '1 month', timestamp '2024-01-01' - interval '13 months', interval '1 day' + date '2024-01-01', interval '1 month' + timestamp '2024-01-31'
----
2024-02-01T00:00:00.000000000Z,2022-12-01T00:00:00.000000000Z,2024-01-02T00:00:00.000000000Z,2024-02-29T00:00:00.000000000Z

select interval '1 day' - interval '1 month', interval '1 month' - interval '1 month', interval '1 month' + interval '1 day', interval '1 day' + interval '1 hour'
----
-1 mons +1 day,00:00:00,1 mon 1 day,1 day 01:00:00

select sum(v) over (order by d range between interval '2 days' preceding and current row) from (values (date '2024-01-01', 1), (date '2024-01-02', 2), (date '2024-01-05', 4)) t(d, v)
----
1
3
4

select interval '1 day' union select interval '1 month' order by 1
----
1 day
1 mon

select interval '0.1 years', interval '1.5 years', interval '0.05 years', interval '1.5 months', interval '0.3 months', interval '1.5 weeks', interval '1.7 days', interval '0.25 decade', interval '-0.1 years'
----
1 mon,1 year 6 mons,1 mon,1 mon 15 days,9 days,10 days 12:00:00,1 day 16:48:00,2 years 6 mons,-1 mons

select interval '0.125 years', interval '1.375 years', interval '0.99 years', interval 'P0.1Y', interval '2.3 centuries', interval '0.1 years ago'
----
2 mons,1 year 4 mons,1 year,1 mon,230 years,-1 mons

select extract(epoch from timestamp '2024-02-29 12:34:56.789'), extract(epoch from timestamp '1969-12-31 23:59:59.999999'), extract(epoch from timestamp '2261-01-01 00:00:00.123457'), extract(epoch from interval '3 days 04:05:06.789123')
----
1709210096.789,-1e-06,9183110400.123457,273906.789123

select n from (select n, timestamp '2001-02-03 04:05:06' + n * interval '1234567.891011 s' as ts from generate_series(1::bigint, 4000::bigint) n) t where extract(epoch from ts)::text::float8 <> (981173106 + 1234567 * n + (891011 * n) / 1000000 || '.' || lpad(((891011 * n) % 1000000)::text, 6, '0'))::float8
----

-- Months, days and time are three numbers.
select interval '49 hours', interval '1 day -36:00:00', interval '100000 seconds', interval '1 hour' * 49, interval '20 hours' + interval '20 hours', interval '1 day 30:00' / 2, -interval '36 hours', interval '1 mon 3 days 50:00' * 1.5
----
49:00:00,1 day -36:00:00,27:46:40,49:00:00,40:00:00,27:00:00,-36:00:00,1 mon 19 days 87:00:00

select extract(hour from interval '49 hours'), extract(day from interval '49 hours'), extract(epoch from interval '1 day 49 hours'), interval '49 hours' = interval '2 days 1 hour', date_trunc('day', interval '3 days 49 hours'), date_trunc('hour', interval '3 days 49:30')
----
49,0,262800,true,3 days,3 days 49:00:00

select timestamp '2024-01-01' + interval '49 hours', date_bin(interval '36 hours', timestamp '2024-02-28 13:07', timestamp '2000-01-01')
----
2024-01-03T01:00:00.000000000Z,2024-02-28T12:00:00.000000000Z

select min(x), max(x), sum(extract(hour from x)) from (values (interval '49 hours'), (interval '2 days'), (interval '1 mon')) t(x)
----
2 days,1 mon,49

select age(timestamp '2024-03-01 06:00', timestamp '2024-01-31 12:00'), timestamp '2024-03-01' - timestamp '2024-01-31 12:00', sum(v) over (order by d range between interval '36 hours' preceding and current row) from (values (timestamp '2024-01-01', 1)) t(d, v)
----
1 mon 18:00:00,29 days 12:00:00,1
