/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/job/place.c - a process's place in a job, and what that is called, by its environment as it
 * was when the process began.
 *
 * One thread.  Whoever started it has written it: numbers are checked, texts are cut.
 */
#include <stdio.h>
#include <string.h>

#include "cli/job/job.h"
#include "sdk/lib/buf.h"
#include "sdk/lib/job_variables.h"
#include "sdk/lib/number.h"
#include "sdk/lib/proc/proc_file.h"

/* The first one that says it is believed: a name nearer to the program comes first.  All of them
 * stand in job_variables, too, which are what a core is asked for and leaves. */
static const char *const rank_names[] = {"RANK",     "OMPI_COMM_WORLD_RANK", "PMIX_RANK",
                                         "PMI_RANK", "SLURM_PROCID",         "JOB_COMPLETION_INDEX",
                                         NULL};
static const char *const local_names[] = {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK",
                                          "MPI_LOCALRANKID", "SLURM_LOCALID", NULL};
static const char *const node_names[] = {"GROUP_RANK", "NODE_RANK", "SLURM_NODEID", NULL};
/* A job is called by the first of these; it goes by any of them. */
static const char *const job_names[] = {
    "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID",   "PBS_JOBID", "LSB_JOBID", "JOB_NAME",
    "SLURM_JOB_NAME",      "PMIX_NAMESPACE", NULL};

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

static const char *value_of(const struct buf *b, const char *name)
{
    const char *value = proc_environ_find(b->data, b->size, name);

    return value != NULL ? value : "";
}

void job_master(const struct buf *b, char *ret, size_t size)
{
    const char *address = value_of(b, "MASTER_ADDR"), *port = value_of(b, "MASTER_PORT");

    ret[0] = '\0';
    if (address[0] != '\0' && port[0] != '\0')
        (void)snprintf(ret, size, "%.100s:%.8s", address, port);
}

/* SLURM's words for a job: "4711"; "4711_3", a task of an array, each of which has an id of its own
 * besides; and "4711.0", what one srun in it has started.  A job has several of these, as a rank 0
 * has. */
static void slurm_name(const struct buf *b, bool step, char *ret, size_t size)
{
    const char *array = value_of(b, "SLURM_ARRAY_JOB_ID"),
               *task = value_of(b, "SLURM_ARRAY_TASK_ID"), *of = value_of(b, "SLURM_STEP_ID");
    bool is_task = array[0] != '\0' && task[0] != '\0';

    (void)snprintf(ret, size, "%.80s%s%.20s%s%.20s", is_task ? array : value_of(b, "SLURM_JOB_ID"),
                   is_task ? "_" : "", is_task ? task : "", step && of[0] != '\0' ? "." : "",
                   step ? of : "");
}

static bool is_slurm(const struct buf *b, const char *name)
{
    const char *id = value_of(b, "SLURM_JOB_ID"), *of = value_of(b, "SLURM_STEP_ID");
    char text[128];

    if (id[0] == '\0')
        return false;
    for (int step = 0; step < 2; step++) {
        slurm_name(b, step, text, sizeof(text));
        if (strcmp(text, name) == 0)
            return true;
    }
    (void)snprintf(text, sizeof(text), "%.80s.%.20s", id, of);
    return strcmp(value_of(b, "SLURM_ARRAY_JOB_ID"), name) == 0 ||
           (of[0] != '\0' && strcmp(text, name) == 0);
}

bool job_is_named(const struct buf *environment, const char *name)
{
    char master[128];

    for (const char *const *at = job_names; *at != NULL; at++)
        if (name != NULL ? strcmp(value_of(environment, *at), name) == 0
                         : value_of(environment, *at)[0] != '\0')
            return true;
    job_master(environment, master, sizeof(master));
    return name != NULL ? strcmp(master, name) == 0 || is_slurm(environment, name)
                        : master[0] != '\0';
}

bool place_is_by_srun(const char *environment, size_t size)
{
    static const char *const others[] = {"TORCHELASTIC_RUN_ID", "OMPI_COMM_WORLD_RANK",
                                         "MPI_LOCALRANKID"};
    bool ret = true;

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        const char *value = proc_environ_find(environment, size, others[i]);
        ret = ret && (value == NULL || value[0] == '\0');
    }
    return ret && proc_environ_find(environment, size, "SLURM_STEP_ID") != NULL;
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

/* Lightning, where it starts the ranks, gives each only its place on its node: on the first node
 * that is its rank, on others nobody says how many there are before it. */
static int64_t lightning_rank(const char *environment, size_t size, const struct member_tags *place)
{
    static const char *const world[] = {"WORLD_SIZE", NULL}, *const node[] = {"NODE_RANK", NULL};
    const struct buf b = {.data = (char *)(uintptr_t)environment, .size = size};
    char master[128];

    job_master(&b, master, sizeof(master));
    return first_number(environment, size, node) == 0 && master[0] != '\0' &&
                   place->local_rank < first_number(environment, size, world)
               ? place->local_rank
               : MEMBER_UNKNOWN;
}

void member_place(const char *environment, size_t size, struct member_tags *ret)
{
    static const char *const roles[] = {"ROLE_NAME", NULL};

    ret->rank = first_number(environment, size, rank_names);
    ret->local_rank = first_number(environment, size, local_names);
    ret->node_rank = first_number(environment, size, node_names);
    if (ret->rank == MEMBER_UNKNOWN)
        ret->rank = lightning_rank(environment, size, ret);
    first_text(environment, size, roles, ret->role, sizeof(ret->role));
    first_text(environment, size, job_names, ret->job, sizeof(ret->job));
    const struct buf b = {.data = (char *)(uintptr_t)environment, .size = size};
    if (ret->job[0] != '\0' && strcmp(ret->job, value_of(&b, "SLURM_JOB_ID")) == 0)
        slurm_name(&b, place_is_by_srun(environment, size), ret->job, sizeof(ret->job));
    if (ret->job[0] == '\0')
        job_master(&b, ret->job, sizeof(ret->job));
}
