-- Checked with PostgreSQL 15.18
-- What the clocks of time zones show, and when they show it.

select timestamp '2001-02-16 20:38:40' at time zone 'America/Denver'
----
2001-02-17T03:38:40.000000000Z

select timestamp with time zone '2001-02-16 20:38:40-05' at time zone 'America/Denver'
----
2001-02-16T18:38:40.000000000Z

select timestamp '2001-02-16 20:38:40' at time zone 'UTC', timestamptz '2001-02-16 20:38:40' at time zone 'utc'
----
2001-02-16T20:38:40.000000000Z,2001-02-16T20:38:40.000000000Z

select timestamptz '2001-07-16 20:38:40' at time zone 'Europe/Berlin', timestamptz '2001-02-16 20:38:40' at time zone 'Europe/Berlin'
----
2001-07-16T22:38:40.000000000Z,2001-02-16T21:38:40.000000000Z

select timezone('UTC', timestamptz '2001-02-16 20:38:40'), timezone('Europe/Berlin', timestamp '2024-07-01 12:00')
----
2001-02-16T20:38:40.000000000Z,2024-07-01T10:00:00.000000000Z

select timestamptz '2001-02-16 20:38:40' at time zone interval '-05:00', timestamptz '2001-02-16 20:38:40' at time zone '+02', timestamptz '2001-02-16 20:38:40' at time zone 'EST', timestamptz '2001-02-16 20:38:40' at time zone '-05:30'
----
2001-02-16T15:38:40.000000000Z,2001-02-16T18:38:40.000000000Z,2001-02-16T15:38:40.000000000Z,2001-02-17T02:08:40.000000000Z

select timestamp '2024-03-31 02:30' at time zone 'Europe/Berlin', timestamp '2024-03-31 01:59:59' at time zone 'Europe/Berlin', timestamp '2024-03-31 03:00' at time zone 'Europe/Berlin'
----
2024-03-31T01:30:00.000000000Z,2024-03-31T00:59:59.000000000Z,2024-03-31T01:00:00.000000000Z

select timestamp '2024-10-27 02:30' at time zone 'Europe/Berlin', timestamp '2024-10-27 01:59:59' at time zone 'Europe/Berlin', timestamp '2024-10-27 03:00' at time zone 'Europe/Berlin'
----
2024-10-27T01:30:00.000000000Z,2024-10-26T23:59:59.000000000Z,2024-10-27T02:00:00.000000000Z

select timestamptz '2024-10-27 00:30' at time zone 'Europe/Berlin', timestamptz '2024-10-27 01:30' at time zone 'Europe/Berlin', timestamptz '2024-03-31 00:59:59' at time zone 'Europe/Berlin', timestamptz '2024-03-31 01:00' at time zone 'Europe/Berlin'
----
2024-10-27T02:30:00.000000000Z,2024-10-27T02:30:00.000000000Z,2024-03-31T01:59:59.000000000Z,2024-03-31T03:00:00.000000000Z

select timestamptz '2060-07-01 12:00' at time zone 'Europe/Berlin', timestamptz '2060-01-01 12:00' at time zone 'America/New_York', timestamptz '2060-01-01 12:00' at time zone 'Australia/Sydney', timestamptz '2060-07-01 12:00' at time zone 'Australia/Sydney', timestamptz '2050-07-01 12:00' at time zone 'Asia/Kolkata'
----
2060-07-01T14:00:00.000000000Z,2060-01-01T07:00:00.000000000Z,2060-01-01T23:00:00.000000000Z,2060-07-01T22:00:00.000000000Z,2050-07-01T17:30:00.000000000Z

select timestamptz '1900-01-01 12:00' at time zone 'Europe/Berlin', timestamptz '1700-01-01 12:00' at time zone 'Europe/Berlin', timestamptz '1950-06-01' at time zone 'Europe/London', timestamptz '1969-12-31 23:59:59.5' at time zone 'Asia/Tokyo'
----
1900-01-01T13:00:00.000000000Z,1700-01-01T12:53:28.000000000Z,1950-06-01T01:00:00.000000000Z,1970-01-01T08:59:59.500000000Z

select timestamptz '2024-07-01 12:00' at time zone 'America/St_Johns', timestamptz '2024-07-01 12:00' at time zone 'Asia/Kathmandu', timestamptz '2024-07-01 12:00' at time zone 'Pacific/Apia', timestamptz '2024-07-01 12:00' at time zone 'Africa/Casablanca', timestamptz '2024-07-01 12:00' at time zone 'America/Nuuk', timestamptz '2024-07-01 12:00' at time zone 'Europe/Dublin', timestamptz '2024-01-01 12:00' at time zone 'Europe/Dublin', timestamptz '2050-01-01 12:00' at time zone 'Europe/Dublin'
----
2024-07-01T09:30:00.000000000Z,2024-07-01T17:45:00.000000000Z,2024-07-02T01:00:00.000000000Z,2024-07-01T13:00:00.000000000Z,2024-07-01T11:00:00.000000000Z,2024-07-01T13:00:00.000000000Z,2024-01-01T12:00:00.000000000Z,2050-01-01T12:00:00.000000000Z

