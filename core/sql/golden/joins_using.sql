-- Checked with PostgreSQL 15.18: the order of columns in *.

-- In * the columns of the last using () come first, those of a side as they stand in its own *.
select * from (values (1,2,3)) t1(a,b,c) join (values (2,4)) t2(b,d) using (b) join (values (3,5)) t3(c,e) using (c)
----
3,2,1,4,5

select * from (values (1,2,3)) t1(a,b,c) join (values (2,3,7)) t2(b,c,d) using (c,b)
----
3,2,1,7

select * from (values (1,2)) t1(a,b) join ((values (2,3)) t2(b,x) join (values (4,3)) t3(y,x) using (x)) using (b)
----
2,1,3,4

select * from (values (1,2,3)) t1(a,b,c) full join (values (2,4)) t2(b,d) using (b) full join (values (3,5)) t3(c,e) using (c)
----
3,2,1,4,5

select * from (values (1,2,3)) t1(a,b,c) right join (values (2,4)) t2(b,d) using (b) left join (values (3,5)) t3(c,e) using (c)
----
3,2,1,4,5

select * from (values (1,2,3)) t1(a,b,c) natural join (values (3,2,7)) t2(c,b,d)
----
2,3,1,7

select t1.*, t2.* from (values (1,2,3)) t1(a,b,c) join (values (2,4)) t2(b,d) using (b)
----
1,2,3,2,4
