-- Checked with PostgreSQL 15.18.

select 'abc' ~ 'b', 'abc' ~ '^b', 'abc' ~* 'B', 'abc' !~ 'x', 'abc' !~* 'ABC', 'abc' ~ 'a.c$', '' ~ '', 'a' ~ '^$'
----
true,false,true,true,false,true,true,false

select 'foobar' ~ '(foo|bar)+$', 'aaa' ~ '^a{3}$', 'aaaa' ~ '^a{2,3}$', 'ab12' ~ '^[a-z]+\d+$', 'x-y' ~ '[[:punct:]]', 'layer.12.weight' ~ '^layer\.\d+\.(weight|bias)$'
----
true,true,false,true,true,true

select regexp_replace('layer.12.weight', '\d+', 'N'), regexp_replace('a1b22c333', '\d+', '#', 'g'), regexp_replace('John Smith', '(\w+) (\w+)', '\2, \1'), regexp_replace('aaa', 'a*?', 'x', 'g'), regexp_replace('Hello', 'L', 'x', 'gi')
----
layer.N.weight,a#b#c#,"Smith, John",xaxaxax,Hexxo

select regexp_replace('abc', '', '-', 'g'), regexp_replace('abc', 'b|', '<\&>', 'g'), regexp_replace('hé', '.', 'x', 'g')
----
-a-b-c-,<>a<b><>c<>,xx

select regexp_like('Hello', 'hello', 'i'), regexp_like('a
b', '^b', 'n'), 'a
b' ~ '^b', 'naïve' ~ 'na.ve', 'tab	x' ~ '\s'
----
true,true,false,true,true

select 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!' ~ '^(a|a)*$', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!' ~ '^((a+)+)+$'
----
false,false

select 'a' ~ '(((((((((((((((((((((a*)*)*)*)*)*)*)*)*)*)*)*)*)*)*)*)*)*)*)*)*)*', 'ab' ~ '^(?:a|ab)(?:b|)$', 'xyz' ~ '\yxyz\y', 'wxyz' ~ '\yxyz'
----
true,true,true,false

select 'a' ~ '(a'
----
error: line 1, column 12: regular expression: there is a ( that is not closed at letter 3 of '(a'

select 'a' ~ 'a{9,3}'
----
error: line 1, column 12: regular expression: a repetition is {n}, {n,} or {n,m} at letter 6 of 'a{9,3}'
