-- Checked with PostgreSQL 15.18
-- Where PostgreSQL has no answer there is none here, and what stands beside that has one.

select a from (values (2), (1)) t(a) order by 1.5
----
error: line 1, column 47: order by a constant that is no column's number: it orders nothing; a column's name is written in "double quotes", or without any

select a from (values (2), (1)) t(a) order by true
----
error: line 1, column 47: order by a constant that is no column's number: it orders nothing; a column's name is written in "double quotes", or without any

select a from (values (2), (1)) t(a) order by null
----
error: line 1, column 47: order by a constant that is no column's number: it orders nothing; a column's name is written in "double quotes", or without any

select a from (values (2), (1)) t(a) order by 'a'
----
error: line 1, column 47: order by a constant that is no column's number: it orders nothing; a column's name is written in "double quotes", or without any

select a from (values (2), (1)) t(a) union select 3 order by 'a'
----
error: line 1, column 62: order by a constant that is no column's number: it orders nothing; a column's name is written in "double quotes", or without any

select distinct on ('a') a from (values (2), (1)) t(a)
----
error: line 1, column 21: distinct on a constant that is no column's number: it orders nothing; a column's name is written in "double quotes", or without any

select a from (values (2), (1)) t(a) order by 0
----
error: line 1, column 47: order by 0: the select list has 1 column

select a from (values (2), (1)) t(a) order by 2
----
error: line 1, column 47: order by 2: the select list has 1 column

select a from (values (2), (1)) t(a) order by -1
----
error: line 1, column 48: order by -1: the select list has 1 column

select 'a\' like 'a\'
----
error: line 1, column 13: the pattern of like ends with its escape character, which stands before another one; \\ is a \ itself

select x like 'a\' from (values ('ab')) t(x)
----
error: line 1, column 10: the pattern of like ends with its escape character, which stands before another one; \\ is a \ itself

select 'ab' ilike '%\'
----
error: line 1, column 13: the pattern of like ends with its escape character, which stands before another one; \\ is a \ itself

select 'ab' not like 'a\'
----
error: line 1, column 13: the pattern of like ends with its escape character, which stands before another one; \\ is a \ itself

select 'ab' like 'a!' escape '!'
----
error: line 1, column 13: the pattern of like ends with its escape character, which stands before another one; \\ is a \ itself

select 'b' like 'a\', '' like '\', 'a' like 'a\\', 'a\' like 'a\\', 'a!' like 'a!!' escape '!'
----
false,false,false,true,true

select 100000::smallint
----
error: line 1, column 14: smallint out of range; a bigint holds it

select 32768::int2
----
error: line 1, column 13: smallint out of range; a bigint holds it

select (-32769)::smallint
----
error: line 1, column 16: smallint out of range; a bigint holds it

select '100000'::smallint
----
error: line 1, column 16: smallint out of range; a bigint holds it

select 1e5::smallint
----
error: line 1, column 11: smallint out of range; a bigint holds it

select 3000000000::int
----
error: line 1, column 18: integer out of range; a bigint holds it

select cast(-2147483649 as integer)
----
error: line 1, column 8: integer out of range; a bigint holds it

select '3000000000'::int4
----
error: line 1, column 20: integer out of range; a bigint holds it

select x::int from (values (2147483648)) t(x)
----
error: line 1, column 9: integer out of range; a bigint holds it

select 32767::smallint, (-32768)::int2, 2147483647::int, (-2147483648)::int4, '-2147483648'::integer, 2.5::int, null::smallint, 3000000000::bigint
----
32767,-32768,2147483647,-2147483648,-2147483648,3,,3000000000

select 1 from (values (1)) t(a), (values (1)) t(a)
----
error: line 1, column 34: two tables are called 't' here; give one of them another name: t as b

select 1 from (values (1)) t(a) join (values (1)) t(b) on true
----
error: line 1, column 38: two tables are called 't' here; give one of them another name: t as b

select 1 from ((values (1)) t(a) cross join (values (1)) u(b)) cross join (values (1)) u(c)
----
error: line 1, column 75: two tables are called 'u' here; give one of them another name: u as b

select 1 from generate_series(1, 2), generate_series(1, 2)
----
error: line 1, column 38: two tables are called 'generate_series' here; give one of them another name: generate_series as b

with t as (select 1) select 1 from t, t
----
error: line 1, column 39: two tables are called 't' here; give one of them another name: t as b

with t as (select 1 as a) select count(*) from t, t u, (select a from t) v
----
1

select 'aa' ~ 'a{1}{2}'
----
error: line 1, column 13: regular expression: there is nothing to repeat at letter 5 of 'a{1}{2}'

select 'a' ~ '^*'
----
error: line 1, column 12: regular expression: there is nothing to repeat at letter 2 of '^*'

select 'a' ~ '$+'
----
error: line 1, column 12: regular expression: there is nothing to repeat at letter 2 of '$+'

select 'a' ~ 'a**'
----
error: line 1, column 12: regular expression: there is nothing to repeat at letter 3 of 'a**'

select 'a' ~ 'a+{2}'
----
error: line 1, column 12: regular expression: there is nothing to repeat at letter 3 of 'a+{2}'

select 'a' ~ '{1}'
----
error: line 1, column 12: regular expression: there is nothing to repeat at letter 1 of '{1}'

select 'a' ~ '(^)*a', 'aaaa' ~ '^(a{2}){2}$', 'a{' ~ 'a{', 'aa' ~ 'a+?', 'a{x}' ~ '{x}'
----
true,true,true,true,true

select percentile_cont(2) within group (order by a) from (values (1)) t(a)
----
error: line 1, column 24: the fraction must be a constant between 0 and 1

select a from (values (1)) t(a) limit 1 limit 2
----
error: line 1, column 41: limit and offset stand once behind a select

select a from (values (1)) t(a) limit 1 fetch first 2 rows only
----
error: line 1, column 41: limit and offset stand once behind a select

select a from (values (1)) t(a) offset 1 offset 2
----
error: line 1, column 42: limit and offset stand once behind a select

select sum(a) over w from (values (1)) t(a) window w as (), w as (order by a)
----
error: line 1, column 67: this window's name is another one's already

select a from (values (1), (2)) t(a) offset 1 limit all
----
2

select interval '5' hour to minute, interval '5:30' hour to minute, interval '7' day to second, interval '1-2' year to month, interval '3' year to month
----
00:05:00,05:30:00,00:00:07,1 year 2 mons,3 mons
