-- Zones that there are not: errors of ours.

select timestamptz '2024-07-01 12:00' at time zone 'Nowhere/City'
----
error: line 1, column 39: no time zone 'Nowhere/City' here: names like 'Europe/Berlin' are those of /usr/share/zoneinfo/; ts + interval '2 hours' needs none

select timestamptz '2024-07-01 12:00' at time zone '../../etc/passwd'
----
error: line 1, column 39: '../../etc/passwd' is no time zone like 'Europe/Berlin' or 'UTC'

select timestamptz '2024-07-01 12:00' at time zone ''
----
error: line 1, column 39: '' is no time zone like 'Europe/Berlin' or 'UTC'

select timestamptz '2024-07-01 12:00' at time zone '+1234'
----
error: line 1, column 39: '+1234' is no time zone like '+02:00'

select 5 at time zone 'UTC'
----
error: line 1, column 8: at time zone needs a timestamp, this is a bigint

select now() at time zone interval '1 month'
----
error: line 1, column 14: a time zone is away from UTC by hours, not by months or years
