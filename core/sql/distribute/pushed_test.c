/* SPDX-License-Identifier: Apache-2.0
 *
 * core/sql/distribute/pushed_test.c - which limits and joins ranks run themselves, and which they
 * may not.
 *
 * That the answers are right is generated_test.c's to say.  A test's own thread.
 */
#include "core/sql/distribute/ranks_test.h"

static struct ranks ranks;

/* Do all parts of it have these words? */
static bool asks(const char *text, const char *words)
{
    struct sql_global *g;
    if (!CHECK_INT(ranks_prepare(&ranks, text, &g), 0))
        return false;
    bool found = sql_global_parts(g) > 0;
    for (uint32_t p = 0; p < sql_global_parts(g); p++)
        found = found && strstr(sql_global_statement(g, p, 0), words) != NULL;
    sql_global_free(g);
    return found;
}

/* Only where each group that is in the answer is sent by all who have a part of it. */
TEST(groups_behind_a_limit_are_not_sent_where_that_is_exact)
{
    static const char *const pushed[] = {
        "select k, count(*) from global.s.t group by k order by k limit 2",
        "select k, g, sum(i) from global.s.t group by 1, 2 order by g desc limit 3 offset 2",
        "select _rank, k, sum(i) s from global.s.t group by 1, 2 order by s desc limit 3",
        "select _host, _local_rank, g, max(i) from global.s.t group by 1, 2, 3 order by 4 limit 1",
        "select _rank, k, count(*) from global.s.t group by all order by _rank desc, k limit 3",
        "select k, count(*) from global.s.t group by k limit 2"};
    static const char *const whole[] = {
        "select k, sum(i) s from global.s.t group by 1 order by s limit 2",
        "select _host, k, sum(i) s from global.s.t group by 1, 2 order by s limit 2",
        ("select _role, _rank, k, count(distinct g) from global.s.t group by 1, 2, 3 order by 3 "
         "limit 2"),
        "select k, count(*) from global.s.t group by k having count(*) > 3 order by k limit 2",
        "select k + _rank, count(*) from global.s.t group by 1 order by 1 limit 2",
        "select k, sum(count(*)) over () from global.s.t group by k order by k limit 2",
        "select _rank, k, count(*) from global.s.t group by 1, 2 order by max(i + _rank) limit 2"};
    for (size_t i = 0; i < sizeof(pushed) / sizeof(pushed[0]); i++)
        CHECK(asks(pushed[i], " limit "));
    for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++)
        CHECK(!asks(whole[i], " limit "));
}

/* Rows that can only meet within one rank. */
TEST(joins_within_ranks_are_done_by_ranks)
{
    static const char *const own[] = {
        ("select a._rank, sum(b.w) from global.s.t a join global.s.u b on a._rank = b._rank and "
         "a.k "
         "= b.k group by 1"),
        "select a.i, w from global.s.t a left join global.s.u b using (_addr, k) where a.x > 0",
        "select count(*) from global.s.t a, global.s.u b where b._rank = a._rank and b.k = a.k",
        ("select count(*) from global.s.t a join global.s.u b on a._host = b._host and "
         "a._local_rank = b._local_rank and a.k = b.k"),
        ("select a.i, b.w from global.s.t a asof join global.s.u b on a._rank = b._rank and a.i >= "
         "b.w")};
    static const char *const all[] = {
        "select count(*) from global.s.t a join global.s.u b on a._host = b._host and a.k = b.k",
        "select count(*) from global.s.t a join global.s.u b on a._rank = b._rank", /* all pairs */
        "select count(*) from global.s.t a join global.s.u b on a._role = b._role and a.k = b.k",
        ("select count(*) from global.s.t a join global.s.u b on a._rank = b._local_rank and a.k = "
         "b.k"),
        ("select count(b._rank) from global.s.t a left join global.s.u b on a._rank = b._rank and "
         "a.k = b.k"),
        ("select count(*) from global.s.t a full join global.s.u b on a._rank = b._rank and a.k = "
         "b.k"),
        "select * from global.s.t a join global.s.u b on a._rank = b._rank and a.k = b.k"};
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        CHECK(asks(own[i], " join "));
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        CHECK(!asks(all[i], " join "));
    CHECK(!asks(own[0], "_rank"));
}

int main(void)
{
    if (ranks_init(&ranks, 6, 10, 1) < 0) {
        printf("# %s\n", err_text());
        return 1;
    }
    RUN(groups_behind_a_limit_are_not_sent_where_that_is_exact);
    RUN(joins_within_ranks_are_done_by_ranks);
    ranks_done(&ranks);
    return test_end();
}
