-- Checked with PostgreSQL: to_char(number), format(), with ties.

select to_char(1234567.891, 'FM9G999G990D00'), to_char(485, '999'), to_char(-485, '999'), to_char(485, '9999999'), to_char(1485, '999')
----
"1,234,567.89"," 485",-485,"     485"," ###"

select to_char(148.5, 'FM999.990'), to_char(148.5, '0999.99'), to_char(12, '9990999.9'), to_char(0.1, 'FM9.9'), to_char(0.1, '9.9')
----
148.500," 0148.50","    0012.0",.1,"  .1"

select to_char(-485, '999S'), to_char(485, '999MI'), to_char(-485, 'FM999MI'), to_char(485, 'PL999'), to_char(-485, '999PR'), to_char(485, 'SG999')
----
485-,485 ,485-,+ 485,<485>,+485

select to_char(485, 'RN'), to_char(5.2, 'FMrn'), to_char(482, '999th'), to_char(12, '99V999'), to_char(0.0004859, '9.99EEEE'), to_char(485, '"Good number:"999')
----
"        CDLXXXV",v," 482nd"," 12000"," 4.86e-04",Good number: 485

select to_char(2.675, '9.99'), to_char(0.125::float8, '9.99'), to_char(1e300::float8, 'FM999'), to_char('nan'::float8, '9999')
----
" 2.68","  .12",###,"  NaN"

select to_char(null::bigint, '9'), to_char(5, null), to_char(n, 'FM00') from (values (7), (12)) t(n)
----
,,07
,,12

select format('%s of %I is %L', 'sum', 'my table', 'it''s'), format('%2$s %1$s %%', 1, true), format('%L', null), format('%s', null)
----
"sum of ""my table"" is 'it''s'",t 1 %,NULL,""

select format('|%10s|%-10s|%*s|', 'foo', 'bär', -4, 'x'), format('%I %I %I', 'select', 'a1', 'A"b')
----
|       foo|bär       |x   |,"""select"" a1 ""A""""b"""

select n, s from (values (1, 'a'), (2, 'b'), (2, 'c'), (3, 'd'), (null, 'e')) t(n, s) order by n fetch first 2 rows with ties
----
1,a
2,b
2,c

select n from (values (1), (2), (2), (null), (null)) t(n) order by n desc offset 1 row fetch next 1 row with ties
----
(null)

select distinct n from (values (1), (2), (2), (null), (null)) t(n) order by n fetch first 2 rows with ties
----
1
2

select n from (values ('a'), ('')) t(n) order by n fetch first 0 rows with ties
----
