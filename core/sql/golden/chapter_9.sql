-- Checked with PostgreSQL 15.18
-- Functions and operators of the manual's chapter 9 that few ask for.

-- Regular expressions: letters beyond ASCII, places, options.
select 'ä' ~ '[[:alpha:]]', 'Ä' ~ '[[:lower:]]', '€' ~ '[[:punct:]]', '€' ~ '\w', 'ä' ~ '[^[:alpha:]]', '日' ~ '^\w$', '١' ~ '\d', ' ' ~ '[[:blank:]]', 'ä' ~ '[[:print:]]'
----
true,false,true,false,false,true,false,true,true

select 'ab' ~ '\Aab\Z', E'b\nab' ~ '\Aab', 'abc' ~ '\mabc\M', 'abcd' ~ '\mabc\M', 'a b' ~ '\yb', 'foo bar' ~ '[[:<:]]bar[[:>:]]', E'a\nb' ~ '(?n)^b', 'a.b' ~ '***=.', 'ab' ~ '***=.', 'ä' ~ '\u00e4'
----
true,false,true,false,true,true,true,true,false,true

select '5' similar to '\d', 'a%' similar to 'a\%', '-abc-' similar to '%\mabc\M%', 'xabcy' similar to '%\mabc\M%'
----
true,true,true,false

select regexp_count('123456789012', '\d\d\d'), regexp_count('abc', 'x'), regexp_substr('foobarbaz', 'ba.'), regexp_replace('aXbX', 'x', '-', 'gi')
----
4,0,bar,a-b-

-- Operators that have names as functions too.
select |/ 25.0, ||/ 64.0, @ -5, @ (-2.5), 'abc' ~~ 'a%', 'abc' !~~ 'a%', 'abc' ~~* 'A%', 'abc' !~~* 'A%', 'alphabet' ^@ 'alph'
----
5,4,5,2.5,true,false,true,false,true

select trim('x' from 'xax'), trim(both from 'yxTomxx', 'xyz'), trim(leading from '  a ')
----
a,Tom,a 

select U&'d\0061t\+000061', U&'d!0061t' uescape '!', n'a''b', u&'\\'
----
data,dat,a'b,\

select U&'\00zz'
----
error: line 1, column 8: a letter of u&'...' is written \XXXX or \+XXXXXX

-- Types: what has no digits of its own here is cut or rounded all the same.
select length('a  '::char(5)), 'abc'::char, 'a'::char(3) = 'a', 'a  '::char(3) || 'b', 'abc'::bpchar
----
1,a,true,ab,abc

select '2024-01-01 10:00:00.5'::timestamp(0), timestamp(2) '2024-01-01 10:00:00.126', interval(0) '1.5 sec', '1969-12-31 23:59:59.6'::timestamp(0), interval '1.26 sec'::interval(1)
----
2024-01-01T10:00:01.000000000Z,2024-01-01T10:00:00.130000000Z,00:00:02,1970-01-01T00:00:00.000000000Z,00:00:01.3

select 0.1::real, 3.14159265358979::real, '1e10'::float4, 0::real, -2.5::real
----
0.1,3.1415927,10000000000,0,-2.5

select 1e39::real
----
error: line 1, column 12: the number is too large for a real

select '\xDEADBEEF'::bytea, '\x'::bytea, '\xde ad'::bytea, 'abc'::bytea, 'a\\b'::bytea, 'a\001'::bytea, 'abc'::bytea::text
----
\xdeadbeef,\x,\xdead,\x616263,\x615c62,\x6101,\x616263

select '\xABC'::bytea
----
error: line 1, column 8: '\xABC' is not bytes, written as '\x1f20' or with \ooo in it

-- Numbers.
select div(9.7, 2), div(-9.7, 2), div(9, 4)
----
4,-4,2

-- Times.
select date_trunc('min', timestamp '2001-02-16 20:38:40'), date_trunc('h', timestamp '2001-02-16 20:38:40'), date_trunc('mons', timestamp '2001-02-16'), date_part('hrs', timestamp '2001-02-16 20:38:40'), extract(julian from date '2006-01-01'), extract(julian from timestamp '1969-12-31 12:00'), extract(timezone_hour from timestamptz '2001-02-16')
----
2001-02-16T20:38:00.000000000Z,2001-02-16T20:00:00.000000000Z,2001-02-01T00:00:00.000000000Z,20,2453737,2440587.5,0

select current_timestamp(0) is not null, localtimestamp(3) is not null
----
true,true
