-- Checked with PostgreSQL 15.18
-- What the standard writes with words inside the call, and numbers that are none.

select substring('hello' from 2 for 3), substring('hello' from 4), substring('hello', 3)
----
ell,lo,llo

select trim(both 'x' from 'xxhixx'), trim(leading 'x' from 'xxhixx'), trim(trailing from 'hi  '), trim(from ' hi '), trim(' q ')
----
hi,hixx,hi,hi,q

select trunc(1.999, 2), trunc(-5.55, 1)
----
1.99,-5.5

select x from (values ('NaN'::double precision),(1),('-Infinity'),('Infinity'),(null)) t(x) order by x desc nulls last
----
nan
inf
1
-inf
(null)

select 'nan'::double precision = 'NaN'::double precision, ' inf '::double precision > 1e308
----
true,true

select date_trunc('day', ts) as timestamp, count(*) from (values (timestamp '2024-05-01 10:00'), (timestamp '2024-05-01 11:00'), (timestamp '2024-05-02 11:00')) t(ts) group by timestamp order by timestamp
----
2024-05-01T00:00:00.000000000Z,2
2024-05-02T00:00:00.000000000Z,1

select extract(hour from ts)::bigint as time, count(*) from (values (timestamp '2024-05-01 10:00'), (timestamp '2024-05-02 10:00')) t(ts) group by time
----
10,2

select local_step / 10 as step, count(*) from (values (1), (2), (13)) t(local_step) group by step order by step
----
0,2
1,1

select local_step % 10 as steps, tid - 7 as thread_id from (values (1, 8), (2, 7)) t(local_step, tid) order by thread_id, steps
----
2,0
1,1
