-- Ours alone in form: JSON in texts, histogram, times.

select json_get('{"a": {"b": [1, 2.50, "x"]}, "n": null}', 'a', 'b', '1'), json_get('{"a": 1}', 'b'), json_get('not json', 'a'), '{"a": {"b": "x"}}' -> 'a', '{"a": {"b": "x"}}' -> 'a' ->> 'b', '[1, 2, 3]' ->> 1, '[1, 2, 3]' ->> -1, json_get('{"n": null}', 'n')
----
2.50,,,"{""b"":""x""}",x,2,3,

select key, value, type from json_each('{"a": 1, "b": [true, null], "c": "x", "d": null}')
----
a,1,number
b,"[true,null]",array
c,x,string
d,,null

select value::int * 2 from json_each('[1, 2, 3]') order by 1 desc
----
6
4
2

select histogram(n, 4) from generate_series(0, 99) n
----
"{""from"":0,""to"":99,""counts"":[25,25,25,25]}"

select n, time_bucket('15 min', timestamp '2024-05-01 10:00' + n * interval '7 min') from generate_series(0, 3) n
----
0,2024-05-01T10:00:00.000000000Z
1,2024-05-01T10:00:00.000000000Z
2,2024-05-01T10:00:00.000000000Z
3,2024-05-01T10:15:00.000000000Z

select to_timestamp(1714557600), timestamp '2024-05-01 12:00' at time zone 'UTC', date_bin('1 day', timestamp '2024-05-01 12:00'), extract(epoch from interval '1 hour'), typeof(null), typeof(now())
----
2024-05-01T10:00:00.000000000Z,2024-05-01T12:00:00.000000000Z,2024-05-01T00:00:00.000000000Z,3600,null,timestamp

select * from generate_series(1, 3) a, generate_series(1, 2) b where a + b = 4
----
2,2
3,1

select to_hex(255), typeof(1.5), cbrt(8) > 1.9
----
ff,double,true

set probing.x = 5
----
error: line 1, column 5: a query cannot change settings; use `config probing.x=5`
