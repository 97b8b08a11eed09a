/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/place.c - a process's place in a job, by its environment as it was when the process
 * began.
 *
 * One thread.  Whoever started it has written it: numbers are checked, texts are cut.
 */
#include <stdio.h>
#include <string.h>

#include "cli/many/members.h"
#include "sdk/lib/buf.h"
#include "sdk/lib/job_variables.h"
#include "sdk/lib/number.h"
#include "sdk/lib/proc/proc_file.h"

/* Who says it first is believed: what is nearer to the program comes first.  All of them stand in
 * job_variables, too, which are what a core is asked for and leaves. */
static const char *const rank_names[] = {"RANK",     "OMPI_COMM_WORLD_RANK", "PMIX_RANK",
                                         "PMI_RANK", "SLURM_PROCID",         "JOB_COMPLETION_INDEX",
                                         NULL};
static const char *const local_names[] = {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK",
                                          "MPI_LOCALRANKID", "SLURM_LOCALID", NULL};
static const char *const node_names[] = {"GROUP_RANK", "NODE_RANK", "SLURM_NODEID", NULL};
static const char *const job_names[] = {"TORCHELASTIC_RUN_ID",
                                        "SLURM_JOB_ID",
                                        "PBS_JOBID",
                                        "LSB_JOBID",
                                        "JOB_NAME",
                                        "SLURM_JOB_NAME",
                                        NULL};

static int64_t first_number(const char *text, size_t size, const char *const *names)
{
    for (; *names != NULL; names++) {
        const char *value = proc_environ_find(text, size, *names);
        uint64_t n;
        if (value != NULL && number_u64(value, strlen(value), &n) == 0 && n <= INT32_MAX)
            return (int64_t)n;
    }
    return MEMBER_UNKNOWN;
}

/* Of a job that nobody has named: where its ranks meet tells it from others. */
static void meeting_place(const char *text, size_t size, char *ret, size_t room)
{
    const char *address = proc_environ_find(text, size, "MASTER_ADDR");
    const char *port = proc_environ_find(text, size, "MASTER_PORT");
    if (address != NULL && address[0] != '\0' && port != NULL && port[0] != '\0')
        (void)snprintf(ret, room, "%.100s:%.8s", address, port);
}

/* "none" is what torchrun calls a job that nobody has named. */
static void first_text(const char *text, size_t size, const char *const *names, char *ret,
                       size_t room)
{
    ret[0] = '\0';
    for (; *names != NULL && ret[0] == '\0'; names++) {
        const char *value = proc_environ_find(text, size, *names);
        if (value != NULL && strcmp(value, "none") != 0)
            (void)snprintf(ret, room, "%s", value);
    }
}

void member_place_statement(struct buf *ret)
{
    (void)buf_adds(ret, "select name, value from process.envs where name in (");
    for (size_t i = 0; i < JOB_VARIABLES_N; i++)
        (void)buf_addf(ret, "%s'%s'", i > 0 ? ", " : "", job_variables[i]);
    (void)buf_addc(ret, ')');
}

void member_place(const char *environment, size_t size, struct member_tags *ret)
{
    static const char *const roles[] = {"ROLE_NAME", NULL};

    ret->rank = first_number(environment, size, rank_names);
    ret->local_rank = first_number(environment, size, local_names);
    ret->node_rank = first_number(environment, size, node_names);
    first_text(environment, size, roles, ret->role, sizeof(ret->role));
    first_text(environment, size, job_names, ret->job, sizeof(ret->job));
    if (ret->job[0] == '\0')
        meeting_place(environment, size, ret->job, sizeof(ret->job));
}
