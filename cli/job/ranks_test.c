/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/job/ranks_test.c - the job that ranks of several hosts are of, and a rank as a line.
 */
#include "cli/job/ranks.c"

#include "tests/test.h"

void terminal_say(const char *format, ...)
{
    (void)format;
}

const char *terminal_field(char *room, size_t size, const char *text)
{
    (void)snprintf(room, size, "%s", text);
    return room;
}

static void add_claim(struct ranks *r, const char *host, const char *job, const char *master,
                      int64_t world_size)
{
    struct rank *one = ranks_add(r);

    CHECK(one != NULL);
    (void)snprintf(one->host, sizeof(one->host), "%s", host);
    (void)snprintf(one->job, sizeof(one->job), "%s", job);
    (void)snprintf(one->master, sizeof(one->master), "%s", master);
    one->world_size = world_size;
}

TEST(a_name_that_is_exact_leaves_others_out)
{
    struct ranks r = {.n = 0}, hosts = {.n = 0};
    struct rank job;

    add_claim(&r, "n1", "4711.1", "n1:1", 8);
    add_claim(&r, "n2", "4711.0", "n2:1", 4);
    add_claim(&r, "n3", "4711.0", "n2:1", 2);
    CHECK_INT(ranks_find_job(&r, "4711.0", false, &job), 0);
    CHECK_STR(job.job, "4711.0");
    CHECK_INT(job.world_size, 2); /* the least */
    CHECK(rank_is_left_out(&r.list[0], &job) && !rank_is_left_out(&r.list[2], &job));
    CHECK_INT(ranks_add_left_out(&hosts, &r.list[0], &job), 0);
    CHECK_INT(ranks_add_left_out(&hosts, &r.list[0], &job), 0);
    CHECK_INT(hosts.n, 1);
    CHECK_INT(ranks_find_job(&r, "4711", false, &job), -EINVAL);
    CHECK(strstr(err_text(), "several jobs, '4711.1' on n1 and '4711.0' on n2") != NULL);
    ranks_done(&hosts);
    ranks_done(&r);
}

TEST(two_that_claim_one_rank_meet_at_one_place)
{
    struct ranks r = {.n = 0};
    struct rank job;

    CHECK_INT(ranks_find_job(&r, NULL, true, &job), 0);
    CHECK_STR(job.job, "");
    add_claim(&r, "n1", "x", "n1:1", MEMBER_UNKNOWN);
    add_claim(&r, "n2", "x", "n2:1", MEMBER_UNKNOWN);
    CHECK_INT(ranks_find_job(&r, "x", false, &job), 0);
    CHECK_INT(ranks_find_job(&r, "x", true, &job), -EINVAL);
    CHECK(strstr(err_text(), "ranks on n1 meet at n1:1, those on n2 at n2:1") != NULL);
    (void)snprintf(r.list[1].master, sizeof(r.list[1].master), "n1:1");
    CHECK_INT(ranks_find_job(&r, "x", true, &job), 0);
    ranks_done(&r);
}

TEST(a_line_is_read_as_it_was_written)
{
    struct rank r = RANK_UNKNOWN, read;
    struct buf b;

    buf_init(&b, 4096);
    r.rank = 3;
    (void)snprintf(r.job, sizeof(r.job), "a \"job\"");
    r.state = RANK_SILENT;
    CHECK_INT(buf_addc(&b, '{'), 0);
    rank_write(&r, &b);
    CHECK_INT(buf_addf(&b, "\"state\": \"%s\"}", rank_state_name(r.state)), 0);
    CHECK_INT(rank_read_line(b.data, b.size, &read), 0);
    CHECK(read.rank == 3 && read.pid == MEMBER_UNKNOWN && read.state == RANK_SILENT);
    CHECK_STR(read.job, r.job);
    CHECK_INT(rank_read_line("{\"rank\": 1e99, \"state\": \"alive\"}", 32, &read), -EBADMSG);
    CHECK(read.rank == MEMBER_UNKNOWN);
    CHECK_INT(rank_read_line("[]", 2, &read), -EBADMSG);
    buf_done(&b);
}

int main(void)
{
    RUN(a_name_that_is_exact_leaves_others_out);
    RUN(two_that_claim_one_rank_meet_at_one_place);
    RUN(a_line_is_read_as_it_was_written);
    return test_end();
}
