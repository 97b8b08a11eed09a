-- Checked with PostgreSQL 15: arrays of array_agg, aggregates in an order of several keys, percentile_disc of all types.

select array_agg(x) from (values (1), (null), (3)) t(x)
----
"{1,NULL,3}"

select array_agg(x) from (values ('a b'), (null), ('c"d'), (''), ('NULL'), ('e,f'), ('{g}'), ('a\b'), ('é'), ('null')) t(x)
----
"{""a b"",NULL,""c\""d"","""",""NULL"",""e,f"",""{g}"",""a\\b"",é,""null""}"

select array_agg(x) from (values (true), (false), (null)) t(x)
----
"{t,f,NULL}"

select array_agg(x) from (values (timestamp '2024-01-01')) t(x)
----
"{""2024-01-01 00:00:00""}"

select array_agg(x) from (values (date '2024-01-01')) t(x)
----
{2024-01-01}

select array_to_string(array_agg(x), ','), array_to_string(array_agg(x), ',', '*'), array_to_string(array_agg(x), '') from (values ('a b'), (null), ('c"d'), (''), ('NULL'), ('e,f'), ('{g}'), ('a\b')) t(x)
----
"a b,c""d,,NULL,e,f,{g},a\b","a b,*,c""d,,NULL,e,f,{g},a\b","a bc""dNULLe,f{g}a\b"

select cardinality(array_agg(x)), array_length(array_agg(x), 1) from (values ('a,b'), ('"'), (null), ('\')) t(x)
----
4,4

select array_agg(x) = '{1,2}', array_agg(x) <> array_agg(x), array_agg(x) is null, coalesce(array_agg(x), '{}')::text from (values (1), (2)) t(x)
----
true,false,false,"{1,2}"

select coalesce(array_agg(x), '{}') from (values (1), (2)) t(x) where false
----
{}

select upper(array_agg(x)) from (values ('a')) t(x)
----
error: line 1, column 14: arrays have no order here, and are no texts: x::text of the array is one, array_to_string(x, ',') joins its elements

select length(array_agg(x)) from (values ('a')) t(x)
----
error: line 1, column 15: arrays have no order here, and are no texts: x::text of the array is one, array_to_string(x, ',') joins its elements

select array_agg(x) like '{%' from (values ('a')) t(x)
----
error: line 1, column 8: arrays have no order here, and are no texts: x::text of the array is one, array_to_string(x, ',') joins its elements

select g, array_agg(x) a from (values (1, 1), (2, 2)) t(g, x) group by g order by g
----
1,{1}
2,{2}

select a from (select array_agg(x) a from (values ('a'), ('b')) t(x)) s
----
"{a,b}"

select a || 'x' from (select array_agg(x) a from (values ('a'), ('b')) t(x)) s
----
error: line 1, column 8: arrays have no order here, and are no texts: x::text of the array is one, array_to_string(x, ',') joins its elements

select string_agg(x, ',' order by y desc, x) from (values ('a', 1), ('b', 1), ('c', 2)) t(x, y)
----
"c,a,b"

select string_agg(x, ',' order by x, x desc) from (values ('a'), ('b')) t(x)
----
"a,b"

select json_object_agg(k, v order by k desc) from (values ('a', 1), ('b', null), ('c"', 3)) t(k, v)
----
"{ ""c\"""" : 3, ""b"" : null, ""a"" : 1 }"

select json_object_agg(k, v) from (values (1, 'x'), (2, 'y')) t(k, v)
----
"{ ""1"" : ""x"", ""2"" : ""y"" }"

select json_object_agg(k, v) from (values (null, 'x')) t(k, v)
----
error: line 1, column 8: the key of an object is NULL

select json_object_agg(k, v) from (values ('a', 1)) t(k, v) where false
----
(null)

select json_object_agg(k, v) filter (where v > 1) from (values ('a', 1), ('b', 2)) t(k, v)
----
"{ ""b"" : 2 }"

select json_object_agg(k, json_build_object('x', v)) from (values ('a', 1)) t(k, v)
----
"{ ""a"" : {""x"" : 1} }"

select json_object_agg(k, v) ->> 'a' from (values ('a', 1)) t(k, v)
----
1

select json_build_object('all', json_object_agg(k, v)) from (values ('a', 1)) t(k, v)
----
"{""all"" : { ""a"" : 1 }}"

select percentile_disc(0.5) within group (order by x) from (values (9007199254740993::bigint)) t(x)
----
9007199254740993

select percentile_disc(0.3) within group (order by x desc) from generate_series(1, 10) x
----
8

select percentile_disc(0.5) within group (order by d) from (values (date '2024-01-01'), ('2024-01-02'), (null)) t(d)
----
2024-01-01

select percentile_disc(0.5) within group (order by x) from (values (null::int)) t(x)
----
(null)

select count(a), count(distinct a) from (select array_agg(x) a from (values (1), (2)) t(x) group by x) s
----
2,2

select g, array_agg(v order by k desc, v) from (values (1, 'b', 1), (1, 'a', 1), (1, 'c', 2), (2, null, 3)) t(g, v, k) group by g order by g
----
1,"{c,a,b}"
2,{NULL}

select string_agg(x, '' order by t, d desc nulls last, x) from (values ('a', 'x'||chr(1), 1.5::float8), ('b', 'x', 'NaN'), ('c', 'x', '-0'), ('d', 'x', 0), ('e', 'xa', -1e300), ('f', null, null), ('g', 'x', '-infinity'), ('h', '', 2)) v(x, t, d)
----
hbcdgaef

select string_agg(x, '' order by b nulls first, ts desc, x) from (values ('a', true, timestamp '1960-01-01'), ('b', false, '2024-01-01'), ('c', null, null), ('d', false, '2025-01-01')) v(x, b, ts)
----
cdba

select json_agg(x order by k desc, x) from (values ('a', 1), ('b', 2), ('c', 1)) t(x, k)
----
"[""b"", ""a"", ""c""]"
