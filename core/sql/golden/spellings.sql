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
