/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/job/job_place.h - what a process's environment says of its job as a whole.
 *
 * Any thread; no state.  Whoever started the process has written it: numbers are checked, texts are
 * cut, and nothing of it is run.
 */
#ifndef CLI_JOB_JOB_PLACE_H
#define CLI_JOB_JOB_PLACE_H

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
struct job_claim { /* one host's */
    char host[256], job[300], master[300], launcher[16];
    int64_t world_size; /* MEMBER_UNKNOWN */
    bool other;         /* it is another job than the one that is meant */
};
struct job_said {
    struct job_claim *list; /* of zeros at the beginning */
    uint32_t n, room;
};
#define JOB_SAID_NONE UINT32_MAX
/* One host's answer; host NULL: this machine's.  *ret: which claim it is; JOB_SAID_NONE: it names
 * no job. */
int job_said_by(struct job_said *s, const char *host, const struct job_claim *what, uint32_t *ret);
/* Find the job that `asked` (NULL: no name) names exactly, or the only one that is named, with the
 * least world size that is known; its name is "" where nobody has named one.  Claims of another job
 * are marked.  -EINVAL with err_set(): several are named, and none is meant.  twice: two hosts claim
 * the same rank, which of one job no two have, so they must meet at one place. */
int job_said_settle(struct job_said *s, const char *asked, bool twice, struct job_claim *ret);
/* Why the ranks of this claim, which is marked, were left out. */
void job_said_why(const struct job_claim *other, const struct job_claim *job, char *ret,
                  size_t size);
void job_said_done(struct job_said *s);

void job_place_of(const char *environment, size_t size, struct job_place *ret);

#endif
