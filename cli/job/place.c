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

/* If the first variable is there, that launcher has started the process, and the second says how
 * many ranks there are.  Launchers run inside of each other (srun starts torchrun, which starts
 * ranks): the first of this table that is there is the innermost. */
static const struct launcher {
    const char *name, *sign, *world_size;
} launchers[] = {{"torchrun", "TORCHELASTIC_RUN_ID", "WORLD_SIZE"},
                 {"torch", "RANK", "WORLD_SIZE"},
                 {"openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                 {"mpich", "MPI_LOCALRANKID", "PMI_SIZE"},
                 {"slurm", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_TASKS"},
                 {"slurm", "SLURM_PROCID", "SLURM_NTASKS"},
                 {"pmi", "PMI_RANK", "PMI_SIZE"},
                 {"kubernetes", "JOB_COMPLETION_INDEX", "WORLD_SIZE"},
                 {"unknown", NULL, "WORLD_SIZE"}};

const char *job_variable(const struct buf *environment, const char *name)
{
    const char *value = proc_environ_find(environment->data, environment->size, name);

    return value != NULL ? value : "";
}

static int64_t number_of(const struct buf *b, const char *name)
{
    const char *value = job_variable(b, name);
    uint64_t n;

    return number_u64(value, strlen(value), &n) == 0 && n <= INT32_MAX ? (int64_t)n
                                                                       : MEMBER_UNKNOWN;
}

static int64_t first_number(const struct buf *b, const char *const *names)
{
    int64_t n = MEMBER_UNKNOWN;

    for (; *names != NULL && n == MEMBER_UNKNOWN; names++)
        n = number_of(b, *names);
    return n;
}

static const struct launcher *launcher_of(const struct buf *b)
{
    const struct launcher *l = launchers;

    while (l->sign != NULL && job_variable(b, l->sign)[0] == '\0')
        l++;
    return l;
}

/* Half an address would name another place: one that is too long is none. */
static void read_master(const struct buf *b, char ret[JOB_NAME_BYTES])
{
    const char *address = job_variable(b, "MASTER_ADDR"), *port = job_variable(b, "MASTER_PORT");

    if (address[0] == '\0' || port[0] == '\0' ||
        snprintf(ret, JOB_NAME_BYTES, "%s:%s", address, port) >= JOB_NAME_BYTES)
        ret[0] = '\0';
}

/* SLURM's words for a job: "4711"; "4711_3", a task of an array, each of which has an id of its own
 * besides; and "4711.0", what one srun in it has started.  A job has several of these, as a rank 0
 * has. */
static void slurm_name(const struct buf *b, bool step, char *ret, size_t size)
{
    const char *array = job_variable(b, "SLURM_ARRAY_JOB_ID"),
               *task = job_variable(b, "SLURM_ARRAY_TASK_ID"),
               *of = job_variable(b, "SLURM_STEP_ID");
    bool is_task = array[0] != '\0' && task[0] != '\0';

    (void)snprintf(ret, size, "%.80s%s%.20s%s%.20s",
                   is_task ? array : job_variable(b, "SLURM_JOB_ID"), is_task ? "_" : "",
                   is_task ? task : "", step && of[0] != '\0' ? "." : "", step ? of : "");
}

static bool is_slurm(const struct buf *b, const char *name)
{
    const char *id = job_variable(b, "SLURM_JOB_ID"), *of = job_variable(b, "SLURM_STEP_ID");
    char text[128];

    if (id[0] == '\0')
        return false;
    for (int step = 0; step < 2; step++) {
        slurm_name(b, step, text, sizeof(text));
        if (strcmp(text, name) == 0)
            return true;
    }
    (void)snprintf(text, sizeof(text), "%.80s.%.20s", id, of);
    return strcmp(job_variable(b, "SLURM_ARRAY_JOB_ID"), name) == 0 ||
           (of[0] != '\0' && strcmp(text, name) == 0);
}

bool job_is_named(const struct buf *environment, const char *name)
{
    char master[JOB_NAME_BYTES];

    for (const char *const *at = job_names; *at != NULL; at++)
        if (name != NULL ? strcmp(job_variable(environment, *at), name) == 0
                         : job_variable(environment, *at)[0] != '\0')
            return true;
    read_master(environment, master);
    return name != NULL ? strcmp(master, name) == 0 || is_slurm(environment, name)
                        : master[0] != '\0';
}

/* SLURM's srun has started it itself, and no mpirun or torchrun that stands between. */
static bool is_by_srun(const struct buf *b)
{
    return job_variable(b, "TORCHELASTIC_RUN_ID")[0] == '\0' &&
           job_variable(b, "OMPI_COMM_WORLD_RANK")[0] == '\0' &&
           job_variable(b, "MPI_LOCALRANKID")[0] == '\0' &&
           proc_environ_find(b->data, b->size, "SLURM_STEP_ID") != NULL;
}

/* "none" is what torchrun calls a job that nobody has named. */
static void read_name(const struct buf *b, struct rank *r)
{
    r->job[0] = '\0';
    for (const char *const *at = job_names; *at != NULL && r->job[0] == '\0'; at++)
        if (strcmp(job_variable(b, *at), "none") != 0)
            (void)snprintf(r->job, sizeof(r->job), "%s", job_variable(b, *at));
    if (r->job[0] != '\0' && strcmp(r->job, job_variable(b, "SLURM_JOB_ID")) == 0)
        slurm_name(b, is_by_srun(b), r->job, sizeof(r->job));
    if (r->job[0] == '\0')
        memcpy(r->job, r->master, sizeof(r->job));
}

void job_add_variables_statement(struct buf *ret)
{
    (void)buf_adds(ret, "select name, value from process.envs where name in (");
    for (size_t i = 0; i < JOB_VARIABLES_N; i++)
        (void)buf_addf(ret, "%s'%s'", i > 0 ? ", " : "", job_variables[i]);
    (void)buf_addc(ret, ')');
}

/* Lightning, where it starts the ranks, gives each only its place on its node: on the first node
 * that is its rank, on others nobody says how many there are before it. */
static int64_t lightning_rank(const struct buf *b, const struct rank *r)
{
    return number_of(b, "NODE_RANK") == 0 && r->master[0] != '\0' &&
                   r->local_rank < number_of(b, "WORLD_SIZE")
               ? r->local_rank
               : MEMBER_UNKNOWN;
}

void rank_read_environment(const struct buf *environment, struct rank *ret)
{
    const struct launcher *l = launcher_of(environment);

    (void)snprintf(ret->launcher, sizeof(ret->launcher), "%s", l->name);
    ret->world_size = number_of(environment, l->world_size);
    ret->local_size = number_of(environment, "LOCAL_WORLD_SIZE");
    ret->restarts = number_of(environment, "TORCHELASTIC_RESTART_COUNT");
    ret->max_restarts = number_of(environment, "TORCHELASTIC_MAX_RESTARTS");
    read_master(environment, ret->master);
    ret->rank = first_number(environment, rank_names);
    ret->local_rank = first_number(environment, local_names);
    ret->node_rank = first_number(environment, node_names);
    if (ret->rank == MEMBER_UNKNOWN)
        ret->rank = lightning_rank(environment, ret);
    const char *role = job_variable(environment, "ROLE_NAME");
    (void)snprintf(ret->role, sizeof(ret->role), "%s", strcmp(role, "none") != 0 ? role : "");
    read_name(environment, ret);
}

/* A torchrun within SLURM has the list of hosts of that.  (An mpirun has been given all nodes of
 * the job; its daemons on the others are a step, which the first node is not of.) */
void job_read_nodes(const struct buf *environment, char *ret, size_t size)
{
    const char *launcher = launcher_of(environment)->name;
    bool mpirun = strcmp(launcher, "openmpi") == 0 || strcmp(launcher, "mpich") == 0;
    const char *step = mpirun ? "" : job_variable(environment, "SLURM_STEP_NODELIST");
    const char *list = step[0] != '\0' ? step : job_variable(environment, "SLURM_JOB_NODELIST");

    /* Half a list would name other hosts. */
    (void)snprintf(ret, size, "%s", strlen(list) < size - 1 ? list : "");
}
