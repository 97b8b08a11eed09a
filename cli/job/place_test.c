/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/job/place_test.c - the place in a job that environments say.
 */
#include "cli/job/place.c"

#include "tests/test.h"

/* text: "A=1 B=2"; a blank ends a variable. */
static struct rank read_place(const char *text)
{
    struct rank r = RANK_UNKNOWN;
    struct buf b;

    buf_init(&b, 4096);
    CHECK(buf_add(&b, text, strlen(text) + 1) == 0);
    for (size_t i = 0; i < b.size; i++)
        b.data[i] = b.data[i] == ' ' ? '\0' : b.data[i];
    rank_read_environment(&b, &r);
    CHECK(r.job[0] == '\0' || job_is_named(&b, r.job));
    buf_done(&b);
    return r;
}

TEST(launchers)
{
    struct rank r = read_place("RANK=3 LOCAL_RANK=1 WORLD_SIZE=4 TORCHELASTIC_RUN_ID=sweep "
                               "SLURM_PROCID=0 SLURM_JOB_ID=4711");
    CHECK(strcmp(r.launcher, "torchrun") == 0 && strcmp(r.job, "sweep") == 0);
    CHECK(r.rank == 3 && r.local_rank == 1 && r.world_size == 4 && r.node_rank == MEMBER_UNKNOWN);
    r = read_place("SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_JOB_ID=4711 SLURM_STEP_ID=0");
    CHECK(strcmp(r.launcher, "slurm") == 0 && strcmp(r.job, "4711.0") == 0 && r.world_size == 2);
    r = read_place("RANK=x WORLD_SIZE=-1 TORCHELASTIC_RUN_ID=none");
    CHECK(r.rank == MEMBER_UNKNOWN && r.world_size == MEMBER_UNKNOWN && r.job[0] == '\0');
}

/* A long address is taken whole, and one that is too long is none: half of it would name another
 * place. */
TEST(meeting_place)
{
    char text[1000], address[JOB_NAME_BYTES + 1];

    struct rank r = read_place("RANK=0 MASTER_ADDR=n1 MASTER_PORT=29500");
    CHECK(strcmp(r.master, "n1:29500") == 0 && strcmp(r.job, "n1:29500") == 0);
    CHECK(read_place("RANK=0 MASTER_ADDR=n1").job[0] == '\0');
    memset(address, 'n', sizeof(address));
    address[250] = '\0';
    (void)snprintf(text, sizeof(text), "RANK=0 MASTER_ADDR=%s MASTER_PORT=29500", address);
    r = read_place(text);
    CHECK(strlen(r.master) == 256 && strcmp(r.job, r.master) == 0);
    address[250] = 'n';
    address[JOB_NAME_BYTES] = '\0';
    (void)snprintf(text, sizeof(text), "RANK=0 MASTER_ADDR=%s MASTER_PORT=29500", address);
    r = read_place(text);
    CHECK(r.rank == 0 && r.master[0] == '\0' && r.job[0] == '\0');
}

int main(void)
{
    RUN(launchers);
    RUN(meeting_place);
    return test_end();
}
