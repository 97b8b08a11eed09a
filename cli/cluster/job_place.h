/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/cluster/job_place.h - what a process's environment says of its job as a whole.
 *
 * Any thread; no state.  Whoever started the process has written it: numbers are checked, texts are
 * cut, and nothing of it is run.
 */
#ifndef CLI_CLUSTER_JOB_PLACE_H
#define CLI_CLUSTER_JOB_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Beside what struct member_tags has. */
struct job_place {
    const char *launcher; /* "torchrun", "slurm", "openmpi", "mpich", "pmi", "kubernetes", or
                           * "torch": RANK and WORLD_SIZE only, as torch.distributed reads them */
    char run_id[128];     /* torchrun's, "": another has started it, or nobody has named it */
    char master[300];     /* "MASTER_ADDR:MASTER_PORT", "" */
    char nodes[4096];     /* SLURM's list of hosts: sdk/lib/host_list.h; "" */
    int64_t world_size;   /* MEMBER_UNKNOWN */
    int64_t restarts, max_restarts; /* of torchrun: so often it has started all anew because a rank
                                     * failed, and may; MEMBER_UNKNOWN */
    int64_t local_size; /* ranks of this node, whose numbers follow each other; MEMBER_UNKNOWN */
};

/* job_said.c: whose job hosts have answered for.  A name may be that of two: steps of one SLURM
 * job, or jobs that somebody has called the same. */
struct job_said {
    char job[300], host[256], master[300];
    char other_job[300], other_host[256], other_master[300]; /* the first that differs; "" */
};
/* One host's answer; "": it does not say. */
void job_said_by(struct job_said *s, const char *host, const char *job, const char *master);
/* -EINVAL with err_set(): several.  twice: two hosts have said that they have the same rank, which
 * of one job no two have. */
int job_said_one(const struct job_said *s, bool twice);

void job_place_of(const char *environment, size_t size, struct job_place *ret);

#endif
