/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/distribute/distribute_test.c - statements over ranks of one process: the same answers as
 * one table with all rows.
 *
 * With arguments, `ask SQL`: that is asked and shown.  A test's own thread.
 */
#include "core/sql/distribute/ranks_test.h"

static struct ranks ranks;

static void try(const char *text)
{
    struct buf all, one;
    buf_init(&all, 1 << 24);
    buf_init(&one, 1 << 24);
    int rc = ranks_ask_one(&ranks, text, &one);
    if (!CHECK_INT(rc, 0))
        printf("# one: %s\n# %s\n", text, err_text());
    rc = ranks_ask(&ranks, text, &all);
    if (!CHECK_INT(rc, 0))
        printf("# all: %s\n# %s\n", text, err_text());
    if (strcmp(buf_text(&all), buf_text(&one)) != 0) {
        printf("# %s\n", text);
        CHECK_STR(buf_text(&all), buf_text(&one));
    }
    buf_done(&all);
    buf_done(&one);
}

TEST(the_same_as_one_table)
{
    static const char *const texts[] = {
        "select count(*) from global.s.t",
        "select _rank, count(*) from global.s.t group by 1 order by 1",
        "select k, sum(x), avg(x), min(x), max(x), count(x) from global.s.t group by k order by k",
        "select k, sum(i), avg(i), min(i), max(i) from global.s.t where x > 0 group by k order by "
        "k",
        "select g, min(ts), max(ts), avg(ts), sum(d), avg(d) from global.s.t group by g order by g",
        "select _host, k, count(*) c from global.s.t where _rank < 5 and k is not null group by 1, "
        "2 "
        "having count(*) > 3 order by c desc, 1, 2 limit 7",
        "select count(distinct g), count(distinct k) from global.s.t",
        "select k % 2 as p, count(distinct i % 7), sum(x) from global.s.t group by p order by p",
        "select bool_and(b), bool_or(b), bool_and(i > -99999) from global.s.t",
        "select min(g), max(g), min(bytes), max(bytes), min(day), max(b) from global.s.t",
        "select k, first(i), last(i), any_value(g) from global.s.t group by k order by k",
        "select arg_min(g, x), arg_max(i, ts), max_by(bytes, i) from global.s.t",
        "select median(x), quantile_cont(x, 0.9), mode(g) from global.s.t",
        "select histogram(x, 5) from global.s.t where k = 1",
        "select string_agg(g, '|' order by i) from global.s.t where k = 2",
        "select * from global.s.t order by i, _rank, x limit 20",
        "select * exclude (bytes, g), k + 1 from global.s.t where x > 1000 order by all",
        "select distinct k, b from global.s.t order by 1, 2",
        "select _rank, i from global.s.t order by i desc limit 5 offset 3",
        "select i from global.s.t limit 5",
        "select a.k, count(*), sum(b.w) from global.s.t a join global.s.u b on a.k = b.k and "
        "a._rank "
        "= b._rank group by 1 order by 1",
        "select a._rank, b.label, a.i from global.s.t a left join global.s.u b using (k) where a.x "
        "> "
        "1400 order by all",
        "with m as (select _rank r, avg(x) v from global.s.t group by 1) select a.r, a.v - b.v "
        "from m "
        "a, m b where a.r < b.r order by 1, 2",
        "select _rank, avg(x) from global.s.t group by 1 having avg(x) > (select avg(x) from "
        "global.s.t) order by 1",
        "select k, i, rank() over (partition by k order by i desc) r from global.s.t qualify r <= "
        "2 "
        "order by k, i",
        "select k, sum(sum(i)) over (order by k) from global.s.t group by k order by k",
        "select k from global.s.t where _rank = 0 union select k from global.s.u where _rank = 1 "
        "order by 1",
        "select count(*) filter (where _rank = 1), count(*) filter (where k = 1 and _rank > 2) "
        "from "
        "global.s.t",
        "select max(_rank), count(distinct _host), min(_addr) from global.s.t where k = 3",
        "select k, min(_rank) from global.s.t group by k order by k",
        "select count(*), sum(x), avg(x), max(g) from global.s.t where k = 99",
        "select k, count(*) from global.s.t where k = 99 group by k",
        "select _host || '/' || g as h, count(*) from global.s.t group by h order by h",
        "select date_trunc('minute', ts) as m, count(*) from global.s.t group by m order by m",
        "select case when x > 0 then 'up' else 'down' end as way, sum(i) from global.s.t group by "
        "way order by way",
        "select _role is null as r, count(*) from global.s.t group by 1 order by 1",
        "select t.k, global_t.n from (select k, count(*) n from global.s.t group by k) as global_t "
        "join global.s.u as t using (k) order by 1, 2, t.w",
        "select i from global.s.t where i in (select max(i) from global.s.t group by _rank) order "
        "by "
        "i",
        "select count(*) from global.s.t a where exists (select 1 from global.s.u b where b.k = "
        "a.k "
        "and b._rank = a._rank)",
        "select t.x from global.s.t where t.i > 0 and t._rank = 0 order by s.t.x limit 3",
        "select bytes, g from global.s.t where bytes is not null order by bytes, g, i limit 9",
        "select timestamp from global.s.t order by timestamp limit 3",
        "from global.s.u order by all limit 2",
        "select k, count(*) from global.s.t group by all order by all",
        "select sum(x) + count(*) * 2 as v, -min(i) from global.s.t having count(*) > 5",
        "select k + 1 as j, count(*) from global.s.t group by j order by j desc nulls last",
        "select i % 3 as m, avg(m) from (select i, k as m from global.s.t) t group by i % 3 order "
        "by "
        "1",
        "select k, count(*) from global.s.t where g like '%''%' or g = 'é🔥' group by k order by k",
        "select avg(x) filter (where b), sum(i) filter (where not b and k > 1) from global.s.t",
        "select count(distinct g) filter (where b), sum(distinct k) from global.s.t",
        "select _rank, k, sum(x) from global.s.t where _rank in (0, 2) and _host = 'node1' group "
        "by 1, "
        "2 order by sum(x) limit 4",
        "select cast(x as numeric(10, 2)), d, day from global.s.t where x is not null order by x "
        "limit 3",
        "select k, any_value(g) filter (where b), first(i) filter (where i > 0) from global.s.t "
        "group "
        "by k order by k",
        "select count(*) from global.s.t where ts < now()",
        "select _rank, i from global.s.t order by _rank, i limit 4",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        try(texts[i]);
}

static int one_of_all(const char *text)
{
    struct buf b;
    buf_init(&b, 1 << 24);
    int rc = ranks_ask(&ranks, text, &b);
    if (rc < 0)
        printf("error: %s\n", err_text());
    else
        printf("%s%s", buf_text(&b), ranks.notes);
    buf_done(&b);
    return rc < 0;
}

int main(int argc, char **argv)
{
    if (ranks_init(&ranks, 6, 60, 1) < 0) {
        printf("# %s\n", err_text());
        return 1;
    }
    if (argc == 3 && strcmp(argv[1], "ask") == 0)
        return one_of_all(argv[2]);
    RUN(the_same_as_one_table);
    ranks_done(&ranks);
    return test_end();
}
