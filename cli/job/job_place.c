/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/job/job_place.c - see job_place.h.
 *
 * Any thread.  Launchers run inside of each other (srun starts torchrun, which starts ranks), so
 * the first of this table that is there is the one that started the process itself.
 */
#include "cli/job/job_place.h"

#include <stdio.h>
#include <string.h>

#include "cli/job/job.h"
#include "sdk/lib/number.h"
#include "sdk/lib/proc/proc_file.h"

/* Where the first variable is there, the second says how many ranks there are. */
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

struct environment {
    const char *text;
    size_t size;
};

static const char *value_of(const struct environment *e, const char *name)
{
    const char *value = name != NULL ? proc_environ_find(e->text, e->size, name) : NULL;

    return value != NULL && value[0] != '\0' ? value : NULL;
}

static int64_t number_of(const struct environment *e, const char *name)
{
    const char *value = value_of(e, name);
    uint64_t n;

    return value != NULL && number_u64(value, strlen(value), &n) == 0 && n <= INT32_MAX
               ? (int64_t)n
               : MEMBER_UNKNOWN;
}

static void text_of(const struct environment *e, const char *name, char *ret, size_t room)
{
    const char *value = value_of(e, name);

    (void)snprintf(ret, room, "%s", value != NULL ? value : "");
}

/* A torchrun within SLURM has the list of hosts of that.  (An mpirun has been given all nodes of
 * the job; its daemons on the others are a step, which the first node is not of.) */
static void take_nodes(const struct environment *e, struct job_place *p)
{
    bool mpirun = strcmp(p->launcher, "openmpi") == 0 || strcmp(p->launcher, "mpich") == 0;

    text_of(e, mpirun ? "SLURM_JOB_NODELIST" : "SLURM_STEP_NODELIST", p->nodes, sizeof(p->nodes));
    if (p->nodes[0] == '\0')
        text_of(e, "SLURM_JOB_NODELIST", p->nodes, sizeof(p->nodes));
    if (strlen(p->nodes) == sizeof(p->nodes) - 1)
        p->nodes[0] = '\0'; /* half a list would name other hosts */
}

static void take_master(const struct environment *e, struct job_place *p)
{
    const char *address = value_of(e, "MASTER_ADDR"), *port = value_of(e, "MASTER_PORT");

    if (address != NULL && port != NULL &&
        (size_t)snprintf(p->master, sizeof(p->master), "%s:%s", address, port) >= sizeof(p->master))
        p->master[0] = '\0';
}

void job_place_of(const char *environment, size_t size, struct job_place *ret)
{
    const struct environment e = {environment, size};
    const struct launcher *l = launchers;

    while (l->sign != NULL && value_of(&e, l->sign) == NULL)
        l++;
    *ret = (struct job_place){.launcher = l->name, .world_size = number_of(&e, l->world_size)};
    ret->local_size = number_of(&e, "LOCAL_WORLD_SIZE");
    ret->restarts = number_of(&e, "TORCHELASTIC_RESTART_COUNT");
    ret->max_restarts = number_of(&e, "TORCHELASTIC_MAX_RESTARTS");
    text_of(&e, "TORCHELASTIC_RUN_ID", ret->run_id, sizeof(ret->run_id));
    if (strcmp(ret->run_id, "none") == 0) /* what torchrun calls one that nobody has named */
        ret->run_id[0] = '\0';
    take_nodes(&e, ret);
    take_master(&e, ret);
}
