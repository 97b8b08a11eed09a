-- What to_char() and lateral have not, said rather than guessed; times beyond microseconds.

select to_char(timestamp '2024-05-03', 'DD J')
----
error: line 1, column 8: to_char() does not know the pattern 'J'; put literal text "in double quotes"

select to_char(timestamp '2024-05-03', '"Month" \\D')
----
Month \6

select to_char(timestamp '2024-05-03', 'TZ OF')
----
UTC +00

select to_char(timestamp '2024-05-03 00:00:00.123456789', 'FF9'), to_char(null, 'YYYY')
----
123456789,

select t.x, s.y from (values (1), (2)) t(x) left join lateral (select t.x as y where t.x > 1) s on t.x = 1 order by 1
----
error: line 1, column 55: what is lateral is joined by , cross join, join ... on or left join ... on true; its own where says the rest

-- Lists have NULLs, which ignore nulls leaves out.
select array_agg(x ignore nulls), json_agg(x ignore nulls), string_agg(x::text, ',' ignore nulls), array_agg(x) from (values (1),(null),(3)) t(x)
----
"{1,3}","[1, 3]","1,3","{1,NULL,3}"

select array_agg(x ignore nulls) filter (where x is null or x > 1), array_agg(x order by x desc ignore nulls) from (values (1),(null),(3),(4)) t(x)
----
"{3,4}","{4,3,1}"
