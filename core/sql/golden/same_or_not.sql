-- Checked with PostgreSQL 15.18: what is one expression and what two, unions of literals, sets in parentheses.

with t(k) as (values (1),(2)), u(k,y,z) as (values (1,10,100),(2,20,200)) select sum((select y from u where u.k=t.k)), sum((select z from u where u.k = t.k)) from t
----
30,300

with t(k) as (values (1),(2)), u(k,y,z) as (values (1,10,100),(2,20,200)) select (select y from u where u.k=t.k), count(*) from t group by (select z from u where u.k = t.k)
----
error: line 1, column 109: column 'k' must be in group by or inside an aggregate

with t(k) as (values (1),(2)), u(k,y,z) as (values (1,10,100),(2,20,200)) select (select y from u where u.k=t.k) + 1, count(*) from t group by (select y from u where u.k=t.k) order by 1
----
11,1
21,1

with t(k) as (values (1),(2)), u(k,y,z) as (values (1,10,100),(2,20,200)) select count(*) filter (where exists (select 1 from u where u.k=t.k)), count(*) filter (where not exists (select 1 from u where u.k = t.k)) from t
----
2,0

with t(k) as (values (1),(2)), u(k,y,z) as (values (1,10,100),(2,20,200)) select count(*) filter (where k in (select y from u where u.k=t.k)), count(*) filter (where k not in (select y from u where u.k = t.k)) from t
----
0,2

select count(*) filter (where k in (1,5)), count(*) filter (where k not in (1,5)) from (values (1),(2)) t(k)
----
1,1

select null not in (x, y) from (values (1::bigint, 2.5::float8)) t(x,y)
----
(null)

select null in (x, y), x in (null, y), null in (1, 2.5) from (values (1::bigint, 2.5::float8)) t(x,y)
----
,,

select '1' union select '2' union select 3
----
error: line 1, column 29: union needs a bigint, this is a text

select 1 union select null union select '3' order by 1
----
1
3
(null)

select * from (select '1' as a union all select '2') t where a = '1'
----
1

select x + 1 from (select '5' as x) t
----
error: line 1, column 10: no operator + for text and bigint; cast one of them: x::text

select x + 1 from (select '5' as x union all select 4) t order by 1
----
5
6

select 1 in ((select 1)), 1 in ((select 1), 2), ((select 1)), (((select 1) union select 1) ) + 1, ((select 1) + 1)
----
true,true,1,2,2

select * from ((select 1)) t
----
1

select * from ((select 1 as a) t join (select 1 as a) u using (a))
----
1

select * from (((select 1 as a) union (select 2)) except select 2) t
----
1

select exists ((select 1) except select 1), exists ((select 1)), array_agg(x) from (values (1)) t(x)
----
false,true,{1}

select 2 > all ((select 1) union (select 0)), 2 = any ((select 1) limit 0), ((select 3) order by 1 limit 1)
----
true,false,3

select (select x from ((select 4 as x) union all (select 5)) q order by x desc limit 1)
----
5

select x in (1, 2) and y, count(*) from (values (1, true), (3, true)) t(x, y) group by x in (1, 2) and y order by 1
----
false,1
true,1

select x in ('a', null), x not in ('a'), count(*) from (values ('a'), ('b'), (null)) t(x) group by x in ('a', null), x not in ('a') order by 1, 2
----
true,false,1
,true,1
,,1

select (x, y) in ((1, 2), (3, 4)), count(*) from (values (1, 2), (3, 3)) t(x, y) group by (x, y) in ((1, 2), (3, 4)) order by 1
----
false,1
true,1

select x in (1, 2) from (values (1), (3)) t(x) group by x in (1, 3)
----
error: line 1, column 8: column 'x' must be in group by or inside an aggregate

select a in (select 1 union select 2), count(*) from (values (1),(4)) t(a) group by a in (select 1 union select 2) order by 1
----
false,1
true,1

select date '2024-01-01' union all select '2024-01-02' order by 1
----
2024-01-01
2024-01-02

select 'a' union all select 1
----
error: line 1, column 12: 'a' is not a bigint

select 2.5 union select '2.5'
----
2.5

select true union select 'false' order by 1
----
false
true

select 1 except select '1'
----

select 1 intersect select '1'
----
1

select x = any (string_to_array(t, ',')), count(*) from (values ('a', 'a,b'), ('c', 'a,b'), ('a', null)) v(x, t) group by x = any (string_to_array(t, ',')) order by 1
----
false,1
true,1
,1

select count(*) filter (where x = any (string_to_array(t, ','))), count(*) filter (where x = any (string_to_array(t, 'b'))), count(*) filter (where x <> all (string_to_array(t, ','))) from (values ('a', 'a,b'), ('c', 'a,b'), ('a', null)) v(x, t)
----
1,0,1

select count(*) filter (where x + 1 > all (select y from (values (1), (2)) u(y) where y < x)), count(*) filter (where x + 2 < all (select y from (values (1), (2)) u(y) where y < x)), count(*) filter (where x < any (select y from (values (1), (2)) u(y) where y >= x)) from (values (1), (2), (3)) v(x)
----
3,1,1

select x > all (select y from (values (1), (2)) u(y) where y < x), count(*) from (values (1), (2), (3)) v(x) group by x > all (select y from (values (1), (2)) u(y) where y < x) order by 1
----
true,3

select x + 1 > all (select y from (values (1), (2)) u(y) where y < x) and x > 1, count(*) from (values (1), (2), (3)) v(x) group by x + 1 > all (select y from (values (1), (2)) u(y) where y < x), x > 1 order by 1
----
false,1
true,2
