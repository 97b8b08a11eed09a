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

select json_build_array(x) from (values ('{"a":1}'::json), ('[1]')) t(x)
----
"[{""a"":1}]"
[[1]]

select json_build_array(x) from (values ('{"a":1}'::json), (null)) t(x)
----
"[{""a"":1}]"
[null]

select to_json(x) from (select '{"a":1}'::json as x union all select '[2]'::json union all select null) t
----
"{""a"":1}"
[2]
(null)

select to_json(x) from (select '{"a":1}'::json as x union all select 'x'::text) t
----
error: line 1, column 53: the text is not JSON

select to_json(x) from (select 'x' as x union all select '{"a":1}'::json) t
----
error: line 1, column 41: the text is not JSON

select to_json(x) from (select '{"a":1}'::json as x union all select '{"b":1}') t
----
"{""a"":1}"
"{""b"":1}"

with recursive r(n, j) as (select 1, '{"a":1}'::json union all select n + 1, json_build_object('n', j) from r where n < 3) select json_build_array(j) from r
----
"[{""a"":1}]"
"[{""n"" : {""a"":1}}]"
"[{""n"" : {""n"" : {""a"":1}}}]"

select json_build_array(first_value(j) over (order by n), lag(j) over (order by n), lag(j, 1, '[0]') over (order by n)) from (select 1 as n, '{"a":1}'::json as j union all select 2, '[2]'::json) t
----
"[{""a"":1}, null, [0]]"
"[{""a"":1}, {""a"":1}, {""a"":1}]"

select json_build_array((select '{"a":1}'::json), (select json_agg(x) from (values (1), (2)) u(x))) from (values (1)) t(a)
----
"[{""a"":1}, [1, 2]]"

select json_build_array((select to_json(a) from (values (1)) u(b) where b <= t.a)) from (values (1), (2)) t(a)
----
[1]
[2]

select json_build_array(json_agg(a) over (order by a)) from (values (1), (2)) t(a)
----
[[1]]
"[[1, 2]]"

select to_json(x) from json_array_elements('["a",{"b":null},null]') x
----
"""a"""
"{""b"":null}"
null

select * from json_array_elements_text('["a",[1,2],null]') x
----
a
"[1,2]"
(null)

select * from json_each_text('{"a": "x", "b": null, "c": {"d":1}}') e(k, v)
----
a,x
b,
c,"{""d"":1}"

select k from json_object_keys('{"a": 1, "b": 2}') k
----
a
b

select a, x from (values (1, '[10, 20]'::json), (2, '[]'), (3, null)) t(a, j), json_array_elements_text(j) x
----
1,10
1,20

select * from json_array_elements('{"a": 1}') x
----
error: line 1, column 15: json_array_elements: this JSON is no array

select * from json_each_text('[1]') x
----
error: line 1, column 15: json_each_text: this JSON is an array, and it takes objects

select * from json_object_keys('5') x
----
error: line 1, column 15: json_object_keys: this JSON is no object

select '{"a": {"b": [5,"x"]}}'::json #> '{a,b}', '{"a": {"b": [5,"x"]}}'::json #>> '{a,b,1}', '[1]'::json #>> array['0'], '{"a": 1}'::json #> '{b}'
----
"[5,""x""]",x,1,

select '{"a":[1,2,3]}'::json #>> '{a,-1}', '{"a":[1,2,3]}'::json #>> '{a,x}', '{"a":[1,2,3]}'::json #>> '{a,-4}', json_extract_path_text('[1,2]', '-2'), '[1,2]'::json ->> '-1', '[1,2]'::json -> -1
----
3,,,1,,2
