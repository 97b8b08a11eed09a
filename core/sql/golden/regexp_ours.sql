-- Ours alone: functions as in DuckDB, limits that keep the work linear in the text.

select regexp_match('layer.12.weight', '(\d+)'), regexp_match('layer.12.weight', '\w+$'), regexp_match('none', '\d'), regexp_match('k=v', '(\w)=(\w)', 2), regexp_count('banana', 'an'), regexp_count('aaa', '')
----
12,weight,,v,2,4

select 'a' ~ '(a{100}){100}'
----
error: line 1, column 12: regular expression: the compiled expression is too long at letter 14 of '(a{100}){100}'

select 'a' ~ '(a)\1'
----
error: line 1, column 12: regular expression: back-references are not supported at letter 5 of '(a)\1'
