/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/job/local_ranks.h - the ranks of jobs among the processes of this machine, whether they
 * have been entered or not.
 *
 * Nobody is asked: what a process is, its environment says as it was when the process began, as
 * torchrun, SLURM, Open MPI, PMI and Kubernetes set it.  One thread.
 */
#ifndef CLI_JOB_LOCAL_RANKS_H
#define CLI_JOB_LOCAL_RANKS_H

#include <stdint.h>
#include <sys/types.h>

#include "cli/job/job.h"
#include "cli/job/job_place.h"

#define LOCAL_RANKS_MAX 4096

struct local_rank {
    pid_t pid, parent;
    struct member_tags tags; /* job: what to call it, "127.0.0.1:29500" where it has no name */
    struct job_place place;
};

struct local_ranks {
    struct local_rank *list; /* in order of job, then rank */
    uint32_t n, room;
};

/* Find the ranks of one job, by any of its names (cli/many/members.h); NULL: of all.  0 or -errno
 * with err_set(). */
int local_ranks_find(const char *job, struct local_ranks *ret);
/* 0, or -EINVAL with err_set(): several jobs, and none is named. */
int local_ranks_of_one_job(const struct local_ranks *r);
void local_ranks_done(struct local_ranks *r); /* of zeros, too */

#endif
