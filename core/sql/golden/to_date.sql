-- Checked with PostgreSQL 15.18
-- Times written and read by patterns.

select to_char(timestamp '2024-01-02 13:04:05', 'DDth DDTH FMDDth HH12th YYYYth DDDth MSth')
----
02nd 02ND 2nd 01st 2024th 002nd 000th

select to_char(timestamp '2024-11-11 13:04:05', 'DDth FMDDTH MMth WWth Wth Jth')
----
11th 11TH 11th 46th 2nd 2460626th

select to_char(timestamp '2024-12-31 13:04:05', 'WW W J CC BC b.c. ad A.D. a.m. P.M. am')
----
53 5 2460676 21 AD a.d. ad A.D. p.m. P.M. pm

select to_char(timestamp '1970-01-01', 'J'), to_char(timestamp '1969-12-31 23:00', 'J WW W FMWW')
----
2440588,2440587 53 5 53

select to_char(timestamp '2024-01-12', 'FMDDth'), to_char(timestamp '2024-01-21', 'FMDDth'), to_char(timestamp '2024-01-13', 'DDTH')
----
12th,21st,13TH

select to_date('05 Dec 2000', 'DD Mon YYYY'), to_date('05 december 2000', 'DD Month YYYY'), to_date('20240105', 'YYYYMMDD'), to_date('2024', 'YYYY-MM-DD'), to_date('2024-1-5', 'YYYY-MM-DD')
----
2000-12-05,2000-12-05,2024-01-05,2024-01-01,2024-01-05

select to_date('24', 'YY'), to_date('75', 'YY'), to_date('124', 'YYY'), to_date('4', 'Y'), to_date('2024 060', 'YYYY DDD'), to_date('2024-01-01xyz', 'YYYY-MM-DD')
----
2024-01-01,1975-01-01,2124-01-01,2004-01-01,2024-02-29,2024-01-01

select to_date('Fri 2024-01-05', 'Dy YYYY-MM-DD'), to_date('2024.1.5', 'YYYY-MM-DD'), to_date('2024/01/02', 'YYYY-MM-DD'), to_date(' 2024 - 01 - 05', 'YYYY-MM-DD'), to_date('2024-01-02', 'FMYYYY-FMMM-FMDD')
----
2024-01-05,2024-01-05,2024-01-02,2024-01-05,2024-01-02

select to_date(a, 'DD.MM.YYYY') from (values ('01.02.2024'), (null), ('31.12.1999')) t(a)
----
2024-02-01
(null)
1999-12-31

select to_timestamp('2024-01-02 03:04:05.678', 'YYYY-MM-DD HH24:MI:SS.MS'), to_timestamp('2024-01-02 03:04:05.6', 'YYYY-MM-DD HH24:MI:SS.FF3'), to_timestamp('2024-01-02 03:04:05.678901', 'YYYY-MM-DD HH24:MI:SS.US')
----
2024-01-02T03:04:05.678000000Z,2024-01-02T03:04:05.600000000Z,2024-01-02T03:04:05.678901000Z

select to_timestamp('2024-01-02 03:04 PM', 'YYYY-MM-DD HH:MI AM'), to_timestamp('2024-01-02 12:04 AM', 'YYYY-MM-DD HH12:MI PM'), to_timestamp('2024-01-02 12:04 p.m.', 'YYYY-MM-DD HH12:MI a.m.')
----
2024-01-02T15:04:00.000000000Z,2024-01-02T00:04:00.000000000Z,2024-01-02T12:04:00.000000000Z

select to_timestamp('2024-01-02T03:04:05', 'YYYY-MM-DD"T"HH24:MI:SS'), to_timestamp('20240102030405', 'YYYYMMDDHH24MISS'), to_timestamp('2024-01-02 3:4:5', 'YYYY-MM-DD HH24:MI:SS'), to_timestamp('2024-01-02 86399', 'YYYY-MM-DD SSSS')
----
2024-01-02T03:04:05.000000000Z,2024-01-02T03:04:05.000000000Z,2024-01-02T03:04:05.000000000Z,2024-01-02T23:59:59.000000000Z

select to_timestamp('5th 01 2024', 'DDth MM YYYY'), to_timestamp('2024  01  02', 'YYYY MM DD'), to_timestamp('2024-01-02 0304', 'YYYY-MM-DD HH24MI')
----
2024-01-05T00:00:00.000000000Z,2024-01-02T00:00:00.000000000Z,2024-01-02T03:04:00.000000000Z

select to_date('2024-13-01', 'YYYY-MM-DD')
----
error: line 1, column 8: there is no time '2024-13-01'

select to_date('2024-02-30', 'YYYY-MM-DD')
----
error: line 1, column 8: there is no time '2024-02-30'

select to_date('2024x01', 'YYYY-MM')
----
error: line 1, column 8: '2024x01' is no 'YYYY-MM': found 'x01' for MM

select to_date('05 foo 2000', 'DD Mon YYYY')
----
error: line 1, column 8: '05 foo 2000' is no 'DD Mon YYYY': found 'foo' for MON

select to_date('05 dec 2000', 'DD Month YYYY')
----
error: line 1, column 8: '05 dec 2000' is no 'DD Month YYYY': found 'dec' for MONTH

select to_timestamp('2024-01-02 13:04', 'YYYY-MM-DD HH:MI')
----
error: line 1, column 8: there is no time '2024-01-02 13:04'

select to_timestamp('2024-01-02 25:04', 'YYYY-MM-DD HH24:MI')
----
error: line 1, column 8: there is no time '2024-01-02 25:04'

select to_timestamp('2024-01-02 03:61', 'YYYY-MM-DD HH24:MI')
----
error: line 1, column 8: there is no time '2024-01-02 03:61'

select to_timestamp('2024--01', 'YYYY-MM')
----
error: line 1, column 8: '2024--01' is no 'YYYY-MM': found '-01' for MM

select timestamp with time zone '2024-01-01 10:00+02', timestamp without time zone '2024-01-01 10:00'
----
2024-01-01T08:00:00.000000000Z,2024-01-01T10:00:00.000000000Z

select justify_days(interval '35 days'), justify_days(interval '-65 days'), justify_interval(interval '1 mon -1 hour'), justify_interval(interval '-1 mon 40 days'), justify_hours(interval '27 hours'), justify_days(interval '1 mon -1 hour')
----
1 mon 5 days,-2 mons -5 days,29 days 23:00:00,10 days,1 day 03:00:00,1 mon -01:00:00