select timestamptz '2024-07-01 12:00' at time zone null
----
(null)

select date_trunc('day', timestamptz '2024-07-01 23:30' at time zone 'Europe/Berlin') at time zone 'Europe/Berlin'
----
2024-07-01T22:00:00.000000000Z

select (timestamptz '2024-07-01 23:30' at time zone 'Europe/Berlin')::date, to_char(timestamptz '2024-07-01 23:30' at time zone 'Europe/Berlin', 'HH24:MI'), extract(hour from timestamptz '2024-07-01 23:30' at time zone 'Europe/Berlin')
----
2024-07-02,01:30,1

select timestamp '2024-07-01 12:00' at time zone 'UTC' at time zone 'Europe/Berlin', timestamp '2024-07-01 12:00' at time zone 'Europe/Berlin' at time zone 'UTC'
----
2024-07-01T14:00:00.000000000Z,2024-07-01T10:00:00.000000000Z

select date '2024-07-01' at time zone 'Europe/Berlin', '2024-07-01 12:00' at time zone 'Europe/Berlin'
----
2024-07-01T02:00:00.000000000Z,2024-07-01T14:00:00.000000000Z

select '2024-07-01 12:00'::timestamptz::timestamp at time zone 'Europe/Berlin', '2024-07-01 12:00'::timestamp::timestamptz at time zone 'Europe/Berlin', (date '2024-07-01' + interval '1 hour') at time zone 'Europe/Berlin'
----
2024-07-01T10:00:00.000000000Z,2024-07-01T14:00:00.000000000Z,2024-06-30T23:00:00.000000000Z

select x at time zone 'Europe/Berlin' from (select timestamptz '2024-07-01 12:00' at time zone 'UTC' as x) t
----
2024-07-01T10:00:00.000000000Z

select x at time zone 'Europe/Berlin' from (select max(y) as x from (values (timestamp '2024-07-01 12:00'), (timestamp '2024-07-02')) v(y)) t
----
2024-07-01T22:00:00.000000000Z

select (case when true then timestamp '2024-07-01 12:00' end) at time zone 'Europe/Berlin', coalesce(timestamp '2024-07-01 12:00', null) at time zone 'Europe/Berlin', greatest(timestamp '2024-07-01 12:00', timestamp '2023-07-01 12:00') at time zone 'Europe/Berlin', nullif(timestamp '2024-07-01 12:00', now()) at time zone 'Europe/Berlin'
----
2024-07-01T10:00:00.000000000Z,2024-07-01T10:00:00.000000000Z,2024-07-01T10:00:00.000000000Z,2024-07-01T10:00:00.000000000Z

select x at time zone 'Europe/Berlin' from (select timestamp '2024-07-01 12:00' as x union all select timestamp '2024-01-01') t order by 1
----
2023-12-31T23:00:00.000000000Z
2024-07-01T10:00:00.000000000Z

select x at time zone 'Europe/Berlin' from (select timestamp '2024-07-01 12:00' as x union all select timestamptz '2024-01-01') t order by 1
----
2024-01-01T01:00:00.000000000Z
2024-07-01T14:00:00.000000000Z

select lag(x) over (order by x) at time zone 'Europe/Berlin' from (values (timestamp '2024-07-01 12:00'), (timestamp '2024-07-02')) t(x) order by 1
----
2024-07-01T10:00:00.000000000Z
(null)

select x at time zone 'Europe/Berlin' from generate_series(timestamp '2024-03-30', timestamp '2024-04-01', '1 day') x order by 1
----
2024-03-29T23:00:00.000000000Z
2024-03-30T23:00:00.000000000Z
2024-03-31T22:00:00.000000000Z

select x at time zone z from (values (timestamptz '2024-07-01 12:00', 'Europe/Berlin'), ('2024-01-01', 'Asia/Tokyo'), ('2024-01-01', 'Europe/Berlin')) t(x, z) order by 1
----
2024-01-01T01:00:00.000000000Z
2024-01-01T09:00:00.000000000Z
2024-07-01T14:00:00.000000000Z

select (select max(x) from (values (timestamp '2024-07-01 12:00')) t(x)) at time zone 'Europe/Berlin'
----
2024-07-01T10:00:00.000000000Z

select date_trunc('hour', timestamptz '2024-07-01 12:34', 'Asia/Kolkata')
----
2024-07-01T12:30:00.000000000Z
