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
 * job, or jobs that somebody has called the same; and a host may lie. */
struct job_claim { /* one host's */
    char host[256], job[300], master[300], launcher[16];
    int64_t world_size; /* MEMBER_UNKNOWN */
    uint32_t votes;     /* it has */
    bool here;          /* it is this machine */
    bool other;         /* it speaks of another job than most do */
};
struct job_said {
    struct job_claim *list; /* of zeros at the beginning */
    uint32_t n, room;
};
#define JOB_SAID_NONE UINT32_MAX
/* One host's answer; host NULL: this machine's.  *ret: which claim it is; JOB_SAID_NONE: it names
 * no job. */
int job_said_by(struct job_said *s, const char *host, const struct job_claim *what, uint32_t *ret);
/* The job that more than half of them name, where this machine counts once more, and who names the
 * one that was asked for (NULL: none): *ret is the claim of one of them, with the world size that
 * most of them say; NULL: none has named one.  Those of others are marked.  -EINVAL with err_set():
 * no job has so many.  twice: two hosts have said that they have the same rank, which of one job no
 * two have. */
int job_said_settle(struct job_said *s, const char *asked, bool twice,
                    const struct job_claim **ret);
/* Why the ranks of this claim, which is marked, were left out. */
void job_said_why(const struct job_claim *other, const struct job_claim *most, char *ret,
                  size_t size);
void job_said_done(struct job_said *s);

void job_place_of(const char *environment, size_t size, struct job_place *ret);

#endif
