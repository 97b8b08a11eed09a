-- Checked with PostgreSQL 15.18

select distinct on (a) a, b from (values (1,'x'),(1,'a'),(0,'z')) t(a,b) order by a, b desc
----
0,z
1,x

select distinct on (a % 2, b) a, b from (values (1,'x'),(3,'x'),(0,'z')) t(a,b) order by a % 2, b, a desc
----
0,z
3,x

select distinct on (a) a, count(*) from (values (1,2),(1,3),(2,1)) t(a,b) group by a, b order by a, 2 desc
----
1,1
2,1

select distinct on (b) a from (values (1,2),(1,3),(2,2)) t(a,b) order by b, a desc limit 1
----
2

select distinct on (a, b) * from (values (1,2),(1,2),(2,2)) t(a,b) order by a, b
----
1,2
2,2

select distinct on (1) a, b from (values (1,2),(1,1),(2,2)) t(a,b) order by 1, 2
----
1,1
2,2

select count(*) from (select distinct on (a) a, b from (values (1,2),(1,1),(2,2)) t(a,b)) x
----
2
