-- Checked with PostgreSQL 15.18
-- JSON made of values: to_json, json_build_array, json_build_object, json_agg.

select json_build_object('a', 1, 'b', 'x', 'c', null, 'd', true, 'e', 1.5, 'f', 0.1::double precision)
----
"{""a"" : 1, ""b"" : ""x"", ""c"" : null, ""d"" : true, ""e"" : 1.5, ""f"" : 0.1}"

select json_build_array(1, 'a"b', null, timestamp '2024-05-01 10:00:00.5', date '2024-05-01', interval '1 day', 'NaN'::double precision), json_build_array(), json_build_object()
----
"[1, ""a\""b"", null, ""2024-05-01T10:00:00.5"", ""2024-05-01"", ""1 day"", ""NaN""]",[],{}

select json_build_object('a')
----
error: line 1, column 8: json_build_object() takes keys and values in turn: its last key has no value

-- A key is a text of anything, but never NULL.
select json_build_object(1, 2, true, 3)
----
"{""1"" : 2, ""true"" : 3}"

select json_build_object(null, 1)
----
error: line 1, column 8: the key of an object is NULL

select to_json('a"b'::text), to_json(1.5), to_json(true), to_json(timestamp '2024-05-01 10:00'), to_json(json_build_array(1)), to_json(null::text), json_build_object('k', e'a\n\t\x01\\' || '/')
----
"""a\""b""",1.5,true,"""2024-05-01T10:00:00""",[1],,"{""k"" : ""a\n\t\u0001\\/""}"

-- JSON within JSON is not quoted again, through subqueries, case and coalesce either; its text is.
select json_build_array('{"a":1}'::json -> 'a', '{"a":1}'::json ->> 'a', '[1]'::json), json_build_array(x, x::text) from (select json_build_array(1) x) t
----
"[1, ""1"", [1]]","[[1], ""[1]""]"

select json_agg(case when n > 1 then json_build_array(n) end order by n), json_agg(coalesce(case when n > 1 then to_json(n) end, '{"none": 1}') order by n) from (values (1), (2), (null)) t(n)
----
"[null, [2], null]","[{""none"": 1}, 2, {""none"": 1}]"

select coalesce(json_agg(n), 'none') from (values (1)) t(n)
----
error: line 1, column 8: the text is not JSON

select json_agg(n order by n desc), json_agg(distinct n), json_agg(n order by n) filter (where n < 3), json_agg(n) filter (where n > 99) from (values (10), (2), (1), (2), (null)) t(n)
----
"[null, 10, 2, 2, 1]","[1, 2, 10, null]","[1, 2, 2]",

select coalesce(json_agg(n), '[]') from (values (1)) t(n) where n > 1
----
[]

with t as (select s, json_agg(n order by n) l from (values ('a', 1), ('b', 2), ('a', 3)) v(s, n) group by s) select json_agg(json_build_object('s', s, 'l', l) order by s) from t
----
"[{""s"" : ""a"", ""l"" : [1, 3]}, {""s"" : ""b"", ""l"" : [2]}]"

select n, json_agg(n) over (order by n rows 1 preceding) from (values (1), (2), (3)) t(n) order by n
----
1,[1]
2,"[1, 2]"
3,"[2, 3]"

select json_agg(n order by n) ->> 1, json_array_length(json_agg(n)), (select json_agg(u order by u) from generate_series(1, 2) u) from (values (3), (2)) t(n)
----
3,2,"[1, 2]"
